//! Webhooks through the binary: what arrives at a receiver on this machine, signed, in order, also after a power cut.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Said, Server, put, run};
use crate::receiver::{Receiver, Reply, base64};

/// Two keys, plainly fake.
pub(crate) const KEY: &[u8] = b"FAKE-key-of-webhooks-number-one!";
const OLD_KEY: &[u8] = b"FAKE-key-of-webhooks-number-two!";

const ALL: [&str; 13] = [
    "switch.armed",
    "switch.disarmed",
    "budget.warned",
    "budget.exceeded",
    "budget.put",
    "budget.topped-up",
    "budget.retired",
    "approval.asked",
    "approval.decided",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "run.killed",
];

fn private(folder: &Path, name: &str, text: &str) -> String {
    put(folder, name, text);
    let path = folder.join(name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// Writes a configuration that may send to this machine; answers its path.
pub(crate) fn configured(folder: &Path, more: &str) -> String {
    let mut text = format!("{more}\n[[webhookExemptions]]\nhost = \"127.0.0.1\"\ncidr = \"127.0.0.0/8\"\n");
    for (name, key) in [("new", KEY), ("old", OLD_KEY)] {
        let file = private(folder, &format!("{name}.key"), &format!("whsec_{}", base64(key)));
        for tenant in ["tenantId = \"default\"", "tenantId = \"acme\"", "tenantId = \"globex\"", ""] {
            text += &format!("[[webhookSecrets]]\nsecretId = \"{name}\"\n{tenant}\nfrom = {{ file = \"{file}\" }}\n");
        }
    }
    let bad = private(folder, "bad.key", "not-a-key-FAKE");
    text += &format!("[[webhookSecrets]]\nsecretId = \"bad\"\ntenantId = \"default\"\nfrom = {{ file = \"{bad}\" }}\n");
    put(folder, "signalbox.toml", &text);
    folder.join("signalbox.toml").display().to_string()
}

fn serve() -> Server {
    over(TempDir::new().unwrap())
}

fn over(data: TempDir) -> Server {
    let config = configured(data.path(), "");
    Server::over(data, &["--config", &config])
}

pub(crate) fn say(server: &Server, words: &[&str]) -> Said {
    run(server.command("").args(words).args(["--output", "json"]))
}

pub(crate) fn ok(server: &Server, words: &[&str]) -> Value {
    let said = say(server, words);
    assert_eq!(said.exit, 0, "{said:?}");
    said.json()
}

pub(crate) fn put_hook(server: &Server, id: &str, url: &str, events: &[&str], more: &[&str]) -> Value {
    let mut words = vec!["webhooks", "put", id, "--url", url, "--reason", "a test"];
    for event in events {
        words.extend(["--event", event]);
    }
    if !more.contains(&"--secret") {
        words.extend(["--secret", "new"]);
    }
    ok(server, &[&words, more].concat())
}

fn refused(server: &Server, words: &[&str], exit: i32, code: &str) {
    let said = say(server, words);
    assert_eq!((said.exit, said.code()), (exit, code), "{said:?}");
}

pub(crate) fn call(key: &str) -> Value {
    json!([{"stepId": "s", "kind": "tool", "toolId": "memory.read", "args": {"key": key}}])
}

pub(crate) fn submit(server: &Server, steps: &Value) -> String {
    let said = server.submit(&json!({"rootAgentId": "ref.drafting", "plan": steps}), "");
    said.json()["runId"].as_str().unwrap().to_owned()
}

fn deliveries(server: &Server, id: &str) -> Vec<Value> {
    ok(server, &["webhooks", "deliveries", id])["deliveries"].as_array().unwrap().clone()
}

/// Waits until the deliveries are as hoped for.
fn until(server: &Server, id: &str, hoped: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let seen = deliveries(server, id);
        if hoped(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{seen:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn whatever_happens_arrives_once_signed_and_in_order_without_what_customers_wrote() {
    let receiver = Receiver::start(|_, _| Reply::Status(204));
    let server = serve();
    put_hook(&server, "w", &receiver.url("/w"), &ALL, &[]);
    let asking = json!([
        {"stepId": "gate", "kind": "approval", "prompt": "May the words of a customer be read?"},
        {"stepId": "s", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}, "dependsOnStepIds": ["gate"]},
    ]);
    let asked = submit(&server, &asking);
    let requested = receiver.wait("/w", 1)[0].event();
    let approval = requested["data"]["approvalId"].as_str().unwrap().to_owned();
    ok(&server, &["approvals", "decide", &approval, "--approve", "--reason", "the words of an approver"]);
    receiver.wait("/w", 3);
    let budget = ["budgets", "put", "b", "--scope", "tenant", "--key", "default", "--limit"];
    ok(&server, &[&budget[..], &["1", "--reason", "because"]].concat());
    submit(&server, &call("warned"));
    receiver.wait("/w", 6);
    submit(&server, &call("too much"));
    receiver.wait("/w", 8);
    ok(&server, &["budgets", "top-up", "b", "--by", "100", "--reason", "more"]);
    ok(&server, &["switches", "arm", "--scope", "tool", "--target", "web.fetch", "--reason", "a drill", "--id", "d"]);
    ok(&server, &["switches", "disarm", "d", "--reason", "over"]);
    ok(&server, &["budgets", "retire", "b", "--reason", "done"]);
    let waiting = submit(&server, &json!([{"stepId": "w", "kind": "wait", "seconds": 600}]));
    ok(&server, &["runs", "cancel", &waiting, "--reason", "no more"]);
    let seen = receiver.wait("/w", 13);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(receiver.at("/w").len(), 13, "nothing twice");

    let mut types: Vec<String> = Vec::new();
    for request in &seen {
        assert!(request.is_signed_with(KEY) && !request.is_signed_with(OLD_KEY), "{request:?}");
        assert_eq!(request.header("content-type"), "application/cloudevents+json");
        let event = request.event();
        assert_eq!((event["specversion"].as_str(), event["source"].as_str()), (Some("1.0"), Some("/tenants/default")));
        assert_eq!(event["id"], request.header("webhook-id"));
        assert_eq!(event["data"]["tenantId"], "default");
        let age = jiff::Timestamp::now().as_second() - request.header("webhook-timestamp").parse::<i64>().unwrap();
        assert!((0..60).contains(&age), "{age}");
        types.push(event["type"].as_str().unwrap().strip_prefix("dev.signalbox.").unwrap().to_owned());
        let text = String::from_utf8(request.body.clone()).unwrap();
        assert!(!text.contains("the words of"), "{text}");
    }
    let of_run: Vec<String> = seen
        .iter()
        .filter(|request| request.event()["subject"] == format!("runs/{asked}"))
        .map(|request| request.event()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        of_run,
        ["dev.signalbox.approval.asked", "dev.signalbox.approval.decided", "dev.signalbox.run.completed"]
    );
    types.sort();
    let mut expected: Vec<&str> = ALL.iter().copied().filter(|event| *event != "run.failed").collect();
    expected.push("run.completed");
    expected.sort_unstable();
    assert_eq!(types, expected);
    let arrived = deliveries(&server, "w");
    assert!(arrived.iter().all(|known| known["state"] == "delivered" && known["lastHttpStatus"] == 204), "{arrived:?}");

    // The id is the hash of the journal's entry.
    let exported = run(&mut server.command(&format!("runs export {asked}"))).out;
    let hash = seen[0].event()["id"].as_str().unwrap().strip_prefix("evt_").unwrap().to_owned();
    assert!(exported.contains(&hash));
    // And no key lies anywhere that it was not put.
    let shown = format!("{} {}", ok(&server, &["webhooks", "show", "w"]), ok(&server, &["audit", "list"]));
    assert!(!shown.contains(&base64(KEY)) && shown.contains("webhook-put"), "{shown}");
}

#[test]
fn what_happened_before_a_power_cut_arrives_after_it() {
    // The port is taken and nobody answers there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = serve();
    put_hook(&server, "w", &format!("http://{address}/w"), &["run.completed", "switch.armed"], &[]);
    let plan = json!({"rootAgentId": "ref.drafting", "plan": call("k")});
    let ended = server.submit(&plan, "--watch");
    assert_eq!(ended.exit, 0, "{ended:?}");
    ok(&server, &["switches", "arm", "--scope", "tool", "--target", "web.fetch", "--reason", "x", "--id", "d"]);
    let data = server.cut();

    let receiver = Receiver::on(TcpListener::bind(address).unwrap(), |_, _| Reply::Status(200));
    let server = over(data);
    let mut types: Vec<_> =
        receiver.wait("/w", 2).iter().map(|request| request.event()["type"].as_str().unwrap().to_owned()).collect();
    types.sort();
    assert_eq!(types, ["dev.signalbox.run.completed", "dev.signalbox.switch.armed"]);
    until(&server, "w", |seen| seen.iter().all(|known| known["state"] == "delivered"));
    assert_eq!(receiver.at("/w").len(), 2);
}

#[test]
fn a_bad_endpoint_is_tried_again_under_the_same_id_and_holds_up_nobody_else() {
    let receiver = Receiver::start(|request, before| match request.path.as_str() {
        "/fails" if before < 2 => Reply::Status(500),
        "/later" if before == 0 => Reply::Later(503, 2),
        "/moved" => Reply::Elsewhere("/stolen"),
        "/hangs" => Reply::Nothing,
        "/closes" if before == 0 => Reply::HangUp,
        "/floods" => Reply::TenMebibytes,
        "/gone" => Reply::Status(410),
        _ => Reply::Status(200),
    });
    let server = serve();
    for path in ["hangs", "fails", "later", "moved", "closes", "floods", "gone", "fine"] {
        put_hook(&server, path, &receiver.url(&format!("/{path}")), &["run.completed"], &[]);
    }
    let began = Instant::now();
    submit(&server, &call("k"));
    receiver.wait("/fine", 1);
    assert!(began.elapsed() < Duration::from_secs(8), "a silent endpoint delays nobody else");

    let tried = receiver.wait("/fails", 3);
    assert!(tried.iter().all(|request| request.event()["id"] == tried[0].event()["id"]));
    assert!(tried.iter().all(|request| request.is_signed_with(KEY)));
    until(&server, "fails", |seen| seen[0]["state"] == "delivered" && seen[0]["attempts"] == 3);
    let waited = receiver.wait("/later", 2);
    let at = |n: usize| waited[n].header("webhook-timestamp").parse::<i64>().unwrap();
    assert!(at(1) - at(0) >= 2, "Retry-After is honoured");
    until(&server, "closes", |seen| seen[0]["state"] == "delivered");
    until(&server, "floods", |seen| seen[0]["state"] == "delivered" && seen[0]["attempts"] == 1);
    until(&server, "moved", |seen| seen[0]["lastProblem"] == "redirects are not followed");
    assert!(receiver.at("/stolen").is_empty());
    until(&server, "gone", |seen| seen[0]["state"] == "dead" && seen[0]["lastHttpStatus"] == 410);
    let begun = Instant::now();
    while ok(&server, &["webhooks", "show", "gone"])["enabled"] == true {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    let gone = ok(&server, &["webhooks", "show", "gone"]);
    assert!(gone["disabledBecause"].as_str().unwrap().contains("410"), "{gone}");
    refused(&server, &["webhooks", "replay", "gone", "--since", "1h", "--reason", "x"], 1, "webhook-disabled");
    until(&server, "hangs", |seen| seen[0]["lastProblem"].as_str().is_some_and(|text| text.contains("timeout")));
    submit(&server, &call("k"));
    receiver.wait("/fine", 2);
    assert_eq!(receiver.at("/gone").len(), 1, "it is told nothing more");
}

#[test]
fn a_ping_an_old_key_and_a_replay_serve_whoever_changes_a_receiver_over() {
    let receiver = Receiver::start(|request, before| match request.path.as_str() {
        "/down" => Reply::Status(503),
        "/once" if before > 0 => Reply::Status(200),
        _ => Reply::Status(201),
    });
    let server = serve();
    let keys = ["--secret", "new", "--secret", "old"];
    put_hook(&server, "w", &receiver.url("/w"), &["run.completed"], &keys);
    let pinged = ok(&server, &["webhooks", "test", "w"]);
    assert_eq!((pinged["arrived"].clone(), pinged["httpStatus"].clone()), (json!(true), json!(201)));
    let ping = receiver.at("/w").remove(0);
    assert!(ping.is_signed_with(KEY) && ping.is_signed_with(OLD_KEY));
    assert_eq!(
        (ping.event()["type"].as_str(), &ping.event()["id"]),
        (Some("dev.signalbox.webhook.ping"), &pinged["eventId"])
    );
    put_hook(&server, "down", &receiver.url("/down"), &["run.completed"], &["--disabled"]);
    refused(&server, &["webhooks", "test", "down"], 1, "ping-not-taken");

    submit(&server, &call("k"));
    let first = receiver.wait("/w", 2).remove(1);
    let id = first.event()["id"].as_str().unwrap().to_owned();
    until(&server, "w", |seen| seen[0]["state"] == "delivered");
    assert!(deliveries(&server, "down").is_empty());
    assert_eq!(ok(&server, &["webhooks", "replay", "w", "--delivery", &id, "--reason", "lost"])["deliveries"], 1);
    let again = receiver.wait("/w", 3).remove(2);
    assert_eq!(again.body, first.body);
    until(&server, "w", |seen| seen[0]["state"] == "delivered");
    assert_eq!(ok(&server, &["webhooks", "replay", "w", "--since", "1h", "--reason", "lost"])["deliveries"], 1);
    receiver.wait("/w", 4);
    let none = format!("evt_{}", "0".repeat(64));
    refused(&server, &["webhooks", "replay", "w", "--delivery", &none, "--reason", "x"], 1, "nothing-to-replay");
    refused(&server, &["webhooks", "replay", "w", "--delivery", "evt_1", "--reason", "x"], 1, "event-id-invalid");
    let acts = ok(&server, &["audit", "list"]);
    let kinds = acts["acts"].as_array().unwrap().iter().map(|act| act["kind"].as_str().unwrap());
    // What the configuration file has set is told of too.
    let kinds: Vec<_> = kinds.filter(|kind| kind.starts_with("webhook-")).collect();
    assert_eq!(kinds, ["webhook-put", "webhook-put", "webhook-replayed", "webhook-replayed"]);
    let removed = ok(&server, &["webhooks", "remove", "w", "--reason", "over"]);
    assert_eq!(removed["webhook"]["webhookId"], "w");
    refused(&server, &["webhooks", "deliveries", "w"], 1, "no-such-webhook");
    assert_eq!(run(server.command("verify --audit").args(["--output", "json"])).exit, 0);
}

#[test]
fn a_webhook_that_makes_no_sense_is_refused_with_its_code() {
    let server = serve();
    let put = |url: &str, more: &[&str]| {
        let words = ["webhooks", "put", "w", "--url", url, "--reason", "x", "--event", "run.completed"];
        let more = if more.contains(&"--secret") { more.to_vec() } else { [more, &["--secret", "new"]].concat() };
        say(&server, &[&words[..], &more].concat())
    };
    let long = format!("https://hooks.example/{}", "a".repeat(2_000));
    for (url, code) in [
        ("https://user:FAKE@hooks.example/", "invalid-url"),
        ("https://10.0.0.1/", "ssrf-private-ip"),
        ("https://169.254.169.254/latest", "ssrf-link-local"),
        ("https://[::1]/", "ssrf-loopback"),
        ("https://0xa.1/", "ssrf-private-ip"),
        ("https://localhost/", "ssrf-loopback"),
        ("http://hooks.example/", "scheme-not-allowed"),
        ("ftp://hooks.example/", "scheme-not-allowed"),
        ("file:///etc/passwd", "scheme-not-allowed"),
        ("https://hooks.example:22/", "webhook-port-not-allowed"),
        ("https://hooks.example:0/", "webhook-port-not-allowed"),
        ("https://hooks.example/#part", "webhook-url-invalid"),
        ("https://hooks.example/a b", "webhook-url-invalid"),
        ("https://hooks.example/\n", "webhook-url-invalid"),
        ("nowhere", "invalid-url"),
        ("", "field-missing"),
        (&long, "webhook-url-invalid"),
    ] {
        let said = put(url, &[]);
        assert_eq!((said.exit, said.code()), (1, code), "{url}: {said:?}");
        assert!(!said.err.contains("FAKE"), "{said:?}");
    }
    let good = "https://hooks.example/a?b=c";
    for (more, code) in [
        (vec!["--event", "run.started"], "webhook-event-unknown"),
        (vec!["--event", "dev.signalbox.webhook.ping"], "webhook-event-unknown"),
        (vec!["--secret", "nowhere"], "webhook-secret-unusable"),
        (vec!["--secret", "bad"], "webhook-secret-unusable"),
        (vec!["--secret", "new", "--secret", "new"], "webhook-secrets-invalid"),
        (vec!["--secret", "new", "--secret", "old", "--secret", "bad"], "webhook-secrets-invalid"),
        (vec!["--secret", "no spaces"], "id-invalid"),
        (vec!["--expected-revision", "7"], "stale-revision"),
    ] {
        let said = put(good, &more);
        assert_eq!((said.exit, said.code()), (1, code), "{more:?}: {said:?}");
        assert!(!said.err.contains("not-a-key"), "{said:?}");
    }
    assert_eq!(ok(&server, &["webhooks", "list"])["webhooks"], json!([]));
    assert_eq!(put(good, &["--create"]).json()["unchanged"], false);
    assert_eq!(put(good, &["--create"]).code(), "webhook-exists");
    assert_eq!(put(good, &[]).json()["unchanged"], true);
    assert_eq!(put(good, &["--platform-wide"]).code(), "webhook-id-conflict");
    refused(&server, &["webhooks", "remove", "w", "--reason", " "], 1, "reason-required");
    refused(&server, &["webhooks", "remove", "w", "--reason", "x", "--expected-revision", "9"], 1, "stale-revision");
    for number in 1..32 {
        put_hook(&server, &format!("w{number}"), good, &["run.failed"], &[]);
    }
    let words = ["webhooks", "put", "one-more", "--url", good, "--event", "run.failed", "--secret", "new"];
    refused(&server, &[&words[..], &["--reason", "x"]].concat(), 1, "too-many-webhooks");
}
