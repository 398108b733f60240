//! `GovernanceService`: each method identifies the caller, reads the request strictly, asks the node and converts the answer.

pub(crate) mod api;
mod convert;
mod grants;
pub(crate) mod read;
pub(crate) mod throttles;

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use signalbox_domain::governance::audit::Subject;
use signalbox_domain::quantity::Micros;
use signalbox_domain::time::UnixMs;
use signalbox_ports::clock::{Clock as _, Ids, SystemClock};
use signalbox_proto::v1::{self, governance_service_server::GovernanceService};
use signalbox_runtime::BudgetForecast;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::api::{ErrorKind, GovernanceApi};
use crate::errors::{self, Refusal};
use crate::identity::{Identify, caller_of, while_good};
use crate::{transport, validate};

/// How often a watch looks whether the epoch has moved: a reading of memory.
const WATCH_LOOK: Duration = Duration::from_millis(50);
/// Acts that may wait for a slow watcher.
const WATCH_WAITING_MAX: usize = 64;
/// Most acts one message of an export holds.
const EXPORT_ACTS_MAX: usize = 100;

/// The service over one node.
pub(crate) struct Governing {
    pub(crate) api: Arc<dyn GovernanceApi>,
    pub(crate) identity: Arc<dyn Identify>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) watches: Arc<Semaphore>,
    pub(crate) draining: watch::Receiver<bool>,
}

type WatchStream = BoxStream<'static, Result<v1::WatchSwitchesResponse, Status>>;
type ExportStream = BoxStream<'static, Result<v1::ExportAuditResponse, Status>>;

impl Governing {
    async fn arm(&self, request: Request<v1::ArmSwitchRequest>) -> Result<v1::ArmSwitchResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let (wait, dry_run) = (request.wait, request.dry_run);
        let order = read::order(request, self.ids.fresh(), now())?;
        if dry_run {
            return Ok(convert::armed(self.api.would_arm_switch(&caller, order).await?));
        }
        Ok(convert::armed(self.api.arm_switch(&caller, order, wait).await?))
    }

    async fn disarm(&self, request: Request<v1::DisarmSwitchRequest>) -> Result<v1::DisarmSwitchResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let switch_id = validate::id("switch_id", &request.switch_id)?;
        let reason = read::text("reason", request.reason)?;
        let answer = if request.dry_run {
            self.api.would_disarm_switch(&caller, &switch_id, &reason).await?
        } else {
            self.api.disarm_switch(&caller, &switch_id, &reason).await?
        };
        Ok(v1::DisarmSwitchResponse { disarmed: answer.disarmed, switch: Some(convert::switch(answer.standing)) })
    }

    async fn switch(&self, request: Request<v1::GetSwitchRequest>) -> Result<v1::GetSwitchResponse, Refusal> {
        let caller = caller_of(&request)?;
        let switch_id = validate::id("switch_id", &request.get_ref().switch_id)?;
        let standing = self.api.switch(&caller, &switch_id).await?;
        Ok(v1::GetSwitchResponse { switch: Some(convert::switch(standing)) })
    }

    async fn switches(&self, request: Request<v1::ListSwitchesRequest>) -> Result<v1::ListSwitchesResponse, Refusal> {
        let caller = caller_of(&request)?;
        let all = request.get_ref().all;
        let known = self.api.switches(&caller).await?.into_iter();
        let shown = known.filter(|standing| all || standing.state == "armed");
        Ok(v1::ListSwitchesResponse { switches: shown.map(convert::switch).collect() })
    }

    async fn watch(&self, request: Request<v1::WatchSwitchesRequest>) -> Result<WatchStream, Refusal> {
        let caller = caller_of(&request)?;
        let headers = request.metadata().as_ref().clone();
        let deadline = transport::deadline_of(request.metadata())?;
        let mut after_seq = request.get_ref().after_seq;
        let place = Arc::clone(&self.watches).try_acquire_owned().map_err(|_| {
            Refusal::new(ErrorKind::Overloaded, "too-many-watches", "there are as many watches as this server carries")
        })?;
        // Whoever may see nothing hears so now, and not in the middle of a stream.
        self.api.switches(&caller).await?;
        let (items, receiver) = mpsc::channel(WATCH_WAITING_MAX);
        let (api, mut draining) = (Arc::clone(&self.api), self.draining.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut read_at = None;
            loop {
                let epoch = api.epoch();
                if read_at != Some(epoch) {
                    match api.audit(&caller, after_seq, None, read::ROWS_MAX).await {
                        Ok(acts) => {
                            // A full page may not be the last one: read on before anything is waited for.
                            read_at = (acts.len() < read::ROWS_MAX).then_some(epoch);
                            for act in acts {
                                after_seq = act.seq;
                                if !act.subject.as_str().starts_with("switch:") {
                                    continue;
                                }
                                let item = v1::WatchSwitchesResponse { event: Some(convert::act(act)) };
                                if items.send(Ok(item)).await.is_err() {
                                    return;
                                }
                            }
                        }
                        Err(error) => {
                            let _ = items.send(Err(errors::to_status(&error.into()))).await;
                            return;
                        }
                    }
                }
                if *draining.borrow_and_update() {
                    let message = "the server is shutting down; watch again behind the last act";
                    let refusal = Refusal::new(ErrorKind::Unavailable, "server-draining", message);
                    let _ = items.send(Err(errors::to_status(&refusal))).await;
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(WATCH_LOOK) => {}
                    _ = draining.changed() => {}
                    () = items.closed() => return,
                }
            }
        });
        let acts = transport::until(deadline, ReceiverStream::new(receiver)).boxed();
        Ok(while_good(acts, Arc::clone(&self.identity), headers, |refusal| errors::to_status(&refusal)))
    }

    async fn put_budget(&self, request: Request<v1::PutBudgetRequest>) -> Result<v1::PutBudgetResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let dry_run = request.dry_run;
        let wish = read::wish(request)?;
        if dry_run {
            let BudgetForecast { before, after, .. } = self.api.would_put_budget(&caller, wish).await?;
            let unchanged = before.as_ref() == Some(&after);
            let before = before.map(convert::budget).transpose()?;
            return Ok(v1::PutBudgetResponse { budget: Some(convert::budget(after)?), unchanged, before });
        }
        let (standing, unchanged) = self.api.put_budget(&caller, wish).await?;
        Ok(v1::PutBudgetResponse { budget: Some(convert::budget(standing)?), unchanged, before: None })
    }

    async fn budget(&self, request: Request<v1::GetBudgetRequest>) -> Result<v1::GetBudgetResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("budget_id", &request.get_ref().budget_id)?;
        let standing = self.api.budget(&caller, &id).await?;
        Ok(v1::GetBudgetResponse { budget: Some(convert::budget(standing)?) })
    }

    async fn budgets(&self, request: Request<v1::ListBudgetsRequest>) -> Result<v1::ListBudgetsResponse, Refusal> {
        let caller = caller_of(&request)?;
        let budgets = self.api.budgets(&caller).await?.into_iter().map(convert::budget);
        Ok(v1::ListBudgetsResponse { budgets: budgets.collect::<Result<_, _>>()? })
    }

    async fn top_up(&self, request: Request<v1::TopUpBudgetRequest>) -> Result<v1::TopUpBudgetResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("budget_id", &request.budget_id)?;
        let reason = read::text("reason", request.reason)?;
        let expected = read::expected(request.expected_revision);
        let amount = Micros(request.amount_micros);
        let (before, after, resumed) = if request.dry_run {
            let would = self.api.would_top_up_budget(&caller, &id, amount, &reason, expected).await?;
            (would.before, would.after, would.resumed)
        } else {
            let (after, resumed) = self.api.top_up_budget(&caller, &id, amount, &reason, expected).await?;
            (None, after, resumed)
        };
        Ok(v1::TopUpBudgetResponse {
            budget: Some(convert::budget(after)?),
            resumed: u32::try_from(resumed).unwrap_or(u32::MAX),
            before: before.map(convert::budget).transpose()?,
        })
    }

    async fn retire(&self, request: Request<v1::RetireBudgetRequest>) -> Result<v1::RetireBudgetResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("budget_id", &request.budget_id)?;
        let reason = read::text("reason", request.reason)?;
        let expected = read::expected(request.expected_revision);
        let standing = if request.dry_run {
            self.api.would_retire_budget(&caller, &id, &reason, expected).await?
        } else {
            self.api.retire_budget(&caller, &id, &reason, expected).await?
        };
        Ok(v1::RetireBudgetResponse { budget: Some(convert::budget(standing)?) })
    }

    async fn history(
        &self,
        request: Request<v1::GetBudgetHistoryRequest>,
    ) -> Result<v1::GetBudgetHistoryResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("budget_id", &request.get_ref().budget_id)?;
        let limit = read::rows(request.get_ref().limit)?;
        Ok(convert::history(self.api.budget_history(&caller, &id, limit).await?))
    }

    async fn audit(&self, request: Request<v1::ListAuditRequest>) -> Result<v1::ListAuditResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let limit = read::rows(request.limit)?;
        let subject = read::subject(request.subject)?.map(Subject::stored);
        let acts = self.api.audit(&caller, request.after_seq, subject, limit).await?;
        Ok(v1::ListAuditResponse { events: acts.into_iter().map(convert::act).collect() })
    }

    async fn export(&self, request: Request<v1::ExportAuditRequest>) -> Result<ExportStream, Refusal> {
        let caller = caller_of(&request)?;
        let (events, head) = self.api.export_audit(&caller).await?;
        let mut messages: Vec<_> = events
            .chunks(EXPORT_ACTS_MAX)
            .map(|chunk| v1::ExportAuditResponse {
                events: chunk.iter().cloned().map(convert::act).collect(),
                head: None,
            })
            .collect();
        messages.push(v1::ExportAuditResponse { events: Vec::new(), head: Some(convert::head(head)) });
        Ok(stream::iter(messages.into_iter().map(Ok)).boxed())
    }
}

/// Where "so many seconds from now" counts from. The store's clock stamps the act itself.
fn now() -> UnixMs {
    SystemClock.now()
}

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| errors::to_status(&error))
}

#[tonic::async_trait]
impl GovernanceService for Governing {
    type WatchSwitchesStream = WatchStream;
    type ExportAuditStream = ExportStream;

    async fn arm_switch(
        &self,
        request: Request<v1::ArmSwitchRequest>,
    ) -> Result<Response<v1::ArmSwitchResponse>, Status> {
        answer(self.arm(request).await)
    }
    async fn disarm_switch(
        &self,
        request: Request<v1::DisarmSwitchRequest>,
    ) -> Result<Response<v1::DisarmSwitchResponse>, Status> {
        answer(self.disarm(request).await)
    }
    async fn get_switch(
        &self,
        request: Request<v1::GetSwitchRequest>,
    ) -> Result<Response<v1::GetSwitchResponse>, Status> {
        answer(self.switch(request).await)
    }
    async fn list_switches(
        &self,
        request: Request<v1::ListSwitchesRequest>,
    ) -> Result<Response<v1::ListSwitchesResponse>, Status> {
        answer(self.switches(request).await)
    }
    async fn watch_switches(
        &self,
        request: Request<v1::WatchSwitchesRequest>,
    ) -> Result<Response<WatchStream>, Status> {
        answer(self.watch(request).await)
    }
    async fn put_budget(
        &self,
        request: Request<v1::PutBudgetRequest>,
    ) -> Result<Response<v1::PutBudgetResponse>, Status> {
        answer(self.put_budget(request).await)
    }
    async fn get_budget(
        &self,
        request: Request<v1::GetBudgetRequest>,
    ) -> Result<Response<v1::GetBudgetResponse>, Status> {
        answer(self.budget(request).await)
    }
    async fn list_budgets(
        &self,
        request: Request<v1::ListBudgetsRequest>,
    ) -> Result<Response<v1::ListBudgetsResponse>, Status> {
        answer(self.budgets(request).await)
    }
    async fn top_up_budget(
        &self,
        request: Request<v1::TopUpBudgetRequest>,
    ) -> Result<Response<v1::TopUpBudgetResponse>, Status> {
        answer(self.top_up(request).await)
    }
    async fn retire_budget(
        &self,
        request: Request<v1::RetireBudgetRequest>,
    ) -> Result<Response<v1::RetireBudgetResponse>, Status> {
        answer(self.retire(request).await)
    }
    async fn get_budget_history(
        &self,
        request: Request<v1::GetBudgetHistoryRequest>,
    ) -> Result<Response<v1::GetBudgetHistoryResponse>, Status> {
        answer(self.history(request).await)
    }
    async fn issue_grant(
        &self,
        request: Request<v1::IssueGrantRequest>,
    ) -> Result<Response<v1::IssueGrantResponse>, Status> {
        answer(self.issue(request).await)
    }
    async fn renew_grant(
        &self,
        request: Request<v1::RenewGrantRequest>,
    ) -> Result<Response<v1::RenewGrantResponse>, Status> {
        answer(self.renew(request).await)
    }
    async fn revoke_grant(
        &self,
        request: Request<v1::RevokeGrantRequest>,
    ) -> Result<Response<v1::RevokeGrantResponse>, Status> {
        answer(self.revoke(request).await)
    }
    async fn get_grant(&self, request: Request<v1::GetGrantRequest>) -> Result<Response<v1::GetGrantResponse>, Status> {
        answer(self.grant(request).await)
    }
    async fn list_grants(
        &self,
        request: Request<v1::ListGrantsRequest>,
    ) -> Result<Response<v1::ListGrantsResponse>, Status> {
        answer(self.grants(request).await)
    }
    async fn set_throttle(
        &self,
        request: Request<v1::SetThrottleRequest>,
    ) -> Result<Response<v1::SetThrottleResponse>, Status> {
        answer(self.set_throttle_to(request).await)
    }
    async fn remove_throttle(
        &self,
        request: Request<v1::RemoveThrottleRequest>,
    ) -> Result<Response<v1::RemoveThrottleResponse>, Status> {
        answer(self.removed_throttle(request).await)
    }
    async fn get_throttle(
        &self,
        request: Request<v1::GetThrottleRequest>,
    ) -> Result<Response<v1::GetThrottleResponse>, Status> {
        answer(self.throttle(request).await)
    }
    async fn list_throttles(
        &self,
        request: Request<v1::ListThrottlesRequest>,
    ) -> Result<Response<v1::ListThrottlesResponse>, Status> {
        answer(self.throttles(request).await)
    }
    async fn list_audit(
        &self,
        request: Request<v1::ListAuditRequest>,
    ) -> Result<Response<v1::ListAuditResponse>, Status> {
        answer(self.audit(request).await)
    }
    async fn export_audit(&self, request: Request<v1::ExportAuditRequest>) -> Result<Response<ExportStream>, Status> {
        answer(self.export(request).await)
    }
}
