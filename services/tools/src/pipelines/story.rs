//! `veritas.story_drafting`.

use serde_json::json;

use super::{ask, file, samples};

#[tokio::test]
async fn a_folder_becomes_an_inbox_entry_with_its_contradictions_and_counterclaims() {
    let listed = ask("source.fetch", json!({ "mode": "enumerate", "uris": [samples("story")] })).await;
    let uris: Vec<&str> = listed["uris"].as_array().unwrap().iter().map(|uri| uri.as_str().unwrap()).collect();
    assert_eq!(uris.len(), 3, "{listed}");
    let fetched = ask("source.fetch", json!({ "uris": uris })).await;
    let documents = fetched["documents"].clone();
    let ground = ask("sophia.ground", json!({ "documents": documents, "failures": fetched["failures"] })).await;
    let args = json!({ "mode": "claims", "claims": ground["claims"], "documents": documents });
    let claims = ask("sophia.fact_check", args).await;
    let args = json!({ "mode": "contradictions", "ground": ground, "documents": documents });
    let contradictions = ask("sophia.fact_check", args).await;
    assert_eq!(contradictions["clear"], json!(false));
    let args = json!({
        "mode": "story", "ground": ground, "claims": claims, "contradictions": contradictions, "documents": documents,
    });
    let story = ask("composition.suggest", args).await["story"].clone();
    let kinds: Vec<&str> =
        story["counterclaims"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    for kind in ["figures-differ", "denied", "contrast"] {
        assert!(kinds.contains(&kind), "{kind} is not among {kinds:?}");
    }
    let args = json!({ "mode": "tone-review", "persona": "lilith.scribe", "work": story });
    let tone = ask("persona.invoke", args).await;
    let rendered = ask("composition.suggest", json!({ "mode": "inbox", "story": story, "tone": tone })).await;
    insta::assert_snapshot!("story.md", file(&rendered, "veritas", "story.md"));
    let args = json!({ "mode": "quotes", "work": story, "documents": documents });
    assert_eq!(ask("sophia.fact_check", args).await["clear"], json!(true));
}
