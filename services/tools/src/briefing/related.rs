//! Items that belong together: they refer to the same page, or are about the same package.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::model::Item;

/// Most groups that are kept.
const GROUPS_MAX: usize = 200;

/// Items that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Related {
    /// The page they all refer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The package they are all about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Their ids, in order.
    pub items: Vec<String>,
}

/// The groups of two and more items, the largest first.
pub(crate) fn related(items: &[Item]) -> Vec<Related> {
    let mut links: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut packages: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for item in items {
        for link in item.link.iter().chain(&item.references) {
            links.entry(link).or_default().insert(&item.id);
        }
        if let Some(package) = &item.package {
            packages.entry(package).or_default().insert(&item.id);
        }
    }
    // Items that share two pages share one group, named by the shorter address.
    let mut by_members: BTreeMap<BTreeSet<&str>, &str> = BTreeMap::new();
    for (link, members) in links.into_iter().filter(|(_, members)| members.len() > 1) {
        let known = by_members.entry(members).or_insert(link);
        if link.len() < known.len() {
            *known = link;
        }
    }
    let owned = |members: &BTreeSet<&str>| members.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let mut groups: Vec<Related> = by_members
        .iter()
        .map(|(members, link)| Related { link: Some((*link).to_owned()), package: None, items: owned(members) })
        .collect();
    groups.extend(packages.iter().filter(|(_, members)| members.len() > 1).map(|(package, members)| Related {
        link: None,
        package: Some((*package).to_owned()),
        items: owned(members),
    }));
    groups.sort_by(|a, b| b.items.len().cmp(&a.items.len()).then_with(|| a.items.cmp(&b.items)));
    groups.truncate(GROUPS_MAX);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::briefing::extract::blank;

    #[test]
    fn items_that_share_a_page_or_a_package_are_one_group_each() {
        let item = |id: &str, package: &str, links: &[&str]| {
            let mut item = blank(id, "a.md");
            item.package = Some(package.to_owned());
            item.link = links.first().map(|link| (*link).to_owned());
            item.references = links.iter().skip(1).map(|link| (*link).to_owned()).collect();
            item
        };
        let groups = related(&[
            item("A", "kite", &["https://x.example/long", "https://x.example/s"]),
            item("B", "line", &["https://x.example/s", "https://x.example/long"]),
            item("C", "kite", &[]),
            item("D", "reel", &["https://x.example/alone"]),
        ]);
        let rows: Vec<(Option<&str>, Option<&str>, Vec<&str>)> = groups
            .iter()
            .map(|g| (g.link.as_deref(), g.package.as_deref(), g.items.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(rows, [(Some("https://x.example/s"), None, vec!["A", "B"]), (None, Some("kite"), vec!["A", "C"])]);
    }
}
