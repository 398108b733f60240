//! `--dry-run` of what steers a run: the same pure rules that the node decides by, asked on this machine over the run as it
//! stands. Nothing is sent but the question how it stands. What a caller's standing allows is the server's to say.

use serde::Serialize;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, BranchId, CallId, CommandId, IdError, RunId, RunKey, StepId, ToolId};
use signalbox_domain::run::control::{Fork, fork};
use signalbox_domain::run::decide::{Context, Denial, RunCommand};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::Overrides;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_proto::client::Control;
use signalbox_proto::v1;
use uuid::Uuid;

use super::watch;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::Out;

/// What would happen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rehearsal {
    dry_run: bool,
    run_id: RunId,
    control: &'static str,
    status: RunStatus,
    status_after: RunStatus,
    /// The run a fork would make.
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_run_id: Option<RunId>,
    /// Calls in flight that would be cancelled.
    calls_cancelled: Vec<OpenCall>,
    /// Steps that would begin anew.
    steps_again: Vec<StepId>,
}

/// A call in flight.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OpenCall {
    call_id: CallId,
    step_id: StepId,
    tool_id: ToolId,
}

/// Says what a control would do. A control that would be denied is denied here too, with the same code.
pub(crate) async fn run(mut client: Client, request: &v1::ControlRunRequest, out: &mut Out) -> Result<(), Failure> {
    let run = watch::status(&mut client, &request.run_id).await?;
    let run: RunEnvelope = serde_json::from_slice(&run.envelope_json).map_err(|error| {
        Failure::new("answer-invalid", format!("the server sent an envelope that cannot be read: {error}"))
    })?;
    let now = UnixMs(jiff::Timestamp::now().as_millisecond());
    let rehearsal = rehearse(&run, request, now)?;
    if out.is_json() {
        return out.json(&rehearsal);
    }
    let Rehearsal { status, status_after, control, .. } = &rehearsal;
    let after = match rehearsal.forked_run_id {
        Some(forked) => format!("would make run {forked} of run {}, which stays as it is", run.run_id),
        None => {
            format!(
                "would {control} run {}: it is {}, and would be {}",
                run.run_id,
                status.as_str(),
                status_after.as_str()
            )
        }
    };
    out.line(&format!("{after}. Nothing was done"))?;
    for call in &rehearsal.calls_cancelled {
        out.line(&format!("call {} of {} for step {} would be cancelled", call.call_id, call.tool_id, call.step_id))?;
    }
    if !rehearsal.steps_again.is_empty() {
        let steps: Vec<_> = rehearsal.steps_again.iter().map(StepId::as_str).collect();
        out.line(&format!("steps that would begin anew: {}", steps.join(", ")))?;
    }
    Ok(())
}

fn rehearse(run: &RunEnvelope, request: &v1::ControlRunRequest, now: UnixMs) -> Result<Rehearsal, Failure> {
    let denied = |denial: Denial| Failure::new(denial.code(), denial.to_string());
    let actor_id = ActorId::new("rehearsal").map_err(invalid)?;
    let context = Context {
        now,
        actor: Actor { actor_id, role: Role::PlatformOperator },
        scopes: Vec::new(),
        expected_seq: Some(request.expected_seq).filter(|seq| *seq > 0),
    };
    let (mut after, mut forked_run_id) = (run.status, None);
    let (mut cancelled, mut again) = (Vec::new(), Vec::new());
    let control = match &request.control {
        Some(Control::Fork(made)) => {
            let run_id: RunId = made.run_id.parse().map_err(invalid)?;
            let fork_of = Fork {
                run_key: RunKey::new(Uuid::nil()),
                fresh: Some((run_id, false)),
                command_id: CommandId::new(Uuid::nil()),
                scopes: &run.scopes,
                reason: &request.reason,
            };
            fork(run, &fork_of, &context).map_err(denied)?;
            forked_run_id = Some(run_id);
            "fork"
        }
        Some(control) => {
            let (word, command) = command(control, &request.reason)?;
            let result = signalbox_domain::run::control::control(run, &command, &context).map_err(denied)?;
            after = result.envelope.status;
            if matches!(command, RunCommand::Cancel { .. } | RunCommand::Kill { .. }) {
                cancelled = run
                    .open_calls()
                    .map(|call| OpenCall {
                        call_id: call.call_id,
                        step_id: call.step_id.clone(),
                        tool_id: call.tool_id.clone(),
                    })
                    .collect();
            }
            if let RunCommand::RetryWithChanges { .. } = command {
                let changed = run.steps.iter().zip(&result.envelope.steps).map(|(before, after)| before != after);
                let steps = run.plan.steps.iter().zip(changed);
                again = steps.filter(|(_, changed)| *changed).map(|(step, _)| step.step_id.clone()).collect();
            }
            word
        }
        None => return Err(Failure::usage("usage", "this is no control")),
    };
    Ok(Rehearsal {
        dry_run: true,
        run_id: run.run_id,
        control,
        status: run.status,
        status_after: after,
        forked_run_id,
        calls_cancelled: cancelled,
        steps_again: again,
    })
}

fn command(control: &Control, reason: &str) -> Result<(&'static str, RunCommand), Failure> {
    let reason = reason.to_owned();
    let step = |text: &str| (!text.is_empty()).then(|| StepId::new(text)).transpose().map_err(invalid);
    Ok(match control {
        Control::Pause(_) => ("pause", RunCommand::Pause { reason }),
        Control::Resume(_) => ("resume", RunCommand::Resume { reason }),
        Control::Cancel(_) => ("cancel", RunCommand::Cancel { reason }),
        Control::Kill(_) => ("kill", RunCommand::Kill { reason, blamed_id: None }),
        Control::ChooseBranch(choice) => {
            let (step_id, branch_id) = (step(&choice.step_id)?, BranchId::new(&choice.branch_id).map_err(invalid)?);
            ("choose a branch of", RunCommand::ChooseBranch { step_id, branch_id, reason })
        }
        Control::RetryWithChanges(retry) => {
            let overrides: Overrides = match retry.overrides_json.as_ref() {
                [] => Overrides::default(),
                json => serde_json::from_slice(json)
                    .map_err(|error| Failure::usage("overrides-invalid", format!("--overrides: {error}")))?,
            };
            let step_id = StepId::new(&retry.step_id).map_err(invalid)?;
            ("rewind", RunCommand::RetryWithChanges { step_id, overrides, reason })
        }
        Control::OperatorStep(one) => ("step", RunCommand::OperatorStep { step_id: step(&one.step_id)?, reason }),
        Control::Fork(_) => return Err(Failure::usage("usage", "a fork is no control of its run")),
    })
}

fn invalid(error: IdError) -> Failure {
    Failure::usage("id-invalid", error.to_string())
}
