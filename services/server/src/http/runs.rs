//! Runs as resources: submitting, reading and steering them.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;
use futures::stream;
use serde_json::Value;
use signalbox_domain::ids::RunId;
use signalbox_domain::run::chain::EventHash;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::event::Overrides;
use signalbox_domain::run::export::{FORMAT, Head, Line, Tail};
use signalbox_domain::run::submission::{self, Submission};
use signalbox_proto::v1;

use super::call::{Answered, Call, Query, json};
use super::shapes::{
    ChooseBranchRequest, ControlRequest, Explained, ForkRequest, Replay, RetryRequest, RunPage, StepRequest,
    SubmittedRun,
};
use super::{idempotency, problem, read, views};
use crate::api::{ApiError, Caller, Submitted};
use crate::asks::explained as explained_of;
use crate::errors::{DETAIL_FIELD, Refusal};
use crate::listing::Listing;
use crate::validate::{self, Steering, bad};

/// The route under which idempotency keys of submissions count.
const SUBMIT_ROUTE: &str = "POST /v1/runs";

/// `POST /v1/runs`
pub(super) fn submit(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let key = idempotency::key(&call.headers)?;
        let (run_id, submission) = submitted(call.value().await?)?;
        let derived = match (&key, run_id) {
            (Some(_), Some(_)) => {
                let message = "give `runId` or `Idempotency-Key`, not both: either makes the submission idempotent";
                return Err(bad("idempotency-key-and-run-id", "runId", message));
            }
            (Some(key), None) => Some(idempotency::run_id(&caller, SUBMIT_ROUTE, key)),
            (None, run_id) => run_id,
        };
        let answer = call.runs.api.submit(&caller, derived, submission).await;
        let Submitted { run_id, replayed, warnings, .. } = answer.map_err(|error| {
            let is_reused = key.is_some() && matches!(error, ApiError::RunIdConflict(_));
            if is_reused { idempotency::reused() } else { error.into() }
        })?;
        let run = views::run(call.runs.api.get(&caller, run_id).await?, &caller);
        let status = if replayed { StatusCode::OK } else { StatusCode::CREATED };
        let mut response = json(status, &SubmittedRun { run, replayed, warnings })?;
        problem::put(response.headers_mut(), LOCATION, &format!("/v1/runs/{run_id}"));
        Ok(response)
    })
}

/// `POST /v1/runs/preflight`
pub(super) fn preflight(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let (run_id, submission) = submitted(call.value().await?)?;
        if run_id.is_some() {
            let message = "a preflight makes no run, so it takes no `runId`; leave it out";
            return Err(bad("run-id-not-taken", "runId", message));
        }
        json(StatusCode::OK, &views::preflight(call.runs.api.preflight(&caller, submission).await?))
    })
}

/// A submission with the id that may stand beside it.
pub(crate) fn submitted(mut value: Value) -> Result<(Option<RunId>, Submission), Refusal> {
    let Some(members) = value.as_object_mut() else {
        return Err(bad("json-invalid", "body", "the body must be a JSON object"));
    };
    let run_id = match members.remove("runId") {
        None => None,
        Some(Value::String(text)) => Some(validate::id("runId", &text)?),
        Some(_) => return Err(bad("id-invalid", "runId", "`runId` must be a UUID as text")),
    };
    let submission = submission::read(value).map_err(|error| {
        let refusal = Refusal::from(ApiError::from(error));
        // Over gRPC the submission is a field of the request; here it is the body itself.
        match refusal.detail(DETAIL_FIELD) {
            Some("submission_json") => {
                let field: String = read::named_in(refusal.message()).unwrap_or("body").chars().take(200).collect();
                refusal.with(DETAIL_FIELD, field)
            }
            Some(_) | None => refusal,
        }
    })?;
    Ok((run_id, submission))
}

/// `GET /v1/runs`
pub(super) fn list(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let Listing { whose, filter } = Listing::read(listed(&call.query)?)?;
        let (rows, next) = call.runs.page(&caller, whose, filter, call.query.text("pageToken")).await?;
        let next_page_token = Some(next).filter(|token| !token.is_empty());
        json(
            StatusCode::OK,
            &RunPage { runs: rows.iter().map(|row| views::row(row, &caller)).collect(), next_page_token },
        )
    })
}

// The same request as over gRPC, so that a filter means the same on both edges.
fn listed(query: &Query) -> Result<v1::ListRunsRequest, Refusal> {
    let instant = |name: &str| -> Result<Option<i64>, Refusal> {
        let far = |_| bad("field-invalid", name, format!("`{name}` lies too far in the future"));
        query.number(name)?.map(|ms| i64::try_from(ms).map_err(far)).transpose()
    };
    Ok(v1::ListRunsRequest {
        status: query.all("status"),
        pipeline_id: query.text("pipelineId").to_owned(),
        page_size: u32::try_from(query.number("pageSize")?.unwrap_or(0)).unwrap_or(u32::MAX),
        page_token: String::new(),
        agent_id: query.text("agentId").to_owned(),
        family: query.text("family").to_owned(),
        bucket: query.all("bucket"),
        cost_band: query.all("costBand"),
        latency_band: query.all("latencyBand"),
        started_after_unix_ms: instant("startedAfterUnixMs")?,
        started_before_unix_ms: instant("startedBeforeUnixMs")?,
        has_warnings: query.flag("hasWarnings")?,
        text: query.text("text").to_owned(),
        tenant_id: query.text("tenantId").to_owned(),
        all_tenants: query.flag("allTenants")?.unwrap_or(false),
    })
}

/// `GET /v1/runs/{runId}`
pub(super) fn get(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let envelope = call.runs.api.get(&caller, call.id("runId")?).await?;
        json(StatusCode::OK, &views::run(envelope, &caller))
    })
}

/// `GET /v1/runs/{runId}/replay`
pub(super) fn replay(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let run_id: RunId = call.id("runId")?;
        let at_seq = call.query.number("atSeq")?.filter(|seq| *seq > 0);
        let at_seq = at_seq.ok_or_else(|| bad("field-missing", "atSeq", "`atSeq` is missing; the first event is 1"))?;
        let envelope = Box::new(call.runs.replayed(&caller, run_id, at_seq).await?);
        json(StatusCode::OK, &Replay { run_id: run_id.to_string(), at_seq, envelope })
    })
}

/// `GET /v1/runs/{runId}/explain`
pub(super) fn explained(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let run_id: RunId = call.id("runId")?;
        let (_, _, events) = call.runs.journal(&caller, run_id).await?;
        let call_id = validate::optional_id("callId", call.query.text("callId"))?;
        json(StatusCode::OK, &Explained(explained_of(run_id, call_id, &events)?))
    })
}

/// `GET /v1/runs/{runId}/export`
pub(super) fn export(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let run_id: RunId = call.id("runId")?;
        let (tenant_id, run_key, events) = call.runs.journal(&caller, run_id).await?;
        let head = Head { format: FORMAT.to_owned(), run_id: run_id.to_string(), tenant_id, run_key };
        let tail = Tail {
            events: events.len() as u64,
            head_hash: events.last().map_or(EventHash::ZERO, |event| event.hash).hex(),
        };
        let lines = events.into_iter().map(|event| line(&Line::from(&event)));
        let lines = std::iter::once(line(&head)).chain(lines).chain(std::iter::once(line(&tail)));
        // Lines are made as they are sent, so that a long journal is not held twice.
        let mut response = Response::new(Body::from_stream(stream::iter(lines)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
        Ok(response)
    })
}

fn line(value: &impl serde::Serialize) -> Result<Bytes, serde_json::Error> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    Ok(bytes.into())
}

/// `POST /v1/runs/{runId}/pause`
pub(super) fn pause(call: Call) -> Answered {
    simple(call, |reason| RunCommand::Pause { reason })
}

/// `POST /v1/runs/{runId}/resume`
pub(super) fn resume(call: Call) -> Answered {
    simple(call, |reason| RunCommand::Resume { reason })
}

/// `POST /v1/runs/{runId}/cancel`
pub(super) fn cancel(call: Call) -> Answered {
    simple(call, |reason| RunCommand::Cancel { reason })
}

/// `POST /v1/runs/{runId}/kill`
pub(super) fn kill(call: Call) -> Answered {
    simple(call, |reason| RunCommand::Kill { reason, blamed_id: None })
}

/// `POST /v1/runs/{runId}/choose-branch`
pub(super) fn choose_branch(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let ChooseBranchRequest { branch_id, step_id, reason, expected_seq, command_id } = call.body().await?;
        let step_id = validate::optional_id("stepId", &step_id)?;
        let branch_id = validate::id("branchId", &branch_id)?;
        steer(call, &caller, ControlRequest { reason, expected_seq, command_id }, |reason| {
            Steering::Command(RunCommand::ChooseBranch { step_id, branch_id, reason })
        })
        .await
    })
}

/// `POST /v1/runs/{runId}/retry`
pub(super) fn retry(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let RetryRequest { step_id, overrides, reason, expected_seq, command_id } = call.body().await?;
        let step_id = validate::id("stepId", &step_id)?;
        let overrides =
            overrides.map_or(Ok(Overrides::default()), |value| validate::overrides_of("overrides", value))?;
        steer(call, &caller, ControlRequest { reason, expected_seq, command_id }, |reason| {
            Steering::Command(RunCommand::RetryWithChanges { step_id, overrides, reason })
        })
        .await
    })
}

/// `POST /v1/runs/{runId}/step`
pub(super) fn step(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let StepRequest { step_id, reason, expected_seq, command_id } = call.body().await?;
        let step_id = validate::optional_id("stepId", &step_id)?;
        steer(call, &caller, ControlRequest { reason, expected_seq, command_id }, |reason| {
            Steering::Command(RunCommand::OperatorStep { step_id, reason })
        })
        .await
    })
}

/// `POST /v1/runs/{runId}/fork`
pub(super) fn fork(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let ForkRequest { run_id, reason, expected_seq, command_id } = call.body().await?;
        // Without an id it is the node that denies it, by the code of CTL-009.
        let fresh = validate::optional_id("runId", &run_id)?;
        steer(call, &caller, ControlRequest { reason, expected_seq, command_id }, |reason| Steering::Fork {
            fresh,
            reason,
        })
        .await
    })
}

fn simple(mut call: Call, command: fn(String) -> RunCommand) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let request: ControlRequest = call.body().await?;
        steer(call, &caller, request, |reason| Steering::Command(command(reason))).await
    })
}

async fn steer(
    call: Call,
    caller: &Caller,
    request: ControlRequest,
    steering: impl FnOnce(String) -> Steering,
) -> Result<Response<Body>, Refusal> {
    let run_id: RunId = call.id("runId")?;
    let command_id = call.runs.command_id(&request.command_id)?;
    let steering = steering(validate::reason(request.reason)?);
    // No run has an event 0: a run that was submitted has event 1.
    if request.expected_seq == Some(0) {
        return Err(bad(
            "field-invalid",
            "expectedSeq",
            "`expectedSeq` counts from 1; leave it out to steer in any case",
        ));
    }
    let steered = call.runs.steer(caller, run_id, command_id, request.expected_seq, steering).await?;
    json(StatusCode::OK, &views::steered(&steered))
}
