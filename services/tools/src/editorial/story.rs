//! A story from sources: what they say, what speaks against it, and what is open.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::denials::{Denial, content};
use crate::briefing::bm25::Index;
use crate::briefing::compose;
use crate::briefing::factcheck::{ClaimsReport, Contradiction};
use crate::briefing::model::{Ground, Quote, SourceRow, Supports, Unusable};
use crate::briefing::prose::stems;
use crate::briefing::render::about;
use crate::page::counted;

/// Most points of one story.
const POINTS_MAX: usize = 40;
/// Most counterclaims of one story.
const COUNTERCLAIMS_MAX: usize = 40;
/// Most questions that are left open.
const QUESTIONS_MAX: usize = 6;
/// Words a counterclaim must share with what it speaks against.
const SHARED_MIN: usize = 2;

/// How sentences begin that speak against something.
const CONTRASTS: [&str; 16] = [
    "however",
    "but ",
    "although",
    "though",
    "yet ",
    "on the other hand",
    "by contrast",
    "contrary to",
    "despite",
    "disagree",
    "object",
    "oppose",
    "dispute",
    "doubt",
    "instead of",
    "warn",
];

/// What the contradiction check gives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Contradictions {
    /// How many contradictions and denials.
    pub(crate) found: usize,
    /// True if there are none.
    pub(crate) clear: bool,
    pub(crate) contradictions: Vec<Contradiction>,
    pub(crate) denials: Vec<Denial>,
    /// How many claims were compared with one of another source.
    pub(crate) compared: usize,
}

/// A point of a story: a headline of a source and the sentences behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Point {
    /// What it belongs to.
    pub(crate) topic: String,
    pub(crate) headline: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) date: Option<String>,
    pub(crate) source: String,
    pub(crate) quotes: Vec<Quote>,
}

/// What speaks against a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Counterclaim {
    /// `figures-differ`, `denied` or `contrast`.
    pub(crate) kind: String,
    /// What it is about, in words.
    pub(crate) about: String,
    pub(crate) claim: Quote,
    pub(crate) counter: Quote,
}

/// A story before it goes to the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Story {
    pub(crate) title: String,
    /// What the sources are, counted.
    pub(crate) summary: Vec<String>,
    pub(crate) points: Vec<Point>,
    pub(crate) counterclaims: Vec<Counterclaim>,
    /// What an editor has to find out.
    pub(crate) open: Vec<String>,
    /// What was checked.
    pub(crate) checks: Vec<String>,
    pub(crate) sources: Vec<SourceRow>,
    pub(crate) unusable: Vec<Unusable>,
}

/// Composes a story.
pub(super) fn story(
    ground: Ground,
    claims: &ClaimsReport,
    contradictions: &Contradictions,
    sentences: &[Quote],
    title: Option<String>,
) -> Story {
    let draft = compose::draft(ground);
    let mut points: Vec<Point> = Vec::new();
    for section in &draft.sections {
        for item in draft.items.iter().filter(|item| section.items.contains(&item.id)) {
            let said =
                item.quotes.iter().filter(|quote| matches!(quote.supports, Supports::Summary | Supports::WhatToDo));
            let quotes: Vec<Quote> = said.cloned().collect();
            if points.len() < POINTS_MAX && !quotes.is_empty() {
                points.push(Point {
                    topic: section.heading.clone(),
                    headline: item.title.clone(),
                    date: item.date.clone(),
                    source: item.source.clone(),
                    quotes,
                });
            }
        }
    }
    let mut counterclaims: Vec<Counterclaim> = Vec::new();
    for contradiction in &contradictions.contradictions {
        if let [one, other, ..] = contradiction.values.as_slice()
            && let (Some(claim), Some(counter)) = (one.quotes.first(), other.quotes.first())
        {
            counterclaims.push(Counterclaim {
                kind: "figures-differ".to_owned(),
                about: differing(contradiction),
                claim: claim.clone(),
                counter: counter.clone(),
            });
        }
    }
    for denial in &contradictions.denials {
        counterclaims.push(Counterclaim {
            kind: "denied".to_owned(),
            about: "one says it, the other denies it".to_owned(),
            claim: denial.says.clone(),
            counter: denial.denies.clone(),
        });
    }
    counterclaims.extend(contrasts(&points, sentences));
    counterclaims.truncate(COUNTERCLAIMS_MAX);
    let open = open(&points, &counterclaims, claims);
    let title = title.unwrap_or_else(|| match points.first() {
        Some(first) => first.headline.clone(),
        None => "A story without a point".to_owned(),
    });
    Story {
        title,
        summary: draft.glance,
        checks: checks(claims, contradictions),
        points,
        counterclaims,
        open,
        sources: draft.sources,
        unusable: draft.unusable,
    }
}

/// `Brackenford: date, 2027-04-12 or 2027-05-03`.
fn differing(contradiction: &Contradiction) -> String {
    let values: Vec<&str> = contradiction.values.iter().take(4).map(|stated| stated.value.as_str()).collect();
    let about = about(contradiction);
    let mut letters = about.chars();
    let about: String = letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect());
    format!("{about}, {}", values.join(" or "))
}

/// Sentences of other sources that begin like an objection and speak of the same.
fn contrasts(points: &[Point], sentences: &[Quote]) -> Vec<Counterclaim> {
    let objecting: Vec<&Quote> = sentences
        .iter()
        .filter(|quote| {
            let lower = quote.plain.to_lowercase();
            CONTRASTS.iter().any(|cue| lower.starts_with(cue) || lower.contains(&format!(" {cue}")))
        })
        .collect();
    let index = Index::new(objecting.iter().map(|quote| stems(&quote.plain)));
    let mut used: BTreeSet<usize> = BTreeSet::new();
    let mut found = Vec::new();
    for point in points {
        let Some(claim) = point.quotes.first() else { continue };
        let query: Vec<String> = point.quotes.iter().flat_map(|quote| stems(&quote.plain)).collect();
        let said: BTreeSet<String> = point.quotes.iter().flat_map(|quote| content(&quote.plain)).collect();
        for (number, _) in index.best(&query, 5) {
            let Some(counter) = objecting.get(number) else { continue };
            let shared = content(&counter.plain).intersection(&said).count();
            let is_other = counter.source != point.source;
            if is_other && shared >= SHARED_MIN && used.insert(number) {
                found.push(Counterclaim {
                    kind: "contrast".to_owned(),
                    about: point.headline.clone(),
                    claim: claim.clone(),
                    counter: (*counter).clone(),
                });
                break;
            }
        }
    }
    found
}

fn open(points: &[Point], counterclaims: &[Counterclaim], claims: &ClaimsReport) -> Vec<String> {
    let mut all: Vec<String> = counterclaims
        .iter()
        .filter(|one| one.kind != "contrast")
        .map(|one| format!("Which is right: {} or {}? ({})", one.claim.source, one.counter.source, one.about))
        .collect();
    let answered: BTreeSet<&str> =
        counterclaims.iter().flat_map(|one| [one.claim.source.as_str(), one.counter.source.as_str()]).collect();
    for point in points.iter().filter(|point| !answered.contains(point.source.as_str())) {
        all.push(format!("No source speaks against “{}”. Who would, and were they asked?", point.headline));
    }
    all.truncate(QUESTIONS_MAX);
    let unsupported = claims.claims.saturating_sub(claims.supported);
    if unsupported > 0 {
        all.push(format!("{} not borne out by its quote.", counted(unsupported, "claim is", "claims are")));
    }
    all
}

fn checks(claims: &ClaimsReport, contradictions: &Contradictions) -> Vec<String> {
    vec![
        format!("{} of {} borne out by the quote.", claims.supported, counted(claims.claims, "claim", "claims")),
        format!(
            "{} compared between sources: {} and {} found.",
            counted(contradictions.compared, "claim was", "claims were"),
            counted(contradictions.contradictions.len(), "contradiction", "contradictions"),
            counted(contradictions.denials.len(), "denial", "denials")
        ),
    ]
}
