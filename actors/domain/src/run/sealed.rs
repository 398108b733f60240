//! What a submission says in clear and its journal may not: the redacted form is kept, the raw form is sealed (OVL-013).
//!
//! Calls are made with what the caller said. So the raw form of each document that redaction changes, a step's arguments or
//! the inputs, goes sealed into the object store, and the journal holds the redacted copy and where the other one lies.
//! Bound arguments need no place of their own: the same sealed document and the same stored outputs give them again, byte
//! for byte, which `argsHash` shows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{RunKey, StepId};
use crate::redact::{redact_text, redact_value};
use crate::run::event::RunSubmitted;
use crate::run::plan::StepKind;

/// Where a sealed document lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SealedRef {
    /// Lower-case hex SHA-256 of the sealed bytes.
    pub sha256: String,
    /// Their length.
    pub size: u64,
    /// The run it was sealed for. A fork reads what was sealed for its source.
    pub run_key: RunKey,
}

/// The sealed documents of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SealedPlan {
    /// Steps whose arguments, subject, input or prompt hold something secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<StepId, SealedRef>,
    /// The inputs, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<SealedRef>,
}

impl SealedPlan {
    /// True if redaction changed nothing.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.inputs.is_none()
    }
}

/// Which document of a run is sealed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The inputs.
    Inputs,
    /// What a step's bindings stand in.
    Step(StepId),
}

impl Part {
    /// Names the document within its run; part of what its seal covers.
    pub fn name(&self) -> String {
        match self {
            Self::Inputs => "inputs".to_owned(),
            Self::Step(step) => format!("steps/{step}"),
        }
    }
}

impl StepKind {
    /// What the step's bindings stand in.
    pub fn document(&self) -> Option<&Value> {
        match self {
            Self::Tool { args, .. } => Some(args),
            Self::Agent(handoff) => Some(&handoff.input),
            Self::Model { prompt, .. } => Some(prompt),
            Self::Approval { subject, .. } => Some(subject),
            Self::Turn { .. } | Self::Branch { .. } | Self::Wait { .. } => None,
        }
    }

    fn document_mut(&mut self) -> Option<&mut Value> {
        match self {
            Self::Tool { args, .. } => Some(args),
            Self::Agent(handoff) => Some(&mut handoff.input),
            Self::Model { prompt, .. } => Some(prompt),
            Self::Approval { subject, .. } => Some(subject),
            Self::Turn { .. } | Self::Branch { .. } | Self::Wait { .. } => None,
        }
    }
}

/// Redacts a submission in place and answers the raw form of each document that was changed, to be sealed. What is only
/// ever shown, such as a prompt, is redacted and not kept otherwise.
pub fn conceal(submitted: &mut RunSubmitted) -> Vec<(Part, Value)> {
    let mut raw = Vec::new();
    let mut redact = |part: Part, document: &mut Value| {
        let (redacted, changed) = redact_value(document);
        if changed {
            raw.push((part, std::mem::replace(document, redacted)));
        }
    };
    for step in &mut submitted.plan.steps {
        if let Some(document) = step.kind.document_mut() {
            redact(Part::Step(step.step_id.clone()), document);
        }
    }
    redact(Part::Inputs, &mut submitted.inputs);
    for step in &mut submitted.plan.steps {
        match &mut step.kind {
            StepKind::Approval { prompt, .. } => redact_in_place(prompt),
            StepKind::Branch { branches } => branches.iter_mut().for_each(|branch| redact_in_place(&mut branch.title)),
            StepKind::Tool { .. }
            | StepKind::Agent { .. }
            | StepKind::Model { .. }
            | StepKind::Turn { .. }
            | StepKind::Wait { .. } => {}
        }
    }
    raw
}

fn redact_in_place(text: &mut String) {
    if let std::borrow::Cow::Owned(redacted) = redact_text(text) {
        *text = redacted;
    }
}
