//! Pipelines through the binary: listed, shown, fired by an id, rehearsed, made tighter and reported.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Server, put, run};
use crate::identity::Guarded;

const BRIEFING: &str = "veritas.weekly_briefing_pack";

fn input(server: &Server) -> String {
    put(server.data.path(), "story.md", "# A ferry\n\nThe ferry sails again on 3 May 2026. It carries 300 people.\n");
    let source = server.data.path().join("story.md");
    put(server.data.path(), "input.json", &json!({ "sources": [source] }).to_string());
    server.data.path().join("input.json").display().to_string()
}

fn until(server: &Server, run: &str, what: impl Fn(&Value) -> bool) -> Value {
    let patience = Instant::now();
    loop {
        let shown = server.json(&format!("runs get {run}")).json();
        if what(&shown) {
            return shown;
        }
        assert!(patience.elapsed() < Duration::from_secs(60), "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn seven_pipelines_are_listed_and_shown_with_what_they_take_and_as_a_picture() {
    let server = Server::start();
    let listed = server.json("pipelines list").json();
    let listed = listed["pipelines"].as_array().unwrap();
    assert_eq!(listed.len(), 7);
    assert!(listed.iter().all(|pipeline| pipeline["lifecycleState"] == "live" && pipeline["mayFire"] == true));
    for pipeline in listed {
        let id = pipeline["pipelineId"].as_str().unwrap();
        let shown = server.json(&format!("pipelines show {id}")).json();
        assert!(shown["spec"]["inputs"].as_array().is_some_and(|inputs| !inputs.is_empty()), "{id}");
        assert_eq!(shown["spec"]["totalBudgetCap"], pipeline["totalBudgetCap"], "{id}");
        let picture = run(&mut server.command(&format!("pipelines show {id} --mermaid")));
        assert!(picture.out.starts_with("flowchart TD\n") && picture.out.contains(" --> "), "{id}");
        assert_eq!(picture.out.matches("subgraph ").count(), picture.out.matches("\n  end\n").count(), "{id}");
    }
    let table = run(&mut server.command("pipelines show metis.course_from_byom")).out;
    assert!(table.contains("teacher or user-confirm-before-proceed"), "{table}");
    assert_eq!(server.json("pipelines show nyx.nothing").code(), "no-such-pipeline");
}

#[test]
fn a_pipeline_fired_by_an_id_is_one_run_and_writes_its_files_once_somebody_agrees() {
    let server = Server::start();
    let file = input(&server);
    let path = server.data.path().display().to_string();
    let granted = server
        .json(&format!("grants issue --tool source.fetch --scope per-tenant --path {path} --for 1d --reason desk"));
    assert_eq!(granted.exit, 0, "{granted:?}");
    let fire = format!("pipelines fire {BRIEFING} --input {file} --fire-id monday");
    let first = server.json(&fire).json();
    let again = server.json(&fire).json();
    assert_eq!((&first["runId"], &first["replayed"]), (&again["runId"], &json!(false)));
    assert_eq!(
        (&again["replayed"], &again["mode"], &again["pipelineSemver"]),
        (&json!(true), &json!("deep"), &json!("1.0.0"))
    );
    let run_id = first["runId"].as_str().unwrap();
    let shown = until(&server, run_id, |shown| shown["status"] == "awaiting_approval" || shown["closed"] == true);
    assert_eq!(shown["status"], "awaiting_approval", "{}", shown["envelope"]["end"]);
    let asked = server.json("approvals list").json();
    let approval = asked["approvals"][0]["approvalId"].as_str().unwrap();
    let yes = server.json(&format!("approvals decide {approval} --approve --reason read-it"));
    assert_eq!(yes.exit, 0, "{yes:?}");
    let shown = until(&server, run_id, |shown| shown["closed"] == true);
    assert_eq!(shown["status"], "completed", "{}", shown["envelope"]["end"]);
    let pack = server.data.path().join("packs").join(run_id).join("briefing.md");
    assert!(std::fs::read_to_string(&pack).unwrap().contains("ferry"));
    let report = server.json(&format!("pipelines report {BRIEFING}")).json();
    assert_eq!((&report["runs"], &report["gatesPassed"], &report["deviations"]), (&json!(1), &json!(1), &json!([])));
    let other = server.json(&format!("pipelines fire {BRIEFING} --input {{\"sources\":[\"/b\"]}} --fire-id monday"));
    assert_eq!(other.code(), "run_id_conflict");
}

#[test]
fn a_rehearsal_tells_what_a_run_would_cost_ask_and_lack_and_touches_nothing() {
    let server = Server::start();
    let file = input(&server);
    let armed = server.json("switches arm --scope tool --target generate.video --reason unused --id no-video");
    assert_eq!(armed.exit, 0, "{armed:?}");
    for command in ["pipelines rehearse", "rehearse"] {
        let told = server.json(&format!("{command} {BRIEFING} --input {file}"));
        assert_eq!(told.exit, 0, "{told:?}");
        let told = told.json();
        assert_eq!((&told["status"], &told["switches"]), (&json!("completed"), &json!([])));
        let (least, most) = (told["cost"]["least"].as_i64().unwrap(), told["cost"]["most"].as_i64().unwrap());
        assert!(0 < least && least < most, "{}", told["cost"]);
        assert_eq!(told["approvals"][0]["outcome"], "would-be-asked");
        let missing: Vec<&str> =
            told["grantsMissing"].as_array().unwrap().iter().map(|tool| tool["toolId"].as_str().unwrap()).collect();
        assert!(missing.contains(&"source.fetch"), "{missing:?}");
        let run = told["runId"].as_str().unwrap();
        assert!(!server.data.path().join("packs").join(run).exists());
    }
    let text = run(&mut server.command(&format!("rehearse {BRIEFING} --input {file}"))).out;
    assert!(text.contains("would cost") && text.contains("no switch that is armed would stop it"), "{text}");
    let report = server.json(&format!("pipelines report {BRIEFING}")).json();
    assert_eq!(report["runs"], json!(0), "rehearsals are no part of it");
}

#[test]
fn what_is_wrong_with_a_trigger_is_told_by_its_code_and_its_field() {
    let server = Server::start();
    for (line, code) in [
        ("pipelines fire nyx.nothing", "no-such-pipeline"),
        ("pipelines fire nyx.event_explainer_set", "pipeline-input-invalid"),
        (
            "pipelines fire nyx.event_explainer_set --input {\"from\":\"2026-09-01\",\"from\":\"2026-09-02\"}",
            "json-duplicate-key",
        ),
        (
            "pipelines fire nyx.event_explainer_set --input {\"from\":\"soon\",\"to\":\"2026-10-01\"}",
            "pipeline-input-invalid",
        ),
        ("pipelines fire nyx.event_explainer_set --input /no/such/file", "file-unreadable"),
        ("pipelines fire arete.weekly_review_draft --semver 9.0.0", "no-such-pipeline-version"),
        (
            "pipelines fire veritas.weekly_briefing_pack --mode fast --input {\"sources\":[\"/a\"]}",
            "pipeline-mode-not-allowed",
        ),
        ("pipelines report nyx.nothing", "no-such-pipeline"),
    ] {
        let said = server.json(line);
        assert_eq!(said.code(), code, "{line}: {said:?}");
        assert!(said.exit == 1 || code == "file-unreadable", "{line}: {said:?}");
    }
    assert_eq!(server.json("runs list").json()["runs"], json!([]), "none of them left a run");
}

#[test]
fn a_pipeline_is_made_tighter_with_a_revision_and_an_entry_in_the_audit_journal() {
    let server = Server::start();
    let write = |value: Value| {
        put(server.data.path(), "tighter.json", &value.to_string());
        server.data.path().join("tighter.json").display().to_string()
    };
    let file = write(json!({"totalBudgetCap": 40, "disabledSteps": ["audio"], "modes": ["deep"]}));
    let customize = format!("pipelines customize {BRIEFING} --reason less");
    let own = server.json(&format!("{customize} --file {file}")).json();
    assert_eq!(
        (&own["customized"], &own["totalBudgetCap"], &own["modes"]),
        (&json!(true), &json!(40), &json!(["deep"]))
    );
    let revision = own["revision"].as_u64().unwrap();
    let shown = server.json(&format!("pipelines show {BRIEFING}")).json();
    assert_eq!((&shown["customization"]["disabledSteps"], &shown["revision"]), (&json!(["audio"]), &json!(revision)));
    let shipped = server.json(&format!("pipelines show {BRIEFING} --shipped")).json();
    assert_eq!((&shipped["customized"], &shipped["totalBudgetCap"]), (&json!(false), &json!(5_000)));
    for (value, code) in [
        (json!({"totalBudgetCap": 5_001}), "customization-widens"),
        (json!({"disabledSteps": ["assemble.gate"]}), "customization-widens"),
        (json!({"disabledSteps": ["nothing"]}), "customization-invalid"),
        (json!({"colour": "green"}), "customization-invalid"),
        (json!([]), "customization-invalid"),
    ] {
        let file = write(value.clone());
        assert_eq!(server.json(&format!("{customize} --file {file}")).code(), code, "{value}");
    }
    let stale = server.json(&format!("{customize} --reset --expected-revision {}", revision + 1));
    assert_eq!(stale.code(), "stale-revision");
    let back = server.json(&format!("{customize} --reset --expected-revision {revision}")).json();
    assert_eq!(back["customized"], json!(false));
    let audit = server.json("audit list").out;
    assert_eq!(audit.matches("pipeline-customized").count(), 2, "{audit}");
}

#[test]
fn customers_fire_what_is_theirs_and_no_more() {
    let guarded = Guarded::start();
    let server = &guarded.server;
    let customer = guarded.token("acme", "cy", "customer");
    let by = |line: &str| {
        let mut command = server.command(line);
        command.arg("--token-file").arg(&customer).args(["--output", "json"]);
        run(&mut command)
    };
    let refused = by("pipelines fire veritas.weekly_briefing_pack --input {\"sources\":[\"/a\"]}");
    assert_eq!((refused.exit, refused.code()), (1, "pipeline_tier_required"), "{refused:?}");
    let listed = by("pipelines list").json();
    let may: Vec<&str> = listed["pipelines"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pipeline| pipeline["mayFire"] == true)
        .map(|pipeline| pipeline["pipelineId"].as_str().unwrap())
        .collect();
    assert_eq!(may, ["nisaba.edition_study_guide", "arete.weekly_review_draft", "metis.course_from_byom"]);
    assert_eq!(by("pipelines report arete.weekly_review_draft").code(), "not-authorized");
    assert_eq!(by("pipelines customize arete.weekly_review_draft --reset --reason x").code(), "not-authorized");
}
