//! The way to models. A turn is a call like any other: asking consumes an [`Admitted`], and whoever asks answers with what the
//! model proposes. What becomes of a proposal is not decided here.

use async_trait::async_trait;
use serde_json::Value;
use signalbox_domain::ids::{CallId, ProviderId, RegionId, TenantId};
use signalbox_domain::run::model_step::{ModelAnswer, Pricing};
use tokio::sync::mpsc;

use crate::journal::Admitted;
use crate::tools::{CallProgress, Permit};

/// A model that this node can ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundModel {
    /// Where it works, if the operator says so: what a switch on a region matches.
    pub region: Option<RegionId>,
    /// What its tokens cost.
    pub pricing: Pricing,
    /// How long one turn may take, with all that is tried again in it.
    pub timeout_ms: u64,
}

/// What a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOrder {
    /// The call that the turn is.
    pub call_id: CallId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// Who serves the model.
    pub provider_id: ProviderId,
    /// Which model.
    pub model_id: String,
    /// The whole of what was said, as the journal keeps it: `messages`, `tools`, `maxTokens`, `temperatureMicros`.
    pub args: Value,
    /// How long it may take.
    pub timeout_ms: u64,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Nothing was sent, and the same may be asked again at once.
    #[error("{message}")]
    NotStarted {
        /// Stable code.
        code: &'static str,
        /// In words.
        message: String,
    },
    /// The provider is away or overloaded, beyond what was tried again: another model may answer (REG-043).
    #[error("{message}")]
    Transient {
        /// `model-unavailable`, `model-overloaded` or `model-timeout`.
        code: &'static str,
        /// In words, without anything secret.
        message: String,
    },
    /// Asking again would change nothing.
    #[error("{message}")]
    Terminal {
        /// Stable code, such as `model-refused`.
        code: &'static str,
        /// In words, without anything secret.
        message: String,
    },
    /// It was asked, and what it said is not known: it is charged in full.
    #[error("{message}")]
    Lost {
        /// In words.
        message: String,
    },
    /// It was cut off on our demand.
    #[error("the turn was cancelled")]
    Cancelled,
}

/// The models.
#[async_trait]
pub trait Models: Send + Sync + 'static {
    /// The model of this name, if it is configured.
    fn bound(&self, provider: &ProviderId, model: &str) -> Option<BoundModel>;
    /// A permit for one turn, or `None`: as many as may are under way.
    fn permit(&self) -> Option<Permit>;
    /// Asks, once it is admitted. If the admission is older than two seconds it answers [`ModelError::NotStarted`] with code
    /// `dispatch-window-missed`. Lines of progress are what the model says while it says it.
    async fn turn(
        &self,
        admitted: Admitted,
        order: TurnOrder,
        permit: Permit,
        progress: mpsc::Sender<CallProgress>,
    ) -> Result<ModelAnswer, ModelError>;
    /// Cuts a turn off. Idempotent.
    async fn cancel(&self, call: CallId);
}

/// A node that knows no model.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoModels;

#[async_trait]
impl Models for NoModels {
    fn bound(&self, _: &ProviderId, _: &str) -> Option<BoundModel> {
        None
    }
    fn permit(&self) -> Option<Permit> {
        None
    }
    async fn turn(
        &self,
        _: Admitted,
        _: TurnOrder,
        _: Permit,
        _: mpsc::Sender<CallProgress>,
    ) -> Result<ModelAnswer, ModelError> {
        let message = "this node knows no model".to_owned();
        Err(ModelError::NotStarted { code: "model-not-configured", message })
    }
    async fn cancel(&self, _: CallId) {}
}
