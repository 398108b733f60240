//! Who may import whom. `actors/` holds what signalbox is and knows no vendor; `services/` holds what it talks to.
//!
//! A folder says what belongs together, a manifest what may know what; only the second holds, so it is the second that is
//! read here.

use toml::Value;

use crate::workspace::{Use, members, none};

const DOMAIN: &str = "signalbox-domain";
const PORTS: &str = "signalbox-ports";
const PROTO: &str = "signalbox-proto";
const RUNTIME: &str = "signalbox-runtime";
const TLS: &str = "signalbox-tls";

/// Crates that see everything: the binary, which wires, and the tests and benches, which look.
const SEE_ALL: [&str; 3] = ["signalbox", "signalbox-tests", "signalbox-benches"];

/// Each other crate, with the crates of this workspace it may build on.
const MAY_IMPORT: [(&str, &[&str]); 10] = [
    // For its client alone.
    (PROTO, &[TLS]),
    (DOMAIN, &[]),
    (PORTS, &[DOMAIN]),
    (RUNTIME, &[DOMAIN, PORTS]),
    ("signalbox-store", &[DOMAIN, PORTS]),
    ("signalbox-bus", &[DOMAIN, PORTS, TLS]),
    ("signalbox-telemetry", &[DOMAIN, PORTS]),
    (TLS, &[]),
    ("signalbox-tools", &[DOMAIN, PORTS, PROTO, TLS]),
    ("signalbox-server", &[DOMAIN, PORTS, PROTO, RUNTIME, TLS]),
];

/// What the rules are made of: small crates that do no I/O, start no task and read no clock.
const PURE: [&str; 11] = [
    "jiff",
    "regex",
    "schemars",
    "semver",
    "serde",
    "serde_json",
    "serde_json_canonicalizer",
    "sha2",
    "thiserror",
    "url",
    "uuid",
];

const WIRE: [&str; 7] =
    [PROTO, TLS, "signalbox-server", "signalbox-tools", "signalbox", "signalbox-tests", "signalbox-benches"];

/// Outside crates that only some of ours may know, by the beginning of their names.
const CONFINED: [(&str, &[&str]); 16] = [
    ("sqlx", &["signalbox-store"]),
    ("rusqlite", &["signalbox-store", "signalbox-benches"]),
    ("redis", &["signalbox-bus"]),
    ("ractor", &[RUNTIME]),
    ("tonic", &WIRE),
    ("prost", &WIRE),
    ("opentelemetry", &["signalbox-telemetry", "signalbox"]),
    ("prometheus", &["signalbox-telemetry"]),
    ("protox", &[PROTO, "signalbox-tests"]),
    ("axum", &["signalbox-server", "signalbox-telemetry", "signalbox-benches"]),
    ("reqwest", &["signalbox-tools", "signalbox-server", "signalbox-benches"]),
    ("jsonwebtoken", &["signalbox-server", "signalbox-tests"]),
    ("object_store", &["signalbox-store"]),
    ("clap", &["signalbox"]),
    ("aws-lc", &["signalbox-store"]),
    ("tokio-rustls", &[TLS]),
];

#[test]
fn every_crate_has_its_place_in_the_import_rules() {
    let unknown = members()
        .into_iter()
        .filter(|m| !SEE_ALL.contains(&m.name.as_str()) && !MAY_IMPORT.iter().any(|(name, _)| *name == m.name))
        .map(|m| format!("{} in {}", m.name, m.folder.display()))
        .collect();
    none(unknown, "give the crate a line in MAY_IMPORT:");
}

#[test]
fn a_crate_builds_only_on_those_it_may_know() {
    let mut found = Vec::new();
    for member in members() {
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == member.name) else { continue };
        // A test may look at more than what it tests.
        for dependency in member.dependencies.iter().filter(|d| d.used_for != Use::Test) {
            let name = dependency.package.as_str();
            if name.starts_with("signalbox") && !allowed.contains(&name) {
                found.push(format!("{} imports {name}", member.name));
            }
        }
    }
    none(found, "the arrows point from services to actors to domain:");
}

#[test]
fn an_outside_system_is_known_by_one_crate() {
    let mut found = Vec::new();
    for member in members() {
        for dependency in &member.dependencies {
            for (prefix, holders) in CONFINED {
                if dependency.package.starts_with(prefix) && !holders.contains(&member.name.as_str()) {
                    found.push(format!("{} imports {}; only {holders:?} may", member.name, dependency.package));
                }
            }
        }
    }
    none(found, "what is outside stays behind its port:");
}

#[test]
fn the_rules_are_built_from_pure_crates_alone() {
    let found = members()
        .iter()
        .filter(|m| m.name == DOMAIN)
        .flat_map(|m| &m.dependencies)
        .filter(|d| d.used_for != Use::Test && !PURE.contains(&d.package.as_str()))
        .map(|d| format!("{DOMAIN} imports {}", d.package))
        .collect();
    none(found, "does it do I/O, start tasks, read a clock or roll dice? If surely not, add it to PURE:");
}

#[test]
fn every_crate_inherits_the_shared_lints_and_the_shared_metadata() {
    let mut found = Vec::new();
    for member in members() {
        let inherits = |line: Option<&Value>| line.and_then(|l| l.get("workspace")) == Some(&Value::Boolean(true));
        if !inherits(member.manifest.get("lints")) {
            found.push(format!("{} lacks [lints] workspace = true", member.name));
        }
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            if !inherits(member.manifest["package"].get(key)) {
                found.push(format!("{} lacks {key}.workspace = true", member.name));
            }
        }
    }
    none(found, "lints and metadata live once, in the root manifest:");
}

#[test]
fn every_version_stands_in_the_root_manifest() {
    let mut found = Vec::new();
    for member in members() {
        // A crate's tests may ask for its own features, and a crate has no version of itself.
        for dependency in member.dependencies.iter().filter(|d| !d.inherited && d.package != member.name) {
            found.push(format!("{}: {}", member.name, dependency.package));
        }
    }
    none(found, "write `NAME.workspace = true`, and the version under [workspace.dependencies]:");
}

#[test]
fn the_dependency_rules_of_cargo_deny_name_the_same_holders() {
    let deny: toml::Table =
        std::fs::read_to_string(signalbox_tests::root().join("deny.toml")).unwrap().parse().unwrap();
    let lines = deny["bans"]["deny"].as_array().unwrap();
    let mut found = Vec::new();
    for (name, holders) in CONFINED {
        let Some(line) = lines.iter().find(|l| l["name"].as_str() == Some(name)) else { continue };
        let wrappers = line["wrappers"].as_array().unwrap().iter().filter_map(|w| w.as_str());
        for wrapper in wrappers.filter(|w| w.starts_with("signalbox") && !holders.contains(w)) {
            found.push(format!("deny.toml lets {wrapper} use {name}"));
        }
    }
    none(found, "deny.toml and these rules disagree:");
}
