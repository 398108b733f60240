//! Modes (MOD): the constants, compliance, overrides, and who may choose which.

use std::collections::BTreeSet;

use signalbox_domain::identity::Role;
use signalbox_domain::mode::{
    COST_QUALITY_MODES, ComplianceBreach, InvocationTier, Mode, ModeBounds, ModeCompliance, ModeOverride, ModeSample,
    P95_RUNS, allowed_modes, apply_override, check_mode_compliance, compliance_of_series, p95_nearest_rank,
};
use signalbox_domain::quantity::Micros;

fn columns(mode: Mode) -> (Micros, u64, Micros, bool, usize, bool) {
    let meta = mode.meta();
    assert_eq!(meta.mode, mode);
    (
        meta.max_cost_units,
        meta.p95_latency_budget_ms,
        meta.min_evaluation_score,
        meta.multi_agent,
        meta.human_checkpoint_count,
        meta.has_external_side_effects,
    )
}

#[test]
fn the_five_modes_are_as_the_requirements_have_them() {
    let units = Micros::units;
    assert_eq!(columns(Mode::Fast), (units(50), 1_500, Micros(600_000), false, 0, true));
    assert_eq!(columns(Mode::Balanced), (units(500), 10_000, Micros(700_000), false, 0, true));
    assert_eq!(columns(Mode::Deep), (units(5_000), 120_000, Micros(800_000), true, 1, true));
    assert_eq!(columns(Mode::Exhaustive), (units(50_000), 1_800_000, Micros(850_000), true, 3, true));
    assert_eq!(columns(Mode::RehearsalDryRun), (units(1_000), 60_000, Micros::ZERO, true, 0, false));
}

#[test]
fn there_are_five_modes_and_each_reads_back_from_its_name() {
    assert_eq!(Mode::ALL.map(Mode::as_str), COST_QUALITY_MODES);
    for mode in Mode::ALL {
        assert_eq!(Mode::parse(mode.as_str()), Some(mode));
        assert_eq!(serde_json::to_value(mode).unwrap(), mode.as_str());
    }
    for other in ["", "Fast", "FAST", "fast ", "rehearsal", "rehearsal_dry_run", "__proto__", "constructor", "fast\0"] {
        assert_eq!(Mode::parse(other), None, "{other:?}");
    }
}

fn breaches(cost: Micros, latencies: &[u64], score: Option<Micros>) -> Vec<&'static str> {
    let bounds = ModeBounds::from(Mode::Balanced.meta());
    let sample = ModeSample { cost_units: cost, latencies_ms: latencies, evaluation_score: score };
    check_mode_compliance(&bounds, &sample).into_iter().map(ComplianceBreach::code).collect()
}

#[test]
fn a_value_equal_to_its_bound_complies_and_one_beyond_it_is_its_own_breach() {
    let (cost, score) = (Micros::units(500), Some(Micros(700_000)));
    assert_eq!(breaches(cost, &[10_000], score), [""; 0]);
    assert_eq!(breaches(Micros(cost.0 + 1), &[10_000], score), ["cost-exceeded"]);
    assert_eq!(breaches(cost, &[10_001], score), ["latency-exceeded"]);
    assert_eq!(breaches(cost, &[10_000], Some(Micros(699_999))), ["evaluation-below-bar"]);
    let all = ["cost-exceeded", "latency-exceeded", "evaluation-below-bar"];
    assert_eq!(breaches(Micros::units(501), &[u64::MAX], Some(Micros::ZERO)), all);
}

#[test]
fn what_was_not_measured_is_no_breach() {
    assert_eq!(breaches(Micros::ZERO, &[], None), [""; 0]);
}

#[test]
fn the_95th_percentile_is_the_nearest_rank_of_the_last_hundred() {
    assert_eq!(p95_nearest_rank(&[]), None);
    assert_eq!(p95_nearest_rank(&[7]), Some(7));
    assert_eq!(p95_nearest_rank(&[9, 1]), Some(9));
    // 19 of 20 is exactly 95 of 100.
    let twenty: Vec<u64> = (1..=20).rev().collect();
    assert_eq!(p95_nearest_rank(&twenty), Some(19));
    let hundred: Vec<u64> = (1..=100).collect();
    assert_eq!(p95_nearest_rank(&hundred), Some(95));
    // Only the last hundred count: what was slow before that is forgotten.
    let mut more = vec![1_000_000; 50];
    more.extend(&hundred);
    assert_eq!((more.len() > P95_RUNS, p95_nearest_rank(&more)), (true, Some(95)));
}

fn all() -> BTreeSet<Mode> {
    BTreeSet::from(Mode::ALL)
}

fn code(mode: Mode, wanted: &ModeOverride, allowed: &BTreeSet<Mode>) -> Result<ModeBounds, &'static str> {
    apply_override(mode, wanted, allowed, true).map_err(|rejected| rejected.code())
}

#[test]
fn an_override_only_tightens() {
    let cost = |units| ModeOverride { max_cost_units: Some(units), ..ModeOverride::default() };
    let tighter = code(Mode::Balanced, &cost(Micros::units(400)), &all()).unwrap();
    assert_eq!(tighter.max_cost_units, Micros::units(400));
    assert!(code(Mode::Balanced, &cost(Micros::units(500)), &all()).is_ok());
    for raised in [Micros::units(501), Micros(500_000_001), Micros(i64::MAX), Micros(-1)] {
        assert_eq!(code(Mode::Balanced, &cost(raised), &all()), Err("cost-raise-rejected"), "{raised}");
    }
    let latency = |ms| ModeOverride { p95_latency_budget_ms: Some(ms), ..ModeOverride::default() };
    assert!(code(Mode::Fast, &latency(1_500), &all()).is_ok());
    assert_eq!(code(Mode::Fast, &latency(1_501), &all()), Err("latency-raise-rejected"));
    let score = |score| ModeOverride { min_evaluation_score: Some(Micros(score)), ..ModeOverride::default() };
    assert!(code(Mode::Deep, &score(800_000), &all()).is_ok());
    assert!(code(Mode::Deep, &score(1_000_000), &all()).is_ok());
    for beyond in [799_999, 0, -1, 1_000_001] {
        assert_eq!(code(Mode::Deep, &score(beyond), &all()), Err("score-lower-rejected"), "{beyond}");
    }
}

#[test]
fn an_override_cannot_leave_the_list_of_modes() {
    let only = BTreeSet::from([Mode::Fast, Mode::Balanced]);
    let to = |mode| ModeOverride { mode: Some(mode), ..ModeOverride::default() };
    assert!(code(Mode::Balanced, &to(Mode::Fast), &only).is_ok());
    assert_eq!(code(Mode::Balanced, &to(Mode::Deep), &only), Err("mode-not-allowed"));
    assert_eq!(code(Mode::Deep, &ModeOverride::default(), &only), Err("mode-not-allowed"));
    assert_eq!(code(Mode::Fast, &ModeOverride::default(), &BTreeSet::new()), Err("mode-not-allowed"));
}

#[test]
fn where_loosening_is_let_be_a_figure_may_rise_but_not_make_nonsense() {
    let wanted = ModeOverride { max_cost_units: Some(Micros::units(501)), ..ModeOverride::default() };
    assert!(apply_override(Mode::Balanced, &wanted, &all(), false).is_ok());
    let negative = ModeOverride { max_cost_units: Some(Micros(-1)), ..ModeOverride::default() };
    assert!(apply_override(Mode::Balanced, &negative, &all(), false).is_err());
}

#[test]
fn each_tier_may_choose_the_modes_of_the_matrix() {
    // fast, balanced, deep, exhaustive, rehearsal-dry-run
    let matrix = [
        (InvocationTier::Customer, [true, true, true, false, false]),
        (InvocationTier::Creator, [true, true, true, false, true]),
        (InvocationTier::TenantOperator, [true, true, true, true, true]),
        (InvocationTier::PlatformOperator, [true, true, true, true, true]),
    ];
    for (tier, row) in matrix {
        assert_eq!(Mode::ALL.map(|mode| allowed_modes(tier).contains(&mode)), row, "{}", tier.as_str());
    }
}

#[test]
fn each_role_has_one_tier() {
    let tiers = [Role::Customer, Role::Creator, Role::Service, Role::TenantOperator, Role::PlatformOperator]
        .map(|role| InvocationTier::of(role).as_str());
    assert_eq!(tiers, ["customer", "creator", "creator", "tenant-operator", "platform-operator"]);
}

fn kept(latency_ms: u64, cost: i64) -> ModeCompliance {
    let meta = Mode::Fast.meta();
    ModeCompliance {
        mode: Mode::Fast,
        cost_units: Micros::units(cost),
        max_cost_units: meta.max_cost_units,
        latency_ms,
        p95_latency_budget_ms: meta.p95_latency_budget_ms,
        breaches: Vec::new(),
    }
}

#[test]
fn the_last_hundred_runs_are_held_against_their_mode_together() {
    let none = compliance_of_series(Mode::Fast, &[]);
    assert_eq!((none.runs, none.p95_latency_ms, none.breaches), (0, None, Vec::new()));
    // Five of a hundred may be slow, a sixth may not; what lies before the last hundred counts no more.
    let series = |slow: usize, early: usize| -> Vec<ModeCompliance> {
        let early = std::iter::repeat_n(kept(9_000, 900), early);
        let slow_ones = std::iter::repeat_n(kept(1_501, 1), slow);
        early.chain(slow_ones).chain(std::iter::repeat_n(kept(1_500, 50), 100 - slow)).collect()
    };
    let five = compliance_of_series(Mode::Fast, &series(5, 40));
    assert_eq!((five.runs, five.p95_latency_ms, five.breaches), (100, Some(1_500), Vec::new()));
    let six = compliance_of_series(Mode::Fast, &series(6, 40));
    assert_eq!((six.p95_latency_ms, six.breaches), (Some(1_501), vec![ComplianceBreach::LatencyExceeded]));
    let dear = compliance_of_series(Mode::Fast, &[kept(1, 51), kept(1, 1)]);
    assert_eq!((dear.cost_units, dear.breaches), (Micros::units(51), vec![ComplianceBreach::CostExceeded]));
}
