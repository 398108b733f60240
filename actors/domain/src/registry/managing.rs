//! Managing agents: who may register, publish and move which, and what a wish comes to.

use super::book::{AGENT_VERSIONS_MAX, AGENTS_MAX, AgentRegistry, AgentViewer, LifecycleDenial};
use super::validate::{AgentRegistryCode, AgentRegistryValidationError};
use super::{AgentLifecycle, AgentMove, AgentRegistryEntry, EntryProblem, MovedBy, TenantScope};
use crate::governance::budgeting::Expected;
use crate::governance::kill_switch::SWITCH_TEXT_BYTES_MAX;
use crate::governance::switching::{Operator, within};
use crate::identity::Role;
use crate::ids::{AgentId, TenantId};

/// A version as somebody asks for it to be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishAgent {
    /// The version.
    pub entry: AgentRegistryEntry,
    /// Why.
    pub reason: String,
    /// The revision of the agent that the caller has seen.
    pub expected: Expected,
}

/// A move as somebody asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveAgent {
    /// Whose agent; the caller's tenant's, or else the platform's, if absent.
    pub scope: Option<TenantScope>,
    /// Which.
    pub agent_id: AgentId,
    /// Which version.
    pub agent_semver: String,
    /// Where it is to stand.
    pub to: AgentLifecycle,
    /// Why.
    pub reason: String,
    /// The revision of the agent that the caller has seen.
    pub expected: Expected,
}

/// Why the registry is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryDenial {
    /// The document is no entry.
    #[error(transparent)]
    Entry(#[from] super::EntryError),
    /// The entry is refused: everything that is wrong with it (REG-003).
    #[error("the entry is refused: {}", in_words(.0))]
    Refused(Vec<AgentRegistryValidationError>),
    /// The role does not cover it, or the tenant is another one.
    #[error("{0}")]
    NotAuthorized(String),
    /// No reason, or one that is too long.
    #[error("`reason` must say why, in at most {SWITCH_TEXT_BYTES_MAX} bytes")]
    BadReason,
    /// No agent of this id that the caller may see.
    #[error("there is no agent `{0}`")]
    NoSuchAgent(AgentId),
    /// The version is not moved.
    #[error(transparent)]
    Lifecycle(#[from] LifecycleDenial),
    /// A later version of another family (REG-007).
    #[error("the agent `{agent_id}` is of family `{family}` in every version; register another agent")]
    FamilyFixed {
        /// The agent.
        agent_id: AgentId,
        /// Its family.
        family: String,
    },
    /// A later version that means to be champion at once (REG-037).
    #[error("a later version becomes champion by a promotion; publish it as `draft` or `challenger`")]
    LaterChampion,
    /// Somebody else has changed the agent since.
    #[error("the agent is at revision {actual}, and you have seen {expected}; look at it again")]
    StaleRevision {
        /// What the caller has seen.
        expected: u64,
        /// What it is.
        actual: u64,
    },
    /// So many that nobody could look through them.
    #[error("there are {0} of them already; retire some, or use those there are")]
    TooMany(usize),
}

impl RegistryDenial {
    /// Stable code. Of an entry with several faults it is the first one's.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Entry(error) => error.code(),
            Self::Refused(errors) => errors.first().map_or("agent-entry-invalid", |error| error.code.code()),
            Self::NotAuthorized(_) => "not-authorized",
            Self::BadReason => "reason-required",
            Self::NoSuchAgent(_) => "no-such-agent",
            Self::Lifecycle(denial) => denial.code(),
            Self::FamilyFixed { .. } => "agent-family-fixed",
            Self::LaterChampion => "champion-only-by-promotion",
            Self::StaleRevision { .. } => "stale-revision",
            Self::TooMany(_) => "too-many-agents",
        }
    }
}

impl From<EntryProblem> for RegistryDenial {
    fn from(problem: EntryProblem) -> Self {
        Self::Entry(problem.into())
    }
}

/// True if the role may change the registry at all.
pub const fn may_manage(role: Role) -> bool {
    match role {
        Role::PlatformOperator | Role::TenantOperator => true,
        Role::Customer | Role::Creator | Role::Service => false,
    }
}

/// Decides on a new agent: nothing is entered unless nothing stands against it (REG-001).
///
/// # Errors
/// Whatever stands against it.
pub fn register(
    order: &PublishAgent,
    by: Operator<'_>,
    registry: &AgentRegistry,
    revision: u64,
) -> Result<(), RegistryDenial> {
    let entry = &order.entry;
    checked(entry, &order.reason, by)?;
    let errors = registry.register_errors(entry);
    if !errors.is_empty() {
        return Err(RegistryDenial::Refused(errors));
    }
    seen(order.expected, revision)?;
    match registry.count(&entry.tenant_scope) {
        full if full >= AGENTS_MAX => Err(RegistryDenial::TooMany(full)),
        _ => Ok(()),
    }
}

/// Decides on a later version of an agent (REG-005).
///
/// # Errors
/// Whatever stands against it.
pub fn publish(
    order: &PublishAgent,
    by: Operator<'_>,
    registry: &AgentRegistry,
    revision: u64,
) -> Result<(), RegistryDenial> {
    let entry = &order.entry;
    checked(entry, &order.reason, by)?;
    let versions = registry.versions(&entry.tenant_scope, &entry.agent_id);
    let Some(known) = versions.first() else {
        return Err(RegistryDenial::NoSuchAgent(entry.agent_id.clone()));
    };
    let errors = registry.publish_errors(entry);
    if !errors.is_empty() {
        return Err(RegistryDenial::Refused(errors));
    }
    seen(order.expected, revision)?;
    if known.family != entry.family {
        return Err(RegistryDenial::FamilyFixed { agent_id: entry.agent_id.clone(), family: known.family.clone() });
    }
    if entry.lifecycle == AgentLifecycle::Champion {
        return Err(RegistryDenial::LaterChampion);
    }
    match versions.len() {
        full if full >= AGENT_VERSIONS_MAX => Err(RegistryDenial::TooMany(full)),
        _ => Ok(()),
    }
}

/// Decides on moving a version by hand (REG-037). `revision` answers for the scope that the order means.
///
/// # Errors
/// Whatever stands against it.
pub fn move_agent(
    order: &MoveAgent,
    by: Operator<'_>,
    registry: &AgentRegistry,
    revision: u64,
) -> Result<AgentMove, RegistryDenial> {
    if !may_manage(by.actor.role) {
        return Err(not_of(by.actor.role));
    }
    reasoned(&order.reason)?;
    let scope = order.scope(by.tenant_id, registry);
    let viewer = AgentViewer { tenant_id: by.tenant_id, role: by.actor.role };
    if !registry.versions(&scope, &order.agent_id).iter().any(|entry| viewer.sees(entry)) {
        return Err(RegistryDenial::NoSuchAgent(order.agent_id.clone()));
    }
    within(by, scope.tenant_id()).map_err(|why| RegistryDenial::NotAuthorized(why.to_owned()))?;
    seen(order.expected, revision)?;
    Ok(registry.decide_move(&scope, &order.agent_id, &order.agent_semver, order.to, MovedBy::Operator)?)
}

impl MoveAgent {
    /// Whose agent is meant by somebody of this tenant.
    pub fn scope(&self, tenant: &TenantId, registry: &AgentRegistry) -> TenantScope {
        self.scope.clone().unwrap_or_else(|| registry.scope_of(tenant, &self.agent_id))
    }
}

impl AgentRegistry {
    /// Whose agent an id means to a tenant: its own, or else the platform's.
    pub fn scope_of(&self, tenant: &TenantId, agent: &AgentId) -> TenantScope {
        let own = TenantScope::Tenant(tenant.clone());
        if self.versions(&own, agent).is_empty() { TenantScope::Platform } else { own }
    }
}

fn checked(entry: &AgentRegistryEntry, reason: &str, by: Operator<'_>) -> Result<(), RegistryDenial> {
    if !may_manage(by.actor.role) {
        return Err(not_of(by.actor.role));
    }
    reasoned(reason)?;
    within(by, entry.tenant_scope.tenant_id()).map_err(|why| RegistryDenial::NotAuthorized(why.to_owned()))?;
    match entry.problem() {
        Some(problem) => Err(problem.into()),
        None => Ok(()),
    }
}

fn reasoned(reason: &str) -> Result<(), RegistryDenial> {
    let said = !reason.trim().is_empty() && reason.len() <= SWITCH_TEXT_BYTES_MAX;
    if said { Ok(()) } else { Err(RegistryDenial::BadReason) }
}

fn seen(expected: Expected, actual: u64) -> Result<(), RegistryDenial> {
    match expected {
        Expected::Any => Ok(()),
        Expected::None if actual == 0 => Ok(()),
        Expected::None => Err(RegistryDenial::StaleRevision { expected: 0, actual }),
        Expected::Revision(expected) if expected == actual => Ok(()),
        Expected::Revision(expected) => Err(RegistryDenial::StaleRevision { expected, actual }),
    }
}

fn not_of(role: Role) -> RegistryDenial {
    RegistryDenial::NotAuthorized(format!("a {} may not change the registry; it is for operators", role.as_str()))
}

/// Most faults that a message names: it travels in a header.
const FAULTS_NAMED_MAX: usize = 3;
/// How much of each, in characters.
const FAULT_CHARS_MAX: usize = 200;

fn in_words(errors: &[AgentRegistryValidationError]) -> String {
    let say = |error: &AgentRegistryValidationError| {
        let AgentRegistryValidationError { code, path, message } = error;
        format!(
            "{} at {path}: {}",
            AgentRegistryCode::code(*code),
            message.chars().take(FAULT_CHARS_MAX).collect::<String>()
        )
    };
    let mut words: Vec<String> = errors.iter().take(FAULTS_NAMED_MAX).map(say).collect();
    if errors.len() > FAULTS_NAMED_MAX {
        words.push(format!("and {} more", errors.len() - FAULTS_NAMED_MAX));
    }
    words.join("; ")
}
