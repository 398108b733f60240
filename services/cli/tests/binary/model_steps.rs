//! Model steps through the binary: the sample plan end to end, after a power cut too, with a journal that verifies; and a
//! provider on loopback that is asked for real.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, put};

const KEY: &str = "FAKE-provider-key-of-a-test";

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/model-step").join(name)
}

fn plan() -> Value {
    serde_json::from_str(&std::fs::read_to_string(sample("plan.json")).unwrap()).unwrap()
}

fn start(data: TempDir) -> Server {
    let config = sample("models.toml");
    Server::over(data, &["--config", config.to_str().unwrap()])
}

fn submitted(server: &Server, plan: &Value) -> String {
    let said = server.submit(plan, "");
    assert_eq!(said.exit, 0, "{said:?}");
    said.json()["runId"].as_str().unwrap().to_owned()
}

fn ended(server: &Server, run: &str) -> Value {
    let patience = Instant::now();
    loop {
        let shown = server.json(&format!("runs get {run}")).json();
        if shown["closed"] == true {
            return shown;
        }
        assert!(patience.elapsed() < Duration::from_secs(60), "{shown:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_sample_runs_end_to_end_and_its_journal_verifies() {
    let server = start(TempDir::new().unwrap());
    let run = submitted(&server, &plan());
    let shown = ended(&server, &run);
    assert_eq!(shown["status"], "completed", "{shown:#}");
    let watched = crate::harness::run(&mut server.command(&format!("runs watch {run}"))).out;
    for told in ["think: turn 1 asks default", "proposes memory.write", "tool-not-offered", "think: turn 3; answers"] {
        assert!(watched.contains(told), "{told}: {watched}");
    }
    let replayed = server.json(&format!("runs replay {run} --at 12"));
    assert_eq!(replayed.exit, 0, "{replayed:?}");
    let explained = crate::harness::run(&mut server.command(&format!("explain {run}")));
    assert!(explained.out.contains("model.turn"), "{explained:?}");
    let verified = server.json(&format!("verify {run}"));
    assert_eq!((verified.exit, &verified.json()["ok"]), (0, &json!(true)), "{verified:?}");
}

#[test]
fn a_model_step_goes_on_after_a_power_cut() {
    let mut plan = plan();
    // Long enough to be cut in the middle of the second turn.
    plan["plan"][0]["prompt"]["script"][1]["delayMs"] = json!(1500);
    let server = start(TempDir::new().unwrap());
    let run = submitted(&server, &plan);
    let patience = Instant::now();
    let turns = |shown: &Value| {
        let calls = shown["envelope"]["toolCalls"].as_array().cloned().unwrap_or_default();
        calls.into_iter().filter(|call| call["toolId"] == "model.turn").count()
    };
    while turns(&server.json(&format!("runs get {run}")).json()) < 2 {
        assert!(patience.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    let server = start(server.cut());
    let shown = ended(&server, &run);
    assert_eq!(shown["status"], "completed", "{shown:#}");
    assert_eq!(turns(&shown), 3, "the turn that was cut is the same call");
    assert_eq!(server.json(&format!("verify {run}")).json()["ok"], true);
}

#[test]
fn a_provider_is_asked_with_its_key_which_lies_nowhere() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let provider = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 65_536];
        while !String::from_utf8_lossy(&request).contains("\"stream\":true") {
            let read = stream.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..read]);
        }
        let said = json!({ "choices": [{ "index": 0, "delta": { "content": "from afar" }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 12, "completion_tokens": 3 } });
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        stream.write_all(format!("{head}data: {said}\n\ndata: [DONE]\n\n").as_bytes()).unwrap();
        String::from_utf8_lossy(&request).into_owned()
    });
    let data = TempDir::new().unwrap();
    let keys = TempDir::new().unwrap();
    let key = keys.path().join("key");
    std::fs::write(&key, KEY).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let config = format!(
        "[[models]]\nproviderId = \"openai-compatible\"\nmodelId = \"default\"\nkind = \"openai-compatible\"\n\
         baseUrl = \"http://127.0.0.1:{port}/v1\"\nkey = {{ file = {:?} }}\n",
        key.to_str().unwrap()
    );
    put(keys.path(), "signalbox.toml", &config);
    let file = keys.path().join("signalbox.toml");
    let log = std::fs::File::create(keys.path().join("log")).unwrap();
    let server = Server::traced(log, data, &["--config", file.to_str().unwrap()]);
    let plan =
        json!({ "rootAgentId": "ref.drafting", "plan": [{ "stepId": "think", "kind": "model", "prompt": "hello" }] });
    let run = submitted(&server, &plan);
    let shown = ended(&server, &run);
    assert_eq!(shown["status"], "completed", "{shown:#}");
    assert!(provider.join().unwrap().contains(KEY));
    assert_eq!(shown["envelope"]["costLedger"]["inputTokenCount"], 12, "{:#}", shown["envelope"]["costLedger"]);
    let (_, data) = server.end();
    let mut looked_at = 0;
    let mut folders = vec![data.path().to_owned(), keys.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.path() != key {
                looked_at += 1;
                let bytes = std::fs::read(entry.path()).unwrap();
                let there = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
                assert!(!there, "the key lies in {}", entry.path().display());
            }
        }
    }
    assert!(looked_at > 2);
}

#[test]
fn a_model_in_the_file_that_makes_no_sense_is_said_at_its_place() {
    let folder = TempDir::new().unwrap();
    let cases = [
        ("kind = \"openai-compatible\"", "baseUrl is missing"),
        ("kind = \"openai-compatible\"\nbaseUrl = \"http://models.example\"", "https"),
        ("kind = \"openai-compatible\"\nbaseUrl = \"http://169.254.169.254\"\nplainHttp = true", "link-local"),
        ("kind = \"offline\"\nbaseUrl = \"https://x.example\"", "neither"),
        ("kind = \"offline\"\ntimeoutSeconds = 0", "timeoutSeconds"),
        ("kind = \"offline\"\nkey = \"FAKE-value\"", "must be { env"),
    ];
    for (lines, problem) in cases {
        put(folder.path(), "c.toml", &format!("[[models]]\nproviderId = \"p\"\nmodelId = \"m\"\n{lines}\n"));
        let file = folder.path().join("c.toml");
        let said = crate::harness::run(crate::harness::signalbox().args(["config", "check"]).arg(&file));
        assert!(said.exit != 0 && said.err.contains(problem), "{lines}: {said:?}");
        assert!(!said.err.contains("FAKE-value"), "{said:?}");
    }
}
