//! The rules give the same answer for ever: no I/O, clock, randomness or async in `actors/domain`.
//!
//! The import rules keep out the crates; this keeps out what the standard library and the allowed crates would offer.

use crate::workspace::{code_lines, files, none, test_files};

const IMPURE: [(&str, &str); 18] = [
    ("async fn", "the rules are synchronous"),
    ("async move", "the rules are synchronous"),
    (".await", "the rules are synchronous"),
    ("SystemTime", "time is an argument"),
    ("Instant::now", "time is an argument"),
    ("std::time::Instant", "time is an argument"),
    ("Timestamp::now", "time is an argument"),
    ("Zoned::now", "time is an argument"),
    ("TimeZone::system", "the zone is an argument"),
    ("new_v4", "ids are arguments"),
    ("now_v7", "ids are arguments"),
    ("std::fs", "no I/O"),
    ("std::net::Tcp", "no I/O"),
    ("std::net::Udp", "no I/O"),
    ("std::process", "no I/O"),
    ("std::env::", "configuration is an argument"),
    ("std::thread", "the rules run on their caller's thread"),
    ("rand::", "randomness is an argument"),
];

#[test]
fn the_rules_have_no_io_clock_randomness_or_async() {
    let mut found = Vec::new();
    let sources = files("actors/domain/src", &[".rs"]);
    let tests = test_files(&sources);
    for file in sources.iter().filter(|file| !tests.contains(&file.path)) {
        for (number, line) in code_lines(&file.text) {
            for (word, why) in IMPURE {
                if line.contains(word) {
                    found.push(format!("{}:{number}: `{word}`: {why}", file.path));
                }
            }
        }
    }
    none(found, "the rules are pure:");
}

#[test]
fn the_lint_settings_of_the_rules_forbid_clocks_and_random_order() {
    let path = signalbox_tests::root().join("actors/domain/clippy.toml");
    let settings: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let listed = |key: &str| -> Vec<String> {
        let lines = settings[key].as_array().unwrap();
        lines.iter().map(|line| line["path"].as_str().unwrap().to_owned()).collect()
    };
    for path in ["std::collections::HashMap", "std::collections::HashSet", "std::time::SystemTime"] {
        assert!(listed("disallowed-types").iter().any(|p| p == path), "{path} is allowed");
    }
    for path in ["uuid::Uuid::new_v4", "jiff::Timestamp::now"] {
        assert!(listed("disallowed-methods").iter().any(|p| p == path), "{path} is allowed");
    }
}
