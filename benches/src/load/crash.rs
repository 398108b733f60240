//! A node that is killed in the middle: how long until everything is done, and what was done twice or not at all.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signalbox_proto::v1::run_service_client::RunServiceClient;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use super::Failure;
use super::drive::{plan, submit, watch_to_its_end};
use super::executor::{AGENT, Books};
use super::measure::{quantile, round};
use super::node::Node;
use super::options::Options;

/// How long each call takes, so that calls are out when the node dies.
const CALL_TAKES: Duration = Duration::from_millis(20);
/// When it dies: by then every run has begun, and none is done.
const DIES_AFTER: Duration = Duration::from_millis(60);
/// How long everything may take.
const DONE_WITHIN: Duration = Duration::from_secs(120);

/// Kills a node with `conc` runs in flight, starts it again, and waits for all of them.
pub async fn crash(options: &Options) -> Result<Value, Failure> {
    let books = Books::open(options.payload, CALL_TAKES).await?;
    let mut node = Node::start(options, books.uri())?;
    let client = connect(&node.process.uri).await?;
    let submission = json!({ "rootAgentId": AGENT, "plan": plan(options.calls, options.parallel) }).to_string();
    let runs: Vec<String> = (0..options.conc).map(|_| Uuid::now_v7().to_string()).collect();
    for run in &runs {
        submit(&mut client.clone(), run, submission.as_bytes()).await?;
    }
    sleep(DIES_AFTER).await;
    let before = books.calls();
    drop(client);
    let died = Instant::now();
    node.restart(options)?;
    let listens_ms = died.elapsed().as_secs_f64() * 1_000.0;
    let client = connect(&node.process.uri).await?;
    let watches: Vec<_> = runs
        .iter()
        .map(|run| {
            let (mut client, run) = (client.clone(), run.clone());
            tokio::spawn(async move { watch_to_its_end(&mut client, &run).await.map(|()| died.elapsed()) })
        })
        .collect();
    let mut took = Vec::with_capacity(watches.len());
    for watch in watches {
        took.push(timeout(DONE_WITHIN, watch).await.map_err(|_| "a run does not end")???.as_secs_f64() * 1_000.0);
    }
    took.sort_by(f64::total_cmp);
    let counts = books.counts();
    Ok(json!({
        "store": options.store_name(),
        "runs": options.conc,
        "calls_before_the_kill": before,
        "kill_to_listening_ms": round(listens_ms, 1),
        "kill_to_all_done_ms": quantile(&took, 1.0),
        "kill_to_done_p50_ms": quantile(&took, 0.5),
        "calls_sent_again": counts.iter().filter(|times| **times > 1).count(),
        "calls_lost": (options.conc * options.calls).saturating_sub(counts.len()),
    }))
}

async fn connect(uri: &str) -> Result<RunServiceClient<Channel>, Failure> {
    Ok(RunServiceClient::new(Endpoint::from_shared(uri.to_owned())?.tcp_nodelay(true).connect().await?))
}
