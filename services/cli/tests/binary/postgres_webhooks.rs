//! Two processes serve one PostgreSQL: what happens is told once, whichever of them it happens at.

use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::Server;
use crate::postgres_nodes::Database;
use crate::receiver::{Receiver, Reply};
use crate::webhooks::{call, configured, ok, put_hook, submit};

fn serve(database: &Database) -> Server {
    let data = TempDir::new().unwrap();
    let config = configured(data.path(), "");
    Server::over(data, &["--config", &config, "--store", &database.url()])
}

#[test]
fn two_nodes_tell_each_event_once_and_one_goes_on_where_the_other_died() {
    let receiver = Receiver::start(|_, _| Reply::Status(200));
    let database = Database::create();
    let servers = [serve(&database), serve(&database)];
    put_hook(&servers[0], "w", &receiver.url("/w"), &["run.completed", "switch.armed"], &[]);
    for _ in 0..10 {
        for server in &servers {
            submit(server, &call("k"));
        }
    }
    ok(&servers[1], &["switches", "arm", "--scope", "tool", "--target", "web.fetch", "--reason", "x", "--id", "d"]);
    let mut ids: Vec<_> =
        receiver.wait("/w", 21).iter().map(|request| request.header("webhook-id").to_owned()).collect();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(receiver.at("/w").len(), 21, "nothing twice");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 21);

    let [dying, other] = servers;
    drop(dying.cut());
    submit(&other, &call("k"));
    // At the latest when the lease of the dead one has run out.
    let last = receiver.wait("/w", 22).pop().unwrap();
    assert_eq!(last.event()["type"], json!("dev.signalbox.run.completed"));
}
