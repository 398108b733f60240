//! What a caller may ask of a node, and what of the answer it is shown: the same whichever edge it came through.

use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use http::HeaderMap;
use signalbox_domain::dashboard::{DashboardEntry, DashboardFilter};
use signalbox_domain::identity::{Action, Reach, reach};
use signalbox_domain::ids::{ApprovalId, CallId, CommandId, RunId, RunKey, TenantId};
use signalbox_domain::run::append::CommandAnswer;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::ApprovalDecision;
use signalbox_domain::run::evolve::FoldError;
use signalbox_domain::run::explain::{Explanation, explain};
use signalbox_domain::run::status::RunStatus;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::{ApiError, Caller, ErrorKind, WatchItem, Whose};
use crate::errors::{self, Refusal};
use crate::identity::while_good;
use crate::page;
use crate::service::Runs;
use crate::validate::Steering;
use crate::watch::Relay;

/// A run that was steered.
pub(crate) struct Steered {
    /// The run, or the new one of a fork.
    pub(crate) run_id: RunId,
    /// Its status after that.
    pub(crate) status: RunStatus,
    /// The last event when it was answered.
    pub(crate) seq: u64,
}

impl Runs {
    /// A page of runs, newest first, and the token of the next page; empty if there is none.
    pub(crate) async fn page(
        &self,
        caller: &Caller,
        whose: Whose,
        filter: DashboardFilter,
        token: &str,
    ) -> Result<(Vec<DashboardEntry>, String), Refusal> {
        let context = page::context(&caller.tenant_id, &whose, &filter);
        let filter = DashboardFilter { cursor: page::read(token, &context)?, ..filter };
        let found = self.api.list(caller, whose, filter).await?;
        let next = found.next.map(|place| page::token(place, &context)).unwrap_or_default();
        Ok((found.rows, next))
    }

    /// A place among the watches that may be open at once.
    pub(crate) fn watch_permit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.watches).try_acquire_owned().map_err(|_| {
            Refusal::new(ErrorKind::Overloaded, "too-many-watches", "too many watches are open; try later")
                .with(errors::DETAIL_METER, "watches")
        })
    }

    /// What happens to a run behind a cursor, as far as the caller may see it and as long as its credential, which stands in
    /// the headers, is good.
    pub(crate) async fn relay(
        &self,
        caller: &Caller,
        run_id: RunId,
        after_seq: u64,
        headers: HeaderMap,
    ) -> Result<impl Stream<Item = Result<WatchItem, Refusal>> + Send + 'static + use<>, Refusal> {
        let permit = self.watch_permit()?;
        let source = self.api.watch(caller, run_id, after_seq).await?;
        let relay = Relay {
            subscriber: caller.clone(),
            after_seq,
            limits: self.watch_limits,
            draining: self.draining.clone(),
            permit,
        };
        Ok(while_good(relay.start(source).boxed(), Arc::clone(&self.identity), headers, |refusal| refusal))
    }

    /// Steers a run.
    pub(crate) async fn steer(
        &self,
        caller: &Caller,
        run_id: RunId,
        command_id: CommandId,
        expected_seq: Option<u64>,
        steering: Steering,
    ) -> Result<Steered, Refusal> {
        match steering {
            Steering::Command(command) => {
                let answer = self.api.command_at(caller, run_id, command_id, expected_seq, command).await?;
                let seq = accepted(&answer, run_id)?;
                Ok(Steered { run_id, status: self.api.get(caller, run_id).await?.status, seq })
            }
            Steering::Fork { fresh, reason } => {
                let forked = self.api.fork(caller, run_id, command_id, expected_seq, fresh, reason).await?;
                let seq = self.api.get(caller, forked.run_id).await?.last_seq;
                Ok(Steered { run_id: forked.run_id, status: forked.status, seq })
            }
        }
    }

    /// A run as it stood after an event.
    pub(crate) async fn replayed(&self, caller: &Caller, run_id: RunId, at_seq: u64) -> Result<RunEnvelope, Refusal> {
        let envelope = self.api.replay(caller, run_id, at_seq).await?;
        if sees_envelope(caller) { Ok(envelope) } else { Err(above_standing("the envelope of a run")) }
    }

    /// A whole journal. One with gaps cannot be told from a forged one, so it is whole or refused.
    pub(crate) async fn journal(
        &self,
        caller: &Caller,
        run_id: RunId,
    ) -> Result<(TenantId, RunKey, Vec<StoredEvent>), Refusal> {
        let (tenant, run_key, events) = self.api.export(caller, run_id).await?;
        // Customers are told of a run in words; a body names agents, tools and costs.
        let may = reach(caller.actor.role, Action::Export) >= Reach::Tenant;
        if !may || events.iter().any(|event| event.visibility > caller.actor.role.sees()) {
            return Err(above_standing("the whole journal of this run"));
        }
        Ok((tenant, run_key, events))
    }

    /// Answers a question.
    pub(crate) async fn decided(
        &self,
        caller: &Caller,
        approval_id: ApprovalId,
        decision: ApprovalDecision,
        reason: String,
        digest: Option<String>,
        command_id: CommandId,
    ) -> Result<Steered, Refusal> {
        let (run_id, answer) =
            self.api.decide_approval(caller, approval_id, decision, reason, digest, command_id).await?;
        let seq = accepted(&answer, run_id).map_err(|error| error.with("approvalId", approval_id.to_string()))?;
        // As it stood then: whoever says it again hears the same again, wherever the run has got to.
        let envelope = self.api.replay(caller, run_id, seq).await?;
        Ok(Steered { run_id, status: envelope.status, seq })
    }
}

/// What a journal says of why things came as they did, of all calls or of one.
pub(crate) fn explained(
    run_id: RunId,
    call_id: Option<CallId>,
    events: &[StoredEvent],
) -> Result<Explanation, Refusal> {
    let mut found = explain(events).map_err(|FoldError { seq, problem }| {
        Refusal::from(ApiError::JournalCorrupt { run_id, seq, problem: problem.to_owned() })
    })?;
    let Some(call_id) = call_id else { return Ok(found) };
    found.calls.retain(|story| story.call_id == call_id);
    if found.calls.is_empty() {
        let message = format!("run {run_id} has made no call {call_id}");
        return Err(Refusal::new(ErrorKind::NotFound, "no-such-call", message)
            .with("runId", run_id.to_string())
            .with("callId", call_id.to_string()));
    }
    Ok(found)
}

/// An envelope holds calls, arguments and grants, which are shown from operators of the tenant up (DSH-010).
pub(crate) fn sees_envelope(caller: &Caller) -> bool {
    reach(caller.actor.role, Action::Replay) >= Reach::Tenant
}

fn above_standing(what: &str) -> Refusal {
    Refusal::new(
        ErrorKind::PermissionDenied,
        "not-authorized",
        format!("{what} is above the standing of this credential"),
    )
}

fn accepted(answer: &CommandAnswer, run_id: RunId) -> Result<u64, Refusal> {
    if answer.accepted {
        return Ok(answer.seq);
    }
    Err(errors::denied(&answer.code, &answer.message)
        .with("runId", run_id.to_string())
        .with("seq", answer.seq.to_string()))
}
