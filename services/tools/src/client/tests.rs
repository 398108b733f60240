//! The contract between client and server, end to end over an in-memory connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::ids::ToolId;
use signalbox_domain::quantity::BudgetCategory;
use signalbox_domain::run::event::{ArtifactRef, Evidence, GroundingState};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::clock::{BootInstant, Clock as _, SystemClock};
use signalbox_ports::tools::{KnownOutcome, Tools as _};
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::tool_result::Outcome;
use tokio::sync::{Notify, mpsc};
use tonic::Status;

use super::testing::{Bench, Say, ScriptedTool, admission, order, say, wire_result};
use super::{BindError, Endpoint, ExecutorClient};
use crate::tool::{Answer, Measured, Recall, ToolOutcome};

fn done() -> ToolOutcome {
    ToolOutcome::Ok(Answer::new(json!({ "done": true }), Measured::from([(BudgetCategory::CostUnits, 1.0)])))
}

/// The code of a failure or of a call that was not started.
fn code(result: &CallResult) -> &str {
    match &result.ending {
        CallEnding::Failed { code, .. } | CallEnding::NotStarted { code, .. } => code,
        CallEnding::Unknown { .. } => "unknown",
        CallEnding::Cancelled => "cancelled",
        CallEnding::Answered { .. } => "answered",
    }
}

fn ok_line() -> Say {
    say(Event::Result(wire_result(Outcome::Ok, &json!({}))))
}

#[tokio::test]
async fn an_answer_comes_through_whole_with_its_progress() {
    let evidence = Evidence {
        evidence_pack_id: "e1".into(),
        grounding_state: GroundingState::PartiallyGrounded,
        citation_count: 3,
    };
    let artifact = ArtifactRef {
        name: "a.md".into(),
        persisted_key: "packs/r/a.md".into(),
        media_type: "text/markdown".into(),
        sha256: "0".repeat(64),
        size: 12,
    };
    let (e, a) = (evidence.clone(), artifact.clone());
    let bench = Bench::of_tool(ScriptedTool::new(move |call, progress| {
        progress.report("half way", Some(50));
        let output = json!({ "got": call.args, "left": call.time_left().as_secs() <= 60 });
        let answer = Answer {
            output,
            evidence: Some(e.clone()),
            artifacts: vec![a.clone()],
            effects: vec!["wrote a.md".into()],
            measured: Some(Measured::from([(BudgetCategory::CostUnits, 0.25)])),
        };
        async move { ToolOutcome::Partial(answer) }
    }))
    .await;
    let (result, lines) = bench.call_listening(order(1)).await;
    let CallEnding::Answered { partial, output, evidence: got, effects, artifacts } = result.ending else {
        panic!("not answered: {:?}", result.ending)
    };
    assert!(partial);
    assert_eq!(output, json!({ "got": { "n": 1 }, "left": true }));
    assert_eq!((got, artifacts, effects), (Some(evidence), vec![artifact], vec!["wrote a.md".to_owned()]));
    assert_eq!(result.measured, Some(vec![(BudgetCategory::CostUnits, 0.25)]));
    assert_eq!((lines[0].message.as_str(), lines[0].percent), ("half way", Some(50)));
}

#[tokio::test]
async fn the_tools_that_are_described_are_configured_and_no_others() {
    let bench = Bench::of_tool(ScriptedTool::new(|_, _| async { done() })).await;
    assert_eq!(bench.client.configured(), [(ToolId::new("memory.read").unwrap(), "1.0.0".to_owned())]);
    assert!(bench.client.permit(&ToolId::new("web.fetch").unwrap()).is_none());
}

#[tokio::test]
async fn a_tool_that_two_executors_serve_is_refused_at_the_start() {
    let servers = [1, 2].map(|_| Endpoint::InProcess(ScriptedTool::new(|_, _| async { done() }).server()));
    let error =
        ExecutorClient::connect_all(servers, 1, Arc::new(super::testing::HandClock::default())).await.unwrap_err();
    assert_eq!(error.code(), "tool-bound-twice");
}

#[tokio::test]
async fn a_bundled_tool_gives_way_to_an_executor_elsewhere_that_serves_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let theirs = ScriptedTool::new(|_, _| async { done() }).server();
    tokio::spawn(crate::serve(listener, None, theirs, std::future::pending()));
    let ours = ScriptedTool::new(|_, _| async { done() }).server();
    let endpoints = [Endpoint::InProcess(ours), Endpoint::Uri(uri.clone())];
    let clock = Arc::new(super::testing::HandClock::default());
    let client = ExecutorClient::connect_all(endpoints, 1, clock.clone()).await.unwrap();
    let tool = ToolId::new("memory.read").unwrap();
    assert_eq!(client.bound(&tool).unwrap().executor.name, uri);
    let twice = [Endpoint::Uri(uri.clone()), Endpoint::Uri(uri)];
    assert_eq!(ExecutorClient::connect_all(twice, 1, clock).await.unwrap_err().code(), "tool-bound-twice");
}

#[tokio::test]
async fn an_address_that_is_none_and_an_executor_that_is_not_there_are_told_apart() {
    let clock = Arc::new(super::testing::HandClock::default());
    for bad in ["", "localhost", "https://localhost:1", "http://"] {
        let error = ExecutorClient::connect(bad, clock.clone()).await.unwrap_err();
        assert_eq!(error.code(), "executor-address-invalid", "{bad}");
    }
    let gone = format!("http://{}", closed_port());
    let error = ExecutorClient::connect(&gone, clock).await.unwrap_err();
    assert!(matches!(error, BindError::Describe { .. }), "{error}");
}

/// An address at which nobody listens any more.
fn closed_port() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn an_admission_older_than_two_seconds_is_never_dispatched() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ran);
    let bench = Bench::of_tool(ScriptedTool::new(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { done() }
    }))
    .await;
    let (late, in_time) = (order(1), order(2));
    for (order, age, expected) in [(late, 2_001, "dispatch-window-missed"), (in_time, 2_000, "answered")] {
        let admitted = admission(&order, bench.clock.boot());
        bench.clock.advance_ms(age);
        let permit = bench.client.permit(&order.tool_id).unwrap();
        let result = bench.client.execute(admitted, order, permit, mpsc::channel(1).0).await;
        assert_eq!(code(&result), expected);
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_admission_is_good_for_its_own_call_alone() {
    let bench = Bench::of_tool(ScriptedTool::new(|_, _| async { done() })).await;
    let admitted = admission(&order(1), BootInstant(0));
    let permit = bench.client.permit(&order(2).tool_id).unwrap();
    let result = bench.client.execute(admitted, order(2), permit, mpsc::channel(1).0).await;
    assert_eq!(code(&result), "admission-mismatch");
    let mut again = order(1);
    again.attempt = 3;
    let permit = bench.client.permit(&again.tool_id).unwrap();
    let result = bench.client.execute(admission(&order(1), BootInstant(0)), again, permit, mpsc::channel(1).0).await;
    assert_eq!(code(&result), "admission-mismatch");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_an_error_at_its_timeout_and_is_stopped() {
    let dropped = Arc::new(Notify::new());
    struct Bell(Arc<Notify>);
    impl Drop for Bell {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let bell = Arc::clone(&dropped);
    let bench = Bench::of_tool(ScriptedTool::new(move |_, _| {
        let bell = Bell(Arc::clone(&bell));
        async move {
            std::future::pending::<()>().await;
            drop(bell);
            done()
        }
    }))
    .await;
    let result = bench.call(order(1)).await;
    assert_eq!((code(&result), &result.measured), ("tool-timeout", &None));
    dropped.notified().await;
}

#[tokio::test]
async fn a_tool_that_panics_is_an_error_and_the_next_call_is_served() {
    let bench = Bench::of_tool(ScriptedTool::new(|call, _| async move {
        assert!(call.call_id != order(1).call_id, "a bug");
        done()
    }))
    .await;
    assert_eq!(code(&bench.call(order(1)).await), "tool-panicked");
    assert_eq!(code(&bench.call(order(2)).await), "answered");
}

#[tokio::test]
async fn an_output_larger_than_an_answer_may_hold_is_an_error_that_keeps_the_usage() {
    let bench = Bench::of_tool(ScriptedTool::new(|_, _| async {
        let measured = Measured::from([(BudgetCategory::CostUnits, 1.5)]);
        ToolOutcome::Ok(Answer::new(json!("x".repeat(crate::limits::PAYLOAD_BYTES_MAX)), measured))
    }))
    .await;
    let result = bench.call(order(1)).await;
    assert_eq!(code(&result), "tool-output-too-large");
    assert_eq!(result.measured, Some(vec![(BudgetCategory::CostUnits, 1.5)]));
}

#[tokio::test]
async fn an_output_of_almost_the_limit_comes_through() {
    let bench = Bench::of_tool(ScriptedTool::new(|_, _| async {
        ToolOutcome::Ok(Answer::new(json!("x".repeat(crate::limits::PAYLOAD_BYTES_MAX - 2)), Measured::new()))
    }))
    .await;
    assert_eq!(code(&bench.call(order(1)).await), "answered");
}

#[tokio::test]
async fn usage_that_is_no_amount_is_passed_on_as_it_is_for_the_charge_policy_to_judge() {
    for value in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        let bench = Bench::of_tool(ScriptedTool::new(move |_, _| async move {
            ToolOutcome::Ok(Answer::new(json!({}), Measured::from([(BudgetCategory::CostUnits, value)])))
        }))
        .await;
        let result = bench.call(order(1)).await;
        assert_eq!(code(&result), "answered");
        assert_eq!(result.measured.unwrap()[0].1.to_bits(), value.to_bits());
    }
}

#[tokio::test]
async fn usage_that_was_not_measured_stays_apart_from_usage_of_nothing() {
    for (measured, expected) in [(None, None), (Some(Measured::new()), Some(vec![]))] {
        let bench = Bench::of_tool(ScriptedTool::new(move |_, _| {
            let measured = measured.clone();
            async { ToolOutcome::Ok(Answer { measured, ..Answer::default() }) }
        }))
        .await;
        assert_eq!(bench.call(order(1)).await.measured, expected);
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_runs_ends_as_cancelled() {
    let running = Arc::new(Notify::new());
    let bell = Arc::clone(&running);
    let bench = Bench::of_tool(ScriptedTool::new(move |_, _| {
        bell.notify_one();
        std::future::pending()
    }))
    .await;
    let cancel = async {
        running.notified().await;
        bench.client.cancel(&order(1).tool_id, order(1).call_id).await;
        bench.client.cancel(&order(1).tool_id, order(1).call_id).await;
    };
    let (result, ()) = tokio::join!(bench.call(order(1)), cancel);
    assert_eq!(result.ending, CallEnding::Cancelled);
    assert_eq!(bench.call(order(1)).await.ending, CallEnding::Cancelled, "and it does not run a second time");
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_comes_is_refused_for_ever() {
    let bench = Bench::of_tool(ScriptedTool::new(|_, _| async { done() })).await;
    bench.client.cancel(&order(1).tool_id, order(1).call_id).await;
    for _ in 0..2 {
        assert_eq!(code(&bench.call(order(1)).await), "call-refused");
    }
    assert_eq!(bench.client.outcome(&order(1).tool_id, order(1).call_id).await, KnownOutcome::NotSeen);
}

#[tokio::test(start_paused = true)]
async fn a_tool_with_side_effects_says_itself_what_it_had_done_when_it_was_cancelled() {
    for (answers, expected) in [(true, "answered"), (false, "unknown")] {
        let running = Arc::new(Notify::new());
        let bell = Arc::clone(&running);
        let mut tool = ScriptedTool::new(move |call, _| {
            bell.notify_one();
            async move {
                call.cancelled.cancelled().await;
                if !answers {
                    std::future::pending::<()>().await;
                }
                done()
            }
        });
        tool.has_side_effects = true;
        let bench = Bench::of_tool(tool).await;
        let cancel = async {
            running.notified().await;
            bench.client.cancel(&order(1).tool_id, order(1).call_id).await;
        };
        let (result, ()) = tokio::join!(bench.call(order(1)), cancel);
        assert_eq!(code(&result), expected);
    }
}

#[tokio::test]
async fn the_same_call_sent_again_hears_the_first_result_and_does_not_run_again() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ran);
    let bench = Bench::of_tool(ScriptedTool::new(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { done() }
    }))
    .await;
    let first = bench.call(order(1)).await;
    let mut again = order(1);
    again.attempt = 3;
    assert_eq!(bench.call(again).await.ending, first.ending);
    let mut other = order(1);
    other.args = json!({ "n": 2 });
    assert_eq!(code(&bench.call(other).await), "call-id-reused");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    let known = bench.client.outcome(&order(1).tool_id, order(1).call_id).await;
    assert!(matches!(known, KnownOutcome::Ended(result) if result.ending == first.ending));
}

#[tokio::test]
async fn the_outcome_of_a_call_nobody_remembers_is_what_the_tool_has_on_record() {
    let cases = [
        (Recovery::Idempotent, Recall::NotSeen, KnownOutcome::NotKept),
        (Recovery::Deduplicating, Recall::NotKept, KnownOutcome::NotKept),
        (Recovery::Deduplicating, Recall::NotSeen, KnownOutcome::NotSeen),
    ];
    for (recovery, recall, expected) in cases {
        let refused = expected == KnownOutcome::NotSeen;
        let mut tool = ScriptedTool::new(|_, _| async { done() });
        (tool.recovery, tool.recall) = (recovery, recall);
        let bench = Bench::of_tool(tool).await;
        assert_eq!(bench.client.outcome(&order(1).tool_id, order(1).call_id).await, expected);
        assert_eq!(code(&bench.call(order(1)).await), if refused { "call-refused" } else { "answered" });
    }
}

#[tokio::test]
async fn a_version_that_was_not_admitted_is_not_run() {
    let bench = Bench::of_tool(ScriptedTool::new(|_, _| async { done() })).await;
    let mut order = order(1);
    order.tool_semver = "2.0.0".to_owned();
    assert_eq!(code(&bench.call(order).await), "tool-version-mismatch");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_a_long_call_alive_and_silence_ends_it_as_unknown() {
    let bench = Bench::of_tool(ScriptedTool::new(|_, _| async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        done()
    }))
    .await;
    assert_eq!(code(&bench.call(order(1)).await), "answered");
    let (bench, mut cancelled) = Bench::of_script(vec![Say::Nothing]).await;
    let began = tokio::time::Instant::now();
    assert_eq!(code(&bench.call(order(2)).await), "unknown");
    assert_eq!(began.elapsed().as_secs(), 15);
    assert_eq!(cancelled.recv().await, Some(order(2).call_id.to_string()));
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_breaks_the_contract_is_told_apart_from_a_tool_that_fails() {
    let mut unknown_category = wire_result(Outcome::Ok, &json!({}));
    unknown_category.measured = Some(v1::MeasuredUsage { units: [("euros".to_owned(), 1.0)].into() });
    let mut bad_json = wire_result(Outcome::Ok, &json!({}));
    bad_json.output_json = "{".into();
    let mut bad_evidence = wire_result(Outcome::Ok, &json!({}));
    bad_evidence.evidence = Some(v1::Evidence { grounding_state: "very".into(), ..v1::Evidence::default() });
    let mut bad_artifact = wire_result(Outcome::Ok, &json!({}));
    bad_artifact.artifacts = vec![v1::Artifact::default()];
    let mut bad_code = wire_result(Outcome::Error, &json!({}));
    bad_code.error_code = "It Broke".into();
    let mut bad_outcome = wire_result(Outcome::Ok, &json!({}));
    bad_outcome.outcome = 99;
    let huge = v1::ToolResult { output_json: vec![b' '; crate::limits::MESSAGE_BYTES_MAX].into(), ..bad_json.clone() };
    let results = [unknown_category, bad_json, bad_evidence, bad_artifact, bad_code, bad_outcome, huge];
    let mut scripts: Vec<_> = results.map(|result| vec![say(Event::Result(result))]).into();
    scripts.push(vec![]);
    scripts.push(vec![ok_line(), ok_line()]);
    scripts.push(vec![ok_line(), say(Event::Heartbeat(v1::Heartbeat {}))]);
    for script in scripts {
        let name = format!("{script:.60?}");
        let (bench, _heard) = Bench::of_script(script).await;
        let result = bench.call(order(1)).await;
        assert_eq!((code(&result), &result.measured), ("tool-protocol-error", &None), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_stands_although_its_stream_does_not_end_well() {
    for ending in [Say::Nothing, Say::Fail(Status::internal("oops"))] {
        let (bench, _heard) = Bench::of_script(vec![ok_line(), ending]).await;
        assert_eq!(code(&bench.call(order(1)).await), "answered");
    }
}

#[tokio::test]
async fn whatever_fails_after_a_call_was_sent_is_unknown() {
    let beat = say(Event::Heartbeat(v1::Heartbeat {}));
    let scripts = [
        vec![Say::Fail(Status::unavailable("gone"))],
        vec![Say::Fail(Status::internal("gone"))],
        vec![beat, Say::Fail(Status::unavailable("gone"))],
    ];
    for script in scripts {
        let (bench, _heard) = Bench::of_script(script).await;
        assert_eq!(code(&bench.call(order(1)).await), "unknown");
    }
}

#[tokio::test]
async fn a_call_the_executor_says_it_did_not_begin_is_not_started() {
    let mut result = wire_result(Outcome::NotStarted, &json!({}));
    result.error_code = "executor-busy".into();
    let (bench, _heard) = Bench::of_script(vec![say(Event::Result(result))]).await;
    let result = bench.call(order(1)).await;
    assert_eq!(result.ending, CallEnding::NotStarted { code: "executor-busy".into(), message: String::new() });
}

#[tokio::test]
async fn the_bound_of_an_executor_and_its_open_circuit_give_no_permit() {
    let (bench, _heard) = Bench::of_script(vec![Say::Fail(Status::internal("down"))]).await;
    let tool = order(1).tool_id;
    let both = [bench.client.permit(&tool), bench.client.permit(&tool)];
    assert!(both.iter().all(Option::is_some) && bench.client.permit(&tool).is_none());
    drop(both);
    for n in 0..5 {
        assert_eq!(code(&bench.call(order(n)).await), "unknown");
    }
    assert!(bench.client.permit(&tool).is_none());
    bench.clock.advance_ms(5_000);
    assert!(bench.client.permit(&tool).is_some());
    assert!(bench.client.permit(&tool).is_none(), "one probe");
}

#[tokio::test]
async fn three_reports_beyond_the_ceiling_open_the_circuit() {
    let bench = Bench::of_tool(ScriptedTool::new(|_, _| async {
        ToolOutcome::Ok(Answer::new(json!({}), Measured::from([(BudgetCategory::CostUnits, 2.5)])))
    }))
    .await;
    for n in 0..3 {
        assert_eq!(code(&bench.call(order(n)).await), "answered");
    }
    assert!(bench.client.permit(&order(1).tool_id).is_none());
}

#[tokio::test]
async fn without_an_executor_there_is_no_tool() {
    let none = ExecutorClient::connect_all([], 8, Arc::new(SystemClock)).await.unwrap();
    assert_eq!(none.configured(), [], "no tool comes from anywhere but an executor that was named (EXE-002)");
}
