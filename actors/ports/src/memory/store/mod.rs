//! All store ports over one guarded state: the reference every database is measured by.

mod acts;
mod directory;
mod feedback;
mod governance;
mod inbox;
mod journal;
mod keys;
mod leases;
mod maintenance;
mod schedules;
mod sweeps;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signalbox_domain::feedback::outcome::RunFeedback;
use signalbox_domain::feedback::routing::Routing;
use signalbox_domain::governance::audit::AuditEvent;
use signalbox_domain::governance::budget::{EndedWindow, MeteredBudget};
use signalbox_domain::governance::change::EpochChange;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::identity::ApiKey;
use signalbox_domain::ids::{
    ActorId, AgentId, ApprovalId, BudgetId, CommandId, KeyId, NodeIncarnation, PipelineId, RunId, RunKey,
    StoreIncarnation, TenantId, WebhookId,
};
use signalbox_domain::run::append::{CommandAnswer, RunHead, RunProjection};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::{UnixMicros, UnixMs};

use crate::clock::{BootInstant, Clock};
use crate::feedback::GoldSetEntryOf;
use crate::inbox::InboxCommand;
use crate::journal::StoreError;
use crate::schedules::{Fire, ScheduleKey};
use crate::webhooks::Delivery;

/// Everything a store held at one moment.
#[derive(Clone)]
pub struct Backup(State);

/// A store that forgets everything with the process. Clones share it, as nodes share a database.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    failing: Arc<Mutex<Option<StoreError>>>,
    loses_answer: Arc<AtomicBool>,
}

#[derive(Clone)]
struct State {
    incarnation: StoreIncarnation,
    runs: BTreeMap<RunKey, Run>,
    by_public_id: BTreeMap<(TenantId, RunId), RunKey>,
    changes: Vec<EpochChange>,
    meters: BTreeMap<BudgetId, MeteredBudget>,
    retired: BTreeSet<BudgetId>,
    /// Windows that are over, in the order they ended.
    windows: Vec<EndedWindow>,
    audit: Vec<AuditEvent>,
    nodes: BTreeMap<NodeIncarnation, Lease>,
    /// Unfinished sweeps, the oldest first.
    sweeps: Vec<Sweep>,
    /// Webhooks, and who sends for each.
    webhooks: BTreeMap<WebhookId, webhooks::Sender>,
    deliveries: Vec<Delivery>,
    /// What was told once and is not told again.
    told_once: BTreeSet<(WebhookId, String)>,
    keys: BTreeMap<KeyId, ApiKey>,
    feedback: Vec<RunFeedback>,
    gold: Vec<GoldSetEntryOf>,
    /// How far each schedule has been dealt with: the version of its record, and the last slot.
    schedules: BTreeMap<ScheduleKey, (u64, Option<UnixMs>)>,
    fires: Vec<Fire>,
}

#[derive(Clone)]
struct Sweep {
    switch: KillSwitch,
    /// The last run it has looked at.
    after: Option<RunKey>,
}

#[derive(Clone)]
struct Run {
    head: RunHead,
    events: Vec<StoredEvent>,
    projection: RunProjection,
    /// The run it was handed off from.
    parent: Option<RunKey>,
    /// Every question the run has asked.
    asked: BTreeSet<ApprovalId>,
    pipeline_id: Option<PipelineId>,
    root_agent_id: AgentId,
    submitted_by: ActorId,
    routing: Option<Routing>,
    submitted_at: UnixMicros,
    ended_at: Option<UnixMicros>,
    /// Given up by an append, and not claimed since.
    parked: bool,
    inbox: Vec<InboxRow>,
    snapshot: Option<Snapshot>,
}

#[derive(Clone)]
struct InboxRow {
    command: InboxCommand,
    /// The answer and when it was given.
    answer: Option<(CommandAnswer, UnixMs)>,
}

#[derive(Clone)]
struct Snapshot {
    seq: u64,
    fold_version: u32,
    bytes: Vec<u8>,
}

#[derive(Clone)]
struct Lease {
    ends: BootInstant,
    given_up: bool,
    name: String,
    /// Since when it has swept under each of its last epochs.
    swept: BTreeMap<u64, UnixMicros>,
}

impl MemoryStore {
    /// An empty store on this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State {
            incarnation: StoreIncarnation::new(uuid::Uuid::now_v7()),
            runs: BTreeMap::new(),
            by_public_id: BTreeMap::new(),
            changes: Vec::new(),
            meters: BTreeMap::new(),
            retired: BTreeSet::new(),
            windows: Vec::new(),
            audit: Vec::new(),
            nodes: BTreeMap::new(),
            sweeps: Vec::new(),
            webhooks: BTreeMap::new(),
            deliveries: Vec::new(),
            told_once: BTreeSet::new(),
            keys: BTreeMap::new(),
            feedback: Vec::new(),
            gold: Vec::new(),
            schedules: BTreeMap::new(),
            fires: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), clock, failing: Arc::default(), loses_answer: Arc::default() }
    }

    /// From now on every operation fails like this and changes nothing, until it is called with `None`.
    pub fn fail_with(&self, error: Option<StoreError>) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// What the store holds now.
    pub fn backup(&self) -> Backup {
        Backup(self.state.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The store holds what a backup says, as if nothing had been written since: of this store or of another.
    pub fn restore(&self, backup: Backup) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = backup.0;
    }

    /// The next append is committed, and its answer lost: it says `Unknown`.
    pub fn lose_next_answer(&self) {
        self.loses_answer.store(true, Ordering::SeqCst);
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        match &*self.failing.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            // A test that panicked while it held the state has failed already; what it left is still whole.
            None => Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn now(&self) -> UnixMicros {
        self.clock.now_micros()
    }
}

impl State {
    fn epoch(&self) -> u64 {
        self.changes.last().map_or(0, |change| change.epoch)
    }

    fn run(&self, run: RunKey) -> Result<&Run, StoreError> {
        self.runs.get(&run).ok_or_else(no_such_run)
    }

    fn run_mut(&mut self, run: RunKey) -> Result<&mut Run, StoreError> {
        self.runs.get_mut(&run).ok_or_else(no_such_run)
    }
}

impl Run {
    fn waiting(&self) -> impl Iterator<Item = &InboxRow> {
        self.inbox.iter().filter(|row| row.answer.is_none())
    }

    fn waits(&self, command: CommandId) -> bool {
        self.waiting().any(|row| row.command.command_id == command)
    }
}

fn no_such_run() -> StoreError {
    StoreError::Poison("there is no such run".into())
}
