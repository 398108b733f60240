//! The supervisor of all active runs of this node: it starts them, loads them again when they fail, and gives up on
//! one that keeps failing. One run's failure never touches another.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use signalbox_domain::ids::RunKey;
use signalbox_domain::run::advance::{advance, projection};
use signalbox_domain::run::append::{Entry, EntryRefusal, NewEvent, RunHead};
use signalbox_domain::run::evolve::evolve;
use signalbox_domain::run::settle::{Ended, settle, unknown_result};
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::{AppendError, StoreError};
use signalbox_ports::leases::Leases;

use crate::load::load;
use crate::run::{self, Run, Shared, crash_loop_event};

/// A run may fail this often within [`CRASH_WINDOW_MS`] (RUN-029).
const CRASHES_MAX: usize = 3;
const CRASH_WINDOW_MS: u64 = 60_000;
/// Pause before a run whose loading failed for want of the store is tried again.
const LOAD_AGAIN: Duration = Duration::from_secs(1);
/// How long calls in flight get when the node shuts down (RUN-030).
const DRAIN_FOR: Duration = Duration::from_secs(20);

pub(crate) enum Msg {
    /// This node has claimed the run.
    Own(Box<RunHead>),
    /// A run that could not be loaded for want of the store, under its claim.
    Again(RunKey, u64),
    /// A run that could not be ended for want of the store, under its claim.
    GiveUp(RunKey, u64),
    /// Something lies in the run's inbox.
    Poke(RunKey),
    GovernanceMoved,
    /// Nothing new begins; answered when no run is active any more, or the time is over.
    Drain(RpcReplyPort<()>),
    DrainOver,
    /// The node's lease is gone: every run stops at once, wherever it is.
    Fenced,
}

pub(crate) struct Runs;

pub(crate) struct Args {
    pub(crate) shared: Arc<Shared>,
    pub(crate) leases: Arc<dyn Leases>,
    /// How many runs are active; read at the door.
    pub(crate) active: Arc<AtomicUsize>,
}

pub(crate) struct State {
    args: Args,
    live: BTreeMap<RunKey, Live>,
    keys: HashMap<ActorId, RunKey>,
    /// Poked while active: looked at once more when the actor is gone.
    poked: HashSet<RunKey>,
    crashes: HashMap<RunKey, Vec<BootInstant>>,
    /// Runs whose journal cannot be read, named in the log once.
    left_alone: HashSet<RunKey>,
    drained: Vec<RpcReplyPort<()>>,
    draining: bool,
}

struct Live {
    actor: ActorRef<run::Msg>,
    lease_epoch: u64,
}

impl Actor for Runs {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, _: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        Ok(State {
            args,
            live: BTreeMap::new(),
            keys: HashMap::new(),
            poked: HashSet::new(),
            crashes: HashMap::new(),
            left_alone: HashSet::new(),
            drained: Vec::new(),
            draining: false,
        })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Own(head) => state.start(&myself, head.run_key, head.lease_epoch).await,
            Msg::Again(run, lease_epoch) => state.start(&myself, run, lease_epoch).await,
            Msg::GiveUp(run, lease_epoch) => state.give_up(&myself, run, lease_epoch).await,
            Msg::Poke(run) => state.poke(&myself, run).await,
            Msg::GovernanceMoved => state.tell_all(|| run::Msg::GovernanceMoved),
            Msg::Drain(reply) => {
                state.draining = true;
                state.drained.push(reply);
                state.tell_all(|| run::Msg::Drain);
                myself.send_after(DRAIN_FOR, || Msg::DrainOver);
                state.answer_if_drained();
            }
            Msg::DrainOver | Msg::Fenced => {
                for live in state.live.values() {
                    live.actor.stop(None);
                }
                for reply in state.drained.drain(..) {
                    let _ = reply.send(());
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, _, _) => {
                if let Some((run, _)) = state.forget(&cell)
                    && state.poked.remove(&run)
                    && !state.draining
                {
                    state.poke(&myself, run).await;
                }
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                if let Some((run, lease_epoch)) = state.forget(&cell) {
                    state.failed(&myself, run, lease_epoch, &*error).await;
                }
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        state.answer_if_drained();
        Ok(())
    }
}

impl State {
    async fn start(&mut self, myself: &ActorRef<Msg>, run: RunKey, lease_epoch: u64) {
        if self.draining || self.live.contains_key(&run) || self.left_alone.contains(&run) {
            return;
        }
        let args = run::Args { shared: self.args.shared.clone(), run_key: run, lease_epoch };
        match Actor::spawn_linked(None, Run, args, myself.get_cell()).await {
            Ok((actor, _)) => {
                self.keys.insert(actor.get_id(), run);
                self.live.insert(run, Live { actor, lease_epoch });
                self.args.active.store(self.live.len(), Ordering::Relaxed);
            }
            Err(ractor::SpawnErr::StartupFailed(error)) => match error.downcast_ref::<StoreError>() {
                Some(StoreError::Unavailable(problem)) => {
                    tracing::warn!(%run, problem, "the run cannot be loaded yet");
                    myself.send_after(LOAD_AGAIN, move || Msg::Again(run, lease_epoch));
                }
                // Left as it is: other runs go on, and an operator finds it by the name it is known by.
                Some(StoreError::Corrupt { seq, problem, .. }) => {
                    self.leave_alone(run, &format!("its journal is corrupt at event {seq}: {problem}")).await;
                }
                _ => self.leave_alone(run, &error.to_string()).await,
            },
            Err(error) => tracing::error!(%run, %error, "the run's actor cannot be started"),
        }
    }

    async fn leave_alone(&mut self, run: RunKey, problem: &str) {
        if self.left_alone.insert(run) {
            let head = self.args.shared.store.head(run).await.ok().flatten();
            let run_id = head.map_or_else(|| run.to_string(), |head| head.run_id.to_string());
            tracing::error!(run_id, problem, "the run cannot be loaded and is left alone");
        }
    }

    async fn poke(&mut self, myself: &ActorRef<Msg>, run: RunKey) {
        if let Some(live) = self.live.get(&run) {
            self.poked.insert(run);
            let _ = live.actor.cast(run::Msg::Poke);
            return;
        }
        match self.args.leases.claim_one(self.args.shared.node, run).await {
            Ok(Some(head)) => self.start(myself, run, head.lease_epoch).await,
            Ok(None) => {}
            // If the run is this node's, or became it unheard, no round of claims finds it; asking again is harmless.
            Err(error) => {
                tracing::warn!(%run, %error, "the run cannot be claimed yet");
                myself.send_after(LOAD_AGAIN, move || Msg::Poke(run));
            }
        }
    }

    fn forget(&mut self, cell: &ActorCell) -> Option<(RunKey, u64)> {
        let run = self.keys.remove(&cell.get_id())?;
        let live = self.live.remove(&run)?;
        self.args.active.store(self.live.len(), Ordering::Relaxed);
        Some((run, live.lease_epoch))
    }

    async fn failed(
        &mut self,
        myself: &ActorRef<Msg>,
        run: RunKey,
        lease_epoch: u64,
        error: &(dyn std::error::Error + Send + Sync),
    ) {
        let now = self.args.shared.clock.boot();
        let crashes = self.crashes.entry(run).or_default();
        crashes.retain(|at| now.ms_since(*at) < CRASH_WINDOW_MS);
        crashes.push(now);
        tracing::error!(%run, %error, times = crashes.len(), "the run's actor failed and is loaded again");
        if crashes.len() < CRASHES_MAX {
            self.start(myself, run, lease_epoch).await;
            return;
        }
        self.crashes.remove(&run);
        self.give_up(myself, run, lease_epoch).await;
    }

    async fn give_up(&self, myself: &ActorRef<Msg>, run: RunKey, lease_epoch: u64) {
        if let Err(error) = give_up(&self.args.shared, run, lease_epoch).await {
            tracing::error!(%run, %error, "the run could not be ended yet after its actor failed");
            myself.send_after(LOAD_AGAIN, move || Msg::GiveUp(run, lease_epoch));
        }
    }

    fn tell_all(&self, message: impl Fn() -> run::Msg) {
        for live in self.live.values() {
            let _ = live.actor.cast(message());
        }
    }

    fn answer_if_drained(&mut self) {
        if self.draining && self.live.is_empty() {
            for reply in self.drained.drain(..) {
                let _ = reply.send(());
            }
        }
    }
}

/// Ends a run that cannot be carried on, and settles what it has out.
async fn give_up(shared: &Shared, run_key: RunKey, lease_epoch: u64) -> Result<(), StoreError> {
    let Some(before) = load(shared.store.as_ref(), run_key).await? else { return Ok(()) };
    let now = shared.clock.now();
    let mut run = before.clone();
    let mut facts = Vec::new();
    let mut releases = Vec::new();
    let mut write = |run: &mut signalbox_domain::run::envelope::RunEnvelope, events: Vec<NewEvent>| {
        for new in &events {
            evolve(run, now.micros(), &new.event);
        }
        facts.extend(events);
    };
    if run.end.is_none() {
        let end = NewEvent::system(crash_loop_event(&run));
        write(&mut run, vec![end]);
    }
    for call_id in before.open_calls().map(|call| call.call_id) {
        let result = unknown_result("the run's actor failed while the call was out");
        let (events, release) = settle(&run, &Ended { call_id, result, stored_output: None }, now);
        write(&mut run, events);
        releases.extend(release);
    }
    let closing = advance(&run, now);
    write(&mut run, closing);
    let entry = Entry {
        run_key,
        expected_seq: before.last_seq,
        lease_epoch,
        control_seq: 0,
        governance_epoch: shared.governance.view().state.epoch,
        facts,
        asks: Vec::new(),
        answers: Vec::new(),
        releases,
        projection: Some(projection(&run)),
        projection_if_asked: None,
        park: false,
    };
    match shared.journal.append(entry).await {
        // Fenced: whoever has claimed it since goes on with it.
        Ok(_) | Err(AppendError::Refused(EntryRefusal::Fenced { .. } | EntryRefusal::NoSuchRun)) => Ok(()),
        Err(error) => Err(StoreError::Unknown(error.to_string())),
    }
}
