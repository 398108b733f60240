//! What a model is asked in a turn: all that was said before, out of the journal, and what it costs at most.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::event::ModelAsked;
use super::{MODEL_TURN_SEMVER, OUTPUT_TOKENS_MAX, limits_of, turn_id, turn_tool};
use crate::catalog::{CatalogEntry, Effect, Recovery, Risk};
use crate::ids::StepId;
use crate::quantity::{BudgetCategory, Micros, Usage};
use crate::redact::redact_value;
use crate::run::call::Prepared;
use crate::run::envelope::RunEnvelope;
use crate::run::plan::{Step, StepKind};
use crate::run::step::StepState;

/// Longest conversation that is sent, in bytes of its JSON.
const CONVERSATION_BYTES_MAX: usize = 1024 * 1024;
/// Longest result of one call that a model is shown, in bytes.
const RESULT_BYTES_MAX: usize = 32 * 1024;
/// Bytes that are counted as one token when a turn is paid for in advance. Tokens are longer in most texts, so that more is
/// reserved than is used; what a text of short ones takes beyond it is an overshoot.
const BYTES_PER_TOKEN: usize = 2;
/// Tokens around each message.
const TOKENS_PER_MESSAGE: u64 = 16;

/// Why a model cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TurnFault {
    /// A secret stands in the prompt.
    #[error("the prompt names a secret, and no model is given one; name it in the arguments of a tool step")]
    SecretInPrompt,
    /// Too much was said.
    #[error(
        "the conversation has more than {CONVERSATION_BYTES_MAX} bytes; bind less into the prompt, or lower `limits.turns`"
    )]
    TooLarge,
    /// Nobody knows the agent, or the step is no turn.
    #[error("the agent of the step has no model")]
    NoModel,
}

impl TurnFault {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::SecretInPrompt => "secret-in-prompt",
            Self::TooLarge => "conversation-too-large",
            Self::NoModel => "model-not-bound",
        }
    }
}

/// The steps whose outputs are read to ask in this turn.
pub fn read_by_turn(run: &RunEnvelope, turn: &Step) -> BTreeSet<StepId> {
    let StepKind::Turn { of, number } = &turn.kind else { return BTreeSet::new() };
    let Some(conversation) = run.conversation(of) else { return BTreeSet::new() };
    let turns = (conversation.first_turn..*number).filter_map(|number| turn_id(of, number));
    turns.chain(conversation.proposed.keys().cloned()).collect()
}

/// The arguments of a turn's call. `prompt` is bound; `output` reads the stored outputs of [`read_by_turn`]. What comes out
/// is redacted: a model sees no secret that we know to be one (KGV-013).
///
/// # Errors
/// Why the model cannot be asked.
pub fn turn_args(
    run: &RunEnvelope,
    turn: &Step,
    prompt: &Value,
    output: &dyn Fn(&StepId) -> Option<Value>,
) -> Result<Value, TurnFault> {
    let StepKind::Turn { of, number } = &turn.kind else { return Err(TurnFault::NoModel) };
    let (Some(owner), Some(conversation)) = (run.plan.step(of), run.conversation(of)) else {
        return Err(TurnFault::NoModel);
    };
    let (Some(model), Some(binding)) = (run.model_of(turn), run.binding_of(turn)) else {
        return Err(TurnFault::NoModel);
    };
    let limits = limits_of(owner);
    let mut messages = opening(prompt);
    for number in conversation.first_turn..*number {
        let Some(id) = turn_id(of, number) else { continue };
        // A turn that failed has said nothing.
        let Some(answer) = output(&id) else { continue };
        messages.extend(said(run, &id, conversation.refused.get(&number), &answer, output));
    }
    let StepKind::Model { tools, .. } = &owner.kind else { return Err(TurnFault::NoModel) };
    let is_last = conversation.ordinal() >= limits.turns();
    let offered: Vec<Value> = tools
        .iter()
        .filter(|_| !is_last)
        .filter_map(crate::catalog::entry)
        .map(|entry| json!({ "tool": entry.tool_id, "title": entry.title, "schema": entry.input_schema }))
        .collect();
    let mut args = json!({
        "provider": model.provider_id,
        "model": model.model_id,
        "turn": conversation.ordinal(),
        "maxTokens": limits.output_tokens.unwrap_or(binding.default_max_tokens).min(OUTPUT_TOKENS_MAX),
        "temperatureMicros": binding.default_temperature.0,
        "messages": messages,
        "tools": offered,
    });
    if let (Some(script), Value::Object(members)) = (prompt.get("script"), &mut args) {
        members.insert("script".to_owned(), script.clone());
    }
    let (args, _) = redact_value(&args);
    if args.to_string().len() > CONVERSATION_BYTES_MAX {
        return Err(TurnFault::TooLarge);
    }
    Ok(args)
}

// A prompt is a text, or an object with `text` and `system`; whatever else it holds is shown as JSON behind the text.
fn opening(prompt: &Value) -> Vec<Value> {
    let user = |text: String| json!({ "role": "user", "text": text });
    let Value::Object(members) = prompt else {
        return vec![user(prompt.as_str().map_or_else(|| prompt.to_string(), str::to_owned))];
    };
    let mut messages = Vec::new();
    if let Some(system) = members.get("system").and_then(Value::as_str) {
        messages.push(json!({ "role": "system", "text": system }));
    }
    let known = |key: &str| matches!(key, "system" | "text" | "script");
    let rest: Map<String, Value> =
        members.iter().filter(|(key, _)| !known(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut text = members.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !rest.is_empty() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&Value::Object(rest).to_string());
    }
    messages.push(user(text));
    messages
}

fn said(
    run: &RunEnvelope,
    turn: &StepId,
    refused: Option<&Vec<super::ProposalRefused>>,
    answer: &Value,
    output: &dyn Fn(&StepId) -> Option<Value>,
) -> Vec<Value> {
    let none = Vec::new();
    let calls = answer.get("calls").and_then(Value::as_array).unwrap_or(&none);
    let text = answer.get("text").cloned().unwrap_or_default();
    let mut messages = vec![json!({ "role": "assistant", "text": text, "calls": calls })];
    for (index, call) in (0_u32..).zip(calls) {
        let refusal = refused.into_iter().flatten().find(|refusal| refusal.index == index);
        let result = match refusal {
            Some(refusal) => json!({ "refused": { "code": refusal.code, "message": refusal.message } }).to_string(),
            None => result(run, turn, index, output),
        };
        let id = call.get("id").cloned().unwrap_or_default();
        let tool = call.get("tool").cloned().unwrap_or_default();
        messages.push(json!({ "role": "tool", "callId": id, "tool": tool, "text": cut_result(result) }));
    }
    messages
}

fn result(run: &RunEnvelope, turn: &StepId, index: u32, output: &dyn Fn(&StepId) -> Option<Value>) -> String {
    let Ok(step) = StepId::new(format!("{turn}.{}", index.saturating_add(1))) else { return "null".to_owned() };
    match run.step_state(&step) {
        Some(StepState::Done { .. }) => output(&step).unwrap_or_default().to_string(),
        Some(StepState::Skipped { reason, .. }) => {
            let record = run.tool_calls.iter().rev().find(|call| call.step_id == step);
            let error = record.and_then(|call| call.error.as_ref());
            match error {
                Some(error) => json!({ "error": { "code": error.code, "message": error.message } }).to_string(),
                None => json!({ "error": { "code": "skipped", "message": reason } }).to_string(),
            }
        }
        _ => json!({ "error": { "code": "not-made", "message": "the call was not made" } }).to_string(),
    }
}

/// A result as far as a model is shown it.
pub fn cut_result(mut text: String) -> String {
    if text.len() > RESULT_BYTES_MAX {
        let mut end = RESULT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let whole = text.len();
        text.truncate(end);
        text.push_str(&format!("… (cut: {end} of {whole} bytes)"));
    }
    text
}

/// What a provider's tokens cost, in cost units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pricing {
    /// For 1 000 tokens read.
    pub input_per_1k: Micros,
    /// For 1 000 tokens written.
    pub output_per_1k: Micros,
    /// True if asking leaves the installation.
    pub external: bool,
}

impl Default for Pricing {
    /// LED-009: 1 per 1 000 read, 4 per 1 000 written.
    fn default() -> Self {
        Self { input_per_1k: Micros::units(1), output_per_1k: Micros::units(4), external: true }
    }
}

impl Pricing {
    /// What so many tokens are booked as, in every category they touch.
    pub fn usage(&self, input_tokens: u64, output_tokens: u64) -> Usage {
        let tokens = |n: u64| Micros::units(i64::try_from(n).unwrap_or(i64::MAX).min(i64::MAX / 1_000_000));
        let cost = |n: u64, per_1k: Micros| {
            let micros = i128::from(n).saturating_mul(i128::from(per_1k.0.max(0)));
            // In the meter's favour.
            Micros(i64::try_from((micros + 999) / 1_000).unwrap_or(i64::MAX))
        };
        let cost = cost(input_tokens, self.input_per_1k).plus(cost(output_tokens, self.output_per_1k));
        let calls = if self.external { Micros::units(1) } else { Micros::ZERO };
        Usage::of(BudgetCategory::InputTokens, tokens(input_tokens))
            .with(BudgetCategory::OutputTokens, tokens(output_tokens))
            .with(BudgetCategory::CostUnits, cost)
            .with(BudgetCategory::ExternalCalls, calls)
    }
}

/// What the gate is told of a turn's call, as the catalog tells it of a tool's. A turn has no effect, so one whose answer was
/// lost is asked again.
pub fn turn_entry(args: &Value, pricing: &Pricing, timeout_ms: u64, rehearsal: bool) -> CatalogEntry {
    let part = |key: &str| args.get(key).map(|part| part.to_string().len()).unwrap_or_default();
    let messages = args.get("messages").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    let bytes = (part("messages") + part("tools")).div_ceil(BYTES_PER_TOKEN) as u64;
    let written = args.get("maxTokens").and_then(Value::as_u64).unwrap_or_default();
    CatalogEntry {
        tool_id: turn_tool(),
        semver: MODEL_TURN_SEMVER.to_owned(),
        title: "A turn of a model".to_owned(),
        risk: Risk::Medium,
        effect: Effect::Read,
        recovery: Recovery::Idempotent,
        // In a rehearsal no model is asked, wherever it is.
        external: pricing.external || rehearsal,
        needs_secret: false,
        required_scopes: Vec::new(),
        input_schema: Value::Null,
        output_schema: Value::Null,
        dependencies: Vec::new(),
        ceiling: pricing.usage(bytes.saturating_add(messages.saturating_mul(TOKENS_PER_MESSAGE)), written),
        timeout_ms,
        meter_reason: "model".to_owned(),
        deprecation: None,
    }
}

/// What is written before a turn's call is: who is asked. `None` for any other call.
pub fn asked(prepared: &Prepared) -> Option<ModelAsked> {
    let StepKind::Turn { of, number } = &prepared.step.kind else { return None };
    let max = prepared.args.get("maxTokens").and_then(Value::as_u64).unwrap_or_default();
    Some(ModelAsked {
        step_id: of.clone(),
        turn: *number,
        call_id: prepared.call_id,
        provider_id: prepared.target.provider_id.clone()?,
        model_id: prepared.args.get("model").and_then(Value::as_str)?.to_owned(),
        region: prepared.target.region.clone(),
        output_tokens_max: u32::try_from(max).unwrap_or(u32::MAX),
    })
}
