//! Managing shared grants. A revocation is a change of the rules: from its commit on no call is admitted under the grant, on
//! any node; what was admitted before goes on to its end.

use std::sync::Arc;
use std::time::Duration;

use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::{GovernanceChange, GovernanceState};
use signalbox_domain::governance::grant::{Grant, GrantScope, line_of};
use signalbox_domain::governance::granting::{self, IssueGrant, Issuing, RenewGrant, Revoking};
use signalbox_domain::ids::{GrantId, TenantId, ToolId};
use signalbox_domain::time::UnixMs;
use signalbox_ports::acts::Effect;

use super::NodeHandle;
use super::governing::{Decided, Draft, check_operator, operator, recorded};
use crate::api::{ApiError, Caller};
use crate::governance::Revocations;

/// A shared grant and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct GrantStanding {
    /// The grant.
    pub grant: Grant,
    /// `live`, `expired` or `revoked`.
    pub state: &'static str,
    /// The last act on it, or on what a renewal has tied to it; 0 if none is recorded.
    pub revision: u64,
}

/// A grant that was revoked.
#[derive(Debug, Clone, PartialEq)]
pub struct RevokedGrant {
    /// The grant.
    pub standing: GrantStanding,
    /// True if it was revoked before.
    pub already: bool,
    /// What was revoked with it: itself and what a renewal has tied to it.
    pub revoked: Vec<GrantId>,
    /// The epoch since which no call is admitted under it; 0 if it was revoked before.
    pub epoch: u64,
    /// How long after the request this node held its own calls against it.
    pub applied_after: Duration,
}

/// Which grants are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantFilter {
    /// Only those of this tenant.
    pub tenant_id: Option<TenantId>,
    /// Only those of this tool.
    pub tool_id: Option<ToolId>,
    /// Only those of this scope.
    pub scope: Option<GrantScope>,
    /// The expired and revoked ones too.
    pub all: bool,
    /// Only those whose ids come after this one.
    pub after: Option<GrantId>,
    /// Most of them.
    pub limit: usize,
}

impl NodeHandle {
    /// Issues a shared grant; true if the same was issued before.
    pub async fn issue_grant(&self, caller: &Caller, order: IssueGrant) -> Result<(GrantStanding, bool), ApiError> {
        let order = &order;
        let ((grant, replayed), _) = self.act(caller, move |state| self.decide_issue(caller, order, state)).await?;
        Ok((self.grant(caller, &grant.grant_id).await?, replayed))
    }

    /// What `issue_grant` would issue, decided by the same rule on what is in force now. Nothing is written.
    pub async fn would_issue_grant(
        &self,
        caller: &Caller,
        order: IssueGrant,
    ) -> Result<(GrantStanding, bool), ApiError> {
        let state = self.state_now().await;
        let (grant, replayed) = self.decide_issue(caller, &order, state.clone()).await?.answer();
        Ok((self.grant_standing(&state, grant, self.inner.shared.clock.now()).await?, replayed))
    }

    async fn decide_issue(
        &self,
        caller: &Caller,
        order: &IssueGrant,
        state: Arc<GovernanceState>,
    ) -> Result<Decided<(Grant, bool)>, ApiError> {
        let (record, now) = (self.next_record().await?, self.inner.shared.clock.now());
        Ok(match granting::issue(order.clone(), record, operator(caller), &state, now)? {
            Issuing::Already(grant) => Decided::Nothing((grant, true)),
            Issuing::Issue(grant) => {
                Decided::Act(Box::new(issued(AuditKind::GrantIssued, None, &grant)), (grant, false))
            }
        })
    }

    /// Renews a shared grant: answers the new one, and true if it was there before.
    pub async fn renew_grant(&self, caller: &Caller, order: RenewGrant) -> Result<(GrantStanding, bool), ApiError> {
        let order = &order;
        let ((grant, replayed), _) = self.act(caller, move |state| self.decide_renew(caller, order, state)).await?;
        Ok((self.grant(caller, &grant.grant_id).await?, replayed))
    }

    /// What `renew_grant` would issue, decided by the same rule on what is in force now. Nothing is written.
    pub async fn would_renew_grant(
        &self,
        caller: &Caller,
        order: RenewGrant,
    ) -> Result<(GrantStanding, bool), ApiError> {
        let state = self.state_now().await;
        let (grant, replayed) = self.decide_renew(caller, &order, state.clone()).await?.answer();
        Ok((self.grant_standing(&state, grant, self.inner.shared.clock.now()).await?, replayed))
    }

    async fn decide_renew(
        &self,
        caller: &Caller,
        order: &RenewGrant,
        state: Arc<GovernanceState>,
    ) -> Result<Decided<(Grant, bool)>, ApiError> {
        let revision = self.line_revision(&state, &order.grant_id).await?;
        let (record, now) = (self.next_record().await?, self.inner.shared.clock.now());
        Ok(match granting::renew(order.clone(), record, revision, operator(caller), &state, now)? {
            Issuing::Already(grant) => Decided::Nothing((grant, true)),
            Issuing::Issue(grant) => {
                let old = state.grants.iter().find(|known| known.grant_id == order.grant_id);
                Decided::Act(Box::new(issued(AuditKind::GrantRenewed, old, &grant)), (grant, false))
            }
        })
    }

    /// Revokes a shared grant, with what a renewal has tied to it. Doing it twice is harmless.
    pub async fn revoke_grant(
        &self,
        caller: &Caller,
        grant_id: &GrantId,
        reason: &str,
        expected: Expected,
    ) -> Result<RevokedGrant, ApiError> {
        let began = self.inner.shared.clock.boot();
        let (revoked, done) =
            self.act(caller, move |state| self.decide_revoke(caller, grant_id, reason, expected, state)).await?;
        let waited = self.inner.shared.clock.boot().0.saturating_sub(began.0);
        Ok(RevokedGrant {
            standing: self.grant(caller, grant_id).await?,
            already: done.is_none(),
            revoked,
            epoch: done.and_then(|done| done.change).map_or(0, |change| change.epoch),
            applied_after: Duration::from_nanos(waited),
        })
    }

    /// What `revoke_grant` would take away, decided by the same rule on what is in force now. Nothing is written: the grant is
    /// answered as it stands, and the epoch is 0.
    pub async fn would_revoke_grant(
        &self,
        caller: &Caller,
        grant_id: &GrantId,
        reason: &str,
        expected: Expected,
    ) -> Result<RevokedGrant, ApiError> {
        let revoked = self.decide_revoke(caller, grant_id, reason, expected, self.state_now().await).await?.answer();
        Ok(RevokedGrant {
            standing: self.grant(caller, grant_id).await?,
            already: revoked.is_empty(),
            revoked,
            epoch: 0,
            applied_after: Duration::ZERO,
        })
    }

    async fn decide_revoke(
        &self,
        caller: &Caller,
        grant_id: &GrantId,
        reason: &str,
        expected: Expected,
        state: Arc<GovernanceState>,
    ) -> Result<Decided<Vec<GrantId>>, ApiError> {
        let revision = self.line_revision(&state, grant_id).await?;
        let now = self.inner.shared.clock.now();
        let line = match granting::revoke(grant_id, reason, expected, revision, operator(caller), &state)? {
            Revoking::Already => return Ok(Decided::Nothing(Vec::new())),
            Revoking::Revoke(line) => line,
        };
        let ids: Vec<GrantId> = line.iter().map(|grant| grant.grant_id.clone()).collect();
        let before = line.into_iter().find(|grant| grant.grant_id == *grant_id);
        let after = before.clone().map(|grant| Grant { revoked_at_unix_ms: Some(now), ..grant });
        let draft = Draft {
            tenant_id: before.as_ref().map(|grant| grant.tenant_id.clone()),
            kind: AuditKind::GrantRevoked,
            subject: Subject::grant(grant_id),
            body: AuditBody {
                reason: reason.to_owned(),
                before: before.as_ref().and_then(recorded),
                after: after.as_ref().and_then(recorded),
                details: Some(serde_json::json!({ "revokedGrantIds": ids })),
            },
            effect: Effect::Change(GovernanceChange::GrantRevoked { grant_id: grant_id.clone(), at_unix_ms: now }),
        };
        Ok(Decided::Act(Box::new(draft), ids))
    }

    /// One shared grant.
    pub async fn grant(&self, caller: &Caller, grant_id: &GrantId) -> Result<GrantStanding, ApiError> {
        check_operator(caller)?;
        self.inner.shared.governance.refresh().await;
        let state = self.inner.shared.governance.view().state.clone();
        let grant = granting::seen(grant_id, operator(caller), &state)?.clone();
        self.grant_standing(&state, grant, self.inner.shared.clock.now()).await
    }

    /// The shared grants the caller may see, by their ids.
    pub async fn grants(&self, caller: &Caller, filter: &GrantFilter) -> Result<Vec<GrantStanding>, ApiError> {
        check_operator(caller)?;
        self.inner.shared.governance.refresh().await;
        let state = self.inner.shared.governance.view().state.clone();
        let now = self.inner.shared.clock.now();
        let mut listed: Vec<&Grant> = state
            .grants
            .iter()
            .filter(|grant| granting::may_see(operator(caller), grant))
            .filter(|grant| filter.all || grant.standing(now) == "live")
            .filter(|grant| filter.tenant_id.as_ref().is_none_or(|tenant| *tenant == grant.tenant_id))
            .filter(|grant| filter.tool_id.as_ref().is_none_or(|tool| *tool == grant.tool_id))
            .filter(|grant| filter.scope.is_none_or(|scope| scope == grant.scope))
            .filter(|grant| filter.after.as_ref().is_none_or(|after| grant.grant_id > *after))
            .collect();
        listed.sort_by(|a, b| a.grant_id.cmp(&b.grant_id));
        listed.truncate(filter.limit);
        let mut standings = Vec::with_capacity(listed.len());
        for grant in listed {
            standings.push(self.grant_standing(&state, grant.clone(), now).await?);
        }
        Ok(standings)
    }

    /// How soon this node has held its calls against revocations that it read while it ran (GRA-013).
    pub fn revocations(&self) -> Revocations {
        self.inner.shared.governance.revocations()
    }

    async fn grant_standing(
        &self,
        state: &GovernanceState,
        grant: Grant,
        now: UnixMs,
    ) -> Result<GrantStanding, ApiError> {
        let revision = self.line_revision(state, &grant.grant_id).await?;
        Ok(GrantStanding { state: grant.standing(now), revision, grant })
    }

    /// The last act on a grant or on what a renewal has tied to it: a renewal is a change of the one that it continues.
    async fn line_revision(&self, state: &GovernanceState, grant_id: &GrantId) -> Result<u64, ApiError> {
        let mut revision = 0;
        for at in line_of(&state.grants, grant_id) {
            let subject = Subject::grant(&state.grants[at].grant_id);
            let last = self.inner.ports.acts.last_act(&subject).await?;
            revision = revision.max(last.map_or(0, |act| act.seq));
        }
        Ok(revision)
    }

    /// The name of the record that the act in the making is going to have: it is written only if no other comes before it.
    async fn next_record(&self) -> Result<String, ApiError> {
        Ok(format!("audit/{}", self.inner.ports.acts.audit_head().await?.seq + 1))
    }
}

fn issued(kind: AuditKind, old: Option<&Grant>, grant: &Grant) -> Draft {
    Draft {
        tenant_id: Some(grant.tenant_id.clone()),
        kind,
        subject: Subject::grant(&grant.grant_id),
        body: AuditBody {
            reason: grant.rationale.clone(),
            before: old.and_then(recorded),
            after: recorded(grant),
            details: None,
        },
        effect: Effect::Change(GovernanceChange::GrantIssued(grant.clone())),
    }
}
