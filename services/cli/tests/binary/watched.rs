//! Probes and scrapers, as the machinery around a node asks them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, run, signalbox};

pub(crate) fn get(addr: &str, target: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

fn metric(addr: &str, line: &str) -> Option<f64> {
    let (status, text) = get(addr, "/metrics");
    assert_eq!(status, 200, "{text}");
    let found = text.lines().find_map(|known| known.strip_prefix(line));
    found.map(|value| value.trim().parse().unwrap())
}

#[test]
fn a_scraper_reads_what_was_admitted_refused_settled_and_ended() {
    let server = Server::over(TempDir::new().unwrap(), &["--ops-listen", "127.0.0.1:0"]);
    let addr = server.ops.clone().unwrap();
    assert_eq!(get(&addr, "/livez"), (200, "alive\n".to_owned()));
    let (status, ready) = get(&addr, "/readyz");
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!((status, &ready["ready"], &ready["leaseHeld"]), (200, &json!(true), &json!(true)), "{ready}");
    assert_eq!(metric(&addr, "signalbox_ready"), Some(1.0));

    let step = |id: &str| json!({"stepId": id, "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}});
    let plan = json!({"rootAgentId": "ref.drafting", "plan": [step("a"), step("b")]});
    assert_eq!(server.submit(&plan, "--watch").exit, 0);
    assert_eq!(metric(&addr, "signalbox_runs_submitted_total"), Some(1.0));
    assert_eq!(metric(&addr, "signalbox_runs_ended_total{status=\"completed\"}"), Some(1.0));
    assert_eq!(metric(&addr, "signalbox_calls_admitted_total{tool=\"memory.read\"}"), Some(2.0));
    assert_eq!(metric(&addr, "signalbox_calls_settled_total{outcome=\"ok\"}"), Some(2.0));
    assert_eq!(metric(&addr, "signalbox_call_duration_seconds_count{tool=\"memory.read\"}"), Some(2.0));
    // The two calls may be settled by one append.
    assert!(metric(&addr, "signalbox_append_duration_seconds_count").unwrap() >= 2.0);

    let arm = ["switches", "arm", "--scope", "tool", "--target", "memory.read", "--reason", "a test"];
    assert_eq!(run(server.command("").args(arm)).exit, 0);
    assert_ne!(server.submit(&plan, "--watch").exit, 0);
    let (_, text) = get(&addr, "/metrics");
    assert!(text.contains("signalbox_calls_refused_total{tool=\"memory.read\",code=\""), "{text}");
    assert_eq!(metric(&addr, "signalbox_switches_armed"), Some(1.0));
    assert_eq!(metric(&addr, "signalbox_governance_epoch"), Some(1.0));

    // One set, one end mark, and nothing of any tenant in it.
    let (_, text) = get(&addr, "/metrics");
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    for private in ["default", "ref.drafting", "a test", "0190"] {
        assert!(!text.contains(private), "{private}: {text}");
    }
    assert_eq!(get(&addr, "/nothing").0, 404);
}

#[test]
fn a_node_that_drains_is_alive_and_not_ready() {
    let server = Server::over(TempDir::new().unwrap(), &["--ops-listen", "127.0.0.1:0"]);
    let addr = server.ops.clone().unwrap();
    let wait = json!({"rootAgentId": "ref.drafting", "plan": [
        {"stepId": "w", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}}]});
    server.submit(&wait, "");
    let ended = std::thread::spawn(move || server.end());
    // Between the signal and the end of the process it says so, or it has gone already.
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let Ok(mut stream) = TcpStream::connect(&addr) else { break };
        let asked = write!(stream, "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut text = String::new();
        if asked.is_err() || stream.read_to_string(&mut text).is_err() || text.is_empty() {
            break;
        }
        if text.contains("503") {
            assert!(text.contains("\"draining\":true"), "{text}");
            break;
        }
    }
    assert_eq!(ended.join().unwrap().0, 0);
}

#[test]
fn an_address_that_is_taken_is_told_before_anything_begins() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let data = TempDir::new().unwrap();
    let said = run(signalbox()
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path().join("d"))
        .args(["--ops-listen", &taken.local_addr().unwrap().to_string()]));
    assert_eq!((said.exit, said.code()), (1, "listen-failed"), "{said:?}");
    assert!(!data.path().join("d").exists(), "nothing was touched");
}
