//! The Rust client for backend services against a real server.

use serde_json::json;
use signalbox_proto::client::{Client, Connect, Control, Item, Watch};
use signalbox_proto::v1;

use crate::harness::Server;

fn plan(steps: &serde_json::Value) -> Vec<u8> {
    json!({"rootAgentId": "ref.drafting", "plan": steps}).to_string().into_bytes()
}

async fn client(server: &Server) -> Client {
    Connect::to(&server.addr).open().await.unwrap()
}

async fn seqs(watch: &mut Watch) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(item) = watch.next().await.unwrap() {
        if let Item::Event(event) = item {
            seen.push(event.seq);
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_across_a_server_that_was_cut_without_gap_or_repeat() {
    let server = Server::start();
    let nap = json!([{"stepId": "nap", "kind": "wait", "seconds": 3}]);
    let run = client(&server).await.submit(None, plan(&nap)).await.unwrap();
    let mut watch = client(&server).await.watch(&run.run_id, 0);
    let Some(Item::Event(first)) = watch.next().await.unwrap() else { panic!("no event") };
    assert_eq!(first.seq, 1);
    let listen = server.addr.trim_start_matches("http://").to_owned();
    let (data, more) = (server.cut(), ["--listen".to_owned(), listen]);
    let _server = Server::over(data, &[more[0].as_str(), more[1].as_str()]);
    let rest = seqs(&mut watch).await;
    assert_eq!(rest, (2..2 + rest.len() as u64).collect::<Vec<_>>());
    assert_eq!(watch.cursor(), *rest.last().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_submitted_listed_steered_and_refused_by_their_code() {
    let server = Server::start();
    let client = client(&server).await;
    let run_id = "0190d6a8-3c1e-7bbb-8f5e-000000000001";
    let gate = plan(&json!([{"stepId": "gate", "kind": "approval", "prompt": "Go on?"}]));
    assert!(!client.submit(Some(run_id), gate.clone()).await.unwrap().replayed);
    assert!(client.submit(Some(run_id), gate).await.unwrap().replayed);
    let other = client.submit(Some(run_id), plan(&json!([{"stepId": "n", "kind": "wait", "seconds": 0}]))).await;
    assert_eq!(other.unwrap_err().code(), "run_id_conflict");
    let mut open = client.approvals().await.unwrap();
    while open.is_empty() {
        open = client.approvals().await.unwrap();
    }
    let asked = client.approval(&open[0].approval_id).await.unwrap();
    assert!(asked.may_decide);
    let digest = Some(open[0].subject_digest.as_str());
    let decided = client.decide(&open[0].approval_id, v1::ApprovalDecision::Approve, "read it", digest).await.unwrap();
    assert_eq!(decided.run_id, run_id);
    seqs(&mut client.watch(run_id, 0)).await;
    assert_eq!(client.get(run_id).await.unwrap().status, "completed");
    let listed = client.list(v1::ListRunsRequest::default()).await.unwrap();
    assert_eq!(listed.runs.len(), 1);
    let late = client.control(run_id, Control::Cancel(v1::Cancel {}), "late").await.unwrap_err();
    assert_eq!(late.code(), "run-terminal");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be_not_there() {
    let error = Connect::to("http://127.0.0.1:1").open().await.unwrap_err();
    assert_eq!(error.code(), "server-unreachable");
}
