//! The append as a pure function: what a store must find before it may write, and what it then writes.
//!
//! Every store loads the rows an entry names, calls [`judge`], and saves what comes back, all in one transaction. So the
//! memory store, SQLite and PostgreSQL cannot differ in what they admit.
//!
//! What is not here: whether a fact may follow what is already written (that is `decide`), and which rows are locked in
//! which order (that is the store).

mod books;

use std::collections::{BTreeMap, BTreeSet};

use self::books::Books;
use crate::governance::budget::{MeterReading, MeteredBudget};
use crate::governance::change::{EpochChange, GovernanceChange, can_match};
use crate::governance::target::Target;
use crate::identity::{Actor, Visibility};
use crate::ids::{ApprovalId, BudgetId, CallId, CommandId, NodeIncarnation, RunId, RunKey, StepId, SwitchId, TenantId};
use crate::quantity::Usage;
use crate::run::approvers::Approvers;
use crate::run::chain::{EventHash, StoredEvent};
use crate::run::event::{CallPending, CallSettled, EVENT_VERSION, Reservation, RunEvent};
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
    /// The sub-run that begins if the ask is accepted: written in the same transaction as its events (HND-011).
    pub sub_run: Option<Box<SubRun>>,
}

/// A run that begins with an append of its parent.
#[derive(Debug, Clone, PartialEq)]
pub struct SubRun {
    /// Its internal key.
    pub run_key: RunKey,
    /// Its public id.
    pub run_id: RunId,
    /// The tenant: its parent's.
    pub tenant_id: TenantId,
    /// Its first events; event 1 is `run-submitted`.
    pub events: Vec<NewEvent>,
    /// Its dashboard columns.
    pub projection: RunProjection,
}

/// What an append puts into the inbox of another run, once (HND-013).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telling {
    /// The run that is told.
    pub run_key: RunKey,
    /// Names the command: told twice, it is there once.
    pub command_id: CommandId,
    /// The command, as it lies in an inbox.
    pub body: Vec<u8>,
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
    /// What the settlements among the facts give back to the shared meters, one for each `CallSettled`.
    pub releases: Vec<Release>,
    /// What depends on governance, at most one per step; written after the facts.
    pub asks: Vec<Ask>,
    /// Answers to inbox commands that this append settles.
    pub answers: Vec<(CommandId, CommandAnswer)>,
    /// The dashboard columns and due times after the facts.
    pub projection: Option<RunProjection>,
    /// The same if every ask is accepted; used only then.
    pub projection_if_asked: Option<RunProjection>,
    /// What other runs are told, if this is written.
    pub tells: Vec<Telling>,
    /// What every live run below is told as a control, if what is written ends the run (HND-015).
    pub below: Option<Vec<u8>>,
    /// Give the run up: nothing is in flight and nothing waits in its inbox.
    pub park: bool,
}

impl Entry {
    /// The sub-runs that begin if their asks are accepted.
    pub fn sub_runs(&self) -> impl Iterator<Item = &SubRun> {
        self.asks.iter().filter_map(|ask| ask.sub_run.as_deref())
    }

    /// Every budget whose meter the entry may touch; a store loads these before it judges.
    pub fn budgets(&self) -> impl Iterator<Item = &BudgetId> {
        let released = self.releases.iter().flat_map(|release| &release.reservations);
        let asked = self.asks.iter().flat_map(|ask| &ask.events).filter_map(|new| pending_of(&new.event));
        released.chain(asked.flat_map(|pending| &pending.reservations)).map(|reservation| &reservation.budget_id)
    }
}

/// What the settlement of one call gives back to the shared meters, and what it takes from them for good.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    /// The call whose `CallSettled` is among the facts; a release without one is not booked.
    pub call_id: CallId,
    /// What the call holds on shared meters.
    pub reservations: Vec<Reservation>,
    /// What is charged, by category.
    pub charged: Usage,
}

impl Release {
    /// What settling `pending` gives back: exactly the reservations its append has held.
    ///
    /// The append stamps a reading for each meter it has reserved on. A reservation without one stands on a run-scope
    /// budget, or on a meter that was retired at that time, and must not be taken off a meter that never carried it.
    pub fn of(pending: &CallPending, charged: Usage) -> Self {
        let held = |r: &&Reservation| pending.meters.iter().any(|m| m.budget_id == r.budget_id);
        let reservations = pending.reservations.iter().filter(held).cloned().collect();
        Self { call_id: pending.call_id, reservations, charged }
    }
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
    /// When the run counts as waiting for a tool, if nothing happens until then.
    pub slow_at: Option<UnixMs>,
    /// True once a budget came near its limit or a tool used more than it had reserved.
    pub has_warnings: bool,
    /// What the run can be found by (`dashboard::dashboard_words`).
    pub words: String,
    /// Questions that are open.
    pub open_approvals: Vec<OpenApproval>,
    /// The switch that killed it, if one did.
    #[serde(default)]
    pub killed_by: Option<SwitchId>,
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
    /// Who of those may; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Approvers>,
    /// In words.
    pub prompt: String,
    /// `gate` or `unknown-call-outcome`.
    pub reason: crate::run::event::ApprovalReason,
    /// What the decision is bound to.
    pub subject_digest: String,
    /// When it was asked.
    pub requested_at_unix_ms: UnixMs,
    /// When a reminder is due.
    #[serde(default)]
    pub remind_at_unix_ms: UnixMs,
    /// True once reminded.
    #[serde(default)]
    pub reminded: bool,
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
    /// Which of them belong to budgets that are no longer in force: settled on, never reserved on.
    pub retired: &'a BTreeSet<BudgetId>,
    /// Which of the commands the entry answers do wait in the run's inbox.
    pub waiting: &'a BTreeSet<CommandId>,
    /// Which of the sub-runs it would begin have an id or a key that is in use.
    pub taken: &'a BTreeSet<RunKey>,
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
    /// Nobody has the run: its last owner gave it up, perhaps without hearing that it did. Who writes to it claims it first,
    /// or nobody would take it over if the writer dies.
    #[error("the run was given up, and is to be claimed before it is written to")]
    GivenUp,
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
    /// The run cannot be given up now: a switch has been armed that its owner may not have looked at. A sweep passes over
    /// runs that have an owner, so each of them must have been held against every switch before nobody has it (KIL-010).
    #[error("the run cannot be parked before its owner has read the latest switches")]
    GovernanceStale,
}

impl EntryRefusal {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchRun => "no-such-run",
            Self::Fenced { .. } | Self::GivenUp => "stale-epoch",
            Self::Conflict { .. } => "conflict",
            Self::InboxNotEmpty => "inbox-not-empty",
            Self::GovernanceStale => "governance-stale",
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
    /// The sub-run that it would begin is not this run's to begin, or its id is in use.
    SubRunTaken,
}

/// What an accepted entry writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The dashboard columns to write, if any.
    pub projection: Option<RunProjection>,
    /// The events, stamped, hashed and in order.
    pub events: Vec<StoredEvent>,
    /// What those say when they are read back from their bytes, for whoever folds them; empty until somebody has.
    pub read_back: Vec<RunEvent>,
    /// One answer for each ask, in order.
    pub answers: Vec<AskAnswer>,
    /// The run's row after the entry.
    pub head: RunHead,
    /// The sub-runs that begin, by their place among the asks.
    pub begun: Vec<usize>,
    /// What is written ends the run: everything below it is told (HND-015).
    pub ends: bool,
}

/// Judges one entry, and says what is to be written.
///
/// An entry is refused whole if it is not its writer's turn. Otherwise its facts are accepted, and each ask is decided by
/// itself on what the store has read: a refused call never takes another one's settlement with it.
pub fn judge(ground: Ground<'_>, entry: &Entry) -> Result<Accepted, EntryRefusal> {
    let before = ground.head.ok_or(EntryRefusal::NoSuchRun)?;
    if before.lease_epoch != entry.lease_epoch {
        return Err(EntryRefusal::Fenced { expected: entry.lease_epoch, actual: before.lease_epoch });
    }
    if before.owner.is_none() {
        return Err(EntryRefusal::GivenUp);
    }
    if before.last_seq != entry.expected_seq {
        return Err(EntryRefusal::Conflict { expected: entry.expected_seq, actual: before.last_seq });
    }
    let answered: BTreeSet<_> =
        entry.answers.iter().map(|(id, _)| id).filter(|id| ground.waiting.contains(id)).collect();
    let inbox_len = before.inbox_len.saturating_sub(answered.len() as u64);
    if entry.park && inbox_len > 0 {
        return Err(EntryRefusal::InboxNotEmpty);
    }
    let unseen = |change: &EpochChange| change.epoch > entry.governance_epoch && sweeps(&change.change, before);
    if entry.park && ground.changes.iter().any(unseen) {
        return Err(EntryRefusal::GovernanceStale);
    }

    let mut head = RunHead { inbox_len, ..before.clone() };
    let mut events = Vec::new();
    let mut books = Books { meters: ground.meters, retired: ground.retired, now_seconds: seconds(ground.now) };
    let mut releases: BTreeMap<_, _> = entry.releases.iter().map(|release| (release.call_id, release)).collect();
    for fact in &entry.facts {
        let settled = if let RunEvent::CallSettled(settled) = &fact.event { Some(settled) } else { None };
        let booked = settled.and_then(|settled| Some((settled, books.settle(releases.remove(&settled.call_id)?))));
        events.push(match booked {
            // Most calls hold nothing on a shared meter.
            Some((settled, meters)) if meters != settled.meters => {
                let event = RunEvent::CallSettled(Box::new(CallSettled { meters, ..CallSettled::clone(settled) }));
                stamp(&mut head, ground.now, &NewEvent { event, actor: fact.actor.clone(), ..*fact })
            }
            Some(_) | None => stamp(&mut head, ground.now, fact),
        });
    }

    let mut answers = Vec::with_capacity(entry.asks.len());
    let mut begun = Vec::new();
    let mut ends = entry.facts.iter().any(|fact| matches!(fact.event, RunEvent::RunFinished(_)));
    for (place, ask) in entry.asks.iter().enumerate() {
        let refusal = objection(before, ground.changes, ground.epoch, entry, ask);
        let refusal = refusal.or_else(|| no_child(before, ask, ground.taken));
        answers.push(match refusal.map_or_else(|| books.reserve(ask, ground.epoch), Err) {
            Err(refusal) => AskAnswer::Refused(refusal),
            Ok(stamped) => {
                let first = events.len();
                ends |= stamped.iter().any(|new| matches!(new.event, RunEvent::RunFinished(_)));
                begun.extend(ask.sub_run.is_some().then_some(place));
                events.extend(stamped.iter().map(|event| stamp(&mut head, ground.now, event)));
                let admission = stamped.iter().position(|new| admits(&new.event));
                admission.map_or(AskAnswer::Recorded, |at| AskAnswer::Admitted { seq: events[first + at].seq })
            }
        });
    }

    let all_accepted = !answers.iter().any(|answer| matches!(answer, AskAnswer::Refused(_)));
    let asked = entry.projection_if_asked.as_ref().filter(|_| all_accepted);
    let projection = asked.or(entry.projection.as_ref()).cloned();
    if let Some(projection) = &projection {
        head.closed = projection.closed;
    }
    // A run with a call just admitted is never given up, whatever its writer says: the call is open.
    if entry.park && !answers.iter().any(|answer| matches!(answer, AskAnswer::Admitted { .. })) {
        head.owner = None;
    }
    Ok(Accepted { projection, events, read_back: Vec::new(), answers, head, begun, ends })
}

/// The event as it goes into the journal right after `head`, which moves on to it.
///
/// `at` never falls within a run, even if the store's clock was set back (RUN-024).
pub fn stamp(head: &mut RunHead, now: UnixMicros, new: &NewEvent) -> StoredEvent {
    let (kind, body) = new.event.encode();
    let mut event = StoredEvent {
        run_key: head.run_key,
        seq: head.last_seq + 1,
        at: now.max(head.last_at),
        actor: new.actor.clone(),
        visibility: new.visibility,
        kind,
        version: EVENT_VERSION,
        body,
        prev_hash: head.last_hash,
        hash: EventHash::ZERO,
    };
    event.hash = event.expected_hash(&head.tenant_id);
    head.last_seq = event.seq;
    head.last_hash = event.hash;
    head.last_at = event.at;
    event
}

/// True for what lets a call be handed out. One that a stand-in answers never is (I12).
fn admits(event: &RunEvent) -> bool {
    matches!(event, RunEvent::CallPending(pending) if !pending.simulated)
        || matches!(event, RunEvent::CallRedispatched { .. })
}

/// A pending call's record, for callers that hold the event.
pub fn pending_of(event: &RunEvent) -> Option<&CallPending> {
    if let RunEvent::CallPending(pending) = event { Some(pending) } else { None }
}

/// What has arrived since the writer looked and stands against the ask, before any meter is asked.
fn objection(head: &RunHead, changes: &[EpochChange], epoch: u64, entry: &Entry, ask: &Ask) -> Option<AskRefusal> {
    if head.control_seq != entry.control_seq {
        return Some(AskRefusal::Commanded);
    }
    let concerns = |c: &EpochChange| c.epoch > entry.governance_epoch && can_match(&c.change, &ask.target);
    // A writer ahead of the store has seen an epoch that no longer exists: the store was restored from a backup.
    if entry.governance_epoch > epoch || changes.iter().any(concerns) {
        return Some(AskRefusal::Stale { epoch });
    }
    None
}

/// Why the sub-run of an ask does not begin: only a run itself begins its children, in its own tenant (HND-016).
fn no_child(head: &RunHead, ask: &Ask, taken: &BTreeSet<RunKey>) -> Option<AskRefusal> {
    let sub_run = ask.sub_run.as_deref()?;
    let own = sub_run.events.first().is_some_and(|first| {
        let RunEvent::RunSubmitted(submitted) = &first.event else { return false };
        let parent = submitted.handed_off.as_ref().and_then(|handed| handed.parent.as_ref());
        submitted.tenant_id == head.tenant_id
            && submitted.parent_run_id == Some(head.run_id)
            && parent.is_some_and(|parent| parent.run_key == head.run_key)
    });
    (!own || sub_run.tenant_id != head.tenant_id || taken.contains(&sub_run.run_key)).then_some(AskRefusal::SubRunTaken)
}

/// True if the change may end runs of this tenant that call nothing.
fn sweeps(change: &GovernanceChange, head: &RunHead) -> bool {
    matches!(change, GovernanceChange::SwitchArmed(switch)
        if switch.scope.is_of_runs() && switch.tenant_id.as_ref().is_none_or(|tenant| *tenant == head.tenant_id))
}

const fn seconds(at: UnixMicros) -> i64 {
    at.0.div_euclid(1_000_000)
}

#[cfg(test)]
mod tests;
