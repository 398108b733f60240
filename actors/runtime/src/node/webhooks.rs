//! Managing webhooks, and looking at what became of their deliveries.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::{GovernanceChange, GovernanceState};
use signalbox_domain::ids::{NodeIncarnation, SecretId, TenantId, WebhookId};
use signalbox_domain::time::UnixMs;
use signalbox_domain::webhook::{self, Answer, PutWebhook, Putting, Webhook, WebhookDenial, ping, ping_id};
use signalbox_ports::acts::{Acts, Effect};
use signalbox_ports::journal::Journal;
use signalbox_ports::secrets::SecretValue;
use signalbox_ports::webhooks::{Again, Courier, Deliveries, Delivery, Parcel};

use super::NodeHandle;
use super::governing::{Decided, Draft, Forecast, check_operator, operator, recorded};
use crate::api::{ApiError, Caller};

/// A webhook and its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookStanding {
    /// The webhook.
    pub webhook: Webhook,
    /// The last act on it.
    pub revision: u64,
}

/// What a ping was answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinged {
    /// The ping's id.
    pub id: String,
    /// What the endpoint said.
    pub answer: Answer,
    /// How long it took.
    pub took: Duration,
}

impl NodeHandle {
    /// Creates a webhook or changes it; true if nothing had to be changed.
    pub async fn put_webhook(&self, caller: &Caller, wish: PutWebhook) -> Result<(WebhookStanding, bool), ApiError> {
        let wish = &wish;
        let (forecast, _) = self.act(caller, move |state| self.decide_put_webhook(caller, wish, state)).await?;
        Ok((self.webhook(caller, &wish.webhook_id).await?, forecast.unchanged))
    }

    /// What `put_webhook` would change, decided by the same rule on what is in force now. Nothing is written, and nothing is
    /// sent.
    pub async fn would_put_webhook(
        &self,
        caller: &Caller,
        wish: PutWebhook,
    ) -> Result<Forecast<WebhookStanding>, ApiError> {
        Ok(self.decide_put_webhook(caller, &wish, self.state_now().await).await?.answer())
    }

    async fn decide_put_webhook(
        &self,
        caller: &Caller,
        wish: &PutWebhook,
        state: Arc<GovernanceState>,
    ) -> Result<Decided<Forecast<WebhookStanding>>, ApiError> {
        let id = &wish.webhook_id;
        let revision = self.webhook_revision(id).await?;
        let standing = |webhook: &Webhook| WebhookStanding { webhook: webhook.clone(), revision };
        let exempt = &self.inner.config.webhook_exempt;
        let webhook = match webhook::put(wish.clone(), operator(caller), &state, revision, exempt)? {
            Putting::Unchanged(same) => {
                let (before, after) = (Some(standing(&same)), standing(&same));
                return Ok(Decided::Nothing(Forecast { before, after, unchanged: true }));
            }
            Putting::Put(webhook) => webhook,
        };
        let keys = self.signing_keys(webhook.tenant_id.as_ref(), &webhook.secret_ids).await;
        keys.map_err(WebhookDenial::Secret)?;
        let before = state.webhooks.iter().find(|known| known.webhook_id == *id);
        let draft = draft(AuditKind::WebhookPut, Fate::Put { before, after: &webhook }, &wish.reason);
        let forecast = Forecast { before: before.map(standing), after: standing(&webhook), unchanged: false };
        Ok(Decided::Act(Box::new(draft), forecast))
    }

    /// Removes a webhook, and its deliveries with it. Answers it as it was.
    pub async fn remove_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        reason: &str,
        expected: Expected,
    ) -> Result<Webhook, ApiError> {
        let (webhook, _) =
            self.act(caller, move |state| self.decide_remove_webhook(caller, id, reason, expected, state)).await?;
        Ok(webhook)
    }

    /// What `remove_webhook` would take away, decided by the same rule on what is in force now. Nothing is written.
    pub async fn would_remove_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        reason: &str,
        expected: Expected,
    ) -> Result<Webhook, ApiError> {
        Ok(self.decide_remove_webhook(caller, id, reason, expected, self.state_now().await).await?.answer())
    }

    async fn decide_remove_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        reason: &str,
        expected: Expected,
        state: Arc<GovernanceState>,
    ) -> Result<Decided<Webhook>, ApiError> {
        let revision = self.webhook_revision(id).await?;
        let webhook = webhook::remove(id, reason, expected, operator(caller), &state, revision)?;
        let draft = draft(AuditKind::WebhookRemoved, Fate::Removed(&webhook), reason);
        Ok(Decided::Act(Box::new(draft), webhook))
    }

    /// One webhook.
    pub async fn webhook(&self, caller: &Caller, id: &WebhookId) -> Result<WebhookStanding, ApiError> {
        let webhook = self.seen_webhook(caller, id).await?;
        Ok(WebhookStanding { revision: self.webhook_revision(id).await?, webhook })
    }

    /// The webhooks the caller may see, in the order they were first put.
    pub async fn webhooks(&self, caller: &Caller) -> Result<Vec<WebhookStanding>, ApiError> {
        check_operator(caller)?;
        self.inner.shared.governance.refresh().await;
        let state = self.inner.shared.governance.view().state.clone();
        let mut standings = Vec::new();
        for webhook in state.webhooks.iter().filter(|known| webhook::may_see(operator(caller), known)) {
            let revision = self.webhook_revision(&webhook.webhook_id).await?;
            standings.push(WebhookStanding { webhook: webhook.clone(), revision });
        }
        Ok(standings)
    }

    /// The deliveries of a webhook, the latest first.
    pub async fn webhook_deliveries(
        &self,
        caller: &Caller,
        id: &WebhookId,
        limit: usize,
    ) -> Result<Vec<Delivery>, ApiError> {
        self.seen_webhook(caller, id).await?;
        Ok(self.inner.ports.deliveries.deliveries(id, limit).await?)
    }

    /// Has deliveries sent again that arrived or were given up; answers how many.
    pub async fn replay_webhook(
        &self,
        caller: &Caller,
        id: &WebhookId,
        again: Again,
        reason: &str,
    ) -> Result<u64, ApiError> {
        let again = &again;
        let (count, _) = self
            .act(caller, move |state| async move {
                let webhook = webhook::replay(id, reason, operator(caller), &state)?;
                let count = self.inner.ports.deliveries.count_again(id, again).await?;
                if count == 0 {
                    return Err(WebhookDenial::NothingToReplay(id.clone()).into());
                }
                let named = match again {
                    Again::Since(since) => serde_json::json!({ "sinceUnixMs": since, "deliveries": count }),
                    Again::One { hash, part } => serde_json::json!({ "event": webhook::event_id(&hash.hex(), *part) }),
                };
                let body = AuditBody { reason: reason.to_owned(), details: Some(named), ..AuditBody::default() };
                let draft = Draft {
                    tenant_id: webhook.tenant_id.clone(),
                    kind: AuditKind::WebhookReplayed,
                    subject: Subject::webhook(id),
                    body,
                    effect: Effect::SendAgain(id.clone(), again.clone()),
                };
                Ok(Decided::Act(Box::new(draft), count))
            })
            .await?;
        self.look_for_deliveries();
        Ok(count)
    }

    /// Sends a ping, now and once. It may be tried before a webhook is enabled.
    pub async fn ping_webhook(&self, caller: &Caller, id: &WebhookId) -> Result<Pinged, ApiError> {
        let webhook = self.seen_webhook(caller, id).await?;
        let clock = &self.inner.shared.clock;
        let now = clock.now_micros();
        let event = ping_id(self.inner.ports.ids.fresh());
        let body = ping(&event, id, webhook.tenant_id.as_ref(), now);
        let keys = self.signing_keys(webhook.tenant_id.as_ref(), &webhook.secret_ids).await;
        let keys = keys.map_err(WebhookDenial::Secret)?;
        let began = clock.boot();
        let answer = self.inner.ports.courier.send(self.parcel(&webhook, event.clone(), now.ms(), body, keys)).await;
        let took = Duration::from_nanos(clock.boot().0.saturating_sub(began.0));
        Ok(Pinged { id: event, answer, took })
    }

    /// Disables a webhook whose endpoint wants no more. Nothing happens if it has changed meanwhile.
    pub(crate) async fn disable_webhook(&self, webhook: &Webhook) -> Result<(), ApiError> {
        let tenant = webhook.tenant_id.clone().map_or_else(|| TenantId::new("platform"), Ok);
        let caller = Caller {
            tenant_id: tenant.map_err(|error| ApiError::Internal(error.to_string()))?,
            actor: signalbox_domain::identity::Actor::system(),
            scopes: Vec::new(),
            surface: "system",
        };
        self.act(&caller, move |state| async move {
            let Some((before, after)) = webhook::disable(&webhook.webhook_id, &webhook.url, &state) else {
                return Ok(Decided::Nothing(()));
            };
            let reason = after.disabled_because.clone().unwrap_or_default();
            let fate = Fate::Put { before: Some(&before), after: &after };
            let draft = draft(AuditKind::WebhookDisabled, fate, &reason);
            Ok(Decided::Act(Box::new(draft), ()))
        })
        .await?;
        Ok(())
    }

    /// What is to be sent.
    pub(crate) fn parcel(
        &self,
        webhook: &Webhook,
        id: String,
        now: UnixMs,
        body: Vec<u8>,
        keys: Vec<SecretValue>,
    ) -> Parcel {
        let exempt = self.inner.config.webhook_exempt.clone();
        Parcel { url: webhook.url.clone(), id, timestamp: now.0.div_euclid(1_000), body, keys, exempt }
    }

    /// The values that sign, or what is wrong with one of them.
    pub(crate) async fn signing_keys(
        &self,
        tenant: Option<&TenantId>,
        secrets: &[SecretId],
    ) -> Result<Vec<SecretValue>, String> {
        let mut keys = Vec::with_capacity(secrets.len());
        for id in secrets {
            let key = self.inner.shared.secrets.webhook_key(tenant, id).await.map_err(|error| error.to_string())?;
            self.inner
                .ports
                .courier
                .check_key(&key)
                .map_err(|problem| format!("the secret `{id}` cannot sign: {problem}"))?;
            keys.push(key);
        }
        Ok(keys)
    }

    /// True if there is any webhook that something might be due for.
    pub(crate) fn sends_webhooks(&self) -> bool {
        self.inner.shared.governance.view().state.webhooks.iter().any(|webhook| webhook.enabled)
    }

    /// A webhook as this node has read it.
    pub(crate) fn known_webhook(&self, id: &WebhookId) -> Option<Webhook> {
        let view = self.inner.shared.governance.view();
        view.state.webhooks.iter().find(|known| known.webhook_id == *id).cloned()
    }

    pub(crate) fn deliveries(&self) -> &dyn Deliveries {
        self.inner.ports.deliveries.as_ref()
    }

    pub(crate) fn courier(&self) -> &dyn Courier {
        self.inner.ports.courier.as_ref()
    }

    pub(crate) fn acts(&self) -> &dyn Acts {
        self.inner.ports.acts.as_ref()
    }

    pub(crate) fn journal(&self) -> &dyn Journal {
        self.inner.ports.journal.as_ref()
    }

    pub(crate) fn incarnation(&self) -> NodeIncarnation {
        self.inner.node
    }

    pub(crate) fn now(&self) -> UnixMs {
        self.inner.shared.clock.now()
    }

    /// A number that differs each time: jitter needs no better one.
    pub(crate) fn random(&self) -> u64 {
        self.inner.ports.ids.fresh().as_u64_pair().1
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Relaxed)
    }

    fn look_for_deliveries(&self) {
        if let Some(webhooks) = self.inner.webhooks.get() {
            let _ = webhooks.cast(crate::webhooks::Msg::Look);
        }
    }

    async fn seen_webhook(&self, caller: &Caller, id: &WebhookId) -> Result<Webhook, ApiError> {
        check_operator(caller)?;
        self.inner.shared.governance.refresh().await;
        let state = self.inner.shared.governance.view().state.clone();
        Ok(webhook::find(id, operator(caller), &state)?.clone())
    }

    async fn webhook_revision(&self, id: &WebhookId) -> Result<u64, ApiError> {
        Ok(self.inner.ports.acts.last_act(&Subject::webhook(id)).await?.map_or(0, |act| act.seq))
    }
}

/// What becomes of a webhook.
enum Fate<'w> {
    Put { before: Option<&'w Webhook>, after: &'w Webhook },
    Removed(&'w Webhook),
}

fn draft(kind: AuditKind, fate: Fate<'_>, reason: &str) -> Draft {
    let (webhook, before, after, change) = match fate {
        Fate::Put { before, after } => (after, before, Some(after), GovernanceChange::WebhookPut(after.clone())),
        Fate::Removed(webhook) => {
            let change = GovernanceChange::WebhookRemoved { webhook_id: webhook.webhook_id.clone() };
            (webhook, Some(webhook), None, change)
        }
    };
    let body = AuditBody {
        reason: reason.to_owned(),
        before: before.and_then(recorded),
        after: after.and_then(recorded),
        details: None,
    };
    Draft {
        tenant_id: webhook.tenant_id.clone(),
        kind,
        subject: Subject::webhook(&webhook.webhook_id),
        body,
        effect: Effect::Change(change),
    }
}
