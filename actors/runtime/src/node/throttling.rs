//! Managing token buckets: a rule that is set binds from the next admission on, for calls that wait too.

use std::sync::Arc;

use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::{GovernanceChange, GovernanceState};
use signalbox_domain::governance::switching::Reach;
use signalbox_domain::governance::throttle::BucketRule;
use signalbox_domain::governance::throttling::{self, Known, Setting, ThrottleDenial};
use signalbox_domain::ids::BucketId;
use signalbox_ports::acts::Effect;

use super::NodeHandle;
use super::governing::{Decided, Draft, Forecast, check_operator, operator, recorded};
use crate::api::{ApiError, Caller};

/// A rule of token buckets and its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThrottleStanding {
    /// The rule.
    pub rule: BucketRule,
    /// The last act on it; 0 if none is recorded.
    pub revision: u64,
}

/// A rule as somebody wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetThrottle {
    /// The rule; whose it is says `reach`.
    pub rule: BucketRule,
    /// Whose calls it slows.
    pub reach: Reach,
    /// Why.
    pub reason: String,
    /// The revision the caller has seen.
    pub expected: Expected,
}

impl NodeHandle {
    /// Sets a rule; true if nothing had to be changed.
    pub async fn set_throttle(&self, caller: &Caller, wish: SetThrottle) -> Result<(ThrottleStanding, bool), ApiError> {
        let wish = &wish;
        let (forecast, _) = self.act(caller, move |state| self.decide_set(caller, wish, state)).await?;
        Ok((self.throttle(caller, &wish.rule.bucket_id).await?, forecast.unchanged))
    }

    /// What `set_throttle` would change, decided by the same rule on what is in force now. Nothing is written.
    pub async fn would_set_throttle(
        &self,
        caller: &Caller,
        wish: SetThrottle,
    ) -> Result<Forecast<ThrottleStanding>, ApiError> {
        Ok(self.decide_set(caller, &wish, self.state_now().await).await?.answer())
    }

    async fn decide_set(
        &self,
        caller: &Caller,
        wish: &SetThrottle,
        state: Arc<GovernanceState>,
    ) -> Result<Decided<Forecast<ThrottleStanding>>, ApiError> {
        let SetThrottle { rule, reach, reason, expected } = wish.clone();
        let id = rule.bucket_id.clone();
        let revision = self.throttle_revision(&id).await?;
        let before = state.buckets.iter().find(|rule| rule.bucket_id == id);
        let known = before.map(|rule| Known { rule, revision });
        let count = state.buckets.len();
        let setting = throttling::set(rule, reach, &reason, expected, operator(caller), known, count)?;
        let standing = |rule: &BucketRule| ThrottleStanding { rule: rule.clone(), revision };
        let rule = match (setting, before) {
            (Setting::Set(rule), _) => rule,
            (Setting::Unchanged, Some(same)) => {
                let (before, after) = (Some(standing(same)), standing(same));
                return Ok(Decided::Nothing(Forecast { before, after, unchanged: true }));
            }
            (Setting::Unchanged, None) => return Err(ThrottleDenial::NoSuchThrottle(id.to_string()).into()),
        };
        let forecast = Forecast { before: before.map(standing), after: standing(&rule), unchanged: false };
        let draft = Draft {
            tenant_id: rule.tenant_id.clone(),
            kind: AuditKind::ThrottleSet,
            subject: Subject::throttle(&id),
            body: AuditBody { reason, before: before.and_then(recorded), after: recorded(&rule), details: None },
            effect: Effect::Change(GovernanceChange::ThrottleSet(rule)),
        };
        Ok(Decided::Act(Box::new(draft), forecast))
    }

    /// Removes a rule: from then on it slows nothing, and whoever waited for it alone goes on. Answers it as it was.
    pub async fn remove_throttle(
        &self,
        caller: &Caller,
        id: &BucketId,
        reason: &str,
        expected: Expected,
    ) -> Result<ThrottleStanding, ApiError> {
        let (standing, done) =
            self.act(caller, move |state| self.decide_remove(caller, id, reason, expected, state)).await?;
        Ok(ThrottleStanding { revision: done.map_or(0, |done| done.event.seq), ..standing })
    }

    /// What `remove_throttle` would take away, decided by the same rule on what is in force now. Nothing is written.
    pub async fn would_remove_throttle(
        &self,
        caller: &Caller,
        id: &BucketId,
        reason: &str,
        expected: Expected,
    ) -> Result<ThrottleStanding, ApiError> {
        Ok(self.decide_remove(caller, id, reason, expected, self.state_now().await).await?.answer())
    }

    async fn decide_remove(
        &self,
        caller: &Caller,
        id: &BucketId,
        reason: &str,
        expected: Expected,
        state: Arc<GovernanceState>,
    ) -> Result<Decided<ThrottleStanding>, ApiError> {
        let rule = seen(caller, id, &state)?.clone();
        let revision = self.throttle_revision(id).await?;
        throttling::remove(reason, expected, operator(caller), Known { rule: &rule, revision })?;
        let draft = Draft {
            tenant_id: rule.tenant_id.clone(),
            kind: AuditKind::ThrottleRemoved,
            subject: Subject::throttle(id),
            body: AuditBody { reason: reason.to_owned(), before: recorded(&rule), after: None, details: None },
            effect: Effect::Change(GovernanceChange::ThrottleRemoved { bucket_id: id.clone() }),
        };
        Ok(Decided::Act(Box::new(draft), ThrottleStanding { rule, revision }))
    }

    /// One rule.
    pub async fn throttle(&self, caller: &Caller, id: &BucketId) -> Result<ThrottleStanding, ApiError> {
        check_operator(caller)?;
        self.inner.shared.governance.refresh().await;
        let rule = seen(caller, id, &self.inner.shared.governance.view().state)?.clone();
        Ok(ThrottleStanding { rule, revision: self.throttle_revision(id).await? })
    }

    /// The rules the caller may see, by their ids.
    pub async fn throttles(&self, caller: &Caller) -> Result<Vec<ThrottleStanding>, ApiError> {
        check_operator(caller)?;
        self.inner.shared.governance.refresh().await;
        let state = self.inner.shared.governance.view().state.clone();
        let seen = state.buckets.iter().filter(|rule| throttling::may_see(operator(caller), rule));
        let mut rules: Vec<BucketRule> = seen.cloned().collect();
        rules.sort_by(|a, b| a.bucket_id.cmp(&b.bucket_id));
        let mut standings = Vec::with_capacity(rules.len());
        for rule in rules {
            let revision = self.throttle_revision(&rule.bucket_id).await?;
            standings.push(ThrottleStanding { rule, revision });
        }
        Ok(standings)
    }

    async fn throttle_revision(&self, id: &BucketId) -> Result<u64, ApiError> {
        Ok(self.inner.ports.acts.last_act(&Subject::throttle(id)).await?.map_or(0, |act| act.seq))
    }
}

/// A rule the caller may see. Another tenant's is as absent as none (I11).
fn seen<'a>(caller: &Caller, id: &BucketId, state: &'a GovernanceState) -> Result<&'a BucketRule, ApiError> {
    check_operator(caller)?;
    let known = state.buckets.iter().find(|rule| rule.bucket_id == *id);
    let known = known.filter(|rule| throttling::may_see(operator(caller), rule));
    known.ok_or_else(|| ThrottleDenial::NoSuchThrottle(id.to_string()).into())
}
