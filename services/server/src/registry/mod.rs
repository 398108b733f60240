//! `RegistryService`: each method identifies the caller, reads the request strictly, asks the node and converts the answer.

pub(crate) mod api;
mod convert;

use std::sync::Arc;

use signalbox_domain::catalog::{
    self, V1_CATALOG_PUBLISHED_AT, V1_CATALOG_VERSION, resolve_tool_dependencies, surface_deprecations, v1_catalog,
};
use signalbox_domain::ids::{ExecutorId, ToolId};
use signalbox_domain::registry::{
    AGENT_NAME_BYTES_MAX, AgentLifecycle, AgentRegistryEntry, ExecutorRegistration, MoveAgent, PublishAgent,
    RegistryDenial, TenantScope,
};
use signalbox_proto::v1::{self, registry_service_server::RegistryService};
use signalbox_runtime::AgentStanding;
use tonic::{Request, Response, Status};

use self::api::RegistryApi;
use crate::api::{ApiError, ErrorKind};
use crate::errors::{self, Refusal};
use crate::governing::read;
use crate::identity::caller_of;
use crate::validate::{self, bad};

/// Rows of a page that names no number.
const PAGE_ROWS_DEFAULT: usize = 100;
/// Most rows of a page.
const PAGE_ROWS_MAX: usize = 1_000;

/// The service over one node.
pub(crate) struct Registry {
    pub(crate) api: Arc<dyn RegistryApi>,
}

impl Registry {
    async fn register(&self, request: Request<v1::RegisterAgentRequest>) -> Result<v1::RegisterAgentResponse, Refusal> {
        let caller = caller_of(&request)?;
        let v1::RegisterAgentRequest { entry_json, reason } = request.into_inner();
        let order = order(&entry_json, reason, 0)?;
        let AgentStanding { entry, revision } = self.api.register_agent(&caller, order).await?;
        Ok(v1::RegisterAgentResponse { agent: Some(convert::agent(&entry)?), revision })
    }

    async fn publish(
        &self,
        request: Request<v1::PublishAgentVersionRequest>,
    ) -> Result<v1::PublishAgentVersionResponse, Refusal> {
        let caller = caller_of(&request)?;
        let v1::PublishAgentVersionRequest { entry_json, reason, expected_revision } = request.into_inner();
        let order = order(&entry_json, reason, expected_revision)?;
        let AgentStanding { entry, revision } = self.api.publish_agent(&caller, order).await?;
        Ok(v1::PublishAgentVersionResponse { agent: Some(convert::agent(&entry)?), revision })
    }

    async fn move_agent(&self, request: Request<v1::MoveAgentRequest>) -> Result<v1::MoveAgentResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let order = MoveAgent {
            scope: scope(&request.tenant_id, request.platform_wide)?,
            agent_id: validate::id("agent_id", &request.agent_id)?,
            agent_semver: version(request.agent_semver)?
                .ok_or_else(|| bad("field-missing", "agent_semver", "`agent_semver` is missing"))?,
            to: lifecycle("to", &request.to)?
                .ok_or_else(|| bad("field-missing", "to", "`to` is missing: where the version is to stand"))?,
            reason: read::text("reason", request.reason)?,
            expected: read::expected(request.expected_revision),
        };
        let AgentStanding { entry, revision } = self.api.move_agent(&caller, order).await?;
        Ok(v1::MoveAgentResponse { agent: Some(convert::agent(&entry)?), revision })
    }

    async fn agent(&self, request: Request<v1::GetAgentRequest>) -> Result<v1::GetAgentResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("agent_id", &request.agent_id)?;
        let scope = scope(&request.tenant_id, request.platform_wide)?;
        let semver = version(request.agent_semver)?;
        let versions = self.api.agent(&caller, scope, &id, semver.as_deref()).await?;
        let revision = versions.first().map_or(0, |version| version.revision);
        let versions = versions.iter().map(|version| convert::agent(&version.entry)).collect::<Result<_, _>>()?;
        Ok(v1::GetAgentResponse { versions, revision })
    }

    async fn agents(&self, request: Request<v1::ListAgentsRequest>) -> Result<v1::ListAgentsResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let rows = match request.page_size as usize {
            0 => PAGE_ROWS_DEFAULT,
            rows @ 1..=PAGE_ROWS_MAX => rows,
            _ => {
                let message = format!("`page_size` may be at most {PAGE_ROWS_MAX}");
                return Err(bad("page-size-invalid", "page_size", message));
            }
        };
        if !request.family.is_empty() && signalbox_domain::registry::family_meta(&request.family).is_none() {
            let shown: String = request.family.chars().take(64).collect();
            return Err(bad("family-unknown", "family", format!("`{shown}` is no agent family")));
        }
        let state = lifecycle("lifecycle", &request.lifecycle)?;
        let all = self.api.agents(&caller).await?;
        let begin = match request.page_token.as_str() {
            "" => 0,
            token => all.iter().position(|entry| place(entry) == token).map(|place| place + 1).ok_or_else(|| {
                bad("page-token-invalid", "page_token", "`page_token` is none of this list; start at the first page")
            })?,
        };
        let asked = |entry: &AgentRegistryEntry| {
            (request.family.is_empty() || entry.family == request.family)
                && state.is_none_or(|state| entry.lifecycle == state)
        };
        let mut page: Vec<_> = all.iter().skip(begin).filter(|entry| asked(entry)).take(rows + 1).collect();
        let more = page.len() > rows;
        page.truncate(rows);
        let next_page_token = page.last().filter(|_| more).map(|entry| place(entry)).unwrap_or_default();
        let agents = page.into_iter().map(|entry| convert::agent(entry)).collect::<Result<_, _>>()?;
        Ok(v1::ListAgentsResponse { agents, next_page_token })
    }

    fn tools(&self, request: &Request<v1::ListToolsRequest>) -> Result<v1::ListToolsResponse, Refusal> {
        caller_of(request)?;
        let request = request.get_ref();
        let from = instant("deprecated_from", &request.deprecated_from)?;
        let to = instant("deprecated_to", &request.deprecated_to)?;
        let leaving = surface_deprecations(v1_catalog(), from, to);
        let only_leaving = request.deprecated || from.is_some() || to.is_some();
        let served = self.api.served_tools();
        let mut tools = Vec::new();
        for entry in catalog::catalog() {
            let deprecation = leaving.iter().find(|found| found.tool_id == entry.tool_id);
            if !only_leaving || deprecation.is_some() {
                tools.push(convert::tool(entry, &served, deprecation)?);
            }
        }
        Ok(v1::ListToolsResponse {
            catalog_version: V1_CATALOG_VERSION.to_owned(),
            published_at: V1_CATALOG_PUBLISHED_AT.to_owned(),
            tools,
        })
    }

    fn tool(&self, request: &Request<v1::GetToolRequest>) -> Result<v1::GetToolResponse, Refusal> {
        caller_of(request)?;
        let id: ToolId = validate::id("tool_id", &request.get_ref().tool_id)?;
        let unknown = || Refusal::new(ErrorKind::NotFound, "unknown-tool", format!("there is no tool `{id}`"));
        let entry = catalog::entry(&id).ok_or_else(unknown)?;
        let order = resolve_tool_dependencies(v1_catalog(), [&id])
            .map_err(|error| Refusal::new(ErrorKind::PreconditionFailed, error.code(), error.to_string()))?;
        let leaving = surface_deprecations(v1_catalog(), None, None);
        let deprecation = leaving.iter().find(|found| found.tool_id == id);
        Ok(v1::GetToolResponse {
            tool: Some(convert::tool(entry, &self.api.served_tools(), deprecation)?),
            order: order.iter().map(ToString::to_string).collect(),
        })
    }

    async fn register_executor(
        &self,
        request: Request<v1::RegisterExecutorRequest>,
    ) -> Result<v1::RegisterExecutorResponse, Refusal> {
        let caller = caller_of(&request)?;
        let v1::RegisterExecutorRequest { executor_json, reason } = request.into_inner();
        let reason = read::text("reason", reason)?;
        let registration = ExecutorRegistration::parse(&executor_json).map_err(ApiError::Executor)?;
        let executor = self.api.register_executor(&caller, registration, &reason).await?;
        Ok(v1::RegisterExecutorResponse { executor: Some(convert::executor(executor)) })
    }

    async fn retire_executor(
        &self,
        request: Request<v1::RetireExecutorRequest>,
    ) -> Result<v1::RetireExecutorResponse, Refusal> {
        let caller = caller_of(&request)?;
        let v1::RetireExecutorRequest { executor_id, reason } = request.into_inner();
        let id: ExecutorId = validate::id("executor_id", &executor_id)?;
        let reason = read::text("reason", reason)?;
        let executor = self.api.retire_executor(&caller, &id, &reason).await?;
        Ok(v1::RetireExecutorResponse { executor: Some(convert::executor(executor)) })
    }

    async fn executors(
        &self,
        request: Request<v1::ListExecutorsRequest>,
    ) -> Result<v1::ListExecutorsResponse, Refusal> {
        let caller = caller_of(&request)?;
        let all = request.get_ref().all;
        let known = self.api.executors(&caller).await?.into_iter().filter(|executor| all || executor.is_active());
        Ok(v1::ListExecutorsResponse { executors: known.map(convert::executor).collect() })
    }
}

fn order(entry: &[u8], reason: String, expected_revision: u64) -> Result<PublishAgent, Refusal> {
    let reason = read::text("reason", reason)?;
    let entry = AgentRegistryEntry::parse(entry).map_err(|error| ApiError::Registry(RegistryDenial::Entry(error)))?;
    Ok(PublishAgent { entry, reason, expected: read::expected(expected_revision) })
}

fn scope(tenant_id: &str, platform_wide: bool) -> Result<Option<TenantScope>, Refusal> {
    match (validate::optional_id("tenant_id", tenant_id)?, platform_wide) {
        (None, false) => Ok(None),
        (None, true) => Ok(Some(TenantScope::Platform)),
        (Some(tenant), false) => Ok(Some(TenantScope::Tenant(tenant))),
        (Some(_), true) => Err(bad("reach-invalid", "platform_wide", "name a tenant or say `platform_wide`, not both")),
    }
}

fn version(text: String) -> Result<Option<String>, Refusal> {
    if text.len() > AGENT_NAME_BYTES_MAX {
        let message = format!("`agent_semver` may have at most {AGENT_NAME_BYTES_MAX} bytes");
        return Err(bad("invalid-semver", "agent_semver", message));
    }
    Ok((!text.is_empty()).then_some(text))
}

fn lifecycle(field: &'static str, text: &str) -> Result<Option<AgentLifecycle>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let known = AgentLifecycle::ALL.map(AgentLifecycle::as_str).join(", ");
    let unknown = || bad("lifecycle-unknown", field, format!("`{field}` must be one of {known}"));
    AgentLifecycle::parse(text).map(Some).ok_or_else(unknown)
}

fn instant(field: &'static str, text: &str) -> Result<Option<signalbox_domain::time::UnixMs>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || bad("instant-invalid", field, format!("`{field}` must be an instant such as 2026-05-11T00:00:00Z"));
    catalog::instant_of(text).map(Some).ok_or_else(wrong)
}

// No id and no version holds a slash or a space.
fn place(entry: &AgentRegistryEntry) -> String {
    let tenant = entry.tenant_scope.tenant_id().map(ToString::to_string).unwrap_or_default();
    format!("{}/{tenant}/{}", entry.agent_id, entry.agent_semver)
}

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| errors::to_status(&error))
}

#[tonic::async_trait]
impl RegistryService for Registry {
    async fn register_agent(
        &self,
        request: Request<v1::RegisterAgentRequest>,
    ) -> Result<Response<v1::RegisterAgentResponse>, Status> {
        answer(self.register(request).await)
    }
    async fn publish_agent_version(
        &self,
        request: Request<v1::PublishAgentVersionRequest>,
    ) -> Result<Response<v1::PublishAgentVersionResponse>, Status> {
        answer(self.publish(request).await)
    }
    async fn move_agent(
        &self,
        request: Request<v1::MoveAgentRequest>,
    ) -> Result<Response<v1::MoveAgentResponse>, Status> {
        answer(self.move_agent(request).await)
    }
    async fn get_agent(&self, request: Request<v1::GetAgentRequest>) -> Result<Response<v1::GetAgentResponse>, Status> {
        answer(self.agent(request).await)
    }
    async fn list_agents(
        &self,
        request: Request<v1::ListAgentsRequest>,
    ) -> Result<Response<v1::ListAgentsResponse>, Status> {
        answer(self.agents(request).await)
    }
    async fn list_tools(
        &self,
        request: Request<v1::ListToolsRequest>,
    ) -> Result<Response<v1::ListToolsResponse>, Status> {
        answer(self.tools(&request))
    }
    async fn get_tool(&self, request: Request<v1::GetToolRequest>) -> Result<Response<v1::GetToolResponse>, Status> {
        answer(self.tool(&request))
    }
    async fn register_executor(
        &self,
        request: Request<v1::RegisterExecutorRequest>,
    ) -> Result<Response<v1::RegisterExecutorResponse>, Status> {
        answer(self.register_executor(request).await)
    }
    async fn retire_executor(
        &self,
        request: Request<v1::RetireExecutorRequest>,
    ) -> Result<Response<v1::RetireExecutorResponse>, Status> {
        answer(self.retire_executor(request).await)
    }
    async fn list_executors(
        &self,
        request: Request<v1::ListExecutorsRequest>,
    ) -> Result<Response<v1::ListExecutorsResponse>, Status> {
        answer(self.executors(request).await)
    }
}
