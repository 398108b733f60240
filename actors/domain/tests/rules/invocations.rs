//! Invocations (INV): surfaces, envelopes, and preflights that name every gap at once. Who may be invoked, and for how much
//! (REG-038 to REG-041).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use signalbox_domain::ids::AgentId;
use signalbox_domain::invocation::{
    AgentRule, ConsentConfirmation, ENTITLEMENTS_MAX, GapCode, INVOCATION_SURFACES, Invocation, InvocationEnvelope,
    InvocationRules, SOURCES_MAX, Surface, TenantRules, estimate, rules_for, validate_preflight,
};
use signalbox_domain::mode::{InvocationTier, Mode};
use signalbox_domain::pipeline::weekly_briefing;
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::{
    AGENT_COST_CLASSES, AgentCostClass, AgentEntry, AgentLifecycle, DATA_SCOPES, DataScope, Invocable, PinnedAgents,
    invocable,
};
use signalbox_domain::run::plan::Plan;
use signalbox_domain::run::submission::{SubmissionError, parse};
use signalbox_domain::time::UnixMs;

const NOW: UnixMs = UnixMs(1_800_000_000_000);
const DAY: i64 = 86_400_000;

fn agent(id: &str) -> AgentId {
    AgentId::new(id).unwrap()
}

fn plan(steps: Value) -> Plan {
    serde_json::from_value(json!({ "steps": steps })).unwrap()
}

fn reads() -> Plan {
    plan(json!([
        {"stepId": "read", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}},
        {"stepId": "keep", "kind": "tool", "toolId": "memory.write", "args": {"key": "k", "value": 1}},
    ]))
}

fn envelope() -> InvocationEnvelope {
    InvocationEnvelope {
        entitlements: vec!["tool:memory.read".to_owned(), "tool:memory.write".to_owned()],
        source_set: vec!["archive".to_owned()],
        tone: "neutral".to_owned(),
        persona: "lilith.scribe".to_owned(),
        consent: Some(consent(NOW)),
    }
}

fn consent(at: UnixMs) -> ConsentConfirmation {
    ConsentConfirmation {
        consent_id: "consent-7".to_owned(),
        subject_id: "subject-9".to_owned(),
        text_version: "2026-01".to_owned(),
        accepted_at_unix_ms: at,
        data_scopes: vec![DataScope::UserPrivate],
    }
}

fn tenant() -> TenantRules {
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    TenantRules {
        sources: names(&["archive"]),
        tones: names(&["neutral"]),
        personas: names(&["lilith.scribe"]),
        consent_scopes: BTreeSet::from([DataScope::UserPrivate]),
        ..TenantRules::default()
    }
}

struct Case {
    envelope: Option<InvocationEnvelope>,
    tenant: TenantRules,
    tier: InvocationTier,
    mode: Mode,
    root: AgentId,
    plan: Plan,
    scopes: Vec<String>,
}

fn case() -> Case {
    Case {
        envelope: Some(envelope()),
        tenant: tenant(),
        tier: InvocationTier::Creator,
        mode: Mode::Balanced,
        root: agent("ref.course-generation"),
        plan: reads(),
        scopes: Vec::new(),
    }
}

impl Case {
    fn rules(&self) -> InvocationRules {
        rules_for(Some(&self.tenant), self.tier, None, &self.root, &self.plan, &PinnedAgents::default())
    }
    /// Code and subject of every gap.
    fn gaps(&self) -> Vec<(&'static str, String)> {
        let invocation = Invocation {
            envelope: self.envelope.as_ref(),
            scopes: &self.scopes,
            mode: self.mode,
            root: &self.root,
            plan: &self.plan,
            now: NOW,
        };
        validate_preflight(&invocation, &self.rules()).into_iter().map(|gap| (gap.code.code(), gap.subject)).collect()
    }
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
    fn declaring(self, change: impl FnOnce(&mut InvocationEnvelope)) -> Self {
        self.with(|case| change(case.envelope.as_mut().unwrap()))
    }
}

fn gaps(expected: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    expected.iter().map(|(code, subject)| (*code, (*subject).to_owned())).collect()
}

#[test]
fn there_are_ten_surfaces_and_no_other_is_one() {
    let names = [
        "api",
        "operator-console",
        "creator-studio",
        "customer-app",
        "pipeline",
        "schedule",
        "handoff",
        "turn",
        "plan",
        "autonomy",
    ];
    assert_eq!(INVOCATION_SURFACES.map(Surface::as_str), names);
    for surface in INVOCATION_SURFACES {
        assert_eq!(Surface::parse(surface.as_str()), Some(surface));
    }
    for other in ["", "API", "console", "api ", "__proto__", "api\0"] {
        assert_eq!(Surface::parse(other), None, "{other:?}");
    }
}

#[test]
fn an_invocation_that_lacks_nothing_has_no_gap() {
    assert_eq!(case().gaps(), []);
}

#[test]
fn two_missing_entitlements_are_two_gaps_that_name_them() {
    let none = case().declaring(|declared| declared.entitlements.clear());
    let both = [("missing-entitlement", "tool:memory.read"), ("missing-entitlement", "tool:memory.write")];
    assert_eq!(none.gaps(), gaps(&both));
    let other = case().declaring(|declared| declared.entitlements = vec!["tool:memory.*".to_owned()]);
    assert_eq!(other.gaps(), gaps(&both), "nothing in an entitlement stands for anything else");
}

#[test]
fn an_invocation_that_declares_nothing_means_all_of_its_credential() {
    let bare = |scopes: &[&str]| {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        case().with(|case| {
            case.envelope = None;
            case.tenant = TenantRules::default();
            case.scopes = scopes;
        })
    };
    assert_eq!(bare(&["tool:memory.read", "tool:memory.write"]).gaps(), []);
    assert_eq!(bare(&["tool:memory.read"]).gaps(), gaps(&[("missing-entitlement", "tool:memory.write")]));
}

#[test]
fn a_consent_is_there_holds_for_365_days_and_covers_what_is_asked_for() {
    let at = |ms: i64| case().declaring(|declared| declared.consent = Some(consent(UnixMs(NOW.0 + ms)))).gaps();
    let missing = case().declaring(|declared| declared.consent = None);
    assert_eq!(missing.gaps(), gaps(&[("consent-required", "consent")]));
    assert_eq!(
        case().with(|case| case.envelope = None).gaps().len(),
        3,
        "without an envelope there is no consent either"
    );
    assert_eq!(at(-365 * DAY), []);
    for old in [-365 * DAY - 1, -366 * DAY, -400 * DAY, i64::MIN / 2] {
        assert_eq!(at(old), gaps(&[("consent-required", "consent-7")]), "{old}");
    }
    let elsewhere = case().declaring(|declared| {
        declared.consent.as_mut().unwrap().data_scopes = vec![DataScope::TenantPublic];
    });
    assert_eq!(elsewhere.gaps(), gaps(&[("consent-scope-missing", "user.private")]));
    let nothing = case().declaring(|declared| declared.consent.as_mut().unwrap().data_scopes.clear());
    assert_eq!(nothing.gaps(), gaps(&[("consent-scope-missing", "user.private")]));
}

#[test]
fn a_consent_from_the_future_is_none_beyond_what_two_clocks_differ_by() {
    let ahead = |ms: i64| case().declaring(|declared| declared.consent = Some(consent(UnixMs(NOW.0 + ms)))).gaps();
    assert_eq!(ahead(60_000), []);
    for future in [60_001, DAY, i64::MAX - NOW.0] {
        assert_eq!(ahead(future), gaps(&[("consent-required", "consent-7")]), "{future}");
    }
}

#[test]
fn a_consent_that_is_stated_must_hold_where_none_is_asked_for_too() {
    let old = case().with(|case| case.tenant.consent_scopes.clear());
    let old = old.declaring(|declared| declared.consent = Some(consent(UnixMs(NOW.0 - 366 * DAY))));
    assert_eq!(old.gaps(), gaps(&[("consent-required", "consent-7")]));
}

#[test]
fn each_further_gap_has_its_code() {
    let sources = case().declaring(|declared| declared.source_set.push("dark".to_owned()));
    assert_eq!(sources.gaps(), gaps(&[("source-not-allowed", "dark")]));
    let tone = case().declaring(|declared| declared.tone = "sneering".to_owned());
    assert_eq!(tone.gaps(), gaps(&[("tone-not-allowed", "sneering")]));
    let persona = case().declaring(|declared| declared.persona = "somebody".to_owned());
    assert_eq!(persona.gaps(), gaps(&[("persona-not-allowed", "somebody")]));
    let mode = case().with(|case| case.mode = Mode::Exhaustive);
    assert!(mode.gaps().contains(&("mode-not-allowed", "exhaustive".to_owned())), "{:?}", mode.gaps());
    let retired = AgentRule { lifecycle: Some(AgentLifecycle::Retired), cost_class: None };
    let retired = case().with(|case| case.tenant.agents = BTreeMap::from([(case.root.clone(), retired)]));
    assert_eq!(retired.gaps(), gaps(&[("agent-not-invocable", "ref.course-generation")]));
    let checkpoints = case().with(|case| case.mode = Mode::Deep);
    assert_eq!(checkpoints.gaps(), gaps(&[("checkpoints-missing", "deep")]));
}

#[test]
fn a_plan_that_may_cost_more_than_its_agent_may_is_refused_at_the_bound_and_not_before() {
    let of = |reads: usize, class: AgentCostClass| {
        let steps = (0..reads).map(|n| json!({"stepId": format!("s{n}"), "kind": "tool", "toolId": "memory.read"}));
        case().with(|case| {
            case.plan = plan(steps.collect());
            case.mode = Mode::Balanced;
            let rule = AgentRule { lifecycle: None, cost_class: Some(class) };
            case.tenant.agents = BTreeMap::from([(case.root.clone(), rule)]);
        })
    };
    assert_eq!(estimate(&of(10, AgentCostClass::Micro).plan), Micros::units(10));
    assert_eq!(of(10, AgentCostClass::Micro).gaps(), []);
    let over = gaps(&[("cost-class-exceeded", "ref.course-generation")]);
    assert_eq!(of(11, AgentCostClass::Micro).gaps(), over);
    let bounds = AGENT_COST_CLASSES.map(AgentCostClass::bound);
    assert_eq!(bounds, [10, 50, 500, 5_000, 50_000].map(Micros::units));
}

#[test]
fn all_gaps_come_back_together_and_in_order() {
    let three = case().declaring(|declared| {
        declared.entitlements.retain(|scope| scope != "tool:memory.write");
        declared.tone = "sneering".to_owned();
        declared.consent = None;
    });
    let expected = [
        ("missing-entitlement", "tool:memory.write"),
        ("consent-required", "consent"),
        ("tone-not-allowed", "sneering"),
    ];
    assert_eq!(three.gaps(), gaps(&expected));
}

#[test]
fn a_mode_demands_its_checkpoints_and_a_gate_that_asks_nobody_is_none() {
    let gates = |asking: usize, idle: usize| {
        let gate = |n: usize, who: &str| json!({"stepId": format!("{who}{n}"), "kind": "approval", "requirement": who});
        let steps = (0..asking).map(|n| gate(n, "operator")).chain((0..idle).map(|n| gate(n, "none")));
        plan(steps.collect())
    };
    let lacks = |mode: Mode, plan: Plan| {
        let case = case().with(|case| {
            case.mode = mode;
            case.plan = plan;
            case.tier = InvocationTier::TenantOperator;
        });
        case.gaps().iter().any(|(code, _)| *code == "checkpoints-missing")
    };
    assert!(lacks(Mode::Deep, gates(0, 2)) && !lacks(Mode::Deep, gates(1, 0)));
    assert!(lacks(Mode::Exhaustive, gates(2, 5)) && !lacks(Mode::Exhaustive, gates(3, 0)));
    for free in [Mode::Fast, Mode::Balanced, Mode::RehearsalDryRun] {
        assert!(!lacks(free, gates(0, 1)), "{}", free.as_str());
    }
}

#[test]
fn a_mode_of_one_agent_refuses_every_handoff() {
    let hand = json!([
        {"stepId": "hand", "kind": "tool", "toolId": "handoff"},
        {"stepId": "gate", "kind": "approval"},
        {"stepId": "sub", "kind": "agent"},
    ]);
    let in_mode = |mode| {
        let case = case().with(|case| {
            case.mode = mode;
            case.plan = plan(hand.clone());
        });
        case.declaring(|declared| declared.entitlements = vec!["tool:handoff".to_owned()]).gaps()
    };
    let both = gaps(&[("mode-not-allowed", "hand"), ("mode-not-allowed", "sub")]);
    assert_eq!(in_mode(Mode::Fast), both);
    assert_eq!(in_mode(Mode::Balanced), both);
    assert_eq!(in_mode(Mode::Deep), []);
}

#[test]
fn a_tenant_may_allow_less_than_a_tier_has_and_never_more() {
    let only = |modes: &[Mode], tier| {
        case().with(|case| {
            case.tier = tier;
            case.tenant.modes = Some(modes.iter().copied().collect());
        })
    };
    let allowed = |case: Case| case.rules().modes.into_iter().map(Mode::as_str).collect::<Vec<_>>();
    assert_eq!(allowed(only(&[Mode::Fast], InvocationTier::TenantOperator)), ["fast"]);
    assert_eq!(allowed(only(&[Mode::Fast, Mode::Exhaustive], InvocationTier::Customer)), ["fast"]);
}

#[test]
fn a_pipeline_brings_its_mode_to_whoever_may_trigger_it() {
    let mut spec = weekly_briefing::spec().unwrap().clone();
    spec.total_budget_cap = Micros::units(5_001);
    let modes =
        |tier| rules_for(None, tier, Some(&spec), &agent("ref.research"), &reads(), &PinnedAgents::default()).modes;
    assert!(modes(InvocationTier::Creator).contains(&Mode::Exhaustive));
    assert!(!modes(InvocationTier::Customer).contains(&Mode::Exhaustive), "the pipeline is for creators");
}

#[test]
fn who_is_invocable_is_as_in_the_table_of_seven_states_and_four_ways() {
    use Invocable::{No, WithWarning, Yes};
    // direct, feedback routing, rehearsal, pinned by a pipeline
    let table = [
        (AgentLifecycle::Draft, [No, No, No, No]),
        (AgentLifecycle::Rehearsal, [No, No, Yes, No]),
        (AgentLifecycle::Shadow, [No, Yes, No, No]),
        (AgentLifecycle::Challenger, [No, Yes, No, No]),
        (AgentLifecycle::Champion, [Yes, Yes, Yes, Yes]),
        (AgentLifecycle::Deprecated, [No, No, No, WithWarning]),
        (AgentLifecycle::Retired, [No, No, No, No]),
    ];
    assert_eq!(table.map(|(state, _)| state), AgentLifecycle::ALL);
    for (state, row) in table {
        assert_eq!(AgentEntry::ALL.map(|way| invocable(state, way)), row, "{}", state.as_str());
        assert_eq!(AgentLifecycle::parse(state.as_str()), Some(state));
    }
}

#[test]
fn an_agent_in_rehearsal_is_invoked_in_a_rehearsal_alone() {
    let rule = AgentRule { lifecycle: Some(AgentLifecycle::Rehearsal), cost_class: None };
    let in_mode = |mode| {
        case().with(|case| {
            case.mode = mode;
            case.tenant.agents = BTreeMap::from([(case.root.clone(), rule)]);
        })
    };
    assert_eq!(in_mode(Mode::RehearsalDryRun).gaps(), []);
    assert_eq!(in_mode(Mode::Fast).gaps(), gaps(&[("agent-not-invocable", "ref.course-generation")]));
}

#[test]
fn cost_classes_and_data_scopes_are_closed_lists() {
    assert_eq!(AGENT_COST_CLASSES.map(AgentCostClass::as_str), ["micro", "small", "medium", "large", "flagship"]);
    for scope in DATA_SCOPES {
        assert_eq!(serde_json::to_value(scope).unwrap(), scope.as_str());
    }
    assert_eq!(DATA_SCOPES.len(), 8);
    assert_eq!(GapCode::ALL.len(), 10);
    for code in GapCode::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), code.code());
    }
}

fn read(invocation: Value) -> Result<(), String> {
    let body = json!({"rootAgentId": "ref.research", "plan": [{"stepId": "w", "kind": "wait", "seconds": 1}],
        "invocation": invocation});
    let submission = parse(body.to_string().as_bytes()).map_err(|error| error.code().to_owned())?;
    match submission.invocation.as_ref().and_then(InvocationEnvelope::problem) {
        Some((member, _)) => Err(member.to_owned()),
        None => Ok(()),
    }
}

fn whole() -> Value {
    serde_json::to_value(envelope()).unwrap()
}

fn but(member: &str, value: Value) -> Value {
    let mut invocation = whole();
    *invocation.pointer_mut(member).unwrap() = value;
    invocation
}

#[test]
fn an_envelope_states_all_of_its_members() {
    assert_eq!(read(whole()), Ok(()));
    for member in ["entitlements", "sourceSet", "tone", "persona", "consent"] {
        let mut part = whole();
        part.as_object_mut().unwrap().remove(member);
        assert_eq!(read(part), Err("json-invalid".to_owned()), "{member}");
    }
    for member in ["consentId", "subjectId", "textVersion", "acceptedAtUnixMs", "dataScopes"] {
        let mut part = whole();
        part["consent"].as_object_mut().unwrap().remove(member);
        assert_eq!(read(part), Err("json-invalid".to_owned()), "{member}");
    }
    assert_eq!(read(but("/consent", Value::Null)), Ok(()), "that there is none can be stated");
}

#[test]
fn every_wrong_value_of_an_envelope_is_refused() {
    let hostile = [
        ("/entitlements", json!("tool:memory.read")),
        ("/entitlements", json!({"length": 3})),
        ("/entitlements", json!([1])),
        ("/entitlements", json!([null])),
        ("/sourceSet", json!(null)),
        ("/tone", json!(["neutral"])),
        ("/tone", json!(null)),
        ("/persona", json!(7)),
        ("/consent", json!([])),
        ("/consent", json!(true)),
        ("/consent/dataScopes", json!(["user.everything"])),
        ("/consent/dataScopes", json!(["User.Private"])),
        ("/consent/dataScopes", json!(["__proto__"])),
        ("/consent/acceptedAtUnixMs", json!("yesterday")),
        ("/consent/acceptedAtUnixMs", json!(1.5)),
        ("/consent/acceptedAtUnixMs", json!(1e300)),
    ];
    for (member, value) in hostile {
        assert!(read(but(member, value.clone())).is_err(), "{member} {value}");
    }
    let mut unknown = whole();
    unknown["__proto__"] = json!({"entitlements": ["tool:code.exec"]});
    assert_eq!(read(unknown), Err("json-invalid".to_owned()));
    let mut unknown = whole();
    unknown["consent"]["constructor"] = json!({});
    assert_eq!(read(unknown), Err("json-invalid".to_owned()));
}

#[test]
fn names_are_short_plain_and_said_once() {
    let long = "x".repeat(201);
    for name in ["", "a\0b", "a\nb", "pay\u{202e}load", "zero\u{200b}width", &long] {
        assert_eq!(read(but("/tone", json!(name))), Err("invocation.tone".to_owned()), "{name:?}");
        assert_eq!(read(but("/entitlements", json!([name]))), Err("invocation.entitlements".to_owned()), "{name:?}");
        let subject = read(but("/consent/subjectId", json!(name)));
        assert_eq!(subject, Err("invocation.consent.subjectId".to_owned()), "{name:?}");
    }
    assert_eq!(read(but("/sourceSet", json!(["a", "a"]))), Err("invocation.sourceSet".to_owned()));
    let twice = json!(["user.private", "user.private"]);
    assert_eq!(read(but("/consent/dataScopes", twice)), Err("invocation.consent.dataScopes".to_owned()));
}

#[test]
fn lists_are_bounded() {
    let many = |count: usize| json!((0..count).map(|n| format!("e{n}")).collect::<Vec<_>>());
    assert_eq!(read(but("/entitlements", many(ENTITLEMENTS_MAX))), Ok(()));
    assert_eq!(read(but("/entitlements", many(ENTITLEMENTS_MAX + 1))), Err("invocation.entitlements".to_owned()));
    assert_eq!(read(but("/entitlements", many(50_000))), Err("invocation.entitlements".to_owned()));
    assert_eq!(read(but("/sourceSet", many(SOURCES_MAX + 1))), Err("invocation.sourceSet".to_owned()));
}

#[test]
fn a_key_that_stands_twice_is_refused() {
    let body = r#"{"rootAgentId":"ref.research","plan":[{"stepId":"w","kind":"wait","seconds":1}],"invocation":
        {"entitlements":[],"entitlements":["tool:code.exec"],"sourceSet":[],"tone":"n","persona":"p","consent":null}}"#;
    assert!(
        matches!(parse(body.as_bytes()), Err(SubmissionError::Json(error)) if error.code() == "json-duplicate-key")
    );
}

#[test]
fn a_name_that_looks_like_a_secret_is_refused_and_not_repeated() {
    let secret = concat!("ghp_", "abcdefghijklmnopqrstuvwxyz0123456789");
    let mut invocation = envelope();
    invocation.source_set = vec![secret.to_owned()];
    let (member, problem) = invocation.problem().unwrap();
    assert_eq!(member, "invocation.sourceSet");
    assert!(!problem.contains(secret), "{problem}");
}

#[test]
fn a_consent_is_kept_by_its_id_alone() {
    let kept = serde_json::to_string(&envelope().stored()).unwrap();
    assert!(kept.contains("consent-7") && !kept.contains("subject-9") && !kept.contains("user.private"), "{kept}");
}

proptest! {
    #[test]
    fn a_preflight_never_panics_and_gives_equal_answers_to_equal_questions(
        entitlements in prop::collection::vec(".{0,8}", 0..20),
        tone in ".{0,8}",
        at in any::<i64>(),
    ) {
        let case = case().declaring(|declared| {
            declared.entitlements = entitlements;
            declared.tone = tone;
            declared.consent = Some(consent(UnixMs(at)));
        });
        prop_assert_eq!(case.gaps(), case.gaps());
    }
}
