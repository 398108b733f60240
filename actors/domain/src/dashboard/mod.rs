//! What an operator sees of many runs at once (DSH-001 to DSH-005, DSH-013): rows with buckets and bands, and a filter.
//!
//! A row is a projection of a run's journal; the store writes it with the append that changes it. What depends on time (the
//! band of how long a run takes, a tool that has been waited for too long) is not written: it is worked out when the row is
//! read, at an instant that the reader names. Stores filter with their indexes; what they must answer is what
//! [`filter_dashboard`] says. Live progress and replay of one run stand in `run::progress` and `run::replay`.

mod bands;
mod bucket;
mod counts;
mod entry;
mod filter;
mod snapshot;
mod words;

pub use bands::{CostBand, LatencyBand, cost_band_for, latency_band_for};
pub use bucket::{RUN_LIST_BUCKETS, RunBucket, bucket_for_status};
pub use counts::{BucketCount, RunCounts, STATUS_COUNT_MAX};
pub use entry::DashboardEntry;
pub use filter::{
    DASHBOARD_ROWS_MAX, DASHBOARD_TEXT_BYTES_MAX, DashboardCursor, DashboardFilter, FilterError, filter_dashboard,
};
pub use snapshot::{OperatorSnapshot, active_switches};
pub use words::{DASHBOARD_WORDS_BYTES_MAX, dashboard_words, folded};
