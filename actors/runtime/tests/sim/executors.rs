//! Executors that outlive nodes and answer as a seed decides: well, late, never, with an error, with nonsense, or not at all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::ids::{CallId, ToolId};
use signalbox_domain::quantity::BudgetCategory;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::Admitted;
use signalbox_ports::tools::{CallOrder, CallProgress, KnownOutcome, Permit, Tools};
use tokio::sync::{Semaphore, mpsc};

use crate::dice::Dice;
use crate::link::Life;
use crate::sabotage::Sabotage;
use crate::world::{Fault, Signal, SimClock, World};

/// The tools that have an executor.
pub(crate) const TOOLS: [&str; 9] = [
    "memory.read",
    "memory.write",
    "composition.suggest",
    "persona.invoke",
    "sophia.ground",
    "file.read",
    "calendar.read",
    "calendar.write",
    "notify.send",
];

/// What executors let slip now and then, plainly fake: it must not be kept anywhere (I13). In pieces, so that it stands
/// nowhere in the sources either.
pub(crate) const SECRET: [&str; 2] = ["AKIA", "FAKEFAKEFAKEFAKE"];

/// All executors of the installation.
pub(crate) struct Executors {
    world: Arc<World>,
    calls: Mutex<BTreeMap<CallId, Kept>>,
    cancels: Signal<u64>,
}

#[derive(Default, Clone)]
struct Kept {
    cancelled: bool,
    running: bool,
    ended: Option<CallResult>,
}

/// What an executor does with one attempt.
enum Behaviour {
    Refuses,
    Breaks { after_ms: u64, late_ms: u64 },
    Ends { after_ms: u64, result: Box<CallResult> },
    Hangs,
}

impl Executors {
    pub(crate) fn new(world: Arc<World>) -> Arc<Self> {
        Arc::new(Self { world, calls: Mutex::default(), cancels: Signal::new(0) })
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<CallId, Kept>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behaviour(&self, order: &CallOrder) -> (Behaviour, bool) {
        let mut dice = Dice::new(self.world.seed, &format!("call {} {}", order.call_id, order.attempt));
        let faulty = self.world.has(Fault::Executor) && !self.world.healed.get();
        let deaf = faulty && dice.chance(20);
        let (kind, quick, long) = (dice.below(100), dice.below(200), dice.between(1_000, 25_000));
        let after_ms = if faulty && dice.chance(25) { long } else { quick };
        let ending = match kind {
            0..4 if faulty => return (Behaviour::Refuses, deaf),
            4..12 if faulty => return (Behaviour::Breaks { after_ms, late_ms: after_ms + long }, deaf),
            12..18 if faulty => return (Behaviour::Hangs, deaf),
            18..28 if faulty => {
                let slip = if dice.chance(10) { SECRET.concat() } else { String::new() };
                CallEnding::Failed { code: "tool-failed".to_owned(), message: format!("it did not work {slip}") }
            }
            _ => CallEnding::Answered {
                partial: dice.chance(10),
                output: output(&mut dice),
                evidence: None,
                effects: Vec::new(),
                artifacts: Vec::new(),
            },
        };
        let result = CallResult { ending, measured: measured(&mut dice, order, faulty), latency_ms: after_ms };
        (Behaviour::Ends { after_ms, result: Box::new(result) }, deaf)
    }

    /// One attempt, as far as the outside is concerned: it goes on although the node that sent it dies.
    async fn serve(self: Arc<Self>, order: CallOrder) -> CallResult {
        let (behaviour, deaf) = self.behaviour(&order);
        if matches!(behaviour, Behaviour::Refuses) {
            return not_started("executor-refused-call", "the executor has no room");
        }
        {
            let mut calls = self.calls();
            let kept = calls.entry(order.call_id).or_default();
            if kept.cancelled {
                return not_started("call-cancelled", "the call was cancelled before it began");
            }
            kept.running = true;
        }
        self.world.tell(|| format!("executor: call {} of {} begins", order.call_id, order.tool_id));
        self.world.model().begins(&order);
        if let Behaviour::Breaks { late_ms, .. } = &behaviour {
            tokio::spawn(Arc::clone(&self).ends_unheard(order.clone(), *late_ms));
        }
        let result = self.work(&order, behaviour, deaf).await;
        if !matches!(result.ending, CallEnding::Unknown { .. }) {
            self.ended(order.call_id, &result);
        }
        self.world.tell(|| format!("executor: call {} ends: {:?}", order.call_id, result.ending));
        result
    }

    fn ended(&self, call: CallId, result: &CallResult) {
        let mut calls = self.calls();
        let kept = calls.entry(call).or_default();
        kept.running = false;
        kept.ended.get_or_insert_with(|| result.clone());
    }

    /// The conversation breaks off, and the work goes on: whoever asks for the outcome later hears of it.
    async fn ends_unheard(self: Arc<Self>, order: CallOrder, late_ms: u64) {
        tokio::time::sleep(Duration::from_millis(late_ms)).await;
        if self.calls().get(&order.call_id).is_some_and(|kept| !kept.cancelled) {
            let ending = CallEnding::Answered {
                partial: false,
                output: json!({ "value": 1, "items": [] }),
                evidence: None,
                effects: Vec::new(),
                artifacts: Vec::new(),
            };
            self.ended(order.call_id, &CallResult { ending, measured: None, latency_ms: late_ms });
        }
    }

    async fn work(&self, order: &CallOrder, behaviour: Behaviour, deaf: bool) -> CallResult {
        let is_cancelled = |_| self.calls().get(&order.call_id).is_some_and(|kept| kept.cancelled);
        let limit = Duration::from_millis(order.timeout_ms);
        let (after, result) = match behaviour {
            Behaviour::Ends { after_ms, result } => (Duration::from_millis(after_ms), *result),
            Behaviour::Breaks { after_ms, .. } => {
                let ending = CallEnding::Unknown { message: "the conversation broke off".to_owned() };
                (Duration::from_millis(after_ms), CallResult { ending, measured: None, latency_ms: after_ms })
            }
            Behaviour::Hangs | Behaviour::Refuses => {
                let ending = CallEnding::Failed { code: "tool-timeout".to_owned(), message: "too late".to_owned() };
                (limit, CallResult { ending, measured: None, latency_ms: order.timeout_ms })
            }
        };
        tokio::select! {
            biased;
            _ = self.cancels.wait_for(is_cancelled), if !deaf => {
                CallResult { ending: CallEnding::Cancelled, measured: None, latency_ms: 1 }
            }
            _ = self.world.healed.wait_for(|healed| healed), if after >= limit => result,
            () = tokio::time::sleep(after.min(limit)) => result,
        }
    }
}

fn output(dice: &mut Dice) -> Value {
    let items: Vec<u64> = (0..dice.below(4)).collect();
    // Now and then one that is too big for the journal.
    let text = match dice.below(100) {
        0..3 => "x".repeat(20_000),
        3..8 => format!("the key is {}", SECRET.concat()),
        _ => "some text".to_owned(),
    };
    json!({ "value": dice.below(1_000), "items": items, "text": text })
}

fn measured(dice: &mut Dice, order: &CallOrder, faulty: bool) -> Option<Vec<(BudgetCategory, f64)>> {
    let ceiling = order.ceiling.get(BudgetCategory::CostUnits).0 as f64 / 1e6;
    match dice.below(10) {
        0..4 => None,
        4 if faulty => Some(vec![(BudgetCategory::CostUnits, ceiling * 3.0)]),
        5 if faulty => Some(vec![(BudgetCategory::CostUnits, f64::NAN)]),
        6 if faulty => Some(vec![(BudgetCategory::CostUnits, -1.0)]),
        7 => Some(vec![(BudgetCategory::CostUnits, ceiling / 3.0), (BudgetCategory::Retrievals, 1.0)]),
        _ => Some(vec![(BudgetCategory::CostUnits, ceiling)]),
    }
}

fn not_started(code: &str, message: &str) -> CallResult {
    let ending = CallEnding::NotStarted { code: code.to_owned(), message: message.to_owned() };
    CallResult { ending, measured: None, latency_ms: 0 }
}

/// One node's way to the executors.
pub(crate) struct Hands {
    pub(crate) executors: Arc<Executors>,
    pub(crate) life: Arc<Life>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) dice: Mutex<Dice>,
}

#[async_trait]
impl Tools for Hands {
    fn configured(&self) -> Vec<(ToolId, String)> {
        TOOLS.iter().map(|tool| (ToolId::new(*tool).unwrap(), "1.0.0".to_owned())).collect()
    }

    fn permit(&self, _: &ToolId) -> Option<Permit> {
        let world = &self.executors.world;
        let busy = self.dice.lock().unwrap_or_else(PoisonError::into_inner).chance(5);
        if busy && world.has(Fault::Executor) && !world.healed.get() {
            return None;
        }
        Arc::new(Semaphore::new(1)).try_acquire_owned().ok()
    }

    async fn execute(
        &self,
        admitted: Admitted,
        order: CallOrder,
        permit: Permit,
        _: mpsc::Sender<CallProgress>,
    ) -> CallResult {
        self.life.goes_on().await;
        let world = &self.executors.world;
        let stale_goes = world.sabotage == Some(Sabotage::StaleDispatched);
        if !admitted.may_be_dispatched(self.clock.boot()) && !stale_goes {
            return not_started("dispatch-window-missed", "the admission is older than two seconds");
        }
        let same = match admitted.event() {
            RunEvent::CallPending(pending) => pending.call_id == order.call_id && order.attempt == 1,
            RunEvent::CallRedispatched { call_id, attempt, .. } => {
                *call_id == order.call_id && *attempt == order.attempt
            }
            _ => false,
        };
        if !same {
            world.model().violated("I1", format!("call {} under a foreign admission", order.call_id));
        }
        let mut served = tokio::spawn(Arc::clone(&self.executors).serve(order.clone())).await;
        let is_unknown = |served: &CallResult| matches!(served.ending, CallEnding::Unknown { .. });
        if world.sabotage == Some(Sabotage::UnknownSentAgain) && served.as_ref().is_ok_and(is_unknown) {
            served = tokio::spawn(Arc::clone(&self.executors).serve(order)).await;
        }
        self.life.goes_on().await;
        drop(permit);
        served.unwrap()
    }

    async fn cancel(&self, _: &ToolId, call: CallId) {
        self.life.goes_on().await;
        self.executors.calls().entry(call).or_default().cancelled = true;
        self.executors.cancels.set(self.executors.cancels.get() + 1);
    }

    async fn outcome(&self, _: &ToolId, call: CallId) -> KnownOutcome {
        self.life.goes_on().await;
        let mut calls = self.executors.calls();
        let kept = calls.entry(call).or_default();
        match &kept.ended {
            Some(result) => KnownOutcome::Ended(Box::new(result.clone())),
            None if kept.running => KnownOutcome::Running,
            None => {
                kept.cancelled = true;
                KnownOutcome::NotSeen
            }
        }
    }
}
