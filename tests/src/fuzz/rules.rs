//! What the rules read: JSON, submissions, bindings, versions, addresses, text that may hold secrets, and journals.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a target panics to say what is wrong")]

use std::net::IpAddr;

use serde_json::Value;
use signalbox_domain::canonical;
use signalbox_domain::catalog::version::{is_version, range_matches, range_parses};
use signalbox_domain::governance::address::{Cidr, classify};
use signalbox_domain::governance::egress::{
    EgressRules, URL_BYTES_MAX, check_redirect, check_resolved, check_url, match_host_pattern,
};
use signalbox_domain::identity::{Actor, Visibility};
use signalbox_domain::ids::{RunId, RunKey, TenantId};
use signalbox_domain::json::{JsonError, Limits, parse_strict};
use signalbox_domain::redact::{redact_text, redact_value};
use signalbox_domain::run::binding::{SECRET_KEY, Sources, bind, steps_bound};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::event::{RunEvent, RunSubmitted};
use signalbox_domain::run::evolve::{fold, submitted_run};
use signalbox_domain::run::replay::build_replay_timeline;
use signalbox_domain::run::submission::{self, Submitter};
use signalbox_domain::run::verify::verify;
use signalbox_domain::time::{UnixMicros, UnixMs};
use uuid::Uuid;

/// Strict JSON: what is believed is what any other reader believes, it survives being written, and it has a digest.
pub(super) fn json(bytes: &[u8]) {
    match parse_strict(bytes, Limits::DEFAULT) {
        Ok(value) => {
            assert_eq!(serde_json::from_slice::<Value>(bytes).unwrap(), value, "two readers believe two things");
            let written = value.to_string();
            let larger = Limits { bytes_max: usize::MAX, ..Limits::DEFAULT };
            assert_eq!(parse_strict(written.as_bytes(), larger).unwrap(), value, "it does not read back");
            let digest = canonical::digest(&value).expect("every number that was read can be hashed");
            assert_eq!(canonical::digest(&value), Ok(digest));
        }
        Err(JsonError::Invalid(_)) => {
            // Nothing that a lenient reader takes may be called malformed here, or the caller would look in vain.
            if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
                panic!("called malformed: {value}");
            }
        }
        Err(error) => assert!(error.to_string().len() < 400, "{error}"),
    }
}

fn submitter() -> Submitter {
    Submitter {
        run_key: RunKey::new(Uuid::from_u128(1)),
        run_id: RunId::new(Uuid::from_u128(2)),
        tenant_id: TenantId::new("acme").unwrap(),
        actor: Actor::system(),
        scopes: Vec::new(),
        surface: "api".to_owned(),
    }
}

/// A submission: what is accepted survives the journal, has an order to run in, and starts a run.
pub(super) fn submission(bytes: &[u8]) {
    let Ok(read) = submission::parse(bytes) else { return };
    let written = serde_json::to_vec(&read).unwrap();
    assert_eq!(submission::parse(&written).expect("what was read reads back"), read);
    let Ok(submitted) = submission::accept(read, submitter(), Vec::new()) else { return };
    submitted.plan.topological_order().expect("an accepted plan has an order");
    let _ = submission::mint_grants(&submitted, UnixMs(0));
    let _ = submission::missing_scope(&submitted);
    for step in &submitted.plan.steps {
        let _ = submitted.plan.behind(&step.step_id);
    }
    let run = submitted_run(&submitted, UnixMicros(0));
    serde_json::to_string(&run).expect("an envelope is JSON");
    event_survives(RunEvent::RunSubmitted(Box::new(submitted)));
}

fn event_survives(event: RunEvent) {
    let (kind, body) = event.encode();
    let read = RunEvent::decode(&kind, &body).expect("what was encoded decodes");
    assert_eq!(read.encode(), (kind, body), "an event changes on its way through the journal");
    let _ = read.visibility();
}

/// A run that binds against these inputs.
fn golden_submission() -> RunSubmitted {
    let body = include_bytes!("../../../actors/domain/tests/golden/run-submitted.json");
    match RunEvent::decode("run-submitted", body) {
        Some(RunEvent::RunSubmitted(submitted)) => *submitted,
        other => panic!("the golden submission does not read: {other:?}"),
    }
}

/// Bindings: `{"args": …, "inputs": …, "output": …}`. What is bound is whole and bounded, or refused with a short error.
pub(super) fn binding(bytes: &[u8]) {
    let Ok(Value::Object(mut parts)) = parse_strict(bytes, Limits::DEFAULT) else { return };
    let mut part = |name: &str| parts.remove(name).unwrap_or_default();
    let (args, inputs, output) = (part("args"), part("inputs"), part("output"));
    let _ = steps_bound(&args);
    let run = submitted_run(&RunSubmitted { inputs, ..golden_submission() }, UnixMicros(0));
    let sources = Sources { run: &run, inputs: &run.inputs, output: &|_| Some(output.clone()) };
    match bind(&args, sources) {
        Ok(bound) => {
            // Each secret stands at a handle: nothing else is ever replaced by one.
            let at = |place: &String| bound.value.pointer(place).and_then(|handle| handle.get(SECRET_KEY)?.as_str());
            assert!(bound.secrets.iter().all(|(place, id)| at(place) == Some(id.as_str())));
            assert_eq!(bind(&args, sources), Ok(bound));
        }
        Err(error) => assert!(error.to_string().len() < 1_000, "{error}"),
    }
}

/// A range and a version, one on each line.
pub(super) fn version(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (range, version) = text.split_once('\n').unwrap_or((&text, ""));
    if range_matches(range, version) {
        assert!(range_parses(range) && !version.is_empty(), "{range:?} {version:?}");
    }
    if is_version(version) {
        assert!(version.is_ascii() && !version.contains(['\0', '\n', ' ']), "{version:?}");
    }
}

/// A URL, the target of a redirect, a host pattern, an address and a block of addresses, one on each line.
pub(super) fn egress(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(5, '\n').chain(std::iter::repeat(""));
    let mut line = || lines.next().unwrap_or_default();
    let (url, location, pattern, address, block) = (line(), line(), line(), line(), line());
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let rules = EgressRules {
        allow_hosts: words(&["*"]),
        allow_schemes: words(&["http", "https", "ws", "ftp"]),
        allow_methods: words(&["GET"]),
        exempt: Vec::new(),
    };
    if let (Ok(block), Ok(address)) = (block.parse::<Cidr>(), address.parse::<IpAddr>()) {
        let _ = block.contains(address);
    }
    let Ok(checked) = check_url(url, "GET", &rules) else { return };
    may_be_requested(&checked.url, &checked.host);
    let again = check_url(checked.url.as_str(), "GET", &rules).expect("a checked URL passes again");
    assert_eq!((again.host.as_str(), again.port), (checked.host.as_str(), checked.port));
    let _ = match_host_pattern(pattern, &checked.host);
    if let Ok(address) = address.parse::<IpAddr>()
        && classify(address).is_some()
    {
        assert!(check_resolved(&checked, address, &rules).is_err(), "{address} lies inside");
    }
    if let Ok(next) = check_redirect(&checked, location, "GET", &rules) {
        may_be_requested(&next.url, &next.host);
    }
}

fn may_be_requested(url: &url::Url, host: &str) {
    assert!(url.as_str().len() <= URL_BYTES_MAX && !host.is_empty(), "{url}");
    assert!(url.username().is_empty() && url.password().is_none(), "{url} holds credentials");
    let address = match url.host() {
        Some(url::Host::Ipv4(address)) => IpAddr::V4(address),
        Some(url::Host::Ipv6(address)) => IpAddr::V6(address),
        Some(url::Host::Domain(name)) => {
            // A name that any resolver would read as an address of this machine.
            assert!(name.trim_end_matches('.').parse::<IpAddr>().is_err(), "{url}");
            return;
        }
        None => panic!("{url} has no host"),
    };
    assert_eq!(classify(address), None, "{url} leads inside");
}

/// Text, and JSON if it is any: masking twice changes nothing more, and JSON stays JSON.
pub(super) fn redact(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let once = redact_text(&text);
    let twice = redact_text(&once);
    assert_eq!(once, twice, "masked twice, it changes again");
    if let Ok(value) = parse_strict(bytes, Limits::DEFAULT) {
        let (masked, changed) = redact_value(&value);
        assert_eq!(changed, masked != value, "whether it changed");
        let (again, changed) = redact_value(&masked);
        assert_eq!((again, changed), (masked, false), "masked twice, the value changes again");
    }
}

/// A kind on the first line, a body after it: what decodes survives the journal.
pub(super) fn event(bytes: &[u8]) {
    let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (kind, body) = (String::from_utf8_lossy(&bytes[..at]), bytes.get(at + 1..).unwrap_or_default());
    if let Some(event) = RunEvent::decode(&kind, body) {
        event_survives(event);
    }
}

/// Kinds and bodies on alternating lines, chained as a forger would who knows how: reading them back never panics.
pub(super) fn journal(bytes: &[u8]) {
    let (tenant, run_key) = (TenantId::new("acme").unwrap(), RunKey::new(Uuid::from_u128(1)));
    let mut prev_hash = EventHash::ZERO;
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').take(200).collect();
    let mut events = Vec::new();
    for (seq, pair) in (1..).zip(lines.chunks(2)) {
        let [kind, body] = pair else { break };
        let mut event = StoredEvent {
            run_key,
            seq,
            at: UnixMicros(i64::try_from(seq).unwrap_or(i64::MAX)),
            actor: Actor::system(),
            visibility: Visibility::TenantOperator,
            kind: String::from_utf8_lossy(kind).into_owned(),
            version: 1,
            body: body.to_vec(),
            prev_hash,
            hash: EventHash::ZERO,
        };
        event.hash = event.expected_hash(&tenant);
        prev_hash = event.hash;
        events.push(event);
    }
    let report = verify(&tenant, run_key, &events);
    assert_eq!(report.ok, report.findings.is_empty());
    let _ = build_replay_timeline(&events);
    if let Ok(run) = fold(&events) {
        serde_json::to_string(&run).expect("an envelope is JSON");
        let _ = (run.percent(), run.waiting_for());
    }
}
