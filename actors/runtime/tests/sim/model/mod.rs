//! A model of its own of what may be true: it reads what was written, never what a node believes, and says at once what
//! breaks a promise. Sums, matches and hashes are computed here anew, not by the code under test.

mod authority;
mod call;
mod meters;
mod run;

use std::collections::BTreeMap;
use std::sync::Arc;

use signalbox_domain::governance::audit::verify_audit;
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::ids::{NodeIncarnation, RunId, RunKey, TenantId};
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::event::{CallPending, RunEvent};
use signalbox_domain::time::UnixMs;
use signalbox_ports::acts::{AUDIT_ROWS_MAX, Acts, AuditFilter, Done, Effect};
use signalbox_ports::clock::Clock;
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::{CommandClass, InboxCommand};
use signalbox_ports::journal::{AppendError, Appended, Journal, READ_EVENTS_MAX};
use signalbox_ports::leases::LEASE_MS;
use signalbox_ports::memory::MemoryStore;
use signalbox_ports::tools::CallOrder;

use crate::world::{SimClock, at_once};
use authority::Authority;
use meters::Meters;
pub(crate) use run::RunModel;

/// Entries one run may write within a second of the simulated time; more is going round in circles.
const ENTRIES_PER_SECOND_MAX: u64 = 200;
/// Events one run may have. The largest plans of the schedules need a tenth of it.
const EVENTS_MAX: usize = 2_000;

pub(crate) struct Model {
    store: MemoryStore,
    clock: Arc<SimClock>,
    /// The clocks of all nodes that ever lived, beside the store's.
    clocks: Vec<Arc<SimClock>>,
    pub(crate) runs: BTreeMap<RunKey, RunModel>,
    public: BTreeMap<(TenantId, RunId), RunKey>,
    pub(crate) meters: Meters,
    pub(crate) authority: Authority,
    leases: BTreeMap<NodeIncarnation, u64>,
    pub(crate) violations: Vec<(&'static str, String)>,
    pub(crate) executions: u64,
    /// The store has lost answers, or may have.
    pub(crate) answers_get_lost: bool,
}

impl Model {
    pub(crate) fn new(store: MemoryStore, clock: Arc<SimClock>) -> Self {
        Self {
            store,
            clocks: vec![clock.clone()],
            clock,
            runs: BTreeMap::new(),
            public: BTreeMap::new(),
            meters: Meters::default(),
            authority: Authority::default(),
            leases: BTreeMap::new(),
            violations: Vec::new(),
            executions: 0,
            answers_get_lost: false,
        }
    }

    pub(crate) fn add_clock(&mut self, clock: Arc<SimClock>) {
        self.clocks.push(clock);
    }

    pub(crate) fn violated(&mut self, promise: &'static str, what: impl Into<String>) {
        self.violations.push((promise, what.into()));
    }

    fn boot_ms(&self) -> u64 {
        self.clock.boot().0 / 1_000_000
    }

    /// The earliest and the latest wall clock there is.
    fn walls(&self) -> (UnixMs, UnixMs) {
        let mut readings = self.clocks.iter().map(|clock| clock.now_micros().ms());
        let first = readings.next().unwrap();
        readings.fold((first, first), |(low, high), now| (low.min(now), high.max(now)))
    }

    /// Clocks and expiries are looked at; call it before and after a clock is set.
    pub(crate) fn tick(&mut self) {
        let (earliest, latest) = self.walls();
        let boot_ms = self.boot_ms();
        self.authority.tick(earliest, latest, boot_ms);
    }

    pub(crate) fn created(&mut self, head: &RunHead) {
        self.public.insert((head.tenant_id.clone(), head.run_id), head.run_key);
        self.runs.insert(head.run_key, RunModel::new(head));
        self.read_on(head.run_key);
    }

    /// A batch was written. Answers a line for each event, for the history.
    pub(crate) fn appended(
        &mut self,
        node: NodeIncarnation,
        batch: &[Entry],
        answers: &[Result<Appended, AppendError>],
    ) -> Vec<String> {
        self.tick();
        let boot_ms = self.boot_ms();
        let mut told = Vec::new();
        for (entry, answer) in batch.iter().zip(answers) {
            let Some(run) = self.runs.get_mut(&entry.run_key) else { continue };
            let id = run.run_id;
            let mut said = run.paced(boot_ms, ENTRIES_PER_SECOND_MAX);
            if let Ok(appended) = answer {
                said.extend(run.written_by(node, entry));
                let events = self.read_on(entry.run_key);
                told.extend(events.iter().map(|event| line(id, event)));
                if events.len() != appended.events.len() {
                    said.push(("I9", format!("run {id}: the store kept other events than it answered")));
                }
                if entry.park {
                    told.push(format!("run {id} is parked"));
                }
            } else if let Err(error) = answer {
                told.push(format!("run {id}: refused: {error}"));
            }
            self.violations.extend(said);
        }
        self.meters_agree();
        told
    }

    /// Reads what is new in a run's journal and holds every promise against it.
    fn read_on(&mut self, key: RunKey) -> Vec<StoredEvent> {
        let Some(run) = self.runs.get(&key) else { return Vec::new() };
        let after = run.events.len() as u64;
        let events = at_once(self.store.read(key, after, READ_EVENTS_MAX)).unwrap_or_default();
        let (now, boot_ms) = (self.clock.now_micros(), self.boot_ms());
        for stored in &events {
            let run = self.runs.get_mut(&key).unwrap();
            let id = run.run_id;
            let mut said = run.follows(stored);
            said.extend(tells(&stored.body).then(|| ("I13", "a secret stands in the journal".to_owned())));
            let event = stored.event();
            match &event {
                Some(RunEvent::CallPending(pending)) => {
                    said.extend(run.pending(pending, boot_ms));
                    if let Some(target) = run.target_of(&pending.step_id).filter(|_| !pending.simulated) {
                        said.extend(self.authority.admitted(&target));
                        let run = self.runs.get(&key).unwrap();
                        said.extend(self.authority.granted(run, pending, &target, self.boot_ms()));
                        if self.runs[&key].is_rehearsal() {
                            said.extend(unbooked(pending));
                        } else {
                            said.extend(self.meters.reserved(pending, &target, now));
                        }
                    }
                }
                Some(RunEvent::CallRedispatched { call_id, attempt, .. }) => {
                    said.extend(run.redispatched(*call_id, *attempt, boot_ms));
                    let step = run.calls.get(call_id).map(|call| call.pending.step_id.clone());
                    if let Some(target) = step.and_then(|step| run.target_of(&step)) {
                        said.extend(self.authority.admitted(&target));
                    }
                }
                Some(RunEvent::CallSettled(settled)) => {
                    said.extend(run.settled(settled));
                    if let Some(call) = run.calls.get(&settled.call_id).filter(|_| !run.is_rehearsal()) {
                        said.extend(self.meters.settled(&call.pending, settled, now));
                    }
                }
                Some(other) => {
                    run.other(other);
                    said.extend(crashed(other).filter(|_| !self.answers_get_lost));
                }
                None => said.push(("I9", format!("run {id}: event {} cannot be read", stored.seq))),
            }
            let run = self.runs.get_mut(&key).unwrap();
            said.extend(run.folded(stored));
            if run.events.len() > EVENTS_MAX {
                said.push(("spin", format!("run {id} has more than {EVENTS_MAX} events")));
            }
            let at = format!("run {id}, event {} ({}): ", stored.seq, stored.kind);
            self.violations.extend(said.into_iter().map(|(promise, what)| (promise, format!("{at}{what}"))));
        }
        events
    }

    /// The store's figures are the sums of the journals.
    fn meters_agree(&mut self) {
        let kept = at_once(self.store.budgets()).unwrap_or_default();
        let differ = self.meters.differ(&kept, self.clock.now_micros());
        self.violations.extend(differ);
    }

    pub(crate) fn delivered(&mut self, run: RunKey, command: &InboxCommand) {
        if command.class == CommandClass::Control
            && let Some(run) = self.runs.get_mut(&run)
        {
            run.controls.insert(command.command_id);
        }
    }

    /// Something is kept beside the journal, which holds no secret either (I13).
    pub(crate) fn kept(&mut self, what: &'static str, bytes: &[u8]) {
        if tells(bytes) {
            self.violated("I13", format!("a secret stands in {what}"));
        }
    }

    pub(crate) fn snapshot(&mut self, run: RunKey, seq: u64, bytes: &[u8]) {
        self.kept("a snapshot", bytes);
        let said = self.runs.get(&run).and_then(|run| run.snapshot(seq, bytes));
        self.violations.extend(said);
    }

    pub(crate) fn renewed(&mut self, node: NodeIncarnation) {
        let ends = self.boot_ms() + LEASE_MS;
        self.leases.insert(node, ends);
    }

    pub(crate) fn released(&mut self, node: NodeIncarnation) {
        self.leases.insert(node, 0);
    }

    /// Every node that ever had a lease, without one.
    pub(crate) fn nodes_but(&self, node: NodeIncarnation) -> Vec<NodeIncarnation> {
        self.leases.keys().copied().filter(|other| *other != node).collect()
    }

    pub(crate) fn claimed(&mut self, node: NodeIncarnation, head: &RunHead) {
        let now = self.boot_ms();
        let lives = |node: &NodeIncarnation| self.leases.get(node).is_some_and(|ends| *ends > now);
        let Some(run) = self.runs.get_mut(&head.run_key) else { return };
        if let Some(owner) = run.owner
            && owner != node
            && lives(&owner)
        {
            let what = format!("run {} is claimed although its owner's lease has not run out", run.run_id);
            self.violations.push(("I10", what));
        }
        if run.closed {
            self.violations.push(("I8", format!("run {} is claimed although it is closed", run.run_id)));
        }
        run.owner = Some(node);
        run.writer = Some(node);
    }

    pub(crate) fn changed(&mut self, change: &GovernanceChange) {
        self.authority.changed(change);
        self.tick();
    }

    /// An act was done and recorded.
    pub(crate) fn acted(&mut self, effect: &Effect, done: &Done) {
        let now = self.clock.now_micros();
        match effect {
            Effect::PutBudget(budget) => self.meters.put(budget, now),
            Effect::RetireBudget(budget) => self.meters.retire(budget),
            Effect::Change(_)
            | Effect::SendAgain(..)
            | Effect::PutGoldSetEntry(_)
            | Effect::PutFires(_)
            | Effect::MakeApiKey(_)
            | Effect::RevokeApiKey(..) => {}
        }
        if let Some(change) = &done.change {
            self.changed(&change.change);
        }
    }

    /// A node has answered that the rules are so: then they were, at some moment, by the store.
    pub(crate) fn promised(&mut self, change: &GovernanceChange) {
        let made = at_once(self.store.changes(0)).unwrap_or_default();
        let is_that = |made: &EpochChange| match (&made.change, change) {
            (GovernanceChange::SwitchArmed(made), GovernanceChange::SwitchArmed(wanted)) => {
                made.switch_id == wanted.switch_id && made.scope == wanted.scope && made.target_id == wanted.target_id
            }
            (
                GovernanceChange::SwitchDisarmed { switch_id: made, .. },
                GovernanceChange::SwitchDisarmed { switch_id, .. },
            ) => made == switch_id,
            (GovernanceChange::GrantIssued(made), GovernanceChange::GrantIssued(wanted)) => {
                made.grant_id == wanted.grant_id && made.tool_id == wanted.tool_id
            }
            (
                GovernanceChange::GrantRevoked { grant_id: made, .. },
                GovernanceChange::GrantRevoked { grant_id, .. },
            ) => made == grant_id,
            _ => false,
        };
        if !made.iter().any(is_that) {
            self.violated("act", format!("it was answered that this is done, and it is not: {change:?}"));
        }
    }

    /// An executor is about to begin a call (I1, I2).
    pub(crate) fn begins(&mut self, order: &CallOrder) {
        self.executions += 1;
        let boot_ms = self.boot_ms();
        let key = self.public.get(&(order.tenant_id.clone(), order.run_id)).copied();
        let Some(run) = key.and_then(|key| self.runs.get_mut(&key)) else {
            return self.violated("I1", format!("call {} of no run was executed", order.call_id));
        };
        let said = run.begins(order, boot_ms);
        self.violations.extend(said);
    }

    /// What must hold once nothing is going on any more.
    pub(crate) fn at_rest(&mut self) {
        let mut said: Vec<_> = self.runs.values().flat_map(RunModel::whole).collect();
        said.extend(self.meters.at_rest());
        let acts = at_once(self.store.audit(&AuditFilter { limit: AUDIT_ROWS_MAX, ..AuditFilter::default() }));
        let end = at_once(self.store.audit_head()).ok();
        let report = verify_audit(&acts.unwrap_or_default(), end);
        said.extend((!report.ok).then(|| ("audit", format!("the audit journal: {:?}", report.findings))));
        self.violations.extend(said);
    }
}

/// True if what executors let slip stands there.
fn tells(bytes: &[u8]) -> bool {
    let secret = crate::executors::SECRET.concat();
    bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
}

/// A rehearsal holds nothing on what runs share (I12).
fn unbooked(pending: &CallPending) -> Option<(&'static str, String)> {
    (!pending.meters.is_empty()).then(|| ("I12", "a rehearsal holds something on a shared budget".to_owned()))
}

/// A run that was given up because its actor kept failing. Lost answers do that; nothing else may.
fn crashed(event: &RunEvent) -> Option<(&'static str, String)> {
    let RunEvent::RunFinished(end) = event else { return None };
    let code = end.code.as_deref()?;
    (code == "actor-crash-loop").then(|| ("crash", "its actor kept failing, and no answer was ever lost".to_owned()))
}

fn line(run: RunId, event: &StoredEvent) -> String {
    let body: String = String::from_utf8_lossy(&event.body).chars().take(180).collect();
    format!("run {run} #{} {} {body}", event.seq, event.kind)
}
