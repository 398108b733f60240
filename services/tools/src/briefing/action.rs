//! What to do about an item, as far as its own data says it.
//!
//! Each sentence here follows from fields of the item and says nothing that the source does not: which versions are good,
//! which functions are affected, what the source names instead. Advice beyond that is the source's, and stands as a
//! quote beside it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::model::{Action, ActionKind, Item, Kind, Supports};
use super::safe::spans;

/// Most function names in one sentence.
const FUNCTIONS_SHOWN_MAX: usize = 8;

/// Words with which a source names something to use instead.
static INSTEAD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let verbs = r"migrat\w*|mov\w+ to|switch\w*|replac\w*|superseded by";
    let others = r"in favou?r of|instead|alternatives?|successor";
    Regex::new(&format!(r"(?i)\b(?:{verbs}|{others})\b")).ok()
});

/// The action for an item whose kind, versions, functions and quotes are known.
pub(crate) fn of(item: &Item) -> Action {
    let package = format!("`{}`", item.label());
    let patched = item.patched.as_deref().filter(|patched| *patched != "none");
    let (kind, target, text) = match (item.kind, patched, &item.unaffected) {
        (Kind::Notice | Kind::Story, None, _) => {
            (ActionKind::Read, None, "Nothing to change is stated: read the notice.".to_owned())
        }
        (_, Some(patched), _) => {
            (ActionKind::Upgrade, Some(patched.to_owned()), format!("Upgrade {package} to `{patched}`."))
        }
        (_, None, Some(unaffected)) => (
            ActionKind::Pin,
            Some(unaffected.clone()),
            format!(
                "Use only versions of {package} that are listed as unaffected, `{unaffected}`; no patched one is listed."
            ),
        ),
        (Kind::Malicious, None, None) => (
            ActionKind::Drop,
            None,
            format!(
                "Use no version of {package}: all are affected, and neither a patched nor an unaffected one is listed."
            ),
        ),
        (Kind::Vulnerability | Kind::Unsound | Kind::Unmaintained, None, None) => without_patch(item, &package),
    };
    Action { kind, target, text }
}

fn without_patch(item: &Item, package: &str) -> (ActionKind, Option<String>, String) {
    if let Some(instead) = instead(item) {
        let text = format!("No patched version of {package} is listed; the source names a replacement, `{instead}`.");
        return (ActionKind::Migrate, Some(instead), text);
    }
    if !item.affected_functions.is_empty() {
        let names = functions(item);
        let text = format!("No patched version of {package} is listed: stay clear of the affected functions, {names}.");
        return (ActionKind::Avoid, Some(names), text);
    }
    let text = if item.kind == Kind::Unmaintained {
        format!(
            "No patched version of {package} is listed and the source names no replacement: decide whether to keep it."
        )
    } else {
        format!("All versions of {package} are affected and no patched one is listed: decide whether to keep it.")
    };
    (ActionKind::Decide, None, text)
}

/// What a sentence about moving away names in code that is not the package itself.
fn instead(item: &Item) -> Option<String> {
    let package = item.package.as_deref().unwrap_or_default();
    let pattern = INSTEAD.as_ref()?;
    let told = item.quotes_for(Supports::WhatToDo).chain(item.quotes_for(Supports::Summary));
    told.filter(|quote| pattern.is_match(&quote.plain)).find_map(|quote| {
        let code = spans(&quote.plain).into_iter().filter(|span| span.is_code).map(|span| span.text);
        let mut named = code.filter(|name| name != package && is_package(name));
        named.next()
    })
}

/// Letters, digits, `-` and `_`: how packages are called, and neither paths nor versions.
fn is_package(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// The affected functions without the path they share, in code.
fn functions(item: &Item) -> String {
    let root = |name: &str| name.split("::").next().unwrap_or_default().to_owned();
    let roots: BTreeSet<String> = item.affected_functions.iter().map(|function| root(&function.name)).collect();
    let short = |name: &str| match (roots.len(), name.split_once("::")) {
        (1, Some((_, rest))) => rest.to_owned(),
        _ => name.to_owned(),
    };
    let names: Vec<String> =
        item.affected_functions.iter().map(|f| format!("`{}`", short(&f.name).replace('`', "'"))).collect();
    let more = names.len().saturating_sub(FUNCTIONS_SHOWN_MAX);
    let shown = names.into_iter().take(FUNCTIONS_SHOWN_MAX).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::briefing::extract::blank;
    use crate::briefing::model::{AffectedFunction, Quote};

    fn item(kind: Kind, patched: &str, unaffected: Option<&str>) -> Item {
        let mut item = blank("DEMO-1", "demo.md");
        item.kind = kind;
        item.package = Some("paperkite".to_owned());
        item.patched = Some(patched.to_owned());
        item.unaffected = unaffected.map(str::to_owned);
        item
    }

    fn told(mut item: Item, plain: &str) -> Item {
        item.quotes.push(Quote {
            source: "demo.md".to_owned(),
            start: 0,
            end: plain.len(),
            text: plain.to_owned(),
            plain: plain.to_owned(),
            supports: Supports::WhatToDo,
        });
        item
    }

    #[test]
    fn a_patched_version_is_what_to_upgrade_to() {
        let action = of(&item(Kind::Vulnerability, ">= 2.0.0", None));
        assert_eq!((action.kind, action.text.as_str()), (ActionKind::Upgrade, "Upgrade `paperkite` to `>= 2.0.0`."));
    }

    #[test]
    fn without_a_patch_the_unaffected_versions_are_named_or_none_at_all() {
        let pin = of(&item(Kind::Malicious, "none", Some("<= 0.3.9")));
        assert_eq!((pin.kind, pin.target.as_deref()), (ActionKind::Pin, Some("<= 0.3.9")));
        let drop = of(&item(Kind::Malicious, "none", None));
        assert_eq!(drop.kind, ActionKind::Drop);
        assert!(drop.text.starts_with("Use no version of `paperkite`"), "{}", drop.text);
    }

    #[test]
    fn a_replacement_is_named_only_if_the_source_names_it() {
        let migrate =
            of(&told(item(Kind::Unmaintained, "none", None), "Users should migrate from `paperkite` to `newkite`."));
        assert_eq!((migrate.kind, migrate.target.as_deref()), (ActionKind::Migrate, Some("newkite")));
        let decide =
            of(&told(item(Kind::Unmaintained, "none", None), "It is no longer maintained; see `CHANGELOG.md`."));
        assert_eq!(decide.kind, ActionKind::Decide);
    }

    #[test]
    fn affected_functions_are_what_to_stay_clear_of() {
        let mut item = item(Kind::Unsound, "none", None);
        for name in ["paperkite::Line::cut", "paperkite::Line::drop"] {
            item.affected_functions.push(AffectedFunction { name: name.to_owned(), versions: "<= 1.0.0".to_owned() });
        }
        let action = of(&item);
        assert_eq!((action.kind, action.target.as_deref()), (ActionKind::Avoid, Some("`Line::cut`, `Line::drop`")));
    }

    #[test]
    fn a_notice_asks_for_nothing() {
        assert_eq!(of(&item(Kind::Notice, "none", None)).kind, ActionKind::Read);
    }
}
