//! The server behind TLS, and an executor behind TLS of its own, as an operator sets them up.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use signalbox_tls::testing::Authority;
use tempfile::TempDir;

use crate::harness::{Server, put, run, signalbox};

/// A configuration with certificates of this folder.
fn config(authority: &Authority, more: &str) -> String {
    let path = |name: &str| authority.path(name).display().to_string();
    let (cert, key, ca) = (path("server.pem"), path("server.key"), path("ca.pem"));
    format!("[tls]\ncert = {cert:?}\nkey = {key:?}\nclientCa = {ca:?}\n{more}")
}

/// A command over TLS to a server.
fn asks(server: &Server, authority: &Authority, certificate: Option<&str>) -> Command {
    let mut command = signalbox();
    let addr = server.addr.replace("http://127.0.0.1", "https://localhost");
    command.args(["runs", "list", "--output", "json", "--addr", &addr, "--ca"]).arg(authority.path("ca.pem"));
    if let Some(name) = certificate {
        command.arg("--client-cert").arg(authority.path(&format!("{name}.pem")));
        command.arg("--client-key").arg(authority.path(&format!("{name}.key")));
    }
    command
}

#[test]
fn a_server_with_certificates_is_asked_over_tls_by_whoever_has_one_of_its_clients() {
    let (certificates, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (authority, stranger) = (Authority::new(certificates.path()), Authority::new(elsewhere.path()));
    authority.issue("me");
    stranger.issue("me");
    put(certificates.path(), "signalbox.toml", &config(&authority, ""));
    let file = certificates.path().join("signalbox.toml");
    let server = Server::over(TempDir::new().unwrap(), &["--config", file.to_str().unwrap()]);

    let listed = run(&mut asks(&server, &authority, Some("me")));
    assert_eq!(listed.exit, 0, "{listed:?}");
    for (mut refused, why) in [
        (asks(&server, &authority, None), "no certificate"),
        (asks(&server, &stranger, Some("me")), "another authority"),
        (server.command("runs list"), "in clear"),
    ] {
        assert_eq!(run(&mut refused).exit, 1, "{why}");
    }
    let half = run(asks(&server, &authority, None).arg("--client-cert").arg(authority.path("me.pem")));
    assert_eq!(half.exit, 2, "{half:?}");
}

#[test]
fn certificates_that_are_of_no_use_keep_the_server_from_starting_with_the_file_named() {
    let certificates = TempDir::new().unwrap();
    let authority = Authority::new(certificates.path());
    put(certificates.path(), "server.key", "not a key");
    put(certificates.path(), "signalbox.toml", &config(&authority, ""));
    let data = TempDir::new().unwrap();
    let mut serve = signalbox();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let refused = run(serve.arg("--config").arg(certificates.path().join("signalbox.toml")));
    assert_eq!((refused.exit, refused.code()), (2, "tls-file-malformed"), "{refused:?}");
    assert!(refused.err.contains("server.key") && !refused.err.contains("not a key"), "{refused:?}");
}

/// The bundled tools as a process of their own, behind TLS.
struct Executor(Child, String);

impl Executor {
    fn start(authority: &Authority, data: &TempDir) -> Self {
        let mut command = signalbox();
        command.args(["tools", "serve", "--listen", "127.0.0.1:0", "--output", "json", "--data"]).arg(data.path());
        command.arg("--tls-cert").arg(authority.path("server.pem"));
        command.arg("--tls-key").arg(authority.path("server.key"));
        command.arg("--tls-client-ca").arg(authority.path("ca.pem"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        let uri = started["listen"].as_str().unwrap().replace("127.0.0.1", "https://localhost");
        Self(child, uri)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_executor_elsewhere_is_reached_over_tls_with_the_nodes_certificate_and_not_without() {
    let certificates = TempDir::new().unwrap();
    let authority = Authority::new(certificates.path());
    authority.issue("node");
    let data = TempDir::new().unwrap();
    let executor = Executor::start(&authority, &data);
    let entry = |more: Value| {
        let mut text = format!("[[executors]]\nuri = {:?}\nca = {:?}\n", executor.1, authority.path("ca.pem"));
        for (name, value) in more.as_object().unwrap() {
            text.push_str(&format!("{name} = {value}\n"));
        }
        text
    };
    let start = |entry: String| {
        put(certificates.path(), "node.toml", &entry);
        let folder = TempDir::new().unwrap();
        let mut serve = signalbox();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
        run(serve.arg("--config").arg(certificates.path().join("node.toml")))
    };
    let refused = start(entry(json!({})));
    assert_eq!((refused.exit, refused.code()), (1, "executor-not-described"), "{refused:?}");
    // With it the executor is heard, and what is bundled gives way to it.
    let pair = json!({ "clientCert": authority.path("node.pem"), "clientKey": authority.path("node.key") });
    put(certificates.path(), "node.toml", &entry(pair));
    let config = certificates.path().join("node.toml");
    let server = Server::over(TempDir::new().unwrap(), &["--config", config.to_str().unwrap()]);
    let step = json!({"stepId": "a", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}});
    assert_eq!(server.submit(&json!({"rootAgentId": "ref.drafting", "plan": [step]}), "--watch").exit, 0);
}
