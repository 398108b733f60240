//! `explain`: why a run stopped and why its calls were refused. What is told is read off the journal on this machine; a
//! server is asked for nothing but the journal itself.

use clap::Args;
use signalbox_domain::run::explain::explain;
use signalbox_domain::run::telling::tell;
use uuid::Uuid;

use super::verify::journal;
use crate::client::Connection;
use crate::failure::Failure;
use crate::output::Out;

/// `explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox explain RUN
  signalbox explain RUN CALL
  signalbox explain run.jsonl      # without any server")]
pub(crate) struct ExplainArgs {
    /// A run's id, or a file made by `signalbox runs export`; `-` reads standard input.
    #[arg(value_name = "ID|FILE")]
    what: String,
    /// Only this call.
    #[arg(value_name = "CALL")]
    call: Option<Uuid>,
}

/// Explains a run of the server, or of a file; all of its calls, or one.
pub(crate) async fn run(server: &Connection, args: ExplainArgs, out: &mut Out) -> Result<(), Failure> {
    let call = args.call;
    let file = journal(server, &args.what).await?;
    let mut found = explain(&file.events).map_err(|error| {
        let message = format!("the journal cannot be read at event {}: {}", error.seq, error.problem);
        Failure::new("journal-not-sound", message).next("see what `signalbox verify` finds")
    })?;
    if let Some(call) = call {
        found.calls.retain(|story| story.call_id.uuid() == call);
        if found.calls.is_empty() {
            return Err(Failure::new("no-such-call", format!("run {} has made no call {call}", found.run_id)));
        }
    }
    if out.is_json() {
        return out.json(&found);
    }
    tell(&found, call.is_some()).lines().try_for_each(|line| out.line(line))
}
