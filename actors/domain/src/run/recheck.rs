//! A run that waited before it began: are the grants still there that it was submitted under (GRA-008)?
//!
//! Each call asks the gate anew whatever happens; this keeps a run from beginning that could not be carried through. What was
//! never granted is none of its business: that is said at the call, with the whole answer of the gate.

use crate::governance::grant::{Grant, GrantDenialReason, GrantQuery, resolve_grant};
use crate::ids::{StepId, ToolId};
use crate::run::envelope::RunEnvelope;
use crate::run::event::{OutputKind, RunEvent, RunFinished};
use crate::run::plan::Step;
use crate::run::status::RunStatus;
use crate::time::UnixMs;

/// A step whose grant is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantGone {
    /// The step.
    pub step_id: StepId,
    /// Its tool.
    pub tool_id: ToolId,
    /// Why there is none now.
    pub reason: GrantDenialReason,
}

/// Looks up the grants of a run's steps again before it begins: the first required step that had one when the run was submitted
/// and has none now. `semver_of` is the version an executor serves.
///
/// # Errors
/// That step: the run does not begin.
pub fn recheck_queued_run_at_dispatch(
    run: &RunEnvelope,
    shared: &[Grant],
    semver_of: impl Fn(&ToolId) -> Option<String>,
    now: UnixMs,
) -> Result<(), GrantGone> {
    if run.started || run.end.is_some() {
        return Ok(());
    }
    run.plan.steps.iter().filter(|step| !step.optional).try_for_each(|step| check(run, step, shared, &semver_of, now))
}

fn check(
    run: &RunEnvelope,
    step: &Step,
    shared: &[Grant],
    semver_of: impl Fn(&ToolId) -> Option<String>,
    now: UnixMs,
) -> Result<(), GrantGone> {
    let Some(target) = run.target_of(step).filter(|_| !run.simulates(step)) else { return Ok(()) };
    let listed = crate::catalog::entry(&target.tool_id).map(|entry| entry.semver.clone());
    let semver = semver_of(&target.tool_id).or(listed).unwrap_or_default();
    let own_id = target.run_id.to_string();
    let query = GrantQuery {
        tenant_id: &target.tenant_id,
        tool_id: &target.tool_id,
        tool_semver: &semver,
        run_id: target.run_id,
        user_id: &target.user_id,
        session_id: None,
        pipeline_instance: target.pipeline_id.as_ref().map(|_| own_id.as_str()),
    };
    let grants = || run.grants.iter().chain(shared);
    let Err(reason) = resolve_grant(grants(), &query, now) else { return Ok(()) };
    let submitted = run.submitted_at.ms();
    let was_live = |grant: &&Grant| {
        grant.issued_at_unix_ms <= submitted
            && !grant.is_expired(submitted)
            && grant.revoked_at_unix_ms.is_none_or(|revoked| revoked > submitted)
    };
    if grants().filter(was_live).any(|grant| grant.matches(&query)) {
        return Err(GrantGone { step_id: step.step_id.clone(), tool_id: target.tool_id, reason });
    }
    Ok(())
}

/// The end of a run that does not begin.
pub fn ended_before_it_began(run: &RunEnvelope, gone: GrantGone) -> RunEvent {
    let GrantGone { step_id, tool_id, reason } = gone;
    RunEvent::RunFinished(Box::new(RunFinished {
        status: RunStatus::Failed,
        code: Some(reason.code().to_owned()),
        message: Some(format!(
            "the grant of `{tool_id}` for step `{step_id}` went while the run waited to begin: {reason}"
        )),
        user_visible_status_copy: None,
        safe_degradation_mode_id: None,
        blamed_id: None,
        step_id: Some(step_id),
        outputs: run.bundle(OutputKind::PartialOnFailure),
    }))
}
