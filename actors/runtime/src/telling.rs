//! What customers are told: beside each event they may see, the run in words as it stands after it (DSH-011).
//!
//! The words are a fold of the whole journal, so they are made once for each run that customers watch, and shared by them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use signalbox_domain::identity::Visibility;
use signalbox_domain::ids::RunKey;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::evolve::{begin, fold_one};
use signalbox_domain::run::progress::{CustomerSummary, summarize_for_customer};
use signalbox_domain::run::replay::ReplayError;
use signalbox_ports::journal::{Journal, READ_EVENTS_MAX};
use tokio::sync::mpsc;

use crate::api::{ApiError, WatchItem};

type Items = mpsc::Receiver<Result<WatchItem, ApiError>>;

/// Items that may wait for whoever reads them.
const WAITING_MAX: usize = 16;

/// One teller for each run that customers watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tellers {
    runs: Arc<Mutex<HashMap<RunKey, Weak<Teller>>>>,
}

impl Tellers {
    /// The same items with the run in words beside each event that customers see.
    pub(crate) fn tell(&self, journal: Arc<dyn Journal>, run: RunKey, mut items: Items) -> Items {
        let teller = self.of(run);
        let (told, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            while let Some(item) = items.recv().await {
                let item = match item {
                    Ok(WatchItem::Event(event)) if event.visibility == Visibility::Customer => {
                        let summary = teller.after(journal.as_ref(), run, &event).await;
                        summary.map(|summary| WatchItem::Told { event, summary: Some(summary) })
                    }
                    other => other,
                };
                let failed = item.is_err();
                if told.send(item).await.is_err() || failed {
                    return;
                }
            }
        });
        receiver
    }

    fn of(&self, run: RunKey) -> Arc<Teller> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        // Runs that nobody watches any more are forgotten here, so the map is bounded by the watchers.
        runs.retain(|_, teller| teller.strong_count() > 0);
        if let Some(teller) = runs.get(&run).and_then(Weak::upgrade) {
            return teller;
        }
        let teller = Arc::new(Teller::default());
        runs.insert(run, Arc::downgrade(&teller));
        teller
    }
}

/// A run as far as it was folded, and what was said after each event.
#[derive(Debug, Default)]
struct Teller {
    told: tokio::sync::Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    run: Option<RunEnvelope>,
    /// The one after event n at n - 1; neighbours that say the same are one.
    summaries: Vec<Arc<CustomerSummary>>,
}

impl Teller {
    async fn after(
        &self,
        journal: &dyn Journal,
        run: RunKey,
        event: &StoredEvent,
    ) -> Result<Arc<CustomerSummary>, ApiError> {
        let mut told = self.told.lock().await;
        if told.seq() + 1 == event.seq {
            told.fold(event)?;
        }
        let place = usize::try_from(event.seq.saturating_sub(1)).unwrap_or(usize::MAX);
        loop {
            if let Some(summary) = told.summaries.get(place) {
                return Ok(summary.clone());
            }
            let page = journal.read(run, told.seq(), READ_EVENTS_MAX).await?;
            if page.is_empty() {
                return Err(ReplayError::NoSuchPoint.into());
            }
            for event in &page {
                told.fold(event)?;
            }
        }
    }
}

impl Told {
    fn seq(&self) -> u64 {
        self.summaries.len() as u64
    }

    fn fold(&mut self, event: &StoredEvent) -> Result<(), ApiError> {
        let run = match self.run.take() {
            None => begin(event),
            Some(mut run) => fold_one(&mut run, event).map(|()| run),
        };
        let run = run.map_err(ReplayError::from)?;
        let summary = summarize_for_customer(&run);
        self.run = Some(run);
        let same = self.summaries.last().filter(|last| ***last == summary).cloned();
        self.summaries.push(same.unwrap_or_else(|| Arc::new(summary)));
        Ok(())
    }
}
