//! Which addresses a call may not reach, whatever a name or a grant says (CAP-001 to CAP-005, CAP-010).
//!
//! Tests are numeric and on parsed addresses only: a prefix test on text takes `fda.gov` for a unique-local address and
//! misses `0x7f.1`. An IPv6 address that carries an IPv4 one takes its class, since that is where packets go.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A kind of address that lies inside rather than outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressClass {
    /// This machine.
    Loopback,
    /// This link: where clouds keep their credentials.
    LinkLocal,
    /// Any other block that is not the public internet: private, shared, documentation, multicast, reserved.
    Private,
}

/// The class of an address; `None` for one on the public internet.
pub fn classify(address: IpAddr) -> Option<AddressClass> {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

/// First address and prefix length of every special-purpose block that has no class of its own.
const PRIVATE_V4: [(Ipv4Addr, u32); 14] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    // Public by its number, but a cloud answers here with a machine's own secrets.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
];

fn classify_v4(address: Ipv4Addr) -> Option<AddressClass> {
    if address.is_loopback() || address.is_unspecified() {
        return Some(AddressClass::Loopback);
    }
    if address.is_link_local() {
        return Some(AddressClass::LinkLocal);
    }
    let inside = |(first, length): &(Ipv4Addr, u32)| same_prefix(bits_v4(*first), bits_v4(address), *length + 96);
    PRIVATE_V4.iter().any(inside).then_some(AddressClass::Private)
}

fn classify_v6(address: Ipv6Addr) -> Option<AddressClass> {
    if address.is_loopback() || address.is_unspecified() {
        return Some(AddressClass::Loopback);
    }
    if let Some(inner) = embedded_v4(address) {
        return classify_v4(inner);
    }
    let segments = address.segments();
    if segments[0] & 0xffc0 == 0xfe80 {
        return Some(AddressClass::LinkLocal);
    }
    // Only 2000::/3 is given out for use on the internet.
    let unicast = segments[0] & 0xe000 == 0x2000;
    // 2001::/23 is for protocols: Teredo, benchmarking, identifiers.
    let protocols = segments[0] == 0x2001 && segments[1] < 0x0200;
    let documentation =
        (segments[0] == 0x2001 && segments[1] == 0x0db8) || (segments[0] == 0x3fff && segments[1] < 0x1000);
    if !unicast || protocols || documentation {
        return Some(AddressClass::Private);
    }
    // An interface id of this form tunnels to the IPv4 address behind it; a public one needs no guard.
    let tunnels = segments[4] & 0xfdff == 0 && segments[5] == 0x5efe;
    if tunnels { classify_v4(v4_of(segments[6], segments[7])) } else { None }
}

/// The IPv4 address that packets to an IPv6 one end up at: mapped, compatible, translated, NAT64 and 6to4 forms.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff | 0, a, b]
        | [0, 0, 0, 0, 0xffff, 0, a, b]
        | [0x0064, 0xff9b, 0, 0, 0, 0, a, b]
        | [0x2002, a, b, ..] => Some(v4_of(a, b)),
        _ => None,
    }
}

fn v4_of(a: u16, b: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(a) << 16 | u32::from(b))
}

/// IPv4 addresses are counted as IPv4-mapped IPv6 ones, so that one comparison serves both.
fn bits_v4(address: Ipv4Addr) -> u128 {
    address.to_ipv6_mapped().to_bits()
}

fn same_prefix(a: u128, b: u128, length: u32) -> bool {
    length == 0 || (a ^ b) >> (128 - length.min(128)) == 0
}

/// A block of addresses, such as `10.1.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    first: IpAddr,
    length: u8,
}

/// A text that is no block of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a block of addresses such as 10.1.0.0/16 or a single address")]
pub struct NotACidr(String);

impl Cidr {
    /// True if the address lies in the block. A mapped address counts as the IPv4 address it means.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                same_prefix(bits_v4(first), bits_v4(address), u32::from(self.length) + 96)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                same_prefix(first.to_bits(), address.to_bits(), u32::from(self.length))
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = NotACidr;
    fn from_str(text: &str) -> Result<Self, NotACidr> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let read = || {
            let first: IpAddr = address.parse().ok()?;
            let longest = if first.is_ipv4() { 32 } else { 128 };
            let length = length.map_or(Some(longest), |length| length.parse().ok())?;
            (length <= longest).then_some(Self { first, length })
        };
        read().ok_or_else(|| NotACidr(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
