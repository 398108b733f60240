//! Values on their way into the journal and out of it: redacted, kept in the object store if they are big, and sealed
//! there if they are needed as they came.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use signalbox_domain::canonical::{self, NumberNotExact};
use signalbox_domain::ids::{RunKey, StepId, TenantId};
use signalbox_domain::redact::redact_value;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{RunSubmitted, StoredValue};
use signalbox_domain::run::sealed::{self, Part, SealedRef};
use signalbox_ports::blobs::{Blobs, INLINE_BYTES_MAX};
use signalbox_ports::journal::StoreError;
use signalbox_ports::sealing::{SealContext, SealError};

use crate::run::Shared;

/// A value on its way into the journal: its digest, and what of it may be kept.
pub(crate) struct Looked {
    /// The value as it came.
    pub(crate) value: Value,
    /// The digest of its canonical form.
    pub(crate) digest: Result<String, NumberNotExact>,
    redacted: Redacted,
}

/// A value that may be kept.
pub(crate) struct Redacted {
    value: Value,
    bytes: Vec<u8>,
}

/// Values of more nodes and bytes than this are looked at aside: reading megabytes for secrets takes a while, and the
/// threads that run the actors also send heartbeats.
const ASIDE_FROM: usize = 64 * 1_024;

/// Digests and redacts a value.
pub(crate) async fn look(value: Value) -> Result<Looked, StoreError> {
    if weight(&value, ASIDE_FROM) < ASIDE_FROM {
        return Ok(look_here(value));
    }
    aside(move || look_here(value)).await
}

/// Redacts a value whose digest nobody asks for.
pub(crate) async fn redact(value: &Value) -> Result<Redacted, StoreError> {
    if weight(value, ASIDE_FROM) < ASIDE_FROM {
        return Ok(redact_here(value));
    }
    let value = value.clone();
    aside(move || redact_here(&value)).await
}

async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| StoreError::Unknown(format!("a value could not be looked at: {error}")))
}

/// Redacts a submission; beside it the raw form of what was changed.
pub(crate) async fn conceal(mut submitted: RunSubmitted) -> Result<(RunSubmitted, Vec<(Part, Value)>), StoreError> {
    let documents = submitted.plan.steps.iter().filter_map(|step| step.kind.document());
    let total: usize = documents.chain([&submitted.inputs]).map(|document| weight(document, ASIDE_FROM)).sum();
    let conceal = move || {
        let raw = sealed::conceal(&mut submitted);
        (submitted, raw)
    };
    if total < ASIDE_FROM { Ok(conceal()) } else { aside(conceal).await }
}

/// Keeps a document sealed.
pub(crate) async fn seal(
    shared: &Shared,
    tenant: &TenantId,
    run_key: RunKey,
    part: &Part,
    document: &Value,
) -> Result<Result<SealedRef, SealError>, StoreError> {
    let context = SealContext { tenant_id: tenant.clone(), run_key, part: part.clone() };
    let sealed = match shared.sealing.seal(&context, document.to_string().as_bytes()) {
        Ok(sealed) => sealed,
        Err(error) => return Ok(Err(error)),
    };
    let size = sealed.len() as u64;
    let sha256 = shared.blobs.put(tenant, sealed.into()).await?;
    Ok(Ok(SealedRef { sha256, size, run_key }))
}

/// Documents that were opened, so that each is opened once. Nothing prints them.
#[derive(Default)]
pub(crate) struct Unsealed {
    opened: HashMap<String, Arc<Value>>,
}

impl Unsealed {
    /// A document of a run as its caller said it.
    pub(crate) async fn open(
        &mut self,
        shared: &Shared,
        tenant: &TenantId,
        part: Part,
        at: &SealedRef,
    ) -> Result<Result<Arc<Value>, SealError>, StoreError> {
        if let Some(document) = self.opened.get(&at.sha256) {
            return Ok(Ok(document.clone()));
        }
        let missing = || StoreError::Unavailable(format!("the object {} is not in the object store", at.sha256));
        let bytes = shared.blobs.get(tenant, &at.sha256).await?.ok_or_else(missing)?;
        let context = SealContext { tenant_id: tenant.clone(), run_key: at.run_key, part };
        let plain = match shared.sealing.open(&context, &bytes) {
            Ok(plain) => plain,
            Err(error) => return Ok(Err(error)),
        };
        let Ok(document) = serde_json::from_slice::<Value>(&plain) else { return Ok(Err(SealError::Damaged)) };
        let document = Arc::new(document);
        self.opened.insert(at.sha256.clone(), document.clone());
        Ok(Ok(document))
    }
}

fn look_here(value: Value) -> Looked {
    let digest = canonical::digest(&value);
    let redacted = redact_here(&value);
    Looked { value, digest, redacted }
}

fn redact_here(value: &Value) -> Redacted {
    let (value, _) = redact_value(value);
    let bytes = value.to_string().into_bytes();
    Redacted { value, bytes }
}

// Bytes and nodes of a value, as far as `enough`.
fn weight(value: &Value, enough: usize) -> usize {
    let mut total: usize = 1;
    match value {
        Value::String(text) => total += text.len(),
        Value::Array(items) => {
            for item in items {
                if total >= enough {
                    break;
                }
                total += weight(item, enough - total);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                if total >= enough {
                    break;
                }
                total += key.len() + weight(member, enough.saturating_sub(total));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    total
}

impl Looked {
    /// Keeps the redacted copy; the bytes are durable before the journal names them.
    pub(crate) async fn keep(&self, blobs: &dyn Blobs, tenant: &TenantId) -> Result<StoredValue, StoreError> {
        self.redacted.keep(blobs, tenant).await
    }
}

impl Redacted {
    /// Keeps it; the bytes are durable before the journal names them.
    pub(crate) async fn keep(&self, blobs: &dyn Blobs, tenant: &TenantId) -> Result<StoredValue, StoreError> {
        if self.bytes.len() <= INLINE_BYTES_MAX {
            return Ok(StoredValue::Inline(self.value.clone()));
        }
        let size = self.bytes.len() as u64;
        let sha256 = blobs.put(tenant, self.bytes.clone().into()).await?;
        Ok(StoredValue::Blob { sha256, size })
    }
}

/// The value behind a stored one.
pub(crate) async fn load(blobs: &dyn Blobs, tenant: &TenantId, stored: &StoredValue) -> Result<Value, StoreError> {
    match stored {
        StoredValue::Inline(value) => Ok(value.clone()),
        StoredValue::Blob { sha256, .. } => {
            let missing = || StoreError::Unavailable(format!("the object {sha256} is not in the object store"));
            let bytes = blobs.get(tenant, sha256).await?.ok_or_else(missing)?;
            serde_json::from_slice(&bytes)
                .map_err(|error| StoreError::Unavailable(format!("the object {sha256} is not JSON: {error}")))
        }
    }
}

/// Outputs of finished steps, loaded once. Always the stored form, so that a run goes on after a crash as it would have.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    loaded: HashMap<StepId, (StoredValue, Arc<Value>)>,
}

impl Outputs {
    /// Makes sure that the outputs of these steps can be read with [`Outputs::get`].
    pub(crate) async fn load(
        &mut self,
        blobs: &dyn Blobs,
        run: &RunEnvelope,
        steps: impl IntoIterator<Item = StepId>,
    ) -> Result<(), StoreError> {
        for step in steps {
            let Some(stored) = run.output_of(&step) else { continue };
            if self.loaded.get(&step).is_some_and(|(known, _)| known == stored) {
                continue;
            }
            let value = load(blobs, &run.tenant_id, stored).await?;
            self.loaded.insert(step, (stored.clone(), Arc::new(value)));
        }
        Ok(())
    }

    /// A loaded output.
    pub(crate) fn get(&self, step: &StepId) -> Option<Value> {
        self.loaded.get(step).map(|(_, value)| (**value).clone())
    }
}
