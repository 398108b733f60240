//! What a submission says in clear, on its way to where it may lie (OVL-013).

use signalbox_domain::run::event::RunSubmitted;
use signalbox_domain::run::sealed::Part;

use super::NodeHandle;
use crate::api::ApiError;
use crate::values;

impl NodeHandle {
    /// The submission as it may be kept; what its redaction changed is sealed first.
    pub(super) async fn seal(&self, submitted: RunSubmitted) -> Result<RunSubmitted, ApiError> {
        let shared = &self.inner.shared;
        let (mut submitted, raw) = values::conceal(submitted).await?;
        // A repeat has its seals already.
        if raw.is_empty() || shared.store.find(&submitted.tenant_id, submitted.run_id).await?.is_some() {
            return Ok(submitted);
        }
        for (part, document) in raw {
            let (tenant, run_key) = (&submitted.tenant_id, submitted.run_key);
            let sealed = values::seal(shared, tenant, run_key, &part, &document).await?;
            let at = sealed.map_err(ApiError::Unsealable)?;
            match part {
                Part::Inputs => submitted.sealed.inputs = Some(at),
                Part::Step(step) => {
                    submitted.sealed.steps.insert(step, at);
                }
            }
        }
        Ok(submitted)
    }
}
