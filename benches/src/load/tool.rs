//! The tool of a comparison: one HTTP GET that does no work and answers with the same bytes, and a count of them.
//!
//! Every contender calls it, so what differs between them is not what is called.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use super::Failure;

/// Serves `/call/{run}/{step}` and `/count` until the process ends; prints its address first.
pub async fn serve(payload: usize) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", json!({ "listen": listener.local_addr()? }))?;
    out.flush()?;
    let calls = Arc::new(AtomicU64::new(0));
    let answer: Arc<str> = padded(payload).into();
    let counted = Arc::clone(&calls);
    let call = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let answer = Arc::clone(&answer);
        async move { answer.to_string() }
    };
    let count = move || async move { calls.load(Ordering::Relaxed).to_string() };
    let router = Router::new().route("/call/{run}/{step}", get(call)).route("/count", get(count));
    // An answer of some bytes waits for no other: peers leave Nagle's algorithm on at their own end, and not here.
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // A connection that cannot be set is only slower.
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, router).await?)
}

/// JSON of so many bytes.
pub fn padded(payload: usize) -> String {
    let frame = json!({ "pad": "" }).to_string().len();
    json!({ "pad": "x".repeat(payload.saturating_sub(frame)) }).to_string()
}
