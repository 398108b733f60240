//! The bus as it is configured, and as it is started.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use signalbox_bus::{LocalBus, RedisAddress, RedisBus};
use signalbox_domain::ids::StoreIncarnation;
use signalbox_ports::bus::Bus;
use signalbox_tls::{ClientFiles, ClientTls};

use crate::failure::Failure;

/// The address of a Redis, checked. It may hold a password, so nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BusAddress(String);

impl BusAddress {
    /// The address as it was given.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BusAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<RedisAddress>().map(|_| Self(text.to_owned())).map_err(|error| error.to_string())
    }
}

impl fmt::Debug for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BusAddress(…)")
    }
}

/// The bus in the file.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BusEntry {
    /// Its address, as `redis://host:6379` or `rediss://user:password@host:6379`.
    url: Option<String>,
    /// Authorities of Redis, in PEM, instead of those this machine trusts; for rediss alone.
    ca: Option<PathBuf>,
    /// The certificate to show to it, in PEM; for rediss alone.
    client_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    client_key: Option<PathBuf>,
}

impl fmt::Debug for BusEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BusEntry(…)")
    }
}

impl BusEntry {
    /// Refuses what is no bus. Not while the text is read: the reader's errors quote what they found.
    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.url {
            Some(url) => url.parse::<BusAddress>().map(|_| ()).map_err(|problem| format!("bus.url: {problem}")),
            None => Ok(()),
        }
    }
}

/// Where the bus is, as the flag and the file say together.
#[derive(Debug, Clone)]
pub(crate) struct BusPlace {
    /// The address.
    pub(crate) address: RedisAddress,
    /// Certificates, if the connection is to be private.
    pub(crate) tls: Option<ClientTls>,
}

impl BusPlace {
    /// `None` if no bus is configured.
    pub(crate) fn of(flag: Option<&BusAddress>, entry: Option<&BusEntry>) -> Result<Option<Self>, Failure> {
        let Some(text) = flag.map(BusAddress::as_str).or_else(|| entry?.url.as_deref()) else { return Ok(None) };
        let address: RedisAddress = text
            .parse()
            .map_err(|error: signalbox_bus::AddressError| Failure::usage("bus-invalid", error.to_string()))?;
        let files = entry.map_or_else(ClientFiles::default, |entry| ClientFiles {
            ca: entry.ca.clone(),
            cert: entry.client_cert.clone(),
            key: entry.client_key.clone(),
        });
        if !address.is_tls() {
            if files != ClientFiles::default() {
                return Err(Failure::usage("bus-invalid", "certificates are for a bus at rediss:// alone"));
            }
            return Ok(Some(Self { address, tls: None }));
        }
        let tls = ClientTls::load(files).map_err(|error| Failure::usage(error.code(), error.to_string()))?;
        Ok(Some(Self { address, tls: Some(tls) }))
    }
}

/// Begins to listen. Whether Redis is there is found out later, again and again.
pub(crate) fn start(place: Option<BusPlace>, store: StoreIncarnation) -> Arc<dyn Bus> {
    match place {
        Some(BusPlace { address, tls }) => Arc::new(RedisBus::start(address, tls, store)),
        None => Arc::new(LocalBus::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> BusEntry {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_flag_says_where_the_bus_is_before_the_file_does() {
        let file = entry("url = \"redis://file.example\"");
        let flag: BusAddress = "redis://flag.example:7000".parse().unwrap();
        let place = |flag, entry| BusPlace::of(flag, entry).unwrap().map(|place| place.address.place());
        assert_eq!(place(Some(&flag), Some(&file)).unwrap(), "redis://flag.example:7000");
        assert_eq!(place(None, Some(&file)).unwrap(), "redis://file.example:6379");
        assert_eq!(place(None, None), None);
    }

    #[test]
    fn what_is_no_bus_is_refused_without_being_repeated() {
        for url in ["http://ann:FAKE-word@bus.example", "FAKE-word", "redis://:FAKE-word@"] {
            assert!(!entry(&format!("url = \"{url}\"")).check().unwrap_err().contains("FAKE"), "{url}");
            assert!(!url.parse::<BusAddress>().unwrap_err().contains("FAKE"), "{url}");
        }
        let clear = entry("url = \"redis://bus.example\"\nca = \"ca.pem\"");
        assert_eq!(BusPlace::of(None, Some(&clear)).unwrap_err().code, "bus-invalid");
        assert!(!format!("{:?}", entry("url = \"redis://:FAKE-word@bus.example\"")).contains("FAKE"));
    }
}
