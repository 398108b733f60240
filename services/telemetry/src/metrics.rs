//! The counters, and how they are written down.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use signalbox_ports::journal::Journal;
use signalbox_ports::tools::Tools;

use crate::journal::MeteredJournal;
use crate::tools::MeteredTools;

/// From a quarter of a millisecond to eight seconds: an append, in seconds.
const APPEND_SECONDS: [f64; 12] = [0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.064, 0.25, 1.0, 2.0, 8.0];
/// From a millisecond to ten minutes: a call, in seconds.
const CALL_SECONDS: [f64; 12] = [0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 2.0, 5.0, 15.0, 60.0, 180.0, 600.0];
/// How many entries share a transaction.
const BATCH_ENTRIES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Where a node stands at this instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// It takes runs.
    pub ready: bool,
    /// It holds its lease, which it can renew only at a store that answers.
    pub lease_held: bool,
    /// It is shutting down.
    pub draining: bool,
    /// The governance epoch it has read.
    pub governance_epoch: u64,
    /// How long ago the store confirmed that epoch.
    pub governance_age: Duration,
    /// Kill switches in force.
    pub switches_armed: u64,
    /// Revocations of grants that the node has read while it ran, and held its calls against.
    pub revocations_applied: u64,
    /// Those of them that took longer than five seconds (GRA-013).
    pub revocations_slo_missed: u64,
    /// How the bus to the other nodes is: `none`, `heard` or `cut`. The node is ready without one.
    pub bus: &'static str,
}

/// Whatever can be asked where it stands.
pub trait Watched: Send + Sync + 'static {
    /// Now.
    fn standing(&self) -> Standing;
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfTool {
    pub(crate) tool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfOutcome {
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfToolAndCode {
    pub(crate) tool: String,
    pub(crate) code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfStatus {
    pub(crate) status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfCode {
    pub(crate) code: &'static str,
}

/// What happened, as numbers that only rise.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) runs_submitted: Counter,
    pub(crate) runs_ended: Family<OfStatus, Counter>,
    pub(crate) calls_admitted: Family<OfTool, Counter>,
    pub(crate) calls_refused: Family<OfToolAndCode, Counter>,
    pub(crate) calls_settled: Family<OfOutcome, Counter>,
    pub(crate) calls_redispatched: Counter,
    pub(crate) late_results: Counter,
    pub(crate) steps_throttled: Counter,
    pub(crate) approvals_requested: Counter,
    pub(crate) approvals_decided: Counter,
    pub(crate) approvals_expired: Counter,
    pub(crate) journal_events: Counter,
    pub(crate) appends_refused: Family<OfCode, Counter>,
    pub(crate) store_errors: Family<OfCode, Counter>,
    pub(crate) executor_busy: Family<OfTool, Counter>,
}

/// How long things took.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) append_seconds: Histogram,
    pub(crate) append_entries: Histogram,
    pub(crate) call_seconds: Family<OfTool, Histogram, fn() -> Histogram>,
}

/// The counters of one node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) times: Arc<Times>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("signalbox");
        let counts = Counts::default();
        let times = Times {
            append_seconds: Histogram::new(APPEND_SECONDS),
            append_entries: Histogram::new(BATCH_ENTRIES),
            call_seconds: Family::new_with_constructor(|| Histogram::new(CALL_SECONDS)),
        };
        register(&mut registry, &counts, &times);
        Self { registry: Arc::new(registry), counts: Arc::new(counts), times: Arc::new(times) }
    }

    /// The journal, counted.
    pub fn journal(&self, journal: Arc<dyn Journal>) -> Arc<dyn Journal> {
        Arc::new(MeteredJournal::new(journal, self.clone()))
    }

    /// The tools, counted.
    pub fn tools(&self, tools: Arc<dyn Tools>) -> Arc<dyn Tools> {
        Arc::new(MeteredTools::new(tools, self.clone()))
    }

    /// All of it in the text form that scrapers read, with where the node stands.
    pub(crate) fn text(&self, standing: Standing) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        // One end mark for both.
        let counted = text.trim_end().trim_end_matches("# EOF").to_owned();
        let mut now = Registry::with_prefix("signalbox");
        now.register_collector(Box::new(Now(standing)));
        let mut text = String::new();
        encode(&mut text, &now)?;
        Ok(counted + &text)
    }
}

fn register(registry: &mut Registry, counts: &Counts, times: &Times) {
    let c = counts;
    registry.register("runs_submitted", "Runs that were submitted here", c.runs_submitted.clone());
    registry.register("runs_ended", "Runs that ended here, by their last status", c.runs_ended.clone());
    registry.register("calls_admitted", "Calls that were admitted", c.calls_admitted.clone());
    registry.register("calls_refused", "Calls that were denied or killed, by the code", c.calls_refused.clone());
    registry.register("calls_settled", "Calls that were settled, by their outcome", c.calls_settled.clone());
    registry.register("calls_redispatched", "Calls that were sent again", c.calls_redispatched.clone());
    registry.register("late_results", "Results that came too late to count", c.late_results.clone());
    registry.register("steps_throttled", "Steps that had to wait at a bucket", c.steps_throttled.clone());
    registry.register("approvals_requested", "Questions that were put to people", c.approvals_requested.clone());
    registry.register("approvals_decided", "Questions that were answered", c.approvals_decided.clone());
    registry.register("approvals_expired", "Questions that nobody answered in time", c.approvals_expired.clone());
    registry.register("journal_events", "Events that were written", c.journal_events.clone());
    registry.register("appends_refused", "Entries the journal did not take, by the code", c.appends_refused.clone());
    registry.register("store_errors", "Writes that failed, by the code", c.store_errors.clone());
    registry.register("executor_busy", "Calls that had to wait for an executor", c.executor_busy.clone());
    let took = "How long a transaction of the journal took";
    registry.register_with_unit("append_duration", took, Unit::Seconds, times.append_seconds.clone());
    registry.register("append_batch_entries", "Entries that shared a transaction", times.append_entries.clone());
    let took = "How long a call was at its executor";
    registry.register_with_unit("call_duration", took, Unit::Seconds, times.call_seconds.clone());
}

#[derive(Debug)]
struct Now(Standing);

impl Collector for Now {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let now = &self.0;
        let rows = [
            ("ready", "1 while the node takes runs", i64::from(now.ready)),
            ("lease_held", "1 while the node holds its lease", i64::from(now.lease_held)),
            ("draining", "1 while the node shuts down", i64::from(now.draining)),
            ("governance_epoch", "The epoch the node has read", whole(now.governance_epoch)),
            ("bus_cut", "1 while the bus to the other nodes is configured and not heard", i64::from(now.bus == "cut")),
            ("switches_armed", "Kill switches in force", whole(now.switches_armed)),
        ];
        for (name, help, value) in rows {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let counters = [
            ("grant_revocations_applied", "Revocations of grants that reached this node", now.revocations_applied),
            (
                "grant_revocation_slo_miss",
                "Revocations of grants that took more than five seconds to reach this node",
                now.revocations_slo_missed,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let age = ConstGauge::new(now.governance_age.as_secs_f64());
        let help = "How long ago the store confirmed the epoch";
        age.encode(encoder.encode_descriptor("governance_age", help, Some(&Unit::Seconds), age.metric_type())?)?;
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        let info = prometheus_client::metrics::info::Info::new(build);
        info.encode(encoder.encode_descriptor("build", "This version", None, info.metric_type())?)
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
