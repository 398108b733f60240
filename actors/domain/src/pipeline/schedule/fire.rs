//! Fires: what they are called, and what becomes of them (PIP-028).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Trigger;
use crate::ids::{CommandId, PipelineId, RunId, ScheduleId, TenantId};
use crate::time::UnixMs;

/// What the runs of fires are derived under; it never changes, or a fire that is started again would run again.
const NAMESPACE: Uuid = Uuid::from_u128(0x5b7a_11f1_9e0c_4d2a_8f53_70a1_c0de_0001);

/// A fire whose start has failed so often is a dead letter (RUN-027).
pub const START_ATTEMPTS_MAX: u32 = 5;
/// After the first failure the next attempt is this much later, in milliseconds; three times as much after each further one.
const FIRST_RETRY_MS: i64 = 2_000;

/// How much later a fire is tried again whose start has failed `attempts` times, in milliseconds; `None`: it is a dead letter.
pub fn retry_after_ms(attempts: u32) -> Option<i64> {
    (attempts < START_ATTEMPTS_MAX)
        .then(|| FIRST_RETRY_MS.saturating_mul(3_i64.saturating_pow(attempts.saturating_sub(1))))
}

/// Which fire: pipelineId + tenantId + fire time (PIP-028). A stored submission is no pipeline, and its schedule's id stands
/// in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FireId {
    text: String,
    run_id: RunId,
}

impl FireId {
    /// The fire of a pipeline, whoever fires it: whoever triggers the pipeline under this id gets this run.
    pub fn of_pipeline(pipeline: &PipelineId, tenant: &TenantId, at: UnixMs) -> Self {
        // No id holds a slash.
        let text = format!("{pipeline}/{tenant}/{}", instant(at));
        Self { run_id: run_of(&format!("{tenant}/{pipeline}/{text}")), text }
    }

    /// The fire of a schedule's slot.
    pub fn of(fires: &Trigger, schedule: &ScheduleId, tenant: &TenantId, at: UnixMs) -> Self {
        match fires {
            Trigger::Pipeline { pipeline_id, .. } => Self::of_pipeline(pipeline_id, tenant, at),
            Trigger::Submission { .. } => {
                let text = format!("submission/{schedule}/{tenant}/{}", instant(at));
                Self { run_id: run_of(&text), text }
            }
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The run it starts: the same on every node, so that of two that start it one finds the other's.
    pub const fn run_id(&self) -> RunId {
        self.run_id
    }

    /// The command by which it ends an earlier run.
    pub fn command_id(&self, ends: RunId) -> CommandId {
        CommandId::new(Uuid::new_v5(&ends.uuid(), self.text.as_bytes()))
    }

    /// How long after its slot it begins, in milliseconds: up to the schedule's jitter, the same on every node.
    pub fn jitter_ms(&self, jitter_seconds: u64) -> i64 {
        let span = i64::try_from(jitter_seconds).unwrap_or(0).saturating_mul(1_000);
        if span <= 0 {
            return 0;
        }
        let (_, random) = Uuid::new_v5(&NAMESPACE, format!("jitter/{}", self.text).as_bytes()).as_u64_pair();
        // The two highest bits of it are always the same.
        i64::try_from((random << 2) >> 3).unwrap_or(0).rem_euclid(span.saturating_add(1))
    }
}

impl fmt::Display for FireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn run_of(name: &str) -> RunId {
    RunId::new(Uuid::new_v5(&NAMESPACE, name.as_bytes()))
}

fn instant(at: UnixMs) -> String {
    Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

/// How a fire stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FireState {
    /// Its run is to be started.
    Waiting,
    /// It waits for an earlier run to end.
    Buffered,
    /// Its run was started.
    Started,
    /// It starts none, because of what its schedule says.
    Skipped,
    /// It starts none, because a switch or a budget stood against it.
    Suppressed,
    /// It could not be started, again and again; somebody may have it tried once more.
    Dead,
}

impl FireState {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Waiting, Self::Buffered, Self::Started, Self::Skipped, Self::Suppressed, Self::Dead];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Buffered => "buffered",
            Self::Started => "started",
            Self::Skipped => "skipped",
            Self::Suppressed => "suppressed",
            Self::Dead => "dead",
        }
    }

    /// True if nothing becomes of it by itself any more, and no run has: it may be fired after all.
    pub const fn may_fire_again(self) -> bool {
        matches!(self, Self::Skipped | Self::Suppressed | Self::Dead)
    }
}

/// Why a fire starts no run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The schedule was paused.
    Paused,
    /// Nobody was there in time.
    Missed,
    /// A run of an earlier slot was not over.
    Overlap,
    /// As many wait as may.
    BufferFull,
    /// A later slot has come before this one began, and takes its place.
    Overtaken,
    /// A kill switch is armed.
    KillSwitch,
    /// A budget is used up.
    BudgetExceeded,
    /// The schedule is not there any more.
    Removed,
    /// Its start failed as often as is tried.
    StartFailed,
}

impl Reason {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Missed => "missed",
            Self::Overlap => "overlap",
            Self::BufferFull => "buffer-full",
            Self::Overtaken => "overtaken",
            Self::KillSwitch => "kill-switch",
            Self::BudgetExceeded => "budget-exceeded",
            Self::Removed => "removed",
            Self::StartFailed => "start-failed",
        }
    }
}
