//! `FeedbackService`: each method identifies the caller, reads the request strictly, asks the node and converts the answer.

pub(crate) mod api;
mod convert;
pub(crate) mod read;

use std::sync::Arc;

use signalbox_domain::ids::GoldSetEntryId;
use signalbox_domain::quantity::Micros;
use signalbox_proto::v1::{self, feedback_service_server::FeedbackService};
use signalbox_runtime::RolloutStep;
use tonic::{Request, Response, Status};

use crate::api::FeedbackApi;
use crate::errors::{self, Refusal};
use crate::governing::read::{expected, text};
use crate::identity::caller_of;
use crate::validate;

/// How big an answer with entries grows before it ends, in bytes: it must fit into a message whatever is in them.
const ENTRIES_BYTES_MAX: usize = 16 << 20;

/// The service over one node.
pub(crate) struct Feedbacks {
    pub(crate) api: Arc<dyn FeedbackApi>,
}

/// What every move of a rollout says.
struct Move {
    rollout_id: String,
    reason: String,
    expected_revision: u64,
}

impl Feedbacks {
    async fn start(&self, request: Request<v1::StartRolloutRequest>) -> Result<v1::StartRolloutResponse, Refusal> {
        let caller = caller_of(&request)?;
        let wish = read::wish(request.into_inner(), &caller.tenant_id)?;
        let standing = self.api.start_rollout(&caller, wish).await?;
        Ok(v1::StartRolloutResponse { rollout: Some(convert::standing(standing)) })
    }

    async fn get(&self, request: Request<v1::GetRolloutRequest>) -> Result<v1::GetRolloutResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("rollout_id", &request.get_ref().rollout_id)?;
        let standing = self.api.rollout(&caller, &id).await?;
        Ok(v1::GetRolloutResponse { rollout: Some(convert::standing(standing)) })
    }

    async fn list(&self, request: Request<v1::ListRolloutsRequest>) -> Result<v1::ListRolloutsResponse, Refusal> {
        let caller = caller_of(&request)?;
        let all = request.get_ref().all;
        let known = self.api.rollouts(&caller).await?.into_iter();
        let shown = known.filter(|rollout| all || rollout.is_open());
        Ok(v1::ListRolloutsResponse { rollouts: shown.map(convert::rollout).collect() })
    }

    async fn step<T>(&self, request: &Request<T>, of: Move, step: RolloutStep) -> Result<Option<v1::Rollout>, Refusal> {
        let caller = caller_of(request)?;
        let id = validate::id("rollout_id", &of.rollout_id)?;
        let reason = text("reason", of.reason)?;
        let standing = self.api.move_rollout(&caller, &id, step, &reason, expected(of.expected_revision)).await?;
        Ok(Some(convert::standing(standing)))
    }

    async fn say(&self, request: Request<v1::RecordFeedbackRequest>) -> Result<v1::RecordFeedbackResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let run_id = validate::id("run_id", &request.run_id)?;
        let kind = read::kind(request.kind)?;
        self.api.record_feedback(&caller, run_id, kind, request.score_micros.map(Micros)).await?;
        Ok(v1::RecordFeedbackResponse {})
    }

    async fn promote_gold(
        &self,
        request: Request<v1::PromoteGoldSetEntryRequest>,
    ) -> Result<v1::PromoteGoldSetEntryResponse, Refusal> {
        let caller = caller_of(&request)?;
        let row = self.api.promote_gold(&caller, read::gold(request.into_inner())?).await?;
        Ok(v1::PromoteGoldSetEntryResponse { entry: Some(convert::entry(row)) })
    }

    async fn gold(
        &self,
        request: Request<v1::ListGoldSetEntriesRequest>,
    ) -> Result<v1::ListGoldSetEntriesResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let set = validate::id("gold_set_id", &request.gold_set_id)?;
        let after = validate::optional_id::<GoldSetEntryId>("after_entry_id", &request.after_entry_id)?;
        let limit = read::entries(request.limit)?;
        let rows = self.api.gold_entries(&caller, &set, after, limit).await?;
        let (read, mut bytes) = (rows.len(), 0);
        let mut entries = Vec::with_capacity(read);
        for row in rows {
            let entry = convert::entry(row);
            bytes += entry.input_json.len() + entry.expected_output_json.len() + entry.rubric.len();
            if bytes > ENTRIES_BYTES_MAX && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        // A full page may have something behind it; the page after it says so.
        let more = entries.len() < read || read == limit;
        Ok(v1::ListGoldSetEntriesResponse { entries, more })
    }
}

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| errors::to_status(&error))
}

/// What a request to move a rollout says.
macro_rules! moved {
    ($request:expr) => {{
        let said = $request.get_ref().clone();
        Move { rollout_id: said.rollout_id, reason: said.reason, expected_revision: said.expected_revision }
    }};
}

#[tonic::async_trait]
impl FeedbackService for Feedbacks {
    async fn start_rollout(
        &self,
        request: Request<v1::StartRolloutRequest>,
    ) -> Result<Response<v1::StartRolloutResponse>, Status> {
        answer(self.start(request).await)
    }
    async fn get_rollout(
        &self,
        request: Request<v1::GetRolloutRequest>,
    ) -> Result<Response<v1::GetRolloutResponse>, Status> {
        answer(self.get(request).await)
    }
    async fn list_rollouts(
        &self,
        request: Request<v1::ListRolloutsRequest>,
    ) -> Result<Response<v1::ListRolloutsResponse>, Status> {
        answer(self.list(request).await)
    }
    async fn promote_challenger(
        &self,
        request: Request<v1::PromoteChallengerRequest>,
    ) -> Result<Response<v1::PromoteChallengerResponse>, Status> {
        let rollout = self.step(&request, moved!(request), RolloutStep::Promote).await;
        answer(rollout.map(|rollout| v1::PromoteChallengerResponse { rollout }))
    }
    async fn freeze_rollout(
        &self,
        request: Request<v1::FreezeRolloutRequest>,
    ) -> Result<Response<v1::FreezeRolloutResponse>, Status> {
        let rollout = self.step(&request, moved!(request), RolloutStep::Freeze).await;
        answer(rollout.map(|rollout| v1::FreezeRolloutResponse { rollout }))
    }
    async fn unfreeze_rollout(
        &self,
        request: Request<v1::UnfreezeRolloutRequest>,
    ) -> Result<Response<v1::UnfreezeRolloutResponse>, Status> {
        let rollout = self.step(&request, moved!(request), RolloutStep::Unfreeze).await;
        answer(rollout.map(|rollout| v1::UnfreezeRolloutResponse { rollout }))
    }
    async fn rollback_rollout(
        &self,
        request: Request<v1::RollbackRolloutRequest>,
    ) -> Result<Response<v1::RollbackRolloutResponse>, Status> {
        let rollout = self.step(&request, moved!(request), RolloutStep::Rollback).await;
        answer(rollout.map(|rollout| v1::RollbackRolloutResponse { rollout }))
    }
    async fn end_rollout(
        &self,
        request: Request<v1::EndRolloutRequest>,
    ) -> Result<Response<v1::EndRolloutResponse>, Status> {
        let rollout = self.step(&request, moved!(request), RolloutStep::End).await;
        answer(rollout.map(|rollout| v1::EndRolloutResponse { rollout }))
    }
    async fn record_feedback(
        &self,
        request: Request<v1::RecordFeedbackRequest>,
    ) -> Result<Response<v1::RecordFeedbackResponse>, Status> {
        answer(self.say(request).await)
    }
    async fn promote_gold_set_entry(
        &self,
        request: Request<v1::PromoteGoldSetEntryRequest>,
    ) -> Result<Response<v1::PromoteGoldSetEntryResponse>, Status> {
        answer(self.promote_gold(request).await)
    }
    async fn list_gold_set_entries(
        &self,
        request: Request<v1::ListGoldSetEntriesRequest>,
    ) -> Result<Response<v1::ListGoldSetEntriesResponse>, Status> {
        answer(self.gold(request).await)
    }
}
