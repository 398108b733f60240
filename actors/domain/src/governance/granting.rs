//! Issuing, renewing and revoking shared grants: who may do what, and what follows.
//!
//! A platform operator manages every tenant's grants, a tenant's operator those of its own; a grant of a critical tool to the
//! whole tenant is for the platform alone. Taking away is never refused for being too much: whoever may see a grant as an
//! operator may revoke it.

use crate::catalog::{self, Risk};
use crate::governance::budgeting::Expected;
use crate::governance::change::GovernanceState;
use crate::governance::grant::{Constraints, Grant, GrantError, GrantScope, Renewal, line_of, renew_grant};
use crate::governance::kill_switch::SWITCH_TEXT_BYTES_MAX;
use crate::governance::switching::{self, Operator};
use crate::identity::Role;
use crate::ids::{ActorId, GrantId, RunId, TenantId, ToolId};
use crate::time::UnixMs;

/// Most shared grants that are live at once, over all tenants: every call is held against each of them.
pub const GRANTS_LIVE_MAX: usize = 10_000;

/// A grant as somebody asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueGrant {
    /// Its id; saying it twice under one is harmless.
    pub grant_id: GrantId,
    /// Whose it is to be; absent: the caller's tenant.
    pub tenant_id: Option<TenantId>,
    /// What it is tied to.
    pub scope: GrantScope,
    /// Which one; absent for `per-tenant`: the tenant itself.
    pub scope_key: Option<String>,
    /// The tool.
    pub tool_id: ToolId,
    /// Versions of the tool; absent: those compatible with the one in the catalog.
    pub tool_range: Option<String>,
    /// What its holder may use.
    pub constraints: Constraints,
    /// What its holder may hand on; absent: nothing.
    pub delegable: Option<Constraints>,
    /// When it ends; absent: with its run or instance.
    pub expires_at_unix_ms: Option<UnixMs>,
    /// Why.
    pub rationale: String,
}

/// A renewal as somebody asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewGrant {
    /// The grant that is to go on.
    pub grant_id: GrantId,
    /// The id of the new one; saying it twice under one is harmless.
    pub new_grant_id: GrantId,
    /// When the new one ends.
    pub expires_at_unix_ms: Option<UnixMs>,
    /// Why.
    pub rationale: String,
    /// The revision the caller has seen.
    pub expected: Expected,
}

/// Why a grant is neither issued, renewed nor revoked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantDenial {
    /// It makes no sense.
    #[error(transparent)]
    Senseless(#[from] GrantError),
    /// A scope key that names nothing of its scope.
    #[error("`scopeKey` names no {0}")]
    BadScopeKey(&'static str),
    /// The role does not cover it, or the tenant is another one.
    #[error("{0}")]
    NotAuthorized(String),
    /// A tool that is not there: the grant would allow nothing, and nobody would notice.
    #[error("there is no tool `{0}` in the catalog; a grant of it would allow nothing")]
    UnknownTool(ToolId),
    /// An end that is over already.
    #[error("the grant would be over before it begins; choose a later end")]
    ExpiresTooEarly,
    /// No reason to revoke, or a text that is too long.
    #[error("`{0}` must say why, in at most {SWITCH_TEXT_BYTES_MAX} bytes")]
    BadReason(&'static str),
    /// No grant of this id that the caller may see.
    #[error("there is no grant `{0}`")]
    NoSuchGrant(String),
    /// The id is that of another grant, or of one that is over.
    #[error("the id `{0}` belongs to another grant, or to one that is over; choose another id")]
    IdTaken(GrantId),
    /// Something else continues it.
    #[error("the grant `{old}` was renewed as `{new}`; renew that one")]
    AlreadyRenewed {
        /// The grant that was asked for.
        old: GrantId,
        /// What continues it.
        new: GrantId,
    },
    /// Somebody else has changed it since.
    #[error("the grant is at revision {actual}, and you have seen {expected}; look at it again")]
    StaleRevision {
        /// What the caller has seen.
        expected: u64,
        /// What it is.
        actual: u64,
    },
    /// So many are live that each call would be held against too many.
    #[error("{GRANTS_LIVE_MAX} grants are live; revoke some, or issue one of a broader scope")]
    TooMany,
}

impl GrantDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Senseless(error) => error.code(),
            Self::BadScopeKey(_) => "scope-key-invalid",
            Self::NotAuthorized(_) => "not-authorized",
            Self::UnknownTool(_) => "unknown-tool",
            Self::ExpiresTooEarly => "grant-expires-too-early",
            Self::BadReason(_) => "reason-required",
            Self::NoSuchGrant(_) => "no-such-grant",
            Self::IdTaken(_) => "grant-id-conflict",
            Self::AlreadyRenewed { .. } => "grant-renewed",
            Self::StaleRevision { .. } => "stale-revision",
            Self::TooMany => "too-many-grants",
        }
    }
}

/// What follows from asking to issue or to renew.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "one is made for each act of a person, and handed on once")]
pub enum Issuing {
    /// It is issued now.
    Issue(Grant),
    /// The same was issued before under this id, and is live.
    Already(Grant),
}

/// What follows from asking to revoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revoking {
    /// These are revoked now: the grant and what a renewal has tied to it, as they were.
    Revoke(Vec<Grant>),
    /// It was revoked before.
    Already,
}

/// Decides on issuing a grant. `audit_event_id` names the record this is going to have.
pub fn issue(
    order: IssueGrant,
    audit_event_id: String,
    by: Operator<'_>,
    state: &GovernanceState,
    now: UnixMs,
) -> Result<Issuing, GrantDenial> {
    let tenant_id = order.tenant_id.unwrap_or_else(|| by.tenant_id.clone());
    may_issue(by, &tenant_id, order.scope, &order.tool_id)?;
    let entry = catalog::entry(&order.tool_id).ok_or_else(|| GrantDenial::UnknownTool(order.tool_id.clone()))?;
    let scope_key = match (order.scope_key, order.scope) {
        (Some(key), _) => key,
        (None, GrantScope::PerTenant) => tenant_id.to_string(),
        (None, scope) => return Err(GrantDenial::BadScopeKey(kind_of(scope))),
    };
    let grant = Grant {
        grant_id: order.grant_id,
        scope: order.scope,
        scope_key,
        tenant_id,
        tool_id: order.tool_id,
        tool_range: order.tool_range.unwrap_or_else(|| format!("^{}", entry.semver)),
        constraints: order.constraints,
        delegable: order.delegable,
        issued_by: by.actor.actor_id.clone(),
        issued_at_unix_ms: now,
        expires_at_unix_ms: order.expires_at_unix_ms,
        revoked_at_unix_ms: None,
        rationale: order.rationale,
        audit_event_id,
        renewed_from_grant_id: None,
    };
    check(&grant, now)?;
    match state.grants.iter().find(|known| known.grant_id == grant.grant_id) {
        Some(known) if known.standing(now) == "live" && is_same(known, &grant) => Ok(Issuing::Already(known.clone())),
        // An id is never used again: what a record says of it must stay true.
        Some(_) => Err(GrantDenial::IdTaken(grant.grant_id)),
        None => with_room(grant, state, now).map(Issuing::Issue),
    }
}

/// Decides on renewing a grant (GRA-010, GRA-011): a new one continues it. `revision` is that of the old one.
pub fn renew(
    order: RenewGrant,
    audit_event_id: String,
    revision: u64,
    by: Operator<'_>,
    state: &GovernanceState,
    now: UnixMs,
) -> Result<Issuing, GrantDenial> {
    let old = seen(&order.grant_id, by, state)?;
    may_issue(by, &old.tenant_id, old.scope, &old.tool_id)?;
    let RenewGrant { grant_id: _, new_grant_id, expires_at_unix_ms, rationale, expected } = order;
    let issued_by = by.actor.actor_id.clone();
    let renewal = Renewal { grant_id: new_grant_id, issued_by, expires_at_unix_ms, rationale, audit_event_id };
    let grant = renew_grant(old, renewal, now)?;
    check(&grant, now)?;
    match state.grants.iter().find(|known| known.grant_id == grant.grant_id) {
        Some(known) if known.standing(now) == "live" && is_same(known, &grant) => {
            return Ok(Issuing::Already(known.clone()));
        }
        Some(_) => return Err(GrantDenial::IdTaken(grant.grant_id)),
        None => {}
    }
    check_revision(expected, revision)?;
    let continued = state.grants.iter().find(|known| known.renewed_from_grant_id.as_ref() == Some(&old.grant_id));
    if let Some(new) = continued {
        return Err(GrantDenial::AlreadyRenewed { old: old.grant_id.clone(), new: new.grant_id.clone() });
    }
    with_room(grant, state, now).map(Issuing::Issue)
}

/// Decides on revoking a grant. Revoking twice is harmless. `revision` is the grant's.
pub fn revoke(
    grant_id: &GrantId,
    reason: &str,
    expected: Expected,
    revision: u64,
    by: Operator<'_>,
    state: &GovernanceState,
) -> Result<Revoking, GrantDenial> {
    let grant = seen(grant_id, by, state)?;
    if reason.trim().is_empty() || reason.len() > SWITCH_TEXT_BYTES_MAX {
        return Err(GrantDenial::BadReason("reason"));
    }
    if grant.revoked_at_unix_ms.is_some() {
        return Ok(Revoking::Already);
    }
    check_revision(expected, revision)?;
    let line = line_of(&state.grants, grant_id).into_iter().map(|at| state.grants[at].clone());
    Ok(Revoking::Revoke(line.filter(|grant| grant.revoked_at_unix_ms.is_none()).collect()))
}

/// A grant the caller may see. Another tenant's is as absent as none (I11); whoever may manage none learns nothing about which
/// there are.
pub fn seen<'a>(grant_id: &GrantId, by: Operator<'_>, state: &'a GovernanceState) -> Result<&'a Grant, GrantDenial> {
    check_operator(by)?;
    let known = state.grants.iter().find(|known| known.grant_id == *grant_id);
    known.filter(|known| may_see(by, known)).ok_or_else(|| GrantDenial::NoSuchGrant(grant_id.to_string()))
}

/// True if the caller may be shown this grant.
pub fn may_see(by: Operator<'_>, grant: &Grant) -> bool {
    switching::may_see(by, Some(&grant.tenant_id))
}

fn check_operator(by: Operator<'_>) -> Result<(), GrantDenial> {
    match by.actor.role {
        Role::PlatformOperator | Role::TenantOperator => Ok(()),
        role @ (Role::Customer | Role::Creator | Role::Service) => {
            Err(GrantDenial::NotAuthorized(format!("a {} may not manage grants", role.as_str())))
        }
    }
}

fn may_issue(by: Operator<'_>, tenant: &TenantId, scope: GrantScope, tool: &ToolId) -> Result<(), GrantDenial> {
    check_operator(by)?;
    switching::within(by, Some(tenant)).map_err(|why| GrantDenial::NotAuthorized(why.to_owned()))?;
    let is_critical = catalog::entry(tool).is_some_and(|entry| entry.risk == Risk::Critical);
    if by.actor.role == Role::TenantOperator && scope == GrantScope::PerTenant && is_critical {
        return Err(GrantDenial::NotAuthorized(format!(
            "`{tool}` is of critical risk; only a platform operator grants it to a whole tenant. Grant it to one user, session or run"
        )));
    }
    Ok(())
}

fn check(grant: &Grant, now: UnixMs) -> Result<(), GrantDenial> {
    grant.validate()?;
    if grant.rationale.len() > SWITCH_TEXT_BYTES_MAX {
        return Err(GrantDenial::BadReason("rationale"));
    }
    let key = grant.scope_key.as_str();
    let sound = match grant.scope {
        // An instance of a pipeline is the run it began with.
        GrantScope::PerRun | GrantScope::PerPipelineInstance => key.parse::<RunId>().is_ok(),
        // A session is named by whoever keeps it, as ids are written.
        GrantScope::PerSession | GrantScope::PerUser => ActorId::new(key).is_ok(),
        GrantScope::PerTenant => key == grant.tenant_id.as_str(),
    };
    if !sound {
        return Err(GrantDenial::BadScopeKey(kind_of(grant.scope)));
    }
    if grant.is_expired(now) {
        return Err(GrantDenial::ExpiresTooEarly);
    }
    Ok(())
}

const fn kind_of(scope: GrantScope) -> &'static str {
    match scope {
        GrantScope::PerRun => "run",
        GrantScope::PerPipelineInstance => "pipeline instance: it is the run the instance began with",
        GrantScope::PerSession => "session",
        GrantScope::PerUser => "user",
        GrantScope::PerTenant => "tenant",
    }
}

fn check_revision(expected: Expected, actual: u64) -> Result<(), GrantDenial> {
    match expected {
        Expected::Revision(expected) if expected != actual => Err(GrantDenial::StaleRevision { expected, actual }),
        Expected::Any | Expected::None | Expected::Revision(_) => Ok(()),
    }
}

fn with_room(grant: Grant, state: &GovernanceState, now: UnixMs) -> Result<Grant, GrantDenial> {
    let live = state.grants.iter().filter(|known| known.standing(now) == "live").count();
    if live >= GRANTS_LIVE_MAX { Err(GrantDenial::TooMany) } else { Ok(grant) }
}

// When it was issued and under which record is no part of what is asked for. An end may be asked for as a time or as a length,
// so either may be the same.
fn is_same(known: &Grant, asked: &Grant) -> bool {
    let lasts = |grant: &Grant| grant.expires_at_unix_ms.map(|end| end.since(grant.issued_at_unix_ms));
    // A length is asked for in whole seconds; the moment a request took on its way is no other length.
    let same_length = match (lasts(known), lasts(asked)) {
        (Some(known), Some(asked)) => known.abs_diff(asked) < 1_000,
        (known, asked) => known == asked,
    };
    *known
        == Grant {
            issued_at_unix_ms: known.issued_at_unix_ms,
            audit_event_id: known.audit_event_id.clone(),
            expires_at_unix_ms: if same_length { known.expires_at_unix_ms } else { asked.expires_at_unix_ms },
            ..asked.clone()
        }
}
