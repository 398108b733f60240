//! Bringing a run back from the journal.

use signalbox_domain::ids::RunKey;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::{FOLD_VERSION, RunEnvelope};
use signalbox_domain::run::evolve::{begin, fold_one};
use signalbox_ports::journal::{Journal, READ_EVENTS_MAX, StoreError};

/// A snapshot is kept every so many events, and at parking.
pub(crate) const SNAPSHOT_EVERY: u64 = 256;

/// The run as its journal says it stands. A snapshot shortens the reading; the answer is the same without it.
pub(crate) async fn load(journal: &dyn Journal, run: RunKey) -> Result<Option<RunEnvelope>, StoreError> {
    let mut envelope = snapshot(journal, run).await?;
    loop {
        let after = envelope.as_ref().map_or(0, |run| run.last_seq);
        let events = journal.read(run, after, READ_EVENTS_MAX).await?;
        let last_page = events.len() < READ_EVENTS_MAX;
        for event in &events {
            match &mut envelope {
                None => envelope = Some(begin(event).map_err(|error| corrupt(run, &error))?),
                Some(envelope) => fold_one(envelope, event).map_err(|error| corrupt(run, &error))?,
            }
        }
        if last_page {
            return Ok(envelope);
        }
    }
}

/// Every event of a run.
pub(crate) async fn history(journal: &dyn Journal, run: RunKey) -> Result<Vec<StoredEvent>, StoreError> {
    let mut events: Vec<StoredEvent> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let mut page = journal.read(run, after, READ_EVENTS_MAX).await?;
        let last_page = page.len() < READ_EVENTS_MAX;
        events.append(&mut page);
        if last_page {
            return Ok(events);
        }
    }
}

/// Keeps the fold so far. Failing to do so costs time at the next load and nothing else.
pub(crate) async fn keep_snapshot(journal: &dyn Journal, run: &RunEnvelope) {
    let Ok(bytes) = serde_json::to_vec(run) else { return };
    if let Err(error) = journal.put_snapshot(run.run_key, run.last_seq, FOLD_VERSION, bytes).await {
        tracing::debug!(%error, run = %run.run_id, "the snapshot was not kept");
    }
}

async fn snapshot(journal: &dyn Journal, run: RunKey) -> Result<Option<RunEnvelope>, StoreError> {
    let Some((seq, bytes)) = journal.snapshot(run, FOLD_VERSION).await? else { return Ok(None) };
    let envelope: Option<RunEnvelope> = serde_json::from_slice(&bytes).ok();
    Ok(envelope.filter(|envelope| envelope.run_key == run && envelope.last_seq == seq))
}

pub(crate) fn corrupt(run: RunKey, error: &signalbox_domain::run::evolve::FoldError) -> StoreError {
    StoreError::Corrupt { run, seq: error.seq, problem: error.problem.to_owned() }
}
