//! The fact check: what it catches, and what it does not mistake for a contradiction.

use serde_json::{Value, json};

use super::{answered, document};

async fn grounded(documents: &[Value]) -> Value {
    answered("sophia.ground", json!({ "documents": documents })).await.output
}

async fn checked(claims: Value, documents: &[Value]) -> Value {
    answered("sophia.fact_check", json!({ "mode": "claims", "claims": claims, "documents": documents })).await.output
}

/// The values that are reported as contradicting each other.
async fn contradictions(a: &str, b: &str) -> Vec<Vec<String>> {
    let documents =
        [document("a.md", &format!("# Larkspur\n\n{a}\n")), document("b.md", &format!("# Larkspur\n\n{b}\n"))];
    let ground = grounded(&documents).await;
    let report = checked(ground["claims"].clone(), &documents).await;
    let values = |one: &Value| -> Vec<String> {
        one["values"].as_array().unwrap().iter().map(|value| value["value"].as_str().unwrap().to_owned()).collect()
    };
    report["contradictions"].as_array().unwrap().iter().map(values).collect()
}

#[tokio::test]
async fn another_day_number_or_version_for_the_same_thing_is_a_contradiction() {
    for (a, b, values) in [
        (
            "The club releases Larkspur 3.0 on May 2, 2026.",
            "Larkspur 3.0 was released on 3 May 2026.",
            ["2026-05-02", "2026-05-03"],
        ),
        (
            "In all, Larkspur counted 300 users this spring.",
            "This spring Larkspur counted 310 users in all.",
            ["300", "310"],
        ),
        (
            "To build it, Larkspur requires Rust 1.80 at least.",
            "For builds, Larkspur needs Rust 1.82 now.",
            ["1.80", "1.82"],
        ),
        (
            "The latest release of the club is Larkspur 3.1.",
            "The club says the latest release is Larkspur 3.2.",
            ["3.1", "3.2"],
        ),
    ] {
        assert_eq!(contradictions(a, b).await, [values.map(str::to_owned).to_vec()], "{a} / {b}");
    }
}

#[tokio::test]
async fn what_agrees_or_is_about_something_else_is_no_contradiction() {
    for (a, b) in [
        ("Larkspur 3.0 was released on 2 May 2026.", "The release of Larkspur 3.0 was on May 2, 2026."),
        ("Larkspur 3.0 was released on 2 May 2026.", "Larkspur 3.0 was released on 2 May."),
        ("Larkspur 3.0 was released on 2 May 2026.", "Larkspur 3.1 was released on 9 June 2026."),
        ("Larkspur counted about 300 users this spring.", "This spring Larkspur counted 310 users."),
        ("Larkspur counted 300 users this spring.", "The Larkspur cellar holds 310 users of bicycles."),
        (
            "Larkspur counted 300 users this spring.",
            "Larkspur counted 300 users this spring, not 310 users as planned.",
        ),
        ("The club met on 2 May 2026 about Larkspur.", "Larkspur painted its shed on 9 May 2026."),
        ("We like the Larkspur 3.0 release very much.", "We like the Larkspur 3.1 release even more."),
    ] {
        assert_eq!(contradictions(a, b).await, Vec::<Vec<String>>::new(), "{a} / {b}");
    }
}

#[tokio::test]
async fn a_claim_whose_quote_or_figure_is_not_in_the_source_is_found_out() {
    let documents = [document("a.md", "# Larkspur\n\nLarkspur counted 300 users in this spring alone.\n")];
    let claims = grounded(&documents).await["claims"].clone();
    let report = checked(claims.clone(), &documents).await;
    assert_eq!((&report["claims"], &report["supported"], &report["problems"]), (&json!(1), &json!(1), &json!([])));
    for (pointer, value, code) in [
        ("/0/quote/start", json!(0), "quote-not-found"),
        ("/0/quote/text", json!("Larkspur counted 900 users in this spring alone."), "quote-not-found"),
        ("/0/quote/source", json!("b.md"), "source-missing"),
        ("/0/value", json!("301"), "figure-not-in-quote"),
        ("/0/quote/plain", json!("Larkspur counted 301 users."), "figure-not-in-quote"),
    ] {
        let mut forged = claims.clone();
        *forged.pointer_mut(pointer).unwrap() = value;
        let report = checked(forged, &documents).await;
        assert_eq!(report["supported"], json!(0), "{pointer}");
        assert_eq!(report["problems"][0]["code"], code, "{pointer}");
    }
}

#[tokio::test]
async fn a_draft_with_a_forged_quote_or_link_is_found_out_and_shown() {
    let documents = [document("a.md", "# Larkspur\n\nLarkspur counted 300 users in this spring alone.\n")];
    let ground = grounded(&documents).await;
    let draft =
        answered("composition.suggest", json!({ "mode": "draft", "ground": ground })).await.output["draft"].clone();
    let mut forged = draft.clone();
    forged["items"][0]["quotes"][0]["text"] = json!("Never said.");
    forged["items"][0]["link"] = json!("javascript:alert(1)");
    let args = json!({ "mode": "citations", "draft": forged, "documents": documents });
    let answer = answered("sophia.fact_check", args).await;
    let codes: Vec<&str> =
        answer.output["problems"].as_array().unwrap().iter().map(|p| p["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["link-not-offered", "quote-not-found"]);
    assert_eq!(answer.output["cited"], json!(0));
    let state = serde_json::to_value(answer.evidence.unwrap().grounding_state).unwrap();
    assert_eq!(state, "ungrounded");
    let render = json!({
        "mode": "render",
        "draft": forged,
        "claims": answered("sophia.fact_check", json!({ "mode": "claims", "claims": [], "documents": [] })).await.output,
        "citations": answer.output,
    });
    let rendered = answered("composition.suggest", render).await.output;
    assert!(rendered["markdown"].as_str().unwrap().contains("## What did not hold (2)"));
    assert!(!rendered["html"].as_str().unwrap().contains("href=\"javascript"));
}

#[tokio::test]
async fn a_document_whose_text_is_not_its_bytes_is_marked() {
    let mut redacted = document("a.md", "# Larkspur\n\nLarkspur counted 300 users in this spring alone.\n");
    redacted["sha256"] = json!("0".repeat(64));
    let ground = grounded(&[redacted]).await;
    assert_eq!(ground["sources"][0]["altered"], json!(true));
}
