//! `briefing.json`: stable names in a stable order, and nothing in it that a program could trip over.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Pack;
use crate::briefing::factcheck::{Contradiction, Problem};
use crate::briefing::model::{AffectedFunction, Item, Kind, LeftOut, Level, SourceRow, Supports, Unusable};
use crate::briefing::related::Related;
use crate::briefing::safe;

/// Version of the file's shape. Fields are added, never changed.
const FORMAT: &str = "signalbox.briefing.v1";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'p> {
    format: &'static str,
    title: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<&'p crate::briefing::compose::Period>,
    /// How the text was made.
    method: &'static str,
    at_a_glance: String,
    counts: BTreeMap<&'static str, usize>,
    checks: Checks,
    items: Vec<Entry<'p>>,
    related: &'p [Related],
    contradictions: &'p [Contradiction],
    problems: Vec<&'p Problem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<&'p LeftOut>,
    unusable: &'p [Unusable],
    sources: &'p [SourceRow],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checks {
    quotes: usize,
    quotes_found: usize,
    claims: usize,
    claims_supported: usize,
    claims_compared: usize,
    contradictions: usize,
    tone_changes: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'p> {
    id: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    package: Option<&'p str>,
    kind: Kind,
    kind_from: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<Level>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cvss: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    severity_from: Option<&'p str>,
    title: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    affected: Option<&'p str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    named_versions: &'p [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    affected_functions: &'p [AffectedFunction],
    #[serde(skip_serializing_if = "Option::is_none")]
    unaffected: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patched: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_to_do: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_from: Option<&'p str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    references: &'p [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    aliases: &'p [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'p [String],
    summary: String,
    source: &'p str,
    quotes: Vec<Words<'p>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Words<'p> {
    supports: Supports,
    source: &'p str,
    start: usize,
    end: usize,
    text: &'p str,
}

/// Renders the pack.
pub(super) fn render(pack: Pack<'_>) -> String {
    let draft = pack.draft;
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::from([("items", draft.items.len())]);
    for item in &draft.items {
        *counts.entry(item.kind.as_str()).or_default() += 1;
    }
    let file = File {
        format: FORMAT,
        title: &draft.title,
        period: draft.period.as_ref(),
        method: "extractive",
        at_a_glance: draft.glance.join(" "),
        counts,
        checks: Checks {
            quotes: pack.citations.quotes,
            quotes_found: pack.citations.found,
            claims: pack.claims.claims,
            claims_supported: pack.claims.supported,
            claims_compared: pack.claims.compared,
            contradictions: pack.claims.contradictions.len(),
            tone_changes: pack.tone.len(),
        },
        items: draft.items.iter().map(entry).collect(),
        related: &draft.related,
        contradictions: &pack.claims.contradictions,
        problems: pack.citations.problems.iter().chain(&pack.claims.problems).collect(),
        left_out: draft.left_out.as_ref(),
        unusable: &draft.unusable,
        sources: &draft.sources,
    };
    // These types hold only texts, finite numbers and lists of them, so this does not fail.
    let text = serde_json::to_string_pretty(&file).unwrap_or_default();
    format!("{}\n", visible(&text))
}

fn entry(item: &Item) -> Entry<'_> {
    let plain = |supports| item.quotes_for(supports).map(|quote| quote.plain.as_str()).collect::<Vec<_>>().join(" ");
    let action = item.action.as_ref().map(|action| action.text.clone());
    let told = super::told(item).map(|told| format!("The source says: {told}"));
    let what_to_do = match (action, told) {
        (Some(action), Some(told)) => Some(format!("{action} {told}")),
        (one, other) => one.or(other),
    };
    let severity = item.severity.as_ref();
    Entry {
        id: &item.id,
        package: item.package.as_deref(),
        kind: item.kind,
        kind_from: &item.kind_from,
        severity: severity.map(|severity| severity.level),
        score: severity.and_then(|severity| severity.score),
        cvss: severity.and_then(|severity| severity.vector.as_deref()),
        severity_from: severity.map(|severity| severity.from.as_str()),
        title: &item.title,
        date: item.date.as_deref(),
        affected: item.affected.as_deref(),
        named_versions: &item.named_versions,
        affected_functions: &item.affected_functions,
        unaffected: item.unaffected.as_deref(),
        patched: item.patched.as_deref(),
        what_to_do,
        link: item.link.as_deref(),
        link_from: item.link_from.as_deref(),
        references: &item.references,
        aliases: &item.aliases,
        categories: &item.categories,
        summary: plain(Supports::Summary),
        source: &item.source,
        quotes: item
            .quotes
            .iter()
            .map(|quote| Words {
                supports: quote.supports,
                source: &quote.source,
                start: quote.start,
                end: quote.end,
                text: &quote.text,
            })
            .collect(),
    }
}

/// Quotes are exact, so what cannot be seen stays in them; it is spelled as an escape, which every JSON reader turns
/// back, and so are the beginnings of markup, should somebody paste the file into a page.
fn visible(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        let markup =
            c == '<' && chars.peek().is_some_and(|next| matches!(next, '/' | '!') || next.is_ascii_alphabetic());
        let unseen = safe::is_hidden(c) || matches!(c, '\u{2028}' | '\u{2029}' | '\u{7f}'..='\u{9f}');
        if markup || unseen {
            let mut units = [0_u16; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_spelled_out_and_means_the_same() {
        let text = "a\u{202e}b</script><b\u{200b}\u{e0041}<5 < 6 é";
        let json = visible(&serde_json::to_string(text).unwrap());
        assert_eq!(json, r#""a\u202eb\u003c/script>\u003cb\u200b\udb40\udc41<5 < 6 é""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
