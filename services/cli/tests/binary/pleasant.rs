//! What makes the command line pleasant: every notation, rehearsals, profiles, completion, and ends without noise.

use std::io::Read as _;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, put, run, signalbox};

fn nap(server: &Server, seconds: u64) -> String {
    let plan = json!({"rootAgentId": "ref.drafting", "plan": [{"stepId": "nap", "kind": "wait", "seconds": seconds}]});
    server.submit(&plan, "").json()["runId"].as_str().unwrap().to_owned()
}

#[test]
fn every_notation_says_the_same_with_the_same_names() {
    let server = Server::start();
    let run_id = nap(&server, 0);
    run(&mut server.command(&format!("runs watch {run_id}")));
    let as_yaml = |line: &str| {
        let said = run(server.command(line).args(["--output", "yaml"]));
        serde_saphyr::from_str::<Value>(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    };
    for line in
        ["runs list".to_owned(), format!("runs get {run_id}"), format!("explain {run_id}"), "approvals list".to_owned()]
    {
        assert_eq!(as_yaml(&line), server.json(&line).json(), "{line}");
    }
    let watched = run(server.command(&format!("runs watch {run_id}")).args(["-o", "yaml"]));
    assert!(watched.out.contains("\n---\nseq: 2\n"), "{}", watched.out);
}

#[test]
fn a_dry_run_says_what_would_happen_and_changes_nothing() {
    let server = Server::start();
    let run_id = nap(&server, 600);
    let before = server.json(&format!("runs export {run_id}")).out;
    let would = |line: &str| server.json(&format!("{line} --dry-run"));
    for (line, after) in [
        (format!("runs kill {run_id} --reason x"), "killed"),
        (format!("runs cancel {run_id}"), "cancelled"),
        (format!("runs pause {run_id}"), "paused"),
    ] {
        let said = would(&line).json();
        assert_eq!(
            (&said["dryRun"], &said["runId"], &said["statusAfter"]),
            (&json!(true), &json!(run_id), &json!(after))
        );
    }
    let forked = would(&format!("runs fork {run_id}")).json()["forkedRunId"].as_str().unwrap().to_owned();
    assert_eq!(server.json(&format!("runs get {forked}")).code(), "no-such-run");
    for (line, code) in [
        (format!("runs resume {run_id}"), "invalid-status-for-resume"),
        (format!("runs retry {run_id} --step nap"), "invalid-status-for-retry"),
        (format!("runs kill {run_id} --reason x --expected-seq 99"), "stale-revision"),
        (format!("runs step {run_id}"), "invalid-status-for-step"),
    ] {
        let (rehearsed, real) = (would(&line), server.json(&line));
        assert_eq!((rehearsed.exit, rehearsed.code()), (1, real.code()), "{line}, about {code}");
    }
    let words = run(&mut server.command(&format!("runs kill {run_id} --reason x --dry-run")));
    assert!(words.out.contains("would kill") && words.out.contains("Nothing was done"), "{words:?}");
    assert_eq!(server.json(&format!("runs export {run_id}")).out, before);
}

#[test]
fn a_rehearsed_migration_makes_nothing() {
    let data = TempDir::new().unwrap();
    let folder = data.path().join("data");
    let said = run(signalbox().args(["migrate", "--dry-run", "--output", "json", "--data"]).arg(&folder));
    assert_eq!((said.exit, &said.json()["schemaVersion"]), (0, &Value::Null), "{said:?}");
    assert!(!folder.exists());
    let said = run(signalbox()
        .args(["store", "accept-rollback", "--reason", "x", "--dry-run", "-o", "json", "--data"])
        .arg(&folder));
    assert_eq!((said.exit, said.json()), (0, json!({"dryRun": true, "held": 0})));
    assert!(!folder.exists());
    let both = run(signalbox().args(["store", "accept-rollback", "--reason", "x", "--dry-run", "--yes"]));
    assert_eq!((both.exit, both.code()), (2, "usage"));
}

#[test]
fn profiles_are_chosen_by_flag_then_environment_then_file() {
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    let addr = &server.addr;
    put(
        folder.path(),
        "config.toml",
        &format!(
            "# mine\n[profiles.here]\naddr = \"{addr}\"\noutput = \"json\"\n\n[profiles.gone]\naddr = \"http://127.0.0.1:1\"\n"
        ),
    );
    let file = folder.path().join("config.toml");
    let mine = |line: &str| {
        let mut command = signalbox();
        command.env("SIGNALBOX_CONFIG", &file).args(line.split_whitespace());
        command
    };
    assert_eq!(run(&mut mine("runs list --profile here")).json()["runs"], json!([]));
    assert_eq!(run(mine("runs list").env("SIGNALBOX_PROFILE", "here")).json()["runs"], json!([]));
    assert_eq!(run(mine("runs list --profile here").env("SIGNALBOX_PROFILE", "gone")).exit, 0);
    assert_eq!(run(mine("runs list --profile here").env("SIGNALBOX_ADDR", "http://127.0.0.1:1")).exit, 1);
    assert_eq!(run(&mut mine("profiles use here")).exit, 0);
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("profile = \"here\"\n# mine\n"));
    assert_eq!(run(&mut mine("runs list")).json()["runs"], json!([]));
    let shown = run(&mut mine("profiles show")).json();
    assert_eq!(shown["values"][0], json!({"key": "addr", "value": addr, "from": "profile here"}));
    let listed = run(&mut mine("profiles list")).json();
    assert_eq!((&listed["profiles"][0]["name"], &listed["profiles"][1]["inUse"]), (&json!("gone"), &json!(true)));
    for line in ["profiles use nowhere", "runs list --profile nowhere"] {
        let said = run(&mut mine(line));
        assert_eq!((said.exit, said.code()), (2, "no-such-profile"), "{said:?}");
    }
    put(folder.path(), "config.toml", "[profiles.a]\nadress = \"x\"\n");
    let said = run(&mut mine("runs list"));
    assert_eq!((said.exit, said.code()), (2, "profiles-invalid"));
    assert!(said.err.contains("line 2") && said.err.contains("`addr` may be meant"), "{said:?}");
}

#[cfg(unix)]
#[test]
fn a_token_that_others_may_read_is_warned_of_and_none_goes_out_in_clear() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::start();
    put(server.data.path(), "token", "FAKE-token-of-a-test\n");
    let token = server.data.path().join("token");
    let with = |addr: &str| run(signalbox().args(["runs", "list", "--addr", addr, "--token-file"]).arg(&token));
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = with(&server.addr);
    assert!(open.exit == 0 && open.err.contains("warning[token-file-exposed]"), "{open:?}");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(with(&server.addr).err, "");
    let clear = with("http://signalbox.example:7420");
    assert_eq!((clear.exit, clear.code()), (2, "token-in-clear"));
    assert!(!clear.err.contains("FAKE"));
}

#[test]
fn each_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let said = run(signalbox().args(["completion", shell]));
        assert!(said.exit == 0 && said.out.contains("approvals") && said.out.contains("dry-run"), "{shell}");
    }
    assert_eq!(run(signalbox().args(["completion", "tcsh"])).exit, 2);
}

#[test]
fn colour_is_used_only_where_it_is_wanted() {
    let data = TempDir::new().unwrap();
    let bold = |more: &[&str], env: &[(&str, &str)]| {
        let mut command = signalbox();
        command.args(["config", "show"]).args(more).current_dir(data.path()).envs(env.iter().copied());
        run(&mut command).out.contains('\u{1b}')
    };
    assert!(!bold(&[], &[]), "a pipe is no terminal");
    assert!(bold(&["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(bold(&[], &[("CLICOLOR_FORCE", "1")]) && !bold(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

#[test]
fn a_reader_that_goes_away_early_is_no_error() {
    let server = Server::start();
    let run_id = nap(&server, 0);
    run(&mut server.command(&format!("runs watch {run_id}")));
    for line in [
        format!("runs export {run_id}"),
        format!("runs watch {run_id}"),
        "--help".to_owned(),
        "completion bash".to_owned(),
    ] {
        let mut child = server.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{line}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_watch_says_how_to_go_on_and_leaves_the_run_alone() {
    use std::io::{BufRead as _, BufReader};
    let server = Server::start();
    let run_id = nap(&server, 600);
    let mut command = server.command(&format!("runs watch {run_id}"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    let interrupted = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(
        said.contains("error[interrupted]") && said.contains(&format!("signalbox runs watch {run_id} --after ")),
        "{said}"
    );
    assert_ne!(server.json(&format!("runs get {run_id}")).json()["status"], "cancelled");
}

#[test]
fn switches_and_budgets_are_rehearsed_too() {
    let server = Server::start();
    let arm = "switches arm --scope tool --target web.fetch --reason x --id no-web";
    let would = server.json(&format!("{arm} --dry-run"));
    assert_eq!((would.exit, &would.json()["dryRun"]), (0, &json!(true)), "{would:?}");
    assert_eq!(server.json("switches list").json()["switches"], json!([]));
    let wrong = server.json("switches arm --scope global --target x --reason x --dry-run");
    assert_eq!(wrong.code(), "switch-reach-missing", "the node decides, by the rule it arms by: {wrong:?}");

    assert_eq!(server.json(arm).exit, 0);
    let would = run(&mut server.command("switches disarm no-web --reason x --dry-run"));
    assert!(would.exit == 0 && would.out.contains("Nothing was done"), "{would:?}");
    assert_eq!(server.json("switches show no-web").json()["state"], "armed");

    let put = server.json("budgets put daily --scope tenant --key default --limit 5 --reason x");
    assert_eq!(put.exit, 0, "{put:?}");
    assert_eq!(server.json("budgets retire daily --reason x --dry-run").json()["dryRun"], true);
    assert_eq!(server.json("budgets list").json()["budgets"].as_array().unwrap().len(), 1);
}
