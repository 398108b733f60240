//! The tone-policy hook (INV-008).

use serde_json::json;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::ToolId;
use signalbox_domain::invocation::{PhraseTone, TonePolicy, ToneVerdict, judge_output, watches_tone};

fn policy() -> PhraseTone {
    PhraseTone::new(&["Guaranteed returns".to_owned(), "   ".to_owned()], &["as an expert".to_owned()])
}

fn word(verdict: &ToneVerdict) -> &'static str {
    match verdict {
        ToneVerdict::Pass => "pass",
        ToneVerdict::Warn(_) => "warn",
        ToneVerdict::Block(_) => "block",
    }
}

#[test]
fn a_phrase_is_found_whatever_its_case_and_white_space_and_only_as_a_whole() {
    let judged = |text: &str| word(&policy().judge("neutral", text));
    assert_eq!(judged("Tides are regular."), "pass");
    assert_eq!(judged("GUARANTEED\n  returns, they said"), "block");
    assert_eq!(judged("guaranteed returnsmanship"), "pass");
    assert_eq!(judged("I speak as an Expert here"), "warn");
    assert_eq!(judged("as an expert: guaranteed returns"), "block");
    assert_eq!(judged(""), "pass");
}

#[test]
fn a_policy_without_phrases_lets_everything_through() {
    let idle = PhraseTone::default();
    assert!(idle.is_idle() && PhraseTone::new(&[" ".to_owned()], &[]).is_idle());
    assert_eq!(idle.judge("neutral", "guaranteed returns"), ToneVerdict::Pass);
}

#[test]
fn the_worst_of_an_output_counts_wherever_it_stands() {
    let judged = |output| word(&judge_output(&policy(), "neutral", &output));
    assert_eq!(judged(json!({"a": [1, null, true, "fine"]})), "pass");
    assert_eq!(judged(json!({"a": ["as an expert"], "b": "fine"})), "warn");
    assert_eq!(judged(json!({"a": ["as an expert", {"deep": [["guaranteed returns"]]}]})), "block");
    assert_eq!(judged(json!({"guaranteed returns": 1})), "pass", "a key is no text that anybody reads");
}

#[test]
fn only_text_that_was_made_for_customers_and_creators_is_judged() {
    let tool = |id: &str| ToolId::new(id).unwrap();
    for (role, watched) in [
        (Role::Customer, true),
        (Role::Creator, true),
        (Role::Service, false),
        (Role::TenantOperator, false),
        (Role::PlatformOperator, false),
    ] {
        assert_eq!(watches_tone(role, &tool("composition.suggest")), watched, "{}", role.as_str());
        assert!(!watches_tone(role, &tool("source.fetch")) && !watches_tone(role, &tool("no.such.tool")));
    }
}
