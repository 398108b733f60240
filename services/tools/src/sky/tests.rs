//! Against published almanacs, 2024 to 2030.

use jiff::Timestamp;

use super::*;

fn minutes(at: &str) -> i64 {
    let at: Timestamp = format!("{}:00Z", at.trim_end_matches('Z').replace(' ', "T")).parse().unwrap();
    at.as_second() / 60
}

/// All events of these years, worked out once.
fn all() -> &'static [Event] {
    static ALL: std::sync::LazyLock<Vec<Event>> = std::sync::LazyLock::new(|| {
        let mut all = events("2024-01-01", "2028-01-01", None).unwrap().events;
        all.extend(events("2028-01-01", "2031-01-01", None).unwrap().events);
        all
    });
    &ALL
}

fn of(kind: Kind) -> impl Iterator<Item = &'static Event> {
    all().iter().filter(move |event| event.kind == kind)
}

/// Each published time has its event, within the tolerance the kind states.
fn agree(kind: Kind, published: &[&str]) {
    for time in published {
        let nearest = of(kind).min_by_key(|event| (minutes(&event.at) - minutes(time)).abs()).unwrap();
        let off = (minutes(&nearest.at) - minutes(time)).abs();
        assert!(off <= kind.tolerance_minutes(), "{} {time}: {} is {off} minutes off", kind.as_str(), nearest.at);
    }
}

#[test]
fn equinoxes_and_solstices_agree_with_published_times() {
    agree(
        Kind::MarchEquinox,
        &[
            "2024-03-20 03:06",
            "2025-03-20 09:01",
            "2026-03-20 14:46",
            "2027-03-20 20:25",
            "2028-03-20 02:17",
            "2029-03-20 08:02",
            "2030-03-20 13:52",
        ],
    );
    agree(
        Kind::JuneSolstice,
        &[
            "2024-06-20 20:51",
            "2025-06-21 02:42",
            "2026-06-21 08:24",
            "2027-06-21 14:11",
            "2028-06-20 20:02",
            "2029-06-21 01:48",
            "2030-06-21 07:31",
        ],
    );
    agree(
        Kind::SeptemberEquinox,
        &[
            "2024-09-22 12:44",
            "2025-09-22 18:19",
            "2026-09-23 00:05",
            "2027-09-23 06:02",
            "2028-09-22 11:45",
            "2029-09-22 17:38",
            "2030-09-22 23:27",
        ],
    );
    agree(
        Kind::DecemberSolstice,
        &[
            "2024-12-21 09:20",
            "2025-12-21 15:03",
            "2026-12-21 20:50",
            "2027-12-22 02:42",
            "2028-12-21 08:19",
            "2029-12-21 14:14",
            "2030-12-21 20:09",
        ],
    );
    assert_eq!(all().iter().filter(|event| event.kind.is_season()).count(), 7 * 4);
}

#[test]
fn phases_of_the_moon_agree_with_published_times() {
    agree(
        Kind::NewMoon,
        &[
            "2024-01-11 11:57",
            "2024-04-08 18:21",
            "2025-01-29 12:36",
            "2025-08-23 06:06",
            "2026-02-17 12:01",
            "2026-08-12 17:37",
        ],
    );
    agree(Kind::FirstQuarter, &["2024-01-18 03:53", "2025-01-06 23:56", "2026-01-26 04:47"]);
    agree(
        Kind::FullMoon,
        &[
            "2024-01-25 17:54",
            "2024-08-19 18:26",
            "2025-01-13 22:27",
            "2025-09-07 18:09",
            "2026-01-03 10:03",
            "2026-03-03 11:38",
        ],
    );
    agree(Kind::LastQuarter, &["2024-01-04 03:30", "2025-01-21 20:31", "2026-01-10 15:48"]);
}

/// Day, form and time of the greatest eclipse, in universal time.
type Row = (&'static str, &'static str);

const SOLAR: [Row; 16] = [
    ("2024-04-08 18:17", "total"),
    ("2024-10-02 18:45", "annular"),
    ("2025-03-29 10:47", "partial"),
    ("2025-09-21 19:42", "partial"),
    ("2026-02-17 12:12", "annular"),
    ("2026-08-12 17:46", "total"),
    ("2027-02-06 16:00", "annular"),
    ("2027-08-02 10:07", "total"),
    ("2028-01-26 15:08", "annular"),
    ("2028-07-22 02:55", "total"),
    ("2029-01-14 17:13", "partial"),
    ("2029-06-12 04:05", "partial"),
    ("2029-07-11 15:36", "partial"),
    ("2029-12-05 15:03", "partial"),
    ("2030-06-01 06:28", "annular"),
    ("2030-11-25 06:51", "total"),
];

const LUNAR: [Row; 16] = [
    ("2024-03-25 07:13", "penumbral"),
    ("2024-09-18 02:44", "partial"),
    ("2025-03-14 06:59", "total"),
    ("2025-09-07 18:12", "total"),
    ("2026-03-03 11:34", "total"),
    ("2026-08-28 04:13", "partial"),
    ("2027-02-20 23:13", "penumbral"),
    ("2027-07-18 16:03", "penumbral"),
    ("2027-08-17 07:14", "penumbral"),
    ("2028-01-12 04:13", "partial"),
    ("2028-07-06 18:20", "partial"),
    ("2028-12-31 16:52", "total"),
    ("2029-06-26 03:22", "total"),
    ("2029-12-20 22:42", "total"),
    ("2030-06-15 18:33", "partial"),
    ("2030-12-09 22:28", "penumbral"),
];

#[test]
fn the_eclipses_are_the_published_ones_and_no_others() {
    for (kind, rows) in [(Kind::SolarEclipse, SOLAR), (Kind::LunarEclipse, LUNAR)] {
        let found: Vec<(&Event, Row)> = of(kind).zip(rows).collect();
        assert_eq!((of(kind).count(), found.len()), (rows.len(), rows.len()), "{:?}", of(kind).collect::<Vec<_>>());
        for (event, (time, form)) in found {
            let off = (minutes(&event.at) - minutes(time)).abs();
            assert!(off <= kind.tolerance_minutes(), "{time}: {} is {off} minutes off", event.at);
            assert_eq!(event.form.as_deref(), Some(form), "{time}");
        }
    }
}

#[test]
fn what_the_planets_do_agrees_with_published_days() {
    let find = |kind: Kind, day: &str, bodies: &[&str]| {
        let fits = |event: &&Event| event.at.starts_with(day) && event.bodies == bodies;
        of(kind).find(fits).unwrap_or_else(|| panic!("{} {day} {bodies:?}", kind.as_str()))
    };
    find(Kind::Opposition, "2024-12-07", &["Jupiter"]);
    find(Kind::Opposition, "2026-01-10", &["Jupiter"]);
    find(Kind::Opposition, "2024-09-08", &["Saturn"]);
    find(Kind::Opposition, "2025-09-21", &["Saturn"]);
    find(Kind::Opposition, "2025-01-16", &["Mars"]);
    find(Kind::InferiorConjunction, "2025-03-23", &["Venus"]);
    let elongation = |day: &str, body: &str, form: &str, degrees: f64| {
        let event = find(Kind::GreatestElongation, day, &[body]);
        assert_eq!(event.form.as_deref(), Some(form));
        assert!((event.degrees.unwrap() - degrees).abs() < 0.11, "{event:?}");
    };
    elongation("2025-01-10", "Venus", "evening", 47.2);
    elongation("2025-06-01", "Venus", "morning", 45.9);
    elongation("2024-03-24", "Mercury", "evening", 18.7);
    elongation("2024-05-09", "Mercury", "morning", 26.4);
    let close = |day: &str, bodies: &[&str], degrees: f64| {
        let event = find(Kind::Conjunction, day, bodies);
        assert!((event.degrees.unwrap() - degrees).abs() < 0.11, "{event:?}");
    };
    close("2024-08-14", &["Mars", "Jupiter"], 0.3);
    close("2025-08-12", &["Venus", "Jupiter"], 0.9);
}

#[test]
fn days_zones_and_spans_that_cannot_be_are_refused_by_their_code() {
    let code = |from: &str, to: &str, zone: Option<&str>| events(from, to, zone).unwrap_err().code();
    assert_eq!(code("2026-02-30", "2026-03-01", None), "not-a-day");
    assert_eq!(code("2026-2-3", "2026-03-01", None), "not-a-day");
    assert_eq!(code("2026-03-01", "2026-03-01", None), "span-out-of-range");
    assert_eq!(code("2026-03-02", "2026-03-01", None), "span-out-of-range");
    assert_eq!(code("2026-01-01", "2036-01-01", None), "span-out-of-range");
    assert_eq!(code("1850-01-01", "1850-02-01", None), "year-out-of-range");
    assert_eq!(code("2026-01-01", "2200-01-01", None), "year-out-of-range");
    assert_eq!(code("2026-01-01", "2026-02-01", Some("Mars/Olympus")), "zone-unknown");
    assert_eq!(code("2026-01-01", "2026-02-01", Some("../etc/passwd")), "zone-unknown");
}

#[test]
fn a_day_belongs_to_the_zone_asked_for_and_neighbouring_spans_share_nothing() {
    // The September equinox of 2026 is at 00:05 UTC on the 23rd: still the 22nd in Chicago.
    let there = events("2026-09-22", "2026-09-23", Some("America/Chicago")).unwrap();
    assert!(there.events.iter().any(|event| event.kind == Kind::SeptemberEquinox && event.local == "2026-09-22 19:05"));
    let here = events("2026-09-22", "2026-09-23", None).unwrap();
    assert!(!here.events.iter().any(|event| event.kind == Kind::SeptemberEquinox));
    let whole = events("2026-01-01", "2027-01-01", None).unwrap().events;
    let mut parts = events("2026-01-01", "2026-06-30", None).unwrap().events;
    parts.extend(events("2026-06-30", "2027-01-01", None).unwrap().events);
    assert_eq!(whole, parts);
}
