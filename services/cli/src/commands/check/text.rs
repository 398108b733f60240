//! `check semver` and `check redact`.

use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::catalog::version::{is_version, range_matches, range_parses};
use signalbox_domain::redact::redact_text;
use signalbox_domain::redact::stream::Redactor;

use super::{Verdict, read, verdict};

#[derive(Deserialize)]
struct Version {
    version: String,
    range: Option<String>,
}

pub(super) fn semver(line: Value) -> Verdict {
    let line: Version = read(line)?;
    match line.range {
        None => Ok(verdict([("valid", is_version(&line.version).into())])),
        Some(range) if range_parses(&range) => Ok(verdict([("match", range_matches(&range, &line.version).into())])),
        Some(range) => Err(format!("`{}` is not a range of versions", range.chars().take(64).collect::<String>())),
    }
}

#[derive(Deserialize)]
struct Text {
    text: Option<String>,
    chunks: Option<Vec<String>>,
}

pub(super) fn redact(line: Value) -> Verdict {
    match read(line)? {
        Text { text: Some(text), chunks: None } => Ok(verdict([("text", redact_text(&text).into())])),
        Text { text: None, chunks: Some(chunks) } => Ok(verdict([("chunks", json!(in_pieces(&chunks)))])),
        Text { .. } => Err("a line has either `text` or `chunks`".to_owned()),
    }
}

/// Each piece as it would be shown. What is held back at the end of one comes with a later one, at the latest with the last.
fn in_pieces(chunks: &[String]) -> Vec<String> {
    let mut redactor = Redactor::default();
    let mut shown: Vec<String> = chunks.iter().map(|chunk| redactor.push(chunk)).collect();
    if let Some(last) = shown.last_mut() {
        last.push_str(&redactor.finish());
    }
    shown
}
