//! Deliveries of webhooks: written with what they tell, and carried out by one node at a time.
//!
//! A delivery is a row that points at an entry of a journal. It is written in the transaction that writes the entry, and only
//! if a webhook wants its type for its tenant: so none is lost when a process dies, none is made of something that was not
//! committed, and an installation without webhooks has none. What is sent is made of the entry when it is sent.

use async_trait::async_trait;
use signalbox_domain::governance::audit::AuditEvent;
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::ids::{BudgetId, NodeIncarnation, RunKey, TenantId, WebhookId};
use signalbox_domain::run::append::RunHead;
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::time::UnixMs;
use signalbox_domain::webhook::{Answer, EventType, event_id, of_act, of_run};

use crate::journal::StoreError;
use crate::secrets::SecretValue;

/// Most deliveries of one reading.
pub const DELIVERIES_MAX: usize = 1_000;
/// How long a delivery that arrived is remembered, in milliseconds: seven days.
pub const DELIVERED_KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1_000;
/// How long one that did not is kept, for whoever wants it sent again, in milliseconds: thirty days.
pub const DEAD_KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1_000;
/// Most rows that are forgotten at once.
pub const FORGOTTEN_MAX: usize = 1_000;

/// Where something that is told stands. Those of one run, and of one thing in the audit journal, are sent in their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The run whose journal it is; absent: the audit journal.
    pub run_key: Option<RunKey>,
    /// What an act is about; empty for a run.
    pub subject: String,
    /// The entry.
    pub seq: u64,
    /// Which notice of it, from 0.
    pub part: u32,
}

impl Place {
    /// True if both are told in order.
    pub fn is_of_one_line_with(&self, other: &Self) -> bool {
        (self.run_key, &self.subject) == (other.run_key, &other.subject)
    }
}

/// Something to be told, before it is known to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Where it stands.
    pub place: Place,
    /// As what.
    pub event_type: EventType,
    /// Whose it is; absent: the platform's.
    pub tenant_id: Option<TenantId>,
    /// The hash of the entry, which names what is sent.
    pub hash: EventHash,
    /// What is told once under this name, and not again.
    pub once: Option<String>,
}

/// What of new events of a run is to be told. `window_of` gives the start of a budget's window.
pub fn told_of_run<'a>(
    head: &RunHead,
    events: &[StoredEvent],
    read_back: impl IntoIterator<Item = &'a RunEvent>,
    window_of: impl Fn(&BudgetId) -> Option<i64>,
) -> Vec<Told> {
    let mut told = Vec::new();
    for (stored, event) in events.iter().zip(read_back) {
        for notice in of_run(event, &head.run_key, &window_of) {
            told.push(Told {
                place: Place {
                    run_key: Some(head.run_key),
                    subject: String::new(),
                    seq: stored.seq,
                    part: notice.part,
                },
                event_type: notice.event_type,
                tenant_id: Some(head.tenant_id.clone()),
                hash: stored.hash,
                once: notice.once,
            });
        }
    }
    told
}

/// What of an act is to be told.
pub fn told_of_act(act: &AuditEvent) -> Option<Told> {
    let notice = of_act(act)?;
    Some(Told {
        place: Place { run_key: None, subject: act.subject.as_str().to_owned(), seq: act.seq, part: notice.part },
        event_type: notice.event_type,
        tenant_id: act.tenant_id.clone(),
        hash: act.hash,
        once: notice.once,
    })
}

/// How a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryState {
    /// It waits for its next attempt.
    Waiting,
    /// It arrived.
    Delivered,
    /// It was given up; somebody may have it sent again.
    Dead,
}

impl DeliveryState {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

/// One thing told to one webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// To whom.
    pub webhook_id: WebhookId,
    /// What.
    pub place: Place,
    /// As what.
    pub event_type: EventType,
    /// Whose it is; absent: the platform's.
    pub tenant_id: Option<TenantId>,
    /// The hash of the entry.
    pub hash: EventHash,
    /// When it happened, by the store's clock.
    pub queued_at: UnixMs,
    /// How it stands.
    pub state: DeliveryState,
    /// Attempts since it was last begun.
    pub attempts: u32,
    /// When the first of them was.
    pub first_at: Option<UnixMs>,
    /// When the next is due.
    pub next_at: UnixMs,
    /// When the last was.
    pub last_at: Option<UnixMs>,
    /// What it was answered with.
    pub last_status: Option<u16>,
    /// What went wrong.
    pub last_problem: Option<String>,
}

impl Delivery {
    /// The id that receivers tell repeats by.
    pub fn event_id(&self) -> String {
        event_id(&self.hash.hex(), self.place.part)
    }
}

/// A webhook that a node sends for, as long as it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedWebhook {
    /// Which.
    pub webhook_id: WebhookId,
    /// The node.
    pub node: NodeIncarnation,
    /// Raised by each claim: whoever has an older one notes nothing any more.
    pub lease_epoch: u64,
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempted {
    /// When it was.
    pub at: UnixMs,
    /// How the delivery stands now.
    pub state: DeliveryState,
    /// When the next attempt is due, if there is one.
    pub next_at: UnixMs,
    /// What it was answered with.
    pub status: Option<u16>,
    /// What went wrong.
    pub problem: Option<String>,
}

/// What is to be sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// Everything that happened since then and is not waiting anyway.
    Since(UnixMs),
    /// One event, by its id as receivers know it.
    One {
        /// The hash of the entry.
        hash: EventHash,
        /// Which notice of it.
        part: u32,
    },
}

impl Again {
    /// Reads an event's id.
    pub fn of_event_id(id: &str) -> Option<Self> {
        let rest = id.strip_prefix("evt_")?;
        let (hash, part) = match rest.split_once('_') {
            Some((hash, text)) => (hash, text.parse().ok().filter(|part: &u32| *part > 0 && part.to_string() == text)?),
            None => (rest, 0),
        };
        Some(Self::One { hash: EventHash::from_hex(hash)?, part })
    }
    /// True if this delivery is meant.
    pub fn means(&self, delivery: &Delivery) -> bool {
        delivery.state != DeliveryState::Waiting
            && match self {
                Self::Since(since) => delivery.queued_at >= *since,
                Self::One { hash, part } => (delivery.hash, delivery.place.part) == (*hash, *part),
            }
    }
}

/// The rows of deliveries. They are written by appends and acts.
#[async_trait]
pub trait Deliveries: Send + Sync + 'static {
    /// The webhooks with something due that this node sends for; those that nobody alive sends for are its own from now on. A
    /// node without a lease has none.
    async fn claim_webhooks(&self, node: NodeIncarnation) -> Result<Vec<ClaimedWebhook>, StoreError>;
    /// Deliveries that are due, the longest due first. Of each run, and of each thing in the audit journal, at most the
    /// earliest that waits. None once the claim is another's.
    async fn due(&self, claim: &ClaimedWebhook, limit: usize) -> Result<Vec<Delivery>, StoreError>;
    /// Notes an attempt. `false` if the claim is another's, or nothing waits at this place any more: then nothing is noted.
    async fn note_attempt(&self, claim: &ClaimedWebhook, place: &Place, attempt: Attempted)
    -> Result<bool, StoreError>;
    /// Deliveries of a webhook, the latest first, up to [`DELIVERIES_MAX`].
    async fn deliveries(&self, webhook: &WebhookId, limit: usize) -> Result<Vec<Delivery>, StoreError>;
    /// How many deliveries would be sent again.
    async fn count_again(&self, webhook: &WebhookId, again: &Again) -> Result<u64, StoreError>;
    /// Forgets what is old, and gives up what has waited for as long as dead letters are kept; up to [`FORGOTTEN_MAX`] rows.
    async fn forget_deliveries(&self) -> Result<usize, StoreError>;
}

/// Something to be sent.
pub struct Parcel {
    /// Where to.
    pub url: String,
    /// The event's id: the same at every attempt.
    pub id: String,
    /// When it is sent, in seconds since the Unix epoch; part of what is signed.
    pub timestamp: i64,
    /// What is sent.
    pub body: Vec<u8>,
    /// What signs it, the newest first.
    pub keys: Vec<SecretValue>,
    /// Hosts that may lie inside, by the operator's configuration for webhooks.
    pub exempt: Vec<HostExemption>,
}

/// Sends events. Signs each with every key (Standard Webhooks), follows no redirect, checks every address before it connects,
/// waits ten seconds at most and reads a bounded part of the answer.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Why a value cannot sign, if it cannot.
    fn check_key(&self, key: &SecretValue) -> Result<(), String>;
    /// Sends one.
    async fn send(&self, parcel: Parcel) -> Answer;
}

/// For an installation that sends nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoCourier;

#[async_trait]
impl Courier for NoCourier {
    fn check_key(&self, _: &SecretValue) -> Result<(), String> {
        Err("this installation sends no webhooks".to_owned())
    }
    async fn send(&self, _: Parcel) -> Answer {
        Answer::Failed { code: "webhooks-unavailable".to_owned(), message: "this installation sends none".to_owned() }
    }
}
