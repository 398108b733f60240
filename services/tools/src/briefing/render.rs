//! The three files: the same pack for people with an editor, people with a browser, and programs.
//!
//! Pure: no clock, no host, no run id, so that the same sources always give the same bytes.

pub(crate) mod html;
mod json;
pub(crate) mod markdown;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use signalbox_domain::canonical::sha256_hex;

use super::compose::{Draft, counted};
use super::factcheck::{CitationsReport, ClaimsReport, Contradiction, quotes_digest};
use super::model::{FigureKind, Item, Kind, Supports};
use super::persona::Change;

/// What stands above the contradictions.
const CONTRADICTIONS_INTRO: &str = "These sources give different figures for what looks like the same thing. Which is \
                                    right is for you to judge.";
/// Most other items that are named beside one.
const SEE_ALSO_MAX: usize = 8;

/// Why a pack was not rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The quotes are not those that were checked.
    #[error("the quotes of the draft are not those whose citations were checked")]
    QuotesChangedAfterCheck,
}

impl RenderError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::QuotesChangedAfterCheck => "quotes-changed-after-check",
        }
    }
}

/// A draft and what was found out about it.
#[derive(Debug, Clone, Copy)]
pub struct Pack<'p> {
    /// The edited draft.
    pub draft: &'p Draft,
    /// The fact check of the claims.
    pub claims: &'p ClaimsReport,
    /// The check of the citations.
    pub citations: &'p CitationsReport,
    /// What the tone policy changed.
    pub tone: &'p [Change],
}

/// The three files and what somebody who is asked for a yes should see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rendered {
    /// `briefing.md`.
    pub markdown: String,
    /// `briefing.html`.
    pub html: String,
    /// `briefing.json`.
    pub json: String,
    /// Counts and digests.
    pub summary: Summary,
}

/// What is approved before the files are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The title.
    pub title: String,
    /// How many items.
    pub items: usize,
    /// How many quotes, and how many of them were found.
    pub quotes: usize,
    /// See `quotes`.
    pub quotes_found: usize,
    /// How many claims, and how many of them their quote bears out.
    pub claims: usize,
    /// See `claims`.
    pub claims_supported: usize,
    /// How many contradictions between sources.
    pub contradictions: usize,
    /// How many sources could not be used.
    pub unusable: usize,
    /// File name to lower-case hex SHA-256.
    pub sha256: BTreeMap<String, String>,
}

/// Renders a pack, unless its quotes changed after they were checked.
pub fn render(pack: Pack<'_>) -> Result<Rendered, RenderError> {
    if quotes_digest(pack.draft) != pack.citations.quotes_digest {
        return Err(RenderError::QuotesChangedAfterCheck);
    }
    let (markdown, html, json) = (markdown::render(pack), html::render(pack), json::render(pack));
    let digest = |name: &str, text: &str| (name.to_owned(), sha256_hex(text.as_bytes()));
    let summary = Summary {
        title: pack.draft.title.clone(),
        items: pack.draft.items.len(),
        quotes: pack.citations.quotes,
        quotes_found: pack.citations.found,
        claims: pack.claims.claims,
        claims_supported: pack.claims.supported,
        contradictions: pack.claims.contradictions.len(),
        unusable: pack.draft.unusable.len(),
        sha256: [digest("briefing.md", &markdown), digest("briefing.html", &html), digest("briefing.json", &json)]
            .into(),
    };
    Ok(Rendered { markdown, html, json, summary })
}

impl Pack<'_> {
    /// What was done and checked, in sentences.
    fn checks(&self) -> Vec<String> {
        let (claims, citations) = (self.claims, self.citations);
        let mut lines = vec![
            "The text is extractive: no model wrote it; summaries are sentences copied from the sources, and the rest is \
             counted or worked out from their fields."
                .to_owned(),
            format!(
                "{} of {} found byte for byte in the sources.",
                citations.found,
                counted(citations.quotes, "quote", "quotes")
            ),
            format!("{} of {} cited without a fault.", citations.cited, counted(citations.items, "item", "items")),
            format!(
                "{} of {} (days, numbers, versions and fields) borne out by the quote.",
                claims.supported,
                counted(claims.claims, "claim", "claims")
            ),
            match claims.contradictions.len() {
                0 => format!(
                    "No contradiction was found among the {} that could be compared between sources.",
                    counted(claims.compared, "claim", "claims")
                ),
                n => format!(
                    "{} between sources; see below.",
                    counted(n, "contradiction was found", "contradictions were found")
                ),
            },
        ];
        if !self.tone.is_empty() {
            lines.push(format!("The tone policy made {}.", counted(self.tone.len(), "change", "changes")));
        }
        lines
    }

    /// What a date filter did, in a sentence.
    fn left_out(&self) -> Option<String> {
        let left_out = self.draft.left_out.as_ref()?;
        let undated = match left_out.undated {
            0 => String::new(),
            n => format!(" {} without a date kept.", counted(n, "item is", "items are")),
        };
        let gone = counted(left_out.count, "item dated before that day is", "items dated before that day are");
        Some(format!("Only items since {}: {gone} left out.{undated}", left_out.since))
    }

    /// The items by id.
    fn by_id(&self) -> BTreeMap<&str, &Item> {
        self.draft.items.iter().map(|item| (item.id.as_str(), item)).collect()
    }

    /// For each item about a package that others are about too, the ids of those.
    fn see_also(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut also: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for group in self.draft.related.iter().filter(|group| group.package.is_some()) {
            for id in &group.items {
                let others = group.items.iter().filter(|other| *other != id).map(String::as_str);
                also.insert(id, others.take(SEE_ALSO_MAX).collect());
            }
        }
        also
    }
}

/// The heading of an item: the source's title, led by the package where the title does not name it.
fn headline(item: &Item) -> String {
    match &item.package {
        Some(package) if !item.title.to_lowercase().contains(&package.to_lowercase()) => {
            format!("`{package}`: {}", item.title)
        }
        _ => item.title.clone(),
    }
}

/// `high (8.3)`, or `not stated` where one could be expected.
fn severity(item: &Item) -> Option<String> {
    match &item.severity {
        Some(severity) => {
            let score = severity.score.map(|score| format!(" ({score:.1})")).unwrap_or_default();
            Some(format!("{}{score}", severity.level.as_str()))
        }
        None => (item.kind == Kind::Vulnerability).then(|| "not stated".to_owned()),
    }
}

/// What the source itself says to do.
fn told(item: &Item) -> Option<String> {
    let quotes: Vec<String> = item.quotes_for(Supports::WhatToDo).map(|quote| format!("“{}”", quote.plain)).collect();
    (!quotes.is_empty()).then(|| quotes.join(" "))
}

/// What a contradiction is about, in words.
pub(crate) fn about(contradiction: &Contradiction) -> String {
    let subject = &contradiction.subject;
    match (contradiction.kind, &contradiction.unit) {
        (FigureKind::Version, Some(of)) if of != subject => format!("{subject}: version of {of}"),
        (FigureKind::Number, Some(unit)) => format!("{subject}: number of {unit}"),
        (FigureKind::Field, Some(field)) => format!("{subject}: {field}"),
        (kind, _) => format!("{subject}: {}", kind.as_str()),
    }
}
