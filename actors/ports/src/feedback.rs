//! What is known of finished runs: how the arms of rollouts did, what people said, and gold sets.
//!
//! Which arm a run is on is written with the run, in the transaction that creates it, from its submission; how it ended stands in
//! its row. So outcomes are read and never counted up: whatever crashes, each finished run is a sample once.

use async_trait::async_trait;
use signalbox_domain::feedback::gold_set::{DurableGoldSetEntryRow, GoldSetFacts};
use signalbox_domain::feedback::outcome::{OutcomeGroup, RunFeedback};
use signalbox_domain::ids::{GoldSetEntryId, GoldSetId, RolloutId, RunKey, TenantId};
use signalbox_domain::time::UnixMs;

use crate::journal::StoreError;

/// Most entries of one page of a gold set.
pub const GOLD_ENTRIES_PAGE_MAX: usize = 200;

/// A gold set's entry and the tenant it belongs to. It is written by an act (`Effect::PutGoldSetEntry`).
#[derive(Debug, Clone, PartialEq)]
pub struct GoldSetEntryOf {
    /// Whose.
    pub tenant_id: TenantId,
    /// The entry.
    pub row: DurableGoldSetEntryRow,
}

/// Feedback on runs.
#[async_trait]
pub trait Feedback: Send + Sync + 'static {
    /// The runs of a rollout that are over, grouped by what counts. `open_since`: runs that ended at this instant or later can
    /// still be complained about.
    async fn outcomes(&self, rollout: &RolloutId, open_since: UnixMs) -> Result<Vec<OutcomeGroup>, StoreError>;
    /// Keeps what somebody says of a run. A complaint and a praise are kept as they were said first; a later evaluation by the
    /// same actor takes the place of the earlier one. A run that is not there is [`StoreError::Poison`].
    async fn say(&self, feedback: RunFeedback) -> Result<(), StoreError>;
    /// What was said of a run, oldest first.
    async fn said(&self, run: RunKey) -> Result<Vec<RunFeedback>, StoreError>;
    /// Whether a gold set of a tenant has an input already, and how many entries it has.
    async fn gold_set(&self, tenant: &TenantId, set: &GoldSetId, input_hash: &str) -> Result<GoldSetFacts, StoreError>;
    /// Entries of a gold set of a tenant, by their ids, behind `after`; at most [`GOLD_ENTRIES_PAGE_MAX`].
    async fn gold_entries(
        &self,
        tenant: &TenantId,
        set: &GoldSetId,
        after: Option<GoldSetEntryId>,
        limit: usize,
    ) -> Result<Vec<DurableGoldSetEntryRow>, StoreError>;
}
