//! I1, no ungoverned call: the proof of an admission can be neither copied nor made outside a store.

use signalbox_ports::journal::Admitted;

use crate::workspace::{code_lines, files, none, test_files};

/// Where a proof may be made: the port itself, its in-memory version, and the store, after their transactions.
const MAKERS: [&str; 2] = ["actors/ports/src/", "services/store/src/"];

/// Where `word` stands in code that is not a test, apart from files under `allowed`.
fn uses_of(word: &str, allowed: &[&str]) -> Vec<String> {
    let sources = files("", &[".rs"]);
    let tests = test_files(&sources);
    let mut found = Vec::new();
    for file in sources.iter().filter(|file| !tests.contains(&file.path)) {
        if allowed.iter().any(|folder| file.path.starts_with(folder)) {
            continue;
        }
        let lines = code_lines(&file.text).into_iter().filter(|(_, line)| line.contains(word));
        found.extend(lines.map(|(number, _)| format!("{}:{number}", file.path)));
    }
    found
}

#[test]
fn an_admission_cannot_be_copied() {
    /// Two blanket implementations, one for every type and one for those that can be copied: for such a type the call
    /// below is ambiguous, and this file does not compile.
    trait Once<Marker> {
        fn holds() -> bool {
            true
        }
    }
    struct CanBeCopied;
    impl<T> Once<()> for T {}
    impl<T: Clone> Once<CanBeCopied> for T {}
    assert!(<Admitted as Once<_>>::holds());
}

#[test]
fn an_admission_is_made_by_stores_alone() {
    let found = uses_of("Appended::accept", &MAKERS);
    none(found, "only a store makes `Appended`, and only after its transaction has committed:");
}

#[test]
fn an_executor_is_reached_by_the_executor_client_alone() {
    let found = uses_of("ToolExecutorClient", &["services/tools/src/client"]);
    none(found, "a call goes out through the port `Tools`, which consumes an `Admitted`:");
}
