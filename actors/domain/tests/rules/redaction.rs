//! Redaction (KGV-013, KGV-014) against cases from public reports: what must not survive, and what must survive byte
//! for byte. Every secret here is made up.

#![allow(clippy::disallowed_types, reason = "how long redaction takes is what is measured here")]

use std::borrow::Cow;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;
use signalbox_domain::redact::{RedactionKind, redact_text, redact_value};

/// Text, what must be gone, what must be left.
const SECRETS: &[(&str, &[&str], &[&str])] = &[
    // Provider keys.
    (
        "git clone https://ghp_FAKE00000000000000000000000000000000@git.example.com/x.git",
        &["FAKE"],
        &["git.example.com/x.git"],
    ),
    ("(gho_FAKE00000000000000000000000000000000)", &["FAKE"], &["(", ")"]),
    ("here: sk-ant-api03-FAKE0000000000000000_0000000000-0000000000-0000AA", &["FAKE", "0000AA"], &["here: "]),
    (
        "https://maps.example.com/v1?key=AIzaFAKE0000000000000000000000000000000&q=Oslo",
        &["FAKE"],
        &["q=Oslo", "https://maps.example.com/v1"],
    ),
    ("app token xapp-1-FAKE0000000-0000000000000-00000000000000000000 end", &["FAKE", "0000"], &["app token ", " end"]),
    ("PRIVATE-TOKEN: glpat-FAKE0000000000000000", &["FAKE"], &[]),
    (
        "//registry.example.com/:_authToken=npm_FAKE00000000000000000000000000000000",
        &["FAKE"],
        &["registry.example.com"],
    ),
    ("dop_v1_fa0e0000000000000000000000000000fa0e0000000000000000000000000000", &["fa0e"], &[]),
    ("# AGE-SECRET-KEY-1FAKE000000000000000000000000000000000000000000000000000000", &["FAKE"], &["# "]),
    ("aws AKIAFAKE000000000000 here", &["FAKE"], &["aws ", " here"]),
    ("\u{202e}ghp_FAKE00000000000000000000000000000000\u{202c}", &["FAKE"], &[]),
    // Tokens.
    ("token eyJhbGciOiJub25lIn0.eyJzdWIiOiJmYWtlIn0. accepted?", &["eyJ"], &["accepted?"]),
    ("jwe=eyJhbGciOiJSU0EtT0FFUCJ9.FAKEkey_-0.FAKEiv00.FAKEtext-0.FAKEtag00 x", &["eyJ", "FAKE"], &[" x"]),
    (
        "authorization: bearer FAKE000000000000000000000000000000000000\r\nHost: api.example.com",
        &["FAKE"],
        &["Host: api.example.com"],
    ),
    ("Authorization: Basic RkFLRTpGQUtF==", &["RkFLRTpGQUtF"], &["Authorization"]),
    ("X-Api-Key: FAKE0000000000000000000000000000", &["FAKE"], &["X-Api-Key"]),
    (r#"{"headers":{"Authorization":"Bearer FAKE00000000000000000000"}}"#, &["FAKE"], &[r#""headers""#]),
    // Assignments.
    ("password=hunter2FAKE", &["hunter2FAKE"], &["password="]),
    ("password: hunterFAKE", &["hunterFAKE"], &["password: "]),
    (r"passwd='it\'s-FAKE-9'", &["FAKE"], &["passwd='"]),
    ("pwd=FAKE;Server=db.example.com", &["FAKE"], &["Server=db.example.com"]),
    ("login?password=FAKE&next=/home", &["FAKE"], &["&next=/home"]),
    ("DB_PASSWORD=FAKE", &["FAKE"], &["DB_PASSWORD="]),
    (
        "postgres://app:FAKEpw77@db.example.com:5432/signalbox",
        &["FAKEpw77"],
        &["://app:", "@db.example.com:5432/signalbox"],
    ),
    ("redis://:FAKEpw78@cache.example.com:6379/0", &["FAKEpw78"], &["@cache.example.com:6379/0"]),
    ("amqp://app:FAKE%2Fpw%40x@mq.example.com/", &["FAKE", "40x"], &["mq.example.com"]),
    ("amqp://app:FAKE@pw@mq.example.com/", &["FAKE", "pw@"], &["mq.example.com"]),
    (r#"{"password":"FAKE\u0041pw"}"#, &["FAKE", "pw\""], &[r#"{"password":""#]),
    (r#"{"private_key":"FAKE-line1\nFAKE-line2"}"#, &["FAKE"], &[r#""private_key""#]),
    (r#"{"cmd":"{\"password\":\"FAKE pw\"}","n":1}"#, &["FAKE", "pw"], &[r#""n":1"#]),
    ("password:\n  FAKEnextline99", &["FAKE"], &[]),
    ("--password FAKEflag88 --user app", &["FAKE"], &["--user app"]),
    ("--db-password FAKEflag --user app", &["FAKE"], &["--user app"]),
    ("-pFAKEshort99 -u app", &["FAKE"], &["-u app"]),
    ("Passwort: FAKEde123", &["FAKE"], &[]),
    ("pass\u{200b}word=FAKEzw12", &["FAKE"], &[]),
    ("access_token=FAKE0000000000", &["FAKE"], &["access_token="]),
    ("token=password=FAKE", &["FAKE"], &[]),
    // Private keys.
    (
        "-----BEGIN RSA PRIVATE KEY-----\nFAKE/line+1\nFAKE/line+2=\n-----END RSA PRIVATE KEY-----\nafter",
        &["FAKE"],
        &["after"],
    ),
    (
        r#"{"key":"-----BEGIN PRIVATE KEY-----\nFAKE/1\nFAKE/2\n-----END PRIVATE KEY-----\n"}"#,
        &["FAKE"],
        &[r#"{"key":""#, r#"\n"}"#],
    ),
    ("-----BEGIN EC PRIVATE KEY-----\r\nFAKE/1\r\n-----END EC PRIVATE KEY-----", &["FAKE"], &[]),
    ("log: -----BEGIN OPENSSH PRIVATE KEY-----\nFAKE/1\nFAKE/2", &["FAKE"], &["log: "]),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nFAKE\n-----END PGP PRIVATE KEY BLOCK----- x", &["FAKE"], &[" x"]),
];

const HARMLESS: &[&str] = &[
    "The password is a recurring theme in act two.",
    "She kept the secret: the garden door was never locked.",
    "Use a token bucket with burst 10 and refill 5/s.",
    "input_token_count: 1532",
    "MAX_TOKENS=100",
    "MAX_TOKEN=100000000",
    "tokens: 12345678",
    "commit 3f2504e04f8941d39a0c0305e82c33013f2504e0",
    "run 3f2504e0-4f89-41d3-9a0c-0305e82c3301 finished",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    r#"{"argsHash":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}"#,
    "01J9Z3NDEKTSV4RRFFQ69G5FAV",
    "export API_KEY=${API_KEY}",
    "export API_KEY=$API_KEY",
    "Authorization: Bearer <token>",
    "the bearer authentication scheme",
    "password: ********",
    "def login(user, password=None):",
    "def login(user, password: str, retries: int):",
    "password = get_password()",
    r#"{"password":null,"token":""}"#,
    r#"{"$secret":"mail-gateway-1"}"#,
    "sk-learn is a library; ask-me-anything",
    "task_id=task-000123, disk-usage=81%",
    "a.b.c and 1.2.3-alpha.1",
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
    "секрет и пароль — два слова",
    "Meet at 10:30, gate B12, seat 14C",
    "🔑 key emoji and 🧪",
    "👩\u{200d}🔬 at work",
    "[REDACTED]",
    "password=[REDACTED]",
    "monkey=banana keyboard=qwerty",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "https://example.com:8080/a?page=2#top",
    "see http://a.example: mail b@example.com",
    "2026-05-11T00:00:00Z",
    "",
];

#[test]
fn no_known_shape_of_secret_survives() {
    for (text, gone, left) in SECRETS {
        let redacted = redact_text(text);
        for secret in *gone {
            assert!(!redacted.contains(secret), "`{secret}` survives in `{redacted}`");
        }
        for part in *left {
            assert!(redacted.contains(part), "`{part}` is missing in `{redacted}`");
        }
        assert!(redacted.contains("[redacted:"), "{redacted}");
    }
}

#[test]
fn what_is_no_secret_stays_byte_for_byte() {
    for text in HARMLESS {
        assert!(
            matches!(redact_text(text), Cow::Borrowed(same) if same == *text),
            "{text} became {}",
            redact_text(text)
        );
    }
}

#[test]
fn redacting_twice_changes_nothing_more() {
    for (text, _, _) in SECRETS {
        let once = redact_text(text).into_owned();
        assert_eq!(redact_text(&once), once);
    }
}

#[test]
fn each_kind_leaves_its_own_mask() {
    let samples = [
        "-----BEGIN PRIVATE KEY-----\nFAKE\n-----END PRIVATE KEY-----",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJmYWtlIn0.FAKE",
        "Bearer FAKE0000000000000000",
        "ghp_FAKE00000000000000000000000000000000",
        "password=FAKE",
    ];
    for (kind, sample) in RedactionKind::ALL.into_iter().zip(samples) {
        assert!(redact_text(sample).contains(kind.mask()), "{sample}");
    }
}

#[test]
fn a_json_text_is_json_afterwards() {
    for text in [
        r#"{"password":12345678}"#,
        r#"{"a":{"password":9},"b":2}"#,
        r#"{"headers":{"Authorization":"Bearer FAKE00000000000000000000"}}"#,
        r#"{"cmd":"{\"password\":\"FAKE pw\"}","n":1}"#,
        r#"{"password":"FAKE\u0041pw","token":"FAKE00000000"}"#,
    ] {
        let redacted = redact_text(text);
        assert_ne!(redacted, text);
        assert!(serde_json::from_str::<serde_json::Value>(&redacted).is_ok(), "{redacted}");
    }
}

#[test]
fn a_value_under_a_secret_name_is_masked_whatever_it_looks_like() {
    let (redacted, changed) = redact_value(&json!({
        "user": "ada", "password": "correct horse", "pin": 1, "passphrase": 1234, "api_key": ["FAKE", null],
        "token": "FAKE00000000", "max_tokens": 100, "nextToken": "page", "secret": {"$secret": "mail-1"},
    }));
    let mask = RedactionKind::Assignment.mask();
    assert!(changed);
    assert_eq!(
        redacted,
        json!({
            "user": "ada", "password": mask, "pin": 1, "passphrase": mask, "api_key": [mask, null],
            "token": mask, "max_tokens": 100, "nextToken": "page", "secret": {"$secret": "mail-1"},
        })
    );
    assert_eq!(redact_value(&redacted), (redacted.clone(), false));
}

#[test]
fn a_secret_in_a_key_or_deep_inside_is_masked() {
    let (redacted, changed) =
        redact_value(&json!([{"x": [{"ghp_FAKE00000000000000000000000000000000": "password=FAKE"}]}]));
    assert!(changed);
    assert_eq!(redacted, json!([{"x": [{"[redacted:api_key]": "password=[redacted:assignment]"}]}]));
}

#[test]
fn a_value_without_secrets_is_unchanged() {
    let value = json!({"a": [1, 2.5, null, true, "x"], "argsHash": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4"});
    assert_eq!(redact_value(&value), (value.clone(), false));
}

/// Pieces of secrets that never become whole, or that each pattern has to look at long.
const HOSTILE: &[&str] = &[
    "-----BEGIN PRIVATE KEY-----",
    "password=\"a ",
    "password: ",
    "token=token:",
    "://a:b",
    "eyJaaaa.",
    "authorization: bearer ",
    "sk-",
    "\\\"",
    "a",
];

/// Time this thread has spent at work, where the system tells: what else the machine does is no part of it.
fn at_work(since: Instant) -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|told| told.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| since.elapsed(), Duration::from_nanos)
}

/// The shortest of three.
fn reading(unit: &str, bytes: usize) -> Duration {
    let (text, since) = (unit.repeat(bytes / unit.len()), Instant::now());
    let time = |_| {
        let begun = at_work(since);
        let _ = redact_text(&text);
        at_work(since) - begun
    };
    (0..3).map(time).min().unwrap()
}

/// The stated bound is that of an optimised build. In any build four times the text takes about four times as long; if
/// time grew with the square of the length it would be sixteen.
#[test]
fn hostile_text_is_read_in_linear_time() {
    let all = HOSTILE.concat();
    for unit in HOSTILE.iter().copied().chain([all.as_str()]) {
        let (short, long) = (reading(unit, 32 * 1024), reading(unit, 128 * 1024));
        assert!(long < short * 10 + Duration::from_millis(20), "`{unit}`: {short:?}, then {long:?}");
        if !cfg!(debug_assertions) {
            let took = reading(unit, 1024 * 1024);
            assert!(took < Duration::from_millis(200), "`{unit}` took {took:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_makes_it_panic_and_the_mask_is_stable(text in any::<String>()) {
        let once = redact_text(&text).into_owned();
        prop_assert_eq!(redact_text(&once).into_owned(), once);
    }

    #[test]
    fn base64_passes_unharmed(bytes in proptest::collection::vec("[A-Za-z0-9+/]{4}", 500)) {
        let text = bytes.concat();
        prop_assert_eq!(redact_text(&text), text.as_str());
    }

    #[test]
    fn a_password_never_survives_its_assignment(password in "[a-zA-Z0-9]{6,20}FAKE9") {
        for text in [format!("password={password}"), format!("x password: {password} y"), format!("{{\"password\":\"{password}\"}}")] {
            prop_assert!(!redact_text(&text).contains(&password));
        }
    }
}
