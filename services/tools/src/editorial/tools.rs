//! The modes of the tools that are about a story: arguments in, answers out.

use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::run::event::Evidence;

use super::citations;
use super::denials::{denials, sentences};
use super::inbox::entry;
use super::story::{Contradictions, Story, story};
use super::tone::Tone;
use crate::briefing::factcheck::{ClaimsReport, check_claims};
use crate::briefing::model::{Document, Ground};
use crate::briefing::tools::{Nested, documents, evidence};
use crate::bundled::shared::args;
use crate::modes::{Given, given, titled};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotesArgs {
    work: Value,
    documents: Vec<Nested<Document>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContradictionArgs {
    ground: Box<Ground>,
    documents: Vec<Nested<Document>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoryArgs {
    ground: Box<Ground>,
    claims: Box<ClaimsReport>,
    contradictions: Contradictions,
    #[serde(default)]
    documents: Vec<Nested<Document>>,
    #[serde(default)]
    title: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InboxArgs {
    story: Story,
    #[serde(default)]
    tone: Option<Tone>,
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
pub(crate) fn contradictions(asked: &Value) -> Given {
    let ContradictionArgs { ground, documents: nested } = args(asked)?;
    let documents = documents(nested)?;
    let claims = check_claims(&ground.claims, documents.clone());
    let denials = denials(&sentences(documents));
    let found = claims.contradictions.len() + denials.len();
    given(&Contradictions {
        found,
        clear: found == 0,
        contradictions: claims.contradictions,
        denials,
        compared: claims.compared,
    })
}

/// The modes of `composition.suggest` that are about a story.
pub(crate) fn compose(mode: &str, asked: &Value) -> Option<Given> {
    Some(match mode {
        "story" => args::<StoryArgs>(asked).and_then(|asked| {
            let StoryArgs { ground, claims, contradictions, documents: nested, title } = asked;
            let title = titled(title)?;
            let sentences = sentences(documents(nested)?);
            given(&json!({ "story": story(*ground, &claims, &contradictions, &sentences, title) }))
        }),
        "inbox" => args::<InboxArgs>(asked).and_then(|InboxArgs { story, tone }| given(&entry(&story, tone.as_ref()))),
        _ => return None,
    })
}
