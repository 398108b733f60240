//! Two processes serve one PostgreSQL: one set of budgets, and the runs of one that dies go on at the other.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

use crate::harness::{Said, Server, put, run};

/// A database that is there until this is dropped.
pub(crate) struct Database {
    server: Url,
    name: String,
}

impl Database {
    pub(crate) fn create() -> Self {
        // Never skipped: a suite that is green because it could not be run is worth nothing.
        let Ok(url) = std::env::var("DATABASE_URL") else { panic!("run it through make test") };
        let database =
            Self { server: Url::parse(&url).unwrap(), name: format!("sb_test_{}", uuid::Uuid::new_v4().simple()) };
        database.on_server(&format!("CREATE DATABASE {}", database.name));
        database
    }

    pub(crate) fn url(&self) -> String {
        let mut url = self.server.clone();
        url.set_path(&self.name);
        url.to_string()
    }

    /// What a query of one row and one column says.
    pub(crate) fn ask(&self, sql: &str) -> String {
        let arguments = ["--quiet", "--no-psqlrc", "--tuples-only", "--no-align", "--command", sql];
        let psql = Command::new("psql").args(arguments).arg(self.url()).output();
        let psql = psql.unwrap_or_else(|error| panic!("psql: {error}; apt-get install postgresql-client"));
        assert!(psql.status.success(), "{}", String::from_utf8_lossy(&psql.stderr));
        String::from_utf8_lossy(&psql.stdout).trim().to_owned()
    }

    fn on_server(&self, sql: &str) {
        let psql =
            Command::new("psql").args(["--quiet", "--no-psqlrc", "--command", sql]).arg(self.server.as_str()).output();
        let psql = psql.unwrap_or_else(|error| panic!("psql: {error}; apt-get install postgresql-client"));
        assert!(psql.status.success(), "{}", String::from_utf8_lossy(&psql.stderr));
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.on_server(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// The statements that docs/deploying.md gives: a role that reads and writes rows, and may not change the schema.
const SERVING_ROLE: &str = "GRANT USAGE ON SCHEMA public TO {role}; \
    REVOKE CREATE ON SCHEMA public FROM PUBLIC; \
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}; \
    GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}";

#[test]
fn a_node_serves_with_a_role_that_may_not_change_the_schema() {
    let database = Database::create();
    let role = format!("sb_serving_{}", uuid::Uuid::new_v4().simple());
    let migrate = |url: &str| run(crate::harness::signalbox().args(["migrate", "--store", url, "--output", "json"]));
    assert_eq!(migrate(&database.url()).exit, 0);
    let database_url = database.url();
    let sql = |sql: &str| {
        let args = ["--quiet", "--no-psqlrc", "--command"];
        let psql = Command::new("psql").args(args).arg(sql).arg(&database_url).output().unwrap();
        assert!(psql.status.success(), "{}", String::from_utf8_lossy(&psql.stderr));
    };
    sql(&format!("CREATE ROLE {role} LOGIN PASSWORD 'FAKE-serving'"));
    sql(&SERVING_ROLE.replace("{role}", &role));
    let mut url = Url::parse(&database.url()).unwrap();
    url.set_username(&role).unwrap();
    url.set_password(Some("FAKE-serving")).unwrap();
    {
        let server = Server::over(TempDir::new().unwrap(), &["--store", url.as_str()]);
        let read = json!([{"stepId": "a", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}}]);
        let said = server.submit(&json!({"rootAgentId": "ref.drafting", "plan": read}), "--watch");
        assert_eq!(said.exit, 0, "{said:?}");
        assert_eq!(server.json("switches arm --scope tool --target web.fetch --reason x --wait").exit, 0);
        assert_eq!(server.json("keys create --name loader --days 1").exit, 0);
        assert!(server.json("audit list").out.contains("api-key-made"));
        assert_eq!(server.json("budgets put daily --scope tenant --key default --limit 5 --reason x").exit, 0);
        let (exit, _) = server.end();
        assert_eq!(exit, 0);
    }
    // What such a role cannot do is said, and nothing is half done.
    let empty = Database::create();
    let mut elsewhere = Url::parse(&empty.url()).unwrap();
    elsewhere.set_username(&role).unwrap();
    elsewhere.set_password(Some("FAKE-serving")).unwrap();
    let refused = migrate(elsewhere.as_str());
    assert_eq!((refused.exit, refused.code()), (1, "store-unavailable"), "{refused:?}");
    assert!(!refused.err.contains("FAKE-serving"), "{refused:?}");
    sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

fn serve(database: &Database, config: &str) -> Server {
    let data = TempDir::new().unwrap();
    put(data.path(), "signalbox.toml", config);
    let config = data.path().join("signalbox.toml").to_str().unwrap().to_owned();
    Server::over(data, &["--config", &config, "--store", &database.url()])
}

/// Asks until the answer is as hoped for.
fn until(what: &str, mut ask: impl FnMut() -> Option<Said>) -> Said {
    let begun = Instant::now();
    loop {
        if let Some(said) = ask() {
            return said;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn closed(server: &Server, run_id: &str) -> Value {
    let said = until("the run is closed", || {
        let said = server.json(&format!("runs get {run_id}"));
        (said.exit == 0 && said.json()["closed"] == true).then_some(said)
    });
    said.json()
}

#[test]
fn of_twenty_runs_on_two_processes_three_can_be_paid_for() {
    const LIMIT_FOR_THREE: &str = r#"
        [[budgets]]
        budgetId = "three"
        tenantId = "default"
        scope = "tenant"
        scopeKey = "default"
        category = "cost-units"
        limit = 3.333333
        onExceeded = "kill"
    "#;
    let database = Database::create();
    let servers = [serve(&database, LIMIT_FOR_THREE), serve(&database, LIMIT_FOR_THREE)];
    // All of them come out of their pause at about the same time.
    let plan = json!({"rootAgentId": "ref.drafting", "plan": [
        {"stepId": "pause", "kind": "wait", "seconds": 3},
        {"stepId": "call", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}, "dependsOnStepIds": ["pause"]},
    ]});
    let runs: Vec<String> = std::thread::scope(|scope| {
        let submitting = servers.iter().map(|server| {
            let plan = &plan;
            scope.spawn(move || {
                let submit = |_| server.submit(plan, "").json()["runId"].as_str().unwrap().to_owned();
                (0..10).map(submit).collect::<Vec<_>>()
            })
        });
        let submitting: Vec<_> = submitting.collect();
        submitting.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    // What one process did, the other can tell.
    let ended = |run: &String| closed(&servers[1], run)["status"].as_str().unwrap().to_owned();
    let statuses: Vec<String> = runs.iter().map(ended).collect();
    assert_eq!(statuses.iter().filter(|status| *status == "completed").count(), 3, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| *status == "killed").count(), 17, "{statuses:?}");
    let paid: f64 = runs.iter().map(|run| closed(&servers[0], run)["totalCostUnits"].as_f64().unwrap_or(0.0)).sum();
    assert!((paid - 3.0).abs() < 1e-9, "{paid}");
}

/// Takes as long as a lease lasts.
#[test]
fn the_runs_of_a_process_that_dies_go_on_at_the_other() {
    let database = Database::create();
    let (dying, other) = (serve(&database, ""), serve(&database, ""));
    let plan = json!({"rootAgentId": "ref.drafting", "plan": [
        {"stepId": "pause", "kind": "wait", "seconds": 2},
        {"stepId": "call", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}, "dependsOnStepIds": ["pause"]},
    ]});
    let run_id = dying.submit(&plan, "").json()["runId"].as_str().unwrap().to_owned();
    assert_eq!(other.json(&format!("runs get {run_id}")).exit, 0, "it is known everywhere");
    drop(dying.cut());
    assert_eq!(closed(&other, &run_id)["status"], "completed");
    assert_eq!(other.json(&format!("verify {run_id}")).exit, 0);
}

/// Takes until the run is parked: a command reaches its owner then.
#[test]
fn a_question_is_answered_at_whichever_process_is_asked() {
    let database = Database::create();
    let (owner, other) = (serve(&database, ""), serve(&database, ""));
    let plan = json!({"rootAgentId": "ref.drafting", "plan": [
        {"stepId": "gate", "kind": "approval", "prompt": "Go on?", "subject": {"n": 1}},
        {"stepId": "done", "kind": "wait", "seconds": 0, "dependsOnStepIds": ["gate"]},
    ]});
    let run_id = owner.submit(&plan, "").json()["runId"].as_str().unwrap().to_owned();
    let open = until("the question is open", || {
        let said = other.json("approvals list");
        said.json()["approvals"][0]["approvalId"].is_string().then_some(said)
    });
    let question = open.json()["approvals"][0]["approvalId"].as_str().unwrap().to_owned();
    let decided = other.json(&format!("approvals decide {question} --approve --reason ok"));
    assert_eq!(decided.exit, 0, "{decided:?}");
    assert_eq!(closed(&owner, &run_id)["status"], "completed");
}
