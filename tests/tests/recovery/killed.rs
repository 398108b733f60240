//! The node killed on each side of each boundary of a call, for each recovery policy (RUN-026, C-016); and runs that are
//! over before their calls are.

use serde_json::{Value, json};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{CallOutcome, RunEvent, StoredValue};
use signalbox_domain::run::status::RunStatus;
use signalbox_proto::v1::ApprovalDecision;
use uuid::Uuid;

use crate::books::{Compared, compare, settled_once};
use crate::receipts::{AT_MOST_ONCE, DEDUPLICATING, IDEMPOTENT, Receipts, Way};
use crate::station::{Client, Place, Station};

fn step(id: &str, tool: &str, after: &[&str]) -> Value {
    json!({ "stepId": id, "kind": "tool", "toolId": tool, "args": { "step": id }, "dependsOnStepIds": after })
}

fn gate(after: &[&str]) -> Value {
    let subject = json!({ "n": 1 });
    json!({ "stepId": "gate", "kind": "approval", "prompt": "Go on?", "subject": subject, "dependsOnStepIds": after })
}

/// One run of each policy that gets along without people, and three whose unknown outcome is decided in each way.
const TOOLS: [&str; 5] = [IDEMPOTENT, DEDUPLICATING, AT_MOST_ONCE, AT_MOST_ONCE, AT_MOST_ONCE];

struct Scene {
    receipts: Receipts,
    station: Station,
    client: Client,
    runs: Vec<Uuid>,
}

impl Scene {
    /// Five runs whose calls are done in this way.
    async fn set(way: Way, plan: impl Fn(&str) -> Value) -> Self {
        let mut scene = Self::empty(way).await;
        scene.submit(&TOOLS, plan).await;
        scene
    }

    async fn empty(way: Way) -> Self {
        let receipts = Receipts::start();
        for tool in [IDEMPOTENT, DEDUPLICATING, AT_MOST_ONCE] {
            receipts.on(tool, way);
        }
        let station = Station::build(Place::Sqlite, &receipts);
        let client = station.client().await;
        Self { receipts, station, client, runs: Vec::new() }
    }

    async fn submit(&mut self, tools: &[&str], plan: impl Fn(&str) -> Value) {
        for tool in tools {
            let run = Uuid::now_v7();
            self.client.submit(run, &plan(tool)).await.unwrap();
            self.runs.push(run);
        }
    }

    async fn kill_and_restart(&mut self) {
        self.station.kill();
        self.station.start();
        self.client = self.station.client().await;
    }

    /// Every run waits at its gate: what is before it is settled, what is behind it not pending.
    async fn stands_at_the_gate(&mut self) {
        for run in &self.runs {
            self.client.until(*run, |run| run.status == RunStatus::AwaitingApproval).await;
        }
    }

    async fn passes_the_gate(&mut self) {
        for question in self.client.questions().await {
            self.client.decide(&question, ApprovalDecision::Approve).await.unwrap();
        }
        for run in &self.runs {
            assert_eq!(self.client.until(*run, |run| run.closed).await.status, RunStatus::Completed);
        }
    }

    /// The runs that need nobody complete; each of the others stops at its question, which is answered.
    async fn decide_what_is_unknown(&mut self) {
        for index in 0..2 {
            let done = self.client.until(self.runs[index], |run| run.closed).await;
            assert_eq!(done.status, RunStatus::Completed);
        }
        let answers = [
            (ApprovalDecision::Approve, RunStatus::Completed),
            (ApprovalDecision::Skip, RunStatus::Completed),
            (ApprovalDecision::Reject, RunStatus::Failed),
        ];
        for (index, (answer, status)) in answers.into_iter().enumerate() {
            let run = self.runs[2 + index];
            let waiting = self.client.until(run, |run| run.status == RunStatus::AwaitingApproval).await;
            shows_what_is_known(&waiting);
            let questions = self.client.questions().await;
            let question = questions.iter().find(|question| question.run_id == run.to_string()).unwrap();
            self.client.decide(question, answer).await.unwrap();
            assert_eq!(self.client.until(run, |run| run.closed).await.status, status);
        }
    }

    /// Every promise about what was done and what it cost.
    async fn compare(mut self) -> (Compared, Receipts) {
        let mut envelopes = Vec::new();
        for run in &self.runs {
            envelopes.push(self.client.get(*run).await);
        }
        let (meters, journals) = self.station.books(&self.runs).await;
        settled_once(&journals);
        (compare(&envelopes, &self.receipts.read(), &meters), self.receipts)
    }
}

fn shows_what_is_known(run: &RunEnvelope) {
    let call = run.tool_calls.last().unwrap();
    assert_eq!(call.outcome, CallOutcome::Unknown);
    let question = run.approvals.last().unwrap();
    assert_eq!(question.call_id, Some(call.call_id));
    let StoredValue::Inline(subject) = &question.subject else { panic!("{question:?}") };
    let known = json!({
        "callId": call.call_id, "toolId": call.tool_id, "stepId": call.step_id, "argsHash": call.args_hash,
        "attempt": call.attempt, "requestedAtUnixMs": call.requested_at_unix_ms,
    });
    assert_eq!(*subject, known);
    assert!(question.prompt.contains("It is not known whether"), "{}", question.prompt);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_anything_is_pending_each_call_is_made_once() {
    let plan = |tool: &str| json!([gate(&[]), step("call", tool, &["gate"])]);
    let mut scene = Scene::set(Way::default(), plan).await;
    scene.stands_at_the_gate().await;
    scene.kill_and_restart().await;
    scene.passes_the_gate().await;
    let (compared, receipts) = scene.compare().await;
    assert_eq!(compared, Compared { matched: 5, ..Compared::default() });
    assert_eq!(receipts.all_executions(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_call_what_may_not_be_repeated_is_asked_about_and_what_may_is() {
    let way = Way { stops_before: true, ..Way::default() };
    let mut scene = Scene::set(way, |tool| json!([step("call", tool, &[])])).await;
    scene.receipts.arrived(5).await;
    scene.kill_and_restart().await;
    // The executor takes effect only now, long after the node that asked for it is gone.
    scene.receipts.go();
    scene.decide_what_is_unknown().await;
    let asked = scene.receipts.asked();
    let deduplicated = scene.client.get(scene.runs[1]).await.tool_calls[0].call_id.to_string();
    assert!(asked.contains(&deduplicated), "the executor that remembers is asked");
    let (compared, receipts) = scene.compare().await;
    // Idempotent, deduplicating, and the one that somebody had sent anew.
    assert_eq!((compared.matched, compared.unknown.len(), compared.unknown_but_done), (3, 3, 3));
    assert_eq!((receipts.executions(DEDUPLICATING), receipts.executions(AT_MOST_ONCE)), (1, 4));
    let repeated: Vec<u32> =
        receipts.read().iter().filter(|receipt| receipt.tool_id == IDEMPOTENT).map(|receipt| receipt.attempt).collect();
    assert_eq!(repeated, [1, 2], "under the same id, as its second attempt, and charged once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_with_the_answer_on_its_way_nothing_is_done_twice_that_must_not_be() {
    let way = Way { stops_after: true, ..Way::default() };
    let mut scene = Scene::set(way, |tool| json!([step("call", tool, &[])])).await;
    scene.receipts.executed(5).await;
    scene.kill_and_restart().await;
    scene.receipts.go();
    scene.decide_what_is_unknown().await;
    let (compared, receipts) = scene.compare().await;
    assert_eq!((compared.matched, compared.repeated), (3, 1));
    assert_eq!((compared.unknown.len(), compared.unknown_but_done), (3, 3));
    assert_eq!((receipts.executions(DEDUPLICATING), receipts.executions(AT_MOST_ONCE)), (1, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_after_the_settlement_what_was_settled_is_not_done_again() {
    let plan = |tool: &str| json!([step("first", tool, &[]), gate(&["first"]), step("second", tool, &["gate"])]);
    let mut scene = Scene::set(Way::default(), plan).await;
    scene.stands_at_the_gate().await;
    scene.kill_and_restart().await;
    scene.passes_the_gate().await;
    let (compared, receipts) = scene.compare().await;
    assert_eq!(compared, Compared { matched: 10, ..Compared::default() });
    assert_eq!(receipts.all_executions(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_that_dies_in_the_middle_is_recovered_from_like_a_node() {
    let way = Way { hangs_up: true, ..Way::default() };
    let plan = |tool: &str| json!([step("call", tool, &[])]);
    let mut scene = Scene::empty(way).await;
    // Not all at once: so many failures in a row would open the executor's circuit, which is another matter.
    let (alone, with_people) = TOOLS.split_at(2);
    scene.submit(alone, plan).await;
    for run in scene.runs.clone() {
        scene.client.until(run, |run| run.closed).await;
    }
    scene.submit(with_people, plan).await;
    scene.receipts.executed(6).await;
    // From here on it answers, also who sends anew.
    for tool in [IDEMPOTENT, DEDUPLICATING, AT_MOST_ONCE] {
        scene.receipts.on(tool, Way::default());
    }
    scene.decide_what_is_unknown().await;
    let (compared, receipts) = scene.compare().await;
    assert_eq!((compared.matched, compared.repeated, compared.unknown.len()), (3, 1, 3));
    assert_eq!((receipts.executions(DEDUPLICATING), receipts.executions(AT_MOST_ONCE)), (1, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_after_all_is_taken_and_nobody_needs_to_decide() {
    let receipts = Receipts::start();
    receipts.on(AT_MOST_ONCE, Way { stops_after: true, remembers: true, ..Way::default() });
    let mut station = Station::build(Place::Sqlite, &receipts);
    let run = Uuid::now_v7();
    station.client().await.submit(run, &json!([step("call", AT_MOST_ONCE, &[])])).await.unwrap();
    receipts.executed(1).await;
    station.kill();
    station.start();
    let mut client = station.client().await;
    let waiting = client.until(run, |run| run.status == RunStatus::AwaitingApproval).await;
    shows_what_is_known(&waiting);
    receipts.go();
    let closed = client.until(run, |run| run.closed).await;
    assert_eq!(closed.status, RunStatus::Completed);
    assert_eq!((closed.approvals[0].decision, closed.approvals[0].lapsed), (None, true));
    assert!(client.questions().await.is_empty());
    assert_eq!(receipts.all_executions(), 1);
    let (_, journals) = station.books(&[run]).await;
    settled_once(&journals);
    assert!(journals[0].iter().any(|event| event.kind == "late-evidence"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_run_is_over_at_once_and_closed_by_the_late_result_which_is_kept_as_evidence() {
    let receipts = Receipts::start();
    receipts.on(AT_MOST_ONCE, Way { stops_before: true, deaf: true, ..Way::default() });
    let station = Station::build(Place::Sqlite, &receipts);
    let mut client = station.client().await;
    let run = Uuid::now_v7();
    client.submit(run, &json!([step("call", AT_MOST_ONCE, &[]), step("next", AT_MOST_ONCE, &["call"])])).await.unwrap();
    receipts.arrived(1).await;
    assert_eq!(client.kill(run).await.status, "killed");
    let over = client.get(run).await;
    assert_eq!((over.status, over.closed), (RunStatus::Killed, false));
    assert!(over.tool_calls[0].open && over.tool_calls[0].outcome == CallOutcome::Killed);
    receipts.go();
    let closed = client.until(run, |run| run.closed).await;
    assert_eq!(closed.status, RunStatus::Killed);
    assert_eq!(receipts.all_executions(), 1, "nothing was begun after the end");
    let used = Micros(receipts.read()[0].cost_micros);
    assert_eq!(closed.cost_ledger.total_cost_units, used, "what it used is charged, and no more");
    let said = station.command(&["runs", "pause", &run.to_string()], None);
    assert_eq!((said.exit, said.err.contains("run-terminal")), (1, true), "{said:?}");
    let (meters, journals) = station.books(&[run]).await;
    assert_eq!((meters[0].meter.consumed, meters[0].meter.reserved), (used, Micros::ZERO));
    settled_once(&journals);
    let late = journals[0].iter().find_map(|event| {
        if let Some(RunEvent::LateEvidence(late)) = event.event() { Some(late.outcome) } else { None }
    });
    assert_eq!(late, Some(CallOutcome::Ok));
    assert_eq!(journals[0].last().unwrap().kind, "run-closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_killed_between_the_end_of_a_run_and_its_closing_leaves_the_closing_to_the_next() {
    let way = Way { stops_after: true, deaf: true, ..Way::default() };
    let mut scene = Scene::set(way, |tool| json!([step("call", tool, &[])])).await;
    scene.receipts.executed(5).await;
    for run in scene.runs.clone() {
        assert_eq!(scene.client.kill(run).await.status, "killed");
    }
    scene.kill_and_restart().await;
    scene.receipts.go();
    let mut charged = Micros::ZERO;
    for (index, run) in scene.runs.clone().into_iter().enumerate() {
        let closed = scene.client.until(run, |run| run.closed).await;
        assert_eq!(closed.status, RunStatus::Killed);
        let call = &closed.tool_calls[0];
        let used = scene.receipts.read().iter().find(|receipt| receipt.call_id == call.call_id.to_string()).cloned();
        // An executor that remembers says what was used; without one it is everything that was held.
        let expected = if TOOLS[index] == DEDUPLICATING { Micros(used.unwrap().cost_micros) } else { Micros::units(1) };
        assert_eq!(call.cost_units, expected, "{}", TOOLS[index]);
        charged = charged.plus(expected);
    }
    assert_eq!(scene.receipts.all_executions(), 5);
    let (meters, journals) = scene.station.books(&scene.runs).await;
    assert_eq!((meters[0].meter.consumed, meters[0].meter.reserved), (charged, Micros::ZERO));
    settled_once(&journals);
}
