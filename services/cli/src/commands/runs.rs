//! `runs`: submitting, looking, listing and replaying; what else there is has files of its own.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use signalbox_domain::mode::COST_QUALITY_MODES;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::step::StepState;
use signalbox_proto::v1;
use uuid::Uuid;

use super::control::{self, ControlCommand};
use super::gold_sets::FeedbackArgs;
use super::listing::{self, CountArgs, ListArgs};
use super::view::{RunView, raw};
use super::{export, preflight, tree, watch};
use crate::client::{Client, timed};
use crate::failure::Failure;
use crate::output::{Out, cost, duration, instant};

/// Largest file that is sent, in bytes: what a server takes at most.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// `runs`.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Submits a run.
    #[command(after_help = "Examples:
  signalbox runs submit --plan plan.json --watch
  signalbox runs submit --plan - --run-id RUN < plan.json      # harmless to repeat")]
    Submit {
        /// The run as JSON: rootAgentId, plan, and if wanted inputs, mode, modeOverride, pipelineId, budgets, invocation; `-`
        /// reads standard input.
        #[arg(long, value_name = "FILE")]
        plan: PathBuf,
        /// The run's id; submitting the same under it again is harmless.
        #[arg(long, value_name = "UUID")]
        run_id: Option<Uuid>,
        /// Follow the run until it has ended or waits for a decision.
        #[arg(long)]
        watch: bool,
        /// The mode, whatever the file says: fast, balanced, deep, exhaustive or rehearsal-dry-run.
        #[arg(long, value_name = "MODE", value_parser = COST_QUALITY_MODES)]
        mode: Option<String>,
        /// Submit nothing; print everything that stands against it.
        #[arg(long, conflicts_with_all = ["watch", "run_id"])]
        dry_run: bool,
    },
    /// Shows one run.
    #[command(after_help = "Examples:
  signalbox runs get RUN
  signalbox runs get RUN --output yaml")]
    Get {
        /// The run.
        id: Uuid,
        /// With the runs it was handed off to, and theirs.
        #[arg(long)]
        tree: bool,
    },
    /// Lists runs, newest first.
    #[command(after_help = "Example:
  signalbox runs list --status running --status awaiting_approval
  signalbox runs list --bucket attention --since 2h --text egress-denied")]
    List(Box<ListArgs>),
    /// How many runs are in each bucket.
    #[command(after_help = "Example:
  signalbox runs counts --since 7d")]
    Counts(CountArgs),
    /// Says what a finished run was like, within 24 hours of its end.
    #[command(after_help = "Examples:
  signalbox runs feedback RUN --negative
  signalbox runs feedback RUN --score 0.8")]
    Feedback(FeedbackArgs),
    /// Follows a run until it has ended or waits for a decision. Exit code 0: completed; 1: ended otherwise, or interrupted;
    /// 3: waits for a decision.
    #[command(after_help = "Examples:
  signalbox runs watch RUN
  signalbox runs watch RUN --after 12      # only what happens after event 12")]
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
    /// Steers a run.
    #[command(flatten)]
    Control(ControlCommand),
    #[command(after_help = "Example:
  signalbox runs replay RUN --at 12")]
    /// Shows a run as it stood after an event. Nothing is executed.
    Replay {
        /// The run.
        id: Uuid,
        /// The event.
        #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
        at: u64,
    },
    #[command(after_help = "Example:
  signalbox runs export RUN > run.jsonl")]
    /// Prints the whole journal of a run as JSON lines, for `signalbox verify`.
    Export {
        /// The run.
        id: Uuid,
    },
}

/// `runs`.
pub(crate) async fn run(client: Client, command: RunsCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        RunsCommand::Submit { plan, mode, dry_run: true, .. } => {
            preflight::run(client, submission(&plan, mode.as_deref())?, out).await
        }
        RunsCommand::Submit { plan, run_id, watch, mode, dry_run: false } => {
            submit(client, &plan, run_id, mode.as_deref(), watch, out).await
        }
        RunsCommand::Get { id, tree: false } => get(client, id, out).await,
        RunsCommand::Get { id, tree: true } => tree::run(client, id, out).await,
        RunsCommand::List(args) => listing::list(client, *args, out).await,
        // Another service is asked for these, and `commands::run` has done so.
        RunsCommand::Feedback(_) => Err(Failure::usage("usage", "`runs feedback` is asked of the feedback service")),
        RunsCommand::Counts(_) => Err(Failure::usage("usage", "`runs counts` is asked of the dashboard service")),
        RunsCommand::Watch { id, after, through_decisions } => {
            watch::run(client, &id.to_string(), after, through_decisions, out).await
        }
        RunsCommand::Control(command) => control::run(client, command, out).await,
        RunsCommand::Replay { id, at } => replay(client, id, at, out).await,
        RunsCommand::Export { id } => export::run(client, id).await,
    }
}

/// Submits a run and follows it if asked to.
async fn submit(
    mut client: Client,
    plan: &Path,
    run_id: Option<Uuid>,
    mode: Option<&str>,
    follow: bool,
    out: &mut Out,
) -> Result<(), Failure> {
    let submission_json = submission(plan, mode)?.into();
    let run_id = run_id.map(|id| id.to_string()).unwrap_or_default();
    let answer = client.submit_run(timed(v1::SubmitRunRequest { run_id, submission_json })).await?.into_inner();
    if out.is_json() {
        let mut view = json!({ "runId": answer.run_id, "replayed": answer.replayed });
        if !answer.warnings.is_empty() {
            view["warnings"] = json!(answer.warnings);
        }
        out.json(&view)?;
    } else {
        let note = if answer.replayed { " (submitted before)" } else { "" };
        out.line(&format!("run {}{note}", answer.run_id))?;
        answer.warnings.iter().for_each(|warning| crate::output::warn("agent-deprecated", warning));
    }
    if follow { watch::run(client, &answer.run_id, 0, false, out).await } else { Ok(()) }
}

/// The submission in a file, in another mode if one is asked for.
fn submission(plan: &Path, mode: Option<&str>) -> Result<Vec<u8>, Failure> {
    let bytes = read_file(plan)?;
    match mode {
        Some(mode) => preflight::in_mode(&bytes, mode),
        None => Ok(bytes),
    }
}

/// Shows one run.
async fn get(mut client: Client, id: Uuid, out: &mut Out) -> Result<(), Failure> {
    let answer = client.get_run(timed(v1::GetRunRequest { run_id: id.to_string() })).await?.into_inner();
    let run = answer.run.unwrap_or_default();
    if out.is_json() {
        return out.json(&RunView::of(&run)?);
    }
    let envelope: Option<RunEnvelope> = serde_json::from_slice(&run.envelope_json).ok();
    let end = envelope.as_ref().and_then(|envelope| envelope.end.as_ref());
    let ended = end.and_then(|end| Some(format!("{}: {}", end.code.as_ref()?, end.message.as_deref()?)));
    out.fields(&[
        ("run", run.run_id.clone()),
        ("status", run.status.clone()),
        ("bucket", run.bucket.clone()),
        ("because", ended.unwrap_or_default()),
        ("mode", envelope.as_ref().map(|envelope| envelope.mode.clone()).unwrap_or_default()),
        ("agent", run.root_agent_id.clone()),
        ("pipeline", run.pipeline_id.clone()),
        ("submitted", instant(run.submitted_at_unix_micros)),
        ("progress", format!("{} %", run.percent)),
        ("waiting for", run.waiting_for.clone()),
        ("cost", banded(cost(run.total_cost_micros).to_string(), &run.cost_band)),
        ("took", banded(duration(run.latency_ms), &run.latency_band)),
        ("warnings", if run.has_warnings { "yes" } else { "" }.to_owned()),
        ("simulated cost", envelope.as_ref().map(simulated).unwrap_or_default()),
        ("compliance", envelope.as_ref().map(compliance).unwrap_or_default()),
        ("last event", run.last_seq.to_string()),
        ("closed", if run.closed { "yes" } else { "no" }.to_owned()),
    ])?;
    match envelope {
        Some(envelope) => steps(&envelope, out),
        None => Ok(()),
    }
}

fn banded(figure: String, band: &str) -> String {
    if band.is_empty() { figure } else { format!("{figure} ({band})") }
}

/// Shows a run as it stood.
async fn replay(mut client: Client, id: Uuid, at: u64, out: &mut Out) -> Result<(), Failure> {
    let request = v1::ReplayRunRequest { run_id: id.to_string(), at_seq: at };
    let answer = client.replay_run(timed(request)).await?.into_inner();
    if out.is_json() {
        return out.json(&json!({ "runId": id, "atSeq": at, "envelope": raw(&answer.envelope_json)? }));
    }
    let envelope: RunEnvelope = serde_json::from_slice(&answer.envelope_json).map_err(|error| {
        Failure::new("answer-invalid", format!("the server sent an envelope that cannot be read: {error}"))
    })?;
    out.fields(&[
        ("run", envelope.run_id.to_string()),
        ("after event", format!("{} of {}", envelope.last_seq, instant(envelope.last_at.0))),
        ("status", envelope.status.as_str().to_owned()),
        ("cost", envelope.cost_ledger.total_cost_units.to_string()),
    ])?;
    steps(&envelope, out)
}

/// The bytes of a file named on the command line, or of standard input.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::usage("file-unreadable", format!("`{}` cannot be read: {}", path.display(), error.kind()))
    };
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    } else {
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("`{}` has more than {} MiB", path.display(), FILE_BYTES_MAX >> 20);
        return Err(Failure::usage("file-too-large", message));
    }
    Ok(bytes)
}

// What a rehearsal has not spent.
fn simulated(envelope: &RunEnvelope) -> String {
    envelope.simulated_ledger.as_ref().map(|ledger| ledger.total_cost_units.to_string()).unwrap_or_default()
}

// How a run that is over stands to its mode.
fn compliance(envelope: &RunEnvelope) -> String {
    let Some(kept) = &envelope.compliance else { return String::new() };
    if kept.breaches.is_empty() {
        return "keeps its mode".to_owned();
    }
    kept.breaches.iter().map(|breach| breach.code()).collect::<Vec<_>>().join(", ")
}

fn steps(envelope: &RunEnvelope, out: &mut Out) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = envelope
        .plan
        .steps
        .iter()
        .zip(&envelope.steps)
        .map(|(step, state)| {
            vec![step.step_id.to_string(), step.kind.as_str().to_owned(), state_word(state).to_owned(), because(state)]
        })
        .collect();
    out.line("")?;
    out.table(&["STEP", "KIND", "STATE", "BECAUSE"], &rows)
}

const fn state_word(state: &StepState) -> &'static str {
    match state {
        StepState::Pending => "pending",
        StepState::InFlight { .. } => "in-flight",
        StepState::HandedOff { .. } => "handed-off",
        StepState::Throttled { .. } => "throttled",
        StepState::AwaitingApproval { .. } => "awaiting-approval",
        StepState::AwaitingBranch => "awaiting-branch",
        StepState::Conversing => "conversing",
        StepState::Waiting { .. } => "waiting",
        StepState::Done { .. } => "done",
        StepState::Skipped { .. } => "skipped",
        StepState::Failed { .. } => "failed",
    }
}

fn because(state: &StepState) -> String {
    match state {
        StepState::Skipped { reason, .. } => reason.clone(),
        StepState::Failed { code, message } => format!("{code}: {message}"),
        StepState::HandedOff { child_run_id } => format!("sub-run {child_run_id}"),
        StepState::AwaitingApproval { approval_id } => format!("question {approval_id}"),
        StepState::Throttled { until_unix_ms } => format!("until {}", instant(until_unix_ms.micros().0)),
        StepState::Waiting { due_at_unix_ms } => format!("until {}", instant(due_at_unix_ms.micros().0)),
        StepState::Done { branch_id: Some(branch), .. } => format!("branch {branch}"),
        StepState::Pending
        | StepState::InFlight { .. }
        | StepState::AwaitingBranch
        | StepState::Conversing
        | StepState::Done { .. } => String::new(),
    }
}
