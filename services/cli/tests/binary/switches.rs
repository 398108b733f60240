//! Switches, budgets and the audit journal through the binary, as an operator uses them.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Said, Server, put, run};

/// Runs that measuring arms a switch against.
const RUNS: usize = 100;

fn submit(server: &Server, steps: Value) -> String {
    let said = server.submit(&json!({"rootAgentId": "ref.drafting", "plan": steps}), "");
    said.json()["runId"].as_str().unwrap().to_owned()
}

/// A plan that calls for a while: steps one after the other.
fn looping(steps: usize) -> Value {
    let step = |at: usize| {
        let after: Vec<_> = (at > 0).then(|| format!("s{}", at - 1)).into_iter().collect();
        json!({"stepId": format!("s{at}"), "kind": "tool", "toolId": "memory.read", "args": {"key": "k"},
            "dependsOnStepIds": after})
    };
    (0..steps).map(step).collect()
}

fn get(server: &Server, run: &str) -> Value {
    server.json(&format!("runs get {run}")).json()
}

/// A command whose words may have spaces.
fn say(server: &Server, words: &[&str]) -> Said {
    run(server.command("").args(words).args(["--output", "json"]))
}

fn ok(server: &Server, words: &[&str]) -> Value {
    let said = say(server, words);
    assert_eq!(said.exit, 0, "{said:?}");
    said.json()
}

fn refused(server: &Server, words: &[&str], exit: i32, code: &str) {
    let said = say(server, words);
    assert_eq!((said.exit, said.code()), (exit, code), "{said:?}");
}

#[test]
fn an_armed_switch_ends_a_working_run_and_the_next_one_until_it_is_disarmed() {
    let server = Server::start();
    let working = submit(&server, looping(200));
    let arm = [
        "switches",
        "arm",
        "--scope",
        "tool",
        "--target",
        "memory.read",
        "--reason",
        "it misbehaves",
        "--id",
        "m",
        "--status-copy",
        "We paused this.",
        "--degrade-to",
        "read-only",
        "--wait",
    ];
    let armed = ok(&server, &arm);
    assert_eq!((armed["swept"].clone(), armed["switch"]["state"].clone()), (json!(true), json!("armed")));
    assert!(armed["sweptAfterMs"].as_f64().unwrap() < 5_000.0, "{armed}");
    let ended = get(&server, &working);
    assert_eq!(ended["status"], "killed", "{ended}");
    let explained = run(&mut server.command(&format!("explain {working}")));
    assert!(explained.out.contains("it misbehaves"), "{explained:?}");
    assert_eq!(ok(&server, &arm)["replayed"], true);
    let shown = ok(&server, &["switches", "show", "m"]);
    assert_eq!((shown["killed"].clone(), shown["safeDegradationModeId"].clone()), (json!(1), json!("read-only")));
    let next = server.submit(&json!({"rootAgentId": "ref.drafting", "plan": looping(1)}), "--watch");
    assert_eq!((next.exit, next.code()), (1, "kill-switch"), "{next:?}");

    let disarmed = ok(&server, &["switches", "disarm", "m", "--reason", "mended"]);
    assert_eq!((disarmed["disarmed"].clone(), disarmed["switch"]["killed"].clone()), (json!(true), json!(2)));
    refused(&server, &["switches", "disarm", "m", "--reason", "again"], 1, "switch-already-disarmed");
    assert_eq!(ok(&server, &["switches", "list"])["switches"], json!([]));
    assert_eq!(ok(&server, &["switches", "list", "--all"])["switches"][0]["state"], "disarmed");
    let free = server.submit(&json!({"rootAgentId": "ref.drafting", "plan": looping(1)}), "--watch");
    assert_eq!(free.exit, 0, "{free:?}");
}

#[test]
fn what_makes_no_sense_is_refused_with_its_code() {
    let server = Server::start();
    let arm = |more: &[&'static str]| [&["switches", "arm", "--reason", "x"], more].concat();
    refused(&server, &arm(&["--scope", "tool", "--target", "web.fetchh"]), 1, "switch-target-unknown");
    refused(&server, &arm(&["--scope", "family", "--target", "nobody"]), 1, "unknown-family");
    refused(&server, &arm(&["--scope", "tool"]), 1, "switch-target-invalid");
    refused(&server, &arm(&["--scope", "global"]), 1, "switch-reach-missing");
    refused(&server, &arm(&["--scope", "planet", "--target", "mars"]), 2, "usage");
    refused(&server, &arm(&["--scope", "tool", "--target", "web.fetch", "--for", "0s"]), 2, "usage");
    let mode = arm(&["--scope", "tool", "--target", "web.fetch", "--degrade-to", "panic"]);
    refused(&server, &mode, 1, "unknown-degradation-mode");
    refused(&server, &["switches", "disarm", "nowhere", "--reason", "x"], 1, "no-such-switch");
    refused(&server, &["switches", "show", "nowhere"], 1, "no-such-switch");
    let put = |more: &[&'static str]| {
        [&["budgets", "put", "b", "--scope", "tenant", "--key", "default", "--reason", "x"], more].concat()
    };
    refused(&server, &put(&["--limit", "-1"]), 1, "budget-limit-negative");
    refused(&server, &put(&["--limit", "0.0000001"]), 1, "budget-invalid");
    refused(&server, &put(&["--limit", "many"]), 2, "number-invalid");
    refused(&server, &put(&["--limit", "1", "--category", "dollars"]), 1, "budget-invalid");
    refused(&server, &put(&["--limit", "1", "--calendar", "day", "--zone", "Mars/Base"]), 1, "budget-calendar-invalid");
    refused(&server, &["budgets", "get", "b"], 1, "no-such-budget");
    assert_eq!(ok(&server, &["audit", "list"])["acts"], json!([]), "nothing of it was done");
}

#[test]
fn a_global_switch_waits_for_a_second_identity_unless_the_configuration_asks_for_none() {
    let server = Server::start();
    ok(&server, &["switches", "arm", "--scope", "global", "--platform-wide", "--reason", "a drill", "--id", "g"]);
    refused(&server, &["switches", "disarm", "g", "--reason", "over"], 3, "second-identity-needed");
    let shown = ok(&server, &["switches", "show", "g"]);
    assert_eq!((shown["state"].clone(), shown["disarmProposedBy"].clone()), (json!("armed"), json!("dev:operator")));
    let (_, data) = server.end();
    put(data.path(), "signalbox.toml", "secondIdentityScopes = []\n");
    let config = data.path().join("signalbox.toml").display().to_string();
    let server = Server::over(data, &["--config", &config]);
    let disarmed = ok(&server, &["switches", "disarm", "g", "--reason", "over"]);
    assert_eq!(disarmed["disarmed"], true);
}

#[test]
fn every_act_is_in_the_audit_journal_which_is_verified_offline() {
    let server = Server::start();
    ok(&server, &["switches", "arm", "--scope", "tool", "--target", "web.fetch", "--reason", "a drill", "--id", "w"]);
    ok(&server, &["switches", "disarm", "w", "--reason", "mended"]);
    ok(
        &server,
        &["budgets", "put", "b", "--scope", "tool", "--key", "web.fetch", "--limit", "10", "--reason", "a limit"],
    );
    let acts = ok(&server, &["audit", "list"])["acts"].clone();
    let kinds: Vec<_> = acts.as_array().unwrap().iter().map(|act| act["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["switch-armed", "switch-disarmed", "budget-put"]);
    assert_eq!((acts[1]["actorId"].clone(), acts[1]["reason"].clone()), (json!("dev:operator"), json!("mended")));
    assert_eq!(acts[1]["before"]["switchId"], "w");
    assert!(acts[1]["after"]["disarmedAtUnixMs"].is_i64());
    let about = ok(&server, &["audit", "list", "--subject", "budget:b"])["acts"].clone();
    assert_eq!((about.as_array().unwrap().len(), about[0]["seq"].clone()), (1, json!(3)));
    assert_eq!(ok(&server, &["verify", "--audit"])["ok"], true);

    let exported = say(&server, &["audit", "export"]).out;
    drop(server);
    let folder = TempDir::new().unwrap();
    let verify = |text: &str| {
        put(folder.path(), "audit.jsonl", text);
        let mut command = crate::harness::signalbox();
        run(command.args(["verify", "--audit", "--output", "json"]).arg(folder.path().join("audit.jsonl")))
    };
    assert_eq!(verify(&exported).json()["ok"], true);
    let lines: Vec<_> = exported.lines().collect();
    let without = |gone: usize| {
        let kept: Vec<_> = lines.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, line)| *line).collect();
        kept.join("\n") + "\n"
    };
    for forged in [exported.replacen("mended", "mended!", 1), without(1), without(2), without(3), without(4)] {
        let said = verify(&forged);
        assert_eq!((said.exit, said.code()), (1, "journal-not-sound"), "{said:?}");
    }
}

#[test]
fn a_budget_that_is_used_up_holds_a_run_until_it_is_topped_up() {
    let server = Server::start();
    let made = ok(
        &server,
        &[
            "budgets",
            "put",
            "b",
            "--scope",
            "tenant",
            "--key",
            "default",
            "--limit",
            "2",
            "--calendar",
            "month",
            "--zone",
            "Europe/Berlin",
            "--on-exceeded",
            "pause",
            "--reason",
            "a limit",
            "--create",
        ],
    );
    assert_eq!((made["unchanged"].clone(), made["budget"]["revision"].clone()), (json!(false), json!(1)));
    let run = submit(&server, looping(4));
    let until = |status: &str| {
        let patience = Instant::now();
        while get(&server, &run)["status"] != status {
            assert!(patience.elapsed() < Duration::from_secs(60), "{}", get(&server, &run));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("paused");
    refused(&server, &["budgets", "top-up", "b", "--by", "-1", "--reason", "less"], 1, "budget-amount-invalid");
    refused(
        &server,
        &["budgets", "top-up", "b", "--by", "10", "--reason", "more", "--expected-revision", "9"],
        1,
        "stale-revision",
    );
    let top = ok(&server, &["budgets", "top-up", "b", "--by", "10.5", "--reason", "more", "--expected-revision", "1"]);
    assert_eq!((top["resumed"].clone(), top["budget"]["revision"].clone()), (json!(1), json!(2)));
    until("completed");
    let stands = ok(&server, &["budgets", "get", "b"]);
    assert_eq!((stands["consumed"].clone(), stands["reserved"].clone()), (json!(4), json!(0)));
    // An operator's budget outlives a restart, with its figures.
    let (_, data) = server.end();
    put(data.path(), "signalbox.toml", "\n");
    let config = data.path().join("signalbox.toml").display().to_string();
    let server = Server::over(data, &["--config", &config]);
    assert_eq!(ok(&server, &["budgets", "list"])["budgets"][0]["consumed"], 4);
    let history = ok(&server, &["budgets", "history", "b"]);
    assert_eq!(history["acts"].as_array().unwrap().len(), 2);
    ok(&server, &["budgets", "retire", "b", "--reason", "enough"]);
    refused(&server, &["budgets", "get", "b"], 1, "no-such-budget");
}

#[test]
fn a_watch_tells_of_a_switch_as_it_is_armed() {
    let server = Server::start();
    let mut watch = server.command("switches watch --output json").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    ok(&server, &["switches", "arm", "--scope", "tool", "--target", "web.fetch", "--reason", "a drill", "--id", "w"]);
    let act: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((act["kind"].clone(), act["subject"].clone()), (json!("switch-armed"), json!("switch:w")));
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// Prints how long it takes from `switches arm` until a hundred working runs have ended and their calls are cancelled.
#[test]
fn a_switch_ends_a_hundred_working_runs_well_within_five_seconds() {
    let trials = std::env::var("SWITCH_TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let server = Server::start();
    let (mut swept, mut whole) = (Vec::new(), Vec::new());
    for trial in 0..trials {
        let plan = json!({"rootAgentId": "ref.drafting", "plan": looping(200)});
        for _ in 0..RUNS {
            assert_eq!(server.submit(&plan, "").exit, 0);
        }
        let id = format!("s{trial}");
        let began = Instant::now();
        let armed = ok(
            &server,
            &[
                "switches",
                "arm",
                "--scope",
                "tool",
                "--target",
                "memory.read",
                "--reason",
                "a drill",
                "--id",
                &id,
                "--wait",
            ],
        );
        whole.push(began.elapsed().as_secs_f64() * 1_000.0);
        swept.push(armed["sweptAfterMs"].as_f64().unwrap());
        let shown = ok(&server, &["switches", "show", &id]);
        // Runs that were waiting for a slot when it was armed end at their first call.
        assert!(shown["killed"].as_u64().unwrap() > 0, "{shown}");
        let patience = Instant::now();
        while ok(&server, &["switches", "show", &id])["killed"] != RUNS {
            assert!(patience.elapsed() < Duration::from_secs(30), "{}", ok(&server, &["switches", "show", &id]));
        }
        ok(&server, &["switches", "disarm", &id, "--reason", "over"]);
    }
    for (name, figures) in [("swept after", &mut swept), ("command took", &mut whole)] {
        figures.sort_by(f64::total_cmp);
        let at = |share: f64| figures[((figures.len() - 1) as f64 * share).round() as usize];
        println!("{name}: p50 {:.1} ms, p99 {:.1} ms, most {:.1} ms", at(0.5), at(0.99), at(1.0));
        assert!(at(1.0) < 5_000.0);
    }
}

#[test]
fn a_kill_drill_ends_its_own_runs_and_no_other_and_its_report_is_in_the_audit_journal() {
    let server = Server::start();
    let nap = json!({"rootAgentId": "ref.drafting", "plan": [{"stepId": "n", "kind": "wait", "seconds": 600}]});
    let real = server.submit(&nap, "").json()["runId"].as_str().unwrap().to_owned();
    let said = server.json("drill kill --scope tenant:default --rounds 2 --reason quarterly");
    assert_eq!(said.exit, 0, "{said:?}");
    let report = said.json();
    assert_eq!((&report["admittedAfterCommit"], &report["tookHold"]), (&json!(0), &json!(true)), "{report}");
    assert_eq!((&report["runs"], &report["nodes"].as_array().unwrap().len()), (&json!(8), &1), "{report}");
    assert!(report["callsAdmitted"].as_u64().unwrap() > 0 && report["runsEnded"].as_u64().unwrap() > 0, "{report}");
    assert_ne!(server.json(&format!("runs get {real}")).json()["status"], "killed");
    assert_eq!(server.json("switches list").json()["switches"], json!([]), "nothing stays armed");
    let acts = server.json(&format!("audit list --subject {}", report["evidence"][1].as_str().unwrap())).json();
    let last = acts["acts"].as_array().unwrap().last().unwrap()["reason"].as_str().unwrap().to_owned();
    assert!(last.starts_with("kill drill, round 2: of") && last.ends_with("why: quarterly"), "{last}");
    assert_eq!(server.json("verify --audit").exit, 0);
    // A tenant that nobody has heard of has no runs to lose either, and nothing wider is taken.
    assert_eq!(server.json("drill kill --scope global").exit, 2);
    assert_eq!(server.json("drill kill --scope tool:web.fetch").exit, 2);
}

#[test]
fn each_degradation_mode_is_answered_with_its_documented_body() {
    let server = Server::start();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/governing.md")).unwrap();
    let read = json!([{"stepId": "a", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}}]);
    for mode in ["cached-answer", "read-only", "queue-for-later", "human-handover"] {
        let arm = format!("switches arm --scope tool --target memory.read --reason x --id {mode} --degrade-to {mode}");
        assert_eq!(server.json(&arm).exit, 0);
        let run = server.submit(&json!({"rootAgentId": "ref.drafting", "plan": read}), "--watch");
        assert_eq!(run.code(), "kill-switch", "{run:?}");
        let id = serde_json::from_str::<Value>(run.out.lines().next().unwrap()).unwrap()["runId"].clone();
        let addr = server.addr.strip_prefix("http://").unwrap();
        let (status, body) = crate::watched::get(addr, &format!("/v1/runs/{}", id.as_str().unwrap()));
        let told = serde_json::from_str::<Value>(&body).unwrap()["degradation"].clone();
        assert_eq!((status, &told["modeId"]), (200, &json!(mode)), "{body}");
        assert_eq!(told["statusCopy"], "This was stopped by an operator.");
        let row = format!("| `{mode}` | `{{\"offer\": {}, \"offerText\": {}}}` |", told["offer"], told["offerText"]);
        assert!(page.contains(&row), "the page does not say {row}");
        assert_eq!(server.json(&format!("switches disarm {mode} --reason x")).exit, 0);
    }
    let well = server.submit(&json!({"rootAgentId": "ref.drafting", "plan": read}), "--watch");
    assert_eq!(well.exit, 0, "{well:?}");
}
