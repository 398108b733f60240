//! What is said of finished runs, and what is kept of them to try versions on.

use signalbox_domain::feedback::gold_set::{self, DurableGoldSetEntryRow, GoldSetFacts, PromoteGold};
use signalbox_domain::feedback::outcome::{FeedbackKind, RunFeedback, check_feedback};
use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::ids::{GoldSetEntryId, GoldSetId, RunId};
use signalbox_domain::quantity::Micros;
use signalbox_ports::acts::Effect;
use signalbox_ports::feedback::GoldSetEntryOf;

use super::NodeHandle;
use super::governing::{Decided, Draft, operator};
use crate::api::{ApiError, Caller};

impl NodeHandle {
    /// Keeps what the caller says of a finished run that it may see. Saying it twice is harmless.
    pub async fn record_feedback(
        &self,
        caller: &Caller,
        run_id: RunId,
        kind: FeedbackKind,
        score: Option<Micros>,
    ) -> Result<(), ApiError> {
        let (head, run) = self.find_whole(caller, run_id).await?;
        let now = self.inner.shared.clock.now();
        check_feedback(&caller.actor, kind, score, run.finished_at.map(|at| at.ms()), now)?;
        let said = RunFeedback { run_key: head.run_key, actor: caller.actor.clone(), kind, score, at: now };
        Ok(self.inner.ports.feedback.say(said).await?)
    }

    /// Puts the input of a completed run of the caller's tenant into a gold set (FBK-015).
    pub async fn promote_gold(&self, caller: &Caller, wish: PromoteGold) -> Result<DurableGoldSetEntryRow, ApiError> {
        gold_set::check_curator(operator(caller))?;
        gold_set::check_wish(&wish)?;
        let (_, run) = self.find_whole(caller, wish.source_run_id).await?;
        let hash = gold_set::input_hash(&run.inputs).map_err(gold_set::GoldDenial::from)?;
        let entry_id = GoldSetEntryId::new(self.inner.ports.ids.fresh());
        let (wish, run, hash) = (&wish, &run, hash.as_str());
        let (row, _) = self
            .act(caller, move |_| async move {
                let facts: GoldSetFacts =
                    self.inner.ports.feedback.gold_set(&run.tenant_id, &wish.gold_set_id, hash).await?;
                let now = self.inner.shared.clock.now();
                let row = gold_set::promote(wish, run, facts, entry_id, operator(caller), now)?;
                // The row itself is where it belongs; the record says which it is.
                let after = serde_json::json!({
                    "entryId": row.entry_id, "goldSetId": row.gold_set_id, "inputHash": row.input_hash,
                    "sourceRunId": row.source_run_id, "agentId": row.agent_id, "agentSemver": row.agent_semver,
                });
                let draft = Draft {
                    tenant_id: Some(run.tenant_id.clone()),
                    kind: AuditKind::GoldSetEntryPromoted,
                    subject: Subject::gold_set(&row.gold_set_id),
                    body: AuditBody {
                        reason: format!("run {} is an example to go by", row.source_run_id),
                        after: Some(after),
                        ..AuditBody::default()
                    },
                    effect: Effect::PutGoldSetEntry(Box::new(GoldSetEntryOf {
                        tenant_id: run.tenant_id.clone(),
                        row: row.clone(),
                    })),
                };
                Ok(Decided::Act(Box::new(draft), row))
            })
            .await?;
        Ok(row)
    }

    /// Entries of a gold set of the caller's tenant, behind one.
    pub async fn gold_entries(
        &self,
        caller: &Caller,
        set: &GoldSetId,
        after: Option<GoldSetEntryId>,
        limit: usize,
    ) -> Result<Vec<DurableGoldSetEntryRow>, ApiError> {
        gold_set::check_curator(operator(caller))?;
        Ok(self.inner.ports.feedback.gold_entries(&caller.tenant_id, set, after, limit).await?)
    }
}
