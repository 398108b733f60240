//! Three processes serve one PostgreSQL, and one of them is killed: each fire starts one run, and no slot is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::Server;
use crate::postgres_nodes::Database;
use crate::schedules::{ok, plan, until};

fn serve(database: &Database) -> Server {
    Server::over(TempDir::new().unwrap(), &["--store", &database.url()])
}

#[test]
fn a_hundred_fires_on_three_nodes_start_a_hundred_runs_also_when_one_is_killed() {
    let database = Database::create();
    let servers = [serve(&database), serve(&database), serve(&database)];
    let plan = plan(&servers[0]);
    for number in 0..10 {
        let id = format!("s{number}");
        let words =
            ["schedules", "put", &id, "--plan", &plan, "--every", "2", "--overlap", "allow-all", "--reason", "x"];
        ok(&servers[number % 3], &words);
    }
    until(&servers[0], |seen| seen.len() >= 30);
    let [dying, one, other] = servers;
    drop(dying.cut());
    until(&one, |seen| seen.len() >= 100);
    for number in 0..10 {
        ok(&other, &["schedules", "pause", &format!("s{number}"), "--reason", "enough"]);
    }
    // What the killed one had taken up is taken over at the latest when it is held no longer.
    std::thread::sleep(Duration::from_secs(2));
    let seen = until(&one, |seen| seen.iter().all(|fire| fire["state"] == "started" || fire["reason"] == "paused"));
    let started: Vec<_> = seen.iter().filter(|fire| fire["state"] == "started").collect();
    assert!(started.len() >= 100, "{}", started.len());
    let runs: BTreeSet<&str> = started.iter().filter_map(|fire| fire["runId"].as_str()).collect();
    assert_eq!(runs.len(), started.len(), "each fire has a run of its own");
    for number in 0..10 {
        let id = json!(format!("s{number}"));
        let own = started.iter().filter(|fire| fire["scheduleId"] == id);
        let slots: Vec<i64> = own.rev().filter_map(|fire| fire["atUnixMs"].as_i64()).collect();
        assert!(slots.windows(2).all(|pair| pair[1] - pair[0] == 2_000), "no slot is lost or fired twice: {slots:?}");
    }
    // And there is no other run than those.
    let counts = ok(&other, &["runs", "counts"]);
    let total: u64 = counts["counts"].as_array().unwrap().iter().filter_map(|bucket| bucket["runs"].as_u64()).sum();
    assert_eq!(total, started.len() as u64, "{counts}");
}
