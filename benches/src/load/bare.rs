//! The loop without any governance: what the wire and the disk cost alone.
//!
//! Each of `conc` tasks goes on and on: one unary call to the executor in another process, one JSON event about it, its
//! SHA-256 on top of the one before, and one append, which waits until it is durable. Appends of all tasks are batched
//! into SQLite, WAL and `synchronous=FULL`, as the journal's are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use signalbox_proto::v1;
use signalbox_proto::v1::tool_executor_client::ToolExecutorClient;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use super::Failure;
use super::cost::Used;
use super::drive::Progress;
use super::executor::Process;
use super::measure::round;
use super::options::Options;

/// Most appends of one transaction.
const BATCH_MAX: usize = 512;

struct Row {
    run: Uuid,
    seq: i64,
    body: Vec<u8>,
    hash: [u8; 32],
    written: oneshot::Sender<()>,
}

/// Measures it. This process is the loop; its CPU stands where the node's stands in a governed measurement.
pub async fn bare(options: &Options) -> Result<Value, Failure> {
    let executor = Process::executor(options)?;
    let folder = tempfile::Builder::new().prefix("signalbox-loadgen-").tempdir_in(&options.data)?;
    let connection = open(&folder.path().join("bare.db"))?;
    let (rows, waiting) = mpsc::channel(BATCH_MAX);
    let writer = std::thread::spawn(move || write(connection, waiting));
    let progress = Arc::new(Progress::default());
    let channel = Endpoint::from_shared(executor.uri.clone())?.tcp_nodelay(true).connect().await?;
    let tasks: Vec<_> =
        (0..options.conc).map(|_| tokio::spawn(steps(channel.clone(), rows.clone(), progress.clone()))).collect();
    drop(rows);

    sleep(Duration::from_secs(options.warm)).await;
    let read = || -> Result<_, Failure> {
        Ok((
            Instant::now(),
            progress.calls.load(Ordering::Relaxed),
            Used::by(std::process::id())?,
            Used::by(executor.pid)?,
        ))
    };
    let before = read()?;
    sleep(Duration::from_secs(options.secs)).await;
    let after = read()?;
    progress.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await??;
    }
    writer.join().map_err(|_| "the writing thread failed")??;

    let secs = (after.0 - before.0).as_secs_f64();
    let calls = (after.1 - before.1).max(1) as f64;
    let (own, theirs) = (after.2.since(before.2), after.3.since(before.3));
    let per_kcall = |cpu_s: f64| round(cpu_s * 1_000.0 / calls, 4);
    Ok(json!({
        "store": "bare",
        "conc": options.conc,
        "payload": options.payload,
        "secs": round(secs, 2),
        "calls_s": round(calls / secs, 1),
        "cpu_s_per_kcall": {
            "node": per_kcall(own.cpu_s),
            "database": 0.0,
            "executor": per_kcall(theirs.cpu_s),
            "total": per_kcall(own.cpu_s + theirs.cpu_s),
        },
        "rss_mib": round(own.rss as f64 / 1_048_576.0, 1),
        "writes_per_call": 1.0,
        "bytes_per_call": round(own.written as f64 / calls, 3),
    }))
}

async fn steps(channel: Channel, rows: mpsc::Sender<Row>, progress: Arc<Progress>) -> Result<(), Failure> {
    let mut client = ToolExecutorClient::new(channel).max_decoding_message_size(16 << 20);
    let run = Uuid::now_v7();
    let (mut seq, mut hash) = (0, [0; 32]);
    while !progress.stop.load(Ordering::Relaxed) {
        let call_id = Uuid::now_v7().to_string();
        let answer = client.outcome(v1::OutcomeRequest { call_id: call_id.clone() }).await?.into_inner();
        let output = answer.result.map(|result| result.output_json).unwrap_or_default();
        let output: Value = serde_json::from_slice(&output)?;
        seq += 1;
        let body = serde_json::to_vec(&json!({ "kind": "step-done", "callId": call_id, "output": output }))?;
        let mut hasher = Sha256::new();
        hasher.update(hash);
        hasher.update(run.as_bytes());
        hasher.update(i64::to_be_bytes(seq));
        hasher.update(&body);
        hash = hasher.finalize().into();
        let (written, is_written) = oneshot::channel();
        rows.send(Row { run, seq, body, hash, written }).await.map_err(|_| "the writing thread is gone")?;
        is_written.await?;
        progress.calls.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn open(path: &std::path::Path) -> Result<Connection, Failure> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
         CREATE TABLE events (run BLOB, seq INTEGER, body BLOB, hash BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID;",
    )?;
    Ok(connection)
}

fn write(mut connection: Connection, mut waiting: mpsc::Receiver<Row>) -> Result<(), Failure> {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while waiting.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached("INSERT INTO events VALUES (?, ?, ?, ?)")?;
            for row in &batch {
                insert.execute((row.run.as_bytes(), row.seq, &row.body, row.hash))?;
            }
        }
        transaction.commit()?;
        for row in batch.drain(..) {
            // A task that was stopped does not wait any more.
            let _ = row.written.send(());
        }
    }
    Ok(())
}
