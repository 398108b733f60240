//! The commands, one file each.

mod agents;
mod approvals;
mod audit;
mod budgets;
mod catalog;
mod check;
mod completion;
mod config;
mod control;
mod demo;
mod doctor;
mod drill;
mod executors;
mod explain;
mod export;
mod gold_sets;
mod grants;
mod keys;
mod listing;
mod pipelines;
mod preflight;
mod profiles;
mod rehearse;
mod rollouts;
mod rules;
mod runs;
mod schedules;
mod serve;
mod store;
mod switches;
mod throttles;
mod tree;
mod verify;
mod view;
mod watch;
mod webhooks;
mod whatif;

pub(crate) use agents::AgentsCommand;
pub(crate) use approvals::ApprovalsCommand;
pub(crate) use audit::AuditCommand;
pub(crate) use budgets::BudgetsCommand;
pub(crate) use check::CheckArgs;
pub(crate) use completion::CompletionArgs;
pub(crate) use config::ConfigCommand;
pub(crate) use demo::DemoArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use drill::DrillCommand;
pub(crate) use executors::ExecutorsCommand;
pub(crate) use explain::ExplainArgs;
pub(crate) use gold_sets::GoldSetsCommand;
pub(crate) use grants::GrantsCommand;
pub(crate) use keys::KeysCommand;
pub(crate) use listing::DashboardArgs;
pub(crate) use pipelines::{PipelinesCommand, RehearseArgs};
pub(crate) use profiles::ProfilesCommand;
pub(crate) use rollouts::RolloutsCommand;
pub(crate) use rules::{ApplyArgs, ExportArgs};
pub(crate) use runs::RunsCommand;
pub(crate) use schedules::SchedulesCommand;
pub(crate) use serve::{ServeArgs, ToolsCommand};
pub(crate) use store::{MigrateArgs, StoreCommand};
pub(crate) use switches::SwitchesCommand;
pub(crate) use throttles::ThrottlesCommand;
pub(crate) use verify::VerifyArgs;
pub(crate) use webhooks::WebhooksCommand;
pub(crate) use whatif::WhatIfArgs;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::{Format, Out};
use crate::profiles::Profiles;

/// Does what the command line says.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    // A script that is read by a shell has no other form, and needs no profile.
    if let Command::Completion(args) = &cli.command {
        return completion::run(args);
    }
    let profiles = Profiles::read()?;
    let said = cli.server.clone();
    let server = &cli.server.with_profile(&profiles)?;
    let of_profile = profiles.chosen(server.profile.as_deref())?.and_then(|(_, profile)| profile.output);
    let out = &mut Out::stdout(cli.output.or(of_profile).unwrap_or(Format::Table));
    match cli.command {
        Command::Demo(args) => demo::run(args, out).await,
        Command::Serve(args) => serve::run(args, out).await,
        Command::Tools(ToolsCommand::Catalog(command)) => catalog::run(server.registry().await?, command, out).await,
        Command::Tools(ToolsCommand::Serve(args)) => serve::tools(args, out).await,
        Command::Agents(command) => agents::run(server.registry().await?, command, out).await,
        Command::Executors(command) => executors::run(server.registry().await?, command, out).await,
        Command::Check(args) => check::run(&args),
        Command::Migrate(args) => store::migrate(args, out).await,
        Command::Store(command) => store::run(command, out).await,
        Command::Explain(args) => explain::run(server, args, out).await,
        Command::Verify(args) => verify::run(server, args, out).await,
        Command::Whatif(args) => whatif::run(server, args, out).await,
        Command::Pipelines(command) => pipelines::run(server, command, out).await,
        Command::Rehearse(args) => pipelines::rehearse(server, args, out).await,
        Command::Rollouts(command) => rollouts::run(server.feedback().await?, command, out).await,
        Command::GoldSets(command) => gold_sets::run(server.feedback().await?, command, out).await,
        Command::Runs(RunsCommand::Feedback(args)) => gold_sets::feedback(server.feedback().await?, args, out).await,
        Command::Runs(RunsCommand::Counts(args)) => listing::counts(server.dashboard().await?, args, out).await,
        Command::Dashboard(args) => listing::dashboard(server.dashboard().await?, args, out).await,
        Command::Runs(command) => runs::run(server.open().await?, command, out).await,
        Command::Keys(command) => keys::run(server.identities().await?, command, out).await,
        Command::Whoami => keys::who_am_i(server.identities().await?, out).await,
        Command::Approvals(command) => approvals::run(server.open().await?, command, out).await,
        Command::Drill(command) => drill::run(server, command, out).await,
        Command::Switches(command) => switches::run(server.governance().await?, command, out).await,
        Command::Budgets(command) => budgets::run(server.governance().await?, command, out).await,
        Command::Grants(command) => grants::run(server.governance().await?, command, out).await,
        Command::Throttles(command) => throttles::run(server.governance().await?, command, out).await,
        Command::Apply(args) => rules::apply(server, args, out).await,
        Command::Export(args) => rules::export(server, args, out).await,
        Command::Schedules(command) => schedules::run(server.schedules().await?, command, out).await,
        Command::Webhooks(command) => webhooks::run(server.webhooks().await?, command, out).await,
        Command::Audit(command) => audit::run(server.governance().await?, command, out).await,
        Command::Config(command) => config::run(command, out),
        Command::Doctor(args) => doctor::run(args, server, out).await,
        Command::Profiles(command) => profiles::run(command, &profiles, server, &said, out),
        Command::Completion(args) => completion::run(&args),
    }
}
