//! What the edge needs of a node, as a trait: so that the edge can be tested without one, and can be served by another.

pub use crate::feedback::api::FeedbackApi;
pub use crate::governing::api::GovernanceApi;
pub use crate::pipelines::api::PipelineApi;
pub use crate::registry::api::RegistryApi;
pub use crate::schedules::api::ScheduleApi;
pub use crate::webhooks::api::WebhookApi;
use async_trait::async_trait;
use signalbox_domain::dashboard::{DashboardFilter, OperatorSnapshot, RunCounts};
use signalbox_domain::ids::{AgentId, ApprovalId, CommandId, RunId, RunKey, TenantId};
use signalbox_domain::mode::{Mode, SeriesCompliance};
use signalbox_domain::run::append::{CommandAnswer, OpenApproval};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::ApprovalDecision;
use signalbox_domain::run::submission::Submission;
use signalbox_domain::time::UnixMs;
pub use signalbox_ports::bus::BusStanding;
use signalbox_ports::directory::RunPage;
use signalbox_runtime::NodeHandle;
pub use signalbox_runtime::{ApiError, Caller, ErrorKind, Preflight, Question, Submitted, WatchItem, Whose};
use tokio::sync::mpsc;

/// A node, as its edge sees it. Every method acts within the caller's tenant: a foreign id answers exactly as one that
/// does not exist (I11).
#[async_trait]
pub trait RunApi: Send + Sync + 'static {
    /// True while the node can take runs and let them go on.
    fn is_ready(&self) -> bool;
    /// How the bus to the other nodes is. A node is ready without one.
    fn bus(&self) -> BusStanding {
        BusStanding::Local
    }
    /// Accepts a run; durable when it returns.
    async fn submit(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
    ) -> Result<Submitted, ApiError>;
    /// The same for a submission that names a tenant: another than the caller's is noted, and changes nothing (EXE-019).
    async fn submit_claiming(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
        claimed: TenantId,
    ) -> Result<Submitted, ApiError>;
    /// What a submission lacks; nothing is written.
    async fn preflight(&self, caller: &Caller, submission: Submission) -> Result<Preflight, ApiError>;
    /// One run.
    async fn get(&self, caller: &Caller, run_id: RunId) -> Result<RunEnvelope, ApiError>;
    /// Runs, newest first. A page that goes on may have few rows, or none.
    async fn list(&self, caller: &Caller, whose: Whose, filter: DashboardFilter) -> Result<RunPage, ApiError>;
    /// How many runs are in each bucket, of those accepted at an instant or later. For operators.
    async fn count_runs(
        &self,
        caller: &Caller,
        whose: Whose,
        started_after: Option<UnixMs>,
    ) -> Result<RunCounts, ApiError>;
    /// Counts per bucket and the switches in force (DSH-013). For operators.
    async fn snapshot(&self, caller: &Caller, whose: Whose) -> Result<OperatorSnapshot, ApiError>;
    /// How the last hundred runs of an agent in a mode stand to it (MOD-009). For operators.
    async fn mode_compliance(
        &self,
        caller: &Caller,
        whose: Whose,
        agent_id: AgentId,
        mode: Mode,
    ) -> Result<SeriesCompliance, ApiError>;
    /// Open questions, oldest first.
    async fn approvals(&self, caller: &Caller) -> Result<Vec<(RunId, OpenApproval)>, ApiError>;
    /// One question, open or not.
    async fn approval(&self, caller: &Caller, approval_id: ApprovalId) -> Result<Question, ApiError>;
    /// Steers a run, whatever has happened to it meanwhile; saying it twice under one id is harmless.
    async fn command(
        &self,
        caller: &Caller,
        run_id: RunId,
        command_id: CommandId,
        command: RunCommand,
    ) -> Result<CommandAnswer, ApiError> {
        self.command_at(caller, run_id, command_id, None, command).await
    }
    /// The same, unless the run has moved on from `expected_seq`.
    async fn command_at(
        &self,
        caller: &Caller,
        run_id: RunId,
        command_id: CommandId,
        expected_seq: Option<u64>,
        command: RunCommand,
    ) -> Result<CommandAnswer, ApiError>;
    /// Makes another run of one; saying it twice under one id answers the same run.
    async fn fork(
        &self,
        caller: &Caller,
        source: RunId,
        command_id: CommandId,
        expected_seq: Option<u64>,
        fresh: Option<RunId>,
        reason: String,
    ) -> Result<Submitted, ApiError>;
    /// Answers a question.
    async fn decide_approval(
        &self,
        caller: &Caller,
        approval_id: ApprovalId,
        decision: ApprovalDecision,
        reason: String,
        subject_digest: Option<String>,
        command_id: CommandId,
    ) -> Result<(RunId, CommandAnswer), ApiError>;
    /// The events after a cursor, then each new one; the stream ends after the run is closed.
    async fn watch(
        &self,
        caller: &Caller,
        run_id: RunId,
        after_seq: u64,
    ) -> Result<mpsc::Receiver<Result<WatchItem, ApiError>>, ApiError>;
    /// The run as it stood after an event.
    async fn replay(&self, caller: &Caller, run_id: RunId, at_seq: u64) -> Result<RunEnvelope, ApiError>;
    /// The whole journal, with what else is hashed.
    async fn export(&self, caller: &Caller, run_id: RunId) -> Result<(TenantId, RunKey, Vec<StoredEvent>), ApiError>;
}

#[async_trait]
impl RunApi for NodeHandle {
    fn is_ready(&self) -> bool {
        self.is_ready()
    }
    fn bus(&self) -> BusStanding {
        self.bus()
    }
    async fn submit(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
    ) -> Result<Submitted, ApiError> {
        self.submit(caller, run_id, submission).await
    }
    async fn submit_claiming(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
        claimed: TenantId,
    ) -> Result<Submitted, ApiError> {
        self.submit_claiming(caller, run_id, submission, claimed).await
    }
    async fn preflight(&self, caller: &Caller, submission: Submission) -> Result<Preflight, ApiError> {
        self.preflight(caller, submission).await
    }
    async fn get(&self, caller: &Caller, run_id: RunId) -> Result<RunEnvelope, ApiError> {
        self.get(caller, run_id).await
    }
    async fn list(&self, caller: &Caller, whose: Whose, filter: DashboardFilter) -> Result<RunPage, ApiError> {
        self.list(caller, whose, filter).await
    }
    async fn count_runs(
        &self,
        caller: &Caller,
        whose: Whose,
        started_after: Option<UnixMs>,
    ) -> Result<RunCounts, ApiError> {
        self.count_runs(caller, whose, started_after).await
    }
    async fn snapshot(&self, caller: &Caller, whose: Whose) -> Result<OperatorSnapshot, ApiError> {
        self.snapshot(caller, whose).await
    }
    async fn mode_compliance(
        &self,
        caller: &Caller,
        whose: Whose,
        agent_id: AgentId,
        mode: Mode,
    ) -> Result<SeriesCompliance, ApiError> {
        self.mode_compliance(caller, whose, agent_id, mode).await
    }
    async fn approvals(&self, caller: &Caller) -> Result<Vec<(RunId, OpenApproval)>, ApiError> {
        self.approvals(caller).await
    }
    async fn approval(&self, caller: &Caller, approval_id: ApprovalId) -> Result<Question, ApiError> {
        self.approval(caller, approval_id).await
    }
    async fn command_at(
        &self,
        caller: &Caller,
        run_id: RunId,
        command_id: CommandId,
        expected_seq: Option<u64>,
        command: RunCommand,
    ) -> Result<CommandAnswer, ApiError> {
        self.command_at(caller, run_id, command_id, expected_seq, command).await
    }
    async fn fork(
        &self,
        caller: &Caller,
        source: RunId,
        command_id: CommandId,
        expected_seq: Option<u64>,
        fresh: Option<RunId>,
        reason: String,
    ) -> Result<Submitted, ApiError> {
        self.fork(caller, source, command_id, expected_seq, fresh, &reason).await
    }
    async fn decide_approval(
        &self,
        caller: &Caller,
        approval_id: ApprovalId,
        decision: ApprovalDecision,
        reason: String,
        subject_digest: Option<String>,
        command_id: CommandId,
    ) -> Result<(RunId, CommandAnswer), ApiError> {
        self.decide_approval(caller, approval_id, decision, reason, subject_digest, command_id).await
    }
    async fn watch(
        &self,
        caller: &Caller,
        run_id: RunId,
        after_seq: u64,
    ) -> Result<mpsc::Receiver<Result<WatchItem, ApiError>>, ApiError> {
        self.watch(caller, run_id, after_seq).await
    }
    async fn replay(&self, caller: &Caller, run_id: RunId, at_seq: u64) -> Result<RunEnvelope, ApiError> {
        self.replay(caller, run_id, at_seq).await
    }
    async fn export(&self, caller: &Caller, run_id: RunId) -> Result<(TenantId, RunKey, Vec<StoredEvent>), ApiError> {
        self.export(caller, run_id).await
    }
}
