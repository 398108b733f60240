//! The tone-policy hook (INV-008): what text made for customers and creators may not say.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::Effect;
use crate::identity::Role;
use crate::ids::ToolId;

/// The code of a call whose text was blocked.
pub const TONE_BLOCKED: &str = "tone-blocked";

/// What the policy says of a text, rising.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "why", rename_all = "kebab-case")]
pub enum ToneVerdict {
    /// Nothing is wrong with it.
    #[default]
    Pass,
    /// It may go out, and this is noted.
    Warn(String),
    /// It may not go out, for this reason.
    Block(String),
}

/// Judges text. The same text gets the same answer for ever: whoever reads a journal must be able to ask again.
pub trait TonePolicy: std::fmt::Debug + Send + Sync {
    /// What it says of a text that was to be in this tone.
    fn judge(&self, tone: &str, text: &str) -> ToneVerdict;
}

/// The default: phrases that may not be said, and phrases that are noted. Letters are compared without regard to case,
/// white space folded, at word boundaries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhraseTone {
    block: Vec<String>,
    warn: Vec<String>,
}

impl PhraseTone {
    /// A policy over these phrases. What is empty says nothing.
    pub fn new<'a>(block: impl IntoIterator<Item = &'a String>, warn: impl IntoIterator<Item = &'a String>) -> Self {
        let folded = |phrases: &mut dyn Iterator<Item = &'a String>| {
            phrases.map(|phrase| folded(phrase)).filter(|phrase| !phrase.is_empty()).collect()
        };
        Self { block: folded(&mut block.into_iter()), warn: folded(&mut warn.into_iter()) }
    }

    /// True if it has nothing to say of any text.
    pub fn is_idle(&self) -> bool {
        self.block.is_empty() && self.warn.is_empty()
    }
}

impl TonePolicy for PhraseTone {
    fn judge(&self, _tone: &str, text: &str) -> ToneVerdict {
        if self.is_idle() {
            return ToneVerdict::Pass;
        }
        let text = folded(text);
        let first = |phrases: &[String]| phrases.iter().find(|phrase| says(&text, phrase)).cloned();
        if let Some(phrase) = first(&self.block) {
            return ToneVerdict::Block(format!("the tone policy does not let `{phrase}` through"));
        }
        match first(&self.warn) {
            Some(phrase) => ToneVerdict::Warn(format!("the tone policy notes `{phrase}`")),
            None => ToneVerdict::Pass,
        }
    }
}

fn folded(text: &str) -> String {
    text.split_whitespace().flat_map(|word| [" ", word]).skip(1).collect::<String>().to_lowercase()
}

fn says(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, found)| {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// True if the policy is asked about what this tool gives to a run of somebody in this role: text that was made, for
/// customers and creators. What was only read is somebody else's text.
pub fn watches_tone(role: Role, tool: &ToolId) -> bool {
    matches!(role, Role::Customer | Role::Creator)
        && (crate::run::model_step::is_turn(tool)
            || crate::catalog::entry(tool).is_some_and(|entry| entry.effect == Effect::Generate))
}

/// The worst the policy says of any text in an output.
pub fn judge_output(policy: &dyn TonePolicy, tone: &str, output: &Value) -> ToneVerdict {
    match output {
        Value::String(text) => policy.judge(tone, text),
        Value::Array(items) => worst(items.iter().map(|item| judge_output(policy, tone, item))),
        Value::Object(members) => worst(members.values().map(|member| judge_output(policy, tone, member))),
        Value::Null | Value::Bool(_) | Value::Number(_) => ToneVerdict::Pass,
    }
}

fn worst(verdicts: impl Iterator<Item = ToneVerdict>) -> ToneVerdict {
    let mut worst = ToneVerdict::Pass;
    for verdict in verdicts {
        if matches!(verdict, ToneVerdict::Block(_)) {
            return verdict;
        }
        if matches!((&worst, &verdict), (ToneVerdict::Pass, ToneVerdict::Warn(_))) {
            worst = verdict;
        }
    }
    worst
}
