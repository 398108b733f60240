//! The commands that steer a run.

use serde_json::json;
use signalbox_proto::v1;
use signalbox_proto::v1::control_run_request::Control;
use uuid::Uuid;

use super::runs::read_file;
use crate::args::{KillArgs, RunsCommand, SteerArgs};
use crate::client::{Client, timed, until_answered};
use crate::failure::Failure;
use crate::output::Out;

/// Steers a run and shows how it, or the new run of a fork, stands then.
pub(crate) async fn run(client: Client, command: RunsCommand, out: &mut Out) -> Result<(), Failure> {
    let Some(request) = request(command)? else {
        return Err(Failure::usage("usage", "this is no control"));
    };
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

fn request(command: RunsCommand) -> Result<Option<v1::ControlRunRequest>, Failure> {
    Ok(Some(match command {
        RunsCommand::Pause(args) => steer(args, Control::Pause(v1::Pause {})),
        RunsCommand::Resume(args) => steer(args, Control::Resume(v1::Resume {})),
        RunsCommand::Cancel(args) => steer(args, Control::Cancel(v1::Cancel {})),
        RunsCommand::Kill(KillArgs { id, reason, how }) => {
            steer(SteerArgs { id, reason, how }, Control::Kill(v1::Kill {}))
        }
        RunsCommand::ChooseBranch { steer: args, branch, step } => {
            let choose = v1::ChooseBranch { step_id: step.unwrap_or_default(), branch_id: branch };
            steer(args, Control::ChooseBranch(choose))
        }
        RunsCommand::Retry { steer: args, step, overrides } => {
            let overrides_json = overrides.map(|path| read_file(&path)).transpose()?.unwrap_or_default().into();
            steer(args, Control::RetryWithChanges(v1::RetryWithChanges { step_id: step, overrides_json }))
        }
        RunsCommand::Step { steer: args, step } => {
            steer(args, Control::OperatorStep(v1::OperatorStep { step_id: step.unwrap_or_default() }))
        }
        RunsCommand::Fork { steer: args, run_id } => {
            steer(args, Control::Fork(v1::Fork { run_id: run_id.unwrap_or_else(Uuid::now_v7).to_string() }))
        }
        RunsCommand::Submit { .. }
        | RunsCommand::Get { .. }
        | RunsCommand::List { .. }
        | RunsCommand::Watch { .. }
        | RunsCommand::Replay { .. }
        | RunsCommand::Export { .. } => return Ok(None),
    }))
}

fn steer(args: SteerArgs, control: Control) -> v1::ControlRunRequest {
    v1::ControlRunRequest {
        run_id: args.id.to_string(),
        // Named here, so that saying it again is still one command.
        command_id: args.how.command_id.unwrap_or_else(Uuid::new_v4).to_string(),
        reason: args.reason,
        expected_seq: args.how.expected_seq.unwrap_or_default(),
        control: Some(control),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::HowArgs;

    #[test]
    fn a_control_carries_its_reason_and_a_command_id_of_its_own() {
        let how = |command_id| HowArgs { command_id, expected_seq: Some(7) };
        let args = |command_id| SteerArgs { id: Uuid::from_u128(1), reason: "why".to_owned(), how: how(command_id) };
        let kill = KillArgs { id: Uuid::from_u128(1), reason: "why".to_owned(), how: how(None) };
        let kill = request(RunsCommand::Kill(kill)).unwrap().unwrap();
        assert_eq!((kill.reason.as_str(), kill.control), ("why", Some(Control::Kill(v1::Kill {}))));
        let other = request(RunsCommand::Cancel(args(None))).unwrap().unwrap();
        assert_ne!(kill.command_id, other.command_id);
        let named = request(RunsCommand::Pause(args(Some(Uuid::from_u128(9))))).unwrap().unwrap();
        assert_eq!((named.command_id, named.expected_seq), (Uuid::from_u128(9).to_string(), 7));
    }
}
