//! Days in text. A day is only read where it cannot mean another: `03/04/2026` is March to some and April to others.

use std::ops::Range;
use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Regex;

const MONTHS: &str = "january|february|march|april|may|june|july|august|september|october|november|december|\
                      jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec";

static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(&format!(
        r"(?xi)
        \b(?P<iy>\d{{4}})-(?P<im>\d{{2}})-(?P<id>\d{{2}})(?:T[0-9:.]+(?:Z|[+-]\d\d:?\d\d)?)?\b
        | \b(?P<dd>\d{{1,2}})(?:st|nd|rd|th)?\.?\ (?:of\ )?(?P<dm>{MONTHS})\b\.?(?:,?\ (?P<dy>\d{{4}})\b)?
        | \b(?P<mm>{MONTHS})\b\.?\ (?P<md>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\ (?P<my>\d{{4}})\b)?
        "
    ))
    .ok()
});

/// A day found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where.
    pub(crate) range: Range<usize>,
    /// The year, if it is given.
    pub(crate) year: Option<i16>,
    /// `MM-DD`.
    pub(crate) day: String,
}

impl Found {
    /// `YYYY-MM-DD`, or `--MM-DD` without a year.
    pub(crate) fn value(&self) -> String {
        self.year.map_or_else(|| format!("--{}", self.day), |year| format!("{year:04}-{}", self.day))
    }
}

/// Whether a text is a day of the calendar in the form `YYYY-MM-DD`.
pub(crate) fn is_day(text: &str) -> bool {
    text.len() == 10 && text.parse::<Date>().is_ok_and(|day| day.to_string() == text)
}

/// All days of a text, in order.
pub(crate) fn find(text: &str) -> Vec<Found> {
    let Some(pattern) = PATTERN.as_ref() else { return Vec::new() };
    let found = |captures: regex::Captures<'_>| {
        let get = |name: &str| captures.name(name).map(|part| part.as_str());
        let whole = captures.get(0)?.range();
        let (year, month, day) = match (get("im"), get("dm"), get("mm")) {
            (Some(month), _, _) => (get("iy"), month.parse().ok()?, get("id")?),
            (None, Some(month), _) => (get("dy"), month_number(month)?, get("dd")?),
            (None, None, Some(month)) => (get("my"), month_number(month)?, get("md")?),
            (None, None, None) => return None,
        };
        let year: Option<i16> = year.and_then(|year| year.parse().ok());
        // A leap year stands in for an unknown one, so that 29 February is a day.
        let date = Date::new(year.unwrap_or(2024), month, day.parse().ok()?).ok()?;
        Some(Found { range: whole, year, day: format!("{:02}-{:02}", date.month(), date.day()) })
    };
    pattern.captures_iter(text).filter_map(found).collect()
}

/// The day a text begins with, such as a timestamp, or that it states in the form of RFC 2822.
pub(crate) fn leading(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(head) = text.get(..10).filter(|head| is_day(head)) {
        return Some(head.to_owned());
    }
    if let Ok(moment) = jiff::fmt::rfc2822::parse(text) {
        return Some(moment.date().to_string());
    }
    find(text).into_iter().find(|found| found.year.is_some()).map(|found| found.value())
}

fn month_number(name: &str) -> Option<i8> {
    const NAMES: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let name = name.to_ascii_lowercase();
    let index = NAMES.iter().position(|known| name.starts_with(known))?;
    i8::try_from(index + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        find(text).iter().map(Found::value).collect()
    }

    #[test]
    fn days_are_found_in_the_spellings_that_have_one_meaning() {
        assert_eq!(values("on 2026-09-14 and 14 September 2026"), ["2026-09-14", "2026-09-14"]);
        assert_eq!(values("Sept. 21, 2026; 3rd of May; August 9th"), ["2026-09-21", "--05-03", "--08-09"]);
        assert_eq!(values("at 2026-08-14T09:00:00Z"), ["2026-08-14"]);
    }

    #[test]
    fn what_is_no_day_or_could_be_two_is_not_read() {
        for text in ["03/04/2026", "2026-13-01", "31 June 2026", "in may 40", "version 2026.08", "RUSTSEC-2026-0236"] {
            assert_eq!(values(text), Vec::<String>::new(), "{text}");
        }
        assert!(is_day("2024-02-29"));
        assert!(!is_day("2026-02-29") && !is_day("2026-2-9") && !is_day("2026-08-14T00"));
    }

    #[test]
    fn a_stated_moment_gives_its_day() {
        assert_eq!(leading("2026-08-14T23:00:00+02:00").as_deref(), Some("2026-08-14"));
        assert_eq!(leading("Fri, 14 Aug 2026 09:30:00 +0000").as_deref(), Some("2026-08-14"));
        assert_eq!(leading("14 August 2026").as_deref(), Some("2026-08-14"));
        assert_eq!(leading("soon"), None);
    }
}
