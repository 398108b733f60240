//! The page on hand-offs, done as it says.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Server, run};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);

fn from_the_page() -> Value {
    let page = include_str!("../../../../docs/hand-offs.md");
    let (_, rest) = page.split_once("```json\n").unwrap();
    serde_json::from_str(rest.split_once("```").unwrap().0).unwrap()
}

fn until(what: impl Fn() -> Option<Value>) -> Value {
    let began = Instant::now();
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "it never came to that");
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Server {
    fn hands_off(&self, plan: &Value) -> String {
        let said = self.submit(plan, "");
        assert_eq!(said.exit, 0, "{said:?}");
        said.json()["runId"].as_str().unwrap().to_owned()
    }

    fn ended(&self, run_id: &str) -> Value {
        until(|| {
            let run = self.json(&format!("runs get {run_id}")).json();
            ["completed", "failed", "cancelled", "killed"].contains(&run["status"].as_str()?).then_some(run)
        })
    }

    fn asked(&self) -> Value {
        until(|| self.json("approvals list").json()["approvals"].get(0).cloned())
    }
}

#[test]
fn the_plan_on_the_page_hands_off_and_its_tree_adds_up() {
    let server = Server::start();
    let run_id = server.hands_off(&from_the_page());
    let asked = server.asked();
    assert_ne!(asked["runId"], json!(run_id), "the sub-run asks");
    let id = asked["approvalId"].as_str().unwrap();
    assert_eq!(server.json(&format!("approvals decide {id} --approve --reason good")).exit, 0);
    let ended = server.ended(&run_id);
    assert_eq!(ended["status"], "completed", "{ended}");
    let tree = server.json(&format!("runs get {run_id} --tree")).json();
    let [top, below] = tree.as_array().unwrap().as_slice() else { panic!("{tree}") };
    assert_eq!((&top["runId"], &top["depth"]), (&json!(run_id), &json!(0)));
    assert_eq!((&below["parentRunId"], &below["stepId"]), (&json!(run_id), &json!("schedule")));
    assert_eq!((&below["agentId"], &below["given"]), (&json!("ref.study-plan-synthesis"), &json!(10)));
    assert!(top["cost"].as_f64().unwrap() > below["cost"].as_f64().unwrap());
    let child = below["runId"].as_str().unwrap();
    let text = run(&mut server.command(&format!("runs get {run_id} --tree")));
    assert!(text.out.contains(&format!("  {child}")), "{}", text.out);
    for each in [run_id.as_str(), child] {
        assert_eq!(server.json(&format!("verify {each}")).exit, 0);
    }
}

#[test]
fn explain_says_why_a_hand_off_was_refused() {
    let server = Server::start();
    let mut plan = from_the_page();
    plan["plan"][0]["subBudget"] = json!(1_000_000);
    let run_id = server.hands_off(&plan);
    let ended = server.ended(&run_id);
    assert_eq!(ended["status"], "failed", "{ended}");
    let told = run(&mut server.command(&format!("explain {run_id}")));
    for part in ["budget-exceeds-parent", "it asks for 1000000.0", "schedule", "ref.study-plan-synthesis"] {
        assert!(told.out.contains(part), "{part}: {}", told.out);
    }
}

#[test]
fn killing_a_run_kills_what_is_below_it() {
    let server = Server::start();
    let run_id = server.hands_off(&from_the_page());
    let child = server.asked()["runId"].as_str().unwrap().to_owned();
    assert_eq!(server.json(&format!("runs kill {run_id} --reason enough")).exit, 0);
    for each in [&run_id, &child] {
        assert_eq!(server.ended(each)["status"], "killed");
    }
    assert_eq!(server.json("approvals list").json()["approvals"], json!([]), "nobody is asked any more");
}

#[test]
fn a_body_cannot_say_whose_child_a_run_is() {
    let server = Server::start();
    for member in ["parentRunId", "handedOff", "chain"] {
        let mut plan = from_the_page();
        plan[member] = json!("0190c6f0-0000-7000-8000-000000000001");
        let refused = server.submit(&plan, "");
        assert_eq!(refused.exit, 1, "{refused:?}");
        assert!(refused.err.contains(member), "{refused:?}");
    }
}
