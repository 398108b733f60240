//! What the pack would say, in a few lines, for whoever has to say yes to it.
//!
//! The lines come from the rendered pack itself, which the run keeps as the output of its last step before the gate. A
//! pack of another shape than is known here is no error: then the question's own subject is shown as it is.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Most lines of a list that are shown.
const LINES_MAX: usize = 12;
/// Most values of a contradiction that are shown.
const VALUES_MAX: usize = 4;

/// The part of a pack that is shown.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Facts {
    title: String,
    counts: BTreeMap<String, u64>,
    checks: Checks,
    contradictions: Vec<Contradiction>,
    unusable: Vec<Unusable>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Checks {
    quotes: u64,
    quotes_found: u64,
    claims: u64,
    claims_supported: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Contradiction {
    kind: String,
    subject: String,
    values: Vec<Said>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Said {
    value: String,
    #[serde(default)]
    quotes: Vec<Quote>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Quote {
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Unusable {
    name: String,
    code: String,
}

impl Facts {
    /// The facts in the output of the step that renders the pack.
    pub(crate) fn read(output: &Value) -> Option<Self> {
        let json = output.get("json")?;
        let facts: Option<Self> = match json.as_str() {
            Some(text) => serde_json::from_str(text).ok(),
            None => serde_json::from_value(json.clone()).ok(),
        };
        let facts = facts?;
        (!facts.counts.is_empty()).then_some(facts)
    }

    /// One line for each fact; what belongs to a line is indented below it.
    pub(crate) fn lines(&self) -> Vec<String> {
        let kinds: Vec<_> = self.counts.iter().filter(|(kind, _)| *kind != "items").collect();
        let kinds: Vec<_> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let items = self.counts.get("items").copied().unwrap_or_default();
        let checks = &self.checks;
        let mut lines = vec![
            self.title.clone(),
            format!("items: {items} ({})", kinds.join(", ")),
            format!("quotes found in their sources: {} of {}", checks.quotes_found, checks.quotes),
            format!("claims borne out by their quotes: {} of {}", checks.claims_supported, checks.claims),
        ];
        list(&mut lines, "contradictions", self.contradictions.iter().map(Contradiction::line));
        let unusable = self.unusable.iter().map(|source| format!("{} ({})", source.name, source.code));
        list(&mut lines, "unusable sources", unusable);
        lines
    }
}

impl Contradiction {
    fn line(&self) -> String {
        let said = |said: &Said| match said.quotes.first() {
            Some(quote) => format!("{} ({})", said.value, quote.source),
            None => said.value.clone(),
        };
        let values: Vec<_> = self.values.iter().take(VALUES_MAX).map(said).collect();
        let more = match self.values.len().saturating_sub(VALUES_MAX) {
            0 => String::new(),
            more => format!(", or one of {more} more"),
        };
        format!("{} of {}: {}{more}", self.kind, self.subject, values.join(" or "))
    }
}

fn list(lines: &mut Vec<String>, name: &str, items: impl ExactSizeIterator<Item = String>) {
    let count = items.len();
    lines.push(format!("{name}: {count}"));
    lines.extend(items.take(LINES_MAX).map(|item| format!("  - {item}")));
    if count > LINES_MAX {
        lines.push(format!("  - and {} more", count - LINES_MAX));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pack() -> Value {
        json!({
            "title": "Weekly briefing",
            "counts": {"items": 3, "story": 2, "advisory": 1},
            "checks": {"quotes": 5, "quotesFound": 4, "claims": 2, "claimsSupported": 2},
            "contradictions": [{"kind": "date", "subject": "Larkspur", "values": [
                {"value": "2026-09-14", "quotes": [{"source": "a.md"}]}, {"value": "2026-09-21", "quotes": []},
            ]}],
            "unusable": [{"name": "c.txt", "code": "source-not-text", "reason": "it is not a text"}],
        })
    }

    #[test]
    fn a_pack_is_summed_up_with_its_kinds_contradictions_and_unusable_sources() {
        for output in [json!({ "json": pack() }), json!({ "json": pack().to_string() })] {
            let lines = Facts::read(&output).unwrap().lines();
            assert_eq!(lines[1], "items: 3 (1 advisory, 2 story)");
            assert_eq!(lines[2], "quotes found in their sources: 4 of 5");
            assert!(lines.contains(&"  - date of Larkspur: 2026-09-14 (a.md) or 2026-09-21".to_owned()), "{lines:?}");
            assert!(lines.contains(&"unusable sources: 1".to_owned()));
            assert!(lines.contains(&"  - c.txt (source-not-text)".to_owned()));
        }
    }

    #[test]
    fn a_pack_of_another_shape_is_not_summed_up() {
        for output in [json!({}), json!({"json": "nonsense"}), json!({"json": {"counts": 7}}), json!({"json": {}})] {
            assert_eq!(Facts::read(&output), None, "{output}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let mut pack = pack();
        pack["contradictions"][0]["values"] = (0..50).map(|n| json!({"value": n.to_string()})).collect();
        pack["unusable"] = (0..50).map(|n| json!({"name": n.to_string(), "code": "x"})).collect();
        let lines = Facts::read(&json!({ "json": pack })).unwrap().lines();
        assert_eq!(lines.last().unwrap(), "  - and 38 more");
        assert!(lines.contains(&"  - date of Larkspur: 0 or 1 or 2 or 3, or one of 46 more".to_owned()), "{lines:?}");
    }
}
