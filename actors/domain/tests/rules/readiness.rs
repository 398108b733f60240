//! Champion against challenger (FBK-001 to FBK-006).

use proptest::prelude::*;
use signalbox_domain::feedback::readiness::{Arm, ReadinessVerdict, evaluate_readiness, normal_sf};

use ReadinessVerdict::{ChallengerReady, ChallengerWorse, Inconclusive, NotEnoughSamples};

fn arm(successes: u64, n: u64) -> Arm {
    Arm { successes, n }
}

/// Id, champion, challenger, z and p as an exact normal distribution gives them, verdict.
type Row = (&'static str, (u64, u64), (u64, u64), f64, f64, ReadinessVerdict);

const TABLE: [Row; 18] = [
    ("ZT-002", (50, 100), (98, 99), 7.914_705_026_547_834, 2.478e-15, NotEnoughSamples),
    ("ZT-007", (99, 99), (100, 100), 0.0, 1.0, NotEnoughSamples),
    ("ZT-008", (50, 100), (64, 100), 1.999_591_961_640_148_3, 0.045_544_342_649, ChallengerReady),
    ("ZT-014", (0, 100), (0, 100), 0.0, 1.0, Inconclusive),
    ("ZT-015", (100, 100), (0, 100), -14.142_135_623_730_951, 2.088e-45, ChallengerWorse),
    ("ZT-016", (0, 100), (100, 100), 14.142_135_623_730_951, 2.088e-45, ChallengerReady),
    ("ZT-018", (95, 100), (100, 100), 2.264_554_068_289_192_5, 0.023_540_058_261, ChallengerReady),
    ("ZT-019", (96, 100), (100, 100), 2.020_305_089_104_422_5, 0.043_351_751_260, ChallengerReady),
    ("ZT-020", (97, 100), (100, 100), 1.745_189_181_489_451_1, 0.080_951_943_777, Inconclusive),
    ("ZT-021", (900, 1_000), (95, 100), 1.622_408_290_893_327_7, 0.104_715_955_114, Inconclusive),
    ("ZT-022", (900, 1_000), (96, 100), 1.955_245_315_726_643_6, 0.050_554_122_232, Inconclusive),
    ("ZT-024", (9_000, 10_000), (95, 100), 1.662_058_511_219_497_2, 0.096_501_043_228, Inconclusive),
    ("ZT-027", (500_000, 1_000_000), (501_000, 1_000_000), 1.414_214_269_480_407_8, 0.157_298_999_496, Inconclusive),
    ("ZT-028", (500_000, 1_000_000), (501_400, 1_000_000), 1.979_900_927_626_132, 0.047_714_662_169, ChallengerReady),
    ("ZT-030", (999_999, 1_000_000), (999_990, 1_000_000), -2.713_609_563_616_108, 0.006_655_455_575, ChallengerWorse),
    ("ZT-032", (600, 1_000), (900, 1_000), 15.491_933_384_829_67, 3.932e-54, ChallengerReady),
    ("ZT-036", (406, 500), (429, 500), 1.959_488_081_155_976_3, 0.050_055_654_362, Inconclusive),
    ("ZT-038", (134, 200), (115, 200), -1.959_726_428_256_849_2, 0.050_027_774_452, Inconclusive),
];

#[test]
fn the_table_of_comparisons_holds() {
    for (id, champion, challenger, z, p, verdict) in TABLE {
        let found = evaluate_readiness(arm(champion.0, champion.1), arm(challenger.0, challenger.1)).unwrap();
        assert_eq!(found.verdict, verdict, "{id}");
        assert!((found.z.unwrap() - z).abs() < 1e-9, "{id}: z {:?}", found.z);
        // Twice the error of the approximation.
        assert!((found.p.unwrap() - p).abs() < 1.5e-7, "{id}: p {:?}", found.p);
    }
}

#[test]
fn no_samples_at_all_are_not_enough_and_divide_by_nothing() {
    let found = evaluate_readiness(arm(0, 0), arm(0, 0)).unwrap();
    assert_eq!((found.verdict, found.z, found.p), (NotEnoughSamples, None, None));
}

#[test]
fn each_arm_needs_a_hundred_samples() {
    for (n, verdict) in [(99, NotEnoughSamples), (100, ChallengerReady)] {
        assert_eq!(evaluate_readiness(arm(0, 1_000), arm(n, n)).unwrap().verdict, verdict);
        let swapped = evaluate_readiness(arm(0, n), arm(1_000, 1_000)).unwrap();
        assert_eq!(swapped.verdict, verdict);
    }
}

#[test]
fn eighty_against_ninety_of_a_hundred_is_a_z_of_1_9803() {
    let z = evaluate_readiness(arm(80, 100), arm(90, 100)).unwrap().z.unwrap();
    assert_eq!(format!("{:.4}", z.abs()), "1.9803");
}

#[test]
fn more_successes_than_samples_is_refused_by_its_code() {
    for (champion, challenger) in [(arm(101, 100), arm(1, 100)), (arm(1, 100), arm(u64::MAX, 100))] {
        assert_eq!(evaluate_readiness(champion, challenger).unwrap_err().code(), "more-successes-than-samples");
    }
}

#[test]
fn the_approximation_is_as_good_as_its_source_says() {
    assert!((normal_sf(1.96) - 0.024_997_9).abs() < 7.5e-8);
    assert!((normal_sf(0.0) - 0.5).abs() < 7.5e-8);
    assert!(normal_sf(40.0) >= 0.0 && normal_sf(-40.0) <= 1.0);
}

proptest! {
    #[test]
    fn it_is_symmetric(x in 0.0_f64..40.0) {
        prop_assert!((normal_sf(-x) - (1.0 - normal_sf(x))).abs() < f64::EPSILON);
    }

    #[test]
    fn swapping_the_arms_swaps_the_verdict(a in 0_u64..2_000, n in 1_u64..2_000, b in 0_u64..2_000, m in 1_u64..2_000) {
        let (one, other) = (arm(a.min(n), n), arm(b.min(m), m));
        let (there, back) = (evaluate_readiness(one, other).unwrap(), evaluate_readiness(other, one).unwrap());
        let swapped = match there.verdict {
            ChallengerReady => ChallengerWorse,
            ChallengerWorse => ChallengerReady,
            same @ (NotEnoughSamples | Inconclusive) => same,
        };
        prop_assert_eq!(back.verdict, swapped);
        prop_assert!(there.p.is_some_and(|p| (0.0..=1.0).contains(&p)));
    }

    #[test]
    fn nothing_overflows(a in any::<u64>(), n in any::<u64>(), b in any::<u64>(), m in any::<u64>()) {
        let found = evaluate_readiness(arm(a.min(n), n), arm(b.min(m), m)).unwrap();
        prop_assert!(found.p.is_none_or(|p| p.is_finite()));
    }
}
