//! Carrying out deliveries of webhooks.
//!
//! The store says which webhooks this node sends for and what is due; this actor has one worker at each of them, so that a slow
//! endpoint delays itself and nobody else. An attempt is noted under the claim it was made with: a node that lost it may have
//! sent something twice, and notes nothing. Receivers tell repeats by the id.

use std::collections::BTreeSet;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use signalbox_domain::ids::WebhookId;
use signalbox_domain::webhook::{Answer, Entry, Next, Webhook, body, judge_answer};
use signalbox_ports::acts::AuditFilter;
use signalbox_ports::journal::StoreError;
use signalbox_ports::webhooks::{Attempted, ClaimedWebhook, Delivery, DeliveryState};

use tokio::task::JoinSet;

use crate::node::NodeHandle;

/// How often due deliveries are looked for, if there is any webhook.
const EVERY: Duration = Duration::from_millis(500);
/// How often old rows are forgotten.
const FORGETS_EVERY: u32 = 120;
/// Deliveries that are on their way to one endpoint at once. Each is of another run or thing.
const AT_ONCE_MAX: usize = 4;
/// Deliveries that are read at once.
const PAGE: usize = 32;
/// After an attempt that failed an endpoint is left alone for so long; doubles up to [`REST_MAX`] with each further one.
const REST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(30);

pub(crate) enum Msg {
    /// Something may be due.
    Look,
    /// The worker of a webhook has ended.
    Idle(WebhookId),
}

pub(crate) struct WebhooksActor;

pub(crate) struct State {
    node: NodeHandle,
    /// Webhooks whose worker is at it.
    busy: BTreeSet<WebhookId>,
    looks: u32,
}

impl Actor for WebhooksActor {
    type Msg = Msg;
    type State = State;
    type Arguments = NodeHandle;

    async fn pre_start(&self, myself: ActorRef<Msg>, node: NodeHandle) -> Result<State, ActorProcessingErr> {
        myself.send_interval(EVERY, || Msg::Look);
        Ok(State { node, busy: BTreeSet::new(), looks: 0 })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Idle(webhook) => {
                state.busy.remove(&webhook);
            }
            // Without a webhook nothing is asked of the store.
            Msg::Look if !state.node.sends_webhooks() => {}
            Msg::Look => {
                state.looks = state.looks.wrapping_add(1);
                if state.looks % FORGETS_EVERY == 1
                    && let Err(error) = state.node.deliveries().forget_deliveries().await
                {
                    tracing::warn!(%error, "old deliveries could not be forgotten yet");
                }
                match state.node.deliveries().claim_webhooks(state.node.incarnation()).await {
                    Ok(claims) => {
                        for claim in claims {
                            if state.busy.insert(claim.webhook_id.clone()) {
                                tokio::spawn(work(state.node.clone(), claim, myself.clone()));
                            }
                        }
                    }
                    Err(error) => tracing::warn!(%error, "no webhooks could be claimed"),
                }
            }
        }
        Ok(())
    }
}

async fn work(node: NodeHandle, claim: ClaimedWebhook, actor: ActorRef<Msg>) {
    let webhook_id = claim.webhook_id.clone();
    // In a task of its own: whatever becomes of it, the webhook is looked at again.
    if let Err(error) = tokio::spawn(async move { send_all(&node, &claim).await }).await {
        tracing::error!(%error, webhook = %webhook_id, "sending for a webhook failed");
    }
    let _ = actor.cast(Msg::Idle(webhook_id));
}

/// Sends what is due until nothing is, or the claim is another's.
async fn send_all(node: &NodeHandle, claim: &ClaimedWebhook) {
    let mut failures = 0_u32;
    while !node.is_draining() {
        let (page, at_once) = if failures == 0 { (PAGE, AT_ONCE_MAX) } else { (1, 1) };
        let due = match node.deliveries().due(claim, page).await {
            Ok(due) if due.is_empty() => return,
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, webhook = %claim.webhook_id, "the deliveries cannot be read yet");
                return;
            }
        };
        let mut waiting = due.into_iter();
        let mut sent = JoinSet::new();
        loop {
            while sent.len() < at_once
                && let Some(delivery) = waiting.next()
            {
                let (node, claim) = (node.clone(), claim.clone());
                sent.spawn(async move { deliver(&node, &claim, delivery).await });
            }
            match sent.join_next().await {
                None => break,
                Some(Ok(Outcome::Arrived)) => failures = 0,
                Some(Ok(Outcome::Failed)) => {
                    failures = failures.saturating_add(1);
                    // What is left of the page comes up again, one by one.
                    waiting = Vec::new().into_iter();
                }
                // What is on its way is not noted any more, and sent again.
                Some(Ok(Outcome::Over) | Err(_)) => return,
            }
        }
        if failures > 0 {
            let rest = REST.saturating_mul(1 << failures.saturating_sub(1).min(16));
            tokio::time::sleep(rest.min(REST_MAX)).await;
        }
    }
}

enum Outcome {
    Arrived,
    Failed,
    /// Nothing more is to be sent under this claim.
    Over,
}

async fn deliver(node: &NodeHandle, claim: &ClaimedWebhook, delivery: Delivery) -> Outcome {
    let Some(webhook) = node.known_webhook(&claim.webhook_id) else { return Outcome::Over };
    if !webhook.enabled {
        return Outcome::Over;
    }
    let began = node.now();
    let (answer, is_lost) = match made_of(node, &delivery).await {
        Ok(Some(bytes)) => (send(node, &webhook, &delivery, bytes).await, false),
        Ok(None) => (failed("journal-entry-missing", "the journal has no such entry any more"), true),
        Err(error) => {
            tracing::warn!(%error, webhook = %claim.webhook_id, "what is to be sent cannot be read yet");
            return Outcome::Over;
        }
    };
    let now = node.now();
    let random = node.random();
    let first = delivery.first_at.unwrap_or(began);
    let next = match judge_answer(&answer, delivery.attempts.saturating_add(1), first, now, random) {
        Next::Retry(_) if is_lost => Next::Dead,
        next @ (Next::Delivered | Next::Retry(_) | Next::Dead) => next,
    };
    let (state, next_at) = match next {
        Next::Delivered => (DeliveryState::Delivered, now),
        Next::Retry(at) => (DeliveryState::Waiting, at),
        Next::Dead => (DeliveryState::Dead, now),
    };
    let problem = answer.problem();
    if let Some(problem) = &problem {
        tracing::info!(webhook = %claim.webhook_id, event = delivery.event_id(), problem, "a delivery failed");
    }
    let attempt = Attempted { at: began, state, next_at, status: answer.status(), problem };
    match node.deliveries().note_attempt(claim, &delivery.place, attempt).await {
        Ok(true) => {}
        Ok(false) => return Outcome::Over,
        Err(error) => {
            tracing::warn!(%error, webhook = %claim.webhook_id, "an attempt could not be noted; it is made again");
            return Outcome::Failed;
        }
    }
    if answer.is_gone() {
        if let Err(error) = node.disable_webhook(&webhook).await {
            tracing::warn!(%error, webhook = %claim.webhook_id, "the webhook could not be disabled yet");
        }
        return Outcome::Over;
    }
    if answer.is_success() { Outcome::Arrived } else { Outcome::Failed }
}

async fn send(node: &NodeHandle, webhook: &Webhook, delivery: &Delivery, bytes: Vec<u8>) -> Answer {
    match node.signing_keys(webhook.tenant_id.as_ref(), &webhook.secret_ids).await {
        Ok(keys) => {
            let parcel = node.parcel(webhook, delivery.event_id(), node.now(), bytes, keys);
            node.courier().send(parcel).await
        }
        Err(problem) => failed("webhook-secret-unusable", &problem),
    }
}

fn failed(code: &str, message: &str) -> Answer {
    Answer::Failed { code: code.to_owned(), message: message.to_owned() }
}

/// What is sent, made of the journal's entry; `None` if that is not there any more.
async fn made_of(node: &NodeHandle, delivery: &Delivery) -> Result<Option<Vec<u8>>, StoreError> {
    let (place, after) = (&delivery.place, delivery.place.seq.saturating_sub(1));
    let Some(run_key) = place.run_key else {
        let filter = AuditFilter { after_seq: after, limit: 1, ..AuditFilter::default() };
        let act = node.acts().audit(&filter).await?.into_iter().next();
        let act = act.filter(|act| act.hash == delivery.hash);
        return Ok(act.and_then(|act| body(Entry::Act(&act), delivery.event_type, place.part)));
    };
    let journal = node.journal();
    let Some(head) = journal.head(run_key).await? else { return Ok(None) };
    let event = journal.read(run_key, after, 1).await?.into_iter().next();
    let event = event.filter(|event| event.hash == delivery.hash);
    Ok(event.and_then(|event| {
        let entry = Entry::Run { event: &event, tenant_id: &head.tenant_id, run_id: head.run_id };
        body(entry, delivery.event_type, place.part)
    }))
}
