//! Versions of agents as documents: entered once, never changed, and never moved.
//!
//! The first version of an agent is registered and each later one published; a document says only what the version is, and
//! which of the two it takes follows from what is there. A version that was moved since it was entered is not moved back.

use serde_json::{Map, Value};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::switching::Operator;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, AgentId, TenantId};
use signalbox_domain::registry::{
    AgentLifecycle, AgentRegistry, AgentRegistryEntry, PublishAgent, REFERENCE_AGENT_PREFIX, REFERENCE_AGENT_SEMVER,
    RegistryDenial, TenantScope, publish, register,
};
use signalbox_proto::v1;

use super::{Planned, Services};
use crate::client::{Registry, timed};
use crate::failure::Failure;
use crate::manifest::{Document, Kind};

/// Most versions of one answer.
const PAGE: u32 = 500;

/// The versions that are known while documents are planned.
#[derive(Debug, Default)]
pub(super) struct Agents {
    asked: bool,
    registry: AgentRegistry,
    entries: Vec<AgentRegistryEntry>,
}

impl Agents {
    async fn ask(&mut self, client: &mut Registry) -> Result<(), Failure> {
        if !self.asked {
            self.entries = list(client).await?;
            self.entries.iter().for_each(|entry| self.registry.apply_published(entry));
            self.asked = true;
        }
        Ok(())
    }

    fn enter(&mut self, entry: AgentRegistryEntry) {
        self.registry.apply_published(&entry);
        self.entries.push(entry);
    }

    /// Where a version stands, or would; of a tenant's own agent, or else the platform's.
    pub(super) async fn stands(
        &mut self,
        client: &mut Registry,
        tenant: Option<&TenantId>,
        agent: &AgentId,
        semver: &str,
    ) -> Result<Option<AgentLifecycle>, Failure> {
        self.ask(client).await?;
        let is_meant = |entry: &&AgentRegistryEntry| {
            let seen = match (&entry.tenant_scope, tenant) {
                (TenantScope::Platform, _) | (TenantScope::Tenant(_), None) => true,
                (TenantScope::Tenant(own), Some(tenant)) => own == tenant,
            };
            seen && entry.agent_id == *agent && entry.agent_semver == semver
        };
        let mut found: Vec<_> = self.entries.iter().filter(is_meant).collect();
        found.sort_by_key(|entry| entry.tenant_scope == TenantScope::Platform);
        Ok(found.first().map(|entry| entry.lifecycle))
    }
}

/// What applying it comes to, by the node's own rules on the versions it has and on those planned before.
pub(super) async fn plan(services: &mut Services, document: Document) -> Result<Planned, Failure> {
    let wanted = AgentRegistryEntry::read(Value::Object(document.spec.clone())).map_err(RegistryDenial::from);
    let wanted = wanted.map_err(refused)?;
    let agents = &mut services.agents;
    agents.ask(&mut services.registry).await?;
    let planned = |document, before, after| Ok(Planned { document, before, after, revision: 0, moot: None });
    if let Some(standing) = agents.registry.get(&wanted.tenant_scope, &wanted.agent_id, &wanted.agent_semver) {
        // Where it stands by now is for those who move it; moving it says too whether it is still being tried out.
        let moved = standing.lifecycle != wanted.lifecycle;
        let experimental = if moved { standing.experimental } else { wanted.experimental };
        let as_it_stands = AgentRegistryEntry { lifecycle: standing.lifecycle, experimental, ..wanted };
        let (before, after) = (value(standing)?, value(&as_it_stands)?);
        if before != after {
            let differs = crate::manifest::differences(&before, &after);
            let paths: Vec<_> = differs.iter().map(|one| one.path.as_str()).collect();
            let message =
                format!("this version is there and says something else ({}); it never changes", paths.join(", "));
            return Err(Failure::new("agent-version-fixed", message).next("publish a later version"));
        }
        return planned(document, Some(before), after);
    }
    judge(&wanted, &document.reason(), &agents.registry)?;
    let after = value(&wanted)?;
    agents.enter(wanted);
    planned(document, None, after)
}

/// Held against the rules of registering and publishing. Whether the caller may is for the node to say.
fn judge(wanted: &AgentRegistryEntry, reason: &str, registry: &AgentRegistry) -> Result<(), Failure> {
    let invalid = |error: &dyn std::fmt::Display| Failure::new("output-failed", error.to_string());
    let tenant = match wanted.tenant_scope.tenant_id() {
        Some(tenant) => tenant.clone(),
        None => TenantId::new("platform").map_err(|error| invalid(&error))?,
    };
    let actor_id = ActorId::new("apply").map_err(|error| invalid(&error))?;
    let actor = Actor { actor_id, role: Role::PlatformOperator };
    let by = Operator { tenant_id: &tenant, actor: &actor };
    let order = PublishAgent { entry: wanted.clone(), reason: reason.to_owned(), expected: Expected::Any };
    let is_first = registry.versions(&wanted.tenant_scope, &wanted.agent_id).is_empty();
    let judged = if is_first { register(&order, by, registry, 0) } else { publish(&order, by, registry, 0) };
    judged.map_err(refused)
}

fn refused(denial: RegistryDenial) -> Failure {
    Failure::usage(denial.code(), denial.to_string())
}

/// Registers the first version of an agent, and publishes a later one.
pub(super) async fn carry_out(client: &mut Registry, planned: &Planned) -> Result<(), Failure> {
    let document = &planned.document;
    let tenant_id = document.of_tenant().to_owned();
    let asked = v1::GetAgentRequest {
        agent_id: document.text("agentId").to_owned(),
        agent_semver: String::new(),
        platform_wide: tenant_id.is_empty(),
        tenant_id,
    };
    let entry_json = super::bytes(&document.spec)?.into();
    let reason = document.reason();
    match client.get_agent(timed(asked)).await.map_err(Failure::from) {
        Ok(known) => {
            let expected_revision = known.into_inner().revision;
            let request = v1::PublishAgentVersionRequest { entry_json, reason, expected_revision };
            client.publish_agent_version(timed(request)).await?;
        }
        Err(failure) if failure.code == "no-such-agent" => {
            client.register_agent(timed(v1::RegisterAgentRequest { entry_json, reason })).await?;
        }
        Err(failure) => return Err(failure),
    }
    Ok(())
}

/// Every version that does not ship with the program. A later version that has become champion is written as the challenger
/// it was: champions are made by promotions alone.
pub(super) async fn in_force(client: &mut Registry) -> Result<Vec<Document>, Failure> {
    let entries = list(client).await?;
    let mut registry = AgentRegistry::default();
    entries.iter().for_each(|entry| registry.apply_published(entry));
    let ships = |entry: &&AgentRegistryEntry| {
        entry.tenant_scope == TenantScope::Platform
            && entry.agent_id.as_str().starts_with(REFERENCE_AGENT_PREFIX)
            && entry.agent_semver == REFERENCE_AGENT_SEMVER
    };
    let mut documents = Vec::new();
    for entry in entries.iter().filter(|entry| !ships(entry)) {
        let versions = registry.versions(&entry.tenant_scope, &entry.agent_id);
        let is_first = versions.first().is_some_and(|first| first.agent_semver == entry.agent_semver);
        let is_promoted = entry.lifecycle == AgentLifecycle::Champion && !is_first;
        let lifecycle = if is_promoted { AgentLifecycle::Challenger } else { entry.lifecycle };
        let rule = super::object(value(&AgentRegistryEntry { lifecycle, ..entry.clone() })?)?;
        let document = super::of_server(Kind::Agent, "", rule)?;
        documents.push(Document { platform_wide: false, ..document });
    }
    Ok(documents)
}

async fn list(client: &mut Registry) -> Result<Vec<AgentRegistryEntry>, Failure> {
    let mut request = v1::ListAgentsRequest { page_size: PAGE, ..v1::ListAgentsRequest::default() };
    let mut entries = Vec::new();
    loop {
        let page = client.list_agents(timed(request.clone())).await?.into_inner();
        for agent in &page.agents {
            let rule: Map<String, Value> = super::object(super::answered(&agent.entry_json)?)?;
            let entry = AgentRegistryEntry::read(Value::Object(rule)).map_err(|error| {
                Failure::new("answer-invalid", format!("the server sent an agent that cannot be read: {error}"))
            })?;
            entries.push(entry);
        }
        if page.next_page_token.is_empty() {
            // Each after those it came after.
            entries.sort_by(|a, b| signalbox_domain::catalog::version::precedence(&a.agent_semver, &b.agent_semver));
            return Ok(entries);
        }
        request.page_token = page.next_page_token;
    }
}

fn value(entry: &AgentRegistryEntry) -> Result<Value, Failure> {
    serde_json::to_value(entry).map_err(|error| Failure::new("output-failed", error.to_string()))
}
