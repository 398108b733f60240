//! Why a run stopped, and why a call was refused: read off the journal alone, so that it can be asked anywhere and for ever.
//!
//! Nothing is decided again here. What every stage of the gate said stands in the journal, and with it the smallest change
//! that would have let the call through.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::governance::budget::MeterReading;
use crate::governance::gate::StageAnswer;
use crate::handoff::dispatch::DispatchDenialReason;
use crate::identity::Actor;
use crate::ids::{AgentId, CallId, GrantId, RunId, StepId, ToolId};
use crate::quantity::Usage;
use crate::run::chain::StoredEvent;
use crate::run::event::{CallError, CallOutcome, ControlKind, GovernanceAudited, RunEvent};
use crate::run::evolve::{FoldError, begin, fold_one};
use crate::run::status::RunStatus;
use crate::time::UnixMicros;

/// What a journal says of why things came as they did.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The run.
    pub run_id: RunId,
    /// How it stands after the last event.
    pub status: RunStatus,
    /// How it ended; absent while it lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Ending>,
    /// The switches and budgets that stopped it, and what tools used beyond what was reserved.
    pub audits: Vec<Audit>,
    /// Its hand-offs that were refused, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused_handoffs: Vec<RefusedHandoff>,
    /// Who steered it, in order.
    pub controls: Vec<Steering>,
    /// Its calls, in order.
    pub calls: Vec<CallStory>,
    /// Calls whose effect outside nobody knows.
    pub unknown_call_ids: Vec<CallId>,
}

/// The last word on a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// The event that ended it.
    pub seq: u64,
    /// When.
    pub at_unix_micros: UnixMicros,
    /// Who.
    pub actor: Actor,
    /// Stable code; absent for `completed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The switch or budget that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blamed_id: Option<String>,
    /// The step that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
}

/// A stop or an overrun.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// The event.
    pub seq: u64,
    /// What stopped the run, who armed it and when, or what each meter showed.
    pub what: GovernanceAudited,
}

/// A hand-off that was refused (HND-009).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefusedHandoff {
    /// The event.
    pub seq: u64,
    /// The step.
    pub step_id: StepId,
    /// To whom it was.
    pub agent_id: AgentId,
    /// The reason.
    pub reason: DispatchDenialReason,
    /// The figures it was decided on, and what would be right.
    pub message: String,
}

/// A control that was applied.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Steering {
    /// The event.
    pub seq: u64,
    /// Which control.
    pub kind: ControlKind,
    /// Who.
    pub actor: Actor,
    /// Why, in their words.
    pub reason_text: String,
}

/// One call, from the gate to its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallStory {
    /// The event that admitted or refused it.
    pub seq: u64,
    /// The call.
    pub call_id: CallId,
    /// Its step.
    pub step_id: StepId,
    /// Whose authority it used.
    pub agent_id: AgentId,
    /// The tool.
    pub tool_id: ToolId,
    /// How it stands.
    pub outcome: CallOutcome,
    /// What went wrong, or what stopped it and what to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
    /// The grant that allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<GrantId>,
    /// The governance epoch it was admitted at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// What each meter showed when it was last touched for the call.
    pub meters: Vec<MeterReading>,
    /// True if a rehearsal has answered it by a stand-in.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// What every stage of the gate said of a call that it refused, or that a stand-in answered.
    pub answers: Vec<StageAnswer>,
    /// What was charged.
    pub charged: Usage,
}

/// What the journal holds of a call beside its record.
#[derive(Default)]
struct Told {
    seq: u64,
    epoch: Option<u64>,
    meters: Vec<MeterReading>,
    answers: Vec<StageAnswer>,
}

/// Explains a run by its whole journal.
///
/// # Errors
/// A journal that does not fold; `verify` says what is wrong with it.
pub fn explain(events: &[StoredEvent]) -> Result<Explanation, FoldError> {
    let first = events.first().ok_or(FoldError { seq: 0, problem: "it has no events" })?;
    let mut run = begin(first)?;
    let mut told: BTreeMap<CallId, Told> = BTreeMap::new();
    let (mut end, mut audits, mut controls) = (None, Vec::new(), Vec::new());
    let mut refused_handoffs = Vec::new();
    for stored in &events[1..] {
        fold_one(&mut run, stored)?;
        let seq = stored.seq;
        match stored.event() {
            Some(RunEvent::CallPending(call)) => {
                let epoch = Some(call.epoch);
                told.insert(
                    call.call_id,
                    Told { seq, epoch, meters: call.meters.clone(), answers: call.answers.clone() },
                );
            }
            Some(RunEvent::CallRefused(call)) => {
                told.insert(call.call_id, Told { seq, answers: call.answers.clone(), ..Told::default() });
            }
            Some(RunEvent::CallSettled(call)) if !call.meters.is_empty() => {
                told.entry(call.call_id).or_default().meters = call.meters.clone();
            }
            Some(RunEvent::GovernanceAudited(what)) => audits.push(Audit { seq, what: *what }),
            Some(RunEvent::HandoffDenied(denied)) => refused_handoffs.push(RefusedHandoff {
                seq,
                step_id: denied.step_id.clone(),
                agent_id: denied.agent_id.clone(),
                reason: denied.reason,
                message: denied.in_words(),
            }),
            Some(RunEvent::ControlApplied(control)) => controls.push(Steering {
                seq,
                kind: control.audit.kind,
                actor: stored.actor.clone(),
                reason_text: control.audit.reason_text.clone(),
            }),
            Some(RunEvent::RunFinished(finished)) => {
                end = Some(Ending {
                    seq,
                    at_unix_micros: stored.at,
                    actor: stored.actor.clone(),
                    code: finished.code.clone(),
                    message: finished.message.clone(),
                    blamed_id: finished.blamed_id.clone(),
                    step_id: finished.step_id.clone(),
                });
            }
            Some(_) | None => {}
        }
    }
    let calls: Vec<CallStory> = run
        .tool_calls
        .iter()
        .map(|call| {
            let Told { seq, epoch, meters, answers } = told.remove(&call.call_id).unwrap_or_default();
            CallStory {
                seq,
                call_id: call.call_id,
                step_id: call.step_id.clone(),
                agent_id: call.agent_id.clone(),
                tool_id: call.tool_id.clone(),
                outcome: call.outcome,
                error: call.error.clone(),
                grant_id: call.grant_id.clone(),
                epoch,
                meters,
                simulated: call.simulated,
                answers,
                charged: call.charged.clone(),
            }
        })
        .collect();
    let unknown = calls.iter().filter(|call| call.outcome == CallOutcome::Unknown).map(|call| call.call_id);
    let unknown_call_ids = unknown.collect();
    Ok(Explanation {
        run_id: run.run_id,
        status: run.status,
        end,
        audits,
        refused_handoffs,
        controls,
        calls,
        unknown_call_ids,
    })
}
