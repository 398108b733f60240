//! Grounding: from documents to items and claims that each stand on words of a source.
//!
//! The order of the documents does not matter: they are taken by name, so the same set of sources gives the same pack
//! however it was fetched.

use std::collections::{BTreeMap, BTreeSet};

use signalbox_domain::canonical::sha256_hex;

use super::bm25::Index;
use super::dates;
use super::extract;
use super::model::{Claim, DOCUMENTS_MAX, Document, Ground, Item, LeftOut, Passage, Quote, SourceRow, Unusable};
use super::prose::stems;
use super::safe;

/// Most passages that are given for a query.
pub const PASSAGES_MAX: usize = 20;
/// Longest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 2_048;

/// What grounding is asked for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The sources.
    pub documents: Vec<Document>,
    /// Sources that could not be fetched.
    pub failures: Vec<Unusable>,
    /// Leave out items dated before this day.
    pub since: Option<String>,
    /// Look for passages that answer this.
    pub query: Option<String>,
}

/// Why grounding was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroundError {
    /// More than [`DOCUMENTS_MAX`] documents.
    #[error("{0} documents are too many; at most {DOCUMENTS_MAX} are taken")]
    TooManyDocuments(usize),
    /// The date is none.
    #[error("`{0}` is not a day of the form 2026-08-31")]
    SinceNotADay(String),
    /// The query is too long.
    #[error("the query has more than {QUERY_BYTES_MAX} bytes")]
    QueryTooLong,
}

impl GroundError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooManyDocuments(_) => "too-many-documents",
            Self::SinceNotADay(_) => "since-not-a-day",
            Self::QueryTooLong => "query-too-long",
        }
    }
}

/// Reads all documents.
pub fn ground(request: Request) -> Result<Ground, GroundError> {
    if request.documents.len() > DOCUMENTS_MAX {
        return Err(GroundError::TooManyDocuments(request.documents.len()));
    }
    if let Some(since) = request.since.as_ref().filter(|since| !dates::is_day(since)) {
        return Err(GroundError::SinceNotADay(safe::clean(safe::cut(since, 40))));
    }
    if request.query.as_ref().is_some_and(|query| query.len() > QUERY_BYTES_MAX) {
        return Err(GroundError::QueryTooLong);
    }
    let mut reader =
        Reader { unusable: request.failures, keeps_sentences: request.query.is_some(), ..Reader::default() };
    for document in named(request.documents) {
        reader.read(&document);
    }
    let sentences = std::mem::take(&mut reader.sentences);
    let mut ground = reader.finish();
    if let Some(since) = request.since {
        leave_out(&mut ground, since);
    }
    for (number, claim) in ground.claims.iter_mut().enumerate() {
        claim.id = format!("c{:05}", number + 1);
    }
    if let Some(query) = &request.query {
        ground.passages = passages(&sentences, query);
    }
    Ok(ground)
}

/// Documents by name, with names that can be printed and told apart.
pub(crate) fn named(documents: Vec<Document>) -> Vec<Document> {
    let mut documents: Vec<Document> = documents
        .into_iter()
        .map(|mut document| {
            let name = safe::clean(&document.name).replace('`', "'");
            document.name = if name.is_empty() { "unnamed".to_owned() } else { name };
            document
        })
        .collect();
    documents
        .sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.sha256.cmp(&b.sha256)).then_with(|| a.text.cmp(&b.text)));
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for document in &mut documents {
        let count = seen.entry(document.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            document.name = format!("{} ({count})", document.name);
        }
    }
    documents
}

#[derive(Default)]
struct Reader {
    items: Vec<Item>,
    claims: Vec<Claim>,
    sources: Vec<SourceRow>,
    unusable: Vec<Unusable>,
    keeps_sentences: bool,
    sentences: Vec<Quote>,
    /// Digest of a text to the source that had it first.
    texts: BTreeMap<String, String>,
    ids: BTreeMap<String, String>,
}

impl Reader {
    fn read(&mut self, document: &Document) {
        let digest = sha256_hex(document.text.as_bytes());
        if let Some(first) = self.texts.get(&digest) {
            let reason = format!("it is byte for byte the same as {first}");
            return self.refuse(&document.name, "document-repeated", reason);
        }
        self.texts.insert(digest.clone(), document.name.clone());
        let (mut extracted, read_as) = match extract::extract(document, self.keeps_sentences) {
            Ok(extracted) => extracted,
            Err(unusable) => return self.unusable.push(unusable),
        };
        let mut repeated = BTreeSet::new();
        for item in &extracted.items {
            match self.ids.get(&item.id) {
                Some(first) => {
                    repeated.insert(item.id.clone());
                    let reason = format!("{first} has an item with the same id, {}; its claims were compared", item.id);
                    self.refuse(&document.name, "item-repeated", reason);
                }
                None => {
                    self.ids.insert(item.id.clone(), document.name.clone());
                }
            }
        }
        extracted.items.retain(|item| !repeated.contains(&item.id));
        let given = document.sha256.to_ascii_lowercase();
        let is_digest = given.len() == 64 && given.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.sources.push(SourceRow {
            name: document.name.clone(),
            altered: is_digest && given != digest,
            sha256: if is_digest { given } else { digest },
            media_type: safe::clean(safe::cut(&document.media_type, 100)),
            read_as: read_as.to_owned(),
            link: Some(&document.uri).filter(|uri| uri.starts_with("http")).and_then(|uri| safe::link(uri)),
            items: extracted.items.len(),
        });
        self.items.append(&mut extracted.items);
        self.claims.append(&mut extracted.claims);
        self.sentences.append(&mut extracted.sentences);
    }

    fn refuse(&mut self, name: &str, code: &str, reason: String) {
        self.unusable.push(Unusable { name: name.to_owned(), code: code.to_owned(), reason });
    }

    fn finish(mut self) -> Ground {
        for unusable in &mut self.unusable {
            unusable.name = safe::clean(&unusable.name);
            unusable.reason = safe::clean(&unusable.reason);
        }
        self.unusable.sort();
        self.unusable.dedup();
        Ground {
            items: self.items,
            claims: self.claims,
            sources: self.sources,
            unusable: self.unusable,
            left_out: None,
            passages: Vec::new(),
        }
    }
}

/// Items dated before the day go, with their claims; items without a date stay.
fn leave_out(ground: &mut Ground, since: String) {
    let before = ground.items.len();
    let mut gone: BTreeSet<String> = BTreeSet::new();
    ground.items.retain(|item| {
        let keep = item.date.as_ref().is_none_or(|date| *date >= since);
        if !keep {
            gone.insert(item.id.clone());
        }
        keep
    });
    ground.claims.retain(|claim| !gone.contains(&claim.item));
    let undated = ground.items.iter().filter(|item| item.date.is_none()).count();
    ground.left_out = Some(LeftOut { since, count: before - ground.items.len(), undated });
}

/// The sentences that answer a query best.
fn passages(sentences: &[Quote], query: &str) -> Vec<Passage> {
    let index = Index::new(sentences.iter().map(|quote| stems(&quote.plain)));
    let best = index.best(&stems(query), PASSAGES_MAX);
    best.into_iter()
        .map(|(number, score)| Passage {
            score: (score * 10_000.0).round() / 10_000.0,
            quote: sentences[number].clone(),
        })
        .collect()
}
