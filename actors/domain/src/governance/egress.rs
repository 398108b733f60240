//! Egress: which URL a call may reach (CAP-006 to CAP-011).
//!
//! The guard has two phases. Phase 1 ([`check_url`]) looks at the URL before anything is resolved. Phase 2
//! ([`check_resolved`]) looks at every address a name resolved to, where the connection is made, and the connection must
//! go to a checked address; otherwise a name could change its mind between check and use. Each redirect goes through
//! both again. Hosts are read by the WHATWG rules, the same that the HTTP client uses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::governance::address::{AddressClass, Cidr, classify};
use crate::governance::grant::Constraints;

/// Most redirects that are followed (CAP-009).
pub const REDIRECTS_MAX: usize = 5;
/// Most bytes of a decoded body that are read: 2 MiB (CAP-009).
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Longest URL that is requested, in bytes; servers take no longer ones.
pub const URL_BYTES_MAX: usize = 8 * 1024;
/// The schemes a grant allows if it names none (CAP-011).
pub const SCHEMES_DEFAULT: [&str; 1] = ["https"];
/// The methods a grant allows if it names none (CAP-011).
pub const METHODS_DEFAULT: [&str; 2] = ["GET", "HEAD"];
/// The pattern that every host matches.
pub const ANY_HOST: &str = "*";

/// Why a URL or address may not be reached (CAP-006).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EgressDenialReason {
    /// An address that is not on the public internet.
    SsrfPrivateIp,
    /// An address of the link, such as a cloud's metadata service.
    SsrfLinkLocal,
    /// This machine.
    SsrfLoopback,
    /// A host that the grant does not name.
    HostNotInAllowlist,
    /// A scheme that the grant does not name.
    SchemeNotAllowed,
    /// A method that the grant does not name.
    MethodNotAllowed,
    /// Not a URL with a host, or one with credentials in it.
    InvalidUrl,
}

impl EgressDenialReason {
    /// All seven.
    pub const ALL: [Self; 7] = [
        Self::SsrfPrivateIp,
        Self::SsrfLinkLocal,
        Self::SsrfLoopback,
        Self::HostNotInAllowlist,
        Self::SchemeNotAllowed,
        Self::MethodNotAllowed,
        Self::InvalidUrl,
    ];

    /// Stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::SsrfPrivateIp => "ssrf-private-ip",
            Self::SsrfLinkLocal => "ssrf-link-local",
            Self::SsrfLoopback => "ssrf-loopback",
            Self::HostNotInAllowlist => "host-not-in-allowlist",
            Self::SchemeNotAllowed => "scheme-not-allowed",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::InvalidUrl => "invalid-url",
        }
    }
}

impl fmt::Display for EgressDenialReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl std::error::Error for EgressDenialReason {}

impl From<AddressClass> for EgressDenialReason {
    fn from(class: AddressClass) -> Self {
        match class {
            AddressClass::Loopback => Self::SsrfLoopback,
            AddressClass::LinkLocal => Self::SsrfLinkLocal,
            AddressClass::Private => Self::SsrfPrivateIp,
        }
    }
}

/// A refusal: what was found, and the smallest change that would have let the call through. It repeats the host at
/// most, never the whole URL, which may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct EgressDenial {
    /// Why.
    pub reason: EgressDenialReason,
    /// In words.
    pub detail: String,
}

impl EgressDenial {
    fn new(reason: EgressDenialReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// A host that may be reached although it lies inside: only an operator's configuration makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostExemption {
    /// The host, exactly as it stands in URLs.
    pub host: String,
    /// The addresses it may have.
    pub cidr: Cidr,
}

/// What a call may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRules {
    /// Host patterns, see [`match_host_pattern`]. Empty: none.
    pub allow_hosts: Vec<String>,
    /// URL schemes.
    pub allow_schemes: Vec<String>,
    /// HTTP methods.
    pub allow_methods: Vec<String>,
    /// Hosts that may lie inside. They need to be allowed all the same.
    pub exempt: Vec<HostExemption>,
}

impl EgressRules {
    /// The rules that a grant's constraints make, with the defaults of CAP-011. Hosts that are not bound are all hosts
    /// of the public internet.
    pub fn of(constraints: &Constraints, exempt: &[HostExemption]) -> Self {
        let or = |bound: &Option<Vec<String>>, default: &[&str]| {
            bound.clone().unwrap_or_else(|| default.iter().map(|&word| word.to_owned()).collect())
        };
        Self {
            allow_hosts: or(&constraints.hosts, &[ANY_HOST]),
            allow_schemes: or(&constraints.schemes, &SCHEMES_DEFAULT),
            allow_methods: or(&constraints.methods, &METHODS_DEFAULT),
            exempt: exempt.to_vec(),
        }
    }

    fn exempts(&self, host: &str, address: IpAddr) -> bool {
        !serves_metadata(address)
            && self.exempt.iter().any(|exemption| same_host(&exemption.host, host) && exemption.cidr.contains(address))
    }
}

/// A URL that passed phase 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedUrl {
    /// As the client must request it.
    pub url: Url,
    /// The host in lower case, without a dot at its end.
    pub host: String,
    /// The port, that of the scheme if the URL names none.
    pub port: u16,
}

impl CheckedUrl {
    /// True if credentials sent to this URL may be sent to the other one too: same scheme, host and port (CAP-009).
    pub fn shares_credentials_with(&self, other: &Self) -> bool {
        self.url.scheme() == other.url.scheme() && self.host == other.host && self.port == other.port
    }
}

/// Phase 1: the URL itself. Checked in this order: is it a URL, its scheme, the method, its host if that is an address
/// or `localhost`, the list of hosts (CAP-011).
///
/// # Errors
/// The first check that fails.
pub fn check_url(url: &str, method: &str, rules: &EgressRules) -> Result<CheckedUrl, EgressDenial> {
    check_length(url)?;
    let parsed = Url::parse(url)
        .map_err(|error| EgressDenial::new(EgressDenialReason::InvalidUrl, format!("not an absolute URL: {error}")))?;
    check_parsed(parsed, method, rules)
}

/// Phase 1 for the target of a redirect, relative to where it came from.
///
/// # Errors
/// As [`check_url`].
pub fn check_redirect(
    from: &CheckedUrl,
    location: &str,
    method: &str,
    rules: &EgressRules,
) -> Result<CheckedUrl, EgressDenial> {
    check_length(location)?;
    let joined = from.url.join(location).map_err(|error| {
        EgressDenial::new(EgressDenialReason::InvalidUrl, format!("the redirect leads to no URL: {error}"))
    })?;
    check_parsed(joined, method, rules)
}

fn check_length(url: &str) -> Result<(), EgressDenial> {
    if url.len() <= URL_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("the URL has {} bytes; at most {URL_BYTES_MAX} are allowed", url.len());
    Err(EgressDenial::new(EgressDenialReason::InvalidUrl, detail))
}

fn check_parsed(url: Url, method: &str, rules: &EgressRules) -> Result<CheckedUrl, EgressDenial> {
    use EgressDenialReason::{HostNotInAllowlist, InvalidUrl, MethodNotAllowed, SchemeNotAllowed};

    // Once more as it will be requested: what is escaped grows.
    check_length(url.as_str())?;
    if !url.username().is_empty() || url.password().is_some() {
        let detail = "the URL holds credentials, which end in logs; leave them out and use a secret";
        return Err(EgressDenial::new(InvalidUrl, detail));
    }
    // The hosts of other schemes are not read as addresses, so nothing could be said about them.
    let readable = matches!(url.scheme(), "http" | "https" | "ws" | "wss" | "ftp");
    if !readable || !rules.allow_schemes.iter().any(|scheme| scheme.eq_ignore_ascii_case(url.scheme())) {
        let detail = format!("the scheme is `{}`; the grant allows {}", url.scheme(), list(&rules.allow_schemes));
        return Err(EgressDenial::new(SchemeNotAllowed, detail));
    }
    if !rules.allow_methods.iter().any(|allowed| allowed.eq_ignore_ascii_case(method)) {
        let method: String = method.chars().take(32).collect();
        let detail = format!("the method is `{method}`; the grant allows {}", list(&rules.allow_methods));
        return Err(EgressDenial::new(MethodNotAllowed, detail));
    }
    let (Some(found), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Err(EgressDenial::new(InvalidUrl, "the URL has no host"));
    };
    let host = normal(url.host_str().unwrap_or_default()).to_owned();
    if host.is_empty() {
        return Err(EgressDenial::new(InvalidUrl, "the host of the URL is nothing but a dot"));
    }
    if let Some(class) = literal_class(&found, &host, rules) {
        let detail = format!(
            "`{host}` is {}; name a host on the public internet, or let an operator exempt this host",
            class_in_words(class)
        );
        return Err(EgressDenial::new(class.into(), detail));
    }
    if !rules.allow_hosts.iter().any(|pattern| match_host_pattern(pattern, &host)) {
        let detail =
            format!("`{host}` is not among the hosts of the grant ({}); add it there", list(&rules.allow_hosts));
        return Err(EgressDenial::new(HostNotInAllowlist, detail));
    }
    Ok(CheckedUrl { url, host, port })
}

/// Phase 2 for one address that the host of a checked URL resolved to. All of them must pass.
///
/// # Errors
/// The class of the address.
pub fn check_resolved(url: &CheckedUrl, address: IpAddr, rules: &EgressRules) -> Result<(), EgressDenialReason> {
    match classify(address) {
        Some(class) if !rules.exempts(&url.host, address) => Err(class.into()),
        Some(_) | None => Ok(()),
    }
}

/// Addresses at which clouds hand out credentials: the whole local link, and the two known ones beside it. No
/// configuration opens them.
fn serves_metadata(address: IpAddr) -> bool {
    const BESIDE: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
    ];
    classify(address) == Some(AddressClass::LinkLocal) || BESIDE.contains(&address)
}

/// True if the host matches the pattern: `a.org` only itself, `*.a.org` every name below it but not itself (CAP-007),
/// and `*` every host. Names have no case; a dot at the end does not count. Addresses match as a whole only.
pub fn match_host_pattern(pattern: &str, host: &str) -> bool {
    if pattern == ANY_HOST {
        return true;
    }
    let (pattern, host) = (normal(pattern), normal(host));
    let Some(suffix) = pattern.strip_prefix("*.") else { return same_host(pattern, host) };
    if suffix.is_empty() || bare(host).parse::<IpAddr>().is_ok() {
        return false;
    }
    let below = host.len().checked_sub(suffix.len()).and_then(|cut| host.split_at_checked(cut));
    below.is_some_and(|(labels, end)| {
        end.eq_ignore_ascii_case(suffix)
            && labels.strip_suffix('.').is_some_and(|labels| labels.split('.').all(|label| !label.is_empty()))
    })
}

/// Why a host may not be reached, judged by its text alone: an address in any spelling, or `localhost` (CAP-001 to
/// CAP-005, CAP-010). `None` for names and for addresses of the public internet.
pub fn host_denial(host: &str) -> Option<EgressDenialReason> {
    let bracketed = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let parsed = Host::parse(&bracketed).ok()?;
    let text = parsed.to_string();
    literal_class(&parsed, normal(&text), &EgressRules::of(&Constraints::default(), &[])).map(Into::into)
}

/// True if the host is an address that is not on the public internet, in any spelling, or `localhost`.
pub fn is_private_or_loopback_host(host: &str) -> bool {
    host_denial(host).is_some()
}

fn literal_class<S: AsRef<str>>(found: &Host<S>, host: &str, rules: &EgressRules) -> Option<AddressClass> {
    let address = match found {
        Host::Ipv4(address) => IpAddr::V4(*address),
        Host::Ipv6(address) => IpAddr::V6(*address),
        Host::Domain(_) => {
            let exempt = rules.exempt.iter().any(|exemption| same_host(&exemption.host, host));
            return (is_localhost(host) && !exempt).then_some(AddressClass::Loopback);
        }
    };
    classify(address).filter(|_| !rules.exempts(host, address))
}

/// `localhost` and every name below it (RFC 6761).
fn is_localhost(host: &str) -> bool {
    host.rsplit('.').next().is_some_and(|label| label.eq_ignore_ascii_case("localhost"))
}

fn normal(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn same_host(a: &str, b: &str) -> bool {
    !a.is_empty() && bare(normal(a)).eq_ignore_ascii_case(bare(normal(b)))
}

const fn class_in_words(class: AddressClass) -> &'static str {
    match class {
        AddressClass::Loopback => "this machine",
        AddressClass::LinkLocal => "an address of the local link",
        AddressClass::Private => "not on the public internet",
    }
}

fn list(words: &[String]) -> String {
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
