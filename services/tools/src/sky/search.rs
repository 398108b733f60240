//! When a quantity crosses zero or is least, to the second.

/// Narrow enough: about a second.
const NARROW_DAYS: f64 = 1e-5;
/// Most halvings of one search.
const STEPS_MAX: usize = 60;

/// The crossing between two instants at which the quantity has different signs. Where it jumps instead, as an angle does at
/// half a turn, there is none.
pub(super) fn crossing(mut low: f64, mut high: f64, of: impl Fn(f64) -> f64) -> Option<f64> {
    let (mut at_low, at_high) = (of(low), of(high));
    if at_low == 0.0 {
        return Some(low);
    }
    if at_low * at_high > 0.0 || (at_low - at_high).abs() > 3.0 {
        return None;
    }
    for _ in 0..STEPS_MAX {
        if high - low < NARROW_DAYS {
            break;
        }
        let middle = (low + high) / 2.0;
        let at_middle = of(middle);
        if at_low * at_middle <= 0.0 {
            high = middle;
        } else {
            (low, at_low) = (middle, at_middle);
        }
    }
    Some((low + high) / 2.0)
}

/// Where the quantity is least between two instants, if it has one valley there.
pub(super) fn least(mut low: f64, mut high: f64, of: impl Fn(f64) -> f64) -> f64 {
    let golden = (5.0_f64.sqrt() - 1.0) / 2.0;
    let (mut a, mut b) = (high - golden * (high - low), low + golden * (high - low));
    let (mut at_a, mut at_b) = (of(a), of(b));
    for _ in 0..STEPS_MAX {
        if high - low < NARROW_DAYS {
            break;
        }
        if at_a < at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - golden * (high - low);
            at_a = of(a);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + golden * (high - low);
            at_b = of(b);
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossing_is_found_and_a_jump_is_none() {
        assert!((crossing(0.0, 3.0, |x| x - 2.0).unwrap() - 2.0).abs() < 1e-4);
        assert_eq!(crossing(0.0, 1.0, |x| x + 1.0), None);
        assert_eq!(crossing(0.0, 1.0, |x| if x < 0.5 { 3.1 } else { -3.1 }), None);
    }

    #[test]
    fn the_least_of_a_valley_is_found() {
        assert!((least(-1.0, 4.0, |x| (x - 1.5).powi(2)) - 1.5).abs() < 1e-3);
    }
}
