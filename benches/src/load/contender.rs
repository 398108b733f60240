//! Somebody else's runtime under the same load: runs that are started by one HTTP request each, which answers when the
//! run has ended.
//!
//! `benches/peers/compare` starts the contender and this; a step is counted where it is seen, at the tool, because a run may
//! last about as long as a measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::Failure;
use super::cost::Used;
use super::drive::Latency;
use super::measure::{quantile, round};
use super::options::Options;

/// How long the last runs may take to end after the measurement.
const END_WITHIN: Duration = Duration::from_secs(60);

/// A reading of everything at one moment.
struct Reading {
    at: Instant,
    steps: u64,
    used: Vec<Used>,
}

/// Measures what listens at `--url`. Its processes are named by `--watch`, its tool by `--tool`.
pub async fn contender(options: &Options) -> Result<Value, Failure> {
    let url = options.url.clone().ok_or("`contender` needs the `--url` that starts a run")?;
    let tool = options.tool.clone().ok_or("`contender` needs the `--tool` that counts steps")?;
    let client = reqwest::Client::builder().tcp_nodelay(true).pool_max_idle_per_host(options.conc).build()?;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..options.conc)
        .map(|_| tokio::spawn(one_after_another(client.clone(), url.clone(), Arc::clone(&stop))))
        .collect();

    sleep(Duration::from_secs(options.warm)).await;
    let before = read(options, &client, &tool).await?;
    sleep(Duration::from_secs(options.secs)).await;
    let after = read(options, &client, &tool).await?;
    stop.store(true, Ordering::Relaxed);

    let mut latencies: Vec<f64> = Vec::new();
    for task in tasks {
        let of_task = timeout(END_WITHIN, task).await.map_err(|_| "a run does not end")???;
        let within = |latency: &&Latency| latency.0 >= before.at && latency.0 <= after.at;
        latencies.extend(of_task.iter().filter(within).map(|(_, ms)| ms));
    }
    Ok(figures(options, &before, &after, &mut latencies))
}

async fn one_after_another(
    client: reqwest::Client,
    url: String,
    stop: Arc<AtomicBool>,
) -> Result<Vec<Latency>, Failure> {
    let mut latencies = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let run = json!({ "run": Uuid::now_v7() }).to_string();
        let request = client.post(&url).header("content-type", "application/json").body(run);
        // A run that fails is no run: it would make its runtime look quick.
        request.send().await?.error_for_status()?.bytes().await?;
        let ended = Instant::now();
        latencies.push((ended, (ended - began).as_secs_f64() * 1_000.0));
    }
    Ok(latencies)
}

async fn read(options: &Options, client: &reqwest::Client, tool: &str) -> Result<Reading, Failure> {
    let steps = client.get(format!("{tool}/count")).send().await?.text().await?.parse()?;
    let used = options.watch.iter().map(|(_, pid)| Used::by_family(*pid)).collect::<Result<_, _>>()?;
    Ok(Reading { at: Instant::now(), steps, used })
}

fn figures(options: &Options, before: &Reading, after: &Reading, latencies: &mut [f64]) -> Value {
    let secs = (after.at - before.at).as_secs_f64();
    let steps = (after.steps - before.steps).max(1) as f64;
    let (mut cpu, mut total, mut rss) = (Map::new(), 0.0, 0);
    for ((name, _), (before, after)) in options.watch.iter().zip(before.used.iter().zip(&after.used)) {
        let used = after.since(*before);
        total += used.cpu_s;
        rss += used.rss;
        cpu.insert(name.clone(), round(used.cpu_s * 1_000.0 / steps, 4).into());
    }
    cpu.insert("total".to_owned(), round(total * 1_000.0 / steps, 4).into());
    latencies.sort_by(f64::total_cmp);
    json!({
        "conc": options.conc,
        "secs": round(secs, 2),
        "runs_s": round(steps / secs / options.calls as f64, 1),
        "calls_s": round(steps / secs, 1),
        "p50_ms": quantile(latencies, 0.50),
        "p99_ms": quantile(latencies, 0.99),
        "cpu_s_per_kcall": cpu,
        "rss_mib": round(rss as f64 / 1_048_576.0, 1),
    })
}
