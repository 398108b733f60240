//! Redaction against the rows of `data/redaction.jsonl`: cases from public reports, whole and in pieces (KGV-013, C-046,
//! C-047). Texts are in base64, so that nothing else takes the made-up secrets in them for real ones.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use signalbox_domain::redact::redact_text;
use signalbox_domain::redact::scrub::Scrubber;
use signalbox_domain::redact::stream::{HELD_BYTES_MAX, Redactor};

/// One line of the file.
#[derive(Deserialize)]
struct Row {
    kind: String,
    class: String,
    text: String,
    gone: Vec<String>,
    left: Vec<String>,
    #[serde(default)]
    chunks: Vec<String>,
}

impl Row {
    fn text(&self) -> String {
        plain(&self.text)
    }
    fn gone(&self) -> Vec<String> {
        self.gone.iter().map(|text| plain(text)).collect()
    }
    fn left(&self) -> Vec<String> {
        self.left.iter().map(|text| plain(text)).collect()
    }
}

fn rows(kind: &str) -> Vec<Row> {
    let lines = include_str!("../data/redaction.jsonl").lines();
    let rows = lines.map(|line| serde_json::from_str::<Row>(line).unwrap());
    rows.filter(|row| row.kind == kind).collect()
}

const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn decode(base64: &str) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for digit in base64.trim_end_matches('=').chars() {
        bits = bits << 6 | u32::try_from(DIGITS.find(digit)?).ok()?;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(out)
}

fn encode(bytes: &[u8]) -> String {
    let digit = |bits: u32| char::from(DIGITS.as_bytes()[(bits & 63) as usize]);
    let groups = bytes.chunks(3).map(|group| {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let digits: String = [18, 12, 6, 0].iter().take(group.len() + 1).map(|shift| digit(bits >> shift)).collect();
        format!("{digits:=<4}")
    });
    groups.collect()
}

fn plain(base64: &str) -> String {
    String::from_utf8(decode(base64).unwrap()).unwrap()
}

/// The longest piece of a secret that a text holds, in characters.
fn longest_part(text: &str, secret: &str) -> usize {
    let secret: Vec<char> = secret.chars().collect();
    let part = |from: usize| {
        (from + 1..=secret.len()).take_while(|to| text.contains(&secret[from..*to].iter().collect::<String>())).count()
    };
    (0..secret.len()).map(part).max().unwrap_or(0)
}

fn in_pieces(text: &str, cuts: &[usize]) -> Vec<String> {
    let mut redactor = Redactor::default();
    let ends = cuts.iter().copied().chain([text.len()]);
    let mut from = 0;
    let mut out: Vec<String> = Vec::new();
    for to in ends {
        out.push(redactor.push(&text[from..to]));
        from = to;
    }
    out.push(redactor.finish());
    out
}

#[test]
fn every_row_that_must_be_redacted_is() {
    let rows = rows("redact");
    assert_eq!(rows.len(), 33);
    for row in &rows {
        let (text, redacted) = (row.text(), redact_text(&row.text()).into_owned());
        for secret in row.gone() {
            assert!(!redacted.contains(&secret), "a {} secret survives in `{redacted}`", row.class);
        }
        for part in row.left() {
            assert!(redacted.contains(&part), "`{part}` is missing in `{redacted}`");
        }
        assert!(
            serde_json::from_str::<serde_json::Value>(&text).is_err()
                || serde_json::from_str::<serde_json::Value>(&redacted).is_ok(),
            "{redacted}"
        );
    }
}

#[test]
fn every_row_that_must_stay_is_byte_identical() {
    let rows = rows("untouched");
    assert_eq!(rows.len(), 21);
    for row in &rows {
        let text = row.text();
        assert!(matches!(redact_text(&text), Cow::Borrowed(same) if same == text), "`{text}`");
        assert_eq!(in_pieces(&text, &[]).concat(), text);
    }
}

/// What is known by its beginning may be seen up to there, and no further: `ghp_` says that it is a key, not which. Of
/// everything else three characters are chance.
const PREFIXES: [&str; 10] =
    ["ghp_", "gho_", "sk-", "AIza", "xapp-", "glpat-", "npm_", "dop_v1_", "AGE-SECRET-KEY-1", "eyJ"];

#[test]
fn a_secret_that_comes_in_two_pieces_is_gone_wherever_it_is_cut() {
    for row in rows("redact").iter().chain(&rows("chunked")) {
        let text =
            if row.chunks.is_empty() { row.text() } else { row.chunks.iter().map(|chunk| plain(chunk)).collect() };
        // Of the long row the part that matters.
        let from = if text.len() > 4_000 { text.len() - 80 } else { 0 };
        let whole = redact_text(&text).into_owned();
        for cut in (from..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let shown = in_pieces(&text, &[cut]).concat();
            for secret in row.gone() {
                let prefix =
                    PREFIXES.iter().find(|prefix| secret.starts_with(**prefix)).map_or(3, |prefix| prefix.len());
                let most = longest_part(&whole, &secret).max(prefix);
                let part = longest_part(&shown, &secret);
                assert!(part <= most, "cut at {cut}, {part} characters of a {} secret are shown: `{shown}`", row.class);
            }
            for part in row.left().iter().filter(|part| !part.contains('\u{202e}')) {
                assert!(shown.contains(part.as_str()), "cut at {cut}, `{part}` is missing in `{shown}`");
            }
        }
    }
}

#[test]
fn a_secret_that_comes_in_three_pieces_is_gone_wherever_it_is_cut() {
    let rows = rows("chunked");
    assert_eq!(rows.len(), 1);
    for row in rows {
        let given: Vec<String> = row.chunks.iter().map(|chunk| plain(chunk)).collect();
        let text = given.concat();
        let all = (0..=text.len()).flat_map(|first| (first..=text.len()).map(move |second| [first, second]));
        for cuts in all {
            let shown = in_pieces(&text, &cuts);
            let together = shown.concat();
            for secret in row.gone() {
                assert!(longest_part(&together, &secret) <= "ghp_".len(), "cut at {cuts:?}: {shown:?}");
            }
            assert!(row.left().iter().all(|part| together.contains(part)), "{together}");
            assert!(together.contains("[redacted:api_key]"), "{together}");
        }
    }
}

#[test]
fn a_known_value_that_comes_in_pieces_is_gone_wherever_it_is_cut() {
    let secret = "plain words, FAKE/9+\"value\"";
    let scrubber = Arc::new(Scrubber::new([secret]).unwrap());
    for form in [
        secret.to_owned(),
        encode(secret.as_bytes()),
        encode(format!("x{secret}").as_bytes()),
        secret.replace('"', "\\\""),
    ] {
        let text = format!("it says {form} and goes on");
        for cut in 0..text.len() {
            let mut redactor = Redactor::new(scrubber.clone());
            let shown = [redactor.push(&text[..cut]), redactor.push(&text[cut..]), redactor.finish()].concat();
            assert!(longest_part(&shown, &form) <= 5, "cut at {cut}: {shown}");
            assert!(shown.starts_with("it says ") && shown.ends_with(" and goes on"), "{shown}");
        }
    }
}

#[test]
fn ordinary_progress_goes_on_at_once_and_in_full() {
    let mut redactor = Redactor::default();
    for line in [
        "reading 3 of 8 sources",
        "the password is asked for elsewhere",
        "page 2: done\n",
        "token bucket full",
        "👩🔬 100 %",
    ] {
        assert_eq!(redactor.push(line), line);
    }
    assert_eq!(redactor.finish(), "");
}

#[test]
fn a_name_in_one_piece_and_its_value_in_the_next_belong_together() {
    let mut redactor = Redactor::default();
    assert_eq!(redactor.push("the pass"), "the pass");
    assert_eq!(redactor.push("word"), "word");
    assert_eq!(redactor.push("="), "=");
    assert_eq!(redactor.push("hunter2"), "");
    assert_eq!(redactor.push("FAKE"), "");
    assert_eq!(redactor.push(" was wrong"), "[redacted:assignment] was wrong");
}

#[test]
fn a_private_key_without_an_end_shows_nothing_that_follows() {
    let mut redactor = Redactor::default();
    let begin = "log: -----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nRkFLRQ";
    assert_eq!(redactor.push(begin), "log: ");
    assert_eq!(redactor.push("more: RkFLRUZBS0U"), "");
    assert_eq!(redactor.finish(), "[redacted:private_key]");
}

#[test]
fn what_is_held_back_is_bounded_and_ends_in_silence() {
    let mut redactor = Redactor::default();
    assert_eq!(redactor.push("see sk-"), "see ");
    let mut shown = String::new();
    for _ in 0..200 {
        shown.push_str(&redactor.push(&"a".repeat(HELD_BYTES_MAX / 100)));
    }
    shown.push_str(&redactor.push(" and more"));
    shown.push_str(&redactor.finish());
    assert_eq!(shown, "[redacted]");
}

#[test]
fn a_thousand_random_blobs_in_base64_decode_to_the_same_bytes_afterwards() {
    // A random generator of the simplest kind: the same blobs each time.
    let mut state = 46_u64;
    for _ in 0..1_000 {
        let bytes: Vec<u8> = (0..2_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                u8::try_from(state >> 56).unwrap()
            })
            .collect();
        let image = format!("data:image/png;base64,{}", encode(&bytes));
        let redacted = redact_text(&image);
        let (_, blob) = redacted.split_once(',').unwrap();
        assert_eq!(decode(blob).as_deref(), Some(bytes.as_slice()));
        assert_eq!(redacted, image);
    }
}
