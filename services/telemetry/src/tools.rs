//! Tools that count what they are asked.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::ids::{CallId, ToolId};
use signalbox_domain::registry::{DescribedTool, ExecutorDenial, ExecutorRegistration, RegisteredExecutor};
use signalbox_domain::run::step::CallResult;
use signalbox_ports::journal::Admitted;
use signalbox_ports::tools::{CallOrder, CallProgress, KnownOutcome, Permit, Tools};
use tokio::sync::mpsc;

use crate::metrics::{Metrics, OfTool};

/// Tools in front of others.
pub(crate) struct MeteredTools {
    tools: Arc<dyn Tools>,
    metrics: Metrics,
}

impl MeteredTools {
    pub(crate) fn new(tools: Arc<dyn Tools>, metrics: Metrics) -> Self {
        Self { tools, metrics }
    }
}

#[async_trait]
impl Tools for MeteredTools {
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
        let permit = self.tools.permit(tool);
        if permit.is_none() {
            self.metrics.counts.executor_busy.get_or_create(&OfTool { tool: tool.to_string() }).inc();
        }
        permit
    }

    async fn execute(
        &self,
        admitted: Admitted,
        order: CallOrder,
        permit: Permit,
        progress: mpsc::Sender<CallProgress>,
    ) -> CallResult {
        let labels = OfTool { tool: order.tool_id.to_string() };
        let began = Instant::now();
        let result = self.tools.execute(admitted, order, permit, progress).await;
        self.metrics.times.call_seconds.get_or_create(&labels).observe(began.elapsed().as_secs_f64());
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
