//! Managing webhooks: who may put which, and what a wish comes to.

use crate::governance::budgeting::Expected;
use crate::governance::change::GovernanceState;
use crate::governance::egress::HostExemption;
use crate::governance::kill_switch::SWITCH_TEXT_BYTES_MAX;
use crate::governance::switching::{Operator, Reach, within};
use crate::identity::Role;
use crate::ids::{SecretId, TenantId, WebhookId};
use crate::webhook::{EventType, WEBHOOK_SECRETS_MAX, Webhook, WebhookUrlError, check_webhook_url};

/// Most webhooks of one tenant.
pub const WEBHOOKS_PER_TENANT_MAX: usize = 32;
/// Most webhooks over all tenants and of the platform.
pub const WEBHOOKS_MAX: usize = 1_000;

/// A webhook as somebody wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutWebhook {
    /// Its id.
    pub webhook_id: WebhookId,
    /// Whose events.
    pub reach: Reach,
    /// Where they are sent.
    pub url: String,
    /// Which.
    pub events: Vec<EventType>,
    /// The secrets that sign, the newest first.
    pub secret_ids: Vec<SecretId>,
    /// False: put, and nothing is sent yet.
    pub enabled: bool,
    /// Why.
    pub reason: String,
    /// The revision the caller has seen.
    pub expected: Expected,
}

/// Why a webhook is not put, removed, tried or replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookDenial {
    /// The URL may not be one.
    #[error(transparent)]
    Url(#[from] WebhookUrlError),
    /// Nothing would ever be sent.
    #[error("name at least one type of event")]
    NoEvents,
    /// Unsigned events are not sent, and more keys than two are no rotation.
    #[error("name one secret that signs, or two different ones while receivers change over; the newest first")]
    BadSecrets,
    /// There is no such secret for webhooks of this tenant, or no usable one.
    #[error("{0}")]
    Secret(String),
    /// The role does not cover it, or the tenant is another one.
    #[error("{0}")]
    NotAuthorized(String),
    /// No reason, or one that is too long.
    #[error("`reason` must say why, in at most {SWITCH_TEXT_BYTES_MAX} bytes")]
    BadReason,
    /// No webhook of this id that the caller may see.
    #[error("there is no webhook `{0}`")]
    NoSuchWebhook(String),
    /// Somebody else has changed it since.
    #[error("the webhook is at revision {actual}, and you have seen {expected}; look at it again")]
    StaleRevision {
        /// What the caller has seen.
        expected: u64,
        /// What it is.
        actual: u64,
    },
    /// It was to be a new one.
    #[error("the webhook `{0}` exists already")]
    Exists(WebhookId),
    /// The id is that of a webhook of somebody else.
    #[error("the id `{0}` belongs to another webhook; choose another id")]
    IdTaken(WebhookId),
    /// There are so many already.
    #[error("there are {0} webhooks already; remove some first")]
    TooMany(usize),
    /// Nothing of what was named can be sent again.
    #[error("the webhook `{0}` has no delivery like that which could be sent again")]
    NothingToReplay(WebhookId),
    /// It is not enabled: what would be sent again would wait for ever.
    #[error("the webhook `{0}` is disabled; enable it first")]
    Disabled(WebhookId),
}

impl WebhookDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Url(error) => error.code(),
            Self::NoEvents => "webhook-events-missing",
            Self::BadSecrets => "webhook-secrets-invalid",
            Self::Secret(_) => "webhook-secret-unusable",
            Self::NotAuthorized(_) => "not-authorized",
            Self::BadReason => "reason-required",
            Self::NoSuchWebhook(_) => "no-such-webhook",
            Self::StaleRevision { .. } => "stale-revision",
            Self::Exists(_) => "webhook-exists",
            Self::IdTaken(_) => "webhook-id-conflict",
            Self::TooMany(_) => "too-many-webhooks",
            Self::NothingToReplay(_) => "nothing-to-replay",
            Self::Disabled(_) => "webhook-disabled",
        }
    }
}

/// What a wish comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Putting {
    /// The webhook as it is to be from now on.
    Put(Webhook),
    /// It is like that already.
    Unchanged(Webhook),
}

/// Decides on creating or changing a webhook. `revision` is that of the one that is there.
pub fn put(
    wish: PutWebhook,
    by: Operator<'_>,
    state: &GovernanceState,
    revision: u64,
    exempt: &[HostExemption],
) -> Result<Putting, WebhookDenial> {
    let tenant_id = match wish.reach {
        Reach::Own => Some(by.tenant_id.clone()),
        Reach::Tenant(tenant) => Some(tenant),
        Reach::Platform => None,
    };
    may_manage(by, tenant_id.as_ref())?;
    check_reason(&wish.reason)?;
    check_webhook_url(&wish.url, exempt)?;
    let mut events = wish.events;
    events.sort_unstable();
    events.dedup();
    if events.is_empty() || events.contains(&EventType::Ping) {
        return Err(WebhookDenial::NoEvents);
    }
    let distinct = wish.secret_ids.iter().enumerate().all(|(at, id)| !wish.secret_ids[..at].contains(id));
    if wish.secret_ids.is_empty() || wish.secret_ids.len() > WEBHOOK_SECRETS_MAX || !distinct {
        return Err(WebhookDenial::BadSecrets);
    }
    let webhook = Webhook {
        webhook_id: wish.webhook_id,
        tenant_id,
        url: wish.url,
        events,
        secret_ids: wish.secret_ids,
        enabled: wish.enabled,
        disabled_because: None,
    };
    let known = state.webhooks.iter().find(|known| known.webhook_id == webhook.webhook_id);
    match (known, wish.expected) {
        // Whose events it is told is what a webhook is: under this id those of others would follow.
        (Some(known), _) if known.tenant_id != webhook.tenant_id => Err(WebhookDenial::IdTaken(webhook.webhook_id)),
        (Some(_), Expected::None) => Err(WebhookDenial::Exists(webhook.webhook_id)),
        (Some(known), expected) => {
            check_revision(expected, revision)?;
            Ok(if *known == webhook { Putting::Unchanged(webhook) } else { Putting::Put(webhook) })
        }
        (None, Expected::Revision(expected)) => Err(WebhookDenial::StaleRevision { expected, actual: 0 }),
        (None, Expected::Any | Expected::None) => {
            let own = state.webhooks.iter().filter(|known| known.tenant_id == webhook.tenant_id).count();
            if state.webhooks.len() >= WEBHOOKS_MAX {
                return Err(WebhookDenial::TooMany(WEBHOOKS_MAX));
            }
            if webhook.tenant_id.is_some() && own >= WEBHOOKS_PER_TENANT_MAX {
                return Err(WebhookDenial::TooMany(WEBHOOKS_PER_TENANT_MAX));
            }
            Ok(Putting::Put(webhook))
        }
    }
}

/// Decides on removing a webhook; answers it as it was.
pub fn remove(
    id: &WebhookId,
    reason: &str,
    expected: Expected,
    by: Operator<'_>,
    state: &GovernanceState,
    revision: u64,
) -> Result<Webhook, WebhookDenial> {
    let webhook = find(id, by, state)?;
    check_reason(reason)?;
    check_revision(expected, revision)?;
    Ok(webhook.clone())
}

/// Decides on sending deliveries again; answers the webhook.
pub fn replay<'s>(
    id: &WebhookId,
    reason: &str,
    by: Operator<'_>,
    state: &'s GovernanceState,
) -> Result<&'s Webhook, WebhookDenial> {
    let webhook = find(id, by, state)?;
    check_reason(reason)?;
    if webhook.enabled { Ok(webhook) } else { Err(WebhookDenial::Disabled(id.clone())) }
}

/// The webhook after its endpoint said that it is gone; `None` if nothing follows any more.
pub fn disable(id: &WebhookId, url: &str, state: &GovernanceState) -> Option<(Webhook, Webhook)> {
    let known = state.webhooks.iter().find(|known| known.webhook_id == *id && known.enabled && known.url == url)?;
    let because = "the endpoint answered 410: it wants no more events".to_owned();
    Some((known.clone(), Webhook { enabled: false, disabled_because: Some(because), ..known.clone() }))
}

/// A webhook that the caller may manage. Somebody else's is as absent as none (I11).
pub fn find<'s>(id: &WebhookId, by: Operator<'_>, state: &'s GovernanceState) -> Result<&'s Webhook, WebhookDenial> {
    may_manage(by, Some(by.tenant_id))?;
    let known = state.webhooks.iter().find(|known| known.webhook_id == *id && may_see(by, known));
    known.ok_or_else(|| WebhookDenial::NoSuchWebhook(id.to_string()))
}

/// True if the caller may be shown this webhook. The platform's say nothing to a tenant, and are shown to none.
pub fn may_see(by: Operator<'_>, webhook: &Webhook) -> bool {
    may_manage(by, webhook.tenant_id.as_ref()).is_ok()
}

fn may_manage(by: Operator<'_>, tenant: Option<&TenantId>) -> Result<(), WebhookDenial> {
    match by.actor.role {
        Role::PlatformOperator | Role::TenantOperator => {
            within(by, tenant).map_err(|why| WebhookDenial::NotAuthorized(why.to_owned()))
        }
        role @ (Role::Customer | Role::Creator | Role::Service) => {
            Err(WebhookDenial::NotAuthorized(format!("a {} may not manage webhooks", role.as_str())))
        }
    }
}

fn check_reason(reason: &str) -> Result<(), WebhookDenial> {
    if reason.trim().is_empty() || reason.len() > SWITCH_TEXT_BYTES_MAX {
        return Err(WebhookDenial::BadReason);
    }
    Ok(())
}

fn check_revision(expected: Expected, actual: u64) -> Result<(), WebhookDenial> {
    match expected {
        Expected::Revision(expected) if expected != actual => Err(WebhookDenial::StaleRevision { expected, actual }),
        Expected::Any | Expected::None | Expected::Revision(_) => Ok(()),
    }
}
