//! What the journal keeps of a model step's turns.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, ProviderId, RegionId, StepId, ToolId};

/// Who is asked in a turn. Written in the append that admits the turn's call, just before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelAsked {
    /// The model step.
    pub step_id: StepId,
    /// The turn, from 1.
    pub turn: u32,
    /// The call that asks.
    pub call_id: CallId,
    /// Who serves the model.
    pub provider_id: ProviderId,
    /// Which model.
    pub model_id: String,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionId>,
    /// Most tokens of the answer.
    pub output_tokens_max: u32,
}

/// What comes of a model's answer. Written in the append that settles the turn's call, just after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelAnswered {
    /// The model step.
    pub step_id: StepId,
    /// The turn.
    pub turn: u32,
    /// The call that asked.
    pub call_id: CallId,
    /// Proposals that are taken on: each is a step of the plan from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposed: Vec<Proposed>,
    /// Proposals that are not, and what the model is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<ProposalRefused>,
    /// Set if the step is over with this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<ModelEnd>,
}

/// A proposal that is taken on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposed {
    /// Its step.
    pub step_id: StepId,
    /// Its place in the answer, from 0.
    pub index: u32,
    /// The tool.
    pub tool_id: ToolId,
    /// Lower-case hex SHA-256 of its canonical arguments, as they are stored: the call is made with these or not at all.
    pub args_hash: String,
}

/// A proposal that is refused before it could be a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProposalRefused {
    /// Its place in the answer, from 0.
    pub index: u32,
    /// What the model called it, cut and redacted.
    pub tool: String,
    /// Stable code.
    pub code: String,
    /// In words: what the model is told.
    pub message: String,
}

/// How a model step ended. Without a code the model has answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelEnd {
    /// Stable code of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
