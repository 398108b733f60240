//! Traces, for whoever collects them by OTLP: what a run did, span by span.
//!
//! A run's trace has the id of the run, and its calls the spans that follow from theirs
//! ([`TraceContext`]), so all nodes that ever work on a run add to one trace. Spans are made of what was written, in front
//! of the ports like everything else that is watched, once it is over. They are handed to a thread of their own through a bounded
//! queue: a collector that does not answer costs spans, and no run waits for it.
//!
//! No argument, output or text of a caller is in any span (I13); names of GenAI conventions where there are any, and
//! `signalbox.*` for the rest.

mod journal;
mod spans;
mod tools;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanProcessor};
use signalbox_domain::run::trace::TraceContext;
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::Journal;
use signalbox_ports::tools::Tools;
use signalbox_ports::trace::{AnsweredRequest, RequestSpans};

use journal::TracedJournal;
use tools::TracedTools;

/// How long the collector may take to answer.
const EXPORT_WITHIN: Duration = Duration::from_secs(5);
/// The name that collectors show.
const SERVICE: &str = "signalbox";

/// Why traces cannot be handed on.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The collector's address is none.
    #[error(
        "a collector is named like http://127.0.0.1:4317; a way to it that is not private ends in a collector beside the node"
    )]
    Address,
    /// The share of traces is none.
    #[error("the share of traces is a number from 0 to 1")]
    Share,
    /// The exporter did not start.
    #[error("traces cannot be exported: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

impl TracesError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Address | Self::Share => "config-invalid",
            Self::Exporter(_) => "traces-failed",
        }
    }
}

/// Where spans go, and how many of them.
#[derive(Clone)]
pub struct Traces {
    processor: Arc<dyn SpanProcessor>,
    scope: InstrumentationScope,
    share: f64,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("share", &self.share).finish_non_exhaustive()
    }
}

impl Traces {
    /// Hands the spans of this share of traces to a collector that speaks OTLP over gRPC. Needs a runtime.
    ///
    /// # Errors
    /// If the address or the share is none.
    pub fn to(collector: &str, share: f64, node: &str) -> Result<Self, TracesError> {
        let uri: http::Uri = collector.parse().map_err(|_| TracesError::Address)?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(TracesError::Address);
        }
        if !(0.0..=1.0).contains(&share) {
            return Err(TracesError::Share);
        }
        let exporter =
            SpanExporter::builder().with_tonic().with_endpoint(collector).with_timeout(EXPORT_WITHIN).build()?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        let resource = [
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", node.to_owned()),
        ];
        processor.set_resource(&Resource::builder_empty().with_service_name(SERVICE).with_attributes(resource).build());
        Ok(Self::through(processor, share))
    }

    fn through(processor: impl SpanProcessor + 'static, share: f64) -> Self {
        let scope = InstrumentationScope::builder(SERVICE).with_version(env!("CARGO_PKG_VERSION")).build();
        Self { processor: Arc::new(processor), scope, share }
    }

    /// The journal, traced.
    pub fn journal(&self, journal: Arc<dyn Journal>) -> Arc<dyn Journal> {
        Arc::new(TracedJournal::new(journal, self.clone()))
    }

    /// The tools, traced.
    pub fn tools(&self, tools: Arc<dyn Tools>, clock: Arc<dyn Clock>) -> Arc<dyn Tools> {
        Arc::new(TracedTools::new(tools, clock, self.clone()))
    }

    /// Hands over what still waits. Blocks for some seconds at most.
    pub fn end(&self) {
        if let Err(error) = self.processor.shutdown_with_timeout(EXPORT_WITHIN) {
            tracing::warn!(%error, "the last spans were not handed over");
        }
    }

    fn records(&self, trace: &TraceContext) -> bool {
        trace.is_among(self.share)
    }

    fn record(&self, mut span: SpanData) {
        span.instrumentation_scope = self.scope.clone();
        self.processor.on_end(span);
    }
}

impl RequestSpans for Traces {
    fn records(&self, trace: &TraceContext) -> bool {
        Self::records(self, trace)
    }

    fn answered(&self, request: AnsweredRequest) {
        self.record(spans::request(&request));
    }
}
