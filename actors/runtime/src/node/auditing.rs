//! Reading the audit journal.

use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::identity::Role;
use signalbox_ports::acts::{AUDIT_ROWS_MAX, AuditFilter};

use super::NodeHandle;
use super::governing::check_operator;
use crate::api::{ApiError, Caller};

impl NodeHandle {
    /// Acts after one, oldest first: a tenant's operator is shown those on its tenant's rules.
    pub async fn audit(
        &self,
        caller: &Caller,
        after_seq: u64,
        subject: Option<Subject>,
        limit: usize,
    ) -> Result<Vec<AuditEvent>, ApiError> {
        check_operator(caller)?;
        let tenant_id = (caller.actor.role != Role::PlatformOperator).then(|| caller.tenant_id.clone());
        let filter = AuditFilter { after_seq, subject, tenant_id, limit };
        Ok(self.inner.ports.acts.audit(&filter).await?)
    }

    /// The whole audit journal and where it ends. A part of it could not be told from a forged one, so it is for those who may
    /// see all of it.
    pub async fn export_audit(&self, caller: &Caller) -> Result<(Vec<AuditEvent>, AuditHead), ApiError> {
        if caller.actor.role != Role::PlatformOperator {
            return Err(ApiError::OperatorsOnly(caller.actor.role.as_str()));
        }
        // The end first: what is done meanwhile is not part of this export.
        let head = self.inner.ports.acts.audit_head().await?;
        let mut events: Vec<AuditEvent> = Vec::new();
        loop {
            let after_seq = events.last().map_or(0, |last| last.seq);
            let filter = AuditFilter { after_seq, limit: AUDIT_ROWS_MAX, ..AuditFilter::default() };
            let page = self.inner.ports.acts.audit(&filter).await?;
            let over = page.is_empty() || after_seq >= head.seq;
            events.extend(page.into_iter().filter(|event| event.seq <= head.seq));
            if over {
                return Ok((events, head));
            }
        }
    }
}
