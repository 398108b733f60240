//! Acts of management and their records. An act holds the governance lock alone, like every governance change.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::governance::budget::EndedWindow;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::ids::{BudgetId, RunId, RunKey, TenantId};
use signalbox_domain::registry::AgentRegistry;
use signalbox_ports::acts::{
    AUDIT_ROWS_MAX, Act, Acted, Acts, AuditFilter, Done, Effect, PAUSED_RUNS_MAX, SwitchReach, WINDOWS_MAX, record,
};
use signalbox_ports::journal::StoreError;
use signalbox_ports::keys::{KeyMade, too_many_keys};
use sqlx::PgConnection;
use uuid::Uuid;

use super::errors::{Problem, failed};
use super::feedback::put_gold;
use super::governance::{put_budget, retire_budget, write_change};
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::{PostgresStore, Shared, keys, schedules, webhooks};
use crate::acts::{audit_event, audit_head, ended_window, left, named_run, over};
use crate::rows::{count, int};

const HEAD: &str = "SELECT seq, at, hash FROM audit_head";

#[async_trait]
impl Acts for PostgresStore {
    async fn audit_head(&self) -> Result<AuditHead, StoreError> {
        let row = self.shared.control_readers.first("read the end of the audit journal", sqlx::query(HEAD)).await?;
        audit_head(&row.ok_or_else(missing)?)
    }

    async fn act(&self, act: Act) -> Result<Acted, StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            let mut lost: Vec<Acted> = Vec::new();
            loop {
                match attempts.settle(act_once(&shared, &act, &lost).await).await? {
                    None => {}
                    Some(Ended::Committed(acted)) => return Ok(acted),
                    Some(Ended::Lost(acted, why)) => {
                        attempts.was_lost(why).await?;
                        lost.push(acted);
                    }
                }
            }
        })
        .await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEvent>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM audit_events WHERE seq > $1 AND ($2::text IS NULL OR subject = $2) \
             AND ($3::text IS NULL OR tenant = $3) ORDER BY seq LIMIT $4",
        )
        .bind(int(filter.after_seq))
        .bind(filter.subject.as_ref().map(Subject::as_str))
        .bind(filter.tenant_id.as_ref().map(TenantId::as_str))
        .bind(int(filter.limit.min(AUDIT_ROWS_MAX) as u64));
        self.shared.control_readers.all("read the audit journal", query).await?.iter().map(audit_event).collect()
    }

    async fn last_act(&self, subject: &Subject) -> Result<Option<AuditEvent>, StoreError> {
        let query = sqlx::query("SELECT * FROM audit_events WHERE subject = $1 ORDER BY seq DESC LIMIT 1");
        let row = self.shared.control_readers.first("read the audit journal", query.bind(subject.as_str())).await?;
        row.as_ref().map(audit_event).transpose()
    }

    async fn reach(&self, switch: &KillSwitch, registry: &AgentRegistry) -> Result<SwitchReach, StoreError> {
        let query = sqlx::query("SELECT COUNT(*) AS runs FROM run_dashboard WHERE killed_by = $1")
            .bind(switch.switch_id.as_str());
        let row = self.shared.readers.first("count runs", query).await?.ok_or_else(missing)?;
        let killed = count(&row, "runs").map_err(StoreError::Unavailable)?;
        if !switch.scope.is_of_runs() {
            return Ok(SwitchReach { killed, left: 0 });
        }
        let query = sqlx::query(concat!(
            "SELECT tenant, root_agent_id, COUNT(*) AS runs FROM run_dashboard WHERE status NOT IN ",
            over!(),
            " AND ($1::text IS NULL OR tenant = $1) GROUP BY tenant, root_agent_id"
        ))
        .bind(switch.tenant_id.as_ref().map(TenantId::as_str));
        let groups = self.shared.readers.all("count runs", query).await?;
        Ok(SwitchReach { killed, left: left(switch, registry, &groups)? })
    }

    async fn paused_runs(
        &self,
        tenant: Option<&TenantId>,
        after: Option<RunKey>,
    ) -> Result<Vec<(RunKey, TenantId, RunId)>, StoreError> {
        let query = sqlx::query(
            "SELECT r.run_key, r.tenant, r.run_id FROM run_dashboard AS d JOIN runs AS r ON r.run_key = d.run_key \
             WHERE d.status = 'paused' AND ($1::text IS NULL OR d.tenant = $1) AND d.run_key > $2 \
             ORDER BY d.run_key LIMIT $3",
        )
        .bind(tenant.map(TenantId::as_str))
        .bind(after.map_or(Uuid::nil(), |key| key.uuid()))
        .bind(int(PAUSED_RUNS_MAX as u64));
        self.shared.readers.all("read paused runs", query).await?.iter().map(named_run).collect()
    }

    async fn ended_windows(&self, budget: &BudgetId, limit: usize) -> Result<Vec<EndedWindow>, StoreError> {
        let query = sqlx::query("SELECT * FROM meter_windows WHERE budget_id = $1 ORDER BY starts DESC LIMIT $2")
            .bind(budget.as_str())
            .bind(int(limit.min(WINDOWS_MAX) as u64));
        self.shared.readers.all("read windows", query).await?.iter().map(ended_window).collect()
    }
}

fn missing() -> StoreError {
    StoreError::Unavailable("a row that is always there is missing".into())
}

/// Does an act, unless one of `lost`, whose commits were not answered, turns out to be there: the exclusive lock has waited
/// for those transactions.
async fn act_once(shared: &Shared, act: &Act, lost: &[Acted]) -> Result<Ended<Acted>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::Exclusive).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        for acted in lost {
            if let Acted::Done(done) = acted
                && has_landed(conn, &done.event).await?
            {
                return Ok(acted.clone());
            }
        }
        do_act(conn, shared, act).await
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

async fn has_landed(conn: &mut PgConnection, event: &AuditEvent) -> Result<bool, Problem> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM audit_events WHERE seq = $1 AND hash = $2)")
        .bind(int(event.seq))
        .bind(event.hash.0.as_slice())
        .fetch_one(conn)
        .await
        .map_err(failed("look for an act"))
}

async fn do_act(conn: &mut PgConnection, shared: &Shared, act: &Act) -> Result<Acted, Problem> {
    let now = shared.clock.now(conn).await?;
    let row = sqlx::query(HEAD).fetch_one(&mut *conn).await.map_err(failed("read the end of the audit journal"))?;
    let head = audit_head(&row)?;
    let epoch: i64 = sqlx::query_scalar("SELECT epoch FROM store_meta")
        .fetch_one(&mut *conn)
        .await
        .map_err(failed("read the epoch"))?;
    if head.seq != act.expected_seq || epoch != int(act.expected_epoch) {
        return Ok(Acted::Stale);
    }
    let by = act.actor.actor_id.as_str();
    let change = match &act.effect {
        Effect::Change(change) => Some(write_change(conn, change.clone(), by, now.ms()).await?),
        Effect::PutBudget(budget) => put_budget(conn, budget, by, now).await?,
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
            KeyMade::TooMany => return Err(too_many_keys().into()),
        },
        Effect::RevokeApiKey(tenant, key, revoked) => {
            keys::revoke(conn, tenant, *key, revoked).await?;
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

async fn write_record(conn: &mut PgConnection, event: &AuditEvent) -> Result<(), Problem> {
    sqlx::query(
        "WITH moved AS (UPDATE audit_head SET seq = $1, at = $2, hash = $12) \
         INSERT INTO audit_events (seq, at, tenant, actor_id, actor_role, kind, subject, version, epoch, body, prev_hash, \
         hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    )
    .bind(int(event.seq))
    .bind(event.at.0)
    .bind(event.tenant_id.as_ref().map(TenantId::as_str))
    .bind(event.actor.actor_id.as_str())
    .bind(event.actor.role.as_str())
    .bind(event.kind.as_str())
    .bind(event.subject.as_str())
    .bind(i64::from(event.version))
    .bind(int(event.epoch))
    .bind(event.body.as_slice())
    .bind(event.prev_hash.0.as_slice())
    .bind(event.hash.0.as_slice())
    .execute(conn)
    .await
    .map_err(failed("record an act"))?;
    Ok(())
}
