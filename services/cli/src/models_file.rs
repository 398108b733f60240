//! Models by configuration: how each is reached, where it works, and what its tokens cost.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use signalbox_domain::ids::{ProviderId, RegionId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::model_step::Pricing;
use signalbox_models::{ConfiguredModels, KeySource, ModelKind, ModelSpec, OpenAiEndpoint};
use signalbox_ports::clock::Clock;
use signalbox_ports::secrets::SecretValue;

use crate::failure::Failure;
use crate::secrets::Source;

/// How long a turn may take unless its entry says otherwise.
const TIMEOUT_SECONDS_DEFAULT: u64 = 120;
/// The longest that an entry may say.
const TIMEOUT_SECONDS_MAX: u64 = 600;
/// Most attempts of one turn.
const ATTEMPTS_MAX: u32 = 6;

/// A model in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ModelEntry {
    /// Who serves it, as agents name it in their binding.
    pub(crate) provider_id: ProviderId,
    /// Its name there.
    pub(crate) model_id: String,
    /// How it is reached.
    kind: Kind,
    /// Where the provider answers.
    base_url: Option<String>,
    /// What the provider calls the model; its `modelId` if left out.
    upstream_model: Option<String>,
    /// Where the key comes from.
    key: Option<Source>,
    /// True if the way to an http endpoint beyond this machine is safe.
    #[serde(default)]
    plain_http: bool,
    /// Where it works: what a switch on a region matches.
    region: Option<RegionId>,
    /// Cost units for 1 000 tokens read.
    input_cost_per_1k: Option<Micros>,
    /// Cost units for 1 000 tokens written.
    output_cost_per_1k: Option<Micros>,
    /// How long a turn may take.
    timeout_seconds: Option<u64>,
    /// How often a turn is tried.
    attempts: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Offline,
    OpenaiCompatible,
}

impl ModelEntry {
    /// What names it in the file.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.provider_id, self.model_id)
    }

    /// The error says what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.spec().map(drop)
    }

    fn spec(&self) -> Result<ModelSpec, String> {
        if self.model_id.is_empty() || self.model_id.len() > 200 {
            return Err("modelId must have 1 to 200 characters".to_owned());
        }
        let seconds = self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS_DEFAULT);
        if !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds) {
            return Err(format!("timeoutSeconds must be from 1 to {TIMEOUT_SECONDS_MAX}"));
        }
        let usual = Pricing::default();
        let pricing = Pricing {
            input_per_1k: self.input_cost_per_1k.unwrap_or(usual.input_per_1k),
            output_per_1k: self.output_cost_per_1k.unwrap_or(usual.output_per_1k),
            external: self.kind == Kind::OpenaiCompatible,
        };
        if pricing.input_per_1k < Micros::ZERO || pricing.output_per_1k < Micros::ZERO {
            return Err("a price may not be negative".to_owned());
        }
        let kind = match self.kind {
            Kind::Offline if self.base_url.is_some() || self.key.is_some() => {
                return Err("an offline model has neither baseUrl nor key".to_owned());
            }
            Kind::Offline => ModelKind::Offline,
            Kind::OpenaiCompatible => ModelKind::OpenAi(self.endpoint()?),
        };
        Ok(ModelSpec {
            provider: self.provider_id.clone(),
            model: self.model_id.clone(),
            region: self.region.clone(),
            pricing,
            timeout: Duration::from_secs(seconds),
            kind,
        })
    }

    fn endpoint(&self) -> Result<OpenAiEndpoint, String> {
        let base = self.base_url.as_deref().ok_or("baseUrl is missing, such as https://models.example/v1")?;
        let upstream = self.upstream_model.clone().unwrap_or_else(|| self.model_id.clone());
        let mut endpoint = OpenAiEndpoint::new(base, upstream, self.plain_http).map_err(|error| error.to_string())?;
        endpoint.attempts = self.attempts.unwrap_or(endpoint.attempts);
        if !(1..=ATTEMPTS_MAX).contains(&endpoint.attempts) {
            return Err(format!("attempts must be from 1 to {ATTEMPTS_MAX}"));
        }
        endpoint.key = self.key.clone().map(|source| -> KeySource {
            Arc::new(move || source.read().map(|mut value| SecretValue::new(std::mem::take(&mut *value))))
        });
        Ok(endpoint)
    }
}

/// The models of a node.
pub(crate) fn models(entries: &[ModelEntry], clock: Arc<dyn Clock>) -> Result<ConfiguredModels, Failure> {
    let specs: Result<Vec<_>, String> = entries.iter().map(ModelEntry::spec).collect();
    let specs = specs.map_err(|problem| Failure::usage("config-invalid", problem))?;
    ConfiguredModels::new(specs, clock).map_err(|error| Failure::new("web-client-unavailable", error.to_string()))
}
