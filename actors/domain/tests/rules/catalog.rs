//! The tool catalog (CAT) and its prices and counters (LED-009, LED-010).

use std::collections::BTreeSet;

use signalbox_domain::catalog::{
    Catalog, CatalogEntry, Deprecation, Recovery, Risk, ToolDependency, V1_CATALOG_PUBLISHED_AT, V1_CATALOG_VERSION,
    V1_TOOL_IDS, base_price, catalog, entry, instant_of, price, resolve_tool_dependencies, surface_deprecations,
    v1_catalog,
};
use signalbox_domain::quantity::{BudgetCategory, Micros};

use crate::common::tool;

fn resolved(id: &str) -> Vec<String> {
    let order = resolve_tool_dependencies(v1_catalog(), [&tool(id)]).unwrap();
    order.into_iter().map(|tool| tool.to_string()).collect()
}

fn of(id: &str) -> &'static CatalogEntry {
    entry(&tool(id)).unwrap()
}

#[test]
fn the_catalog_holds_the_twenty_one_tools_in_order() {
    let ids: Vec<&str> = catalog().iter().map(|entry| entry.tool_id.as_str()).collect();
    assert_eq!(ids, V1_TOOL_IDS);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 21);
    assert_eq!((V1_CATALOG_VERSION, V1_CATALOG_PUBLISHED_AT), ("1.0.0", "2026-05-11T00:00:00Z"));
    assert!(catalog().iter().all(|entry| entry.semver == "1.0.0" && !entry.title.is_empty()));
    assert_eq!(entry(&tool("rm.rf")), None);
}

#[test]
fn an_entry_survives_a_round_trip_through_json() {
    for entry in catalog() {
        let text = serde_json::to_string(entry).unwrap();
        assert_eq!(&serde_json::from_str::<CatalogEntry>(&text).unwrap(), entry);
    }
}

#[test]
fn each_tool_comes_after_what_it_needs() {
    for (id, order) in [
        ("web.fetch", vec!["web.fetch"]),
        ("sophia.fact_check", vec!["sophia.ground", "sophia.fact_check"]),
        ("themis.adjudicate", vec!["sophia.ground", "sophia.fact_check", "themis.adjudicate"]),
        ("memory.write", vec!["memory.read", "memory.write"]),
        ("file.write", vec!["file.read", "file.write"]),
        ("calendar.write", vec!["calendar.read", "calendar.write"]),
        ("composition.suggest", vec!["memory.read", "composition.suggest"]),
        ("generate.video", vec!["generate.image", "generate.video"]),
        ("code.exec", vec!["file.read", "code.exec"]),
        ("agent.terminate", vec!["approval.request", "agent.terminate"]),
    ] {
        assert_eq!(resolved(id), order);
    }
    let all = resolve_tool_dependencies(v1_catalog(), catalog().iter().map(|entry| &entry.tool_id)).unwrap();
    assert_eq!(all.len(), 21);
    let edges: usize = catalog().iter().map(|entry| entry.dependencies.len()).sum();
    assert_eq!(edges, 9);
}

fn load(change: impl Fn(&mut CatalogEntry)) -> Result<Catalog, &'static str> {
    let mut entries = catalog().to_vec();
    entries.iter_mut().for_each(change);
    Catalog::load(entries).map_err(|error| error.code())
}

fn need(entry: &mut CatalogEntry, id: &str, range: &str) {
    entry.dependencies.push(ToolDependency { tool_id: tool(id), range: range.to_owned() });
}

#[test]
fn a_catalog_whose_tools_do_not_fit_together_is_refused_by_its_code() {
    let only = |id: &'static str, f: fn(&mut CatalogEntry)| {
        move |entry: &mut CatalogEntry| {
            if entry.tool_id.as_str() == id {
                f(entry);
            }
        }
    };
    assert!(load(|_| {}).is_ok());
    assert_eq!(load(only("web.fetch", |e| need(e, "rm.rf", "^1"))), Err("unknown-tool"));
    assert_eq!(load(only("web.fetch", |e| need(e, "file.read", "^2"))), Err("semver-range-no-match"));
    assert_eq!(load(only("file.read", |e| need(e, "file.write", "^1"))), Err("dependency-cycle"));
    assert_eq!(load(only("web.fetch", |e| need(e, "web.fetch", "^1"))), Err("dependency-cycle"));
    assert_eq!(load(only("web.fetch", |e| e.semver = "one".to_owned())), Err("invalid-semver"));
    assert_eq!(load(only("web.fetch", |e| e.timeout_ms = 0)), Err("invalid-timeout"));
    assert_eq!(load(only("web.fetch", |e| e.tool_id = tool("file.read"))), Err("duplicate-tool-id"));
    let asked = tool("rm.rf");
    let unknown = resolve_tool_dependencies(v1_catalog(), [&asked]).map_err(|error| error.code());
    assert_eq!(unknown, Err("unknown-tool"));
}

#[test]
fn each_tool_has_its_risk() {
    let with = |risk| catalog().iter().filter(|entry| entry.risk == risk).count();
    assert_eq!([Risk::Low, Risk::Medium, Risk::High, Risk::Critical].map(with), [7, 7, 5, 2]);
    assert_eq!(of("sophia.ground").risk, Risk::Low);
    assert_eq!(of("file.read").risk, Risk::Medium);
    assert_eq!(of("source.fetch").risk, Risk::High);
    assert_eq!(of("code.exec").risk, Risk::Critical);
}

#[test]
fn each_tool_needs_the_scope_of_its_name_and_two_need_more() {
    for entry in catalog() {
        let mut scopes = vec![format!("tool:{}", entry.tool_id)];
        if ["code.exec", "agent.terminate"].contains(&entry.tool_id.as_str()) {
            scopes.push("operator:agents".to_owned());
        }
        assert_eq!(entry.required_scopes, scopes);
    }
}

#[test]
fn what_can_be_repeated_without_harm_says_so() {
    let repeatable: Vec<&str> = catalog()
        .iter()
        .filter(|entry| entry.recovery == Recovery::Idempotent)
        .map(|entry| entry.tool_id.as_str())
        .collect();
    assert_eq!(
        repeatable,
        [
            "web.fetch",
            "source.fetch",
            "sophia.ground",
            "sophia.fact_check",
            "memory.read",
            "memory.write",
            "persona.invoke",
            "composition.suggest",
            "file.read",
            "file.write",
            "calendar.read",
        ]
    );
    assert_eq!(of("notify.send").recovery, Recovery::AtMostOnce);
}

#[test]
fn what_an_executor_declares_holds_as_far_as_the_catalog_allows_it() {
    use Recovery::{AtMostOnce, Deduplicating, Idempotent};
    for (catalog, declared, holds) in [
        (Idempotent, Idempotent, Idempotent),
        (Idempotent, Deduplicating, Deduplicating),
        (Idempotent, AtMostOnce, AtMostOnce),
        (Deduplicating, Idempotent, Deduplicating),
        (Deduplicating, Deduplicating, Deduplicating),
        (Deduplicating, AtMostOnce, AtMostOnce),
        (AtMostOnce, Idempotent, AtMostOnce),
        (AtMostOnce, Deduplicating, Deduplicating),
        (AtMostOnce, AtMostOnce, AtMostOnce),
    ] {
        assert_eq!(catalog.as_declared(declared), holds, "{catalog:?} and {declared:?}");
    }
}

#[test]
fn a_tool_may_take_a_minute_and_two_have_their_own_time() {
    for entry in catalog() {
        let expected = match entry.tool_id.as_str() {
            "code.exec" => 30_000,
            "generate.video" => 1_800_000,
            _ => 60_000,
        };
        assert_eq!(entry.timeout_ms, expected);
    }
}

#[test]
fn each_tool_has_its_base_price_and_reserves_it() {
    let prices = [2, 2, 3, 5, 1, 1, 2, 20, 200, 15, 2, 5, 10, 1, 1, 1, 1, 1, 1, 0, 0];
    for (entry, units) in catalog().iter().zip(prices) {
        assert_eq!(base_price(&entry.tool_id), Micros::units(units), "{}", entry.tool_id);
        assert_eq!(entry.ceiling.get(BudgetCategory::CostUnits), Micros::units(units));
    }
}

#[test]
fn tokens_cost_one_per_thousand_read_and_four_per_thousand_written() {
    let with = |read, written| price(&tool("persona.invoke"), read, written).minus(base_price(&tool("persona.invoke")));
    assert_eq!(with(2_000, 500), Micros::units(4));
    assert_eq!(with(1, 0), Micros(1_000));
    assert_eq!(with(u64::MAX, u64::MAX), Micros(i64::MAX).minus(Micros::units(2)), "absurd figures stop at the top");
}

#[test]
fn each_tool_counts_its_look_ups_and_outside_calls() {
    for entry in catalog() {
        let id = entry.tool_id.as_str();
        let calls = Micros::units(if id == "source.fetch" { 100 } else { 1 });
        let looks_up = id.starts_with("sophia.") || ["source.fetch", "memory.read"].contains(&id);
        let leaves = ["web.fetch", "source.fetch", "notify.send"].contains(&id) || id.starts_with("generate.");
        let expect = |counts| if counts { calls } else { Micros::ZERO };
        assert_eq!(entry.ceiling.get(BudgetCategory::Retrievals), expect(looks_up), "{id}");
        assert_eq!(entry.ceiling.get(BudgetCategory::ExternalCalls), expect(leaves), "{id}");
        assert_eq!(entry.external, leaves, "{id}");
    }
    assert_eq!(of("file.write").ceiling.get(BudgetCategory::StorageBytes), Micros::units(16 * 1_024 * 1_024));
    assert_eq!(of("memory.write").ceiling.get(BudgetCategory::StorageBytes), Micros::units(64 * 1_024));
}

#[test]
fn deprecations_within_a_window_are_surfaced_with_what_replaces_them_and_who_needs_them() {
    let catalog = {
        let mut entries = catalog().to_vec();
        for entry in &mut entries {
            let at = match entry.tool_id.as_str() {
                "file.read" => "2026-06-01T00:00:00Z",
                "web.fetch" => "2026-07-01T02:00:00+02:00",
                "calendar.read" => "someday",
                _ => continue,
            };
            entry.deprecation =
                Some(Deprecation { deprecated_at: at.to_owned(), replacement_tool_id: Some(tool("source.fetch")) });
        }
        Catalog::load(entries).unwrap()
    };
    let at = |text: &str| instant_of(text);
    let within = |from: Option<&str>, to: Option<&str>| {
        let found = surface_deprecations(&catalog, from.and_then(at), to.and_then(at));
        found.into_iter().map(|found| found.tool_id.to_string()).collect::<Vec<_>>()
    };
    // Both ends are part of it, one second outside is not; what cannot be read is never overlooked.
    assert_eq!(
        within(Some("2026-06-01T00:00:00Z"), Some("2026-07-01T00:00:00Z")),
        ["web.fetch", "file.read", "calendar.read"]
    );
    assert_eq!(within(Some("2026-06-01T00:00:01Z"), Some("2026-06-30T23:59:59Z")), ["calendar.read"]);
    assert_eq!(within(None, Some("2026-06-01T00:00:00Z")), ["file.read", "calendar.read"]);
    let all = surface_deprecations(&catalog, None, None);
    let file = all.iter().find(|found| found.tool_id.as_str() == "file.read").unwrap();
    assert_eq!(file.replacement_tool_id, Some(tool("source.fetch")));
    assert_eq!(file.dependents, [tool("code.exec"), tool("file.write")]);
    assert!(surface_deprecations(v1_catalog(), None, None).is_empty());
}
