//! The scheduler: sees to it that what schedules are due is recorded, and that fires start their runs.
//!
//! Every node does, and none leads: the store lets one of them move a schedule on, and holds a fire for whoever starts it. What
//! is due is decided by the store's clock; this node's own only says when it is worth a look.

use std::collections::BTreeMap;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use signalbox_domain::ids::RunId;
use signalbox_domain::pipeline::schedule::{
    Due, FireState, Firing, Objection, Overlap, Pause, PipelineSchedule, Reason, Standing, due, retry_after_ms,
};
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;
use signalbox_ports::schedules::{Advance, Fire, HELD_FOR_MS, Noted, Record, ScheduleKey};
use tokio::task::JoinSet;

use crate::api::{ApiError, ErrorKind};
use crate::node::{NodeHandle, key_of};

/// How often it is looked whether anything is due.
const EVERY: Duration = Duration::from_millis(250);
/// How often old fires are forgotten, in looks.
const FORGETS_EVERY: u32 = 4 * 60 * 10;
/// Schedules that are moved on, and fires that are started, at once.
const AT_ONCE_MAX: usize = 8;
/// Fires that are claimed at once.
const CLAIM: usize = 32;
/// When a start that could not be tried is tried again, in milliseconds. It counts as none.
const NOT_NOW_MS: i64 = 2_000;

pub(crate) enum Msg {
    /// It is time for a look.
    Tick,
    /// Something may be due.
    Look,
}

pub(crate) struct SchedulesActor;

pub(crate) struct State {
    node: NodeHandle,
    /// When each schedule is worth a look, by this node's clock.
    seen: BTreeMap<ScheduleKey, Seen>,
    looks: u32,
}

/// A schedule as it was when it was looked at.
#[derive(Clone, PartialEq, Eq)]
struct Seen {
    since: UnixMs,
    end: Option<UnixMs>,
    pause: Option<Pause>,
    look_at: Option<UnixMs>,
}

impl Seen {
    fn is_of(&self, schedule: &PipelineSchedule) -> bool {
        (self.since, self.end, &self.pause) == (schedule.since_unix_ms, schedule.end_at_unix_ms, &schedule.pause)
    }
}

impl Actor for SchedulesActor {
    type Msg = Msg;
    type State = State;
    type Arguments = NodeHandle;

    async fn pre_start(&self, myself: ActorRef<Msg>, node: NodeHandle) -> Result<State, ActorProcessingErr> {
        myself.send_after(EVERY, || Msg::Tick);
        Ok(State { node, seen: BTreeMap::new(), looks: 0 })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        if matches!(message, Msg::Look) {
            // What an act has recorded may be of a schedule that would be looked at much later.
            state.seen.clear();
        }
        state.look().await;
        // Not an interval: a slow store must not be asked ever more often.
        if matches!(message, Msg::Tick) {
            myself.send_after(EVERY, || Msg::Tick);
        }
        Ok(())
    }
}

impl State {
    async fn look(&mut self) {
        let rules = self.node.rules_in_view();
        let schedules = &rules.schedules;
        self.seen.retain(|key, _| schedules.iter().any(|known| key_of(known) == *key));
        // Without a schedule nothing is asked of the store; and a node that goes starts nothing.
        if schedules.is_empty() || !self.node.is_ready() {
            return;
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks % FORGETS_EVERY == 1
            && let Err(error) = self.node.schedule_rows().forget_fires().await
        {
            tracing::warn!(%error, "old fires could not be forgotten yet");
        }
        let now = self.node.now();
        let mut moving = JoinSet::new();
        for schedule in schedules.iter().filter(|schedule| !schedule.is_paused()) {
            let key = key_of(schedule);
            let known = self.seen.get(&key).filter(|seen| seen.is_of(schedule));
            if known.is_some_and(|seen| seen.look_at.is_none_or(|at| at > now)) {
                continue;
            }
            if moving.len() >= AT_ONCE_MAX {
                self.note(moving.join_next().await, now);
            }
            let (node, schedule) = (self.node.clone(), schedule.clone());
            moving.spawn(async move {
                let moved = move_on(&node, &schedule).await;
                (schedule, moved)
            });
        }
        while let Some(moved) = moving.join_next().await {
            self.note(Some(moved), now);
        }
        start_all(&self.node).await;
    }

    fn note(&mut self, moved: Option<Result<Moved, tokio::task::JoinError>>, now: UnixMs) {
        match moved {
            Some(Ok((schedule, Ok(Some((due, record)))))) => {
                let look_at = due.look_at.map(|at| now.plus_ms(at.since(record.now)));
                let (since, end) = (schedule.since_unix_ms, schedule.end_at_unix_ms);
                self.seen.insert(key_of(&schedule), Seen { since, end, pause: schedule.pause, look_at });
            }
            // Another node has moved it on; it is looked at again.
            Some(Ok((_, Ok(None)))) | None => {}
            Some(Ok((schedule, Err(error)))) => {
                tracing::warn!(%error, schedule = %schedule.schedule_id, "the schedule cannot be moved on yet");
            }
            Some(Err(error)) => tracing::error!(%error, "moving a schedule on failed"),
        }
    }
}

type Moved = (PipelineSchedule, Result<Option<(Due, Record)>, StoreError>);

/// Does what a schedule is due now; `None` if another node was quicker.
async fn move_on(node: &NodeHandle, schedule: &PipelineSchedule) -> Result<Option<(Due, Record)>, StoreError> {
    let rows = node.schedule_rows();
    let record = rows.record(&key_of(schedule)).await?;
    let of = |state: FireState| record.open.iter().filter(move |fire| fire.state == state);
    let slots = |state: FireState| of(state).map(|fire| fire.at).collect::<Vec<_>>();
    let (waiting, buffered) = (slots(FireState::Waiting), slots(FireState::Buffered));
    let standing = Standing {
        considered_until: record.considered_until,
        waiting: &waiting,
        running: of(FireState::Started).count(),
        buffered: &buffered,
    };
    let due = due(schedule, standing, record.now);
    if due.is_nothing() {
        return Ok(Some((due, record)));
    }
    let advance = Advance {
        schedule: key_of(schedule),
        version: record.version,
        considered_until: due.considered_until,
        fires: due.fires.clone(),
        released: due.released.clone(),
        overtaken: due.overtaken.clone(),
    };
    Ok(rows.advance(advance).await?.then_some((due, record)))
}

/// Starts every fire whose start is due.
async fn start_all(node: &NodeHandle) {
    let mut starting = JoinSet::new();
    while node.is_ready() {
        let claimed = match node.schedule_rows().claim_fires(CLAIM).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "no fires could be claimed");
                break;
            }
        };
        let more = claimed.len() == CLAIM;
        if !claimed.is_empty() {
            // Another node may have put a schedule a moment ago, and a switch may just have been armed.
            node.refresh_rules().await;
        }
        for fire in claimed {
            if starting.len() >= AT_ONCE_MAX {
                let _ = starting.join_next().await;
            }
            let node = node.clone();
            starting.spawn(async move { start(&node, fire).await });
        }
        if !more {
            break;
        }
    }
    // One that panics is held a while, and tried again by whoever comes.
    while let Some(started) = starting.join_next().await {
        if let Err(error) = started {
            tracing::error!(%error, "starting a fire failed");
        }
    }
}

async fn start(node: &NodeHandle, fire: Fire) {
    let outcome = outcome_of(node, &fire).await;
    let noted = note_of(&fire, outcome);
    match node.schedule_rows().note_fire(&fire, noted).await {
        Ok(true) => {}
        // It took so long that another has taken it over: it finds the same run.
        Ok(false) => tracing::info!(schedule = %fire.schedule.schedule_id, "a fire was taken over by another node"),
        Err(error) => {
            tracing::warn!(%error, schedule = %fire.schedule.schedule_id, "what became of a fire is not noted yet");
        }
    }
}

/// What an attempt came to.
enum Outcome {
    Started(RunId, Option<String>),
    Not(FireState, Reason, String),
    /// It could not be tried.
    NotNow(String),
    Failed(String),
}

fn note_of(fire: &Fire, outcome: Outcome) -> Noted {
    let now = fire.next_at.plus_ms(-HELD_FOR_MS);
    let noted = Noted {
        state: FireState::Waiting,
        reason: None,
        details: None,
        run_id: None,
        attempts: fire.attempts,
        next_at: now,
    };
    match outcome {
        Outcome::Started(run, details) => Noted { state: FireState::Started, run_id: Some(run), details, ..noted },
        Outcome::Not(state, reason, details) => Noted { state, reason: Some(reason), details: Some(details), ..noted },
        Outcome::NotNow(problem) => Noted {
            details: Some(problem),
            attempts: fire.attempts.saturating_sub(1),
            next_at: now.plus_ms(NOT_NOW_MS),
            ..noted
        },
        Outcome::Failed(problem) => {
            let (next, dead) = (retry_after_ms(fire.attempts), (FireState::Dead, Some(Reason::StartFailed)));
            let (state, reason) = if next.is_some() { (FireState::Waiting, None) } else { dead };
            let next_at = now.plus_ms(next.unwrap_or(0));
            Noted { state, reason, details: Some(problem), next_at, ..noted }
        }
    }
}

async fn outcome_of(node: &NodeHandle, fire: &Fire) -> Outcome {
    let Some(schedule) = node.known_schedule(&fire.schedule) else {
        return Outcome::Not(FireState::Skipped, Reason::Removed, "the schedule was removed".to_owned());
    };
    if let Some(pause) = schedule.pause.as_ref().filter(|_| schedule.is_paused()) {
        return Outcome::Not(FireState::Skipped, Reason::Paused, pause.reason.clone());
    }
    match node.objection(&schedule) {
        Err(problem) => return Outcome::NotNow(problem),
        Ok(Some(Objection { reason, details })) => return Outcome::Not(FireState::Suppressed, reason, details),
        Ok(None) => {}
    }
    let fire_id = schedule.fire_id(fire.at);
    let firing = match schedule.fires.firing(&fire_id, fire.at) {
        Ok(firing) => firing,
        Err(error) => return Outcome::Failed(format!("{}: {error}", error.code())),
    };
    if let Err(error) = end_others(node, &schedule, fire).await {
        return failed(&error);
    }
    let run_id = fire_id.run_id();
    let started = match firing {
        Firing::Pipeline(order) => node.fire_pipeline(&schedule.caller(), order).await.map(drop),
        Firing::Submission(submission) => node.submit(&schedule.caller(), Some(run_id), *submission).await.map(drop),
    };
    match started {
        Ok(()) => Outcome::Started(run_id, None),
        // What it fires was changed since: the run of this fire is there, and there is never another.
        Err(ApiError::RunIdConflict(_)) => {
            Outcome::Started(run_id, Some("the run of this fire was there already".to_owned()))
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &ApiError) -> Outcome {
    let problem = format!("{}: {error}", error.code());
    let waits = matches!(error.kind(), ErrorKind::Overloaded | ErrorKind::Unavailable);
    if waits || matches!(error, ApiError::Draining) { Outcome::NotNow(problem) } else { Outcome::Failed(problem) }
}

/// Ends the runs of earlier fires, if the schedule says so. Said again, it is the same command.
async fn end_others(node: &NodeHandle, schedule: &PipelineSchedule, fire: &Fire) -> Result<(), ApiError> {
    let reason = format!("the next fire of the schedule `{}` takes its place", schedule.schedule_id);
    let command = match schedule.overlap {
        Overlap::CancelOther => RunCommand::Cancel { reason },
        Overlap::KillOther => RunCommand::Kill { reason, blamed_id: None },
        Overlap::Skip | Overlap::BufferOne | Overlap::BufferAll | Overlap::AllowAll => return Ok(()),
    };
    let (caller, own) = (schedule.caller(), schedule.fire_id(fire.at));
    let record = node.schedule_rows().record(&fire.schedule).await?;
    let others = record.open.iter().filter(|other| other.at != fire.at).filter_map(|other| other.run_id);
    for run in others.filter(|run| *run != own.run_id()) {
        match node.command(&caller, run, own.command_id(run), command.clone()).await {
            // It is durable, and carried out before long.
            Ok(_) | Err(ApiError::AnswerPending) => {}
            // It has ended meanwhile.
            Err(error) if error.kind() == ErrorKind::PreconditionFailed => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
