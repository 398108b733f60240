//! A thin client for backend services: it connects, names every request so that saying it twice is harmless, waits where
//! the server says that waiting helps, and follows a run across restarts of the server.
//!
//! It decides nothing and keeps nothing: what it sends and gets are the messages of the contract, and [`Client::wire`] is
//! there for whatever it has no method for.
//!
//! docs/clients.md shows it at work; the example there is compiled with the tests of this crate.

mod connect;
mod error;
mod retry;
mod watch;

use bytes::Bytes;
use tonic::{Request, Status};
use uuid::Uuid;

pub use crate::v1::control_run_request::Control;
pub use crate::v1::watch_run_response::Item;
pub use connect::{Connect, Credential, Wire};
pub use error::ClientError;
pub use retry::{Retry, connection_broke};
pub use signalbox_tls::ClientFiles;
pub use watch::Watch;

use crate::v1;
use crate::v1::run_service_client::RunServiceClient;

/// Largest answer that is read, in bytes: the envelope of a big run.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Runs, as a backend service sees them. Cloning it is cheap; all clones share one connection.
#[derive(Debug, Clone)]
pub struct Client {
    runs: RunServiceClient<Wire>,
    connect: Connect,
}

impl Client {
    /// The generated client, for calls that have no method here.
    pub fn wire(&self) -> RunServiceClient<Wire> {
        self.runs.clone()
    }

    /// Submits a run. The id makes it idempotent; without one a fresh id is chosen here, so that a repetition after a lost
    /// answer is still one run.
    ///
    /// # Errors
    /// What the server refuses, by its code.
    pub async fn submit(
        &self,
        run_id: Option<&str>,
        submission_json: impl Into<Bytes>,
    ) -> Result<v1::SubmitRunResponse, ClientError> {
        let run_id = run_id.map_or_else(fresh_id, ToOwned::to_owned);
        let request = v1::SubmitRunRequest { run_id, submission_json: submission_json.into() };
        self.send(request, async |mut runs, request| runs.submit_run(request).await).await
    }

    /// One run, with its envelope.
    ///
    /// # Errors
    /// What the server refuses, by its code.
    pub async fn get(&self, run_id: &str) -> Result<v1::Run, ClientError> {
        let request = v1::GetRunRequest { run_id: run_id.to_owned() };
        let answer = self.send(request, async |mut runs, request| runs.get_run(request).await).await?;
        answer.run.ok_or(ClientError::Answer("a run without a run"))
    }

    /// A page of runs, newest first.
    ///
    /// # Errors
    /// What the server refuses, by its code.
    pub async fn list(&self, request: v1::ListRunsRequest) -> Result<v1::ListRunsResponse, ClientError> {
        self.send(request, async |mut runs, request| runs.list_runs(request).await).await
    }

    /// Follows a run from after an event (0: from its beginning) until it is closed.
    pub fn watch(&self, run_id: &str, after_seq: u64) -> Watch {
        Watch::new(self.wire(), run_id, after_seq).with_retry(self.connect.retry)
    }

    /// Steers a run, under a command id of its own.
    ///
    /// # Errors
    /// What the server refuses, by its code.
    pub async fn control(
        &self,
        run_id: &str,
        control: Control,
        reason: &str,
    ) -> Result<v1::ControlRunResponse, ClientError> {
        let request = v1::ControlRunRequest {
            run_id: run_id.to_owned(),
            command_id: fresh_id(),
            reason: reason.to_owned(),
            control: Some(control),
            ..v1::ControlRunRequest::default()
        };
        self.control_with(request).await
    }

    /// The same with every field said. An empty `command_id` is replaced by a fresh one.
    ///
    /// # Errors
    /// What the server refuses, by its code.
    pub async fn control_with(
        &self,
        mut request: v1::ControlRunRequest,
    ) -> Result<v1::ControlRunResponse, ClientError> {
        if request.command_id.is_empty() {
            request.command_id = fresh_id();
        }
        self.send(request, async |mut runs, request| runs.control_run(request).await).await
    }

    /// The open questions, oldest first.
    ///
    /// # Errors
    /// What the server refuses, by its code.
    pub async fn approvals(&self) -> Result<Vec<v1::Approval>, ClientError> {
        let request = v1::ListApprovalsRequest::default();
        let answer = self.send(request, async |mut runs, request| runs.list_approvals(request).await).await?;
        Ok(answer.approvals)
    }

    /// One question, open or not, with what it is about.
    ///
    /// # Errors
    /// What the server refuses, by its code.
    pub async fn approval(&self, approval_id: &str) -> Result<v1::GetApprovalResponse, ClientError> {
        let request = v1::GetApprovalRequest { approval_id: approval_id.to_owned() };
        self.send(request, async |mut runs, request| runs.get_approval(request).await).await
    }

    /// Answers a question. With the digest of what was shown, an answer to something else is refused.
    ///
    /// # Errors
    /// What the server refuses, by its code.
    pub async fn decide(
        &self,
        approval_id: &str,
        decision: v1::ApprovalDecision,
        reason: &str,
        subject_digest: Option<&str>,
    ) -> Result<v1::DecideApprovalResponse, ClientError> {
        let request = v1::DecideApprovalRequest {
            approval_id: approval_id.to_owned(),
            decision: decision.into(),
            reason: reason.to_owned(),
            subject_digest: subject_digest.unwrap_or_default().to_owned(),
            command_id: fresh_id(),
        };
        self.send(request, async |mut runs, request| runs.decide_approval(request).await).await
    }

    // Every request may be said again: reading changes nothing, and what changes something carries an id.
    async fn send<Q: Clone, A>(
        &self,
        request: Q,
        call: impl AsyncFn(RunServiceClient<Wire>, Request<Q>) -> Result<tonic::Response<A>, Status>,
    ) -> Result<A, ClientError> {
        let mut told = 0;
        loop {
            let mut asked = Request::new(request.clone());
            asked.set_timeout(self.connect.answer_within);
            match call(self.wire(), asked).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => match self.connect.retry.pause(&status, told) {
                    Some(pause) => {
                        told += 1;
                        tokio::time::sleep(pause).await;
                    }
                    None => return Err(status.into()),
                },
            }
        }
    }
}

/// The page's examples, so that they cannot rot.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/clients.md")]
pub struct PageOfExamples;

fn fresh_id() -> String {
    Uuid::now_v7().to_string()
}
