//! Looking up every quote of a work in the sources, wherever in the work it stands.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_domain::canonical::sha256_hex;

use super::walk::quotes;
use crate::briefing::factcheck::{Problem, Sources};
use crate::briefing::model::{Document, Quote};

/// What the look-up found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Citations {
    /// How many quotes there are.
    pub(crate) quotes: usize,
    /// How many stand byte for byte where they say.
    pub(crate) found: usize,
    /// True if all do.
    pub(crate) clear: bool,
    /// Those that do not.
    pub(crate) problems: Vec<Problem>,
    /// SHA-256 over all quotes: rendering refuses a work whose quotes are others.
    pub(crate) quotes_digest: String,
}

impl Citations {
    /// The result in a sentence.
    pub(crate) fn in_words(&self) -> String {
        let quotes = crate::page::counted(self.quotes, "quote", "quotes");
        format!("{} of {quotes} found byte for byte in the sources.", self.found)
    }
}

/// The quotes of a work are not those that were checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the quotes of the work are not those whose citations were checked")]
pub(crate) struct QuotesChanged;

impl QuotesChanged {
    pub(crate) const CODE: &'static str = "quotes-changed-after-check";
}

/// Looks up every quote.
pub(crate) fn check(work: &Value, documents: Vec<Document>) -> Citations {
    let sources = Sources::new(documents);
    let all = quotes(work);
    let mut report = Citations { quotes: all.len(), quotes_digest: digest(&all), ..Citations::default() };
    for (place, quote) in &all {
        match sources.check(quote) {
            Ok(()) => report.found += 1,
            Err((code, reason)) => {
                report.problems.push(Problem { about: place.clone(), code: code.to_owned(), reason });
            }
        }
    }
    report.clear = report.problems.is_empty();
    report
}

/// Fails unless the quotes of these works together are those that were checked.
pub(crate) fn unchanged(works: &[&Value], checked: &Citations) -> Result<(), QuotesChanged> {
    let all: Vec<(String, Quote)> = works.iter().flat_map(|work| quotes(work)).collect();
    if digest(&all) == checked.quotes_digest { Ok(()) } else { Err(QuotesChanged) }
}

/// Over the set of quotes, so that it does not matter how the works are put together.
fn digest(all: &[(String, Quote)]) -> String {
    let mut lines: Vec<String> = all
        .iter()
        .map(|(_, quote)| {
            let (source, text) = (&quote.source, &quote.text);
            format!("{}:{source}{}-{}:{}:{text}", source.len(), quote.start, quote.end, text.len())
        })
        .collect();
    lines.sort();
    lines.dedup();
    sha256_hex(lines.join("\n").as_bytes())
}
