//! Preflights, modes and rehearsals through the binary.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signalbox_domain::pipeline::{briefing, weekly_briefing};
use tempfile::TempDir;

use crate::harness::{Server, put};

/// One unit for the whole tenant: a run that spent anything real would be stopped by it.
const ONE_UNIT: &str = "[[budgets]]\nbudgetId = \"all\"\ntenantId = \"default\"\nscope = \"tenant\"\n\
    scopeKey = \"default\"\ncategory = \"cost-units\"\nlimit = 1\n";

const STRICT: &str = "[[invocations]]\ntenantId = \"default\"\nsources = [\"archive\"]\ntones = [\"neutral\"]\n\
    personas = [\"lilith.scribe\"]\nmodes = [\"fast\", \"balanced\", \"deep\"]\nconsentScopes = [\"user.private\"]\n\
    agents = [{ agentId = \"ref.drafting\", lifecycle = \"retired\" }, { agentId = \"ref.research\", costClass = \"micro\" }]\n";

fn configured(text: &str) -> Server {
    let data = TempDir::new().unwrap();
    put(data.path(), "box.toml", text);
    let config = data.path().join("box.toml");
    Server::over(data, &["--config", config.to_str().unwrap()])
}

fn until_closed(server: &Server, run: &str) -> Value {
    let patience = Instant::now();
    loop {
        let shown = server.json(&format!("runs get {run}")).json();
        if shown["closed"] == true {
            return shown;
        }
        assert!(patience.elapsed() < Duration::from_secs(60), "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn read(args: Value) -> Value {
    json!([{"stepId": "read", "kind": "tool", "toolId": "memory.read", "args": args}])
}

fn invocation() -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    json!({"entitlements": ["tool:memory.read"], "sourceSet": ["archive"], "tone": "neutral", "persona": "lilith.scribe",
        "consent": {"consentId": "c-1", "subjectId": "s-1", "textVersion": "1", "dataScopes": ["user.private"],
            "acceptedAtUnixMs": u64::try_from(now).unwrap()}})
}

fn codes(said: &Value) -> Vec<&str> {
    said["gaps"].as_array().unwrap().iter().map(|gap| gap["code"].as_str().unwrap()).collect()
}

#[test]
fn the_weekly_briefing_is_rehearsed_to_its_end_offline_and_nothing_is_spent_or_written() {
    let server = configured(ONE_UNIT);
    // Whoever connected would be heard.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let source = format!("http://{}/feed.xml", listener.local_addr().unwrap());
    let plan = briefing(&[source, "/no/such/file.md".to_owned()], None);
    let body = json!({
        "rootAgentId": "ref.research", "plan": plan, "mode": "deep",
        "pipelineId": weekly_briefing::PIPELINE_ID, "pipelineSemver": weekly_briefing::PIPELINE_SEMVER,
    });
    let run = server.submit(&body, "--mode rehearsal-dry-run").json()["runId"].as_str().unwrap().to_owned();
    let shown = until_closed(&server, &run);
    let envelope = &shown["envelope"];
    assert_eq!(shown["status"], "completed", "{}", envelope["end"]);
    assert_eq!(envelope["mode"], "rehearsal-dry-run");
    let calls = envelope["toolCalls"].as_array().unwrap();
    let real: Vec<&str> =
        calls.iter().filter(|call| call["simulated"] != true).map(|call| call["toolId"].as_str().unwrap()).collect();
    assert_eq!(real, ["sophia.ground", "sophia.fact_check", "sophia.fact_check"]);
    for call in calls.iter().filter(|call| call["simulated"] == true) {
        assert_eq!(call["output"]["inline"]["simulated"], true, "{call}");
    }
    let simulated = envelope["simulatedLedger"]["totalCostUnits"].as_i64().unwrap();
    assert!(simulated > 30, "what it would have cost: {simulated}");
    assert_eq!(envelope["compliance"]["breaches"], json!([]), "{}", envelope["compliance"]);
    assert!(listener.accept().is_err(), "somebody connected");
    assert!(!server.data.path().join("packs").join(&run).exists());
    let verified = server.json(&format!("verify {run}"));
    assert_eq!(verified.exit, 0, "{verified:?}");

    // The tenant has one unit, and it is still there.
    let spends = json!({"rootAgentId": "ref.research", "plan": read(json!({"key": "k"}))});
    let run = server.submit(&spends, "").json()["runId"].as_str().unwrap().to_owned();
    assert_eq!(until_closed(&server, &run)["status"], "completed");
}

#[test]
fn a_rehearsal_needs_no_provider_and_its_real_twin_is_refused_without_one() {
    let server = Server::start();
    let plan = json!([{"stepId": "image", "kind": "tool", "toolId": "generate.image", "args": {"prompt": "a tide"}}]);
    let body = json!({"rootAgentId": "ref.illustration", "plan": plan});
    assert_eq!(server.submit(&body, "").code(), "agent_tools_not_configured");
    let run = server.submit(&body, "--mode rehearsal-dry-run").json()["runId"].as_str().unwrap().to_owned();
    assert_eq!(until_closed(&server, &run)["status"], "completed");
}

#[test]
fn a_dry_run_tells_every_gap_and_submits_nothing() {
    let server = configured(STRICT);
    let mut lacking = invocation();
    lacking["entitlements"] = json!([]);
    lacking["consent"]["dataScopes"] = json!([]);
    lacking["sourceSet"] = json!(["dark", "darker"]);
    lacking["tone"] = json!("sneering");
    lacking["persona"] = json!("nobody");
    let many: Vec<Value> = (0..11)
        .map(|n| json!({"stepId": format!("s{n}"), "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}}))
        .chain([json!({"stepId": "w", "kind": "tool", "toolId": "memory.read", "agentId": "ref.drafting", "args": {"key": "k"}})])
        .collect();
    let body = json!({"rootAgentId": "ref.research", "plan": many, "mode": "exhaustive", "invocation": lacking});
    let told = server.submit(&body, "--dry-run");
    assert_eq!((told.exit, told.code()), (1, "preflight-failed"), "{told:?}");
    let all = [
        "missing-entitlement",
        "consent-scope-missing",
        "source-not-allowed",
        "source-not-allowed",
        "tone-not-allowed",
        "persona-not-allowed",
        "mode-not-allowed",
        "agent-not-invocable",
        "cost-class-exceeded",
        "checkpoints-missing",
    ];
    assert_eq!(codes(&told.json()), all);
    assert_eq!((&told.json()["ok"], &told.json()["estimatedCostUnits"]), (&json!(false), &json!(12)));
    let refused = server.submit(&body, "");
    assert_eq!((refused.exit, refused.code(), refused.out.as_str()), (1, "preflight-failed", ""), "{refused:?}");
    assert_eq!(server.json("runs list").json()["runs"], json!([]), "neither left anything");

    let whole =
        json!({"rootAgentId": "ref.course-generation", "plan": read(json!({"key": "k"})), "invocation": invocation()});
    let told = server.submit(&whole, "--dry-run");
    assert_eq!((told.exit, codes(&told.json()).len()), (0, 0), "{told:?}");
    assert_eq!(server.json("runs list").json()["runs"], json!([]));
    let run = server.submit(&whole, "").json()["runId"].as_str().unwrap().to_owned();
    let kept = until_closed(&server, &run)["envelope"].clone();
    assert_eq!((&kept["surface"], &kept["invocation"]["consentId"]), (&json!("api"), &json!("c-1")));
    assert!(!kept.to_string().contains("s-1"), "whose consent it is stays where it was given");
}

#[test]
fn a_consent_that_is_missing_old_or_from_the_future_is_required_anew() {
    let server = configured(STRICT);
    let with = |consent: Value| {
        let mut declared = invocation();
        declared["consent"] = consent;
        let body =
            json!({"rootAgentId": "ref.course-generation", "plan": read(json!({"key": "k"})), "invocation": declared});
        let told = server.submit(&body, "--dry-run").json();
        codes(&told).join(" ")
    };
    let at = |ms: i64| {
        let mut consent = invocation()["consent"].clone();
        consent["acceptedAtUnixMs"] = json!(consent["acceptedAtUnixMs"].as_i64().unwrap() + ms);
        consent
    };
    const DAY: i64 = 86_400_000;
    assert_eq!(with(json!(null)), "consent-required");
    assert_eq!(with(at(-366 * DAY)), "consent-required");
    assert_eq!(with(at(DAY)), "consent-required");
    assert_eq!(with(at(-364 * DAY)), "");
    let undeclared = json!({"rootAgentId": "ref.course-generation", "plan": read(json!({"key": "k"}))});
    assert_eq!(codes(&server.submit(&undeclared, "--dry-run").json()), ["consent-required"]);
}

#[test]
fn bad_invocations_and_modes_are_refused_by_their_code_and_leave_nothing() {
    let server = Server::start();
    let body = |more: Value| {
        let mut body = json!({"rootAgentId": "ref.course-generation", "plan": read(json!({"key": "k"}))});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let declared = |member: &str, value: Value| {
        let mut declared = invocation();
        *declared.pointer_mut(member).unwrap() = value;
        body(json!({ "invocation": declared }))
    };
    let huge: Vec<String> = (0..5_000).map(|n| format!("tool:{n}")).collect();
    for (said, code) in [
        (body(json!({"mode": "slow"})), "unknown-mode"),
        (body(json!({"mode": "__proto__"})), "unknown-mode"),
        (body(json!({"mode": 7})), "json-invalid"),
        (body(json!({"surface": "operator-console"})), "json-invalid"),
        (body(json!({"invocation": {}})), "json-invalid"),
        (body(json!({"invocation": []})), "json-invalid"),
        (body(json!({"modeOverride": {"maxCostUnits": 501}})), "cost-raise-rejected"),
        (body(json!({"modeOverride": {"maxcostunits": 1}})), "json-invalid"),
        (body(json!({"modeOverride": {"mode": "slow"}})), "json-invalid"),
        (declared("/entitlements", json!(huge)), "bad-invocation"),
        (declared("/tone", json!("a\u{202e}b")), "bad-invocation"),
        (declared("/consent/dataScopes", json!(["constructor"])), "json-invalid"),
        (declared("/consent/acceptedAtUnixMs", json!(-1.5)), "json-invalid"),
    ] {
        for how in ["", "--dry-run"] {
            let refused = server.submit(&said, how);
            assert_eq!((refused.exit, refused.code(), refused.out.as_str()), (1, code, ""), "{how} {refused:?}");
        }
    }
    let twice = r#"{"rootAgentId":"ref.research","mode":"deep","mode":"fast","plan":[]}"#;
    put(server.data.path(), "twice.json", twice);
    let file = server.data.path().join("twice.json");
    let refused = server.json(&format!("runs submit --plan {} --mode fast", file.display()));
    assert_eq!((refused.exit, refused.code()), (2, "json-duplicate-key"), "{refused:?}");
    assert_eq!(server.json("runs list").json()["runs"], json!([]));
}

#[test]
fn the_table_of_a_dry_run_names_what_to_do() {
    let server = configured(STRICT);
    let path = server.data.path().join("plan.json");
    put(
        server.data.path(),
        "plan.json",
        &json!({"rootAgentId": "ref.course-generation", "plan": read(json!({}))}).to_string(),
    );
    let said = crate::harness::run(&mut server.command(&format!("runs submit --dry-run --plan {}", path.display())));
    assert_eq!(said.exit, 1, "{said:?}");
    for word in ["GAP", "consent-required", "confirm one", "balanced"] {
        assert!(said.out.contains(word), "{word}: {}", said.out);
    }
}

/// The test that is run where there is no network.
const REHEARSED: &str =
    "rehearsing::the_weekly_briefing_is_rehearsed_to_its_end_offline_and_nothing_is_spent_or_written";
/// Brings the loopback up, shows which interfaces there are, and runs that test.
const INSIDE: &str = "ip link set lo up && cat /proc/net/dev && exec \"$0\" --exact \"$1\"";

#[test]
fn a_rehearsal_ends_where_there_is_no_network_at_all() {
    let this = std::env::current_exe().unwrap();
    let said = Command::new("unshare")
        .args(["--net", "--map-root-user", "sh", "-c", INSIDE])
        .arg(&this)
        .arg(REHEARSED)
        .output();
    let said = match said {
        Ok(said) => said,
        // Nothing that makes namespaces: the rehearsal itself shows that it connects to nobody, with a listener that waits.
        Err(error) => {
            println!(
                "without a network namespace ({error}): rehearsed with the network there, and nobody was connected to"
            );
            return the_weekly_briefing_is_rehearsed_to_its_end_offline_and_nothing_is_spent_or_written();
        }
    };
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    let interfaces: Vec<&str> = out
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim())
        .take_while(|name| !name.contains(' '))
        .collect();
    if interfaces.is_empty() {
        println!(
            "no network namespace may be made here ({err}): rehearsed with the network there, and nobody was connected to"
        );
        return the_weekly_briefing_is_rehearsed_to_its_end_offline_and_nothing_is_spent_or_written();
    }
    assert_eq!(interfaces, ["lo"], "there is a network after all");
    assert!(said.status.success() && out.contains("1 passed"), "{out}{err}");
}
