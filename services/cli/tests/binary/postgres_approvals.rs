//! A gate on PostgreSQL outlives the node that asked, and its answer is the same on every other.

use tempfile::TempDir;

use crate::approvals::one_gate;
use crate::harness::Server;
use crate::postgres_nodes::Database;

fn serve(database: &Database) -> Server {
    Server::over(TempDir::new().unwrap(), &["--store", &database.url()])
}

/// Waits out the lease of a node that was killed, which is what it is about.
#[test]
fn a_question_of_a_node_that_was_killed_is_answered_at_another_once_and_the_same_everywhere() {
    let database = Database::create();
    let first = serve(&database);
    let run_id = first.waits(&one_gate(600));
    let second = serve(&database);
    first.cut();
    let id = second.open_question();
    let line = format!("approvals decide {id} --approve --reason ok --command-id 0190d6a8-3c1e-7bbb-8f5e-0000000000aa");
    let decided = second.json(&line);
    assert_eq!((decided.exit, decided.json()["status"].as_str()), (0, Some("running")), "{decided:?}");
    assert_eq!(second.json(&format!("runs watch {run_id}")).exit, 0);
    let third = serve(&database);
    for server in [&second, &third] {
        assert_eq!(server.json(&line).json(), decided.json());
        let again = server.json(&format!("approvals decide {id} --approve --reason ok"));
        assert_eq!((again.exit, again.code()), (1, "approval-closed"), "{again:?}");
        assert_eq!(server.json(&format!("approvals show {id}")).json()["state"], "approved");
    }
    assert_eq!(third.kinds(&run_id).iter().filter(|kind| *kind == "approval-decided").count(), 1);
}
