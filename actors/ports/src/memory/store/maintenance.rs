//! An operator's tools.

use async_trait::async_trait;
use signalbox_domain::ids::{RunKey, StoreIncarnation};

use super::MemoryStore;
use crate::journal::StoreError;
use crate::maintenance::{LIVE_RUNS_MAX, Maintenance};

#[async_trait]
impl Maintenance for MemoryStore {
    async fn live_runs(&self, after: Option<RunKey>) -> Result<Vec<RunKey>, StoreError> {
        let state = self.state()?;
        let behind = |key: &RunKey| after.is_none_or(|after| *key > after);
        let live = state.runs.values().filter(|run| !run.head.closed).map(|run| run.head.run_key).filter(behind);
        Ok(live.take(LIVE_RUNS_MAX).collect())
    }

    async fn begin_incarnation(&self) -> Result<StoreIncarnation, StoreError> {
        let mut state = self.state()?;
        state.incarnation = StoreIncarnation::new(uuid::Uuid::now_v7());
        Ok(state.incarnation)
    }
}
