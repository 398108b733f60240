//! Connections behind the guard against forged requests (CAP-008 to CAP-011): to addresses that were checked, and no others.
//!
//! A URL passes phase 1 before anything is resolved. Then every address its host resolves to is checked, and the HTTP client
//! is given no other resolver than the one that answers with those. No proxy is used, since a proxy would resolve names again,
//! and no redirect is followed by the client itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::redirect;
use signalbox_domain::governance::egress::{CheckedUrl, EgressDenial, EgressRules, check_resolved};

/// Longest time to connect.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Most addresses of one host that are looked at.
const ADDRESSES_MAX: usize = 64;
/// Who we say we are.
const USER_AGENT: &str = concat!("signalbox/", env!("CARGO_PKG_VERSION"));

/// Where names become addresses.
#[async_trait]
pub(crate) trait Resolver: Send + Sync + 'static {
    /// All addresses of a host.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of this machine.
#[derive(Debug)]
pub(crate) struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.map(|address| address.ip()).collect())
    }
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WebFailure {
    /// Stable code.
    pub(crate) code: &'static str,
    /// In words; names hosts, never whole URLs.
    pub(crate) message: String,
    /// True if something had left this machine.
    pub(crate) left: bool,
}

impl From<EgressDenial> for WebFailure {
    fn from(denial: EgressDenial) -> Self {
        Self { code: denial.reason.code(), message: denial.to_string(), left: false }
    }
}

pub(crate) fn failed<T>(code: &'static str, message: impl Into<String>, left: bool) -> Result<T, WebFailure> {
    Err(WebFailure { code, message: message.into(), left })
}

/// Every address of the host, all of them checked: one that lies inside is enough to refuse the host.
pub(crate) async fn checked_addresses(
    resolver: &dyn Resolver,
    here: &CheckedUrl,
    rules: &EgressRules,
) -> Result<Vec<IpAddr>, WebFailure> {
    let found = match here.url.host() {
        Some(url::Host::Ipv4(address)) => vec![IpAddr::V4(address)],
        Some(url::Host::Ipv6(address)) => vec![IpAddr::V6(address)],
        Some(url::Host::Domain(name)) => match resolver.resolve(name, here.port).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, host = here.host, "a name was not resolved");
                return failed("name-not-resolved", format!("`{}` has no address", here.host), true);
            }
        },
        None => return failed("invalid-url", "the URL has no host", false),
    };
    if found.is_empty() || found.len() > ADDRESSES_MAX {
        return failed("name-not-resolved", format!("`{}` has no or too many addresses", here.host), true);
    }
    for address in &found {
        if let Err(reason) = check_resolved(here, *address, rules) {
            let message = format!("`{}` leads to an address that is not on the public internet", here.host);
            return failed(reason.code(), message, false);
        }
    }
    Ok(found)
}

/// A client that reaches these addresses, whatever name it is asked for.
pub(crate) fn client_to(addresses: Vec<IpAddr>, port: u16) -> Result<reqwest::Client, WebFailure> {
    let pinned = Pinned(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect());
    let client = reqwest::Client::builder()
        .dns_resolver(Arc::new(pinned))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .connect_timeout(CONNECT_MAX)
        .user_agent(USER_AGENT)
        .build();
    client.or_else(|error| {
        tracing::error!(%error, "no HTTP client could be made");
        failed("web-client-unavailable", "this installation cannot make web requests", false)
    })
}

/// Resolves whatever name it is asked for to the addresses that were checked.
struct Pinned(Vec<SocketAddr>);

impl reqwest::dns::Resolve for Pinned {
    fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let addresses: reqwest::dns::Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}
