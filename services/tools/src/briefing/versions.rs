//! Which versions are affected, worked out from which are not.
//!
//! Advisories state the good versions (`patched`, `unaffected`). What is left over is affected; it is computed as a set
//! of intervals, so that `patched = [">= 1.4.2, < 2.0.0", ">= 2.1.0"]` reads `< 1.4.2 or >= 2.0.0, < 2.1.0`.

use semver::{Comparator, Op, Prerelease, Version, VersionReq};

/// Most requirements that are combined; beyond it nothing is worked out.
const REQUIREMENTS_MAX: usize = 64;

/// Versions from `low` to `high`; the flag says whether the bound itself belongs. `None` is no bound.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interval {
    low: Option<(Version, bool)>,
    high: Option<(Version, bool)>,
}

/// What is not covered by any of the requirements, in words; `None` if one of them cannot be read.
pub(crate) fn complement(requirements: &[String]) -> Option<String> {
    if requirements.len() > REQUIREMENTS_MAX {
        return None;
    }
    let mut good = Vec::new();
    for requirement in requirements {
        good.push(interval(requirement)?);
    }
    let mut rest = vec![Interval { low: None, high: None }];
    for interval in good {
        rest = rest.into_iter().flat_map(|part| without(part, &interval)).collect();
    }
    Some(match rest.as_slice() {
        [] => "none".to_owned(),
        parts => parts.iter().map(words).collect::<Vec<_>>().join(" or "),
    })
}

/// Requirements in one line, as they stand; `none` if there is none.
pub(crate) fn list(requirements: &[String]) -> String {
    if requirements.is_empty() { "none".to_owned() } else { requirements.join(" or ") }
}

fn words(interval: &Interval) -> String {
    let low = interval.low.as_ref().map(|(version, own)| format!("{} {version}", if *own { ">=" } else { ">" }));
    let high = interval.high.as_ref().map(|(version, own)| format!("{} {version}", if *own { "<=" } else { "<" }));
    match (low, high, &interval.low, &interval.high) {
        (Some(_), Some(_), Some((a, true)), Some((b, true))) if a == b => format!("= {a}"),
        (Some(low), Some(high), ..) => format!("{low}, {high}"),
        (Some(one), None, ..) | (None, Some(one), ..) => one,
        (None, None, ..) => "all versions".to_owned(),
    }
}

/// A comma means "and".
fn interval(requirement: &str) -> Option<Interval> {
    let requirement = requirement.trim();
    if requirement == "*" {
        return Some(Interval { low: None, high: None });
    }
    // A bare version means exactly that version in an advisory, not "compatible with".
    let exact = requirement.starts_with(|c: char| c.is_ascii_digit()).then(|| format!("={requirement}"));
    let parsed = VersionReq::parse(exact.as_deref().unwrap_or(requirement)).ok()?;
    parsed.comparators.iter().map(comparator).try_fold(Interval { low: None, high: None }, |all, one| {
        let one = one?;
        Some(Interval { low: higher_low(all.low, one.low), high: lower_high(all.high, one.high) })
    })
}

fn comparator(comparator: &Comparator) -> Option<Interval> {
    let at = |major, minor, patch| Version { major, minor, patch, pre: Prerelease::EMPTY, build: Default::default() };
    let (major, minor, patch) = (comparator.major, comparator.minor, comparator.patch);
    let mut base = at(major, minor.unwrap_or(0), patch.unwrap_or(0));
    base.pre = comparator.pre.clone();
    // The first version after those that a partial one stands for: 1.2 stands for 1.2.*.
    let after = match (minor, patch) {
        (None, _) => at(major.checked_add(1)?, 0, 0),
        (Some(minor), None) => at(major, minor.checked_add(1)?, 0),
        (Some(_), Some(_)) => base.clone(),
    };
    let whole = patch.is_some();
    let between = |low: Version, high: Version| Interval { low: Some((low, true)), high: Some((high, false)) };
    Some(match comparator.op {
        Op::Exact if whole => Interval { low: Some((base.clone(), true)), high: Some((base, true)) },
        Op::Exact | Op::Wildcard => between(base, after),
        Op::Greater => Interval { low: Some((after, !whole)), high: None },
        Op::GreaterEq => Interval { low: Some((base, true)), high: None },
        Op::Less => Interval { low: None, high: Some((base, false)) },
        Op::LessEq => Interval { low: None, high: Some((after, whole)) },
        Op::Tilde => {
            let high = minor
                .map_or(Some(at(major.checked_add(1)?, 0, 0)), |minor| Some(at(major, minor.checked_add(1)?, 0)))?;
            between(base, high)
        }
        Op::Caret => {
            let high = match (major, minor, patch) {
                (0, Some(0), Some(patch)) => at(0, 0, patch.checked_add(1)?),
                (0, Some(minor), _) => at(0, minor.checked_add(1)?, 0),
                _ => at(major.checked_add(1)?, 0, 0),
            };
            between(base, high)
        }
        _ => return None,
    })
}

fn higher_low(a: Option<(Version, bool)>, b: Option<(Version, bool)>) -> Option<(Version, bool)> {
    match (a, b) {
        (Some(a), Some(b)) if a.0 == b.0 => Some((a.0, a.1 && b.1)),
        (Some(a), Some(b)) => Some(if a.0 > b.0 { a } else { b }),
        (one, None) | (None, one) => one,
    }
}

fn lower_high(a: Option<(Version, bool)>, b: Option<(Version, bool)>) -> Option<(Version, bool)> {
    match (a, b) {
        (Some(a), Some(b)) if a.0 == b.0 => Some((a.0, a.1 && b.1)),
        (Some(a), Some(b)) => Some(if a.0 < b.0 { a } else { b }),
        (one, None) | (None, one) => one,
    }
}

/// What is left of `part` without `hole`: up to two pieces.
fn without(part: Interval, hole: &Interval) -> Vec<Interval> {
    let mut left = Vec::new();
    if let Some((low, own)) = &hole.low {
        let high = lower_high(part.high.clone(), Some((low.clone(), !own)));
        left.extend(non_empty(Interval { low: part.low.clone(), high }));
    }
    if let Some((high, own)) = &hole.high {
        let low = higher_low(part.low.clone(), Some((high.clone(), !own)));
        left.extend(non_empty(Interval { low, high: part.high.clone() }));
    }
    left.dedup();
    left
}

fn non_empty(interval: Interval) -> Option<Interval> {
    let empty = match (&interval.low, &interval.high) {
        (Some((low, own_low)), Some((high, own_high))) => low > high || low == high && !(*own_low && *own_high),
        _ => false,
    };
    (!empty).then_some(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affected(good: &[&str]) -> Option<String> {
        complement(&good.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_neither_patched_nor_unaffected_is_affected() {
        for (good, wanted) in [
            (vec![">= 0.2.2"], "< 0.2.2"),
            (vec!["<= 0.3.9"], "> 0.3.9"),
            (vec![], "all versions"),
            (vec!["*"], "none"),
            (vec![">= 1.4.2, < 2.0.0", ">= 2.1.0"], "< 1.4.2 or >= 2.0.0, < 2.1.0"),
            (vec!["^0.9.3", ">= 0.10.5"], "< 0.9.3 or >= 0.10.0, < 0.10.5"),
            (vec!["< 1.0.0", "> 1.0.0"], "= 1.0.0"),
            (vec!["<= 0.8.6", ">= 0.9.0"], "> 0.8.6, < 0.9.0"),
            (vec!["1.2.3"], "< 1.2.3 or > 1.2.3"),
            (vec!["~1.2.3", "> 1.4"], "< 1.2.3 or >= 1.3.0, < 1.5.0"),
            (vec![">= 1", "< 2"], "none"),
        ] {
            assert_eq!(affected(&good).as_deref(), Some(wanted), "{good:?}");
        }
    }

    #[test]
    fn a_requirement_that_cannot_be_read_gives_no_answer_instead_of_a_wrong_one() {
        assert_eq!(affected(&["newer than 2"]), None);
        assert_eq!(affected(&["> 18446744073709551615"]), None);
        assert_eq!(affected(&vec![">= 1.0.0"; REQUIREMENTS_MAX + 1]), None);
    }
}
