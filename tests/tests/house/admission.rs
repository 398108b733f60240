//! I1, no ungoverned call: the proof of an admission can be neither copied nor made outside a store.

use signalbox_ports::journal::Admitted;

use crate::workspace::{File, files, none};

/// Where a proof may be made: the port itself, its in-memory version, and the store, after their transactions.
const MAKERS: [&str; 2] = ["actors/ports/src/", "services/store/src/"];

fn sources() -> Vec<File> {
    files("", &[".rs"]).into_iter().filter(|file| !file.path.starts_with("tests/tests/house/")).collect()
}

/// Where `word` stands outside of comments, apart from files that `allowed` lets through.
fn uses_of(word: &str, allowed: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources().iter().filter(|file| !allowed(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            if line.contains(word) && !line.trim_start().starts_with("//") {
                found.push(format!("{}:{}", file.path, index + 1));
            }
        }
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
    let found = uses_of("Appended::accept", |path| {
        MAKERS.iter().any(|maker| path.starts_with(maker)) || path.starts_with("tests/") || path.contains("/tests/")
    });
    none(found, "only a store makes `Appended`, and only after its transaction has committed:");
}

#[test]
fn an_executor_is_reached_by_the_executor_client_alone() {
    let found = uses_of("ToolExecutorClient", |path| {
        path.starts_with("services/tools/") || path.starts_with("tests/") || path.starts_with("benches/")
    });
    none(found, "a call goes out through the port `Tools`, which consumes an `Admitted`:");
}
