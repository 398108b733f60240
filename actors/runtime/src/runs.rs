//! The supervisor of all active runs of this node: it starts them, loads them again when they fail, and gives up on
//! one that keeps failing. One run's failure never touches another.
//!
//! It waits for nobody: runs are read, claimed and given up in tasks that report back, so that a command for one run never
//! stands behind the loading of a thousand others.

mod giving_up;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::ids::{CallId, RunKey};
use signalbox_domain::run::append::RunHead;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::Leases;
use tokio::sync::Semaphore;

use crate::load::load;
use crate::progress::Item;
use crate::run::{self, Reached, Run, Shared};
use giving_up::give_up;

/// A run may fail this often within [`CRASH_WINDOW_MS`] (RUN-029).
const CRASHES_MAX: usize = 3;
const CRASH_WINDOW_MS: u64 = 60_000;
/// Pause before what the store could not do for a run is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Runs that are read from the journal side by side.
const LOADS_MAX: usize = 32;
/// How long a run may take to say whether a switch reaches it.
const REACHED_WITHIN: Duration = Duration::from_secs(2);
/// How long calls in flight get when the node shuts down (RUN-030).
const DRAIN_FOR: Duration = Duration::from_secs(20);

pub(crate) enum Msg {
    /// This node has claimed the run.
    Own(Box<RunHead>),
    /// This node has created the run, and knows what its journal holds.
    Born(Box<RunHead>, Box<RunEnvelope>),
    /// Something lies in the run's inbox.
    Poke(RunKey),
    /// The same, as somebody says: looked at if this node has the run in hand, and otherwise nothing follows.
    Heard(RunKey, RpcReplyPort<()>),
    /// How many runs are about to be active, and those that are.
    InHand(RpcReplyPort<(usize, Vec<ActorRef<run::Msg>>)>),
    /// A call ended whose actor is gone.
    Ended(RunKey, CallId),
    /// A call that waited at a token bucket may go.
    Turn(RunKey, CallId),
    GovernanceMoved,
    /// What a switch has left to do in the runs this node has in hand.
    Reached(Arc<KillSwitch>, RpcReplyPort<Reached>),
    /// Nothing new begins; answered when no run is active any more, or the time is over.
    Drain(RpcReplyPort<()>),
    DrainOver,
    /// The node's lease is gone: every run stops at once, wherever it is.
    Fenced,
    /// A claim on a run that was poked has been answered.
    Claimed(RunKey, Result<Option<Box<RunHead>>, StoreError>),
    /// The run could not be claimed for want of the store: once more.
    ClaimAgain(RunKey),
    /// A run has been read.
    Loaded(RunKey, Result<Option<Box<RunEnvelope>>, StoreError>),
    /// The run could not be read for want of the store: once more.
    LoadAgain(RunKey),
    /// A run whose actor keeps failing has been ended.
    GaveUp(RunKey, Result<(), StoreError>),
    /// It could not be: once more.
    GiveUpAgain(RunKey),
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
    /// The runs this node has in hand.
    held: BTreeMap<RunKey, Held>,
    keys: HashMap<ActorId, RunKey>,
    /// Runs that are being claimed because they were poked, or will be once more.
    claiming: HashSet<RunKey>,
    /// When actors failed, of runs where that was within the window.
    crashes: HashMap<RunKey, Vec<BootInstant>>,
    /// Runs whose journal cannot be read, named in the log once.
    left_alone: HashSet<RunKey>,
    loads: Arc<Semaphore>,
    drained: Vec<RpcReplyPort<()>>,
    draining: bool,
}

struct Held {
    lease_epoch: u64,
    /// Poked or claimed anew meanwhile: looked at once more when the actor is gone.
    poked: bool,
    life: Life,
}

enum Life {
    Loading,
    Active(ActorRef<run::Msg>),
    /// Its actor kept failing, and it is being ended.
    GivingUp,
}

impl Actor for Runs {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, _: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        Ok(State {
            args,
            held: BTreeMap::new(),
            keys: HashMap::new(),
            claiming: HashSet::new(),
            crashes: HashMap::new(),
            left_alone: HashSet::new(),
            loads: Arc::new(Semaphore::new(LOADS_MAX)),
            drained: Vec::new(),
            draining: false,
        })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Own(head) => state.own(&myself, head.run_key, head.lease_epoch),
            Msg::Born(head, envelope) => state.born(&myself, &head, envelope).await,
            Msg::Poke(run) => state.poke(&myself, run),
            Msg::Heard(run, reply) => {
                if state.held.contains_key(&run) {
                    state.poke(&myself, run);
                }
                let _ = reply.send(());
            }
            Msg::InHand(reply) => {
                let _ = reply.send(state.in_hand());
            }
            Msg::Ended(run, call_id) => state.ended(&myself, run, call_id),
            Msg::Turn(run, call_id) => state.turn(run, call_id),
            Msg::GovernanceMoved => state.tell_all(|| run::Msg::GovernanceMoved),
            Msg::Reached(switch, reply) => state.reached(switch, reply),
            Msg::Drain(reply) => {
                state.draining = true;
                state.drained.push(reply);
                state.held.retain(|_, held| !matches!(held.life, Life::Loading));
                state.tell_all(|| run::Msg::Drain);
                myself.send_after(DRAIN_FOR, || Msg::DrainOver);
            }
            Msg::DrainOver | Msg::Fenced => {
                for held in state.held.values() {
                    if let Life::Active(actor) = &held.life {
                        actor.stop(None);
                    }
                }
                for reply in state.drained.drain(..) {
                    let _ = reply.send(());
                }
            }
            Msg::Claimed(run, claimed) => state.claimed(&myself, run, claimed),
            Msg::ClaimAgain(run) => {
                state.claiming.remove(&run);
                state.poke(&myself, run);
            }
            Msg::Loaded(run, loaded) => state.loaded(&myself, run, loaded).await,
            Msg::LoadAgain(run) => state.load(&myself, run),
            Msg::GaveUp(run, done) => state.gave_up(&myself, run, done),
            Msg::GiveUpAgain(run) => state.give_up(&myself, run),
        }
        state.count();
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
                if let Some(run) = state.keys.remove(&cell.get_id()) {
                    state.let_go(&myself, run);
                }
            }
            SupervisionEvent::ActorFailed(cell, error) => state.failed(&myself, &cell, &*error),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        state.count();
        Ok(())
    }
}

impl State {
    fn own(&mut self, myself: &ActorRef<Msg>, run: RunKey, lease_epoch: u64) {
        if self.draining || self.left_alone.contains(&run) {
            return;
        }
        if let Some(held) = self.held.get_mut(&run) {
            // Parked and claimed again before its actor is quite gone: nobody else will bring it back.
            held.poked |= held.lease_epoch != lease_epoch;
            return;
        }
        self.held.insert(run, Held { lease_epoch, poked: false, life: Life::Loading });
        self.load(myself, run);
    }

    async fn born(&mut self, myself: &ActorRef<Msg>, head: &RunHead, envelope: Box<RunEnvelope>) {
        let run = head.run_key;
        if self.draining || self.held.contains_key(&run) {
            return self.own(myself, run, head.lease_epoch);
        }
        self.held.insert(run, Held { lease_epoch: head.lease_epoch, poked: false, life: Life::Loading });
        self.loaded(myself, run, Ok(Some(envelope))).await;
    }

    fn load(&mut self, myself: &ActorRef<Msg>, run: RunKey) {
        if !self.held.contains_key(&run) {
            return;
        }
        let (myself, shared, loads) = (myself.clone(), self.args.shared.clone(), self.loads.clone());
        tokio::spawn(async move {
            // The semaphore is never closed.
            let _permit = loads.acquire().await;
            // In a task of its own, so that a run whose reading panics is left alone and not waited for.
            let reading = tokio::spawn(async move { load(shared.store.as_ref(), run).await }).await;
            let loaded = reading.unwrap_or_else(|error| Err(StoreError::Poison(format!("reading it failed: {error}"))));
            let _ = myself.cast(Msg::Loaded(run, loaded.map(|run| run.map(Box::new))));
        });
    }

    async fn loaded(
        &mut self,
        myself: &ActorRef<Msg>,
        run: RunKey,
        loaded: Result<Option<Box<RunEnvelope>>, StoreError>,
    ) {
        let Some(held) = self.held.get_mut(&run) else { return };
        let envelope = match loaded {
            Ok(Some(envelope)) => envelope,
            Ok(None) => return self.leave_alone(run, "it is not in the journal").await,
            Err(StoreError::Unavailable(problem) | StoreError::Unknown(problem)) => {
                tracing::warn!(%run, problem, "the run cannot be loaded yet");
                myself.send_after(AGAIN_AFTER, move || Msg::LoadAgain(run));
                return;
            }
            // Left as it is: other runs go on, and an operator finds it by the name it is known by.
            Err(StoreError::Corrupt { seq, problem, .. }) => {
                return self.leave_alone(run, &format!("its journal is corrupt at event {seq}: {problem}")).await;
            }
            Err(error) => return self.leave_alone(run, &error.to_string()).await,
        };
        let args = run::Args {
            shared: self.args.shared.clone(),
            run: *envelope,
            lease_epoch: held.lease_epoch,
            runs: myself.clone(),
        };
        match Actor::spawn_linked(None, Run, args, myself.get_cell()).await {
            Ok((actor, _)) => {
                self.keys.insert(actor.get_id(), run);
                held.life = Life::Active(actor);
            }
            Err(error) => {
                tracing::error!(%run, %error, "the run's actor cannot be started");
                self.held.remove(&run);
            }
        }
    }

    async fn leave_alone(&mut self, run: RunKey, problem: &str) {
        self.held.remove(&run);
        if self.left_alone.insert(run) {
            let head = self.args.shared.store.head(run).await.ok().flatten();
            let run_id = head.map_or_else(|| run.to_string(), |head| head.run_id.to_string());
            tracing::error!(run_id, problem, "the run cannot be loaded and is left alone");
        }
    }

    fn poke(&mut self, myself: &ActorRef<Msg>, run: RunKey) {
        if let Some(held) = self.held.get_mut(&run) {
            held.poked = true;
            if let Life::Active(actor) = &held.life {
                let _ = actor.cast(run::Msg::Poke);
            }
            return;
        }
        if self.draining || !self.claiming.insert(run) {
            return;
        }
        let (myself, leases, node) = (myself.clone(), self.args.leases.clone(), self.args.shared.node);
        tokio::spawn(async move {
            let claimed = leases.claim_one(node, run).await;
            let _ = myself.cast(Msg::Claimed(run, claimed.map(|head| head.map(Box::new))));
        });
    }

    fn claimed(&mut self, myself: &ActorRef<Msg>, run: RunKey, claimed: Result<Option<Box<RunHead>>, StoreError>) {
        match claimed {
            Ok(head) => {
                self.claiming.remove(&run);
                match head {
                    Some(head) => self.own(myself, run, head.lease_epoch),
                    // Closed, or another node's: that one recovers what is open by its policy.
                    None => self.args.shared.flights.over(run),
                }
            }
            // If the run is this node's, or became it unheard, no round of claims finds it; asking again is harmless.
            Err(error) => {
                tracing::warn!(%run, %error, "the run cannot be claimed yet");
                myself.send_after(AGAIN_AFTER, move || Msg::ClaimAgain(run));
            }
        }
    }

    /// An answer whose actor failed or was parked goes to whoever has the run next: if the call was given up meanwhile, it
    /// comes late and is still the answer. It lies among the flights until then.
    fn ended(&mut self, myself: &ActorRef<Msg>, run: RunKey, call_id: CallId) {
        match self.held.get_mut(&run) {
            None => self.poke(myself, run),
            Some(held) => {
                if let Life::Active(actor) = &held.life {
                    let _ = actor.cast(run::Msg::Ended(call_id));
                }
            }
        }
    }

    /// A run that is parked, or on its way in, asks by itself: its call's tokens are kept for it.
    fn turn(&self, run: RunKey, call_id: CallId) {
        if let Some(Held { life: Life::Active(actor), .. }) = self.held.get(&run) {
            let _ = actor.cast(run::Msg::Turn(call_id));
        }
    }

    /// The run is in hand no longer.
    fn let_go(&mut self, myself: &ActorRef<Msg>, run: RunKey) {
        // Whoever watches it looks where it goes on.
        self.args.shared.hub.publish(run, Item::Elsewhere);
        let poked = self.held.remove(&run).is_some_and(|held| held.poked);
        // An answer that came when the actor was just going wakes the run as well.
        if poked || self.args.shared.flights.has_answer(run) {
            self.poke(myself, run);
        }
    }

    fn failed(&mut self, myself: &ActorRef<Msg>, cell: &ActorCell, error: &(dyn std::error::Error + Send + Sync)) {
        let Some(run) = self.keys.remove(&cell.get_id()) else { return };
        let Some(held) = self.held.get_mut(&run) else { return };
        let now = self.args.shared.clock.boot();
        self.crashes.retain(|_, times| {
            times.retain(|at| now.ms_since(*at) < CRASH_WINDOW_MS);
            !times.is_empty()
        });
        let times = self.crashes.entry(run).or_default();
        times.push(now);
        tracing::error!(%run, %error, times = times.len(), "the run's actor failed");
        if self.draining {
            self.held.remove(&run);
        } else if times.len() < CRASHES_MAX {
            held.life = Life::Loading;
            self.load(myself, run);
        } else {
            self.crashes.remove(&run);
            held.life = Life::GivingUp;
            self.give_up(myself, run);
        }
    }

    fn give_up(&self, myself: &ActorRef<Msg>, run: RunKey) {
        let Some(held) = self.held.get(&run) else { return };
        let (myself, shared, lease_epoch) = (myself.clone(), self.args.shared.clone(), held.lease_epoch);
        tokio::spawn(async move {
            let done = give_up(&shared, run, lease_epoch).await;
            let _ = myself.cast(Msg::GaveUp(run, done));
        });
    }

    fn gave_up(&mut self, myself: &ActorRef<Msg>, run: RunKey, done: Result<(), StoreError>) {
        match done {
            Ok(()) => {
                self.args.shared.flights.over(run);
                self.let_go(myself, run);
            }
            // An append of the failed actor may have come in between, or the store is not there.
            Err(error) => {
                tracing::error!(%run, %error, "the run could not be ended yet after its actor failed");
                myself.send_after(AGAIN_AFTER, move || Msg::GiveUpAgain(run));
            }
        }
    }

    fn tell_all(&self, message: impl Fn() -> run::Msg) {
        for held in self.held.values() {
            if let Life::Active(actor) = &held.life {
                let _ = actor.cast(message());
            }
        }
    }

    fn in_hand(&self) -> (usize, Vec<ActorRef<run::Msg>>) {
        let mut active = Vec::with_capacity(self.held.len());
        active.extend(self.held.values().filter_map(|held| match &held.life {
            Life::Active(actor) => Some(actor.clone()),
            Life::Loading | Life::GivingUp => None,
        }));
        (self.held.len() - active.len(), active)
    }

    /// Asks every run, in a task of its own. A run that is still being read, or does not answer, may be one that is left.
    fn reached(&self, switch: Arc<KillSwitch>, reply: RpcReplyPort<Reached>) {
        let (loading, active) = self.in_hand();
        tokio::spawn(async move {
            let mut asked = tokio::task::JoinSet::new();
            for actor in active {
                let switch = switch.clone();
                asked.spawn(
                    async move { actor.call(|reply| run::Msg::Reached(switch, reply), Some(REACHED_WITHIN)).await },
                );
            }
            let mut all = Reached { left: loading as u64, calls_out: 0 };
            for answer in asked.join_all().await {
                match answer {
                    Ok(CallResult::Success(one)) => {
                        all.left += one.left;
                        all.calls_out += one.calls_out;
                    }
                    Ok(CallResult::Timeout) => all.left += 1,
                    // It has ended, and with it whatever it had to do.
                    Ok(CallResult::SenderError) | Err(_) => {}
                }
            }
            let _ = reply.send(all);
        });
    }

    fn count(&mut self) {
        self.args.active.store(self.held.len(), Ordering::Relaxed);
        if self.draining && self.held.is_empty() {
            for reply in self.drained.drain(..) {
                let _ = reply.send(());
            }
        }
    }
}
