//! Security advisories: Markdown with a TOML head, as the RustSec advisory database has them.
//!
//! What the head states is taken as it stands; what it leaves open is worked out from it where that is arithmetic
//! (affected versions, scores) and left open where it is not.

use std::collections::BTreeSet;
use std::ops::Range;

use super::action;
use super::block::{Block, BlockKind};
use super::claims;
use super::dates;
use super::extract::{Extracted, blank};
use super::model::{AffectedFunction, Claim, FigureKind, Item, Kind, Quote, Supports, Unusable};
use super::prose::words;
use super::quote::Quotable;
use super::read::head::TomlHead;
use super::safe;
use super::select::{self, Sentence};
use super::severity;
use super::versions;

/// Longest id or package name, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Most links, aliases, categories and keywords that are taken over.
const LIST_MAX: usize = 32;
/// How many sentences sum an advisory up.
const SUMMARY_SENTENCES: usize = 2;

/// Reads an advisory from its head and the blocks after it.
pub(crate) fn read(source: Quotable<'_>, head: &TomlHead<'_>, blocks: &[Block]) -> Result<Extracted, Unusable> {
    let id = name(source, head, "id")?;
    let package = name(source, head, "package")?;
    let sentences = select::all(blocks);
    let heading = blocks.iter().find(|block| matches!(block.kind, BlockKind::Heading(1))).or(blocks.first());
    let mut item = blank(&id, source.name);
    item.subjects = vec![package.to_lowercase()];
    item.title = heading.map_or_else(|| id.clone(), |block| safe::clean(safe::cut(block.text.text(), 300)));
    item.package = Some(package);
    item.date = head.text(&["advisory", "date"]).filter(|date| dates::is_day(date));
    item.categories = taken(head, "categories");
    item.keywords = taken(head, "keywords");
    item.aliases = taken(head, "aliases");
    (item.kind, item.kind_from) = kind(head, &item);
    versions_of(head, &mut item);
    links_of(head, &mut item);
    item.severity = head.text(&["advisory", "cvss"]).and_then(|vector| severity::of_vector(&vector));

    let mut quotes: Vec<Option<Quote>> = Vec::new();
    if let Some(heading) = heading {
        quotes.push(source.quote(&heading.text, 0..heading.text.text().len(), Supports::Title));
    }
    let told = select::instructions(&sentences, if item.kind == Kind::Malicious { 3 } else { 1 }, true);
    let quoted = |index: &usize, supports| {
        let sentence: &Sentence<'_> = &sentences[*index];
        source.quote(sentence.block, sentence.range.clone(), supports)
    };
    let summary = summary(&sentences, &item, &told.iter().copied().collect());
    quotes.extend(summary.iter().map(|index| quoted(index, Supports::Summary)));
    quotes.extend(told.iter().map(|index| quoted(index, Supports::WhatToDo)));
    let stated = sentences.iter().position(|sentence| severity::of_sentence(sentence.text()).is_some());
    if let Some(index) = stated.filter(|_| item.severity.is_none()) {
        item.severity = severity::of_sentence(sentences[index].text());
        quotes.push(quoted(&index, Supports::Severity));
    }
    let fields = fields(source, head, &item);
    quotes.extend(fields.iter().map(|claim| Some(claim.quote.clone())));
    item.quotes = quotes.into_iter().flatten().collect();
    item.action = Some(action::of(&item));

    let mut claims = fields;
    claims.extend(claims::claims(&item, &sentences, source));
    Ok(Extracted { items: vec![item], claims, ..Extracted::default() })
}

/// A name the item cannot do without.
fn name(source: Quotable<'_>, head: &TomlHead<'_>, field: &str) -> Result<String, Unusable> {
    let unusable =
        |code: &str, reason: String| Unusable { name: source.name.to_owned(), code: code.to_owned(), reason };
    let text = head.text(&["advisory", field]).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    match text {
        None if head.has_field(&["advisory", field]) => {
            Err(unusable(&format!("head-{field}-not-text"), format!("`{field}` of its head is not a text")))
        }
        None => Err(unusable(&format!("head-without-{field}"), format!("its head has no `{field}`"))),
        Some(text) if text.len() > NAME_BYTES_MAX || safe::clean(&text) != text || text.contains('`') => Err(unusable(
            &format!("head-{field}-not-printable"),
            format!(
                "`{field}` of its head is longer than {NAME_BYTES_MAX} bytes or holds characters that cannot be shown"
            ),
        )),
        Some(text) => Ok(text),
    }
}

fn taken(head: &TomlHead<'_>, field: &str) -> Vec<String> {
    let list = head.list(&["advisory", field]);
    list.iter().map(|text| safe::clean(text)).filter(|text| !text.is_empty()).take(LIST_MAX).collect()
}

fn kind(head: &TomlHead<'_>, item: &Item) -> (Kind, String) {
    if let Some(day) = head.text(&["advisory", "withdrawn"]) {
        return (Kind::Notice, format!("withdrawn on {}", safe::clean(&day)));
    }
    if item.categories.iter().any(|category| category == "malicious") {
        return (Kind::Malicious, "category malicious".to_owned());
    }
    if let Some(word) = head.text(&["advisory", "informational"]) {
        let kind = match word.as_str() {
            "unsound" => Kind::Unsound,
            "unmaintained" => Kind::Unmaintained,
            _ => Kind::Notice,
        };
        return (kind, format!("informational {}", safe::clean(&word)));
    }
    // Some advisories about removed malware carry no category; a weakness "in handling malicious input" must not match.
    let title = item.title.to_lowercase();
    if title.contains("removed") && title.contains("malicious") {
        return (Kind::Malicious, "the title says it was removed over malicious code".to_owned());
    }
    (Kind::Vulnerability, "an advisory that is not informational".to_owned())
}

fn versions_of(head: &TomlHead<'_>, item: &mut Item) {
    let clean = |list: Vec<String>| -> Vec<String> { list.iter().map(|text| safe::clean(text)).collect() };
    let patched = clean(head.list(&["versions", "patched"]));
    let unaffected = clean(head.list(&["versions", "unaffected"]));
    for (name, versions) in head.lists(&["affected", "functions"]).into_iter().take(LIST_MAX) {
        let name = safe::clean(&name);
        item.affected_functions.push(AffectedFunction { name, versions: versions::list(&clean(versions)) });
    }
    let of_functions: BTreeSet<&str> = item.affected_functions.iter().map(|f| f.versions.as_str()).collect();
    let good: Vec<String> = patched.iter().chain(&unaffected).cloned().collect();
    let affected = match (good.is_empty(), of_functions.first()) {
        (true, Some(versions)) if of_functions.len() == 1 => (*versions).to_owned(),
        _ => versions::complement(&good).unwrap_or_else(|| format!("all versions except {}", good.join(" or "))),
    };
    item.affected = Some(affected);
    item.patched = Some(versions::list(&patched));
    item.unaffected = (!unaffected.is_empty()).then(|| versions::list(&unaffected));
    item.named_versions = named_versions(&item.title, item.package.as_deref().unwrap_or_default());
}

/// Versions that follow the package's name in the title: "`kite` 0.3.10 was removed".
fn named_versions(title: &str, package: &str) -> Vec<String> {
    let words = words(title);
    let pairs = words.windows(2).filter(|pair| pair[0].text(title) == package);
    let after = pairs.map(|pair| pair[1].text(title)).filter(|text| semver::Version::parse(text).is_ok());
    after.map(str::to_owned).collect()
}

fn links_of(head: &TomlHead<'_>, item: &mut Item) {
    let stated = head.text(&["advisory", "url"]).and_then(|url| safe::link(&url));
    let listed = head.list(&["advisory", "references"]);
    item.references = listed.iter().filter_map(|url| safe::link(url)).take(LIST_MAX).collect();
    if let Some(url) = stated.or_else(|| item.references.first().cloned()) {
        item.references.retain(|reference| *reference != url);
        item.link = Some(url);
        item.link_from = Some("stated".to_owned());
    } else if let Some(url) = database_page(&item.id) {
        item.link = Some(url);
        item.link_from = Some("derived from the id".to_owned());
    }
}

/// The page of an advisory in the public database that gave it its id.
fn database_page(id: &str) -> Option<String> {
    let plain = id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    match id.split('-').next()? {
        "RUSTSEC" if plain => Some(format!("https://rustsec.org/advisories/{id}.html")),
        "GHSA" if plain => Some(format!("https://github.com/advisories/{id}")),
        "CVE" if plain => Some(format!("https://www.cve.org/CVERecord?id={id}")),
        _ => None,
    }
}

/// The first sentences; for malicious code the first and the one that says what became of it.
fn summary(sentences: &[Sentence<'_>], item: &Item, except: &BTreeSet<usize>) -> Vec<usize> {
    let mut chosen = select::first(sentences, SUMMARY_SENTENCES, except);
    let removed = sentences.iter().position(|sentence| {
        let text = sentence.text();
        text.contains("removed")
            && (text.contains("registry") || text.contains("version"))
            && !text.contains("downloaded")
    });
    if let (Kind::Malicious, Some(removed)) = (item.kind, removed.filter(|index| !except.contains(index)))
        && !chosen.contains(&removed)
    {
        chosen.truncate(1);
        chosen.push(removed);
        chosen.sort_unstable();
    }
    chosen
}

/// A field of a head, its value, where it stands, and what it supports.
type Row = (&'static str, Option<String>, Option<Range<usize>>, Supports);

/// Claims of the head, each with the line it stands in.
fn fields(source: Quotable<'_>, head: &TomlHead<'_>, item: &Item) -> Vec<Claim> {
    let line = |path: &[&str]| head.line(path);
    let vector = item.severity.as_ref().and_then(|severity| severity.vector.clone());
    let functions = item.affected_functions.first().map(|function| function.versions.clone());
    let rows: [Row; 5] = [
        ("date", item.date.clone(), line(&["advisory", "date"]), Supports::Date),
        ("cvss", vector, line(&["advisory", "cvss"]), Supports::Severity),
        ("patched", item.patched.clone(), line(&["versions", "patched"]), Supports::Patched),
        ("unaffected", item.unaffected.clone(), line(&["versions", "unaffected"]), Supports::Unaffected),
        ("affected functions", functions, head.first_line_of_table(&["affected", "functions"]), Supports::Affected),
    ];
    let claim = |(field, value, line, supports): Row| {
        let (value, quote) = (value?, source.bytes(line?, supports)?);
        Some(Claim {
            id: String::new(),
            item: item.id.clone(),
            kind: FigureKind::Field,
            text: format!("{}: {field} {value}", item.id),
            value,
            unit: Some(field.to_owned()),
            subjects: std::iter::once(&item.id).chain(&item.aliases).map(|id| id.to_lowercase()).collect(),
            release: None,
            context: Vec::new(),
            hedged: false,
            quote,
        })
    };
    rows.into_iter().filter_map(claim).collect()
}
