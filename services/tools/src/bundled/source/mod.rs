//! `source.fetch`: files, feeds and pages as documents that later steps can quote. What their markup means is read later.
//!
//! One bad source never takes the others with it: each failure is named, and the outcome is partial.

pub(crate) mod document;
mod enumerate;
pub(crate) mod local;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::json;
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::quantity::BudgetCategory;
use tokio::time::Instant;

use self::document::{Document, Raw, SourceFailure};
use super::shared::{args, base_usage, blocking, ceiling_units, check_price, descriptor, outcome, refusal};
use super::web::WebFetcher;
use crate::tool::{Answer, Descriptor, Failure, ProgressSink, Tool, ToolCall, ToolOutcome};

/// Most sources of one call.
const URIS_MAX: usize = 100;
/// Longest name of a source, in bytes.
const URI_BYTES_MAX: usize = 4_096;
/// Most bytes of text in one answer; sources beyond it are named as missing.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Sources that are fetched side by side.
const SIDE_BY_SIDE: usize = 8;
/// Time kept back so that a slow source costs itself and not the whole call.
const RESERVE: Duration = Duration::from_secs(2);

/// Fetches sources as documents.
pub(crate) struct SourceFetch(pub(crate) Arc<WebFetcher>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    uris: Vec<String>,
    #[serde(default)]
    mode: Option<Mode>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// List what can be read in folders.
    Enumerate,
}

/// What one source gave, and whether anything left this machine for it.
struct Gathered {
    given: Result<Vec<Document>, SourceFailure>,
    left: bool,
}

impl SourceFetch {
    async fn fetch(&self, call: ToolCall, progress: ProgressSink) -> Result<ToolOutcome, Failure> {
        let Args { uris, mode } = args(&call.args)?;
        check_price(&call)?;
        if uris.is_empty()
            || uris.len() > URIS_MAX
            || uris.iter().any(|uri| uri.is_empty() || uri.len() > URI_BYTES_MAX)
        {
            let message = format!("`uris` are 1 to {URIS_MAX} texts of 1 to {URI_BYTES_MAX} bytes");
            return Err(refusal("args-invalid", message));
        }
        let reserved =
            (ceiling_units(&call, BudgetCategory::Retrievals), ceiling_units(&call, BudgetCategory::ExternalCalls));
        let web = uris.iter().filter(|uri| is_web(uri)).count();
        if uris.len() as u64 > reserved.0 || web as u64 > reserved.1 {
            return Err(refusal("ceiling-too-low", "fewer look-ups are reserved for this call than it names sources"));
        }
        if let Some(Mode::Enumerate) = mode {
            return enumerate::enumerate(uris, &call).await;
        }
        let deadline = call.deadline.checked_sub(RESERVE).unwrap_or(call.deadline);
        let all = uris.len();
        let fetching = uris.into_iter().map(|uri| self.one(uri, &call.constraints, deadline));
        let mut fetched = futures::stream::iter(fetching).buffered(SIDE_BY_SIDE);
        let (mut documents, mut failures) = (Vec::new(), Vec::new());
        let (mut left, mut text_bytes, mut done) = (0_u32, 0, 0);
        while let Some(gathered) = fetched.next().await {
            let gathered = gathered?;
            left += u32::from(gathered.left);
            match gathered.given {
                Ok(given) => {
                    for document in given {
                        if text_bytes + document.text.len() > TEXT_BYTES_MAX {
                            let message = "the answer has no room for it; fetch it in a call of its own";
                            failures.push(SourceFailure::new(document.name, "source-output-full", message));
                        } else {
                            text_bytes += document.text.len();
                            documents.push(document);
                        }
                    }
                }
                Err(failure) => failures.push(failure),
            }
            done += 1;
            progress.report(format!("{done} of {all} sources"), u8::try_from(done * 100 / all).ok());
        }
        let mut measured = base_usage(&call.tool_id);
        measured.insert(BudgetCategory::Retrievals, all as f64);
        if left > 0 {
            measured.insert(BudgetCategory::ExternalCalls, f64::from(left));
        }
        let is_partial = !failures.is_empty();
        let answer = Answer::new(json!({ "documents": documents, "failures": failures }), measured);
        Ok(if is_partial { ToolOutcome::Partial(answer) } else { ToolOutcome::Ok(answer) })
    }

    /// One source.
    async fn one(&self, uri: String, constraints: &Constraints, deadline: Instant) -> Result<Gathered, Failure> {
        if !is_web(&uri) {
            let paths = constraints.paths.clone();
            let given = blocking(move || Ok(local::fetch(&uri, paths.as_deref()).and_then(document::read)));
            return Ok(Gathered { given: given.await?, left: false });
        }
        let name = web_name(&uri);
        let page = match self.0.fetch(&uri, "GET", constraints, deadline).await {
            Ok(page) => page,
            Err(failure) => {
                let given = Err(SourceFailure::new(name, failure.code, failure.message));
                return Ok(Gathered { given, left: failure.left });
            }
        };
        let raw = Raw { name, uri: Some(page.url), declared: page.media_type, bytes: page.body };
        Ok(Gathered { given: blocking(move || Ok(document::read(raw))).await?, left: true })
    }
}

/// As the gate reads it: what begins with one of these is a URL, everything else a file.
fn is_web(uri: &str) -> bool {
    uri.starts_with("http://") || uri.starts_with("https://")
}

/// Host and path: enough to tell sources apart, without what a query may hold.
fn web_name(uri: &str) -> String {
    let Ok(url) = url::Url::parse(uri) else { return "source".to_owned() };
    format!("{}{}", url.host_str().unwrap_or_default(), url.path()).trim_end_matches('/').to_owned()
}

#[async_trait]
impl Tool for SourceFetch {
    fn descriptor(&self) -> Descriptor {
        descriptor("source.fetch", false)
    }
    async fn run(&self, call: ToolCall, progress: ProgressSink) -> ToolOutcome {
        outcome(self.fetch(call, progress).await)
    }
}
