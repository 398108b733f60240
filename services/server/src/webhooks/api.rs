//! What the edge needs of whoever manages webhooks, as a trait: so that another edge can call it, and tests can stand in.

use async_trait::async_trait;
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::ids::WebhookId;
use signalbox_domain::webhook::{PutWebhook, Webhook};
use signalbox_ports::webhooks::{Again, Delivery};
use signalbox_runtime::{Forecast, NodeHandle, Pinged, WebhookStanding};

use crate::api::{ApiError, Caller};

/// Managing webhooks. Every method acts with the caller's authority; what it may not see is as absent as what does not exist
/// (I11).
#[async_trait]
pub trait WebhookApi: Send + Sync + 'static {
    /// Creates a webhook or changes it; true if nothing had to be changed.
    async fn put_webhook(&self, caller: &Caller, wish: PutWebhook) -> Result<(WebhookStanding, bool), ApiError>;
    /// What `put_webhook` would change. Nothing is written.
    async fn would_put_webhook(&self, caller: &Caller, wish: PutWebhook)
    -> Result<Forecast<WebhookStanding>, ApiError>;
    /// What `remove_webhook` would take away. Nothing is written.
    async fn would_remove_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        reason: &str,
        expected: Expected,
    ) -> Result<Webhook, ApiError>;
    /// Removes a webhook; answers it as it was.
    async fn remove_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        reason: &str,
        expected: Expected,
    ) -> Result<Webhook, ApiError>;
    /// One webhook.
    async fn webhook(&self, caller: &Caller, id: &WebhookId) -> Result<WebhookStanding, ApiError>;
    /// The webhooks the caller may see.
    async fn webhooks(&self, caller: &Caller) -> Result<Vec<WebhookStanding>, ApiError>;
    /// Sends a ping.
    async fn ping_webhook(&self, caller: &Caller, id: &WebhookId) -> Result<Pinged, ApiError>;
    /// Its deliveries, the latest first.
    async fn webhook_deliveries(
        &self,
        caller: &Caller,
        id: &WebhookId,
        limit: usize,
    ) -> Result<Vec<Delivery>, ApiError>;
    /// Has deliveries sent again; answers how many.
    async fn replay_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        again: Again,
        reason: &str,
    ) -> Result<u64, ApiError>;
}

#[async_trait]
impl WebhookApi for NodeHandle {
    async fn put_webhook(&self, caller: &Caller, wish: PutWebhook) -> Result<(WebhookStanding, bool), ApiError> {
        self.put_webhook(caller, wish).await
    }
    async fn would_put_webhook(
        &self,
        caller: &Caller,
        wish: PutWebhook,
    ) -> Result<Forecast<WebhookStanding>, ApiError> {
        self.would_put_webhook(caller, wish).await
    }
    async fn would_remove_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        reason: &str,
        expected: Expected,
    ) -> Result<Webhook, ApiError> {
        self.would_remove_webhook(caller, id, reason, expected).await
    }
    async fn remove_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        reason: &str,
        expected: Expected,
    ) -> Result<Webhook, ApiError> {
        self.remove_webhook(caller, id, reason, expected).await
    }
    async fn webhook(&self, caller: &Caller, id: &WebhookId) -> Result<WebhookStanding, ApiError> {
        self.webhook(caller, id).await
    }
    async fn webhooks(&self, caller: &Caller) -> Result<Vec<WebhookStanding>, ApiError> {
        self.webhooks(caller).await
    }
    async fn ping_webhook(&self, caller: &Caller, id: &WebhookId) -> Result<Pinged, ApiError> {
        self.ping_webhook(caller, id).await
    }
    async fn webhook_deliveries(
        &self,
        caller: &Caller,
        id: &WebhookId,
        limit: usize,
    ) -> Result<Vec<Delivery>, ApiError> {
        self.webhook_deliveries(caller, id, limit).await
    }
    async fn replay_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        again: Again,
        reason: &str,
    ) -> Result<u64, ApiError> {
        self.replay_webhook(caller, id, again, reason).await
    }
}
