//! The commands, one file each.

mod approvals;
mod audit;
mod budgets;
mod check;
mod control;
mod demo;
mod explain;
mod export;
mod runs;
mod serve;
mod store;
mod switches;
mod verify;
mod view;
mod watch;

pub(crate) use approvals::ApprovalsCommand;
pub(crate) use audit::AuditCommand;
pub(crate) use budgets::BudgetsCommand;
pub(crate) use check::CheckArgs;
pub(crate) use demo::DemoArgs;
pub(crate) use explain::ExplainArgs;
pub(crate) use runs::RunsCommand;
pub(crate) use serve::{ServeArgs, ToolsCommand};
pub(crate) use store::{StoreArgs, StoreCommand};
pub(crate) use switches::SwitchesCommand;
pub(crate) use verify::VerifyArgs;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::Out;

/// Does what the command line says.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    let out = &mut Out::stdout(cli.output);
    let server = &cli.server;
    match cli.command {
        Command::Demo(args) => demo::run(args, out).await,
        Command::Serve(args) => serve::run(args, out).await,
        Command::Tools(command) => serve::tools(command, out).await,
        Command::Check(args) => check::run(&args),
        Command::Migrate(place) => store::migrate(place, out).await,
        Command::Store(command) => store::run(command, out).await,
        Command::Explain(args) => explain::run(server, args, out).await,
        Command::Verify(args) => verify::run(server, args, out).await,
        Command::Runs(command) => runs::run(server.open().await?, command, out).await,
        Command::Approvals(command) => approvals::run(server.open().await?, command, out).await,
        Command::Switches(command) => switches::run(server.governance().await?, command, out).await,
        Command::Budgets(command) => budgets::run(server.governance().await?, command, out).await,
        Command::Audit(command) => audit::run(server.governance().await?, command, out).await,
    }
}
