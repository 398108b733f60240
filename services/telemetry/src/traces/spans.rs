//! What is in a span: pure functions of what happened.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use signalbox_domain::ids::RunKey;
use signalbox_domain::run::append::RunHead;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::event::{CallPending, CallRefused, RunEvent, RunFinished};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_domain::run::trace::TraceContext;
use signalbox_ports::tools::CallOrder;
use signalbox_ports::trace::AnsweredRequest;

/// Longest name of a request: an unknown path can be as long as a header.
const NAME_CHARS_MAX: usize = 200;

pub(super) fn context(of: &TraceContext) -> SpanContext {
    let flags = TraceFlags::default().with_sampled(of.sampled);
    let (trace, span) = (TraceId::from_bytes(of.trace_id), SpanId::from_bytes(of.span_id));
    SpanContext::new(trace, span, flags, false, TraceState::default())
}

fn span(of: &TraceContext, parent: Option<[u8; 8]>, name: String, began: SystemTime, ended: SystemTime) -> SpanData {
    SpanData {
        span_context: context(of),
        parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: name.into(),
        start_time: began,
        end_time: ended.max(began),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::default(),
    }
}

/// A request at the edge.
pub(super) fn request(answered: &AnsweredRequest) -> SpanData {
    let name = answered.name.chars().take(NAME_CHARS_MAX).collect();
    let mut made = span(&answered.span, answered.parent, name, answered.began, answered.began + answered.took);
    made.span_kind = SpanKind::Server;
    made.parent_span_is_remote = answered.parent.is_some();
    match &answered.path {
        None => made.attributes.push(KeyValue::new("rpc.system", "grpc")),
        Some(path) => {
            let path: String = path.chars().take(NAME_CHARS_MAX).collect();
            made.attributes.push(KeyValue::new("http.request.method", answered.name.clone()));
            made.attributes.push(KeyValue::new("url.path", path));
            made.attributes.push(KeyValue::new("http.response.status_code", i64::from(answered.status)));
        }
    }
    if let Some(code) = answered.grpc_status {
        made.attributes.push(KeyValue::new("rpc.grpc.status_code", code));
    }
    if answered.status >= 500 || answered.grpc_status.is_some_and(|code| code != 0) {
        made.status = Status::error("");
    }
    made
}

/// The beginning of a run, and by what it was asked for.
pub(super) fn submitted(head: &RunHead, event: &RunEvent, cause: Option<TraceContext>, began: SystemTime) -> SpanData {
    let run = TraceContext::of_run(head.run_key);
    let own = run.with_span(event_span(&run, 1));
    let mut made = span(&own, Some(run.span_id), "submit".to_owned(), began, SystemTime::now());
    made.attributes = of_run(head);
    if let RunEvent::RunSubmitted(submitted) = event {
        made.attributes.push(KeyValue::new("gen_ai.agent.id", submitted.root_agent_id.to_string()));
        if let Some(pipeline) = &submitted.pipeline_id {
            made.attributes.push(KeyValue::new("signalbox.pipeline.id", pipeline.to_string()));
        }
    }
    // A run outlives the request that asked for it: the two are joined by a link, not as parent and child.
    made.links.links.extend(cause.map(|cause| Link::with_context(context(&cause))));
    made
}

/// A whole run, once it has ended.
pub(super) fn run(head: &RunHead, finished: &RunFinished, ended: SystemTime) -> SpanData {
    let run = TraceContext::of_run(head.run_key);
    let began = begun(head.run_key).unwrap_or(ended);
    let mut made = span(&run, None, "invoke_agent".to_owned(), began, ended);
    made.attributes = of_run(head);
    made.attributes.push(KeyValue::new("gen_ai.operation.name", "invoke_agent"));
    made.attributes.push(KeyValue::new("signalbox.run.status", finished.status.as_str()));
    if let Some(code) = &finished.code {
        made.attributes.push(KeyValue::new("error.type", code.clone()));
        made.status = Status::error(code.clone());
    }
    if let Some(blamed) = &finished.blamed_id {
        made.attributes.push(KeyValue::new("signalbox.blamed.id", blamed.clone()));
    }
    made
}

/// One entry as the journal took it.
pub(super) fn append(head: &RunHead, events: &[StoredEvent], began: SystemTime, ended: SystemTime) -> Option<SpanData> {
    let (first, last) = (events.first()?, events.last()?);
    let run = TraceContext::of_run(head.run_key);
    let own = run.with_span(event_span(&run, first.seq));
    let mut made = span(&own, Some(run.span_id), "journal.append".to_owned(), began, ended);
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    made.attributes = vec![
        KeyValue::new("signalbox.journal.first_seq", whole(first.seq)),
        KeyValue::new("signalbox.journal.last_seq", whole(last.seq)),
        KeyValue::new("signalbox.journal.events", kinds.join(" ")),
        KeyValue::new("signalbox.lease.epoch", whole(head.lease_epoch)),
    ];
    Some(made)
}

/// A call that the gate let nobody make.
pub(super) fn refused(head: &RunHead, call: &CallRefused, at: SystemTime) -> SpanData {
    let run = TraceContext::of_run(head.run_key);
    let own = TraceContext::of_call(head.run_key, call.call_id, 1);
    let mut made = span(&own, Some(run.span_id), format!("execute_tool {}", call.tool_id), at, at);
    made.attributes = vec![
        KeyValue::new("gen_ai.operation.name", "execute_tool"),
        KeyValue::new("gen_ai.tool.name", call.tool_id.to_string()),
        KeyValue::new("gen_ai.tool.call.id", call.call_id.to_string()),
        KeyValue::new("gen_ai.agent.id", call.agent_id.to_string()),
        KeyValue::new("signalbox.step.id", call.step_id.to_string()),
        KeyValue::new("signalbox.call.outcome", call.outcome.as_str()),
        KeyValue::new("error.type", call.code.clone()),
    ];
    made.status = Status::error(call.code.clone());
    made
}

/// A call that was out: from its admission to its answer.
pub(super) fn called(
    run: RunKey,
    admitted: &RunEvent,
    order: &CallOrder,
    result: &CallResult,
    times: Times,
) -> SpanData {
    let own = TraceContext::of_call(run, order.call_id, order.attempt);
    let root = TraceContext::of_run(run);
    let name = format!("execute_tool {}", order.tool_id);
    let mut made = span(&own, Some(root.span_id), name, times.admitted, times.ended);
    made.span_kind = SpanKind::Client;
    made.attributes = vec![
        KeyValue::new("gen_ai.operation.name", "execute_tool"),
        KeyValue::new("gen_ai.tool.name", order.tool_id.to_string()),
        KeyValue::new("gen_ai.tool.call.id", order.call_id.to_string()),
        KeyValue::new("signalbox.run.id", order.run_id.to_string()),
        KeyValue::new("signalbox.tenant.id", order.tenant_id.to_string()),
        KeyValue::new("signalbox.step.id", order.step_id.to_string()),
        KeyValue::new("signalbox.tool.semver", order.tool_semver.clone()),
        KeyValue::new("signalbox.call.attempt", i64::from(order.attempt)),
        // What passed between the instant the append began and the one the call went out: gate's record, disk and hand-over.
        KeyValue::new("signalbox.admission.ms", millis(times.dispatched, times.admitted)),
    ];
    if let RunEvent::CallPending(pending) = admitted {
        of_gate(pending, &mut made.attributes);
    }
    let (outcome, code) = ending(&result.ending);
    made.attributes.push(KeyValue::new("signalbox.call.ending", outcome));
    if let Some(code) = code {
        made.attributes.push(KeyValue::new("error.type", code.to_owned()));
        made.status = Status::error(code.to_owned());
    }
    made
}

/// When a call was admitted, handed out and over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) admitted: SystemTime,
    pub(super) dispatched: SystemTime,
    pub(super) ended: SystemTime,
}

/// What the gate decided by.
fn of_gate(pending: &CallPending, attributes: &mut Vec<KeyValue>) {
    attributes.push(KeyValue::new("gen_ai.agent.id", pending.agent_id.to_string()));
    attributes.push(KeyValue::new("signalbox.grant.id", pending.grant_id.to_string()));
    attributes.push(KeyValue::new("signalbox.governance.epoch", whole(pending.epoch)));
    for reservation in &pending.reservations {
        let name = format!("signalbox.reserved.{}", reservation.category.as_str());
        attributes.push(KeyValue::new(name, reservation.amount.to_string()));
    }
    if let Some(warning) = pending.budget_warnings.first() {
        attributes.push(KeyValue::new("signalbox.budget.warning", warning.verdict.clone()));
    }
}

fn of_run(head: &RunHead) -> Vec<KeyValue> {
    vec![
        KeyValue::new("signalbox.run.id", head.run_id.to_string()),
        KeyValue::new("signalbox.tenant.id", head.tenant_id.to_string()),
    ]
}

/// The span of the entry that wrote this event: none has two, and a call's is made otherwise.
fn event_span(run: &TraceContext, seq: u64) -> [u8; 8] {
    (u64::from_be_bytes(run.span_id) ^ seq.rotate_right(16)).max(1).to_be_bytes()
}

/// A run's key begins with the instant it was made at.
fn begun(run: RunKey) -> Option<SystemTime> {
    let (seconds, nanos) = run.uuid().get_timestamp()?.to_unix();
    Some(UNIX_EPOCH + Duration::new(seconds, nanos))
}

fn millis(later: SystemTime, earlier: SystemTime) -> f64 {
    later.duration_since(earlier).unwrap_or_default().as_secs_f64() * 1_000.0
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// How a call ended at its executor, and the code if it did not end well.
fn ending(ending: &CallEnding) -> (&'static str, Option<&str>) {
    match ending {
        CallEnding::Answered { partial: false, .. } => ("answered", None),
        CallEnding::Answered { partial: true, .. } => ("answered-in-part", None),
        CallEnding::Failed { code, .. } => ("failed", Some(code_of(code))),
        CallEnding::NotStarted { code, .. } => ("not-started", Some(code_of(code))),
        CallEnding::Unknown { .. } => ("unknown", Some("outcome-unknown")),
        CallEnding::Cancelled => ("cancelled", Some("cancelled")),
    }
}

/// An executor's code, if it is a code: what it says in prose may hold anything (I13).
fn code_of(code: &str) -> &str {
    let is_code =
        code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if is_code { code } else { "other" }
}
