//! What a node really answers is what the served document says: every field of it, and no other (EXE-017).

use std::time::Duration;

use serde_json::{Value, json};

use super::node::{RUN, Served};
use super::{JSON, Reply, get, post, send};

const SCOPED: (&str, &str) = ("scopes", "tool:memory.read tool:memory.write tool:web.fetch");

/// The served document, made strict: what it does not describe may not be there.
struct Document(Value);

impl Document {
    async fn of(served: &Served) -> Self {
        let mut document = get(served.address, "/openapi.json").await.json();
        for schema in document["components"]["schemas"].as_object_mut().unwrap().values_mut() {
            let members = schema.as_object_mut().unwrap();
            if !members.contains_key("additionalProperties") {
                members.insert("unevaluatedProperties".to_owned(), json!(false));
            }
        }
        Self(document)
    }

    fn check(&self, pointer: &str, value: &Value) {
        let schema = self.0.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}"));
        let whole = json!({ "allOf": [schema], "components": self.0["components"] });
        let validator = jsonschema::draft202012::new(&whole).unwrap();
        let problems: Vec<String> =
            validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(problems.is_empty(), "{pointer}: {problems:#?}");
    }

    fn answer(&self, verb: &str, path: &str, reply: &Reply) -> Value {
        let path = path.replace('/', "~1");
        let media = reply.header("content-type").replace('/', "~1");
        let pointer = format!("/paths/{path}/{verb}/responses/{}/content/{media}/schema", reply.status);
        let value = reply.json();
        self.check(&pointer, &value);
        value
    }

    async fn get(&self, served: &Served, path: &str, target: &str) -> Value {
        self.answer("get", path, &get(served.address, target).await)
    }

    async fn post(&self, served: &Served, path: &str, target: &str, body: &Value) -> Value {
        let pointer = path.replace('/', "~1");
        self.check(&format!("/paths/{pointer}/post/requestBody/content/application~1json/schema"), body);
        let reply = send(served.address, target, &[JSON, SCOPED], body.to_string().as_bytes()).await;
        assert!(reply.status < 300, "{target}: {}", reply.text());
        self.answer("post", path, &reply)
    }

    /// Everything that can be read of a run.
    async fn read(&self, served: &Served, run: &str) -> Value {
        let shown = self.get(served, "/v1/runs/{runId}", &format!("/v1/runs/{run}")).await;
        for seq in 1..=shown["lastSeq"].as_u64().unwrap() {
            self.get(served, "/v1/runs/{runId}/replay", &format!("/v1/runs/{run}/replay?atSeq={seq}")).await;
        }
        self.get(served, "/v1/runs/{runId}/explain", &format!("/v1/runs/{run}/explain")).await;
        shown
    }

    async fn until(&self, served: &Served, run: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..500 {
            let shown = served.run(run).await;
            if is_so(&shown) {
                return self.read(served, run).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it never came so far: {}", served.run(run).await);
    }
}

#[tokio::test]
async fn what_a_run_with_calls_a_question_and_budgets_is_answered_as_is_what_the_document_says() {
    let served = Served::start().await;
    let document = Document::of(&served).await;
    let job = json!({
        "runId": RUN, "rootAgentId": "ref.course-generation", "inputs": {"topic": "tides"},
        "budgets": [{"category": "cost-units", "limit": 40.5, "onExceeded": "pause"}],
        "modeOverride": {"maxCostUnits": 400},
        "plan": {"maxParallel": 2, "steps": [
            {"stepId": "read", "kind": "tool", "toolId": "memory.read", "args": {"key": {"$from": "/inputs/topic"}}},
            {"stepId": "gate", "kind": "approval", "prompt": "Keep it?", "dependsOnStepIds": ["read"]},
            {"stepId": "keep", "kind": "tool", "toolId": "memory.write", "approvedBy": "gate",
             "args": {"key": "kept", "value": 7}},
            {"stepId": "choose", "kind": "branch", "branches": [{"branchId": "go", "title": "Go on"}, {"branchId": "no"}],
             "dependsOnStepIds": ["keep"]},
            {"stepId": "more", "kind": "wait", "seconds": 0, "when": {"stepId": "choose", "branchId": "go"}},
        ]},
    });
    document.post(&served, "/v1/runs", "/v1/runs", &job).await;
    document.post(&served, "/v1/runs", "/v1/runs", &job).await;
    document.until(&served, RUN, |run| run["status"] == "awaiting_approval").await;
    let open = document.get(&served, "/v1/approvals", "/v1/approvals").await;
    let question = open["approvals"][0]["approvalId"].as_str().unwrap();
    let one = "/v1/approvals/{approvalId}";
    document.get(&served, one, &format!("/v1/approvals/{question}")).await;
    let yes = json!({"decision": "approve", "reason": "read it"});
    let decide = format!("/v1/approvals/{question}/decide");
    document.post(&served, "/v1/approvals/{approvalId}/decide", &decide, &yes).await;
    document.get(&served, one, &format!("/v1/approvals/{question}")).await;
    let chooses = |run: &Value| run["waitingFor"].is_string() && run["envelope"]["steps"][2]["state"] == "done";
    document.until(&served, RUN, |run| chooses(run) || run["status"] == "awaiting_branch").await;
    let choice = json!({"branchId": "go", "reason": "why not"});
    let choose = format!("/v1/runs/{RUN}/choose-branch");
    document.post(&served, "/v1/runs/{runId}/choose-branch", &choose, &choice).await;
    let run = document.until(&served, RUN, |run| run["closed"] == true).await;
    assert_eq!((&run["status"], run["envelope"]["toolCalls"].as_array().unwrap().len()), (&json!("completed"), 2));
    document.get(&served, "/v1/runs", "/v1/runs").await;
}

#[tokio::test]
async fn what_is_told_of_denials_kills_rehearsals_and_forks_is_what_the_document_says() {
    let served = Served::start().await;
    let document = Document::of(&served).await;
    let execute = "/v1/agentic/runs/execute";
    let id = |n: u8| format!("0190d6a8-3c1e-7bbb-8f5e-0000000000{n:02x}");
    let fetch = json!({"runId": id(1), "tenantId": "acme", "rootAgentId": "ref.research",
        "plan": [{"toolId": "web.fetch", "args": {"url": "https://example.org/"}}]});
    document.post(&served, execute, &format!("{execute}?wait=20"), &fetch).await;
    let denied = document.read(&served, &id(1)).await;
    assert_eq!(denied["status"], "failed", "{denied}");
    let explained = get(served.address, &format!("/v1/runs/{}/explain", id(1))).await.json();
    assert!(!explained["calls"][0]["answers"].as_array().unwrap().is_empty(), "{explained}");
    let fork = format!("/v1/runs/{}/fork", id(1));
    let forked = json!({"runId": id(2), "reason": "again"});
    document.post(&served, "/v1/runs/{runId}/fork", &fork, &forked).await;
    document.until(&served, &id(2), |run| run["closed"] == true).await;

    let rehearsed = json!({"runId": id(3), "rootAgentId": "ref.course-generation", "mode": "rehearsal-dry-run",
        "plan": [{"stepId": "keep", "kind": "tool", "toolId": "memory.write", "args": {"key": "k", "value": 1}}],
        "invocation": {"entitlements": ["tool:memory.write"], "sourceSet": [], "tone": "neutral", "persona": "lilith.scribe",
            "consent": null}});
    document.post(&served, "/v1/runs", "/v1/runs", &rehearsed).await;
    let run = document.until(&served, &id(3), |run| run["closed"] == true).await;
    assert_eq!(run["envelope"]["toolCalls"][0]["simulated"], true, "{run}");

    let waits = json!({"runId": id(4), "rootAgentId": "ref.research",
        "plan": [{"stepId": "pause", "kind": "wait", "seconds": 600}]});
    document.post(&served, "/v1/runs", "/v1/runs", &waits).await;
    for (action, body) in [("pause", json!({"reason": "look"})), ("kill", json!({"reason": "enough"}))] {
        let path = format!("/v1/runs/{{runId}}/{action}");
        document.post(&served, &path, &format!("/v1/runs/{}/{action}", id(4)), &body).await;
        document.read(&served, &id(4)).await;
    }
    let switch = json!({"switchId": "no-web", "scope": "tool", "targetId": "web.fetch", "reason": "why",
        "userVisibleStatusCopy": "closed"});
    let switches = "/api/admin/agentic-operations/kill-switches";
    document.post(&served, switches, switches, &switch).await;
    document.get(&served, switches, switches).await;
    let compliance = "/api/admin/agentic-operations/mode-compliance";
    let asked = format!("{compliance}?agentId=ref.course-generation&mode=rehearsal-dry-run");
    let told = document.get(&served, compliance, &asked).await;
    assert_eq!((&told["runs"], &told["breaches"]), (&json!(1), &json!([])), "{told}");
    let snapshot = "/api/admin/agentic-operations/snapshot";
    document.get(&served, snapshot, snapshot).await;
    let mut killed = fetch;
    killed["runId"] = json!(id(5));
    document.post(&served, execute, &format!("{execute}?wait=20"), &killed).await;
    assert_eq!(document.read(&served, &id(5)).await["status"], "killed");
    let disarm = format!("{switches}/{{switchId}}/disarm");
    document.post(&served, &disarm, &format!("{switches}/no-web/disarm"), &json!({"reason": "over"})).await;

    let refused = post(served.address, "/v1/runs", &json!({"rootAgentId": "ref.research"})).await;
    document.answer("post", "/v1/runs", &refused);
}
