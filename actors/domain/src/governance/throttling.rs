//! Setting and removing token buckets: who may, and what a wish comes to.

use crate::catalog;
use crate::governance::budgeting::Expected;
use crate::governance::kill_switch::SWITCH_TEXT_BYTES_MAX;
use crate::governance::switching::{self, Operator, Reach};
use crate::governance::throttle::{BucketError, BucketRule};
use crate::identity::Role;
use crate::ids::{ActorId, AgentId, BucketId, ProviderId, ToolId};
use crate::registry;

/// Most rules at once, over all tenants: every call is held against each of them.
pub const THROTTLES_MAX: usize = 1_000;

/// A rule that is known.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The rule.
    pub rule: &'a BucketRule,
    /// The last act on it; 0 if none is recorded.
    pub revision: u64,
}

/// Why a rule is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThrottleDenial {
    /// It makes no sense.
    #[error(transparent)]
    Senseless(#[from] BucketError),
    /// A text that can name none of its kind: the rule would slow nothing, and nobody would notice.
    #[error("there is no {0} `{1}`; a bucket for it would slow nothing")]
    UnknownTarget(&'static str, String),
    /// A tenant in the rule and another one beside it.
    #[error("the rule names a tenant, and another one, or the whole platform, is named beside it")]
    TwoTenants,
    /// The role does not cover it, or the tenant is another one.
    #[error("{0}")]
    NotAuthorized(String),
    /// No reason, or one that is too long.
    #[error("`reason` must say why, in at most {SWITCH_TEXT_BYTES_MAX} bytes")]
    BadReason,
    /// No rule of this id that the caller may see.
    #[error("there is no throttle `{0}`")]
    NoSuchThrottle(String),
    /// Somebody else has changed it since.
    #[error("the throttle is at revision {actual}, and you have seen {expected}; look at it again")]
    StaleRevision {
        /// What the caller has seen.
        expected: u64,
        /// What it is.
        actual: u64,
    },
    /// It was to be a new one.
    #[error("the throttle `{0}` exists already")]
    Exists(BucketId),
    /// The id is that of another tenant's rule, or of the platform's.
    #[error("the id `{0}` belongs to somebody else's throttle; choose another id")]
    IdTaken(BucketId),
    /// So many are set that each call would be held against too many.
    #[error("{THROTTLES_MAX} throttles are set; remove some, or keep one bucket for each of something")]
    TooMany,
}

impl ThrottleDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Senseless(error) => error.code(),
            Self::UnknownTarget(..) => "throttle-target-unknown",
            Self::TwoTenants => "throttle-two-tenants",
            Self::NotAuthorized(_) => "not-authorized",
            Self::BadReason => "reason-required",
            Self::NoSuchThrottle(_) => "no-such-throttle",
            Self::StaleRevision { .. } => "stale-revision",
            Self::Exists(_) => "throttle-exists",
            Self::IdTaken(_) => "throttle-id-conflict",
            Self::TooMany => "too-many-throttles",
        }
    }
}

/// What a wish comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// The rule as it is to be from now on.
    Set(BucketRule),
    /// It is like that already.
    Unchanged,
}

/// Decides on setting a rule. `known` is the one under its id, `count` how many there are.
pub fn set(
    wish: BucketRule,
    reach: Reach,
    reason: &str,
    expected: Expected,
    by: Operator<'_>,
    known: Option<Known<'_>>,
    count: usize,
) -> Result<Setting, ThrottleDenial> {
    check_operator(by)?;
    let tenant_id = match (reach, wish.tenant_id) {
        (Reach::Platform, None) => None,
        (Reach::Tenant(tenant), None) | (Reach::Own, Some(tenant)) => Some(tenant),
        (Reach::Tenant(tenant), Some(own)) if tenant == own => Some(tenant),
        (Reach::Own, None) => Some(by.tenant_id.clone()),
        (Reach::Platform | Reach::Tenant(_), Some(_)) => return Err(ThrottleDenial::TwoTenants),
    };
    let wish = BucketRule { tenant_id, ..wish };
    switching::within(by, wish.tenant_id.as_ref()).map_err(|why| ThrottleDenial::NotAuthorized(why.to_owned()))?;
    check_reason(reason)?;
    wish.validate()?;
    check_known(&wish)?;
    match known {
        Some(known) if known.rule.tenant_id != wish.tenant_id => Err(ThrottleDenial::IdTaken(wish.bucket_id)),
        Some(_) if expected == Expected::None => Err(ThrottleDenial::Exists(wish.bucket_id)),
        Some(known) => {
            check_revision(expected, known.revision)?;
            Ok(if *known.rule == wish { Setting::Unchanged } else { Setting::Set(wish) })
        }
        None if count >= THROTTLES_MAX => Err(ThrottleDenial::TooMany),
        None => match expected {
            Expected::Revision(expected) => Err(ThrottleDenial::StaleRevision { expected, actual: 0 }),
            Expected::Any | Expected::None => Ok(Setting::Set(wish)),
        },
    }
}

/// Decides on removing a rule that the caller may see.
pub fn remove(reason: &str, expected: Expected, by: Operator<'_>, known: Known<'_>) -> Result<(), ThrottleDenial> {
    check_operator(by)?;
    let tenant = known.rule.tenant_id.as_ref();
    switching::within(by, tenant).map_err(|why| ThrottleDenial::NotAuthorized(why.to_owned()))?;
    check_reason(reason)?;
    check_revision(expected, known.revision)
}

/// True if the caller may be shown this rule: another tenant's is as absent as none (I11).
pub fn may_see(by: Operator<'_>, rule: &BucketRule) -> bool {
    switching::may_see(by, rule.tenant_id.as_ref())
}

fn check_operator(by: Operator<'_>) -> Result<(), ThrottleDenial> {
    match by.actor.role {
        Role::PlatformOperator | Role::TenantOperator => Ok(()),
        role @ (Role::Customer | Role::Creator | Role::Service) => {
            Err(ThrottleDenial::NotAuthorized(format!("a {} may not manage throttles", role.as_str())))
        }
    }
}

fn check_known(rule: &BucketRule) -> Result<(), ThrottleDenial> {
    let known_tool = |text: &str| ToolId::new(text).is_ok_and(|tool| catalog::entry(&tool).is_some());
    let known_agent = |text: &str| AgentId::new(text).is_ok_and(|agent| registry::may_be_registered(&agent));
    let check = |kind: &'static str, named: &Option<String>, is_known: fn(&str) -> bool| match named {
        Some(text) if !is_known(text) => Err(ThrottleDenial::UnknownTarget(kind, text.chars().take(128).collect())),
        Some(_) | None => Ok(()),
    };
    check("tool", &rule.tool_id, known_tool)?;
    check("agent", &rule.agent_id, known_agent)?;
    // Users and providers are not listed anywhere.
    check("user", &rule.user_id, |text| ActorId::new(text).is_ok())?;
    check("provider", &rule.provider_id, |text| ProviderId::new(text).is_ok())
}

fn check_reason(reason: &str) -> Result<(), ThrottleDenial> {
    if reason.trim().is_empty() || reason.len() > SWITCH_TEXT_BYTES_MAX {
        return Err(ThrottleDenial::BadReason);
    }
    Ok(())
}

fn check_revision(expected: Expected, actual: u64) -> Result<(), ThrottleDenial> {
    match expected {
        Expected::Revision(expected) if expected != actual => Err(ThrottleDenial::StaleRevision { expected, actual }),
        Expected::Any | Expected::None | Expected::Revision(_) => Ok(()),
    }
}
