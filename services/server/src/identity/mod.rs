//! Who calls. Identity comes from the credential alone, never from a message (EXE-007).
//!
//! A credential is a signed token or an API key, in one `authorization` header. What a good one says is decided by
//! `signalbox_domain::identity`; here it is found out whether it is good. One function, [`Identify::identify`], leads from
//! headers to a caller, for every edge.
//!
//! Deliberately absent: sessions, cookies, and any way to choose a role or a key in a request.

mod api_keys;
mod credentials;
mod dev;
mod door;
mod headers;
mod jwk;
mod key_source;
mod lasting;
mod refusals;
mod service;
mod token;

use std::net::SocketAddr;

use async_trait::async_trait;
use http::HeaderMap;

pub use api_keys::ApiKeys;
pub use credentials::{Credentials, Tokens};
pub use dev::DevIdentity;
pub(crate) use door::{Door, caller_of};
pub use headers::TENANT_HEADER;
pub use jwk::{KeySet, KeySetError};
pub use key_source::{KeyPlace, KeyPlaceError, KeySource, RefreshTimes};
pub(crate) use lasting::while_good;
pub(crate) use service::Identities;

use crate::api::{Caller, ErrorKind};
use crate::errors::Refusal;

/// Tells callers apart.
#[async_trait]
pub trait Identify: Send + Sync + 'static {
    /// The caller behind a request, from its headers alone; metadata of gRPC are headers.
    async fn identify(&self, headers: &HeaderMap) -> Result<Caller, Refusal>;
    /// True if this identity may be served on a loopback address only.
    fn loopback_only(&self) -> bool;
    /// True if a credential that is good now may be good for nothing later.
    fn credentials_end(&self) -> bool {
        true
    }
}

/// Where calls over this edge come from (INV-002).
const SURFACE: &str = "api";

/// The code of what everybody hears whose credential is missing or not good.
const UNAUTHENTICATED: &str = "unauthenticated";

/// What everybody hears whose credential is missing or not good: why is for the log.
fn unauthenticated() -> Refusal {
    Refusal::new(
        ErrorKind::PermissionDenied,
        UNAUTHENTICATED,
        "a valid credential is needed, as `authorization: Bearer …`",
    )
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
}
