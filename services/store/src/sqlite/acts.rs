//! Acts of management and their records.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::governance::budget::EndedWindow;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::ids::{BudgetId, RunId, RunKey, TenantId};
use signalbox_domain::registry::AgentRegistry;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::acts::{
    AUDIT_ROWS_MAX, Act, Acted, Acts, AuditFilter, Done, Effect, PAUSED_RUNS_MAX, SwitchReach, WINDOWS_MAX, record,
};
use signalbox_ports::journal::StoreError;
use signalbox_ports::keys::{KeyMade, too_many_keys};
use sqlx::sqlite::{SqliteConnection, SqliteExecutor};
use uuid::Uuid;

use super::feedback::put_gold;
use super::governance::{put_budget, retire_budget, write_change};
use super::rows::{blob, failed};
use super::{SqliteStore, keys, schedules, webhooks};
use crate::acts::{audit_event, audit_head, ended_window, left, named_run, over};
use crate::governance::incarnation_and_epoch;
use crate::rows::{count, int};

#[async_trait]
impl Acts for SqliteStore {
    async fn audit_head(&self) -> Result<AuditHead, StoreError> {
        read_head(&self.readers).await
    }

    async fn act(&self, act: Act) -> Result<Acted, StoreError> {
        let clock = Arc::clone(&self.clock);
        // The writer's transaction is the exclusive lock: no append can be in one at the same time.
        self.writer.transact(move |conn| Box::pin(async move { do_act(conn, &act, clock.now_micros()).await })).await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEvent>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM audit_events WHERE seq > ?1 AND (?2 IS NULL OR subject = ?2) AND (?3 IS NULL OR tenant = ?3) \
             ORDER BY seq LIMIT ?4",
        )
        .bind(int(filter.after_seq))
        .bind(filter.subject.as_ref().map(Subject::as_str))
        .bind(filter.tenant_id.as_ref().map(TenantId::as_str))
        .bind(int(filter.limit.min(AUDIT_ROWS_MAX) as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read the audit journal"))?;
        rows.iter().map(audit_event).collect()
    }

    async fn last_act(&self, subject: &Subject) -> Result<Option<AuditEvent>, StoreError> {
        let row = sqlx::query("SELECT * FROM audit_events WHERE subject = ? ORDER BY seq DESC LIMIT 1")
            .bind(subject.as_str())
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("read the audit journal"))?;
        row.as_ref().map(audit_event).transpose()
    }

    async fn reach(&self, switch: &KillSwitch, registry: &AgentRegistry) -> Result<SwitchReach, StoreError> {
        let killed = sqlx::query("SELECT COUNT(*) AS runs FROM run_dashboard WHERE killed_by = ?")
            .bind(switch.switch_id.as_str())
            .fetch_one(&self.readers)
            .await
            .map_err(failed("count runs"))?;
        let killed = count(&killed, "runs").map_err(StoreError::Unavailable)?;
        if !switch.scope.is_of_runs() {
            return Ok(SwitchReach { killed, left: 0 });
        }
        let groups = sqlx::query(concat!(
            "SELECT tenant, root_agent_id, COUNT(*) AS runs FROM run_dashboard WHERE status NOT IN ",
            over!(),
            " AND (?1 IS NULL OR tenant = ?1) GROUP BY tenant, root_agent_id"
        ))
        .bind(switch.tenant_id.as_ref().map(TenantId::as_str))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("count runs"))?;
        Ok(SwitchReach { killed, left: left(switch, registry, &groups)? })
    }

    async fn paused_runs(
        &self,
        tenant: Option<&TenantId>,
        after: Option<RunKey>,
    ) -> Result<Vec<(RunKey, TenantId, RunId)>, StoreError> {
        let rows = sqlx::query(
            "SELECT r.run_key, r.tenant, r.run_id FROM run_dashboard AS d JOIN runs AS r ON r.run_key = d.run_key \
             WHERE d.status = 'paused' AND (?1 IS NULL OR d.tenant = ?1) AND d.run_key > ?2 ORDER BY d.run_key LIMIT ?3",
        )
        .bind(tenant.map(TenantId::as_str))
        .bind(blob(after.map_or(Uuid::nil(), |key| key.uuid())))
        .bind(int(PAUSED_RUNS_MAX as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read paused runs"))?;
        rows.iter().map(named_run).collect()
    }

    async fn ended_windows(&self, budget: &BudgetId, limit: usize) -> Result<Vec<EndedWindow>, StoreError> {
        let rows = sqlx::query("SELECT * FROM meter_windows WHERE budget_id = ? ORDER BY starts DESC LIMIT ?")
            .bind(budget.as_str())
            .bind(int(limit.min(WINDOWS_MAX) as u64))
            .fetch_all(&self.readers)
            .await
            .map_err(failed("read windows"))?;
        rows.iter().map(ended_window).collect()
    }
}

async fn read_head<'e>(on: impl SqliteExecutor<'e>) -> Result<AuditHead, StoreError> {
    let row = sqlx::query("SELECT seq, at, hash FROM audit_head").fetch_one(on).await;
    audit_head(&row.map_err(failed("read the end of the audit journal"))?)
}

async fn read_epoch(conn: &mut SqliteConnection) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT incarnation, epoch FROM store_meta").fetch_one(conn).await;
    Ok(incarnation_and_epoch(&row.map_err(failed("read the epoch"))?)?.1)
}

async fn do_act(conn: &mut SqliteConnection, act: &Act, now: UnixMicros) -> Result<Acted, StoreError> {
    let head = read_head(&mut *conn).await?;
    if head.seq != act.expected_seq || read_epoch(conn).await? != act.expected_epoch {
        return Ok(Acted::Stale);
    }
    let change = match &act.effect {
        Effect::Change(change) => {
            Some(write_change(conn, change.clone(), act.actor.actor_id.as_str(), now.ms()).await?)
        }
        Effect::PutBudget(budget) => put_budget(conn, budget, act.actor.actor_id.as_str(), now).await?,
        Effect::RetireBudget(budget) => {
            retire_budget(conn, budget).await?;
            None
        }
        Effect::SendAgain(webhook, again) => {
            webhooks::send_again(conn, webhook, again, now.ms()).await?;
            None
        }
        Effect::PutGoldSetEntry(entry) => {
            put_gold(conn, entry).await?;
            None
        }
        Effect::MakeApiKey(key) => match keys::make(conn, key).await? {
            KeyMade::Made => None,
            KeyMade::TooMany => return Err(too_many_keys()),
        },
        Effect::RevokeApiKey(tenant, key, revoked) => {
            keys::revoke(conn, tenant.as_str(), *key, revoked).await?;
            None
        }
        Effect::PutFires(fires) => {
            schedules::put_fires(conn, fires, now.ms()).await?;
            None
        }
    };
    let epoch = change.as_ref().map_or(act.expected_epoch, |change| change.epoch);
    let event = record(&head, act, now, epoch)?;
    write_record(conn, &event).await?;
    webhooks::tell_act(conn, &event).await?;
    Ok(Acted::Done(Box::new(Done { event, change })))
}

async fn write_record(conn: &mut SqliteConnection, event: &AuditEvent) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO audit_events (seq, at, tenant, actor_id, actor_role, kind, subject, version, epoch, body, prev_hash, \
         hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(int(event.seq))
    .bind(event.at.0)
    .bind(event.tenant_id.as_ref().map(TenantId::as_str))
    .bind(event.actor.actor_id.as_str())
    .bind(event.actor.role.as_str())
    .bind(event.kind.as_str())
    .bind(event.subject.as_str())
    .bind(event.version)
    .bind(int(event.epoch))
    .bind(event.body.as_slice())
    .bind(event.prev_hash.0.as_slice())
    .bind(event.hash.0.as_slice())
    .execute(&mut *conn)
    .await
    .map_err(failed("record an act"))?;
    sqlx::query("UPDATE audit_head SET seq = ?, at = ?, hash = ?")
        .bind(int(event.seq))
        .bind(event.at.0)
        .bind(event.hash.0.as_slice())
        .execute(conn)
        .await
        .map_err(failed("move the end of the audit journal on"))?;
    Ok(())
}
