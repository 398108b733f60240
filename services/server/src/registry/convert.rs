//! What a node says of agents, tools and executors, on the wire.

use signalbox_domain::catalog::{CatalogEntry, SurfacedDeprecation};
use signalbox_domain::ids::{TenantId, ToolId};
use signalbox_domain::registry::{AgentRegistryEntry, RegisteredExecutor};
use signalbox_proto::v1;

use crate::api::ApiError;
use crate::errors::Refusal;

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(value).map_err(|error| ApiError::Internal(error.to_string()).into())
}

pub(super) fn agent(entry: &AgentRegistryEntry) -> Result<v1::AgentVersion, Refusal> {
    Ok(v1::AgentVersion {
        agent_id: entry.agent_id.to_string(),
        agent_semver: entry.agent_semver.clone(),
        family: entry.family.clone(),
        lifecycle: entry.lifecycle.as_str().to_owned(),
        tenant_id: entry.tenant_scope.tenant_id().map(TenantId::to_string).unwrap_or_default(),
        entry_json: json(entry)?.into(),
    })
}

pub(super) fn tool(
    entry: &CatalogEntry,
    served: &[(ToolId, String)],
    deprecation: Option<&SurfacedDeprecation>,
) -> Result<v1::CatalogTool, Refusal> {
    let served = served.iter().find(|(tool, _)| *tool == entry.tool_id).map(|(_, semver)| semver.clone());
    Ok(v1::CatalogTool {
        tool_id: entry.tool_id.to_string(),
        semver: entry.semver.clone(),
        entry_json: json(entry)?.into(),
        served: served.is_some(),
        served_semver: served.unwrap_or_default(),
        deprecation: deprecation.map(|found| v1::ToolDeprecation {
            deprecated_at: found.deprecated_at.clone(),
            replacement_tool_id: found.replacement_tool_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            dependent_tool_ids: found.dependents.iter().map(ToString::to_string).collect(),
        }),
    })
}

pub(super) fn executor(executor: RegisteredExecutor) -> v1::RegisteredExecutor {
    let registration = executor.registration;
    v1::RegisteredExecutor {
        executor_id: registration.executor_id.to_string(),
        address: registration.address,
        tools: executor
            .tools
            .into_iter()
            .map(|tool| v1::ServedTool { tool_id: tool.tool_id.to_string(), semver: tool.semver })
            .collect(),
        schemas_digest: registration.schemas_digest.unwrap_or_default(),
        tls_id: registration.tls_id.map(|id| id.to_string()).unwrap_or_default(),
        registered_by: executor.registered_by.to_string(),
        registered_at_unix_ms: executor.registered_at_unix_ms.0,
        retired_at_unix_ms: executor.retired_at_unix_ms.map_or(0, |at| at.0),
    }
}
