//! What comes back: the days of a recurrence rule, up to a bound.
//!
//! Daily, weekly, monthly and yearly rules with an interval, a count or an end, days of the week, days and months. A rule
//! with anything else is refused by name rather than read wrongly.

use jiff::Span;
use jiff::civil::{Date, DateTime, Weekday};

/// Most periods that are gone through for one rule.
const PERIODS_MAX: u32 = 20_000;
/// Most times that one rule gives.
const TIMES_MAX: usize = 2_000;
/// Largest interval and count.
const NUMBER_MAX: u32 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frequency {
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    frequency: Frequency,
    interval: u32,
    count: Option<u32>,
    /// The last moment, as it is written.
    pub(super) until: Option<String>,
    /// Days of the week, each with which one of the month it is; 0 is every one.
    by_day: Vec<(i8, Weekday)>,
    by_month_day: Vec<i8>,
    by_month: Vec<i8>,
    week_start: Weekday,
}

/// Reads a rule; an error names what is not understood.
pub(super) fn rule(text: &str) -> Result<Rule, String> {
    let mut rule = Rule {
        frequency: Frequency::Daily,
        interval: 1,
        count: None,
        until: None,
        by_day: Vec::new(),
        by_month_day: Vec::new(),
        by_month: Vec::new(),
        week_start: Weekday::Monday,
    };
    let mut has_frequency = false;
    for part in text.trim().split(';').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| "a part without a value".to_owned())?;
        let number = || value.parse::<u32>().ok().filter(|n| (1..=NUMBER_MAX).contains(n));
        let wrong = || format!("{name} with a value that cannot be");
        let numbers = |most: i8| -> Result<Vec<i8>, String> {
            value
                .split(',')
                .take(64)
                .map(|one| one.parse::<i8>().ok().filter(|n| *n != 0 && n.abs() <= most).ok_or_else(wrong))
                .collect()
        };
        match name.to_ascii_uppercase().as_str() {
            "FREQ" => {
                has_frequency = true;
                rule.frequency = match value.to_ascii_uppercase().as_str() {
                    "DAILY" => Frequency::Daily,
                    "WEEKLY" => Frequency::Weekly,
                    "MONTHLY" => Frequency::Monthly,
                    "YEARLY" => Frequency::Yearly,
                    _ => return Err("a frequency other than daily, weekly, monthly or yearly".to_owned()),
                };
            }
            "INTERVAL" => rule.interval = number().ok_or_else(wrong)?,
            "COUNT" => rule.count = Some(number().ok_or_else(wrong)?),
            "UNTIL" => rule.until = Some(value.to_owned()),
            "WKST" => rule.week_start = weekday(value).ok_or_else(wrong)?,
            "BYDAY" => {
                rule.by_day =
                    value.split(',').take(64).map(|one| nth(one).ok_or_else(wrong)).collect::<Result<_, _>>()?;
            }
            "BYMONTHDAY" => rule.by_month_day = numbers(31)?,
            "BYMONTH" => rule.by_month = numbers(12)?,
            other => return Err(format!("the part {}", other.chars().take(20).collect::<String>())),
        }
    }
    let whole = has_frequency
        && !(rule.frequency == Frequency::Yearly && !rule.by_day.is_empty() && rule.by_month.is_empty())
        && !(matches!(rule.frequency, Frequency::Daily | Frequency::Weekly)
            && rule.by_day.iter().any(|(nth, _)| *nth != 0));
    if whole { Ok(rule) } else { Err("a combination of parts that is not read".to_owned()) }
}

fn weekday(text: &str) -> Option<Weekday> {
    Some(match text.to_ascii_uppercase().as_str() {
        "MO" => Weekday::Monday,
        "TU" => Weekday::Tuesday,
        "WE" => Weekday::Wednesday,
        "TH" => Weekday::Thursday,
        "FR" => Weekday::Friday,
        "SA" => Weekday::Saturday,
        "SU" => Weekday::Sunday,
        _ => return None,
    })
}

/// `MO`, `2TU`, `-1FR`.
fn nth(text: &str) -> Option<(i8, Weekday)> {
    let at = text.len().checked_sub(2)?;
    let (number, day) = (text.get(..at)?, text.get(at..)?);
    let number = if number.is_empty() { 0 } else { number.parse::<i8>().ok().filter(|n| *n != 0 && n.abs() <= 5)? };
    Some((number, weekday(day)?))
}

impl Rule {
    /// The times of the rule from its start on that are not after `last`, and of those the ones from `from` on. Wall-clock
    /// times: what a zone makes of them is for whoever asks.
    pub(super) fn times(&self, start: DateTime, from: DateTime, last: DateTime) -> Vec<DateTime> {
        let mut found = Vec::new();
        let mut counted = 0_u32;
        // Without a count nothing before `from` matters, so those periods need not be gone through.
        let skip = if self.count.is_none() { self.periods_before(start.date(), from.date()) } else { 0 };
        for period in (skip..).take(PERIODS_MAX as usize) {
            let Some(days) = self.days(start.date(), period) else { break };
            let mut past = days.is_empty() && self.first_day(start.date(), period).is_none_or(|day| day > last.date());
            for day in days {
                let time = day.to_datetime(start.time());
                if time < start {
                    continue;
                }
                if time > last {
                    past = true;
                    break;
                }
                counted += 1;
                if self.count.is_some_and(|count| counted > count) {
                    return found;
                }
                if time >= from && found.len() < TIMES_MAX {
                    found.push(time);
                }
            }
            if past || found.len() >= TIMES_MAX {
                break;
            }
        }
        found
    }

    /// How many whole periods lie before a day, with a margin.
    fn periods_before(&self, start: Date, from: Date) -> u32 {
        let days = start.until(from).map_or(0, |span| i64::from(span.get_days())).max(0);
        let length = match self.frequency {
            Frequency::Daily => 1,
            Frequency::Weekly => 7,
            // The longest, so that none is skipped too many.
            Frequency::Monthly => 31,
            Frequency::Yearly => 366,
        };
        let periods = days / (length * i64::from(self.interval));
        u32::try_from(periods.saturating_sub(2).max(0)).unwrap_or(0)
    }

    /// The first day of a period.
    fn first_day(&self, start: Date, period: u32) -> Option<Date> {
        let steps = i64::from(period.checked_mul(self.interval)?);
        match self.frequency {
            Frequency::Daily => start.checked_add(Span::new().try_days(steps).ok()?).ok(),
            Frequency::Weekly => {
                let back = i64::from(start.weekday().since(self.week_start));
                let days = Span::new().try_days(steps.checked_mul(7)?.checked_sub(back)?).ok()?;
                start.checked_add(days).ok()
            }
            Frequency::Monthly => start.first_of_month().checked_add(Span::new().try_months(steps).ok()?).ok(),
            Frequency::Yearly => {
                Date::new(start.year(), 1, 1).ok()?.checked_add(Span::new().try_years(steps).ok()?).ok()
            }
        }
    }

    /// The days of a period that the rule names, in order; `None` beyond the calendar.
    fn days(&self, start: Date, period: u32) -> Option<Vec<Date>> {
        let first = self.first_day(start, period)?;
        let in_month = |day: &Date| self.by_month.is_empty() || self.by_month.contains(&day.month());
        let mut days: Vec<Date> = match self.frequency {
            Frequency::Daily => {
                let named = self.by_day.is_empty() || self.by_day.iter().any(|(_, day)| *day == first.weekday());
                let of_month = self.by_month_day.is_empty() || self.by_month_day.contains(&first.day());
                if named && of_month { vec![first] } else { Vec::new() }
            }
            Frequency::Weekly => (0..7_i64)
                .filter_map(|offset| first.checked_add(Span::new().try_days(offset).ok()?).ok())
                .filter(|day| {
                    if self.by_day.is_empty() {
                        day.weekday() == start.weekday()
                    } else {
                        self.by_day.iter().any(|(_, named)| *named == day.weekday())
                    }
                })
                .collect(),
            Frequency::Monthly => self.of_month(first, start.day()),
            Frequency::Yearly => {
                let months: Vec<i8> =
                    if self.by_month.is_empty() { vec![start.month()] } else { self.by_month.clone() };
                let firsts = months.into_iter().filter_map(|month| Date::new(first.year(), month.abs(), 1).ok());
                firsts.flat_map(|first| self.of_month(first, start.day())).collect()
            }
        };
        days.retain(in_month);
        days.sort();
        days.dedup();
        Some(days)
    }

    /// The days of one month: named by weekday, by number, or the day of the start.
    fn of_month(&self, first: Date, day: i8) -> Vec<Date> {
        let length = first.days_in_month();
        let all = || (1..=length).filter_map(|day| Date::new(first.year(), first.month(), day).ok());
        let numbered = |day: &Date| {
            self.by_month_day.is_empty()
                || self.by_month_day.iter().any(|n| *n == day.day() || *n < 0 && length + 1 + *n == day.day())
        };
        if !self.by_day.is_empty() {
            let matches = |date: &Date| {
                self.by_day.iter().any(|(nth, named)| {
                    let from_front = (date.day() - 1) / 7 + 1;
                    let from_back = (length - date.day()) / 7 + 1;
                    *named == date.weekday() && (*nth == 0 || *nth == from_front || *nth == -from_back)
                })
            };
            return all().filter(matches).filter(numbered).collect();
        }
        if !self.by_month_day.is_empty() {
            return all().filter(numbered).collect();
        }
        // A month that lacks the day is left out, as the standard has it.
        all().filter(|date| date.day() == day).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(text: &str, start: &str, from: &str, last: &str) -> Vec<String> {
        let at = |text: &str| text.parse::<DateTime>().unwrap();
        let times = rule(text).unwrap().times(at(start), at(from), at(last));
        times.into_iter().map(|time| time.strftime("%m-%d").to_string()).collect()
    }

    #[test]
    fn rules_give_the_days_that_they_name() {
        let (from, last) = ("2026-11-01T00:00:00", "2026-11-30T23:59:59");
        let start = "2026-11-02T09:00:00";
        assert_eq!(times("FREQ=DAILY;COUNT=3", start, from, last), ["11-02", "11-03", "11-04"]);
        assert_eq!(
            times("FREQ=WEEKLY;BYDAY=MO,TH;UNTIL=x", start, from, "2026-11-12T23:00:00"),
            ["11-02", "11-05", "11-09", "11-12"]
        );
        assert_eq!(times("FREQ=WEEKLY;INTERVAL=2", start, from, last), ["11-02", "11-16", "11-30"]);
        assert_eq!(times("FREQ=MONTHLY;BYDAY=-1FR", start, from, last), ["11-27"]);
        assert_eq!(times("FREQ=MONTHLY;BYDAY=2TU", start, from, last), ["11-10"]);
        assert_eq!(times("FREQ=MONTHLY;BYMONTHDAY=-1", start, from, last), ["11-30"]);
        assert_eq!(times("FREQ=YEARLY", "1999-11-05T09:00:00", from, last), ["11-05"]);
    }

    #[test]
    fn an_old_rule_is_reached_without_going_through_all_of_it_and_a_counted_one_ends() {
        let (from, last) = ("2026-11-23T00:00:00", "2026-11-29T23:59:59");
        assert_eq!(times("FREQ=DAILY", "1970-01-01T08:00:00", from, last).len(), 7);
        assert_eq!(times("FREQ=DAILY;COUNT=100", "1970-01-01T08:00:00", from, last).len(), 0);
        assert_eq!(times("FREQ=MONTHLY;BYMONTHDAY=31;BYMONTH=2", "2020-01-31T08:00:00", from, last).len(), 0);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "FREQ=SECONDLY",
            "COUNT=3",
            "FREQ=DAILY;INTERVAL=0",
            "FREQ=DAILY;COUNT=99999999999",
            "FREQ=DAILY;BYSETPOS=1",
            "FREQ=WEEKLY;BYDAY=2MO",
            "FREQ=DAILY;X",
            "FREQ=MONTHLY;BYMONTHDAY=40",
            "FREQ=YEARLY;BYDAY=MO",
        ] {
            assert!(rule(text).is_err(), "{text}");
        }
    }
}
