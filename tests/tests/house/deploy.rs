//! What is handed out to deploy with is whole: it can be read, it watches what a node really counts, and it asks for no more
//! rights than it needs.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::workspace::{File, files, none};

fn deploy(endings: &[&str]) -> Vec<File> {
    let found: Vec<_> = files("deploy/", endings);
    assert!(!found.is_empty(), "deploy/ holds nothing of {endings:?}");
    found
}

fn yaml(file: &File) -> Vec<Value> {
    serde_saphyr::from_multiple(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path))
}

/// Names of metrics as a text has them.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("signalbox_"));
    // Roles of a database are called like that too.
    words.filter(|word| !["signalbox_serving", "signalbox_owner"].contains(word)).map(str::to_owned).collect()
}

/// A metric without what its kind appends to it.
fn stem(name: &str) -> &str {
    let name = name.strip_prefix("signalbox_").unwrap_or(name);
    let endings = ["_total", "_bucket", "_sum", "_count", "_info"];
    let name = endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    name.strip_suffix("_seconds").unwrap_or(name)
}

#[test]
fn every_file_can_be_read() {
    for file in deploy(&[".yaml", ".yml"]) {
        assert!(!yaml(&file).is_empty(), "{}", file.path);
    }
    for file in deploy(&[".json"]) {
        serde_json::from_str::<Value>(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
    }
    for file in deploy(&[".toml"]) {
        toml::from_str::<toml::Table>(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
    }
}

#[test]
fn dashboards_alerts_and_pages_name_only_metrics_that_a_node_serves() {
    let source = files("services/telemetry/src/", &[".rs"]).into_iter().map(|file| file.text).collect::<String>();
    let mut unknown = Vec::new();
    let watched = deploy(&[".json", ".yml", ".yaml"]);
    let page = files("docs/", &["watching-a-node.md"]);
    for file in watched.iter().chain(&page) {
        for name in named(&file.text) {
            if !source.contains(&format!("\"{}\"", stem(&name))) {
                unknown.push(format!("{}: {name}", file.path));
            }
        }
    }
    none(unknown, "metrics that no node serves:");
    let all: BTreeSet<_> = watched.iter().flat_map(|file| named(&file.text)).collect();
    assert!(all.len() > 20, "only {} metrics are watched", all.len());
}

#[test]
fn pods_run_as_nobody_with_nothing_writable_and_are_probed_where_a_node_answers() {
    let manifests: Vec<_> =
        deploy(&["signalbox.yaml"]).iter().filter(|f| f.path.contains("kubernetes")).flat_map(yaml).collect();
    let of = |kind: &str| manifests.iter().filter(move |one| one["kind"] == kind).collect::<Vec<_>>();
    for kind in ["PodDisruptionBudget", "NetworkPolicy", "ServiceAccount", "Service"] {
        assert!(!of(kind).is_empty(), "there is no {kind}");
    }
    for workload in of("Deployment").into_iter().chain(of("Job")) {
        let pod = &workload["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{workload}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{workload}");
        for container in pod["containers"].as_array().unwrap() {
            let may = &container["securityContext"];
            assert_eq!(
                (&may["allowPrivilegeEscalation"], &may["readOnlyRootFilesystem"]),
                (&false.into(), &true.into())
            );
            assert_eq!(may["capabilities"]["drop"][0], "ALL");
            assert!(container["resources"]["limits"]["memory"].is_string());
        }
    }
    let node = &of("Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(node["livenessProbe"]["httpGet"]["path"], "/livez");
    assert_eq!(node["readinessProbe"]["httpGet"]["path"], "/readyz");
    // Only the job that migrates has the owner's rights.
    assert!(!node.to_string().contains("signalbox-owner"), "{node}");
}

#[test]
fn no_password_stands_in_a_file_that_is_handed_out() {
    let mut found = Vec::new();
    for file in files("deploy/", &[".yaml", ".yml", ".env", ".toml", ".sql"]) {
        for (at, line) in file.text.lines().enumerate() {
            let (name, value) = line.split_once(['=', ':']).unwrap_or_default();
            let is_secret = name.to_ascii_uppercase().contains("PASSWORD");
            let is_plain =
                !value.trim().is_empty() && !value.contains("${") && !value.contains("FAKE") && !line.contains(":'");
            if is_secret && is_plain && !name.trim_start().starts_with(['#', '-']) {
                found.push(format!("{}:{}: {line}", file.path, at + 1));
            }
        }
    }
    none(found, "passwords:");
}
