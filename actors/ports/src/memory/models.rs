//! Models that answer what a test tells them to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use signalbox_domain::ids::{CallId, ProviderId, RegionId};
use signalbox_domain::run::model_step::{Finish, ModelAnswer, ModelUsage, Pricing, ProposedCall};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::journal::Admitted;
use crate::models::{BoundModel, ModelError, Models, TurnOrder};
use crate::tools::{CallProgress, Permit};

/// Turns that may be under way at once.
const PERMITS: usize = 64;

#[derive(Default)]
struct State {
    bound: BTreeMap<(String, String), BoundModel>,
    script: VecDeque<Result<ModelAnswer, ModelError>>,
    orders: Vec<TurnOrder>,
    cancelled: Vec<CallId>,
}

/// Models for tests: scripted, counted, and asking nobody.
pub struct FakeModels {
    state: Mutex<State>,
    permits: Arc<Semaphore>,
    moved: watch::Sender<u64>,
}

impl FakeModels {
    /// Models by provider and name.
    pub fn new<'a>(models: impl IntoIterator<Item = (&'a str, &'a str, Option<RegionId>)>) -> Self {
        let bound = |region| BoundModel { region, pricing: Pricing::default(), timeout_ms: 60_000 };
        let bound = models
            .into_iter()
            .map(|(provider, model, region)| ((provider.to_owned(), model.to_owned()), bound(region)));
        let state = State { bound: bound.collect(), ..State::default() };
        Self { state: Mutex::new(state), permits: Arc::new(Semaphore::new(PERMITS)), moved: watch::Sender::new(0) }
    }

    /// Answers for the next turns, in order. A turn that finds none hangs until it is cancelled.
    pub fn script(&self, answers: impl IntoIterator<Item = Result<ModelAnswer, ModelError>>) {
        self.state().script.extend(answers);
        self.moved.send_modify(|n| *n += 1);
    }

    /// An answer that says this and proposes nothing.
    pub fn says(text: &str) -> ModelAnswer {
        let usage = Some(ModelUsage { input_tokens: 100, output_tokens: 10 });
        ModelAnswer { text: text.to_owned(), calls: Vec::new(), finish: Finish::Stop, usage }
    }

    /// An answer that proposes these calls.
    pub fn proposes<'a>(calls: impl IntoIterator<Item = (&'a str, &'a str)>) -> ModelAnswer {
        let calls = calls.into_iter().enumerate().map(|(index, (name, arguments))| ProposedCall {
            id: format!("c{index}"),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        });
        ModelAnswer { calls: calls.collect(), finish: Finish::Calls, ..Self::says("") }
    }

    /// Every turn that was asked, in order.
    pub fn orders(&self) -> Vec<TurnOrder> {
        self.state().orders.clone()
    }

    /// Every turn that was cut off.
    pub fn cancelled(&self) -> Vec<CallId> {
        self.state().cancelled.clone()
    }

    /// Waits until so many turns were asked.
    pub async fn asked(&self, count: usize) {
        let mut moved = self.moved.subscribe();
        let _ = moved.wait_for(|_| self.state().orders.len() >= count).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Models for FakeModels {
    fn bound(&self, provider: &ProviderId, model: &str) -> Option<BoundModel> {
        self.state().bound.get(&(provider.to_string(), model.to_owned())).cloned()
    }
    fn permit(&self) -> Option<Permit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }
    async fn turn(
        &self,
        _: Admitted,
        order: TurnOrder,
        permit: Permit,
        _: mpsc::Sender<CallProgress>,
    ) -> Result<ModelAnswer, ModelError> {
        let call = order.call_id;
        self.state().orders.push(order);
        self.moved.send_modify(|n| *n += 1);
        let mut moved = self.moved.subscribe();
        let answer = loop {
            {
                let mut state = self.state();
                if state.cancelled.contains(&call) {
                    break Err(ModelError::Cancelled);
                }
                if let Some(answer) = state.script.pop_front() {
                    break answer;
                }
            }
            if moved.changed().await.is_err() {
                break Err(ModelError::Cancelled);
            }
        };
        drop(permit);
        answer
    }
    async fn cancel(&self, call: CallId) {
        self.state().cancelled.push(call);
        self.moved.send_modify(|n| *n += 1);
    }
}
