//! `schedules put`, `list`, `show`, `next`, `pause`, `resume`, `backfill`, `remove`, `fires`, `dead-letters` and `redrive`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use signalbox_proto::v1;

use super::listing::{When, when};
use super::runs::read_file;
use crate::client::{Schedules, timed};
use crate::failure::Failure;
use crate::output::{Out, instant};

/// `schedules`.
#[derive(Debug, Subcommand)]
pub(crate) enum SchedulesCommand {
    /// Creates a schedule or changes it: from then on it fires in your name, in your tenant.
    #[command(after_help = "Examples:
  signalbox schedules put nightly --plan plan.json --cron \"30 2 * * *\" --timezone Europe/Berlin --reason \"the nightly check\"
  signalbox schedules put briefing --pipeline veritas.weekly_briefing_pack@1.0.0 --input input.json --weekly mon,07:00 --reason \"Monday's briefing\"
  signalbox schedules put pulse --plan plan.json --every 60 --overlap buffer-one --reason \"a pulse\"")]
    Put(Box<PutArgs>),
    /// Lists the schedules.
    #[command(after_help = "Example:
  signalbox schedules list")]
    List,
    /// Shows one schedule.
    #[command(after_help = "Example:
  signalbox schedules show nightly")]
    Show {
        /// The schedule.
        id: String,
    },
    /// Shows the next slots; nothing is fired.
    #[command(after_help = "Example:
  signalbox schedules next nightly --count 5 --after 2026-03-28")]
    Next {
        /// The schedule.
        id: String,
        /// How many.
        #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        count: u32,
        /// Only slots after this; now if left out.
        #[arg(long, value_name = "WHEN", value_parser = when)]
        after: Option<When>,
    },
    /// Lets nothing fire until it is resumed.
    #[command(after_help = "Example:
  signalbox schedules pause nightly --reason \"the archive moves\"")]
    Pause(PauseArgs),
    /// Lets it fire again; slots meanwhile are skipped.
    #[command(after_help = "Example:
  signalbox schedules resume nightly --reason \"it has moved\"")]
    Resume(PauseArgs),
    /// Fires slots after the fact, one after the other. A slot that has its run keeps it.
    #[command(after_help = "Example:
  signalbox schedules backfill nightly --from 2026-11-01 --to 2026-11-08 --reason \"the week we were down\"")]
    Backfill(BackfillArgs),
    /// Removes a schedule. What became of its slots is kept.
    #[command(after_help = "Example:
  signalbox schedules remove nightly --reason \"no longer needed\"")]
    Remove {
        /// The schedule.
        id: String,
        /// Why; kept in the audit journal.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// The revision you have seen: refused if somebody has changed it since.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        expected_revision: Option<u64>,
        /// Only say what would fire no more; nothing is changed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Shows what became of slots, the latest first: started, skipped, suppressed, waiting, and why.
    #[command(after_help = "Examples:
  signalbox schedules fires nightly
  signalbox schedules fires --state suppressed")]
    Fires {
        /// The schedule; all if left out.
        id: Option<String>,
        /// Only those that stand like this.
        #[arg(long, value_parser = ["waiting", "buffered", "started", "skipped", "suppressed", "dead"])]
        state: Option<String>,
        /// Most of them.
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Shows fires whose start has failed five times.
    #[command(after_help = "Example:
  signalbox schedules dead-letters")]
    DeadLetters {
        /// The schedule; all if left out.
        id: Option<String>,
        /// Most of them.
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Tries a dead letter again.
    #[command(after_help = "Example:
  signalbox schedules redrive nightly --slot 2026-11-30T01:30:00Z --reason \"the executor is back\"")]
    Redrive {
        /// The schedule.
        id: String,
        /// The slot, as `dead-letters` shows it.
        #[arg(long, value_name = "WHEN", value_parser = when)]
        slot: When,
        /// Why; kept in the audit journal.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// `schedules put`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["plan", "pipeline"])))]
#[command(group(ArgGroup::new("times").required(true).args(["every", "weekly", "cron"])))]
pub(crate) struct PutArgs {
    /// The schedule.
    id: String,
    /// What is submitted, as JSON: the file that `runs submit` takes; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// The pipeline that is fired, with its version.
    #[arg(long, value_name = "ID@VERSION", requires = "input")]
    pipeline: Option<String>,
    /// What the pipeline is given, as JSON; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    input: Option<PathBuf>,
    /// Every so many seconds, counted from the start.
    #[arg(long, value_name = "SECONDS")]
    every: Option<u64>,
    /// Once a week, such as mon,07:00.
    #[arg(long, value_name = "DAY,HH:MM", value_parser = weekly)]
    weekly: Option<(String, u32, u32)>,
    /// Five fields, such as "0 9 * * MON-FRI", or @hourly, @daily, @weekly, @monthly, @yearly.
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    /// The IANA zone its times are in.
    #[arg(long, default_value = "UTC", value_name = "ZONE")]
    timezone: String,
    /// No slot is before this.
    #[arg(long, value_name = "INSTANT")]
    start: Option<Timestamp>,
    /// No slot is after this.
    #[arg(long, value_name = "INSTANT")]
    end: Option<Timestamp>,
    /// What is done about slots that nobody was there for.
    #[arg(long, default_value = "run-once", value_parser = ["run-once", "skip"])]
    misfire: String,
    /// Slots missed longer ago than this are not made up for; a day if left out.
    #[arg(long, default_value_t = 0, value_name = "SECONDS", hide_default_value = true)]
    catch_up_window: u64,
    /// How many of the latest missed slots are made up for; one if left out.
    #[arg(long, default_value_t = 0, value_name = "N", hide_default_value = true)]
    catch_up_count: u32,
    /// What is done about a slot that comes while a run of an earlier one is not over.
    #[arg(long, default_value = "skip", value_parser = ["skip", "buffer-one", "buffer-all", "cancel-other", "kill-other", "allow-all"])]
    overlap: String,
    /// A fire begins up to so many seconds after its slot.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    jitter: u64,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Refused if the schedule exists already.
    #[arg(long, conflicts_with = "expected_revision")]
    create: bool,
    /// The revision you have seen: refused if somebody has changed it since.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    expected_revision: Option<u64>,
    /// Only say what it would be and when it would fire; nothing is written.
    #[arg(long)]
    dry_run: bool,
}

/// `schedules pause` and `resume`.
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The schedule.
    id: String,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The revision you have seen: refused if somebody has changed it since.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    expected_revision: Option<u64>,
}

/// `schedules backfill`.
#[derive(Debug, Args)]
pub(crate) struct BackfillArgs {
    /// The schedule.
    id: String,
    /// From then on, included.
    #[arg(long, value_name = "WHEN", value_parser = when)]
    from: When,
    /// Until then, included; now if left out.
    #[arg(long, default_value = "0s", value_name = "WHEN", value_parser = when, hide_default_value = true)]
    to: When,
    /// All at once, and not one after the other.
    #[arg(long)]
    at_once: bool,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Only say which slots; nothing is fired.
    #[arg(long)]
    dry_run: bool,
}

fn weekly(text: &str) -> Result<(String, u32, u32), String> {
    let parts = || {
        let (day, time) = text.split_once(',')?;
        let (hour, minute) = time.split_once(':')?;
        let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.len() == 2);
        Some((day.trim().to_owned(), number(hour)?, number(minute)?))
    };
    parts().ok_or_else(|| "give a day and a time, such as mon,07:00".to_owned())
}

/// Does what was asked.
pub(crate) async fn run(client: Schedules, command: SchedulesCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        SchedulesCommand::Put(args) => put(client, *args, out).await,
        SchedulesCommand::List => list(client, out).await,
        SchedulesCommand::Show { id } => show(client, id, out).await,
        SchedulesCommand::Next { id, count, after } => next(client, id, count, after, out).await,
        SchedulesCommand::Pause(args) => pause(client, args, true, out).await,
        SchedulesCommand::Resume(args) => pause(client, args, false, out).await,
        SchedulesCommand::Backfill(args) => backfill(client, args, out).await,
        SchedulesCommand::Remove { id, reason, expected_revision, dry_run } => {
            let expected_revision = expected_revision.unwrap_or_default();
            let request = v1::RemoveScheduleRequest { schedule_id: id, reason, expected_revision, dry_run };
            remove(client, request, out).await
        }
        SchedulesCommand::Fires { id, state, limit } => fires(client, id, state.unwrap_or_default(), limit, out).await,
        SchedulesCommand::DeadLetters { id, limit } => fires(client, id, "dead".to_owned(), limit, out).await,
        SchedulesCommand::Redrive { id, slot, reason } => redrive(client, id, slot, reason, out).await,
    }
}

async fn put(mut client: Schedules, args: PutArgs, out: &mut Out) -> Result<(), Failure> {
    use v1::put_schedule_request::{Fires, Timing};
    let fires = match (&args.plan, &args.pipeline, &args.input) {
        (Some(plan), _, _) => Fires::SubmissionJson(read_file(plan)?.into()),
        (None, Some(pipeline), Some(input)) => {
            let (id, semver) = pipeline.split_once('@').ok_or_else(|| {
                Failure::usage("pipeline-semver-invalid", "give the pipeline with its version, as ID@VERSION")
            })?;
            let (pipeline_id, pipeline_semver) = (id.to_owned(), semver.to_owned());
            Fires::Pipeline(v1::FiredPipeline { pipeline_id, pipeline_semver, input_json: read_file(input)?.into() })
        }
        (None, ..) => return Err(Failure::usage("usage", "say what is fired: --plan, or --pipeline with --input")),
    };
    let timing = match (args.every, args.weekly, args.cron) {
        (Some(seconds), _, _) => Some(Timing::IntervalSeconds(seconds)),
        (None, Some((weekday, hour, minute)), _) => Some(Timing::Weekly(v1::WeeklyTiming { weekday, hour, minute })),
        (None, None, cron) => cron.map(Timing::Cron),
    };
    let request = v1::PutScheduleRequest {
        schedule_id: args.id,
        fires: Some(fires),
        timing,
        timezone: args.timezone,
        start_at_unix_ms: args.start.map_or(0, Timestamp::as_millisecond),
        end_at_unix_ms: args.end.map_or(0, Timestamp::as_millisecond),
        misfire: args.misfire,
        catch_up_window_seconds: args.catch_up_window,
        catch_up_count: args.catch_up_count,
        overlap: args.overlap,
        jitter_seconds: args.jitter,
        reason: args.reason,
        expected_revision: args.expected_revision.unwrap_or_default(),
        expects_none: args.create,
        dry_run: args.dry_run,
    };
    let answer = client.put_schedule(timed(request)).await?.into_inner();
    let schedule = answer.schedule.unwrap_or_default();
    if out.is_json() {
        let put = json!({ "schedule": view(&schedule), "unchanged": answer.unchanged, "dryRun": args.dry_run });
        return out.json(&put);
    }
    let next = time(schedule.next_at_unix_ms);
    let next = if schedule.paused { "it is paused".to_owned() } else { format!("next at {next}") };
    out.line(&match (answer.unchanged, args.dry_run) {
        (true, _) => format!("{} is like that already; {next}", schedule.schedule_id),
        (false, true) => format!("{} would fire {}; {next}. Nothing was done", schedule.schedule_id, schedule.timing),
        (false, false) => format!(
            "{} fires {} as {}; {next}; revision {}",
            schedule.schedule_id, schedule.timing, schedule.owner_actor_id, schedule.revision
        ),
    })
}

async fn list(mut client: Schedules, out: &mut Out) -> Result<(), Failure> {
    let schedules = client.list_schedules(timed(v1::ListSchedulesRequest {})).await?.into_inner().schedules;
    if out.is_json() {
        return out.json(&json!({ "schedules": schedules.iter().map(view).collect::<Vec<_>>() }));
    }
    if schedules.is_empty() {
        return out.line("there is no schedule");
    }
    let rows: Vec<_> = schedules
        .iter()
        .map(|schedule| {
            vec![
                schedule.schedule_id.clone(),
                what(schedule),
                schedule.timing.clone(),
                schedule.timezone.clone(),
                if schedule.paused { "paused".to_owned() } else { time(schedule.next_at_unix_ms) },
                schedule.overlap.clone(),
                schedule.owner_actor_id.clone(),
            ]
        })
        .collect();
    out.table(&["SCHEDULE", "FIRES", "WHEN", "ZONE", "NEXT", "OVERLAP", "AS"], &rows)
}

async fn show(mut client: Schedules, id: String, out: &mut Out) -> Result<(), Failure> {
    let answer = client.get_schedule(timed(v1::GetScheduleRequest { schedule_id: id })).await?.into_inner();
    let schedule = answer.schedule.unwrap_or_default();
    if out.is_json() {
        return out.json(&view(&schedule));
    }
    let catch_up = format!("{} within {} s", schedule.catch_up_count, schedule.catch_up_window_seconds);
    out.fields(&[
        ("schedule", schedule.schedule_id.clone()),
        ("of", schedule.tenant_id.clone()),
        ("as", format!("{} ({})", schedule.owner_actor_id, schedule.owner_role)),
        ("fires", what(&schedule)),
        ("when", schedule.timing.clone()),
        ("zone", schedule.timezone.clone()),
        ("from", time(schedule.start_at_unix_ms)),
        ("until", time(schedule.end_at_unix_ms)),
        ("missed slots", schedule.misfire.clone()),
        ("made up for", catch_up),
        ("overlap", schedule.overlap.clone()),
        ("jitter", format!("{} s", schedule.jitter_seconds)),
        ("state", if schedule.paused { "paused" } else { "fires" }.to_owned()),
        ("because", schedule.paused_because.clone()),
        ("next", time(schedule.next_at_unix_ms)),
        ("revision", schedule.revision.to_string()),
    ])
}

async fn next(
    mut client: Schedules,
    id: String,
    count: u32,
    after: Option<When>,
    out: &mut Out,
) -> Result<(), Failure> {
    let after_unix_ms = after.map_or(0, |after| after.unix_ms(Timestamp::now()));
    let request = v1::PreviewScheduleRequest { schedule_id: id, count, after_unix_ms };
    let v1::PreviewScheduleResponse { slots, timezone } = client.preview_schedule(timed(request)).await?.into_inner();
    // A zone this machine's own database lacks is shown as UTC.
    let zone = TimeZone::get(&timezone).unwrap_or(TimeZone::UTC);
    let local = |unix_ms: i64| {
        let Ok(at) = Timestamp::from_millisecond(unix_ms) else { return String::new() };
        let offset = zone.to_offset(at);
        let (sign, minutes) =
            if offset.is_negative() { ('-', -offset.seconds() / 60) } else { ('+', offset.seconds() / 60) };
        format!("{}{sign}{:02}:{:02}", offset.to_datetime(at), minutes / 60, minutes % 60)
    };
    if out.is_json() {
        let slots: Vec<_> = slots
            .iter()
            .map(|slot| {
                json!({
                    "at": iso(slot.at_unix_ms), "atUnixMs": slot.at_unix_ms, "local": local(slot.at_unix_ms),
                    "startsAtUnixMs": slot.starts_at_unix_ms, "fireId": slot.fire_id,
                })
            })
            .collect();
        return out.json(&json!({ "timezone": timezone, "slots": slots }));
    }
    if slots.is_empty() {
        return out.line("no slot is left");
    }
    let rows: Vec<_> =
        slots.iter().map(|slot| vec![iso(slot.at_unix_ms), local(slot.at_unix_ms), slot.fire_id.clone()]).collect();
    out.table(&["SLOT", "IN ITS ZONE", "FIRE"], &rows)
}

async fn pause(mut client: Schedules, args: PauseArgs, paused: bool, out: &mut Out) -> Result<(), Failure> {
    let expected_revision = args.expected_revision.unwrap_or_default();
    let request = v1::PauseScheduleRequest { schedule_id: args.id, paused, reason: args.reason, expected_revision };
    let answer = client.pause_schedule(timed(request)).await?.into_inner();
    let schedule = answer.schedule.unwrap_or_default();
    if out.is_json() {
        return out.json(&json!({ "schedule": view(&schedule), "unchanged": answer.unchanged }));
    }
    let id = &schedule.schedule_id;
    out.line(&match (answer.unchanged, paused) {
        (true, _) => format!("{id} is like that already"),
        (false, true) => format!("{id} is paused; nothing fires until it is resumed"),
        (false, false) => format!("{id} goes on; next at {}", time(schedule.next_at_unix_ms)),
    })
}

async fn backfill(mut client: Schedules, args: BackfillArgs, out: &mut Out) -> Result<(), Failure> {
    let now = Timestamp::now();
    let request = v1::BackfillScheduleRequest {
        schedule_id: args.id,
        from_unix_ms: args.from.unix_ms(now),
        to_unix_ms: args.to.unix_ms(now),
        at_once: args.at_once,
        reason: args.reason,
        dry_run: args.dry_run,
    };
    let slots = client.backfill_schedule(timed(request)).await?.into_inner().slots_unix_ms;
    if out.is_json() {
        let slots: Vec<_> = slots.iter().map(|at| iso(*at)).collect();
        return out.json(&json!({ "slots": slots, "dryRun": args.dry_run }));
    }
    let (count, first, last) = (slots.len(), slots.first().copied(), slots.last().copied());
    let stretch = format!("{} to {}", iso(first.unwrap_or_default()), iso(last.unwrap_or_default()));
    out.line(&match args.dry_run {
        true => format!("{count} slots would be fired, {stretch}. Nothing was done"),
        false => format!("{count} slots are fired, {stretch}; those that have their run keep it"),
    })
}

async fn remove(mut client: Schedules, request: v1::RemoveScheduleRequest, out: &mut Out) -> Result<(), Failure> {
    let dry_run = request.dry_run;
    let schedule = client.remove_schedule(timed(request)).await?.into_inner().schedule.unwrap_or_default();
    if out.is_json() {
        return out.json(&json!({ "schedule": view(&schedule), "dryRun": dry_run }));
    }
    let (id, timing) = (&schedule.schedule_id, &schedule.timing);
    out.line(&match dry_run {
        true => format!("{id} would fire no more ({timing}). Nothing was done"),
        false => format!("{id} is removed and fires no more"),
    })
}

async fn fires(
    mut client: Schedules,
    id: Option<String>,
    state: String,
    limit: u32,
    out: &mut Out,
) -> Result<(), Failure> {
    let request = v1::ListFiresRequest { schedule_id: id.unwrap_or_default(), state, limit };
    let fires = client.list_fires(timed(request)).await?.into_inner().fires;
    if out.is_json() {
        return out.json(&json!({ "fires": fires.iter().map(fire_view).collect::<Vec<_>>() }));
    }
    if fires.is_empty() {
        return out.line("there is none");
    }
    let rows: Vec<_> = fires
        .iter()
        .map(|fire| {
            let through = if fire.slots > 1 { format!(" and {} more", fire.slots - 1) } else { String::new() };
            vec![
                format!("{}{through}", iso(fire.at_unix_ms)),
                fire.schedule_id.clone(),
                fire.state.clone(),
                fire.reason.clone(),
                fire.attempts.to_string(),
                fire.run_id.clone(),
                fire.details.clone(),
            ]
        })
        .collect();
    out.table(&["SLOT", "SCHEDULE", "STATE", "REASON", "TRIED", "RUN", "DETAILS"], &rows)
}

async fn redrive(mut client: Schedules, id: String, slot: When, reason: String, out: &mut Out) -> Result<(), Failure> {
    let request = v1::RedriveFireRequest { schedule_id: id, at_unix_ms: slot.unix_ms(Timestamp::now()), reason };
    let fire = client.redrive_fire(timed(request)).await?.into_inner().fire.unwrap_or_default();
    if out.is_json() {
        return out.json(&json!({ "fire": fire_view(&fire) }));
    }
    out.line(&format!("the slot {} of {} is tried again", iso(fire.at_unix_ms), fire.schedule_id))
}

fn what(schedule: &v1::Schedule) -> String {
    match &schedule.pipeline {
        Some(pipeline) => format!("{}@{}", pipeline.pipeline_id, pipeline.pipeline_semver),
        None => "a submission".to_owned(),
    }
}

/// An instant as people read lists of them.
fn time(unix_ms: i64) -> String {
    if unix_ms == 0 { String::new() } else { instant(unix_ms.saturating_mul(1_000)) }
}

/// An instant as commands take it.
fn iso(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms).map_or_else(|_| unix_ms.to_string(), |at| at.to_string())
}

fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn at(unix_ms: i64) -> Option<i64> {
    (unix_ms != 0).then_some(unix_ms)
}

fn body(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or(Value::Null)
}

fn view(schedule: &v1::Schedule) -> Value {
    let pipeline = schedule.pipeline.as_ref();
    json!({
        "scheduleId": schedule.schedule_id, "tenantId": schedule.tenant_id, "ownerActorId": schedule.owner_actor_id,
        "ownerRole": schedule.owner_role,
        "pipelineId": pipeline.map(|pipeline| &pipeline.pipeline_id),
        "pipelineSemver": pipeline.map(|pipeline| &pipeline.pipeline_semver),
        "input": pipeline.map(|pipeline| body(&pipeline.input_json)),
        "submission": (!schedule.submission_json.is_empty()).then(|| body(&schedule.submission_json)),
        "kind": schedule.kind, "timing": schedule.timing, "timezone": schedule.timezone,
        "startAtUnixMs": at(schedule.start_at_unix_ms), "endAtUnixMs": at(schedule.end_at_unix_ms),
        "misfire": schedule.misfire, "catchUpWindowSeconds": schedule.catch_up_window_seconds,
        "catchUpCount": schedule.catch_up_count, "overlap": schedule.overlap,
        "jitterSeconds": schedule.jitter_seconds, "paused": schedule.paused,
        "pausedBecause": text(&schedule.paused_because), "revision": schedule.revision,
        "nextAtUnixMs": at(schedule.next_at_unix_ms),
    })
}

fn fire_view(fire: &v1::ScheduleFire) -> Value {
    json!({
        "scheduleId": fire.schedule_id, "at": iso(fire.at_unix_ms), "atUnixMs": fire.at_unix_ms,
        "throughUnixMs": fire.through_unix_ms, "slots": fire.slots, "state": fire.state,
        "reason": text(&fire.reason), "details": text(&fire.details), "runId": text(&fire.run_id),
        "attempts": fire.attempts, "nextAtUnixMs": at(fire.next_at_unix_ms),
        "recordedAtUnixMs": fire.recorded_at_unix_ms,
    })
}
