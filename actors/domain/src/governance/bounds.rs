//! The bounds of a grant: whether they make sense, and whether one lies within another.

use crate::governance::egress::{METHODS_DEFAULT, SCHEMES_DEFAULT};
use crate::governance::grant::{Constraints, GrantError};
use crate::governance::isolation::{climbs, is_within, match_host_pattern};
use crate::quantity::Micros;

/// Most entries of one list.
pub const ENTRIES_MAX: usize = 100;
/// Longest entry, in bytes.
pub const ENTRY_BYTES_MAX: usize = 2_000;

/// Checks that each bound can be kept to and bounds something.
pub(super) fn check(bounds: &Constraints) -> Result<(), GrantError> {
    let Constraints { hosts, paths, methods, schemes, secret_ids, max_calls, max_cost_units } = bounds;
    let bad = |field, problem| Err(GrantError::BadBound { field, problem });
    let lists = [
        ("hosts", hosts, is_host_pattern as fn(&str) -> bool),
        ("paths", paths, is_path),
        ("methods", methods, is_method),
        ("schemes", schemes, is_scheme),
    ];
    for (field, list, is_sound) in lists {
        let Some(list) = list else { continue };
        if list.len() > ENTRIES_MAX {
            return bad(field, "has more than 100 entries");
        }
        if !list.iter().all(|entry| entry.len() <= ENTRY_BYTES_MAX && is_sound(entry)) {
            return bad(field, "has an entry that matches nothing");
        }
    }
    if secret_ids.as_ref().is_some_and(|ids| ids.len() > ENTRIES_MAX) {
        return bad("secretIds", "has more than 100 entries");
    }
    if *max_calls == Some(0) {
        return bad("maxCalls", "allows no call at all; leave it out, or do not issue the grant");
    }
    if max_cost_units.is_some_and(|max| max < Micros::ZERO) {
        return bad("maxCostUnits", "is below zero");
    }
    Ok(())
}

/// Checks that `inner` allows nothing that `outer` does not: each list a part, each number no greater (HND-016). What is left
/// out counts as what it means when a call is checked: every host, no secret, `https`, `GET` and `HEAD`.
///
/// # Errors
/// The first bound that is wider.
pub fn within(inner: &Constraints, outer: &Constraints) -> Result<(), &'static str> {
    let fits = |field, fits: bool| if fits { Ok(()) } else { Err(field) };
    let hosts = outer.hosts.as_ref().is_none_or(|outer| {
        inner.hosts.as_ref().is_some_and(|inner| part_of(inner, outer, |host, other| host_within(host, other)))
    });
    fits("hosts", hosts)?;
    fits("paths", paths_within(inner.paths.as_deref(), outer.paths.as_deref()))?;
    fits("methods", words_within(&inner.methods, &outer.methods, &METHODS_DEFAULT))?;
    fits("schemes", words_within(&inner.schemes, &outer.schemes, &SCHEMES_DEFAULT))?;
    let secrets = |bounds: &Constraints| bounds.secret_ids.clone().unwrap_or_default();
    fits("secretIds", part_of(&secrets(inner), &secrets(outer), |a, b| a == b))?;
    fits("maxCalls", no_greater(inner.max_calls, outer.max_calls))?;
    fits("maxCostUnits", no_greater(inner.max_cost_units, outer.max_cost_units))
}

fn part_of<T>(inner: &[T], outer: &[T], fits: impl Fn(&T, &T) -> bool) -> bool {
    inner.iter().all(|entry| outer.iter().any(|other| fits(entry, other)))
}

/// Paths that are left out leave the run's own folder unbounded and allow no file outside it, so that only the same, or none,
/// lies within.
fn paths_within(inner: Option<&[String]>, outer: Option<&[String]>) -> bool {
    match (inner, outer) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some(inner), outer) => inner.iter().all(|path| is_within(path, outer.unwrap_or_default())),
    }
}

fn words_within(inner: &Option<Vec<String>>, outer: &Option<Vec<String>>, default: &[&str]) -> bool {
    let words = |bound: &Option<Vec<String>>| {
        bound.clone().unwrap_or_else(|| default.iter().map(|&word| word.to_owned()).collect())
    };
    part_of(&words(inner), &words(outer), |word, other| word.eq_ignore_ascii_case(other))
}

fn no_greater<T: PartialOrd>(inner: Option<T>, outer: Option<T>) -> bool {
    outer.is_none_or(|outer| inner.is_some_and(|inner| inner <= outer))
}

/// Every host that matches the one pattern matches the other.
pub(crate) fn host_within(inner: &str, outer: &str) -> bool {
    let plain = |pattern: &str| pattern.trim_end_matches('.').to_ascii_lowercase();
    let (inner, outer) = (plain(inner), plain(outer));
    match inner.strip_prefix("*.") {
        _ if inner == outer || outer == "*" => true,
        // Names below a name: only a pattern that means those too can hold them.
        Some(below) => outer.starts_with("*.") && match_host_pattern(&outer, below),
        None => inner != "*" && match_host_pattern(&outer, &inner),
    }
}

/// `*`, or a host or address, or every name below one. A pattern with a port, a path or a scheme would never match.
fn is_host_pattern(pattern: &str) -> bool {
    let host = pattern.strip_prefix("*.").unwrap_or(pattern);
    let is_address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    pattern == "*" || is_address || (!host.is_empty() && host.chars().all(is_name))
}

fn is_path(path: &str) -> bool {
    !path.is_empty() && !path.contains('\0') && !climbs(path)
}

fn is_method(method: &str) -> bool {
    !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

fn is_scheme(scheme: &str) -> bool {
    matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https")
}
