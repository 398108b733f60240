//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use uuid::Uuid;

use crate::commands::Kind;
use crate::config::StoreAddress;
use crate::output::Format;

/// Where a server is looked for unless something else is said.
pub(crate) const ADDR_DEFAULT: &str = "http://127.0.0.1:7420";
/// Where data is kept unless something else is said.
pub(crate) const DATA_DEFAULT: &str = "./data";

/// Runs agent runs under governance: every tool call passes one gate, everything that happens is journalled first.
#[derive(Debug, Parser)]
#[command(name = "signalbox", version, about, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value = "table")]
    pub(crate) output: Format,
    /// The server that is asked.
    #[arg(long, global = true, env = "SIGNALBOX_ADDR", default_value = ADDR_DEFAULT, value_name = "URL")]
    pub(crate) addr: String,
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
    /// Shows and answers open questions.
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Checks that a journal is whole: a run of the server by its id, or an exported file without any server.
    Verify {
        /// A run's id, or a file made by `signalbox runs export`; `-` reads standard input.
        #[arg(value_name = "ID|FILE")]
        what: String,
    },
    /// Says why a run stopped and why its calls were refused: every stage of the gate, the switch, the meters.
    Explain {
        /// A run's id, or a file made by `signalbox runs export`; `-` reads standard input.
        #[arg(value_name = "ID|FILE")]
        what: String,
        /// Only this call.
        #[arg(value_name = "CALL")]
        call: Option<Uuid>,
    },
    /// Judges policies offline: JSON lines in, one verdict a line out, by the same rules that govern runs. docs/check.md has
    /// the fields of each kind.
    Check {
        /// What is judged.
        kind: Kind,
    },
    /// Brings the store to the form this version writes, as `serve` does when it starts.
    Migrate(StoreArgs),
    /// Tools for the store itself, for when no node uses it.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Tools.
    #[command(subcommand)]
    Tools(ToolsCommand),
}

/// `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Files, folders and URLs.
    #[arg(long, required = true, num_args = 1.., value_name = "PATH_OR_URL")]
    pub(crate) sources: Vec<String>,
    /// The folder that keeps the journal and the packs.
    #[arg(long, default_value = DATA_DEFAULT, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Say yes at the gate without asking.
    #[arg(long)]
    pub(crate) approve: bool,
    /// Leave out what is older than this day.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub(crate) since: Option<String>,
    /// Begin anew although an unfinished run over the same sources is there; that one is cancelled.
    #[arg(long)]
    pub(crate) fresh: bool,
}

/// `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The folder that keeps everything [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The PostgreSQL that keeps the journal, as postgres://user@host/database [default: SQLite in the data folder].
    /// With a password it is better given in the environment or the configuration file, where no process list shows it.
    #[arg(long, env = "SIGNALBOX_STORE", hide_env_values = true, value_name = "URL", value_parser = store_address)]
    pub(crate) store: Option<StoreAddress>,
    /// The address that is listened on [default: 127.0.0.1:7420].
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Where a store is.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The folder that keeps everything [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The PostgreSQL that keeps the journal [default: SQLite in the data folder].
    #[arg(long, env = "SIGNALBOX_STORE", hide_env_values = true, value_name = "URL", value_parser = store_address)]
    pub(crate) store: Option<StoreAddress>,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `store`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Goes on from an earlier state of the store, such as a restored backup: every run that is not over is held, so that
    /// somebody looks at what was done since. Stop all nodes before.
    AcceptRollback {
        /// Where the store is.
        #[command(flatten)]
        place: StoreArgs,
        /// Why; kept in the journal of each run that is held.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Do it. Without this only the number of runs is told.
        #[arg(long)]
        yes: bool,
    },
}

/// `runs`.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Submits a run.
    Submit {
        /// The run as JSON: rootAgentId, plan, and if wanted inputs, mode, pipelineId, budgets; `-` reads standard input.
        #[arg(long, value_name = "FILE")]
        plan: PathBuf,
        /// The run's id; submitting the same under it again is harmless.
        #[arg(long, value_name = "UUID")]
        run_id: Option<Uuid>,
        /// Follow the run until it has ended or waits for a decision.
        #[arg(long)]
        watch: bool,
    },
    /// Shows one run.
    Get {
        /// The run.
        id: Uuid,
    },
    /// Lists runs, newest first.
    List {
        /// Only runs in this status; may be given more than once.
        #[arg(long, value_name = "STATUS")]
        status: Vec<String>,
        /// Only instances of this pipeline.
        #[arg(long, value_name = "PIPELINE")]
        pipeline: Option<String>,
        /// Most runs that are shown.
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
        limit: u32,
        /// The token that the page before ended with.
        #[arg(long, value_name = "TOKEN")]
        page_token: Option<String>,
    },
    /// Follows a run until it has ended or waits for a decision.
    Watch {
        /// The run.
        id: Uuid,
        /// Only what happens after this event.
        #[arg(long, default_value_t = 0, value_name = "SEQ")]
        after: u64,
        /// Go on while a decision is waited for.
        #[arg(long)]
        through_decisions: bool,
    },
    /// Holds a run.
    Pause(SteerArgs),
    /// Lets a held run go on.
    Resume(SteerArgs),
    /// Stops a run deliberately.
    Cancel(SteerArgs),
    /// Stops a run by governance.
    Kill(KillArgs),
    /// Chooses a branch.
    ChooseBranch {
        /// The run, and why.
        #[command(flatten)]
        steer: SteerArgs,
        /// The branch.
        #[arg(long, value_name = "BRANCH")]
        branch: String,
        /// The branch step, if more than one waits.
        #[arg(long, value_name = "STEP")]
        step: Option<String>,
    },
    /// Rewinds a run to a step and lets it go on with changes.
    Retry {
        /// The run, and why.
        #[command(flatten)]
        steer: SteerArgs,
        /// The first step to do again.
        #[arg(long, value_name = "STEP")]
        step: String,
        /// The changes as JSON: params, modelBinding, mode, branch; `-` reads standard input.
        #[arg(long, value_name = "FILE")]
        overrides: Option<PathBuf>,
    },
    /// Lets exactly one step of a paused run go.
    Step {
        /// The run, and why.
        #[command(flatten)]
        steer: SteerArgs,
        /// The step; the first that is ready if left out.
        #[arg(long, value_name = "STEP")]
        step: Option<String>,
    },
    /// Makes another run of one, also of one that is over: with what it has done, and nothing it has spent.
    Fork {
        /// The run, and why.
        #[command(flatten)]
        steer: SteerArgs,
        /// The id of the new run; a fresh one if left out.
        #[arg(long, value_name = "UUID")]
        run_id: Option<Uuid>,
    },
    /// Shows a run as it stood after an event. Nothing is executed.
    Replay {
        /// The run.
        id: Uuid,
        /// The event.
        #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
        at: u64,
    },
    /// Prints the whole journal of a run as JSON lines, for `signalbox verify`.
    Export {
        /// The run.
        id: Uuid,
    },
}

/// What every control has.
#[derive(Debug, Args)]
pub(crate) struct SteerArgs {
    /// The run.
    pub(crate) id: Uuid,
    /// Why; kept in the journal.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    /// The rest.
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// How a control is given.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// Names the command, so that saying it twice is harmless.
    #[arg(long, value_name = "UUID")]
    pub(crate) command_id: Option<Uuid>,
    /// The last event you have seen: refused if the run has moved on since.
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) expected_seq: Option<u64>,
}

/// `runs kill`: the one control that may not go without a reason.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The run.
    pub(crate) id: Uuid,
    /// Why; kept in the journal.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// The rest.
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// `approvals`.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Lists the open questions, oldest first.
    List,
    /// Shows one question, open or not: what it is about, who may answer, and until when.
    Show {
        /// The question.
        id: Uuid,
    },
    /// Answers a question.
    Decide {
        /// The question.
        id: Uuid,
        /// The answer.
        #[command(flatten)]
        answer: Answer,
        /// Why; kept in the journal.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// What you saw: the answer is refused if the question is about something else by now.
        #[arg(long, value_name = "SHA256")]
        subject_digest: Option<String>,
        /// Names the command, so that saying it twice is harmless.
        #[arg(long, value_name = "UUID")]
        command_id: Option<Uuid>,
    },
}

/// Exactly one of three.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Answer {
    /// Yes; for a call whose outcome nobody knows: send it again.
    #[arg(long)]
    pub(crate) approve: bool,
    /// No; for a call whose outcome nobody knows: the step failed.
    #[arg(long)]
    pub(crate) reject: bool,
    /// For a call whose outcome nobody knows: take the step as done.
    #[arg(long)]
    pub(crate) skip: bool,
}

/// `tools`.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Serves the bundled tools to other signalbox processes.
    Serve {
        /// The address that is listened on.
        #[arg(long, default_value = "127.0.0.1:7421", value_name = "IP:PORT")]
        listen: SocketAddr,
        /// The folder that the tools keep their files in.
        #[arg(long, default_value = DATA_DEFAULT, value_name = "DIR")]
        data: PathBuf,
    },
}

fn store_address(text: &str) -> Result<StoreAddress, String> {
    text.parse()
}

fn day(text: &str) -> Result<String, String> {
    let strict = text.len() == 10 && text.bytes().enumerate().all(|(i, b)| (i == 4 || i == 7) == (b == b'-'));
    match text.parse::<jiff::civil::Date>() {
        Ok(date) if strict => Ok(date.to_string()),
        Ok(_) | Err(_) => Err("not a day such as 2026-01-31".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

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
            "signalbox verify journal.jsonl",
            "signalbox check ssrf",
            "signalbox explain 0190d6a8-3c1e-7bbb-8f5e-000000000001",
            "signalbox explain journal.jsonl 0190d6a8-3c1e-7bbb-8f5e-000000000001",
            "signalbox migrate --data d",
            "signalbox store accept-rollback --data d --reason x --yes",
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
            format!("signalbox runs kill {ID}"),
            format!("signalbox runs replay {ID} --at 0"),
            "signalbox runs list --limit 201".to_owned(),
            "signalbox runs list --limit 0".to_owned(),
            format!("signalbox approvals decide {ID} --reason x"),
            format!("signalbox approvals decide {ID} --approve --reject --reason x"),
            "signalbox approvals list --output yaml".to_owned(),
            "signalbox check".to_owned(),
            "signalbox store".to_owned(),
            "signalbox store accept-rollback --yes".to_owned(),
            "signalbox check weather".to_owned(),
        ] {
            let error = parse(&line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let cli = parse("signalbox demo --sources samples").unwrap();
        assert_eq!(cli.output, Format::Table);
        let Command::Demo(demo) = cli.command else { panic!("not demo") };
        assert_eq!(demo.data, PathBuf::from("./data"));
        assert!(!demo.approve && !demo.fresh && demo.since.is_none());
    }
}
