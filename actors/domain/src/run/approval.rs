//! Questions to people: gates of a plan, and calls whose outcome nobody knows.
//!
//! A yes holds for exactly what was shown, and once. Where steps name the gate in `approvedBy`, it shows their calls with
//! the arguments bound, and each of those calls is made with these arguments or not at all.

use serde_json::{Value, json};

use crate::canonical::{self, NumberNotExact};
use crate::identity::Actor;
use crate::ids::ApprovalId;
use crate::mode::REHEARSAL_APPROVAL_REASON;
use crate::run::append::{NewEvent, OpenApproval};
use crate::run::approvers::Approvers;
use crate::run::call;
use crate::run::decide::{Context, Denial};
use crate::run::envelope::{ApprovalRecord, RunEnvelope, RunToolCallRecord};
use crate::run::event::{ApprovalDecision, ApprovalReason, ApprovalRequested, GuardedAction, RunEvent, StoredValue};
use crate::run::plan::{APPROVAL_TTL_SECONDS_DEFAULT, ApprovalRequirement, Step, StepKind};
use crate::time::UnixMs;

/// The steps that wait for this gate's yes and have not been done.
pub fn guarded<'a>(run: &'a RunEnvelope, gate: &Step) -> impl Iterator<Item = &'a Step> {
    let waits = |step: &Step, over: bool| step.kind.approved_by() == Some(&gate.step_id) && !over;
    run.plan
        .steps
        .iter()
        .zip(&run.steps)
        .filter(move |(step, state)| waits(step, state.is_over()))
        .map(|(step, _)| step)
}

/// What an approval step shows: its subject, and the calls that wait for its yes. `args` are the bound arguments of what
/// [`guarded`] gives, in that order.
pub fn shown(run: &RunEnvelope, gate: &Step, subject: Value, args: Vec<Value>) -> Value {
    if args.is_empty() {
        return subject;
    }
    let action = |(step, args): (&Step, Value)| {
        let (agent, tool) = (run.agent_of(step), step.kind.tool_id());
        json!({ "stepId": step.step_id, "agentId": agent, "toolId": tool, "args": args })
    };
    let actions: Vec<Value> = guarded(run, gate).zip(args).map(action).collect();
    json!({ "subject": subject, "actions": actions })
}

/// The question of an approval step. `shown` is what it shows, bound; `stored` the redacted copy that is kept.
pub fn request(run: &RunEnvelope, gate: &Step, shown: &Value, stored: StoredValue, now: UnixMs) -> Option<NewEvent> {
    let StepKind::Approval { requirement, approvers, prompt, approval_ttl_seconds, .. } = &gate.kind else {
        return None;
    };
    if *requirement == ApprovalRequirement::None {
        let reason = "the gate asks nobody".to_owned();
        let step_id = gate.step_id.clone();
        return Some(NewEvent::system(RunEvent::StepSkipped { step_id, label: None, reason, branch_not_taken: false }));
    }
    let asked = Asked {
        step: gate,
        requirement: *requirement,
        approvers: approvers.clone(),
        prompt: crate::redact::redact_text(prompt).into_owned(),
        reason: ApprovalReason::Gate,
        call: None,
        ttl_seconds: *approval_ttl_seconds,
    };
    Some(ask(run, asked, shown, stored, now))
}

/// The no that a gate says by itself, given with its question: what it shows holds something that must not be there
/// (PIP-012). `None` if people are to be asked.
pub fn refused_by_itself(gate: &Step, asked: &NewEvent, shown: &Value) -> Option<NewEvent> {
    let RunEvent::ApprovalRequested(question) = &asked.event else { return None };
    let StepKind::Approval { refuse_if: Some(place), .. } = &gate.kind else { return None };
    // Beside guarded calls the subject is shown under its own name.
    let subject = if shown.get("actions").is_some() { shown.get("subject").unwrap_or(shown) } else { shown };
    let found = subject.pointer(place).filter(|found| is_something(found))?;
    let reason = match found {
        Value::Array(items) => format!("`{place}` must be empty, and holds {}", items.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            format!("`{place}` must hold nothing, and does")
        }
    };
    Some(NewEvent::system(RunEvent::ApprovalDecided {
        approval_id: question.approval_id,
        decision: ApprovalDecision::Reject,
        decided_by: Actor::system(),
        reason,
    }))
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(holds) => *holds,
        Value::Number(number) => number.as_f64().is_none_or(|number| number != 0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// The answer to a question of a rehearsal, given with it: nobody is asked, because nothing is done. `None` for a question
/// that somebody must answer.
pub fn answered_in_rehearsal(run: &RunEnvelope, asked: &NewEvent) -> Option<NewEvent> {
    let RunEvent::ApprovalRequested(question) = &asked.event else { return None };
    (run.is_rehearsal() && question.reason == ApprovalReason::Gate).then(|| {
        NewEvent::system(RunEvent::ApprovalDecided {
            approval_id: question.approval_id,
            decision: ApprovalDecision::Approve,
            decided_by: Actor::system(),
            reason: REHEARSAL_APPROVAL_REASON.to_owned(),
        })
    })
}

/// The question about a call whose outcome is not known: retry, skip or fail (RUN-026).
pub fn ask_about_unknown(run: &RunEnvelope, call: &RunToolCallRecord, now: UnixMs) -> NewEvent {
    let subject = json!({
        "callId": call.call_id, "toolId": call.tool_id, "stepId": call.step_id, "argsHash": call.args_hash,
        "attempt": call.attempt, "requestedAtUnixMs": call.requested_at_unix_ms,
    });
    let Some(step) = run.plan.step(&call.step_id) else {
        return NewEvent::system(RunEvent::StepFailed {
            step_id: call.step_id.clone(),
            code: "unknown-call-outcome".to_owned(),
            message: "the outcome of the call is not known".to_owned(),
        });
    };
    // Sending it anew takes the standing that letting it through took.
    let (requirement, approvers) = match step.kind.approved_by().and_then(|gate| run.plan.step(gate)).map(|g| &g.kind) {
        Some(StepKind::Approval { requirement, approvers, .. }) => (*requirement, approvers.clone()),
        Some(_) | None => (ApprovalRequirement::Operator, None),
    };
    let asked = Asked {
        step,
        requirement,
        approvers,
        prompt: format!(
            "It is not known whether call {} of `{}` took effect. Approve to send it anew, skip to take it as done, \
             reject to fail the step.",
            call.call_id, call.tool_id
        ),
        reason: ApprovalReason::UnknownCallOutcome,
        call: Some(call),
        ttl_seconds: APPROVAL_TTL_SECONDS_DEFAULT,
    };
    ask(run, asked, &subject, StoredValue::Inline(subject.clone()), now)
}

struct Asked<'a> {
    step: &'a Step,
    requirement: ApprovalRequirement,
    approvers: Option<Approvers>,
    prompt: String,
    reason: ApprovalReason,
    call: Option<&'a RunToolCallRecord>,
    ttl_seconds: u64,
}

// What has no digest cannot be decided on: a yes to it would be a yes to something else as well.
fn ask(run: &RunEnvelope, asked: Asked<'_>, shown: &Value, stored: StoredValue, now: UnixMs) -> NewEvent {
    match question(run, &asked, shown, stored, now) {
        Ok(question) => NewEvent::system(RunEvent::ApprovalRequested(Box::new(question))),
        Err(error) => call::fail_step(asked.step, NumberNotExact::CODE, &error.to_string()),
    }
}

fn question(
    run: &RunEnvelope,
    asked: &Asked<'_>,
    shown: &Value,
    stored: StoredValue,
    now: UnixMs,
) -> Result<ApprovalRequested, NumberNotExact> {
    let step_id = &asked.step.step_id;
    let ordinal = run.approvals.len() as u64;
    let ttl_ms = i64::try_from(asked.ttl_seconds).unwrap_or(i64::MAX).saturating_mul(1_000);
    // The digest covers what is decided on, and which step of which run it is decided for.
    let bound = json!({ "runId": run.run_id, "stepId": step_id, "subject": shown });
    Ok(ApprovalRequested {
        approval_id: ApprovalId::new(run.run_key.derive("approval", step_id.as_str(), ordinal)),
        step_id: step_id.clone(),
        requirement: asked.requirement,
        approvers: asked.approvers.clone(),
        prompt: asked.prompt.clone(),
        reason: asked.reason,
        call_id: asked.call.map(|call| call.call_id),
        subject: stored,
        subject_digest: canonical::digest(&bound)?,
        actions: actions(run, asked.step, shown)?,
        requested_at_unix_ms: now,
        remind_at_unix_ms: now.plus_ms(ttl_ms / 2),
        expires_at_unix_ms: now.plus_ms(ttl_ms),
    })
}

// The calls among what is shown, in the order in which `shown` has put them there.
fn actions(run: &RunEnvelope, gate: &Step, shown: &Value) -> Result<Vec<GuardedAction>, NumberNotExact> {
    let bound = shown.get("actions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let waiting = guarded(run, gate).zip(bound).filter_map(|(step, action)| {
        let tool_id = step.kind.tool_id()?.clone();
        let agent_id = run.agent_of(step).clone();
        let args_hash = canonical::digest(action.get("args").unwrap_or(&Value::Null));
        Some(args_hash.map(|args_hash| GuardedAction { step_id: step.step_id.clone(), agent_id, tool_id, args_hash }))
    });
    waiting.collect()
}

/// Why the gate of a step does not let through a call with these arguments: nobody has said yes, or the yes was to another
/// call. `None` if it lets it through, or if the step names no gate.
pub fn objection(run: &RunEnvelope, step: &Step, args_hash: &str) -> Option<String> {
    let gate = step.kind.approved_by()?;
    let of_gate = |asked: &&ApprovalRecord| asked.step_id == *gate && asked.reason == ApprovalReason::Gate;
    let last = run.approvals.iter().rfind(of_gate);
    let Some(approval) = last.filter(|asked| asked.decision == Some(ApprovalDecision::Approve)) else {
        return Some(format!("the gate `{gate}` has not let this call through; rewind to it, and have it decided"));
    };
    let (agent, tool) = (run.agent_of(step), step.kind.tool_id());
    let same = |action: &GuardedAction| {
        action.step_id == step.step_id
            && action.agent_id == *agent
            && Some(&action.tool_id) == tool
            && action.args_hash == args_hash
    };
    if approval.actions.iter().any(same) {
        return None;
    }
    Some(format!(
        "approval {} of the gate `{gate}` was given to another call than this one; rewind to `{gate}`, and have this one \
         decided",
        approval.approval_id
    ))
}

/// What somebody answers to a question.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The question.
    pub approval_id: ApprovalId,
    /// Yes, no, or skip.
    pub decision: ApprovalDecision,
    /// Why.
    pub reason: &'a str,
    /// What was seen, if that is said.
    pub subject_digest: Option<&'a str>,
}

/// An answer, checked: the question is open, the answer fits it, the decider may decide, and it is about what was seen.
pub fn decided(run: &RunEnvelope, answer: Answer<'_>, context: &Context) -> Result<NewEvent, Denial> {
    let Answer { approval_id, decision, reason, subject_digest } = answer;
    let Context { actor, scopes, .. } = context;
    let approval =
        run.approvals.iter().find(|a| a.approval_id == approval_id).ok_or(Denial::NoSuchApproval(approval_id))?;
    // A run that is over stands still: what its end found open was not too late, and is moot.
    let now = run.finished_at.map_or(context.now, |at| at.ms());
    if approval.decision.is_some() || now >= approval.expires_at_unix_ms {
        return Err(Denial::ApprovalClosed(approval_id));
    }
    if run.end.is_some() {
        return Err(Denial::RunTerminal(run.status));
    }
    if !approval.is_open() {
        return Err(Denial::ApprovalClosed(approval_id));
    }
    if subject_digest.is_some_and(|digest| digest != approval.subject_digest) {
        return Err(Denial::ApprovalSubjectChanged(approval_id));
    }
    if decision == ApprovalDecision::Skip && approval.reason == ApprovalReason::Gate {
        return Err(Denial::DecisionNotAllowed);
    }
    approval.may_be_decided_by(actor, scopes, run)?;
    if reason.trim().is_empty() {
        return Err(Denial::ReasonRequired);
    }
    let reason = crate::redact::redact_text(reason).chars().take(2_000).collect();
    Ok(NewEvent::by(
        actor.clone(),
        RunEvent::ApprovalDecided { approval_id, decision, decided_by: actor.clone(), reason },
    ))
}

/// Whether somebody may answer a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answering {
    /// Yes.
    May,
    /// Its role, its scopes or not being the user are in the way.
    WithoutStanding,
    /// The question names others.
    NotNamed,
}

/// Who may answer what is required of whom (HND-002): its standing is what is required, and if people are named, it is one of
/// them and has not submitted the run itself. `own` says whether it has.
pub fn may_answer(
    requirement: ApprovalRequirement,
    approvers: Option<&Approvers>,
    actor: &Actor,
    scopes: &[String],
    own: bool,
) -> Answering {
    let the_user = requirement != ApprovalRequirement::UserConfirmBeforeProceed || own;
    if !the_user || !requirement.lets(actor.role, scopes) {
        return Answering::WithoutStanding;
    }
    if approvers.is_some_and(|named| own || !named.names(actor)) {
        return Answering::NotNamed;
    }
    Answering::May
}

impl ApprovalRecord {
    /// Whether the actor may answer, be the question open or not: its standing is what is required, and if people are
    /// named, it is one of them and has not submitted the run itself.
    pub fn may_be_decided_by(&self, actor: &Actor, scopes: &[String], run: &RunEnvelope) -> Result<(), Denial> {
        let own = actor.actor_id == run.submitted_by.actor_id;
        match may_answer(self.requirement, self.approvers.as_ref(), actor, scopes, own) {
            Answering::May => Ok(()),
            Answering::WithoutStanding => Err(Denial::NotAuthorized { role: actor.role }),
            Answering::NotNamed => Err(Denial::NotAnApprover(self.approval_id)),
        }
    }

    /// The row of an open question.
    pub fn open_row(&self) -> OpenApproval {
        OpenApproval {
            approval_id: self.approval_id,
            step_id: self.step_id.clone(),
            requirement: self.requirement,
            approvers: self.approvers.clone(),
            prompt: self.prompt.clone(),
            reason: self.reason,
            subject_digest: self.subject_digest.clone(),
            requested_at_unix_ms: self.requested_at_unix_ms,
            remind_at_unix_ms: self.remind_at_unix_ms,
            reminded: self.reminded,
            expires_at_unix_ms: self.expires_at_unix_ms,
        }
    }
}
