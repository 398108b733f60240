//! The command line: which commands there are. What each of them takes stands in the file of the command.

use clap::{Parser, Subcommand};

use crate::client::Connection;
use crate::commands::{
    AgentsCommand, ApplyArgs, ApprovalsCommand, AuditCommand, BudgetsCommand, CheckArgs, CompletionArgs, ConfigCommand,
    DashboardArgs, DemoArgs, DoctorArgs, DrillCommand, ExecutorsCommand, ExplainArgs, ExportArgs, GoldSetsCommand,
    GrantsCommand, KeysCommand, MigrateArgs, PipelinesCommand, ProfilesCommand, RehearseArgs, RolloutsCommand,
    RunsCommand, SchedulesCommand, ServeArgs, StoreCommand, SwitchesCommand, ThrottlesCommand, ToolsCommand,
    VerifyArgs, WebhooksCommand, WhatIfArgs,
};
use crate::output::{Colour, Format};

/// Where data is kept unless something else is said.
pub(crate) const DATA_DEFAULT: &str = "./data";

/// Runs agent runs under governance: every tool call passes one gate, everything that happens is journalled first.
#[derive(Debug, Parser)]
#[command(
    name = "signalbox",
    version,
    disable_help_flag = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 refused or failed, 2 usage, 3 waiting for a decision. docs/cli.md has the rest."
)]
pub(crate) struct Cli {
    /// How results are printed [default: table].
    #[arg(long, short, global = true, value_enum, env = "SIGNALBOX_OUTPUT", hide_env = true, help_heading = "General")]
    pub(crate) output: Option<Format>,
    /// When colour is used.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN", help_heading = "General")]
    pub(crate) color: Colour,
    /// Print help.
    #[arg(long, short, global = true, action = clap::ArgAction::HelpShort, help_heading = "General")]
    help: Option<bool>,
    /// Which server is asked, and how.
    #[command(flatten)]
    pub(crate) server: Connection,
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Makes a cited briefing pack out of files, folders and URLs, as a governed run on this machine.
    Demo(DemoArgs),
    /// Serves runs over gRPC.
    Serve(ServeArgs),
    /// Submits, watches and steers runs.
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Shows pipelines, triggers and rehearses them, and makes them tighter for a tenant.
    #[command(subcommand)]
    Pipelines(PipelinesCommand),
    /// Rehearses a pipeline: nothing is touched; says what a real run would cost, whom it would ask, and what would stop it.
    #[command(after_help = "Example:
  signalbox rehearse nyx.event_explainer_set --input sky.json")]
    Rehearse(RehearseArgs),
    /// Shows how many runs are where, and which kill switches are in force.
    Dashboard(DashboardArgs),
    /// Shows and answers open questions.
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Arms and disarms kill switches.
    #[command(subcommand)]
    Switches(SwitchesCommand),
    /// Shows on runs made for it how soon a kill switch takes hold.
    #[command(subcommand)]
    Drill(DrillCommand),
    /// Sets what may be spent, and shows what is.
    #[command(subcommand)]
    Budgets(BudgetsCommand),
    /// Grants tools, renews and revokes grants, and shows which there are.
    #[command(subcommand)]
    Grants(GrantsCommand),
    /// Sets how fast calls may be made, and shows which throttles there are.
    #[command(subcommand)]
    Throttles(ThrottlesCommand),
    /// Brings the rules in line with files: creates and changes, never disarms, revokes, retires or removes.
    Apply(ApplyArgs),
    /// Writes the rules in force as files that `apply` reads.
    Export(ExportArgs),
    /// Has your own systems told of what happens, and shows what became of it.
    #[command(subcommand)]
    Webhooks(WebhooksCommand),
    /// Fires pipelines and submissions by the clock, and shows what became of each slot.
    #[command(subcommand)]
    Schedules(SchedulesCommand),
    /// Tries a new version of an agent against the one in use.
    #[command(subcommand)]
    Rollouts(RolloutsCommand),
    /// Keeps runs to go by, to try versions on.
    #[command(subcommand)]
    GoldSets(GoldSetsCommand),
    /// Shows who changed which rule.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Makes, lists and revokes API keys for machines.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Shows whom the server takes you for, and what you may do.
    #[command(after_help = "Example:
  signalbox whoami")]
    Whoami,
    /// Checks that a journal is whole: a run of the server by its id, or an exported file without any server.
    Verify(VerifyArgs),
    /// Says why a run stopped and why its calls were refused: every stage of the gate, the switch, the meters.
    Explain(ExplainArgs),
    /// Decides recorded runs again under other budgets, switches or grants: which would have stopped, where, and why.
    Whatif(WhatIfArgs),
    /// Judges policies offline: JSON lines in, one verdict a line out, by the same rules that govern runs. docs/check.md has
    /// the fields of each kind.
    Check(CheckArgs),
    /// Brings the store to the form this version writes, as `serve` does when it starts.
    Migrate(MigrateArgs),
    /// Tools for the store itself, for when no node uses it.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Shows the tools of the catalog, and serves the bundled ones.
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Registers agents, publishes their versions and moves them through their life cycle.
    #[command(subcommand)]
    Agents(AgentsCommand),
    /// Registers executors of tools while the nodes run, and retires them.
    #[command(subcommand)]
    Executors(ExecutorsCommand),
    /// Shows and checks the configuration of a node.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Looks at everything a node needs, and says what to do about what is wrong.
    Doctor(DoctorArgs),
    /// Shows and chooses the servers you work with.
    #[command(subcommand)]
    Profiles(ProfilesCommand),
    /// Prints the script that lets a shell complete commands and flags.
    Completion(CompletionArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::client::ADDR_DEFAULT;

    const ID: &str = "0190d6a8-3c1e-7bbb-8f5e-000000000001";

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_of_the_manual_parses() {
        for line in [
            "signalbox demo --sources samples https://example.org/feed --data d --approve --since 2026-01-31 --fresh",
            "signalbox serve",
            "signalbox serve --data d --listen 127.0.0.1:1 --config signalbox.toml",
            "signalbox serve --store postgres://ann@db.example/box",
            "signalbox runs submit --plan plan.json --run-id 0190d6a8-3c1e-7bbb-8f5e-000000000001 --watch",
            "signalbox runs submit --plan plan.json --mode rehearsal-dry-run --dry-run",
            "signalbox runs get 0190d6a8-3c1e-7bbb-8f5e-000000000001 --output json",
            "signalbox --output json runs list --status running --status paused --limit 10 --page-token t",
            "signalbox runs watch 0190d6a8-3c1e-7bbb-8f5e-000000000001 --after 7",
            "signalbox runs pause 0190d6a8-3c1e-7bbb-8f5e-000000000001 --reason x",
            "signalbox runs pause 0190d6a8-3c1e-7bbb-8f5e-000000000001",
            "signalbox runs resume 0190d6a8-3c1e-7bbb-8f5e-000000000001 --reason x",
            "signalbox runs cancel 0190d6a8-3c1e-7bbb-8f5e-000000000001 --reason x",
            "signalbox runs kill 0190d6a8-3c1e-7bbb-8f5e-000000000001 --reason x",
            "signalbox runs choose-branch 0190d6a8-3c1e-7bbb-8f5e-000000000001 --branch b --step s",
            "signalbox runs retry 0190d6a8-3c1e-7bbb-8f5e-000000000001 --step s --overrides o.json",
            "signalbox runs step 0190d6a8-3c1e-7bbb-8f5e-000000000001",
            "signalbox runs fork 0190d6a8-3c1e-7bbb-8f5e-000000000001 --reason x --expected-seq 7",
            "signalbox runs fork 0190d6a8-3c1e-7bbb-8f5e-000000000001 --run-id 0190d6a8-3c1e-7bbb-8f5e-000000000002",
            "signalbox runs replay 0190d6a8-3c1e-7bbb-8f5e-000000000001 --at 3",
            "signalbox runs export 0190d6a8-3c1e-7bbb-8f5e-000000000001",
            "signalbox approvals list --addr http://127.0.0.1:9",
            "signalbox approvals show 0190d6a8-3c1e-7bbb-8f5e-000000000001",
            "signalbox approvals decide 0190d6a8-3c1e-7bbb-8f5e-000000000001 --skip --reason x",
            "signalbox keys create --name loader --role service --scope tool:web.fetch --scope approve:teacher --days 30",
            "signalbox keys list --all --token-file t --tenant acme",
            "signalbox keys revoke 0190d6a8-3c1e-7bbb-8f5e-000000000001",
            "signalbox whoami --token-file t",
            "signalbox verify journal.jsonl",
            "signalbox check ssrf",
            "signalbox runs list --bucket attention --bucket suspended --cost-band high --latency-band stalled --agent a \
             --family research --pipeline p --status running --since 2h --until 2026-11-30 --text x --warnings",
            "signalbox runs list --warnings=false --all-tenants",
            "signalbox runs counts --since 7d --tenant acme",
            "signalbox dashboard --all-tenants",
            "signalbox explain 0190d6a8-3c1e-7bbb-8f5e-000000000001",
            "signalbox explain journal.jsonl 0190d6a8-3c1e-7bbb-8f5e-000000000001",
            "signalbox migrate --data d",
            "signalbox store accept-rollback --data d --reason x --yes",
            "signalbox approvals list --output yaml --color never",
            "signalbox runs kill 0190d6a8-3c1e-7bbb-8f5e-000000000001 --reason x --dry-run",
            "signalbox migrate --dry-run",
            "signalbox store accept-rollback --reason x --dry-run",
            "signalbox config show --config signalbox.toml",
            "signalbox config check signalbox.toml",
            "signalbox doctor --config signalbox.toml",
            "signalbox profiles list --profile staging",
            "signalbox profiles use staging",
            "signalbox completion zsh",
            "signalbox tools serve --listen 127.0.0.1:1 --data d",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_a_usage_error() {
        for line in [
            "signalbox".to_owned(),
            "signalbox demo".to_owned(),
            "signalbox demo --sources".to_owned(),
            "signalbox demo --sources x --since 2026-02-30".to_owned(),
            "signalbox demo --sources x --since 20260131".to_owned(),
            "signalbox serve --listen somewhere".to_owned(),
            "signalbox serve --store sqlite://box".to_owned(),
            "signalbox runs get 7".to_owned(),
            "signalbox runs submit --plan p --mode slow".to_owned(),
            "signalbox runs submit --plan p --dry-run --watch".to_owned(),
            format!("signalbox runs kill {ID}"),
            format!("signalbox runs replay {ID} --at 0"),
            "signalbox runs list --limit 201".to_owned(),
            "signalbox runs list --limit 0".to_owned(),
            "signalbox runs list --since yesterday".to_owned(),
            "signalbox runs list --warnings=perhaps".to_owned(),
            format!("signalbox approvals decide {ID} --reason x"),
            format!("signalbox approvals decide {ID} --approve --reject --reason x"),
            "signalbox approvals list --output xml".to_owned(),
            "signalbox check".to_owned(),
            "signalbox keys create".to_owned(),
            "signalbox keys create --name loader --days 367".to_owned(),
            "signalbox whoami --token t".to_owned(),
            "signalbox store".to_owned(),
            "signalbox store accept-rollback --yes".to_owned(),
            "signalbox check weather".to_owned(),
        ] {
            let error = parse(&line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    /// Every command that does something, with the words that lead to it.
    fn leaves() -> Vec<(String, clap::Command)> {
        fn walk(path: &str, command: &clap::Command, found: &mut Vec<(String, clap::Command)>) {
            let path = format!("{path} {}", command.get_name()).trim().to_owned();
            for inner in command.get_subcommands() {
                walk(&path, inner, found);
            }
            if command.get_subcommands().next().is_none() {
                found.push((path, command.clone()));
            }
        }
        let mut found = Vec::new();
        walk("", &Cli::command(), &mut found);
        found
    }

    #[test]
    fn every_command_shows_an_example_that_it_would_take() {
        for (path, command) in leaves() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> =
                help.lines().map(str::trim).filter(|line| line.starts_with("signalbox ")).collect();
            assert!(!examples.is_empty(), "{path} has no example");
            for example in examples {
                assert!(example.starts_with(&path), "{path}: {example}");
                let line = example.split(['#', '<', '>']).next().unwrap_or_default();
                let mut quoted = false;
                let line: String = line
                    .chars()
                    .filter(|c| {
                        quoted ^= *c == '"';
                        !(quoted && *c == ' ') && *c != '"'
                    })
                    .collect();
                let words = line.split_whitespace().map(|word| match word {
                    "RUN" | "CALL" | "APPROVAL" | "KEY" => ID,
                    word => word,
                });
                assert!(Cli::try_parse_from(words).is_ok(), "{example}");
            }
        }
    }

    #[test]
    fn what_each_command_takes_is_as_it_was_agreed() {
        let mut nouns = std::collections::BTreeMap::<String, String>::new();
        for (path, command) in leaves() {
            let text = nouns.entry(path.split(' ').nth(1).unwrap_or_default().to_owned()).or_default();
            *text += &format!("{path}: {}\n", command.get_about().map(ToString::to_string).unwrap_or_default());
            for arg in command.get_arguments().filter(|arg| !arg.is_global_set()) {
                let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let name = arg.get_long().map_or_else(|| format!("<{}>", arg.get_id()), |long| format!("--{long}"));
                let values = arg.get_value_names().unwrap_or_default().iter().filter(|_| arg.get_long().is_some());
                let values: String = values.map(|value| format!(" {value}")).collect();
                let must = if arg.is_required_set() { " (required)" } else { "" };
                *text += &format!("  {name}{values}{must}  {about}\n");
            }
        }
        for (noun, text) in nouns {
            insta::assert_snapshot!(noun, text);
        }
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let cli = parse("signalbox demo --sources samples").unwrap();
        assert_eq!((cli.output, cli.color), (None, Colour::Auto));
        assert_eq!(cli.server.addr(), ADDR_DEFAULT);
    }
}
