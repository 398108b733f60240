//! The trace of a run, as W3C Trace Context has it: which ids its spans carry.
//!
//! They follow from ids the journal has anyhow. So whatever node works on a run, before a crash and after it, adds to one
//! trace, and nothing has to be kept or handed over for that.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::ids::{CallId, RunKey};

/// Length of a `traceparent` of version 00: `00-`, 32 hex digits, `-`, 16 of them, `-`, 2 of them.
const LENGTH: usize = 55;

/// A place in a trace: the span that something belongs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace; never all zero.
    pub trace_id: [u8; 16],
    /// The span; never all zero.
    pub span_id: [u8; 8],
    /// Whether whoever made it records it.
    pub sampled: bool,
}

impl TraceContext {
    /// The span of a whole run, the root of its trace.
    pub fn of_run(run: RunKey) -> Self {
        Self { trace_id: *run.uuid().as_bytes(), span_id: span(run.uuid(), 0), sampled: true }
    }

    /// The span of one attempt at a call, inside its run's.
    pub fn of_call(run: RunKey, call: CallId, attempt: u32) -> Self {
        Self { span_id: span(call.uuid(), u64::from(attempt)), ..Self::of_run(run) }
    }

    /// Another span of the same trace.
    #[must_use]
    pub const fn with_span(self, span_id: [u8; 8]) -> Self {
        Self { span_id, ..self }
    }

    /// Whether this trace is among so many of all of them, from 0 to 1: every node says the same of one trace. Only its last
    /// seven bytes are asked, since the others may be a time.
    pub fn is_among(&self, share: f64) -> bool {
        let mut low = [0; 8];
        low[1..].copy_from_slice(&self.trace_id[9..]);
        #[allow(clippy::cast_precision_loss, reason = "a share is not asked for to the last of 56 bits")]
        let place = u64::from_be_bytes(low) as f64 / (1_u64 << 56) as f64;
        place < share
    }
}

/// The last half of a UUID is its random one, also of one that begins with a time; what is counted on top keeps the spans of
/// one call apart. A UUID of no random half still gives a span, as none may be zero.
fn span(id: Uuid, on_top: u64) -> [u8; 8] {
    let (_, low) = id.as_u64_pair();
    low.wrapping_add(on_top).max(1).to_be_bytes()
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(self.sampled))
    }
}

/// It is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a traceparent is like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
pub struct NoTraceParent;

impl FromStr for TraceContext {
    type Err = NoTraceParent;

    /// Reads a `traceparent`. A version that came later may have more behind what 00 has, and is read as far as that.
    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        let (known, more) = text.split_at_checked(LENGTH).ok_or(NoTraceParent)?;
        let mut parts = known.split('-');
        let mut part = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits).ok_or(NoTraceParent)?;
            let is_hex = part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            u128::from_str_radix(part, 16).ok().filter(|_| is_hex).ok_or(NoTraceParent)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let fits = if version == 0 { more.is_empty() } else { more.is_empty() || more.starts_with('-') };
        let span = u64::try_from(span).map_err(|_| NoTraceParent)?;
        if !fits || version == 0xff || trace == 0 || span == 0 {
            return Err(NoTraceParent);
        }
        Ok(Self { trace_id: trace.to_be_bytes(), span_id: span.to_be_bytes(), sampled: flags & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_as_it_is() {
        let read: TraceContext = PARENT.parse().unwrap();
        assert!(read.sampled);
        assert_eq!(read.to_string(), PARENT);
        let later = PARENT.replacen("00", "01", 1) + "-more";
        assert_eq!(later.parse::<TraceContext>().unwrap(), read);
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        let bad = [
            "",
            "00",
            &zero_trace,
            &zero_span,
            &PARENT.to_uppercase(),
            &PARENT.replacen("00", "ff", 1),
            &format!("{PARENT}-more"),
            &format!("{PARENT}0"),
            &PARENT.replace("4bf92f", "+bf92f"),
            &PARENT.replace("4bf92f", "4b-92f"),
            &"é".repeat(55),
            &"0".repeat(1 << 16),
        ];
        for text in bad {
            assert_eq!(text.parse::<TraceContext>(), Err(NoTraceParent), "{text}");
        }
    }

    #[test]
    fn spans_of_one_run_share_a_trace_and_differ() {
        let run = RunKey::new(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
        let call = CallId::new(Uuid::from_u128(7));
        let (root, first, second) =
            (TraceContext::of_run(run), TraceContext::of_call(run, call, 1), TraceContext::of_call(run, call, 2));
        assert_eq!(root.trace_id, first.trace_id);
        assert!(root.span_id != first.span_id && first.span_id != second.span_id);
        assert_ne!(TraceContext::of_run(RunKey::new(Uuid::nil())).span_id, [0; 8]);
    }

    #[test]
    fn a_share_of_traces_is_about_that_share_of_them() {
        let traces = (0..10_000_u64).map(|n| TraceContext {
            trace_id: u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes(),
            span_id: [1; 8],
            sampled: true,
        });
        let traces: Vec<_> = traces.collect();
        let among = |share| traces.iter().filter(|trace| trace.is_among(share)).count();
        assert_eq!((among(0.0), among(1.0)), (0, 10_000));
        assert!((900..1_100).contains(&among(0.1)), "{}", among(0.1));
    }
}
