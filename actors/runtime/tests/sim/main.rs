//! The node's actors under seeded faults: whole nodes on paused time, over stores, executors, clocks and a bus that fail as
//! the seed decides. A model of its own reads every journal after each write and says at once what breaks a promise.
//!
//! `make sim` plays many; `SEED=n make sim` plays one and prints its history. The same seed gives the same history, and one
//! that ever failed is kept in `seeds.txt` and played first from then on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "the model looks at what it needs")]

mod dice;
mod executors;
mod link;
mod model;
mod people;
mod sabotage;
mod schedule;
mod world;

use std::io::Write as _;
use std::sync::Mutex;
use std::time::Instant;
use std::{env, fs};

use sabotage::Sabotage;
use schedule::{Played, STEPS, Script, play};
use world::Fault;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().expect("a number"))
}

/// The script the environment asks for: SEED, and to look at a part of it STEPS and WITHOUT.
fn asked() -> Option<Script> {
    let seed = number("SEED")?;
    let without = env::var("WITHOUT").unwrap_or_default();
    let without = without.split(',').filter(|name| !name.is_empty());
    let without = without.map(|name| Fault::parse(name).expect("a kind of fault")).collect();
    let sabotage = env::var("SABOTAGE").unwrap_or_default();
    let sabotage = (!sabotage.is_empty()).then(|| Sabotage::parse(&sabotage).expect("a known fault"));
    Some(Script { seed, steps: number("STEPS").unwrap_or(STEPS), without, sabotage })
}

/// The smallest script that still fails in the same way: a shorter one, with fewer kinds of faults.
fn shrunk(script: &Script, promise: &str) -> Script {
    let fails = |script: &Script| play(script, false).violations.first().is_some_and(|(broken, _)| *broken == promise);
    let mut smallest = script.clone();
    let (mut holds, mut breaks) = (0, smallest.steps);
    while holds < breaks {
        let half = holds.midpoint(breaks);
        if fails(&Script { steps: half, ..smallest.clone() }) {
            breaks = half;
        } else {
            holds = half + 1;
        }
    }
    if fails(&Script { steps: breaks, ..smallest.clone() }) {
        smallest.steps = breaks;
    }
    for fault in Fault::ALL {
        let mut fewer = smallest.clone();
        fewer.without.insert(fault);
        if fails(&fewer) {
            smallest = fewer;
        }
    }
    smallest
}

fn report(script: &Script, played: &Played) -> String {
    let broken: Vec<String> =
        played.violations.iter().take(5).map(|(promise, what)| format!("  {promise}: {what}")).collect();
    let smallest = shrunk(script, played.violations[0].0);
    let without: Vec<String> = smallest.without.iter().map(|fault| format!("{fault:?}")).collect();
    format!(
        "seed {} breaks a promise:\n{}\nto see it: SEED={} STEPS={} WITHOUT={} make sim",
        script.seed,
        broken.join("\n"),
        script.seed,
        smallest.steps,
        without.join(",")
    )
}

/// What many schedules came to.
#[derive(Default)]
struct Sum {
    schedules: u64,
    events: usize,
    executions: u64,
    reports: Vec<String>,
}

/// Plays schedules on all cores until there are enough or the time is over.
fn play_many(seeds: impl Iterator<Item = u64> + Send, seconds: Option<u64>) -> Sum {
    let began = Instant::now();
    let (seeds, sum) = (Mutex::new(seeds), Mutex::new(Sum::default()));
    let failures_max = number("FAILURES").map_or(5, |most| usize::try_from(most).unwrap());
    let work = || loop {
        let late = seconds.is_some_and(|seconds| began.elapsed().as_secs() >= seconds);
        if late || sum.lock().unwrap().reports.len() >= failures_max {
            return;
        }
        let Some(seed) = seeds.lock().unwrap().next() else { return };
        let script = Script::of(seed);
        let played = play(&script, false);
        let failed = (!played.violations.is_empty()).then(|| report(&script, &played));
        let mut sum = sum.lock().unwrap();
        sum.schedules += 1;
        sum.events += played.events;
        sum.executions += played.executions;
        if let Some(report) = failed {
            eprintln!("{report}");
            keep(seed, played.violations[0].0);
            sum.reports.push(report);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    sum.into_inner().unwrap()
}

const SEEDS_KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim/seeds.txt");

/// The seeds that have ever failed.
fn kept() -> Vec<u64> {
    let text = fs::read_to_string(SEEDS_KEPT).expect("the kept seeds");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next()).map(|seed| seed.parse().expect("a seed")).collect()
}

fn keep(seed: u64, promise: &str) {
    if kept().contains(&seed) {
        return;
    }
    let kept = fs::OpenOptions::new().append(true).open(SEEDS_KEPT);
    // Where the sources cannot be written the seed is still on the screen.
    let _ = kept.and_then(|mut file| writeln!(file, "{seed} {promise}"));
}

#[test]
fn every_promise_holds_under_seeded_faults_and_everything_comes_to_rest_after_them() {
    if let Some(script) = asked() {
        let played = play(&script, true);
        println!("{}", played.history.join("\n"));
        println!("digest {}, {} events, {} executions", played.digest, played.events, played.executions);
        assert!(played.violations.is_empty(), "{:#?}", played.violations);
        return;
    }
    let from = number("FROM").unwrap_or(0);
    let seeds = kept().into_iter().chain(from..from.saturating_add(number("SEEDS").unwrap_or(200)));
    let Sum { schedules, events, executions, reports } = play_many(seeds, number("SECONDS"));
    println!("{schedules} schedules, {events} events, {executions} executions");
    assert!(reports.is_empty(), "{}", reports.join("\n\n"));
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..8 {
        let (once, twice) = (play(&Script::of(seed), true), play(&Script::of(seed), true));
        assert_eq!(once.history, twice.history, "seed {seed}");
        assert_eq!(once.digest, twice.digest, "seed {seed}");
    }
}

/// Seeds within which each known fault must be found.
const FOUND_WITHIN: u64 = 200;

#[test]
fn each_fault_that_is_put_in_on_purpose_breaks_its_promise_within_a_few_seeds() {
    let next = Mutex::new(Sabotage::ALL.into_iter());
    let missed = Mutex::new(Vec::new());
    let look = || loop {
        let Some(sabotage) = next.lock().unwrap().next() else { return };
        let found = (0..FOUND_WITHIN).find_map(|seed| {
            let played = play(&Script { sabotage: Some(sabotage), ..Script::of(seed) }, false);
            let (promise, what) = played.violations.into_iter().next()?;
            let what: String = what.chars().take(160).collect();
            sabotage.breaks().contains(&promise).then(|| format!("seed {seed}: {promise}: {what}"))
        });
        match found {
            Some(found) => println!("{sabotage:?} is found by {found}"),
            None => missed.lock().unwrap().push(sabotage),
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(look))));
    assert_eq!(missed.into_inner().unwrap(), [], "what is broken on purpose was not noticed");
}
