//! Replay and time travel: folds of a prefix of the journal. No tool is ever called (DSH-006, DSH-007).

use serde::{Deserialize, Serialize};

use crate::identity::{Actor, Visibility};
use crate::run::chain::StoredEvent;
use crate::run::envelope::RunEnvelope;
use crate::run::evolve::{FoldError, begin, fold, fold_one};
use crate::run::status::RunStatus;
use crate::time::UnixMicros;

/// A point in a run's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// After this event.
    Seq(u64),
    /// After the last event that is not later than this.
    Time(UnixMicros),
}

/// One entry of the timeline (RUN-008).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// The event.
    pub seq: u64,
    /// When.
    pub at: UnixMicros,
    /// What happened.
    pub kind: String,
    /// Who caused it.
    pub actor: Actor,
    /// Who may see it.
    pub visibility: Visibility,
    /// Status before.
    pub from: RunStatus,
    /// Status after.
    pub to: RunStatus,
}

/// Why a past state cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The run has no such point.
    #[error("the run has no event at or before that point")]
    NoSuchPoint,
    /// The journal does not fold.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

impl ReplayError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchPoint => "no-such-point",
            Self::Fold(_) => "journal-corrupt",
        }
    }
}

/// The run as it stood at a point. `events` is its journal from event 1.
pub fn reconstruct_state_at(events: &[StoredEvent], at: At) -> Result<RunEnvelope, ReplayError> {
    let upto = match at {
        At::Seq(seq) => events.iter().take_while(|event| event.seq <= seq).count(),
        At::Time(time) => events.iter().take_while(|event| event.at <= time).count(),
    };
    let beyond = matches!(at, At::Seq(seq) if events.last().is_none_or(|last| seq > last.seq));
    if upto == 0 || beyond {
        return Err(ReplayError::NoSuchPoint);
    }
    Ok(fold(&events[..upto])?)
}

/// Every event with the status before and after it.
pub fn build_replay_timeline(events: &[StoredEvent]) -> Result<Vec<TimelineEntry>, ReplayError> {
    let Some(first) = events.first() else { return Err(ReplayError::NoSuchPoint) };
    let mut run = begin(first)?;
    let entry = |event: &StoredEvent, from, to| TimelineEntry {
        seq: event.seq,
        at: event.at,
        kind: event.kind.clone(),
        actor: event.actor.clone(),
        visibility: event.visibility,
        from,
        to,
    };
    let mut timeline = vec![entry(first, run.status, run.status)];
    for event in &events[1..] {
        let from = run.status;
        fold_one(&mut run, event)?;
        timeline.push(entry(event, from, run.status));
    }
    Ok(timeline)
}
