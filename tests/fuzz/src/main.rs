//! One program for all targets: `FUZZ_TARGET` names the one that is fuzzed. See `scripts/fuzz`.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

// The sources of the targets, and not the crate around them: that one brings databases along.
#[path = "../../src/fuzz/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "the seeded driver is for `make test`")]
mod fuzz;

/// The root of the workspace.
#[allow(dead_code, reason = "the corpus is given to libFuzzer by its folder")]
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

static TARGET: LazyLock<fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let known: Vec<&str> = fuzz::TARGETS.iter().map(|target| target.name).collect();
    match fuzz::TARGETS.iter().find(|target| target.name == name) {
        Some(target) => *target,
        None => panic!("FUZZ_TARGET must be one of {}", known.join(", ")),
    }
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
