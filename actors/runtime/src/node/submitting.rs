//! Submissions: what is looked at before a run is there, in the order in which it is refused (EXE-012, INV-007).

use signalbox_domain::governance::grant::Grant;
use signalbox_domain::ids::{RunId, RunKey};
use signalbox_domain::invocation::{InvocationEnvelope, estimate, gaps_of, warnings_of};
use signalbox_domain::mode::simulates;
use signalbox_domain::registry::AgentRegistry;
use signalbox_domain::run::append::NewEvent;
use signalbox_domain::run::event::RunSubmitted;
use signalbox_domain::run::plan::StepKind;
use signalbox_domain::run::submission::{self, Submission, Submitter};
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::Created;

use super::NodeHandle;
use super::pipelines::leave_to_standing_grants;
use crate::api::{ApiError, Caller, Preflight, Submitted};

impl NodeHandle {
    /// Accepts a run: durable when this returns. Repeating it with the same id and content answers the same run.
    pub async fn submit(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
    ) -> Result<Submitted, ApiError> {
        self.submit_with_grants(caller, run_id, submission, Vec::new()).await
    }

    /// The same for a broker in this process that has pre-approved grants for high authority (EXE-015).
    pub async fn submit_with_grants(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
        grants: Vec<Grant>,
    ) -> Result<Submitted, ApiError> {
        self.submit_noting(caller, run_id, submission, grants, Vec::new()).await
    }

    pub(super) async fn submit_noting(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
        grants: Vec<Grant>,
        noted: Vec<NewEvent>,
    ) -> Result<Submitted, ApiError> {
        self.check_room()?;
        let submitter = self.submitter(caller, run_id);
        let now = self.inner.shared.clock.now();
        let envelope = submission.invocation.clone();
        let mut submitted = submission::accept_among(submission, submitter, grants, &self.registry())?;
        self.check_tools(&submitted)?;
        self.check_preflight(&submitted, envelope.as_ref(), now)?;
        let warnings = warnings_of(&submitted, &self.inner.config.invocations);
        let shadowed = self.route(&mut submitted);
        submitted.narrow();
        let mut minted = submission::mint_grants(&submitted, now);
        leave_to_standing_grants(&submitted, &mut minted, &self.inner.shared.governance.view().state, now);
        submitted.grants.extend(minted);
        let submitted = self.seal(submitted).await?;
        let (run_id, hash) = (submitted.run_id, submitted.submission_hash.clone());
        let shadowed = shadowed.map(|rollout| (submitted.clone(), rollout));
        match self.create(caller, submitted, noted, now).await? {
            (Created::New { .. }, status) => {
                if let Some((run, rollout)) = shadowed {
                    self.cast_shadow(run, rollout);
                }
                Ok(Submitted { run_id, replayed: false, status, warnings })
            }
            (Created::Exists(head), _) => {
                let there = self.envelope(&head).await?;
                let same = there.submission_hash == hash && there.submitted_by.actor_id == caller.actor.actor_id;
                if !same || there.forked_from_run_id.is_some() {
                    return Err(ApiError::RunIdConflict(run_id));
                }
                self.cast_shadow_again(head.run_key, there.routing.as_ref()).await?;
                Ok(Submitted { run_id, replayed: true, status: there.status_at(now), warnings })
            }
        }
    }

    /// What a submission lacks, and what its run would be: nothing is written, and no id is taken (INV-007).
    pub async fn preflight(&self, caller: &Caller, submission: Submission) -> Result<Preflight, ApiError> {
        let submitter = self.submitter(caller, None);
        let now = self.inner.shared.clock.now();
        let envelope = submission.invocation.clone();
        let submitted = submission::accept_among(submission, submitter, Vec::new(), &self.registry())?;
        self.check_tools(&submitted)?;
        let simulated = |step: &&signalbox_domain::run::plan::Step| {
            let tool = step.kind.tool_id();
            tool.is_some_and(|tool| simulates(&submitted.mode, tool, step.kind.approved_by().is_some()))
        };
        Ok(Preflight {
            warnings: warnings_of(&submitted, &self.inner.config.invocations),
            gaps: gaps_of(&submitted, envelope.as_ref(), &self.inner.config.invocations, now),
            estimate: estimate(&submitted.plan),
            simulated_steps: submitted.plan.steps.iter().filter(simulated).map(|step| step.step_id.clone()).collect(),
            bounds: submitted.mode_bounds,
            budgets: submitted.budgets,
        })
    }

    /// The agents as this node has last read them: they are no older than the admission of a call may be.
    pub(super) fn registry(&self) -> AgentRegistry {
        self.inner.shared.governance.view().state.registry.clone()
    }

    fn submitter(&self, caller: &Caller, run_id: Option<RunId>) -> Submitter {
        Submitter {
            run_key: RunKey::new(self.inner.ports.ids.fresh()),
            run_id: run_id.unwrap_or_else(|| RunId::new(self.inner.ports.ids.fresh())),
            tenant_id: caller.tenant_id.clone(),
            actor: caller.actor.clone(),
            scopes: caller.scopes.clone(),
            surface: caller.surface.to_owned(),
        }
    }

    /// Everything a run lacks, at once; the store has not heard of it yet.
    pub(super) fn check_preflight(
        &self,
        submitted: &RunSubmitted,
        envelope: Option<&InvocationEnvelope>,
        now: UnixMs,
    ) -> Result<(), ApiError> {
        match gaps_of(submitted, envelope, &self.inner.config.invocations, now) {
            none if none.is_empty() => Ok(()),
            gaps => Err(ApiError::Preflight(gaps)),
        }
    }

    // First the missing tool, then the missing scope, and only then who owns the id (EXE-012).
    pub(super) fn check_tools(&self, submitted: &RunSubmitted) -> Result<(), ApiError> {
        let configured = self.inner.shared.tools.configured();
        let mut absent: Vec<String> = Vec::new();
        for step in submitted.plan.all_steps().into_iter().filter(|step| !step.optional) {
            if let StepKind::Tool { tool_id, approved_by, .. } = &step.kind
                && !simulates(&submitted.mode, tool_id, approved_by.is_some())
                && !configured.iter().any(|(tool, _)| tool == tool_id)
            {
                absent.push(format!("`{tool_id}`"));
            }
        }
        absent.sort();
        absent.dedup();
        if !absent.is_empty() {
            return Err(ApiError::ToolsNotConfigured(absent));
        }
        match submission::missing_scope(submitted) {
            Some(scope) => Err(ApiError::ScopeMissing(scope)),
            None => Ok(()),
        }
    }
}
