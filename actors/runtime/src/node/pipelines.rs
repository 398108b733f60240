//! Pipelines: which there are for a tenant, triggering them, and making them tighter. What a trigger comes to is decided by a
//! pure rule; from there on it is a submission like any other.

use std::collections::BTreeSet;

use signalbox_domain::dashboard::DashboardFilter;
use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::change::{GovernanceChange, GovernanceState};
use signalbox_domain::governance::grant::{Grant, GrantScope};
use signalbox_domain::ids::{ActorId, PipelineId, RunId, TenantId, ToolId};
use signalbox_domain::mode::InvocationTier;
use signalbox_domain::pipeline::{
    self, CustomizationDenial, Customizing, EffectivePipeline, FireDenial, FirePipeline, INPUT_KEY, InForce,
    PipelineObservabilityReport, PipelineRegistry, PipelineSpec, PutCustomization, REPORT_RUNS, Rehearsal, Tightening,
    effective_pipeline_for_tenant,
};
use signalbox_domain::run::event::RunSubmitted;
use signalbox_domain::run::submission::Submission;
use signalbox_domain::time::UnixMs;
use signalbox_ports::acts::Effect;

use super::NodeHandle;
use super::dashboard::{only_operators, scope};
use super::governing::{Decided, Draft, operator, recorded};
use crate::api::{ApiError, Caller, Submitted, Whose};
use crate::load::load;

/// Most runs of a pipeline that are looked at for those of a report: each is read back from its journal.
const LOOKED_AT_MAX: usize = 500;

/// A pipeline as it is for a tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineStanding {
    /// The pipeline, with what the tenant has made of it.
    pub effective: EffectivePipeline,
    /// What the tenant has made tighter, if anything.
    pub tightening: Option<Tightening>,
    /// The last act on that; 0 if there is none.
    pub revision: u64,
    /// True if the caller's standing is high enough to trigger it (PIP-006).
    pub may_fire: bool,
}

/// A pipeline that was triggered.
#[derive(Debug, Clone, PartialEq)]
pub struct Fired {
    /// The run, as for any submission.
    pub submitted: Submitted,
    /// The version it started with, and stays on.
    pub pipeline_semver: String,
    /// The mode it runs in.
    pub mode: String,
}

impl NodeHandle {
    /// The pipelines as they are for the caller's tenant, in the order in which they are registered.
    pub async fn pipelines(&self, caller: &Caller) -> Result<Vec<PipelineStanding>, ApiError> {
        self.inner.shared.governance.refresh().await;
        let mut standings = Vec::new();
        for spec in PipelineRegistry::shipped().list() {
            standings.push(self.pipeline_standing(caller, &caller.tenant_id, spec).await?);
        }
        Ok(standings)
    }

    /// One pipeline as it is for the caller's tenant (PIP-024).
    pub async fn pipeline(&self, caller: &Caller, id: &PipelineId) -> Result<PipelineStanding, ApiError> {
        let spec = PipelineRegistry::shipped().get(id).ok_or_else(|| FireDenial::NoSuchPipeline(id.clone()))?;
        self.inner.shared.governance.refresh().await;
        self.pipeline_standing(caller, &caller.tenant_id, spec).await
    }

    async fn pipeline_standing(
        &self,
        caller: &Caller,
        tenant_id: &TenantId,
        spec: &PipelineSpec,
    ) -> Result<PipelineStanding, ApiError> {
        let view = self.inner.shared.governance.view();
        let own = view.state.customization(tenant_id, &spec.pipeline_id);
        let effective = effective_pipeline_for_tenant(spec, own);
        let tightening = own.map(|own| own.tightening.clone()).filter(|_| effective.customized);
        let revision = if own.is_some() { self.customization_revision(tenant_id, &spec.pipeline_id).await? } else { 0 };
        let may_fire = spec.may_be_triggered_by(InvocationTier::of(caller.actor.role));
        Ok(PipelineStanding { effective, tightening, revision, may_fire })
    }

    /// Triggers a pipeline: durable when this returns. The same trigger said again answers the same run, also where the
    /// pipeline or what the tenant makes of it has changed since.
    pub async fn fire_pipeline(&self, caller: &Caller, order: FirePipeline) -> Result<Fired, ApiError> {
        let (submission, grants_at) = self.fired(caller, &order).await?;
        let run_id = match &order.fire_id {
            Some(fire_id) => pipeline::fire_run_id(&caller.tenant_id, &order.pipeline_id, fire_id),
            None => RunId::new(self.inner.ports.ids.fresh()),
        };
        let plan = submission.plan.clone().into_plan();
        let grants = pipeline::instance_grants(&plan, &caller.tenant_id, run_id, grants_at);
        let mode = submission.mode.clone();
        let semver = submission.pipeline_semver.clone().unwrap_or_default();
        let asked = submission.inputs.clone();
        match self.submit_with_grants(caller, Some(run_id), submission, grants).await {
            Ok(submitted) => Ok(Fired { submitted, pipeline_semver: semver, mode }),
            Err(ApiError::RunIdConflict(_)) if order.fire_id.is_some() => {
                self.fired_before(caller, run_id, &order, &asked).await
            }
            Err(error) => Err(error),
        }
    }

    /// What a trigger would come to: its submission, for a preflight.
    pub async fn would_fire(&self, caller: &Caller, order: &FirePipeline) -> Result<Submission, ApiError> {
        Ok(self.fired(caller, order).await?.0)
    }

    async fn fired(&self, caller: &Caller, order: &FirePipeline) -> Result<(Submission, UnixMs), ApiError> {
        let standing = self.pipeline(caller, &order.pipeline_id).await?;
        let tier = InvocationTier::of(caller.actor.role);
        let submission = pipeline::fire(order, &standing.effective, tier)?;
        Ok((submission, self.inner.shared.clock.now()))
    }

    // A run stays on the version it started with; whoever triggers it again gets that run, if it was the same trigger.
    async fn fired_before(
        &self,
        caller: &Caller,
        run_id: RunId,
        order: &FirePipeline,
        asked: &serde_json::Value,
    ) -> Result<Fired, ApiError> {
        let run = self.get(caller, run_id).await.map_err(|error| {
            // Whose it is, is nobody else's business.
            if matches!(error, ApiError::NoSuchRun(_)) { ApiError::RunIdConflict(run_id) } else { error }
        })?;
        let same = run.pipeline_id.as_ref() == Some(&order.pipeline_id)
            && run.submitted_by.actor_id == caller.actor.actor_id
            && run.inputs.get(INPUT_KEY) == asked.get(INPUT_KEY)
            && order.mode.is_none_or(|mode| mode.as_str() == run.mode);
        if !same {
            return Err(ApiError::RunIdConflict(run_id));
        }
        let status = run.status_at(self.inner.shared.clock.now());
        let submitted = Submitted { run_id, replayed: true, status, warnings: Vec::new() };
        let pipeline_semver = run.pipeline_semver.clone().unwrap_or_default();
        Ok(Fired { submitted, pipeline_semver, mode: run.mode.clone() })
    }

    /// Makes a pipeline tighter for a tenant, or takes that back (PIP-024, PIP-025).
    pub async fn customize_pipeline(
        &self,
        caller: &Caller,
        order: PutCustomization,
    ) -> Result<PipelineStanding, ApiError> {
        let order = &order;
        let tenant_id = order.tenant_id.as_ref().unwrap_or(&caller.tenant_id);
        self.act(caller, move |state| async move {
            let known = state.customization(tenant_id, &order.pipeline_id);
            let revision = self.customization_revision(tenant_id, &order.pipeline_id).await?;
            let now = self.inner.shared.clock.now();
            let own = match pipeline::customize(order, operator(caller), known, revision, &state.registry, now)? {
                Customizing::Already => return Ok(Decided::Nothing(())),
                Customizing::Put(own) => own,
            };
            let draft = Draft {
                tenant_id: Some(own.tenant_id.clone()),
                kind: AuditKind::PipelineCustomized,
                subject: Subject::pipeline(&own.tenant_id, &own.pipeline_id),
                body: AuditBody {
                    reason: order.reason.clone(),
                    before: known.and_then(recorded),
                    after: recorded(&own),
                    details: None,
                },
                effect: Effect::Change(GovernanceChange::PipelineCustomized(Box::new(own))),
            };
            Ok(Decided::Act(Box::new(draft), ()))
        })
        .await?;
        let spec = PipelineRegistry::shipped().get(&order.pipeline_id);
        let spec = spec.ok_or_else(|| CustomizationDenial::NoSuchPipeline(order.pipeline_id.clone()))?;
        self.pipeline_standing(caller, tenant_id, spec).await
    }

    async fn customization_revision(&self, tenant_id: &TenantId, id: &PipelineId) -> Result<u64, ApiError> {
        let last = self.inner.ports.acts.last_act(&Subject::pipeline(tenant_id, id)).await?;
        Ok(last.map_or(0, |event| event.seq))
    }
}

impl NodeHandle {
    /// What the last runs of a pipeline in the caller's tenant came to (PIP-029, PIP-030). For operators.
    pub async fn pipeline_report(
        &self,
        caller: &Caller,
        id: &PipelineId,
    ) -> Result<PipelineObservabilityReport, ApiError> {
        only_operators(caller)?;
        let spec = PipelineRegistry::shipped().get(id).ok_or_else(|| FireDenial::NoSuchPipeline(id.clone()))?;
        let scope = scope(caller, Whose::Own)?;
        let mut filter = DashboardFilter { pipeline_id: Some(id.clone()), ..DashboardFilter::default() };
        let (mut runs, mut looked_at) = (Vec::new(), 0);
        while runs.len() < REPORT_RUNS && looked_at < LOOKED_AT_MAX {
            let now = self.inner.shared.clock.now_micros();
            let page = self.inner.ports.directory.runs(&scope, &filter, now).await?;
            for row in &page.rows {
                looked_at += 1;
                let run = load(self.inner.shared.store.as_ref(), row.run_key).await?;
                runs.extend(run.filter(|run| !run.is_rehearsal()));
                if runs.len() == REPORT_RUNS || looked_at == LOOKED_AT_MAX {
                    break;
                }
            }
            match page.next {
                Some(next) => filter.cursor = Some(next),
                None => break,
            }
        }
        Ok(pipeline::build_pipeline_observability_report(spec, &runs))
    }

    /// What a rehearsal of a pipeline has shown. Whoever may see the run may ask.
    pub async fn rehearsal(&self, caller: &Caller, run_id: RunId) -> Result<Rehearsal, ApiError> {
        let run = self.get(caller, run_id).await?;
        let none = || FireDenial::NoRehearsal(run_id);
        let id = run.pipeline_id.as_ref().ok_or_else(none)?;
        let spec = PipelineRegistry::shipped().get(id).ok_or_else(none)?;
        self.inner.shared.governance.refresh().await;
        let (view, now) = (self.inner.shared.governance.view(), self.inner.shared.clock.now());
        let effective = effective_pipeline_for_tenant(spec, view.state.customization(&run.tenant_id, id));
        let switches: Vec<_> = view.state.switches.iter().filter(|switch| switch.is_active(now)).collect();
        let grants: Vec<_> = view
            .state
            .grants
            .iter()
            .filter(|grant| could_be_of(grant, &run.tenant_id, &run.submitted_by.actor_id, now))
            .collect();
        let configured = self.inner.shared.tools.configured().into_iter().map(|(tool, _)| tool).collect();
        let force = InForce { switches: &switches, grants: &grants, configured: &configured };
        Ok(pipeline::rehearsal_of(spec, &run, effective.spec.total_budget_cap, force).ok_or_else(none)?)
    }
}

/// True if a standing grant is live and somebody's own or the tenant's.
fn could_be_of(grant: &Grant, tenant_id: &TenantId, actor_id: &ActorId, now: UnixMs) -> bool {
    let reaches = match grant.scope {
        GrantScope::PerTenant => true,
        GrantScope::PerUser => grant.scope_key == actor_id.as_str(),
        GrantScope::PerSession | GrantScope::PerPipelineInstance | GrantScope::PerRun => false,
    };
    reaches && grant.tenant_id == *tenant_id && grant.standing(now) == "live"
}

/// Leaves the tools to their standing grants for which the tenant has some: what an instance of a pipeline may do is limited
/// by those (PIP-007), and one that is revoked takes it away.
pub(super) fn leave_to_standing_grants(
    submitted: &RunSubmitted,
    minted: &mut Vec<Grant>,
    state: &GovernanceState,
    now: UnixMs,
) {
    if submitted.pipeline_id.is_none() {
        return;
    }
    let standing = |grant: &&Grant| could_be_of(grant, &submitted.tenant_id, &submitted.submitted_by.actor_id, now);
    let tools: BTreeSet<&ToolId> = state.grants.iter().filter(standing).map(|grant| &grant.tool_id).collect();
    minted.retain(|grant| grant.scope != GrantScope::PerPipelineInstance || !tools.contains(&grant.tool_id));
}
