//! Which rows (DSH-005).

use std::collections::BTreeSet;

use crate::dashboard::{CostBand, DashboardEntry, LatencyBand, RunBucket, bucket_for_status, folded};
use crate::identity::Visibility;
use crate::ids::{AgentId, PipelineId, RunKey, TenantId};
use crate::registry::{family_meta, reference_agents};
use crate::run::status::RunStatus;
use crate::time::{UnixMicros, UnixMs};

/// Most rows one page may have (DSH-005).
pub const DASHBOARD_ROWS_MAX: usize = 200;

/// Longest text that is searched for, in bytes.
pub const DASHBOARD_TEXT_BYTES_MAX: usize = 200;

/// A place in the list, newest first: a row lies behind it if it is older, and of two of one instant the lesser key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DashboardCursor {
    /// When the run there was accepted.
    pub started_at: UnixMicros,
    /// Its key.
    pub run_key: RunKey,
}

/// Which runs. Fields that are given must all hold; of a list one value must.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DashboardFilter {
    /// Of this tenant.
    pub tenant_id: Option<TenantId>,
    /// Led by this agent.
    pub agent_id: Option<AgentId>,
    /// Led by an agent of this family.
    pub family: Option<String>,
    /// Who is of that family, as the registry says; absent: those that ship with this version.
    pub family_agents: Option<BTreeSet<AgentId>>,
    /// Instances of this pipeline.
    pub pipeline_id: Option<PipelineId>,
    /// In one of these statuses.
    pub status: Vec<RunStatus>,
    /// In one of these buckets.
    pub bucket: Vec<RunBucket>,
    /// In one of these cost bands.
    pub cost_band: Vec<CostBand>,
    /// In one of these latency bands.
    pub latency_band: Vec<LatencyBand>,
    /// Started at this instant or later.
    pub started_after: Option<UnixMs>,
    /// Started before this instant.
    pub started_before: Option<UnixMs>,
    /// With, or without, a budget that came near its limit or went beyond it.
    pub has_warnings: Option<bool>,
    /// With this text among its words, whether in upper or lower case.
    pub text: Option<String>,
    /// Only what lies behind this place.
    pub cursor: Option<DashboardCursor>,
    /// Most rows; 0: as many as a page may have.
    pub limit: usize,
}

/// Why a filter cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// No family of this name.
    #[error("`{0}` is no agent family")]
    UnknownFamily(String),
    /// An empty text would be found everywhere.
    #[error("the text to search for is empty")]
    TextEmpty,
    /// The text is longer than [`DASHBOARD_TEXT_BYTES_MAX`].
    #[error("the text to search for may have at most {DASHBOARD_TEXT_BYTES_MAX} bytes")]
    TextTooLong,
    /// The text holds a line feed, a NUL or the like, which no words have.
    #[error("the text to search for may not contain control characters")]
    TextInvalid,
    /// More than [`DASHBOARD_ROWS_MAX`].
    #[error("a page may have at most {DASHBOARD_ROWS_MAX} rows")]
    LimitTooLarge,
}

impl FilterError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownFamily(_) => "family-unknown",
            Self::TextEmpty => "text-empty",
            Self::TextTooLong => "text-too-long",
            Self::TextInvalid => "text-invalid",
            Self::LimitTooLarge => "page-size-invalid",
        }
    }

    /// The field at fault, as DSH-005 names it.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::UnknownFamily(_) => "family",
            Self::TextEmpty | Self::TextTooLong | Self::TextInvalid => "text",
            Self::LimitTooLarge => "limit",
        }
    }
}

impl DashboardFilter {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<(), FilterError> {
        if let Some(family) = self.family.as_deref().filter(|family| family_meta(family).is_none()) {
            return Err(FilterError::UnknownFamily(family.chars().take(64).collect()));
        }
        if let Some(text) = &self.text {
            if text.is_empty() {
                return Err(FilterError::TextEmpty);
            }
            if text.len() > DASHBOARD_TEXT_BYTES_MAX {
                return Err(FilterError::TextTooLong);
            }
            if text.chars().any(char::is_control) {
                return Err(FilterError::TextInvalid);
            }
        }
        if self.limit > DASHBOARD_ROWS_MAX {
            return Err(FilterError::LimitTooLarge);
        }
        Ok(())
    }

    /// The standing that asking this needs: nobody learns from a filter what a run would not show it (DSH-010).
    pub const fn needs(&self) -> Visibility {
        if self.has_warnings.is_some() {
            Visibility::TenantOperator
        } else if self.agent_id.is_some() || self.family.is_some() || self.text.is_some() || !self.cost_band.is_empty()
        {
            Visibility::Creator
        } else {
            Visibility::Customer
        }
    }

    /// Most rows of the answer.
    pub const fn rows_max(&self) -> usize {
        if self.limit == 0 || self.limit > DASHBOARD_ROWS_MAX { DASHBOARD_ROWS_MAX } else { self.limit }
    }

    /// The statuses that statuses and buckets together allow; `None`: every one. An empty list allows nothing.
    pub fn statuses(&self) -> Option<Vec<RunStatus>> {
        if self.status.is_empty() && self.bucket.is_empty() {
            return None;
        }
        let listed = |status: &RunStatus| self.status.is_empty() || self.status.contains(status);
        let headed = |status: &RunStatus| self.bucket.is_empty() || self.bucket.contains(&bucket_for_status(*status));
        Some(RunStatus::ALL.into_iter().filter(|status| listed(status) && headed(status)).collect())
    }

    /// The lead agents that agent and family together allow; `None`: every one. An empty list allows nothing.
    pub fn agents(&self) -> Option<Vec<AgentId>> {
        let of_family = |family: &str| match &self.family_agents {
            Some(known) => known.iter().cloned().collect(),
            None => reference_agents().filter(|a| a.family == family).map(|a| a.agent_id.clone()).collect(),
        };
        match (&self.agent_id, &self.family) {
            (None, None) => None,
            (Some(agent), None) => Some(vec![agent.clone()]),
            (None, Some(family)) => Some(of_family(family)),
            (Some(agent), Some(family)) => {
                let agents: Vec<AgentId> = of_family(family);
                Some(agents.into_iter().filter(|known| known == agent).collect())
            }
        }
    }

    /// The text as it is compared.
    pub fn needle(&self) -> Option<String> {
        self.text.as_deref().map(folded)
    }

    /// Whether a row is among those asked for; the cursor and the limit aside.
    pub fn matches(&self, entry: &DashboardEntry) -> bool {
        let any = |bands: usize, one: bool| bands == 0 || one;
        self.tenant_id.as_ref().is_none_or(|tenant| *tenant == entry.tenant_id)
            && self.agents().is_none_or(|agents| agents.contains(&entry.root_agent_id))
            && self.pipeline_id.as_ref().is_none_or(|pipeline| entry.pipeline_id.as_ref() == Some(pipeline))
            && self.statuses().is_none_or(|statuses| statuses.contains(&entry.status()))
            && any(self.cost_band.len(), self.cost_band.contains(&entry.cost_band()))
            && any(self.latency_band.len(), self.latency_band.contains(&entry.latency_band()))
            && self.started_after.is_none_or(|after| after.micros() <= entry.started_at)
            && self.started_before.is_none_or(|before| entry.started_at < before.micros())
            && self.has_warnings.is_none_or(|has| has == entry.projection.has_warnings)
            && self.needle().is_none_or(|needle| entry.projection.words.contains(&needle))
    }
}

/// The rows a filter asks for, newest first: what every store answers, however it finds them (DSH-005).
pub fn filter_dashboard<'e>(
    entries: impl IntoIterator<Item = &'e DashboardEntry>,
    filter: &DashboardFilter,
) -> Vec<&'e DashboardEntry> {
    let behind = |entry: &DashboardEntry| filter.cursor.is_none_or(|cursor| entry.place() < cursor);
    let mut seen = BTreeSet::new();
    let mut rows: Vec<_> = entries
        .into_iter()
        .filter(|entry| behind(entry) && filter.matches(entry) && seen.insert(entry.run_key))
        .collect();
    rows.sort_by_key(|entry| std::cmp::Reverse(entry.place()));
    rows.truncate(filter.rows_max());
    rows
}
