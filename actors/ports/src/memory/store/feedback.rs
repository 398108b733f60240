//! Feedback on runs, and gold sets.

use async_trait::async_trait;
use signalbox_domain::feedback::gold_set::{DurableGoldSetEntryRow, GoldSetFacts};
use signalbox_domain::feedback::outcome::{FeedbackKind, OutcomeGroup, RunFeedback};
use signalbox_domain::ids::{GoldSetEntryId, GoldSetId, RolloutId, RunKey, TenantId};
use signalbox_domain::time::UnixMs;

use super::{MemoryStore, State, no_such_run};
use crate::feedback::{Feedback, GOLD_ENTRIES_PAGE_MAX, GoldSetEntryOf};
use crate::journal::StoreError;

#[async_trait]
impl Feedback for MemoryStore {
    async fn outcomes(&self, rollout: &RolloutId, open_since: UnixMs) -> Result<Vec<OutcomeGroup>, StoreError> {
        let state = self.state()?;
        let mut groups: Vec<OutcomeGroup> = Vec::new();
        for (key, run) in &state.runs {
            let Some(routing) = run.routing.as_ref().filter(|routing| routing.rollout_id == *rollout) else { continue };
            let Some(ended_at) = run.ended_at else { continue };
            let said = || state.feedback.iter().filter(|said| said.run_key == *key);
            let below = |said: &RunFeedback| said.score.is_some_and(|score| score < routing.min_evaluation_score);
            let alone = OutcomeGroup {
                arm: routing.arm,
                status: run.projection.status,
                meets_bar: !said().any(below),
                has_negative_feedback: said().any(|said| said.kind == FeedbackKind::Negative),
                runs: 1,
                still_open: u64::from(ended_at >= open_since.micros()),
            };
            let alike = |group: &&mut OutcomeGroup| {
                (group.arm, group.status, group.meets_bar, group.has_negative_feedback)
                    == (alone.arm, alone.status, alone.meets_bar, alone.has_negative_feedback)
            };
            match groups.iter_mut().find(alike) {
                Some(group) => {
                    group.runs += 1;
                    group.still_open += alone.still_open;
                }
                None => groups.push(alone),
            }
        }
        Ok(groups)
    }

    async fn say(&self, feedback: RunFeedback) -> Result<(), StoreError> {
        let mut state = self.state()?;
        if !state.runs.contains_key(&feedback.run_key) {
            return Err(no_such_run());
        }
        let same = |said: &&mut RunFeedback| {
            (said.run_key, &said.actor.actor_id, said.kind)
                == (feedback.run_key, &feedback.actor.actor_id, feedback.kind)
        };
        match state.feedback.iter_mut().find(same) {
            None => state.feedback.push(feedback),
            Some(said) if said.kind == FeedbackKind::Evaluation => *said = feedback,
            Some(_) => {}
        }
        Ok(())
    }

    async fn said(&self, run: RunKey) -> Result<Vec<RunFeedback>, StoreError> {
        let mut said: Vec<_> = self.state()?.feedback.iter().filter(|said| said.run_key == run).cloned().collect();
        said.sort_by(|a, b| {
            (a.at, &a.actor.actor_id, a.kind.as_str()).cmp(&(b.at, &b.actor.actor_id, b.kind.as_str()))
        });
        Ok(said)
    }

    async fn gold_set(&self, tenant: &TenantId, set: &GoldSetId, input_hash: &str) -> Result<GoldSetFacts, StoreError> {
        let state = self.state()?;
        let entries = || state.gold.iter().filter(|of| of.tenant_id == *tenant && of.row.gold_set_id == *set);
        Ok(GoldSetFacts {
            same_input: entries().find(|of| of.row.input_hash == input_hash).map(|of| of.row.entry_id),
            entries: entries().count() as u64,
        })
    }

    async fn gold_entries(
        &self,
        tenant: &TenantId,
        set: &GoldSetId,
        after: Option<GoldSetEntryId>,
        limit: usize,
    ) -> Result<Vec<DurableGoldSetEntryRow>, StoreError> {
        let state = self.state()?;
        let entries = state.gold.iter().filter(|of| of.tenant_id == *tenant && of.row.gold_set_id == *set);
        let mut rows: Vec<_> = entries.map(|of| of.row.clone()).filter(|row| Some(row.entry_id) > after).collect();
        rows.sort_by_key(|row| row.entry_id);
        rows.truncate(limit.min(GOLD_ENTRIES_PAGE_MAX));
        Ok(rows)
    }
}

impl State {
    pub(super) fn put_gold(&mut self, entry: GoldSetEntryOf) -> Result<(), StoreError> {
        let same = |of: &GoldSetEntryOf| {
            of.row.entry_id == entry.row.entry_id
                || (&of.tenant_id, &of.row.gold_set_id, &of.row.input_hash)
                    == (&entry.tenant_id, &entry.row.gold_set_id, &entry.row.input_hash)
        };
        if self.gold.iter().any(same) {
            return Err(StoreError::Poison("the gold set has this entry already".into()));
        }
        self.gold.push(entry);
        Ok(())
    }
}
