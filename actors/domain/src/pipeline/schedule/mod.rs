//! Schedules: when a pipeline, or a stored submission, is fired (PIP-026 to PIP-028).
//!
//! Pure. A [`PipelineSchedule`] says when its slots are ([`timing`]); what follows at an instant from what has been done so
//! far is one function, [`due`](due::due); whether a fire may start a run now is another, [`objection`];
//! who may manage which schedule is in [`managing`]. A slot is an instant the schedule names; a fire is what became of one.

pub mod asking;
pub mod due;
pub mod fire;
pub mod managing;
pub mod timing;
pub mod trigger;

use serde::{Deserialize, Serialize};

use crate::identity::{Actor, Caller};
use crate::ids::{ActorId, ScheduleId, TenantId};
use crate::time::UnixMs;

pub use asking::{Objection, objection};
pub use due::{Due, NewFire, Standing, due};
pub use fire::{FireId, FireState, Reason, START_ATTEMPTS_MAX, retry_after_ms};
pub use managing::{PutSchedule, Putting, ScheduleDenial};
pub use timing::{Slots, Timing, Weekday, next_fire_for, slots};
pub use trigger::{Firing, Trigger, TriggerDenial};

/// Longest jitter, in seconds: an hour.
pub const JITTER_SECONDS_MAX: u64 = 3_600;
/// Longest time back from which missed slots are made up for, in seconds: 31 days. Slots missed earlier than that are not
/// looked for either.
pub const CATCH_UP_SECONDS_MAX: u64 = 31 * 24 * 3_600;
/// How far back missed slots are made up for unless the schedule says otherwise, in seconds: a day.
pub const CATCH_UP_SECONDS_DEFAULT: u64 = 24 * 3_600;
/// Most missed slots that are made up for at once.
pub const CATCH_UP_COUNT_MAX: u32 = 100;
/// Most fires of one schedule that wait for earlier ones to end.
pub const BUFFERED_MAX: usize = 100;
/// Largest trigger, in bytes of its JSON.
pub const TRIGGER_BYTES_MAX: usize = 64 << 10;

/// What is done about slots that nobody was there for (PIP-027).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Misfire {
    /// The latest of them fires, late, for all of them; with a higher [`CatchUp::count`] so many of the latest.
    #[default]
    RunOnce,
    /// None does.
    Skip,
}

impl Misfire {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::RunOnce, Self::Skip];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunOnce => "run-once",
            Self::Skip => "skip",
        }
    }
}

/// What is done about a slot that comes while a run of an earlier one is not over (PIP-027).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// One waits; those after it are skipped until it has begun.
    BufferOne,
    /// All wait, up to [`BUFFERED_MAX`], and begin one after the other.
    BufferAll,
    /// The earlier run is cancelled, and this one begins.
    CancelOther,
    /// The earlier run is killed, and this one begins.
    KillOther,
    /// Both run.
    AllowAll,
}

impl Overlap {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Skip, Self::BufferOne, Self::BufferAll, Self::CancelOther, Self::KillOther, Self::AllowAll];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::BufferOne => "buffer-one",
            Self::BufferAll => "buffer-all",
            Self::CancelOther => "cancel-other",
            Self::KillOther => "kill-other",
            Self::AllowAll => "allow-all",
        }
    }
}

/// How much of what was missed is made up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CatchUp {
    /// Slots missed longer ago than this are not, in seconds.
    pub window_seconds: u64,
    /// So many of the latest are, at most; from 1.
    pub count: u32,
}

impl Default for CatchUp {
    fn default() -> Self {
        Self { window_seconds: CATCH_UP_SECONDS_DEFAULT, count: 1 }
    }
}

/// Nothing fires for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    /// Who said so.
    pub by: ActorId,
    /// Why.
    pub reason: String,
    /// Since when.
    pub from_unix_ms: UnixMs,
    /// The instant it was resumed; absent: it still is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_unix_ms: Option<UnixMs>,
}

/// Whoever put the schedule last, as its credential was then: its runs are submitted in this name, with these scopes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Who, in which standing.
    pub actor: Actor,
    /// What the credential allowed.
    pub scopes: Vec<String>,
}

/// A schedule (PIP-026).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineSchedule {
    /// Its id within the tenant.
    pub schedule_id: ScheduleId,
    /// Whose it is; its runs are this tenant's.
    pub tenant_id: TenantId,
    /// In whose name it fires.
    pub owner: Owner,
    /// What it fires.
    pub fires: Trigger,
    /// When.
    pub timing: Timing,
    /// In which zone, by its IANA name.
    pub timezone: String,
    /// No slot is before this.
    pub start_at_unix_ms: UnixMs,
    /// No slot is after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_at_unix_ms: Option<UnixMs>,
    /// What is done about missed slots.
    pub misfire: Misfire,
    /// How much of what was missed is made up for.
    pub catch_up: CatchUp,
    /// What is done about slots that come too soon.
    pub overlap: Overlap,
    /// A fire begins up to so many seconds after its slot: by how much follows from its id.
    pub jitter_seconds: u64,
    /// The last pause, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Slots up to this instant are none of this schedule's: it was put, or its times were changed, then.
    pub since_unix_ms: UnixMs,
}

impl PipelineSchedule {
    /// True while nothing fires because somebody said so.
    pub fn is_paused(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.until_unix_ms.is_none())
    }

    /// The fire of a slot.
    pub fn fire_id(&self, at: UnixMs) -> FireId {
        FireId::of(&self.fires, &self.schedule_id, &self.tenant_id, at)
    }

    /// Whoever its runs are submitted by: whoever put it, never wider.
    pub fn caller(&self) -> Caller {
        Caller {
            tenant_id: self.tenant_id.clone(),
            actor: self.owner.actor.clone(),
            scopes: self.owner.scopes.clone(),
            surface: "schedule",
        }
    }
}
