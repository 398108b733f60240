//! The modes of the tools that are about a story: arguments in, answers out.

use serde::Deserialize;
use serde_json::Value;
use signalbox_domain::run::event::Evidence;

use super::citations;
use crate::briefing::model::Document;
use crate::briefing::tools::{Nested, documents, evidence};
use crate::bundled::shared::args;
use crate::modes::{Given, given};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotesArgs {
    work: Value,
    documents: Vec<Nested<Document>>,
}

/// `sophia.fact_check`, mode `quotes`.
pub(crate) fn quotes(asked: &Value) -> Given {
    let QuotesArgs { work, documents: nested } = args(asked)?;
    let report = citations::check(&work, documents(nested)?);
    let evidence: Evidence = evidence(&report.quotes_digest, report.quotes, report.found, report.found);
    let (value, _, whole) = given(&report)?;
    Ok((value, Some(evidence), whole))
}

/// `sophia.fact_check`, mode `contradictions`.
pub(crate) fn contradictions(_asked: &Value) -> Given {
    given(&())
}

/// The modes of `composition.suggest` that are about a story.
pub(crate) fn compose(_mode: &str, _asked: &Value) -> Option<Given> {
    None
}
