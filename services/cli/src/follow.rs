//! Following a run: one stream of items that survives a server that restarts or lets a slow reader go.

use std::time::Duration;

use signalbox_proto::v1;
use signalbox_proto::v1::watch_run_response::Item;
use tonic::Streaming;

use crate::client::Client;
use crate::failure::{Failure, is_passing};

/// How often in a row a watch is begun anew without having seen anything.
const RETRIES_MAX: u32 = 8;
/// The first pause before a watch is begun anew; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A watch that goes on from its cursor when it is cut.
pub(crate) struct Follow {
    client: Client,
    run_id: String,
    cursor: u64,
    stream: Option<Streaming<v1::WatchRunResponse>>,
    retries: u32,
}

impl Follow {
    /// Follows a run from after an event.
    pub(crate) const fn new(client: Client, run_id: String, after_seq: u64) -> Self {
        Self { client, run_id, cursor: after_seq, stream: None, retries: 0 }
    }

    /// The last event that was seen.
    pub(crate) const fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The next item; `None` once the run is closed and everything was seen.
    pub(crate) async fn next(&mut self) -> Result<Option<Item>, Failure> {
        loop {
            match self.step().await {
                Ok(Some(v1::WatchRunResponse { item: Some(item) })) => {
                    self.retries = 0;
                    if let Item::Event(event) = &item {
                        self.cursor = event.seq;
                    }
                    return Ok(Some(item));
                }
                // An item of a kind that this version does not know.
                Ok(Some(v1::WatchRunResponse { item: None })) => {}
                Ok(None) => return Ok(None),
                Err(status) if is_passing(&status) && self.retries < RETRIES_MAX => {
                    self.stream = None;
                    let pause = PAUSE_FIRST.saturating_mul(1 << self.retries.min(10)).min(PAUSE_MAX);
                    self.retries += 1;
                    tokio::time::sleep(pause).await;
                }
                Err(status) => return Err(status.into()),
            }
        }
    }

    async fn step(&mut self) -> Result<Option<v1::WatchRunResponse>, tonic::Status> {
        if self.stream.is_none() {
            let request = v1::WatchRunRequest { run_id: self.run_id.clone(), after_seq: self.cursor };
            self.stream = Some(self.client.watch_run(request).await?.into_inner());
        }
        match &mut self.stream {
            Some(stream) => stream.message().await,
            None => Ok(None),
        }
    }
}
