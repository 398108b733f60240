//! Feedback on runs, and gold sets.

use async_trait::async_trait;
use signalbox_domain::feedback::gold_set::{DurableGoldSetEntryRow, GoldSetFacts};
use signalbox_domain::feedback::outcome::{OutcomeGroup, RunFeedback};
use signalbox_domain::ids::{GoldSetEntryId, GoldSetId, RolloutId, RunKey, TenantId};
use signalbox_domain::time::UnixMs;
use signalbox_ports::feedback::{Feedback, GOLD_ENTRIES_PAGE_MAX, GoldSetEntryOf};
use signalbox_ports::governance::check_readable;
use signalbox_ports::journal::StoreError;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::SqliteStore;
use super::rows::{blob, failed};
use crate::cells::Cells as _;
use crate::feedback::{outcome_group, outcomes, run_feedback};
use crate::rows::{count, int, json};

#[async_trait]
impl Feedback for SqliteStore {
    async fn outcomes(&self, rollout: &RolloutId, open_since: UnixMs) -> Result<Vec<OutcomeGroup>, StoreError> {
        let rows = sqlx::query(outcomes!("?1", "?2"))
            .bind(rollout.as_str())
            .bind(open_since.micros().0)
            .fetch_all(&self.readers)
            .await
            .map_err(failed("count outcomes"))?;
        rows.iter().map(|row| outcome_group(row).map_err(StoreError::Unavailable)).collect()
    }

    async fn say(&self, feedback: RunFeedback) -> Result<(), StoreError> {
        self.writer.transact(move |conn| Box::pin(async move { say(conn, &feedback).await })).await
    }

    async fn said(&self, run: RunKey) -> Result<Vec<RunFeedback>, StoreError> {
        let rows = sqlx::query("SELECT * FROM run_feedback WHERE run_key = ? ORDER BY at_ms, actor_id, said")
            .bind(blob(run.uuid()))
            .fetch_all(&self.readers)
            .await
            .map_err(failed("read feedback"))?;
        rows.iter().map(|row| run_feedback(run, row).map_err(StoreError::Unavailable)).collect()
    }

    async fn gold_set(&self, tenant: &TenantId, set: &GoldSetId, input_hash: &str) -> Result<GoldSetFacts, StoreError> {
        let row = sqlx::query(
            "SELECT (SELECT entry_id FROM gold_set_entries WHERE tenant = ?1 AND gold_set_id = ?2 AND input_hash = ?3) \
             AS same_input, (SELECT COUNT(*) FROM gold_set_entries WHERE tenant = ?1 AND gold_set_id = ?2) AS entries",
        )
        .bind(tenant.as_str())
        .bind(set.as_str())
        .bind(input_hash)
        .fetch_one(&self.readers)
        .await
        .map_err(failed("look into a gold set"))?;
        let facts = || -> Result<_, String> {
            let same_input = row.id_or_null("same_input")?.map(GoldSetEntryId::new);
            Ok(GoldSetFacts { same_input, entries: count(&row, "entries")? })
        };
        facts().map_err(StoreError::Unavailable)
    }

    async fn gold_entries(
        &self,
        tenant: &TenantId,
        set: &GoldSetId,
        after: Option<GoldSetEntryId>,
        limit: usize,
    ) -> Result<Vec<DurableGoldSetEntryRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT body FROM gold_set_entries WHERE tenant = ?1 AND gold_set_id = ?2 AND entry_id > ?3 \
             ORDER BY entry_id LIMIT ?4",
        )
        .bind(tenant.as_str())
        .bind(set.as_str())
        .bind(blob(after.map_or(Uuid::nil(), |entry| entry.uuid())))
        .bind(int(limit.min(GOLD_ENTRIES_PAGE_MAX) as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read a gold set"))?;
        rows.iter().map(|row| json(row, "body").map_err(StoreError::Unavailable)).collect()
    }
}

async fn say(conn: &mut SqliteConnection, feedback: &RunFeedback) -> Result<(), StoreError> {
    let known: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM runs WHERE run_key = ?)")
        .bind(blob(feedback.run_key.uuid()))
        .fetch_one(&mut *conn)
        .await
        .map_err(failed("find a run"))?;
    if !known {
        return Err(StoreError::Poison("there is no such run".into()));
    }
    sqlx::query(
        "INSERT INTO run_feedback (run_key, actor_id, said, actor_role, score_micros, at_ms) VALUES (?, ?, ?, ?, ?, ?) \
         ON CONFLICT (run_key, actor_id, said) DO UPDATE SET actor_role = excluded.actor_role, \
         score_micros = excluded.score_micros, at_ms = excluded.at_ms WHERE excluded.said = 'evaluation'",
    )
    .bind(blob(feedback.run_key.uuid()))
    .bind(feedback.actor.actor_id.as_str())
    .bind(feedback.kind.as_str())
    .bind(feedback.actor.role.as_str())
    .bind(feedback.score.map(|score| score.0))
    .bind(feedback.at.0)
    .execute(conn)
    .await
    .map_err(failed("keep feedback"))?;
    Ok(())
}

/// Writes an entry of a gold set, unless the set has its input.
pub(super) async fn put_gold(conn: &mut SqliteConnection, entry: &GoldSetEntryOf) -> Result<(), StoreError> {
    let GoldSetEntryOf { tenant_id, row } = entry;
    let taken: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM gold_set_entries \
         WHERE entry_id = ?1 OR (tenant = ?2 AND gold_set_id = ?3 AND input_hash = ?4))",
    )
    .bind(blob(row.entry_id.uuid()))
    .bind(tenant_id.as_str())
    .bind(row.gold_set_id.as_str())
    .bind(row.input_hash.as_str())
    .fetch_one(&mut *conn)
    .await
    .map_err(failed("look into a gold set"))?;
    if taken {
        return Err(StoreError::Poison("the gold set has this entry already".into()));
    }
    sqlx::query(
        "INSERT INTO gold_set_entries (entry_id, tenant, gold_set_id, input_hash, body) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(blob(row.entry_id.uuid()))
    .bind(tenant_id.as_str())
    .bind(row.gold_set_id.as_str())
    .bind(row.input_hash.as_str())
    .bind(check_readable(row)?)
    .execute(conn)
    .await
    .map_err(failed("keep an entry of a gold set"))?;
    Ok(())
}
