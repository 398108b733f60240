//! Executors that answer what a test tells them to.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::json;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::ids::{CallId, ToolId};
use signalbox_domain::run::step::{CallEnding, CallResult};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::clock::Clock;
use crate::journal::Admitted;
use crate::tools::{CallOrder, CallProgress, KnownOutcome, Permit, Tools};

/// Calls of one tool that may run side by side unless a test says otherwise.
const PERMITS_DEFAULT: usize = 64;

type Answer = Pin<Box<dyn Future<Output = CallResult> + Send>>;
type Behaviour = Arc<dyn Fn(CallOrder, mpsc::Sender<CallProgress>) -> Answer + Send + Sync>;

struct Tool {
    semver: String,
    /// What the executor declares; as the catalog says if it declares nothing.
    declared: Option<Recovery>,
    permits: Arc<Semaphore>,
    /// Answers for the next calls, taken before the behaviour is asked.
    script: VecDeque<CallResult>,
    behaviour: Behaviour,
}

#[derive(Default)]
struct State {
    tools: BTreeMap<ToolId, Tool>,
    calls: Vec<CallOrder>,
    cancelled: Vec<CallId>,
    /// Tools whose executor does not hear a cancel.
    deaf: Vec<ToolId>,
    outcomes: BTreeMap<CallId, KnownOutcome>,
}

/// Executors for tests: scripted, counted, and never touching anything.
pub struct FakeTools {
    state: Mutex<State>,
    clock: Option<Arc<dyn Clock>>,
    /// How many calls have begun; watched by [`FakeTools::begun`].
    begun: watch::Sender<usize>,
    /// How many cancels have arrived; watched by calls that hang.
    cancels: watch::Sender<usize>,
}

impl FakeTools {
    /// These tools, all at version 1.0.0; each answers `{}` until told otherwise.
    pub fn new(tools: impl IntoIterator<Item = ToolId>) -> Self {
        let state = State { tools: tools.into_iter().map(|id| (id, Tool::default())).collect(), ..State::default() };
        let (begun, cancels) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { state: Mutex::new(state), clock: None, begun, cancels }
    }

    /// The same, refusing calls whose admission is older than two seconds on this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// A result as most tests want it: answered, measured as nothing said.
    pub fn answered(output: serde_json::Value) -> CallResult {
        let ending =
            CallEnding::Answered { partial: false, output, evidence: None, effects: vec![], artifacts: vec![] };
        CallResult { ending, measured: None, latency_ms: 1 }
    }

    /// What the tool does with every call that no script answers.
    pub fn on<F, A>(&self, tool: &ToolId, behaviour: F)
    where
        F: Fn(CallOrder, mpsc::Sender<CallProgress>) -> A + Send + Sync + 'static,
        A: Future<Output = CallResult> + Send + 'static,
    {
        let behaviour: Behaviour = Arc::new(move |order, progress| Box::pin(behaviour(order, progress)));
        self.state().tools.entry(tool.clone()).or_default().behaviour = behaviour;
    }

    /// Answers for the next calls of the tool, in order.
    pub fn script(&self, tool: &ToolId, results: impl IntoIterator<Item = CallResult>) {
        self.state().tools.entry(tool.clone()).or_default().script.extend(results);
    }

    /// What the executor declares about calls of the tool whose outcome is not known; as in the catalog otherwise.
    pub fn declare(&self, tool: &ToolId, recovery: Recovery) {
        self.state().tools.entry(tool.clone()).or_default().declared = Some(recovery);
    }

    /// From now on calls of the tool do not end before they are cancelled.
    pub fn hang(&self, tool: &ToolId) {
        let never = |_, _| Box::pin(std::future::pending::<CallResult>()) as Answer;
        self.state().tools.entry(tool.clone()).or_default().behaviour = Arc::new(never);
    }

    /// From now on calls of the tool go on although they are cancelled.
    pub fn deafen(&self, tool: &ToolId) {
        self.state().deaf.push(tool.clone());
    }

    /// How many calls of the tool may run side by side; 0 stands for a full executor or an open circuit.
    pub fn set_permits(&self, tool: &ToolId, permits: usize) {
        self.state().tools.entry(tool.clone()).or_default().permits = Arc::new(Semaphore::new(permits));
    }

    /// What the executor says when it is asked about a call; [`KnownOutcome::NotSeen`] otherwise.
    pub fn set_outcome(&self, call: CallId, outcome: KnownOutcome) {
        self.state().outcomes.insert(call, outcome);
    }

    /// Every call that reached an executor, in order.
    pub fn calls(&self) -> Vec<CallOrder> {
        self.state().calls.clone()
    }

    /// How many calls of this tool reached an executor.
    pub fn count(&self, tool: &ToolId) -> usize {
        self.state().calls.iter().filter(|order| order.tool_id == *tool).count()
    }

    /// Every cancel that arrived, in order.
    pub fn cancelled(&self) -> Vec<CallId> {
        self.state().cancelled.clone()
    }

    /// Waits until `count` calls have reached an executor.
    pub async fn begun(&self, count: usize) {
        // The sender lives in `self`, so the channel cannot close while this waits.
        let _ = self.begun.subscribe().wait_for(|begun| *begun >= count).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Tool {
    fn default() -> Self {
        Self {
            semver: "1.0.0".to_owned(),
            declared: None,
            permits: Arc::new(Semaphore::new(PERMITS_DEFAULT)),
            script: VecDeque::new(),
            behaviour: Arc::new(|_, _| Box::pin(std::future::ready(FakeTools::answered(json!({}))))),
        }
    }
}

#[async_trait]
impl Tools for FakeTools {
    fn configured(&self) -> Vec<(ToolId, String)> {
        self.state().tools.iter().map(|(id, tool)| (id.clone(), tool.semver.clone())).collect()
    }

    fn declared(&self, tool: &ToolId) -> Option<Recovery> {
        self.state().tools.get(tool)?.declared
    }

    fn permit(&self, tool: &ToolId) -> Option<Permit> {
        let permits = Arc::clone(&self.state().tools.get(tool)?.permits);
        permits.try_acquire_owned().ok()
    }

    async fn execute(
        &self,
        admitted: Admitted,
        order: CallOrder,
        permit: Permit,
        progress: mpsc::Sender<CallProgress>,
    ) -> CallResult {
        let not_started = |code: &str, message: &str| CallResult {
            ending: CallEnding::NotStarted { code: code.to_owned(), message: message.to_owned() },
            measured: None,
            latency_ms: 0,
        };
        if self.clock.as_ref().is_some_and(|clock| !admitted.may_be_dispatched(clock.boot())) {
            return not_started("dispatch-window-missed", "the admission is older than two seconds");
        }
        let call_id = order.call_id;
        let deaf = self.state().deaf.contains(&order.tool_id);
        let answer = {
            let mut state = self.state();
            let Some(tool) = state.tools.get_mut(&order.tool_id) else {
                return not_started("executor-unreachable", "no executor serves this tool");
            };
            let answer: Answer = match tool.script.pop_front() {
                Some(result) => Box::pin(std::future::ready(result)),
                None => (tool.behaviour)(order.clone(), progress),
            };
            state.calls.push(order);
            answer
        };
        let mut cancels = self.cancels.subscribe();
        self.begun.send_modify(|begun| *begun += 1);
        let cancelled = async { cancels.wait_for(|_| self.state().cancelled.contains(&call_id)).await.is_ok() };
        let result = tokio::select! {
            biased;
            true = cancelled, if !deaf => CallResult { ending: CallEnding::Cancelled, measured: None, latency_ms: 1 },
            result = answer => result,
        };
        drop(permit);
        result
    }

    async fn cancel(&self, _tool: &ToolId, call: CallId) {
        self.state().cancelled.push(call);
        self.cancels.send_modify(|cancels| *cancels += 1);
    }

    async fn outcome(&self, _tool: &ToolId, call: CallId) -> KnownOutcome {
        self.state().outcomes.get(&call).cloned().unwrap_or(KnownOutcome::NotSeen)
    }
}
