//! Governance changes: what moves the epoch, and whether a change can concern a call.

use serde::{Deserialize, Serialize};

use crate::feedback::rollout::Rollout;
use crate::governance::budget::{self, Budget};
use crate::governance::grant::{Grant, GrantScope, line_of};
use crate::governance::kill_switch::KillSwitch;
use crate::governance::target::Target;
use crate::governance::throttle::{self, BucketRule};
use crate::ids::{
    ActorId, BucketId, ExecutorId, GrantId, PipelineId, RunId, ScheduleId, SwitchId, TenantId, WebhookId,
};
use crate::pipeline::TenantPipelineCustomization;
use crate::pipeline::schedule::PipelineSchedule;
use crate::registry::{AgentMove, AgentRegistry, AgentRegistryEntry, RegisteredExecutor};
use crate::time::UnixMs;
use crate::webhook::Webhook;

/// One change, in the order of epochs.
#[allow(clippy::large_enum_variant, reason = "changes are few and are not kept in bulk; a box would buy nothing")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", content = "body", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum GovernanceChange {
    /// A switch was armed.
    SwitchArmed(KillSwitch),
    /// A switch was disarmed.
    SwitchDisarmed {
        /// Which.
        switch_id: SwitchId,
        /// When.
        at_unix_ms: UnixMs,
    },
    /// A shared grant was issued.
    GrantIssued(Grant),
    /// A shared grant was revoked, with those that a renewal has tied to it.
    GrantRevoked {
        /// Which.
        grant_id: GrantId,
        /// When.
        at_unix_ms: UnixMs,
    },
    /// The rules of all buckets were set.
    ThrottlesSet(Vec<BucketRule>),
    /// A rule of token buckets was set, in place of the one under its id.
    ThrottleSet(BucketRule),
    /// A rule of token buckets was removed.
    ThrottleRemoved {
        /// Which.
        bucket_id: BucketId,
    },
    /// A budget came into force. Its limit stands on its meter; that it exists at all is what calls in the making must
    /// hear of, or they would be admitted without a reservation on it.
    BudgetOpened(Budget),
    /// Somebody asked to disarm a switch that two identities must disarm. Nothing is loosened by it.
    SwitchDisarmProposed(DisarmProposal),
    /// A webhook was put, enabled or disabled. No call is held against it.
    WebhookPut(Webhook),
    /// A webhook was removed.
    WebhookRemoved {
        /// Which.
        webhook_id: WebhookId,
    },
    /// A version of an agent was entered: its first, or a later one.
    AgentPublished(Box<AgentRegistryEntry>),
    /// A version of an agent was moved, and perhaps another made room for it.
    AgentMoved(AgentMove),
    /// An executor was registered, with what it has described.
    ExecutorRegistered(Box<RegisteredExecutor>),
    /// An executor was retired: nothing new is sent to it.
    ExecutorRetired {
        /// Which.
        executor_id: ExecutorId,
        /// When.
        at_unix_ms: UnixMs,
    },
    /// A tenant made a pipeline tighter, or took that back.
    PipelineCustomized(Box<TenantPipelineCustomization>),
    /// A rollout was begun or moved.
    RolloutSet {
        /// As it stands from now on.
        rollout: Rollout,
        /// How the agent's versions change places with it, in this one entry (REG-037).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        moved: Option<AgentMove>,
    },
    /// A schedule was put, paused or resumed. No call is held against it.
    SchedulePut(Box<PipelineSchedule>),
    /// A schedule was removed.
    ScheduleRemoved {
        /// Whose.
        tenant_id: TenantId,
        /// Which.
        schedule_id: ScheduleId,
    },
}

/// The first of two identities has asked to disarm a switch (KIL-007).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisarmProposal {
    /// Which switch.
    pub switch_id: SwitchId,
    /// Who asked; another one must confirm.
    pub proposed_by: ActorId,
    /// When.
    pub proposed_at_unix_ms: UnixMs,
    /// From then on it counts no more.
    pub lapses_at_unix_ms: UnixMs,
    /// Why.
    pub reason: String,
}

/// A change with the epoch it made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EpochChange {
    /// From 1, without gaps.
    pub epoch: u64,
    /// When it was committed, by the store's clock.
    pub at_unix_ms: UnixMs,
    /// What changed.
    pub change: GovernanceChange,
}

/// All switches, shared grants and bucket rules: the fold of the changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GovernanceState {
    /// The last change applied.
    pub epoch: u64,
    /// Switches, the disarmed ones too, in the order they were first armed.
    pub switches: Vec<KillSwitch>,
    /// Shared grants, the revoked ones too: they are why a call is denied as `all-matches-revoked`.
    pub grants: Vec<Grant>,
    /// The rules of the token buckets.
    pub buckets: Vec<BucketRule>,
    /// What one identity has asked to disarm and no other has confirmed, the lapsed ones too; one for a switch.
    pub proposals: Vec<DisarmProposal>,
    /// Webhooks, the disabled ones too, in the order they were first put.
    pub webhooks: Vec<Webhook>,
    /// Every version of every agent.
    pub registry: AgentRegistry,
    /// Executors that were registered, the retired ones too, in the order they were first registered.
    pub executors: Vec<RegisteredExecutor>,
    /// Rollouts, the finished ones too, in the order they were begun.
    pub rollouts: Vec<Rollout>,
    /// Schedules, the paused ones too, in the order they were first put.
    pub schedules: Vec<PipelineSchedule>,
    /// What tenants have made of pipelines.
    pub customizations: Vec<TenantPipelineCustomization>,
}

impl GovernanceState {
    /// The state after these changes, oldest first.
    pub fn fold<'a>(changes: impl IntoIterator<Item = &'a EpochChange>) -> Self {
        let mut state = Self::default();
        for change in changes {
            state.apply(change);
        }
        state
    }

    /// Applies one change. A change that was applied before does nothing again.
    pub fn apply(&mut self, change: &EpochChange) {
        if change.epoch <= self.epoch {
            return;
        }
        self.epoch = change.epoch;
        match &change.change {
            GovernanceChange::SwitchArmed(switch) => {
                put(&mut self.switches, switch, |known| known.switch_id == switch.switch_id);
                self.proposals.retain(|open| open.switch_id != switch.switch_id);
            }
            GovernanceChange::SwitchDisarmed { switch_id, at_unix_ms } => {
                self.proposals.retain(|open| open.switch_id != *switch_id);
                if let Some(switch) = self.switches.iter_mut().find(|known| &known.switch_id == switch_id) {
                    switch.disarmed_at_unix_ms.get_or_insert(*at_unix_ms);
                }
            }
            GovernanceChange::GrantIssued(grant) => {
                put(&mut self.grants, grant, |known| known.grant_id == grant.grant_id);
            }
            GovernanceChange::GrantRevoked { grant_id, at_unix_ms } => {
                for at in line_of(&self.grants, grant_id) {
                    self.grants[at].revoked_at_unix_ms.get_or_insert(*at_unix_ms);
                }
            }
            GovernanceChange::ThrottlesSet(rules) => self.buckets.clone_from(rules),
            GovernanceChange::ThrottleSet(rule) => {
                put(&mut self.buckets, rule, |known| known.bucket_id == rule.bucket_id);
            }
            GovernanceChange::ThrottleRemoved { bucket_id } => {
                self.buckets.retain(|known| known.bucket_id != *bucket_id);
            }
            // Budgets in force are read with their figures, not folded.
            GovernanceChange::BudgetOpened(_) => {}
            GovernanceChange::SwitchDisarmProposed(proposal) => {
                put(&mut self.proposals, proposal, |known| known.switch_id == proposal.switch_id);
            }
            GovernanceChange::WebhookPut(webhook) => {
                put(&mut self.webhooks, webhook, |known| known.webhook_id == webhook.webhook_id);
            }
            GovernanceChange::WebhookRemoved { webhook_id } => {
                self.webhooks.retain(|known| known.webhook_id != *webhook_id);
            }
            GovernanceChange::AgentPublished(entry) => self.registry.apply_published(entry),
            GovernanceChange::AgentMoved(moved) => self.registry.apply_move(moved),
            GovernanceChange::ExecutorRegistered(executor) => {
                put(&mut self.executors, &**executor, |known| {
                    known.registration.executor_id == executor.registration.executor_id
                });
            }
            GovernanceChange::ExecutorRetired { executor_id, at_unix_ms } => {
                let known = self.executors.iter_mut().find(|known| known.registration.executor_id == *executor_id);
                if let Some(executor) = known {
                    executor.retired_at_unix_ms.get_or_insert(*at_unix_ms);
                }
            }
            GovernanceChange::PipelineCustomized(own) => {
                put(&mut self.customizations, &**own, |known| {
                    known.tenant_id == own.tenant_id && known.pipeline_id == own.pipeline_id
                });
            }
            GovernanceChange::RolloutSet { rollout, moved } => {
                put(&mut self.rollouts, rollout, |known| known.rollout_id == rollout.rollout_id);
                if let Some(moved) = moved {
                    self.registry.apply_move(moved);
                }
            }
            GovernanceChange::SchedulePut(schedule) => {
                put(&mut self.schedules, &**schedule, |known| {
                    (&known.tenant_id, &known.schedule_id) == (&schedule.tenant_id, &schedule.schedule_id)
                });
            }
            GovernanceChange::ScheduleRemoved { tenant_id, schedule_id } => {
                self.schedules.retain(|known| (&known.tenant_id, &known.schedule_id) != (tenant_id, schedule_id));
            }
        }
    }
}

fn put<T: Clone>(known: &mut Vec<T>, new: &T, is_same: impl Fn(&T) -> bool) {
    match known.iter_mut().find(|other| is_same(other)) {
        Some(old) => old.clone_from(new),
        None => known.push(new.clone()),
    }
}

impl GovernanceState {
    /// What a tenant has made of a pipeline, if it has (PIP-024).
    pub fn customization(
        &self,
        tenant_id: &TenantId,
        pipeline_id: &PipelineId,
    ) -> Option<&TenantPipelineCustomization> {
        self.customizations.iter().find(|own| own.tenant_id == *tenant_id && own.pipeline_id == *pipeline_id)
    }
}

impl GovernanceChange {
    /// The webhook whose deliveries the change concerns, and the webhook as it is from then on; `None` in it: it is removed.
    pub fn of_webhook(&self) -> Option<(&WebhookId, Option<&Webhook>)> {
        match self {
            Self::WebhookPut(webhook) => Some((&webhook.webhook_id, Some(webhook))),
            Self::WebhookRemoved { webhook_id } => Some((webhook_id, None)),
            Self::SwitchArmed(_)
            | Self::SwitchDisarmed { .. }
            | Self::GrantIssued(_)
            | Self::GrantRevoked { .. }
            | Self::ThrottlesSet(_)
            | Self::RolloutSet { .. }
            | Self::PipelineCustomized(_)
            | Self::AgentPublished(_)
            | Self::AgentMoved(_)
            | Self::ExecutorRegistered(_)
            | Self::ExecutorRetired { .. }
            | Self::ThrottleSet(_)
            | Self::ThrottleRemoved { .. }
            | Self::BudgetOpened(_)
            | Self::SwitchDisarmProposed(_)
            | Self::SchedulePut(_)
            | Self::ScheduleRemoved { .. } => None,
        }
    }
}

/// True if the change could alter what the gate says to a call with this target. When in doubt it says yes: the gate
/// is asked again, and that costs nothing but time.
pub fn can_match(change: &GovernanceChange, target: &Target) -> bool {
    match change {
        GovernanceChange::SwitchArmed(switch) => switch.matches(target),
        GovernanceChange::BudgetOpened(budget) => budget::applies(budget, target),
        GovernanceChange::GrantIssued(grant) => {
            grant.tenant_id == target.tenant_id
                && grant.tool_id == target.tool_id
                && match grant.scope {
                    GrantScope::PerRun => grant.scope_key.parse().is_ok_and(|run_id: RunId| run_id == target.run_id),
                    GrantScope::PerUser => grant.scope_key == target.user_id.as_str(),
                    // A target knows neither its session nor its instance.
                    GrantScope::PerSession | GrantScope::PerPipelineInstance | GrantScope::PerTenant => true,
                }
        }
        GovernanceChange::ThrottleSet(rule) => throttle::applies(rule, target),
        // A bucket that is gone holds nobody up, a run keeps the agents and the plan it was submitted with, and a rollout
        // chooses versions for runs to come.
        GovernanceChange::ThrottleRemoved { .. }
        | GovernanceChange::SwitchDisarmProposed(_)
        | GovernanceChange::WebhookPut(_)
        | GovernanceChange::WebhookRemoved { .. }
        | GovernanceChange::AgentPublished(_)
        | GovernanceChange::AgentMoved(_)
        | GovernanceChange::PipelineCustomized(_)
        | GovernanceChange::RolloutSet { .. }
        | GovernanceChange::SchedulePut(_)
        | GovernanceChange::ScheduleRemoved { .. } => false,
        // Which version of a tool is served, and whether any is, changes what the gate says of it.
        GovernanceChange::ExecutorRegistered(executor) => executor.serves(&target.tool_id),
        GovernanceChange::ExecutorRetired { .. } => true,
        // These name only an id, or replace rules that are not known here.
        GovernanceChange::SwitchDisarmed { .. }
        | GovernanceChange::GrantRevoked { .. }
        | GovernanceChange::ThrottlesSet(_) => true,
    }
}
