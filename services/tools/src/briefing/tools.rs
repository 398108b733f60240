//! The four tools: arguments in, answers out. What they do is in the modules beside this one.

use async_trait::async_trait;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::quantity::BudgetCategory;
use signalbox_domain::run::event::{Evidence, GroundingState};

use super::compose::{self, Draft};
use super::factcheck::{self, CitationsReport, ClaimsReport};
use super::ground::{self, Request};
use super::model::{Claim, DOCUMENTS_MAX, Document, Ground, Unusable};
use super::persona::{self, Change};
use super::render::{self, Pack};
use crate::bundled::shared::{args, base_usage, blocking, check_price, descriptor, outcome, refusal};
use crate::modes;
use crate::tool::{Answer, Descriptor, Failure, Measured, ProgressSink, Tool, ToolCall, ToolOutcome};

/// `sophia.ground`.
#[derive(Debug)]
pub(crate) struct SophiaGround;
/// `sophia.fact_check`.
#[derive(Debug)]
pub(crate) struct SophiaFactCheck;
/// `composition.suggest`.
#[derive(Debug)]
pub(crate) struct CompositionSuggest;
/// `persona.invoke`.
#[derive(Debug)]
pub(crate) struct PersonaInvoke;

/// A value, or a list of them as an earlier step gave it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Nested<T> {
    Many(Vec<T>),
    One(T),
}

pub(crate) fn flat<T>(nested: Vec<Nested<T>>) -> Vec<T> {
    let mut all = Vec::new();
    for entry in nested {
        match entry {
            Nested::Many(mut many) => all.append(&mut many),
            Nested::One(one) => all.push(one),
        }
    }
    all
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroundArgs {
    documents: Vec<Nested<Document>>,
    #[serde(default)]
    failures: Vec<Nested<Unusable>>,
    #[serde(default)]
    since: Option<String>,
    #[serde(default)]
    query: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase", deny_unknown_fields)]
enum CheckArgs {
    Claims { claims: Vec<Claim>, documents: Vec<Nested<Document>> },
    Citations { draft: Box<Draft>, documents: Vec<Nested<Document>> },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase", deny_unknown_fields)]
enum ComposeArgs {
    Draft {
        ground: Box<Ground>,
    },
    Render {
        draft: Box<Draft>,
        claims: Box<ClaimsReport>,
        citations: Box<CitationsReport>,
        #[serde(default)]
        tone: Vec<Change>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PersonaArgs {
    persona: String,
    #[serde(default)]
    draft: Option<Box<Draft>>,
    #[serde(default)]
    text: Option<String>,
}

/// Reads the arguments, does the work aside, and answers with what it measurably used.
async fn work<A, W>(call: ToolCall, retrievals: f64, work: W) -> ToolOutcome
where
    A: DeserializeOwned + Send + 'static,
    W: FnOnce(A) -> Result<(Value, Option<Evidence>, bool), Failure> + Send + 'static,
{
    let result = async {
        check_price(&call)?;
        let mut measured: Measured = base_usage(&call.tool_id);
        if retrievals > 0.0 {
            measured.insert(BudgetCategory::Retrievals, retrievals);
        }
        let given = call.args;
        let (output, evidence, whole) = blocking(move || args::<A>(&given).and_then(work)).await?;
        let answer = Answer { evidence, ..Answer::new(output, measured) };
        Ok(if whole { ToolOutcome::Ok(answer) } else { ToolOutcome::Partial(answer) })
    };
    outcome(result.await)
}

fn output(value: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| refusal("output-not-json", format!("the output is no JSON: {error}")))
}

/// Documents of one call, counted before anything is read.
pub(crate) fn documents(nested: Vec<Nested<Document>>) -> Result<Vec<Document>, Failure> {
    let documents = flat(nested);
    if documents.len() > DOCUMENTS_MAX {
        let error = ground::GroundError::TooManyDocuments(documents.len());
        return Err(refusal(error.code(), error.to_string()));
    }
    Ok(documents)
}

/// Names a set of quotes and says how much of what was asked stands on one.
pub(crate) fn evidence(names: &str, whole: usize, backed: usize, quotes: usize) -> Evidence {
    let grounding_state = match (backed, whole) {
        (0, _) => GroundingState::Ungrounded,
        (backed, whole) if backed == whole => GroundingState::Grounded,
        _ => GroundingState::PartiallyGrounded,
    };
    let digest = sha256_hex(names.as_bytes());
    Evidence {
        evidence_pack_id: format!("pack-{}", digest.get(..32).unwrap_or(&digest)),
        grounding_state,
        citation_count: quotes as u64,
    }
}

#[async_trait]
impl Tool for SophiaGround {
    fn descriptor(&self) -> Descriptor {
        descriptor("sophia.ground", false)
    }

    async fn run(&self, call: ToolCall, progress: ProgressSink) -> ToolOutcome {
        progress.report("reading the sources", None);
        work(call, 1.0, |asked: Value| {
            if let Some(given) = modes::ground(&asked) {
                return given;
            }
            let asked: GroundArgs = args(&asked)?;
            let request = Request {
                documents: documents(asked.documents)?,
                failures: flat(asked.failures),
                since: asked.since,
                query: asked.query,
            };
            let found = ground::ground(request).map_err(|error| refusal(error.code(), error.to_string()))?;
            let cited = found.items.iter().filter(|item| !item.quotes.is_empty()).count();
            let quotes = found.items.iter().map(|item| item.quotes.len()).sum();
            let names: Vec<&str> = found.sources.iter().map(|source| source.sha256.as_str()).collect();
            let evidence = evidence(&names.join("\n"), found.items.len(), cited, quotes);
            Ok((output(&found)?, Some(evidence), found.unusable.is_empty()))
        })
        .await
    }
}

#[async_trait]
impl Tool for SophiaFactCheck {
    fn descriptor(&self) -> Descriptor {
        descriptor("sophia.fact_check", false)
    }

    async fn run(&self, call: ToolCall, progress: ProgressSink) -> ToolOutcome {
        progress.report("looking the quotes up in their sources", None);
        work(call, 1.0, |asked: Value| {
            if let Some(given) = modes::check(&asked) {
                return given;
            }
            match args(&asked)? {
                CheckArgs::Claims { claims, documents: nested } => {
                    let report = factcheck::check_claims(&claims, documents(nested)?);
                    let ids: Vec<String> = claims
                        .iter()
                        .map(|claim| format!("{} {} {}", claim.quote.source, claim.quote.start, claim.value))
                        .collect();
                    // Without a claim there is nothing to bear out, and what is said elsewhere is checked elsewhere.
                    let evidence = match report.claims {
                        0 => Evidence { grounding_state: GroundingState::NotRequired, ..evidence("", 0, 0, 0) },
                        all => evidence(&ids.join("\n"), all, report.supported, report.supported),
                    };
                    Ok((output(&report)?, Some(evidence), true))
                }
                CheckArgs::Citations { draft, documents: nested } => {
                    let report = factcheck::check_citations(&draft, documents(nested)?);
                    let evidence = evidence(&report.quotes_digest, report.items, report.cited, report.found);
                    Ok((output(&report)?, Some(evidence), true))
                }
            }
        })
        .await
    }
}

#[async_trait]
impl Tool for CompositionSuggest {
    fn descriptor(&self) -> Descriptor {
        descriptor("composition.suggest", false)
    }

    async fn run(&self, call: ToolCall, progress: ProgressSink) -> ToolOutcome {
        progress.report("composing", None);
        work(call, 0.0, |asked: Value| {
            if let Some(given) = modes::compose(&asked) {
                return given;
            }
            modes::known(&asked, &["draft", "render"])?;
            match args(&asked)? {
                ComposeArgs::Draft { ground } => {
                    let draft = compose::draft(*ground);
                    Ok((json!({ "draft": output(&draft)? }), None, true))
                }
                ComposeArgs::Render { draft, claims, citations, tone } => {
                    let pack = Pack { draft: &draft, claims: &claims, citations: &citations, tone: &tone };
                    let rendered = render::render(pack).map_err(|error| refusal(error.code(), error.to_string()))?;
                    Ok((output(&rendered)?, None, true))
                }
            }
        })
        .await
    }
}

#[async_trait]
impl Tool for PersonaInvoke {
    fn descriptor(&self) -> Descriptor {
        descriptor("persona.invoke", false)
    }

    async fn run(&self, call: ToolCall, _progress: ProgressSink) -> ToolOutcome {
        work(call, 0.0, |asked: Value| {
            if let Some(given) = modes::persona(&asked) {
                return given;
            }
            let asked: PersonaArgs = args(&asked)?;
            if asked.persona != persona::PERSONA {
                let known = persona::PERSONA;
                return Err(refusal("persona-not-available", format!("only the persona `{known}` is available")));
            }
            match (asked.draft, asked.text) {
                (Some(mut draft), None) => {
                    let changes = persona::edit_draft(&mut draft);
                    let (narration, cover) = (persona::narration(&draft), persona::cover_prompt(&draft));
                    let output = json!({
                        "draft": output(&draft)?,
                        "changes": output(&changes)?,
                        "narration": narration,
                        "coverPrompt": cover,
                    });
                    Ok((output, None, true))
                }
                (None, Some(text)) if text.len() > persona::TEXT_BYTES_MAX => {
                    Err(refusal("text-too-long", format!("a text may have at most {} bytes", persona::TEXT_BYTES_MAX)))
                }
                (None, Some(text)) => {
                    let mut changes = Vec::new();
                    let text = persona::edit("text", &text, &mut changes);
                    Ok((json!({ "text": text, "changes": output(&changes)? }), None, true))
                }
                (None, None) | (Some(_), Some(_)) => Err(refusal("args-invalid", "give either a `draft` or a `text`")),
            }
        })
        .await
    }
}
