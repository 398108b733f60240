//! Traces as they are configured, and as they are started.

use serde::Deserialize;
use signalbox_telemetry::Traces;
use uuid::Uuid;

use crate::failure::Failure;

/// Traces in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TracesEntry {
    /// The collector that takes them by OTLP over gRPC, as `http://127.0.0.1:4317`.
    collector: String,
    /// How many of all traces are told, from 0 to 1 [default: 1]. A caller that records its own is always told.
    share: Option<f64>,
}

/// Hands traces to the collector on the command line, or else to the one in the file.
pub(crate) fn start(on_the_line: Option<&str>, in_file: Option<&TracesEntry>) -> Result<Option<Traces>, Failure> {
    let Some(collector) = on_the_line.or_else(|| in_file.map(|entry| entry.collector.as_str())) else {
        return Ok(None);
    };
    let share = in_file.and_then(|entry| entry.share).unwrap_or(1.0);
    let started = Traces::to(collector, share, &Uuid::now_v7().to_string());
    started.map(Some).map_err(|error| Failure::usage(error.code(), error.to_string()))
}
