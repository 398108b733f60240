//! `doctor`: looks at everything a node needs, and says of each thing whether it is good, and what to do if it is not. It
//! changes nothing, and needs no node; if one is running, it is asked too.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use signalbox_bus::RedisBus;
use signalbox_domain::catalog;
use signalbox_ports::clock::SystemClock;
use signalbox_ports::tools::Tools as _;
use signalbox_proto::v1;
use signalbox_store::{SCHEMA_VERSION, StoreFacts};
use signalbox_tools::ExecutorClient;
use signalbox_tools::client::CONCURRENCY_DEFAULT;

use super::serve::bus_address;
use super::store::{Place, StoreArgs};
use crate::bus_file::{BusAddress, BusPlace};
use crate::client::{Connection, timed};
use crate::config::{Config, LISTEN_DEFAULT};
use crate::failure::Failure;
use crate::output::Out;
use crate::profiles::exposed;
use crate::secrets::KEY_FILE;

/// Below this much room a warning is given, in bytes.
const DISK_WARN: u64 = 1 << 30;
/// Below this much room nothing will work for long, in bytes.
const DISK_FAIL: u64 = 64 << 20;
/// How long before its end a certificate is worth a warning, in seconds.
const EXPIRY_WARN_SECONDS: i64 = 21 * 86_400;
/// How far two clocks may be apart before somebody is told.
const SKEW_WARN: Duration = Duration::from_secs(1);
/// How long the clock is watched.
const CLOCK_WATCHED: Duration = Duration::from_millis(50);
/// How long an executor or a node may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox doctor
  signalbox doctor --config signalbox.toml --output json   # exit code 1 if anything fails")]
pub(crate) struct DoctorArgs {
    /// Where the store is.
    #[command(flatten)]
    place: StoreArgs,
    /// The Redis by which nodes tell each other what has changed [default: none].
    #[arg(long, env = "SIGNALBOX_BUS", hide_env_values = true, value_name = "URL", value_parser = bus_address)]
    bus: Option<BusAddress>,
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    check: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Check {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: State::Ok, found: found.into(), next: None }
    }
    fn warn(check: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { check, state: State::Warn, found: found.into(), next: Some(next.into()) }
    }
    fn fail(check: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { check, state: State::Fail, found: found.into(), next: Some(next.into()) }
    }
    fn failed(check: &'static str, failure: Failure) -> Self {
        let next = failure.next.unwrap_or_else(|| "what it says above".to_owned());
        Self::fail(check, format!("{}: {}", failure.code, failure.message), next)
    }
}

/// Looks at everything.
pub(crate) async fn run(args: DoctorArgs, server: &Connection, out: &mut Out) -> Result<(), Failure> {
    let mut checks = vec![versions()];
    let config = match args.place.config.as_deref().map(Config::read).transpose() {
        Ok(config) => {
            checks.push(Check::ok("configuration", configured(args.place.config.as_deref())));
            config.unwrap_or_default()
        }
        Err(failure) => {
            checks.push(Check::failed("configuration", failure));
            Config::default()
        }
    };
    let (file, place_bus) = (args.place.config.clone(), args.bus);
    let place = Place::with(args.place, &config);
    governance(&config, file.as_deref(), &place.data, &mut checks);
    let facts = match place.inspect().await {
        Ok(facts) => {
            store(&facts, &mut checks);
            Some(facts)
        }
        Err(error) => {
            checks.push(Check::failed("store", Failure::new(error.code(), error.to_string())));
            None
        }
    };
    checks.extend(disk(&place.data));
    clock(facts.as_ref(), &mut checks);
    checks.push(bus(place_bus.as_ref(), &config).await);
    executors(&config, &mut checks).await;
    certificates(&config, server, jiff::Timestamp::now().as_second(), &mut checks);
    checks.push(node(server, facts.as_ref()).await);
    show(&checks, out)
}

fn show(checks: &[Check], out: &mut Out) -> Result<(), Failure> {
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    let (warned, failed) = (count(State::Warn), count(State::Fail));
    if out.is_json() {
        out.json(&json!({ "ok": failed == 0, "checks": checks }))?;
    } else {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for check in checks {
            let state = match check.state {
                State::Ok => "ok",
                State::Warn => "warn",
                State::Fail => "FAIL",
            };
            rows.push(vec![state.to_owned(), check.check.to_owned(), check.found.clone()]);
            if let Some(next) = &check.next {
                rows.push(vec![String::new(), String::new(), format!("next: {next}")]);
            }
        }
        out.table(&["STATE", "CHECK", "FOUND"], &rows)?;
        out.line("")?;
        out.line(&format!("{} good, {warned} to look at, {failed} failed", count(State::Ok)))?;
    }
    if failed == 0 {
        return Ok(());
    }
    Err(Failure::new("doctor-found-failures", format!("{failed} of {} checks failed", checks.len()))
        .next("do what stands under each of them, and run it again"))
}

fn versions() -> Check {
    Check::ok("version", format!("signalbox {}, store schema {SCHEMA_VERSION}", env!("CARGO_PKG_VERSION")))
}

fn configured(file: Option<&Path>) -> String {
    file.map_or_else(|| "no file; every value is the default".to_owned(), |file| format!("{} is valid", file.display()))
}

fn governance(config: &Config, file: Option<&Path>, data: &Path, checks: &mut Vec<Check>) {
    let listen = config.listen.unwrap_or(LISTEN_DEFAULT);
    if let Some(identity) = &config.identity {
        let tokens = identity.issuer.as_ref().map(|issuer| format!("tokens of {issuer}"));
        let keys = identity.api_keys.then(|| "API keys".to_owned());
        let who: Vec<_> = tokens.into_iter().chain(keys).collect();
        checks.push(Check::ok("identity", format!("lets in {}", who.join(" and "))));
    } else if listen.ip().is_loopback() {
        checks.push(Check::warn(
            "identity",
            format!(
                "the development identity: everybody who reaches {listen} on this machine is the platform's operator"
            ),
            "let nobody else use this machine, or configure an identity before you serve others",
        ));
    } else {
        checks.push(Check::fail(
            "identity",
            format!("{listen} can be reached from other machines, and no identity is configured"),
            "serve will refuse it; listen on a loopback address, such as 127.0.0.1:7420",
        ));
    }
    let with_password = config.store.as_ref().is_some_and(|store| store.as_str().contains('@'));
    let key = data.join(KEY_FILE);
    let tls = config.tls_files();
    let private = [
        file.filter(|_| with_password),
        key.exists().then_some(key.as_path()),
        tls.as_ref().map(|files| files.key.as_path()),
    ];
    for problem in private.into_iter().flatten().filter_map(exposed) {
        checks.push(Check::fail("secrets", problem, "chmod 600 that file"));
    }
    let mut good = 0;
    let secrets = config.secrets.iter().map(|secret| (secret.rule.secret_id.as_str(), secret.problem()));
    let keys = config.sealing_keys.iter().map(|key| (key.key_id.as_str(), key.problem()));
    let signing = config.webhook_secrets.iter().map(|secret| (secret.secret_id.as_str(), secret.problem()));
    for (name, problem) in secrets.chain(keys).chain(signing) {
        match problem {
            Some(problem) => checks.push(Check::fail(
                "secrets",
                format!("`{name}`: {problem}"),
                "calls that need it will not begin; make its source readable for the node alone",
            )),
            None => good += 1,
        }
    }
    if good > 0 {
        checks.push(Check::ok("secrets", format!("{good} can be read, and by nobody else")));
    }
    for exemption in &config.webhook_exemptions {
        checks.push(Check::warn(
            "egress",
            format!("webhooks may reach `{}` in the private network {}", exemption.host, exemption.cidr),
            "take the entry out of [[webhookExemptions]] once nothing needs it",
        ));
    }
    for exemption in &config.exemptions {
        checks.push(Check::warn(
            "egress",
            format!("`{}` may lie in the private network {}", exemption.host, exemption.cidr),
            "take the entry out of [[exemptions]] once nothing needs it",
        ));
    }
}

fn store(facts: &StoreFacts, checks: &mut Vec<Check>) {
    let StoreFacts { place, engine, .. } = facts;
    if let Some(problem) = &facts.unwritable {
        checks.push(Check::fail(
            "store",
            format!("nothing can be written: {problem}"),
            "give signalbox the right to write there",
        ));
    }
    let used = if facts.in_use { "; a node uses it" } else { "" };
    let live = facts.live_runs.map(|live| format!(", {live} live runs")).unwrap_or_default();
    checks.push(match (facts.schema_version, facts.min_reader) {
        (None, _) => Check::ok("store", format!("{engine} in {place}: no store yet; the first start makes one")),
        (Some(_), Some(least)) if least > SCHEMA_VERSION => Check::fail(
            "store",
            format!("{engine} in {place} needs a signalbox that knows schema {least}; this one knows {SCHEMA_VERSION}"),
            "use the newer signalbox, or restore a backup from before the upgrade",
        ),
        (Some(version), _) if version < SCHEMA_VERSION => Check::warn(
            "store",
            format!("{engine} in {place} is at schema {version}{live}{used}"),
            format!("back it up; `signalbox migrate` or the next start brings it to {SCHEMA_VERSION}"),
        ),
        (Some(version), _) => Check::ok("store", format!("{engine} in {place}, schema {version}{live}{used}")),
    });
    for setting in &facts.durability {
        let found = format!("{} = {}", setting.setting, setting.value);
        checks.push(if setting.holds {
            Check::ok("durability", found)
        } else {
            Check::fail("durability", found, format!("turn {} on at the server and restart it", setting.setting))
        });
    }
}

fn disk(data: &Path) -> Option<Check> {
    let mut there = data;
    while !there.exists() {
        there = there.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    }
    let about = rustix::fs::statvfs(there).ok()?;
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    let found = format!("{} MiB free where {} lies", free >> 20, data.display());
    Some(match free {
        0..DISK_FAIL => Check::fail("disk", found, "make room; without it runs hold and nothing is lost"),
        DISK_FAIL..DISK_WARN => {
            Check::warn("disk", found, "make room before it is full, or bound it by limits.storeBytesMax")
        }
        _ => Check::ok("disk", found),
    })
}

fn clock(facts: Option<&StoreFacts>, checks: &mut Vec<Check>) {
    let wall = || jiff::Timestamp::now().as_microsecond();
    let (begun, steady) = (wall(), Instant::now());
    std::thread::sleep(CLOCK_WATCHED);
    let (passed, now) = (steady.elapsed(), wall());
    let jumped = (now - begun).unsigned_abs().abs_diff(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX));
    if Duration::from_micros(jumped) > CLOCK_WATCHED {
        checks.push(Check::warn(
            "clock",
            format!("it jumped by {} ms while it was watched", jumped / 1_000),
            "see what sets it; a time service should move it slowly",
        ));
    } else {
        checks.push(Check::ok("clock", "runs steadily"));
    }
    let Some(facts) = facts else { return };
    let skew_max = i64::try_from(SKEW_WARN.as_micros()).unwrap_or(i64::MAX);
    if let Some(theirs) = facts.clock_unix_micros {
        // Somewhere between asking and answering; the answer is some milliseconds old by now.
        let skew = begun - theirs;
        checks.push(if skew.abs() > skew_max {
            Check::warn(
                "clock",
                format!("{} ms away from the store's", skew / 1_000),
                "keep both machines on a time service; the store's clock is the one that counts",
            )
        } else {
            Check::ok("clock", "agrees with the store's")
        });
    }
    if let Some(newest) = facts.newest_at_unix_micros.filter(|newest| newest - now > skew_max) {
        checks.push(Check::warn(
            "clock",
            format!("{} s behind the newest event of the store", (newest - now) / 1_000_000),
            "see whether it was set back; timers and windows wait until it has caught up",
        ));
    }
}

async fn bus(flag: Option<&BusAddress>, config: &Config) -> Check {
    let place = match BusPlace::of(flag, config.bus.as_ref()) {
        Ok(Some(place)) => place,
        Ok(None) => return Check::ok("bus", "none; nodes find each other's changes in the store within a second"),
        Err(failure) => return Check::failed("bus", failure),
    };
    let shown = place.address.place();
    match RedisBus::probe(&place.address, place.tls.as_ref()).await {
        Ok(probe) => Check::ok("bus", format!("{shown} is heard after {} ms", probe.took.as_millis())),
        // Nothing a node promises needs it.
        Err(error) => Check::warn(
            "bus",
            format!("{}: {shown}: {error}", error.code()),
            "see whether a Redis 6 or newer is there and lets this node in; until then changes take up to a second",
        ),
    }
}

async fn executors(config: &Config, checks: &mut Vec<Check>) {
    let bundled = catalog::catalog().len();
    checks.push(Check::ok("executors", format!("the bundled tools, of a catalog of {bundled}")));
    for executor in &config.executors {
        let uri = &executor.uri;
        let connected = async {
            let endpoint = executor.endpoint().map_err(|error| Failure::new(error.code(), error.to_string()))?;
            let client = ExecutorClient::connect_all([endpoint], CONCURRENCY_DEFAULT, Arc::new(SystemClock)).await;
            client.map_err(|error| Failure::new(error.code(), error.to_string()))
        };
        let connected = tokio::time::timeout(ANSWER_WITHIN, connected).await;
        checks.push(match connected {
            Ok(Ok(client)) => {
                let tools = client.configured();
                let unknown: Vec<_> = tools
                    .iter()
                    .filter(|(tool, _)| catalog::entry(tool).is_none())
                    .map(|(tool, _)| tool.as_str())
                    .collect();
                if unknown.is_empty() {
                    Check::ok("executors", format!("{uri} serves {} tools", tools.len()))
                } else {
                    Check::fail(
                        "executors",
                        format!("{uri} serves what the catalog has not: {}", unknown.join(", ")),
                        "serve refuses it; take the tool away from the executor",
                    )
                }
            }
            Ok(Err(failure)) => Check::failed(
                "executors",
                Failure { message: format!("{uri}: {}", failure.message), ..failure }
                    .next("start the executor, or take it out of [[executors]]"),
            ),
            Err(_) => Check::fail(
                "executors",
                format!("{uri} does not answer within {} s", ANSWER_WITHIN.as_secs()),
                "start the executor, or take it out of [[executors]]",
            ),
        });
    }
}

fn certificates(config: &Config, server: &Connection, now: i64, checks: &mut Vec<Check>) {
    let node = config.tls_files();
    let node = node.iter().flat_map(|files| [Some(&files.cert), files.client_ca.as_ref()]);
    for file in node.chain([server.ca.as_ref(), server.client_cert.as_ref()]).flatten() {
        let shown = file.display();
        checks.push(match signalbox_tls::expires_at(file) {
            Err(error) => Check::failed(
                "certificates",
                Failure::new(error.code(), error.to_string()).next("put a certificate there, in PEM"),
            ),
            Ok(end) if end <= now => Check::fail(
                "certificates",
                format!("`{shown}` has ended, at {}", day(end)),
                "issue a new one; a node takes it up by itself",
            ),
            Ok(end) if end - now < EXPIRY_WARN_SECONDS => Check::warn(
                "certificates",
                format!("`{shown}` ends at {}", day(end)),
                "issue a new one; a node takes it up by itself",
            ),
            Ok(end) => Check::ok("certificates", format!("`{shown}` holds until {}", day(end))),
        });
    }
}

fn day(unix_seconds: i64) -> String {
    jiff::Timestamp::from_second(unix_seconds)
        .map_or_else(|_| unix_seconds.to_string(), |at| at.strftime("%Y-%m-%d").to_string())
}

async fn node(server: &Connection, facts: Option<&StoreFacts>) -> Check {
    let addr = server.addr();
    let begun = Instant::now();
    let asked = async {
        let mut client = server.open().await?;
        let request = v1::ListRunsRequest { page_size: 1, ..v1::ListRunsRequest::default() };
        client.list_runs(timed(request)).await.map_err(Failure::from)
    };
    let failure = match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(_)) => return Check::ok("node", format!("{addr} answers within {} ms", begun.elapsed().as_millis())),
        Ok(Err(failure)) => failure,
        Err(_) => {
            Failure::new("server-unreachable", format!("{addr} does not answer within {} s", ANSWER_WITHIN.as_secs()))
        }
    };
    if failure.code != "server-unreachable" {
        return Check::failed("node", failure);
    }
    let (found, next) = match facts {
        Some(facts) if facts.in_use => (
            format!("a node uses {}, and nobody answers at {addr}", facts.place),
            "name the address it listens on with --addr",
        ),
        Some(_) | None => {
            (format!("nobody answers at {addr}"), "start one with `signalbox serve`, or name another with --addr")
        }
    };
    Check::warn("node", found, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(checks: &[Check]) -> Vec<State> {
        checks.iter().map(|check| check.state).collect()
    }

    #[test]
    fn a_store_that_would_lose_what_it_acknowledged_fails() {
        let setting = |holds| signalbox_store::Durability { setting: "fsync", value: "off".to_owned(), holds };
        let facts = StoreFacts {
            schema_version: Some(SCHEMA_VERSION),
            durability: vec![setting(false)],
            ..StoreFacts::default()
        };
        let mut checks = Vec::new();
        store(&facts, &mut checks);
        assert_eq!(states(&checks), [State::Ok, State::Fail]);
        assert!(checks[1].next.as_ref().unwrap().contains("fsync"));
    }

    #[test]
    fn an_old_schema_is_told_and_a_newer_one_fails() {
        let of = |version, least| {
            let mut checks = Vec::new();
            store(
                &StoreFacts { schema_version: Some(version), min_reader: Some(least), ..StoreFacts::default() },
                &mut checks,
            );
            states(&checks)
        };
        assert_eq!(of(SCHEMA_VERSION - 1, 1), [State::Warn]);
        assert_eq!(of(SCHEMA_VERSION + 1, SCHEMA_VERSION + 1), [State::Fail]);
    }

    #[test]
    fn a_clock_that_is_behind_the_store_is_told() {
        let ahead = jiff::Timestamp::now().as_microsecond() + 60_000_000;
        let mut checks = Vec::new();
        clock(
            Some(&StoreFacts {
                newest_at_unix_micros: Some(ahead),
                clock_unix_micros: Some(ahead),
                ..StoreFacts::default()
            }),
            &mut checks,
        );
        assert_eq!(states(&checks)[1..], [State::Warn, State::Warn]);
    }

    #[test]
    fn a_certificate_is_told_of_before_it_ends_and_fails_afterwards() {
        let folder = tempfile::TempDir::new().unwrap();
        let authority = signalbox_tls::testing::Authority::new(folder.path());
        authority.issue_until("node", 2040);
        let cert = authority.server("node").cert;
        let end = signalbox_tls::expires_at(&cert).unwrap();
        let server = Connection { client_cert: Some(cert), ..Connection::default() };
        for (now, state) in [(end - 90 * 86_400, State::Ok), (end - 86_400, State::Warn), (end + 1, State::Fail)] {
            let mut checks = Vec::new();
            certificates(&Config::default(), &server, now, &mut checks);
            assert_eq!(states(&checks), [state]);
        }
    }

    #[test]
    fn exemptions_and_addresses_without_an_identity_are_told() {
        let config =
            Config::parse("listen = \"0.0.0.0:1\"\n[[exemptions]]\nhost = \"a.example\"\ncidr = \"10.0.0.0/8\"")
                .unwrap();
        let of = |config: &Config| {
            let mut checks = Vec::new();
            governance(config, None, Path::new("/nowhere"), &mut checks);
            states(&checks)
        };
        assert_eq!(of(&config), [State::Fail, State::Warn]);
        assert_eq!(of(&Config::parse("listen = \"0.0.0.0:1\"\n[identity]\napiKeys = true").unwrap()), [State::Ok]);
    }
}
