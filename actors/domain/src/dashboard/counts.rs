//! How many runs stand under each heading (DSH-013).

use serde::Serialize;

use crate::dashboard::{RUN_LIST_BUCKETS, RunBucket, bucket_for_status};
use crate::run::status::RunStatus;

/// Up to here runs of one status are counted; beyond it the answer is "at least". It bounds what a question can cost.
pub const STATUS_COUNT_MAX: u64 = 100_000;

/// How many runs are in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketCount {
    /// The bucket.
    pub bucket: RunBucket,
    /// How many.
    pub runs: u64,
    /// True if there may be more than that.
    pub at_least: bool,
}

/// One count for each bucket, in the order of DSH-002.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct RunCounts(pub Vec<BucketCount>);

impl RunCounts {
    /// Sums up what was counted of each status; a status that is absent has no runs.
    pub fn of(statuses: &[(RunStatus, u64)]) -> Self {
        let count = |bucket: RunBucket| {
            let of_bucket = statuses.iter().filter(|(status, _)| bucket_for_status(*status) == bucket);
            let at_least = of_bucket.clone().any(|(_, runs)| *runs >= STATUS_COUNT_MAX);
            let runs = of_bucket.fold(0, |sum: u64, (_, runs)| sum.saturating_add(*runs));
            BucketCount { bucket, runs, at_least }
        };
        Self(RUN_LIST_BUCKETS.into_iter().map(count).collect())
    }

    /// The count of one bucket.
    pub fn of_bucket(&self, bucket: RunBucket) -> u64 {
        self.0.iter().find(|count| count.bucket == bucket).map_or(0, |count| count.runs)
    }
}
