//! What follows for sub-runs when authority is taken away (GRA-009, GRA-012): one event for each that still works.
//!
//! An event says how long after its cause it was emitted, and whether that kept the five seconds of the promise.

use serde::{Deserialize, Serialize};

use crate::ids::{GrantId, RunId, SwitchId, ToolId};
use crate::time::UnixMs;

/// How late a cascaded event may be, in milliseconds (GRA-012).
pub const CASCADE_SLO_MS: i64 = 5_000;

/// A run that was handed part of another's authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubRun {
    /// Which.
    pub run_id: RunId,
    /// It has ended: nothing can be taken from it any more.
    pub is_terminal: bool,
}

/// Why authority is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum CascadeCause {
    /// The grant was revoked.
    GrantRevoked {
        /// Which.
        grant_id: GrantId,
    },
    /// The grant has expired.
    GrantExpired {
        /// Which.
        grant_id: GrantId,
    },
    /// A switch on the tool was armed.
    ToolKillSwitch {
        /// The switch.
        switch_id: SwitchId,
        /// The tool.
        tool_id: ToolId,
    },
}

/// What a sub-run is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CascadeEvent {
    /// The run whose authority it was.
    pub parent_run_id: RunId,
    /// The sub-run.
    pub run_id: RunId,
    /// What has happened.
    #[serde(flatten)]
    pub cause: CascadeCause,
    /// When it happened.
    pub caused_at_unix_ms: UnixMs,
    /// When the sub-run was told.
    pub emitted_at_unix_ms: UnixMs,
    /// True if that was at most five seconds later (GRA-012).
    pub within_five_second_slo: bool,
}

/// Whose sub-runs are told, and the two instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cascade<'a> {
    /// The run whose authority was taken away.
    pub parent_run_id: RunId,
    /// All its sub-runs.
    pub sub_runs: &'a [SubRun],
    /// When it was taken away.
    pub caused_at: UnixMs,
    /// Now.
    pub now: UnixMs,
}

/// The events of a revoked grant: one for each sub-run that has not ended (GRA-009).
pub fn emit_revocation_cascade(cascade: &Cascade<'_>, grant_id: &GrantId) -> Vec<CascadeEvent> {
    emit(cascade, &CascadeCause::GrantRevoked { grant_id: grant_id.clone() })
}

/// The events of a grant that has expired: one for each sub-run that has not ended (GRA-009).
pub fn emit_expiry_cascade(cascade: &Cascade<'_>, grant_id: &GrantId) -> Vec<CascadeEvent> {
    emit(cascade, &CascadeCause::GrantExpired { grant_id: grant_id.clone() })
}

/// The events of a switch on a tool: one for each sub-run that has not ended (GRA-012).
pub fn emit_tool_kill_switch_cascade(
    cascade: &Cascade<'_>,
    switch_id: &SwitchId,
    tool_id: &ToolId,
) -> Vec<CascadeEvent> {
    emit(cascade, &CascadeCause::ToolKillSwitch { switch_id: switch_id.clone(), tool_id: tool_id.clone() })
}

/// True if what took effect at `now` kept the promise about what happened at `caused_at`. A clock that runs behind counts as
/// no delay.
pub const fn is_within_slo(caused_at: UnixMs, now: UnixMs) -> bool {
    now.since(caused_at) <= CASCADE_SLO_MS
}

fn emit(cascade: &Cascade<'_>, cause: &CascadeCause) -> Vec<CascadeEvent> {
    let live = cascade.sub_runs.iter().filter(|run| !run.is_terminal);
    live.map(|run| CascadeEvent {
        parent_run_id: cascade.parent_run_id,
        run_id: run.run_id,
        cause: cause.clone(),
        caused_at_unix_ms: cascade.caused_at,
        emitted_at_unix_ms: cascade.now,
        within_five_second_slo: is_within_slo(cascade.caused_at, cascade.now),
    })
    .collect()
}
