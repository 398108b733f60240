//! What a credential says: the claims of a token, and an API key.

#![allow(clippy::unwrap_used, reason = "a target panics to say what is wrong")]

use serde_json::Value;
use signalbox_domain::identity::{ClaimNames, ClaimRules, KeyText, RESERVED_PREFIXES, SCOPES_MAX, read_claims};

/// When the tokens of the corpus are good, in seconds since the Unix epoch.
const NOW: i64 = 1_800_000_000;

/// Claims: whoever is believed is exactly whom any other reader of the same bytes would take it for, and is still good.
pub(super) fn claims(bytes: &[u8]) {
    if let Some(key) = std::str::from_utf8(bytes).ok().and_then(KeyText::parse) {
        assert_eq!(key.reveal().as_bytes(), bytes, "two texts are one key");
    }
    let rules = ClaimRules {
        issuer: "https://issuer.example".to_owned(),
        audience: "signalbox".to_owned(),
        leeway_seconds: 30,
        names: ClaimNames::default(),
    };
    let Ok(caller) = read_claims(bytes, &rules, NOW) else { return };
    let said: Value = serde_json::from_slice(bytes).unwrap();
    assert_eq!(
        (&said["iss"], &said["sub"]),
        (&"https://issuer.example".into(), &caller.actor.actor_id.as_str().into())
    );
    assert_eq!(
        (&said["tenant"], &said["role"]),
        (&caller.tenant_id.as_str().into(), &caller.actor.role.as_str().into())
    );
    assert!(said["exp"].as_f64().unwrap() + 30.0 > NOW as f64, "it has expired");
    let names_us =
        |aud: &Value| aud == "signalbox" || aud.as_array().is_some_and(|all| all.contains(&"signalbox".into()));
    assert!(names_us(&said["aud"]), "it is for somebody else");
    assert!(!RESERVED_PREFIXES.iter().any(|ours| caller.actor.actor_id.as_str().starts_with(ours)));
    assert!(caller.scopes.len() <= SCOPES_MAX && caller.scopes.is_sorted());
    let listed = said.get("scope").map(Value::to_string).unwrap_or_default();
    assert!(caller.scopes.iter().all(|scope| listed.contains(scope.as_str())), "a scope that nobody gave");
}
