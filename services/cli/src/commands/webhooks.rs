//! `webhooks put`, `list`, `show`, `remove`, `test`, `deliveries` and `replay`.

use clap::{ArgGroup, Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};
use signalbox_proto::v1;

use super::listing::{When, when};
use crate::client::{Webhooks, timed};
use crate::failure::Failure;
use crate::output::{Out, duration, instant};

/// `webhooks`.
#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksCommand {
    /// Creates a webhook or changes it: what happens from then on is sent to its URL, signed.
    #[command(after_help = "Example:
  signalbox webhooks put pager --url https://hooks.example/signalbox --event run.failed --event switch.armed --secret pager-2026 --reason \"on call\"")]
    Put(Box<PutArgs>),
    /// Lists the webhooks.
    #[command(after_help = "Example:
  signalbox webhooks list")]
    List,
    /// Shows one webhook.
    #[command(after_help = "Example:
  signalbox webhooks show pager")]
    Show {
        /// The webhook.
        id: String,
    },
    /// Removes a webhook, and its deliveries with it.
    #[command(after_help = "Example:
  signalbox webhooks remove pager --reason \"replaced\"")]
    Remove {
        /// The webhook.
        id: String,
        /// Why; kept in the audit journal.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// The revision you have seen: refused if somebody has changed it since.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        expected_revision: Option<u64>,
        /// Only say what would no longer be told; nothing is changed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Sends a ping, once and now, and prints what the endpoint said.
    #[command(after_help = "Example:
  signalbox webhooks test pager")]
    Test {
        /// The webhook.
        id: String,
    },
    /// Shows the latest deliveries: how each stands, how often it was tried, when it is tried next.
    #[command(after_help = "Example:
  signalbox webhooks deliveries pager --limit 20")]
    Deliveries {
        /// The webhook.
        id: String,
        /// Most deliveries.
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Sends again what arrived or was given up.
    #[command(after_help = "Example:
  signalbox webhooks replay pager --since 2h --reason \"the receiver lost a day\"")]
    Replay(ReplayArgs),
}

/// `webhooks put`.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The webhook.
    id: String,
    /// Where events are sent.
    #[arg(long)]
    url: String,
    /// A type of event, such as run.failed; say it once for each.
    #[arg(long = "event", value_name = "TYPE", required = true)]
    events: Vec<String>,
    /// The secret that signs, by its id in the configuration; a second one while receivers change over, the newest first.
    #[arg(long = "secret", value_name = "ID", required = true)]
    secrets: Vec<String>,
    /// The tenant whose events they are; your own if left out.
    #[arg(long, value_name = "TENANT", conflicts_with = "platform_wide")]
    tenant: Option<String>,
    /// Everybody's events, and those of the platform.
    #[arg(long)]
    platform_wide: bool,
    /// Send nothing yet, or nothing any more; what waits is given up.
    #[arg(long)]
    disabled: bool,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Refused if the webhook exists already.
    #[arg(long, conflicts_with = "expected_revision")]
    create: bool,
    /// The revision you have seen: refused if somebody has changed it since.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    expected_revision: Option<u64>,
    /// Only say what would change, as the server decides it; nothing is changed.
    #[arg(long)]
    dry_run: bool,
}

/// `webhooks replay`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["since", "delivery"])))]
pub(crate) struct ReplayArgs {
    /// The webhook.
    id: String,
    /// Everything that happened since then, such as 2h or 2026-11-30.
    #[arg(long, value_name = "WHEN", value_parser = when)]
    since: Option<When>,
    /// One event, by its id as `deliveries` shows it.
    #[arg(long, value_name = "EVENT")]
    delivery: Option<String>,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Does what was asked.
pub(crate) async fn run(client: Webhooks, command: WebhooksCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        WebhooksCommand::Put(args) => put(client, *args, out).await,
        WebhooksCommand::List => list(client, out).await,
        WebhooksCommand::Show { id } => show(client, id, out).await,
        WebhooksCommand::Remove { id, reason, expected_revision, dry_run } => {
            let expected_revision = expected_revision.unwrap_or_default();
            remove(client, v1::RemoveWebhookRequest { webhook_id: id, reason, expected_revision, dry_run }, out).await
        }
        WebhooksCommand::Test { id } => test(client, id, out).await,
        WebhooksCommand::Deliveries { id, limit } => deliveries(client, id, limit, out).await,
        WebhooksCommand::Replay(args) => replay(client, args, out).await,
    }
}

async fn put(mut client: Webhooks, args: PutArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::PutWebhookRequest {
        webhook_id: args.id,
        tenant_id: args.tenant.unwrap_or_default(),
        platform_wide: args.platform_wide,
        url: args.url,
        event_types: args.events,
        secret_ids: args.secrets,
        disabled: args.disabled,
        reason: args.reason,
        expected_revision: args.expected_revision.unwrap_or_default(),
        expects_none: args.create,
        dry_run: args.dry_run,
    };
    let answer = client.put_webhook(timed(request)).await?.into_inner();
    let webhook = answer.webhook.unwrap_or_default();
    if args.dry_run {
        return would_put(answer.before.as_ref(), &webhook, answer.unchanged, out);
    }
    if out.is_json() {
        return out.json(&json!({ "webhook": view(&webhook), "unchanged": answer.unchanged }));
    }
    let what = match (answer.unchanged, webhook.enabled) {
        (true, _) => "is like that already",
        (false, true) => "is told of what happens from now on",
        (false, false) => "is put, and told nothing",
    };
    out.line(&format!("{} {what}; revision {}", webhook.webhook_id, webhook.revision))
}

async fn list(mut client: Webhooks, out: &mut Out) -> Result<(), Failure> {
    let webhooks = client.list_webhooks(timed(v1::ListWebhooksRequest {})).await?.into_inner().webhooks;
    if out.is_json() {
        return out.json(&json!({ "webhooks": webhooks.iter().map(view).collect::<Vec<_>>() }));
    }
    if webhooks.is_empty() {
        return out.line("there is no webhook");
    }
    let rows: Vec<_> = webhooks
        .iter()
        .map(|webhook| {
            vec![
                webhook.webhook_id.clone(),
                whose(webhook),
                if webhook.enabled { "enabled" } else { "disabled" }.to_owned(),
                webhook.event_types.len().to_string(),
                webhook.url.clone(),
            ]
        })
        .collect();
    out.table(&["WEBHOOK", "OF", "STATE", "EVENTS", "URL"], &rows)
}

async fn show(mut client: Webhooks, id: String, out: &mut Out) -> Result<(), Failure> {
    let answer = client.get_webhook(timed(v1::GetWebhookRequest { webhook_id: id })).await?.into_inner();
    let webhook = answer.webhook.unwrap_or_default();
    if out.is_json() {
        return out.json(&view(&webhook));
    }
    out.fields(&[
        ("webhook", webhook.webhook_id.clone()),
        ("of", whose(&webhook)),
        ("url", webhook.url.clone()),
        ("events", webhook.event_types.join(", ")),
        ("signed with", webhook.secret_ids.join(", ")),
        ("state", if webhook.enabled { "enabled" } else { "disabled" }.to_owned()),
        ("because", webhook.disabled_because.clone()),
        ("revision", webhook.revision.to_string()),
    ])
}

/// What putting it would change.
fn would_put(before: Option<&v1::Webhook>, after: &v1::Webhook, same: bool, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        let before = before.map(view);
        return out.json(&json!({ "dryRun": true, "before": before, "after": view(after), "unchanged": same }));
    }
    let would = match before {
        Some(_) if same => "is like that already",
        Some(_) => "would be changed",
        None => "would be put",
    };
    let told = format!("{} is told of {}", after.url, after.event_types.join(", "));
    out.line(&format!("{} {would}: {told}. Nothing was done", after.webhook_id))
}

async fn remove(mut client: Webhooks, request: v1::RemoveWebhookRequest, out: &mut Out) -> Result<(), Failure> {
    let dry_run = request.dry_run;
    let webhook = client.remove_webhook(timed(request)).await?.into_inner().webhook.unwrap_or_default();
    if out.is_json() && dry_run {
        return out.json(&json!({ "dryRun": true, "webhook": view(&webhook) }));
    }
    if out.is_json() {
        return out.json(&json!({ "webhook": view(&webhook) }));
    }
    if dry_run {
        let events = webhook.event_types.join(", ");
        return out.line(&format!("{} would no longer be told of {events}. Nothing was done", webhook.url));
    }
    out.line(&format!("{} is removed; {} is told nothing more", webhook.webhook_id, webhook.url))
}

async fn test(mut client: Webhooks, id: String, out: &mut Out) -> Result<(), Failure> {
    let answer = client.test_webhook(timed(v1::TestWebhookRequest { webhook_id: id })).await?.into_inner();
    if out.is_json() {
        out.json(&json!({
            "eventId": answer.event_id, "arrived": answer.arrived, "httpStatus": status(answer.http_status),
            "problem": text(&answer.problem), "tookMs": answer.took_micros as f64 / 1_000.0,
        }))?;
    } else if answer.arrived {
        let took = duration(u64::try_from(answer.took_micros / 1_000).unwrap_or_default());
        out.line(&format!("{} arrived: answered {} after {took}", answer.event_id, answer.http_status))?;
    }
    if answer.arrived {
        return Ok(());
    }
    Err(Failure::new("ping-not-taken", format!("{} was not taken: {}", answer.event_id, answer.problem))
        .next("see whether the endpoint listens, and answers 2xx to a POST"))
}

async fn deliveries(mut client: Webhooks, id: String, limit: u32, out: &mut Out) -> Result<(), Failure> {
    let request = v1::ListDeliveriesRequest { webhook_id: id, limit };
    let deliveries = client.list_deliveries(timed(request)).await?.into_inner().deliveries;
    if out.is_json() {
        return out.json(&json!({ "deliveries": deliveries.iter().map(delivery_view).collect::<Vec<_>>() }));
    }
    if deliveries.is_empty() {
        return out.line("nothing was delivered yet, and nothing waits");
    }
    let rows: Vec<_> = deliveries
        .iter()
        .map(|delivery| {
            vec![
                time(delivery.queued_at_unix_ms),
                delivery.event_type.clone(),
                delivery.state.clone(),
                delivery.attempts.to_string(),
                status(delivery.last_http_status).map_or_else(String::new, |status| status.to_string()),
                time(delivery.next_at_unix_ms),
                delivery.last_problem.clone(),
                delivery.event_id.clone(),
            ]
        })
        .collect();
    out.table(&["HAPPENED", "EVENT", "STATE", "TRIED", "ANSWER", "NEXT TRY", "PROBLEM", "ID"], &rows)
}

async fn replay(mut client: Webhooks, args: ReplayArgs, out: &mut Out) -> Result<(), Failure> {
    use v1::replay_deliveries_request::What;
    let what = match (args.since, args.delivery) {
        (Some(since), _) => Some(What::SinceUnixMs(since.unix_ms(Timestamp::now()))),
        (None, Some(id)) => Some(What::EventId(id)),
        (None, None) => None,
    };
    let request = v1::ReplayDeliveriesRequest { webhook_id: args.id, what, reason: args.reason };
    let answer = client.replay_deliveries(timed(request)).await?.into_inner();
    if out.is_json() {
        return out.json(&json!({ "deliveries": answer.deliveries }));
    }
    out.line(&format!("deliveries sent again: {}", answer.deliveries))
}

fn whose(webhook: &v1::Webhook) -> String {
    if webhook.tenant_id.is_empty() { "(platform)".to_owned() } else { webhook.tenant_id.clone() }
}

fn time(unix_ms: i64) -> String {
    if unix_ms == 0 { String::new() } else { instant(unix_ms.saturating_mul(1_000)) }
}

fn status(status: u32) -> Option<u32> {
    (status != 0).then_some(status)
}

fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn view(webhook: &v1::Webhook) -> Value {
    json!({
        "webhookId": webhook.webhook_id, "tenantId": text(&webhook.tenant_id), "url": webhook.url,
        "events": webhook.event_types, "secretIds": webhook.secret_ids, "enabled": webhook.enabled,
        "disabledBecause": text(&webhook.disabled_because), "revision": webhook.revision,
    })
}

fn delivery_view(delivery: &v1::Delivery) -> Value {
    let at = |unix_ms: i64| (unix_ms != 0).then_some(unix_ms);
    json!({
        "eventId": delivery.event_id, "event": delivery.event_type, "tenantId": text(&delivery.tenant_id),
        "state": delivery.state, "attempts": delivery.attempts, "queuedAtUnixMs": delivery.queued_at_unix_ms,
        "nextAtUnixMs": at(delivery.next_at_unix_ms), "lastAtUnixMs": at(delivery.last_at_unix_ms),
        "lastHttpStatus": status(delivery.last_http_status), "lastProblem": text(&delivery.last_problem),
    })
}
