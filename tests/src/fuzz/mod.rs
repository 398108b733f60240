//! Fuzzing: every parser of what comes from outside, as a plain function of bytes that panics if a promise is broken.
//!
//! There is one list of targets and two ways to drive them. `make test` runs each over its corpus and over a few thousand
//! seeded mutations of it: the same inputs every time, so a failure is a failure for everybody. `make fuzz` lets libFuzzer
//! look for inputs that reach new code. What either finds becomes a file under `tests/corpus`, and stays there.

mod briefing;
mod identity;
mod material;
mod mutate;
mod rules;
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::{env, fs, io};

use self::mutate::Mutator;

/// Largest input that is made of others, in bytes.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;
/// Mutations of the corpus of one target that `make test` tries.
const CASES: usize = 1_000;

/// Something that reads bytes from outside.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Names it, and its folder in the corpus.
    pub name: &'static str,
    /// Reads the bytes; panics if that breaks a promise.
    pub run: fn(&[u8]),
    /// How many times as long as others it takes: it gets so many fewer cases.
    pub weight: usize,
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8])) -> Self {
        Self { name, run, weight: 1 }
    }
}

/// Every target of the libraries. The binary drives its own parsers in its own tests.
pub const TARGETS: [Target; 15] = [
    Target::new("json", rules::json),
    Target::new("submission", rules::submission),
    Target::new("binding", rules::binding),
    Target::new("version", rules::version),
    Target::new("egress", rules::egress),
    Target::new("redact", rules::redact),
    Target::new("claims", identity::claims),
    Target::new("event", rules::event),
    Target { weight: 8, ..Target::new("journal", rules::journal) },
    Target { weight: 10, ..Target::new("briefing", briefing::briefing) },
    Target { weight: 4, ..Target::new("material", material::material) },
    Target::new("calendar", material::calendar),
    Target { weight: 2, ..Target::new("execute-request", wire::execute_request) },
    Target::new("tool-result", wire::tool_result),
    Target::new("describe-response", wire::describe_response),
];

/// Runs a target over its corpus and over seeded mutations of it; `FUZZ_CASES` says how many.
///
/// # Panics
/// If the target does, after the input was written to a file that the message names.
pub fn drive(target: Target) {
    drive_over(target, corpus(target.name).unwrap_or_default());
}

/// The same over inputs that are not in the corpus.
///
/// # Panics
/// As [`drive`], and if there is no input.
pub fn drive_over(target: Target, seeds: Vec<Vec<u8>>) {
    assert!(!seeds.is_empty(), "tests/corpus/{} has no file", target.name);
    seeds.iter().for_each(|seed| attempt(target, seed));
    let cases = env::var("FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let mut mutator = Mutator::new(seeds);
    (0..cases.div_ceil(target.weight)).for_each(|_| attempt(target, &mutator.next()));
}

fn attempt(target: Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let path = env::temp_dir().join(format!("signalbox-fuzz-{}", target.name));
        let kept = fs::write(&path, input).map_or_else(|error| error.to_string(), |()| path.display().to_string());
        let shown = String::from_utf8_lossy(&input[..input.len().min(500)]);
        // In a test, which shows this with its failure; the panic goes on below.
        #[allow(clippy::print_stderr, reason = "the input is what somebody has to look at")]
        {
            eprintln!("the target {} fails on this input, kept in {kept}:\n{shown}", target.name);
        }
        resume_unwind(panic);
    }
}

/// The inputs of a target that are kept, by file name.
///
/// # Errors
/// If they cannot be read.
pub fn corpus(name: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(crate::root().join("tests/corpus").join(name))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    paths.sort();
    paths.into_iter().map(fs::read).collect()
}
