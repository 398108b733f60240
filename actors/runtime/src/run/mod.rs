//! One actor per active run: it holds the envelope, asks the gate, appends, and hands admitted calls out.
//!
//! Messages are wake-ups; what is to be done waits in queues, commands first. One pass makes at most one append, and
//! the actor goes through its mailbox between passes, so that a kill never waits behind a flood of results.

mod accepted;
mod asking;
pub(crate) mod handing;
mod rehearsing;
mod settling;
mod thinking;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use signalbox_domain::dashboard::dashboard_words;
use signalbox_domain::governance::budget::MeterReading;
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::ids::{BudgetId, CallId, NodeIncarnation, StepId, ToolId};
use signalbox_domain::run::advance::{advance_to, next_wake, projection, projection_in_words};
use signalbox_domain::run::append::{Ask, CommandAnswer, Entry, EntryRefusal, NewEvent, Release, RunProjection};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::evolve::evolve;
use signalbox_domain::run::recheck::{ended_before_it_began, recheck_queued_run_at_dispatch};
use signalbox_domain::run::settle::Ended;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::sweep;
use signalbox_domain::time::UnixMs;
use signalbox_ports::blobs::Blobs;
use signalbox_ports::clock::{BootInstant, Clock};
use signalbox_ports::inbox::Inbox;
use signalbox_ports::journal::{AppendError, Journal, StoreError};
use signalbox_ports::models::Models;
use signalbox_ports::sealing::Sealing;
use signalbox_ports::secrets::Secrets;
use signalbox_ports::tools::Tools;

use crate::buckets::BucketsHandle;
use crate::commands::decide_all;
use crate::dispatch::Outside;
use crate::elsewhere::Elsewhere;
use crate::flights::{Flight, Flights};
use crate::governance::GovernanceHandle;
use crate::journal::JournalHandle;
use crate::leases::Lease;
use crate::load::keep_snapshot;
use crate::progress::ProgressHub;
use crate::runs;
use crate::tone::ToneHook;
use crate::values::{Outputs, Unsealed};
use asking::Ready;

/// A run with nothing to do for this long is parked: its actor stops, and the journal brings it back.
const PARK_AFTER: Duration = Duration::from_secs(5);
/// First pause before a held call is asked about again; doubles up to [`HOLD_MAX_MS`].
const HOLD_MS: u64 = 100;
/// Pause before parking is tried again when a switch had been armed that this node had not read.
const GOVERNANCE_AGAIN_MS: u64 = 1_000;
/// Longest pause of a held call.
const HOLD_MAX_MS: u64 = 5_000;

/// What every run of a node shares.
pub(crate) struct Shared {
    pub(crate) node: NodeIncarnation,
    pub(crate) store: Arc<dyn Journal>,
    pub(crate) inbox: Arc<dyn Inbox>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) models: Arc<dyn Models>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) sealing: Arc<dyn Sealing>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) journal: JournalHandle,
    pub(crate) governance: GovernanceHandle,
    pub(crate) buckets: BucketsHandle,
    pub(crate) hub: ProgressHub,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) lease: Lease,
    pub(crate) flights: Flights,
    pub(crate) exempt: Vec<HostExemption>,
    pub(crate) tone: ToneHook,
}

pub(crate) enum Msg {
    /// The inbox may hold something.
    Poke,
    /// A call ended: its answer lies among the flights.
    Ended(CallId),
    /// A call that waited at a token bucket may go.
    Turn(CallId),
    /// Switches, grants or limits changed.
    GovernanceMoved,
    /// Whether a switch still has something to end here.
    Reached(Arc<KillSwitch>, RpcReplyPort<Reached>),
    /// Whether the run has not yet followed the rules of an epoch.
    IsBehind(u64, RpcReplyPort<bool>),
    /// The node shuts down: nothing new begins.
    Drain,
    /// A timer, or the rest of the work of the last pass.
    Pass,
}

/// What a switch has left to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Runs it would end.
    pub(crate) left: u64,
    /// Calls that are out of runs it has ended.
    pub(crate) calls_out: u64,
}

pub(crate) struct Run;

/// The run as its journal has it, and under which claim.
pub(crate) struct Args {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: RunEnvelope,
    pub(crate) lease_epoch: u64,
    /// Takes an answer that comes when this actor is gone.
    pub(crate) runs: ActorRef<runs::Msg>,
}

pub(crate) struct State {
    shared: Arc<Shared>,
    runs: ActorRef<runs::Msg>,
    run: Arc<RunEnvelope>,
    /// What the run can be found by, until it ends.
    words: String,
    lease_epoch: u64,
    control_seq: u64,
    inbox_waiting: bool,
    /// The epoch whose switches the run was last held against.
    swept_at: Option<u64>,
    draining: bool,
    pass_scheduled: bool,
    ended: VecDeque<Arc<Ended>>,
    /// Calls a task of this process will report on.
    out: BTreeMap<CallId, ToolId>,
    /// Calls whose executor has been asked how they ended: nobody knows more than it said.
    asked: HashSet<CallId>,
    cancelled: HashSet<CallId>,
    /// Open calls that are not sent again although their tool would allow it: the gate has refused.
    given_up: HashSet<CallId>,
    /// Asks the store refused for money: the next pass records the refusal on the store's own readings.
    exceeded: HashMap<StepId, (BudgetId, Vec<MeterReading>)>,
    held: HashMap<StepId, Held>,
    /// Held steps whose calls wait at a token bucket: they are told when it is their turn.
    lined_up: HashMap<CallId, StepId>,
    store_trouble: u32,
    outputs: Outputs,
    unsealed: Unsealed,
    snapshot_at: u64,
    idle_since: Option<BootInstant>,
    timer: Option<tokio::task::JoinHandle<()>>,
}

/// A step that is not asked about before an instant.
struct Held {
    until: BootInstant,
    times: u32,
}

/// When a pass began, on both clocks.
#[derive(Clone, Copy)]
struct At {
    now: UnixMs,
    boot: BootInstant,
}

/// What a pass left.
enum Pass {
    /// There is more to do at once.
    Again,
    /// Nothing to do until something arrives or this many milliseconds have passed.
    Idle(Option<u64>),
    /// The run is closed or parked, or belongs to another node now.
    Over,
}

/// An ask as far as it matters once it is decided.
struct Asked {
    call_id: CallId,
    step_id: StepId,
}

impl Asked {
    fn of(ask: &Ask) -> Self {
        Self { call_id: ask.call_id, step_id: ask.step_id.clone() }
    }
}

/// What a pass wants to write.
#[derive(Default)]
struct Draft {
    facts: Vec<NewEvent>,
    asks: Vec<Ask>,
    answers: Vec<(signalbox_domain::ids::CommandId, CommandAnswer)>,
    releases: Vec<Release>,
    /// One for each ask that would hand a call out.
    calls: HashMap<CallId, Ready>,
    /// How many finished calls of the queue are settled by the facts.
    settled: usize,
}

impl Actor for Run {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        let mut state = State {
            snapshot_at: args.run.last_seq,
            words: dashboard_words(&args.run),
            shared: args.shared,
            runs: args.runs,
            run: Arc::new(args.run),
            lease_epoch: args.lease_epoch,
            control_seq: 0,
            inbox_waiting: true,
            swept_at: None,
            draining: false,
            pass_scheduled: false,
            ended: VecDeque::new(),
            out: BTreeMap::new(),
            asked: HashSet::new(),
            cancelled: HashSet::new(),
            given_up: HashSet::new(),
            exceeded: HashMap::new(),
            held: HashMap::new(),
            lined_up: HashMap::new(),
            store_trouble: 0,
            outputs: Outputs::default(),
            unsealed: Unsealed::default(),
            idle_since: None,
            timer: None,
        };
        for (call_id, flight) in state.shared.flights.of(state.run.run_key) {
            match flight {
                Flight::Out(tool) => {
                    state.out.insert(call_id, tool);
                }
                Flight::Ended(ended) if state.run.is_answered(call_id) => {
                    // Written, although nobody heard of it.
                    state.shared.flights.landed(state.run.run_key, ended.call_id);
                }
                Flight::Ended(ended) => state.ended.push_back(ended),
            }
        }
        if state.run.end.is_some() {
            state.cancel_calls(&myself);
        }
        state.schedule(&myself);
        Ok(state)
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Poke => state.inbox_waiting = true,
            // The next pass sees it by the epoch.
            Msg::GovernanceMoved => {}
            Msg::Reached(switch, reply) => {
                let _ = reply.send(state.reached(&switch));
                return Ok(());
            }
            Msg::IsBehind(epoch, reply) => {
                let _ = reply.send(state.is_behind(epoch));
                return Ok(());
            }
            Msg::Turn(call_id) => {
                let Some(step) = state.lined_up.remove(&call_id) else { return Ok(()) };
                state.held.remove(&step);
            }
            Msg::Drain => state.draining = true,
            Msg::Ended(call_id) => {
                state.out.remove(&call_id);
                // What was found among the flights when the run was loaded is not taken twice.
                if !state.ended.iter().any(|ended| ended.call_id == call_id) {
                    state.ended.extend(state.shared.flights.answer(state.run.run_key, call_id));
                }
            }
            Msg::Pass => {
                state.pass_scheduled = false;
                return state.go_on(&myself).await;
            }
        }
        state.schedule(&myself);
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Msg>, state: &mut State) -> Result<(), ActorProcessingErr> {
        if let Some(timer) = state.timer.take() {
            timer.abort();
        }
        Ok(())
    }
}

impl State {
    fn reached(&self, switch: &KillSwitch) -> Reached {
        let ended = self.run.end.as_ref().and_then(|end| end.blamed_id.as_deref());
        let calls_out = if ended == Some(switch.switch_id.as_str()) { self.out.len() as u64 } else { 0 };
        let reaches = sweep::swept_by(&self.run, std::slice::from_ref(switch), self.shared.clock.now()).is_some();
        Reached { left: u64::from(reaches), calls_out }
    }

    /// True until the run was held against the rules of this epoch, and the calls of one that was killed are over.
    fn is_behind(&self, epoch: u64) -> bool {
        let killed = self.run.end.is_some() && self.run.status == RunStatus::Killed;
        self.swept_at.is_none_or(|swept| swept < epoch) || (killed && !self.out.is_empty())
    }

    fn schedule(&mut self, myself: &ActorRef<Msg>) {
        if !self.pass_scheduled {
            self.pass_scheduled = myself.cast(Msg::Pass).is_ok();
        }
    }

    async fn go_on(&mut self, myself: &ActorRef<Msg>) -> Result<(), ActorProcessingErr> {
        let pass = match self.pass(myself).await {
            Ok(pass) => pass,
            // An unreachable store is no crash: the state stays, nothing new is dispatched, and the run asks again.
            Err(StoreError::Unavailable(problem)) => {
                self.store_trouble = self.store_trouble.saturating_add(1);
                // What the pass had read was not written: it is read again.
                self.inbox_waiting = true;
                self.swept_at = None;
                tracing::warn!(run = %self.run.run_id, problem, "held: the store is not available");
                Pass::Idle(Some(backoff_ms(self.store_trouble)))
            }
            // What is in memory may not be what is in the journal: the supervisor loads the run again.
            Err(error) => return Err(error.into()),
        };
        match pass {
            Pass::Again => self.schedule(myself),
            Pass::Idle(wake_in) => self.wake_in(myself, wake_in),
            Pass::Over => myself.stop(None),
        }
        Ok(())
    }

    fn wake_in(&mut self, myself: &ActorRef<Msg>, wake_in: Option<u64>) {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
        let Some(ms) = wake_in else { return };
        let actor = myself.clone();
        self.timer = Some(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            let _ = actor.cast(Msg::Pass);
        }));
    }

    fn outside(&self, myself: &ActorRef<Msg>) -> Outside {
        Outside {
            shared: self.shared.clone(),
            tenant: self.run.tenant_id.clone(),
            run: self.run.run_key,
            actor: myself.clone(),
            runs: self.runs.clone(),
            tone: self.shared.tone.of(&self.run),
        }
    }

    /// A task is about to be started that will report on this call.
    fn is_out(&mut self, call_id: CallId, tool: ToolId) {
        self.shared.flights.began(self.run.run_key, call_id, tool.clone());
        self.out.insert(call_id, tool);
    }

    async fn pass(&mut self, myself: &ActorRef<Msg>) -> Result<Pass, StoreError> {
        // One instant for the whole pass: what it passes over because its pause is not over yet is what `rest` waits for.
        let at = At { now: self.shared.clock.now(), boot: self.shared.clock.boot() };
        let now = at.now;
        // Copied when it first differs: a pass that finds nothing to do copies nothing.
        let mut scratch = Arc::clone(&self.run);
        let mut draft = Draft::default();
        if self.inbox_waiting {
            let (commands, control_seq) = self.shared.inbox.pending(self.run.run_key).await?;
            self.control_seq = control_seq;
            self.inbox_waiting = false;
            (draft.facts, draft.answers) = decide_all(Arc::make_mut(&mut scratch), &commands, now);
        }
        self.settle_ended(&mut scratch, &mut draft, at);
        self.sweep(&mut scratch, &mut draft, now);
        self.recheck(&mut scratch, &mut draft, now);
        draft.facts.extend(advance_to(&mut scratch, now));
        let view = self.shared.governance.view();
        if !self.draining {
            self.recover_orphans(myself, &scratch, &mut draft, at).await?;
            self.ask(&mut scratch, &mut draft, at).await?;
            draft.facts.extend(advance_to(&mut scratch, now));
            // Nothing may begin in an append that ends the run, or after a step has failed.
            if scratch.end.is_some() || scratch.is_failing() {
                draft.asks.clear();
                draft.calls.clear();
            }
        }
        if draft.facts.is_empty() && draft.asks.is_empty() && draft.answers.is_empty() {
            return self.rest(at).await;
        }
        self.idle_since = None;
        let asks_anything = !draft.asks.is_empty();
        let standing = self.projection(&scratch);
        // Only facts close a run; what it costs is known by then, its sub-runs included.
        let tells = if scratch.closed { handing::told_above(&scratch)? } else { Vec::new() };
        for new in draft.asks.iter().flat_map(|ask| &ask.events) {
            evolve(Arc::make_mut(&mut scratch), now.micros(), &new.event);
        }
        let entry = Entry {
            run_key: self.run.run_key,
            expected_seq: self.run.last_seq,
            lease_epoch: self.lease_epoch,
            control_seq: self.control_seq,
            governance_epoch: view.state.epoch,
            facts: std::mem::take(&mut draft.facts),
            asks: std::mem::take(&mut draft.asks),
            answers: std::mem::take(&mut draft.answers),
            releases: std::mem::take(&mut draft.releases),
            projection_if_asked: asks_anything.then(|| self.projection(&scratch)),
            projection: Some(standing),
            below: if handing::ends(&self.run, &scratch) { handing::told_below(&scratch)? } else { None },
            tells,
            park: false,
        };
        // What is written is folded into the run itself, which nothing else may share by then.
        drop(scratch);
        let targets: Vec<Asked> = entry.asks.iter().map(Asked::of).collect();
        let answers = !entry.answers.is_empty();
        let mut near: Vec<_> = entry.tells.iter().map(|telling| telling.run_key).collect();
        near.extend(entry.sub_runs().map(|sub_run| sub_run.run_key));
        if entry.below.is_some() {
            near.extend(self.run.live_handoffs().map(|handoff| handoff.child_run_key));
        }
        let written = self.shared.journal.append(entry).await;
        match written {
            Ok(appended) => {
                self.shared.elsewhere.wrote(self.run.run_key, answers);
                // A courtesy: whoever has them finds what they were told within half a second anyway.
                for run in near {
                    let _ = self.runs.cast(runs::Msg::Poke(run));
                    self.shared.elsewhere.commanded(run);
                }
                self.accepted(myself, appended, targets, draft).await
            }
            Err(AppendError::Refused(
                EntryRefusal::Fenced { .. } | EntryRefusal::GivenUp | EntryRefusal::NoSuchRun,
            )) => {
                self.shared.buckets.leave_all(self.run.run_key);
                Ok(Pass::Over)
            }
            Err(AppendError::Refused(refusal)) => Err(self.out_of_step(&refusal)),
            Err(AppendError::Store(error)) => Err(error),
        }
    }

    /// What it means that the journal is not where this run has left it. Somebody else's event is there: the run is loaded
    /// again. An acknowledged one is gone: the run keeps in memory what only it still knows, and nothing is admitted.
    fn out_of_step(&self, refusal: &EntryRefusal) -> StoreError {
        let problem = format!("run {}: {refusal}", self.run.run_id);
        if matches!(refusal, EntryRefusal::Conflict { expected, actual } if actual < expected) {
            self.shared.governance.view().found_rolled_back(&problem);
            return StoreError::Unavailable(problem);
        }
        StoreError::Unknown(problem)
    }

    fn projection(&self, run: &RunEnvelope) -> RunProjection {
        if run.end.is_some() { projection(run) } else { projection_in_words(run, self.words.clone()) }
    }

    /// A run that is about to begin, perhaps long after it was submitted: its grants may be gone (GRA-008).
    fn recheck(&self, scratch: &mut Arc<RunEnvelope>, draft: &mut Draft, now: UnixMs) {
        if scratch.started || scratch.hold.is_some() || scratch.end.is_some() {
            return;
        }
        let view = self.shared.governance.view();
        let semver_of = |tool: &ToolId| self.shared.tools.semver(tool).map(|semver| semver.to_string());
        let handed = Self::handed_grants(scratch, &view.state.grants);
        let shared = handed.as_deref().unwrap_or(&view.state.grants);
        if let Err(gone) = recheck_queued_run_at_dispatch(scratch, shared, semver_of, now) {
            let over = NewEvent::system(ended_before_it_began(scratch, gone));
            add(scratch, &mut draft.facts, vec![over], now);
        }
    }

    fn hold(&mut self, step: &StepId, boot: BootInstant) {
        let held = self.held.entry(step.clone()).or_insert(Held { until: boot, times: 0 });
        held.times = held.times.saturating_add(1);
        held.until = BootInstant(boot.0.saturating_add(backoff_ms(held.times) * 1_000_000));
    }

    /// Nothing to write: how long to wait, or whether the actor can go.
    async fn rest(&mut self, At { now, boot }: At) -> Result<Pass, StoreError> {
        if self.run.closed {
            self.shared.flights.over(self.run.run_key);
            return Ok(Pass::Over);
        }
        if self.draining && self.out.is_empty() {
            return Ok(Pass::Over);
        }
        let holds = self.held.values().filter(|held| held.until > boot).map(|held| held.until.ms_since(boot) + 1);
        let timer = next_wake(&self.run).map(|at| u64::try_from(at.since(now)).unwrap_or(0).max(1));
        let next = holds.chain(timer).min();
        if !self.run.is_waiting(now) || !self.out.is_empty() || self.held.values().any(|held| held.until > boot) {
            self.idle_since = None;
            // Work is left, and nothing would ever wake the run: a fault of ours, which must not cost the run.
            if next.is_none() && self.out.is_empty() {
                tracing::error!(run = %self.run.run_id, "the run waits for nothing and is looked at again");
                return Ok(Pass::Idle(Some(HOLD_MAX_MS)));
            }
            return Ok(Pass::Idle(next));
        }
        let since = *self.idle_since.get_or_insert(boot);
        let idle_ms = boot.ms_since(since);
        let park_ms = u64::try_from(PARK_AFTER.as_millis()).unwrap_or(u64::MAX);
        if idle_ms < park_ms {
            return Ok(Pass::Idle(Some(next.unwrap_or(u64::MAX).min(park_ms - idle_ms))));
        }
        self.park().await
    }

    async fn park(&mut self) -> Result<Pass, StoreError> {
        keep_snapshot(self.shared.store.as_ref(), &self.run).await;
        let entry = Entry {
            run_key: self.run.run_key,
            expected_seq: self.run.last_seq,
            lease_epoch: self.lease_epoch,
            control_seq: self.control_seq,
            governance_epoch: self.swept_at.unwrap_or_default(),
            facts: Vec::new(),
            asks: Vec::new(),
            answers: Vec::new(),
            releases: Vec::new(),
            projection: Some(self.projection(&self.run)),
            projection_if_asked: None,
            tells: Vec::new(),
            below: None,
            park: true,
        };
        match self.shared.journal.append(entry).await {
            Ok(_)
            | Err(AppendError::Refused(
                EntryRefusal::Fenced { .. } | EntryRefusal::GivenUp | EntryRefusal::NoSuchRun,
            )) => Ok(Pass::Over),
            Err(AppendError::Refused(EntryRefusal::InboxNotEmpty)) => {
                self.inbox_waiting = true;
                self.idle_since = None;
                Ok(Pass::Again)
            }
            Err(AppendError::Refused(EntryRefusal::GovernanceStale)) => {
                self.shared.governance.refresh().await;
                Ok(Pass::Idle(Some(GOVERNANCE_AGAIN_MS)))
            }
            Err(AppendError::Refused(refusal)) => Err(self.out_of_step(&refusal)),
            Err(AppendError::Store(error)) => Err(error),
        }
    }
}

fn add(scratch: &mut Arc<RunEnvelope>, facts: &mut Vec<NewEvent>, events: Vec<NewEvent>, now: UnixMs) {
    for new in &events {
        evolve(Arc::make_mut(scratch), now.micros(), &new.event);
    }
    facts.extend(events);
}

fn backoff_ms(times: u32) -> u64 {
    let doubled = HOLD_MS.saturating_mul(1 << times.saturating_sub(1).min(10));
    // Spread by an eighth so that many runs held by one cause do not all come back at once.
    let spread = u64::from(times.wrapping_mul(2_654_435_761) % 8);
    (doubled.min(HOLD_MAX_MS)) * (8 + spread) / 8
}
