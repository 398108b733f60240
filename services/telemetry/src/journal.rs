//! A journal that counts what is written to it.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use signalbox_domain::ids::{RunId, RunKey, TenantId};
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::event::RunEvent;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::{AppendError, Appended, Created, Journal, NewRun, StoreError};

use crate::metrics::{Metrics, OfCode, OfOutcome, OfStatus, OfTool, OfToolAndCode};

/// A journal in front of another.
pub(crate) struct MeteredJournal {
    journal: Arc<dyn Journal>,
    metrics: Metrics,
}

impl MeteredJournal {
    pub(crate) fn new(journal: Arc<dyn Journal>, metrics: Metrics) -> Self {
        Self { journal, metrics }
    }

    fn failed(&self, error: &StoreError) {
        self.metrics.counts.store_errors.get_or_create(&OfCode { code: error.code() }).inc();
    }

    fn happened(&self, event: &RunEvent) {
        let counts = &self.metrics.counts;
        counts.journal_events.inc();
        match event {
            RunEvent::CallPending(call) => {
                counts.calls_admitted.get_or_create(&OfTool { tool: call.tool_id.to_string() }).inc();
            }
            RunEvent::CallRefused(call) => {
                let labels = OfToolAndCode { tool: call.tool_id.to_string(), code: call.code.clone() };
                counts.calls_refused.get_or_create(&labels).inc();
            }
            RunEvent::CallSettled(call) => {
                counts.calls_settled.get_or_create(&OfOutcome { outcome: call.outcome.as_str() }).inc();
            }
            RunEvent::CallRedispatched { .. } => {
                counts.calls_redispatched.inc();
            }
            RunEvent::LateEvidence(_) => {
                counts.late_results.inc();
            }
            RunEvent::StepThrottled { .. } => {
                counts.steps_throttled.inc();
            }
            RunEvent::ApprovalRequested(_) => {
                counts.approvals_requested.inc();
            }
            RunEvent::ApprovalDecided { .. } => {
                counts.approvals_decided.inc();
            }
            RunEvent::ApprovalExpired { .. } => {
                counts.approvals_expired.inc();
            }
            RunEvent::RunFinished(finished) => {
                counts.runs_ended.get_or_create(&OfStatus { status: finished.status.as_str() }).inc();
            }
            RunEvent::RunSubmitted(_) => {
                counts.runs_submitted.inc();
            }
            RunEvent::RunStarted {}
            | RunEvent::StepSkipped { .. }
            | RunEvent::StepFailed { .. }
            | RunEvent::HandoffDispatched(_)
            | RunEvent::HandoffDenied(_)
            | RunEvent::HandoffReconciled(_)
            | RunEvent::ApprovalReminded { .. }
            | RunEvent::BranchOffered { .. }
            | RunEvent::TimerSet { .. }
            | RunEvent::TimerFired { .. }
            | RunEvent::ModelBegan { .. }
            | RunEvent::ModelAsked(_)
            | RunEvent::ModelAnswered(_)
            | RunEvent::ModelFellBack { .. }
            | RunEvent::ControlApplied(_)
            | RunEvent::GovernanceAudited(_)
            | RunEvent::RunClosed {} => {}
        }
    }
}

#[async_trait]
impl Journal for MeteredJournal {
    async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        let events: Vec<_> = run.events.iter().map(|new| new.event.clone()).collect();
        let created = self.journal.create(run).await;
        match &created {
            Ok(Created::New { .. }) => events.iter().for_each(|event| self.happened(event)),
            // It was counted when it was new.
            Ok(Created::Exists(_)) => {}
            Err(error) => self.failed(error),
        }
        created
    }

    async fn append(&self, batch: Vec<Entry>, append_began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        let entries = batch.len();
        let began = Instant::now();
        let answers = self.journal.append(batch, append_began).await;
        let times = &self.metrics.times;
        times.append_seconds.observe(began.elapsed().as_secs_f64());
        #[allow(clippy::cast_precision_loss, reason = "a batch has some hundreds of entries")]
        times.append_entries.observe(entries as f64);
        for answer in &answers {
            match answer {
                Ok(appended) => appended.read_back.iter().for_each(|event| self.happened(event)),
                Err(AppendError::Refused(refusal)) => {
                    self.metrics.counts.appends_refused.get_or_create(&OfCode { code: refusal.code() }).inc();
                }
                Err(AppendError::Store(error)) => self.failed(error),
            }
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
