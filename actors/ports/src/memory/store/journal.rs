//! Runs, their events and snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use signalbox_domain::governance::budget::{MeteredBudget, ended_window};
use signalbox_domain::handoff::command_of_end;
use signalbox_domain::ids::{BudgetId, CommandId, RunId, RunKey, TenantId};
use signalbox_domain::run::append::{Accepted, Entry, Ground, RunHead, SubRun, judge};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::UnixMicros;

use super::{MemoryStore, Run, Snapshot, State};
use crate::clock::BootInstant;
use crate::inbox::{CommandClass, InboxCommand};
use crate::journal::{AppendError, Appended, Created, Journal, NewRun, READ_EVENTS_MAX, StoreError, check_events};
use crate::webhooks::told_of_run;

#[async_trait]
impl Journal for MemoryStore {
    async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        let now = self.now();
        let mut state = self.state()?;
        let public = (run.tenant_id.clone(), run.run_id);
        if let Some(existing) = state.by_public_id.get(&public) {
            return Ok(Created::Exists(state.run(*existing)?.head.clone()));
        }
        if state.runs.contains_key(&run.run_key) {
            return Err(StoreError::Poison("the run key is taken".into()));
        }
        let (head, events) = state.begin(run, now)?;
        Ok(Created::New { head, events })
    }

    async fn append(&self, batch: Vec<Entry>, append_began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        let now = self.now();
        let mut state = match self.state() {
            Ok(state) => state,
            Err(error) => return batch.iter().map(|_| Err(error.clone().into())).collect(),
        };
        let answers: Vec<_> = batch.iter().map(|entry| state.append(entry, now)).collect();
        if self.loses_answer.swap(false, Ordering::SeqCst) {
            let lost = StoreError::Unknown("the answer to the commit was lost".into());
            return answers.iter().map(|_| Err(lost.clone().into())).collect();
        }
        answers.into_iter().map(|answer| answer.map(|accepted| Appended::accept(accepted, append_began))).collect()
    }

    async fn read(&self, run: RunKey, after_seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        let state = self.state()?;
        let events = state.runs.get(&run).map(|run| run.events.as_slice()).unwrap_or_default();
        let later = events.iter().filter(|event| event.seq > after_seq);
        Ok(later.take(limit.min(READ_EVENTS_MAX)).cloned().collect())
    }

    async fn head(&self, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        Ok(self.state()?.runs.get(&run).map(|run| run.head.clone()))
    }

    async fn find(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError> {
        let state = self.state()?;
        let key = state.by_public_id.get(&(tenant.clone(), run));
        Ok(key.and_then(|key| state.runs.get(key)).map(|run| run.head.clone()))
    }

    async fn put_snapshot(&self, run: RunKey, seq: u64, fold_version: u32, bytes: Vec<u8>) -> Result<(), StoreError> {
        let mut state = self.state()?;
        let run = state.run_mut(run)?;
        if !run.snapshot.as_ref().is_some_and(|kept| kept.fold_version == fold_version && kept.seq > seq) {
            run.snapshot = Some(Snapshot { seq, fold_version, bytes });
        }
        Ok(())
    }

    async fn snapshot(&self, run: RunKey, fold_version: u32) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let state = self.state()?;
        let kept = state.runs.get(&run).and_then(|run| run.snapshot.as_ref());
        Ok(kept.filter(|kept| kept.fold_version == fold_version).map(|kept| (kept.seq, kept.bytes.clone())))
    }
}

impl State {
    /// Writes a run that is not there.
    fn begin(&mut self, run: NewRun, now: UnixMicros) -> Result<(RunHead, Vec<StoredEvent>), StoreError> {
        let (head, events) = run.first_rows(now)?;
        let submitted = run.submitted()?;
        let row = Run {
            head: head.clone(),
            events: events.clone(),
            parent: run.parent(),
            pipeline_id: submitted.pipeline_id.clone(),
            root_agent_id: submitted.root_agent_id.clone(),
            submitted_by: submitted.listed_under(),
            routing: submitted.routing.clone(),
            submitted_at: now,
            ended_at: run.projection.status.is_terminal().then_some(head.last_at),
            asked: run.projection.open_approvals.iter().map(|approval| approval.approval_id).collect(),
            projection: run.projection,
            parked: false,
            inbox: Vec::new(),
            snapshot: None,
        };
        let said = run.events.iter().map(|new| &new.event);
        self.tell(told_of_run(&head, &events, said, |_| None), head.last_at.ms());
        self.by_public_id.insert((run.tenant_id, run.run_id), run.run_key);
        self.runs.insert(run.run_key, row);
        Ok((head, events))
    }

    fn append(&mut self, entry: &Entry, now: UnixMicros) -> Result<Accepted, AppendError> {
        let epoch = self.epoch();
        let run = self.runs.get(&entry.run_key);
        let waits = |id: &CommandId| run.is_some_and(|run| run.waits(*id));
        let waiting: BTreeSet<_> = entry.answers.iter().map(|(id, _)| *id).filter(waits).collect();
        // The entry works on copies, so that one that is refused for its size leaves nothing behind.
        let mut meters: BTreeMap<BudgetId, MeteredBudget> =
            entry.budgets().filter_map(|id| Some((id.clone(), self.meters.get(id)?.clone()))).collect();
        let known = |run: &&SubRun| {
            self.runs.contains_key(&run.run_key) || self.by_public_id.contains_key(&(run.tenant_id.clone(), run.run_id))
        };
        let taken: BTreeSet<_> = entry.sub_runs().filter(known).map(|run| run.run_key).collect();
        let mut accepted = judge(
            Ground {
                head: run.map(|run| &run.head),
                changes: &self.changes,
                epoch,
                meters: &mut meters,
                retired: &self.retired,
                waiting: &waiting,
                taken: &taken,
                now,
            },
            entry,
        )?;
        accepted.read_back = check_events(&accepted.events)?;
        let sub_runs: Vec<NewRun> = accepted
            .begun
            .iter()
            .filter_map(|place| entry.asks.get(*place)?.sub_run.as_deref())
            .map(NewRun::from)
            .collect();
        // Nothing of the entry is written if a sub-run of it cannot be.
        sub_runs.iter().try_for_each(|run| run.first_rows(now).map(|_| ()))?;

        for (id, metered) in &meters {
            self.windows.extend(self.meters.get(id).and_then(|before| ended_window(before, &metered.meter)));
        }
        let window_of = |id: &BudgetId| Some(meters.get(id)?.meter.window_start_unix_seconds);
        let told = told_of_run(&accepted.head, &accepted.events, &accepted.read_back, window_of);
        self.tell(told, accepted.head.last_at.ms());
        self.meters.extend(meters);
        let run = self.run_mut(entry.run_key)?;
        run.parked |= accepted.head.owner.is_none();
        run.head = accepted.head.clone();
        run.events.extend(accepted.events.iter().cloned());
        if let Some(projection) = &accepted.projection {
            run.projection = projection.clone();
            if projection.status.is_terminal() {
                run.ended_at.get_or_insert(accepted.head.last_at);
            }
            run.asked.extend(projection.open_approvals.iter().map(|approval| approval.approval_id));
        }
        for (command, answer) in &entry.answers {
            if let Some(row) =
                run.inbox.iter_mut().find(|row| row.command.command_id == *command && row.answer.is_none())
            {
                row.answer = Some((answer.clone(), now.ms()));
            }
        }
        for run in sub_runs {
            self.begin(run, now)?;
        }
        for telling in &entry.tells {
            let command =
                InboxCommand { command_id: telling.command_id, class: CommandClass::Other, body: telling.body.clone() };
            if let Ok(run) = self.run_mut(telling.run_key) {
                run.tell_once(command);
            }
        }
        if let Some(body) = entry.below.as_ref().filter(|_| accepted.ends) {
            self.tell_below(entry.run_key, command_of_end(entry.run_key), CommandClass::Control, body);
        }
        Ok(accepted)
    }
}
