//! The identity of a first try: everybody who can reach the port is the platform's operator. It is therefore tied to the
//! loopback address, and whoever serves with it is told so loudly.

use std::collections::BTreeSet;

use async_trait::async_trait;
use http::HeaderMap;
use signalbox_domain::catalog;
use signalbox_domain::identity::{APPROVE_GUARDIAN, APPROVE_TEACHER, Actor, Role};
use signalbox_domain::ids::{ActorId, IdError, TenantId};

use super::{Identify, SURFACE, headers};
use crate::api::Caller;
use crate::errors::Refusal;

/// Everybody is `dev:operator` of tenant `default`, with every scope that a tool or a question asks for.
#[derive(Debug, Clone)]
pub struct DevIdentity {
    caller: Caller,
}

impl DevIdentity {
    /// The development identity.
    pub fn new() -> Result<Self, IdError> {
        let actor = Actor { actor_id: ActorId::new("dev:operator")?, role: Role::PlatformOperator };
        let asked_for_by_tools = catalog::catalog().iter().flat_map(|tool| tool.required_scopes.clone());
        let scopes: BTreeSet<_> =
            asked_for_by_tools.chain([APPROVE_GUARDIAN.to_owned(), APPROVE_TEACHER.to_owned()]).collect();
        let scopes = scopes.into_iter().collect();
        Ok(Self { caller: Caller { tenant_id: TenantId::new("default")?, actor, scopes, surface: SURFACE } })
    }
    /// The one caller there is.
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }
}

#[async_trait]
impl Identify for DevIdentity {
    async fn identify(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        headers::in_tenant(self.caller.clone(), headers)
    }
    fn loopback_only(&self) -> bool {
        true
    }
    fn credentials_end(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_development_identity_ignores_whatever_a_request_claims() {
        let mut headers = HeaderMap::new();
        headers.insert("tenant-id", "somebody-else".parse().unwrap());
        headers.insert("authorization", "Bearer nonsense".parse().unwrap());
        let caller = DevIdentity::new().unwrap().identify(&headers).await.unwrap();
        assert_eq!(caller.tenant_id.as_str(), "default");
        assert_eq!(caller.actor.role, Role::PlatformOperator);
    }
}
