//! Runs, submitted and watched over the public API, a fixed number at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use signalbox_proto::v1;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use signalbox_proto::v1::watch_run_response::Item;
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use super::Failure;
use super::executor::{AGENT, TOOL};
use super::options::Options;

/// Runs that share a connection.
const RUNS_PER_CONNECTION: usize = 64;

/// What has happened so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// Calls that were settled.
    pub calls: AtomicU64,
    /// Runs that were closed.
    pub runs: AtomicU64,
    /// Appends that were seen: events of one append carry one instant.
    pub appends: AtomicU64,
    /// Bytes of the events' bodies.
    pub body_bytes: AtomicU64,
    /// True once no further run is to begin.
    pub stop: AtomicBool,
}

/// One finished run: when it ended, and how long it took in milliseconds.
pub type Latency = (Instant, f64);

/// One of the tasks that each keep one run going.
pub type Driver = tokio::task::JoinHandle<Result<Vec<Latency>, Failure>>;

/// The plan of one run: `calls` calls, `parallel` of them side by side, each layer after the one before.
pub fn plan(calls: usize, parallel: usize) -> Value {
    let steps: Vec<_> = (0..calls)
        .map(|step| {
            let before = (step / parallel).checked_sub(1).map(|layer| layer * parallel);
            let depends: Vec<_> =
                before.into_iter().flat_map(|first| first..first + parallel).map(|step| format!("s{step}")).collect();
            json!({
                "stepId": format!("s{step}"), "kind": "tool", "toolId": TOOL, "dependsOnStepIds": depends,
                "args": { "step": step },
            })
        })
        .collect();
    json!({ "steps": steps, "maxParallel": parallel })
}

/// Keeps `conc` runs going until `stop`; each driver's finished runs come back at the end.
pub async fn drive(options: &Options, uri: &str, progress: Arc<Progress>) -> Result<Vec<Driver>, Failure> {
    let submission = json!({ "rootAgentId": AGENT, "plan": plan(options.calls, options.parallel) });
    let submission: Arc<[u8]> = submission.to_string().into_bytes().into();
    let mut drivers = Vec::with_capacity(options.conc);
    let mut channel = None;
    for index in 0..options.conc {
        if index % RUNS_PER_CONNECTION == 0 {
            channel = Some(Endpoint::from_shared(uri.to_owned())?.tcp_nodelay(true).connect().await?);
        }
        let client = RunServiceClient::new(channel.clone().ok_or("there is no connection")?);
        drivers.push(tokio::spawn(one_after_another(client, submission.clone(), progress.clone())));
    }
    Ok(drivers)
}

async fn one_after_another(
    mut client: RunServiceClient<Channel>,
    submission: Arc<[u8]>,
    progress: Arc<Progress>,
) -> Result<Vec<Latency>, Failure> {
    let mut latencies = Vec::new();
    while !progress.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let run = Uuid::now_v7().to_string();
        submit(&mut client, &run, &submission).await?;
        watch(&mut client, &run, &progress).await?;
        let ended = Instant::now();
        latencies.push((ended, (ended - began).as_secs_f64() * 1_000.0));
    }
    Ok(latencies)
}

/// Submits one run under this id.
pub async fn submit(client: &mut RunServiceClient<Channel>, run: &str, submission: &[u8]) -> Result<(), Failure> {
    let request = v1::SubmitRunRequest { run_id: run.to_owned(), submission_json: submission.to_vec().into() };
    client.submit_run(request).await?;
    Ok(())
}

/// Waits until a run is closed; one that does not complete is a failure.
pub async fn watch_to_its_end(client: &mut RunServiceClient<Channel>, run: &str) -> Result<(), Failure> {
    watch(client, run, &Progress::default()).await
}

async fn watch(client: &mut RunServiceClient<Channel>, run: &str, progress: &Progress) -> Result<(), Failure> {
    let request = v1::WatchRunRequest { run_id: run.to_owned(), after_seq: 0 };
    let mut events = client.watch_run(request).await?.into_inner();
    let mut last_at = 0;
    while let Some(heard) = events.message().await? {
        let Some(Item::Event(event)) = heard.item else { continue };
        progress.body_bytes.fetch_add(event.body_json.len() as u64, Ordering::Relaxed);
        if event.at_unix_micros != last_at {
            last_at = event.at_unix_micros;
            progress.appends.fetch_add(1, Ordering::Relaxed);
        }
        match event.kind.as_str() {
            "call-settled" => {
                progress.calls.fetch_add(1, Ordering::Relaxed);
            }
            "run-finished" if !said_completed(&event.body_json) => {
                let body = String::from_utf8_lossy(&event.body_json).into_owned();
                return Err(format!("a run did not complete: {body}").into());
            }
            "run-closed" => {
                progress.runs.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
    Ok(())
}

fn said_completed(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| body["status"] == "completed")
}
