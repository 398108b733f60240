//! `arete.weekly_review_draft`.

use serde_json::{Value, json};

use super::{ask, edited, file, samples};

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
