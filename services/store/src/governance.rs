//! What both databases do alike with governance rows: what they mean, and what putting a budget changes in them.

use signalbox_domain::governance::budget::{Budget, EndedWindow, Meter, MeteredBudget, ended_window, roll};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::ids::StoreIncarnation;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::governance::{check_budget, check_readable, opening};
use signalbox_ports::journal::StoreError;

use crate::cells::Cells;
use crate::rows::{count, json, metered, seconds};

/// Who is written down as the one who opened a budget.
pub(crate) const BUDGETS_ACTOR: &str = "system:budgets";

/// The incarnation and the epoch in the only row of `store_meta`.
pub(crate) fn incarnation_and_epoch(row: &impl Cells) -> Result<(StoreIncarnation, u64), StoreError> {
    let unreadable = |problem| StoreError::Unavailable(format!("the epoch cannot be read: {problem}"));
    let incarnation = row.id("incarnation").map_err(unreadable)?;
    Ok((StoreIncarnation::new(incarnation), count(row, "epoch").map_err(unreadable)?))
}

/// Governance changes. One that cannot be read fails all: nothing may be admitted past it.
pub(crate) fn epoch_changes(rows: &[impl Cells]) -> Result<Vec<EpochChange>, StoreError> {
    rows.iter().map(epoch_change).collect::<Result<_, String>>().map_err(unreadable_change)
}

/// One governance change.
pub(crate) fn epoch_change(row: &impl Cells) -> Result<EpochChange, String> {
    let at_unix_ms = UnixMs(row.int("at_ms")?);
    Ok(EpochChange { epoch: count(row, "epoch")?, at_unix_ms, change: json(row, "body")? })
}

pub(crate) fn unreadable_change(problem: String) -> StoreError {
    StoreError::Unavailable(format!("a governance change cannot be read: {problem}"))
}

/// A budget in force with its figures as they stand at an instant.
pub(crate) fn rolled(row: &impl Cells, now: UnixMicros) -> Result<MeteredBudget, StoreError> {
    let (mut metered, _) = metered(row).map_err(unreadable_meter)?;
    roll(&metered.budget, &mut metered.meter, seconds(now));
    Ok(metered)
}

pub(crate) fn unreadable_meter(problem: String) -> StoreError {
    StoreError::Unavailable(format!("a meter cannot be read: {problem}"))
}

/// What putting a budget writes.
pub(crate) struct Putting {
    /// The change that goes with it, if it comes into force.
    pub(crate) opening: Option<GovernanceChange>,
    /// Its figures: those that were kept, or none yet.
    pub(crate) meter: Meter,
    /// The window it ends, if it ends one.
    pub(crate) ended: Option<EndedWindow>,
    /// Its rule, as JSON.
    pub(crate) rule: Vec<u8>,
}

impl Putting {
    /// Decides on the meter's row, if there is one, which is locked.
    pub(crate) fn of(budget: &Budget, row: Option<&impl Cells>, now: UnixMicros) -> Result<Self, StoreError> {
        let kept = row.map(|row| metered(row).map_err(unreadable_meter)).transpose()?;
        check_budget(kept.as_ref().map(|(kept, _)| &kept.budget), budget)?;
        let in_force = kept.as_ref().filter(|(_, retired)| !retired).map(|(kept, _)| &kept.budget);
        let opening = opening(in_force, budget);
        let mut meter = kept.as_ref().map(|(kept, _)| kept.meter.clone()).unwrap_or_default();
        roll(budget, &mut meter, seconds(now));
        let ended = kept.and_then(|(kept, _)| ended_window(&kept, &meter));
        Ok(Self { opening, meter, ended, rule: check_readable(budget)? })
    }
}
