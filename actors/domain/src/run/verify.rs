//! Verification offline: is a journal whole, and does it keep the promises it was written under?
//!
//! Whole: numbers without gaps, instants that never go back, hashes that chain. Complete: no settlement without an
//! admission, exactly one for each, nothing but the allowed events after the end, the ledger equal to the sum of the chain,
//! no guarded call that differs from what was approved, no answer of a model without a turn, no call of its without a proposal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, RunId, RunKey, TenantId};
use crate::quantity::{BudgetCategory, Usage};
use crate::run::approval::objection;
use crate::run::chain::{EventHash, StoredEvent};
use crate::run::envelope::RunEnvelope;
use crate::run::event::{CallPending, GovernanceAudited, RunEvent};
use crate::run::evolve::{begin, fold_one};
use crate::run::ledger::RunCostLedger;
use crate::run::model_step::Conversations;
use crate::run::status::InvalidTransition;

/// Something that cannot be in a sound journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The event; 0 for the journal as a whole.
    pub seq: u64,
    /// Stable code.
    pub code: String,
    /// In words.
    pub message: String,
}

/// What verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// True if nothing was found.
    pub ok: bool,
    /// How many events were read.
    pub events: u64,
    /// The hash of the last event: what an anchor elsewhere must show.
    pub head_hash: String,
    /// Calls admitted and not settled: open, not wrong, unless the run is closed.
    pub open_calls: Vec<CallId>,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// Checks the whole journal of a run.
pub fn verify(tenant: &TenantId, run_key: RunKey, events: &[StoredEvent]) -> Report {
    let mut findings = Vec::new();
    chain(tenant, run_key, events, &mut findings);
    let mut calls = BTreeMap::new();
    decisions(events, &mut calls, &mut findings);
    fold_agrees(events, &mut findings);
    let open_calls = calls.into_iter().filter(|(_, open)| *open).map(|(call, _)| call).collect();
    Report {
        ok: findings.is_empty(),
        events: events.len() as u64,
        head_hash: events.last().map_or(EventHash::ZERO, |event| event.hash).hex(),
        open_calls,
        findings,
    }
}

fn found(findings: &mut Vec<Finding>, seq: u64, code: &str, message: impl Into<String>) {
    findings.push(Finding { seq, code: code.to_owned(), message: message.into() });
}

fn chain(tenant: &TenantId, run_key: RunKey, events: &[StoredEvent], findings: &mut Vec<Finding>) {
    if events.is_empty() {
        found(findings, 0, "empty", "there are no events");
    }
    let (mut prev_hash, mut seq, mut at) = (EventHash::ZERO, 0, None);
    for event in events {
        seq += 1;
        if event.seq != seq {
            found(findings, event.seq, "gap", format!("event {seq} is expected here"));
            seq = event.seq;
        }
        if event.run_key != run_key {
            found(findings, event.seq, "foreign-event", "the event belongs to another run");
        }
        if at.is_some_and(|before| event.at < before) {
            found(findings, event.seq, "time-went-back", "the event is earlier than the one before it");
        }
        if event.prev_hash != prev_hash {
            found(findings, event.seq, "chain-broken", "the event does not follow the one before it");
        }
        if event.hash != event.expected_hash(tenant) {
            found(findings, event.seq, "hash-mismatch", "the event is not what was hashed");
        }
        prev_hash = event.hash;
        at = Some(event.at);
    }
}

fn decisions(events: &[StoredEvent], calls: &mut BTreeMap<CallId, bool>, findings: &mut Vec<Finding>) {
    let mut finished = false;
    let mut closed = false;
    let mut children: BTreeMap<RunId, bool> = BTreeMap::new();
    for stored in events {
        let Some(event) = stored.event() else {
            found(findings, stored.seq, "unreadable", format!("kind `{}` or its body is unknown", stored.kind));
            continue;
        };
        if closed {
            found(findings, stored.seq, "after-closed", "nothing may follow the closing of a run");
        }
        let allowed = matches!(
            &event,
            RunEvent::CallSettled(_)
                | RunEvent::LateEvidence(_)
                | RunEvent::HandoffReconciled(_)
                | RunEvent::RunClosed {}
        ) || matches!(&event, RunEvent::GovernanceAudited(audited)
                if matches!(**audited, GovernanceAudited::SubagentBudgetExceeded { .. }));
        if finished && !allowed {
            found(findings, stored.seq, "after-terminal", format!("`{}` may not follow the end of a run", stored.kind));
        }
        match &event {
            RunEvent::CallPending(pending) => {
                if calls.insert(pending.call_id, true).is_some() {
                    found(findings, stored.seq, "admitted-twice", format!("call {}", pending.call_id));
                }
            }
            RunEvent::CallRedispatched { call_id, .. } if calls.get(call_id) != Some(&true) => {
                found(findings, stored.seq, "redispatch-of-no-open-call", format!("call {call_id}"));
            }
            RunEvent::CallSettled(settled) => match calls.insert(settled.call_id, false) {
                Some(true) => {}
                Some(false) => found(findings, stored.seq, "settled-twice", format!("call {}", settled.call_id)),
                None => found(findings, stored.seq, "settled-without-admission", format!("call {}", settled.call_id)),
            },
            RunEvent::RunFinished(_) => finished = true,
            RunEvent::RunClosed {} => {
                closed = true;
                if !finished || calls.values().chain(children.values()).any(|open| *open) {
                    let message = "the run is not over, or has open calls or live sub-runs";
                    found(findings, stored.seq, "closed-too-early", message);
                }
            }
            RunEvent::RunSubmitted(_)
            | RunEvent::RunStarted {}
            | RunEvent::CallRedispatched { .. }
            | RunEvent::CallRefused(_)
            | RunEvent::LateEvidence(_)
            | RunEvent::StepThrottled { .. }
            | RunEvent::StepSkipped { .. }
            | RunEvent::StepFailed { .. }
            | RunEvent::ApprovalRequested(_)
            | RunEvent::ApprovalReminded { .. }
            | RunEvent::ApprovalDecided { .. }
            | RunEvent::ApprovalExpired { .. }
            | RunEvent::BranchOffered { .. }
            | RunEvent::TimerSet { .. }
            | RunEvent::TimerFired { .. }
            | RunEvent::HandoffDenied(_)
            | RunEvent::ModelBegan { .. }
            | RunEvent::ModelAsked(_)
            | RunEvent::ModelAnswered(_)
            | RunEvent::ModelFellBack { .. }
            | RunEvent::ControlApplied(_)
            | RunEvent::GovernanceAudited(_) => {}
            RunEvent::HandoffDispatched(dispatched) => {
                if children.insert(dispatched.child_run_id, true).is_some() {
                    found(findings, stored.seq, "handed-off-twice", format!("sub-run {}", dispatched.child_run_id));
                }
            }
            RunEvent::HandoffReconciled(reconciled) => match children.insert(reconciled.child_run_id, false) {
                Some(true) => {}
                Some(false) => {
                    found(findings, stored.seq, "reconciled-twice", format!("sub-run {}", reconciled.child_run_id));
                }
                None => {
                    let message = format!("sub-run {}", reconciled.child_run_id);
                    found(findings, stored.seq, "reconciled-without-handoff", message);
                }
            },
        }
    }
}

fn fold_agrees(events: &[StoredEvent], findings: &mut Vec<Finding>) {
    let Some(first) = events.first() else { return };
    let mut run = match begin(first) {
        Ok(run) => run,
        Err(error) => return found(findings, error.seq, "does-not-fold", error.problem),
    };
    let (mut spent, mut simulated) = (Usage::none(), Usage::none());
    let mut conversations = Conversations::default();
    for event in &events[1..] {
        let before = run.status;
        if let Some((code, message)) = event.event().and_then(|read| conversations.look(&run, &read)) {
            found(findings, event.seq, code, message);
        }
        if let Some(RunEvent::CallPending(pending)) = event.event() {
            approved(&run, &pending, event.seq, findings);
            rehearsed(&run, &pending, event.seq, findings);
        }
        if let Err(error) = fold_one(&mut run, event) {
            return found(findings, error.seq, "does-not-fold", error.problem);
        }
        if !before.may_lead_to(run.status) {
            let message = format!("{} after {}", run.status.as_str(), before.as_str());
            found(findings, event.seq, InvalidTransition::CODE, message);
        }
        match event.event() {
            Some(RunEvent::CallSettled(settled)) if settled.simulated => simulated.add(&settled.charged),
            Some(RunEvent::CallSettled(settled)) => spent.add(&settled.charged),
            Some(RunEvent::CallRefused(refused)) => spent.add(&refused.charged),
            Some(RunEvent::HandoffReconciled(child)) => {
                spent.add(&used(&child.ledger));
                simulated.add(&child.simulated.as_ref().map(used).unwrap_or_default());
            }
            _ => {}
        }
    }
    ledger(&run, &run.cost_ledger, &spent, findings);
    ledger(&run, &run.simulated_ledger.clone().unwrap_or_default(), &simulated, findings);
}

// A rehearsal hands nothing out that could have an effect, and nothing else is simulated (I12).
fn rehearsed(run: &RunEnvelope, pending: &CallPending, seq: u64, findings: &mut Vec<Finding>) {
    let Some(step) = run.plan.step(&pending.step_id) else { return };
    match (run.simulates(step), pending.simulated) {
        (true, false) => found(findings, seq, "dispatched-in-rehearsal", format!("call {}", pending.call_id)),
        (false, true) => found(findings, seq, "simulated-for-real", format!("call {}", pending.call_id)),
        (true, true) | (false, false) => {}
    }
}

// What a gate guards was admitted only as somebody had let it through (C-057).
fn approved(run: &RunEnvelope, pending: &CallPending, seq: u64, findings: &mut Vec<Finding>) {
    let step = run.plan.step(&pending.step_id);
    if let Some(objection) = step.and_then(|step| objection(run, step, &pending.args_hash)) {
        found(findings, seq, "call-not-approved", objection);
    }
}

fn used(ledger: &RunCostLedger) -> Usage {
    BudgetCategory::ALL.into_iter().fold(Usage::none(), |used, category| used.with(category, ledger.counter(category)))
}

fn ledger(run: &RunEnvelope, ledger: &RunCostLedger, spent: &Usage, findings: &mut Vec<Finding>) {
    for category in BudgetCategory::ALL {
        let (booked, sum) = (ledger.counter(category), spent.get(category));
        if booked != sum {
            let message = format!("{}: the ledger says {booked}, the chain adds up to {sum}", category.as_str());
            found(findings, run.last_seq, "ledger-mismatch", message);
        }
    }
}
