//! The append as a pure function: what a store must find before it may write, and what it then writes.
//!
//! Every store loads the rows an entry names, calls [`judge`], and saves what comes back, all in one transaction. So the
//! memory store, SQLite and PostgreSQL cannot differ in what they admit.

use std::collections::BTreeMap;

use crate::governance::budget::{MeterReading, MeteredBudget};
use crate::governance::change::EpochChange;
use crate::governance::target::Target;
use crate::identity::{Actor, Visibility};
use crate::ids::{ApprovalId, BudgetId, CallId, CommandId, NodeIncarnation, RunId, RunKey, StepId, TenantId};
use crate::run::chain::{EventHash, StoredEvent};
use crate::run::event::{CallPending, RunEvent};
use crate::run::plan::ApprovalRequirement;
use crate::run::status::RunStatus;
use crate::time::{UnixMicros, UnixMs};

/// An event that has been decided but not yet written.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Who caused it.
    pub actor: Actor,
    /// Who may see it.
    pub visibility: Visibility,
    /// What happened.
    pub event: RunEvent,
}

impl NewEvent {
    /// An event caused by the runtime itself, as visible as its kind is by default.
    pub fn system(event: RunEvent) -> Self {
        Self::by(Actor::system(), event)
    }
    /// An event caused by `actor`, as visible as its kind is by default.
    pub fn by(actor: Actor, event: RunEvent) -> Self {
        Self { actor, visibility: event.visibility(), event }
    }
}

/// Events that depend on governance: they are written only if nothing has changed that can concern their call.
///
/// Either one `CallPending` or `CallRedispatched` (a request to admit), or what follows from a refusal by the gate
/// (`CallRefused` and its consequences), which is as bound to the writer's epoch as an admission is.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// What is written if the ask is accepted, in order.
    pub events: Vec<NewEvent>,
    /// The call.
    pub call_id: CallId,
    /// The step.
    pub step_id: StepId,
    /// What the call is aimed at.
    pub target: Target,
}

/// One append to one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The run.
    pub run_key: RunKey,
    /// The last event the writer knows of.
    pub expected_seq: u64,
    /// The writer's claim on the run.
    pub lease_epoch: u64,
    /// The count of control commands the writer has seen; asks are refused if there are more.
    pub control_seq: u64,
    /// The governance epoch the writer's snapshot was taken at.
    pub governance_epoch: u64,
    /// What has happened: committed whenever the claim and the sequence hold.
    pub facts: Vec<NewEvent>,
    /// What depends on governance, at most one per step; written after the facts.
    pub asks: Vec<Ask>,
    /// Answers to inbox commands that this append settles.
    pub answers: Vec<(CommandId, CommandAnswer)>,
    /// The dashboard columns and due times after the facts.
    pub projection: Option<RunProjection>,
    /// The same if every ask is accepted; used only then.
    pub projection_if_asked: Option<RunProjection>,
    /// Give the run up: nothing is in flight and nothing waits in its inbox.
    pub park: bool,
}

/// The answer to a command, kept for 24 hours so that saying it twice is harmless.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandAnswer {
    /// True if it was done.
    pub accepted: bool,
    /// `ok`, or the code of the denial.
    pub code: String,
    /// In words.
    pub message: String,
    /// The journal's last sequence number when it was answered.
    pub seq: u64,
}

/// What lists and timers need to know of a run, written in the append that changes it.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunProjection {
    /// Status.
    pub status: RunStatus,
    /// True once closed: never claimed again.
    pub closed: bool,
    /// Total cost in micro-units.
    pub total_cost_micros: i64,
    /// Finished steps of all, in percent, rounded down.
    pub percent: u8,
    /// What is waited for, in words, if anything.
    pub waiting_for: Option<String>,
    /// When the run wants to be woken.
    pub wake_at: Option<UnixMs>,
    /// Questions that are open.
    pub open_approvals: Vec<OpenApproval>,
}

/// An open question, for `approvals list`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenApproval {
    /// The question.
    pub approval_id: ApprovalId,
    /// The step.
    pub step_id: StepId,
    /// Who may answer.
    pub requirement: ApprovalRequirement,
    /// In words.
    pub prompt: String,
    /// `gate` or `unknown-call-outcome`.
    pub reason: crate::run::event::ApprovalReason,
    /// What the decision is bound to.
    pub subject_digest: String,
    /// When it was asked.
    pub requested_at_unix_ms: UnixMs,
    /// When silence becomes a no.
    pub expires_at_unix_ms: UnixMs,
}

/// The row of a run that an append locks.
#[derive(Debug, Clone, PartialEq)]
pub struct RunHead {
    /// The run.
    pub run_key: RunKey,
    /// Its public id.
    pub run_id: RunId,
    /// Its tenant.
    pub tenant_id: TenantId,
    /// The node that owns it.
    pub owner: Option<NodeIncarnation>,
    /// +1 at each claim.
    pub lease_epoch: u64,
    /// The last event.
    pub last_seq: u64,
    /// Its hash.
    pub last_hash: EventHash,
    /// Its instant.
    pub last_at: UnixMicros,
    /// How many control commands were ever delivered.
    pub control_seq: u64,
    /// Commands delivered and not answered.
    pub inbox_len: u64,
    /// True once closed.
    pub closed: bool,
}

/// What one entry is judged against: all of it read after the locks were taken.
#[derive(Debug)]
pub struct Ground<'a> {
    /// The run's row; `None` if there is no such run.
    pub head: Option<&'a RunHead>,
    /// Governance changes after the entry's epoch, oldest first.
    pub changes: &'a [EpochChange],
    /// The store's epoch now.
    pub epoch: u64,
    /// The meters the entry touches, by budget; updated in place if the entry is accepted.
    pub meters: &'a mut BTreeMap<BudgetId, MeteredBudget>,
    /// The store's clock.
    pub now: UnixMicros,
}

/// Why an entry was refused whole. Nothing of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryRefusal {
    /// No such run.
    #[error("there is no such run")]
    NoSuchRun,
    /// Another node has claimed the run.
    #[error("the run is owned under lease epoch {actual}, not {expected}")]
    Fenced {
        /// What the writer believed.
        expected: u64,
        /// What is true.
        actual: u64,
    },
    /// The journal is not where the writer believes.
    #[error("the journal is at event {actual}, not {expected}")]
    Conflict {
        /// What the writer believed.
        expected: u64,
        /// What is true.
        actual: u64,
    },
    /// The run cannot be given up now: its inbox is not empty.
    #[error("the run cannot be parked while commands wait for it")]
    InboxNotEmpty,
}

impl EntryRefusal {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchRun => "no-such-run",
            Self::Fenced { .. } => "stale-epoch",
            Self::Conflict { .. } => "conflict",
            Self::InboxNotEmpty => "inbox-not-empty",
        }
    }
}

/// What became of one ask.
#[derive(Debug, Clone, PartialEq)]
pub enum AskAnswer {
    /// The call is pending; its event is among those written.
    Admitted {
        /// The pending record as it was written (or its redispatch's sequence number).
        seq: u64,
    },
    /// The refusal is written; nothing is to be dispatched.
    Recorded,
    /// Nothing of the ask was written. The facts were, all the same.
    Refused(AskRefusal),
}

/// Why an ask was refused.
#[derive(Debug, Clone, PartialEq)]
pub enum AskRefusal {
    /// Governance has changed in a way that can concern this call: ask the gate again.
    Stale {
        /// The store's epoch.
        epoch: u64,
    },
    /// A budget says no, on the store's own figures. Only these may end a run.
    Exceeded {
        /// The budget that decided.
        budget_id: BudgetId,
        /// Every meter the call touches.
        readings: Vec<MeterReading>,
    },
    /// A kill, cancel or pause was delivered that the writer had not seen.
    Commanded,
}

/// What an accepted entry writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The dashboard columns to write, if any.
    pub projection: Option<RunProjection>,
    /// The events, stamped, hashed and in order.
    pub events: Vec<StoredEvent>,
    /// One answer for each ask, in order.
    pub answers: Vec<AskAnswer>,
    /// The run's row after the entry.
    pub head: RunHead,
}

/// A pending call's record, for callers that hold the event.
pub fn pending_of(event: &RunEvent) -> Option<&CallPending> {
    if let RunEvent::CallPending(pending) = event { Some(pending) } else { None }
}
