//! Digests of arguments: the same for the same arguments, and for no others (RUN-013).

use proptest::prelude::*;
use serde_json::{Value, json};
use signalbox_domain::canonical::{NumberNotExact, canonical_bytes, digest, sha256_hex};
use signalbox_domain::run::chain::EventHash;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_order_of_keys_does_not_change_the_hash() {
    let one = parsed(r#"{"b":[1,{"y":2,"x":1}],"a":"é"}"#);
    let other = parsed(r#"{ "a": "\u00e9", "b": [1.0, {"x": 1, "y": 2}] }"#);
    assert_eq!(digest(&one).unwrap(), digest(&other).unwrap());
    assert_ne!(digest(&one).unwrap(), digest(&parsed(r#"{"a":"é","b":[{"y":2,"x":1},1]}"#)).unwrap());
}

#[test]
fn a_fixed_vector_hashes_to_what_anyone_can_compute_by_hand() {
    let args = parsed(r#"{"uris":["b.txt","a.txt"],"limit":10,"since":null}"#);
    assert_eq!(canonical_bytes(&args).unwrap(), br#"{"limit":10,"since":null,"uris":["b.txt","a.txt"]}"#);
    assert_eq!(digest(&args).unwrap(), "7e6c4c30c7adade3205b25682bb71330d5a92dc75ac793725d4ecca10c41e129");
    assert_eq!(digest(&json!({})).unwrap(), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
}

#[test]
fn keys_are_sorted_by_their_utf_16_units_and_numbers_printed_as_rfc_8785_says() {
    let value = parsed(r#"{"\ud83d\ude00":1,"\ufb33":2,"numbers":[333333333.33333329,1E30,4.50,2e-3,1e-27]}"#);
    // 1E30 is beyond what a double holds exactly.
    assert_eq!(digest(&value).unwrap_err(), NumberNotExact("1e+30".to_owned()));
    let value = parsed(r#"{"\ud83d\ude00":1,"\ufb33":2,"numbers":[333333333.33333329,4.50,2e-3,1e-27]}"#);
    let wanted = "{\"numbers\":[333333333.3333333,4.5,0.002,1e-27],\"\u{1f600}\":1,\"\u{fb33}\":2}";
    assert_eq!(String::from_utf8(canonical_bytes(&value).unwrap()).unwrap(), wanted);
}

#[test]
fn a_number_that_a_double_cannot_hold_is_refused_wherever_it_stands() {
    for text in ["9007199254740993", "-9007199254740993", "18446744073709551615", "[{\"a\":9007199254740993}]", "1e300"]
    {
        assert!(digest(&parsed(text)).is_err(), "{text}");
    }
    assert_eq!(NumberNotExact::CODE, "number-not-exact");
    for text in ["9007199254740992", "-9007199254740992", "0.1", "-0.0"] {
        assert!(digest(&parsed(text)).is_ok(), "{text}");
    }
}

#[test]
fn a_hash_of_the_journal_is_written_in_lower_case_hex_and_nothing_else() {
    let text = sha256_hex(b"signalbox");
    assert_eq!(EventHash::from_hex(&text).unwrap().hex(), text);
    let bad =
        [text.to_uppercase(), text[1..].to_owned(), format!("+{}", &text[1..]), format!("{text}0"), "é".repeat(32)];
    for bad in bad {
        assert_eq!(EventHash::from_hex(&bad), None, "{bad}");
    }
    assert_eq!(serde_json::to_value(EventHash::ZERO).unwrap(), "0".repeat(64));
    assert!(serde_json::from_value::<EventHash>(json!("zz")).is_err());
}

proptest! {
    #[test]
    fn two_whole_numbers_share_a_digest_only_if_they_are_one(a in any::<i64>(), b in any::<i64>()) {
        if let (Ok(left), Ok(right)) = (digest(&json!({"n": a})), digest(&json!({"n": b}))) {
            prop_assert_eq!(left == right, a == b);
        }
    }
}
