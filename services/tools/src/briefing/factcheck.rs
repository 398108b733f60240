//! The fact check: is each quote where it says it is, does it give the figure it is quoted for, and do two sources
//! disagree?
//!
//! The check reads the sources again and believes nothing it is handed. It finds disagreements of form, not of meaning:
//! two sources that give another day, number or version for the same subject in the same respect. It can miss one; what
//! it reports is shown with both quotes, so that a reader can judge.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use signalbox_domain::canonical::sha256_hex;

use super::compose::Draft;
use super::figures::figures;
use super::ground::named;
use super::model::{Claim, Document, FigureKind, Quote};
use super::prose::{Word, stem, words};
use super::safe;

/// Most claims of one subject and kind that are compared with each other.
const COMPARED_MAX: usize = 128;
/// Most contradictions that are reported.
const CONTRADICTIONS_MAX: usize = 500;

/// Something that did not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The claim or item.
    pub about: String,
    /// Stable code.
    pub code: String,
    /// In words.
    pub reason: String,
}

/// A value and who states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stated {
    /// The value in one spelling.
    pub value: String,
    /// The words.
    pub quotes: Vec<Quote>,
}

/// Two or more values for one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Contradiction {
    /// What differs.
    pub kind: FigureKind,
    /// Of whom or what it is said.
    pub subject: String,
    /// What is counted, whose version it is, or which field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The values, in order.
    pub values: Vec<Stated>,
}

/// What the check of the claims found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimsReport {
    /// How many claims were checked.
    pub claims: usize,
    /// How many stand on a quote that is there and gives the figure.
    pub supported: usize,
    /// How many were compared with a claim of another source.
    pub compared: usize,
    /// What did not hold.
    pub problems: Vec<Problem>,
    /// Where sources disagree.
    pub contradictions: Vec<Contradiction>,
}

/// What the check of the citations found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CitationsReport {
    /// How many items were checked.
    pub items: usize,
    /// How many have at least one quote and none that is wrong.
    pub cited: usize,
    /// How many quotes were checked.
    pub quotes: usize,
    /// How many were found byte for byte where they say.
    pub found: usize,
    /// What did not hold.
    pub problems: Vec<Problem>,
    /// SHA-256 over all quotes: rendering refuses a draft whose quotes are others.
    pub quotes_digest: String,
}

/// The sources by name, to look quotes up in.
pub(crate) struct Sources(BTreeMap<String, String>);

impl Sources {
    pub(crate) fn new(documents: Vec<Document>) -> Self {
        Self(named(documents).into_iter().map(|document| (document.name, document.text)).collect())
    }
    pub(crate) fn check(&self, quote: &Quote) -> Result<(), (&'static str, String)> {
        let Some(text) = self.0.get(&quote.source) else {
            return Err(("source-missing", format!("there is no source {}", safe::clean(&quote.source))));
        };
        if text.get(quote.start..quote.end) == Some(quote.text.as_str()) && !quote.text.is_empty() {
            return Ok(());
        }
        let place = format!("bytes {} to {} of {}", quote.start, quote.end, safe::clean(&quote.source));
        Err(("quote-not-found", format!("{place} are not the words quoted")))
    }
}

/// Checks each claim against its source, and the claims against each other.
pub fn check_claims(claims: &[Claim], documents: Vec<Document>) -> ClaimsReport {
    let sources = Sources::new(documents);
    let mut report = ClaimsReport { claims: claims.len(), ..ClaimsReport::default() };
    let mut good: Vec<&Claim> = Vec::new();
    for claim in claims {
        let checked = sources.check(&claim.quote).and_then(|()| {
            if gives(claim) {
                return Ok(());
            }
            let value = safe::clean(&claim.value);
            Err(("figure-not-in-quote", format!("the quote does not give {} {value}", claim.kind.as_str())))
        });
        match checked {
            Ok(()) => good.push(claim),
            Err((code, reason)) => {
                report.problems.push(Problem { about: claim.id.clone(), code: code.to_owned(), reason });
            }
        }
    }
    report.supported = good.len();
    (report.contradictions, report.compared) = contradictions(&good);
    report
}

/// Whether the quote gives the claim's figure: as a reader sees it, and in the bytes of the source.
fn gives(claim: &Claim) -> bool {
    if claim.kind == FigureKind::Field {
        let raw = &claim.quote.text;
        return match claim.value.as_str() {
            "none" => {
                raw.split_once('=').is_some_and(|(_, value)| value.split_whitespace().collect::<String>() == "[]")
            }
            value => value.split(" or ").all(|part| raw.contains(part)),
        };
    }
    let given = figures(&claim.quote.plain);
    given.iter().any(|figure| {
        let spelled = &claim.quote.plain[figure.range.clone()];
        let mut parts = spelled.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
        figure.kind == claim.kind && figure.value == claim.value && parts.all(|part| claim.quote.text.contains(part))
    })
}

/// Groups claims by subject, kind and unit, and compares those of different sources.
fn contradictions(claims: &[&Claim]) -> (Vec<Contradiction>, usize) {
    type Key<'c> = (&'c str, FigureKind, Option<&'c str>);
    let mut groups: BTreeMap<Key<'_>, Vec<usize>> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        for subject in &claim.subjects {
            groups.entry((subject, claim.kind, claim.unit.as_deref())).or_default().push(index);
        }
    }
    let mut compared = BTreeSet::new();
    let mut found: Vec<Contradiction> = Vec::new();
    let mut reported: BTreeSet<(usize, usize)> = BTreeSet::new();
    for ((subject, kind, unit), members) in groups {
        let members = &members[..members.len().min(COMPARED_MAX)];
        let values: BTreeSet<(&str, &str)> =
            members.iter().map(|index| (claims[*index].quote.source.as_str(), claims[*index].value.as_str())).collect();
        let mut clash: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (position, &a) in members.iter().enumerate() {
            for &b in &members[position + 1..] {
                let (one, other) = (claims[a], claims[b]);
                if one.quote.source == other.quote.source || !same_respect(one, other) {
                    continue;
                }
                compared.extend([a, b]);
                // A source that gives both values tells of a change, not of a disagreement.
                let tells_both = values.contains(&(one.quote.source.as_str(), other.value.as_str()))
                    || values.contains(&(other.quote.source.as_str(), one.value.as_str()));
                if differ(one, other) && !tells_both && reported.insert((a, b)) {
                    clash.entry(a).or_default().insert(b);
                }
            }
        }
        for members in connected(&clash) {
            let mut by_value: BTreeMap<&str, Vec<Quote>> = BTreeMap::new();
            for index in members {
                by_value.entry(&claims[index].value).or_default().push(claims[index].quote.clone());
            }
            let quotes: Vec<&Quote> = by_value.values().flatten().collect();
            found.push(Contradiction {
                kind,
                subject: spelled(subject, &quotes),
                unit: unit.map(|unit| spelled(unit, &quotes)),
                values: by_value
                    .into_iter()
                    .map(|(value, quotes)| Stated { value: value.to_owned(), quotes })
                    .collect(),
            });
        }
    }
    found.sort_by(|a, b| (a.kind, &a.subject, &a.unit).cmp(&(b.kind, &b.subject, &b.unit)));
    found.truncate(CONTRADICTIONS_MAX);
    (found, compared.len())
}

/// A lower-case name or a stem as the quotes spell it.
fn spelled(name: &str, quotes: &[&Quote]) -> String {
    let texts = quotes.iter().map(|quote| quote.plain.as_str());
    let spellings = texts.flat_map(|text| {
        let same = move |word: &Word| {
            let lower = word.text(text).to_lowercase();
            lower == name || stem(&lower) == name
        };
        words(text).into_iter().filter(same).map(move |word| word.text(text).to_owned())
    });
    // The longest, so that "tests" are counted and not the "test" of a test suite.
    let mut spellings: Vec<String> = spellings.collect();
    spellings.sort_by_key(|spelling| std::cmp::Reverse(spelling.len()));
    spellings.into_iter().next().unwrap_or_else(|| name.to_owned())
}

/// The groups of claims that hang together through clashes.
fn connected(clash: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<BTreeSet<usize>> {
    let mut groups: Vec<BTreeSet<usize>> = Vec::new();
    for (&a, others) in clash {
        let mut group: BTreeSet<usize> = others.iter().copied().chain([a]).collect();
        groups.retain(|other| {
            let apart = other.is_disjoint(&group);
            if !apart {
                group.extend(other);
            }
            apart
        });
        groups.push(group);
    }
    groups
}

/// Whether two claims of one subject, kind and unit are about the same thing.
fn same_respect(a: &Claim, b: &Claim) -> bool {
    let other_release = matches!((&a.release, &b.release), (Some(one), Some(other)) if one != other);
    let shared = a.context.iter().filter(|stem| b.context.contains(stem)).count();
    let least = a.context.len().min(b.context.len());
    match a.kind {
        FigureKind::Field => true,
        FigureKind::Date | FigureKind::Number => !other_release && (shared >= 2 || shared >= 1 && shared * 2 >= least),
        FigureKind::Version => {
            let is_own = |claim: &Claim| claim.unit.as_ref().is_some_and(|of| claim.subjects.contains(of));
            if is_own(a) && is_own(b) {
                // Two releases of one thing are no contradiction unless both are called the latest.
                return [a, b].iter().all(|claim| claim.context.iter().any(|stem| stem == "latest"));
            }
            match a.unit {
                Some(_) => shared >= 1 || least == 0,
                None => shared >= 2 || shared >= 1 && least <= 2,
            }
        }
    }
}

fn differ(a: &Claim, b: &Claim) -> bool {
    if a.value == b.value {
        return false;
    }
    match a.kind {
        FigureKind::Date => {
            // A day without a year agrees with the same day of any year.
            let day = |value: &str| value.get(value.len().saturating_sub(5)..).map(str::to_owned);
            let open = a.value.starts_with("--") || b.value.starts_with("--");
            !open || day(&a.value) != day(&b.value)
        }
        FigureKind::Number if a.hedged || b.hedged => {
            // "About 1,200" does not contradict 1,240.
            let number = |claim: &Claim| claim.value.parse::<f64>().unwrap_or(0.0);
            let (one, other) = (number(a), number(b));
            (one - other).abs() > one.max(other) / 10.0
        }
        FigureKind::Number | FigureKind::Version | FigureKind::Field => true,
    }
}

/// Checks that each item of a draft stands on quotes that are there, and has only links that may be offered.
pub fn check_citations(draft: &Draft, documents: Vec<Document>) -> CitationsReport {
    let sources = Sources::new(documents);
    let mut report =
        CitationsReport { items: draft.items.len(), quotes_digest: quotes_digest(draft), ..CitationsReport::default() };
    for item in &draft.items {
        let before = report.problems.len();
        let mut problem = |code: &str, reason: String| {
            report.problems.push(Problem { about: item.id.clone(), code: code.to_owned(), reason });
        };
        if item.quotes.is_empty() {
            problem("item-without-quote", "it has no quote".to_owned());
        }
        for link in item.link.iter().chain(&item.references) {
            if safe::link(link).is_none() {
                problem("link-not-offered", "one of its links is neither a web address nor a mail address".to_owned());
            }
        }
        for quote in &item.quotes {
            report.quotes += 1;
            match sources.check(quote) {
                Ok(()) => report.found += 1,
                Err((code, reason)) => {
                    report.problems.push(Problem { about: item.id.clone(), code: code.to_owned(), reason });
                }
            }
        }
        report.cited += usize::from(report.problems.len() == before);
    }
    report
}

/// A digest over all quotes of a draft, in order.
pub fn quotes_digest(draft: &Draft) -> String {
    let mut all = String::new();
    for quote in draft.items.iter().flat_map(|item| &item.quotes) {
        // Lengths first, so that no two lists of quotes have the same text.
        let (source, text) = (&quote.source, &quote.text);
        all.push_str(&format!("{}:{source}{}-{}:{}:{text}", source.len(), quote.start, quote.end, text.len()));
    }
    sha256_hex(all.as_bytes())
}
