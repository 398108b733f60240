//! Schedules through the binary: what is put fires, what makes no sense is refused by its code, and the clock's changes are kept.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Said, Server, put, run};

pub(crate) fn say(server: &Server, words: &[&str]) -> Said {
    run(server.command("").args(words).args(["--output", "json"]))
}

pub(crate) fn ok(server: &Server, words: &[&str]) -> Value {
    let said = say(server, words);
    assert_eq!(said.exit, 0, "{words:?} {said:?}");
    said.json()
}

fn refused(server: &Server, words: &[&str], exit: i32, code: &str) {
    let said = say(server, words);
    assert_eq!((said.exit, said.code()), (exit, code), "{words:?} {said:?}");
}

/// Writes a submission; answers its path.
pub(crate) fn plan(server: &Server) -> String {
    let steps = json!([{"stepId": "s", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}}]);
    put(server.data.path(), "plan.json", &json!({"rootAgentId": "ref.drafting", "plan": steps}).to_string());
    server.data.path().join("plan.json").display().to_string()
}

pub(crate) fn fires(server: &Server, more: &[&str]) -> Vec<Value> {
    let answer = ok(server, &[&["schedules", "fires", "--limit", "1000"], more].concat());
    answer["fires"].as_array().unwrap().clone()
}

pub(crate) fn until(server: &Server, hoped: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let seen = fires(server, &[]);
        if hoped(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{seen:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn what_is_put_fires_every_second_also_after_the_process_was_killed_and_every_act_is_recorded() {
    let server = Server::start();
    let plan = plan(&server);
    let put = ["schedules", "put", "pulse", "--plan", &plan, "--every", "1", "--reason", "a pulse"];
    let dry = ok(&server, &[&put[..], &["--dry-run"]].concat());
    assert_eq!((&dry["dryRun"], &dry["schedule"]["revision"]), (&json!(true), &json!(0)));
    assert_eq!(ok(&server, &["schedules", "list"])["schedules"], json!([]));
    let schedule = ok(&server, &put)["schedule"].clone();
    assert_eq!((&schedule["ownerActorId"], &schedule["overlap"]), (&json!("dev:operator"), &json!("skip")));
    assert_eq!(ok(&server, &put)["unchanged"], json!(true));
    let started = |seen: &[Value]| seen.iter().filter(|fire| fire["state"] == "started").count();
    let first = until(&server, |seen| started(seen) >= 2);
    let run = first.iter().find_map(|fire| fire["runId"].as_str()).unwrap();
    assert_eq!(ok(&server, &["runs", "get", run])["runId"], json!(run));

    let server = Server::over(server.cut(), &[]);
    let seen = until(&server, |seen| seen.len() >= first.len() + 3);
    let slots: Vec<i64> = seen.iter().rev().map(|fire| fire["atUnixMs"].as_i64().unwrap()).collect();
    assert!(slots.windows(2).all(|pair| pair[1] - pair[0] == 1_000), "{slots:?}");
    assert!(seen.iter().all(|fire| fire["state"] != "dead"), "{seen:#?}");

    let revision = schedule["revision"].to_string();
    refused(&server, &[&put[..], &["--jitter", "1", "--expected-revision", "999"]].concat(), 1, "stale-revision");
    refused(&server, &[&put[..], &["--create"]].concat(), 1, "schedule-exists");
    let paused = ok(&server, &["schedules", "pause", "pulse", "--reason", "enough", "--expected-revision", &revision]);
    assert_eq!(paused["schedule"]["pausedBecause"], json!("enough"));
    std::thread::sleep(Duration::from_millis(1_500));
    let count = fires(&server, &[]).len();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(fires(&server, &[]).len(), count, "nothing fires while it is paused");
    ok(&server, &["schedules", "resume", "pulse", "--reason", "go on"]);
    let seen = until(&server, |seen| seen.len() >= count + 2);
    assert!(seen.iter().any(|fire| fire["reason"] == "paused"), "{seen:#?}");
    ok(&server, &["schedules", "remove", "pulse", "--reason", "over", "--dry-run"]);
    ok(&server, &["schedules", "remove", "pulse", "--reason", "over"]);
    refused(&server, &["schedules", "show", "pulse"], 1, "no-such-schedule");
    let acts = ok(&server, &["audit", "list"]);
    let kinds: Vec<&str> = acts["acts"].as_array().unwrap().iter().filter_map(|act| act["kind"].as_str()).collect();
    assert_eq!(kinds, ["schedule-put", "schedule-paused", "schedule-resumed", "schedule-removed"]);
}

#[test]
fn the_next_slots_follow_the_clock_of_the_zone_over_its_changes() {
    let server = Server::start();
    let plan = plan(&server);
    let rows = [
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("0 * * * *", "Australia/Lord_Howe", "2026-10-03T14:30:00Z", ["2026-10-03T16:00:00Z", "2026-10-03T17:00:00Z"]),
        ("*/30 * * * *", "America/New_York", "2026-11-01T05:10:00Z", ["2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z"]),
    ];
    for (index, (cron, zone, after, expected)) in rows.into_iter().enumerate() {
        let id = format!("s{index}");
        let words = ["schedules", "put", &id, "--plan", &plan, "--cron", cron, "--timezone", zone, "--reason", "dst"];
        ok(&server, &[&words[..], &["--start", "2026-01-01T00:00:00Z"]].concat());
        let next = ok(&server, &["schedules", "next", &id, "--count", "2", "--after", after]);
        let slots: Vec<&str> =
            next["slots"].as_array().unwrap().iter().filter_map(|slot| slot["at"].as_str()).collect();
        assert_eq!(slots, expected, "{cron} {zone}");
    }
    let next = ok(&server, &["schedules", "next", "s0", "--count", "1", "--after", "2026-03-28T12:00:00Z"]);
    assert_eq!(next["slots"][0]["local"], json!("2026-03-29T03:00:00+02:00"));
    assert_eq!(next["slots"][0]["fireId"], json!("submission/s0/default/2026-03-29T01:00:00Z"));
}

#[test]
fn what_can_never_fire_or_makes_no_sense_is_refused_and_nothing_is_kept() {
    let server = Server::start();
    let plan = plan(&server);
    let tried = |more: &[&str], code: &str| {
        let words = ["schedules", "put", "s", "--plan", &plan, "--reason", "x"];
        refused(&server, &[&words[..], more].concat(), 1, code);
    };
    tried(&["--cron", "0 0 30 2 *"], "schedule-never-fires");
    tried(&["--cron", "* 24 * * *"], "cron-invalid");
    tried(&["--cron", "@dayly"], "cron-invalid");
    tried(&["--cron", "@daily", "--timezone", "Local"], "zone-unknown");
    tried(&["--cron", "@daily", "--timezone", "America/New York"], "zone-unknown");
    tried(&["--every", "0"], "schedule-interval-invalid");
    tried(&["--every", "18446744073709551615"], "schedule-interval-invalid");
    tried(&["--weekly", "noday,07:00"], "weekday-invalid");
    tried(&["--weekly", "mon,24:00"], "schedule-time-invalid");
    tried(&["--every", "5", "--end", "1999-01-01T00:00:00Z"], "schedule-ends-before-start");
    tried(
        &["--every", "5", "--start", "2020-01-01T00:00:00Z", "--end", "2021-01-01T00:00:00Z"],
        "schedule-never-fires",
    );
    tried(&["--every", "5", "--jitter", "3601"], "schedule-bound-invalid");
    tried(&["--every", "5", "--catch-up-count", "101"], "schedule-bound-invalid");
    tried(&["--every", "5", "--catch-up-window", "99999999999"], "schedule-bound-invalid");
    refused(
        &server,
        &["schedules", "put", "s", "--plan", &plan, "--every", "5", "--reason", " "],
        1,
        "reason-required",
    );
    let bad = [
        ("{\"rootAgentId\":\"ref.drafting\",\"rootAgentId\":\"x\",\"plan\":[]}", "json-duplicate-key"),
        ("[", "json-invalid"),
        ("{\"rootAgentId\":\"no.such\",\"plan\":[{\"stepId\":\"s\",\"kind\":\"model\"}],\"more\":1}", "json-invalid"),
    ];
    for (body, code) in bad {
        put(server.data.path(), "bad.json", body);
        let path = server.data.path().join("bad.json").display().to_string();
        refused(&server, &["schedules", "put", "s", "--plan", &path, "--every", "5", "--reason", "x"], 1, code);
    }
    refused(&server, &["schedules", "put", "s", "--every", "5", "--reason", "x"], 2, "usage");
    refused(&server, &["schedules", "backfill", "s", "--from", "2h", "--reason", "x"], 1, "no-such-schedule");
    refused(&server, &["schedules", "next", "s", "--count", "1001"], 2, "usage");
    assert_eq!(ok(&server, &["schedules", "list"])["schedules"], json!([]));
}

#[test]
fn filling_in_and_suppressed_fires_are_shown_with_their_reasons() {
    let server = Server::start();
    let plan = plan(&server);
    let words = ["schedules", "put", "s", "--plan", &plan, "--every", "3600", "--start", "2026-01-01T00:00:00Z"];
    ok(&server, &[&words[..], &["--reason", "hourly"]].concat());
    let fill = [
        "schedules",
        "backfill",
        "s",
        "--from",
        "2026-01-02T00:00:00Z",
        "--to",
        "2026-01-02T05:00:00Z",
        "--reason",
        "x",
    ];
    assert_eq!(ok(&server, &[&fill[..], &["--dry-run"]].concat())["slots"].as_array().unwrap().len(), 6);
    assert_eq!(fires(&server, &[]).len(), 0);
    ok(&server, &fill);
    until(&server, |seen| seen.len() == 6 && seen.iter().all(|fire| fire["state"] == "started"));
    refused(
        &server,
        &["schedules", "backfill", "s", "--from", "2026-01-02", "--to", "2026-02-02", "--reason", "x"],
        1,
        "backfill-invalid",
    );
    let arm = ["switches", "arm", "--scope", "tenant", "--target", "default", "--reason", "a drill", "--id", "drill"];
    ok(&server, &arm);
    let fill = ["schedules", "backfill", "s", "--from", "2026-01-03", "--to", "2026-01-03", "--reason", "x"];
    ok(&server, &fill);
    let seen = until(&server, |seen| seen.iter().any(|fire| fire["state"] == "suppressed"));
    let suppressed = seen.iter().find(|fire| fire["state"] == "suppressed").unwrap();
    assert_eq!((&suppressed["reason"], &suppressed["runId"]), (&json!("kill-switch"), &Value::Null));
    assert_eq!(ok(&server, &["schedules", "dead-letters"])["fires"], json!([]));
}
