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

/// Steers a run and shows how it stands then.
pub(crate) async fn run(client: Client, command: RunsCommand, out: &mut Out) -> Result<(), Failure> {
    let Some(request) = request(command)? else {
        return Err(Failure::usage("usage", "this is no control"));
    };
    let run_id = request.run_id.clone();
    let answer = until_answered(async || client.clone().control_run(timed(request.clone())).await).await?.into_inner();
    if out.is_json() {
        return out.json(&json!({ "runId": run_id, "status": answer.status, "seq": answer.seq }));
    }
    out.line(&format!("run {run_id} is {}", answer.status))
}

fn request(command: RunsCommand) -> Result<Option<v1::ControlRunRequest>, Failure> {
    Ok(Some(match command {
        RunsCommand::Pause(args) => steer(args, Control::Pause(v1::Pause {})),
        RunsCommand::Resume(args) => steer(args, Control::Resume(v1::Resume {})),
        RunsCommand::Cancel(args) => steer(args, Control::Cancel(v1::Cancel {})),
        RunsCommand::Kill(KillArgs { id, reason, command_id }) => {
            steer(SteerArgs { id, reason, command_id }, Control::Kill(v1::Kill {}))
        }
        RunsCommand::ChooseBranch { id, branch, step, reason } => {
            let choose = v1::ChooseBranch { step_id: step.unwrap_or_default(), branch_id: branch };
            steer(SteerArgs { id, reason, command_id: None }, Control::ChooseBranch(choose))
        }
        RunsCommand::Retry { id, step, overrides, reason } => {
            let overrides_json = overrides.map(|path| read_file(&path)).transpose()?.unwrap_or_default().into();
            let retry = v1::RetryWithChanges { step_id: step, overrides_json };
            steer(SteerArgs { id, reason, command_id: None }, Control::RetryWithChanges(retry))
        }
        RunsCommand::Step { id, step, reason } => {
            let step = v1::OperatorStep { step_id: step.unwrap_or_default() };
            steer(SteerArgs { id, reason, command_id: None }, Control::OperatorStep(step))
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
        command_id: args.command_id.unwrap_or_else(Uuid::new_v4).to_string(),
        reason: args.reason,
        control: Some(control),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_carries_its_reason_and_a_command_id_of_its_own() {
        let args = |command_id| SteerArgs { id: Uuid::from_u128(1), reason: "why".to_owned(), command_id };
        let kill = KillArgs { id: Uuid::from_u128(1), reason: "why".to_owned(), command_id: None };
        let kill = request(RunsCommand::Kill(kill)).unwrap().unwrap();
        assert_eq!((kill.reason.as_str(), kill.control), ("why", Some(Control::Kill(v1::Kill {}))));
        let other = request(RunsCommand::Cancel(args(None))).unwrap().unwrap();
        assert_ne!(kill.command_id, other.command_id);
        let named = request(RunsCommand::Pause(args(Some(Uuid::from_u128(9))))).unwrap().unwrap();
        assert_eq!(named.command_id, Uuid::from_u128(9).to_string());
    }
}
