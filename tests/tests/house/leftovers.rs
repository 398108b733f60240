//! What may not be left lying about in a repository that others read.

use crate::workspace::{files, none};

const EVERYWHERE: [&str; 11] =
    [".rs", ".toml", ".md", ".proto", ".sql", ".json", ".yaml", ".yml", "Makefile", "run", "with-services"];

/// Words put together here so that this file does not find itself.
fn leftovers() -> Vec<(String, &'static str)> {
    let join = |a: &str, b: &str| format!("{a}{b}");
    vec![
        (join("TO", "DO"), "do it now, or write down in the pages that it is left"),
        (join("FIX", "ME"), "fix it now"),
        (join("#[ign", "ore"), "a test that does not run proves nothing; assert what is true today"),
        (join("<<<<", "<<< "), "an unfinished merge"),
        (join(">>>>", ">>> "), "an unfinished merge"),
        (join("/ro", "ot/"), "a path of one machine"),
        (join("/tmp/", "sb"), "a path of one machine"),
        (join("/wo", "rk/"), "a path of one machine"),
    ]
}

/// Whether a word stands in a line and is not the end of a longer one, as in iCalendar's name for a task.
fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric()))
}

#[test]
fn nothing_is_left_lying_about() {
    let words = leftovers();
    let mut found = Vec::new();
    for file in files("", &EVERYWHERE) {
        for (index, line) in file.text.lines().enumerate() {
            // What a binding reads of a step's output is no path of any machine.
            let line = line.replace("/output/", "/output ");
            for (word, why) in &words {
                if stands_alone(&line, word) {
                    found.push(format!("{}:{}: `{word}`: {why}", file.path, index + 1));
                }
            }
        }
    }
    none(found, "left lying about:");
}

#[test]
fn every_migration_has_its_twin_in_the_other_database_or_none_has() {
    let names = |folder: &str| -> Vec<String> {
        let files = files(folder, &[".sql"]);
        files.iter().filter_map(|f| f.path.rsplit('/').next().map(str::to_owned)).collect()
    };
    let (sqlite, postgres) = (names("migrations/sqlite"), names("migrations/postgres"));
    assert!(postgres.is_empty() || sqlite == postgres, "same numbers, same meaning: {sqlite:?} and {postgres:?}");
}
