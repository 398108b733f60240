//! Values on their way into the journal and out of it: redacted, and kept in the object store if they are big.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use signalbox_domain::ids::{StepId, TenantId};
use signalbox_domain::redact::redact_value;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::StoredValue;
use signalbox_ports::blobs::{Blobs, INLINE_BYTES_MAX};
use signalbox_ports::journal::StoreError;

/// Keeps a redacted copy; the bytes are durable before the journal names them.
pub(crate) async fn keep(blobs: &dyn Blobs, tenant: &TenantId, value: &Value) -> Result<StoredValue, StoreError> {
    let (redacted, _) = redact_value(value);
    let bytes = redacted.to_string().into_bytes();
    if bytes.len() <= INLINE_BYTES_MAX {
        return Ok(StoredValue::Inline(redacted));
    }
    let size = bytes.len() as u64;
    let sha256 = blobs.put(tenant, bytes.into()).await?;
    Ok(StoredValue::Blob { sha256, size })
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
