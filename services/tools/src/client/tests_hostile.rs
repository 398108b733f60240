//! Executors that mean harm: what the client makes of their bytes, their figures, their sizes, their silence and their
//! noise. Nothing here may panic, hang, or cost more memory than a message.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use serde_json::json;
use signalbox_domain::quantity::BudgetCategory;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::tools::{KnownOutcome, Tools as _};
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::tool_executor_server::{ToolExecutor, ToolExecutorServer};
use signalbox_proto::v1::tool_result::Outcome;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use super::testing::{Bench, HandClock, Say, order, say, wire_result};
use super::{BindError, ExecutorClient, in_process};
use crate::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};
use crate::tool::PROGRESS_CHARS_MAX;

const MIB: usize = 1024 * 1024;

type Answers = Pin<Box<dyn Stream<Item = Result<v1::ExecuteResponse, Status>> + Send>>;
type OnExecute = Box<dyn Fn(v1::ExecuteRequest) -> Answers + Send + Sync>;

/// An executor that describes and answers whatever a test says, and hears of cancels.
struct Hostile {
    tools: Vec<v1::ToolDescriptor>,
    execute: OnExecute,
    outcome: v1::OutcomeResponse,
    cancelled: mpsc::UnboundedSender<String>,
}

impl Hostile {
    fn answering(execute: impl Fn(v1::ExecuteRequest) -> Answers + Send + Sync + 'static) -> Self {
        let (cancelled, _) = mpsc::unbounded_channel();
        Self { tools: vec![described()], execute: Box::new(execute), outcome: Default::default(), cancelled }
    }
    fn describing(tools: Vec<v1::ToolDescriptor>) -> Self {
        Self { tools, ..Self::answering(|_| Box::pin(stream::empty())) }
    }
    fn service(self) -> ToolExecutorServer<Self> {
        ToolExecutorServer::new(self).max_encoding_message_size(usize::MAX)
    }
    async fn bound(self) -> Result<ExecutorClient, BindError> {
        let channel = in_process(self.service());
        ExecutorClient::bind(vec![("hostile".to_owned(), channel)], 2, Arc::new(HandClock::default())).await
    }
    async fn bench(self) -> Bench {
        Bench { client: self.bound().await.unwrap(), clock: Arc::default() }
    }
}

#[tonic::async_trait]
impl ToolExecutor for Hostile {
    type ExecuteStream = Answers;

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        Ok(Response::new(v1::DescribeResponse { tools: self.tools.clone() }))
    }
    async fn execute(&self, request: Request<v1::ExecuteRequest>) -> Result<Response<Answers>, Status> {
        Ok(Response::new((self.execute)(request.into_inner())))
    }
    async fn cancel(&self, request: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        let _ = self.cancelled.send(request.into_inner().call_id);
        Ok(Response::new(v1::CancelResponse {}))
    }
    async fn outcome(&self, _: Request<v1::OutcomeRequest>) -> Result<Response<v1::OutcomeResponse>, Status> {
        Ok(Response::new(self.outcome.clone()))
    }
}

fn described() -> v1::ToolDescriptor {
    v1::ToolDescriptor { tool_id: "memory.read".into(), semver: "1.0.0".into(), ..Default::default() }
}

fn event(event: Event) -> Result<v1::ExecuteResponse, Status> {
    Ok(v1::ExecuteResponse { event: Some(event) })
}

fn heartbeat() -> Result<v1::ExecuteResponse, Status> {
    event(Event::Heartbeat(v1::Heartbeat {}))
}

fn code(result: &CallResult) -> &str {
    match &result.ending {
        CallEnding::Failed { code, .. } | CallEnding::NotStarted { code, .. } => code,
        CallEnding::Unknown { .. } => "unknown",
        CallEnding::Cancelled => "cancelled",
        CallEnding::Answered { .. } => "answered",
    }
}

/// What the client makes of one result.
async fn made_of(result: v1::ToolResult) -> CallResult {
    let (bench, _) = Bench::of_script(vec![say(Event::Result(result))]).await;
    let made = bench.call(order(1)).await;
    assert!(bench.client.permit(&order(1).tool_id).is_some(), "the permit comes back");
    made
}

#[tokio::test]
async fn an_output_that_is_not_strict_json_breaks_the_contract_and_a_nul_in_a_string_does_not() {
    let deep = format!("{}{}", "[".repeat(PAYLOAD_DEPTH_MAX + 1), "]".repeat(PAYLOAD_DEPTH_MAX + 1));
    let broken: [&[u8]; 12] = [
        b"",
        b"\0",
        b"{\"a\":\"x\0y\"}",
        b"{\"a\":1}\0",
        br#""\ud83d""#,
        br#"{"\udc00":1}"#,
        b"\"\xff\xfe\"",
        b"\xef\xbb\xbf{}",
        br#"{"a":1,"a":2}"#,
        b"1e300",
        b"NaN",
        deep.as_bytes(),
    ];
    for output in broken {
        let result = made_of(v1::ToolResult { output_json: output.to_vec().into(), ..answer() }).await;
        assert_eq!((code(&result), &result.measured), ("tool-protocol-error", &None), "{:.40?}", output);
    }
    let kept =
        made_of(v1::ToolResult { output_json: br#"{"k\u0000":"a\u0000b"}"#.as_slice().into(), ..answer() }).await;
    assert!(matches!(kept.ending, CallEnding::Answered { output, .. } if output == json!({ "k\0": "a\0b" })));
}

fn answer() -> v1::ToolResult {
    wire_result(Outcome::Ok, &json!({}))
}

#[tokio::test]
async fn figures_that_are_no_amounts_reach_the_charge_policy_as_they_are_and_an_unknown_category_does_not() {
    for units in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300, 9.3e18, f64::MIN_POSITIVE] {
        let measured = v1::MeasuredUsage { units: [("cost-units".to_owned(), units)].into() };
        let result = made_of(v1::ToolResult { measured: Some(measured), ..answer() }).await;
        let [(BudgetCategory::CostUnits, got)] = result.measured.as_deref().unwrap() else { panic!("{result:?}") };
        assert_eq!((code(&result), got.to_bits()), ("answered", units.to_bits()));
    }
    for name in ["", "Cost-Units", "cost-units\0", "euros", &"x".repeat(MIB)] {
        let measured = v1::MeasuredUsage { units: [(name.to_owned(), 1.0)].into() };
        let result = made_of(v1::ToolResult { measured: Some(measured), ..answer() }).await;
        let CallEnding::Failed { code, message } = &result.ending else { panic!("{result:?}") };
        assert_eq!((code.as_str(), &result.measured), ("tool-protocol-error", &None));
        assert!(message.len() < 300 && !message.contains('\0'), "{message}");
    }
}

#[tokio::test]
async fn artifacts_that_lead_out_of_a_folder_or_into_a_terminal_break_the_contract() {
    let good = v1::Artifact {
        name: "briefing – final.md".into(),
        persisted_key: "packs/1/briefing.md".into(),
        media_type: "text/markdown; charset=utf-8".into(),
        sha256: "0".repeat(64),
        size: 1 << 53,
    };
    let result = made_of(v1::ToolResult { artifacts: vec![good.clone()], ..answer() }).await;
    assert!(matches!(&result.ending, CallEnding::Answered { artifacts, .. } if artifacts[0].size == 1 << 53));
    let mut bad = Vec::new();
    for name in ["", "..", "../a", "a/../../b", "/etc/passwd", "\\\\host\\a", "a\\..\\b", "a\0", "a\nb", "\u{1b}[2Ja"] {
        bad.push(v1::Artifact { name: name.into(), ..good.clone() });
        bad.push(v1::Artifact { persisted_key: name.into(), ..good.clone() });
    }
    bad.push(v1::Artifact { name: "x".repeat(2_001), ..good.clone() });
    bad.push(v1::Artifact { media_type: "text/html\r\nx: y".into(), ..good.clone() });
    bad.push(v1::Artifact { sha256: "A".repeat(64), ..good.clone() });
    bad.push(v1::Artifact { size: u64::MAX, ..good.clone() });
    for artifact in bad {
        let name = format!("{artifact:.60?}");
        let result = made_of(v1::ToolResult { artifacts: vec![artifact], ..answer() }).await;
        assert_eq!(code(&result), "tool-protocol-error", "{name}");
    }
    let many = made_of(v1::ToolResult { artifacts: vec![good; 1_001], ..answer() }).await;
    assert_eq!(code(&many), "tool-protocol-error");
    let evidence =
        v1::Evidence { evidence_pack_id: "e".into(), grounding_state: "grounded".into(), citation_count: u64::MAX };
    assert_eq!(code(&made_of(v1::ToolResult { evidence: Some(evidence), ..answer() }).await), "tool-protocol-error");
}

#[tokio::test]
async fn the_words_of_a_failure_are_cut_to_a_length_that_can_be_kept() {
    let failed = v1::ToolResult {
        outcome: Outcome::Error.into(),
        error_code: "broken".into(),
        error_message: "ü\0".repeat(MIB / 2),
        ..Default::default()
    };
    let CallEnding::Failed { code, message } = made_of(failed).await.ending else { panic!("not failed") };
    assert_eq!((code.as_str(), message.chars().count()), ("broken", 2_000));
}

#[tokio::test]
async fn heartbeats_without_pause_and_without_end_do_not_outlive_the_timeout() {
    // Real time: a stream that is never idle gives a paused clock no reason to move.
    let (cancelled, mut heard) = mpsc::unbounded_channel();
    let endless = |_| -> Answers { Box::pin(stream::repeat_with(heartbeat)) };
    let bench = Hostile { cancelled, ..Hostile::answering(endless) }.bench().await;
    let mut order = order(1);
    order.timeout_ms = 300;
    let call_id = order.call_id.to_string();
    let result = tokio::time::timeout(Duration::from_secs(20), bench.call(order)).await.expect("it never ended");
    assert_eq!(code(&result), "tool-timeout");
    assert_eq!(heard.recv().await, Some(call_id));
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_only_ever_says_it_is_alive_is_cancelled_at_the_timeout() {
    let (cancelled, mut heard) = mpsc::unbounded_channel();
    let pulse = |_| -> Answers {
        Box::pin(stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            heartbeat()
        }))
    };
    let bench = Hostile { cancelled, ..Hostile::answering(pulse) }.bench().await;
    let began = tokio::time::Instant::now();
    assert_eq!(code(&bench.call(order(1)).await), "tool-timeout");
    assert_eq!(began.elapsed().as_secs(), 60);
    assert_eq!(heard.recv().await, Some(order(1).call_id.to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_result_after_the_cancel_is_heard_and_what_follows_it_is_not_believed() {
    for (again, expected) in [(0, "answered"), (1, "tool-protocol-error"), (10_000, "tool-protocol-error")] {
        let (cancelled, heard) = mpsc::unbounded_channel();
        let heard = Arc::new(tokio::sync::Mutex::new(heard));
        let late = move |_| -> Answers {
            let heard = Arc::clone(&heard);
            let first = stream::once(async move {
                heard.lock().await.recv().await;
                event(Event::Result(answer()))
            });
            Box::pin(first.chain(stream::repeat_with(|| event(Event::Result(answer()))).take(again)))
        };
        let bench = Hostile { cancelled, ..Hostile::answering(late) }.bench().await;
        let cancel = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            bench.client.cancel(&order(1).tool_id, order(1).call_id).await;
        };
        let (result, ()) = tokio::join!(bench.call(order(1)), cancel);
        assert_eq!(code(&result), expected, "{again} more");
    }
}

#[tokio::test(start_paused = true)]
async fn progress_is_cut_and_dropped_and_never_holds_up_the_result() {
    let long = "é\u{1b}".repeat(MIB / 2);
    let mut script = vec![say(Event::Progress(v1::Progress { message: long, percent: Some(u32::MAX) }))];
    let line = say(Event::Progress(v1::Progress { message: "x".repeat(1_000), percent: None }));
    script.extend(std::iter::repeat_n(line, 10_000));
    script.push(say(Event::Result(answer())));
    let (bench, _) = Bench::of_script(script).await;
    // Nobody reads the lines before the end: what does not fit is dropped.
    let (result, lines) = bench.call_listening(order(1)).await;
    assert_eq!((code(&result), lines.len()), ("answered", 64));
    assert_eq!((lines[0].message.chars().count(), lines[0].percent), (PROGRESS_CHARS_MAX, Some(100)));
}

#[tokio::test]
async fn a_flood_of_trailers_or_a_long_status_loses_the_call_and_not_the_executor() {
    let mut floods = vec![Status::internal("x".repeat(MIB))];
    let mut one = Status::internal("a long value");
    one.metadata_mut().insert("flood", MetadataValue::try_from("x".repeat(MIB)).unwrap());
    floods.push(one);
    let mut many = Status::internal("many values");
    for _ in 0..2_000 {
        many.metadata_mut().append("flood", MetadataValue::from_static("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
    }
    floods.push(many);
    for flood in floods {
        for after_headers in [false, true] {
            let beat = say(Event::Heartbeat(v1::Heartbeat {}));
            let script =
                if after_headers { vec![beat, Say::Fail(flood.clone())] } else { vec![Say::Fail(flood.clone())] };
            let (bench, _) = Bench::of_script(script).await;
            for n in 0..2 {
                let result = bench.call(order(n)).await;
                let CallEnding::Unknown { message } = &result.ending else { panic!("{result:.100?}") };
                assert!(message.len() < 200, "{message}");
            }
        }
    }
}

#[tokio::test]
async fn large_results_come_through_up_to_the_shared_limit_and_larger_ones_fail_on_the_same_connection() {
    let sized = |request: v1::ExecuteRequest| -> Answers {
        let args: serde_json::Value = serde_json::from_slice(&request.args_json).unwrap();
        let bytes = usize::try_from(args["bytes"].as_u64().unwrap()).unwrap();
        let output = format!("\"{}\"", "x".repeat(bytes - 2));
        Box::pin(stream::iter([event(Event::Result(v1::ToolResult { output_json: output.into(), ..answer() }))]))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    let incoming = TcpListenerStream::new(listener).inspect(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let serving = crate::serve::builder().add_service(Hostile::answering(sized).service());
    tokio::spawn(serving.serve_with_incoming(incoming));
    let clock = Arc::new(HandClock::default());
    let bench = Bench { client: ExecutorClient::connect(&uri, clock.clone()).await.unwrap(), clock };
    let cases = [
        (4 * MIB - 1, "answered"),
        (4 * MIB + 1, "answered"),
        (PAYLOAD_BYTES_MAX, "answered"),
        (PAYLOAD_BYTES_MAX + 1, "tool-protocol-error"),
        (MESSAGE_BYTES_MAX + 1, "tool-protocol-error"),
        (2, "answered"),
    ];
    for (n, (bytes, expected)) in (0..).zip(cases) {
        let mut order = order(n);
        order.args = json!({ "bytes": bytes });
        let result = bench.call(order).await;
        assert_eq!(code(&result), expected, "{bytes} bytes");
        if let CallEnding::Answered { output, .. } = result.ending {
            assert_eq!(output.as_str().map(str::len), Some(bytes - 2));
        }
    }
    assert!(connections.load(Ordering::SeqCst) <= 2, "{connections:?} connections");
}

#[tokio::test]
async fn a_description_that_claims_more_than_the_catalog_gives_is_refused() {
    let ceiling = |category: &str, micros: i64| {
        let micros = [(category.to_owned(), micros)].into();
        v1::ToolDescriptor { ceiling: Some(v1::Usage { micros }), ..described() }
    };
    let named = |id: &str| v1::ToolDescriptor { tool_id: id.into(), ..described() };
    let versioned = |semver: &str| v1::ToolDescriptor { semver: semver.into(), ..described() };
    let refused = [
        named(""),
        named("root.shell"),
        named("memory.read\0"),
        named("../memory.read"),
        named(&"x".repeat(MIB)),
        versioned(""),
        versioned("latest"),
        versioned("1.0.0\n"),
        versioned(&format!("1.0.0-{}", "a".repeat(200))),
        ceiling("cost-units", i64::MAX),
        ceiling("cost-units", -1),
        ceiling("external-calls", 1),
        ceiling("euros", 1),
    ];
    for tool in refused {
        let name = format!("{tool:.100?}");
        let error = Hostile::describing(vec![tool]).bound().await.expect_err(&name);
        assert_eq!(error.code(), "executor-not-described", "{name}");
        assert!(error.to_string().len() < 500, "{error}");
    }
    let twice = Hostile::describing(vec![described(), described()]).bound().await.unwrap_err();
    assert_eq!(twice.code(), "tool-bound-twice");
    let within = ceiling("cost-units", signalbox_domain::catalog::base_price(&order(1).tool_id).0);
    assert_eq!(Hostile::describing(vec![within]).bound().await.unwrap().configured().len(), 1);
}

#[tokio::test]
async fn schemas_of_any_size_are_not_kept_and_a_description_larger_than_a_message_is_refused() {
    let schema = |bytes: usize| v1::ToolDescriptor { input_schema_json: vec![b'{'; bytes].into(), ..described() };
    assert!(Hostile::describing(vec![schema(MIB)]).bound().await.is_ok());
    let error = Hostile::describing(vec![schema(MESSAGE_BYTES_MAX + 1)]).bound().await.unwrap_err();
    assert_eq!(error.code(), "executor-not-described");
}

#[tokio::test]
async fn an_outcome_that_makes_no_sense_is_read_like_a_result_or_as_nothing_kept() {
    use v1::outcome_response::State;
    let of = |state: i32, result: Option<v1::ToolResult>| async move {
        let outcome = v1::OutcomeResponse { state, result };
        let hostile = Hostile { outcome, ..Hostile::describing(vec![described()]) };
        hostile.bound().await.unwrap().outcome(&order(1).tool_id, order(1).call_id).await
    };
    let broken = v1::ToolResult { output_json: br#""\ud83d""#.as_slice().into(), ..answer() };
    let KnownOutcome::Ended(ended) = of(State::Ended.into(), Some(broken)).await else { panic!("not ended") };
    assert_eq!(code(&ended), "tool-protocol-error");
    assert_eq!(of(State::Ended.into(), None).await, KnownOutcome::NotKept);
    assert_eq!(of(99, Some(answer())).await, KnownOutcome::NotKept);
    assert_eq!(of(State::NotSeen.into(), Some(answer())).await, KnownOutcome::NotSeen);
}
