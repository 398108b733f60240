//! Deliveries of webhooks.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::params;
use signalbox_domain::governance::audit::AuditEvent;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::ids::{NodeIncarnation, TenantId, WebhookId};
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;
use signalbox_ports::webhooks::{
    Again, Attempted, ClaimedWebhook, DEAD_KEPT_MS, DELIVERED_KEPT_MS, DELIVERIES_MAX, Deliveries, Delivery,
    FORGOTTEN_MAX, Place, Told, told_of_act,
};
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::direct::Transaction;
use super::rows::{blob, failed};
use crate::rows::{count, int};
use crate::webhooks::{claimed, delivery, delivery_columns, first_of_its_line, run_of, state_number, wanted_of};

const TELL: &str = "INSERT INTO webhook_deliveries (webhook_id, run_key, subject, seq, part, event_type, tenant, hash, once, \
    queued_at_ms, state, attempts, next_at_ms) SELECT webhook_id, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, 0, ?9 \
    FROM webhook_wants WHERE event_type = ?5 AND (tenant = '' OR tenant = ?6) ON CONFLICT DO NOTHING";

/// Writes a delivery for each webhook that wants what a batch tells.
pub(super) fn tell(conn: &Transaction<'_>, told: &[Told], now: UnixMs) -> Result<(), StoreError> {
    for told in told {
        let place = &told.place;
        let row = params![
            run_of(place).into_bytes(),
            place.subject,
            int(place.seq),
            place.part,
            told.event_type.as_str(),
            told.tenant_id.as_ref().map(TenantId::as_str),
            told.hash.0,
            told.once,
            now.0,
        ];
        conn.execute("write deliveries", TELL, row)?;
    }
    Ok(())
}

/// Writes a delivery for each webhook that wants what an act tells.
pub(super) async fn tell_act(conn: &mut SqliteConnection, act: &AuditEvent) -> Result<(), StoreError> {
    let Some(told) = told_of_act(act) else { return Ok(()) };
    sqlx::query(TELL)
        .bind(blob(run_of(&told.place)))
        .bind(told.place.subject)
        .bind(int(told.place.seq))
        .bind(told.place.part)
        .bind(told.event_type.as_str())
        .bind(told.tenant_id.as_ref().map(TenantId::as_str))
        .bind(told.hash.0.as_slice())
        .bind(told.once)
        .bind(act.at.ms().0)
        .execute(conn)
        .await
        .map_err(failed("write deliveries"))?;
    Ok(())
}

/// What a governance change means for deliveries: what is written from now on, what is given up, and what goes.
pub(super) async fn follow(conn: &mut SqliteConnection, change: &GovernanceChange) -> Result<(), StoreError> {
    let Some((id, put)) = change.of_webhook() else { return Ok(()) };
    let mut statements = vec!["DELETE FROM webhook_wants WHERE webhook_id = ?"];
    match put {
        Some(webhook) => {
            statements.push("INSERT INTO webhooks (webhook_id, lease_epoch) VALUES (?, 0) ON CONFLICT DO NOTHING");
            if !webhook.enabled {
                statements.push("UPDATE webhook_deliveries SET state = 2 WHERE webhook_id = ? AND state = 0");
            }
        }
        None => statements.extend([
            "DELETE FROM webhooks WHERE webhook_id = ?",
            "DELETE FROM webhook_deliveries WHERE webhook_id = ?",
        ]),
    }
    for statement in statements {
        let done = sqlx::query(statement).bind(id.as_str()).execute(&mut *conn).await;
        done.map_err(failed("follow a webhook"))?;
    }
    for webhook in put.into_iter().filter(|webhook| webhook.enabled) {
        for event_type in &webhook.events {
            let insert = sqlx::query("INSERT INTO webhook_wants (event_type, tenant, webhook_id) VALUES (?, ?, ?)")
                .bind(event_type.as_str())
                .bind(wanted_of(webhook))
                .bind(id.as_str());
            insert.execute(&mut *conn).await.map_err(failed("follow a webhook"))?;
        }
    }
    Ok(())
}

/// Lets deliveries wait again from the start.
pub(super) async fn send_again(
    conn: &mut SqliteConnection,
    webhook: &WebhookId,
    again: &Again,
    now: UnixMs,
) -> Result<(), StoreError> {
    let sent = match again {
        Again::Since(since) => sqlx::query(
            "UPDATE webhook_deliveries SET state = 0, attempts = 0, first_at_ms = NULL, next_at_ms = ?1 \
             WHERE webhook_id = ?2 AND state <> 0 AND queued_at_ms >= ?3",
        )
        .bind(now.0)
        .bind(webhook.as_str())
        .bind(since.0),
        Again::One { hash, part } => sqlx::query(
            "UPDATE webhook_deliveries SET state = 0, attempts = 0, first_at_ms = NULL, next_at_ms = ?1 \
             WHERE webhook_id = ?2 AND state <> 0 AND hash = ?3 AND part = ?4",
        )
        .bind(now.0)
        .bind(webhook.as_str())
        .bind(hash.0.to_vec())
        .bind(*part),
    };
    sent.execute(conn).await.map_err(failed("let deliveries wait again"))?;
    Ok(())
}

#[async_trait]
impl Deliveries for SqliteStore {
    async fn claim_webhooks(&self, node: NodeIncarnation) -> Result<Vec<ClaimedWebhook>, StoreError> {
        let (session, now, boot) = (self.session, self.clock.now(), int(self.clock.boot().0));
        self.writer
            .transact(move |conn| {
                Box::pin(async move {
                    let holds: i64 = sqlx::query_scalar(
                        "SELECT count(*) FROM nodes WHERE incarnation = ? AND session = ? AND given_up = 0 \
                         AND ends_boot > ?",
                    )
                    .bind(blob(node.uuid()))
                    .bind(session)
                    .bind(boot)
                    .fetch_one(&mut *conn)
                    .await
                    .map_err(failed("read a lease"))?;
                    if holds == 0 {
                        return Ok(Vec::new());
                    }
                    // Only the owner's column differs: a claim of its own is given to a node as it is.
                    let rows = sqlx::query(
                        "UPDATE webhooks SET lease_epoch = lease_epoch + (owner_incarnation IS NOT ?1), \
                         owner_incarnation = ?1 WHERE (owner_incarnation IS NULL OR owner_incarnation = ?1 \
                         OR owner_incarnation NOT IN (SELECT incarnation FROM nodes WHERE session = ?2 AND given_up = 0)) \
                         AND EXISTS (SELECT 1 FROM webhook_deliveries AS d WHERE d.webhook_id = webhooks.webhook_id \
                         AND d.state = 0 AND d.next_at_ms <= ?3) RETURNING webhook_id, lease_epoch",
                    )
                    .bind(blob(node.uuid()))
                    .bind(session)
                    .bind(now.0)
                    .fetch_all(conn)
                    .await
                    .map_err(failed("claim webhooks"))?;
                    rows.iter().map(|row| claimed(row, node)).collect()
                })
            })
            .await
    }

    async fn due(&self, claim: &ClaimedWebhook, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        let rows = sqlx::query(concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM webhook_deliveries AS d JOIN webhooks AS w ON w.webhook_id = d.webhook_id WHERE d.webhook_id = ?1 \
             AND w.owner_incarnation = ?2 AND w.lease_epoch = ?3 AND d.state = 0 AND d.next_at_ms <= ?4 AND ",
            first_of_its_line!(),
            " ORDER BY d.next_at_ms, d.run_key, d.subject LIMIT ?5"
        ))
        .bind(claim.webhook_id.as_str())
        .bind(blob(claim.node.uuid()))
        .bind(int(claim.lease_epoch))
        .bind(self.clock.now().0)
        .bind(int(limit.min(DELIVERIES_MAX) as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read deliveries"))?;
        rows.iter().map(delivery).collect()
    }

    async fn note_attempt(
        &self,
        claim: &ClaimedWebhook,
        place: &Place,
        attempt: Attempted,
    ) -> Result<bool, StoreError> {
        let (claim, place) = (claim.clone(), place.clone());
        self.writer
            .transact(move |conn| {
                Box::pin(async move {
                    let noted = sqlx::query(
                        "UPDATE webhook_deliveries SET state = ?1, attempts = attempts + 1, \
                         first_at_ms = COALESCE(first_at_ms, ?2), next_at_ms = ?3, last_at_ms = ?2, last_status = ?4, \
                         last_problem = ?5 WHERE webhook_id = ?6 AND run_key = ?7 AND subject = ?8 AND seq = ?9 \
                         AND part = ?10 AND state = 0 AND EXISTS (SELECT 1 FROM webhooks AS w WHERE w.webhook_id = ?6 \
                         AND w.owner_incarnation = ?11 AND w.lease_epoch = ?12)",
                    )
                    .bind(state_number(attempt.state))
                    .bind(attempt.at.0)
                    .bind(attempt.next_at.0)
                    .bind(attempt.status)
                    .bind(attempt.problem)
                    .bind(claim.webhook_id.to_string())
                    .bind(blob(run_of(&place)))
                    .bind(place.subject)
                    .bind(int(place.seq))
                    .bind(place.part)
                    .bind(blob(claim.node.uuid()))
                    .bind(int(claim.lease_epoch))
                    .execute(conn)
                    .await
                    .map_err(failed("note an attempt"))?;
                    Ok(noted.rows_affected() > 0)
                })
            })
            .await
    }

    async fn deliveries(&self, webhook: &WebhookId, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        let rows = sqlx::query(concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM webhook_deliveries AS d WHERE d.webhook_id = ?1 \
             ORDER BY d.queued_at_ms DESC, d.run_key DESC, d.subject DESC, d.seq DESC, d.part DESC LIMIT ?2"
        ))
        .bind(webhook.as_str())
        .bind(int(limit.min(DELIVERIES_MAX) as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read deliveries"))?;
        rows.iter().map(delivery).collect()
    }

    async fn count_again(&self, webhook: &WebhookId, again: &Again) -> Result<u64, StoreError> {
        let query = match again {
            Again::Since(since) => sqlx::query(
                "SELECT COUNT(*) AS deliveries FROM webhook_deliveries WHERE webhook_id = ? AND state <> 0 \
                 AND queued_at_ms >= ?",
            )
            .bind(webhook.as_str())
            .bind(since.0),
            Again::One { hash, part } => sqlx::query(
                "SELECT COUNT(*) AS deliveries FROM webhook_deliveries WHERE webhook_id = ? AND state <> 0 \
                 AND hash = ? AND part = ?",
            )
            .bind(webhook.as_str())
            .bind(hash.0.to_vec())
            .bind(*part),
        };
        let row = query.fetch_one(&self.readers).await.map_err(failed("count deliveries"))?;
        count(&row, "deliveries").map_err(StoreError::Unavailable)
    }

    async fn forget_deliveries(&self) -> Result<usize, StoreError> {
        let clock = Arc::clone(&self.clock);
        self.writer
            .transact(move |conn| {
                Box::pin(async move {
                    let now = clock.now();
                    sqlx::query("UPDATE webhook_deliveries SET state = 2 WHERE state = 0 AND queued_at_ms < ?")
                        .bind(now.plus_ms(-DEAD_KEPT_MS).0)
                        .execute(&mut *conn)
                        .await
                        .map_err(failed("give deliveries up"))?;
                    // Queued before it was last tried: what is looked for is found by the index, and then looked at.
                    let gone = sqlx::query(
                        "DELETE FROM webhook_deliveries WHERE (webhook_id, run_key, subject, seq, part) IN (\
                         SELECT webhook_id, run_key, subject, seq, part FROM webhook_deliveries \
                         WHERE (state = 1 AND queued_at_ms < ?1 AND COALESCE(last_at_ms, queued_at_ms) < ?1) \
                         OR (state = 2 AND queued_at_ms < ?2 AND COALESCE(last_at_ms, queued_at_ms) < ?2) LIMIT ?3)",
                    )
                    .bind(now.plus_ms(-DELIVERED_KEPT_MS).0)
                    .bind(now.plus_ms(-DEAD_KEPT_MS).0)
                    .bind(int(FORGOTTEN_MAX as u64))
                    .execute(conn)
                    .await
                    .map_err(failed("forget deliveries"))?;
                    Ok(usize::try_from(gone.rows_affected()).unwrap_or(usize::MAX))
                })
            })
            .await
    }
}
