//! Tools that tell each call as a span, and tell the executor which one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::ids::{CallId, ToolId};
use signalbox_domain::registry::{DescribedTool, ExecutorDenial, ExecutorRegistration, RegisteredExecutor};
use signalbox_domain::run::step::CallResult;
use signalbox_domain::run::trace::TraceContext;
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::Admitted;
use signalbox_ports::tools::{CallOrder, CallProgress, KnownOutcome, Permit, Tools};
use tokio::sync::mpsc;

use super::spans::Times;
use super::{Traces, spans};

/// Tools in front of others.
pub(super) struct TracedTools {
    tools: Arc<dyn Tools>,
    clock: Arc<dyn Clock>,
    traces: Traces,
}

impl TracedTools {
    pub(super) fn new(tools: Arc<dyn Tools>, clock: Arc<dyn Clock>, traces: Traces) -> Self {
        Self { tools, clock, traces }
    }
}

#[async_trait]
impl Tools for TracedTools {
    fn configured(&self) -> Vec<(ToolId, String)> {
        self.tools.configured()
    }

    fn semver(&self, tool: &ToolId) -> Option<String> {
        self.tools.semver(tool)
    }

    fn declared(&self, tool: &ToolId) -> Option<Recovery> {
        self.tools.declared(tool)
    }

    fn permit(&self, tool: &ToolId) -> Option<Permit> {
        self.tools.permit(tool)
    }

    async fn execute(
        &self,
        admitted: Admitted,
        mut order: CallOrder,
        permit: Permit,
        progress: mpsc::Sender<CallProgress>,
    ) -> CallResult {
        let run = admitted.run_key();
        let call = TraceContext::of_call(run, order.call_id, order.attempt);
        let sampled = self.traces.records(&call);
        order.trace = Some(TraceContext { sampled, ..call });
        if !sampled {
            return self.tools.execute(admitted, order, permit, progress).await;
        }
        let dispatched = SystemTime::now();
        let waited = self.clock.boot().0.saturating_sub(admitted.append_began().0);
        let admitted_at = dispatched.checked_sub(Duration::from_nanos(waited)).unwrap_or(dispatched);
        let (event, told) = (admitted.event().clone(), order.clone());
        let result = self.tools.execute(admitted, order, permit, progress).await;
        let times = Times { admitted: admitted_at, dispatched, ended: SystemTime::now() };
        self.traces.record(spans::called(run, &event, &told, &result, times));
        result
    }

    async fn cancel(&self, tool: &ToolId, call: CallId) {
        self.tools.cancel(tool, call).await;
    }

    async fn describe(&self, executor: &ExecutorRegistration) -> Result<Vec<DescribedTool>, ExecutorDenial> {
        self.tools.describe(executor).await
    }

    fn follow(&self, executors: &[RegisteredExecutor]) {
        self.tools.follow(executors);
    }

    async fn outcome(&self, tool: &ToolId, call: CallId) -> KnownOutcome {
        self.tools.outcome(tool, call).await
    }
}
