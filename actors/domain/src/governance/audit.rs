//! The audit journal: every act by which somebody manages governance, hash-chained like a run's events.
//!
//! One journal for the whole installation, not one for each tenant: acts on platform-wide rules concern every tenant, and
//! one chain shows that none was taken out between two others. A tenant's operators are shown their own tenant's acts.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::identity::Actor;
use crate::ids::TenantId;
use crate::run::chain::EventHash;
use crate::time::UnixMicros;

/// Version of the body this program writes.
pub const AUDIT_VERSION: u16 = 1;

/// What was done. Stored as its wire string; one that is not known any more can still be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditKind {
    /// A switch was armed.
    SwitchArmed,
    /// Somebody asked to disarm a switch, and another identity must confirm it.
    SwitchDisarmProposed,
    /// A switch was disarmed.
    SwitchDisarmed,
    /// A budget was created or changed.
    BudgetPut,
    /// A budget was given more.
    BudgetToppedUp,
    /// A budget was taken out of force.
    BudgetRetired,
    /// A shared grant was issued.
    GrantIssued,
    /// A shared grant was renewed: a new one in its place.
    GrantRenewed,
    /// A shared grant was revoked.
    GrantRevoked,
    /// The rules of all token buckets were set.
    ThrottlesSet,
    /// The rule of one token bucket was set.
    ThrottleSet,
    /// The rule of one token bucket was removed.
    ThrottleRemoved,
    /// A webhook was created or changed.
    WebhookPut,
    /// A webhook was removed.
    WebhookRemoved,
    /// A webhook was disabled because its endpoint wants no more.
    WebhookDisabled,
    /// Deliveries of a webhook were sent again.
    WebhookReplayed,
    /// An agent was registered.
    AgentRegistered,
    /// A later version of an agent was published.
    AgentPublished,
    /// A version of an agent was moved.
    AgentMoved,
    /// An executor was registered.
    ExecutorRegistered,
    /// An executor was retired.
    ExecutorRetired,
    /// A rollout was begun.
    RolloutStarted,
    /// A challenger became champion.
    ChallengerPromoted,
    /// A rollout was frozen.
    RolloutFrozen,
    /// A frozen rollout goes on.
    RolloutUnfrozen,
    /// The champion from before a promotion is champion again.
    RolloutRolledBack,
    /// A rollout was given up.
    RolloutEnded,
    /// A tenant made a pipeline tighter, or took that back.
    PipelineCustomized,
    /// A run's input was put into a gold set.
    GoldSetEntryPromoted,
    /// A schedule was created or changed.
    SchedulePut,
    /// A schedule was paused.
    SchedulePaused,
    /// A paused schedule goes on.
    ScheduleResumed,
    /// A schedule was removed.
    ScheduleRemoved,
    /// Slots of a schedule were filled in after the fact.
    ScheduleBackfilled,
    /// A dead letter of a schedule is tried again.
    ScheduleRedriven,
    /// An API key was made.
    ApiKeyMade,
    /// An API key was revoked.
    ApiKeyRevoked,
}

impl AuditKind {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SwitchArmed => "switch-armed",
            Self::SwitchDisarmProposed => "switch-disarm-proposed",
            Self::SwitchDisarmed => "switch-disarmed",
            Self::BudgetPut => "budget-put",
            Self::BudgetToppedUp => "budget-topped-up",
            Self::BudgetRetired => "budget-retired",
            Self::GrantIssued => "grant-issued",
            Self::GrantRenewed => "grant-renewed",
            Self::GrantRevoked => "grant-revoked",
            Self::ThrottlesSet => "throttles-set",
            Self::ThrottleSet => "throttle-set",
            Self::ThrottleRemoved => "throttle-removed",
            Self::WebhookPut => "webhook-put",
            Self::WebhookRemoved => "webhook-removed",
            Self::WebhookDisabled => "webhook-disabled",
            Self::WebhookReplayed => "webhook-replayed",
            Self::AgentRegistered => "agent-registered",
            Self::AgentPublished => "agent-published",
            Self::AgentMoved => "agent-moved",
            Self::ExecutorRegistered => "executor-registered",
            Self::ExecutorRetired => "executor-retired",
            Self::RolloutStarted => "rollout-started",
            Self::ChallengerPromoted => "challenger-promoted",
            Self::RolloutFrozen => "rollout-frozen",
            Self::RolloutUnfrozen => "rollout-unfrozen",
            Self::RolloutRolledBack => "rollout-rolled-back",
            Self::RolloutEnded => "rollout-ended",
            Self::PipelineCustomized => "pipeline-customized",
            Self::GoldSetEntryPromoted => "gold-set-entry-promoted",
            Self::SchedulePut => "schedule-put",
            Self::SchedulePaused => "schedule-paused",
            Self::ScheduleResumed => "schedule-resumed",
            Self::ScheduleRemoved => "schedule-removed",
            Self::ScheduleBackfilled => "schedule-backfilled",
            Self::ScheduleRedriven => "schedule-redriven",
            Self::ApiKeyMade => "api-key-made",
            Self::ApiKeyRevoked => "api-key-revoked",
        }
    }
}

/// The thing an act is about, as `kind:id`, such as `switch:no-web`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Subject(String);

impl Subject {
    /// A kill switch.
    pub fn switch(id: &impl fmt::Display) -> Self {
        Self(format!("switch:{id}"))
    }
    /// A budget.
    pub fn budget(id: &impl fmt::Display) -> Self {
        Self(format!("budget:{id}"))
    }
    /// A shared grant.
    pub fn grant(id: &impl fmt::Display) -> Self {
        Self(format!("grant:{id}"))
    }
    /// A webhook.
    pub fn webhook(id: &impl fmt::Display) -> Self {
        Self(format!("webhook:{id}"))
    }
    /// The rules of all token buckets: they are set together.
    pub fn throttles() -> Self {
        Self("throttles:all".to_owned())
    }
    /// The rule of one token bucket.
    pub fn throttle(id: &impl fmt::Display) -> Self {
        Self(format!("throttle:{id}"))
    }
    /// An agent in all its versions: a tenant's, or the platform's.
    pub fn agent(tenant: Option<&TenantId>, id: &impl fmt::Display) -> Self {
        // No id holds a slash.
        match tenant {
            Some(tenant) => Self(format!("agent:{tenant}/{id}")),
            None => Self(format!("agent:{id}")),
        }
    }
    /// An executor that was registered.
    pub fn executor(id: &impl fmt::Display) -> Self {
        Self(format!("executor:{id}"))
    }
    /// A rollout.
    pub fn rollout(id: &impl fmt::Display) -> Self {
        Self(format!("rollout:{id}"))
    }
    /// A tenant's variant of a pipeline.
    pub fn pipeline(tenant: &TenantId, id: &impl fmt::Display) -> Self {
        Self(format!("pipeline:{tenant}/{id}"))
    }
    /// A gold set.
    pub fn gold_set(id: &impl fmt::Display) -> Self {
        Self(format!("gold-set:{id}"))
    }
    /// A schedule of a tenant.
    pub fn schedule(tenant: &TenantId, id: &impl fmt::Display) -> Self {
        // No id holds a slash.
        Self(format!("schedule:{tenant}/{id}"))
    }
    /// An API key.
    pub fn api_key(id: &impl fmt::Display) -> Self {
        Self(format!("api-key:{id}"))
    }
    /// One that lies in a store or an export.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an act says, beside who did it and to what.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditBody {
    /// Why.
    pub reason: String,
    /// The thing before the act; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The thing after the act; absent if there is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// What else was known, such as how many runs a switch had stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl AuditBody {
    /// The bytes that are hashed and kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// An act as it lies in the audit journal.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEvent {
    /// From 1 without gaps. The last one of a subject is that subject's revision.
    pub seq: u64,
    /// When, by the store's clock, never before the act ahead of it.
    pub at: UnixMicros,
    /// Whose rules were changed; absent: the whole platform's.
    pub tenant_id: Option<TenantId>,
    /// Who did it.
    pub actor: Actor,
    /// What was done.
    pub kind: String,
    /// To what.
    pub subject: Subject,
    /// Version of the body.
    pub version: u16,
    /// The governance epoch after the act.
    pub epoch: u64,
    /// The exact bytes that were hashed: JSON of an [`AuditBody`].
    pub body: Vec<u8>,
    /// Hash of the act before.
    pub prev_hash: EventHash,
    /// Hash of this one.
    pub hash: EventHash,
}

impl AuditEvent {
    /// What the act says; `None` if this version cannot read it.
    pub fn said(&self) -> Option<AuditBody> {
        serde_json::from_slice(&self.body).ok()
    }

    /// What the hash of this act must be.
    pub fn expected_hash(&self) -> EventHash {
        let mut hasher = Sha256::new();
        let mut field = |bytes: &[u8]| {
            // The length in front keeps two neighbouring fields from being cut differently under one hash.
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        field(b"signalbox.audit.v1");
        field(&self.prev_hash.0);
        // No tenant has an empty id, so an empty one is the platform.
        field(self.tenant_id.as_ref().map_or("", TenantId::as_str).as_bytes());
        field(&self.seq.to_be_bytes());
        field(&self.at.0.to_be_bytes());
        field(self.actor.actor_id.as_str().as_bytes());
        field(self.actor.role.as_str().as_bytes());
        field(self.kind.as_bytes());
        field(self.subject.as_str().as_bytes());
        field(&self.version.to_be_bytes());
        field(&self.epoch.to_be_bytes());
        field(&self.body);
        EventHash(hasher.finalize().into())
    }
}

/// Where the audit journal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditHead {
    /// The last act; 0 if there is none.
    pub seq: u64,
    /// Its hash.
    pub hash: EventHash,
    /// When it was.
    #[serde(rename = "atUnixMicros")]
    pub at: UnixMicros,
}

/// Something that is wrong with an audit journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFinding {
    /// At which act; 0 if at none in particular.
    pub seq: u64,
    /// Stable code.
    pub code: String,
    /// In words.
    pub message: String,
}

/// What verifying an audit journal gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// True if nothing was found.
    pub ok: bool,
    /// How many acts there are.
    pub events: u64,
    /// The hash of the last one, recomputed from what the acts say.
    pub head_hash: String,
    /// What was found.
    pub findings: Vec<AuditFinding>,
}

/// Holds a whole audit journal against the rules it was written by, and against the end that the store remembers beside it.
///
/// Finds an act that was changed (`audit-hash-wrong`), taken out, put in or moved (`audit-out-of-order`,
/// `audit-chain-broken`), acts cut off at the end (`audit-cut`), time or epochs that run backwards, and bodies nobody wrote.
pub fn verify_audit(events: &[AuditEvent], end: Option<AuditHead>) -> AuditReport {
    let mut findings = Vec::new();
    let mut note = |seq: u64, code: &str, message: String| {
        findings.push(AuditFinding { seq, code: code.to_owned(), message });
    };
    let (mut prev_hash, mut at, mut epoch) = (EventHash::ZERO, UnixMicros(i64::MIN), 0);
    for (event, due) in events.iter().zip(1_u64..) {
        if event.seq != due {
            note(event.seq, "audit-out-of-order", format!("act {due} should stand here"));
        }
        if event.prev_hash != prev_hash {
            note(event.seq, "audit-chain-broken", "it does not follow from the act before it".to_owned());
        }
        let expected = event.expected_hash();
        if event.hash != expected {
            note(event.seq, "audit-hash-wrong", "it says something else than what was hashed".to_owned());
        }
        if event.at < at {
            note(event.seq, "audit-time-backwards", "it is older than the act before it".to_owned());
        }
        if event.epoch < epoch {
            note(event.seq, "audit-epoch-backwards", "its epoch is lower than that of the act before it".to_owned());
        }
        if event.version == AUDIT_VERSION && event.said().is_none() {
            note(event.seq, "audit-body-unreadable", "its body is none that this version writes".to_owned());
        }
        // What is recomputed and not what is claimed: a change shows at every act behind it too.
        (prev_hash, at, epoch) = (expected, event.at, event.epoch);
    }
    let count = events.len() as u64;
    match end {
        Some(end) if end.seq != count => {
            note(0, "audit-cut", format!("the end is promised at act {} and there are {count}", end.seq));
        }
        Some(end) if end.hash != prev_hash => note(count, "audit-cut", "another last act is promised".to_owned()),
        Some(_) => {}
        None => note(0, "audit-cut", "nothing says where the journal ends".to_owned()),
    }
    AuditReport { ok: findings.is_empty(), events: count, head_hash: prev_hash.hex(), findings }
}
