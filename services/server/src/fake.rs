//! A node of a few lines for tests: runs in a map, scripted refusals, watches fed by hand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;
use signalbox_domain::dashboard::{DashboardEntry, DashboardFilter, OperatorSnapshot, RunCounts, filter_dashboard};
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::identity::{Actor, Role, Visibility};
use signalbox_domain::ids::{ActorId, AgentId, ApprovalId, CommandId, RunId, RunKey, StepId, TenantId, ToolId};
use signalbox_domain::run::append::{CommandAnswer, OpenApproval, RunProjection};
use signalbox_domain::run::approvers::Approvers;
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::decide::{Denial, RunCommand};
use signalbox_domain::run::envelope::{ApprovalRecord, RunEnvelope};
use signalbox_domain::run::event::{ApprovalDecision, ApprovalReason, GuardedAction, StoredValue};
use signalbox_domain::run::plan::{ApprovalRequirement, Plan};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::submission::Submission;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::directory::RunPage;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::api::{ApiError, Caller, Preflight, Question, RunApi, Submitted, WatchItem, Whose};

/// One event of a fake journal.
pub(crate) fn event(seq: u64, visibility: Visibility) -> StoredEvent {
    StoredEvent {
        run_key: RunKey::new(Uuid::from_u128(1)),
        seq,
        at: UnixMicros(1_000 * i64::try_from(seq).unwrap()),
        actor: Actor::system(),
        visibility,
        kind: "run-started".to_owned(),
        version: 1,
        body: b"{}".to_vec(),
        prev_hash: EventHash::ZERO,
        hash: EventHash([u8::try_from(seq % 251).unwrap(); 32]),
    }
}

/// A run without steps in a given status.
pub(crate) fn envelope(run_id: RunId, tenant: &TenantId, status: RunStatus) -> RunEnvelope {
    RunEnvelope {
        run_key: RunKey::new(run_id.uuid()),
        run_id,
        tenant_id: tenant.clone(),
        root_agent_id: AgentId::new("ref.research").unwrap(),
        root_agent_semver: "1.0.0".to_owned(),
        agents: Default::default(),
        routing: None,
        parent_run_id: None,
        forked_from_run_id: None,
        pipeline_id: None,
        pipeline_semver: None,
        surface: "api".to_owned(),
        mode: "balanced".to_owned(),
        invocation: None,
        mode_bounds: None,
        submitted_by: Actor { actor_id: ActorId::new("somebody").unwrap(), role: Role::Service },
        scopes: Vec::new(),
        submission_hash: String::new(),
        provenance_bundle_id: String::new(),
        submitted_at: UnixMicros(5),
        status,
        started: true,
        begun: true,
        hold: None,
        permitted_step: None,
        plan: Arc::new(Plan { steps: Vec::new(), max_parallel: None }),
        inputs: Arc::new(Value::Null),
        sealed: signalbox_domain::run::sealed::SealedPlan::default(),
        steps: Vec::new(),
        step_attempts: BTreeMap::new(),
        models: BTreeMap::new(),
        tool_calls: Vec::new(),
        approvals: Vec::new(),
        intermediate_artifacts: Vec::new(),
        evidence_trail: Vec::new(),
        decision_rationale: Vec::new(),
        outputs: Vec::new(),
        cost_ledger: Default::default(),
        simulated_ledger: None,
        compliance: None,
        waited_micros: 0,
        grants: Vec::new(),
        run_budgets: Vec::new(),
        grant_uses: BTreeMap::new(),
        has_warnings: false,
        handoff_rules: None,
        handed_off: None,
        attribution_chain: Default::default(),
        handoffs: Vec::new(),
        end: None,
        finished_at: None,
        closed: status.is_terminal(),
        last_seq: 3,
        last_at: UnixMicros(9),
    }
}

fn entry(run: &RunEnvelope) -> DashboardEntry {
    DashboardEntry {
        run_key: run.run_key,
        run_id: run.run_id,
        tenant_id: run.tenant_id.clone(),
        root_agent_id: run.root_agent_id.clone(),
        pipeline_id: None,
        started_at: run.submitted_at,
        ended_at: None,
        last_seq: run.last_seq,
        last_at: run.last_at,
        read_at: run.last_at,
        projection: RunProjection {
            status: run.status,
            closed: run.closed,
            total_cost_micros: 1_500_000,
            percent: 50,
            waiting_for: None,
            wake_at: None,
            slow_at: None,
            has_warnings: true,
            words: String::new(),
            open_approvals: Vec::new(),
            killed_by: None,
        },
    }
}

#[derive(Default)]
struct State {
    runs: BTreeMap<(TenantId, RunId), RunEnvelope>,
    refusal: Option<ApiError>,
    denial: Option<CommandAnswer>,
    journal: Vec<StoredEvent>,
    watch: Option<mpsc::Receiver<Result<WatchItem, ApiError>>>,
    submissions: Vec<Submission>,
    commands: Vec<(CommandId, RunCommand)>,
    filters: Vec<(Whose, DashboardFilter)>,
    armed: Vec<KillSwitch>,
    unready: bool,
    hanging: Option<Arc<()>>,
}

/// The node.
#[derive(Default)]
pub(crate) struct FakeNode(Mutex<State>);

impl FakeNode {
    /// Every method refuses with this.
    pub(crate) fn refuse_with(&self, error: ApiError) {
        self.0.lock().unwrap().refusal = Some(error);
    }
    /// Commands are answered with this denial.
    pub(crate) fn deny_with(&self, code: &str) {
        let answer = CommandAnswer { accepted: false, code: code.to_owned(), message: "no".to_owned(), seq: 3 };
        self.0.lock().unwrap().denial = Some(answer);
    }
    /// Puts a run there.
    pub(crate) fn hold(&self, envelope: RunEnvelope) {
        let key = (envelope.tenant_id.clone(), envelope.run_id);
        self.0.lock().unwrap().runs.insert(key, envelope);
    }
    /// What `watch` replays from the cursor on, and `export` gives.
    pub(crate) fn record(&self, journal: Vec<StoredEvent>) {
        self.0.lock().unwrap().journal = journal;
    }
    /// From now on nothing is answered.
    pub(crate) fn hang(&self) {
        self.0.lock().unwrap().hanging = Some(Arc::default());
    }
    /// True once nobody waits for what is not answered any more.
    pub(crate) async fn until_given_up(&self, within: std::time::Duration) -> bool {
        let given_up = async {
            while self.0.lock().unwrap().hanging.as_ref().is_some_and(|held| Arc::strong_count(held) > 1) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(within, given_up).await.is_ok()
    }
    /// Whether the node says that it is ready.
    pub(crate) fn ready(&self, ready: bool) {
        self.0.lock().unwrap().unready = !ready;
    }
    /// The next `watch` reads from here instead of the journal.
    pub(crate) fn watch_from(&self, source: mpsc::Receiver<Result<WatchItem, ApiError>>) {
        self.0.lock().unwrap().watch = Some(source);
    }
    /// Everything submitted.
    pub(crate) fn submissions(&self) -> Vec<Submission> {
        self.0.lock().unwrap().submissions.clone()
    }
    /// Every command.
    pub(crate) fn commands(&self) -> Vec<(CommandId, RunCommand)> {
        self.0.lock().unwrap().commands.clone()
    }
    /// This switch is in force.
    pub(crate) fn arm(&self, switch: KillSwitch) {
        self.0.lock().unwrap().armed.push(switch);
    }
    /// Every filter of `list`, and whose runs were meant.
    pub(crate) fn filters(&self) -> Vec<(Whose, DashboardFilter)> {
        self.0.lock().unwrap().filters.clone()
    }

    fn find(&self, caller: &Caller, run_id: RunId) -> Result<RunEnvelope, ApiError> {
        let state = self.0.lock().unwrap();
        if let Some(refusal) = &state.refusal {
            return Err(refusal.clone());
        }
        state.runs.get(&(caller.tenant_id.clone(), run_id)).cloned().ok_or(ApiError::NoSuchRun(run_id.to_string()))
    }

    fn answer(&self) -> CommandAnswer {
        let accepted = CommandAnswer { accepted: true, code: "ok".to_owned(), message: String::new(), seq: 4 };
        self.0.lock().unwrap().denial.clone().unwrap_or(accepted)
    }
}

#[async_trait]
impl RunApi for FakeNode {
    fn is_ready(&self) -> bool {
        !self.0.lock().unwrap().unready
    }

    async fn submit(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
    ) -> Result<Submitted, ApiError> {
        if let Some(refusal) = self.0.lock().unwrap().refusal.clone() {
            return Err(refusal);
        }
        let run_id = run_id.unwrap_or_else(|| RunId::new(Uuid::from_u128(99)));
        let replayed = self.find(caller, run_id).is_ok();
        self.hold(envelope(run_id, &caller.tenant_id, RunStatus::Queued));
        self.0.lock().unwrap().submissions.push(submission);
        Ok(Submitted { run_id, replayed, status: RunStatus::Queued, warnings: Vec::new() })
    }

    async fn submit_claiming(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
        _claimed: TenantId,
    ) -> Result<Submitted, ApiError> {
        self.submit(caller, run_id, submission).await
    }

    async fn preflight(&self, _caller: &Caller, submission: Submission) -> Result<Preflight, ApiError> {
        // What is refused at a submission is what a preflight tells.
        let gaps = match self.0.lock().unwrap().refusal.clone() {
            Some(ApiError::Preflight(gaps)) => gaps,
            Some(error) => return Err(error),
            None => Vec::new(),
        };
        let estimate = signalbox_domain::invocation::estimate(&submission.plan.into_plan());
        Ok(Preflight {
            gaps,
            warnings: Vec::new(),
            estimate,
            simulated_steps: Vec::new(),
            bounds: None,
            budgets: Vec::new(),
        })
    }
    async fn get(&self, caller: &Caller, run_id: RunId) -> Result<RunEnvelope, ApiError> {
        let hanging = self.0.lock().unwrap().hanging.clone();
        if let Some(_held) = hanging {
            std::future::pending::<()>().await;
        }
        self.find(caller, run_id)
    }

    async fn list(&self, caller: &Caller, whose: Whose, filter: DashboardFilter) -> Result<RunPage, ApiError> {
        let mut state = self.0.lock().unwrap();
        if let Some(refusal) = &state.refusal {
            return Err(refusal.clone());
        }
        state.filters.push((whose, filter.clone()));
        let own = state.runs.values().filter(|run| run.tenant_id == caller.tenant_id);
        let entries: Vec<_> = own.map(entry).collect();
        let rows: Vec<_> = filter_dashboard(&entries, &filter).into_iter().cloned().collect();
        let last = rows.last().map(DashboardEntry::place);
        let behind = DashboardFilter { cursor: last, limit: 1, ..filter };
        let next = last.filter(|_| !filter_dashboard(&entries, &behind).is_empty());
        Ok(RunPage { rows, next })
    }

    async fn count_runs(&self, caller: &Caller, whose: Whose, _: Option<UnixMs>) -> Result<RunCounts, ApiError> {
        Ok(self.snapshot(caller, whose).await?.counts)
    }

    async fn mode_compliance(
        &self,
        _: &Caller,
        _: Whose,
        _: signalbox_domain::ids::AgentId,
        mode: signalbox_domain::mode::Mode,
    ) -> Result<signalbox_domain::mode::SeriesCompliance, ApiError> {
        match &self.0.lock().unwrap().refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(signalbox_domain::mode::compliance_of_series(mode, &[])),
        }
    }

    async fn snapshot(&self, caller: &Caller, whose: Whose) -> Result<OperatorSnapshot, ApiError> {
        let state = self.0.lock().unwrap();
        if let Some(refusal) = &state.refusal {
            return Err(refusal.clone());
        }
        let own: Vec<_> = state.runs.values().filter(|run| run.tenant_id == caller.tenant_id).collect();
        let counted =
            RunStatus::ALL.map(|status| (status, own.iter().filter(|run| run.status == status).count() as u64));
        Ok(OperatorSnapshot {
            taken_at_unix_ms: UnixMs(9),
            tenant_id: (whose != Whose::All).then(|| caller.tenant_id.clone()),
            counts: RunCounts::of(&counted),
            active_switches: state.armed.clone(),
            governance_epoch: 4,
        })
    }

    async fn approvals(&self, caller: &Caller) -> Result<Vec<(RunId, OpenApproval)>, ApiError> {
        let state = self.0.lock().unwrap();
        if let Some(refusal) = &state.refusal {
            return Err(refusal.clone());
        }
        let own = state.runs.values().filter(|run| run.tenant_id == caller.tenant_id);
        Ok(own.map(|run| (run.run_id, question(run.run_id))).collect())
    }

    async fn approval(&self, caller: &Caller, approval_id: ApprovalId) -> Result<Question, ApiError> {
        let run = self.find(caller, RunId::new(approval_id.uuid())).map_err(of_approval)?;
        let asked = ApprovalRecord {
            approval_id,
            step_id: StepId::new("gate").unwrap(),
            requirement: ApprovalRequirement::Operator,
            approvers: Some(Approvers {
                actor_ids: [ActorId::new("olga").unwrap()].into(),
                roles: [Role::PlatformOperator].into(),
            }),
            prompt: "Pay?".to_owned(),
            reason: ApprovalReason::Gate,
            call_id: None,
            subject: StoredValue::Inline(Value::Null),
            subject_digest: "0".repeat(64),
            actions: vec![GuardedAction {
                step_id: StepId::new("pay").unwrap(),
                agent_id: AgentId::new("ref.research").unwrap(),
                tool_id: ToolId::new("memory.write").unwrap(),
                args_hash: "1".repeat(64),
            }],
            requested_at_unix_ms: UnixMs(1),
            remind_at_unix_ms: UnixMs(2),
            reminded: false,
            expires_at_unix_ms: UnixMs(3),
            decision: Some(ApprovalDecision::Reject),
            decided_by: Some(Actor { actor_id: ActorId::new("olga").unwrap(), role: Role::PlatformOperator }),
            decision_reason: Some("too much".to_owned()),
            lapsed: false,
        };
        let may_decide = asked.may_be_decided_by(&caller.actor, &caller.scopes, &run).is_ok();
        Ok(Question { run_id: run.run_id, asked, shown: serde_json::json!({"amount": 10}), may_decide })
    }

    async fn command_at(
        &self,
        caller: &Caller,
        run_id: RunId,
        command_id: CommandId,
        expected_seq: Option<u64>,
        command: RunCommand,
    ) -> Result<CommandAnswer, ApiError> {
        let actual = self.find(caller, run_id)?.last_seq;
        if let Some(expected) = expected_seq.filter(|expected| *expected != actual) {
            return Err(Denial::StaleRevision { expected, actual }.into());
        }
        self.0.lock().unwrap().commands.push((command_id, command));
        Ok(self.answer())
    }

    async fn fork(
        &self,
        caller: &Caller,
        source: RunId,
        _command_id: CommandId,
        _expected_seq: Option<u64>,
        fresh: Option<RunId>,
        _reason: String,
    ) -> Result<Submitted, ApiError> {
        let run = self.find(caller, source)?;
        let free = fresh.filter(|id| self.find(caller, *id).is_err());
        let run_id = free.ok_or(Denial::ForkWithoutFreshId)?;
        self.hold(RunEnvelope {
            forked_from_run_id: Some(source),
            ..envelope(run_id, &run.tenant_id, RunStatus::Queued)
        });
        Ok(Submitted { run_id, replayed: false, status: RunStatus::Queued, warnings: Vec::new() })
    }

    async fn decide_approval(
        &self,
        caller: &Caller,
        approval_id: ApprovalId,
        _decision: ApprovalDecision,
        _reason: String,
        _subject_digest: Option<String>,
        _command_id: CommandId,
    ) -> Result<(RunId, CommandAnswer), ApiError> {
        let run_id = RunId::new(approval_id.uuid());
        self.find(caller, run_id).map_err(of_approval)?;
        Ok((run_id, self.answer()))
    }

    async fn watch(
        &self,
        caller: &Caller,
        run_id: RunId,
        after_seq: u64,
    ) -> Result<mpsc::Receiver<Result<WatchItem, ApiError>>, ApiError> {
        self.find(caller, run_id)?;
        let mut state = self.0.lock().unwrap();
        if let Some(source) = state.watch.take() {
            return Ok(source);
        }
        let last_seq = state.journal.len() as u64;
        if after_seq > last_seq {
            return Err(ApiError::CursorUnknown { after_seq, last_seq });
        }
        let (sender, receiver) = mpsc::channel(state.journal.len().max(1));
        for event in state.journal.iter().filter(|event| event.seq > after_seq) {
            sender.try_send(Ok(WatchItem::Event(Arc::new(event.clone())))).unwrap();
        }
        Ok(receiver)
    }

    async fn replay(&self, caller: &Caller, run_id: RunId, at_seq: u64) -> Result<RunEnvelope, ApiError> {
        let mut envelope = self.find(caller, run_id)?;
        envelope.last_seq = at_seq;
        Ok(envelope)
    }

    async fn export(&self, caller: &Caller, run_id: RunId) -> Result<(TenantId, RunKey, Vec<StoredEvent>), ApiError> {
        let run = self.find(caller, run_id)?;
        Ok((run.tenant_id, run.run_key, self.0.lock().unwrap().journal.clone()))
    }
}

fn of_approval(error: ApiError) -> ApiError {
    if let ApiError::NoSuchRun(id) = error { ApiError::NoSuchApproval(id) } else { error }
}

fn question(run_id: RunId) -> OpenApproval {
    OpenApproval {
        approval_id: ApprovalId::new(run_id.uuid()),
        step_id: StepId::new("assemble.gate").unwrap(),
        requirement: ApprovalRequirement::UserConfirmBeforeProceed,
        approvers: None,
        prompt: "Publish?".to_owned(),
        reason: ApprovalReason::Gate,
        subject_digest: "0".repeat(64),
        requested_at_unix_ms: UnixMs(1),
        remind_at_unix_ms: UnixMs(2),
        reminded: true,
        expires_at_unix_ms: UnixMs(3),
    }
}
