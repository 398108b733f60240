//! The throttle actor: the only writer of the node's token buckets and of who waits at them.
//!
//! It tells those who wait when their turn has come; nobody asks again and again. What it keeps is lost with the process: then
//! buckets are full, and whoever waited stands in line anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use signalbox_domain::governance::change::GovernanceState;
use signalbox_domain::governance::queue::{Claimant, Queue};
use signalbox_domain::governance::target::Target;
use signalbox_domain::governance::throttle::{self, Throttled};
use signalbox_domain::ids::{CallId, RunKey};
use signalbox_ports::clock::Clock;
use tokio::task::JoinHandle;

/// Turns that come closer together than this are told together, so that a crowd costs no more than its looks.
const TOGETHER_MS: i64 = 5;

/// Tells a run that a call's turn has come.
pub(crate) type Tell = Arc<dyn Fn(RunKey, CallId) + Send + Sync>;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct BucketsHandle {
    actor: ActorRef<Msg>,
    /// True once anything was taken: until then there is nothing to leave.
    used: Arc<AtomicBool>,
}

pub(crate) enum Msg {
    /// A call wants to go.
    Take { state: Arc<GovernanceState>, who: Claimant, target: Box<Target>, reply: RpcReplyPort<Result<(), Throttled>> },
    /// It has gone.
    Used(CallId),
    /// It will not go.
    Leave(CallId),
    /// The run is over.
    LeaveAll(RunKey),
    /// The rules may have changed.
    Rules(Arc<GovernanceState>),
    /// Somebody's turn may have come.
    Turn,
}

impl BucketsHandle {
    pub(crate) fn new(actor: ActorRef<Msg>) -> Self {
        Self { actor, used: Arc::default() }
    }

    /// Takes a token from every bucket that applies, or stands in line. A call that asks again keeps its place, and what was
    /// taken for it.
    pub(crate) async fn take(
        &self,
        state: &Arc<GovernanceState>,
        who: Claimant,
        target: &Target,
    ) -> Result<(), Throttled> {
        if !state.buckets.iter().any(|rule| throttle::applies(rule, target)) {
            return Ok(());
        }
        self.used.store(true, Ordering::Relaxed);
        let ask = |reply| Msg::Take { state: state.clone(), who, target: Box::new(target.clone()), reply };
        match self.actor.call(ask, None).await {
            Ok(ractor::rpc::CallResult::Success(answer)) => answer,
            // Only while the node goes down: nothing is dispatched any more.
            Ok(ractor::rpc::CallResult::Timeout | ractor::rpc::CallResult::SenderError) | Err(_) => Ok(()),
        }
    }

    /// The call was admitted: what was taken for it is spent.
    pub(crate) fn used(&self, call_id: CallId) {
        self.tell(Msg::Used(call_id));
    }

    /// The call will not be made: its place and its tokens are free again.
    pub(crate) fn leave(&self, call_id: CallId) {
        self.tell(Msg::Leave(call_id));
    }

    /// The run is over, or another node's.
    pub(crate) fn leave_all(&self, run_key: RunKey) {
        self.tell(Msg::LeaveAll(run_key));
    }

    /// These rules hold from now on.
    pub(crate) fn rules(&self, state: Arc<GovernanceState>) {
        self.tell(Msg::Rules(state));
    }

    fn tell(&self, message: Msg) {
        if self.used.load(Ordering::Relaxed) {
            let _ = self.actor.cast(message);
        }
    }
}

pub(crate) struct Buckets;

pub(crate) struct State {
    clock: Arc<dyn Clock>,
    tell: Tell,
    queue: Queue,
    /// The epoch of the rules the queue goes by.
    epoch: u64,
    /// When the next turn is looked for, and what sleeps until then.
    timer: Option<(i64, JoinHandle<()>)>,
}

impl State {
    fn now_ms(&self) -> i64 {
        i64::try_from(self.clock.boot().0 / 1_000_000).unwrap_or(i64::MAX)
    }

    /// Rules never go back: a run may ask by an older view than the one the node has read since.
    fn set_rules(&mut self, state: &GovernanceState) {
        if state.epoch > self.epoch {
            self.epoch = state.epoch;
            self.queue.set_rules(&state.buckets, self.now_ms());
        }
    }

    /// Tells those whose turn has come, and sleeps until the next.
    fn turn(&mut self, myself: &ActorRef<Msg>) {
        let now = self.now_ms();
        if self.queue.next_ms().is_some_and(|next| next <= now) {
            for Claimant { run_key, call_id } in self.queue.serve(now) {
                (self.tell)(run_key, call_id);
            }
        }
        let next = self.queue.next_ms().map(|next| next.max(now.saturating_add(TOGETHER_MS)));
        if self.timer.as_ref().map(|(at, _)| *at) == next && self.timer.as_ref().is_some_and(|(at, _)| *at > now) {
            return;
        }
        if let Some((_, sleeping)) = self.timer.take() {
            sleeping.abort();
        }
        let Some(next) = next else { return };
        let (actor, wait) = (myself.clone(), u64::try_from(next.saturating_sub(now)).unwrap_or(0));
        let sleeping = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let _ = actor.cast(Msg::Turn);
        });
        self.timer = Some((next, sleeping));
    }
}

impl Actor for Buckets {
    type Msg = Msg;
    type State = State;
    type Arguments = (Arc<dyn Clock>, Arc<GovernanceState>, Tell);

    async fn pre_start(
        &self,
        _: ActorRef<Msg>,
        (clock, state, tell): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let queue = Queue::new(state.buckets.clone());
        Ok(State { clock, tell, queue, epoch: state.epoch, timer: None })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        let now = state.now_ms();
        match message {
            Msg::Take { state: rules, who, target, reply } => {
                state.set_rules(&rules);
                let _ = reply.send(state.queue.take(who, &target, now));
            }
            Msg::Used(call_id) => state.queue.used(call_id),
            Msg::Leave(call_id) => state.queue.leave(call_id, now),
            Msg::LeaveAll(run_key) => state.queue.leave_all(run_key, now),
            Msg::Rules(rules) => state.set_rules(&rules),
            Msg::Turn => {}
        }
        state.turn(&myself);
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Msg>, state: &mut State) -> Result<(), ActorProcessingErr> {
        if let Some((_, sleeping)) = state.timer.take() {
            sleeping.abort();
        }
        Ok(())
    }
}
