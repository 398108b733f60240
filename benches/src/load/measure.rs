//! One measurement from its beginning to its line of figures.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::Failure;
use super::cost::{Used, listener};
use super::drive::{Latency, Progress, drive};
use super::executor::Process;
use super::node::Node;
use super::options::Options;

/// How long the last runs may take to end after the measurement.
const END_WITHIN: Duration = Duration::from_secs(60);

/// A reading of everything at one moment.
struct Reading {
    at: Instant,
    node: Used,
    executor: Used,
    database: Used,
    calls: u64,
    runs: u64,
    appends: u64,
    body_bytes: u64,
}

/// Whose processes are read.
struct Parts {
    node: u32,
    executor: u32,
    postmaster: Option<u32>,
}

impl Parts {
    fn read(&self, progress: &Progress) -> Result<Reading, Failure> {
        Ok(Reading {
            at: Instant::now(),
            node: Used::by(self.node)?,
            executor: Used::by(self.executor)?,
            database: self.postmaster.map(Used::by_family).transpose()?.unwrap_or_default(),
            calls: progress.calls.load(Ordering::Relaxed),
            runs: progress.runs.load(Ordering::Relaxed),
            appends: progress.appends.load(Ordering::Relaxed),
            body_bytes: progress.body_bytes.load(Ordering::Relaxed),
        })
    }
}

/// Measures governed calls.
pub async fn governed(options: &Options) -> Result<Value, Failure> {
    let executor = Process::executor(options)?;
    let node = Node::start(options, &executor.uri)?;
    let postmaster = options.store.as_deref().map(postmaster).transpose()?;
    let parts = Parts { node: node.process.pid, executor: executor.pid, postmaster };
    let progress = Arc::new(Progress::default());
    let drivers = drive(options, &node.process.uri, progress.clone()).await?;

    sleep(Duration::from_secs(options.warm)).await;
    let before = parts.read(&progress)?;
    sleep(Duration::from_secs(options.secs)).await;
    let after = parts.read(&progress)?;
    progress.stop.store(true, Ordering::Relaxed);

    let mut latencies: Vec<f64> = Vec::new();
    for driver in drivers {
        let of_driver = timeout(END_WITHIN, driver).await.map_err(|_| "a run does not end")???;
        let within = |latency: &&Latency| latency.0 >= before.at && latency.0 <= after.at;
        latencies.extend(of_driver.iter().filter(within).map(|(_, ms)| ms));
    }
    let stored = node.stored_bytes();
    Ok(figures(options, &before, &after, &mut latencies, stored))
}

fn figures(options: &Options, before: &Reading, after: &Reading, latencies: &mut [f64], stored: u64) -> Value {
    let secs = (after.at - before.at).as_secs_f64();
    let (calls, runs) = (after.calls - before.calls, after.runs - before.runs);
    let per_call = |count: u64| round(count as f64 / calls.max(1) as f64, 3);
    let per_kcall = |used: Used| round(used.cpu_s * 1_000.0 / calls.max(1) as f64, 4);
    let (node, executor) = (after.node.since(before.node), after.executor.since(before.executor));
    let database = after.database.since(before.database);
    let total = Used { cpu_s: node.cpu_s + executor.cpu_s + database.cpu_s, ..Used::default() };
    latencies.sort_by(f64::total_cmp);
    json!({
        "store": options.store_name(),
        "conc": options.conc,
        "calls": options.calls,
        "parallel": options.parallel,
        "payload": options.payload,
        "meter": options.meter,
        "secs": round(secs, 2),
        "runs_s": round(runs as f64 / secs, 1),
        "calls_s": round(calls as f64 / secs, 1),
        "p50_ms": quantile(latencies, 0.50),
        "p99_ms": quantile(latencies, 0.99),
        "cpu_s_per_kcall": {
            "node": per_kcall(node),
            "database": per_kcall(database),
            "executor": per_kcall(executor),
            "total": per_kcall(total),
        },
        "rss_mib": round(node.rss as f64 / 1_048_576.0, 1),
        "writes_per_call": per_call(after.appends - before.appends),
        "bytes_per_call": per_call(node.written + database.written),
        "journal_bytes_per_call": per_call(after.body_bytes - before.body_bytes),
        "stored_mib": round(stored as f64 / 1_048_576.0, 1),
    })
}

/// The server's first process: its CPU time cannot be told otherwise.
fn postmaster(store: &str) -> Result<u32, Failure> {
    let address = url::Url::parse(store).map_err(|_| "the store's address cannot be read")?;
    let found = listener(address.port().unwrap_or(5_432));
    found.ok_or_else(|| "the database must run on this machine, and be visible to this user, to be measured".into())
}

/// A quantile of sorted values; absent if there are none.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * q).round() as usize).map(|value| round(*value, 3))
}

/// A figure with so many decimals as it is worth.
pub fn round(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

/// The median of one figure over several measurements.
pub fn median(measured: &[Value], field: fn(&Value) -> &Value) -> f64 {
    let mut values: Vec<f64> = measured.iter().filter_map(|figures| field(figures).as_f64()).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
