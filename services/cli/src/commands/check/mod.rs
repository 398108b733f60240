//! `check`: policies tried offline. JSON lines in, one verdict a line out, in the same order, from the same pure functions
//! that the gate uses. No server is asked, nothing is read but standard input, and the clock is never looked at.

mod egress;
mod governance;
mod handoff;
mod readiness;
mod schedule;
mod text;

use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write};

use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use signalbox_domain::json::{Limits, parse_strict};

use crate::failure::Failure;

/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Deepest nesting of a line.
const DEPTH_MAX: usize = 64;

/// `check`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox check gate < calls.jsonl
  signalbox check cron < schedules.jsonl")]
pub(crate) struct CheckArgs {
    /// What is judged.
    kind: Kind,
}

/// What can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// One tool call, asked of every stage of the gate.
    Gate,
    /// URLs, the addresses they resolve to, and redirects.
    Ssrf,
    /// When a schedule fires next.
    Cron,
    /// Versions, and ranges of them.
    Semver,
    /// What is left of a text when its secrets are taken out.
    Redact,
    /// One budget and its meter, asked for one more call.
    Budget,
    /// One token bucket, asked for one more call.
    Throttle,
    /// Which of some grants allows a call.
    Grant,
    /// Whether an agent may hand work to another.
    Handoff,
    /// Champion against challenger.
    Ztest,
}

/// A verdict, or why a line says nothing that could be judged.
type Verdict = Result<Map<String, Value>, String>;

impl Kind {
    fn judge(self, line: Value) -> Verdict {
        match self {
            Self::Gate => governance::gate(line),
            Self::Ssrf => egress::ssrf(line),
            Self::Cron => schedule::cron(line),
            Self::Semver => text::semver(line),
            Self::Redact => text::redact(line),
            Self::Budget => governance::budget(line),
            Self::Throttle => governance::throttle(line),
            Self::Grant => governance::grant(line),
            Self::Handoff => handoff::handoff(line),
            Self::Ztest => readiness::ztest(line),
        }
    }
}

/// Judges standard input to standard output.
pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let malformed = judge_all(args.kind, BufReader::new(io::stdin().lock()), BufWriter::new(io::stdout().lock()))?;
    if malformed == 0 {
        return Ok(());
    }
    let message = format!("{malformed} of the lines could not be judged");
    Err(Failure::new("lines-malformed", message).next("each of them is answered with what is wrong with it"))
}

/// Judges every line; says how many could not be.
fn judge_all(kind: Kind, mut lines: BufReader<impl io::Read>, mut out: impl Write) -> Result<u64, Failure> {
    let mut malformed = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let too_long = line.len() > LINE_BYTES_MAX && line.last() != Some(&b'\n');
        if too_long {
            skip_line(&mut lines)?;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let answer = if too_long {
            Err((None, format!("the line is longer than {LINE_BYTES_MAX} bytes")))
        } else {
            answer(kind, &line)
        };
        let answer = answer.unwrap_or_else(|(id, error)| {
            malformed += 1;
            let id = id.map(|id| ("id".to_owned(), id));
            id.into_iter().chain([("error".to_owned(), error.into())]).collect()
        });
        serde_json::to_writer(&mut out, &answer).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
        // Whoever types the lines sees each answer at once; whoever pipes them pays for no flush in between.
        if lines.buffer().is_empty() {
            out.flush()?;
        }
    }
    out.flush()?;
    Ok(malformed)
}

fn skip_line(lines: &mut impl BufRead) -> io::Result<()> {
    loop {
        let rest = lines.fill_buf()?;
        let (used, ended) = match rest.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (rest.len(), rest.is_empty()),
        };
        lines.consume(used);
        if ended {
            return Ok(());
        }
    }
}

/// The verdict on one line with the line's id in front, or the id, if it could be read, and the error.
fn answer(kind: Kind, line: &[u8]) -> Result<Map<String, Value>, (Option<Value>, String)> {
    let limits = Limits { bytes_max: LINE_BYTES_MAX, depth_max: DEPTH_MAX };
    let line = parse_strict(line, limits).map_err(|error| (None, error.to_string()))?;
    let id = line.get("id").cloned();
    match (id, line.is_object()) {
        (_, false) => Err((None, "a line is a JSON object".to_owned())),
        (None, true) => Err((None, "a line needs an `id`, which its verdict repeats".to_owned())),
        (Some(id), true) => match kind.judge(line) {
            Ok(verdict) => Ok([("id".to_owned(), id)].into_iter().chain(verdict).collect()),
            Err(error) => Err((Some(id), error)),
        },
    }
}

/// The line as a kind wants it. Fields it does not name are passed over, so that notes may stand beside a case.
fn read<T: DeserializeOwned>(line: Value) -> Result<T, String> {
    serde_json::from_value(line).map_err(|error| error.to_string())
}

/// A verdict of these fields, without those that are null.
fn verdict<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests;
