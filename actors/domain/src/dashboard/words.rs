//! The words a run can be found by: bounded, redacted, and nothing that only operators may see.

use serde_json::Value;

use crate::redact::redact_text;
use crate::run::envelope::RunEnvelope;

/// Most bytes of words that are kept of a run.
pub const DASHBOARD_WORDS_BYTES_MAX: usize = 512;
/// Most bytes of one of them: a long input must not crowd out the next.
const WORD_BYTES_MAX: usize = 160;
/// Deepest value whose texts are looked at; nothing that was accepted lies deeper.
const DEPTH_MAX: usize = 128;

/// Text as it is compared: without regard to upper and lower case.
pub fn folded(text: &str) -> String {
    text.to_lowercase()
}

/// The run's ids, its agent, family and pipeline, who submitted it, how it ended, and as much of its inputs as fits; folded,
/// one on each line. Inputs and messages were redacted before they were written, and are looked at once more here, since a
/// row is read by more people than a journal.
pub fn dashboard_words(run: &RunEnvelope) -> String {
    let mut words = Words(String::new());
    words.add(&run.run_id.to_string());
    words.add(run.root_agent_id.as_str());
    words.add(run.agents.family_of(&run.root_agent_id).unwrap_or_default());
    words.add(run.pipeline_id.as_ref().map(|id| id.as_str()).unwrap_or_default());
    words.add(run.submitted_by.actor_id.as_str());
    if let Some(end) = &run.end {
        words.add(end.code.as_deref().unwrap_or_default());
        words.add(end.message.as_deref().unwrap_or_default());
    }
    words.add_texts(&run.inputs, DEPTH_MAX);
    words.0
}

struct Words(String);

impl Words {
    fn is_full(&self) -> bool {
        self.0.len() + 1 >= DASHBOARD_WORDS_BYTES_MAX
    }

    fn add(&mut self, text: &str) {
        let text = cut(text, WORD_BYTES_MAX);
        if text.is_empty() || self.is_full() {
            return;
        }
        // Control characters end a word, so that what is searched for lies in one word or in none.
        let plain: String = redact_text(text).chars().map(|c| if c.is_control() { '\n' } else { c }).collect();
        let room = DASHBOARD_WORDS_BYTES_MAX - self.0.len() - 1;
        // Folding can lengthen a text, so it is cut afterwards.
        let folded = folded(&plain);
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(cut(&folded, room));
    }

    fn add_texts(&mut self, value: &Value, depth: usize) {
        if depth == 0 || self.is_full() {
            return;
        }
        match value {
            Value::String(text) => self.add(text),
            Value::Array(items) => items.iter().for_each(|item| self.add_texts(item, depth - 1)),
            Value::Object(members) => members.values().for_each(|member| self.add_texts(member, depth - 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// At most so many bytes of a text, cut between characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
