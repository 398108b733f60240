//! Webhooks as documents. Secrets stand in them by their ids alone.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_proto::v1;

use super::Planned;
use crate::client::{Webhooks, timed};
use crate::failure::Failure;
use crate::manifest::{Document, Kind};

/// A webhook in a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    webhook_id: String,
    url: String,
    /// Which of them comes first says nothing.
    event_types: BTreeSet<String>,
    /// The newest first.
    secret_ids: Vec<String>,
    #[serde(default = "yes")]
    enabled: bool,
}

const fn yes() -> bool {
    true
}

/// What applying it comes to: the node decides, and writes and sends nothing. A webhook that was disabled because its endpoint wants no more stays what it is unless its
/// document says something else.
pub(super) async fn plan(client: &mut Webhooks, document: Document) -> Result<Planned, Failure> {
    let request = v1::PutWebhookRequest { dry_run: true, ..request(&document)? };
    let answer = client.put_webhook(timed(request)).await?.into_inner();
    let revision = answer.before.as_ref().map_or(0, |known| known.revision);
    let before = answer.before.as_ref().map(|known| value(&rule(known))).transpose()?;
    let after = value(&rule(&answer.webhook.unwrap_or_default()))?;
    Ok(Planned { document, before, after, revision, moot: None })
}

/// Puts it, unless somebody has changed it since it was planned.
pub(super) async fn carry_out(client: &mut Webhooks, planned: &Planned) -> Result<(), Failure> {
    let request = v1::PutWebhookRequest {
        expected_revision: planned.revision,
        expects_none: planned.before.is_none(),
        ..request(&planned.document)?
    };
    client.put_webhook(timed(request)).await?;
    Ok(())
}

/// The webhooks there are.
pub(super) async fn in_force(client: &mut Webhooks) -> Result<Vec<Document>, Failure> {
    let webhooks = list(client).await?;
    webhooks
        .iter()
        .map(|known| super::of_server(Kind::Webhook, &known.tenant_id, super::object(value(&rule(known))?)?))
        .collect()
}

async fn list(client: &mut Webhooks) -> Result<Vec<v1::Webhook>, Failure> {
    Ok(client.list_webhooks(timed(v1::ListWebhooksRequest {})).await?.into_inner().webhooks)
}

fn request(document: &Document) -> Result<v1::PutWebhookRequest, Failure> {
    let rule: Rule = serde_json::from_value(Value::Object(document.spec.clone()))
        .map_err(|error| Failure::usage("webhook-invalid", format!("spec: {error}")))?;
    Ok(v1::PutWebhookRequest {
        webhook_id: rule.webhook_id,
        tenant_id: document.tenant.clone().unwrap_or_default(),
        platform_wide: document.platform_wide,
        url: rule.url,
        event_types: rule.event_types.into_iter().collect(),
        secret_ids: rule.secret_ids,
        disabled: !rule.enabled,
        reason: document.reason(),
        ..v1::PutWebhookRequest::default()
    })
}

fn rule(webhook: &v1::Webhook) -> Rule {
    Rule {
        webhook_id: webhook.webhook_id.clone(),
        url: webhook.url.clone(),
        event_types: webhook.event_types.iter().cloned().collect(),
        secret_ids: webhook.secret_ids.clone(),
        enabled: webhook.enabled,
    }
}

fn value(rule: &Rule) -> Result<Value, Failure> {
    serde_json::to_value(rule).map_err(|error| Failure::new("output-failed", error.to_string()))
}
