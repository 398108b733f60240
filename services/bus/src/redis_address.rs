//! Where a Redis is, and how a node is let in.

use std::fmt;
use std::str::FromStr;

use redis::{ConnectionAddr, IntoConnectionInfo as _, ProtocolVersion, RedisConnectionInfo};
use url::Url;

/// The address of a Redis. It may hold a password, so nothing prints it.
#[derive(Clone)]
pub struct RedisAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) login: RedisConnectionInfo,
}

/// What is wrong with an address. The address is not repeated: it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bus must be like redis://host:6379, or rediss://user:password@host:6379/0 with TLS")]
pub struct AddressError;

impl RedisAddress {
    /// True if the connection is to be private.
    pub const fn is_tls(&self) -> bool {
        self.tls
    }

    /// Where it is, without whatever lets a node in.
    pub fn place(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{}://{host}:{}", if self.tls { "rediss" } else { "redis" }, self.port)
    }
}

impl FromStr for RedisAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let url = Url::parse(text).map_err(|_| AddressError)?;
        let tls = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            _ => return Err(AddressError),
        };
        if url.query().is_some() || url.fragment().is_some() || url.host_str().is_none_or(str::is_empty) {
            return Err(AddressError);
        }
        // TLS is spoken here, below the crate, which has to read the rest only.
        let rest = text.trim().split_once("://").map(|(_, rest)| rest).ok_or(AddressError)?;
        let info = format!("redis://{rest}").into_connection_info().map_err(|_| AddressError)?;
        let ConnectionAddr::Tcp(host, port) = info.addr() else { return Err(AddressError) };
        let login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        Ok(Self { host: host.clone(), port: *port, tls, login })
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisAddress(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart_and_its_password_printed_nowhere() {
        let address: RedisAddress = "rediss://ann:FAKE%20word@db.example:7000/3".parse().unwrap();
        assert_eq!((address.host.as_str(), address.port, address.tls), ("db.example", 7000, true));
        assert_eq!((address.login.username(), address.login.password()), (Some("ann"), Some("FAKE word")));
        assert_eq!((address.login.db(), address.place().as_str()), (3, "rediss://db.example:7000"));
        assert!(!format!("{address:?}").contains("FAKE"));
        let plain: RedisAddress = "redis://[::1]".parse().unwrap();
        assert_eq!((plain.port, plain.is_tls(), plain.place().as_str()), (6379, false, "redis://[::1]:6379"));
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        for text in [
            "",
            "localhost",
            "http://FAKE@localhost",
            "redis://",
            "redis://:FAKE@",
            "redis://localhost:99999",
            "redis://localhost/FAKE",
            "redis://localhost?password=FAKE",
            "unix:///tmp/FAKE",
            "redis://localhost\0FAKE",
        ] {
            let refused = text.parse::<RedisAddress>().unwrap_err();
            assert!(!refused.to_string().contains("FAKE"), "{text}");
        }
    }
}
