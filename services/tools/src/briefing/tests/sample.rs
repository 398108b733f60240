//! The sample of the repository: six made-up sources, two of which contradict each other.

use serde_json::{Value, json};

use super::{Walk, document, quotes_found, walk};

const SAMPLE: [(&str, &str); 6] = [
    ("club-news.xml", include_str!("../../../../../samples/weekly/club-news.xml")),
    ("harbour-notes.txt", include_str!("../../../../../samples/weekly/harbour-notes.txt")),
    ("larkspur-roadmap.md", include_str!("../../../../../samples/weekly/larkspur-roadmap.md")),
    ("meadow-log.json", include_str!("../../../../../samples/weekly/meadow-log.json")),
    ("paperkite-advisory.md", include_str!("../../../../../samples/weekly/paperkite-advisory.md")),
    ("quillhaven-courier.html", include_str!("../../../../../samples/weekly/quillhaven-courier.html")),
];

fn sample() -> Vec<Value> {
    SAMPLE.iter().map(|(name, text)| document(name, text)).collect()
}

async fn pack() -> Walk {
    walk(&sample(), None).await
}

#[tokio::test]
async fn the_plan_and_the_tools_fit_together_and_give_three_files() {
    let walk = pack().await;
    let names: Vec<&str> = walk.files.keys().map(String::as_str).collect();
    assert_eq!(names, ["briefing.html", "briefing.json", "briefing.md"]);
    let summary = &walk.outputs["assemble.render"]["summary"];
    assert_eq!(
        (&summary["items"], &summary["contradictions"], &summary["unusable"]),
        (&json!(7), &json!(3), &json!(0))
    );
    let digest = signalbox_domain::canonical::sha256_hex(walk.files["briefing.md"].as_bytes());
    assert_eq!(summary["sha256"]["briefing.md"], json!(digest));
}

#[tokio::test]
async fn the_fact_check_reports_the_date_the_number_and_the_version_and_nothing_else() {
    let json = pack().await.json();
    let rows: Vec<(&str, &str, Vec<&str>, Vec<&str>)> = json["contradictions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let stated = one["values"].as_array().unwrap();
            (
                one["kind"].as_str().unwrap(),
                one["subject"].as_str().unwrap(),
                stated.iter().map(|value| value["value"].as_str().unwrap()).collect(),
                stated.iter().map(|value| value["quotes"][0]["source"].as_str().unwrap()).collect(),
            )
        })
        .collect();
    let sources = vec!["larkspur-roadmap.md", "quillhaven-courier.html"];
    assert_eq!(
        rows,
        [
            ("date", "Larkspur", vec!["2026-09-14", "2026-09-21"], sources.clone()),
            ("number", "Larkspur", vec!["1240", "1420"], sources.clone()),
            ("version", "Larkspur", vec!["1.85", "1.88"], sources),
        ]
    );
}

#[tokio::test]
async fn a_reader_is_shown_each_contradiction_with_both_quotes() {
    let walk = pack().await;
    for file in ["briefing.md", "briefing.html"] {
        let text = &walk.files[file];
        for shown in ["14 September 2026", "21 September 2026", "1,240 tests", "1,420 tests", "Rust 1.85", "Rust 1.88"]
        {
            assert!(text.contains(shown), "{file} does not show {shown}");
        }
    }
    assert!(walk.files["briefing.md"].contains("### Larkspur: number of tests\n"));
}

#[tokio::test]
async fn every_quote_is_found_byte_for_byte_in_its_source_whatever_its_format() {
    let walk = pack().await;
    let json = walk.json();
    let count = quotes_found(&json, &sample());
    assert_eq!(json["checks"]["quotes"], json!(count));
    assert_eq!(json["checks"]["quotesFound"], json!(count));
    let read_as: Vec<&str> =
        json["sources"].as_array().unwrap().iter().map(|source| source["readAs"].as_str().unwrap()).collect();
    assert_eq!(read_as, ["rss", "text", "markdown", "json-feed", "advisory", "html"]);
    let raw = json["items"].to_string();
    assert!(raw.contains("<time datetime=\\\"2026-09-21\\\">21 September 2026</time>"), "markup stays in a quote");
    assert!(raw.contains("\\\\u201copen all day\\\\u201d"), "escapes of a JSON feed stay in a quote");
}

#[tokio::test]
async fn the_advisory_leads_and_stories_are_grouped_by_what_they_share() {
    let walk = pack().await;
    assert_eq!(
        walk.ids(),
        [
            "DEMO-2026-0001",
            "larkspur-roadmap.md",
            "quillhaven-courier.html",
            "club-news.xml#1",
            "meadow-log.json",
            "club-news.xml#2",
            "harbour-notes.txt",
        ]
        .map(|id| if id == "meadow-log.json" { "meadow-log.json#1" } else { id })
    );
    let advisory = walk.item("DEMO-2026-0001");
    assert_eq!(advisory["kind"], "vulnerability");
    assert_eq!((&advisory["severity"], &advisory["score"]), (&json!("medium"), &json!(5.3)));
    assert_eq!((&advisory["affected"], &advisory["patched"]), (&json!(">= 1.2.0, < 1.4.2"), &json!(">= 1.4.2")));
    assert_eq!(advisory["link"], "https://paperkite.example/advisories/1");
    let story = walk.item("quillhaven-courier.html");
    assert_eq!((&story["kind"], &story["date"]), (&json!("story"), &json!("2026-08-26")));
    assert_eq!(story["link"], "https://courier.quillhaven.example/2026/08/map-club");
}

#[tokio::test]
async fn what_a_page_hides_from_its_readers_is_not_quoted() {
    let walk = pack().await;
    assert!(walk.files.values().all(|text| !text.contains("must not be quoted")));
}

#[tokio::test]
async fn the_order_in_which_sources_arrive_does_not_change_a_byte() {
    let mut turned = sample();
    turned.reverse();
    assert_eq!(pack().await.files, walk(&turned, None).await.files);
    assert_eq!(pack().await.files, pack().await.files);
}

#[tokio::test]
async fn the_files_hold_no_machine_path() {
    assert!(pack().await.files.values().all(|text| !text.contains("/srv/")));
}

#[tokio::test]
async fn a_date_filter_keeps_the_day_itself_and_says_what_it_left_out() {
    let whole = pack().await;
    assert!(whole.json().get("leftOut").is_none() && !whole.files["briefing.md"].contains("left out"));
    let since = walk(&sample(), Some("2026-08-26")).await;
    assert_eq!(since.ids().len(), 4);
    assert_eq!(since.json()["leftOut"], json!({ "since": "2026-08-26", "count": 3, "undated": 0 }));
    let sentence = "Only items since 2026-08-26: 3 items dated before that day are left out.";
    assert!(since.files["briefing.md"].contains(sentence) && since.files["briefing.html"].contains(sentence));
}

#[tokio::test]
async fn the_text_says_that_it_is_extractive_and_what_was_checked() {
    let walk = pack().await;
    let json = walk.json();
    assert_eq!(json["method"], "extractive");
    let count = json["checks"]["quotes"].as_u64().unwrap();
    for file in ["briefing.md", "briefing.html"] {
        let text = &walk.files[file];
        assert!(text.contains("The text is extractive: no model wrote it"), "{file}");
        assert!(text.contains(&format!("{count} of {count} quotes found byte for byte")), "{file}");
        assert!(text.contains("3 contradictions were found"), "{file}");
    }
}
