//! The four tools as an executor sees them: arguments, evidence, usage and refusals.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signalbox_domain::quantity::BudgetCategory;

use super::{answered, document, refused, tool};
use crate::bundled::testing::{call, run, usage};
use crate::tool::ToolOutcome;

fn text() -> Value {
    document("a.md", "# Larkspur\n\nLarkspur counted 300 users in this spring alone. The shed is still green.\n")
}

fn state(answer: &crate::tool::Answer) -> String {
    let state = serde_json::to_value(answer.evidence.as_ref().unwrap().grounding_state).unwrap();
    state.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_four_tools_are_served_and_described_as_the_catalog_has_them() {
    let config = crate::bundled::BundledConfig::default();
    let ids: BTreeSet<String> = crate::briefing::tools(&config).iter().map(|tool| tool.descriptor().tool_id).collect();
    let wanted = ["composition.suggest", "persona.invoke", "sophia.fact_check", "sophia.ground"];
    assert_eq!(ids, wanted.map(str::to_owned).into());
    for id in wanted {
        let descriptor = tool(id).descriptor();
        let entry = signalbox_domain::catalog::entry(&id.parse().unwrap()).unwrap();
        assert_eq!((descriptor.recovery, &descriptor.ceiling), (entry.recovery, &entry.ceiling), "{id}");
        assert!(!descriptor.has_side_effects, "{id}");
    }
}

#[tokio::test]
async fn grounding_answers_with_evidence_and_what_it_used() {
    let answer = answered("sophia.ground", json!({ "documents": [[text()], text()] })).await;
    assert_eq!(state(&answer), "grounded");
    let quotes = answer.output["items"][0]["quotes"].as_array().unwrap().len() as u64;
    assert_eq!(answer.evidence.as_ref().unwrap().citation_count, quotes);
    assert_eq!(answer.measured, Some(usage(3.0, [(BudgetCategory::Retrievals, 1.0)])));
    assert_eq!(answer.output["unusable"][0]["code"], "document-repeated");
}

#[tokio::test]
async fn nothing_to_say_is_ungrounded_and_still_an_answer() {
    let answer = answered("sophia.ground", json!({ "documents": [] })).await;
    assert_eq!((state(&answer), answer.output["items"].clone()), ("ungrounded".to_owned(), json!([])));
    let draft = answered("composition.suggest", json!({ "mode": "draft", "ground": answer.output })).await;
    assert_eq!(draft.output["draft"]["glance"], json!(["No item was found in 0 sources."]));
}

#[tokio::test]
async fn a_source_that_is_not_usable_makes_the_outcome_partial() {
    let failures = json!([{ "name": "b.md", "code": "source-not-found", "message": "there is no such file" }]);
    let ground = tool("sophia.ground");
    let args = json!({ "documents": [text()], "failures": [failures] });
    let ToolOutcome::Partial(answer) = run(ground.as_ref(), call(ground.as_ref(), args)).await else {
        panic!("not partial")
    };
    let wanted = json!([{ "name": "b.md", "code": "source-not-found", "reason": "there is no such file" }]);
    assert_eq!(answer.output["unusable"], wanted);
}

#[tokio::test]
async fn a_query_is_answered_with_the_passages_that_fit_it_best() {
    let args = json!({ "documents": [text()], "query": "What colour is the shed?" });
    let passages = answered("sophia.ground", args).await.output["passages"].clone();
    assert_eq!(passages[0]["quote"]["text"], "The shed is still green.");
    assert!(passages[0]["score"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn bad_arguments_are_refused_by_their_code() {
    let many: Vec<Value> = (0..10_001).map(|n| json!({ "name": format!("{n}"), "text": "" })).collect();
    for (tool, args, code) in [
        ("sophia.ground", json!({}), "args-invalid"),
        ("sophia.ground", json!({ "documents": [7] }), "args-invalid"),
        ("sophia.ground", json!({ "documents": [], "extra": 1 }), "args-invalid"),
        ("sophia.ground", json!({ "documents": many }), "too-many-documents"),
        ("sophia.ground", json!({ "documents": [], "since": "last week" }), "since-not-a-day"),
        ("sophia.ground", json!({ "documents": [], "since": "2026-02-30" }), "since-not-a-day"),
        ("sophia.ground", json!({ "documents": [], "query": "q".repeat(3_000) }), "query-too-long"),
        ("sophia.fact_check", json!({ "mode": "vibes" }), "args-invalid"),
        ("sophia.fact_check", json!({ "mode": "claims", "documents": [] }), "args-invalid"),
        ("composition.suggest", json!({ "mode": "draft", "ground": [] }), "args-invalid"),
        ("composition.suggest", json!({ "mode": "render" }), "args-invalid"),
        ("persona.invoke", json!({ "persona": "lilith.host", "text": "x" }), "persona-not-available"),
        ("persona.invoke", json!({ "persona": "lilith.scribe" }), "args-invalid"),
        ("persona.invoke", json!({ "persona": "lilith.scribe", "text": "x".repeat(300_000) }), "text-too-long"),
    ] {
        assert_eq!(refused(tool, args).await, code, "{tool}");
    }
}

#[tokio::test]
async fn a_call_whose_ceiling_is_below_the_price_does_nothing() {
    let ground = tool("sophia.ground");
    let mut order = call(ground.as_ref(), json!({ "documents": [] }));
    order.ceiling = signalbox_domain::quantity::Usage::none();
    let ToolOutcome::Error(failure) = run(ground.as_ref(), order).await else { panic!("not refused") };
    assert_eq!(failure.code, "ceiling-too-low");
}

#[tokio::test]
async fn a_draft_whose_quotes_changed_after_the_check_is_not_rendered() {
    let ground = answered("sophia.ground", json!({ "documents": [text()] })).await.output;
    let draft =
        answered("composition.suggest", json!({ "mode": "draft", "ground": ground })).await.output["draft"].clone();
    let check = json!({ "mode": "citations", "draft": draft, "documents": [text()] });
    let citations = answered("sophia.fact_check", check).await.output;
    let claims = json!({ "mode": "claims", "claims": ground["claims"], "documents": [text()] });
    let claims = answered("sophia.fact_check", claims).await.output;
    let mut changed = draft.clone();
    changed["items"][0]["quotes"][0]["text"] = json!("Something else.");
    let render = |draft: &Value| json!({ "mode": "render", "draft": draft, "claims": claims, "citations": citations });
    assert_eq!(refused("composition.suggest", render(&changed)).await, "quotes-changed-after-check");
    assert!(answered("composition.suggest", render(&draft)).await.output["markdown"].is_string());
}

#[tokio::test]
async fn the_persona_edits_what_was_written_here_and_reports_it_but_never_a_quote() {
    let hype =
        document("hype.md", "# Amazing!\n\nAn amazing, revolutionary kite is here at last! It is truly very new.\n");
    let ground = answered("sophia.ground", json!({ "documents": [hype] })).await.output;
    let mut draft =
        answered("composition.suggest", json!({ "mode": "draft", "ground": ground })).await.output["draft"].clone();
    draft["glance"] = json!(["What an exciting week!"]);
    let edited = answered("persona.invoke", json!({ "persona": "lilith.scribe", "draft": draft })).await.output;
    assert_eq!(edited["draft"]["glance"], json!(["What an week."]));
    assert_eq!(edited["changes"].as_array().unwrap().len(), 2);
    assert_eq!(edited["draft"]["items"], draft["items"]);
    assert!(edited["narration"].as_str().unwrap().contains("What an week."));
    let text = answered("persona.invoke", json!({ "persona": "lilith.scribe", "text": "Truly new!" })).await.output;
    assert_eq!(text["text"], "new.");
}

#[tokio::test]
async fn a_thousand_documents_about_one_thing_are_read_compared_and_rendered() {
    let documents: Vec<Value> = (0..1_000)
        .map(|n| {
            let text = format!("# Note {n}\n\nIn spring Larkspur counted {n} users on its own.\n");
            document(&format!("{n:05}.md"), &text)
        })
        .collect();
    let walk = super::walk(&documents, None).await;
    let json = walk.json();
    assert_eq!(json["items"].as_array().unwrap().len(), 1_000);
    assert_eq!(json["checks"]["quotes"], json["checks"]["quotesFound"]);
    assert!(json["checks"]["contradictions"].as_u64().unwrap() > 0);
}
