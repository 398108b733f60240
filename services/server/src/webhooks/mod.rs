//! `WebhookService`: each method identifies the caller, reads the request strictly, asks the node and converts the answer.

pub(crate) mod api;

use std::sync::Arc;

use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::ids::TenantId;
use signalbox_domain::time::UnixMs;
use signalbox_domain::webhook::{EventType, PutWebhook, WEBHOOK_SECRETS_MAX, WEBHOOK_URL_BYTES_MAX, Webhook};
use signalbox_ports::webhooks::{Again, Delivery, DeliveryState};
use signalbox_proto::v1::{self, webhook_service_server::WebhookService};
use signalbox_runtime::{Forecast, Pinged, WebhookStanding};
use tonic::{Request, Response, Status};

use crate::api::WebhookApi;
use crate::errors::{self, Refusal};
use crate::governing::read::{self, expected, reach, rows};
use crate::identity::caller_of;
use crate::validate::{self, bad};

/// The service over one node.
pub(crate) struct Webhooks {
    pub(crate) api: Arc<dyn WebhookApi>,
}

/// A webhook that is wanted.
pub(crate) fn wish(request: v1::PutWebhookRequest) -> Result<PutWebhook, Refusal> {
    let v1::PutWebhookRequest { webhook_id, tenant_id, platform_wide, url, event_types, secret_ids, .. } = request;
    let webhook_id = validate::id("webhook_id", &webhook_id)?;
    if url.is_empty() {
        return Err(bad("field-missing", "url", "`url` is missing"));
    }
    if url.len() > WEBHOOK_URL_BYTES_MAX {
        let message = format!("`url` has {} bytes; at most {WEBHOOK_URL_BYTES_MAX} are allowed", url.len());
        return Err(bad("webhook-url-invalid", "url", message));
    }
    // The reader of URLs drops some of these silently, and another URL would be requested than was written.
    if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(bad("webhook-url-invalid", "url", "`url` may contain neither spaces nor control characters"));
    }
    if event_types.len() > EventType::ALL.len() {
        return Err(bad("webhook-event-unknown", "event_types", "`event_types` names more types than there are"));
    }
    let events = event_types.iter().map(|text| {
        text.parse::<EventType>().map_err(|error| bad("webhook-event-unknown", "event_types", error.to_string()))
    });
    let events = events.collect::<Result<Vec<_>, _>>()?;
    if secret_ids.len() > WEBHOOK_SECRETS_MAX {
        let message = format!("`secret_ids` may name at most {WEBHOOK_SECRETS_MAX} secrets");
        return Err(bad("webhook-secrets-invalid", "secret_ids", message));
    }
    let secret_ids = secret_ids.iter().map(|id| validate::id("secret_ids", id)).collect::<Result<Vec<_>, _>>()?;
    let expected = match (request.expects_none, request.expected_revision) {
        (true, 0) => Expected::None,
        (true, _) => {
            let message = "`expects_none` and `expected_revision` cannot both be said";
            return Err(bad("revision-invalid", "expects_none", message));
        }
        (false, revision) => expected(revision),
    };
    Ok(PutWebhook {
        webhook_id,
        reach: reach(&tenant_id, platform_wide)?,
        url,
        events,
        secret_ids,
        enabled: !request.disabled,
        reason: read::text("reason", request.reason)?,
        expected,
    })
}

fn again(what: Option<v1::replay_deliveries_request::What>) -> Result<Again, Refusal> {
    use v1::replay_deliveries_request::What;
    match what {
        None => Err(bad("field-missing", "what", "say `since_unix_ms` or `event_id`")),
        Some(What::SinceUnixMs(at)) if at < 0 => {
            Err(bad("time-invalid", "since_unix_ms", "`since_unix_ms` may not be negative"))
        }
        Some(What::SinceUnixMs(at)) => Ok(Again::Since(UnixMs(at))),
        Some(What::EventId(id)) => Again::of_event_id(&id).ok_or_else(|| {
            bad("event-id-invalid", "event_id", "`event_id` is an id such as `evt_` and 64 hexadecimal digits")
        }),
    }
}

fn shown(webhook: Webhook, revision: u64) -> v1::Webhook {
    v1::Webhook {
        webhook_id: webhook.webhook_id.to_string(),
        tenant_id: webhook.tenant_id.map_or_else(String::new, |tenant| tenant.to_string()),
        url: webhook.url,
        event_types: webhook.events.iter().map(|event| event.as_str().to_owned()).collect(),
        secret_ids: webhook.secret_ids.iter().map(ToString::to_string).collect(),
        enabled: webhook.enabled,
        disabled_because: webhook.disabled_because.unwrap_or_default(),
        revision,
    }
}

fn standing(standing: WebhookStanding) -> v1::Webhook {
    shown(standing.webhook, standing.revision)
}

fn pinged(pinged: Pinged) -> v1::TestWebhookResponse {
    v1::TestWebhookResponse {
        event_id: pinged.id,
        arrived: pinged.answer.is_success(),
        http_status: pinged.answer.status().map_or(0, u32::from),
        problem: pinged.answer.problem().unwrap_or_default(),
        took_micros: i64::try_from(pinged.took.as_micros()).unwrap_or(i64::MAX),
    }
}

fn delivery(delivery: Delivery) -> v1::Delivery {
    v1::Delivery {
        event_id: delivery.event_id(),
        event_type: delivery.event_type.as_str().to_owned(),
        tenant_id: delivery.tenant_id.as_ref().map_or("", TenantId::as_str).to_owned(),
        state: delivery.state.as_str().to_owned(),
        attempts: delivery.attempts,
        queued_at_unix_ms: delivery.queued_at.0,
        next_at_unix_ms: if delivery.state == DeliveryState::Waiting { delivery.next_at.0 } else { 0 },
        last_at_unix_ms: delivery.last_at.map_or(0, |at| at.0),
        last_http_status: delivery.last_status.map_or(0, u32::from),
        last_problem: delivery.last_problem.unwrap_or_default(),
    }
}

impl Webhooks {
    async fn put(&self, request: Request<v1::PutWebhookRequest>) -> Result<v1::PutWebhookResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let dry_run = request.dry_run;
        let wish = wish(request)?;
        if dry_run {
            let Forecast { before, after, unchanged } = self.api.would_put_webhook(&caller, wish).await?;
            let (webhook, before) = (Some(standing(after)), before.map(standing));
            return Ok(v1::PutWebhookResponse { webhook, unchanged, before });
        }
        let (webhook, unchanged) = self.api.put_webhook(&caller, wish).await?;
        Ok(v1::PutWebhookResponse { webhook: Some(standing(webhook)), unchanged, before: None })
    }

    async fn get(&self, request: Request<v1::GetWebhookRequest>) -> Result<v1::GetWebhookResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("webhook_id", &request.get_ref().webhook_id)?;
        Ok(v1::GetWebhookResponse { webhook: Some(standing(self.api.webhook(&caller, &id).await?)) })
    }

    async fn list(&self, request: Request<v1::ListWebhooksRequest>) -> Result<v1::ListWebhooksResponse, Refusal> {
        let caller = caller_of(&request)?;
        let webhooks = self.api.webhooks(&caller).await?.into_iter().map(standing);
        Ok(v1::ListWebhooksResponse { webhooks: webhooks.collect() })
    }

    async fn remove(&self, request: Request<v1::RemoveWebhookRequest>) -> Result<v1::RemoveWebhookResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("webhook_id", &request.webhook_id)?;
        let reason = read::text("reason", request.reason)?;
        let expected = expected(request.expected_revision);
        let webhook = if request.dry_run {
            self.api.would_remove_webhook(&caller, &id, &reason, expected).await?
        } else {
            self.api.remove_webhook(&caller, &id, &reason, expected).await?
        };
        Ok(v1::RemoveWebhookResponse { webhook: Some(shown(webhook, 0)) })
    }

    async fn test(&self, request: Request<v1::TestWebhookRequest>) -> Result<v1::TestWebhookResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("webhook_id", &request.get_ref().webhook_id)?;
        Ok(pinged(self.api.ping_webhook(&caller, &id).await?))
    }

    async fn deliveries(
        &self,
        request: Request<v1::ListDeliveriesRequest>,
    ) -> Result<v1::ListDeliveriesResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("webhook_id", &request.get_ref().webhook_id)?;
        let limit = rows(request.get_ref().limit)?;
        let deliveries = self.api.webhook_deliveries(&caller, &id, limit).await?.into_iter().map(delivery);
        Ok(v1::ListDeliveriesResponse { deliveries: deliveries.collect() })
    }

    async fn replay(
        &self,
        request: Request<v1::ReplayDeliveriesRequest>,
    ) -> Result<v1::ReplayDeliveriesResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("webhook_id", &request.webhook_id)?;
        let again = again(request.what)?;
        let reason = read::text("reason", request.reason)?;
        let deliveries = self.api.replay_webhook(&caller, &id, again, &reason).await?;
        Ok(v1::ReplayDeliveriesResponse { deliveries })
    }
}

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| errors::to_status(&error))
}

#[tonic::async_trait]
impl WebhookService for Webhooks {
    async fn put_webhook(
        &self,
        request: Request<v1::PutWebhookRequest>,
    ) -> Result<Response<v1::PutWebhookResponse>, Status> {
        answer(self.put(request).await)
    }
    async fn get_webhook(
        &self,
        request: Request<v1::GetWebhookRequest>,
    ) -> Result<Response<v1::GetWebhookResponse>, Status> {
        answer(self.get(request).await)
    }
    async fn list_webhooks(
        &self,
        request: Request<v1::ListWebhooksRequest>,
    ) -> Result<Response<v1::ListWebhooksResponse>, Status> {
        answer(self.list(request).await)
    }
    async fn remove_webhook(
        &self,
        request: Request<v1::RemoveWebhookRequest>,
    ) -> Result<Response<v1::RemoveWebhookResponse>, Status> {
        answer(self.remove(request).await)
    }
    async fn test_webhook(
        &self,
        request: Request<v1::TestWebhookRequest>,
    ) -> Result<Response<v1::TestWebhookResponse>, Status> {
        answer(self.test(request).await)
    }
    async fn list_deliveries(
        &self,
        request: Request<v1::ListDeliveriesRequest>,
    ) -> Result<Response<v1::ListDeliveriesResponse>, Status> {
        answer(self.deliveries(request).await)
    }
    async fn replay_deliveries(
        &self,
        request: Request<v1::ReplayDeliveriesRequest>,
    ) -> Result<Response<v1::ReplayDeliveriesResponse>, Status> {
        answer(self.replay(request).await)
    }
}
