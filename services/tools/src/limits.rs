//! Bounds that both ends of the executor contract share. A bound known to one end alone would be an outage.

use std::time::Duration;

/// Largest gRPC message of either direction.
pub const MESSAGE_BYTES_MAX: usize = 24 * 1024 * 1024;
/// Largest JSON of arguments or of an output. Leaves room in a message for the rest.
pub const PAYLOAD_BYTES_MAX: usize = 20 * 1024 * 1024;
/// Deepest nesting of arguments or of an output.
pub const PAYLOAD_DEPTH_MAX: usize = 64;
/// A server that has nothing else to say says that it is alive.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// A call from which nothing was heard for so long is cancelled: three heartbeats.
pub const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A call may take a day at most.
pub const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// An admitted call is handed to its executor's connection within this time of its append, or not at all (I5).
pub const DISPATCH_WINDOW: Duration = Duration::from_millis(signalbox_ports::journal::DISPATCH_WINDOW_MS);
/// The executor shows that it has taken a call within this time.
pub const HEADERS_MAX: Duration = Duration::from_secs(2);

/// Window of one HTTP/2 stream and of a connection: a whole message may be under way.
pub(crate) const HTTP2_WINDOW: u32 = 4 * 1024 * 1024;
