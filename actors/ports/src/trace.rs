//! What a piece of work was asked for by, in the caller's own trace, and the span of the asking itself.
//!
//! The cause goes with the task and not through signatures: no rule depends on it, and nothing is decided by it.

use std::future::Future;
use std::time::{Duration, SystemTime};

use signalbox_domain::run::trace::TraceContext;

tokio::task_local! {
    static CAUSE: TraceContext;
}

/// Does the work as part of what `cause` names.
pub async fn caused_by<F: Future>(cause: TraceContext, work: F) -> F::Output {
    CAUSE.scope(cause, work).await
}

/// Work for a task of its own, asked for by whatever this task was asked for by.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let cause = cause();
    async move {
        match cause {
            Some(cause) => caused_by(cause, work).await,
            None => work.await,
        }
    }
}

/// What this task was asked for by, if it was said.
pub fn cause() -> Option<TraceContext> {
    CAUSE.try_with(|cause| *cause).ok()
}

/// A request that was answered at the edge.
#[derive(Debug, Clone)]
pub struct AnsweredRequest {
    /// The call of gRPC as `service/method`, or the method of HTTP.
    pub name: String,
    /// The path of HTTP.
    pub path: Option<String>,
    /// Its own span.
    pub span: TraceContext,
    /// The caller's, if it named one.
    pub parent: Option<[u8; 8]>,
    /// When it came in.
    pub began: SystemTime,
    /// How long it took until the answer began.
    pub took: Duration,
    /// The status of HTTP.
    pub status: u16,
    /// The status of gRPC, where the answer begins with it.
    pub grpc_status: Option<i64>,
}

/// Whoever records the spans of requests.
pub trait RequestSpans: Send + Sync + 'static {
    /// Whether the spans of this trace are recorded.
    fn records(&self, trace: &TraceContext) -> bool;
    /// Records one.
    fn answered(&self, request: AnsweredRequest);
}
