//! Cron expressions over changes of the clock (PIP-027), against what Vixie's cron does.

use jiff::Timestamp;
use proptest::prelude::*;
use signalbox_domain::pipeline::cron::{Cron, CronError, Zone};
use signalbox_domain::time::UnixMs;

fn cron(expression: &str) -> Cron {
    expression.parse().unwrap()
}

fn zone(name: &str) -> Zone {
    name.parse().unwrap()
}

fn at(text: &str) -> UnixMs {
    UnixMs(text.parse::<Timestamp>().unwrap().as_millisecond())
}

/// Expression, zone, after (exclusive), the next three.
const TABLE: &[(&str, &str, &str, &str, [&str; 3])] = &[
    (
        "CR-001",
        "30 2 * * *",
        "America/New_York",
        "2026-03-07T12:00:00Z",
        ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"],
    ),
    (
        "CR-002",
        "0 2 * * *",
        "America/New_York",
        "2026-03-07T12:00:00Z",
        ["2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z", "2026-03-10T06:00:00Z"],
    ),
    (
        "CR-003",
        "59 2 * * *",
        "America/New_York",
        "2026-03-07T12:00:00Z",
        ["2026-03-08T07:00:00Z", "2026-03-09T06:59:00Z", "2026-03-10T06:59:00Z"],
    ),
    (
        "CR-008",
        "30 2 * * SUN",
        "America/Chicago",
        "2026-03-01T12:00:00Z",
        ["2026-03-08T08:00:00Z", "2026-03-15T07:30:00Z", "2026-03-22T07:30:00Z"],
    ),
    (
        "CR-009",
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"],
    ),
    (
        "CR-013",
        "45 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T00:00:00Z",
        ["2026-10-03T15:45:00Z", "2026-10-04T15:45:00Z", "2026-10-05T15:45:00Z"],
    ),
    (
        "CR-019",
        "15 0 * * *",
        "America/Havana",
        "2026-03-07T12:00:00Z",
        ["2026-03-08T05:00:00Z", "2026-03-09T04:15:00Z", "2026-03-10T04:15:00Z"],
    ),
    (
        "CR-020",
        "0 0 * * *",
        "America/Sao_Paulo",
        "2018-11-03T12:00:00Z",
        ["2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", "2018-11-06T02:00:00Z"],
    ),
    (
        "CR-021",
        "30 2 * * *",
        "Antarctica/Troll",
        "2026-03-28T00:00:00Z",
        ["2026-03-28T02:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
    ),
    (
        "CR-022",
        "15 1 * * *",
        "Antarctica/Troll",
        "2026-03-28T00:00:00Z",
        ["2026-03-28T01:15:00Z", "2026-03-29T01:00:00Z", "2026-03-29T23:15:00Z"],
    ),
    (
        "CR-023",
        "30 23 28 3 *",
        "America/Nuuk",
        "2026-03-27T00:00:00Z",
        ["2026-03-29T01:00:00Z", "2027-03-29T00:30:00Z", "2028-03-29T00:30:00Z"],
    ),
    (
        "CR-024",
        "*/15 * * * *",
        "America/New_York",
        "2026-03-08T06:40:00Z",
        ["2026-03-08T06:45:00Z", "2026-03-08T07:00:00Z", "2026-03-08T07:15:00Z"],
    ),
    (
        "CR-026",
        "30 * * * *",
        "America/New_York",
        "2026-03-08T06:00:00Z",
        ["2026-03-08T06:30:00Z", "2026-03-08T07:30:00Z", "2026-03-08T08:30:00Z"],
    ),
    (
        "CR-028",
        "0 * * * *",
        "Australia/Lord_Howe",
        "2026-10-03T14:30:00Z",
        ["2026-10-03T16:00:00Z", "2026-10-03T17:00:00Z", "2026-10-03T18:00:00Z"],
    ),
    (
        "CR-029",
        "30 1 * * *",
        "America/New_York",
        "2026-10-31T12:00:00Z",
        ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z", "2026-11-03T06:30:00Z"],
    ),
    (
        "CR-030",
        "0 1 * * *",
        "America/New_York",
        "2026-10-31T12:00:00Z",
        ["2026-11-01T05:00:00Z", "2026-11-02T06:00:00Z", "2026-11-03T06:00:00Z"],
    ),
    (
        "CR-034",
        "0,30 1 * * *",
        "America/New_York",
        "2026-11-01T04:00:00Z",
        ["2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:00:00Z"],
    ),
    (
        "CR-035",
        "30 0-2 * * *",
        "America/New_York",
        "2026-11-01T04:00:00Z",
        ["2026-11-01T04:30:00Z", "2026-11-01T05:30:00Z", "2026-11-01T07:30:00Z"],
    ),
    (
        "CR-037",
        "30 1 * * *",
        "Europe/London",
        "2026-10-24T12:00:00Z",
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z", "2026-10-27T01:30:00Z"],
    ),
    (
        "CR-038",
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T00:00:00Z",
        ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z", "2026-04-06T15:15:00Z"],
    ),
    (
        "CR-039",
        "15 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T00:00:00Z",
        ["2026-04-04T14:15:00Z", "2026-04-05T14:45:00Z", "2026-04-06T14:45:00Z"],
    ),
    (
        "CR-044",
        "*/30 * * * *",
        "America/New_York",
        "2026-11-01T05:10:00Z",
        ["2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:30:00Z"],
    ),
    (
        "CR-045",
        "0 * * * *",
        "America/New_York",
        "2026-11-01T04:30:00Z",
        ["2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"],
    ),
    (
        "CR-048",
        "30 */6 * * *",
        "America/New_York",
        "2026-11-01T03:00:00Z",
        ["2026-11-01T04:30:00Z", "2026-11-01T11:30:00Z", "2026-11-01T17:30:00Z"],
    ),
    (
        "CR-049",
        "0 0 13 * FRI",
        "UTC",
        "2026-03-01T00:00:00Z",
        ["2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z", "2026-03-20T00:00:00Z"],
    ),
    (
        "CR-050",
        "0 0 1,15 * 1",
        "UTC",
        "2026-06-01T00:00:00Z",
        ["2026-06-08T00:00:00Z", "2026-06-15T00:00:00Z", "2026-06-22T00:00:00Z"],
    ),
    (
        "CR-055",
        "0 9 * * MON-FRI",
        "Asia/Kolkata",
        "2026-05-01T12:00:00Z",
        ["2026-05-04T03:30:00Z", "2026-05-05T03:30:00Z", "2026-05-06T03:30:00Z"],
    ),
    (
        "CR-056",
        "0 0 */2 * 1",
        "UTC",
        "2026-05-01T00:00:00Z",
        ["2026-05-11T00:00:00Z", "2026-05-25T00:00:00Z", "2026-06-01T00:00:00Z"],
    ),
    (
        "CR-058",
        "0 0 1-7 * 1",
        "UTC",
        "2026-05-01T00:00:00Z",
        ["2026-05-02T00:00:00Z", "2026-05-03T00:00:00Z", "2026-05-04T00:00:00Z"],
    ),
    (
        "CR-059",
        "0 0 29 2 *",
        "UTC",
        "2026-01-01T00:00:00Z",
        ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z", "2036-02-29T00:00:00Z"],
    ),
    (
        "CR-063",
        "0 0 30 * *",
        "UTC",
        "2026-01-30T12:00:00Z",
        ["2026-03-30T00:00:00Z", "2026-04-30T00:00:00Z", "2026-05-30T00:00:00Z"],
    ),
    (
        "CR-064",
        "0 0 31 4,5 *",
        "UTC",
        "2026-01-01T00:00:00Z",
        ["2026-05-31T00:00:00Z", "2027-05-31T00:00:00Z", "2028-05-31T00:00:00Z"],
    ),
    (
        "CR-066",
        "0 0 28-31 * *",
        "America/New_York",
        "2028-02-27T00:00:00Z",
        ["2028-02-28T05:00:00Z", "2028-02-29T05:00:00Z", "2028-03-28T04:00:00Z"],
    ),
    (
        "CR-067",
        "*/5 * * * *",
        "UTC",
        "2026-05-01T00:05:00Z",
        ["2026-05-01T00:10:00Z", "2026-05-01T00:15:00Z", "2026-05-01T00:20:00Z"],
    ),
    (
        "CR-068",
        "*/5 * * * *",
        "UTC",
        "2026-05-01T00:04:59.999Z",
        ["2026-05-01T00:05:00Z", "2026-05-01T00:10:00Z", "2026-05-01T00:15:00Z"],
    ),
    (
        "CR-069",
        "*/7 * * * *",
        "UTC",
        "2026-05-01T00:50:00Z",
        ["2026-05-01T00:56:00Z", "2026-05-01T01:00:00Z", "2026-05-01T01:07:00Z"],
    ),
    (
        "CR-073",
        "0 12 1 */3 *",
        "UTC",
        "2026-02-01T00:00:00Z",
        ["2026-04-01T12:00:00Z", "2026-07-01T12:00:00Z", "2026-10-01T12:00:00Z"],
    ),
    (
        "CR-075",
        "0 0 * * sun",
        "UTC",
        "2026-05-01T00:00:00Z",
        ["2026-05-03T00:00:00Z", "2026-05-10T00:00:00Z", "2026-05-17T00:00:00Z"],
    ),
    (
        "CR-077",
        "0 0 * * *",
        "Pacific/Apia",
        "2026-05-01T00:00:00Z",
        ["2026-05-01T11:00:00Z", "2026-05-02T11:00:00Z", "2026-05-03T11:00:00Z"],
    ),
    (
        "CR-079",
        "0 0 * * *",
        "America/Mexico_City",
        "2026-04-04T12:00:00Z",
        ["2026-04-05T06:00:00Z", "2026-04-06T06:00:00Z", "2026-04-07T06:00:00Z"],
    ),
    (
        "CR-085",
        "0 12 * * *",
        "Pacific/Apia",
        "2011-12-29T00:00:00Z",
        ["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"],
    ),
];

#[test]
fn the_table_of_schedules_holds() {
    for (id, expression, zone_name, after, next) in TABLE {
        let (cron, zone) = (cron(expression), zone(zone_name));
        let mut after = at(after);
        for expected in next {
            let found = cron.next_after(&zone, after);
            assert_eq!(found, Some(at(expected)), "{id}: {expression} in {zone_name} after {after:?}");
            after = at(expected);
        }
    }
}

#[test]
fn what_never_comes_is_said_to_never_come() {
    for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "* * 31 2 *"] {
        assert_eq!(cron(expression).next_after(&zone("UTC"), at("2026-01-01T00:00:00Z")), None, "{expression}");
    }
}

#[test]
fn the_rarest_date_is_still_found() {
    // A star before the step makes both day fields bind: a 29 February that is a Sunday.
    let next = cron("0 0 29 2 */7").next_after(&zone("UTC"), at("2088-03-01T00:00:00Z"));
    assert_eq!(next, Some(at("2128-02-29T00:00:00Z")));
}

#[test]
fn what_is_no_expression_is_refused() {
    for expression in [
        "",
        " ",
        "* * * *",
        "* * * * * *",
        "@reboot",
        "* 24 * * *",
        "60 * * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * 0 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "1.5 * * * *",
        "* * * FOO *",
        "* * L * *",
        "* * * * 1#2",
        "-1 * * * *",
        "+1 * * * *",
        "1, * * * *",
        ",1 * * * *",
        "1- * * * *",
        "*/ * * * *",
        "*/-1 * * * *",
        "1/2 * * * *",
        "** * * * *",
        "*/999 1 2 3 4 5",
        "0001 * * * *",
        "٣ * * * *",
        "*\n* * * *",
        "* * * * *\0",
    ] {
        let error = expression.parse::<Cron>().unwrap_err();
        assert_eq!(error.code(), "cron-invalid", "{expression:?}: {error}");
    }
    assert_eq!("1,".repeat(300).parse::<Cron>(), Err(CronError::TooLong));
}

#[test]
fn what_is_no_zone_is_refused() {
    for name in
        ["Local", "+05:30", "America/New York", "", "UTC+1", "EST5EDT4", "Etc/Unknown", "../UTC", "Europe/Berlin\0"]
    {
        assert_eq!(name.parse::<Zone>().unwrap_err().code(), "zone-unknown", "{name:?}");
    }
}

#[test]
fn names_and_numbers_say_the_same() {
    assert_eq!(cron("0 0 * JAN-mar Mon,FRI"), cron("0 0 * 1-3 1,5"));
    assert_eq!(cron("0 0 * * 7"), cron("0 0 * * 0"));
    assert_eq!(cron("0 0 * * 5-7"), cron("0 0 * * 0,5,6"));
    assert_eq!(cron("0\t0  1 1 *"), cron("0 0 1 1 *"));
}

#[test]
fn a_step_of_more_than_a_field_holds_names_its_first_value() {
    assert_eq!(
        cron("*/200 0 1 1 1-5/9").next_after(&zone("UTC"), at("2026-01-01T00:00:00Z")),
        Some(at("2026-01-05T00:00:00Z"))
    );
}

#[test]
fn instants_at_the_ends_of_time_give_an_answer_or_none() {
    for after in [i64::MIN, i64::MAX, -377_705_023_201_000, 253_402_207_200_000] {
        let _ = cron("* * * * *").next_after(&zone("Pacific/Apia"), UnixMs(after));
    }
}

const ZONES: [&str; 14] = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "America/Nuuk",
    "America/Havana",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "America/St_Johns",
    "Africa/Cairo",
    "Asia/Tehran",
    "Pacific/Chatham",
];

fn field(first: u8, last: u8) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        2 => (first..=last).prop_map(|value| value.to_string()),
        1 => (first..=last, first..=last).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (1_u8..20).prop_map(|step| format!("*/{step}")),
    ]
}

proptest! {
    #[test]
    fn the_next_is_later_and_nothing_lies_between(
        minute in field(0, 59), hour in field(0, 23), day in field(1, 31), month in field(1, 12), weekday in field(0, 7),
        zone_at in 0..ZONES.len(), after_s in 1_577_836_800_i64..1_924_992_000,
    ) {
        let cron = cron(&format!("{minute} {hour} {day} {month} {weekday}"));
        let zone = zone(ZONES[zone_at]);
        let after = UnixMs(after_s * 1_000);
        if let Some(next) = cron.next_after(&zone, after) {
            prop_assert!(next > after);
            prop_assert_eq!(next.0 % 1_000, 0);
            // Asked from anywhere in between, the answer is the same.
            let between = UnixMs(after.0 + (next.0 - after.0) / 2);
            if between < next {
                prop_assert_eq!(cron.next_after(&zone, between), Some(next));
            }
        }
    }

    #[test]
    fn any_text_is_an_expression_or_an_error(text in "[-0-9*/, a-zA-Z]{0,40}") {
        let _ = text.parse::<Cron>();
    }
}
