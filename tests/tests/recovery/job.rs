//! The ordinary job, command by command, with the journal on PostgreSQL.

use serde_json::{Value, json};
use signalbox_store::testing::TemporaryDatabase;
use tempfile::TempDir;
use uuid::Uuid;

use crate::receipts::{IDEMPOTENT, Receipts, Way};
use crate::station::{AGENT, Place, Station, put};

fn plan() -> String {
    let step = |id: &str, after: &[&str]| json!({ "stepId": id, "kind": "tool", "toolId": IDEMPOTENT, "args": { "step": id }, "dependsOnStepIds": after });
    json!({ "rootAgentId": AGENT, "plan": [step("one", &[]), step("two", &["one"])] }).to_string()
}

/// A command that must succeed.
fn ok(station: &Station, line: &[&str]) -> Value {
    let said = station.command(line, None);
    assert_eq!(said.exit, 0, "{said:?}");
    said.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_job_of_an_operator_is_done_with_the_journal_on_postgres() {
    let receipts = Receipts::start();
    receipts.on(IDEMPOTENT, Way { stops_before: true, ..Way::default() });
    let mut station = Station::build(Place::Postgres(TemporaryDatabase::create().await), &receipts);
    let submit = |station: &Station| {
        let said = station.command(&["runs", "submit", "--plan", "-"], Some(&plan()));
        assert_eq!(said.exit, 0, "{said:?}");
        said.json()["runId"].as_str().unwrap().to_owned()
    };

    // Held while its call is out, and let go again.
    let run = submit(&station);
    receipts.arrived(1).await;
    assert_eq!(ok(&station, &["runs", "pause", &run, "--reason", "a look"])["status"], "paused");
    receipts.go();
    assert_ne!(ok(&station, &["runs", "resume", &run])["status"], "paused");
    let watched = station.command(&["runs", "watch", &run], None);
    assert_eq!(watched.exit, 0, "{watched:?}");
    let kinds: Vec<String> = watched.out.lines().map(kind).collect();
    assert_eq!((kinds.first().unwrap().as_str(), kinds.last().unwrap().as_str()), ("run-submitted", "run-closed"));
    assert_eq!(kinds.iter().filter(|kind| *kind == "control-applied").count(), 2);
    let shown = ok(&station, &["runs", "get", &run]);
    assert_eq!(
        (&shown["status"], &shown["closed"], &shown["percent"]),
        (&json!("completed"), &json!(true), &json!(100))
    );

    // Killed by somebody, and killed by a power cut while another run has a call out.
    receipts.on(IDEMPOTENT, Way { stops_before: true, ..Way::default() });
    let (doomed, survivor) = (submit(&station), submit(&station));
    receipts.arrived(4).await;
    assert_eq!(ok(&station, &["runs", "kill", &doomed, "--reason", "enough"])["status"], "killed");
    station.kill();
    station.start();
    receipts.go();
    let watched = station.command(&["runs", "watch", &survivor], None);
    assert_eq!(watched.exit, 0, "{watched:?}");
    let shown = ok(&station, &["runs", "get", &survivor]);
    assert_eq!(
        (&shown["status"], &shown["envelope"]["toolCalls"].as_array().unwrap().len()),
        (&json!("completed"), &2)
    );
    let mut client = station.client().await;
    client.until(doomed.parse::<Uuid>().unwrap(), |run| run.closed).await;
    let listed = ok(&station, &["runs", "list", "--status", "killed"]);
    assert_eq!(listed["runs"][0]["runId"], doomed.as_str());
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);

    // Replayed, verified by the server, exported, and verified without one.
    let before = ok(&station, &["runs", "replay", &run, "--at", "3"]);
    assert_eq!(before["envelope"]["lastSeq"], 3);
    let files = TempDir::new().unwrap();
    for run in [&run, &doomed, &survivor] {
        assert_eq!(station.command(&["verify", run], None).exit, 0);
        let exported = station.command(&["runs", "export", run], None);
        assert_eq!(exported.exit, 0, "{exported:?}");
        let file = put(files.path(), "journal.jsonl", &exported.out);
        assert_eq!(station.command(&["verify", &file], None).exit, 0);
        let damaged = put(files.path(), "damaged.jsonl", &exported.out.replacen("\"seq\":2", "\"seq\":3", 1));
        assert_eq!(station.command(&["verify", &damaged], None).exit, 1);
    }
}

fn kind(line: &str) -> String {
    let event: Value = serde_json::from_str(line).unwrap();
    event["kind"].as_str().unwrap_or_default().to_owned()
}
