//! The models of one node, by provider and name, and the turns that are under way.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use signalbox_domain::ids::{CallId, ProviderId, RegionId};
use signalbox_domain::run::model_step::{ModelAnswer, Pricing};
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::Admitted;
use signalbox_ports::models::{BoundModel, ModelError, Models, TurnOrder};
use signalbox_ports::tools::{CallProgress, Permit};
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::offline;
use crate::openai::{OpenAi, OpenAiEndpoint};

/// Turns that one node has under way at once.
pub const TURNS_AT_ONCE: usize = 32;
/// A turn may begin this long after its append began (I5).
const DISPATCH_WINDOW_MS: u64 = 2_000;

/// One model by configuration.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    /// Who serves it, as agents name it in their binding.
    pub provider: ProviderId,
    /// Its name there.
    pub model: String,
    /// Where it works.
    pub region: Option<RegionId>,
    /// What its tokens cost.
    pub pricing: Pricing,
    /// How long one turn may take.
    pub timeout: Duration,
    /// How it is reached.
    pub kind: ModelKind,
}

/// How a model is reached.
#[derive(Debug, Clone)]
pub enum ModelKind {
    /// Not at all: it follows the script in its prompt, or sums up what it was told.
    Offline,
    /// By the chat completions protocol.
    OpenAi(OpenAiEndpoint),
}

enum Reach {
    Offline,
    OpenAi(OpenAi),
}

struct Configured {
    bound: BoundModel,
    reach: Reach,
}

/// The models of a node.
pub struct ConfiguredModels {
    models: BTreeMap<(String, String), Arc<Configured>>,
    permits: Arc<Semaphore>,
    under_way: Mutex<HashMap<CallId, Arc<Notify>>>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for ConfiguredModels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfiguredModels").field("models", &self.models.keys()).finish_non_exhaustive()
    }
}

impl ConfiguredModels {
    /// Takes over the models of a configuration.
    ///
    /// # Errors
    /// No HTTP client can be made.
    pub fn new(specs: impl IntoIterator<Item = ModelSpec>, clock: Arc<dyn Clock>) -> Result<Self, ModelError> {
        let mut models = BTreeMap::new();
        for spec in specs {
            let timeout_ms = u64::try_from(spec.timeout.as_millis()).unwrap_or(u64::MAX);
            let bound = BoundModel { region: spec.region, pricing: spec.pricing, timeout_ms };
            let reach = match spec.kind {
                ModelKind::Offline => Reach::Offline,
                ModelKind::OpenAi(endpoint) => Reach::OpenAi(OpenAi::new(endpoint)?),
            };
            models.insert((spec.provider.to_string(), spec.model), Arc::new(Configured { bound, reach }));
        }
        let permits = Arc::new(Semaphore::new(TURNS_AT_ONCE));
        Ok(Self { models, permits, under_way: Mutex::default(), clock })
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<CallId, Arc<Notify>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, provider: &ProviderId, model: &str) -> Option<Arc<Configured>> {
        self.models.get(&(provider.to_string(), model.to_owned())).cloned()
    }
}

/// A turn that is no longer under way once this is dropped, however it ended.
struct UnderWay<'a>(&'a ConfiguredModels, CallId);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way().remove(&self.1);
    }
}

#[async_trait]
impl Models for ConfiguredModels {
    fn bound(&self, provider: &ProviderId, model: &str) -> Option<BoundModel> {
        self.find(provider, model).map(|configured| configured.bound.clone())
    }

    fn permit(&self) -> Option<Permit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    async fn turn(
        &self,
        admitted: Admitted,
        order: TurnOrder,
        permit: Permit,
        progress: mpsc::Sender<CallProgress>,
    ) -> Result<ModelAnswer, ModelError> {
        // Kept until the turn is over.
        let _permit = permit;
        let Some(configured) = self.find(&order.provider_id, &order.model_id) else {
            let message = format!("`{}` of `{}` is not configured", order.model_id, order.provider_id);
            return Err(ModelError::Terminal { code: "model-not-configured", message });
        };
        if self.clock.boot().ms_since(admitted.append_began()) > DISPATCH_WINDOW_MS {
            let message = "the admission is older than two seconds".to_owned();
            return Err(ModelError::NotStarted { code: "dispatch-window-missed", message });
        }
        let stop = Arc::new(Notify::new());
        self.under_way().insert(order.call_id, stop.clone());
        let _under_way = UnderWay(self, order.call_id);
        let within = Duration::from_millis(order.timeout_ms);
        let asking = async {
            match &configured.reach {
                Reach::Offline => offline::turn(&order).await,
                Reach::OpenAi(openai) => openai.turn(&order, &progress).await,
            }
        };
        tokio::select! {
            biased;
            () = stop.notified() => Err(ModelError::Cancelled),
            answer = tokio::time::timeout(within, asking) => answer.unwrap_or_else(|_| {
                let message = format!("the model did not answer within {} ms", order.timeout_ms);
                Err(ModelError::Transient { code: "model-timeout", message })
            }),
        }
    }

    async fn cancel(&self, call: CallId) {
        if let Some(stop) = self.under_way().get(&call) {
            // Kept for a turn that is not listening yet.
            stop.notify_one();
        }
    }
}
