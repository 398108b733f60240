//! Deliveries of webhooks.
//!
//! Appends write them in the statement that writes everything else, under the shared governance lock: which webhooks there
//! are cannot change meanwhile.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::governance::audit::AuditEvent;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::ids::{NodeIncarnation, TenantId, WebhookId};
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;
use signalbox_ports::webhooks::{
    Again, Attempted, ClaimedWebhook, DEAD_KEPT_MS, DELIVERED_KEPT_MS, DELIVERIES_MAX, Deliveries, Delivery,
    FORGOTTEN_MAX, Place, Told, told_of_act,
};
use sqlx::PgConnection;

use super::errors::{Problem, failed};
use super::store_clock::server_now;
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::{PostgresStore, Shared};
use crate::rows::{count, int};
use crate::webhooks::{claimed, delivery, delivery_columns, first_of_its_line, run_of, state_number, wanted_of};

/// Writes a delivery for each webhook that wants what is told.
pub(super) async fn tell(conn: &mut PgConnection, told: &[Told], now: UnixMs) -> Result<(), Problem> {
    for told in told {
        sqlx::query(
            "INSERT INTO webhook_deliveries (webhook_id, run_key, subject, seq, part, event_type, tenant, hash, once, \
             queued_at_ms, state, attempts, next_at_ms) SELECT webhook_id, $1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, $9 \
             FROM webhook_wants WHERE event_type = $5 AND (tenant = '' OR tenant = $6) ON CONFLICT DO NOTHING",
        )
        .bind(run_of(&told.place))
        .bind(told.place.subject.as_str())
        .bind(int(told.place.seq))
        .bind(i64::from(told.place.part))
        .bind(told.event_type.as_str())
        .bind(told.tenant_id.as_ref().map(TenantId::as_str))
        .bind(told.hash.0.as_slice())
        .bind(told.once.as_deref())
        .bind(now.0)
        .execute(&mut *conn)
        .await
        .map_err(failed("write deliveries"))?;
    }
    Ok(())
}

/// Writes a delivery for each webhook that wants what an act tells.
pub(super) async fn tell_act(conn: &mut PgConnection, act: &AuditEvent) -> Result<(), Problem> {
    tell(conn, told_of_act(act).as_slice(), act.at.ms()).await
}

/// What a governance change means for deliveries: what is written from now on, what is given up, and what goes.
pub(super) async fn follow(conn: &mut PgConnection, change: &GovernanceChange) -> Result<(), Problem> {
    let Some((id, put)) = change.of_webhook() else { return Ok(()) };
    let mut statements = vec!["DELETE FROM webhook_wants WHERE webhook_id = $1"];
    match put {
        Some(webhook) => {
            statements.push("INSERT INTO webhooks (webhook_id, lease_epoch) VALUES ($1, 0) ON CONFLICT DO NOTHING");
            if !webhook.enabled {
                statements.push("UPDATE webhook_deliveries SET state = 2 WHERE webhook_id = $1 AND state = 0");
            }
        }
        None => statements.extend([
            "DELETE FROM webhooks WHERE webhook_id = $1",
            "DELETE FROM webhook_deliveries WHERE webhook_id = $1",
        ]),
    }
    for statement in statements {
        let done = sqlx::query(statement).bind(id.as_str()).execute(&mut *conn).await;
        done.map_err(failed("follow a webhook"))?;
    }
    if let Some(webhook) = put.filter(|webhook| webhook.enabled) {
        sqlx::query("INSERT INTO webhook_wants (event_type, tenant, webhook_id) SELECT UNNEST($1::text[]), $2, $3")
            .bind(webhook.events.iter().map(|event_type| event_type.as_str()).collect::<Vec<_>>())
            .bind(wanted_of(webhook))
            .bind(id.as_str())
            .execute(conn)
            .await
            .map_err(failed("follow a webhook"))?;
    }
    Ok(())
}

/// Lets deliveries wait again from the start.
pub(super) async fn send_again(
    conn: &mut PgConnection,
    webhook: &WebhookId,
    again: &Again,
    now: UnixMs,
) -> Result<(), Problem> {
    let sent = match again {
        Again::Since(since) => sqlx::query(
            "UPDATE webhook_deliveries SET state = 0, attempts = 0, first_at_ms = NULL, next_at_ms = $1 \
             WHERE webhook_id = $2 AND state <> 0 AND queued_at_ms >= $3",
        )
        .bind(now.0)
        .bind(webhook.as_str())
        .bind(since.0),
        Again::One { hash, part } => sqlx::query(
            "UPDATE webhook_deliveries SET state = 0, attempts = 0, first_at_ms = NULL, next_at_ms = $1 \
             WHERE webhook_id = $2 AND state <> 0 AND hash = $3 AND part = $4",
        )
        .bind(now.0)
        .bind(webhook.as_str())
        .bind(hash.0.to_vec())
        .bind(i64::from(*part)),
    };
    sent.execute(conn).await.map_err(failed("let deliveries wait again"))?;
    Ok(())
}

#[async_trait]
impl Deliveries for PostgresStore {
    async fn claim_webhooks(&self, node: NodeIncarnation) -> Result<Vec<ClaimedWebhook>, StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                // Its own claims are given to a node as they are, so asking twice is harmless.
                if let Some(claimed) = attempts.settle_repeatable(claim_once(&shared, node).await).await? {
                    return Ok(claimed);
                }
            }
        })
        .await
    }

    async fn due(&self, claim: &ClaimedWebhook, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        let query = sqlx::query(concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM webhook_deliveries AS d JOIN webhooks AS w ON w.webhook_id = d.webhook_id WHERE d.webhook_id = $1 \
             AND w.owner_incarnation = $2 AND w.lease_epoch = $3 AND d.state = 0 \
             AND d.next_at_ms <= COALESCE($4::int8, ",
            server_now!(),
            ") / 1000 AND ",
            first_of_its_line!(),
            " ORDER BY d.next_at_ms, d.run_key, d.subject LIMIT $5"
        ))
        .bind(claim.webhook_id.as_str())
        .bind(claim.node.uuid())
        .bind(int(claim.lease_epoch))
        .bind(self.shared.clock.injected())
        .bind(int(limit.min(DELIVERIES_MAX) as u64));
        self.shared.control_readers.all("read deliveries", query).await?.iter().map(delivery).collect()
    }

    async fn note_attempt(
        &self,
        claim: &ClaimedWebhook,
        place: &Place,
        attempt: Attempted,
    ) -> Result<bool, StoreError> {
        let (shared, claim, place) = (Arc::clone(&self.shared), claim.clone(), place.clone());
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                match attempts.settle(note_once(&shared, &claim, &place, &attempt).await).await? {
                    None => {}
                    Some(Ended::Committed(noted)) => return Ok(noted),
                    // Whether it is noted or not, it is sent again at worst.
                    Some(Ended::Lost(_, why)) => return Err(StoreError::Unknown(why)),
                }
            }
        })
        .await
    }

    async fn deliveries(&self, webhook: &WebhookId, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        let query = sqlx::query(concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM webhook_deliveries AS d WHERE d.webhook_id = $1 \
             ORDER BY d.queued_at_ms DESC, d.run_key DESC, d.subject DESC, d.seq DESC, d.part DESC LIMIT $2"
        ))
        .bind(webhook.as_str())
        .bind(int(limit.min(DELIVERIES_MAX) as u64));
        self.shared.control_readers.all("read deliveries", query).await?.iter().map(delivery).collect()
    }

    async fn count_again(&self, webhook: &WebhookId, again: &Again) -> Result<u64, StoreError> {
        let query = match again {
            Again::Since(since) => sqlx::query(
                "SELECT COUNT(*) AS deliveries FROM webhook_deliveries WHERE webhook_id = $1 AND state <> 0 \
                 AND queued_at_ms >= $2",
            )
            .bind(webhook.as_str())
            .bind(since.0),
            Again::One { hash, part } => sqlx::query(
                "SELECT COUNT(*) AS deliveries FROM webhook_deliveries WHERE webhook_id = $1 AND state <> 0 \
                 AND hash = $2 AND part = $3",
            )
            .bind(webhook.as_str())
            .bind(hash.0.to_vec())
            .bind(i64::from(*part)),
        };
        let row = self.shared.control_readers.first("count deliveries", query).await?;
        let missing = || StoreError::Unavailable("deliveries cannot be counted".into());
        count(&row.ok_or_else(missing)?, "deliveries").map_err(StoreError::Unavailable)
    }

    async fn forget_deliveries(&self) -> Result<usize, StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                if let Some(gone) = attempts.settle_repeatable(forget_once(&shared).await).await? {
                    return Ok(gone);
                }
            }
        })
        .await
    }
}

async fn claim_once(shared: &Shared, node: NodeIncarnation) -> Result<Ended<Vec<ClaimedWebhook>>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        let now = shared.clock.now(conn).await?;
        // A claim needs a lease that nobody gives up in the middle.
        let held: Option<bool> =
            sqlx::query_scalar("SELECT NOT given_up AND expires_at > $2 FROM nodes WHERE incarnation = $1 FOR SHARE")
                .bind(node.uuid())
                .bind(now.0)
                .fetch_optional(&mut *conn)
                .await
                .map_err(failed("lock a lease"))?;
        if held != Some(true) {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(
            "UPDATE webhooks SET lease_epoch = lease_epoch + (owner_incarnation IS DISTINCT FROM $1)::int, \
             owner_incarnation = $1 WHERE webhook_id = ANY(ARRAY(SELECT w.webhook_id FROM webhooks AS w \
             WHERE (w.owner_incarnation IS NULL OR w.owner_incarnation = $1 OR NOT EXISTS (SELECT 1 FROM nodes AS n \
             WHERE n.incarnation = w.owner_incarnation AND NOT n.given_up)) \
             AND EXISTS (SELECT 1 FROM webhook_deliveries AS d WHERE d.webhook_id = w.webhook_id AND d.state = 0 \
             AND d.next_at_ms <= $2) ORDER BY w.webhook_id FOR UPDATE SKIP LOCKED)) RETURNING webhook_id, lease_epoch",
        )
        .bind(node.uuid())
        .bind(now.ms().0)
        .fetch_all(conn)
        .await
        .map_err(failed("claim webhooks"))?;
        Ok(rows.iter().map(|row| claimed(row, node)).collect::<Result<_, _>>()?)
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

async fn note_once(
    shared: &Shared,
    claim: &ClaimedWebhook,
    place: &Place,
    attempt: &Attempted,
) -> Result<Ended<bool>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    // The row of the webhook is locked: whoever claims it waits, and nobody notes under an older claim after that.
    let noted = sqlx::query(
        "UPDATE webhook_deliveries SET state = $1, attempts = attempts + 1, \
         first_at_ms = COALESCE(first_at_ms, $2), next_at_ms = $3, last_at_ms = $2, last_status = $4, last_problem = $5 \
         WHERE webhook_id = $6 AND run_key = $7 AND subject = $8 AND seq = $9 AND part = $10 AND state = 0 \
         AND EXISTS (SELECT 1 FROM webhooks AS w WHERE w.webhook_id = $6 AND w.owner_incarnation = $11 \
         AND w.lease_epoch = $12 FOR SHARE)",
    )
    .bind(state_number(attempt.state))
    .bind(attempt.at.0)
    .bind(attempt.next_at.0)
    .bind(attempt.status.map(i64::from))
    .bind(attempt.problem.as_ref().map(|problem| problem.as_bytes()))
    .bind(claim.webhook_id.as_str())
    .bind(run_of(place))
    .bind(place.subject.as_str())
    .bind(int(place.seq))
    .bind(i64::from(place.part))
    .bind(claim.node.uuid())
    .bind(int(claim.lease_epoch))
    .execute(transaction.conn()?);
    let outcome = in_time(async {
        let noted = noted.await.map_err(failed("note an attempt"))?;
        Ok(noted.rows_affected() > 0)
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

async fn forget_once(shared: &Shared) -> Result<Ended<usize>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        let now = shared.clock.now(conn).await?.ms();
        sqlx::query("UPDATE webhook_deliveries SET state = 2 WHERE state = 0 AND queued_at_ms < $1")
            .bind(now.plus_ms(-DEAD_KEPT_MS).0)
            .execute(&mut *conn)
            .await
            .map_err(failed("give deliveries up"))?;
        let gone = sqlx::query(
            "DELETE FROM webhook_deliveries WHERE (webhook_id, run_key, subject, seq, part) IN (\
             SELECT webhook_id, run_key, subject, seq, part FROM webhook_deliveries \
             WHERE (state = 1 AND queued_at_ms < $1 AND COALESCE(last_at_ms, queued_at_ms) < $1) \
             OR (state = 2 AND queued_at_ms < $2 AND COALESCE(last_at_ms, queued_at_ms) < $2) LIMIT $3)",
        )
        .bind(now.plus_ms(-DELIVERED_KEPT_MS).0)
        .bind(now.plus_ms(-DEAD_KEPT_MS).0)
        .bind(int(FORGOTTEN_MAX as u64))
        .execute(conn)
        .await
        .map_err(failed("forget deliveries"))?;
        Ok(usize::try_from(gone.rows_affected()).unwrap_or(usize::MAX))
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}
