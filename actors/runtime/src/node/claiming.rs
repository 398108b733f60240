//! Submissions that say whose they are. Nobody is believed: the credential alone counts (EXE-007).

use signalbox_domain::ids::{RunId, TenantId};
use signalbox_domain::run::append::NewEvent;
use signalbox_domain::run::event::{GovernanceAudited, RunEvent};
use signalbox_domain::run::submission::Submission;

use super::NodeHandle;
use crate::api::{ApiError, Caller, Submitted};

impl NodeHandle {
    /// Accepts a run whose submission names a tenant. If it is another than the caller's, that is noted in the journal
    /// as `identity-mismatch`, and changes nothing else (EXE-019).
    pub async fn submit_claiming(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
        claimed: TenantId,
    ) -> Result<Submitted, ApiError> {
        let mut noted = Vec::new();
        if claimed != caller.tenant_id {
            let mismatch = GovernanceAudited::IdentityMismatch { claimed_tenant_id: claimed };
            noted.push(NewEvent::system(RunEvent::GovernanceAudited(Box::new(mismatch))));
        }
        self.submit_noting(caller, run_id, submission, Vec::new(), noted).await
    }
}
