//! The one binary: reads the command line and the configuration, wires everything, and prints what comes of it.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use signalbox_domain::redact::redact_text;
use tracing_subscriber::EnvFilter;

use crate::args::Cli;
use crate::failure::{Exit, Failure};

mod args;
mod audit_file;
mod bus_file;
mod client;
mod commands;
mod config;
mod confirm;
mod demo;
mod describe;
mod failure;
mod governance_file;
mod identity_file;
mod invocation_file;
mod journal_file;
mod manifest;
mod models_file;
mod output;
mod profiles;
mod secrets;
mod toml_file;
mod traces_file;
mod wire;

/// A governed call makes some hundreds of small values and drops them again, on another thread as often as not.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error),
    };
    output::choose_colour(cli.color);
    log_to_stderr();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::new("start-failed", error.to_string())),
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

// Help and version are answers, everything else is a usage error in the form of all errors.
fn not_parsed(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match write!(std::io::stdout(), "{error}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report(&error.into()),
        };
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    report(&Failure { next: None, ..Failure::usage("usage", text.trim_end()) })
}

fn report(failure: &Failure) -> ExitCode {
    if failure.exit != Exit::Quiet {
        // If even this cannot be written there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "{failure}");
    }
    failure.exit.into()
}

/// Standard error without what looks like a secret: a log may repeat what came in from outside.
struct RedactedLog;

impl std::io::Write for RedactedLog {
    // One call is one record.
    fn write(&mut self, record: &[u8]) -> std::io::Result<usize> {
        std::io::stderr().write_all(redact_text(&String::from_utf8_lossy(record)).as_bytes())?;
        Ok(record.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

// Quiet unless something is wrong; `RUST_LOG` says otherwise.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let colour = output::colour_on(output::Stream::Err);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| RedactedLog).with_ansi(colour).init();
}
