//! The end of a call: what it is charged (LED-008) and what follows for the run.

use serde_json::Value;

use crate::catalog::Recovery;
use crate::ids::{BudgetId, CallId};
use crate::invocation::{TONE_BLOCKED, ToneVerdict};
use crate::quantity::{BudgetCategory, Micros, Usage};
use crate::run::append::{NewEvent, Release};
use crate::run::approval;
use crate::run::envelope::{RunEnvelope, RunToolCallRecord};
use crate::run::event::{
    ArtifactRef, CallError, CallOutcome, CallSettled, Evidence, GovernanceAudited, GroundingState, LateEvidence,
    RunEvent, StoredValue,
};
use crate::run::model_step;
use crate::run::step::{CallEnding, CallResult, Charge};
use crate::time::UnixMs;

/// How often a call may be found never begun, or be sent again after a crash, before its step gives up.
pub const ATTEMPTS_MAX: u64 = 8;

/// The code of a call whose agent must cite and that had nothing to cite (RUN-016).
pub const ABSTAINED: &str = "abstained";

/// What a finished call says, with its output already redacted and, if big, kept in the object store.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// The call.
    pub call_id: CallId,
    /// What came back.
    pub result: CallResult,
    /// The output as it is stored.
    pub stored_output: Option<StoredValue>,
    /// What the tone policy says of the output (INV-008).
    pub tone: ToneVerdict,
}

/// The facts that settle a call, and the reservation they release. Empty if the call is unknown to the run.
pub fn settle(run: &RunEnvelope, ended: &Ended, now: UnixMs) -> (Vec<NewEvent>, Option<Release>) {
    let Some(call) = run.call(ended.call_id) else { return (Vec::new(), None) };
    if run.closed {
        // Nothing may follow the closing of a run.
        return (Vec::new(), None);
    }
    if !call.open {
        return (late(run, call, ended).into_iter().collect(), None);
    }
    let charge = charge(&call.estimated_usage, &ended.result);
    let mut settled = CallSettled {
        call_id: call.call_id,
        outcome: CallOutcome::Ok,
        output: None,
        error: None,
        measured_usage: charge.measured.clone(),
        charged: charge.charged.clone(),
        evidence: None,
        effects: Vec::new(),
        artifacts: Vec::new(),
        latency_ms: ended.result.latency_ms,
        simulated: false,
        tone_note: None,
        meters: Vec::new(),
    };
    let mut after = Vec::new();
    // After the end of a run only settlements and evidence may follow; there the measured usage itself tells.
    if let Some((beyond, detail)) = charge.overshoot
        && run.end.is_none()
    {
        let overshoot = GovernanceAudited::Overshoot { call_id: call.call_id, beyond, detail };
        after.push(NewEvent::system(RunEvent::GovernanceAudited(Box::new(overshoot))));
    }
    if run.end.is_some() {
        // Terminal is final: the call is charged and closed, what it brought is kept as evidence (KIL-010).
        settled.outcome = CallOutcome::Killed;
        after.extend(late(run, call, ended));
    } else {
        describe(run, call, ended, &mut settled);
        if settled.outcome == CallOutcome::Unknown && model_step::is_turn(&call.tool_id) {
            // Nothing has happened that anybody would have to decide over.
            settled.outcome = CallOutcome::Error;
            settled.error = Some(CallError {
                code: "model-answer-lost".to_owned(),
                message: "the model was asked, and its answer was lost".to_owned(),
            });
        }
        if settled.outcome == CallOutcome::Ok && model_step::is_turn(&call.tool_id) {
            let answer = output_of(&ended.result).and_then(|answer| model_step::answered(run, call, answer));
            after.extend(answer.map(|answered| NewEvent::system(RunEvent::ModelAnswered(Box::new(answered)))));
        }
        if settled.outcome == CallOutcome::Unknown {
            after.push(approval::ask_about_unknown(run, call, now));
        }
    }
    // What stands on the run's own budgets is given back by the fold; a shared meter never carried it.
    let own = |id: &BudgetId| run.run_budgets.iter().any(|own| &own.budget.budget_id == id);
    let reservations = call.reservations.iter().filter(|held| !own(&held.budget_id)).cloned().collect();
    let release = Release { call_id: call.call_id, reservations, charged: charge.charged };
    let mut events = vec![NewEvent::system(RunEvent::CallSettled(Box::new(settled)))];
    events.append(&mut after);
    (events, Some(release))
}

fn describe(run: &RunEnvelope, call: &RunToolCallRecord, ended: &Ended, settled: &mut CallSettled) {
    let error = |code: &str, message: &str| {
        let message = redacted(message).chars().take(2_000).collect();
        Some(CallError { code: redacted(code), message })
    };
    match &ended.result.ending {
        CallEnding::Answered { partial, evidence, effects, artifacts, output: _ } => {
            settled.outcome = if *partial { CallOutcome::Partial } else { CallOutcome::Ok };
            settled.output = ended.stored_output.clone();
            settled.evidence = evidence.as_ref().map(redacted_evidence);
            settled.effects = effects.iter().map(|effect| redacted(effect)).collect();
            settled.artifacts = artifacts.iter().map(redacted_artifact).collect();
            if let Some(message) = abstained(run, call, evidence.as_ref()) {
                settled.outcome = CallOutcome::Error;
                settled.error = error(ABSTAINED, &message);
            }
            match &ended.tone {
                ToneVerdict::Pass => {}
                ToneVerdict::Warn(why) => settled.tone_note = Some(redacted(why)),
                ToneVerdict::Block(why) => {
                    // Withheld wherever it could be read: as the output, and as what the call left behind.
                    settled.outcome = CallOutcome::Error;
                    settled.output = None;
                    settled.artifacts = Vec::new();
                    settled.error = error(TONE_BLOCKED, why);
                }
            }
        }
        CallEnding::Failed { code, message } => {
            settled.outcome = CallOutcome::Error;
            settled.error = error(code, message);
        }
        CallEnding::NotStarted { code, message } => {
            let again = run.step_attempts.get(&call.step_id).copied().unwrap_or(0) < ATTEMPTS_MAX;
            settled.outcome = if again { CallOutcome::Held } else { CallOutcome::Error };
            settled.error = error(code, message);
        }
        CallEnding::Unknown { message } => {
            settled.outcome = CallOutcome::Unknown;
            settled.error = error("unknown-call-outcome", message);
        }
        CallEnding::Cancelled => {
            settled.outcome = CallOutcome::Error;
            settled.error = error("tool-cancelled", "the executor cancelled the call");
        }
    }
}

// A name is kept like any other word of a tool: without what looks like a secret.
fn redacted(text: &str) -> String {
    crate::redact::redact_text(text).into_owned()
}

fn redacted_artifact(artifact: &ArtifactRef) -> ArtifactRef {
    ArtifactRef {
        name: redacted(&artifact.name),
        persisted_key: redacted(&artifact.persisted_key),
        media_type: redacted(&artifact.media_type),
        sha256: artifact.sha256.clone(),
        size: artifact.size,
    }
}

fn redacted_evidence(evidence: &Evidence) -> Evidence {
    Evidence { evidence_pack_id: redacted(&evidence.evidence_pack_id), ..evidence.clone() }
}

// A stage whose family must cite and that has nothing to cite says nothing at all (RUN-016).
fn abstained(
    run: &RunEnvelope,
    call: &RunToolCallRecord,
    evidence: Option<&crate::run::event::Evidence>,
) -> Option<String> {
    let strict = run
        .agents
        .family_of(&call.agent_id)
        .and_then(crate::registry::family_meta)
        .is_some_and(|meta| meta.default_grounding_policy == crate::registry::GroundingPolicy::StrictCite);
    let bare = evidence.is_some_and(|e| match e.grounding_state {
        GroundingState::Ungrounded => true,
        GroundingState::Grounded | GroundingState::PartiallyGrounded => e.citation_count == 0,
        GroundingState::NotRequired => false,
    });
    (strict && bare).then(|| "nothing in the sources supports an answer".to_owned())
}

// What arrives when the call is already settled.
fn late(run: &RunEnvelope, call: &RunToolCallRecord, ended: &Ended) -> Option<NewEvent> {
    let mut late = LateEvidence {
        call_id: ended.call_id,
        outcome: CallOutcome::Error,
        output: ended.stored_output.clone(),
        measured_usage: ended.result.measured.as_deref().and_then(exact),
        evidence: None,
        artifacts: Vec::new(),
    };
    match &ended.result.ending {
        CallEnding::Answered { partial, evidence, artifacts, .. } => {
            late.evidence = evidence.as_ref().map(redacted_evidence);
            late.artifacts = artifacts.iter().map(redacted_artifact).collect();
            if matches!(ended.tone, ToneVerdict::Block(_)) {
                // What may not be said is no answer, however late it comes.
                late.artifacts = Vec::new();
            } else if abstained(run, call, evidence.as_ref()).is_none() {
                late.outcome = if *partial { CallOutcome::Partial } else { CallOutcome::Ok };
            }
        }
        CallEnding::Failed { .. } => {}
        CallEnding::NotStarted { .. } | CallEnding::Unknown { .. } | CallEnding::Cancelled => return None,
    }
    Some(NewEvent::system(RunEvent::LateEvidence(Box::new(late))))
}

/// The charge policy (LED-008). `ceiling` is what was reserved.
pub fn charge(ceiling: &Usage, result: &CallResult) -> Charge {
    if matches!(result.ending, CallEnding::NotStarted { .. }) {
        return Charge { charged: Usage::none(), measured: None, overshoot: None };
    }
    let Some(reported) = &result.measured else {
        return Charge { charged: ceiling.clone(), measured: None, overshoot: None };
    };
    let Some(measured) = exact(reported) else {
        let detail = "the executor reported usage that is negative, not finite, too large or too fine".to_owned();
        return Charge { charged: ceiling.clone(), measured: None, overshoot: Some((Usage::none(), detail)) };
    };
    let mut beyond = Usage::none();
    for (category, amount) in measured.iter() {
        let over = amount.minus(ceiling.get(category));
        if over > Micros::ZERO {
            beyond = beyond.with(category, over);
        }
    }
    if beyond == Usage::none() {
        return Charge { charged: measured.clone(), measured: Some(measured), overshoot: None };
    }
    let detail = "the executor reported more than was reserved for the call".to_owned();
    Charge { charged: ceiling.clone(), measured: Some(measured), overshoot: Some((beyond, detail)) }
}

fn exact(reported: &[(BudgetCategory, f64)]) -> Option<Usage> {
    let mut usage = Usage::none();
    for (category, units) in reported {
        let amount = round_to_micros(*units)?;
        usage.add(&Usage::of(*category, amount));
    }
    Some(usage)
}

// Executors compute in doubles, so more than six places are no fault: they are rounded up, in the meter's favour.
fn round_to_micros(units: f64) -> Option<Micros> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if !units.is_finite() || units < 0.0 {
        return None;
    }
    if let Some(exact) = Micros::from_decimal(units) {
        return Some(exact);
    }
    let micros = (units * 1_000_000.0).ceil();
    (micros <= EXACT).then_some(Micros(micros as i64))
}

/// What is to be done with a call found open when a run is loaded again (RUN-026).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recover {
    /// Admit it again under the same id, and send it.
    Redispatch {
        /// The attempt it will be.
        attempt: u32,
    },
    /// Ask the executor for the outcome.
    AskOutcome,
    /// Settle it as unknown.
    Unknown,
    /// The run is over: cancel it at the executor, then settle it.
    Cancel,
}

impl RunEnvelope {
    /// True if the run knows how the call ended: what comes of it now is no news.
    pub fn is_answered(&self, call_id: CallId) -> bool {
        self.call(call_id).is_some_and(|call| {
            !call.open && !matches!(call.outcome, CallOutcome::Unknown | CallOutcome::Killed | CallOutcome::Pending)
        })
    }
}

/// Applies the recovery policy of a call that was open when its node died, or whose answer was lost.
pub fn recover(run: &RunEnvelope, call: &RunToolCallRecord) -> Recover {
    if run.end.is_some() {
        return Recover::Cancel;
    }
    match call.recovery {
        // Nothing begins any more once a step has failed, and the run waits for what it has out.
        Recovery::Idempotent if u64::from(call.attempt) < ATTEMPTS_MAX && !run.is_failing() => {
            Recover::Redispatch { attempt: call.attempt + 1 }
        }
        Recovery::Deduplicating => Recover::AskOutcome,
        Recovery::Idempotent | Recovery::AtMostOnce => Recover::Unknown,
    }
}

/// A result that says nobody knows, for calls that cannot be recovered.
pub fn unknown_result(message: &str) -> CallResult {
    CallResult { ending: CallEnding::Unknown { message: message.to_owned() }, measured: None, latency_ms: 0 }
}

/// The output of a result, if it has one.
pub const fn output_of(result: &CallResult) -> Option<&Value> {
    if let CallEnding::Answered { output, .. } = &result.ending { Some(output) } else { None }
}
