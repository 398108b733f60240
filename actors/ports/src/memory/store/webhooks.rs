//! Deliveries of webhooks.

use async_trait::async_trait;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::ids::{NodeIncarnation, WebhookId};
use signalbox_domain::time::UnixMs;
use signalbox_domain::webhook::Webhook;

use super::{MemoryStore, State};
use crate::journal::StoreError;
use crate::webhooks::{
    Again, Attempted, ClaimedWebhook, DEAD_KEPT_MS, DELIVERED_KEPT_MS, DELIVERIES_MAX, Deliveries, Delivery,
    DeliveryState, Place, Told,
};

/// Who sends for a webhook.
#[derive(Clone)]
pub(super) struct Sender {
    webhook: Webhook,
    owner: Option<NodeIncarnation>,
    lease_epoch: u64,
}

#[async_trait]
impl Deliveries for MemoryStore {
    async fn claim_webhooks(&self, node: NodeIncarnation) -> Result<Vec<ClaimedWebhook>, StoreError> {
        let (now, boot) = (self.now().ms(), self.clock.boot());
        let mut state = self.state()?;
        if !state.nodes.get(&node).is_some_and(|lease| !lease.given_up && lease.ends > boot) {
            return Ok(Vec::new());
        }
        let State { webhooks, deliveries, nodes, .. } = &mut *state;
        let mut claimed = Vec::new();
        for (id, sender) in webhooks {
            let is_due = |delivery: &&Delivery| {
                delivery.webhook_id == *id && delivery.state == DeliveryState::Waiting && delivery.next_at <= now
            };
            if deliveries.iter().find(is_due).is_none() {
                continue;
            }
            let lives = |owner: NodeIncarnation| nodes.get(&owner).is_some_and(|lease| !lease.given_up);
            if !sender.owner.is_some_and(lives) {
                sender.owner = Some(node);
                sender.lease_epoch += 1;
            }
            if sender.owner == Some(node) {
                let lease_epoch = sender.lease_epoch;
                claimed.push(ClaimedWebhook { webhook_id: id.clone(), node, lease_epoch });
            }
        }
        Ok(claimed)
    }

    async fn due(&self, claim: &ClaimedWebhook, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        let now = self.now().ms();
        let state = self.state()?;
        if !state.is_held(claim) {
            return Ok(Vec::new());
        }
        let waits =
            |delivery: &&Delivery| delivery.webhook_id == claim.webhook_id && delivery.state == DeliveryState::Waiting;
        let is_first = |delivery: &&Delivery| {
            !state.deliveries.iter().filter(waits).any(|other| {
                other.place.is_of_one_line_with(&delivery.place)
                    && (other.place.seq, other.place.part) < (delivery.place.seq, delivery.place.part)
            })
        };
        let due = state.deliveries.iter().filter(waits).filter(|delivery| delivery.next_at <= now).filter(is_first);
        let mut due: Vec<_> = due.cloned().collect();
        due.sort_by_key(|delivery| delivery.next_at);
        due.truncate(limit.min(DELIVERIES_MAX));
        Ok(due)
    }

    async fn note_attempt(
        &self,
        claim: &ClaimedWebhook,
        place: &Place,
        attempt: Attempted,
    ) -> Result<bool, StoreError> {
        let mut state = self.state()?;
        if !state.is_held(claim) {
            return Ok(false);
        }
        let found = state.deliveries.iter_mut().find(|delivery| {
            delivery.webhook_id == claim.webhook_id
                && delivery.place == *place
                && delivery.state == DeliveryState::Waiting
        });
        let Some(delivery) = found else { return Ok(false) };
        delivery.state = attempt.state;
        delivery.attempts += 1;
        delivery.first_at.get_or_insert(attempt.at);
        delivery.next_at = attempt.next_at;
        delivery.last_at = Some(attempt.at);
        delivery.last_status = attempt.status;
        delivery.last_problem = attempt.problem;
        Ok(true)
    }

    async fn deliveries(&self, webhook: &WebhookId, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        let state = self.state()?;
        let mut own: Vec<_> =
            state.deliveries.iter().filter(|delivery| delivery.webhook_id == *webhook).cloned().collect();
        own.sort_by(|a, b| (b.queued_at, &b.place).cmp(&(a.queued_at, &a.place)));
        own.truncate(limit.min(DELIVERIES_MAX));
        Ok(own)
    }

    async fn count_again(&self, webhook: &WebhookId, again: &Again) -> Result<u64, StoreError> {
        let state = self.state()?;
        let meant = state.deliveries.iter().filter(|delivery| delivery.webhook_id == *webhook && again.means(delivery));
        Ok(meant.count() as u64)
    }

    async fn forget_deliveries(&self) -> Result<usize, StoreError> {
        let now = self.now().ms();
        let mut state = self.state()?;
        let before = state.deliveries.len();
        for delivery in &mut state.deliveries {
            if delivery.state == DeliveryState::Waiting && delivery.queued_at < now.plus_ms(-DEAD_KEPT_MS) {
                delivery.state = DeliveryState::Dead;
                delivery.last_at.get_or_insert(now);
            }
        }
        state.deliveries.retain(|delivery| {
            let kept = match delivery.state {
                DeliveryState::Waiting => return true,
                DeliveryState::Delivered => DELIVERED_KEPT_MS,
                DeliveryState::Dead => DEAD_KEPT_MS,
            };
            delivery.last_at.unwrap_or(delivery.queued_at) >= now.plus_ms(-kept)
        });
        Ok(before - state.deliveries.len())
    }
}

impl State {
    fn is_held(&self, claim: &ClaimedWebhook) -> bool {
        self.webhooks
            .get(&claim.webhook_id)
            .is_some_and(|sender| sender.owner == Some(claim.node) && sender.lease_epoch == claim.lease_epoch)
    }

    /// What a governance change means for deliveries: those of a webhook that is removed go with it, and those of one that is
    /// disabled are given up.
    pub(super) fn follow_webhooks(&mut self, change: &GovernanceChange) {
        match change {
            GovernanceChange::WebhookPut(webhook) => {
                let fresh = || Sender { webhook: webhook.clone(), owner: None, lease_epoch: 0 };
                self.webhooks.entry(webhook.webhook_id.clone()).or_insert_with(fresh).webhook = webhook.clone();
                if !webhook.enabled {
                    let own = self.deliveries.iter_mut().filter(|known| known.webhook_id == webhook.webhook_id);
                    for delivery in own.filter(|known| known.state == DeliveryState::Waiting) {
                        delivery.state = DeliveryState::Dead;
                    }
                }
            }
            GovernanceChange::WebhookRemoved { webhook_id } => {
                self.webhooks.remove(webhook_id);
                self.deliveries.retain(|delivery| delivery.webhook_id != *webhook_id);
                self.told_once.retain(|(webhook, _)| webhook != webhook_id);
            }
            GovernanceChange::SwitchArmed(_)
            | GovernanceChange::SwitchDisarmed { .. }
            | GovernanceChange::GrantIssued(_)
            | GovernanceChange::GrantRevoked { .. }
            | GovernanceChange::ThrottlesSet(_)
            | GovernanceChange::PipelineCustomized(_)
            | GovernanceChange::RolloutSet { .. }
            | GovernanceChange::AgentPublished(_)
            | GovernanceChange::AgentMoved(_)
            | GovernanceChange::ExecutorRegistered(_)
            | GovernanceChange::ExecutorRetired { .. }
            | GovernanceChange::ThrottleSet(_)
            | GovernanceChange::ThrottleRemoved { .. }
            | GovernanceChange::BudgetOpened(_)
            | GovernanceChange::SwitchDisarmProposed(_)
            | GovernanceChange::SchedulePut(_)
            | GovernanceChange::ScheduleRemoved { .. } => {}
        }
    }

    /// Writes a delivery for each webhook that wants what is told.
    pub(super) fn tell(&mut self, told: impl IntoIterator<Item = Told>, now: UnixMs) {
        for told in told {
            for (id, Sender { webhook, .. }) in &self.webhooks {
                let of_tenant = webhook.tenant_id.is_none() || webhook.tenant_id == told.tenant_id;
                if !webhook.enabled || !of_tenant || !webhook.events.contains(&told.event_type) {
                    continue;
                }
                if let Some(once) = &told.once
                    && !self.told_once.insert((id.clone(), once.clone()))
                {
                    continue;
                }
                self.deliveries.push(Delivery {
                    webhook_id: id.clone(),
                    place: told.place.clone(),
                    event_type: told.event_type,
                    tenant_id: told.tenant_id.clone(),
                    hash: told.hash,
                    queued_at: now,
                    state: DeliveryState::Waiting,
                    attempts: 0,
                    first_at: None,
                    next_at: now,
                    last_at: None,
                    last_status: None,
                    last_problem: None,
                });
            }
        }
    }

    pub(super) fn send_again(&mut self, webhook: &WebhookId, again: &Again, now: UnixMs) {
        for delivery in &mut self.deliveries {
            if delivery.webhook_id == *webhook && again.means(delivery) {
                delivery.state = DeliveryState::Waiting;
                delivery.attempts = 0;
                delivery.first_at = None;
                delivery.next_at = now;
            }
        }
    }
}
