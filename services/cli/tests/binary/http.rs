//! HTTP as a script meets it: a job is submitted, watched to its end and approved on the way, at the address that gRPC has.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{Server, put, run, signalbox};

const RUN: &str = "0190d6a8-3c1e-7bbb-8f5e-0000000000aa";

fn connect(server: &Server, method: &str, target: &str, headers: &str, body: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(server.addr.strip_prefix("http://").unwrap()).unwrap();
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    BufReader::new(stream)
}

fn status(answer: &mut BufReader<TcpStream>) -> (u16, bool) {
    let mut line = String::new();
    answer.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    let mut chunked = false;
    loop {
        line.clear();
        answer.read_line(&mut line).unwrap();
        chunked |= line.eq_ignore_ascii_case("transfer-encoding: chunked\r\n");
        if line == "\r\n" {
            return (status, chunked);
        }
    }
}

fn ask(server: &Server, method: &str, target: &str, body: &Value) -> (u16, String) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let headers = if body.is_null() { "" } else { "content-type: application/json\r\n" };
    let mut answer = connect(server, method, target, headers, &text);
    let (status, chunked) = status(&mut answer);
    let mut rest = String::new();
    if chunked {
        while let Some(chunk) = chunk(&mut answer) {
            rest.push_str(&chunk);
        }
    } else {
        answer.read_to_string(&mut rest).unwrap();
    }
    (status, rest)
}

fn chunk(answer: &mut BufReader<TcpStream>) -> Option<String> {
    let mut size = String::new();
    answer.read_line(&mut size).unwrap();
    let size = usize::from_str_radix(size.trim_end(), 16).unwrap_or(0);
    let mut bytes = vec![0; size + 2];
    answer.read_exact(&mut bytes).ok()?;
    bytes.truncate(size);
    (size > 0).then(|| String::from_utf8(bytes).unwrap())
}

fn parsed(answer: &(u16, String)) -> Value {
    serde_json::from_str(&answer.1).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn job() -> Value {
    json!({"rootAgentId": "ref.course-generation", "plan": [
        {"stepId": "read", "kind": "tool", "toolId": "memory.read", "args": {"key": "draft"}},
        {"stepId": "gate", "kind": "approval", "prompt": "Keep it?", "dependsOnStepIds": ["read"]},
        {"stepId": "keep", "kind": "tool", "toolId": "memory.write", "approvedBy": "gate",
         "args": {"key": "kept", "value": {"$from": "/steps/read/output"}}},
    ]})
}

#[test]
fn a_job_is_submitted_watched_to_its_end_and_approved_on_the_way() {
    let server = Server::start();
    let submitted = ask(&server, "POST", "/v1/runs", &job());
    assert_eq!(submitted.0, 201, "{submitted:?}");
    let run_id = parsed(&submitted)["runId"].as_str().unwrap().to_owned();

    let mut stream = connect(&server, "GET", &format!("/v1/runs/{run_id}/events"), "", "");
    assert_eq!(status(&mut stream), (200, true));
    let (mut seen, mut text, mut kinds, mut ended) = (0, String::new(), Vec::new(), Value::Null);
    while let Some(piece) = chunk(&mut stream) {
        text.push_str(&piece);
        while let Some((frame, rest)) = text.split_once("\n\n").map(|(a, b)| (a.to_owned(), b.to_owned())) {
            text = rest;
            let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            let data: Value = serde_json::from_str(field("data: ")).unwrap_or_default();
            match field("event: ") {
                "end" => ended = data,
                "" if data.is_object() => {
                    seen += 1;
                    assert_eq!((field("id: "), &data["seq"]), (seen.to_string().as_str(), &json!(seen)));
                    kinds.push(data["kind"].as_str().unwrap().to_owned());
                }
                _ => {}
            }
            if kinds.last().is_some_and(|kind| kind == "approval-requested") && ended.is_null() {
                let open = parsed(&ask(&server, "GET", "/v1/approvals", &Value::Null));
                // Asked again for each event that comes before the answer's own.
                if let Some(question) = open["approvals"][0]["approvalId"].as_str() {
                    let digest = &open["approvals"][0]["subjectDigest"];
                    let yes = json!({"decision": "approve", "reason": "read it", "subjectDigest": digest});
                    let decided = ask(&server, "POST", &format!("/v1/approvals/{question}/decide"), &yes);
                    assert_eq!(decided.0, 200, "{decided:?}");
                }
            }
        }
    }
    assert_eq!((&ended["status"], &ended["lastSeq"]), (&json!("completed"), &json!(seen)), "{kinds:?}");
    assert_eq!((kinds.first().unwrap().as_str(), kinds.last().unwrap().as_str()), ("run-submitted", "run-closed"));
    assert!(kinds.contains(&"approval-decided".to_owned()));

    let run_now = parsed(&ask(&server, "GET", &format!("/v1/runs/{run_id}"), &Value::Null));
    assert_eq!(
        (&run_now["status"], &run_now["envelope"]["approvals"][0]["decisionReason"]),
        (&json!("completed"), &json!("read it"))
    );
    // gRPC, at the same address, knows the same run.
    assert_eq!(server.json(&format!("runs get {run_id}")).json()["totalCostUnits"], run_now["totalCostUnits"]);
    // What is exported here is what `verify` reads without a server.
    let exported = ask(&server, "GET", &format!("/v1/runs/{run_id}/export"), &Value::Null);
    put(server.data.path(), "journal.jsonl", &exported.1);
    let verified = run(signalbox().args(["verify", "--output", "json"]).arg(server.data.path().join("journal.jsonl")));
    assert_eq!(verified.json()["ok"], true, "{verified:?}");
    assert_eq!(exported.1, run(&mut server.command(&format!("runs export {run_id}"))).out);
}

#[test]
fn the_front_door_executes_a_plan_waits_for_its_end_and_replays_it() {
    let server = Server::start();
    let body = json!({"runId": RUN, "tenantId": "default", "rootAgentId": "ref.course-generation", "plan": [
        {"toolId": "memory.write", "args": {"key": "k", "value": 7}},
        {"toolId": "memory.read", "args": {"key": "k"}},
    ]});
    let target = "/v1/agentic/runs/execute?wait=30";
    let first = ask(&server, "POST", target, &body);
    assert_eq!(first.0, 200, "{first:?}");
    let first = parsed(&first);
    assert_eq!(
        (&first["status"], &first["closed"], &first["replayed"]),
        (&json!("completed"), &json!(true), &json!(false))
    );
    assert_eq!(first["envelope"]["toolCalls"].as_array().unwrap().len(), 2);
    assert_eq!(parsed(&ask(&server, "POST", target, &body))["replayed"], true);

    // Its agent's runs in this mode are held against the mode together.
    let compliance = "/api/admin/agentic-operations/mode-compliance?agentId=ref.course-generation&mode=balanced";
    let series = parsed(&ask(&server, "GET", compliance, &Value::Null));
    assert_eq!((&series["runs"], &series["p95LatencyBudgetMs"]), (&json!(1), &json!(10_000)), "{series}");
    assert_eq!(series["p95LatencyMs"], first["envelope"]["compliance"]["latencyMs"]);
    let unknown = ask(&server, "GET", &compliance.replace("balanced", "hasty"), &Value::Null);
    assert_eq!((unknown.0, &parsed(&unknown)["code"]), (400, &json!("mode-unknown")));

    let mut other = body.clone();
    other["plan"][0]["args"]["value"] = json!(8);
    let refused = ask(&server, "POST", target, &other);
    assert_eq!((refused.0, &parsed(&refused)["code"]), (409, &json!("run_id_conflict")));
    let mut unserved = body;
    unserved["runId"] = json!("0190d6a8-3c1e-7bbb-8f5e-0000000000ab");
    unserved["plan"] = json!([{"toolId": "calendar.write"}]);
    let refused = ask(&server, "POST", target, &unserved);
    assert_eq!((refused.0, &parsed(&refused)["code"]), (503, &json!("agent_tools_not_configured")));
    assert_eq!(server.json("runs list").json()["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn an_operator_arms_lists_and_disarms_a_switch_and_reads_the_snapshot_over_http() {
    let server = Server::start();
    let (switches, snapshot) =
        ("/api/admin/agentic-operations/kill-switches", "/api/admin/agentic-operations/snapshot");
    let wish = json!({"switchId": "no-memory", "scope": "tool", "targetId": "memory.read", "reason": "it looks odd",
        "userVisibleStatusCopy": "Back soon.", "wait": true});
    let armed = ask(&server, "POST", switches, &wish);
    assert_eq!(armed.0, 201, "{armed:?}");
    let armed = parsed(&armed);
    assert_eq!((&armed["switch"]["state"], &armed["replayed"]), (&json!("armed"), &json!(false)));
    assert!(armed["sweptAfterMs"].is_u64(), "{armed}");
    let again = ask(&server, "POST", switches, &wish);
    assert_eq!((again.0, &parsed(&again)["replayed"]), (200, &json!(true)));
    let listed = parsed(&ask(&server, "GET", switches, &Value::Null));
    assert_eq!(listed["killSwitches"][0]["switchId"], "no-memory");

    // It stops what it names, from the next call on.
    let body = json!({"runId": RUN, "tenantId": "default", "rootAgentId": "ref.course-generation",
        "plan": [{"toolId": "memory.read", "args": {"key": "k"}}]});
    let killed = parsed(&ask(&server, "POST", "/v1/agentic/runs/execute?wait=30", &body));
    assert_eq!(killed["status"], "killed", "{killed}");
    let now = parsed(&ask(&server, "GET", snapshot, &Value::Null));
    assert_eq!(now["activeSwitches"][0]["switchId"], "no-memory");
    let counted: u64 = now["counts"].as_array().unwrap().iter().map(|count| count["runs"].as_u64().unwrap()).sum();
    assert_eq!(counted, 1, "{now}");
    // Over gRPC it is the same switch.
    assert_eq!(server.json("switches show no-memory").json()["reason"], "it looks odd");

    let why = json!({"reason": "it was nothing"});
    let disarm = format!("{switches}/no-memory/disarm");
    let disarmed = ask(&server, "POST", &disarm, &why);
    assert_eq!((disarmed.0, &parsed(&disarmed)["disarmed"]), (200, &json!(true)));
    assert_eq!(parsed(&ask(&server, "GET", switches, &Value::Null))["killSwitches"], json!([]));
    let all = parsed(&ask(&server, "GET", &format!("{switches}?all=true"), &Value::Null));
    assert_eq!(all["killSwitches"][0]["state"], "disarmed");
    let twice = ask(&server, "POST", &disarm, &why);
    assert_eq!((twice.0, &parsed(&twice)["code"]), (412, &json!("switch-already-disarmed")));
    let unknown = ask(&server, "POST", &format!("{switches}/none/disarm"), &why);
    assert_eq!((unknown.0, &parsed(&unknown)["code"]), (404, &json!("no-such-switch")));
    let mut odd = wish;
    odd["colour"] = json!("red");
    let refused = ask(&server, "POST", switches, &odd);
    assert_eq!((refused.0, &parsed(&refused)["code"]), (400, &json!("unknown-field")));
    let mut body = body;
    body["runId"] = json!("0190d6a8-3c1e-7bbb-8f5e-0000000000ad");
    let runs = parsed(&ask(&server, "POST", "/v1/agentic/runs/execute?wait=30", &body));
    assert_eq!(runs["status"], "completed", "{runs}");
}

#[test]
fn a_preflight_over_http_tells_what_is_lacking_and_makes_no_run() {
    let server = Server::start();
    let told = ask(&server, "POST", "/v1/runs/preflight", &job());
    assert_eq!(told.0, 200, "{told:?}");
    let told = parsed(&told);
    assert_eq!((&told["ok"], &told["gaps"], &told["mode"]), (&json!(true), &json!([]), &json!("balanced")));
    assert!(told["estimateCostUnits"].as_f64().unwrap() > 0.0, "{told}");
    let mut lacking = job();
    lacking["mode"] = json!("deep");
    lacking["invocation"] =
        json!({"entitlements": [], "sourceSet": [], "tone": "neutral", "persona": "none", "consent": null});
    let told = parsed(&ask(&server, "POST", "/v1/runs/preflight", &lacking));
    let codes: Vec<&str> = told["gaps"].as_array().unwrap().iter().map(|gap| gap["code"].as_str().unwrap()).collect();
    assert!(told["ok"] == false && codes.contains(&"missing-entitlement"), "{told}");
    let mut named = job();
    named["runId"] = json!(RUN);
    let refused = ask(&server, "POST", "/v1/runs/preflight", &named);
    assert_eq!((refused.0, &parsed(&refused)["code"]), (400, &json!("run-id-not-taken")));
    assert_eq!(server.json("runs list").json()["runs"], json!([]));
}

#[test]
fn a_configured_rate_holds_whoever_asks_too_often() {
    let data = tempfile::TempDir::new().unwrap();
    put(data.path(), "box.toml", "[limits]\nrequestsPerSecond = 1\nrequestsBurst = 3\n");
    let config = data.path().join("box.toml").to_str().unwrap().to_owned();
    let server = Server::over(data, &["--config", &config]);
    let codes: Vec<u16> = (0..5).map(|_| ask(&server, "GET", "/v1/runs", &Value::Null).0).collect();
    assert!(codes[..3] == [200; 3] && codes[3..].contains(&429), "{codes:?}");
}
