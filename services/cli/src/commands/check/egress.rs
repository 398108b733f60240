//! `check ssrf`: both phases of the guard, and each redirect.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::governance::egress::{
    EgressDenialReason, EgressRules, HostExemption, METHODS_DEFAULT, REDIRECTS_MAX, SCHEMES_DEFAULT, check_redirect,
    check_resolved, check_url,
};

use super::{Verdict, read, verdict};

/// Stands for the URL's own host in a list of hosts.
const OWN_HOST: &str = "@self";

/// What is reached for, what the grant allows, and what the network would say.
#[derive(Deserialize)]
struct Line {
    url: String,
    #[serde(default = "get")]
    method: String,
    allow_hosts: Vec<String>,
    #[serde(default = "schemes")]
    allow_schemes: Vec<String>,
    #[serde(default = "methods")]
    allow_methods: Vec<String>,
    /// What the name resolves to.
    #[serde(default)]
    resolved: Vec<IpAddr>,
    /// What it resolves to when the connection is made.
    #[serde(default)]
    connect_resolved: Vec<IpAddr>,
    /// Where each answer leads on.
    #[serde(default)]
    redirects: Vec<String>,
    /// Hosts that may lie inside.
    #[serde(default)]
    exempt: Vec<HostExemption>,
}

fn get() -> String {
    "GET".to_owned()
}

fn schemes() -> Vec<String> {
    SCHEMES_DEFAULT.map(str::to_owned).to_vec()
}

fn methods() -> Vec<String> {
    METHODS_DEFAULT.map(str::to_owned).to_vec()
}

pub(super) fn ssrf(line: Value) -> Verdict {
    let line: Line = read(line)?;
    Ok(match walk(&line) {
        Ok(()) => verdict([("verdict", "allow".into())]),
        Err(reason) => verdict([("verdict", "deny".into()), ("reason", json!(reason))]),
    })
}

fn walk(line: &Line) -> Result<(), EgressDenialReason> {
    let own = url::Url::parse(&line.url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let host = |host: &String| if host == OWN_HOST { own.clone() } else { host.clone() };
    let rules = EgressRules {
        allow_hosts: line.allow_hosts.iter().map(host).collect(),
        allow_schemes: line.allow_schemes.clone(),
        allow_methods: line.allow_methods.clone(),
        exempt: line.exempt.clone(),
    };
    let mut at = check_url(&line.url, &line.method, &rules).map_err(|denial| denial.reason)?;
    line.resolved.iter().try_for_each(|address| check_resolved(&at, *address, &rules))?;
    // The tool stops after as many; what would follow is never reached.
    for location in line.redirects.iter().take(REDIRECTS_MAX) {
        at = check_redirect(&at, location, &line.method, &rules).map_err(|denial| denial.reason)?;
    }
    line.connect_resolved.iter().try_for_each(|address| check_resolved(&at, *address, &rules))
}
