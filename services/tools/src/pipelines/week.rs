//! `arete.weekly_review_draft`.

use serde_json::{Value, json};

use super::{ask, edited, file, refused, samples};
use crate::bundled::testing::{call, run};
use crate::tool::ToolOutcome;
use crate::week::tools::CalendarRead;

fn args() -> Value {
    json!({
        "mode": "files", "uris": [samples("week/week.ics")], "from": "2026-11-23", "to": "2026-11-30", "zone": "Europe/Berlin",
    })
}

#[tokio::test]
async fn a_week_is_read_from_a_calendar_file_with_what_repeats_moves_and_is_left_out() {
    let week = ask("calendar.read", args()).await;
    assert_eq!(week["failures"], json!([]));
    let line =
        |one: &Value| format!("{} {} {} {}", one["day"], one["start"], one["minutes"], one["title"]).replace('"', "");
    let lines: Vec<String> = week["events"].as_array().unwrap().iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "2026-11-23 09:15 15 Morning round",
            "2026-11-23 10:00 150 Write the harbour chapter",
            "2026-11-24 09:15 15 Morning round",
            "2026-11-24 13:00 180 Revise the harbour chapter",
            "2026-11-24 17:00 45 Call with the printer",
            "2026-11-25 11:00 30 Morning round, moved for the fire drill",
            "2026-11-26 19:30 120 Choir",
            "2026-11-27 08:30 45 Dentist",
            "2026-11-27 09:15 15 Morning round",
            "2026-11-28 null 0 Day at the lake",
        ]
    );
}

#[tokio::test]
async fn a_review_counts_the_week_and_lists_what_is_open() {
    let week = ask("calendar.read", args()).await;
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(samples("week/memory.json")).unwrap()).unwrap();
    let memory = json!({ "key": "week", "found": true, "value": kept });
    let review =
        ask("composition.suggest", json!({ "mode": "review", "week": week, "memory": memory })).await["review"].clone();
    let review = edited(review).await;
    let rendered = ask("composition.suggest", json!({ "mode": "render-review", "review": review })).await;
    insta::assert_snapshot!("review.md", file(&rendered, "arete", "review.md"));
    // Without a memory there is a review all the same.
    let week = ask("calendar.read", args()).await;
    ask("composition.suggest", json!({ "mode": "review", "week": week })).await;
}

/// Reads a calendar of these lines, in a folder of its own.
async fn read(lines: &str, zone: &str) -> Value {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.ics");
    std::fs::write(&path, format!("BEGIN:VCALENDAR\r\n{lines}\r\nEND:VCALENDAR\r\n")).unwrap();
    let mut order = call(
        &CalendarRead,
        json!({
            "mode": "files", "uris": [path.to_str().unwrap()], "from": "2026-03-23", "to": "2026-03-30", "zone": zone,
        }),
    );
    order.constraints.paths = Some(vec![home.path().to_str().unwrap().to_owned()]);
    match run(&CalendarRead, order).await {
        ToolOutcome::Ok(answer) | ToolOutcome::Partial(answer) => answer.output,
        other @ (ToolOutcome::Error(_) | ToolOutcome::Cancelled) => panic!("{other:?}"),
    }
}

fn codes(week: &Value) -> Vec<&str> {
    week["failures"].as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn times_keep_their_own_zone_over_a_change_of_the_clocks() {
    let event = "BEGIN:VEVENT\r\nSUMMARY:Round\r\nDTSTART;TZID=America/New_York:20260302T090000\r\nDURATION:PT1H\r\n\
                 RRULE:FREQ=DAILY\r\nEND:VEVENT";
    let week = read(event, "Europe/Berlin").await;
    let starts: Vec<&str> =
        week["events"].as_array().unwrap().iter().map(|one| one["start"].as_str().unwrap()).collect();
    // New York changed its clocks on 8 March, Berlin on 29 March.
    assert_eq!(starts, ["14:00", "14:00", "14:00", "14:00", "14:00", "14:00", "15:00"]);
}

#[tokio::test]
async fn what_cannot_be_read_of_a_calendar_is_named_and_the_rest_is_read() {
    let event = |more: &str| format!("BEGIN:VEVENT\r\nSUMMARY:Good\r\n{more}\r\nEND:VEVENT");
    let week = read(&event("DTSTART;TZID=Moon/Base:20260324T090000"), "UTC").await;
    assert_eq!((codes(&week), &week["events"][0]["start"]), (vec!["zone-unknown"], &json!("09:00")));
    let week = read(&event("DTSTART:20260324T090000\r\nRRULE:FREQ=SECONDLY;COUNT=999999999"), "UTC").await;
    assert_eq!((codes(&week), week["events"].as_array().unwrap().len()), (vec!["recurrence-not-read"], 1));
    let week = read(&event("DTSTART:20261324T250000"), "UTC").await;
    assert_eq!((codes(&week), &week["events"]), (vec!["date-not-read"], &json!([])));
    let week = read(&event("DTSTART:20260324T090000\r\nDURATION:P999999999999Y"), "UTC").await;
    assert_eq!(codes(&week), ["duration-not-read"]);
    let endless = event("DTSTART:00010101T000000\r\nRRULE:FREQ=DAILY;INTERVAL=100000");
    assert_eq!(read(&endless, "UTC").await["failures"], json!([]));
    let week = read("BEGIN:VEVENT", "UTC").await;
    assert_eq!((codes(&week), &week["events"]), (vec!["calendar-broken"], &json!([])));
    let failure = refused(
        "calendar.read",
        json!({
            "mode": "files", "uris": ["/etc/hostname"], "from": "2026-03-23", "to": "2027-03-30",
        }),
    );
    assert_eq!(failure.await.code, "span-out-of-range");
    let week = ask(
        "calendar.read",
        json!({
            "mode": "files", "uris": ["/etc/hostname"], "from": "2026-03-23", "to": "2026-03-30",
        }),
    );
    assert_eq!(codes(&week.await), ["path-not-allowed"]);
}
