//! A batch of entries between the rows it was read from and the rows it is written to: what every database does alike.
//!
//! The database loads what the entries name, [`Batch::judge`] decides each entry, and the database writes what has changed.
//! [`Parts`] splits a batch that fails for a reason that lies in one of its entries.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use signalbox_domain::governance::budget::{EndedWindow, MeteredBudget, ended_window};
use signalbox_domain::governance::change::EpochChange;
use signalbox_domain::ids::{BudgetId, CommandId, RunKey, TenantId};
use signalbox_domain::run::append::{
    Accepted, CommandAnswer, Entry, Ground, OpenApproval, RunProjection, SubRun, Telling, judge,
};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::journal::{AppendError, NewRun, StoreError, check_events};
use signalbox_ports::webhooks::{Told, told_of_run};

use crate::cells::Cells;
use crate::rows::{RunRow, metered, run_row};

/// What became of one entry.
pub(crate) type Answer = Result<Accepted, AppendError>;

/// The parts of a batch that are still to be written, and the answers so far, in order.
pub(crate) struct Parts<'b> {
    /// The next one last.
    waiting: Vec<&'b [Entry]>,
    answers: Vec<Answer>,
}

impl<'b> Parts<'b> {
    pub(crate) fn of(batch: &'b [Entry]) -> Self {
        Self { waiting: vec![batch], answers: Vec::with_capacity(batch.len()) }
    }

    pub(crate) fn next(&mut self) -> Option<&'b [Entry]> {
        self.waiting.pop()
    }

    /// Takes what became of the part that `next` gave. If fewer entries were answered than it has, the others come next. A
    /// fault that lies in what was written splits it, until the bad entry stands alone.
    pub(crate) fn settle(&mut self, part: &'b [Entry], outcome: Result<Vec<Answer>, StoreError>) {
        match outcome {
            Ok(answers) => {
                self.waiting.extend(part.get(answers.len()..).filter(|rest| !rest.is_empty()));
                self.answers.extend(answers);
            }
            Err(StoreError::Poison(_)) if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                self.waiting.extend([second, first]);
            }
            Err(error) => self.answers.extend(part.iter().map(|_| Err(error.clone().into()))),
        }
    }

    pub(crate) fn into_answers(self) -> Vec<Answer> {
        self.answers
    }
}

/// The runs that entries write to, or tell something.
pub(crate) fn run_keys(part: &[Entry]) -> BTreeSet<RunKey> {
    part.iter().flat_map(|entry| entry.tells.iter().map(|telling| telling.run_key).chain([entry.run_key])).collect()
}

/// The sub-runs that entries would begin.
pub(crate) fn sub_runs(part: &[Entry]) -> impl Iterator<Item = &SubRun> {
    part.iter().flat_map(Entry::sub_runs)
}

/// The commands that entries answer.
pub(crate) fn answered_commands(part: &[Entry]) -> impl Iterator<Item = (RunKey, CommandId)> {
    part.iter().flat_map(|entry| entry.answers.iter().map(|(command, _)| (entry.run_key, *command)))
}

/// The budgets whose meters entries may touch.
pub(crate) fn budgets(part: &[Entry]) -> BTreeSet<&BudgetId> {
    part.iter().flat_map(Entry::budgets).collect()
}

/// The oldest epoch an ask was decided at, or a run is parked under; `None` if nothing depends on governance.
pub(crate) fn oldest_epoch(part: &[Entry]) -> Option<u64> {
    part.iter().filter(|entry| !entry.asks.is_empty() || entry.park).map(|entry| entry.governance_epoch).min()
}

/// Open questions as the dashboard keeps them.
pub(crate) fn approvals_json(open: &[OpenApproval]) -> Vec<u8> {
    json!(open).to_string().into_bytes()
}

/// The rows a batch touches, and what has changed in them.
#[derive(Default)]
pub(crate) struct Batch {
    /// A row that cannot be read fails its own run's entries alone.
    runs: BTreeMap<RunKey, Result<RunRow, StoreError>>,
    /// Commands the entries answer that do wait.
    waiting: BTreeSet<(RunKey, CommandId)>,
    /// The store's epoch; not needed where nothing is asked.
    pub(crate) epoch: u64,
    /// Governance changes after the oldest epoch of an ask.
    pub(crate) changes: Vec<EpochChange>,
    meters: BTreeMap<BudgetId, MeteredBudget>,
    retired: BTreeSet<BudgetId>,
    unreadable_meters: BTreeSet<BudgetId>,

    touched: BTreeSet<RunKey>,
    /// The events to write, stamped and hashed.
    pub(crate) events: Vec<StoredEvent>,
    /// The dashboard columns to write, and the instant of the last event that they show.
    pub(crate) projections: BTreeMap<RunKey, (RunProjection, UnixMicros)>,
    /// The answers to write.
    pub(crate) answered: Vec<(RunKey, CommandId, CommandAnswer)>,
    booked: BTreeSet<BudgetId>,
    /// What is to be told to webhooks that want it.
    pub(crate) told: Vec<Told>,
    /// The windows of budgets that have ended.
    pub(crate) windows: Vec<EndedWindow>,
    /// Sub-runs that cannot begin: their id or their key is in use.
    pub(crate) taken: BTreeSet<RunKey>,
    /// The sub-runs to write.
    pub(crate) begun: Vec<NewRun>,
    /// What other runs are told, once the rows of runs are written.
    pub(crate) tells: Vec<Telling>,
    /// The runs that end, and what every live run below is told.
    pub(crate) below: Vec<(RunKey, Vec<u8>)>,
}

impl Batch {
    /// Takes in the row of a run.
    pub(crate) fn load_run(&mut self, row: &impl Cells) {
        if let Ok(key) = row.id("run_key") {
            self.runs.insert(RunKey::new(key), run_row(row));
        }
    }

    /// Takes in the row of a meter.
    pub(crate) fn load_meter(&mut self, row: &impl Cells) {
        let Some(id) = row.text("budget_id").ok().and_then(|id| BudgetId::new(id).ok()) else { return };
        match metered(row) {
            Ok((metered, retired)) => {
                self.meters.insert(id.clone(), metered);
                if retired {
                    self.retired.insert(id);
                }
            }
            Err(problem) => {
                tracing::error!(budget = %id, problem, "a meter cannot be read");
                self.unreadable_meters.insert(id);
            }
        }
    }

    /// Takes in a command that waits: the row of an inbox.
    pub(crate) fn load_waiting(&mut self, row: &impl Cells) {
        if let (Ok(run), Ok(command)) = (row.id("run_key"), row.id("command_id")) {
            self.waiting.insert((RunKey::new(run), CommandId::new(command)));
        }
    }

    /// Judges one entry on what was loaded and what the entries before it have changed.
    pub(crate) fn judge(&mut self, entry: &Entry, now: UnixMicros) -> Answer {
        let run = match self.runs.get(&entry.run_key) {
            Some(Err(corrupt)) => return Err(corrupt.clone().into()),
            Some(Ok(run)) => Some(run),
            None => None,
        };
        if let Some(id) = entry.budgets().find(|id| self.unreadable_meters.contains(*id)) {
            return Err(StoreError::Unavailable(format!("the meter of budget `{id}` cannot be read")).into());
        }
        // The entry works on copies, so that one that is refused for its size leaves nothing behind.
        let mut meters: BTreeMap<_, _> =
            entry.budgets().filter_map(|id| Some((id.clone(), self.meters.get(id)?.clone()))).collect();
        let waits = |id: &CommandId| self.waiting.contains(&(entry.run_key, *id));
        let waiting: BTreeSet<_> = entry.answers.iter().map(|(id, _)| *id).filter(waits).collect();
        let mut accepted = judge(
            Ground {
                head: run.map(|run| &run.head),
                changes: &self.changes,
                epoch: self.epoch,
                meters: &mut meters,
                retired: &self.retired,
                waiting: &waiting,
                taken: &self.taken,
                now,
            },
            entry,
        )?;
        accepted.read_back = check_events(&accepted.events)?;
        let begun = accepted.begun.iter().filter_map(|place| entry.asks.get(*place)?.sub_run.as_deref());
        let begun: Vec<NewRun> = begun.map(NewRun::from).collect();
        // Nothing of the entry is written if a sub-run of it cannot be.
        begun.iter().try_for_each(|run| run.first_rows(now).map(|_| ()))?;
        self.begun.extend(begun);
        self.accept(entry, &accepted, meters);
        Ok(accepted)
    }

    fn accept(&mut self, entry: &Entry, accepted: &Accepted, meters: BTreeMap<BudgetId, MeteredBudget>) {
        let window_of = |id: &BudgetId| Some(meters.get(id)?.meter.window_start_unix_seconds);
        self.told.extend(told_of_run(&accepted.head, &accepted.events, &accepted.read_back, window_of));
        for (id, metered) in meters {
            if self.meters.get(&id) != Some(&metered) {
                self.windows.extend(self.meters.get(&id).and_then(|before| ended_window(before, &metered.meter)));
                self.booked.insert(id.clone());
                self.meters.insert(id, metered);
            }
        }
        if let Some(Ok(run)) = self.runs.get_mut(&entry.run_key) {
            run.parked |= accepted.head.owner.is_none();
            run.head = accepted.head.clone();
            if let Some(projection) = &accepted.projection {
                run.wake_at = projection.wake_at;
                self.projections.insert(entry.run_key, (projection.clone(), run.head.last_at));
            }
        }
        self.touched.insert(entry.run_key);
        self.tells.extend(entry.tells.iter().cloned());
        self.below.extend(entry.below.iter().filter(|_| accepted.ends).map(|body| (entry.run_key, body.clone())));
        self.events.extend(accepted.events.iter().cloned());
        for (command, answer) in &entry.answers {
            if self.waiting.remove(&(entry.run_key, *command)) {
                self.answered.push((entry.run_key, *command, answer.clone()));
            }
        }
    }

    /// The rows of runs to write.
    pub(crate) fn touched_runs(&self) -> impl Iterator<Item = &RunRow> {
        self.touched.iter().filter_map(|key| self.runs.get(key)?.as_ref().ok())
    }

    /// The meters to write.
    pub(crate) fn booked_meters(&self) -> impl Iterator<Item = &MeteredBudget> {
        self.booked.iter().filter_map(|id| self.meters.get(id))
    }

    /// The questions that are open in the runs whose dashboard is to be written: these and no others.
    pub(crate) fn open_approvals(&self) -> Vec<(RunKey, &TenantId, &OpenApproval)> {
        let open = self.projections.iter().filter_map(|(key, (projection, _))| {
            let run = self.runs.get(key)?.as_ref().ok()?;
            Some(projection.open_approvals.iter().map(|approval| (*key, &run.head.tenant_id, approval)))
        });
        open.flatten().collect()
    }
}
