//! A run on paper: what the rules decide is stamped and hashed as a store would do it, and time is a number.

use serde_json::{Value, json};
use signalbox_domain::canonical;
use signalbox_domain::catalog::{self, Recovery};
use signalbox_domain::governance::gate::Admissible;
use signalbox_domain::governance::grant::{Constraints, Grant, GrantScope};
use signalbox_domain::governance::throttle::Throttled;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{
    ActorId, AgentId, ApprovalId, BranchId, BucketId, CallId, GrantId, NodeIncarnation, RunId, RunKey, StepId,
    TenantId, ToolId,
};
use signalbox_domain::invocation::ToneVerdict;
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::advance::advance;
use signalbox_domain::run::append::{Ask, NewEvent, Release, RunHead, stamp};
use signalbox_domain::run::approval;
use signalbox_domain::run::approvers::Approvers;
use signalbox_domain::run::binding::{self, Sources};
use signalbox_domain::run::call::{self, Prepared};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::decide::{Context, Denial, RunCommand, decide};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{
    ApprovalDecision, ArtifactRef, Overrides, Reservation, RunEvent, RunSubmitted, StoredValue,
};
use signalbox_domain::run::evolve::{evolve, submitted_run};
use signalbox_domain::run::plan::{ApprovalRequirement, BranchCondition, BranchOption, Plan, Step, StepKind};
use signalbox_domain::run::settle::{Ended, output_of, settle};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult, StepState};
use signalbox_domain::run::submission::{Submission, Submitter, accept, parse};
use signalbox_domain::time::UnixMs;
use uuid::Uuid;

/// When every run of these tests is submitted.
pub(crate) const START: UnixMs = UnixMs(1_800_000_000_000);

pub(crate) fn step_id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub(crate) fn branch_id(text: &str) -> BranchId {
    BranchId::new(text).unwrap()
}

pub(crate) fn tool_id(text: &str) -> ToolId {
    ToolId::new(text).unwrap()
}

pub(crate) fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

pub(crate) fn actor(name: &str, role: Role) -> Actor {
    Actor { actor_id: ActorId::new(name).unwrap(), role }
}

/// Whoever submits the runs of these tests.
pub(crate) fn submitter() -> Actor {
    actor("ann", Role::Creator)
}

pub(crate) fn operator() -> Actor {
    actor("otto", Role::TenantOperator)
}

fn step(id: &str, after: &[&str], kind: StepKind) -> Step {
    Step {
        step_id: step_id(id),
        stage_id: None,
        agent_id: None,
        depends_on_step_ids: after.iter().map(|on| step_id(on)).collect(),
        when: None,
        optional: false,
        kind,
    }
}

/// The same call, made only as the gate has let it through.
pub(crate) fn approved_by(gate: &str, mut step: Step) -> Step {
    let StepKind::Tool { approved_by, .. } = &mut step.kind else { panic!("it makes no call") };
    *approved_by = Some(step_id(gate));
    step
}

/// The same gate, answered by those named alone.
pub(crate) fn naming(actor_ids: &[&str], roles: &[Role], mut step: Step) -> Step {
    let StepKind::Approval { approvers, .. } = &mut step.kind else { panic!("it asks nobody") };
    let actor_ids = actor_ids.iter().map(|id| ActorId::new(*id).unwrap()).collect();
    *approvers = Some(Approvers { actor_ids, roles: roles.iter().copied().collect() });
    step
}

/// A call of `memory.read`, after these steps.
pub(crate) fn tool(id: &str, after: &[&str]) -> Step {
    calling("memory.read", json!({"key": id}), id, after)
}

pub(crate) fn calling(tool: &str, args: Value, id: &str, after: &[&str]) -> Step {
    step(id, after, StepKind::Tool { tool_id: tool_id(tool), args, approved_by: None })
}

pub(crate) fn gate(id: &str, after: &[&str]) -> Step {
    asking(ApprovalRequirement::Operator, id, after)
}

pub(crate) fn asking(requirement: ApprovalRequirement, id: &str, after: &[&str]) -> Step {
    let subject = json!({"pages": 3});
    let prompt = "May it go on?".to_owned();
    step(
        id,
        after,
        StepKind::Approval {
            requirement,
            approvers: None,
            prompt,
            subject,
            refuse_if: None,
            approval_ttl_seconds: 1_000,
        },
    )
}

pub(crate) fn fork_in_the_road(id: &str, ways: &[&str], after: &[&str]) -> Step {
    let branches = ways.iter().map(|way| BranchOption { branch_id: branch_id(way), title: (*way).to_owned() });
    step(id, after, StepKind::Branch { branches: branches.collect() })
}

pub(crate) fn wait(id: &str, seconds: u64, after: &[&str]) -> Step {
    step(id, after, StepKind::Wait { seconds })
}

pub(crate) fn optional(step: Step) -> Step {
    Step { optional: true, ..step }
}

pub(crate) fn when(step: Step, at: &str, way: &str) -> Step {
    Step { when: Some(BranchCondition { step_id: step_id(at), branch_id: branch_id(way) }), ..step }
}

pub(crate) fn plan(steps: Vec<Step>) -> Plan {
    Plan { steps, max_parallel: None }
}

pub(crate) fn submission_of(plan: &Plan) -> Submission {
    let json = json!({"rootAgentId": "ref.research", "plan": plan, "inputs": {"topic": "tides", "list": [1, 2]}});
    parse(json.to_string().as_bytes()).unwrap()
}

pub(crate) fn submitted_by() -> Submitter {
    Submitter {
        run_key: RunKey::new(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001)),
        run_id: RunId::new(Uuid::from_u128(7)),
        tenant_id: tenant(),
        actor: submitter(),
        scopes: vec!["tool:memory.read".to_owned()],
        surface: "api".to_owned(),
    }
}

pub(crate) fn submitted(plan: &Plan) -> RunSubmitted {
    accept(submission_of(plan), submitted_by(), Vec::new()).unwrap()
}

pub(crate) fn answered(output: Value) -> CallResult {
    let ending =
        CallEnding::Answered { partial: false, output, evidence: None, effects: Vec::new(), artifacts: Vec::new() };
    CallResult { ending, measured: None, latency_ms: 12 }
}

pub(crate) fn answered_with(output: Value, artifacts: Vec<ArtifactRef>) -> CallResult {
    let ending = CallEnding::Answered { partial: false, output, evidence: None, effects: Vec::new(), artifacts };
    CallResult { ending, measured: None, latency_ms: 12 }
}

pub(crate) fn failed(code: &str) -> CallResult {
    ended(CallEnding::Failed { code: code.to_owned(), message: "it did not work".to_owned() })
}

pub(crate) fn not_started() -> CallResult {
    ended(CallEnding::NotStarted { code: "executor-unreachable".to_owned(), message: "refused".to_owned() })
}

pub(crate) fn lost() -> CallResult {
    ended(CallEnding::Unknown { message: "no answer".to_owned() })
}

pub(crate) fn ended(ending: CallEnding) -> CallResult {
    CallResult { ending, measured: None, latency_ms: 12 }
}

pub(crate) fn measuring(units: &[(BudgetCategory, f64)], result: CallResult) -> CallResult {
    CallResult { measured: Some(units.to_vec()), ..result }
}

pub(crate) fn artifact(name: &str) -> ArtifactRef {
    let sha256 = canonical::sha256_hex(name.as_bytes());
    ArtifactRef {
        name: name.to_owned(),
        persisted_key: format!("acme/{sha256}"),
        media_type: "text/plain".to_owned(),
        sha256,
        size: name.len() as u64,
    }
}

pub(crate) fn grant(tool: &ToolId) -> Grant {
    Grant {
        grant_id: GrantId::new(format!("grant.{tool}")).unwrap(),
        scope: GrantScope::PerRun,
        scope_key: submitted_by().run_id.to_string(),
        tenant_id: tenant(),
        tool_id: tool.clone(),
        tool_range: "^1.0.0".to_owned(),
        constraints: Constraints::default(),
        delegable: None,
        issued_by: operator().actor_id,
        issued_at_unix_ms: START,
        expires_at_unix_ms: None,
        revoked_at_unix_ms: None,
        rationale: "test".to_owned(),
        audit_event_id: "grant/1".to_owned(),
        renewed_from_grant_id: None,
    }
}

const REASON: &str = "because";

pub(crate) fn pause() -> RunCommand {
    RunCommand::Pause { reason: REASON.to_owned() }
}

pub(crate) fn resume() -> RunCommand {
    RunCommand::Resume { reason: REASON.to_owned() }
}

pub(crate) fn cancel() -> RunCommand {
    RunCommand::Cancel { reason: REASON.to_owned() }
}

pub(crate) fn kill() -> RunCommand {
    RunCommand::Kill { reason: REASON.to_owned(), blamed_id: None }
}

pub(crate) fn choose(way: &str) -> RunCommand {
    RunCommand::ChooseBranch { step_id: None, branch_id: branch_id(way), reason: REASON.to_owned() }
}

pub(crate) fn retry(from: &str) -> RunCommand {
    retry_with(from, Overrides::default())
}

pub(crate) fn retry_with(from: &str, overrides: Overrides) -> RunCommand {
    RunCommand::RetryWithChanges { step_id: step_id(from), overrides, reason: REASON.to_owned() }
}

pub(crate) fn one_step() -> RunCommand {
    RunCommand::OperatorStep { step_id: None, reason: REASON.to_owned() }
}

pub(crate) fn one_step_of(id: &str) -> RunCommand {
    RunCommand::OperatorStep { step_id: Some(step_id(id)), reason: REASON.to_owned() }
}

pub(crate) fn answer(approval_id: ApprovalId, decision: ApprovalDecision) -> RunCommand {
    RunCommand::DecideApproval { approval_id, decision, reason: REASON.to_owned(), subject_digest: None }
}

/// A run, its journal so far, and the time.
#[derive(Clone)]
pub(crate) struct Story {
    /// The run as it is in memory: folded from the decisions, not from what was stored of them.
    pub(crate) run: RunEnvelope,
    /// The journal.
    pub(crate) events: Vec<StoredEvent>,
    /// The run as it was in memory after each event.
    pub(crate) past: Vec<RunEnvelope>,
    /// Now.
    pub(crate) now: UnixMs,
    head: RunHead,
}

impl Story {
    /// A run that was accepted.
    pub(crate) fn queued(steps: Vec<Step>) -> Self {
        Self::begins(submitted(&plan(steps)))
    }

    /// A run that was taken up.
    pub(crate) fn started(steps: Vec<Step>) -> Self {
        let mut story = Self::queued(steps);
        story.go_on();
        story
    }

    /// A run that begins with this event.
    pub(crate) fn begins(submitted: RunSubmitted) -> Self {
        let mut head = RunHead {
            run_key: submitted.run_key,
            run_id: submitted.run_id,
            tenant_id: submitted.tenant_id.clone(),
            owner: Some(NodeIncarnation::new(Uuid::from_u128(1))),
            lease_epoch: 1,
            last_seq: 0,
            last_hash: EventHash::ZERO,
            last_at: START.micros(),
            control_seq: 0,
            inbox_len: 0,
            closed: false,
        };
        let run = submitted_run(&submitted, START.micros());
        let by = submitted.submitted_by.clone();
        let first = stamp(&mut head, START.micros(), &NewEvent::by(by, RunEvent::RunSubmitted(Box::new(submitted))));
        Self { past: vec![run.clone()], run, events: vec![first], now: START, head }
    }

    /// Appends what was decided.
    pub(crate) fn write(&mut self, events: impl IntoIterator<Item = NewEvent>) {
        for new in events {
            let stored = stamp(&mut self.head, self.now.micros(), &new);
            evolve(&mut self.run, stored.at, &new.event);
            self.events.push(stored);
            self.past.push(self.run.clone());
        }
    }

    /// Appends an event without asking any rule.
    pub(crate) fn force(&mut self, event: RunEvent) {
        self.write([NewEvent::system(event)]);
    }

    /// Whatever follows by itself.
    pub(crate) fn go_on(&mut self) {
        self.write(advance(&self.run, self.now));
    }

    /// Time passes, and what is due happens.
    pub(crate) fn after_ms(&mut self, ms: i64) {
        self.now = self.now.plus_ms(ms);
        self.go_on();
    }

    /// The step's call with its arguments bound.
    pub(crate) fn prepared(&self, id: &str) -> Prepared {
        let step = self.run.plan.step(&step_id(id)).unwrap().clone();
        let StepKind::Tool { args, .. } = &step.kind else { panic!("`{id}` makes no call") };
        let args = self.bound(args);
        Prepared {
            call_id: self.run.next_call_id(&step),
            target: self.run.target_of(&step).unwrap(),
            args_hash: canonical::digest(&args).unwrap(),
            redacted_args: StoredValue::Inline(args.clone()),
            secrets: std::collections::BTreeMap::new(),
            args,
            step,
        }
    }

    /// A value with its bindings replaced.
    pub(crate) fn bound(&self, value: &Value) -> Value {
        let output = |step: &StepId| match self.run.output_of(step)? {
            StoredValue::Inline(value) => Some(value.clone()),
            StoredValue::Blob { .. } => None,
        };
        binding::bind(value, Sources { run: &self.run, inputs: &self.run.inputs, output: &output }).unwrap().value
    }

    /// Why the gate of a step does not let its call through.
    pub(crate) fn unapproved(&self, id: &str) -> Option<String> {
        let prepared = self.prepared(id);
        approval::objection(&self.run, &prepared.step, &prepared.args_hash)
    }

    /// What the gate would say to it: yes, with the catalog's ceiling reserved on the run's own budgets.
    pub(crate) fn admissible(&self, prepared: &Prepared) -> Admissible {
        let entry = catalog::entry(&prepared.target.tool_id).unwrap();
        let held = |budget: &signalbox_domain::governance::budget::Budget| Reservation {
            budget_id: budget.budget_id.clone(),
            category: budget.category,
            amount: entry.ceiling.get(budget.category),
        };
        Admissible {
            grant: grant(&prepared.target.tool_id),
            tool_semver: entry.semver.clone(),
            ceiling: entry.ceiling.clone(),
            reservations: self.run.run_budgets.iter().map(|own| held(&own.budget)).collect(),
            budget_warnings: Vec::new(),
            capability_checks: &["grant", "isolation"],
            recovery: entry.recovery,
            timeout_ms: entry.timeout_ms,
        }
    }

    /// Admits the step's call.
    pub(crate) fn call(&mut self, id: &str) -> CallId {
        let prepared = self.prepared(id);
        let admissible = self.admissible(&prepared);
        self.asked(call::admit(&prepared, &admissible, self.now));
        prepared.call_id
    }

    /// Admits the step's call under another recovery policy than the catalog's.
    pub(crate) fn call_recovering(&mut self, id: &str, recovery: Recovery) -> CallId {
        let prepared = self.prepared(id);
        let admissible = Admissible { recovery, ..self.admissible(&prepared) };
        self.asked(call::admit(&prepared, &admissible, self.now));
        prepared.call_id
    }

    /// An accepted ask.
    pub(crate) fn asked(&mut self, ask: Ask) {
        self.write(ask.events);
    }

    /// A call ends, and what follows happens.
    pub(crate) fn end(&mut self, call_id: CallId, result: CallResult) -> Option<Release> {
        let release = self.settle(call_id, result);
        self.go_on();
        release
    }

    /// A call ends; nothing else happens yet.
    pub(crate) fn settle(&mut self, call_id: CallId, result: CallResult) -> Option<Release> {
        let stored_output = output_of(&result).cloned().map(StoredValue::Inline);
        let (events, release) =
            settle(&self.run, &Ended { call_id, result, stored_output, tone: ToneVerdict::Pass }, self.now);
        self.write(events);
        release
    }

    /// A step's call is made, and gives this.
    pub(crate) fn does(&mut self, id: &str, result: CallResult) -> CallId {
        let call_id = self.call(id);
        self.end(call_id, result);
        call_id
    }

    /// The gate says no to the step's call.
    pub(crate) fn denies(&mut self, id: &str, code: &str) {
        let prepared = self.prepared(id);
        self.asked(call::deny(&prepared, code, "no", Vec::new(), self.now));
        self.go_on();
    }

    /// A bucket has no token for the step's call.
    pub(crate) fn throttles(&mut self, id: &str, retry_after_seconds: u64) {
        let throttled = Throttled { bucket_id: BucketId::new("calls").unwrap(), retry_after_seconds };
        let event = call::throttle(&self.prepared(id), &throttled, self.now);
        self.write([event]);
    }

    /// An approval step asks its question.
    pub(crate) fn asks(&mut self, id: &str) -> ApprovalId {
        let step = self.run.plan.step(&step_id(id)).unwrap().clone();
        let StepKind::Approval { subject, .. } = &step.kind else { panic!("`{id}` asks nobody") };
        let args = approval::guarded(&self.run, &step).map(|step| self.bound(step.kind.document().unwrap())).collect();
        let shown = approval::shown(&self.run, &step, self.bound(subject), args);
        let event = approval::request(&self.run, &step, &shown, StoredValue::Inline(shown.clone()), self.now);
        self.write(event);
        self.run.approvals.last().unwrap().approval_id
    }

    /// An operator's command, and what follows from it.
    pub(crate) fn command(&mut self, command: RunCommand) -> Result<(), Denial> {
        self.command_by(&operator(), command)
    }

    /// A command, and what follows from it.
    pub(crate) fn command_by(&mut self, actor: &Actor, command: RunCommand) -> Result<(), Denial> {
        let events = decide(&self.run, &command, &self.context_of(actor))?;
        self.write(events);
        self.go_on();
        Ok(())
    }

    pub(crate) fn context_of(&self, actor: &Actor) -> Context {
        Context { now: self.now, actor: actor.clone(), scopes: Vec::new(), expected_seq: None }
    }

    /// What an operator's command leads to, before anything is written.
    pub(crate) fn decides(&self, command: &RunCommand) -> Vec<NewEvent> {
        decide(&self.run, command, &self.context_of(&operator())).unwrap()
    }

    /// The code of a denial, or `ok`; the run is not changed.
    pub(crate) fn says(&self, command: &RunCommand) -> &'static str {
        decide(&self.run, command, &self.context_of(&operator())).map_or_else(|denial| denial.code(), |_| "ok")
    }

    pub(crate) fn status(&self) -> RunStatus {
        self.run.status_at(self.now)
    }

    pub(crate) fn state(&self, id: &str) -> &StepState {
        self.run.step_state(&step_id(id)).unwrap()
    }

    /// Steps whose calls and questions may be put to the gate now.
    pub(crate) fn ready(&self) -> Vec<&str> {
        let ready = self.run.ready_to_bind(self.now);
        ready.into_iter().map(|index| self.run.plan.steps[index].step_id.as_str()).collect()
    }

    /// Kinds of the events from a place in the journal on.
    pub(crate) fn kinds_from(&self, seq: u64) -> Vec<&str> {
        self.events.iter().filter(|event| event.seq >= seq).map(|event| event.kind.as_str()).collect()
    }

    /// A run in this status.
    pub(crate) fn standing(status: RunStatus) -> Self {
        let two_steps = || Self::started(vec![tool("first", &[]), tool("second", &["first"])]);
        match status {
            RunStatus::Queued => Self::queued(vec![tool("first", &[])]),
            RunStatus::Starting => two_steps(),
            RunStatus::Running => {
                let mut story = two_steps();
                story.does("first", answered(json!(1)));
                story
            }
            RunStatus::Paused => {
                let mut story = Self::standing(RunStatus::Running);
                story.command(pause()).unwrap();
                story
            }
            RunStatus::AwaitingApproval => {
                let mut story = Self::started(vec![gate("first", &[]), tool("second", &["first"])]);
                story.asks("first");
                story
            }
            RunStatus::AwaitingTool => {
                let mut story = two_steps();
                story.call("first");
                story.after_ms(5_000);
                story
            }
            RunStatus::AwaitingBranchSelection => {
                Self::started(vec![fork_in_the_road("first", &["left", "right"], &[])])
            }
            RunStatus::Cancelled => {
                let mut story = Self::standing(RunStatus::Running);
                story.command(cancel()).unwrap();
                story
            }
            RunStatus::Killed => {
                let mut story = Self::standing(RunStatus::Running);
                story.command(kill()).unwrap();
                story
            }
            RunStatus::Failed => {
                let mut story = two_steps();
                story.does("first", failed("tool-failed"));
                story
            }
            RunStatus::Completed => {
                let mut story = Self::standing(RunStatus::Running);
                story.does("second", answered(json!(2)));
                story
            }
        }
    }
}

pub(crate) fn micros(units: f64) -> Micros {
    Micros::from_decimal(units).unwrap()
}

pub(crate) fn agent(text: &str) -> AgentId {
    AgentId::new(text).unwrap()
}
