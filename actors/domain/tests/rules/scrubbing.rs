//! Values that are known to be secret are taken out of what a tool says, however it writes them (CAP-013).

#![allow(clippy::disallowed_types, reason = "how long scrubbing takes is what is measured here")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;
use signalbox_domain::redact::scrub::{SECRET_BYTES_MAX, Scrubber, fits};
use signalbox_domain::run::event::{ArtifactRef, Evidence, GroundingState};
use signalbox_domain::run::step::{CallEnding, CallResult};

const SECRET: &str = "corre/ct \"FAKE\"+h\\orse";

fn scrubber() -> Scrubber {
    Scrubber::new([SECRET]).unwrap()
}

fn encode(bytes: &[u8], digits: &str) -> String {
    let digit = |bits: u32| char::from(digits.as_bytes()[(bits & 63) as usize]);
    let groups = bytes.chunks(3).map(|group| {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let digits: String = [18, 12, 6, 0].iter().take(group.len() + 1).map(|shift| digit(bits >> shift)).collect();
        format!("{digits:=<4}")
    });
    groups.collect()
}

const STANDARD: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn percent(text: &str, which: impl Fn(u8) -> bool) -> String {
    text.bytes().map(|b| if which(b) { format!("%{b:02X}") } else { char::from(b).to_string() }).collect()
}

#[test]
fn a_value_is_found_as_it_is_and_as_encoders_write_it() {
    let scrubber = scrubber();
    let json = serde_json::to_string(SECRET).unwrap();
    let forms = [
        SECRET.to_owned(),
        json.trim_matches('"').to_owned(),
        json.trim_matches('"').replace('/', "\\/"),
        SECRET.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect(),
        percent(SECRET, |b| !b.is_ascii_alphanumeric()),
        percent(SECRET, |b| !b.is_ascii_alphanumeric()).to_lowercase().replace("fake", "FAKE"),
        percent(SECRET, |_| true),
        SECRET.replace(' ', "+"),
        SECRET.bytes().map(|b| format!("{b:02x}")).collect(),
        SECRET.bytes().map(|b| format!("{b:02X}")).collect(),
    ];
    for form in forms {
        assert_eq!(scrubber.text(&format!("<{form}>")), "<[redacted]>", "{form}");
    }
    assert_eq!(scrubber.text("nothing to see"), "nothing to see");
}

#[test]
fn base64_is_found_at_each_alignment_in_both_alphabets_with_and_without_padding() {
    let scrubber = scrubber();
    for digits in [STANDARD, URL_SAFE] {
        for before in ["", "u", "u:", "usr", "user:"] {
            for after in ["", "x", "xy"] {
                let encoded = encode(format!("{before}{SECRET}{after}").as_bytes(), digits);
                for text in [
                    encoded.clone(),
                    encoded.trim_end_matches('=').to_owned(),
                    encoded.replace('+', "%2B").replace('/', "%2F"),
                ] {
                    let scrubbed = scrubber.text(&text).into_owned();
                    // No more than what its neighbours decide alone is left.
                    assert!(
                        scrubbed.contains("[redacted]") && scrubbed.len() <= "[redacted]".len() + 12,
                        "{text}: {scrubbed}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_part_of_a_result_is_scrubbed() {
    let message = format!("bad login with {SECRET}");
    let ending = CallEnding::Answered {
        partial: false,
        output: json!({ "echo": [SECRET], SECRET: {"deep": message.clone()}, "n": 7, "ok": null }),
        evidence: Some(Evidence {
            evidence_pack_id: message.clone(),
            grounding_state: GroundingState::Grounded,
            citation_count: 1,
        }),
        effects: vec![message.clone()],
        artifacts: vec![ArtifactRef {
            name: message.clone(),
            persisted_key: message.clone(),
            media_type: message.clone(),
            sha256: "0".repeat(64),
            size: 1,
        }],
    };
    let failed = CallEnding::Failed { code: "x".into(), message: message.clone() };
    let not_started = CallEnding::NotStarted { code: "x".into(), message: message.clone() };
    for ending in [ending, failed, not_started, CallEnding::Unknown { message }] {
        let result = scrubber().result(CallResult { ending, measured: None, latency_ms: 1 });
        let told = format!("{result:?}");
        assert!(!told.contains("FAKE") && told.contains("[redacted]"), "{told}");
    }
}

#[test]
fn a_number_that_is_a_secret_is_scrubbed_and_others_stay_numbers() {
    let scrubber = Scrubber::new(["12345678"]).unwrap();
    assert_eq!(scrubber.value(json!([12_345_678, 1234, {"n": 1.5}])), json!(["[redacted]", 1234, {"n": 1.5}]));
}

#[test]
fn each_long_line_of_a_value_is_a_secret_of_its_own() {
    let key = "first line\nRkFLRUZBS0VGQUtFRkFLRQ==\nlast line";
    let scrubber = Scrubber::new([key]).unwrap();
    assert_eq!(scrubber.text("<RkFLRUZBS0VGQUtFRkFLRQ==>"), "<[redacted]>");
    assert_eq!(scrubber.text("the last line"), "the last line");
    assert_eq!(scrubber.text(&format!("<{}>", key.replace('\n', "\\n"))), "<[redacted]>");
}

#[test]
fn a_value_that_is_too_short_or_too_long_is_refused_and_never_named() {
    assert_eq!(Scrubber::new(["FAKE"]).unwrap_err().code(), "secret-too-short");
    assert_eq!(fits(&"x".repeat(SECRET_BYTES_MAX + 1)).unwrap_err().code(), "secret-too-long");
    let longest = "FAKE0123".repeat(SECRET_BYTES_MAX / 8);
    let scrubber = Scrubber::new([longest.as_str()]).unwrap();
    assert_eq!(scrubber.text(&format!("<{longest}>")), "<[redacted]>");
    assert!(!format!("{scrubber:?}").contains("FAKE"));
}

#[test]
fn hostile_text_is_scrubbed_in_linear_time() {
    let scrubber = Scrubber::new(["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaFAKEb"]).unwrap();
    // Text that agrees with the value again and again, and never to the end. The bound only tells linear time from time
    // that grows with the square of the length.
    for unit in ["a", "%61", "\\u0061", "YWFh"] {
        let text = unit.repeat((1 << 20) / unit.len());
        let begun = Instant::now();
        assert_eq!(scrubber.text(&text), text);
        assert!(begun.elapsed() < Duration::from_secs(5), "`{unit}` took {:?}", begun.elapsed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_value_survives_in_any_text(secret in "[ -~é🔑]{8,40}", before in ".{0,20}", after in ".{0,20}") {
        let scrubber = Scrubber::new([secret.as_str()]).unwrap();
        let text = format!("{before}{secret}{after}");
        prop_assert!(!scrubber.text(&text).replace("[redacted]", "").contains(&secret));
        let json = serde_json::to_string(&text).unwrap();
        prop_assert!(!scrubber.text(&json).replace("[redacted]", "").contains(serde_json::to_string(&secret).unwrap().trim_matches('"')));
    }
}
