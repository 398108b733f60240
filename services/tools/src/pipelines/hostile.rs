//! What nobody should send.

use serde_json::{Value, json};

use super::{ask, refused};

fn document(text: &str) -> Value {
    json!({ "name": "a.md", "mediaType": "text/markdown", "text": text })
}

#[tokio::test]
async fn arguments_of_another_shape_are_refused_and_name_their_fault() {
    let cases = [
        ("composition.suggest", json!({ "mode": "outline", "material": {} })),
        ("composition.suggest", json!({ "mode": "no-such-mode" })),
        ("composition.suggest", json!({ "mode": "explain", "events": [], "length": "endless" })),
        ("composition.suggest", json!({ "mode": "explain", "events": [{ "kind": "comet" }], "length": "short" })),
        ("composition.suggest", json!({ "mode": "inbox", "story": [] })),
        ("composition.suggest", json!({ "mode": "review", "week": { "from": 1 } })),
        ("sophia.ground", json!({ "mode": "questions", "material": {}, "count": 3 })),
        ("sophia.ground", json!({ "mode": "material", "documents": [], "extra": 1 })),
        ("sophia.fact_check", json!({ "mode": "quotes", "documents": [] })),
        ("persona.invoke", json!({ "mode": "work", "persona": "lilith.scribe" })),
        ("calendar.read", json!({})),
        ("calendar.read", json!({ "mode": "sky", "from": "2026-01-01", "to": "2026-02-01", "extra": true })),
        ("calendar.read", json!({ "mode": "files", "uris": [], "from": "2026-01-01", "to": "2026-01-02" })),
        ("source.fetch", json!({ "mode": "burn", "uris": ["/x"] })),
    ];
    for (tool, args) in cases {
        let failure = refused(tool, args.clone()).await;
        assert_eq!(failure.code, "args-invalid", "{tool} {args}");
    }
    let nothing = json!({ "mode": "material", "documents": [document("  ")] });
    assert_eq!(refused("sophia.ground", nothing).await.code, "material-empty");
    let persona = json!({ "mode": "work", "persona": "somebody", "work": {} });
    assert_eq!(refused("persona.invoke", persona).await.code, "persona-not-available");
}

#[tokio::test]
async fn a_text_full_of_marks_controls_and_turned_words_gives_a_guide_without_them() {
    let text = "# <script>alert(1)</script> `x\n\nA <img src=x onerror=alert(1)> trap is a \u{202e}thing | with `ticks and [a](javascript:x) \
                link. The trap exists because somebody \u{0}wrote it. It has 40 \u{200b}teeth.\n";
    let documents = json!([document(text)]);
    let material = ask("sophia.ground", json!({ "mode": "material", "documents": documents })).await;
    let outline =
        ask("composition.suggest", json!({ "mode": "outline", "material": material })).await["outline"].clone();
    let args = json!({ "mode": "study-guide", "material": material, "outline": outline });
    let guide = ask("composition.suggest", args).await["guide"].clone();
    let questions =
        ask("sophia.ground", json!({ "mode": "questions", "material": material })).await["questions"].clone();
    let work = json!({ "guide": guide, "questions": questions });
    let citations = ask("sophia.fact_check", json!({ "mode": "quotes", "work": work, "documents": documents })).await;
    assert_eq!(citations["clear"], json!(true), "{citations}");
    let args = json!({ "mode": "render-guide", "guide": guide, "questions": questions, "citations": citations });
    let rendered = ask("composition.suggest", args).await;
    for (name, text) in rendered["files"].as_object().unwrap() {
        let text = text.as_str().unwrap();
        for forbidden in ["<script>alert", "<img", "\u{202e}", "\u{0}", "href=\"javascript"] {
            assert!(name.ends_with(".json") || !text.contains(forbidden), "{forbidden:?} in {name}");
        }
    }
}

#[tokio::test]
async fn a_quote_that_is_none_is_found_out_wherever_it_stands() {
    let quote = json!({ "source": "a.md", "start": 0, "end": 4, "text": "lies" });
    let work = json!({ "deep": [{ "down": [quote, { "source": "b", "start": -1, "end": "x", "text": 7 }] }] });
    let args = json!({ "mode": "quotes", "work": work, "documents": [document("true words")] });
    let report = ask("sophia.fact_check", args).await;
    assert_eq!((&report["found"], &report["clear"]), (&json!(0), &json!(false)));
    let codes: Vec<&str> =
        report["problems"].as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["quote-not-found", "source-missing"]);
}

#[tokio::test]
async fn thousands_of_headings_and_terms_stay_inside_their_bounds() {
    let mut text = String::new();
    for n in 0..3_000 {
        text.push_str(&format!("## Part {n}\n\nA thing{n} is a kind of object because of number {n}.\n\n"));
    }
    let material = ask("sophia.ground", json!({ "mode": "material", "documents": [document(&text)] })).await;
    assert_eq!(material["sections"].as_array().unwrap().len(), 1_000);
    assert!(material["terms"].as_array().unwrap().len() <= 68);
    assert_eq!(material["unusable"][0]["code"], "too-many-sections");
    let questions = ask("sophia.ground", json!({ "mode": "questions", "material": material, "count": 200 })).await;
    assert_eq!(questions["questions"].as_array().unwrap().len(), 200);
    let args = json!({ "mode": "course-outline", "material": material, "lessons": 60 });
    let course = ask("composition.suggest", args).await;
    assert_eq!(course["course"]["lessons"].as_array().unwrap().len(), 60);
}

#[tokio::test]
async fn an_event_that_was_made_up_draws_no_markup_and_names_no_path() {
    let event = json!({
        "id": "../../<script>", "kind": "conjunction", "at": "x\"><script>", "local": "y", "title": "<b>", "bodies": ["<svg>", "Mars"],
        "form": "\"><script>", "degrees": -1e300, "magnitude": 1e300,
    });
    let given = ask("composition.suggest", json!({ "mode": "picture", "events": [event.clone()] })).await;
    let picture = &given["pictures"][0];
    assert_eq!(picture["file"], "conjunction.svg");
    assert!(!picture["svg"].as_str().unwrap().contains("<script>"));
    let check = ask("sophia.fact_check", json!({ "mode": "sky", "work": [event] })).await;
    assert_eq!(check["problems"][0]["code"], "event-not-readable");
}
