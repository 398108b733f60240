//! The execute front door: `POST /v1/agentic/runs/execute` (EXE-001).
//!
//! It checks the shape of the body and hands the same submission to the same node as every other front door, so the
//! order of its gates is the node's: 401 who calls, 400 what is missing, 503 `agent_tools_not_configured`, 403
//! `tool_scope_missing`, 409 `run_id_conflict`, and then the stored run (EXE-012, EXE-013). Who acts, for which tenant,
//! and what switches match a call is never read from the body (EXE-007, EXE-008, EXE-019).

use std::time::Duration;

use axum::http::StatusCode;
use signalbox_domain::ids::{RunId, TenantId};
use signalbox_domain::run::plan::{Step, StepKind};
use signalbox_domain::run::submission::{PlanInput, Submission};
use tokio::sync::OwnedSemaphorePermit;

use super::call::{Answered, Call, json};
use super::shapes::{ExecuteRequest, PlannedCall, SubmittedRun};
use super::views;
use crate::api::{Caller, Submitted, WatchItem};
use crate::errors::Refusal;
use crate::service::Runs;
use crate::validate::{self, bad};

/// Longest time a request may wait for its run, in seconds.
pub(super) const WAIT_SECONDS_MAX: u64 = 30;
/// Events after which a run waits for somebody, so that waiting for its end is no use.
const WAITS_FOR_PEOPLE: [&str; 2] = ["approval-requested", "branch-offered"];

/// `POST /v1/agentic/runs/execute`
pub(super) fn execute(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let wait = wait(&call)?;
        let (run_id, claimed, submission) = planned(call.body().await?)?;
        // Its place is taken first: a run that is accepted is answered, not refused.
        let permit = wait.map(|_| call.runs.watch_permit()).transpose()?;
        let answer = call.runs.api.submit_claiming(&caller, Some(run_id), submission, claimed).await?;
        let Submitted { run_id, replayed, warnings, .. } = answer;
        if let (Some(wait), Some(permit)) = (wait, permit) {
            // Too late is no error: the run goes on, and is answered as it stands by then.
            let _ = tokio::time::timeout(wait, until_over(&call.runs, &caller, run_id, permit)).await;
        }
        let run = views::run(call.runs.api.get(&caller, run_id).await?, &caller);
        json(StatusCode::OK, &SubmittedRun { run, replayed, warnings })
    })
}

fn wait(call: &Call) -> Result<Option<Duration>, Refusal> {
    match call.query.number("wait")? {
        None | Some(0) => Ok(None),
        Some(seconds) if seconds <= WAIT_SECONDS_MAX => Ok(Some(Duration::from_secs(seconds))),
        Some(_) => {
            let message = format!("`wait` may be at most {WAIT_SECONDS_MAX} s; watch the run's events for longer");
            Err(bad("field-invalid", "wait", message))
        }
    }
}

async fn until_over(runs: &Runs, caller: &Caller, run_id: RunId, _permit: OwnedSemaphorePermit) -> Result<(), Refusal> {
    let mut draining = runs.draining.clone();
    let mut items = runs.api.watch(caller, run_id, 0).await?;
    loop {
        let item = tokio::select! {
            // An error of the wait means the server is gone, which is draining too.
            _ = draining.wait_for(|draining| *draining) => return Ok(()),
            item = items.recv() => item,
        };
        match item {
            Some(Ok(WatchItem::Event(event) | WatchItem::Told { event, .. }))
                if WAITS_FOR_PEOPLE.contains(&event.kind.as_str()) =>
            {
                return Ok(());
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.into()),
            None => return Ok(()),
        }
    }
}

/// The id, the tenant that is claimed, and the submission that a body stands for.
pub(crate) fn planned(request: ExecuteRequest) -> Result<(RunId, TenantId, Submission), Refusal> {
    let run_id = validate::id("runId", &request.run_id)?;
    let claimed = validate::id("tenantId", &request.tenant_id)?;
    let root_agent_id = validate::id("rootAgentId", &request.root_agent_id)?;
    if request.plan.is_empty() {
        return Err(bad("field-missing", "plan", "`plan` must have at least one `{\"toolId\": …}`"));
    }
    let mut steps: Vec<Step> = Vec::with_capacity(request.plan.len());
    for (index, call) in request.plan.into_iter().enumerate() {
        let before = steps.last().map(|step| step.step_id.clone());
        let mut step = step(index, call)?;
        if let (Some(before), true) = (before, step.1) {
            step.0.depends_on_step_ids.push(before);
        }
        steps.push(step.0);
    }
    let submission = Submission {
        agent_versions: Default::default(),
        root_agent_id,
        plan: PlanInput::Steps(steps),
        inputs: request.inputs,
        mode: request.mode.unwrap_or_else(|| "balanced".to_owned()),
        pipeline_id: request.pipeline_id.map(|id| validate::id("pipelineId", &id)).transpose()?,
        pipeline_semver: request.pipeline_semver,
        budgets: request.budgets,
        invocation: None,
        mode_override: None,
        handoffs: None,
    };
    Ok((run_id, claimed, submission))
}

// The step, and whether it waits for the one before it.
fn step(index: usize, call: PlannedCall) -> Result<(Step, bool), Refusal> {
    let at = |field: &str| format!("plan[{index}].{field}");
    let named = call.step_id.unwrap_or_else(|| format!("call-{}", index + 1));
    let in_sequence = call.depends_on_step_ids.is_none();
    let after = call.depends_on_step_ids.unwrap_or_default();
    let step = Step {
        step_id: validate::id(&at("stepId"), &named)?,
        stage_id: None,
        agent_id: call.agent_id.map(|id| validate::id(&at("agentId"), &id)).transpose()?,
        depends_on_step_ids: after
            .iter()
            .map(|id| validate::id(&at("dependsOnStepIds"), id))
            .collect::<Result<_, _>>()?,
        when: None,
        optional: call.optional,
        kind: StepKind::Tool {
            tool_id: validate::id(&at("toolId"), &call.tool_id)?,
            args: call.args,
            approved_by: None,
        },
    };
    Ok((step, in_sequence))
}
