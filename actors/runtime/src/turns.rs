//! Models beside the executors: a turn goes out, is cut off and comes back as any other call does, through one door.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::ids::{CallId, ProviderId, ToolId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::redact::redact_value;
use signalbox_domain::registry::{DescribedTool, ExecutorDenial, ExecutorRegistration, RegisteredExecutor};
use signalbox_domain::run::model_step::{ModelAnswer, Pricing, answer_value, is_turn};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::Admitted;
use signalbox_ports::models::{ModelError, Models, TurnOrder};
use signalbox_ports::tools::{CallOrder, CallProgress, KnownOutcome, Permit, Tools};
use tokio::sync::mpsc;

/// The executors, with the models among them.
pub(crate) struct WithModels {
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) models: Arc<dyn Models>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl WithModels {
    async fn turn(
        &self,
        admitted: Admitted,
        order: CallOrder,
        permit: Permit,
        progress: mpsc::Sender<CallProgress>,
    ) -> CallResult {
        let began = self.clock.boot();
        let named = |key: &str| order.args.get(key).and_then(Value::as_str).unwrap_or_default();
        let ended = |ending, measured| CallResult { ending, measured, latency_ms: self.clock.boot().ms_since(began) };
        let (Ok(provider_id), model_id) = (ProviderId::new(named("provider")), named("model").to_owned()) else {
            return ended(failed("model-not-bound", "the turn names no provider".to_owned()), None);
        };
        let Some(bound) = self.models.bound(&provider_id, &model_id) else {
            let message = format!("`{model_id}` of `{provider_id}` is not configured on this node");
            return ended(failed("model-not-configured", message), None);
        };
        let turn = TurnOrder {
            call_id: order.call_id,
            tenant_id: order.tenant_id.clone(),
            provider_id,
            model_id,
            timeout_ms: order.timeout_ms,
            args: order.args,
        };
        match self.models.turn(admitted, turn, permit, progress).await {
            Ok(answer) => {
                let measured = measured(&answer, &bound.pricing);
                // Nothing of an answer is read before it is redacted, so that a proposal is what the journal keeps of it.
                let output = tokio::task::spawn_blocking(move || redact_value(&answer_value(&answer)).0).await;
                match output {
                    Ok(output) => ended(answered(output), measured),
                    Err(_) => ended(failed("internal", "the answer could not be read".to_owned()), measured),
                }
            }
            Err(error) => ended(ending_of(error), None),
        }
    }
}

fn measured(answer: &ModelAnswer, pricing: &Pricing) -> Option<Vec<(BudgetCategory, f64)>> {
    let usage = answer.usage?;
    let booked = pricing.usage(usage.input_tokens, usage.output_tokens);
    // An amount is at most 2^53 micro-units wherever it is believed, and is judged by the charge policy like any report.
    Some(booked.iter().map(|(category, Micros(micros))| (category, micros as f64 / 1_000_000.0)).collect())
}

const fn answered(output: Value) -> CallEnding {
    CallEnding::Answered { partial: false, output, evidence: None, effects: Vec::new(), artifacts: Vec::new() }
}

fn failed(code: &str, message: String) -> CallEnding {
    CallEnding::Failed { code: code.to_owned(), message }
}

fn ending_of(error: ModelError) -> CallEnding {
    match error {
        ModelError::NotStarted { code, message } => CallEnding::NotStarted { code: code.to_owned(), message },
        ModelError::Transient { code, message } | ModelError::Terminal { code, message } => failed(code, message),
        ModelError::Lost { message } => CallEnding::Unknown { message },
        ModelError::Cancelled => CallEnding::Cancelled,
    }
}

#[async_trait]
impl Tools for WithModels {
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
        if is_turn(tool) { self.models.permit() } else { self.tools.permit(tool) }
    }
    async fn execute(
        &self,
        admitted: Admitted,
        order: CallOrder,
        permit: Permit,
        progress: mpsc::Sender<CallProgress>,
    ) -> CallResult {
        if is_turn(&order.tool_id) {
            return self.turn(admitted, order, permit, progress).await;
        }
        self.tools.execute(admitted, order, permit, progress).await
    }
    async fn cancel(&self, tool: &ToolId, call: CallId) {
        if is_turn(tool) {
            return self.models.cancel(call).await;
        }
        self.tools.cancel(tool, call).await;
    }
    async fn describe(&self, executor: &ExecutorRegistration) -> Result<Vec<DescribedTool>, ExecutorDenial> {
        self.tools.describe(executor).await
    }
    fn follow(&self, executors: &[RegisteredExecutor]) {
        self.tools.follow(executors);
    }
    async fn outcome(&self, tool: &ToolId, call: CallId) -> KnownOutcome {
        // Nobody keeps what a model has said to a node that is gone.
        if is_turn(tool) { KnownOutcome::NotKept } else { self.tools.outcome(tool, call).await }
    }
}
