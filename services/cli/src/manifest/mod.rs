//! Rules as files: documents that say what should be in force, so that they can be kept, reviewed and applied again.
//!
//! A document has a kind, whose rule it is, why, and the rule itself:
//!
//! ```yaml
//! kind: budget
//! tenant: acme
//! reason: the contract of March
//! spec:
//!   budgetId: acme-daily
//!   scope: tenant
//!   scopeKey: acme
//!   category: cost-units
//!   limit: 500
//! ```
//!
//! This module reads and writes documents and compares rules; it asks nobody. What a rule may say is judged by the server.

mod diff;
mod read;

use std::borrow::Cow;
use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use signalbox_domain::catalog::version::precedence;

pub(crate) use diff::differences;
pub(crate) use read::{read, yaml};

/// The field that tells the versions of an agent apart.
pub(crate) const VERSION_FIELD: &str = "agentSemver";

/// What a document is about, in the order in which they are applied: what tightens comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A kill switch that is armed.
    Switch,
    /// A rule of token buckets.
    Throttle,
    /// A budget.
    Budget,
    /// A shared grant.
    Grant,
    /// What operators' own systems are told.
    Webhook,
    /// An executor of tools that is registered at run time.
    Executor,
    /// One version of an agent.
    Agent,
    /// Two versions of an agent that are tried against each other.
    Rollout,
}

impl Kind {
    /// The wire string.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Throttle => "throttle",
            Self::Budget => "budget",
            Self::Grant => "grant",
            Self::Webhook => "webhook",
            Self::Executor => "executor",
            Self::Agent => "agent",
            Self::Rollout => "rollout",
        }
    }

    /// The field of the rule that holds its id.
    pub(crate) const fn id_field(self) -> &'static str {
        match self {
            Self::Switch => "switchId",
            Self::Throttle => "bucketId",
            Self::Budget => "budgetId",
            Self::Grant => "grantId",
            Self::Webhook => "webhookId",
            Self::Executor => "executorId",
            Self::Agent => "agentId",
            Self::Rollout => "rolloutId",
        }
    }
}

/// One document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Document {
    /// What it is about.
    pub(crate) kind: Kind,
    /// Whose rule it is; absent: the caller's tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// True: everybody's. Not together with a tenant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) platform_wide: bool,
    /// Why; what is recorded when it is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The rule.
    pub(crate) spec: Map<String, Value>,
    /// Where it stands, for messages.
    #[serde(skip)]
    pub(crate) origin: String,
}

impl Document {
    /// The id of what it is about; of a version of an agent `agentId@semver`. Empty if it says none.
    pub(crate) fn id(&self) -> Cow<'_, str> {
        let id = self.text(self.kind.id_field());
        match (self.kind, self.text(VERSION_FIELD)) {
            (Kind::Agent, version) if !id.is_empty() && !version.is_empty() => Cow::Owned(format!("{id}@{version}")),
            (Kind::Agent, _) => Cow::Borrowed(""),
            (..) => Cow::Borrowed(id),
        }
    }

    /// Whose agent it is about, as the entry says it: two tenants may have agents of one id.
    pub(crate) fn of_tenant(&self) -> &str {
        let scope = self.spec.get("tenantScope").filter(|_| self.kind == Kind::Agent);
        scope.and_then(|scope| scope.get("tenantId")?.as_str()).unwrap_or_default()
    }

    /// Which of two is applied first: what tightens, and of the versions of an agent the older.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let named = |document: &Self| (document.kind, document.of_tenant().to_owned(), document.name().to_owned());
        let versions = || precedence(self.text(VERSION_FIELD), other.text(VERSION_FIELD));
        named(self).cmp(&named(other)).then_with(versions).then_with(|| self.id().cmp(&other.id()))
    }

    fn name(&self) -> &str {
        self.text(self.kind.id_field())
    }

    /// A text of the rule; empty if there is none.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.spec.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// What is recorded as the reason.
    pub(crate) fn reason(&self) -> String {
        self.reason.clone().unwrap_or_else(|| format!("applied from {}", self.origin))
    }

    /// What it is about, such as `budget acme-daily`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.kind.as_str(), self.id())
    }
}
