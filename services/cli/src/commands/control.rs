//! The commands that steer a run.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use signalbox_proto::client::Control;
use signalbox_proto::v1;
use uuid::Uuid;

use super::rehearse;
use super::runs::read_file;
use crate::client::{Client, timed, until_answered};
use crate::failure::Failure;
use crate::output::Out;

/// The commands of `runs` that steer one.
#[derive(Debug, Subcommand)]
pub(crate) enum ControlCommand {
    /// Holds a run: calls in flight end, none is made.
    #[command(after_help = "Example:
  signalbox runs pause RUN --reason \"the numbers look odd\"")]
    Pause(SteerArgs),
    /// Lets a held run go on.
    #[command(after_help = "Example:
  signalbox runs resume RUN --reason \"looked at it\"")]
    Resume(SteerArgs),
    /// Stops a run deliberately and for ever; calls in flight are cancelled.
    #[command(after_help = "Examples:
  signalbox runs cancel RUN --dry-run
  signalbox runs cancel RUN --reason \"no longer wanted\"")]
    Cancel(SteerArgs),
    /// Stops a run by governance and for ever; calls in flight are cancelled.
    #[command(after_help = "Examples:
  signalbox runs kill RUN --reason \"wrong recipient\" --dry-run
  signalbox runs kill RUN --reason \"wrong recipient\"")]
    Kill(KillArgs),
    /// Chooses a branch.
    #[command(after_help = "Example:
  signalbox runs choose-branch RUN --branch long --reason \"they asked for it\"")]
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
    /// Rewinds a run to a step and lets it go on with changes. Pause it first.
    #[command(after_help = "Example:
  signalbox runs retry RUN --step draft --overrides changes.json --dry-run")]
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
    #[command(after_help = "Example:
  signalbox runs step RUN --step draft")]
    Step {
        /// The run, and why.
        #[command(flatten)]
        steer: SteerArgs,
        /// The step; the first that is ready if left out.
        #[arg(long, value_name = "STEP")]
        step: Option<String>,
    },
    #[command(after_help = "Example:
  signalbox runs fork RUN --reason \"what if\"")]
    /// Makes another run of one, also of one that is over: with what it has done, and nothing it has spent.
    Fork {
        /// The run, and why.
        #[command(flatten)]
        steer: SteerArgs,
        /// The id of the new run; a fresh one if left out.
        #[arg(long, value_name = "UUID")]
        run_id: Option<Uuid>,
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
    /// Only say what would happen, by the rules the node decides by; nothing is changed.
    #[arg(long)]
    pub(crate) dry_run: bool,
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

/// Steers a run and shows how it, or the new run of a fork, stands then.
pub(crate) async fn run(client: Client, command: ControlCommand, out: &mut Out) -> Result<(), Failure> {
    let (request, dry_run) = request(command)?;
    if dry_run {
        return rehearse::run(client, &request, out).await;
    }
    let answer = until_answered(async || client.clone().control_run(timed(request.clone())).await).await?.into_inner();
    let forked = matches!(request.control, Some(Control::Fork(_))).then_some(&request.run_id);
    if out.is_json() {
        let mut shown = json!({ "runId": answer.run_id, "status": answer.status, "seq": answer.seq });
        if let Some(source) = forked {
            shown["forkedFromRunId"] = json!(source);
        }
        return out.json(&shown);
    }
    let note = forked.map(|source| format!(", forked from {source}")).unwrap_or_default();
    out.line(&format!("run {} is {}{note}", answer.run_id, answer.status))
}

fn request(command: ControlCommand) -> Result<(v1::ControlRunRequest, bool), Failure> {
    Ok(match command {
        ControlCommand::Pause(args) => steer(args, Control::Pause(v1::Pause {})),
        ControlCommand::Resume(args) => steer(args, Control::Resume(v1::Resume {})),
        ControlCommand::Cancel(args) => steer(args, Control::Cancel(v1::Cancel {})),
        ControlCommand::Kill(KillArgs { id, reason, how }) => {
            steer(SteerArgs { id, reason, how }, Control::Kill(v1::Kill {}))
        }
        ControlCommand::ChooseBranch { steer: args, branch, step } => {
            let choose = v1::ChooseBranch { step_id: step.unwrap_or_default(), branch_id: branch };
            steer(args, Control::ChooseBranch(choose))
        }
        ControlCommand::Retry { steer: args, step, overrides } => {
            let overrides_json = overrides.map(|path| read_file(&path)).transpose()?.unwrap_or_default().into();
            steer(args, Control::RetryWithChanges(v1::RetryWithChanges { step_id: step, overrides_json }))
        }
        ControlCommand::Step { steer: args, step } => {
            steer(args, Control::OperatorStep(v1::OperatorStep { step_id: step.unwrap_or_default() }))
        }
        ControlCommand::Fork { steer: args, run_id } => {
            steer(args, Control::Fork(v1::Fork { run_id: run_id.unwrap_or_else(Uuid::now_v7).to_string() }))
        }
    })
}

fn steer(args: SteerArgs, control: Control) -> (v1::ControlRunRequest, bool) {
    let request = v1::ControlRunRequest {
        run_id: args.id.to_string(),
        // Named here, so that saying it again is still one command.
        command_id: args.how.command_id.unwrap_or_else(Uuid::new_v4).to_string(),
        reason: args.reason,
        expected_seq: args.how.expected_seq.unwrap_or_default(),
        control: Some(control),
    };
    (request, args.how.dry_run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_carries_its_reason_and_a_command_id_of_its_own() {
        let how = |command_id| HowArgs { command_id, expected_seq: Some(7), dry_run: false };
        let args = |command_id| SteerArgs { id: Uuid::from_u128(1), reason: "why".to_owned(), how: how(command_id) };
        let kill = KillArgs { id: Uuid::from_u128(1), reason: "why".to_owned(), how: how(None) };
        let (kill, _) = request(ControlCommand::Kill(kill)).unwrap();
        assert_eq!((kill.reason.as_str(), kill.control), ("why", Some(Control::Kill(v1::Kill {}))));
        let (other, _) = request(ControlCommand::Cancel(args(None))).unwrap();
        assert_ne!(kill.command_id, other.command_id);
        let (named, _) = request(ControlCommand::Pause(args(Some(Uuid::from_u128(9))))).unwrap();
        assert_eq!((named.command_id, named.expected_seq), (Uuid::from_u128(9).to_string(), 7));
    }
}
