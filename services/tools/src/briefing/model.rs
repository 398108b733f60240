//! The values that the briefing tools hand to each other.
//!
//! They travel as JSON between steps of a run, through the journal, so each can be read back, bounded and checked by
//! the next tool. Nothing here knows a clock, a host or a run: equal documents give equal values.

use serde::{Deserialize, Serialize};

/// Most documents one call takes.
pub const DOCUMENTS_MAX: usize = 10_000;
/// Longest document that is read, in bytes; a longer one is listed as not usable.
pub const DOCUMENT_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Longest quote, in bytes; a longer sentence is quoted up to a word boundary before it.
pub const QUOTE_BYTES_MAX: usize = 600;
/// Most claims that are taken from one item.
pub const CLAIMS_PER_ITEM_MAX: usize = 48;
/// Most items that are taken from one document, such as the entries of a feed.
pub const ITEMS_PER_DOCUMENT_MAX: usize = 500;
/// Longest identifying text (id, package, title, link) that is taken over, in bytes.
pub const FIELD_BYTES_MAX: usize = 2_048;

/// One source, as `source.fetch` gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// Where it was fetched from. Never printed unless it is an `http` or `https` address.
    #[serde(default)]
    pub uri: String,
    /// What it is called in the pack.
    pub name: String,
    /// Media type, if known.
    #[serde(default)]
    pub media_type: String,
    /// Lower-case hex SHA-256 of the fetched bytes.
    #[serde(default)]
    pub sha256: String,
    /// The text.
    pub text: String,
}

/// A source that could not be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unusable {
    /// The source.
    pub name: String,
    /// Stable code.
    pub code: String,
    /// In words.
    #[serde(alias = "message")]
    pub reason: String,
}

/// A piece of a source, word for word: `text` equals the bytes `start..end` of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quote {
    /// The name of the source.
    pub source: String,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Exactly those bytes.
    pub text: String,
    /// The same for people: markup removed, white space folded, code between backticks.
    pub plain: String,
    /// What the quote stands behind.
    pub supports: Supports,
}

/// What a quote stands behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Supports {
    /// What the item is called.
    Title,
    /// What it says.
    Summary,
    /// What to do about it.
    WhatToDo,
    /// When.
    Date,
    /// Which versions are affected.
    Affected,
    /// Which versions are not.
    Unaffected,
    /// Which versions are repaired.
    Patched,
    /// How bad it is.
    Severity,
}

/// What sort of item it is. The order is the order of the pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Code that was published to do harm.
    Malicious,
    /// A weakness.
    Vulnerability,
    /// Safe code that can do what only unsafe code may.
    Unsound,
    /// Nobody looks after it any more.
    Unmaintained,
    /// Good to know.
    Notice,
    /// A text that is no advisory.
    Story,
}

impl Kind {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malicious => "malicious",
            Self::Vulnerability => "vulnerability",
            Self::Unsound => "unsound",
            Self::Unmaintained => "unmaintained",
            Self::Notice => "notice",
            Self::Story => "story",
        }
    }
}

/// How bad a weakness is, as the source states or scores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Scored, and no harm found.
    None,
    /// Up to 3.9.
    Low,
    /// Up to 6.9.
    Medium,
    /// Up to 8.9.
    High,
    /// 9 and above.
    Critical,
}

impl Level {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// A stated severity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Severity {
    /// The level.
    pub level: Level,
    /// The score, if there is a vector it can be computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The vector, as the source has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<String>,
    /// How it was arrived at.
    pub from: String,
}

/// A function that is affected, and in which versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AffectedFunction {
    /// Its path.
    pub name: String,
    /// Version requirements, joined with a comma.
    pub versions: String,
}

/// What can be done. The order is the order of the list of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// No version is good.
    Drop,
    /// Some versions are named as unaffected.
    Pin,
    /// A patched version is out.
    Upgrade,
    /// The source names something to use instead.
    Migrate,
    /// Only some functions are affected.
    Avoid,
    /// The source names no way out.
    Decide,
    /// Nothing is asked for.
    Read,
}

/// What to do about an item: a sentence made of the item's own data. Instructions of the source stand beside it as
/// quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// Which sort.
    pub kind: ActionKind,
    /// The versions or names it is about, for the list of actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The sentence.
    pub text: String,
}

/// One entry of the pack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// The advisory's id, or the source's name (and entry) for anything else.
    pub id: String,
    /// The package, for advisories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// What sort.
    pub kind: Kind,
    /// Why that sort.
    pub kind_from: String,
    /// As the source has it; code between backticks.
    pub title: String,
    /// `YYYY-MM-DD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// How bad, where stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Affected versions, for advisories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affected: Option<String>,
    /// Patched versions or `none`, for advisories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patched: Option<String>,
    /// Versions stated to be unaffected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaffected: Option<String>,
    /// Versions of the package that the title names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named_versions: Vec<String>,
    /// Affected functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affected_functions: Vec<AffectedFunction>,
    /// What to do, made of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Where to read on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// `stated` or `derived from the id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_from: Option<String>,
    /// Further links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// Other ids of the same thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// As the source has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// As the source has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// Names the item is about, lower case; what groups and compares it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    /// The source.
    pub source: String,
    /// Word for word.
    pub quotes: Vec<Quote>,
}

impl Item {
    /// The quotes behind one thing.
    pub fn quotes_for(&self, supports: Supports) -> impl Iterator<Item = &Quote> {
        self.quotes.iter().filter(move |quote| quote.supports == supports)
    }
    /// What people call it: its package, or else its title.
    pub fn label(&self) -> &str {
        self.package.as_deref().unwrap_or(&self.title)
    }
}

/// What a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A day.
    Date,
    /// An amount.
    Number,
    /// A version.
    Version,
    /// A field of an advisory's head.
    Field,
}

impl FigureKind {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Date => "date",
            Self::Number => "number",
            Self::Version => "version",
            Self::Field => "field",
        }
    }
}

/// One thing a source says, with the words it says it in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// `c00001` and so on, in the order of the sources.
    pub id: String,
    /// The item it was taken from.
    pub item: String,
    /// What sort of figure it gives.
    pub kind: FigureKind,
    /// The figure in one spelling: `2026-09-14`, `1240`, `1.85`.
    pub value: String,
    /// What is counted, or whose version it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Who or what it is said of, lower case.
    pub subjects: Vec<String>,
    /// The release it is said of, if the sentence names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// Stems of the words around the figure: in what respect it is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// The source says "about" or the like.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hedged: bool,
    /// The claim in words.
    pub text: String,
    /// The words of the source.
    pub quote: Quote,
}

/// A source that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceRow {
    /// Its name.
    pub name: String,
    /// Lower-case hex SHA-256 of its bytes.
    pub sha256: String,
    /// Media type, as fetched.
    pub media_type: String,
    /// `advisory`, `markdown`, `html`, `text`, `rss`, `atom` or `json-feed`.
    pub read_as: String,
    /// Its address, if it came from the web.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// How many items it gave.
    pub items: usize,
    /// True if the text differs from the fetched bytes: secrets were taken out, or another encoding was converted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub altered: bool,
}

/// What a date filter left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// The filter: items dated before this day.
    pub since: String,
    /// How many were left out.
    pub count: usize,
    /// How many have no date and were kept.
    pub undated: usize,
}

/// What `sophia.ground` gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ground {
    /// In the order of the sources.
    pub items: Vec<Item>,
    /// In the order of the items.
    pub claims: Vec<Claim>,
    /// In the order of their names.
    pub sources: Vec<SourceRow>,
    /// In the order of their names.
    #[serde(default)]
    pub unusable: Vec<Unusable>,
    /// Present if a date was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// The passages that answer a query best, if one was asked; later steps bind to them also where there are none.
    #[serde(default)]
    pub passages: Vec<Passage>,
}

/// A passage that answers a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Passage {
    /// BM25, rounded to four places.
    pub score: f64,
    /// The words.
    pub quote: Quote,
}
