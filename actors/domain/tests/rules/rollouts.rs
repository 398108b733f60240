//! Rollouts: who gets which version, what counts, and what it takes to become champion (FBK).

use proptest::prelude::*;
use signalbox_domain::feedback::outcome::{
    FEEDBACK_WINDOW_MS, FeedbackDenial, FeedbackKind, OutcomeGroup, check_feedback, tally, task_success,
};
use signalbox_domain::feedback::readiness::{ReadinessVerdict, evaluate_readiness};
use signalbox_domain::feedback::rollout::{
    OnRollout, ROLLOUT_TRANSITIONS, Rollout, RolloutDenial, RolloutMode, RolloutState, RolloutTransition, StartRollout,
    Succession, end, freeze, may_see, promote, rollback, start, unfreeze,
};
use signalbox_domain::feedback::routing::{RolloutArm, Routed, place_of, route_invocation};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::switching::Operator;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, AgentId, RolloutId, TenantId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::AgentLifecycle;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;

const NOW: UnixMs = UnixMs(1_000_000);

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn actor(name: &str, role: Role) -> Actor {
    Actor { actor_id: ActorId::new(name).unwrap(), role }
}

fn research() -> AgentId {
    AgentId::new("ref.research").unwrap()
}

fn wish() -> StartRollout {
    StartRollout {
        rollout_id: RolloutId::new("r").unwrap(),
        tenant_id: None,
        agent_id: research(),
        champion_semver: "1.0.0".to_owned(),
        challenger_semver: "1.1.0".to_owned(),
        mode: RolloutMode::Canary,
        canary_fraction: Micros(100_000),
        reason: "it reads better".to_owned(),
    }
}

fn stands(_: &AgentId, semver: &str) -> Option<AgentLifecycle> {
    match semver {
        "1.0.0" => Some(AgentLifecycle::Champion),
        "1.1.0" => Some(AgentLifecycle::Challenger),
        "1.2.0" => Some(AgentLifecycle::Shadow),
        "0.9.0" => Some(AgentLifecycle::Deprecated),
        _ => None,
    }
}

fn started_by(role: Role, of: &str, wish: StartRollout, known: &[Rollout]) -> Result<Rollout, RolloutDenial> {
    let (tenant, actor) = (tenant(of), actor("ada", role));
    start(wish, Operator { tenant_id: &tenant, actor: &actor }, known, stands, NOW)
}

fn begun(wish: StartRollout) -> Result<Rollout, RolloutDenial> {
    started_by(Role::PlatformOperator, "platform", wish, &[])
}

fn live() -> Rollout {
    begun(wish()).unwrap()
}

fn on<T>(rollout: &Rollout, expected: Expected, act: impl Fn(OnRollout<'_>) -> T) -> T {
    let (tenant, actor) = (tenant("platform"), actor("ada", Role::PlatformOperator));
    let by = Operator { tenant_id: &tenant, actor: &actor };
    act(OnRollout { rollout, revision: 7, expected, by, reason: "because", now: UnixMs(2_000_000) })
}

fn arm_of(rollout: &Rollout, of: &str, user: &str) -> Option<RolloutArm> {
    let (tenant, user) = (tenant(of), ActorId::new(user).unwrap());
    let invocation = Routed { tenant_id: &tenant, user_id: &user, agent_id: &research() };
    route_invocation(std::slice::from_ref(rollout), invocation).map(|route| route.answers)
}

#[test]
fn a_rollout_begins_live_as_it_was_asked_for() {
    let rollout = live();
    assert_eq!((rollout.state, rollout.prior_champion.as_deref()), (RolloutState::Live, None));
    assert_eq!(
        (rollout.semver_of(RolloutArm::Champion), rollout.semver_of(RolloutArm::Challenger)),
        ("1.0.0", "1.1.0")
    );
    assert_eq!((rollout.started_by.as_str(), rollout.started_at_unix_ms), ("ada", NOW));
    let json = serde_json::to_value(&rollout).unwrap();
    assert_eq!(
        (&json["canaryFraction"], &json["mode"], &json["state"]),
        (&0.1.into(), &"canary".into(), &"live".into())
    );
    assert_eq!(serde_json::from_value::<Rollout>(json).unwrap(), rollout);
}

#[test]
fn every_senseless_wish_is_refused_by_its_code() {
    let code = |change: fn(&mut StartRollout)| {
        let mut wish = wish();
        change(&mut wish);
        begun(wish).err().map(|denial| denial.code())
    };
    assert_eq!(code(|_| ()), None);
    assert_eq!(code(|w| w.canary_fraction = Micros(500_000)), None);
    assert_eq!(code(|w| w.canary_fraction = Micros::ZERO), None);
    assert_eq!(code(|w| w.canary_fraction = Micros(500_001)), Some("canary-fraction-invalid"));
    assert_eq!(code(|w| w.canary_fraction = Micros(510_000)), Some("canary-fraction-invalid"));
    assert_eq!(code(|w| w.canary_fraction = Micros(-1)), Some("canary-fraction-invalid"));
    assert_eq!(code(|w| w.canary_fraction = Micros(i64::MAX)), Some("canary-fraction-invalid"));
    assert_eq!(code(|w| w.mode = RolloutMode::Shadow), Some("canary-fraction-invalid"));
    assert_eq!(code(|w| w.challenger_semver = "1.0.0".into()), Some("rollout-same-arms"));
    assert_eq!(code(|w| w.challenger_semver = "9.9.9".into()), Some("agent-version-unknown"));
    assert_eq!(code(|w| w.champion_semver = "9.9.9".into()), Some("agent-version-unknown"));
    assert_eq!(code(|w| w.champion_semver = "0.9.0".into()), Some("rollout-lifecycle-mismatch"));
    assert_eq!(code(|w| w.challenger_semver = "1.2.0".into()), Some("rollout-lifecycle-mismatch"));
    assert_eq!(code(|w| w.challenger_semver = "0.9.0".into()), Some("rollout-lifecycle-mismatch"));
    assert_eq!(code(|w| w.reason = " ".into()), Some("reason-required"));
    assert_eq!(code(|w| w.reason = "x".repeat(100_000)), Some("reason-required"));
}

#[test]
fn a_version_in_shadow_can_be_tried_in_shadow_alone() {
    let shadow = StartRollout { mode: RolloutMode::Shadow, canary_fraction: Micros::ZERO, ..wish() };
    for challenger in ["1.1.0", "1.2.0"] {
        assert!(begun(StartRollout { challenger_semver: challenger.to_owned(), ..shadow.clone() }).is_ok());
    }
}

#[test]
fn an_agent_is_tried_once_at_a_time() {
    let other = |id: &str| StartRollout { rollout_id: RolloutId::new(id).unwrap(), ..wish() };
    let again = |known: &Rollout, wish| {
        started_by(Role::PlatformOperator, "platform", wish, std::slice::from_ref(known)).err().map(|d| d.code())
    };
    assert_eq!(again(&live(), wish()), Some("rollout-id-conflict"));
    assert_eq!(again(&live(), other("s")), Some("rollout-exists"));
    let frozen = Rollout { state: RolloutState::Frozen, ..live() };
    assert_eq!(again(&frozen, other("s")), Some("rollout-exists"));
    let acme = Rollout { tenant_id: Some(tenant("acme")), ..live() };
    assert_eq!(again(&acme, other("s")), Some("rollout-exists"), "one for everybody meets one for somebody");
    assert_eq!(again(&acme, StartRollout { tenant_id: Some(tenant("globex")), ..other("s") }), None);
    for over in [RolloutState::Promoted, RolloutState::RolledBack, RolloutState::Ended] {
        assert_eq!(again(&Rollout { state: over, ..live() }, other("s")), None, "{}", over.as_str());
    }
}

#[test]
fn rollouts_are_for_operators_within_their_reach() {
    let own = StartRollout { tenant_id: Some(tenant("acme")), ..wish() };
    for role in [Role::Customer, Role::Creator, Role::Service] {
        assert_eq!(started_by(role, "acme", own.clone(), &[]).unwrap_err().code(), "not-authorized");
    }
    assert!(started_by(Role::TenantOperator, "acme", own.clone(), &[]).is_ok());
    assert_eq!(started_by(Role::TenantOperator, "globex", own.clone(), &[]).unwrap_err().code(), "not-authorized");
    assert_eq!(started_by(Role::TenantOperator, "acme", wish(), &[]).unwrap_err().code(), "not-authorized");
    let rollout = begun(own).unwrap();
    let sees = |role, of: &str| {
        let (tenant, actor) = (tenant(of), actor("otto", role));
        may_see(Operator { tenant_id: &tenant, actor: &actor }, &rollout)
    };
    assert!(sees(Role::TenantOperator, "acme") && sees(Role::PlatformOperator, "platform"));
    assert!(!sees(Role::TenantOperator, "globex") && !sees(Role::Service, "acme"));
}

#[test]
fn there_are_three_transitions_by_these_names() {
    let names: Vec<&str> = ROLLOUT_TRANSITIONS.iter().map(|transition| transition.as_str()).collect();
    assert_eq!(names, ["promote-challenger-to-champion", "freeze-rollout", "rollback-to-prior-champion"]);
    assert!(ROLLOUT_TRANSITIONS.into_iter().all(|t| RolloutTransition::parse(t.as_str()) == Some(t)));
    assert_eq!(RolloutTransition::parse("unfreeze"), None);
}

#[test]
fn only_a_challenger_that_is_ready_becomes_champion() {
    for verdict in
        [ReadinessVerdict::NotEnoughSamples, ReadinessVerdict::Inconclusive, ReadinessVerdict::ChallengerWorse]
    {
        let denied = on(&live(), Expected::Any, |act| promote(act, verdict)).unwrap_err();
        assert_eq!((denied.code(), denied.clone()), ("readiness-required", RolloutDenial::ReadinessRequired(verdict)));
    }
    let (promoted, succession) =
        on(&live(), Expected::Any, |act| promote(act, ReadinessVerdict::ChallengerReady)).unwrap();
    assert_eq!((promoted.state, promoted.prior_champion.as_deref()), (RolloutState::Promoted, Some("1.0.0")));
    assert_eq!(succession, Succession { champion: "1.1.0".to_owned(), deprecated: "1.0.0".to_owned() });
    let again = on(&promoted, Expected::Any, |act| promote(act, ReadinessVerdict::ChallengerReady)).unwrap_err();
    assert_eq!(again.code(), "rollout-state-invalid");
}

#[test]
fn a_frozen_rollout_sends_everybody_to_the_champion_and_promotes_nothing() {
    let whole = Rollout { canary_fraction: Micros(500_000), ..live() };
    let chosen: Vec<String> = (0..100)
        .map(|n| format!("user-{n}"))
        .filter(|user| arm_of(&whole, "acme", user) == Some(RolloutArm::Challenger))
        .collect();
    assert!(chosen.len() > 20, "{}", chosen.len());
    let frozen = on(&whole, Expected::Any, freeze).unwrap();
    assert!(chosen.iter().all(|user| arm_of(&frozen, "acme", user).is_none()));
    let promoted = on(&frozen, Expected::Any, |act| promote(act, ReadinessVerdict::ChallengerReady));
    assert_eq!(promoted.unwrap_err().code(), "rollout-frozen");
    assert_eq!(on(&frozen, Expected::Any, freeze).unwrap_err().code(), "rollout-frozen");
    let on_again = on(&frozen, Expected::Any, unfreeze).unwrap();
    assert_eq!(on_again.state, RolloutState::Live);
    assert!(
        chosen.iter().all(|user| arm_of(&on_again, "acme", user) == Some(RolloutArm::Challenger)),
        "the same users"
    );
    assert_eq!(on(&on_again, Expected::Any, unfreeze).unwrap_err().code(), "rollout-state-invalid");
}

#[test]
fn the_way_back_needs_a_prior_champion() {
    assert_eq!(on(&live(), Expected::Any, rollback).unwrap_err().code(), "no-prior-champion");
    let frozen = on(&live(), Expected::Any, freeze).unwrap();
    assert_eq!(on(&frozen, Expected::Any, rollback).unwrap_err().code(), "no-prior-champion");
    let (promoted, _) = on(&live(), Expected::Any, |act| promote(act, ReadinessVerdict::ChallengerReady)).unwrap();
    let frozen = on(&promoted, Expected::Any, freeze).unwrap();
    for from in [&promoted, &frozen] {
        let (back, succession) = on(from, Expected::Any, rollback).unwrap();
        assert_eq!(back.state, RolloutState::RolledBack);
        assert_eq!(succession, Succession { champion: "1.0.0".to_owned(), deprecated: "1.1.0".to_owned() });
        assert_eq!(on(&back, Expected::Any, rollback).unwrap_err().code(), "rollout-state-invalid");
    }
    assert_eq!(on(&frozen, Expected::Any, unfreeze).unwrap().state, RolloutState::Promoted);
}

#[test]
fn a_rollout_that_promoted_nothing_can_be_given_up() {
    let frozen = on(&live(), Expected::Any, freeze).unwrap();
    for from in [&live(), &frozen] {
        assert_eq!(on(from, Expected::Any, end).unwrap().state, RolloutState::Ended);
    }
    let (promoted, _) = on(&live(), Expected::Any, |act| promote(act, ReadinessVerdict::ChallengerReady)).unwrap();
    assert_eq!(on(&promoted, Expected::Any, end).unwrap_err().code(), "rollout-state-invalid");
}

#[test]
fn whoever_has_seen_an_older_revision_is_told_so() {
    let stale = on(&live(), Expected::Revision(6), freeze).unwrap_err();
    assert_eq!((stale.code(), stale), ("stale-revision", RolloutDenial::StaleRevision { expected: 6, actual: 7 }));
    assert!(on(&live(), Expected::Revision(7), freeze).is_ok());
}

#[test]
fn the_place_of_a_user_is_the_same_for_ever() {
    let place = |rollout: &str, of: &str, user: &str| {
        place_of(&RolloutId::new(rollout).unwrap(), &tenant(of), &ActorId::new(user).unwrap())
    };
    assert_eq!(place("r", "acme", "ulla"), PLACE_OF_ULLA);
    // The lengths in front tell these apart.
    assert_ne!(place("ab", "c", "d"), place("a", "bc", "d"));
    assert_ne!(place("a", "bc", "d"), place("a", "b", "cd"));
}

/// The first eight bytes of SHA-256 over `r`, `acme`, `ulla`, each behind its length in eight bytes.
const PLACE_OF_ULLA: u64 = 0x875e_ceba_e53a_0fd1;

#[test]
fn the_share_of_a_canary_is_kept_within_three_sigma() {
    for millionths in [0, 10_000, 100_000, 500_000] {
        let rollout = Rollout { canary_fraction: Micros(millionths), ..live() };
        let users = 10_000_u32;
        let chosen = (0..users)
            .filter(|n| arm_of(&rollout, "acme", &format!("user-{n}")) == Some(RolloutArm::Challenger))
            .count();
        let share = millionths as f64 / 1e6;
        let sigma = (f64::from(users) * share * (1.0 - share)).sqrt();
        let off = (chosen as f64 - f64::from(users) * share).abs();
        assert!(off <= 3.0 * sigma, "{chosen} of {users} at {share}");
    }
}

#[test]
fn in_a_shadow_rollout_the_champion_answers_everybody() {
    let rollout = begun(StartRollout { mode: RolloutMode::Shadow, canary_fraction: Micros::ZERO, ..wish() }).unwrap();
    for n in 0..1_000 {
        let (tenant, user) = (tenant("acme"), ActorId::new(format!("user-{n}")).unwrap());
        let invocation = Routed { tenant_id: &tenant, user_id: &user, agent_id: &research() };
        let route = route_invocation(std::slice::from_ref(&rollout), invocation).unwrap();
        assert_eq!((route.answers, route.shadowed), (RolloutArm::Champion, true));
    }
}

#[test]
fn a_rollout_has_no_say_in_other_agents_and_tenants() {
    let rollout = Rollout { tenant_id: Some(tenant("acme")), ..live() };
    assert!(arm_of(&rollout, "acme", "ulla").is_some());
    assert_eq!(arm_of(&rollout, "globex", "ulla"), None);
    let other = Rollout { agent_id: AgentId::new("ref.editing").unwrap(), ..live() };
    assert_eq!(arm_of(&other, "acme", "ulla"), None);
}

proptest! {
    #[test]
    fn whoever_is_chosen_stays_chosen_when_the_share_grows(user in "[a-z]{1,12}", low in 0_i64..=500_000, more in 0_i64..=500_000) {
        let high = (low + more).min(500_000);
        let arm = |fraction| arm_of(&Rollout { canary_fraction: Micros(fraction), ..live() }, "acme", &user);
        prop_assert_eq!(arm(low), arm(low));
        if arm(low) == Some(RolloutArm::Challenger) {
            prop_assert_eq!(arm(high), Some(RolloutArm::Challenger));
        }
    }
}

#[test]
fn success_is_completed_good_enough_and_not_complained_about() {
    let table = [
        (true, true, false, true),
        (true, true, true, false),
        (true, false, false, false),
        (true, false, true, false),
        (false, true, false, false),
        (false, true, true, false),
        (false, false, false, false),
        (false, false, true, false),
    ];
    for (completed, meets, negative, success) in table {
        let statuses = if completed {
            vec![RunStatus::Completed]
        } else {
            RunStatus::ALL.into_iter().filter(|status| *status != RunStatus::Completed).collect()
        };
        for status in statuses {
            assert_eq!(task_success(status, meets, negative), success, "{status:?} {meets} {negative}");
        }
    }
}

#[test]
fn outcomes_add_up_by_arm() {
    let group = |arm, status, runs| OutcomeGroup {
        arm,
        status,
        meets_bar: true,
        has_negative_feedback: false,
        runs,
        still_open: 1,
    };
    let groups = [
        group(RolloutArm::Champion, RunStatus::Completed, 80),
        group(RolloutArm::Champion, RunStatus::Failed, 20),
        group(RolloutArm::Challenger, RunStatus::Completed, 92),
        OutcomeGroup { has_negative_feedback: true, ..group(RolloutArm::Challenger, RunStatus::Completed, 3) },
        OutcomeGroup { meets_bar: false, ..group(RolloutArm::Challenger, RunStatus::Completed, 5) },
        group(RolloutArm::Challenger, RunStatus::Running, 50),
    ];
    let tallies = tally(&groups);
    assert_eq!((tallies.champion.successes, tallies.champion.n, tallies.champion.still_open), (80, 100, 2));
    assert_eq!((tallies.challenger.successes, tallies.challenger.n), (92, 100));
    let readiness = evaluate_readiness(tallies.champion.arm(), tallies.challenger.arm()).unwrap();
    assert_eq!(readiness.verdict, ReadinessVerdict::ChallengerReady);
    assert_eq!(tally(&[]).champion.n, 0);
}

#[test]
fn feedback_is_taken_from_the_end_of_a_run_for_a_day() {
    let ended = Some(NOW);
    let says = |role, kind, score, ended, at: i64| {
        check_feedback(&actor("ulla", role), kind, score, ended, NOW.plus_ms(at)).map_err(|denial| denial.code())
    };
    let (customer, service) = (Role::Customer, Role::Service);
    assert_eq!(says(customer, FeedbackKind::Negative, None, ended, 0), Ok(()));
    assert_eq!(says(customer, FeedbackKind::Positive, None, ended, FEEDBACK_WINDOW_MS), Ok(()));
    assert_eq!(says(customer, FeedbackKind::Negative, None, ended, FEEDBACK_WINDOW_MS + 1), Err("feedback-too-late"));
    assert_eq!(says(customer, FeedbackKind::Negative, None, None, 0), Err("run-not-finished"));
    assert_eq!(says(customer, FeedbackKind::Evaluation, Some(Micros(1)), ended, 0), Err("not-authorized"));
    assert_eq!(says(service, FeedbackKind::Evaluation, Some(Micros(700_000)), ended, 0), Ok(()));
    for (kind, score) in [
        (FeedbackKind::Evaluation, None),
        (FeedbackKind::Evaluation, Some(Micros(-1))),
        (FeedbackKind::Evaluation, Some(Micros(1_000_001))),
        (FeedbackKind::Negative, Some(Micros(1))),
    ] {
        assert_eq!(says(service, kind, score, ended, 0), Err(FeedbackDenial::BadScore.code()));
    }
}
