//! `ScheduleService`: each method identifies the caller, reads the request strictly, asks the node and converts the answer.

pub(crate) mod api;

use std::sync::Arc;

use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::json::{self, Limits};
use signalbox_domain::pipeline::schedule::{
    CatchUp, FireState, Misfire, Overlap, PipelineSchedule, PutSchedule, TRIGGER_BYTES_MAX, Timing, Trigger, Weekday,
};
use signalbox_domain::time::UnixMs;
use signalbox_ports::schedules::Fire;
use signalbox_proto::v1::{self, schedule_service_server::ScheduleService};
use signalbox_runtime::ScheduleStanding;
use tonic::{Request, Response, Status};

use crate::api::ScheduleApi;
use crate::errors::{self, Refusal};
use crate::governing::read::{self, expected, rows};
use crate::identity::caller_of;
use crate::validate::{self, bad};

/// Slots that are shown if no number is asked for.
const PREVIEW_DEFAULT: u32 = 10;
/// Most slots that are shown.
const PREVIEW_MAX: u32 = 1_000;

/// The service over one node.
pub(crate) struct Schedules {
    pub(crate) api: Arc<dyn ScheduleApi>,
}

/// A schedule that is wanted.
pub(crate) fn wish(request: v1::PutScheduleRequest) -> Result<PutSchedule, Refusal> {
    let default = CatchUp::default();
    let catch_up = CatchUp {
        window_seconds: or(request.catch_up_window_seconds, default.window_seconds),
        count: or(request.catch_up_count, default.count),
    };
    let expected = match (request.expects_none, request.expected_revision) {
        (true, 0) => Expected::None,
        (true, _) => {
            let message = "`expects_none` and `expected_revision` cannot both be said";
            return Err(bad("revision-invalid", "expects_none", message));
        }
        (false, revision) => expected(revision),
    };
    Ok(PutSchedule {
        schedule_id: validate::id("schedule_id", &request.schedule_id)?,
        fires: fires(request.fires)?,
        timing: timing(request.timing)?,
        timezone: if request.timezone.is_empty() { "UTC".to_owned() } else { request.timezone },
        start_at: instant("start_at_unix_ms", request.start_at_unix_ms)?,
        end_at: instant("end_at_unix_ms", request.end_at_unix_ms)?,
        misfire: named("misfire", &request.misfire, &Misfire::ALL, Misfire::as_str)?.unwrap_or_default(),
        catch_up,
        overlap: named("overlap", &request.overlap, &Overlap::ALL, Overlap::as_str)?.unwrap_or_default(),
        jitter_seconds: request.jitter_seconds,
        reason: read::text("reason", request.reason)?,
        expected,
    })
}

fn or<T: Default + PartialEq>(said: T, default: T) -> T {
    if said == T::default() { default } else { said }
}

fn fires(fires: Option<v1::put_schedule_request::Fires>) -> Result<Trigger, Refusal> {
    use v1::put_schedule_request::Fires;
    match fires {
        None => Err(bad("field-missing", "fires", "say `pipeline` or `submission_json`")),
        Some(Fires::SubmissionJson(bytes)) => Ok(Trigger::Submission { submission: body("submission_json", &bytes)? }),
        Some(Fires::Pipeline(pipeline)) => Ok(Trigger::Pipeline {
            pipeline_id: validate::id("pipeline.pipeline_id", &pipeline.pipeline_id)?,
            pipeline_semver: version(pipeline.pipeline_semver)?,
            input: body("pipeline.input_json", &pipeline.input_json)?,
        }),
    }
}

fn version(semver: String) -> Result<String, Refusal> {
    let is_one = (1..=64).contains(&semver.len()) && semver.chars().all(|c| c.is_ascii_graphic());
    let message = "`pipeline.pipeline_semver` names a version, such as 1.0.0";
    if is_one { Ok(semver) } else { Err(bad("pipeline-semver-invalid", "pipeline.pipeline_semver", message)) }
}

fn body(field: &'static str, bytes: &[u8]) -> Result<serde_json::Value, Refusal> {
    // What is kept is bounded again, without the spaces between.
    if bytes.len() > TRIGGER_BYTES_MAX * 2 {
        let message = format!("`{field}` has {} bytes; a schedule keeps at most {TRIGGER_BYTES_MAX}", bytes.len());
        return Err(bad("schedule-too-large", field, message));
    }
    json::parse_strict(bytes, Limits::DEFAULT).map_err(|error| bad(error.code(), field, format!("`{field}`: {error}")))
}

fn timing(timing: Option<v1::put_schedule_request::Timing>) -> Result<Timing, Refusal> {
    use v1::put_schedule_request::Timing as Said;
    match timing {
        None => Err(bad("field-missing", "timing", "say `interval_seconds`, `weekly` or `cron`")),
        Some(Said::IntervalSeconds(seconds)) => Ok(Timing::Interval { seconds }),
        Some(Said::Cron(expression)) => Ok(Timing::Cron { expression }),
        Some(Said::Weekly(weekly)) => {
            let message = "`weekly.weekday` is monday to sunday";
            let weekday = Weekday::named(&weekly.weekday);
            let weekday = weekday.ok_or_else(|| bad("weekday-invalid", "weekly.weekday", message))?;
            let small = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
            Ok(Timing::Weekly { weekday, hour: small(weekly.hour), minute: small(weekly.minute) })
        }
    }
}

fn instant(field: &'static str, unix_ms: i64) -> Result<Option<UnixMs>, Refusal> {
    // What jiff can show, and nothing comes near.
    const LAST: i64 = 253_402_207_200_000;
    match unix_ms {
        0 => Ok(None),
        1..=LAST => Ok(Some(UnixMs(unix_ms))),
        _ => Err(bad("time-invalid", field, format!("`{field}` must lie between 1970 and 9999"))),
    }
}

fn named<T: Copy>(
    field: &'static str,
    text: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<Option<T>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.map(Some).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|one| name(*one)).collect();
        bad("schedule-policy-unknown", field, format!("`{field}` is one of {}", names.join(", ")))
    })
}

fn fired(fires: &Trigger) -> (Option<v1::FiredPipeline>, Vec<u8>) {
    match fires {
        Trigger::Pipeline { pipeline_id, pipeline_semver, input } => {
            let pipeline = v1::FiredPipeline {
                pipeline_id: pipeline_id.to_string(),
                pipeline_semver: pipeline_semver.clone(),
                input_json: input.to_string().into(),
            };
            (Some(pipeline), Vec::new())
        }
        Trigger::Submission { submission } => (None, submission.to_string().into_bytes()),
    }
}

fn shown(schedule: PipelineSchedule, revision: u64, next_at: Option<UnixMs>) -> v1::Schedule {
    let (pipeline, submission_json) = fired(&schedule.fires);
    let (kind, timing) = match &schedule.timing {
        Timing::Interval { seconds } => ("interval", format!("every {seconds} s")),
        Timing::Weekly { weekday, hour, minute } => {
            ("weekly", format!("every {} at {hour:02}:{minute:02}", weekday.as_str()))
        }
        Timing::Cron { expression } => ("cron", format!("cron {expression}")),
    };
    let paused = schedule.is_paused();
    let because = schedule.pause.as_ref().filter(|_| paused).map(|pause| pause.reason.clone());
    v1::Schedule {
        schedule_id: schedule.schedule_id.to_string(),
        tenant_id: schedule.tenant_id.to_string(),
        owner_actor_id: schedule.owner.actor.actor_id.to_string(),
        owner_role: schedule.owner.actor.role.as_str().to_owned(),
        pipeline,
        submission_json: submission_json.into(),
        timing,
        kind: kind.to_owned(),
        timezone: schedule.timezone,
        start_at_unix_ms: schedule.start_at_unix_ms.0,
        end_at_unix_ms: schedule.end_at_unix_ms.map_or(0, |at| at.0),
        misfire: schedule.misfire.as_str().to_owned(),
        catch_up_window_seconds: schedule.catch_up.window_seconds,
        catch_up_count: schedule.catch_up.count,
        overlap: schedule.overlap.as_str().to_owned(),
        jitter_seconds: schedule.jitter_seconds,
        paused,
        paused_because: because.unwrap_or_default(),
        revision,
        next_at_unix_ms: next_at.map_or(0, |at| at.0),
    }
}

fn standing(standing: ScheduleStanding) -> v1::Schedule {
    shown(standing.schedule, standing.revision, standing.next_at)
}

fn fire(fire: Fire) -> v1::ScheduleFire {
    let waits = fire.state == FireState::Waiting;
    v1::ScheduleFire {
        schedule_id: fire.schedule.schedule_id.to_string(),
        at_unix_ms: fire.at.0,
        through_unix_ms: fire.through.0,
        slots: fire.slots,
        state: fire.state.as_str().to_owned(),
        reason: fire.reason.map_or("", |reason| reason.as_str()).to_owned(),
        details: fire.details.unwrap_or_default(),
        run_id: fire.run_id.map_or_else(String::new, |run| run.to_string()),
        attempts: fire.attempts,
        next_at_unix_ms: if waits { fire.next_at.0 } else { 0 },
        recorded_at_unix_ms: fire.recorded_at.0,
    }
}

impl Schedules {
    async fn put(&self, request: Request<v1::PutScheduleRequest>) -> Result<v1::PutScheduleResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let dry_run = request.dry_run;
        let (schedule, unchanged) = self.api.put_schedule(&caller, wish(request)?, dry_run).await?;
        Ok(v1::PutScheduleResponse { schedule: Some(standing(schedule)), unchanged })
    }

    async fn get(&self, request: Request<v1::GetScheduleRequest>) -> Result<v1::GetScheduleResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("schedule_id", &request.get_ref().schedule_id)?;
        Ok(v1::GetScheduleResponse { schedule: Some(standing(self.api.schedule(&caller, &id).await?)) })
    }

    async fn list(&self, request: Request<v1::ListSchedulesRequest>) -> Result<v1::ListSchedulesResponse, Refusal> {
        let caller = caller_of(&request)?;
        let schedules = self.api.schedules(&caller).await?.into_iter().map(standing);
        Ok(v1::ListSchedulesResponse { schedules: schedules.collect() })
    }

    async fn preview(
        &self,
        request: Request<v1::PreviewScheduleRequest>,
    ) -> Result<v1::PreviewScheduleResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("schedule_id", &request.schedule_id)?;
        let after = instant("after_unix_ms", request.after_unix_ms)?;
        let count = or(request.count, PREVIEW_DEFAULT);
        if count > PREVIEW_MAX {
            return Err(bad("count-invalid", "count", format!("`count` is 1 to {PREVIEW_MAX}")));
        }
        let schedule = self.api.schedule(&caller, &id).await?.schedule;
        let slots = self.api.schedule_preview(&caller, &id, after, usize::try_from(count).unwrap_or_default()).await?;
        let slots = slots.into_iter().map(|(at, starts_at)| v1::ScheduleSlot {
            at_unix_ms: at.0,
            starts_at_unix_ms: starts_at.0,
            fire_id: schedule.fire_id(at).to_string(),
        });
        Ok(v1::PreviewScheduleResponse { slots: slots.collect(), timezone: schedule.timezone.clone() })
    }

    async fn pause(&self, request: Request<v1::PauseScheduleRequest>) -> Result<v1::PauseScheduleResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("schedule_id", &request.schedule_id)?;
        let reason = read::text("reason", request.reason)?;
        let expected = expected(request.expected_revision);
        let (schedule, unchanged) =
            self.api.set_schedule_paused(&caller, &id, request.paused, &reason, expected).await?;
        Ok(v1::PauseScheduleResponse { schedule: Some(standing(schedule)), unchanged })
    }

    async fn backfill(
        &self,
        request: Request<v1::BackfillScheduleRequest>,
    ) -> Result<v1::BackfillScheduleResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("schedule_id", &request.schedule_id)?;
        let reason = read::text("reason", request.reason)?;
        let said =
            |field, at| instant(field, at)?.ok_or_else(|| bad("field-missing", field, format!("`{field}` is missing")));
        let stretch = (said("from_unix_ms", request.from_unix_ms)?, said("to_unix_ms", request.to_unix_ms)?);
        let fires =
            self.api.backfill_schedule(&caller, &id, stretch, request.at_once, &reason, request.dry_run).await?;
        Ok(v1::BackfillScheduleResponse { slots_unix_ms: fires.into_iter().map(|fire| fire.at.0).collect() })
    }

    async fn remove(&self, request: Request<v1::RemoveScheduleRequest>) -> Result<v1::RemoveScheduleResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("schedule_id", &request.schedule_id)?;
        let reason = read::text("reason", request.reason)?;
        let expected = expected(request.expected_revision);
        let schedule = self.api.remove_schedule(&caller, &id, &reason, expected, request.dry_run).await?;
        Ok(v1::RemoveScheduleResponse { schedule: Some(shown(schedule, 0, None)) })
    }

    async fn fires(&self, request: Request<v1::ListFiresRequest>) -> Result<v1::ListFiresResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::optional_id("schedule_id", &request.schedule_id)?;
        let state = named("state", &request.state, &FireState::ALL, FireState::as_str)?;
        let fires = self.api.schedule_fires(&caller, id.as_ref(), state, rows(request.limit)?).await?;
        Ok(v1::ListFiresResponse { fires: fires.into_iter().map(fire).collect() })
    }

    async fn redrive(&self, request: Request<v1::RedriveFireRequest>) -> Result<v1::RedriveFireResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("schedule_id", &request.schedule_id)?;
        let reason = read::text("reason", request.reason)?;
        let redriven = self.api.redrive_fire(&caller, &id, UnixMs(request.at_unix_ms), &reason).await?;
        Ok(v1::RedriveFireResponse { fire: Some(fire(redriven)) })
    }
}

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| errors::to_status(&error))
}

#[tonic::async_trait]
impl ScheduleService for Schedules {
    async fn put_schedule(
        &self,
        request: Request<v1::PutScheduleRequest>,
    ) -> Result<Response<v1::PutScheduleResponse>, Status> {
        answer(self.put(request).await)
    }
    async fn get_schedule(
        &self,
        request: Request<v1::GetScheduleRequest>,
    ) -> Result<Response<v1::GetScheduleResponse>, Status> {
        answer(self.get(request).await)
    }
    async fn list_schedules(
        &self,
        request: Request<v1::ListSchedulesRequest>,
    ) -> Result<Response<v1::ListSchedulesResponse>, Status> {
        answer(self.list(request).await)
    }
    async fn preview_schedule(
        &self,
        request: Request<v1::PreviewScheduleRequest>,
    ) -> Result<Response<v1::PreviewScheduleResponse>, Status> {
        answer(self.preview(request).await)
    }
    async fn pause_schedule(
        &self,
        request: Request<v1::PauseScheduleRequest>,
    ) -> Result<Response<v1::PauseScheduleResponse>, Status> {
        answer(self.pause(request).await)
    }
    async fn backfill_schedule(
        &self,
        request: Request<v1::BackfillScheduleRequest>,
    ) -> Result<Response<v1::BackfillScheduleResponse>, Status> {
        answer(self.backfill(request).await)
    }
    async fn remove_schedule(
        &self,
        request: Request<v1::RemoveScheduleRequest>,
    ) -> Result<Response<v1::RemoveScheduleResponse>, Status> {
        answer(self.remove(request).await)
    }
    async fn list_fires(
        &self,
        request: Request<v1::ListFiresRequest>,
    ) -> Result<Response<v1::ListFiresResponse>, Status> {
        answer(self.fires(request).await)
    }
    async fn redrive_fire(
        &self,
        request: Request<v1::RedriveFireRequest>,
    ) -> Result<Response<v1::RedriveFireResponse>, Status> {
        answer(self.redrive(request).await)
    }
}
