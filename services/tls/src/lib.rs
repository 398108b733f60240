//! TLS at both ends: certificates out of files, read again when they change.
//!
//! The one crate that knows rustls. It knows files, sockets and nothing of what travels over them; who a certificate
//! belongs to is not asked here, only whether it may be trusted. One provider, aws-lc-rs, at least TLS 1.2.

mod accept;
mod client;
mod error;
mod expiry;
mod files;
mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use accept::{AcceptLimits, Connection, incoming};
pub use client::{ClientConnection, ClientFiles, ClientTls};
pub use error::TlsError;
pub use expiry::expires_at;
pub use server::{ServerFiles, ServerTls};
