//! Deliveries of webhooks as both databases keep them: what their rows mean.

use signalbox_domain::ids::{NodeIncarnation, RunKey, TenantId, WebhookId};
use signalbox_domain::time::UnixMs;
use signalbox_domain::webhook::Webhook;
use signalbox_ports::journal::StoreError;
use signalbox_ports::webhooks::{ClaimedWebhook, Delivery, DeliveryState, Place};
use uuid::Uuid;

use crate::cells::Cells;
use crate::rows::{count, hash, number};

/// The columns [`delivery`] reads.
macro_rules! delivery_columns {
    () => {
        "d.webhook_id, d.run_key, d.subject, d.seq, d.part, d.event_type, d.tenant, d.hash, d.queued_at_ms, d.state, \
         d.attempts, d.first_at_ms, d.next_at_ms, d.last_at_ms, d.last_status, d.last_problem"
    };
}
pub(crate) use delivery_columns;

/// True of a delivery that no earlier one of its line waits before.
macro_rules! first_of_its_line {
    () => {
        "NOT EXISTS (SELECT 1 FROM webhook_deliveries AS e WHERE e.webhook_id = d.webhook_id AND e.run_key = d.run_key \
         AND e.subject = d.subject AND e.state = 0 AND (e.seq, e.part) < (d.seq, d.part))"
    };
}
pub(crate) use first_of_its_line;

/// How a state is kept.
pub(crate) const fn state_number(state: DeliveryState) -> i64 {
    match state {
        DeliveryState::Waiting => 0,
        DeliveryState::Delivered => 1,
        DeliveryState::Dead => 2,
    }
}

/// The run of a place, as it is kept.
pub(crate) fn run_of(place: &Place) -> Uuid {
    place.run_key.map_or(Uuid::nil(), |run| run.uuid())
}

/// The tenant under which a webhook's wants are kept; empty: every tenant's events.
pub(crate) fn wanted_of(webhook: &Webhook) -> &str {
    webhook.tenant_id.as_ref().map_or("", TenantId::as_str)
}

fn unreadable(problem: String) -> StoreError {
    StoreError::Unavailable(format!("a delivery cannot be read: {problem}"))
}

/// Reads [`delivery_columns!`].
pub(crate) fn delivery(row: &impl Cells) -> Result<Delivery, StoreError> {
    let at = |column: &str| Ok::<_, String>(row.int_or_null(column)?.map(UnixMs));
    let parse = || {
        let run = row.id("run_key")?;
        let tenant = row.text_or_null("tenant")?.map(TenantId::new).transpose();
        let status = row.int_or_null("last_status")?.map(u16::try_from).transpose();
        Ok(Delivery {
            webhook_id: WebhookId::new(row.text("webhook_id")?).map_err(|error| error.to_string())?,
            place: Place {
                run_key: (!run.is_nil()).then(|| RunKey::new(run)),
                subject: row.text("subject")?.to_owned(),
                seq: count(row, "seq")?,
                part: number(row, "part")?,
            },
            event_type: row.text("event_type")?.parse().map_err(|error| format!("`event_type`: {error}"))?,
            tenant_id: tenant.map_err(|error| error.to_string())?,
            hash: hash(row, "hash")?,
            queued_at: UnixMs(row.int("queued_at_ms")?),
            state: match row.int("state")? {
                0 => DeliveryState::Waiting,
                1 => DeliveryState::Delivered,
                2 => DeliveryState::Dead,
                other => return Err(format!("`state` cannot be {other}")),
            },
            attempts: number(row, "attempts")?,
            first_at: at("first_at_ms")?,
            next_at: UnixMs(row.int("next_at_ms")?),
            last_at: at("last_at_ms")?,
            last_status: status.map_err(|error| error.to_string())?,
            last_problem: row.prose_or_null("last_problem")?,
        })
    };
    parse().map_err(unreadable)
}

/// A webhook that a node sends for.
pub(crate) fn claimed(row: &impl Cells, node: NodeIncarnation) -> Result<ClaimedWebhook, StoreError> {
    let parse = || {
        Ok(ClaimedWebhook {
            webhook_id: WebhookId::new(row.text("webhook_id")?).map_err(|error| error.to_string())?,
            node,
            lease_epoch: count(row, "lease_epoch")?,
        })
    };
    parse().map_err(unreadable)
}
