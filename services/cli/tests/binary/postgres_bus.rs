//! Processes that share a PostgreSQL and a Redis: a command, a watch and a switch reach a run on whatever process it lives,
//! at once by the bus and soon without one; and whatever happens to the Redis, nothing that was promised is broken.

use std::io::Write as _;
use std::net::TcpListener as StdListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::catalog::Recovery;
use signalbox_domain::quantity::Usage;
use signalbox_proto::client::{Client, Connect, Control, Item};
use signalbox_proto::v1;
use signalbox_tools::ToolServer;
use signalbox_tools::tool::{Descriptor, ProgressSink, Tool, ToolCall, ToolOutcome};
use tempfile::TempDir;

use crate::harness::{Server, put, run, signalbox};
use crate::postgres_nodes::Database;
use crate::watched::get;

/// A Redis of a test's own, ended when it is dropped.
pub(crate) struct Redis {
    child: Option<Child>,
    port: u16,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let port = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut redis = Self { child: None, port };
        redis.start_again();
        redis
    }

    pub(crate) fn start_again(&mut self) {
        let port = self.port.to_string();
        let args = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp"];
        let child = Command::new("redis-server").args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.child = Some(child.unwrap_or_else(|error| panic!("redis-server: {error}; apt-get install redis-server")));
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn freeze(&self, frozen: bool) {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A tool that goes on until its call is cancelled, and counts how many are at it.
struct Endless(Arc<AtomicUsize>);

#[async_trait]
impl Tool for Endless {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            tool_id: "notify.send".to_owned(),
            semver: "1.0.0".to_owned(),
            input_schema: json!({"type": "object"}),
            output_schema: json!({"type": "object"}),
            ceiling: Usage::none(),
            has_side_effects: true,
            recovery: Recovery::AtMostOnce,
        }
    }

    async fn run(&self, call: ToolCall, _: ProgressSink) -> ToolOutcome {
        self.0.fetch_add(1, Ordering::SeqCst);
        call.cancelled.cancelled().await;
        self.0.fetch_sub(1, Ordering::SeqCst);
        ToolOutcome::Cancelled
    }
}

fn endless() -> (String, Arc<AtomicUsize>) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, working) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let tool = Endless(Arc::clone(&working));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let tools: [Arc<dyn Tool>; 1] = [Arc::new(tool)];
            signalbox_tools::serve(listener, None, ToolServer::new(tools), std::future::pending()).await.unwrap();
        });
    });
    (format!("http://{address}"), working)
}

pub(crate) fn with_executor(executor: &str) -> String {
    let tomorrow = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() + 86_400_000;
    format!(
        r#"
        [[grants]]
        grantId = "send"
        scope = "per-tenant"
        scopeKey = "default"
        tenantId = "default"
        toolId = "notify.send"
        toolRange = "^1"
        expiresAtUnixMs = {tomorrow}
        rationale = "a test"
        [[executors]]
        uri = "{executor}"
        "#
    )
}

fn serve(database: &Database, bus: Option<&Redis>, config: &str) -> Server {
    let data = TempDir::new().unwrap();
    put(data.path(), "signalbox.toml", config);
    let config = data.path().join("signalbox.toml").to_str().unwrap().to_owned();
    let (store, bus) = (database.url(), bus.map(Redis::url));
    let mut args = vec!["--config", &config, "--store", &store];
    if let Some(bus) = &bus {
        args.extend(["--bus", bus]);
    }
    Server::over(data, &args)
}

async fn client(server: &Server) -> Client {
    Connect::to(&server.addr).open().await.unwrap()
}

/// A run that may be paused, and that nothing moves by itself.
fn nap() -> Vec<u8> {
    let nap = json!([{"stepId": "nap", "kind": "wait", "seconds": 600}]);
    json!({"rootAgentId": "ref.drafting", "plan": nap}).to_string().into_bytes()
}

fn gate() -> Vec<u8> {
    let gate = json!([{"stepId": "gate", "kind": "approval", "prompt": "Go on?"}]);
    json!({"rootAgentId": "ref.drafting", "plan": gate}).to_string().into_bytes()
}

fn sending() -> Value {
    json!({"rootAgentId": "ref.support-triage", "plan": [
        {"stepId": "send", "kind": "tool", "toolId": "notify.send", "args": {}},
    ]})
}

fn figures(name: &str, times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let shown = format!("{name}: p50 {:?}, p99 {:?}, most {:?}, of {}", at(0.5), at(0.99), at(1.0), times.len());
    // For whoever looks; nobody hangs on it.
    let _ = writeln!(std::io::stdout(), "{shown}");
    at(0.5)
}

/// Pauses and resumes runs that live at one process by asking the other, and says how long each took.
async fn steer(owner: &Client, other: &Client, trials: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..trials {
        let run = owner.submit(None, nap()).await.unwrap().run_id;
        // Whatever it has to do is done then.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let begun = Instant::now();
        other.control(&run, Control::Pause(v1::Pause::default()), "a test").await.unwrap();
        times.push(begun.elapsed());
        assert_eq!(owner.get(&run).await.unwrap().status, "paused");
        other.control(&run, Control::Cancel(v1::Cancel::default()), "a test").await.unwrap();
    }
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reaches_a_run_at_another_process_at_once_by_the_bus_and_within_a_second_without() {
    let (database, mut redis) = (Database::create(), Redis::start());
    let servers = [serve(&database, Some(&redis), ""), serve(&database, Some(&redis), "")];
    let (owner, other) = (client(&servers[0]).await, client(&servers[1]).await);
    steer(&owner, &other, 2).await;
    let mut times = steer(&owner, &other, 20).await;
    assert!(figures("a command, with the bus", &mut times) < Duration::from_millis(250), "{times:?}");
    redis.stop();
    let mut times = steer(&owner, &other, 8).await;
    let median = figures("a command, with the Redis gone", &mut times);
    assert!(median < Duration::from_secs(1), "{times:?}");
    redis.start_again();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let mut times = steer(&owner, &other, 8).await;
    assert!(figures("a command, with the Redis back", &mut times) < Duration::from_millis(250), "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_at_one_process_follows_a_run_of_another_without_a_gap() {
    let (database, redis) = (Database::create(), Redis::start());
    let servers = [serve(&database, Some(&redis), ""), serve(&database, Some(&redis), "")];
    let (owner, other) = (client(&servers[0]).await, client(&servers[1]).await);
    let run = owner.submit(None, nap()).await.unwrap().run_id;
    let mut watch = other.watch(&run, 0);
    let (mut seqs, mut delays) = (Vec::new(), Vec::new());
    // Each pause and each resumption is an event at the owner; the watch elsewhere tells it.
    let mut paused = false;
    loop {
        let Ok(item) = tokio::time::timeout(Duration::from_millis(700), watch.next()).await else { break };
        if let Item::Event(event) = item.unwrap().unwrap() {
            seqs.push(event.seq);
        }
    }
    for _ in 0..20 {
        let begun = Instant::now();
        let control =
            if paused { Control::Resume(v1::Resume::default()) } else { Control::Pause(v1::Pause::default()) };
        paused = !paused;
        owner.control(&run, control, "a test").await.unwrap();
        loop {
            let item = tokio::time::timeout(Duration::from_secs(20), watch.next()).await.expect("nothing comes");
            if let Item::Event(event) = item.unwrap().unwrap() {
                seqs.push(event.seq);
                delays.push(begun.elapsed());
                break;
            }
        }
    }
    owner.control(&run, Control::Cancel(v1::Cancel::default()), "a test").await.unwrap();
    while let Some(item) = watch.next().await.unwrap() {
        if let Item::Event(event) = item {
            seqs.push(event.seq);
        }
    }
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(owner.get(&run).await.unwrap().last_seq, seqs.len() as u64);
    let median = figures("an event, at a watch of another process", &mut delays);
    assert!(median < Duration::from_millis(500), "{delays:?}");
}

fn say(server: &Server, words: &[&str]) -> Value {
    let said = run(server.command("").args(words).args(["--output", "json"]));
    assert_eq!(said.exit, 0, "{said:?}");
    said.json()
}

fn arm(server: &Server, id: &str) -> Value {
    let target = ["--scope", "tool", "--target", "notify.send", "--reason", "a drill", "--id", id, "--wait"];
    say(server, &[&["switches", "arm"], target.as_slice()].concat())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Prints how long after the commit each process had swept: its runs ended, their calls cancelled.
#[test]
fn a_switch_armed_at_one_process_cancels_the_calls_of_three_and_each_says_since_when() {
    const RUNS: usize = 5;
    let trials = std::env::var("SWITCH_TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let (database, mut redis, (executor, working)) = (Database::create(), Redis::start(), endless());
    let config = with_executor(&executor);
    let servers = [0, 1, 2].map(|_| serve(&database, Some(&redis), &config));
    let trial = |id: &str| -> Vec<Duration> {
        let mut runs = Vec::new();
        for server in &servers {
            for _ in 0..RUNS {
                let said = server.submit(&sending(), "");
                runs.push(said.json()["runId"].as_str().unwrap_or_else(|| panic!("{said:?}")).to_owned());
            }
        }
        until("all calls are out", || working.load(Ordering::SeqCst) == RUNS * servers.len());
        let armed = arm(&servers[0], id);
        assert_eq!(armed["swept"], true, "{armed}");
        assert_eq!(working.load(Ordering::SeqCst), 0, "every call was cancelled on every process");
        let nodes = armed["switch"]["nodes"].as_array().unwrap().clone();
        assert_eq!(nodes.len(), 3, "{armed}");
        assert!(nodes.iter().all(|node| node["swept"] == true), "{armed}");
        let shown = say(&servers[1], &["switches", "show", id]);
        assert_eq!((&shown["nodes"], &shown["killed"]), (&armed["switch"]["nodes"], &json!(runs.len())));
        for run in &runs {
            assert_eq!(say(&servers[2], &["runs", "get", run])["status"], "killed");
        }
        // What is submitted now is never admitted, wherever.
        let next = servers[1].submit(&sending(), "--watch");
        assert_eq!((next.exit, next.code()), (1, "kill-switch"), "{next:?}");
        say(&servers[2], &["switches", "disarm", id, "--reason", "over"]);
        nodes.iter().map(|node| Duration::from_micros((node["sweptAfterMs"].as_f64().unwrap() * 1e3) as u64)).collect()
    };
    let mut healthy: Vec<_> = (0..trials).flat_map(|number| trial(&format!("healthy-{number}"))).collect();
    let median = figures("swept after the commit, with the bus", &mut healthy);
    assert!(median < Duration::from_secs(1), "{healthy:?}");
    redis.freeze(true);
    let mut blackholed = trial("blackholed");
    figures("swept after the commit, with the Redis silent", &mut blackholed);
    redis.freeze(false);
    redis.stop();
    let mut gone = trial("gone");
    figures("swept after the commit, with the Redis gone", &mut gone);
    assert!(gone.iter().chain(&blackholed).all(|took| *took < Duration::from_secs(5)), "{gone:?} {blackholed:?}");
}

#[test]
fn a_kill_drill_over_three_processes_shows_when_each_swept_and_is_kept_as_evidence() {
    let (database, redis) = (Database::create(), Redis::start());
    let servers = [0, 1, 2].map(|_| serve(&database, Some(&redis), ""));
    let others = ["--node", servers[1].addr.as_str(), "--node", servers[2].addr.as_str()];
    let report = say(&servers[0], &[&["drill", "kill", "--runs", "2", "--rounds", "2"], others.as_slice()].concat());
    assert_eq!((&report["admittedAfterCommit"], &report["tookHold"]), (&json!(0), &json!(true)), "{report}");
    assert_eq!((&report["nodesNotSwept"], &report["commitToSweptMs"]["count"]), (&json!(0), &json!(6)), "{report}");
    assert_eq!(report["runs"], 12, "{report}");
    assert!(report["commitToSweptMs"]["max"].as_f64().unwrap() < 5_000.0, "{report}");
    let _ = writeln!(std::io::stdout(), "{report}");
    let acts = say(&servers[1], &["audit", "list", "--subject", report["evidence"][0].as_str().unwrap()]);
    assert!(acts.to_string().contains("kill drill, round 1: of"), "{acts}");
}

/// Each process says how long after the commit of each revocation it held its own calls against it; none may be missed.
#[test]
fn a_revocation_reaches_each_of_three_processes_within_five_seconds_with_a_redis_and_without() {
    const WITH: usize = 50;
    const WITHOUT: usize = 5;
    let (database, mut redis) = (Database::create(), Redis::start());
    let servers = [0, 1, 2].map(|_| serve_watched(&database, &redis));
    let revoke = |count: usize, name: &str| {
        for number in 0..count {
            let id = format!("{name}-{number}");
            let issue =
                ["--tool", "web.fetch", "--scope", "per-tenant", "--for", "1h", "--reason", "a test", "--id", &id];
            say(&servers[number % 3], &[&["grants", "issue"], issue.as_slice()].concat());
            say(&servers[(number + 1) % 3], &["grants", "revoke", &id, "--reason", "a test"]);
        }
    };
    let heard = |server: &Server| say(server, &["grants", "list"])["revocations"].clone();
    revoke(WITH, "bus");
    until("all have heard", || servers.iter().all(|server| heard(server)["applied"] == WITH));
    let slowest = |server: &Server| Duration::from_millis(heard(server)["slowestMs"].as_u64().unwrap());
    figures("a revocation, with the bus, the slowest of each process", &mut servers.each_ref().map(slowest));
    redis.stop();
    revoke(WITHOUT, "no-bus");
    until("all have heard", || servers.iter().all(|server| heard(server)["applied"] == WITH + WITHOUT));
    figures("a revocation, also without, the slowest of each process", &mut servers.each_ref().map(slowest));
    for server in &servers {
        assert!(slowest(server) <= Duration::from_secs(5), "{}", heard(server));
        let (_, text) = get(server.ops.as_ref().unwrap(), "/metrics");
        for line in ["signalbox_grant_revocation_slo_miss_total 0", "signalbox_grant_revocations_applied_total 55"] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
        assert_eq!(say(server, &["grants", "list"])["grants"], json!([]));
    }
}

fn serve_watched(database: &Database, bus: &Redis) -> Server {
    let (store, bus) = (database.url(), bus.url());
    Server::over(TempDir::new().unwrap(), &["--store", &store, "--bus", &bus, "--ops-listen", "127.0.0.1:0"])
}

/// Takes until the run is parked: a switch finds it whichever process swept.
#[test]
fn a_parked_run_is_swept_by_a_switch_that_another_process_arms() {
    let (database, redis) = (Database::create(), Redis::start());
    let servers = [serve(&database, Some(&redis), ""), serve(&database, Some(&redis), "")];
    let said = servers[0].submit(&serde_json::from_slice(&gate()).unwrap(), "");
    let run_id = said.json()["runId"].as_str().unwrap().to_owned();
    std::thread::sleep(Duration::from_secs(7));
    let tenant = ["--scope", "tenant", "--target", "default", "--reason", "a drill", "--id", "t", "--wait"];
    let armed = say(&servers[1], &[&["switches", "arm"], tenant.as_slice()].concat());
    assert_eq!((armed["swept"].clone(), armed["switch"]["nodes"].as_array().unwrap().len()), (json!(true), 2));
    assert_eq!(say(&servers[0], &["runs", "get", &run_id])["status"], "killed");
}

#[test]
fn a_process_serves_without_its_redis_and_says_so() {
    let (database, redis) = (Database::create(), Redis::start());
    let data = TempDir::new().unwrap();
    let log = std::fs::File::create(data.path().join("log")).unwrap();
    let path = data.path().join("log");
    let gone = "redis://:FAKE-password@127.0.0.1:1";
    let server = Server::traced(log, data, &["--store", &database.url(), "--bus", gone, "--ops-listen", "127.0.0.1:0"]);
    let plan = json!({"rootAgentId": "ref.drafting", "plan": [{"stepId": "n", "kind": "wait", "seconds": 0}]});
    assert_eq!(server.submit(&plan, "--watch").exit, 0);
    let (status, ready) = get(server.ops.as_ref().unwrap(), "/readyz");
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!((status, &ready["bus"]), (200, &json!("cut")), "{ready}");
    let said = std::fs::read_to_string(&path).unwrap();
    assert!(said.contains("bus-unreachable") && said.contains("redis://127.0.0.1:1"), "{said}");
    assert!(!said.contains("FAKE-password"));
    let doctor = |bus: &str| -> Value {
        let said = run(signalbox().args(["doctor", "--output", "json", "--store", &database.url(), "--bus", bus]));
        assert!(!said.out.contains("FAKE-password"), "{said:?}");
        let checks = said.json()["checks"].clone();
        checks.as_array().unwrap().iter().find(|check| check["check"] == "bus").unwrap().clone()
    };
    let (bad, good) = (doctor(gone), doctor(&redis.url()));
    assert_eq!((&bad["state"], &good["state"]), (&json!("warn"), &json!("ok")), "{bad} {good}");
    assert!(bad["found"].as_str().unwrap().contains("bus-unreachable"), "{bad}");
    let shown = run(signalbox().args(["config", "show", "--bus", gone]));
    assert!(shown.out.contains("redis://:***@127.0.0.1:1") && !shown.out.contains("FAKE"), "{shown:?}");
    for bad in ["http://127.0.0.1", "redis://", "redis://127.0.0.1/?password=FAKE-password"] {
        let refused = run(signalbox().args(["serve", "--bus", bad]));
        assert_eq!(refused.exit, 2, "{refused:?}");
        assert!(!refused.err.contains("FAKE-password") || bad.contains("query"), "{refused:?}");
    }
}
