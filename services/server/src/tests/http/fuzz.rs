//! Bodies of any bytes: each is read or refused with a code and a field, never worse (docs/decisions/fuzzing.md).

use serde::de::DeserializeOwned;
use serde_json::json;
use signalbox_domain::run::submission::submission_hash;
use signalbox_tests::fuzz::{Target, drive_over};

use crate::errors::{DETAIL_FIELD, Refusal};
use crate::http::{
    ChooseBranchRequest, ControlRequest, DecideRequest, ExecuteRequest, ForkRequest, RetryRequest, StepRequest, parsed,
    planned, raw_frame, submitted, typed,
};

const RUN: &str = "0190d6a8-3c1e-7bbb-8f5e-0000000000aa";

fn check(refusal: &Refusal) {
    assert!(!refusal.code().is_empty() && format!("{refusal:?}").len() < 4_000, "{refusal:?}");
    let named = refusal.detail(DETAIL_FIELD).is_some_and(|field| !field.is_empty());
    assert!(named || refusal.code() == "json-too-large", "no field is named: {refusal:?}");
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match parsed(bytes).and_then(typed) {
        Ok(read) => Some(read),
        Err(refusal) => {
            check(&refusal);
            None
        }
    }
}

#[test]
fn a_body_to_execute_of_any_bytes_is_a_submission_or_refused() {
    fn run(bytes: &[u8]) {
        let Some(request) = read::<ExecuteRequest>(bytes) else { return };
        let calls = request.plan.len();
        match planned(request) {
            Ok((_, _, submission)) => {
                let plan = submission.plan.clone().into_plan();
                assert!(calls > 0 && plan.steps.len() == calls);
                assert!(submission_hash(&submission).is_ok(), "what is accepted can be told from anything else");
            }
            Err(refusal) => check(&refusal),
        }
    }
    let body = json!({
        "runId": RUN, "tenantId": "acme", "rootAgentId": "ref.research", "mode": "balanced", "inputs": {"n": [1]},
        "budgets": [{"category": "cost-units", "limit": 1.5, "onExceeded": "pause"}], "actorId": "x", "region": 7,
        "plan": [
            {"toolId": "memory.read", "args": {"key": "k"}, "family": "x"},
            {"toolId": "memory.write", "stepId": "w", "dependsOnStepIds": ["call-1"], "optional": true},
        ],
    });
    let seeds = vec![body.to_string().into_bytes(), b"{}".to_vec(), b"[\xff]".to_vec()];
    drive_over(Target { name: "http-execute", run, weight: 1 }, seeds);
}

#[test]
fn a_body_to_submit_of_any_bytes_is_a_submission_or_refused() {
    fn run(bytes: &[u8]) {
        match parsed(bytes).and_then(submitted) {
            Ok((_, submission)) => assert!(submission_hash(&submission).is_ok()),
            Err(refusal) => check(&refusal),
        }
    }
    let body = json!({"runId": RUN, "rootAgentId": "ref.research", "plan": [
        {"stepId": "a", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}},
        {"stepId": "g", "kind": "approval", "prompt": "Go on?", "dependsOnStepIds": ["a"]},
        {"stepId": "w", "kind": "wait", "seconds": 1},
    ]});
    let seeds = vec![body.to_string().into_bytes(), br#"{"runId":7}"#.to_vec()];
    drive_over(Target { name: "http-submit", run, weight: 1 }, seeds);
}

#[test]
fn a_body_that_steers_or_decides_of_any_bytes_is_read_or_refused() {
    fn run(bytes: &[u8]) {
        let _ = read::<ControlRequest>(bytes);
        let _ = read::<ChooseBranchRequest>(bytes);
        let _ = read::<RetryRequest>(bytes);
        let _ = read::<StepRequest>(bytes);
        let _ = read::<ForkRequest>(bytes);
        let _ = read::<DecideRequest>(bytes);
    }
    let seeds = [
        json!({"reason": "why", "expectedSeq": 7, "commandId": RUN}),
        json!({"branchId": "left", "stepId": "b"}),
        json!({"stepId": "a", "overrides": {"mode": "fast", "params": {"a": {"k": 1}}}}),
        json!({"runId": RUN}),
        json!({"decision": "approve", "subjectDigest": "0".repeat(64)}),
    ];
    let seeds = seeds.map(|seed| seed.to_string().into_bytes());
    drive_over(Target { name: "http-steer", run, weight: 4 }, seeds.into());
}

#[test]
fn any_text_is_one_event_of_a_stream() {
    fn run(bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let frame = raw_frame(Some(7), Some("progress"), &text);
        let lines: Vec<&str> = frame.split(['\n', '\r']).collect();
        let (fields, end) = lines.split_at(lines.len() - 2);
        assert_eq!((end, &fields[..2]), (&["", ""][..], &["id: 7", "event: progress"][..]));
        assert!(fields[2..].iter().all(|line| line.starts_with("data: ")), "{frame:?}");
    }
    let seeds = vec![b"a\rid: 999\revent: agent_done\r\rdata: x".to_vec(), b"line1\nline2\r\n\r\n".to_vec()];
    drive_over(Target { name: "http-event-frame", run, weight: 1 }, seeds);
}
