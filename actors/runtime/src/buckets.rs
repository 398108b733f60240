//! The throttle actor: the only writer of the node's token buckets.

use std::collections::HashMap;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use signalbox_domain::governance::change::GovernanceState;
use signalbox_domain::governance::target::Target;
use signalbox_domain::governance::throttle::{self, Bucket, BucketRule, Throttled};
use signalbox_domain::ids::BucketId;
use signalbox_domain::quantity::Micros;
use signalbox_ports::clock::Clock;

/// Tokens one call takes.
const PER_CALL: Micros = Micros::units(1);

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct BucketsHandle {
    actor: ActorRef<Msg>,
}

pub(crate) enum Msg {
    Take { state: Arc<GovernanceState>, target: Box<Target>, reply: RpcReplyPort<Result<(), Throttled>> },
    GiveBack { state: Arc<GovernanceState>, target: Box<Target> },
}

impl BucketsHandle {
    pub(crate) const fn new(actor: ActorRef<Msg>) -> Self {
        Self { actor }
    }

    /// Takes a token from every bucket that applies, or from none.
    pub(crate) async fn take(&self, state: &Arc<GovernanceState>, target: &Target) -> Result<(), Throttled> {
        if !state.buckets.iter().any(|rule| throttle::applies(rule, target)) {
            return Ok(());
        }
        let ask = |reply| Msg::Take { state: state.clone(), target: Box::new(target.clone()), reply };
        match self.actor.call(ask, None).await {
            Ok(ractor::rpc::CallResult::Success(answer)) => answer,
            // Only while the node goes down: nothing is dispatched any more.
            Ok(ractor::rpc::CallResult::Timeout | ractor::rpc::CallResult::SenderError) | Err(_) => Ok(()),
        }
    }

    /// Gives back what a call took that was refused after all.
    pub(crate) fn give_back(&self, state: &Arc<GovernanceState>, target: &Target) {
        if state.buckets.iter().any(|rule| throttle::applies(rule, target)) {
            let _ = self.actor.cast(Msg::GiveBack { state: state.clone(), target: Box::new(target.clone()) });
        }
    }
}

pub(crate) struct Buckets;

pub(crate) struct State {
    clock: Arc<dyn Clock>,
    buckets: HashMap<BucketId, Bucket>,
}

impl State {
    fn now_ms(&self) -> i64 {
        i64::try_from(self.clock.boot().0 / 1_000_000).unwrap_or(i64::MAX)
    }

    // Buckets are taken out while they are worked on, because the rule wants all of them at once.
    fn with<T>(
        &mut self,
        rules: &[BucketRule],
        target: &Target,
        work: impl FnOnce(&mut [(&BucketRule, &mut Bucket)], i64) -> T,
    ) -> T {
        let now = self.now_ms();
        let applying: Vec<&BucketRule> = rules.iter().filter(|rule| throttle::applies(rule, target)).collect();
        let mut held: Vec<Bucket> = applying
            .iter()
            .map(|rule| self.buckets.remove(&rule.bucket_id).unwrap_or_else(|| throttle::fresh(rule, now)))
            .collect();
        let answer = {
            let mut pairs: Vec<(&BucketRule, &mut Bucket)> = applying.iter().copied().zip(held.iter_mut()).collect();
            work(&mut pairs, now)
        };
        for (rule, bucket) in applying.into_iter().zip(held) {
            self.buckets.insert(rule.bucket_id.clone(), bucket);
        }
        answer
    }
}

impl Actor for Buckets {
    type Msg = Msg;
    type State = State;
    type Arguments = Arc<dyn Clock>;

    async fn pre_start(&self, _: ActorRef<Msg>, clock: Arc<dyn Clock>) -> Result<State, ActorProcessingErr> {
        Ok(State { clock, buckets: HashMap::new() })
    }

    async fn handle(&self, _: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Take { state: rules, target, reply } => {
                let answer = state.with(&rules.buckets, &target, |pairs, now| throttle::take_all(pairs, PER_CALL, now));
                let _ = reply.send(answer);
            }
            Msg::GiveBack { state: rules, target } => {
                state.with(&rules.buckets, &target, |pairs, _| throttle::give_back(pairs, PER_CALL));
            }
        }
        Ok(())
    }
}
