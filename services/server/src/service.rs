//! `RunService`: each method identifies the caller, reads the request strictly, asks the node and converts the answer.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use http::HeaderMap;
use prost::Message;
use signalbox_domain::ids::{ApprovalId, CallId, CommandId, RunId};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::telling::tell;
use signalbox_domain::run::verify::verify;
use signalbox_ports::clock::{Clock as _, Ids, SystemClock};
use signalbox_proto::v1::{self, run_service_server::RunService};
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status};

use crate::api::{ErrorKind, FeedbackApi, GovernanceApi, RunApi};
use crate::asks::{Steered, explained, sees_envelope};
use crate::errors::Refusal;
use crate::identity::{Identify, caller_of};
use crate::listing::{self, Listing};
use crate::rates::Rates;
use crate::serve::ANSWER_BYTES_MAX;
use crate::watch::WatchLimits;
use crate::{convert, errors, transport, validate};

/// Most events one message of an export holds.
const EXPORT_EVENTS_MAX: usize = 100;
/// Size of the bodies at which a message of an export is sent although it could hold more events, in bytes.
const EXPORT_BYTES: usize = 1 << 20;

/// The service over one node.
pub(crate) struct Runs {
    pub(crate) api: Arc<dyn RunApi>,
    /// What the HTTP edge manages switches through.
    pub(crate) governance: Arc<dyn GovernanceApi>,
    pub(crate) feedback: Arc<dyn FeedbackApi>,
    pub(crate) identity: Arc<dyn Identify>,
    pub(crate) ids: Arc<dyn Ids>,
    /// How often each caller may ask, on both edges together.
    pub(crate) rates: Arc<Rates>,
    pub(crate) watch_limits: WatchLimits,
    pub(crate) watches: Arc<Semaphore>,
    pub(crate) draining: watch::Receiver<bool>,
}

impl Runs {
    // Who names no command of its own cannot say it twice either, so any fresh id will do.
    pub(crate) fn command_id(&self, text: &str) -> Result<CommandId, Refusal> {
        Ok(validate::optional_id("command_id", text)?.unwrap_or_else(|| CommandId::new(self.ids.fresh())))
    }

    async fn submit(&self, request: Request<v1::SubmitRunRequest>) -> Result<v1::SubmitRunResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let run_id: Option<RunId> = validate::optional_id("run_id", &request.run_id)?;
        let submission = validate::submission(&request.submission_json)?;
        let submitted = self.api.submit(&caller, run_id, submission).await?;
        Ok(v1::SubmitRunResponse {
            run_id: submitted.run_id.to_string(),
            replayed: submitted.replayed,
            warnings: submitted.warnings,
        })
    }

    async fn preflight(&self, request: Request<v1::PreflightRunRequest>) -> Result<v1::PreflightRunResponse, Refusal> {
        let caller = caller_of(&request)?;
        let submission = validate::submission(&request.get_ref().submission_json)?;
        Ok(convert::preflight(self.api.preflight(&caller, submission).await?))
    }

    async fn get(&self, request: Request<v1::GetRunRequest>) -> Result<v1::GetRunResponse, Refusal> {
        let caller = caller_of(&request)?;
        let run_id = validate::id("run_id", &request.get_ref().run_id)?;
        let envelope = self.api.get(&caller, run_id).await?;
        // Only how long it has taken depends on the instant; where it stands, the node has said.
        let read_at = SystemClock.now_micros();
        Ok(v1::GetRunResponse { run: Some(convert::run(&envelope, read_at, &caller)?) })
    }

    async fn list(&self, request: Request<v1::ListRunsRequest>) -> Result<v1::ListRunsResponse, Refusal> {
        let caller = caller_of(&request)?;
        let mut request = request.into_inner();
        let token = std::mem::take(&mut request.page_token);
        let Listing { whose, filter } = Listing::read(request)?;
        let (rows, next_page_token) = self.page(&caller, whose, filter, &token).await?;
        let runs = rows.iter().map(|entry| listing::row(entry, caller.actor.role)).collect();
        Ok(v1::ListRunsResponse { runs, next_page_token })
    }

    async fn watch(&self, request: Request<v1::WatchRunRequest>) -> Result<WatchStream, Refusal> {
        let caller = caller_of(&request)?;
        let headers: HeaderMap = request.metadata().as_ref().clone();
        let deadline = transport::deadline_of(request.metadata())?;
        let request = request.into_inner();
        let run_id = validate::id("run_id", &request.run_id)?;
        let items = self.relay(&caller, run_id, request.after_seq, headers).await?;
        let items = items.map(|item| item.map(convert::watched).map_err(|error| errors::to_status(&error)));
        Ok(transport::until(deadline, items).boxed())
    }

    async fn control(&self, request: Request<v1::ControlRunRequest>) -> Result<v1::ControlRunResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let run_id: RunId = validate::id("run_id", &request.run_id)?;
        let command_id = self.command_id(&request.command_id)?;
        let expected_seq = Some(request.expected_seq).filter(|seq| *seq > 0);
        let steering = validate::steering(request)?;
        let Steered { run_id, status, seq } = self.steer(&caller, run_id, command_id, expected_seq, steering).await?;
        Ok(v1::ControlRunResponse { status: status.as_str().to_owned(), seq, run_id: run_id.to_string() })
    }

    async fn replay(&self, request: Request<v1::ReplayRunRequest>) -> Result<v1::ReplayRunResponse, Refusal> {
        let caller = caller_of(&request)?;
        let run_id = validate::id("run_id", &request.get_ref().run_id)?;
        let at_seq = request.get_ref().at_seq;
        if at_seq == 0 {
            return Err(validate::bad("field-missing", "at_seq", "`at_seq` is missing; the first event is 1"));
        }
        let envelope = self.replayed(&caller, run_id, at_seq).await?;
        Ok(v1::ReplayRunResponse { envelope_json: convert::envelope_json(&envelope)?.into() })
    }

    async fn export(&self, request: Request<v1::ExportRunRequest>) -> Result<ExportStream, Refusal> {
        let caller = caller_of(&request)?;
        let run_id = validate::id("run_id", &request.get_ref().run_id)?;
        let (tenant, run_key, events) = self.journal(&caller, run_id).await?;
        let mut head = Some((tenant.to_string(), run_key.to_string()));
        let messages = chunks(events).into_iter().map(move |chunk| {
            let (tenant_id, run_key) = head.take().unwrap_or_default();
            let events = chunk.iter().map(convert::event).collect();
            Ok(v1::ExportRunResponse { tenant_id, run_key, events })
        });
        Ok(stream::iter(messages).boxed())
    }

    async fn verify(&self, request: Request<v1::VerifyRunRequest>) -> Result<v1::VerifyRunResponse, Refusal> {
        let caller = caller_of(&request)?;
        let run_id = validate::id("run_id", &request.get_ref().run_id)?;
        let (tenant, run_key, events) = self.journal(&caller, run_id).await?;
        Ok(convert::report(verify(&tenant, run_key, &events)))
    }

    async fn explain(&self, request: Request<v1::ExplainRunRequest>) -> Result<v1::ExplainRunResponse, Refusal> {
        let caller = caller_of(&request)?;
        let run_id: RunId = validate::id("run_id", &request.get_ref().run_id)?;
        let call_id: Option<CallId> = validate::optional_id("call_id", &request.get_ref().call_id)?;
        let (_, _, events) = self.journal(&caller, run_id).await?;
        let found = explained(run_id, call_id, &events)?;
        let explanation = serde_json::to_vec(&found)
            .map_err(|error| Refusal::new(ErrorKind::Internal, "explanation-not-json", error.to_string()))?;
        Ok(v1::ExplainRunResponse { explanation_json: explanation.into(), text: tell(&found, call_id.is_some()) })
    }

    async fn approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<v1::ListApprovalsResponse, Refusal> {
        let caller = caller_of(&request)?;
        let open = self.api.approvals(&caller).await?;
        Ok(v1::ListApprovalsResponse { approvals: open.into_iter().map(convert::approval).collect() })
    }

    async fn approval(&self, request: Request<v1::GetApprovalRequest>) -> Result<v1::GetApprovalResponse, Refusal> {
        let caller = caller_of(&request)?;
        let approval_id = validate::id("approval_id", &request.get_ref().approval_id)?;
        let question = self.api.approval(&caller, approval_id).await?;
        let sees_subject = question.may_decide || sees_envelope(&caller);
        Ok(convert::question(question, sees_subject))
    }

    async fn decide(&self, request: Request<v1::DecideApprovalRequest>) -> Result<v1::DecideApprovalResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let approval_id: ApprovalId = validate::id("approval_id", &request.approval_id)?;
        let decision = validate::decision(request.decision)?;
        let reason = validate::reason(request.reason)?;
        let digest = validate::digest("subject_digest", request.subject_digest)?;
        let command_id = self.command_id(&request.command_id)?;
        let Steered { run_id, status, seq } =
            self.decided(&caller, approval_id, decision, reason, digest, command_id).await?;
        Ok(v1::DecideApprovalResponse { run_id: run_id.to_string(), status: status.as_str().to_owned(), seq })
    }
}

// At least one message, so that even an empty export says whose it is.
fn chunks(events: Vec<StoredEvent>) -> Vec<Vec<StoredEvent>> {
    let mut chunks = vec![Vec::new()];
    let mut bytes = 0;
    for event in events {
        let full = chunks.last().is_some_and(|chunk| chunk.len() >= EXPORT_EVENTS_MAX || bytes >= EXPORT_BYTES);
        if full {
            chunks.push(Vec::new());
            bytes = 0;
        }
        bytes += event.body.len();
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(event);
        }
    }
    chunks
}

type WatchStream = BoxStream<'static, Result<v1::WatchRunResponse, Status>>;
type ExportStream = BoxStream<'static, Result<v1::ExportRunResponse, Status>>;

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| errors::to_status(&error))
}

/// The same for an answer that may be larger than what is sent.
fn bounded<T: Message>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    answer(result.and_then(|message| {
        let bytes = message.encoded_len();
        if bytes <= ANSWER_BYTES_MAX {
            return Ok(message);
        }
        let text =
            format!("the answer has {bytes} bytes and {ANSWER_BYTES_MAX} are sent at most; export the run instead");
        Err(Refusal::new(ErrorKind::Invalid, "answer-too-large", text).with("bytesMax", ANSWER_BYTES_MAX.to_string()))
    }))
}

#[tonic::async_trait]
impl RunService for Runs {
    type WatchRunStream = WatchStream;
    type ExportRunStream = ExportStream;

    async fn submit_run(
        &self,
        request: Request<v1::SubmitRunRequest>,
    ) -> Result<Response<v1::SubmitRunResponse>, Status> {
        answer(self.submit(request).await)
    }
    async fn preflight_run(
        &self,
        request: Request<v1::PreflightRunRequest>,
    ) -> Result<Response<v1::PreflightRunResponse>, Status> {
        answer(self.preflight(request).await)
    }
    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::GetRunResponse>, Status> {
        bounded(self.get(request).await)
    }
    async fn list_runs(&self, request: Request<v1::ListRunsRequest>) -> Result<Response<v1::ListRunsResponse>, Status> {
        bounded(self.list(request).await)
    }
    async fn watch_run(&self, request: Request<v1::WatchRunRequest>) -> Result<Response<WatchStream>, Status> {
        answer(self.watch(request).await)
    }
    async fn control_run(
        &self,
        request: Request<v1::ControlRunRequest>,
    ) -> Result<Response<v1::ControlRunResponse>, Status> {
        answer(self.control(request).await)
    }
    async fn replay_run(
        &self,
        request: Request<v1::ReplayRunRequest>,
    ) -> Result<Response<v1::ReplayRunResponse>, Status> {
        bounded(self.replay(request).await)
    }
    async fn export_run(&self, request: Request<v1::ExportRunRequest>) -> Result<Response<ExportStream>, Status> {
        answer(self.export(request).await)
    }
    async fn verify_run(
        &self,
        request: Request<v1::VerifyRunRequest>,
    ) -> Result<Response<v1::VerifyRunResponse>, Status> {
        answer(self.verify(request).await)
    }
    async fn explain_run(
        &self,
        request: Request<v1::ExplainRunRequest>,
    ) -> Result<Response<v1::ExplainRunResponse>, Status> {
        bounded(self.explain(request).await)
    }
    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        answer(self.approvals(request).await)
    }
    async fn get_approval(
        &self,
        request: Request<v1::GetApprovalRequest>,
    ) -> Result<Response<v1::GetApprovalResponse>, Status> {
        answer(self.approval(request).await)
    }
    async fn decide_approval(
        &self,
        request: Request<v1::DecideApprovalRequest>,
    ) -> Result<Response<v1::DecideApprovalResponse>, Status> {
        answer(self.decide(request).await)
    }
}
