//! What a call is aimed at: the attributes by which switches, budgets, buckets and grants match.

use serde::{Deserialize, Serialize};

use crate::identity::Role;
use crate::ids::{ActorId, AgentId, PipelineId, ProviderId, RegionId, RunId, TenantId, ToolId};

/// The attributes of one call. They come from the credential, the plan and the server's own policy,
/// never from fields a client could set for itself (EXE-007, EXE-008).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The run.
    pub run_id: RunId,
    /// Who submitted the run.
    pub user_id: ActorId,
    /// In which standing.
    pub role: Role,
    /// The agent whose authority is used.
    pub agent_id: AgentId,
    /// Its family; absent if the agent is unknown.
    pub family: Option<String>,
    /// The pipeline, if the run is an instance of one.
    pub pipeline_id: Option<PipelineId>,
    /// The tool.
    pub tool_id: ToolId,
    /// The provider bound to the tool.
    pub provider_id: Option<ProviderId>,
    /// Where the provider works.
    pub region: Option<RegionId>,
}
