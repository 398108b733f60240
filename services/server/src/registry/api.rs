//! What the edge needs of whoever manages agents and executors, as a trait: so that tests can stand in.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::ids::{AgentId, ExecutorId, ToolId};
use signalbox_domain::registry::{
    AgentRegistryEntry, ExecutorRegistration, MoveAgent, PublishAgent, RegisteredExecutor, TenantScope,
};
use signalbox_runtime::{AgentStanding, NodeHandle};

use crate::api::{ApiError, Caller};

/// Managing agents and executors. Every method acts with the caller's authority; what it may not see is as absent as what
/// does not exist (I11).
#[async_trait]
pub trait RegistryApi: Send + Sync + 'static {
    /// Enters a new agent.
    async fn register_agent(&self, caller: &Caller, order: PublishAgent) -> Result<AgentStanding, ApiError>;
    /// Enters a later version of an agent.
    async fn publish_agent(&self, caller: &Caller, order: PublishAgent) -> Result<AgentStanding, ApiError>;
    /// Moves a version by hand.
    async fn move_agent(&self, caller: &Caller, order: MoveAgent) -> Result<AgentStanding, ApiError>;
    /// One agent, in one version or in all of them.
    async fn agent(
        &self,
        caller: &Caller,
        scope: Option<TenantScope>,
        id: &AgentId,
        semver: Option<&str>,
    ) -> Result<Vec<AgentStanding>, ApiError>;
    /// Every version of every agent that the caller is shown, by their ids.
    async fn agents(&self, caller: &Caller) -> Result<Vec<Arc<AgentRegistryEntry>>, ApiError>;
    /// The tools that can be called on this node, with the version each is served in.
    fn served_tools(&self) -> Vec<(ToolId, String)>;
    /// Registers an executor.
    async fn register_executor(
        &self,
        caller: &Caller,
        registration: ExecutorRegistration,
        reason: &str,
    ) -> Result<RegisteredExecutor, ApiError>;
    /// Retires an executor.
    async fn retire_executor(
        &self,
        caller: &Caller,
        id: &ExecutorId,
        reason: &str,
    ) -> Result<RegisteredExecutor, ApiError>;
    /// The executors that were registered, the retired ones too.
    async fn executors(&self, caller: &Caller) -> Result<Vec<RegisteredExecutor>, ApiError>;
}

#[async_trait]
impl RegistryApi for NodeHandle {
    async fn register_agent(&self, caller: &Caller, order: PublishAgent) -> Result<AgentStanding, ApiError> {
        self.register_agent(caller, order).await
    }
    async fn publish_agent(&self, caller: &Caller, order: PublishAgent) -> Result<AgentStanding, ApiError> {
        self.publish_agent(caller, order).await
    }
    async fn move_agent(&self, caller: &Caller, order: MoveAgent) -> Result<AgentStanding, ApiError> {
        self.move_agent(caller, order).await
    }
    async fn agent(
        &self,
        caller: &Caller,
        scope: Option<TenantScope>,
        id: &AgentId,
        semver: Option<&str>,
    ) -> Result<Vec<AgentStanding>, ApiError> {
        self.agent(caller, scope, id, semver).await
    }
    async fn agents(&self, caller: &Caller) -> Result<Vec<Arc<AgentRegistryEntry>>, ApiError> {
        self.agents(caller).await
    }
    fn served_tools(&self) -> Vec<(ToolId, String)> {
        self.served_tools()
    }
    async fn register_executor(
        &self,
        caller: &Caller,
        registration: ExecutorRegistration,
        reason: &str,
    ) -> Result<RegisteredExecutor, ApiError> {
        self.register_executor(caller, registration, reason).await
    }
    async fn retire_executor(
        &self,
        caller: &Caller,
        id: &ExecutorId,
        reason: &str,
    ) -> Result<RegisteredExecutor, ApiError> {
        self.retire_executor(caller, id, reason).await
    }
    async fn executors(&self, caller: &Caller) -> Result<Vec<RegisteredExecutor>, ApiError> {
        self.executors(caller).await
    }
}
