//! A switch that is armed under load: when the last call goes out after it, and when every run is over.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signalbox_proto::v1;
use signalbox_proto::v1::governance_service_client::GovernanceServiceClient;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use super::Failure;
use super::drive::{plan, submit};
use super::executor::{AGENT, Books};
use super::measure::{quantile, round};
use super::node::Node;
use super::options::Options;

/// How long each call takes, so that calls are out when the switch is armed.
const CALL_TAKES: Duration = Duration::from_millis(20);
/// Calls of each run: more than are made before the switch is armed.
const CALLS: usize = 200;
/// Runs that share a connection.
const RUNS_PER_CONNECTION: usize = 64;
/// How long everything may take.
const OVER_WITHIN: Duration = Duration::from_secs(120);

/// Arms a global switch while `conc` runs are at work, and waits for all of them.
pub async fn kill_switch(options: &Options) -> Result<Value, Failure> {
    let books = Books::open(options.payload, CALL_TAKES).await?;
    let node = Node::start(options, books.uri())?;
    let submission = json!({ "rootAgentId": AGENT, "plan": plan(CALLS, options.parallel) }).to_string();
    let mut ends = Vec::with_capacity(options.conc);
    let mut channel = None;
    for index in 0..options.conc {
        if index % RUNS_PER_CONNECTION == 0 {
            channel = Some(connect(&node.process.uri).await?);
        }
        let mut client = RunServiceClient::new(channel.clone().ok_or("there is no connection")?);
        let run = Uuid::now_v7().to_string();
        submit(&mut client, &run, submission.as_bytes()).await?;
        ends.push(tokio::spawn(async move { end_of(&mut client, &run).await }));
    }
    sleep(Duration::from_secs(options.warm)).await;

    let mut governance = GovernanceServiceClient::new(connect(&node.process.uri).await?);
    let asked = Instant::now();
    let armed = governance.arm_switch(v1::ArmSwitchRequest {
        switch_id: "loadgen".to_owned(),
        platform_wide: true,
        scope: v1::SwitchScope::Global.into(),
        reason: "measured".to_owned(),
        user_visible_status_copy: "This run was stopped.".to_owned(),
        ..v1::ArmSwitchRequest::default()
    });
    armed.await?;
    // The commit lies between the question and this answer; counted from here a call looks later than it was by less.
    let answered = Instant::now();
    let calls_then = books.calls();

    let mut over = Vec::with_capacity(ends.len());
    for end in ends {
        let ended = timeout(OVER_WITHIN, end).await.map_err(|_| "a run does not end")???;
        over.push(ended.saturating_duration_since(asked).as_secs_f64() * 1_000.0);
    }
    over.sort_by(f64::total_cmp);
    let ms = |span: Duration| round(span.as_secs_f64() * 1_000.0, 2);
    let last = books.last_call().unwrap_or(asked);
    Ok(json!({
        "store": options.store_name(),
        "runs": options.conc,
        "asked_to_armed_ms": ms(answered - asked),
        "asked_to_last_dispatch_ms": ms(last.saturating_duration_since(asked)),
        "armed_to_last_dispatch_ms": ms(last.saturating_duration_since(answered)),
        "calls_after_armed": books.calls() - calls_then,
        "asked_to_over_p50_ms": quantile(&over, 0.5),
        "asked_to_all_over_ms": quantile(&over, 1.0),
    }))
}

/// When a run has ended; it must have been killed.
async fn end_of(client: &mut RunServiceClient<Channel>, run: &str) -> Result<Instant, Failure> {
    let request = v1::WatchRunRequest { run_id: run.to_owned(), after_seq: 0 };
    let mut events = client.watch_run(request).await?.into_inner();
    while let Some(heard) = events.message().await? {
        let Some(v1::watch_run_response::Item::Event(event)) = heard.item else { continue };
        if event.kind == "run-finished" {
            let body: Value = serde_json::from_slice(&event.body_json)?;
            if body["status"] != "killed" {
                return Err(format!("a run was not killed: {body}").into());
            }
            return Ok(Instant::now());
        }
    }
    Err("a run was not killed before its watch ended".into())
}

async fn connect(uri: &str) -> Result<Channel, Failure> {
    Ok(Endpoint::from_shared(uri.to_owned())?.tcp_nodelay(true).connect().await?)
}
