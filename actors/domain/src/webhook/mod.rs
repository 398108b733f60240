//! Webhooks: telling an operator's own systems what has happened, and only what that operator may see.
//!
//! A webhook is a rule like any other: put and removed by acts, published with the governance view. What is told is never
//! kept twice: a delivery points at an entry of a journal, and its text is made of that entry when it is sent.

mod cloud_event;
mod event_type;
mod managing;
mod notice;
mod retry;

pub use cloud_event::{CONTENT_TYPE, Entry, body, event_id, ping, ping_id};
pub use event_type::{EVENT_TYPE_PREFIX, EventType};
pub use managing::{
    PutWebhook, Putting, WEBHOOKS_MAX, WEBHOOKS_PER_TENANT_MAX, WebhookDenial, disable, find, may_see, put, remove,
    replay,
};
pub use notice::{Notice, of_act, of_run};
pub use retry::{
    Answer, DELIVERY_GIVES_UP_AFTER_MS, Next, PROBLEM_BYTES_MAX, RETRY_AFTER_SECONDS_MAX, RETRY_FIRST_MS,
    RETRY_LONGEST_MS, judge_answer, retry_delay_ms,
};

use serde::{Deserialize, Serialize};

use crate::governance::egress::{ANY_HOST, CheckedUrl, EgressDenial, EgressRules, HostExemption, check_url};
use crate::ids::{SecretId, TenantId, WebhookId};

/// Longest URL of a webhook, in bytes.
pub const WEBHOOK_URL_BYTES_MAX: usize = 1_024;
/// Most secrets of one webhook: the one in use, and the one before it while receivers change over.
pub const WEBHOOK_SECRETS_MAX: usize = 2;
/// Ports below this one belong to other protocols, but for the one of the scheme.
const PORT_FREE: u16 = 1_024;

/// Where events are sent, and which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Names it.
    pub webhook_id: WebhookId,
    /// Whose events; absent: everybody's, and those of the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// Where they are sent.
    pub url: String,
    /// Which; sorted, each once.
    pub events: Vec<EventType>,
    /// The secrets that sign, by their handles, the newest first.
    pub secret_ids: Vec<SecretId>,
    /// False: nothing is sent, and nothing that happens is kept for it.
    pub enabled: bool,
    /// Why it is not enabled, if nobody asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_because: Option<String>,
}

/// Why a URL may not be one of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookUrlError {
    /// Longer than [`WEBHOOK_URL_BYTES_MAX`].
    #[error("the URL has {0} bytes; at most {WEBHOOK_URL_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// A fragment never leaves this machine: whoever wrote one meant something else.
    #[error("the URL has a fragment, which is never sent; leave it out")]
    Fragment,
    /// A port of another protocol.
    #[error("port {0} belongs to another protocol; use the one of https, or one from {PORT_FREE}")]
    Port(u16),
    /// What the guard says.
    #[error(transparent)]
    Egress(#[from] EgressDenial),
}

impl WebhookUrlError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLong(_) | Self::Fragment => "webhook-url-invalid",
            Self::Port(_) => "webhook-port-not-allowed",
            Self::Egress(denial) => denial.reason.code(),
        }
    }
}

/// What a webhook may reach: https on the public internet, and beside that only hosts an operator's configuration exempts
/// for webhooks, those over plain HTTP too.
pub fn egress_rules(url: &str, exempt: &[HostExemption]) -> EgressRules {
    let plain_allowed = exempt.iter().any(|exemption| {
        let rules = EgressRules {
            allow_hosts: vec![exemption.host.clone()],
            allow_schemes: vec!["http".to_owned()],
            allow_methods: vec!["POST".to_owned()],
            exempt: exempt.to_vec(),
        };
        check_url(url, "POST", &rules).is_ok()
    });
    let schemes: &[&str] = if plain_allowed { &["https", "http"] } else { &["https"] };
    EgressRules {
        allow_hosts: vec![ANY_HOST.to_owned()],
        allow_schemes: schemes.iter().map(|&scheme| scheme.to_owned()).collect(),
        allow_methods: vec!["POST".to_owned()],
        exempt: exempt.to_vec(),
    }
}

/// Checks a URL before anything is resolved: when a webhook is put, and again before each delivery.
///
/// # Errors
/// The first check that fails.
pub fn check_webhook_url(url: &str, exempt: &[HostExemption]) -> Result<CheckedUrl, WebhookUrlError> {
    if url.len() > WEBHOOK_URL_BYTES_MAX {
        return Err(WebhookUrlError::TooLong(url.len()));
    }
    let checked = check_url(url, "POST", &egress_rules(url, exempt))?;
    if checked.url.fragment().is_some() {
        return Err(WebhookUrlError::Fragment);
    }
    let own = matches!((checked.url.scheme(), checked.port), ("https", 443) | ("http", 80));
    if !own && checked.port < PORT_FREE {
        return Err(WebhookUrlError::Port(checked.port));
    }
    Ok(checked)
}
