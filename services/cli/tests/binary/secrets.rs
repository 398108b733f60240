//! No secret at rest in clear (I13): whatever is said to the binary, and whatever a tool says to it, nothing of it lies in
//! the data folder, in the most talkative log, or in what any command prints.

use std::net::TcpListener as StdListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::catalog::Recovery;
use signalbox_domain::quantity::Usage;
use signalbox_domain::run::event::ArtifactRef;
use signalbox_tools::ToolServer;
use signalbox_tools::tool::{Answer, Descriptor, Failure, Measured, ProgressSink, Tool, ToolCall, ToolOutcome};
use tempfile::TempDir;

use crate::harness::{Said, Server, put, run, signalbox};

/// The value of the secret that is configured, and how it looks in base64 and percent-encoded.
const VALUE: &str = "plainly FAKE/value+0123";
const FORMS: [&str; 3] = [VALUE, "cGxhaW5seSBGQUtFL3ZhbHVlKzAxMjM=", "plainly%20FAKE%2Fvalue%2B0123"];
/// What looks like a secret, wherever somebody may put one.
const KEY: &str = "ghp_FAKE00000000000000000000000000000000";

/// A tool that repeats all it was told, in every way it can.
struct Echo;

#[async_trait]
impl Tool for Echo {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            tool_id: "notify.send".to_owned(),
            semver: "1.0.0".to_owned(),
            input_schema: json!({"type": "object"}),
            output_schema: json!({"type": "object"}),
            ceiling: Usage::none(),
            has_side_effects: true,
            recovery: Recovery::AtMostOnce,
        }
    }

    async fn run(&self, call: ToolCall, progress: ProgressSink) -> ToolOutcome {
        let told = call.args["auth"].as_str().unwrap_or_default();
        // Only here is it in clear; the test looks at what comes of it.
        let right = told == VALUE && call.args["note"].as_str() == Some(KEY);
        for piece in [&told[..7], &told[7..], &KEY[..9], &KEY[9..], " sent"] {
            progress.report(piece, None);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let said = format!("right: {right}, {told}, {KEY}, {}, {}", FORMS[1], FORMS[2]);
        if call.args["fail"] == true {
            return ToolOutcome::Error(Failure {
                code: "login-failed".into(),
                message: said,
                measured: Some(Measured::new()),
            });
        }
        let artifact = ArtifactRef {
            name: said.clone(),
            persisted_key: said.clone(),
            media_type: "text/plain".to_owned(),
            sha256: "0".repeat(64),
            size: 1,
        };
        ToolOutcome::Ok(Answer {
            output: json!({ "right": right, "args": call.args, "said": [said.clone()], said.clone(): 1 }),
            effects: vec![said],
            artifacts: vec![artifact],
            measured: Some(Measured::new()),
            evidence: None,
        })
    }
}

/// Serves the tool for as long as the test runs.
fn echo() -> String {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let tools: [std::sync::Arc<dyn Tool>; 1] = [std::sync::Arc::new(Echo)];
            signalbox_tools::serve(listener, None, ToolServer::new(tools), std::future::pending()).await.unwrap();
        });
    });
    format!("http://{address}")
}

fn config(folder: &Path, executor: &str) -> String {
    let secret = folder.join("mail");
    std::fs::write(&secret, format!("{VALUE}\n")).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tomorrow = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() + 86_400_000;
    format!(
        r#"
        [[secrets]]
        secretId = "mail"
        tenantId = "default"
        agentIds = ["ref.support-triage"]
        toolIds = ["notify.send"]
        from = {{ file = "{}" }}
        [[grants]]
        grantId = "send"
        scope = "per-tenant"
        scopeKey = "default"
        tenantId = "default"
        toolId = "notify.send"
        toolRange = "^1"
        expiresAtUnixMs = {tomorrow}
        rationale = "a test"
        constraints = {{ secretIds = ["mail"] }}
        [[executors]]
        uri = "{executor}"
        "#,
        secret.display()
    )
}

/// Every file under a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Asserts that nothing secret lies in some bytes.
fn clean(what: &str, bytes: &[u8]) {
    for secret in FORMS.into_iter().chain([KEY, "FAKE00000000", "FAKE/value", "cGxhaW5seSBGQUtFL3Zhb"]) {
        let at = bytes.windows(secret.len()).position(|window| window == secret.as_bytes());
        let around = at.map(|at| String::from_utf8_lossy(&bytes[at.saturating_sub(200)..at]).into_owned());
        assert_eq!(around, None, "{what} holds `{secret}`");
    }
}

struct Heard(Vec<(String, Said)>);

impl Heard {
    fn hear(&mut self, what: &str, said: Said) -> &Said {
        self.0.push((what.to_owned(), said));
        &self.0.last().unwrap().1
    }
}

#[test]
fn no_secret_is_left_in_the_data_folder_the_log_or_any_output() {
    let (aside, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    put(aside.path(), "signalbox.toml", &config(aside.path(), &echo()));
    let config = aside.path().join("signalbox.toml").to_str().unwrap().to_owned();
    let log = aside.path().join("log");
    let server = Server::traced(std::fs::File::create(&log).unwrap(), data, &["--config", &config]);
    let mut heard = Heard(Vec::new());

    // Everywhere a caller can put one: inputs, arguments, prompts, titles.
    let send = |id: &str, after: &[&str], fail: bool| {
        json!({ "stepId": id, "kind": "tool", "toolId": "notify.send", "dependsOnStepIds": after, "optional": fail, "args": {
            "auth": { "$secret": "mail" }, "note": { "$from": "/inputs/note" }, "password": format!("not {KEY}"), "fail": fail,
        } })
    };
    let plan = json!({ "rootAgentId": "ref.support-triage", "inputs": { "note": KEY, "more": [format!("password={KEY}")] }, "plan": [
        { "stepId": "pause", "kind": "wait", "seconds": 1 },
        send("a", &["pause"], false), send("b", &["a"], true),
        { "stepId": "gate", "kind": "approval", "prompt": format!("Use {KEY}?"), "subject": { "it": KEY, "was": { "$from": "/steps/a/output" } },
          "dependsOnStepIds": ["b"] },
        { "stepId": "way", "kind": "branch", "branches": [{ "branchId": "on", "title": format!("with {KEY}") }], "dependsOnStepIds": ["gate"] },
    ] });
    let waits = heard.hear("submit", server.submit(&plan, "--watch"));
    assert_eq!((waits.exit, waits.code()), (3, "waiting-for-decision"), "{waits:?}");
    assert!(waits.out.contains("[redacted]") && waits.out.contains("sent"), "progress was watched: {}", waits.out);
    let run_id =
        serde_json::from_str::<Value>(waits.out.lines().next().unwrap()).unwrap()["runId"].as_str().unwrap().to_owned();

    // The call was made with what was said, although nothing of it is kept.
    let got = heard.hear("get", server.json(&format!("runs get {run_id}"))).json();
    let calls = got["envelope"]["toolCalls"].as_array().unwrap();
    let outcome = |at: usize| calls[at]["outcome"].as_str().unwrap();
    assert_eq!((calls.len(), outcome(0), outcome(1)), (2, "ok", "error"), "{calls:#?}");
    assert_eq!(calls[0]["output"]["inline"]["right"], true);
    assert!(calls[1]["error"]["message"].as_str().unwrap().contains("right: true"));
    assert_eq!(calls[0]["secrets"], json!({ "/auth": "mail" }));
    assert_eq!(calls[0]["redactedArgs"]["inline"]["auth"], json!({ "$secret": "mail" }));

    // Everything an operator says.
    let question = heard.hear("approvals", server.json("approvals list")).json()["approvals"][0]["approvalId"]
        .as_str()
        .unwrap()
        .to_owned();
    let decided =
        run(server.command(&format!("approvals decide {question} --approve --reason")).arg(format!("it is {KEY}")));
    assert_eq!(heard.hear("decide", decided).exit, 0);
    for control in ["pause", "resume", "cancel"] {
        let said = run(server.command(&format!("runs {control} {run_id} --reason")).arg(format!("because {KEY}")));
        assert_eq!(heard.hear(control, said).exit, 0);
    }
    // And everything that is refused: ids, words that are none, a grant that does not name it.
    for (line, code) in [
        (format!("runs get {KEY}"), "usage"),
        (format!("runs {KEY}"), "usage"),
        (format!("runs retry {run_id} --step {KEY} --reason {KEY}"), "no-such-step"),
        (format!("runs retry {run_id} --step a --reason {KEY}"), "run-terminal"),
        (format!("approvals decide {question} --approve --reason {KEY}"), "approval-closed"),
        (format!("runs list --page-token {KEY}"), "page-token-invalid"),
        (format!("runs list --status {KEY}"), ""),
    ] {
        let said = heard.hear(&line.replace(KEY, "…"), run(&mut server.command(&line)));
        assert_ne!(said.exit, 0, "{said:?}");
        assert!(code.is_empty() || said.code() == code, "{said:?}");
    }
    for (change, code) in [
        (json!({ "rootAgentId": KEY }), "unknown-agent"),
        (json!({ "plan": [{ "stepId": KEY, "kind": "wait", "seconds": 1 }] }), "secret-in-id"),
        (json!({ "plan": [{ "stepId": "a", "kind": "wait", "seconds": 1, KEY: 1 }] }), "unknown-field"),
        (json!({ "mode": KEY }), "unknown-mode"),
        (json!({ KEY: 1 }), ""),
    ] {
        let mut body =
            json!({ "rootAgentId": "ref.support-triage", "plan": [{ "stepId": "w", "kind": "wait", "seconds": 1 }] });
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let said = heard.hear("a submission that is refused", server.submit(&body, ""));
        assert_ne!(said.exit, 0, "{said:?}");
        assert!(code.is_empty() || said.code() == code, "{code}: {said:?}");
    }
    let denied = json!({ "rootAgentId": "ref.support-triage", "plan": [
        { "stepId": "d", "kind": "tool", "toolId": "notify.send", "args": { "auth": { "$secret": "other" }, "note": KEY } },
    ] });
    assert_eq!(heard.hear("denied", server.submit(&denied, "--watch")).exit, 1);

    for line in [
        "runs list".to_owned(),
        format!("runs watch {run_id}"),
        format!("runs replay {run_id} --at 9"),
        format!("verify {run_id}"),
    ] {
        heard.hear(&line, server.json(&line));
        heard.hear(&line, run(&mut server.command(&line)));
    }
    let exported = heard.hear("export", run(&mut server.command(&format!("runs export {run_id}"))));
    assert!(exported.out.contains("[redacted:api_key]") && exported.out.contains("sealed"));

    // As it lies there after a crash, and after the start that follows one.
    let data = server.cut();
    let look = |data: &Path| {
        let kept = files(data);
        assert!(kept.len() > 4, "{kept:?}");
        for file in kept {
            clean(&file.display().to_string(), &std::fs::read(&file).unwrap());
        }
    };
    look(data.path());
    let again =
        Server::traced(std::fs::File::create(aside.path().join("log-2")).unwrap(), data, &["--config", &config]);
    heard.hear("get again", again.json(&format!("runs get {run_id}")));
    let (exit, data) = again.end();
    assert_eq!(exit, 0);
    look(data.path());
    for log in [log, aside.path().join("log-2")] {
        let text = std::fs::read(&log).unwrap();
        assert!(text.len() > 10_000, "the log says a lot");
        clean("the log", &text);
    }
    for (what, said) in &heard.0 {
        clean(&format!("what `{what}` printed"), format!("{}{}", said.out, said.err).as_bytes());
    }
}

#[test]
fn a_secret_in_the_configuration_is_neither_taken_nor_repeated() {
    let data = TempDir::new().unwrap();
    put(data.path(), "bad.toml", &format!("[[secrets]]\nsecretId = \"mail\"\nvalue = \"{VALUE}\"\n"));
    let refused =
        run(signalbox().args(["serve", "--data"]).arg(data.path()).arg("--config").arg(data.path().join("bad.toml")));
    assert_eq!((refused.exit, refused.code()), (2, "config-invalid"), "{refused:?}");
    clean("the error", refused.err.as_bytes());
}
