//! One actor per active run: it holds the envelope, asks the gate, appends, and hands admitted calls out.
//!
//! Messages are wake-ups; what is to be done waits in queues, commands first. One pass makes at most one append, and
//! the actor goes through its mailbox between passes, so that a kill never waits behind a flood of results.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::Value;
use signalbox_domain::canonical;
use signalbox_domain::governance::budget::{MeterReading, OnExceeded};
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::governance::gate::{self, Attempt, ControlState, Snapshot, Verdict};
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::governance::kill_switch;
use signalbox_domain::ids::{BudgetId, CallId, NodeIncarnation, RunKey, StepId, ToolId};
use signalbox_domain::run::advance::{advance, next_wake, projection};
use signalbox_domain::run::append::{Ask, AskRefusal, CommandAnswer, Entry, EntryRefusal, NewEvent, Release};
use signalbox_domain::run::binding::{self, BindingError};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::evolve::{evolve, fold_one};
use signalbox_domain::run::plan::{Step, StepKind};
use signalbox_domain::run::settle::{Ended, Recover, recover, settle, unknown_result};
use signalbox_domain::run::step::CallEnding;
use signalbox_domain::run::{approval, call};
use signalbox_domain::time::UnixMs;
use signalbox_ports::blobs::Blobs;
use signalbox_ports::clock::{BootInstant, Clock};
use signalbox_ports::inbox::Inbox;
use signalbox_ports::journal::{Admitted, AppendError, Appended, AskOutcome, Journal, StoreError};
use signalbox_ports::tools::{CallOrder, Permit, Tools};

use crate::buckets::BucketsHandle;
use crate::commands::decide_all;
use crate::dispatch::{self, Outside};
use crate::governance::GovernanceHandle;
use crate::journal::JournalHandle;
use crate::load::{SNAPSHOT_EVERY, keep_snapshot, load};
use crate::progress::{Item, ProgressHub};
use crate::values::{self, Outputs};

/// A wait at a bucket shorter than this is not journalled (ADM-018).
const THROTTLE_JOURNALLED_FROM_SECONDS: u64 = 5;
/// A run with nothing to do for this long is parked: its actor stops, and the journal brings it back.
const PARK_AFTER: Duration = Duration::from_secs(5);
/// First pause before a held call is asked about again; doubles up to [`HOLD_MAX_MS`].
const HOLD_MS: u64 = 100;
/// Longest pause of a held call.
const HOLD_MAX_MS: u64 = 5_000;

/// What every run of a node shares.
pub(crate) struct Shared {
    pub(crate) node: NodeIncarnation,
    pub(crate) store: Arc<dyn Journal>,
    pub(crate) inbox: Arc<dyn Inbox>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) journal: JournalHandle,
    pub(crate) governance: GovernanceHandle,
    pub(crate) buckets: BucketsHandle,
    pub(crate) hub: ProgressHub,
    pub(crate) exempt: Vec<HostExemption>,
}

pub(crate) enum Msg {
    /// The inbox may hold something.
    Poke,
    /// A call ended.
    Ended(Box<Ended>),
    /// Switches, grants or limits changed.
    GovernanceMoved,
    /// The node shuts down: nothing new begins.
    Drain,
    /// A timer, or the rest of the work of the last pass.
    Pass,
}

pub(crate) struct Run;

/// Which run, under which claim.
pub(crate) struct Args {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run_key: RunKey,
    pub(crate) lease_epoch: u64,
}

pub(crate) struct State {
    shared: Arc<Shared>,
    run: RunEnvelope,
    lease_epoch: u64,
    control_seq: u64,
    inbox_waiting: bool,
    governance_moved: bool,
    draining: bool,
    pass_scheduled: bool,
    ended: VecDeque<Ended>,
    /// Calls a task of this process will report on.
    out: HashMap<CallId, ToolId>,
    cancelled: HashSet<CallId>,
    /// Asks the store refused for money: the next pass records the refusal on the store's own readings.
    exceeded: HashMap<StepId, (BudgetId, Vec<MeterReading>)>,
    held: HashMap<StepId, Held>,
    store_trouble: u32,
    outputs: Outputs,
    snapshot_at: u64,
    idle_since: Option<BootInstant>,
    timer: Option<tokio::task::JoinHandle<()>>,
}

/// A step that is not asked about before an instant.
struct Held {
    until: BootInstant,
    times: u32,
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

/// A call ready to go once it is admitted.
struct Ready {
    args: Value,
    constraints: Constraints,
    permit: Permit,
    target: signalbox_domain::governance::target::Target,
}

impl Actor for Run {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        let run = load(args.shared.store.as_ref(), args.run_key)
            .await?
            .ok_or_else(|| ActorProcessingErr::from("the run is not in the journal"))?;
        let mut state = State {
            snapshot_at: run.last_seq,
            shared: args.shared,
            run,
            lease_epoch: args.lease_epoch,
            control_seq: 0,
            inbox_waiting: true,
            governance_moved: true,
            draining: false,
            pass_scheduled: false,
            ended: VecDeque::new(),
            out: HashMap::new(),
            cancelled: HashSet::new(),
            exceeded: HashMap::new(),
            held: HashMap::new(),
            store_trouble: 0,
            outputs: Outputs::default(),
            idle_since: None,
            timer: None,
        };
        state.schedule(&myself);
        Ok(state)
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Poke => state.inbox_waiting = true,
            Msg::GovernanceMoved => state.governance_moved = true,
            Msg::Drain => state.draining = true,
            Msg::Ended(ended) => {
                state.out.remove(&ended.call_id);
                state.ended.push_back(*ended);
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
                self.governance_moved = true;
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
            tools: self.shared.tools.clone(),
            blobs: self.shared.blobs.clone(),
            hub: self.shared.hub.clone(),
            tenant: self.run.tenant_id.clone(),
            run: self.run.run_key,
            actor: myself.clone(),
        }
    }

    async fn pass(&mut self, myself: &ActorRef<Msg>) -> Result<Pass, StoreError> {
        let now = self.shared.clock.now();
        let mut scratch = self.run.clone();
        let mut draft = Draft::default();
        if self.inbox_waiting {
            let (commands, control_seq) = self.shared.inbox.pending(self.run.run_key).await?;
            self.control_seq = control_seq;
            self.inbox_waiting = false;
            (draft.facts, draft.answers) = decide_all(&mut scratch, &commands, now);
        }
        self.settle_ended(&mut scratch, &mut draft, now);
        self.sweep(&mut scratch, &mut draft, now);
        let due = advance(&scratch, now);
        add(&mut scratch, &mut draft.facts, due, now);
        let view = self.shared.governance.view();
        if !self.draining {
            self.recover_orphans(myself, &scratch, &mut draft, now).await?;
            self.ask(&mut scratch, &mut draft, now).await?;
            let due = advance(&scratch, now);
            add(&mut scratch, &mut draft.facts, due, now);
            // Nothing may begin in an append that ends the run, or after a step has failed.
            if scratch.end.is_some() || scratch.is_failing() {
                draft.asks.clear();
                draft.calls.clear();
            }
        }
        if draft.facts.is_empty() && draft.asks.is_empty() && draft.answers.is_empty() {
            return self.rest(now).await;
        }
        self.idle_since = None;
        let mut if_asked = scratch.clone();
        for new in draft.asks.iter().flat_map(|ask| &ask.events) {
            evolve(&mut if_asked, now.micros(), &new.event);
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
            projection: Some(projection(&scratch)),
            projection_if_asked: Some(projection(&if_asked)),
            park: false,
        };
        let targets: Vec<Ask> = entry.asks.clone();
        match self.shared.journal.append(entry).await {
            Ok(appended) => self.accepted(myself, appended, targets, draft).await,
            Err(AppendError::Refused(EntryRefusal::Fenced { .. } | EntryRefusal::NoSuchRun)) => Ok(Pass::Over),
            Err(AppendError::Refused(refusal)) => Err(StoreError::Unknown(refusal.to_string())),
            Err(AppendError::Store(error)) => Err(error),
        }
    }

    /// Facts from finished calls. A call that can be recovered is not settled; it is taken up by `recover_orphans`.
    fn settle_ended(&mut self, scratch: &mut RunEnvelope, draft: &mut Draft, now: UnixMs) {
        let boot = self.shared.clock.boot();
        let mut kept = VecDeque::with_capacity(self.ended.len());
        for ended in std::mem::take(&mut self.ended) {
            let recoverable = scratch.call(ended.call_id).filter(|call| call.open).is_some_and(|call| {
                let lost = match &ended.result.ending {
                    CallEnding::Unknown { .. } => true,
                    // An earlier attempt under this id may have gone through.
                    CallEnding::NotStarted { .. } => call.attempt > 1,
                    CallEnding::Answered { .. } | CallEnding::Failed { .. } | CallEnding::Cancelled => false,
                };
                let again = matches!(recover(scratch, call), Recover::Redispatch { .. });
                lost && again && scratch.end.is_none()
            });
            if recoverable {
                if let Some(step) = scratch.call(ended.call_id).map(|call| call.step_id.clone()) {
                    self.hold(&step, boot);
                }
                continue;
            }
            let (events, release) = settle(scratch, &ended, now);
            if let (CallEnding::NotStarted { .. }, Some(call)) = (&ended.result.ending, scratch.call(ended.call_id)) {
                let step = call.step_id.clone();
                self.hold(&step, boot);
            }
            add(scratch, &mut draft.facts, events, now);
            draft.releases.extend(release);
            kept.push_back(ended);
        }
        draft.settled = kept.len();
        // Until the append is accepted they are only spoken for.
        self.ended = kept;
    }

    /// An armed switch ends a matching run at once, also one that asks for nothing (KIL-010).
    fn sweep(&mut self, scratch: &mut RunEnvelope, draft: &mut Draft, now: UnixMs) {
        if !std::mem::take(&mut self.governance_moved) || scratch.end.is_some() {
            return;
        }
        let view = self.shared.governance.view();
        let open: Vec<StepId> = scratch.open_calls().map(|call| call.step_id.clone()).collect();
        let switch = scratch.plan.steps.iter().find_map(|step| {
            let target = scratch.target_of(step)?;
            let blamed = kill_switch::decide_execution(&view.state.switches, &target, now)?;
            // Agent and family match by the lead agent; tool, provider and region by a call that is out.
            let own = call::matches_run(blamed, scratch) || open.contains(&step.step_id);
            own.then(|| blamed.clone())
        });
        if let Some(switch) = switch {
            let events = call::sweep(scratch, &switch);
            add(scratch, &mut draft.facts, events, now);
        }
    }

    /// Calls that are open and that no task of this process will report on (RUN-026).
    async fn recover_orphans(
        &mut self,
        myself: &ActorRef<Msg>,
        scratch: &RunEnvelope,
        draft: &mut Draft,
        now: UnixMs,
    ) -> Result<(), StoreError> {
        let boot = self.shared.clock.boot();
        let orphans: Vec<_> = scratch
            .open_calls()
            .filter(|call| !self.out.contains_key(&call.call_id))
            .filter(|call| !self.ended.iter().any(|ended| ended.call_id == call.call_id))
            .filter(|call| self.held.get(&call.step_id).is_none_or(|held| held.until <= boot))
            .cloned()
            .collect();
        for orphan in orphans {
            match recover(scratch, &orphan) {
                Recover::Redispatch { attempt } => {
                    let Some(step) = scratch.plan.step(&orphan.step_id).cloned() else { continue };
                    let again = match self.prepare(scratch, &step).await? {
                        Ok(prepared) if prepared.args_hash == orphan.args_hash => {
                            self.admission(scratch, &prepared, now).await
                        }
                        Ok(_) | Err(_) => Admission::Refused,
                    };
                    match again {
                        Admission::Ready(ready) => {
                            draft.asks.push(call::redispatch(&orphan, ready.target.clone(), attempt, now));
                            draft.calls.insert(orphan.call_id, *ready);
                        }
                        Admission::Later => self.hold(&orphan.step_id, boot),
                        Admission::Refused => self.give_up(&orphan.call_id),
                    }
                }
                Recover::AskOutcome => {
                    self.out.insert(orphan.call_id, orphan.tool_id.clone());
                    dispatch::ask_outcome(self.outside(myself), orphan.tool_id, orphan.call_id);
                }
                Recover::Unknown => self.give_up(&orphan.call_id),
                Recover::Cancel => {
                    self.out.insert(orphan.call_id, orphan.tool_id.clone());
                    dispatch::cancel_orphan(self.outside(myself), orphan.tool_id, orphan.call_id);
                }
            }
        }
        if self.ended.len() > draft.settled {
            self.schedule(myself);
        }
        Ok(())
    }

    fn give_up(&mut self, call_id: &CallId) {
        let result = unknown_result("the node that made the call went away before its answer was kept");
        self.ended.push_back(Ended { call_id: *call_id, result, stored_output: None });
    }

    fn hold(&mut self, step: &StepId, boot: BootInstant) {
        let held = self.held.entry(step.clone()).or_insert(Held { until: boot, times: 0 });
        held.times = held.times.saturating_add(1);
        held.until = BootInstant(boot.0.saturating_add(backoff_ms(held.times) * 1_000_000));
    }

    /// Steps that are ready: their arguments are bound, the gate is asked, and what it says becomes asks and facts.
    async fn ask(&mut self, scratch: &mut RunEnvelope, draft: &mut Draft, now: UnixMs) -> Result<(), StoreError> {
        let boot = self.shared.clock.boot();
        for index in scratch.ready_to_bind(now) {
            let step = scratch.plan.steps[index].clone();
            if self.held.get(&step.step_id).is_some_and(|held| held.until > boot) {
                continue;
            }
            if let StepKind::Approval { subject, .. } = &step.kind {
                let events = self.question(scratch, &step, subject, now).await?;
                add(scratch, &mut draft.facts, events, now);
                continue;
            }
            let prepared = match self.prepare(scratch, &step).await? {
                Ok(prepared) => prepared,
                Err(problem) => {
                    add(scratch, &mut draft.facts, vec![problem], now);
                    continue;
                }
            };
            if self.gate(scratch, &prepared, draft, now).await {
                break;
            }
        }
        Ok(())
    }

    async fn question(
        &mut self,
        scratch: &RunEnvelope,
        step: &Step,
        subject: &Value,
        now: UnixMs,
    ) -> Result<Vec<NewEvent>, StoreError> {
        Ok(match self.bind(scratch, subject).await? {
            Err(error) => vec![call::fail_step(step, error.code(), &error.to_string())],
            Ok(bound) => {
                let looked = values::look(bound).await?;
                let stored = looked.keep(self.shared.blobs.as_ref(), &self.run.tenant_id).await?;
                approval::request(scratch, step, &looked.value, stored, now).into_iter().collect()
            }
        })
    }

    async fn bind(&mut self, scratch: &RunEnvelope, args: &Value) -> Result<Result<Value, BindingError>, StoreError> {
        self.outputs.load(self.shared.blobs.as_ref(), scratch, binding::steps_bound(args)).await?;
        Ok(binding::bind(args, scratch, &|step| self.outputs.get(step)))
    }

    /// The step's call with its arguments bound; or the event that fails the step.
    async fn prepare(
        &mut self,
        scratch: &RunEnvelope,
        step: &Step,
    ) -> Result<Result<call::Prepared, NewEvent>, StoreError> {
        let (StepKind::Tool { args, .. }, Some(target)) = (&step.kind, scratch.target_of(step)) else {
            return Ok(Err(call::fail_step(step, "internal", "the step makes no call")));
        };
        let args = match self.bind(scratch, args).await? {
            Ok(args) => args,
            Err(error) => return Ok(Err(call::fail_step(step, error.code(), &error.to_string()))),
        };
        let looked = values::look(args).await?;
        let args_hash = match &looked.digest {
            Ok(hash) => hash.clone(),
            Err(error) => {
                return Ok(Err(call::fail_step(step, canonical::NumberNotExact::CODE, &error.to_string())));
            }
        };
        let redacted_args = looked.keep(self.shared.blobs.as_ref(), &self.run.tenant_id).await?;
        let args = looked.value;
        let call_id = scratch.next_call_id(step);
        Ok(Ok(call::Prepared { call_id, step: step.clone(), target, args, args_hash, redacted_args }))
    }

    /// Asks the gate about one call; `true` if the run ends or pauses over it and no other may be asked about.
    async fn gate(
        &mut self,
        scratch: &mut RunEnvelope,
        prepared: &call::Prepared,
        draft: &mut Draft,
        now: UnixMs,
    ) -> bool {
        let boot = self.shared.clock.boot();
        let view = self.shared.governance.view();
        let step = prepared.step.step_id.clone();
        let mut decision = self.decision(scratch, prepared, now, false).await;
        if let Some((budget_id, readings)) = self.exceeded.remove(&step) {
            // The store's own figures said no: these, and no forecast, may end or pause a run.
            let known = view.budgets.iter().find(|shared| shared.budget.budget_id == budget_id);
            let on_exceeded = known.map_or_else(OnExceeded::default, |shared| shared.budget.on_exceeded);
            decision.verdict = gate::exceeded_by_store(on_exceeded, budget_id, readings);
        }
        if !matches!(decision.verdict, Verdict::Admit(_) | Verdict::Throttle(_)) {
            self.shared.buckets.give_back(&view.state, &prepared.target);
        }
        match decision.verdict {
            Verdict::Admit(admissible) => match self.shared.tools.permit(&prepared.target.tool_id) {
                Some(permit) => {
                    let ready = Ready {
                        args: prepared.args.clone(),
                        constraints: admissible.grant.constraints.clone(),
                        permit,
                        target: prepared.target.clone(),
                    };
                    draft.asks.push(call::admit(prepared, &admissible, now));
                    draft.calls.insert(prepared.call_id, ready);
                }
                // hold(executor-busy) is not journalled.
                None => {
                    self.shared.buckets.give_back(&view.state, &prepared.target);
                    self.hold(&step, boot);
                }
            },
            Verdict::Deny { code, message } => {
                draft.asks.push(call::deny(prepared, code, &message, decision.answers, now));
            }
            Verdict::Kill(blame) => {
                draft.asks = vec![call::kill(scratch, prepared, &blame, decision.answers, now)];
                draft.calls.clear();
                return true;
            }
            Verdict::Pause { budget_id, readings } => {
                draft.asks = vec![call::pause_for_quota(scratch, prepared, &budget_id, &readings, now)];
                draft.calls.clear();
                return true;
            }
            Verdict::Throttle(throttled) if throttled.retry_after_seconds < THROTTLE_JOURNALLED_FROM_SECONDS => {
                let until = BootInstant(boot.0.saturating_add(throttled.retry_after_seconds * 1_000_000_000));
                self.held.insert(step, Held { until, times: 0 });
            }
            Verdict::Throttle(throttled) => {
                let waits = call::throttle(prepared, &throttled, now);
                add(scratch, &mut draft.facts, vec![waits], now);
            }
            Verdict::Hold { reason } => {
                tracing::debug!(run = %self.run.run_id, %step, reason = reason.code(), "held");
                self.hold(&step, boot);
            }
        }
        false
    }

    async fn decision(
        &self,
        scratch: &RunEnvelope,
        prepared: &call::Prepared,
        now: UnixMs,
        redispatch: bool,
    ) -> gate::Decision {
        let view = self.shared.governance.view();
        let throttled = self.shared.buckets.take(&view.state, &prepared.target).await.err();
        let configured = self.shared.tools.configured();
        let semver = configured.iter().find(|(tool, _)| *tool == prepared.target.tool_id).map(|(_, v)| v.as_str());
        let attempt = Attempt {
            target: &prepared.target,
            tool: signalbox_domain::catalog::entry(&prepared.target.tool_id),
            configured_semver: semver,
            scopes: &scratch.scopes,
            args: &prepared.args,
            control: ControlState::None,
            redispatch,
            now,
        };
        let snapshot = Snapshot {
            governance_current: view.is_current(self.shared.clock.boot()),
            state: &view.state,
            shared_budgets: &view.budgets,
            run_budgets: &scratch.run_budgets,
            run_grants: &scratch.grants,
            grant_uses: &scratch.grant_uses,
            throttled,
            exempt: &self.shared.exempt,
        };
        gate::gate(&attempt, &snapshot)
    }

    /// The gate's answer for a call that is to be sent again under a reservation that is still held.
    async fn admission(&mut self, scratch: &RunEnvelope, prepared: &call::Prepared, now: UnixMs) -> Admission {
        let view = self.shared.governance.view();
        match self.decision(scratch, prepared, now, true).await.verdict {
            Verdict::Admit(admissible) => match self.shared.tools.permit(&prepared.target.tool_id) {
                Some(permit) => Admission::Ready(Box::new(Ready {
                    args: prepared.args.clone(),
                    constraints: admissible.grant.constraints,
                    permit,
                    target: prepared.target.clone(),
                })),
                None => {
                    self.shared.buckets.give_back(&view.state, &prepared.target);
                    Admission::Later
                }
            },
            Verdict::Throttle(_) | Verdict::Hold { .. } => Admission::Later,
            Verdict::Deny { .. } | Verdict::Kill(_) | Verdict::Pause { .. } => {
                self.shared.buckets.give_back(&view.state, &prepared.target);
                Admission::Refused
            }
        }
    }

    /// The journal has accepted: only now the memory changes and calls go out.
    async fn accepted(
        &mut self,
        myself: &ActorRef<Msg>,
        appended: Appended,
        asks: Vec<Ask>,
        mut draft: Draft,
    ) -> Result<Pass, StoreError> {
        self.store_trouble = 0;
        for event in appended.events {
            fold_one(&mut self.run, &event).map_err(|error| StoreError::Corrupt {
                run: self.run.run_key,
                seq: error.seq,
                problem: error.problem.to_owned(),
            })?;
            self.shared.hub.publish(self.run.run_key, Item::Event(Arc::new(event)));
        }
        self.shared.hub.publish(self.run.run_key, Item::Answered);
        self.ended.drain(..draft.settled.min(self.ended.len()));
        let view = self.shared.governance.view();
        let mut stale = false;
        for (outcome, ask) in appended.asks.into_iter().zip(asks) {
            let ready = draft.calls.remove(&ask.call_id);
            match (outcome, ready) {
                (AskOutcome::Admitted(admitted), Some(ready)) => {
                    self.held.remove(&ask.step_id);
                    self.send(myself, admitted, &ask, ready);
                }
                (AskOutcome::Admitted(_) | AskOutcome::Recorded, _) => {}
                (AskOutcome::Refused(refusal), _) => {
                    self.shared.buckets.give_back(&view.state, &ask.target);
                    stale |= self.refused(&ask, refusal);
                }
            }
        }
        if stale {
            self.shared.governance.refresh().await;
        }
        if self.run.end.is_some() {
            self.cancel_calls(myself);
        }
        if self.run.last_seq >= self.snapshot_at + SNAPSHOT_EVERY {
            self.snapshot_at = self.run.last_seq;
            keep_snapshot(self.shared.store.as_ref(), &self.run).await;
        }
        Ok(Pass::Again)
    }

    fn refused(&mut self, ask: &Ask, refusal: AskRefusal) -> bool {
        match refusal {
            AskRefusal::Commanded => {
                self.inbox_waiting = true;
                false
            }
            AskRefusal::Exceeded { budget_id, readings } => {
                self.exceeded.insert(ask.step_id.clone(), (budget_id, readings));
                false
            }
            AskRefusal::Stale { .. } => {
                // The first times at once; a step that keeps finding the epoch moved backs off.
                let boot = self.shared.clock.boot();
                let held = self.held.entry(ask.step_id.clone()).or_insert(Held { until: boot, times: 0 });
                held.times = held.times.saturating_add(1);
                if held.times > 3 {
                    held.until = BootInstant(boot.0.saturating_add(backoff_ms(held.times) * 1_000_000));
                }
                true
            }
        }
    }

    fn send(&mut self, myself: &ActorRef<Msg>, admitted: Admitted, ask: &Ask, ready: Ready) {
        let Some(record) = self.run.call(ask.call_id) else { return };
        let order = CallOrder {
            call_id: record.call_id,
            attempt: record.attempt,
            tenant_id: self.run.tenant_id.clone(),
            run_id: self.run.run_id,
            step_id: record.step_id.clone(),
            tool_id: record.tool_id.clone(),
            tool_semver: record.tool_semver.clone(),
            args: ready.args,
            ceiling: record.estimated_usage.clone(),
            timeout_ms: record.timeout_ms,
            constraints: ready.constraints,
        };
        self.out.insert(record.call_id, record.tool_id.clone());
        dispatch::send(self.outside(myself), admitted, order, ready.permit);
    }

    fn cancel_calls(&mut self, myself: &ActorRef<Msg>) {
        let outside = self.outside(myself);
        for (call_id, tool) in &self.out {
            if self.cancelled.insert(*call_id) {
                dispatch::cancel(&outside, tool.clone(), *call_id);
            }
        }
    }

    /// Nothing to write: how long to wait, or whether the actor can go.
    async fn rest(&mut self, now: UnixMs) -> Result<Pass, StoreError> {
        if self.run.closed || (self.draining && self.out.is_empty()) {
            return Ok(Pass::Over);
        }
        let boot = self.shared.clock.boot();
        let holds = self.held.values().filter(|held| held.until > boot).map(|held| held.until.ms_since(boot) + 1);
        let timer = next_wake(&self.run).map(|at| u64::try_from(at.since(now)).unwrap_or(0).max(1));
        let next = holds.chain(timer).min();
        if !self.run.is_waiting(now) || !self.out.is_empty() || self.held.values().any(|held| held.until > boot) {
            self.idle_since = None;
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
            governance_epoch: self.shared.governance.view().state.epoch,
            facts: Vec::new(),
            asks: Vec::new(),
            answers: Vec::new(),
            releases: Vec::new(),
            projection: Some(projection(&self.run)),
            projection_if_asked: None,
            park: true,
        };
        match self.shared.journal.append(entry).await {
            Ok(_) | Err(AppendError::Refused(EntryRefusal::Fenced { .. } | EntryRefusal::NoSuchRun)) => Ok(Pass::Over),
            Err(AppendError::Refused(EntryRefusal::InboxNotEmpty)) => {
                self.inbox_waiting = true;
                self.idle_since = None;
                Ok(Pass::Again)
            }
            Err(AppendError::Refused(refusal)) => Err(StoreError::Unknown(refusal.to_string())),
            Err(AppendError::Store(error)) => Err(error),
        }
    }
}

/// Whether a call may be sent again.
enum Admission {
    Ready(Box<Ready>),
    Later,
    Refused,
}

fn add(scratch: &mut RunEnvelope, facts: &mut Vec<NewEvent>, events: Vec<NewEvent>, now: UnixMs) {
    for new in &events {
        evolve(scratch, now.micros(), &new.event);
    }
    facts.extend(events);
}

fn backoff_ms(times: u32) -> u64 {
    let doubled = HOLD_MS.saturating_mul(1 << times.saturating_sub(1).min(10));
    // Spread by an eighth so that many runs held by one cause do not all come back at once.
    let spread = u64::from(times.wrapping_mul(2_654_435_761) % 8);
    (doubled.min(HOLD_MAX_MS)) * (8 + spread) / 8
}

/// The last event a run must not be left without when its actor keeps failing (RUN-029).
pub(crate) fn crash_loop_event(run: &RunEnvelope) -> RunEvent {
    use signalbox_domain::run::event::{OutputKind, RunFinished};
    use signalbox_domain::run::status::RunStatus;
    RunEvent::RunFinished(Box::new(RunFinished {
        status: RunStatus::Failed,
        code: Some("actor-crash-loop".to_owned()),
        message: Some("the run's actor failed three times within a minute".to_owned()),
        user_visible_status_copy: None,
        safe_degradation_mode_id: None,
        blamed_id: None,
        step_id: None,
        outputs: run.bundle(OutputKind::PartialOnFailure),
    }))
}
