//! Acts of management: a change of the rules and its record in the audit journal, in one transaction.
//!
//! An act is decided, by a pure function, on the rules as they were at one audit sequence number and one epoch. The store
//! writes it only if nothing has happened since; otherwise whoever asked reads again and decides again. So two operators
//! cannot undo each other unseen, and what the record says was before the act is what was.

use async_trait::async_trait;
use signalbox_domain::governance::audit::{AUDIT_VERSION, AuditBody, AuditEvent, AuditHead, AuditKind, Subject};
use signalbox_domain::governance::budget::{Budget, EndedWindow};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::identity::{Actor, ApiKey, Revoked};
use signalbox_domain::ids::{BudgetId, KeyId, RunId, RunKey, TenantId, WebhookId};
use signalbox_domain::registry::AgentRegistry;
use signalbox_domain::run::chain::EventHash;
use signalbox_domain::time::UnixMicros;

use crate::feedback::GoldSetEntryOf;
use crate::journal::StoreError;
use crate::schedules::FiresOf;
use crate::webhooks::Again;

/// Most acts of one reading.
pub const AUDIT_ROWS_MAX: usize = 1_000;
/// Most paused runs of one page.
pub const PAUSED_RUNS_MAX: usize = 1_000;
/// Most windows of one reading.
pub const WINDOWS_MAX: usize = 1_000;
/// Largest body of an act, in bytes.
pub const AUDIT_BODY_BYTES_MAX: usize = 1 << 20;

/// What an act does to the rules.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one is made for each act of a person, and handed on once")]
pub enum Effect {
    /// A governance change, with an epoch of its own.
    Change(GovernanceChange),
    /// A budget is created or changed, as by [`put_budget`](crate::governance::Governance::put_budget).
    PutBudget(Budget),
    /// A budget goes out of force, as by [`retire_budget`](crate::governance::Governance::retire_budget).
    RetireBudget(BudgetId),
    /// Deliveries of a webhook are sent again.
    SendAgain(WebhookId, Again),
    /// An entry comes into a gold set. One whose input the set has already is [`StoreError::Poison`].
    PutGoldSetEntry(Box<GoldSetEntryOf>),
    /// Fires of a schedule are recorded that its times did not bring about.
    PutFires(FiresOf),
    /// A new API key. One more than a tenant may have, or an id that is taken, is [`StoreError::Poison`].
    MakeApiKey(Box<ApiKey>),
    /// An API key of a tenant is taken back, as by [`Keys::revoke`](crate::keys::Keys::revoke).
    RevokeApiKey(TenantId, KeyId, Revoked),
}

/// An act that was decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// The last act it was decided on.
    pub expected_seq: u64,
    /// The epoch it was decided on.
    pub expected_epoch: u64,
    /// Whose rules it changes; absent: the platform's.
    pub tenant_id: Option<TenantId>,
    /// Who does it.
    pub actor: Actor,
    /// What it is.
    pub kind: AuditKind,
    /// What it is about.
    pub subject: Subject,
    /// What is recorded.
    pub body: AuditBody,
    /// What it does.
    pub effect: Effect,
}

/// What became of an act.
#[derive(Debug, Clone, PartialEq)]
pub enum Acted {
    /// It is done and recorded.
    Done(Box<Done>),
    /// Something has happened since it was decided; nothing was written.
    Stale,
}

/// An act that was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Its record.
    pub event: AuditEvent,
    /// The change it made, if it raised the epoch.
    pub change: Option<EpochChange>,
}

/// Which acts are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those behind this one.
    pub after_seq: u64,
    /// Only those about this.
    pub subject: Option<Subject>,
    /// Only those on this tenant's rules.
    pub tenant_id: Option<TenantId>,
    /// Most of them, up to [`AUDIT_ROWS_MAX`].
    pub limit: usize,
}

/// What a switch has done, and what is left of it to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchReach {
    /// Runs it has ended.
    pub killed: u64,
    /// Runs that are not over and that it reaches by what they are; 0 for a switch on calls.
    pub left: u64,
}

/// The audit journal and what is written with it.
#[async_trait]
pub trait Acts: Send + Sync + 'static {
    /// Where the audit journal ends, as the store remembers it beside the journal itself.
    async fn audit_head(&self) -> Result<AuditHead, StoreError>;
    /// Does an act and records it, in one transaction, under the exclusive governance lock. A rule that could not be read
    /// back, or that [`check_budget`](crate::governance::check_budget) refuses, is [`StoreError::Poison`].
    async fn act(&self, act: Act) -> Result<Acted, StoreError>;
    /// Acts in their order.
    async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEvent>, StoreError>;
    /// The last act about a subject. Its number is the subject's revision.
    async fn last_act(&self, subject: &Subject) -> Result<Option<AuditEvent>, StoreError>;
    /// What a switch has done, and what is left. The registry says which family an agent is of.
    async fn reach(&self, switch: &KillSwitch, registry: &AgentRegistry) -> Result<SwitchReach, StoreError>;
    /// Runs that are paused, of one tenant or of all, by their keys: a page of at most [`PAUSED_RUNS_MAX`] behind `after`.
    async fn paused_runs(
        &self,
        tenant: Option<&TenantId>,
        after: Option<RunKey>,
    ) -> Result<Vec<(RunKey, TenantId, RunId)>, StoreError>;
    /// Windows of a budget that are over, the newest first, up to [`WINDOWS_MAX`].
    async fn ended_windows(&self, budget: &BudgetId, limit: usize) -> Result<Vec<EndedWindow>, StoreError>;
}

/// The record of an act, stamped and hashed: what every store writes.
pub fn record(head: &AuditHead, act: &Act, now: UnixMicros, epoch: u64) -> Result<AuditEvent, StoreError> {
    let body = act.body.to_bytes();
    if body.is_empty() || body.len() > AUDIT_BODY_BYTES_MAX {
        return Err(StoreError::Poison(format!(
            "the record of an act has {} bytes; at most {AUDIT_BODY_BYTES_MAX} are kept",
            body.len()
        )));
    }
    let mut event = AuditEvent {
        seq: head.seq + 1,
        at: now.max(head.at),
        tenant_id: act.tenant_id.clone(),
        actor: act.actor.clone(),
        kind: act.kind.as_str().to_owned(),
        subject: act.subject.clone(),
        version: AUDIT_VERSION,
        epoch,
        body,
        prev_hash: head.hash,
        hash: EventHash::ZERO,
    };
    event.hash = event.expected_hash();
    Ok(event)
}

/// Where the journal ends behind an act.
pub const fn head_after(event: &AuditEvent) -> AuditHead {
    AuditHead { seq: event.seq, hash: event.hash, at: event.at }
}
