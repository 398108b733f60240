//! What would change is said by the node, by the rule it would act by, and nothing is written.

use serde_json::{Value, json};

use crate::harness::Server;

const PUT: &str = "budgets put daily --scope tenant --key default --reason x";

fn acts(server: &Server) -> usize {
    server.json("audit list --limit 1000").json()["acts"].as_array().unwrap().len()
}

#[test]
fn a_budget_that_would_be_put_or_topped_up_is_shown_before_and_after_and_nothing_is_written() {
    let server = Server::start();
    let new = server.json(&format!("{PUT} --limit 5 --dry-run"));
    assert_eq!(new.exit, 0, "{new:?}");
    let new = new.json();
    assert_eq!(
        (&new["dryRun"], &new["before"], &new["after"]["budget"]["limit"]),
        (&json!(true), &Value::Null, &json!(5))
    );
    assert_eq!((server.json("budgets list").json()["budgets"].clone(), acts(&server)), (json!([]), 0));

    assert_eq!(server.json(&format!("{PUT} --limit 5")).exit, 0);
    let stands = server.json("budgets get daily").json();
    let changed = server.json(&format!("{PUT} --limit 9 --on-exceeded pause --dry-run")).json();
    assert_eq!((&changed["before"], &changed["after"]["budget"]["limit"]), (&stands, &json!(9)));
    assert_eq!(changed["after"]["budget"]["onExceeded"], "pause");
    let topped = server.json("budgets top-up daily --by 2.5 --reason x --dry-run").json();
    assert_eq!((&topped["before"], &topped["after"]["budget"]["limit"]), (&stands, &json!(7.5)));
    assert_eq!(topped["resumed"], 0);
    let same = server.json(&format!("{PUT} --limit 5 --dry-run")).json();
    assert_eq!(same["before"], same["after"]);
    assert_eq!((server.json("budgets get daily").json(), acts(&server)), (stands, 1));

    let text = crate::harness::run(&mut server.command("budgets top-up daily --by 2.5 --reason x --dry-run"));
    for said in ["FIELD", "limit", "5", "7.5", "Nothing was done"] {
        assert!(text.out.contains(said), "{said}: {text:?}");
    }
}

#[test]
fn a_dry_run_is_refused_as_the_act_would_be() {
    let server = Server::start();
    assert_eq!(server.json(&format!("{PUT} --limit 5")).exit, 0);
    for act in [
        "budgets put daily --scope tenant --key default --reason x --limit -1".to_owned(),
        format!("{PUT} --limit 6 --create"),
        format!("{PUT} --limit 6 --expected-revision 99"),
        format!("{PUT} --limit 6 --category external-calls"),
        "budgets put wide --scope tenant --key other --reason x --limit 1".to_owned(),
        "budgets top-up daily --by -1 --reason x".to_owned(),
        "budgets top-up none --by 1 --reason x".to_owned(),
        "budgets retire none --reason x".to_owned(),
        "budgets retire daily --reason x --expected-revision 99".to_owned(),
        "switches arm --scope tool --target web.fetchh --reason x --id a".to_owned(),
        "switches disarm none --reason x".to_owned(),
        "throttles set slow --capacity 0 --refill 1 --reason x".to_owned(),
        "throttles set slow --tool no.such --capacity 1 --refill 1 --per weather --reason x".to_owned(),
        "throttles remove none --reason x".to_owned(),
        "grants issue --tool web.fetch --scope per-tenant --for 1h --max-calls -1 --reason x --id g".to_owned(),
        "grants issue --tool no.such --scope per-tenant --for 1h --reason x --id g".to_owned(),
        "grants renew none --for 1h --reason x".to_owned(),
        "grants revoke none --reason x".to_owned(),
        "webhooks put pager --url https://hooks.example/ --event run.failed --secret none --reason x".to_owned(),
        "webhooks put pager --url http://hooks.example/ --event run.failed --secret none --reason x".to_owned(),
        "webhooks remove none --reason x".to_owned(),
    ] {
        let would = server.json(&format!("{act} --dry-run"));
        // A tenant that is not the caller's is the platform operator's to name, so that one act is done in earnest.
        let did = server.json(&act);
        assert_eq!(would.exit, did.exit, "{act}: {would:?}");
        if did.exit != 0 {
            assert_eq!(would.code(), did.code(), "{act}");
        }
    }
}

#[test]
fn a_throttle_or_grant_that_would_be_set_or_taken_away_is_shown_and_nothing_is_written() {
    let server = Server::start();
    const SET: &str = "throttles set slow --refill 1 --reason x";
    let new = server.json(&format!("{SET} --capacity 5 --dry-run")).json();
    assert_eq!(
        (&new["dryRun"], &new["before"], &new["after"]["throttle"]["capacity"]),
        (&json!(true), &Value::Null, &json!(5))
    );
    assert_eq!(server.json("throttles list").json()["throttles"], json!([]));
    assert_eq!(server.json(&format!("{SET} --capacity 5")).exit, 0);
    let changed = server.json(&format!("{SET} --capacity 9 --dry-run")).json();
    let capacities = (&changed["before"]["throttle"]["capacity"], &changed["after"]["throttle"]["capacity"]);
    assert_eq!(capacities, (&json!(5), &json!(9)));
    assert_eq!(server.json(&format!("{SET} --capacity 5 --dry-run")).json()["unchanged"], true);
    let gone = server.json("throttles remove slow --reason x --dry-run").json();
    assert_eq!(gone["throttle"]["throttle"]["capacity"], 5, "{gone}");
    assert_eq!(server.json("throttles show slow").json()["throttle"]["capacity"], 5);

    const ISSUE: &str = "grants issue --tool web.fetch --scope per-tenant --for 1h --id press --reason x";
    let would = server.json(&format!("{ISSUE} --dry-run")).json();
    assert_eq!((&would["dryRun"], &would["grant"]["grant"]["scopeKey"]), (&json!(true), &json!("default")), "{would}");
    assert_eq!(server.json("grants show press").code(), "no-such-grant");
    assert_eq!(server.json(ISSUE).exit, 0);
    let again = server.json("grants renew press --for 2h --id press-2 --reason x --dry-run").json();
    assert_eq!(again["grant"]["grant"]["grantId"], "press-2", "{again}");
    let would = server.json("grants revoke press --reason x --dry-run").json();
    assert_eq!(would["revokedGrantIds"], json!(["press"]));
    assert_eq!(server.json("grants show press").json()["state"], "live");
    assert_eq!(server.json("grants revoke press --expected-revision 99 --reason x --dry-run").code(), "stale-revision");
    assert_eq!(acts(&server), 2, "one throttle, one grant");
}

#[test]
fn a_key_that_would_be_taken_back_is_shown_and_goes_on_letting_in() {
    let server = Server::start();
    let made = server.json("keys create --name loader --days 1");
    if made.exit != 0 {
        // The development identity makes no keys: then there is none to take back either.
        let id = "0190d6a8-3c1e-7bbb-8f5e-000000000001";
        assert_ne!(server.json(&format!("keys revoke {id} --dry-run")).exit, 0, "{made:?}");
        return;
    }
    let id = made.json()["keyId"].as_str().unwrap().to_owned();
    let would = server.json(&format!("keys revoke {id} --dry-run")).json();
    assert_eq!((&would["dryRun"], &would["apiKey"]["state"]), (&json!(true), &json!("live")));
    assert_eq!(server.json("keys list").json()["apiKeys"].as_array().unwrap().len(), 1);
    // Each is an act with its record; twice is one act, and the secret's hash is in none.
    assert_eq!(server.json(&format!("keys revoke {id}")).exit, 0);
    assert_eq!(server.json(&format!("keys revoke {id}")).exit, 0);
    let told = server.json(&format!("audit list --subject api-key:{id}"));
    let kinds: Vec<_> = told.json()["acts"].as_array().unwrap().iter().map(|act| act["kind"].clone()).collect();
    assert_eq!(kinds, ["api-key-made", "api-key-revoked"], "{told:?}");
    assert!(told.out.contains("loader") && !told.out.contains("hash\":\"sbk"), "{told:?}");
    assert_eq!(server.json("verify --audit").exit, 0);
    let none = server.json("keys revoke 0190d6a8-3c1e-7bbb-8f5e-000000000001 --dry-run");
    assert_eq!(none.code(), "no-such-key");
}
