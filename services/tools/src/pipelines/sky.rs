//! `nyx.event_explainer_set` and `tara.seasonal_program`.

use serde_json::json;

use super::{ask, edited, file, refused, samples};

#[tokio::test]
async fn explainers_say_what_comes_out_of_the_sky_and_are_confirmed() {
    let args = json!({ "mode": "sky", "from": "2026-08-01", "to": "2026-10-01", "zone": "Europe/Berlin" });
    let sky = ask("calendar.read", args).await;
    let picked = ask("composition.suggest", json!({ "mode": "pick-events", "sky": sky, "count": 6 })).await;
    let explain = |length: &str| json!({ "mode": "explain", "events": picked["events"], "length": length, "zone": picked["zone"] });
    let short = ask("composition.suggest", explain("short")).await["explainers"].clone();
    let long = ask("composition.suggest", explain("long")).await["explainers"].clone();
    let args = json!({ "mode": "picture", "events": picked["events"] });
    let pictures = ask("composition.suggest", args).await["pictures"].clone();
    let work = edited(json!({ "short": short, "long": long })).await;
    let check = ask("sophia.fact_check", json!({ "mode": "sky", "work": work })).await;
    assert_eq!((&check["clear"], &check["events"]), (&json!(true), &json!(6)), "{check}");
    let args = json!({
        "mode": "render-events", "short": work["short"], "long": work["long"], "pictures": pictures, "check": check,
    });
    let rendered = ask("composition.suggest", args).await;
    insta::assert_snapshot!("events.md", file(&rendered, "nyx", "events.md"));
    insta::assert_snapshot!("eclipse.svg", file(&rendered, "nyx", "2026-08-12-solar-eclipse.svg"));

    let mut forged = work.clone();
    forged["short"][0]["event"]["at"] = json!("2026-08-12T17:40Z");
    let check = ask("sophia.fact_check", json!({ "mode": "sky", "work": forged })).await;
    assert_eq!(check["clear"], json!(false));
    assert_eq!(check["problems"][0]["code"], "event-differs");
}

#[tokio::test]
async fn a_season_has_its_frame_its_scripts_and_its_readings() {
    let args = json!({ "mode": "sky", "from": "2026-12-15", "to": "2027-03-25", "zone": "Europe/Berlin" });
    let sky = ask("calendar.read", args).await;
    let frame = ask("composition.suggest", json!({ "mode": "season-frame", "sky": sky })).await["frame"].clone();
    let fetched = ask("source.fetch", json!({ "uris": [samples("material/03-sundials.pdf")] })).await;
    let args = json!({ "documents": fetched["documents"], "query": "the Sun, its shadow and noon" });
    let passages = ask("sophia.ground", args).await["passages"].clone();
    let args = json!({ "mode": "scripts", "frame": frame, "passages": passages });
    let scripts = ask("composition.suggest", args).await;
    let program = scripts["program"].clone();
    assert!(scripts["narration"].as_str().unwrap().contains("Close."));
    let check = ask("sophia.fact_check", json!({ "mode": "sky", "work": program })).await;
    assert_eq!(check["clear"], json!(true), "{check}");
    let pictures =
        ask("composition.suggest", json!({ "mode": "picture", "events": frame["events"] })).await["pictures"].clone();
    let args = json!({ "mode": "tone-review", "persona": "lilith.scribe", "work": program });
    let tone = ask("persona.invoke", args).await;
    assert_eq!(tone["clear"], json!(true), "our own scripts keep our own rules: {tone}");
    let args = json!({
        "mode": "render-season", "program": program, "pictures": pictures, "check": check, "tone": tone,
    });
    let rendered = ask("composition.suggest", args).await;
    insta::assert_snapshot!("program.md", file(&rendered, "tara", "program.md"));
    assert_eq!(
        refused(
            "composition.suggest",
            json!({ "mode": "season-frame", "sky": { "from": "2026-01-01", "to": "2026-01-02",
            "zone": "UTC", "events": [] } })
        )
        .await
        .code,
        "season-without-turn"
    );
}
