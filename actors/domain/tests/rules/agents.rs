//! Versions of agents: what is refused, by which code and where, and which moves there are (REG-001 to REG-012, REG-036 to
//! REG-046).

use serde_json::{Value, json};
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{AgentId, TenantId};
use signalbox_domain::registry::{
    AGENT_ENTRY_LIMITS, AgentLifecycle, AgentMove, AgentRegistry, AgentRegistryCode, AgentRegistryEntry, AgentViewer,
    AgentVisibility, LIFECYCLE_MOVES, LifecycleDenial, MoveDenial, MovedBy, TenantScope, Ways, experimental_fits,
    family_meta, may_move, reference_agents, validate,
};

fn document() -> Value {
    json!({
        "agentId": "acme.writer",
        "agentSemver": "1.0.0",
        "title": "Writer",
        "family": "editing",
        "lifecycle": "champion",
        "experimental": false,
        "capabilities": [{"capabilityId": "shorten", "semver": "1.0.0"}],
        "dataScopes": ["tenant.private"],
        "toolGrants": ["memory.read"],
        "costClass": "small",
        "modelBinding": {
            "providerId": "house", "modelId": "large", "semver": "1.0.0", "defaultMaxTokens": 1000,
            "defaultTemperature": 0.25, "fallbackProviderId": "house", "fallbackModelId": "small"
        },
        "personaBinding": "lilith.scribe",
        "tonePolicyId": "tone.default",
        "groundingPolicyId": "cite-where-available",
        "auditPolicyId": "audit.full",
        "tenantScope": {"tenantId": "acme"},
        "visibility": ["tenant", "creator", "customer"],
        "disclosureRequirements": ["ai-generated"]
    })
}

fn with(changes: &[(&str, Value)]) -> AgentRegistryEntry {
    AgentRegistryEntry::read(changed(changes)).unwrap()
}

fn changed(changes: &[(&str, Value)]) -> Value {
    let mut value = document();
    for (pointer, wanted) in changes {
        *value.pointer_mut(pointer).unwrap() = wanted.clone();
    }
    value
}

fn codes(entry: &AgentRegistryEntry) -> Vec<(&'static str, String)> {
    AgentRegistry::default().register_errors(entry).into_iter().map(|error| (error.code.code(), error.path)).collect()
}

fn acme() -> TenantScope {
    TenantScope::Tenant("acme".parse().unwrap())
}

fn holding(entries: &[AgentRegistryEntry]) -> AgentRegistry {
    let mut registry = AgentRegistry::default();
    entries.iter().for_each(|entry| registry.apply_published(entry));
    registry
}

#[test]
fn there_are_exactly_eight_codes() {
    assert_eq!(
        AgentRegistryCode::ALL.map(AgentRegistryCode::code),
        [
            "duplicate-agent-id",
            "unknown-family",
            "tool-grant-exceeds-family-ceiling",
            "invalid-semver",
            "unknown-data-scope",
            "lifecycle-experimental-mismatch",
            "duplicate-capability-id",
            "champion-without-disclosure",
        ]
    );
    for code in AgentRegistryCode::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), code.code());
    }
}

#[test]
fn each_code_is_told_alone_with_the_place_of_the_fault() {
    let capability = |id: &str, semver: &str| json!({"capabilityId": id, "semver": semver});
    for (changes, code, path) in [
        (vec![("/family", json!("gardening"))], "unknown-family", "/family"),
        (vec![("/family", json!("__proto__"))], "unknown-family", "/family"),
        (
            vec![("/toolGrants", json!(["memory.read", "web.fetch"]))],
            "tool-grant-exceeds-family-ceiling",
            "/toolGrants/1",
        ),
        (vec![("/toolGrants", json!(["constructor"]))], "tool-grant-exceeds-family-ceiling", "/toolGrants/0"),
        (vec![("/agentSemver", json!("TBD"))], "invalid-semver", "/agentSemver"),
        (vec![("/capabilities", json!([capability("a", "1.2")]))], "invalid-semver", "/capabilities/0/semver"),
        (vec![("/modelBinding/semver", json!("v1.2.3"))], "invalid-semver", "/modelBinding/semver"),
        (vec![("/dataScopes", json!(["tenant.secret"]))], "unknown-data-scope", "/dataScopes/0"),
        (vec![("/experimental", json!(true))], "lifecycle-experimental-mismatch", "/experimental"),
        (
            vec![(
                "/capabilities",
                json!([capability("a", "1.0.0"), capability("b", "1.0.0"), capability("a", "2.0.0")]),
            )],
            "duplicate-capability-id",
            "/capabilities/2/capabilityId",
        ),
        (vec![("/disclosureRequirements", json!([]))], "champion-without-disclosure", "/disclosureRequirements"),
    ] {
        assert_eq!(codes(&with(&changes)), [(code, path.to_owned())], "{changes:?}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once_in_the_order_of_the_codes() {
    let bad = with(&[
        ("/toolGrants", json!(["web.fetch", "memory.read", "file.write"])),
        ("/agentSemver", json!("1.2")),
        ("/modelBinding/semver", json!("latest")),
        ("/dataScopes", json!(["tenant.private", "all"])),
        ("/experimental", json!(true)),
        ("/capabilities", json!([{"capabilityId": "a", "semver": "x"}, {"capabilityId": "a", "semver": "1.0.0"}])),
        ("/disclosureRequirements", json!([])),
    ]);
    let mut registry = holding(&[with(&[])]);
    let told: Vec<_> = registry.register_errors(&bad).into_iter().map(|e| (e.code.code(), e.path)).collect();
    let expected = [
        ("duplicate-agent-id", "/agentId"),
        ("tool-grant-exceeds-family-ceiling", "/toolGrants/0"),
        ("tool-grant-exceeds-family-ceiling", "/toolGrants/2"),
        ("invalid-semver", "/agentSemver"),
        ("invalid-semver", "/capabilities/0/semver"),
        ("invalid-semver", "/modelBinding/semver"),
        ("unknown-data-scope", "/dataScopes/1"),
        ("lifecycle-experimental-mismatch", "/experimental"),
        ("duplicate-capability-id", "/capabilities/1/capabilityId"),
        ("champion-without-disclosure", "/disclosureRequirements"),
    ];
    assert_eq!(told, expected.map(|(code, path)| (code, path.to_owned())));
    // An unknown family has no ceiling to exceed.
    assert_eq!(codes(&with(&[("/family", json!("x")), ("/toolGrants", json!(["y"]))])).len(), 1);
    registry.apply_published(&bad);
    assert_eq!(registry.versions(&acme(), &bad.agent_id).len(), 2, "what is not refused elsewhere is entered as it is");
}

#[test]
fn a_second_registration_is_refused_and_leaves_the_first_as_it_was() {
    let first = with(&[]);
    let registry = holding(std::slice::from_ref(&first));
    let second = with(&[("/title", json!("Other"))]);
    let errors = registry.register_errors(&second);
    assert_eq!((errors.len(), errors[0].code), (1, AgentRegistryCode::DuplicateAgentId));
    let before = serde_json::to_vec(&first).unwrap();
    assert_eq!(serde_json::to_vec(&**registry.get(&acme(), &first.agent_id, "1.0.0").unwrap()).unwrap(), before);
}

#[test]
fn tenants_have_their_ids_apart_and_none_hides_an_agent_of_the_platform() {
    let registry = holding(&[with(&[])]);
    let of_globex = with(&[("/tenantScope", json!({"tenantId": "globex"}))]);
    assert_eq!(registry.register_errors(&of_globex), []);
    // The platform's operators see every tenant's agents, so they may hear of them.
    let of_platform = with(&[("/tenantScope", json!("platform"))]);
    assert_eq!(registry.register_errors(&of_platform).len(), 1);
    for id in ["ref.research", "ref.none"] {
        let errors = registry.register_errors(&with(&[("/agentId", json!(id))]));
        assert_eq!(errors.len(), 1, "{id}");
        assert_eq!(errors[0].code, AgentRegistryCode::DuplicateAgentId);
    }
    assert!(registry.for_tenant(&"globex".parse().unwrap(), &of_globex.agent_id).is_empty());
}

#[test]
fn a_later_version_must_be_later_than_every_other_and_all_stay_readable() {
    let draft = |semver: &str| with(&[("/agentSemver", json!(semver)), ("/lifecycle", json!("draft"))]);
    let registry = holding(&[with(&[]), draft("1.1.0")]);
    let id = &draft("1.1.0").agent_id;
    assert_eq!(registry.get(&acme(), id, "1.0.0").unwrap().lifecycle, AgentLifecycle::Champion);
    assert_eq!(registry.get(&acme(), id, "1.1.0").unwrap().lifecycle, AgentLifecycle::Draft);
    for semver in ["1.0.5", "1.1.0", "01.1.0", "1.1.0-rc.1", "0.9.9"] {
        let errors = registry.publish_errors(&draft(semver));
        assert_eq!(errors.len(), 1, "{semver}");
        assert_eq!((errors[0].code.code(), errors[0].path.as_str()), ("invalid-semver", "/agentSemver"), "{semver}");
    }
    for semver in ["1.1.1", "1.10.0", "2.0.0-rc.1", "1.1.1-a..b", "99999999999999999999999.0.0"] {
        assert_eq!(registry.publish_errors(&draft(semver)), [], "{semver}");
    }
}

#[test]
fn versions_are_of_the_stated_pattern_in_all_three_places() {
    for semver in ["1.2.3", "01.2.3", "1.0.0-rc.1", "1.2.3-a..b"] {
        for place in ["/agentSemver", "/capabilities/0/semver", "/modelBinding/semver"] {
            assert_eq!(codes(&with(&[(place, json!(semver))])), [], "{semver} at {place}");
        }
    }
    for semver in ["1.2", "v1.2.3", "1.2.3+b", "TBD", "١.٢.٣", "1.2.3\n"] {
        for place in ["/agentSemver", "/capabilities/0/semver", "/modelBinding/semver"] {
            assert_eq!(codes(&with(&[(place, json!(semver))])), [("invalid-semver", place.to_owned())], "{semver}");
        }
    }
}

#[test]
fn experimental_goes_with_the_state_in_all_but_five_of_fourteen_cases() {
    let mut mismatches = 0;
    for state in AgentLifecycle::ALL {
        for experimental in [true, false] {
            let entry = with(&[("/lifecycle", json!(state.as_str())), ("/experimental", json!(experimental))]);
            let fits = validate(&entry).is_empty();
            assert_eq!(fits, experimental_fits(state, experimental));
            mismatches += usize::from(!fits);
        }
    }
    assert_eq!(mismatches, 5);
}

#[test]
fn every_part_of_an_entry_must_be_there_and_no_other() {
    let whole = document();
    let all = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for member in all(&whole) {
        let mut without = whole.clone();
        without.as_object_mut().unwrap().remove(&member);
        assert_eq!(AgentRegistryEntry::read(without).unwrap_err().code(), "agent-entry-invalid", "{member}");
    }
    assert_eq!(all(&whole["modelBinding"]).len(), 7);
    for part in all(&whole["modelBinding"]) {
        let mut without = whole.clone();
        without["modelBinding"].as_object_mut().unwrap().remove(&part);
        assert!(AgentRegistryEntry::read(without).is_err(), "{part}");
    }
    for (place, key) in [("", "__proto__"), ("/modelBinding", "constructor"), ("/tenantScope", "prototype")] {
        let mut more = whole.clone();
        more.pointer_mut(place).unwrap()[key] = json!({});
        assert!(AgentRegistryEntry::read(more).is_err(), "{key}");
    }
    let entry = AgentRegistryEntry::read(whole.clone()).unwrap();
    assert_eq!(serde_json::to_value(&entry).unwrap()["modelBinding"], whole["modelBinding"]);
    assert_eq!(AgentRegistryEntry::read(serde_json::to_value(&entry).unwrap()).unwrap(), entry);
}

#[test]
fn what_is_no_possible_value_is_refused_before_anything_else() {
    let long = "a".repeat(129);
    for (place, value) in [
        ("/tenantScope", json!("everybody")),
        ("/tenantScope", json!({"tenantId": "a", "x": 1})),
        ("/tenantScope", json!({})),
        ("/tenantScope", json!(null)),
        ("/lifecycle", json!("live")),
        ("/costClass", json!("huge")),
        ("/visibility", json!([])),
        ("/visibility", json!(["everybody"])),
        ("/agentId", json!("")),
        ("/agentId", json!("a b")),
        ("/agentSemver", json!("")),
        ("/title", json!("a\u{0}b")),
        ("/family", json!(long)),
        ("/modelBinding/defaultMaxTokens", json!(0)),
        ("/modelBinding/defaultMaxTokens", json!(-1)),
        ("/modelBinding/defaultMaxTokens", json!(10_000_001)),
        ("/modelBinding/defaultTemperature", json!(2.1)),
        ("/modelBinding/defaultTemperature", json!(-0.1)),
        // Nobody falls back on what has just failed (REG-043).
        ("/modelBinding/fallbackModelId", json!("large")),
        ("/toolGrants", json!(vec!["memory.read"; 65])),
        ("/experimental", json!("false")),
    ] {
        let refused = AgentRegistryEntry::read(changed(&[(place, value.clone())])).unwrap_err();
        assert_eq!(refused.code(), "agent-entry-invalid", "{place} {value}");
    }
}

#[test]
fn a_hostile_document_is_refused_by_its_code() {
    let text = serde_json::to_string(&document()).unwrap();
    let twice = text.replacen('{', "{\"family\":\"research\",", 1);
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(40), "]".repeat(40));
    let large = " ".repeat(AGENT_ENTRY_LIMITS.bytes_max + 1);
    for (bytes, code) in [
        (twice.as_bytes(), "json-duplicate-key"),
        (deep.as_bytes(), "json-too-deep"),
        (large.as_bytes(), "json-too-large"),
        (b"\xff\xfe".as_slice(), "json-not-unicode"),
        (b"".as_slice(), "json-invalid"),
        (b"[]".as_slice(), "agent-entry-invalid"),
        (b"null".as_slice(), "agent-entry-invalid"),
    ] {
        assert_eq!(AgentRegistryEntry::parse(bytes).unwrap_err().code(), code);
    }
    assert!(AgentRegistryEntry::parse(text.as_bytes()).is_ok());
}

#[test]
fn the_matrix_of_seven_by_seven_holds_exactly_twelve_moves() {
    let mut allowed = 0;
    for from in AgentLifecycle::ALL {
        for to in AgentLifecycle::ALL {
            let ways: Vec<MovedBy> = MovedBy::ALL.into_iter().filter(|by| may_move(from, to, *by).is_ok()).collect();
            assert_eq!(!ways.is_empty(), LIFECYCLE_MOVES.contains(&(from, to)));
            assert!(ways.len() <= 1, "each move has one way");
            allowed += ways.len();
        }
    }
    assert_eq!(allowed, 12);
    let denied = |from, to, by| may_move(from, to, by).unwrap_err();
    use AgentLifecycle::{Challenger, Champion, Deprecated, Draft, Retired, Shadow};
    assert_eq!(denied(Challenger, Champion, MovedBy::Operator), MoveDenial::OnlyByPromotion);
    assert_eq!(denied(Challenger, Champion, MovedBy::Rollback), MoveDenial::OnlyByPromotion);
    assert_eq!(denied(Deprecated, Champion, MovedBy::Operator), MoveDenial::OnlyByRollback);
    assert_eq!(denied(Shadow, Retired, MovedBy::Promotion).code(), "lifecycle-move-not-allowed");
    assert!(denied(Retired, Draft, MovedBy::Operator).to_string().contains("nothing any more"));
}

#[test]
fn promoting_a_second_champion_demotes_the_first_in_the_same_move() {
    let challenger = with(&[("/agentSemver", json!("1.1.0")), ("/lifecycle", json!("challenger"))]);
    let mut registry = holding(&[with(&[]), challenger.clone()]);
    let id = &challenger.agent_id;
    let promote = |registry: &AgentRegistry, semver: &str, by| {
        registry.decide_move(&acme(), id, semver, AgentLifecycle::Champion, by)
    };
    let moved: AgentMove = promote(&registry, "1.1.0", MovedBy::Promotion).unwrap();
    assert_eq!(moved.demoted_semver.as_deref(), Some("1.0.0"));
    registry.apply_move(&moved);
    let state = |registry: &AgentRegistry, semver: &str| registry.get(&acme(), id, semver).unwrap().lifecycle;
    assert_eq!(state(&registry, "1.0.0"), AgentLifecycle::Deprecated);
    assert_eq!(state(&registry, "1.1.0"), AgentLifecycle::Champion);
    let back = promote(&registry, "1.0.0", MovedBy::Rollback).unwrap();
    assert_eq!(back.demoted_semver.as_deref(), Some("1.1.0"));
    registry.apply_move(&back);
    let champions = registry.versions(&acme(), id).iter().filter(|e| e.lifecycle == AgentLifecycle::Champion);
    assert_eq!(champions.count(), 1);
    let missing = promote(&registry, "9.9.9", MovedBy::Promotion).unwrap_err();
    assert_eq!(missing.code(), "no-such-agent-version");
}

#[test]
fn a_move_sets_experimental_where_the_state_leaves_no_choice_and_never_makes_a_silent_champion() {
    let draft = with(&[("/lifecycle", json!("draft")), ("/disclosureRequirements", json!([]))]);
    let mut registry = holding(std::slice::from_ref(&draft));
    let id = &draft.agent_id;
    use AgentLifecycle::{Challenger, Champion, Rehearsal, Shadow};
    for (to, experimental) in [(Rehearsal, true), (Shadow, true), (Challenger, true)] {
        let moved = registry.decide_move(&acme(), id, "1.0.0", to, MovedBy::Operator).unwrap();
        registry.apply_move(&moved);
        let entry = registry.get(&acme(), id, "1.0.0").unwrap();
        assert_eq!((entry.lifecycle, entry.experimental), (to, experimental));
        assert_eq!(validate(entry), []);
    }
    let silent = registry.decide_move(&acme(), id, "1.0.0", Champion, MovedBy::Promotion).unwrap_err();
    assert_eq!(silent, LifecycleDenial::WithoutDisclosure);
}

#[test]
fn a_reference_agent_is_moved_like_any_other() {
    let mut registry = AgentRegistry::default();
    let id: AgentId = "ref.research".parse().unwrap();
    let scope = TenantScope::Platform;
    let moved = registry.decide_move(&scope, &id, "1.0.0", AgentLifecycle::Deprecated, MovedBy::Operator).unwrap();
    registry.apply_move(&moved);
    assert_eq!(registry.get(&scope, &id, "1.0.0").unwrap().lifecycle, AgentLifecycle::Deprecated);
    assert_eq!(registry.champion(&scope, &id), None);
}

#[test]
fn who_is_shown_which_agent_is_as_in_the_matrix_of_roles_and_visibilities() {
    let mut registry = AgentRegistry::default();
    for tenant in ["acme", "globex"] {
        for visibility in AgentVisibility::ALL {
            registry.apply_published(&with(&[
                ("/agentId", json!(format!("{tenant}.{}", visibility.as_str()))),
                ("/tenantScope", json!({"tenantId": tenant})),
                ("/visibility", json!([visibility.as_str()])),
            ]));
        }
    }
    let tenant: TenantId = "acme".parse().unwrap();
    let shown = |role| {
        let viewer = AgentViewer { tenant_id: &tenant, role };
        let listed = registry.list(viewer);
        listed.iter().map(|e| e.agent_id.to_string()).filter(|id| !id.starts_with("ref.")).collect::<Vec<_>>()
    };
    let all: Vec<String> = ["acme", "globex"]
        .iter()
        .flat_map(|tenant| ["creator", "customer", "platform", "tenant"].map(|v| format!("{tenant}.{v}")))
        .collect();
    assert_eq!(shown(Role::PlatformOperator), all);
    assert_eq!(shown(Role::TenantOperator), ["acme.creator", "acme.customer", "acme.tenant"]);
    assert_eq!(shown(Role::Creator), ["acme.creator", "acme.customer"]);
    assert_eq!(shown(Role::Service), ["acme.creator", "acme.customer"]);
    assert_eq!(shown(Role::Customer), ["acme.customer"]);
}

#[test]
fn the_reference_agents_are_entries_of_the_one_registry() {
    let tenant: TenantId = "acme".parse().unwrap();
    let listed = AgentRegistry::default().list(AgentViewer { tenant_id: &tenant, role: Role::Customer });
    assert_eq!(listed.len(), 20);
    for agent in reference_agents() {
        assert!(listed.iter().any(|entry| **entry == *agent));
        assert_eq!(AgentRegistryEntry::read(serde_json::to_value(agent).unwrap()).unwrap(), *agent);
        assert_eq!(agent.tools().len(), family_meta(&agent.family).unwrap().tool_grant_ceiling.len());
    }
}

#[test]
fn an_id_means_the_champion_unless_a_version_is_named_or_pinned() {
    let version = |semver: &str, state: &str, experimental: bool| {
        with(&[("/agentSemver", json!(semver)), ("/lifecycle", json!(state)), ("/experimental", json!(experimental))])
    };
    let registry = holding(&[
        version("1.0.0", "champion", false),
        version("1.1.0", "rehearsal", true),
        version("1.2.0", "draft", false),
    ]);
    let tenant: TenantId = "acme".parse().unwrap();
    let id: AgentId = "acme.writer".parse().unwrap();
    let viewer = AgentViewer { tenant_id: &tenant, role: Role::Customer };
    let resolve = |named, ways| registry.resolve(viewer, &id, named, ways).map(|entry| entry.agent_semver.as_str());
    assert_eq!(resolve(None, Ways::default()), Some("1.0.0"));
    assert_eq!(resolve(Some("1.1.0"), Ways { rehearsal: true, pipeline: false }), Some("1.1.0"));
    assert_eq!(resolve(Some("3.0.0"), Ways::default()), None);
    let foreign: TenantId = "globex".parse().unwrap();
    let viewer = AgentViewer { tenant_id: &foreign, role: Role::TenantOperator };
    assert_eq!(registry.resolve(viewer, &id, None, Ways::default()), None);

    let only_drafts = holding(&[version("0.1.0", "draft", false), version("0.2.0", "rehearsal", true)]);
    let viewer = AgentViewer { tenant_id: &tenant, role: Role::Customer };
    let resolve = |ways| only_drafts.resolve(viewer, &id, None, ways).map(|entry| entry.agent_semver.as_str());
    assert_eq!(resolve(Ways { rehearsal: true, pipeline: false }), Some("0.2.0"));
    assert_eq!(resolve(Ways::default()), Some("0.2.0"), "its state then says why not");
}
