//! Versions and ranges of versions (REG-008, CAT-010).

use std::cmp::Ordering;

use semver::{Version, VersionReq};

/// True for `1.2.3` and `1.2.3-pre.1`: three runs of ASCII digits, then perhaps a hyphen and letters, digits, dots and
/// hyphens (REG-008). It is wider than SemVer on purpose, and knows no build metadata.
pub fn is_version(text: &str) -> bool {
    let (numbers, pre) = match text.split_once('-') {
        Some((numbers, pre)) => (numbers, Some(pre)),
        None => (text, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let pre_fits =
        |pre: &str| !pre.is_empty() && pre.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-');
    numbers.split('.').count() == 3 && numbers.split('.').all(digits) && pre.is_none_or(pre_fits)
}

/// Which of two versions is the later one, as SemVer orders them, also where the `semver` crate cannot read them: numbers of
/// any length, with zeros in front or without, and empty parts of a pre-release. A text that is no version comes before all
/// others. Versions that differ in nothing but zeros in front are equal.
pub fn precedence(a: &str, b: &str) -> Ordering {
    match (is_version(a), is_version(b)) {
        (true, true) => {}
        (a, b) => return a.cmp(&b),
    }
    let (a, b) = (parts(a), parts(b));
    a.0.split('.').zip(b.0.split('.')).map(|(a, b)| by_number(a, b)).find(|order| order.is_ne()).unwrap_or_else(|| {
        match (a.1, b.1) {
            (None, None) => Ordering::Equal,
            // What is not finished comes before what is.
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) => by_pre_release(a, b),
        }
    })
}

fn parts(version: &str) -> (&str, Option<&str>) {
    version.split_once('-').map_or((version, None), |(numbers, pre)| (numbers, Some(pre)))
}

fn by_number(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn by_pre_release(a: &str, b: &str) -> Ordering {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    let by_part = |(a, b): (&str, &str)| match (is_number(a), is_number(b)) {
        (true, true) => by_number(a, b),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.cmp(b),
    };
    let differs = a.split('.').zip(b.split('.')).map(by_part).find(|order| order.is_ne());
    differs.unwrap_or_else(|| a.split('.').count().cmp(&b.split('.').count()))
}

/// True if the text is a range of versions.
pub fn range_parses(range: &str) -> bool {
    VersionReq::parse(range).is_ok()
}

/// True if the version lies in the range, both read as the `semver` crate does. What it cannot parse matches nothing.
pub fn range_matches(range: &str, version: &str) -> bool {
    if let (Some(base), Some(version)) = (range.strip_prefix('^').and_then(plain), plain(version)) {
        return caret_matches(base, version);
    }
    match (VersionReq::parse(range), Version::parse(version)) {
        (Ok(range), Ok(version)) => range.matches(&version),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// A version of three plain numbers: what nearly all are, and what needs no allocation to be read.
fn plain(version: &str) -> Option<[u64; 3]> {
    let mut numbers = version.split('.').map(|number| {
        let well_formed =
            number.bytes().all(|digit| digit.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
        number.parse().ok().filter(|_| well_formed)
    });
    let plain = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(plain)
}

/// Up to the next change of the leftmost number that is not 0, as the `semver` crate has it.
fn caret_matches(base: [u64; 3], version: [u64; 3]) -> bool {
    let kept = base.iter().position(|number| *number > 0).unwrap_or(2);
    version[..=kept] == base[..=kept] && version >= base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_exactly_those_of_the_stated_pattern() {
        let long = format!("0.0.0-{}", "a".repeat(300));
        for version in [
            "1.2.3",
            "0.0.0",
            "10.20.30",
            "01.2.3",
            "1.02.3",
            "1.2.003",
            "1.0.0-rc.1",
            "1.0.0-0.3.7",
            "1.0.0-x.7.z.92",
            "1.2.3-01",
            "1.2.3-a..b",
            "1.2.3-.a",
            "1.2.3-a.",
            "1.2.3--",
            &long,
        ] {
            assert!(is_version(version), "{version}");
        }
        for version in [
            "",
            "1.2",
            "1.2.3.4",
            "v1.2.3",
            "=1.2.3",
            "1.2.3+b",
            "1.2.3-a+b",
            "TBD",
            "latest",
            "1.2.x",
            "1.2.3-",
            "1..3",
            "1.2.3-al_pha",
            "1.2.3-é",
            "١.٢.٣",
            "１.2.3",
            "1.-2.3",
            "1.2.3-a b",
            "1.2.3\0",
            "1.2.3\n",
            " 1.2.3",
            "1.2.3-a/b",
        ] {
            assert!(!is_version(version), "{version}");
        }
    }

    #[test]
    fn ranges_are_read_as_the_semver_crate_does() {
        for (range, version, matches) in [
            ("^1.2.3", "1.2.3", true),
            ("^1.2.3", "2.0.0", false),
            ("^1.2.3", "1.2.2", false),
            ("^1.2.3", "1.3.0-alpha", false),
            ("^1.2.3-alpha", "1.2.3", true),
            ("^0.2.3", "0.2.9", true),
            ("^0.0.3", "0.0.3", true),
            ("^0.0.3", "0.0.4", false),
            ("~1.2.3", "1.3.0", false),
            ("~1.2", "1.2.0", true),
            ("~0.2", "0.2.7", true),
            (">=1.2.3, <2.0.0", "1.5.0", true),
            (">=1.0.0, <1.0.0", "1.0.0", false),
            (">1.2.3", "1.2.3", false),
            ("<=1.2.3", "1.2.3", true),
            ("<2.0.0", "2.0.0-alpha", false),
            ("=1.2.3", "1.2.4", false),
            ("1.2.3", "1.2.3", true),
            ("1.2.3", "1.9.0", true),
            ("1.2.*", "1.2.7", true),
            ("*", "7.0.0", true),
            (">=2.0.0", "10.0.0", true),
        ] {
            assert_eq!(range_matches(range, version), matches, "{range} {version}");
        }
    }

    #[test]
    fn what_semver_cannot_parse_matches_nothing() {
        assert!(is_version("1.2.3-01") && !range_matches("*", "1.2.3-01"));
        assert!(!range_matches("not a range", "1.0.0"));
    }
    #[test]
    fn plain_caret_ranges_match_as_the_crate_has_it() {
        let numbers = ["0", "1", "2", "10", "01", "", "1a", "99999999999999999999", "18446744073709551615"];
        let versions: Vec<String> = numbers
            .iter()
            .flat_map(|a| numbers.iter().flat_map(move |b| ["0", "1", "3"].map(|c| format!("{a}.{b}.{c}"))))
            .chain(["1.0".to_owned(), "1.0.0.0".to_owned(), "1.0.0-rc.1".to_owned(), "1.0.0+b".to_owned()])
            .collect();
        for base in &versions {
            let range = format!("^{base}");
            for version in &versions {
                let by_crate = match (VersionReq::parse(&range), Version::parse(version)) {
                    (Ok(range), Ok(version)) => range.matches(&version),
                    _ => false,
                };
                assert_eq!(range_matches(&range, version), by_crate, "{range} {version}");
            }
        }
    }
}
