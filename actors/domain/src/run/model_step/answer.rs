//! What a model has answered: read as hostile input, judged against what the step allows, and turned into calls.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::event::{ModelAnswered, ModelEnd, ProposalRefused, Proposed};
use super::{call_id, limits_of};
use crate::canonical;
use crate::ids::{StepId, ToolId};
use crate::json::{self, Limits};
use crate::mode::stand_in as stand_in_of;
use crate::redact::redact_text;
use crate::run::envelope::{RunEnvelope, RunToolCallRecord};
use crate::run::event::CallOutcome;
use crate::run::plan::{Plan, StepKind};

/// Longest text of an answer, and of all its arguments together, in bytes.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Most proposals of an answer that are looked at; what is beyond is not kept.
const PROPOSALS_READ_MAX: usize = 64;
/// The arguments of one proposal.
const ARGUMENTS: Limits = Limits { bytes_max: 64 * 1024, depth_max: 32 };
/// Longest name or id of a proposal that is kept, in characters.
const NAME_CHARS_MAX: usize = 128;

/// One answer of a model, as whoever speaks to it has read it. Nothing in it is believed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelAnswer {
    /// What it says.
    pub text: String,
    /// What it wants called.
    pub calls: Vec<ProposedCall>,
    /// Why it stopped.
    pub finish: Finish,
    /// What the provider says it used; absent if it says nothing, and then the reserved amount is charged.
    pub usage: Option<ModelUsage>,
}

/// A call that a model proposes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProposedCall {
    /// The provider's name for it.
    pub id: String,
    /// What the model calls the tool.
    pub name: String,
    /// JSON, if the model has kept to it.
    pub arguments: String,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    /// It has said all.
    #[default]
    Stop,
    /// It wants calls made.
    Calls,
    /// Its answer was as long as it may be.
    Length,
    /// The provider held something back.
    Filtered,
}

/// Tokens of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelUsage {
    /// Read.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
}

/// The answer as it becomes the output of its turn: `text`, `calls`, `finish`, and `json` if the text is a JSON document.
pub fn answer_value(answer: &ModelAnswer) -> Value {
    let calls: Vec<Value> = answer.calls.iter().take(PROPOSALS_READ_MAX).map(proposal).collect();
    let mut value = json!({ "text": answer.text, "calls": calls, "finish": answer.finish });
    let text = answer.text.trim();
    if text.starts_with(['{', '['])
        && let Ok(document) = json::parse_strict(text.as_bytes(), Limits::DEFAULT)
        && let Value::Object(members) = &mut value
    {
        members.insert("json".to_owned(), document);
    }
    value
}

fn proposal(call: &ProposedCall) -> Value {
    let mut members = Map::new();
    members.insert("id".to_owned(), Value::String(call.id.chars().take(NAME_CHARS_MAX).collect()));
    members.insert("tool".to_owned(), Value::String(call.name.chars().take(NAME_CHARS_MAX).collect()));
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    match json::parse_strict(text.as_bytes(), ARGUMENTS) {
        Ok(args @ Value::Object(_)) => members.insert("args".to_owned(), args),
        Ok(_) => members.insert("malformed".to_owned(), json!("the arguments are no JSON object")),
        Err(error) => {
            members.insert("malformed".to_owned(), json!(format!("the arguments are not acceptable: {error}")))
        }
    };
    Value::Object(members)
}

/// What a model answers in a rehearsal, where none is asked: it ends its step, with all that later steps bind to.
pub fn stand_in(plan: &Plan, step: &StepId) -> Value {
    let mut answer = stand_in_of(plan, step, &super::turn_tool(), &Value::Null);
    if let Value::Object(members) = &mut answer {
        members.remove("value");
        members.insert("text".to_owned(), json!("rehearsal: no model was asked"));
        members.insert("calls".to_owned(), json!([]));
        members.insert("finish".to_owned(), json!(Finish::Stop));
    }
    answer
}

/// Judges the answer to a turn's call, as it is stored. `None` if the call is no turn of the run.
pub fn answered(run: &RunEnvelope, call: &RunToolCallRecord, answer: &Value) -> Option<ModelAnswered> {
    let StepKind::Turn { of, number } = &run.plan.step(&call.step_id)?.kind else { return None };
    let owner = run.plan.step(of)?;
    let StepKind::Model { tools, .. } = &owner.kind else { return None };
    let (conversation, limits) = (run.conversation(of)?, limits_of(owner));
    let mut outcome = ModelAnswered {
        step_id: of.clone(),
        turn: *number,
        call_id: call.call_id,
        proposed: Vec::new(),
        refused: Vec::new(),
        end: None,
    };
    let calls = answer.get("calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_last = conversation.ordinal() >= limits.turns();
    let mut room = limits.calls().saturating_sub(conversation.calls);
    for (index, call) in (0_u32..).zip(calls) {
        let place = Place { of, turn: *number, index };
        let in_turn = outcome.proposed.len() as u32;
        let verdict = if is_last {
            Err(("model-turns-used-up", "this was the last turn; no call is made any more".to_owned()))
        } else if in_turn >= limits.calls_per_turn() {
            let most = limits.calls_per_turn();
            Err(("too-many-calls", format!("one answer may propose {most} calls; propose the others later")))
        } else if room == 0 {
            let most = limits.calls();
            Err(("model-calls-used-up", format!("the step may make {most} calls and all are used")))
        } else {
            taken_on(&place, call, tools)
        };
        match verdict {
            Ok(proposed) => {
                room -= 1;
                outcome.proposed.push(proposed);
            }
            Err((code, message)) => {
                let tool = call.get("tool").and_then(Value::as_str).unwrap_or_default();
                outcome.refused.push(ProposalRefused {
                    index,
                    tool: redact_text(tool).chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect(),
                    code: code.to_owned(),
                    message,
                });
            }
        }
    }
    let refusals = refusals(run, of).saturating_add(outcome.refused.len() as u32);
    let ends = |code: &str, message: String| ModelEnd { code: Some(code.to_owned()), message: Some(message) };
    outcome.end = if calls.is_empty() {
        Some(ModelEnd::default())
    } else if refusals > limits.refusals() {
        let message = format!("{refusals} proposals of the model were refused, and {} may be", limits.refusals());
        Some(ends("model-refusals-used-up", message))
    } else if is_last {
        Some(ends("model-turns-used-up", format!("the model wanted more than {} turns", limits.turns())))
    } else {
        None
    };
    if outcome.end.is_some() {
        outcome.proposed.clear();
    }
    Some(outcome)
}

struct Place<'a> {
    of: &'a StepId,
    turn: u32,
    index: u32,
}

fn taken_on(place: &Place<'_>, call: &Value, tools: &[ToolId]) -> Result<Proposed, (&'static str, String)> {
    let name = call.get("tool").and_then(Value::as_str).unwrap_or_default();
    let Some(tool_id) = tools.iter().find(|tool| tool.as_str() == name) else {
        return Err(("tool-not-offered", "no tool of that name was offered; use one that was".to_owned()));
    };
    let args = match (call.get("args"), call.get("malformed").and_then(Value::as_str)) {
        (Some(args @ Value::Object(_)), None) => args,
        (_, Some(why)) => return Err(("malformed-arguments", why.to_owned())),
        (_, None) => return Err(("malformed-arguments", "the arguments are no JSON object".to_owned())),
    };
    let args_hash = canonical::digest(args).map_err(|error| (canonical::NumberNotExact::CODE, error.to_string()))?;
    let step_id = call_id(place.of, place.turn, place.index.saturating_add(1));
    let step_id = step_id.ok_or_else(|| ("too-many-calls", "there is no name for this call".to_owned()))?;
    Ok(Proposed { step_id, index: place.index, tool_id: tool_id.clone(), args_hash })
}

/// Proposals of a model step that came to nothing: those refused at once, and those whose call the gate has refused.
pub(super) fn refusals(run: &RunEnvelope, step: &StepId) -> u32 {
    let Some(conversation) = run.conversation(step) else { return 0 };
    let denied = run
        .tool_calls
        .iter()
        .filter(|call| call.outcome == CallOutcome::Denied && conversation.proposed.contains_key(&call.step_id))
        .count();
    conversation.refusals.saturating_add(u32::try_from(denied).unwrap_or(u32::MAX))
}
