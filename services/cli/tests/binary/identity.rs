//! A server with an identity, as a user meets it: tokens of an issuer, API keys, and what nobody is let do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use signalbox_tests::issuer::{AUDIENCE, ISSUER, Signer, claims, key_set};
use tempfile::TempDir;

use crate::harness::{Said, Server, put, run, signalbox};

/// A server that believes tokens of the issuer of the tests, and API keys.
pub(crate) struct Guarded {
    pub(crate) server: Server,
    files: TempDir,
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

fn private(folder: &Path, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    put(folder, name, text);
    let path = folder.join(name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

impl Guarded {
    pub(crate) fn start() -> Self {
        let files = TempDir::new().unwrap();
        put(files.path(), "jwks.json", &key_set(&Signer::ALL).to_string());
        let jwks = files.path().join("jwks.json");
        let config = format!(
            "[identity]\njwksFile = \"{}\"\nissuer = \"{ISSUER}\"\naudience = \"{AUDIENCE}\"\napiKeys = true\n",
            jwks.display()
        );
        let key = private(files.path(), "webhook.key", &format!("whsec_{}", "RkFLRS1G".repeat(4)));
        let of_acme = "[[webhookSecrets]]\nsecretId = \"key\"\ntenantId = \"acme\"\n";
        let config = format!("{config}{of_acme}from = {{ file = \"{}\" }}\n", key.display());
        put(files.path(), "signalbox.toml", &config);
        let config = files.path().join("signalbox.toml");
        let server = Server::over(TempDir::new().unwrap(), &["--config", config.to_str().unwrap()]);
        Self { server, files }
    }

    /// The file with a token of somebody.
    pub(crate) fn token(&self, tenant: &str, who: &str, role: &str) -> PathBuf {
        let scope = if role == "customer" { "" } else { "tool:web.fetch" };
        let token = Signer::Es256.token(&claims(tenant, who, role, scope, now() + 600));
        private(self.files.path(), &format!("{tenant}-{who}"), &token)
    }

    /// Runs a command as the holder of a token file.
    pub(crate) fn as_holder(&self, file: &Path, line: &str) -> Said {
        run(self.server.command(line).args(["--output", "json", "--token-file"]).arg(file))
    }

    fn submit(&self, file: &Path) -> String {
        self.submit_plan(file, &json!([{"stepId": "w", "kind": "wait", "seconds": 600}]))
    }

    /// Submits a run of these steps, and answers its id.
    pub(crate) fn submit_plan(&self, file: &Path, steps: &Value) -> String {
        let plan = json!({"rootAgentId": "ref.research", "plan": steps});
        let said = self.server.submit(&plan, &format!("--token-file {}", file.display()));
        said.json()["runId"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_server_with_an_identity_lets_nobody_in_without_a_good_credential() {
    let guarded = Guarded::start();
    for line in ["runs list", "whoami", "keys list", "approvals list"] {
        assert_eq!(guarded.server.json(line).code(), "unauthenticated", "{line}");
    }
    let attacker = Signer::EdDsa(66).token(&claims("acme", "eve", "platform-operator", "", now() + 600));
    let expired = Signer::Es256.token(&claims("acme", "ann", "creator", "", now() - 60));
    for (name, token) in [("forged", attacker), ("expired", expired), ("odd", "nonsense".to_owned())] {
        let file = private(guarded.files.path(), name, &token);
        let said = guarded.as_holder(&file, "whoami");
        assert_eq!((said.exit, said.code()), (1, "unauthenticated"), "{name}");
        assert!(!said.err.contains(&token), "an error repeats no token");
    }
    let ann = guarded.token("acme", "ann", "creator");
    let me = guarded.as_holder(&ann, "whoami").json();
    assert_eq!((&me["actorId"], &me["tenantId"], &me["role"]), (&json!("ann"), &json!("acme"), &json!("creator")));
}

#[test]
fn a_token_comes_from_a_private_file_or_the_environment() {
    let guarded = Guarded::start();
    let ann = guarded.token("acme", "ann", "creator");
    let token = std::fs::read_to_string(&ann).unwrap();
    let from_environment = run(guarded.server.command("whoami --output json").env("SIGNALBOX_TOKEN", &token));
    assert_eq!(from_environment.json()["actorId"], "ann");
    let tidy = private(guarded.files.path(), "line-end", &format!("{token}\n"));
    assert_eq!(guarded.as_holder(&tidy, "whoami").json()["actorId"], "ann");
    for (name, text) in [("nul", "a\0b"), ("umlaut", "tök")] {
        let file = private(guarded.files.path(), name, text);
        let said = guarded.as_holder(&file, "whoami");
        assert!(!said.code().is_empty() && !said.err.contains(text), "{name}: {said:?}");
    }
    let missing = guarded.as_holder(Path::new("/nowhere/token"), "whoami");
    assert_eq!((missing.exit, missing.code()), (2, "file-unreadable"));
}

#[test]
fn a_creator_sees_and_steers_its_own_runs_and_an_operator_those_of_its_tenant() {
    let guarded = Guarded::start();
    let [ann, bob, olga, eve] = [
        guarded.token("acme", "ann", "creator"),
        guarded.token("acme", "bob", "creator"),
        guarded.token("acme", "olga", "tenant-operator"),
        guarded.token("globex", "eve", "tenant-operator"),
    ];
    let id = guarded.submit(&ann);
    let count = |file: &Path| guarded.as_holder(file, "runs list").json()["runs"].as_array().unwrap().len();
    assert_eq!([count(&ann), count(&bob), count(&olga), count(&eve)], [1, 0, 1, 0]);
    for stranger in [&bob, &eve] {
        for line in ["runs get", "runs watch", "runs export", "runs pause --reason x"] {
            let (verb, rest) = line.split_once(" --").map_or((line, String::new()), |(v, r)| (v, format!("--{r}")));
            let said = guarded.as_holder(stranger, &format!("{verb} {id} {rest}"));
            assert_eq!(said.code(), "no-such-run", "{line}");
        }
    }
    assert_eq!(guarded.as_holder(&ann, &format!("runs kill {id} --reason x")).code(), "not-authorized");
    assert_eq!(guarded.as_holder(&ann, &format!("runs pause {id}")).json()["status"], "paused");
    assert_eq!(guarded.as_holder(&olga, &format!("runs kill {id} --reason x")).json()["status"], "killed");
}

#[test]
fn only_a_platform_operator_acts_in_another_tenant() {
    let guarded = Guarded::start();
    let [pia, olga, ann] = [
        guarded.token("platform", "pia", "platform-operator"),
        guarded.token("acme", "olga", "tenant-operator"),
        guarded.token("globex", "ann", "creator"),
    ];
    let id = guarded.submit(&ann);
    assert_eq!(guarded.as_holder(&pia, &format!("runs get {id}")).code(), "no-such-run", "not where it is at home");
    let there = guarded.as_holder(&pia, &format!("runs pause {id} --tenant globex"));
    assert_eq!(there.json()["status"], "paused");
    for tenant in ["globex", "nowhere"] {
        let said = guarded.as_holder(&olga, &format!("runs get {id} --tenant {tenant}"));
        assert_eq!(said.code(), "not-authorized", "the same whether there is such a tenant or not");
    }
    assert_eq!(guarded.as_holder(&olga, "whoami --tenant acme").json()["tenantId"], "acme");
}

#[test]
fn an_api_key_is_made_used_listed_and_taken_back() {
    let guarded = Guarded::start();
    let olga = guarded.token("acme", "olga", "tenant-operator");
    let made = guarded.as_holder(&olga, "keys create --name loader --scope tool:web.fetch --days 2").json();
    let (id, secret) = (made["keyId"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let machine = private(guarded.files.path(), "machine", secret);
    let me = guarded.as_holder(&machine, "whoami").json();
    assert_eq!(
        (&me["actorId"], &me["role"], &me["tenantId"]),
        (&json!("key:loader"), &json!("service"), &json!("acme"))
    );
    let run_id = guarded.submit(&machine);
    assert_eq!(guarded.as_holder(&machine, &format!("runs get {run_id}")).json()["runId"], run_id.as_str());

    assert_eq!(guarded.as_holder(&machine, "keys list").code(), "not-authorized");
    let too_much = ["keys create --name x --role platform-operator", "keys create --name x --scope approve:guardian"];
    for line in too_much {
        assert_eq!(guarded.as_holder(&olga, line).code(), "not-authorized", "{line}");
    }
    let listed = guarded.as_holder(&olga, "keys list").json();
    assert_eq!((&listed["apiKeys"][0]["keyId"], &listed["apiKeys"][0]["createdBy"]), (&json!(id), &json!("olga")));
    assert!(!listed.to_string().contains(secret), "it is shown once");
    let table = run(guarded.server.command("keys list --token-file").arg(&olga));
    assert!(table.out.contains("loader") && table.out.contains("LAST USED (HOUR)"), "{table:?}");

    let eve = guarded.token("globex", "eve", "tenant-operator");
    assert_eq!(guarded.as_holder(&eve, &format!("keys revoke {id}")).code(), "no-such-key");
    let revoked = guarded.as_holder(&olga, &format!("keys revoke {id}")).json();
    assert_eq!((&revoked["state"], &revoked["revokedBy"]), (&json!("revoked"), &json!("olga")));
    assert_eq!(guarded.as_holder(&machine, "whoami").code(), "unauthenticated");
    let all = guarded.as_holder(&olga, "keys list --all").json();
    assert_eq!(all["apiKeys"][0]["revokedBy"], "olga");
    assert_eq!(guarded.as_holder(&olga, "keys list").json()["apiKeys"], json!([]));
}

#[test]
fn a_first_key_can_be_made_with_the_development_identity() {
    let server = Server::start();
    let made = server.json("keys create --name admin --role platform-operator").json();
    let files = TempDir::new().unwrap();
    let file = private(files.path(), "key", made["secret"].as_str().unwrap());
    let (exit, data) = server.end();
    assert_eq!(exit, 0);
    put(files.path(), "signalbox.toml", "[identity]\napiKeys = true\n");
    let config = files.path().join("signalbox.toml");
    let server = Server::over(data, &["--config", config.to_str().unwrap()]);
    assert_eq!(server.json("whoami").code(), "unauthenticated");
    let me: Value = run(server.command("whoami --output json --token-file").arg(&file)).json();
    assert_eq!((&me["actorId"], &me["role"]), (&json!("key:admin"), &json!("platform-operator")));
}

#[test]
fn a_server_without_usable_keys_or_with_an_open_address_and_no_identity_does_not_start() {
    let files = TempDir::new().unwrap();
    let serve = |config: &str, listen: &str| {
        put(files.path(), "signalbox.toml", config);
        let mut command: Command = signalbox();
        command.args(["serve", "--listen", listen, "--data"]).arg(files.path().join("data"));
        run(command.arg("--config").arg(files.path().join("signalbox.toml")))
    };
    let identity = "[identity]\njwksFile = \"/nowhere/jwks.json\"\nissuer = \"i\"\naudience = \"a\"\n";
    let said = serve(identity, "127.0.0.1:0");
    assert_eq!((said.exit, said.code()), (2, "jwks-unusable"), "{}", said.err);
    assert!(!files.path().join("data").exists(), "nothing was touched");
    let said = serve("", "0.0.0.0:0");
    assert_eq!(said.code(), "identity-not-configured");
}
