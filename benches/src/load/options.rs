//! The command line of the load generator.

use std::path::PathBuf;

use super::Failure;

/// Most runs at once.
const CONC_MAX: usize = 4_096;
/// Longest measurement, in seconds.
const SECS_MAX: usize = 600;
/// Largest answer of the executor, in bytes.
const PAYLOAD_MAX: usize = 4 << 20;

/// How the load generator is called.
pub const USAGE: &str = "usage: loadgen [bare|pair|figures|crash|park|kill-switch|tool|contender] [options]
  --store sqlite|postgres://…  where the node keeps its journal (sqlite)
  --conc N                     runs at once (64)
  --secs N                     seconds that are measured, after a warm-up (10)
  --warm N                     seconds of the warm-up (3)
  --calls N                    tool calls of a run (10)
  --parallel N                 calls of a run that are out at once (1)
  --payload BYTES              size of each answer (100)
  --meter                      one tenant budget that every call reserves on
  --park N                     for park: how many runs (100000)
  --rounds N                   for pair: how often bare and governed take turns (3)
  --file PATH                  for figures: the file to compare with and to write (benches/figures.json)
  --criterion DIR              for figures: where criterion has left its measurements (target/criterion)
  --long                       for figures: more settings
  --tool URL                   what a step asks over HTTP: `loadgen tool` (nothing)
  --url URL                    for contender: what starts a run and answers when it has ended
  --watch NAME=PID             for contender: a process whose cost counts, with its children; once for each
  --node PATH                  the signalbox binary (beside this one)
  --data DIR                   where data folders are made (the system's temporary folder)";

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// `None` is SQLite in a folder of its own.
    pub store: Option<String>,
    /// Runs at once.
    pub conc: usize,
    /// Seconds that are measured.
    pub secs: u64,
    /// Seconds before that.
    pub warm: u64,
    /// Tool calls of a run.
    pub calls: usize,
    /// Calls of a run that are out at once.
    pub parallel: usize,
    /// Bytes of each answer.
    pub payload: usize,
    /// Whether a shared budget is reserved on.
    pub meter: bool,
    /// How many runs are parked.
    pub park: usize,
    /// How often a pair takes turns.
    pub rounds: usize,
    /// The file of all figures.
    pub file: PathBuf,
    /// Where criterion leaves what it has measured.
    pub criterion: PathBuf,
    /// Whether curves are measured as well.
    pub long: bool,
    /// What a step asks over HTTP, if anything.
    pub tool: Option<String>,
    /// What starts a run of a contender.
    pub url: Option<String>,
    /// The processes of a contender, by what they are called.
    pub watch: Vec<(String, u32)>,
    /// The binary of the node.
    pub node: PathBuf,
    /// Where data folders are made.
    pub data: PathBuf,
}

impl Options {
    /// Reads the arguments after the command's name.
    pub fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = Self {
            store: None,
            conc: 64,
            secs: 10,
            warm: 3,
            calls: 10,
            parallel: 1,
            payload: 100,
            meter: false,
            park: 100_000,
            rounds: 3,
            file: "benches/figures.json".into(),
            criterion: "target/criterion".into(),
            long: false,
            tool: None,
            url: None,
            watch: Vec::new(),
            node: std::env::current_exe()?.with_file_name("signalbox"),
            data: std::env::temp_dir(),
        };
        let mut arguments = arguments;
        while let Some(name) = arguments.next() {
            match name.as_str() {
                "--meter" => options.meter = true,
                "--long" => options.long = true,
                _ => options.take(&name, arguments.next())?,
            }
        }
        Ok(options)
    }

    fn take(&mut self, name: &str, value: Option<String>) -> Result<(), Failure> {
        let value = value.ok_or_else(|| format!("`{name}` needs a value\n{USAGE}"))?;
        match name {
            "--store" if value == "sqlite" => self.store = None,
            "--store" if value.starts_with("postgres") => self.store = Some(value),
            "--conc" => self.conc = number(name, &value, 1..=CONC_MAX)?,
            "--secs" => self.secs = number(name, &value, 1..=SECS_MAX)? as u64,
            "--warm" => self.warm = number(name, &value, 0..=SECS_MAX)? as u64,
            "--calls" => self.calls = number(name, &value, 1..=200)?,
            "--parallel" => self.parallel = number(name, &value, 1..=64)?,
            "--payload" => self.payload = number(name, &value, 12..=PAYLOAD_MAX)?,
            "--park" => self.park = number(name, &value, 1..=10_000_000)?,
            "--rounds" => self.rounds = number(name, &value, 1..=100)?,
            "--file" => self.file = value.into(),
            "--criterion" => self.criterion = value.into(),
            "--tool" => self.tool = Some(value),
            "--url" => self.url = Some(value),
            "--watch" => self.watch.push(watched(&value)?),
            "--node" => self.node = value.into(),
            "--data" => self.data = value.into(),
            _ => return Err(format!("`{name} {value}` is not an option\n{USAGE}").into()),
        }
        Ok(())
    }

    /// The store as it is reported: an address may hold a password.
    pub const fn store_name(&self) -> &'static str {
        if self.store.is_some() { "postgres" } else { "sqlite" }
    }
}

fn watched(value: &str) -> Result<(String, u32), Failure> {
    let parts = value.split_once('=').and_then(|(name, pid)| Some((name.to_owned(), pid.parse().ok()?)));
    parts.ok_or_else(|| "`--watch` takes a name and a process id, as in `database=4711`".into())
}

fn number(name: &str, value: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize, Failure> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("`{name}` takes a number from {} to {}", range.start(), range.end()).into())
}
