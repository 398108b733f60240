//! Runs that wait for a decision: what they cost in memory, and what they cost a node that starts.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signalbox_proto::v1::run_service_client::RunServiceClient;
use tokio::time::sleep;
use tonic::transport::Endpoint;
use uuid::Uuid;

use super::Failure;
use super::cost::Used;
use super::drive::submit;
use super::executor::{AGENT, Process};
use super::measure::round;
use super::node::Node;
use super::options::Options;

/// A run that waits is parked after five seconds; by then the last one is.
const PARKED_AFTER: Duration = Duration::from_secs(8);

/// Parks so many runs in an approval and reports the memory they take and how long a start takes beside them.
pub async fn park(options: &Options) -> Result<Value, Failure> {
    let executor = Process::executor(options)?;
    let mut node = Node::start(options, &executor.uri)?;
    sleep(Duration::from_secs(1)).await;
    let empty = Used::by(node.process.pid)?.rss;
    let plan = json!([{ "stepId": "gate", "kind": "approval", "prompt": "May it go on?" }]);
    let submission = json!({ "rootAgentId": AGENT, "plan": plan }).to_string();
    let channel = Endpoint::from_shared(node.process.uri.clone())?.tcp_nodelay(true).connect().await?;
    let began = Instant::now();
    let drivers: Vec<_> = (0..options.conc)
        .map(|driver| {
            let mut client = RunServiceClient::new(channel.clone());
            let (submission, share) = (submission.clone(), (options.park + options.conc - 1 - driver) / options.conc);
            tokio::spawn(async move {
                for _ in 0..share {
                    submit(&mut client, &Uuid::now_v7().to_string(), submission.as_bytes()).await?;
                }
                Ok::<_, Failure>(())
            })
        })
        .collect();
    for driver in drivers {
        driver.await??;
    }
    let submitted_s = began.elapsed().as_secs_f64();
    sleep(PARKED_AFTER).await;
    let parked = Used::by(node.process.pid)?.rss;
    let began = Instant::now();
    node.restart(options)?;
    let start_ms = began.elapsed().as_secs_f64() * 1_000.0;
    sleep(Duration::from_secs(2)).await;
    let anew = Used::by(node.process.pid)?.rss;
    let mib = |bytes: u64| round(bytes as f64 / 1_048_576.0, 1);
    Ok(json!({
        "store": options.store_name(),
        "parked": options.park,
        "submitted_s": round(options.park as f64 / submitted_s, 1),
        "rss_mib_empty": mib(empty),
        "rss_mib_parked": mib(parked),
        "rss_mib_started_anew": mib(anew),
        "start_ms": round(start_ms, 1),
        "stored_mib": mib(node.stored_bytes()),
    }))
}
