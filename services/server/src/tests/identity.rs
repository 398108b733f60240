//! An identity for tests: it believes what a request says of itself.

use async_trait::async_trait;
use http::HeaderMap;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, TenantId};

use crate::api::{Caller, ErrorKind};
use crate::errors::Refusal;
use crate::identity::Identify;

/// Believes the headers `tenant`, `actor`, `role` and `scopes`.
pub(super) struct Claims;

#[async_trait]
impl Identify for Claims {
    async fn identify(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let claim = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let role = match claim("role") {
            None => Role::PlatformOperator,
            Some("customer") => Role::Customer,
            Some("creator") => Role::Creator,
            Some("tenant-operator") => Role::TenantOperator,
            Some(_) => return Err(Refusal::new(ErrorKind::PermissionDenied, "unauthenticated", "no")),
        };
        let tenant_id = TenantId::new(claim("tenant").unwrap_or("acme")).unwrap();
        let actor = Actor { actor_id: ActorId::new(claim("actor").unwrap_or("tester")).unwrap(), role };
        let scopes = claim("scopes").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        Ok(Caller { tenant_id, actor, scopes, surface: "api" })
    }
    fn loopback_only(&self) -> bool {
        true
    }
}

/// Whoever calls without any claim.
pub(super) async fn acme() -> Caller {
    Claims.identify(&HeaderMap::new()).await.unwrap()
}
