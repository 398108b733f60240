//! The question in the middle of the demonstration: what is shown, who is asked, and how.

use serde_json::Value;
use signalbox_domain::run::envelope::{ApprovalRecord, RunEnvelope};
use signalbox_domain::run::event::{ApprovalReason, CallOutcome};

use super::progress::say;

/// Deepest level of the subject that is shown.
const DEPTH_MAX: usize = 3;
/// Most entries of a list that are shown.
const LIST_MAX: usize = 12;
/// How much of a digest is shown.
const DIGEST_CHARS: usize = 12;

/// The first question that is open.
pub(crate) fn open_question(run: &RunEnvelope) -> Option<&ApprovalRecord> {
    run.approvals.iter().find(|approval| approval.decision.is_none() && !approval.lapsed)
}

/// True if `--approve` may answer it: a gate of the plan, never a call whose outcome nobody knows.
pub(crate) fn is_gate(question: &ApprovalRecord) -> bool {
    question.reason == ApprovalReason::Gate
}

/// Says what the answer would be about.
pub(crate) fn present(question: &ApprovalRecord, lines: &[String], run: &RunEnvelope) {
    say("");
    say(&question.prompt);
    for line in lines {
        say(&format!("  {line}"));
    }
    say(&format!("  cost so far: {} units in {} calls", run.cost_ledger.total_cost_units, calls_made(run)));
}

/// How many calls were let through the gate.
pub(crate) fn calls_made(run: &RunEnvelope) -> usize {
    run.tool_calls.iter().filter(|call| call.outcome != CallOutcome::Denied).count()
}

/// A subject as lines: one for each member, nested members indented.
pub(crate) fn summary(subject: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if let Value::Object(members) = subject {
        for (name, value) in members {
            put(&mut lines, &words(name), value, 0);
        }
    } else if !subject.is_null() {
        lines.push(plain_value(subject));
    }
    lines
}

fn put(lines: &mut Vec<String>, name: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) if depth < DEPTH_MAX => {
            let flat = members.values().all(|value| value.is_number() || value.is_boolean());
            if flat {
                let parts: Vec<_> =
                    members.iter().map(|(name, value)| format!("{} {}", plain_value(value), words(name))).collect();
                lines.push(format!("{indent}{name}: {}", parts.join(", ")));
                return;
            }
            lines.push(format!("{indent}{name}:"));
            for (name, value) in members {
                put(lines, &words(name), value, depth + 1);
            }
        }
        Value::Array(items) if depth < DEPTH_MAX => {
            lines.push(format!("{indent}{name}: {}", items.len()));
            for item in items.iter().take(LIST_MAX) {
                lines.push(format!("{indent}  - {}", one_line(item)));
            }
            if items.len() > LIST_MAX {
                lines.push(format!("{indent}  - and {} more", items.len() - LIST_MAX));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) | Value::Array(_) => {
            lines.push(format!("{indent}{name}: {}", plain_value(value)));
        }
    }
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let parts: Vec<_> =
                members.iter().map(|(name, value)| format!("{}: {}", words(name), plain_value(value))).collect();
            parts.join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => plain_value(value),
    }
}

fn plain_value(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) => {
            text.chars().take(DIGEST_CHARS).collect()
        }
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Array(items) => items.len().to_string(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

// `unusableSources` as people write it.
fn words(camel: &str) -> String {
    let mut text = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            text.push(' ');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_subject_reads_as_a_summary() {
        let subject = json!({
            "items": {"advisory": 3, "story": 12},
            "contradictions": 1,
            "unusableSources": [{"name": "broken.html", "code": "not-text"}],
            "files": {"briefing.md": {"sha256": "a".repeat(64), "size": 7}},
        });
        let lines = summary(&subject);
        assert!(lines.contains(&"items: 3 advisory, 12 story".to_owned()), "{lines:?}");
        assert!(lines.contains(&"contradictions: 1".to_owned()));
        assert!(lines.contains(&"unusable sources: 1".to_owned()));
        assert!(lines.iter().any(|line| line.contains("name: broken.html") && line.contains("code: not-text")));
        assert!(lines.iter().any(|line| line.trim() == format!("sha256: {}", "a".repeat(12))));
    }

    #[test]
    fn a_subject_of_any_shape_is_shown_within_bounds() {
        assert!(summary(&Value::Null).is_empty());
        assert_eq!(summary(&json!("text")), ["text"]);
        let long: Vec<u32> = (0..100).collect();
        assert_eq!(summary(&json!({ "n": long })).len(), LIST_MAX + 2);
    }
}
