//! The commands, one file each.

mod approvals;
mod check;
mod control;
mod demo;
mod explain;
mod export;
mod runs;
mod serve;
mod store;
mod verify;
mod view;
mod watch;

pub(crate) use check::Kind;

use crate::args::{Cli, Command, RunsCommand, StoreCommand, ToolsCommand};
use crate::client;
use crate::failure::Failure;
use crate::output::Out;

/// Does what the command line says.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    let mut out = Out::stdout(cli.output);
    let addr = cli.addr;
    match cli.command {
        Command::Demo(args) => demo::run(args, &mut out).await,
        Command::Serve(args) => serve::run(args, &mut out).await,
        Command::Tools(ToolsCommand::Serve { listen, data }) => serve::tools(listen, &data, &mut out).await,
        Command::Check { kind } => check::run(kind),
        Command::Migrate(place) => store::migrate(place, &mut out).await,
        Command::Store(StoreCommand::AcceptRollback { place, reason, yes }) => {
            store::accept_rollback(place, &reason, yes, &mut out).await
        }
        Command::Explain { what, call } => explain::run(&addr, &what, call, &mut out).await,
        Command::Verify { what } => verify::run(&addr, &what, &mut out).await,
        Command::Runs(command) => runs(client::connect(&addr).await?, command, &mut out).await,
        Command::Approvals(command) => approvals::run(client::connect(&addr).await?, command, &mut out).await,
    }
}

async fn runs(client: client::Client, command: RunsCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        RunsCommand::Submit { plan, run_id, watch } => runs::submit(client, &plan, run_id, watch, out).await,
        RunsCommand::Get { id } => runs::get(client, id, out).await,
        RunsCommand::List { status, pipeline, limit, page_token } => {
            runs::list(client, status, pipeline, limit, page_token, out).await
        }
        RunsCommand::Watch { id, after, through_decisions } => {
            watch::run(client, &id.to_string(), after, through_decisions, out).await
        }
        RunsCommand::Replay { id, at } => runs::replay(client, id, at, out).await,
        RunsCommand::Export { id } => export::run(client, id).await,
        RunsCommand::Pause(_)
        | RunsCommand::Resume(_)
        | RunsCommand::Cancel(_)
        | RunsCommand::Kill(_)
        | RunsCommand::ChooseBranch { .. }
        | RunsCommand::Retry { .. }
        | RunsCommand::Step { .. }
        | RunsCommand::Fork { .. } => control::run(client, command, out).await,
    }
}
