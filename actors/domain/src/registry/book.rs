//! The registry: every version of every agent, as published at one governance epoch (REG-001, REG-005, REG-045).
//!
//! The agents that ship with this version are in it from the start; what the governance log adds lies over them. An id means
//! one agent for a tenant: its own, or else the platform's. Tenants have their ids apart from each other, so that none can
//! learn from a refusal which agents another has (I11).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::lifecycle::{AgentMove, MoveDenial, MovedBy, experimental_after, may_move};
use super::reference::built_in;
use super::validate::{AgentRegistryCode, AgentRegistryValidationError, lacks_disclosure, validate};
use super::{AgentLifecycle, AgentRegistryEntry, AgentVisibility, REFERENCE_AGENT_PREFIX, TenantScope};
use crate::catalog::version::precedence;
use crate::identity::Role;
use crate::ids::{AgentId, TenantId};

/// Most agents of one tenant, or of the platform beside those that ship with it.
pub const AGENTS_MAX: usize = 10_000;
/// Most versions of one agent.
pub const AGENT_VERSIONS_MAX: usize = 1_000;

/// All versions of one agent, in the order in which they were published.
type Versions = Vec<Arc<AgentRegistryEntry>>;

/// Every version of every agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentRegistry {
    /// The platform's agents that the log has touched; the others are as they ship.
    platform: BTreeMap<AgentId, Versions>,
    /// The tenants' own.
    tenants: BTreeMap<TenantId, BTreeMap<AgentId, Versions>>,
}

/// Whoever looks, as the credential says.
#[derive(Debug, Clone, Copy)]
pub struct AgentViewer<'a> {
    /// The tenant of the credential.
    pub tenant_id: &'a TenantId,
    /// In which standing.
    pub role: Role,
}

/// What agents of this visibility a role is shown (REG-046). A service is shown what a creator is.
pub const fn role_sees(role: Role, visibility: AgentVisibility) -> bool {
    match role {
        Role::PlatformOperator => true,
        Role::TenantOperator => !matches!(visibility, AgentVisibility::Platform),
        Role::Creator | Role::Service => matches!(visibility, AgentVisibility::Creator | AgentVisibility::Customer),
        Role::Customer => matches!(visibility, AgentVisibility::Customer),
    }
}

impl AgentViewer<'_> {
    /// True if the viewer is shown this entry (REG-045, REG-046).
    pub fn sees(&self, entry: &AgentRegistryEntry) -> bool {
        if self.role == Role::PlatformOperator {
            return true;
        }
        let foreign = entry.tenant_scope.tenant_id().is_some_and(|tenant| tenant != self.tenant_id);
        !foreign && entry.visibility.iter().any(|visibility| role_sees(self.role, *visibility))
    }
}

impl AgentRegistry {
    /// Whether an entry may enter as a new agent: everything that stands against it, nothing if nothing does (REG-001).
    pub fn register_errors(&self, entry: &AgentRegistryEntry) -> Vec<AgentRegistryValidationError> {
        let mut errors = Vec::new();
        if self.is_taken(&entry.tenant_scope, &entry.agent_id) {
            let message = format!("the agent `{}` is registered; publish a later version of it", entry.agent_id);
            let code = AgentRegistryCode::DuplicateAgentId;
            errors.push(AgentRegistryValidationError { code, path: "/agentId".to_owned(), message });
        }
        errors.extend(validate(entry));
        errors
    }

    /// Whether an entry may enter as a later version of an agent that is there (REG-005).
    pub fn publish_errors(&self, entry: &AgentRegistryEntry) -> Vec<AgentRegistryValidationError> {
        let mut errors = validate(entry);
        let newest = self.newest(&entry.tenant_scope, &entry.agent_id);
        let is_version = !errors.iter().any(|error| error.path == "/agentSemver");
        if let Some(newest) = newest
            .filter(|newest| is_version && precedence(&entry.agent_semver, &newest.agent_semver) != Ordering::Greater)
        {
            let message = format!(
                "{} is not later than {}, the newest version of `{}`",
                entry.agent_semver, newest.agent_semver, entry.agent_id
            );
            let code = AgentRegistryCode::InvalidSemver;
            errors.push(AgentRegistryValidationError { code, path: "/agentSemver".to_owned(), message });
            errors.sort_by_key(|error| error.code);
        }
        errors
    }

    // A tenant's id must not be the platform's, or it would hide one that everybody may use. Whether another tenant has it
    // is for the platform's operators to know alone.
    fn is_taken(&self, scope: &TenantScope, agent: &AgentId) -> bool {
        let elsewhere = match scope {
            TenantScope::Platform => self.tenants.values().any(|own| own.contains_key(agent)),
            TenantScope::Tenant(_) => {
                agent.as_str().starts_with(REFERENCE_AGENT_PREFIX) || !self.of_platform(agent).is_empty()
            }
        };
        elsewhere || !self.versions(scope, agent).is_empty()
    }

    /// Puts a version in. One that is there already stays as it is.
    pub fn apply_published(&mut self, entry: &AgentRegistryEntry) {
        let versions = self.touched(&entry.tenant_scope, &entry.agent_id);
        if versions.iter().all(|known| known.agent_semver != entry.agent_semver) {
            versions.push(Arc::new(entry.clone()));
        }
    }

    /// Moves a version, and with it the champion whose place it takes.
    pub fn apply_move(&mut self, moved: &AgentMove) {
        let versions = self.touched(&moved.tenant_scope, &moved.agent_id);
        let mut set = |semver: &str, state: AgentLifecycle| {
            if let Some(known) = versions.iter_mut().find(|known| known.agent_semver == semver) {
                let entry = Arc::make_mut(known);
                entry.lifecycle = state;
                entry.experimental = experimental_after(state, entry.experimental);
            }
        };
        if let Some(demoted) = &moved.demoted_semver {
            set(demoted, AgentLifecycle::Deprecated);
        }
        set(&moved.agent_semver, moved.to);
    }

    fn touched(&mut self, scope: &TenantScope, agent: &AgentId) -> &mut Versions {
        match scope {
            TenantScope::Platform => self
                .platform
                .entry(agent.clone())
                .or_insert_with(|| built_in(agent).map(|entry| vec![entry.clone()]).unwrap_or_default()),
            TenantScope::Tenant(tenant) => {
                self.tenants.entry(tenant.clone()).or_default().entry(agent.clone()).or_default()
            }
        }
    }

    fn of_platform(&self, agent: &AgentId) -> &[Arc<AgentRegistryEntry>] {
        match self.platform.get(agent) {
            Some(versions) => versions,
            None => built_in(agent).map(std::slice::from_ref).unwrap_or_default(),
        }
    }

    /// All versions of one agent of this scope, in the order in which they were published.
    pub fn versions(&self, scope: &TenantScope, agent: &AgentId) -> &[Arc<AgentRegistryEntry>] {
        match scope {
            TenantScope::Platform => self.of_platform(agent),
            TenantScope::Tenant(tenant) => {
                self.tenants.get(tenant).and_then(|own| own.get(agent)).map(Vec::as_slice).unwrap_or_default()
            }
        }
    }

    /// All versions of what an id means for a tenant: its own agent, or else the platform's.
    pub fn for_tenant(&self, tenant: &TenantId, agent: &AgentId) -> &[Arc<AgentRegistryEntry>] {
        match self.tenants.get(tenant).and_then(|own| own.get(agent)) {
            Some(own) => own,
            None => self.of_platform(agent),
        }
    }

    /// One version (REG-005).
    pub fn get(&self, scope: &TenantScope, agent: &AgentId, semver: &str) -> Option<&Arc<AgentRegistryEntry>> {
        self.versions(scope, agent).iter().find(|entry| entry.agent_semver == semver)
    }

    /// The latest version by its number.
    pub fn newest(&self, scope: &TenantScope, agent: &AgentId) -> Option<&Arc<AgentRegistryEntry>> {
        latest(self.versions(scope, agent).iter())
    }

    /// The version in use.
    pub fn champion(&self, scope: &TenantScope, agent: &AgentId) -> Option<&Arc<AgentRegistryEntry>> {
        self.versions(scope, agent).iter().find(|entry| entry.lifecycle == AgentLifecycle::Champion)
    }

    /// The family of what an id means for a tenant; it is the same in every version.
    pub fn family_of(&self, tenant: &TenantId, agent: &AgentId) -> Option<&str> {
        self.for_tenant(tenant, agent).first().map(|entry| entry.family.as_str())
    }

    /// True if an id means an agent to the tenant; without one, to anybody.
    pub fn knows(&self, tenant: Option<&TenantId>, agent: &AgentId) -> bool {
        match tenant {
            Some(tenant) => !self.for_tenant(tenant, agent).is_empty(),
            None => !self.of_platform(agent).is_empty() || self.tenants.values().any(|own| own.contains_key(agent)),
        }
    }

    /// The agents of a family, as the tenant knows them; without one, everybody's.
    pub fn of_family(&self, tenant: Option<&TenantId>, family: &str) -> BTreeSet<AgentId> {
        let tenants = self.tenants.iter().filter(|(own, _)| tenant.is_none_or(|tenant| *own == tenant));
        let own = tenants.flat_map(|(_, agents)| agents.values());
        let all = self.platform_agents().into_iter().chain(own.map(Vec::as_slice));
        all.filter_map(|versions| versions.first().filter(|entry| entry.family == family))
            .map(|entry| entry.agent_id.clone())
            .collect()
    }

    /// How many agents the scope has, those that ship with this version aside.
    pub fn count(&self, scope: &TenantScope) -> usize {
        match scope {
            TenantScope::Platform => self.platform.keys().filter(|agent| built_in(agent).is_none()).count(),
            TenantScope::Tenant(tenant) => self.tenants.get(tenant).map_or(0, BTreeMap::len),
        }
    }

    fn platform_agents(&self) -> Vec<&[Arc<AgentRegistryEntry>]> {
        let shipped = super::reference::all().keys().filter(|agent| !self.platform.contains_key(*agent));
        shipped.map(|agent| self.of_platform(agent)).chain(self.platform.values().map(Vec::as_slice)).collect()
    }

    /// Every version that the viewer is shown, by agent and then in the order in which they were published (REG-045).
    pub fn list(&self, viewer: AgentViewer<'_>) -> Vec<Arc<AgentRegistryEntry>> {
        let tenants = self.tenants.values().flat_map(|own| own.values().map(Vec::as_slice));
        let all = self.platform_agents().into_iter().chain(tenants).flatten();
        let mut shown: Vec<_> = all.filter(|entry| viewer.sees(entry)).cloned().collect();
        // Stable: versions stay in their order.
        shown.sort_by(|a, b| (&a.agent_id, &a.tenant_scope).cmp(&(&b.agent_id, &b.tenant_scope)));
        shown
    }

    /// Decides on moving a version; what follows is applied by [`AgentRegistry::apply_move`] (REG-037).
    ///
    /// # Errors
    /// That the version is not there, that there is no such move, or that its users would be told nothing.
    pub fn decide_move(
        &self,
        scope: &TenantScope,
        agent: &AgentId,
        semver: &str,
        to: AgentLifecycle,
        by: MovedBy,
    ) -> Result<AgentMove, LifecycleDenial> {
        let entry = self.get(scope, agent, semver).ok_or_else(|| LifecycleDenial::NoSuchVersion {
            agent_id: agent.clone(),
            agent_semver: semver.chars().take(64).collect(),
        })?;
        may_move(entry.lifecycle, to, by)?;
        if lacks_disclosure(entry, to) {
            return Err(LifecycleDenial::WithoutDisclosure);
        }
        let champion = self.champion(scope, agent).filter(|_| to == AgentLifecycle::Champion);
        Ok(AgentMove {
            tenant_scope: scope.clone(),
            agent_id: agent.clone(),
            agent_semver: semver.to_owned(),
            from: entry.lifecycle,
            to,
            by,
            demoted_semver: champion.map(|champion| champion.agent_semver.clone()),
        })
    }
}

/// The latest of some versions by its number.
pub(super) fn latest<'a>(
    versions: impl Iterator<Item = &'a Arc<AgentRegistryEntry>>,
) -> Option<&'a Arc<AgentRegistryEntry>> {
    versions.max_by(|a, b| precedence(&a.agent_semver, &b.agent_semver))
}

/// Why a version is not moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LifecycleDenial {
    /// No such version of the agent.
    #[error("there is no version {agent_semver} of the agent `{agent_id}`")]
    NoSuchVersion {
        /// The agent.
        agent_id: AgentId,
        /// The version.
        agent_semver: String,
    },
    /// No such move, or not through whoever asked.
    #[error(transparent)]
    Move(#[from] MoveDenial),
    /// A champion whose users would be told nothing (REG-012).
    #[error("the version names no `disclosureRequirements`, and a champion must; publish one that does")]
    WithoutDisclosure,
}

impl LifecycleDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchVersion { .. } => "no-such-agent-version",
            Self::Move(denial) => denial.code(),
            Self::WithoutDisclosure => "champion-without-disclosure",
        }
    }
}
