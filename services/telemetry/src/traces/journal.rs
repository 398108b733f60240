//! A journal that tells what it took as spans.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use signalbox_domain::ids::{RunId, RunKey, TenantId};
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::trace::TraceContext;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::{AppendError, Appended, Created, Journal, NewRun, StoreError};
use signalbox_ports::trace::cause;

use super::{Traces, spans};

/// A journal in front of another.
pub(super) struct TracedJournal {
    journal: Arc<dyn Journal>,
    traces: Traces,
}

impl TracedJournal {
    pub(super) fn new(journal: Arc<dyn Journal>, traces: Traces) -> Self {
        Self { journal, traces }
    }

    fn took(&self, appended: &Appended, began: SystemTime, ended: SystemTime) {
        let Appended { events, read_back, head, .. } = appended;
        if !self.traces.records(&TraceContext::of_run(head.run_key)) {
            return;
        }
        if let Some(span) = spans::append(head, events, began, ended) {
            self.traces.record(span);
        }
        // A call that was let through is told by the tools, and the rest is named in its entry's span.
        for event in read_back {
            if let RunEvent::CallRefused(call) = event {
                self.traces.record(spans::refused(head, call, ended));
            } else if let RunEvent::RunFinished(finished) = event {
                self.traces.record(spans::run(head, finished, ended));
            }
        }
    }
}

#[async_trait]
impl Journal for TracedJournal {
    async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        let first = run.events.first().map(|new| new.event.clone());
        let began = SystemTime::now();
        let created = self.journal.create(run).await;
        if let (Ok(Created::New { head, .. }), Some(first)) = (&created, &first)
            && self.traces.records(&TraceContext::of_run(head.run_key))
        {
            self.traces.record(spans::submitted(head, first, cause(), began));
        }
        created
    }

    async fn append(&self, batch: Vec<Entry>, append_began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        let began = SystemTime::now();
        let answers = self.journal.append(batch, append_began).await;
        let ended = SystemTime::now();
        for appended in answers.iter().flatten() {
            self.took(appended, began, ended);
        }
        answers
    }

    async fn read(&self, run: RunKey, after_seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.journal.read(run, after_seq, limit).await
    }

    async fn head(&self, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        self.journal.head(run).await
    }

    async fn find(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError> {
        self.journal.find(tenant, run).await
    }

    async fn put_snapshot(&self, run: RunKey, seq: u64, fold_version: u32, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.journal.put_snapshot(run, seq, fold_version, bytes).await
    }

    async fn snapshot(&self, run: RunKey, fold_version: u32) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        self.journal.snapshot(run, fold_version).await
    }
}
