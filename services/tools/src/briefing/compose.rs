//! The draft: what comes first, what belongs together, and what there is to do.
//!
//! Every sentence written here is counted or worked out from fields of the items; what the sources say stands in their
//! own words beside it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::model::{ActionKind, Ground, Item, Kind, LeftOut, Level, SourceRow, Unusable};
use super::rank;
use super::related::{Related, related};

/// Most names in one sentence.
const NAMES_SHOWN_MAX: usize = 12;

/// Most packages in one search.
const SEARCH_NAMES_MAX: usize = 100;

/// From the first to the last day of the items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Period {
    /// The earliest day.
    pub from: String,
    /// The latest day.
    pub to: String,
}

/// Items that ask for the same sort of thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionGroup {
    /// Which sort.
    pub kind: ActionKind,
    /// In words.
    pub heading: String,
    /// Lines: names and, where there is one, what to change to; code between backticks.
    pub lines: Vec<String>,
}

/// A part of the pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Section {
    /// What it is called.
    pub heading: String,
    /// What its items have in common.
    pub intro: Vec<String>,
    /// The ids of its items, in order.
    pub items: Vec<String>,
}

/// The pack before it is rendered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Draft {
    /// The title.
    pub title: String,
    /// Absent if no item has a date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
    /// The week in a few sentences.
    pub glance: Vec<String>,
    /// What there is to do.
    pub actions: Vec<ActionGroup>,
    /// The packages named, in alphabetical order.
    pub packages: Vec<String>,
    /// A command that looks for the packages in a `Cargo.lock`, if they are crates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lockfile_search: Option<String>,
    /// The parts, in order.
    pub sections: Vec<Section>,
    /// The items, in the order of the parts.
    pub items: Vec<Item>,
    /// Items that belong together across parts.
    pub related: Vec<Related>,
    /// The sources.
    pub sources: Vec<SourceRow>,
    /// Sources that could not be used.
    pub unusable: Vec<Unusable>,
    /// What a date filter left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
}

/// Makes a draft of what was grounded.
pub fn draft(ground: Ground) -> Draft {
    let related = related(&ground.items);
    let items = rank::ordered(ground.items);
    let sections = sections(&items, &related);
    let by_id: BTreeMap<&str, &Item> = items.iter().map(|item| (item.id.as_str(), item)).collect();
    let in_order: Vec<Item> = sections
        .iter()
        .flat_map(|section| &section.items)
        .filter_map(|id| by_id.get(id.as_str()).map(|item| (*item).clone()))
        .collect();
    let dates: BTreeSet<&String> = items.iter().filter_map(|item| item.date.as_ref()).collect();
    let period = dates.first().zip(dates.last()).map(|(from, to)| Period { from: (*from).clone(), to: (*to).clone() });
    let title = match &period {
        Some(period) if period.from == period.to => format!("Weekly briefing, {}", period.from),
        Some(period) => format!("Weekly briefing, {} to {}", period.from, period.to),
        None => "Weekly briefing".to_owned(),
    };
    let packages: BTreeSet<&String> = items.iter().filter_map(|item| item.package.as_ref()).collect();
    let lockfile_search = lockfile_search(&items, &packages);
    Draft {
        title,
        period,
        glance: glance(&in_order, ground.sources.len(), &related),
        actions: actions(&in_order),
        packages: packages.into_iter().cloned().collect(),
        lockfile_search,
        sections,
        related,
        sources: ground.sources,
        unusable: ground.unusable,
        left_out: ground.left_out,
        items: in_order,
    }
}

/// A search for all packages at once. Only for advisories of the Rust database, whose packages stand in a `Cargo.lock`,
/// and only with names that a shell and a pattern take as they are.
fn lockfile_search(items: &[Item], packages: &BTreeSet<&String>) -> Option<String> {
    let plain = |name: &&String| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let rust = items.iter().filter(|item| item.package.is_some()).all(|item| item.id.starts_with("RUSTSEC-"));
    let fits = !packages.is_empty() && packages.len() <= SEARCH_NAMES_MAX && packages.iter().all(plain);
    let names: Vec<&str> = packages.iter().map(|name| name.as_str()).collect();
    (rust && fits).then(|| format!("grep -nE '^name = \"({})\"' Cargo.lock", names.join("|")))
}

/// `1 item`, `2 items`.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

const fn words(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Malicious => ("malicious package", "malicious packages"),
        Kind::Vulnerability => ("vulnerability", "vulnerabilities"),
        Kind::Unsound => ("unsound package", "unsound packages"),
        Kind::Unmaintained => ("unmaintained package", "unmaintained packages"),
        Kind::Notice => ("notice", "notices"),
        Kind::Story => ("story", "stories"),
    }
}

const fn heading(kind: Kind) -> &'static str {
    match kind {
        Kind::Malicious => "Malicious packages",
        Kind::Vulnerability => "Vulnerabilities",
        Kind::Unsound => "Unsound",
        Kind::Unmaintained => "Unmaintained",
        Kind::Notice => "Notices",
        Kind::Story => "Stories",
    }
}

fn glance(items: &[Item], sources: usize, related: &[Related]) -> Vec<String> {
    if items.is_empty() {
        return vec![format!("No item was found in {}.", counted(sources, "source", "sources"))];
    }
    let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
    for item in items {
        *counts.entry(item.kind).or_default() += 1;
    }
    let kinds: Vec<String> = counts.iter().map(|(kind, n)| counted(*n, words(*kind).0, words(*kind).1)).collect();
    let total = counted(items.len(), "item", "items");
    let mut lines = vec![format!("{total} from {}: {}.", counted(sources, "source", "sources"), listed(&kinds))];
    lines.extend(malicious(items, related));
    lines.extend(severities(items));
    lines.extend(ways_out(items));
    lines
}

/// Which releases of malicious packages are named, and whether one report covers them.
fn malicious(items: &[Item], related: &[Related]) -> Option<String> {
    let bad: Vec<&Item> = items.iter().filter(|item| item.kind == Kind::Malicious).collect();
    if bad.is_empty() {
        return None;
    }
    let named: Vec<String> = bad
        .iter()
        .filter(|item| !item.named_versions.is_empty())
        .map(|item| format!("`{}` {}", item.label().replace('`', "'"), listed(&item.named_versions)))
        .take(NAMES_SHOWN_MAX)
        .collect();
    let all = bad.iter().filter(|item| item.affected.as_deref() == Some("all versions")).count();
    let mut parts = Vec::new();
    if !named.is_empty() {
        parts.push(format!("Malicious releases: {}", listed(&named)));
    }
    if all > 0 {
        let more = if named.is_empty() { "" } else { " further" };
        parts.push(format!("{all}{more} {} no good version", if all == 1 { "package has" } else { "packages have" }));
    }
    let one_report = related
        .iter()
        .any(|group| group.link.is_some() && bad.len() > 1 && bad.iter().all(|item| group.items.contains(&item.id)));
    if one_report {
        parts.push(format!("one report covers all {} malicious packages", bad.len()));
    }
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

fn names<'i>(items: impl Iterator<Item = &'i Item>) -> String {
    let mut names: Vec<String> = Vec::new();
    for item in items {
        let name = format!("`{}`", item.label().replace('`', "'"));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
    names.truncate(NAMES_SHOWN_MAX);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    listed(&names)
}

/// What the advisories say of their severity.
fn severities(items: &[Item]) -> Option<String> {
    let weak: Vec<&Item> = items.iter().filter(|item| item.kind == Kind::Vulnerability).collect();
    let stated: Vec<&Item> = weak.iter().copied().filter(|item| item.severity.is_some()).collect();
    if weak.is_empty() {
        return None;
    }
    let total = counted(weak.len(), "vulnerability", "vulnerabilities");
    let silent = weak.len() - stated.len();
    let Some(worst) = stated.iter().filter_map(|item| item.severity.as_ref().map(|s| s.level)).max() else {
        return Some(format!("None of the {total} states a severity."));
    };
    let at_worst = stated.iter().filter(|item| item.severity.as_ref().is_some_and(|s| s.level == worst));
    let named: Vec<String> = at_worst
        .map(|item| {
            let score = item.severity.as_ref().and_then(|severity| severity.score);
            let score = score.map(|score| format!(" ({score:.1})")).unwrap_or_default();
            format!("`{}`{score}", item.label().replace('`', "'"))
        })
        .take(NAMES_SHOWN_MAX)
        .collect();
    let rest = match silent {
        0 => String::new(),
        n => format!("; {n} of the {total} {} none", if n == 1 { "states" } else { "state" }),
    };
    Some(format!("The highest severity stated is {}: {}{rest}.", worst.as_str(), listed(&named)))
}

/// For how many items there is a version to go to.
fn ways_out(items: &[Item]) -> Option<String> {
    let advisories: Vec<&Item> = items.iter().filter(|item| item.patched.is_some()).collect();
    if advisories.len() < 2 {
        return None;
    }
    let count = |kind| advisories.iter().filter(|i| i.action.as_ref().is_some_and(|a| a.kind == kind)).count();
    let (patched, pinned) = (count(ActionKind::Upgrade), count(ActionKind::Pin));
    let neither = advisories.len() - patched - pinned;
    let has = |n: usize| if n == 1 { "has" } else { "have" };
    let mut parts = vec![format!("{patched} {} a patched version", has(patched))];
    if pinned > 0 {
        parts.push(format!("{pinned} {} only versions listed as unaffected", has(pinned)));
    }
    if neither > 0 {
        parts.push(format!("{neither} {} neither", has(neither)));
    }
    Some(format!("Of {}, {}.", counted(advisories.len(), "advisory", "advisories"), listed(&parts)))
}

const fn action_heading(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Drop => "Use no version",
        ActionKind::Pin => "Use only versions listed as unaffected",
        ActionKind::Upgrade => "Upgrade",
        ActionKind::Migrate => "No patch; the source names a replacement",
        ActionKind::Avoid => "No patch; stay clear of the affected functions",
        ActionKind::Decide => "No patch and no replacement named; decide whether to keep it",
        ActionKind::Read => "Read",
    }
}

/// One group for each sort of action, one line for each thing to change to.
fn actions(items: &[Item]) -> Vec<ActionGroup> {
    /// What to change to, and who should.
    type Line<'i> = (Option<&'i str>, Vec<&'i Item>);
    let mut groups: BTreeMap<ActionKind, Vec<Line<'_>>> = BTreeMap::new();
    let mut places: BTreeMap<(ActionKind, Option<&str>), usize> = BTreeMap::new();
    for item in items {
        let Some(action) = &item.action else { continue };
        let lines = groups.entry(action.kind).or_default();
        let target = action.target.as_deref();
        let place = *places.entry((action.kind, target)).or_insert(lines.len());
        match lines.get_mut(place) {
            Some((_, members)) => members.push(item),
            None => lines.push((target, vec![item])),
        }
    }
    let line = |kind: ActionKind, (target, members): Line<'_>| {
        let names = names(members.into_iter());
        match (kind, target) {
            (ActionKind::Upgrade, Some(target)) => format!("{names} to `{target}`"),
            (ActionKind::Pin, Some(target)) => format!("{names} `{target}`"),
            (ActionKind::Migrate, Some(target)) => format!("{names}: `{target}`"),
            (ActionKind::Avoid, Some(target)) => format!("{names}: {target}"),
            _ => names,
        }
    };
    groups
        .into_iter()
        .map(|(kind, lines)| ActionGroup {
            kind,
            heading: action_heading(kind).to_owned(),
            lines: lines.into_iter().map(|entry| line(kind, entry)).collect(),
        })
        .collect()
}

fn sections(items: &[Item], related: &[Related]) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for kind in [Kind::Malicious, Kind::Vulnerability, Kind::Unsound, Kind::Unmaintained, Kind::Notice] {
        let members: Vec<&Item> = items.iter().filter(|item| item.kind == kind).collect();
        if !members.is_empty() {
            sections.push(section(heading(kind).to_owned(), &members, related));
        }
    }
    let stories: Vec<&Item> = items.iter().filter(|item| item.kind == Kind::Story).collect();
    for (name, members) in rank::topics(&stories) {
        let heading = match name {
            Some(name) => name,
            None if sections.is_empty() => heading(Kind::Story).to_owned(),
            None => "More stories".to_owned(),
        };
        sections.push(section(heading, &members, related));
    }
    sections
}

fn section(heading: String, members: &[&Item], related: &[Related]) -> Section {
    let ids: Vec<String> = members.iter().map(|item| item.id.clone()).collect();
    let mut intro = Vec::new();
    let mut unscored = members.iter().filter(|item| item.kind == Kind::Vulnerability && item.severity.is_none());
    let scored = members.iter().any(|item| item.severity.as_ref().is_some_and(|s| s.level < Level::High));
    if unscored.next().is_some() && scored {
        intro.push("Vulnerabilities whose source states no severity stand between high and medium.".to_owned());
    }
    let own: BTreeSet<&String> = ids.iter().collect();
    for group in related.iter().filter(|group| group.items.len() > 1 && group.items.iter().all(|id| own.contains(id))) {
        if let Some(link) = &group.link {
            let named = names(members.iter().copied().filter(|item| group.items.contains(&item.id)));
            let all = if group.items.len() == members.len() { "All of these" } else { &named };
            intro.push(format!("{all} refer to {link}"));
        }
    }
    Section { heading, intro, items: ids }
}
