//! Who calls. Identity comes from the credential alone, never from a message (EXE-007).
//!
//! This version has one identity, for development: everybody who can reach the port is the platform's operator. It is
//! therefore tied to the loopback address, and whoever serves with it is told so loudly.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use async_trait::async_trait;
use http::HeaderMap;
use signalbox_domain::catalog;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, IdError, TenantId};

use crate::api::Caller;
use crate::errors::Refusal;

/// Tells callers apart.
#[async_trait]
pub trait Identify: Send + Sync + 'static {
    /// The caller behind a request, from its headers alone; metadata of gRPC are headers.
    async fn identify(&self, headers: &HeaderMap) -> Result<Caller, Refusal>;
    /// True if this identity may be served on a loopback address only.
    fn loopback_only(&self) -> bool;
}

/// Where calls over this edge come from (INV-002).
const SURFACE: &str = "api";

/// Everybody is `dev:operator` of tenant `default`, with every scope that a tool asks for.
#[derive(Debug, Clone)]
pub struct DevIdentity {
    caller: Caller,
}

impl DevIdentity {
    /// The development identity.
    pub fn new() -> Result<Self, IdError> {
        let actor = Actor { actor_id: ActorId::new("dev:operator")?, role: Role::PlatformOperator };
        let scopes: BTreeSet<_> = catalog::catalog().iter().flat_map(|tool| tool.required_scopes.clone()).collect();
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
    async fn identify(&self, _headers: &HeaderMap) -> Result<Caller, Refusal> {
        Ok(self.caller.clone())
    }
    fn loopback_only(&self) -> bool {
        true
    }
}

/// An address that must not be served without a real identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no identity is configured, so everybody who reaches {listen} would be the platform's operator; \
     only a loopback address can be served like that"
)]
pub struct IdentityNotConfigured {
    /// The address.
    pub listen: SocketAddr,
}

impl IdentityNotConfigured {
    /// Stable code.
    pub const CODE: &str = "identity-not-configured";
}

/// Refuses an address that can be reached from other machines if `identity` is for this one alone.
pub fn check_listen(listen: SocketAddr, identity: &dyn Identify) -> Result<(), IdentityNotConfigured> {
    if identity.loopback_only() && !listen.ip().is_loopback() {
        return Err(IdentityNotConfigured { listen });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_development_identity_is_served_on_loopback_only() {
        let identity = DevIdentity::new().unwrap();
        for loopback in ["127.0.0.1:7420", "127.8.9.1:1", "[::1]:7420"] {
            assert_eq!(check_listen(loopback.parse().unwrap(), &identity), Ok(()));
        }
        for open in ["0.0.0.0:7420", "[::]:7420", "192.168.1.4:7420", "[::ffff:10.0.0.1]:7420"] {
            assert!(check_listen(open.parse().unwrap(), &identity).is_err(), "{open}");
        }
    }

    #[tokio::test]
    async fn the_development_identity_ignores_whatever_a_request_claims() {
        let mut headers = HeaderMap::new();
        headers.insert("tenant-id", "somebody-else".parse().unwrap());
        let caller = DevIdentity::new().unwrap().identify(&headers).await.unwrap();
        assert_eq!(caller.tenant_id.as_str(), "default");
        assert_eq!(caller.actor.role, Role::PlatformOperator);
    }
}
