//! A switch is armed while three processes work on one PostgreSQL and one Redis, and at that moment something breaks. In the
//! journal no matching call was admitted behind the commit, and at the executor none begins two seconds later.
//!
//! `make test` plays each fault a few times, `make faults` each of them fifty times (`FAULT_TRIALS`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::TcpListener as StdListener;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::json;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::quantity::Usage;
use signalbox_proto::client::{Client, Connect};
use signalbox_tools::ToolServer;
use signalbox_tools::tool::{Answer, Descriptor, Measured, ProgressSink, Tool, ToolCall, ToolOutcome};
use tempfile::TempDir;

use crate::harness::{Server, put, run};
use crate::postgres_bus::{Redis, with_executor};
use crate::postgres_nodes::Database;

/// Runs of each process, and calls of each run: enough that all of them are at work when the switch is armed.
const RUNS: usize = 3;
const CALLS: usize = 150;
/// What a command takes beside what is measured: a process is started for it, on a machine that is busy.
const OF_THE_COMMAND_MS: u64 = 1_500;
/// Between the commit and the last call that begins (I5), and what the clocks of one machine may be apart.
const DISPATCHED_WITHIN_MS: u64 = 2_000 + 50;
/// Longest a stopped process holds the lock that arming needs, and then the arming itself.
const ARMED_WITHIN_MS: u64 = 2_000;

fn wall_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Sends, in a moment, and remembers when each call began.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<(String, u64)>>>);

impl Sent {
    fn all(&self) -> Vec<(String, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Tool for Sent {
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((call.call_id.to_string(), wall_ms()));
        tokio::time::sleep(Duration::from_millis(5)).await;
        ToolOutcome::Ok(Answer::new(json!({}), Measured::new()))
    }
}

fn executor(sent: Sent) -> String {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let tools: [Arc<dyn Tool>; 1] = [Arc::new(sent)];
            signalbox_tools::serve(listener, None, ToolServer::new(tools), std::future::pending()).await.unwrap();
        });
    });
    format!("http://{address}")
}

/// What breaks as the switch is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// Nothing.
    None,
    /// A process is stopped inside an append, where it holds the lock that arming needs; it goes on a second later.
    StoppedInAnAppend,
    /// A process is stopped, and goes on when its lease has run out.
    StoppedPastItsLease,
    /// A process is killed, and another begins.
    Killed,
    /// The Redis is gone.
    RedisGone,
    /// The Redis says nothing, and closes nothing.
    RedisSilent,
    /// Every connection to the store is closed.
    StoreConnectionsCut,
}

impl Fault {
    const ALL: [Self; 7] = [
        Self::None,
        Self::StoppedInAnAppend,
        Self::StoppedPastItsLease,
        Self::Killed,
        Self::RedisGone,
        Self::RedisSilent,
        Self::StoreConnectionsCut,
    ];
}

fn signal(server: &Server, signal: &str) {
    assert!(Command::new("kill").args([signal, &server.pid().to_string()]).status().unwrap().success());
}

/// What was measured of one arming, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Took {
    /// From the wish to the commit.
    armed: u64,
    /// From the commit to the last matching call that began; zero if none did.
    last_begun: u64,
    /// The fault fell where it was meant to.
    hit: bool,
}

struct Cluster {
    database: Database,
    redis: Redis,
    config: String,
    sent: Sent,
    servers: Vec<Server>,
    runs: Vec<String>,
}

impl Cluster {
    fn start() -> Self {
        let (database, redis, sent) = (Database::create(), Redis::start(), Sent::default());
        let config = with_executor(&executor(sent.clone()));
        let mut cluster = Self { database, redis, config, sent, servers: Vec::new(), runs: Vec::new() };
        for _ in 0..3 {
            cluster.begin();
        }
        cluster
    }

    fn begin(&mut self) {
        let data = TempDir::new().unwrap();
        put(data.path(), "signalbox.toml", &self.config);
        let log = std::fs::File::create(data.path().join("log")).unwrap();
        let config = data.path().join("signalbox.toml").to_str().unwrap().to_owned();
        let (store, bus) = (self.database.url(), self.redis.url());
        let server = Server::logged(log, data, &["--config", &config, "--store", &store, "--bus", &bus]);
        self.servers.push(server);
    }

    /// Gives every process something to do, and waits until it is being done.
    async fn load(&mut self) {
        let before = self.sent.all().len();
        let step = |at: usize| {
            let after: Vec<_> = (at > 0).then(|| format!("s{}", at - 1)).into_iter().collect();
            let id = format!("s{at}");
            json!({"stepId": id, "kind": "tool", "toolId": "notify.send", "args": {}, "dependsOnStepIds": after})
        };
        let steps: Vec<_> = (0..CALLS).map(step).collect();
        let plan = json!({"rootAgentId": "ref.support-triage", "plan": steps}).to_string();
        for server in &self.servers {
            let client = client(server).await;
            for _ in 0..RUNS {
                self.runs.push(client.submit(None, plan.clone().into_bytes()).await.unwrap().run_id);
            }
        }
        let begun = Instant::now();
        while self.sent.all().len() < before + 3 * RUNS {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is sent");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops the first process at a moment at which it is in a transaction that holds the lock; true if that could be seen.
    fn stop_in_an_append(&self) -> bool {
        let open = "SELECT coalesce(string_agg(pid || '@' || xact_start, ','), '') FROM pg_stat_activity \
                    WHERE datname = current_database() AND state = 'idle in transaction' \
                    AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')";
        let look = || self.database.ask(open).split(',').map(str::to_owned).collect::<BTreeSet<_>>();
        for _ in 0..25 {
            signal(&self.servers[0], "-STOP");
            // Whatever the others do ends at once; what stays open is of the process that is stopped.
            let stays = &(&look() & &look()) & &look();
            if stays.iter().any(|transaction| !transaction.is_empty()) {
                return true;
            }
            signal(&self.servers[0], "-CONT");
            std::thread::sleep(Duration::from_millis(3));
        }
        signal(&self.servers[0], "-STOP");
        false
    }

    /// True unless a moment was missed that the fault is about.
    fn breaks(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::None => {}
            Fault::StoppedInAnAppend => return self.stop_in_an_append(),
            Fault::StoppedPastItsLease => signal(&self.servers[0], "-STOP"),
            Fault::Killed => drop(self.servers.remove(0).cut()),
            Fault::RedisGone => self.redis.stop(),
            Fault::RedisSilent => self.redis.freeze(true),
            Fault::StoreConnectionsCut => {
                let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                              WHERE datname = current_database() AND pid <> pg_backend_pid()";
                self.database.ask(others);
            }
        }
        true
    }

    async fn mends(&mut self, fault: Fault) {
        match fault {
            Fault::None | Fault::StoreConnectionsCut => tokio::time::sleep(Duration::from_millis(2_200)).await,
            Fault::StoppedInAnAppend => {
                tokio::time::sleep(Duration::from_millis(1_000)).await;
                signal(&self.servers[0], "-CONT");
                tokio::time::sleep(Duration::from_millis(1_500)).await;
            }
            Fault::StoppedPastItsLease => {
                tokio::time::sleep(Duration::from_millis(10_000)).await;
                signal(&self.servers[0], "-CONT");
                tokio::time::sleep(Duration::from_millis(1_000)).await;
            }
            Fault::Killed => self.begin(),
            Fault::RedisGone => {
                tokio::time::sleep(Duration::from_millis(2_200)).await;
                self.redis.start_again();
            }
            Fault::RedisSilent => {
                tokio::time::sleep(Duration::from_millis(2_200)).await;
                self.redis.freeze(false);
            }
        }
        // What supervises processes starts those again that have ended, as one does whose lease was given away.
        for at in (0..self.servers.len()).rev() {
            if self.servers[at].has_ended() {
                self.servers.remove(at);
                self.begin();
            }
        }
    }

    /// Says it to the last process until it is answered: the same id twice is one switch.
    fn says(&self, words: &[&str]) {
        let begun = Instant::now();
        loop {
            let said = run(self.servers.last().unwrap().command("").args(words).args(["--output", "json"]));
            if said.exit == 0 {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{words:?}: {said:?}");
        }
    }

    /// When the first change of this kind that names the switch was committed, by the store, and under which epoch.
    fn committed(&self, kind: &str, id: &str) -> (u64, u64) {
        let found = self.database.ask(&format!(
            "SELECT min(at_ms) || ' ' || min(epoch) FROM governance_changes WHERE \
             convert_from(body, 'UTF8') LIKE '%\"{kind}\"%' AND convert_from(body, 'UTF8') LIKE '%\"{id}\"%'"
        ));
        let (at, epoch) =
            found.split_once(' ').unwrap_or_else(|| panic!("{kind} of {id} was never committed: {found}"));
        (at.parse().unwrap(), epoch.parse().unwrap())
    }

    async fn trial(&mut self, fault: Fault, number: usize) -> Took {
        let id = format!("{fault:?}-{number}").to_lowercase();
        self.load().await;
        // Not always at the same moment of the work.
        tokio::time::sleep(Duration::from_millis(u64::try_from(number * 37 % 211).unwrap())).await;
        let hit = self.breaks(fault);
        let asked = wall_ms();
        let scope = ["--scope", "tool", "--target", "notify.send", "--reason", "a drill", "--id", &id];
        self.says(&[&["switches", "arm"], scope.as_slice()].concat());
        if matches!(fault, Fault::StoppedInAnAppend | Fault::StoppedPastItsLease) {
            self.others_go_on().await;
        }
        self.mends(fault).await;
        self.says(&["switches", "disarm", &id, "--reason", "over"]);
        let ((armed_at, armed), (disarmed_at, disarmed)) =
            (self.committed("switch-armed", &id), self.committed("switch-disarmed", &id));
        // By the epoch that the store has stamped, and by its clock.
        let admitted = self.database.ask(&format!(
            "SELECT count(*) FROM (SELECT at, convert_from(body, 'UTF8')::jsonb AS said FROM run_events \
             WHERE kind = 'call-pending') AS calls WHERE said->>'toolId' = 'notify.send' AND \
             (((said->>'epoch')::bigint >= {armed} AND (said->>'epoch')::bigint < {disarmed}) \
              OR (at > {armed_at}999 AND at < {disarmed_at}000))"
        ));
        assert_eq!(admitted, "0", "{id}: matching calls were admitted behind the commit");
        let begun =
            self.sent.all().into_iter().map(|(_, at)| at).filter(|at| (armed_at..disarmed_at).contains(at)).max();
        let last_begun = begun.map_or(0, |at| at - armed_at);
        assert!(last_begun <= DISPATCHED_WITHIN_MS, "{id}: a call began {last_begun} ms after the commit");
        let took = armed_at.saturating_sub(asked);
        assert!(took <= ARMED_WITHIN_MS + OF_THE_COMMAND_MS, "{id}: armed after {took} ms");
        Took { armed: took, last_begun, hit }
    }

    /// While one process is stopped, and the switch is armed, what the switch does not match goes on at another.
    async fn others_go_on(&self) {
        let plan = json!({"rootAgentId": "ref.drafting", "plan": [
            {"stepId": "read", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}},
        ]});
        let client = client(&self.servers[1]).await;
        let run = client.submit(None, plan.to_string().into_bytes()).await.unwrap().run_id;
        let begun = Instant::now();
        while !client.get(&run).await.is_ok_and(|run| run.status == "completed") {
            assert!(begun.elapsed() < Duration::from_secs(10), "a process that nothing is wrong with does not go on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A call that was cut off in the middle may leave a question that only a person can answer: whether it was made. Somebody
    /// looks, and takes it as done.
    fn answers(&self) {
        let server = self.servers.last().unwrap();
        let open = server.json("approvals list").json();
        for asked in open["approvals"].as_array().into_iter().flatten() {
            let id = asked["approvalId"].as_str().unwrap();
            let decide = ["approvals", "decide", id, "--skip", "--reason", "it was made"];
            // Another look may have answered it already.
            run(server.command("").args(decide));
        }
    }

    /// Every run that was ever submitted is closed, and no call began twice.
    async fn nothing_is_lost(&self) {
        let client = client(self.servers.last().unwrap()).await;
        let begun = Instant::now();
        for run in &self.runs {
            loop {
                let got = client.get(run).await;
                if got.as_ref().is_ok_and(|run| run.closed) {
                    break;
                }
                if got.as_ref().is_ok_and(|run| run.status == "awaiting_approval") {
                    self.answers();
                }
                let envelope = got.map(|run| String::from_utf8_lossy(&run.envelope_json).into_owned());
                assert!(begun.elapsed() < Duration::from_secs(120), "run {run} is lost: {envelope:?}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        let mut begun: BTreeMap<String, usize> = BTreeMap::new();
        for (call, _) in self.sent.all() {
            *begun.entry(call).or_default() += 1;
        }
        let twice: Vec<_> = begun.into_iter().filter(|(_, times)| *times > 1).collect();
        assert_eq!(twice, [], "calls that must begin at most once");
    }
}

async fn client(server: &Server) -> Client {
    Connect::to(&server.addr).open().await.unwrap()
}

/// Prints how long arming took and when the last matching call began.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_switch_matches_is_admitted_behind_its_commit_whatever_breaks_as_it_is_armed() {
    let trials = std::env::var("FAULT_TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut cluster = Cluster::start();
    for fault in Fault::ALL {
        let mut all = Vec::new();
        for number in 0..trials {
            all.push(cluster.trial(fault, number).await);
        }
        let most = |of: fn(&Took) -> u64| all.iter().map(of).max().unwrap_or_default();
        let (armed, begun) = (most(|one| one.armed), most(|one| one.last_begun));
        let hit = all.iter().filter(|one| one.hit).count();
        let shown =
            format!("{fault:?}: {hit} of {trials} hit; armed within {armed} ms, last call {begun} ms after the commit");
        // For whoever looks; nobody hangs on it.
        let _ = writeln!(std::io::stdout(), "{shown}");
    }
    cluster.nothing_is_lost().await;
}
