//! Egress and the SSRF guard (CAP-001 to CAP-011), against spellings and addresses that fooled others.

use std::net::IpAddr;

use proptest::prelude::*;
use serde::Deserialize;
use signalbox_domain::governance::address::{AddressClass, Cidr, classify};
use signalbox_domain::governance::egress::{
    EgressDenialReason, EgressRules, HostExemption, check_redirect, check_resolved, check_url, host_denial,
    is_private_or_loopback_host, match_host_pattern,
};
use signalbox_domain::governance::grant::Constraints;

/// One line of `data/egress.jsonl`. Without `hosts` the URL's own host is on the list, so that only the guard can
/// refuse; `want` holds the reasons any of which is right, or nothing if the call may go.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    url: String,
    #[serde(default = "get")]
    method: String,
    hosts: Option<Vec<String>>,
    #[serde(default = "both_schemes")]
    schemes: Vec<String>,
    #[serde(default)]
    resolved: Vec<IpAddr>,
    #[serde(default)]
    connect: Vec<IpAddr>,
    #[serde(default)]
    redirects: Vec<String>,
    want: Vec<String>,
}

fn get() -> String {
    "GET".to_owned()
}

fn both_schemes() -> Vec<String> {
    words(&["https", "http"])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn rules(hosts: &[&str]) -> EgressRules {
    EgressRules {
        allow_hosts: words(hosts),
        allow_schemes: both_schemes(),
        allow_methods: words(&["GET", "HEAD"]),
        exempt: vec![],
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Both phases, each redirect, and the address the connection is really made to.
fn walk(case: &Case) -> Result<(), EgressDenialReason> {
    let own = url::Url::parse(&case.url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let rules = EgressRules {
        allow_hosts: case.hosts.clone().unwrap_or_else(|| own.into_iter().collect()),
        allow_schemes: case.schemes.clone(),
        ..rules(&[])
    };
    let mut at = check_url(&case.url, &case.method, &rules).map_err(|denial| denial.reason)?;
    case.resolved.iter().try_for_each(|address| check_resolved(&at, *address, &rules))?;
    for location in &case.redirects {
        at = check_redirect(&at, location, &case.method, &rules).map_err(|denial| denial.reason)?;
    }
    case.connect.iter().try_for_each(|address| check_resolved(&at, *address, &rules))
}

#[test]
fn every_known_trick_gets_its_verdict_and_reason() {
    let lines = include_str!("../data/egress.jsonl");
    let mut count = 0;
    for line in lines.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        count += 1;
        match walk(&case) {
            Ok(()) => assert!(case.want.is_empty(), "{}: {} passed", case.id, case.url),
            Err(reason) => {
                assert!(case.want.iter().any(|want| want == reason.code()), "{}: {} gave {reason}", case.id, case.url);
            }
        }
    }
    assert_eq!(count, 137);
}

#[test]
fn the_ends_of_each_private_range_are_inside_and_their_neighbours_are_not() {
    for (first, last, before, after) in [
        ("10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"),
        ("172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"),
        ("192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0"),
        ("100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"),
        ("198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0"),
        ("168.63.129.16", "168.63.129.16", "168.63.129.15", "168.63.129.17"),
    ] {
        for inside in [first, last] {
            assert_eq!(host_denial(inside), Some(EgressDenialReason::SsrfPrivateIp), "{inside}");
        }
        for outside in [before, after] {
            assert_eq!(host_denial(outside), None, "{outside}");
        }
    }
}

#[test]
fn this_machine_is_refused_in_every_spelling() {
    for host in [
        "127.0.0.1",
        "127.255.255.254",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "::1",
        "[::1]",
        "::",
        "0.0.0.0",
        "127.1",
        "0x7f.1",
        "017700000001",
        "2130706433",
        "0",
        "127。0。0。1",
        "::ffff:7f00:1",
    ] {
        assert_eq!(host_denial(host), Some(EgressDenialReason::SsrfLoopback), "{host}");
        assert!(is_private_or_loopback_host(host));
    }
}

#[test]
fn the_local_link_is_refused_and_a_name_that_looks_like_it_is_not() {
    for host in ["169.254.169.254", "fe80::1", "febf::1"] {
        assert_eq!(host_denial(host), Some(EgressDenialReason::SsrfLinkLocal), "{host}");
    }
    for host in ["fe80.example.com", "fec0", "169.254.example.com"] {
        assert_eq!(host_denial(host), None, "{host}");
    }
}

#[test]
fn unique_local_addresses_are_refused_and_names_that_look_like_them_are_not() {
    for host in ["fc00::1", "fdff::1"] {
        assert_eq!(host_denial(host), Some(EgressDenialReason::SsrfPrivateIp), "{host}");
    }
    for host in ["fcc.gov", "fda.gov", "fdic.gov"] {
        assert_eq!(host_denial(host), None, "{host}");
    }
}

#[test]
fn an_ipv6_address_has_the_class_of_the_ipv4_address_inside() {
    let forms = |v4: &str, hex: &str| {
        [
            format!("::ffff:{v4}"),
            format!("::{v4}"),
            format!("::ffff:0:{v4}"),
            format!("64:ff9b::{v4}"),
            format!("2002:{hex}::"),
        ]
    };
    for (v4, hex, class) in [
        ("10.0.0.1", "a00:1", Some(AddressClass::Private)),
        ("127.0.0.1", "7f00:1", Some(AddressClass::Loopback)),
        ("169.254.169.254", "a9fe:a9fe", Some(AddressClass::LinkLocal)),
        ("8.8.8.8", "808:808", None),
    ] {
        for form in forms(v4, hex) {
            assert_eq!(classify(ip(&form)), class, "{form}");
        }
    }
}

#[test]
fn every_other_special_purpose_block_is_private() {
    for address in [
        "fec0::1",
        "ff02::1",
        "2001::1",
        "2001:2::1",
        "2001:20::1",
        "2001:db8::1",
        "3fff::1",
        "3fff:fff::1",
        "100::1",
        "64:ff9b:1::1",
        "5f00::1",
        "4000::1",
        "192.88.99.1",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        assert_eq!(classify(ip(address)), Some(AddressClass::Private), "{address}");
    }
    for address in ["2001:4860::8888", "2606:2800:220:1::1", "2a00:1450::1", "3fff:1000::1", "1.1.1.1"] {
        assert_eq!(classify(ip(address)), None, "{address}");
    }
}

#[test]
fn each_check_comes_before_those_after_it() {
    let ladder = [
        ("http://user:pw@10.0.0.1/", "POST", EgressDenialReason::InvalidUrl),
        ("ftp://10.0.0.1/", "POST", EgressDenialReason::SchemeNotAllowed),
        ("https://10.0.0.1/", "POST", EgressDenialReason::MethodNotAllowed),
        ("https://10.0.0.1/", "GET", EgressDenialReason::SsrfPrivateIp),
        ("https://a.example.com/", "GET", EgressDenialReason::HostNotInAllowlist),
    ];
    for (url, method, reason) in ladder {
        let denial = check_url(url, method, &rules(&["b.example.com"])).unwrap_err();
        assert_eq!(denial.reason, reason, "{url}");
        assert!(!denial.detail.is_empty() && !denial.detail.contains("pw@"), "no secret in a message");
    }
    let checked = check_url("https://b.example.com/", "get", &rules(&["b.example.com"])).unwrap();
    assert_eq!((checked.host.as_str(), checked.port), ("b.example.com", 443));
    assert_eq!(check_resolved(&checked, ip("10.0.0.1"), &rules(&[])), Err(EgressDenialReason::SsrfPrivateIp));
}

#[test]
fn each_reason_has_its_code() {
    let codes = EgressDenialReason::ALL.map(EgressDenialReason::code);
    assert_eq!(codes.len(), 7);
    for (reason, code) in EgressDenialReason::ALL.into_iter().zip(codes) {
        assert_eq!(serde_json::to_value(reason).unwrap(), code);
        assert_eq!(reason.to_string(), code);
    }
}

#[test]
fn a_scheme_whose_hosts_cannot_be_read_is_refused_even_if_it_is_listed() {
    let rules = EgressRules { allow_schemes: words(&["gopher", "file"]), ..rules(&["*"]) };
    for url in ["gopher://127.0.0.1/", "file:///etc/passwd"] {
        assert_eq!(check_url(url, "GET", &rules).unwrap_err().reason, EgressDenialReason::SchemeNotAllowed);
    }
}

#[test]
fn a_star_stands_for_one_or_more_labels_in_front() {
    for (pattern, host, matches) in [
        ("*.a.org", "x.a.org", true),
        ("*.a.org", "x.y.a.org", true),
        ("*.A.org", "X.a.ORG.", true),
        ("*.a.org", "a.org", false),
        ("*.a.org", "xa.org", false),
        ("*.a.org", ".a.org", false),
        ("*.a.org", "x..a.org", false),
        ("a.org", "a.org.", true),
        ("a.org", "x.a.org", false),
        ("*.", "a.org", false),
        ("", "", false),
        ("*", "a.org", true),
        ("*.0.0.1", "127.0.0.1", false),
        ("[2001:db8::1]", "2001:db8::1", true),
        ("*.é.org", "x.é.org", true),
        ("*.org", "é", false),
    ] {
        assert_eq!(match_host_pattern(pattern, host), matches, "{pattern} {host}");
    }
}

#[test]
fn a_grant_without_bounds_allows_reading_public_hosts_by_https() {
    let rules = EgressRules::of(&Constraints::default(), &[]);
    let reason = |url, method| check_url(url, method, &rules).map(|_| ()).map_err(|denial| denial.reason);
    assert_eq!(reason("https://example.com/", "GET"), Ok(()));
    assert_eq!(reason("https://example.com/", "HEAD"), Ok(()));
    assert_eq!(reason("http://example.com/", "GET"), Err(EgressDenialReason::SchemeNotAllowed));
    assert_eq!(reason("https://example.com/", "POST"), Err(EgressDenialReason::MethodNotAllowed));
    assert_eq!(reason("https://10.0.0.1/", "GET"), Err(EgressDenialReason::SsrfPrivateIp));
    let nothing = Constraints { hosts: Some(vec![]), ..Constraints::default() };
    let denial = check_url("https://example.com/", "GET", &EgressRules::of(&nothing, &[])).unwrap_err();
    assert_eq!(denial.reason, EgressDenialReason::HostNotInAllowlist, "an empty list allows nothing");
}

#[test]
fn an_exemption_opens_one_host_and_no_other() {
    let exempt = |host: &str, cidr: &str| HostExemption { host: host.to_owned(), cidr: cidr.parse().unwrap() };
    let rules = EgressRules {
        exempt: vec![
            exempt("search.internal", "10.1.0.0/16"),
            exempt("localhost", "127.0.0.0/8"),
            exempt("127.0.0.1", "127.0.0.1"),
        ],
        ..rules(&["*"])
    };
    let search = check_url("http://search.internal/", "GET", &rules).unwrap();
    assert_eq!(check_resolved(&search, ip("10.1.2.3"), &rules), Ok(()));
    assert_eq!(check_resolved(&search, ip("::ffff:10.1.2.3"), &rules), Ok(()));
    assert_eq!(check_resolved(&search, ip("10.2.0.0"), &rules), Err(EgressDenialReason::SsrfPrivateIp));
    let other = check_url("http://other.example.com/", "GET", &rules).unwrap();
    assert_eq!(check_resolved(&other, ip("10.1.2.3"), &rules), Err(EgressDenialReason::SsrfPrivateIp));
    assert!(check_url("http://localhost:8080/", "GET", &rules).is_ok());
    assert!(check_url("http://127.0.0.1:8080/", "GET", &rules).is_ok());
    assert!(check_url("http://127.0.0.2:8080/", "GET", &rules).is_err());
    assert!(check_url("http://a.localhost/", "GET", &rules).is_err());
}

#[test]
fn credentials_go_to_the_same_scheme_host_and_port_only() {
    let rules = rules(&["*"]);
    let url = |text| check_url(text, "GET", &rules).unwrap();
    let from = url("https://a.example.com/start");
    assert!(from.shares_credentials_with(&url("https://A.example.com.:443/next")));
    for other in ["https://b.example.com/", "http://a.example.com/", "https://a.example.com:8443/"] {
        assert!(!from.shares_credentials_with(&url(other)), "{other}");
    }
}

#[test]
fn a_block_of_addresses_is_read_and_written_the_same() {
    for text in ["10.1.0.0/16", "::1/128", "0.0.0.0/0"] {
        let cidr: Cidr = text.parse().unwrap();
        assert_eq!(cidr.to_string(), text);
        assert_eq!(serde_json::from_value::<Cidr>(serde_json::to_value(cidr).unwrap()).unwrap(), cidr);
    }
    assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains(ip("8.8.8.8")));
    assert!(!"0.0.0.0/0".parse::<Cidr>().unwrap().contains(ip("2001:db8::1")));
    for text in ["10.0.0.0/33", "::/129", "10.0.0.0/", "x/8", "", "10.0.0.0/-1"] {
        assert!(text.parse::<Cidr>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(url in any::<String>(), pattern in any::<String>(), host in any::<String>()) {
        let rules = EgressRules { allow_hosts: vec![pattern.clone()], ..rules(&[]) };
        let _ = check_url(&url, "GET", &rules);
        let _ = check_url(&format!("https://{host}/"), "GET", &rules);
        let _ = match_host_pattern(&pattern, &host);
        let _ = host_denial(&host);
    }

    #[test]
    fn an_ipv4_address_has_one_class_in_all_its_spellings(bits in any::<u32>()) {
        let address = std::net::Ipv4Addr::from_bits(bits);
        let class = classify(IpAddr::V4(address)).map(EgressDenialReason::from);
        let [a, b, c, d] = address.octets();
        for spelling in [
            address.to_string(),
            bits.to_string(),
            format!("{bits:#x}"),
            format!("0{bits:o}"),
            format!("{a:#x}.0{b:o}.{}", u32::from(c) << 8 | u32::from(d)),
            format!("{address}."),
            format!("[::ffff:{address}]"),
            format!("[64:ff9b::{address}]"),
        ] {
            prop_assert_eq!(host_denial(&spelling), class, "{}", spelling);
        }
    }
}

#[test]
fn no_exemption_opens_an_address_that_serves_metadata() {
    let hosts = [
        ("metadata.internal", "0.0.0.0/0", "169.254.169.254"),
        ("metadata.internal", "0.0.0.0/0", "100.100.100.200"),
        ("metadata.internal", "::/0", "fe80::1"),
        ("metadata.internal", "::/0", "fd00:ec2::254"),
        ("metadata.internal", "::/0", "::ffff:169.254.169.254"),
    ];
    for (host, cidr, address) in hosts {
        let exempt = vec![HostExemption { host: host.to_owned(), cidr: cidr.parse().unwrap() }];
        let rules = EgressRules { exempt, ..rules(&["*"]) };
        let url = check_url(&format!("https://{host}/"), "GET", &rules).unwrap();
        assert!(check_resolved(&url, ip(address), &rules).is_err(), "{address}");
    }
}
