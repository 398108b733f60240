//! What matters most: the order of the items, and the topics of stories.
//!
//! The order is a rule that can be read, not a score that cannot: kind, then stated severity, then category, then how
//! many other items name the package, then the day.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::model::{Item, Kind, Level};
use super::prose::{stems, words};
use super::safe::spans;

/// Most stories of a topic whose words are compared with each other; the rest go by their day.
const CENTRALITY_MAX: usize = 200;
/// Fewest stories that make a topic.
const TOPIC_MIN: usize = 2;

/// The items in the order of the pack.
pub(crate) fn ordered(mut items: Vec<Item>) -> Vec<Item> {
    let mentions = mentions(&items);
    items.sort_by_cached_key(|item| {
        (
            item.kind,
            // A package that also has good versions is one that people use.
            item.kind == Kind::Malicious && item.unaffected.is_none(),
            severity_rank(item),
            Reverse(item.severity.as_ref().and_then(|severity| severity.score).map(tenths)),
            category_rank(item),
            Reverse(item.package.as_ref().and_then(|package| mentions.get(package).copied()).unwrap_or(0)),
            Reverse(item.date.clone()),
            item.id.clone(),
        )
    });
    items
}

fn tenths(score: f64) -> i64 {
    (score * 10.0).round() as i64
}

/// Not stated stands after high and before medium: it may be anything.
fn severity_rank(item: &Item) -> u8 {
    match item.severity.as_ref().map(|severity| severity.level) {
        Some(Level::Critical) => 0,
        Some(Level::High) => 1,
        None => 2,
        Some(Level::Medium) => 3,
        Some(Level::Low) => 4,
        Some(Level::None) => 5,
    }
}

/// The worst category of an item, by what an attacker gains.
fn category_rank(item: &Item) -> usize {
    const WORST_FIRST: [&str; 9] = [
        "code-execution",
        "memory-corruption",
        "privilege-escalation",
        "crypto-failure",
        "file-disclosure",
        "memory-exposure",
        "format-injection",
        "denial-of-service",
        "thread-safety",
    ];
    let rank = |category: &String| WORST_FIRST.iter().position(|known| known == category).unwrap_or(WORST_FIRST.len());
    item.categories.iter().map(rank).min().unwrap_or(WORST_FIRST.len())
}

/// How many other items name a package in code.
fn mentions(items: &[Item]) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for item in items {
        let named: BTreeSet<String> = item
            .quotes
            .iter()
            .flat_map(|quote| spans(&quote.plain))
            .filter(|span| span.is_code && item.package.as_ref() != Some(&span.text))
            .map(|span| span.text)
            .collect();
        for name in named {
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

/// Stories by topic: the name that most of them share first. Those that share none come last, without a name.
pub(crate) fn topics<'i>(stories: &[&'i Item]) -> Vec<(Option<String>, Vec<&'i Item>)> {
    let mut about: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for story in stories {
        for subject in &story.subjects {
            about.entry(subject).or_default().insert(&story.source);
        }
    }
    let topic_of = |story: &Item| {
        let shared = story.subjects.iter().filter_map(|subject| {
            let sources = about.get(subject.as_str()).map_or(0, BTreeSet::len);
            (sources >= TOPIC_MIN).then_some((sources, subject))
        });
        shared.max_by_key(|(sources, subject)| (*sources, Reverse(*subject))).map(|(_, subject)| subject.clone())
    };
    let mut groups: BTreeMap<Option<String>, Vec<&Item>> = BTreeMap::new();
    for story in stories {
        groups.entry(topic_of(story)).or_default().push(story);
    }
    let mut topics: Vec<(Option<String>, Vec<&Item>)> = groups.into_iter().collect();
    for (name, members) in &mut topics {
        let central = if name.is_some() { centrality(members) } else { BTreeMap::new() };
        members.sort_by_cached_key(|item| {
            let central = central.get(item.id.as_str()).copied().unwrap_or(0);
            (Reverse(central), Reverse(item.date.clone()), item.id.clone())
        });
    }
    topics.sort_by_cached_key(|(name, members)| {
        let sources: BTreeSet<&str> = members.iter().map(|item| item.source.as_str()).collect();
        (
            name.is_none(),
            Reverse(sources.len()),
            Reverse(members.iter().filter_map(|item| item.date.clone()).max()),
            name.clone(),
        )
    });
    topics.into_iter().map(|(name, members)| (name.map(|name| spelled(&name, &members)), members)).collect()
}

/// How many words each story shares with the other sources of its topic: what several tell is what the topic is about.
fn centrality<'i>(members: &[&'i Item]) -> BTreeMap<&'i str, usize> {
    let words =
        |item: &Item| -> BTreeSet<String> { item.quotes.iter().flat_map(|quote| stems(&quote.plain)).collect() };
    let compared: Vec<(&'i Item, BTreeSet<String>)> =
        members.iter().take(CENTRALITY_MAX).map(|item| (*item, words(item))).collect();
    let shared = |(item, own): &(&'i Item, BTreeSet<String>)| {
        let others = compared.iter().filter(|(other, _)| other.source != item.source);
        (item.id.as_str(), others.map(|(_, words)| own.intersection(words).count()).sum())
    };
    compared.iter().map(shared).collect()
}

/// A lower-case name as the titles and quotes spell it.
fn spelled(name: &str, members: &[&Item]) -> String {
    let texts = members.iter().flat_map(|item| {
        std::iter::once(item.title.as_str()).chain(item.quotes.iter().map(|quote| quote.plain.as_str()))
    });
    let mut spellings = texts.flat_map(|text| {
        let is_name = move |word: &super::prose::Word| word.text(text).to_lowercase() == name;
        words(text).into_iter().filter(is_name).map(move |word| word.text(text).to_owned())
    });
    spellings.next().unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::briefing::extract::blank;
    use crate::briefing::model::Severity;

    fn item(id: &str, kind: Kind, level: Option<(Level, f64)>, category: &str) -> Item {
        let mut item = blank(id, id);
        item.kind = kind;
        item.severity =
            level.map(|(level, score)| Severity { level, score: Some(score), vector: None, from: String::new() });
        item.categories = vec![category.to_owned()];
        item
    }

    #[test]
    fn kind_then_severity_then_category_decide_and_an_unstated_severity_is_not_low() {
        let items = ordered(vec![
            item("low", Kind::Vulnerability, Some((Level::Low, 2.0)), "code-execution"),
            item("unstated-dos", Kind::Vulnerability, None, "denial-of-service"),
            item("unmaintained", Kind::Unmaintained, None, ""),
            item("high-7", Kind::Vulnerability, Some((Level::High, 7.5)), ""),
            item("malicious", Kind::Malicious, None, "malicious"),
            item("unstated-crypto", Kind::Vulnerability, None, "crypto-failure"),
            item("high-8", Kind::Vulnerability, Some((Level::High, 8.3)), ""),
            item("medium", Kind::Vulnerability, Some((Level::Medium, 5.0)), ""),
        ]);
        let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(
            ids,
            ["malicious", "high-8", "high-7", "unstated-crypto", "unstated-dos", "medium", "low", "unmaintained"]
        );
    }

    #[test]
    fn of_malicious_packages_those_that_people_use_come_first() {
        let mut used = item("used", Kind::Malicious, None, "malicious");
        used.unaffected = Some("<= 1.0.0".to_owned());
        let items = ordered(vec![item("alone", Kind::Malicious, None, "malicious"), used]);
        assert_eq!(items[0].id, "used");
    }

    #[test]
    fn stories_are_grouped_by_the_name_most_of_them_share() {
        let story = |id: &str, title: &str, date: &str, subjects: &[&str]| {
            let mut item = blank(id, id);
            item.kind = Kind::Story;
            item.title = title.to_owned();
            item.date = Some(date.to_owned());
            item.subjects = subjects.iter().map(|name| (*name).to_owned()).collect();
            item
        };
        let (a, b, c) = (
            story("a", "Kite club meets", "2026-08-01", &["kite"]),
            story("b", "The Kite flies", "2026-08-03", &["kite", "pier"]),
            story("c", "Nothing else", "2026-08-02", &["nothing"]),
        );
        let topics = topics(&[&a, &b, &c]);
        let rows: Vec<(Option<&str>, Vec<&str>)> = topics
            .iter()
            .map(|(name, members)| (name.as_deref(), members.iter().map(|item| item.id.as_str()).collect()))
            .collect();
        assert_eq!(rows, [(Some("Kite"), vec!["b", "a"]), (None, vec!["c"])]);
    }
}
