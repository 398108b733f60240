//! What the cases are written with: runs, entries and rules of a small, fixed world.

use std::any::Any;
use std::sync::Arc;

use serde_json::json;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::governance::budget::{Budget, BudgetScope, Meter, OnExceeded};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::governance::target::Target;
use signalbox_domain::handoff::dispatch::Authority;
use signalbox_domain::handoff::handed::{HandedOff, ParentLink};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{
    ActorId, AgentId, BudgetId, CallId, CommandId, GrantId, NodeIncarnation, RunId, RunKey, StageId, StepId, SwitchId,
    TenantId, ToolId,
};
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::append::{Ask, CommandAnswer, Entry, NewEvent, RunHead, RunProjection, SubRun};
use signalbox_domain::run::event::{
    CallOutcome, CallPending, CallSettled, Reservation, RunEvent, RunSubmitted, StoredValue,
};
use signalbox_domain::run::plan::Plan;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use uuid::Uuid;

use crate::acts::Acts;
use crate::clock::Clock;
use crate::directory::Directory;
use crate::feedback::Feedback;
use crate::governance::Governance;
use crate::inbox::{CommandClass, Inbox, InboxCommand};
use crate::journal::{AppendError, Appended, Created, Journal, NewRun};
use crate::keys::Keys;
use crate::leases::Leases;
use crate::maintenance::Maintenance;
use crate::memory::ManualClock;
use crate::schedules::Schedules;
use crate::webhooks::Deliveries;

/// An empty store behind its ports, and the clock it runs on.
pub struct Fixture {
    pub journal: Arc<dyn Journal>,
    pub directory: Arc<dyn Directory>,
    pub inbox: Arc<dyn Inbox>,
    pub leases: Arc<dyn Leases>,
    pub governance: Arc<dyn Governance>,
    pub acts: Arc<dyn Acts>,
    pub deliveries: Arc<dyn Deliveries>,
    pub maintenance: Arc<dyn Maintenance>,
    pub keys: Arc<dyn Keys>,
    pub feedback: Arc<dyn Feedback>,
    pub schedules: Arc<dyn Schedules>,
    pub clock: Arc<ManualClock>,
    _guard: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    /// A store on `clock`; `guard` is kept as long as the store, for instance its folder.
    pub fn over<S>(store: Arc<S>, clock: Arc<ManualClock>, guard: impl Any + Send + Sync) -> Self
    where
        S: Journal
            + Directory
            + Inbox
            + Leases
            + Governance
            + Acts
            + Deliveries
            + Maintenance
            + Keys
            + Feedback
            + Schedules,
    {
        Self {
            journal: store.clone(),
            directory: store.clone(),
            inbox: store.clone(),
            leases: store.clone(),
            governance: store.clone(),
            acts: store.clone(),
            deliveries: store.clone(),
            maintenance: store.clone(),
            keys: store.clone(),
            feedback: store.clone(),
            schedules: store,
            clock,
            _guard: Box::new(guard),
        }
    }

    /// A run that is there, owned by [`node`]`(1)`, which has a lease.
    pub async fn run(&self, number: u64) -> RunHead {
        self.create(new_run("acme", number)).await
    }

    /// That run, created.
    pub async fn create(&self, run: NewRun) -> RunHead {
        if let Some(owner) = run.owner {
            assert!(self.leases.renew(owner, "node").await.unwrap());
        }
        match self.journal.create(run).await.unwrap() {
            Created::New { head, .. } => head,
            Created::Exists(head) => panic!("run {} exists already", head.run_key),
        }
    }

    /// One entry, appended by itself.
    pub async fn append(&self, entry: Entry) -> Result<Appended, AppendError> {
        let mut answers = self.journal.append(vec![entry], self.clock.boot()).await;
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// The entry as a writer makes it that has seen every governance change.
    pub async fn up_to_date(&self, entry: Entry) -> Entry {
        Entry { governance_epoch: self.governance.epoch().await.unwrap().1, ..entry }
    }

    /// The run's row.
    pub async fn head(&self, run: RunKey) -> RunHead {
        self.journal.head(run).await.unwrap().unwrap()
    }

    /// A run that was given up with nothing to do.
    pub async fn parked(&self, number: u64, wake_at: Option<UnixMs>) -> RunHead {
        let head = self.run(number).await;
        let projection = Some(RunProjection { wake_at, ..projection() });
        let parked = self.append(Entry { park: true, projection, ..entry(&head) }).await.unwrap();
        assert_eq!(parked.head.owner, None);
        parked.head
    }

    /// Consumed and reserved units of a budget in force.
    pub async fn figures(&self, budget: &str) -> (i64, i64) {
        let meter = self.meter(budget).await;
        (meter.consumed.0 / 1_000_000, meter.reserved.0 / 1_000_000)
    }

    /// The meter of a budget in force.
    pub async fn meter(&self, budget: &str) -> Meter {
        let budgets = self.governance.budgets().await.unwrap();
        budgets.into_iter().find(|metered| metered.budget.budget_id.as_str() == budget).unwrap().meter
    }
}

pub fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

pub fn node(number: u64) -> NodeIncarnation {
    NodeIncarnation::new(uuid(1, number))
}

pub fn call(number: u64) -> CallId {
    CallId::new(uuid(2, number))
}

pub fn command_id(number: u64) -> CommandId {
    CommandId::new(uuid(3, number))
}

pub fn run_key(tenant: &str, number: u64) -> RunKey {
    // A version 7 UUID whose instant is the number: a later run has a greater key.
    let mut salt = [0; 10];
    salt[9] = tenant.bytes().fold(0, u8::wrapping_add);
    RunKey::new(uuid::Builder::from_unix_timestamp_millis(number, &salt).into_uuid())
}

fn uuid(kind: u64, number: u64) -> Uuid {
    Uuid::from_u64_pair(kind, number)
}

pub fn operator() -> ActorId {
    ActorId::new("ops").unwrap()
}

/// An ask that begins a sub-run of the run, numbered among all runs.
pub fn hand_off(head: &RunHead, number: u64) -> Ask {
    let mut run = new_run(head.tenant_id.as_str(), number);
    if let Some(RunEvent::RunSubmitted(submitted)) = run.events.first_mut().map(|new| &mut new.event) {
        submitted.parent_run_id = Some(head.run_id);
        submitted.handed_off = Some(Box::new(HandedOff {
            parent: Some(ParentLink { run_key: head.run_key, step_id: step("one") }),
            ancestors: vec![head.run_id],
            chain: vec![],
            depth_cap: 5,
            authority: Authority {
                tool_ids: Default::default(),
                max_fanout_degree: 4,
                capability_modifiers: Default::default(),
            },
            sub_budget: Micros::units(1),
        }));
    }
    Ask {
        events: vec![fact("handed off")],
        call_id: call(number),
        step_id: step("one"),
        target: target(head),
        sub_run: Some(Box::new(SubRun {
            run_key: run.run_key,
            run_id: run.run_id,
            tenant_id: run.tenant_id,
            events: run.events,
            projection: projection(),
        })),
    }
}

/// A run of `tenant`, born owned by [`node`]`(1)`.
pub fn new_run(tenant_name: &str, number: u64) -> NewRun {
    let (run_key, run_id) = (run_key(tenant_name, number), RunId::new(uuid(4, number)));
    let submitted = RunSubmitted {
        run_key,
        run_id,
        tenant_id: tenant(tenant_name),
        root_agent_id: AgentId::new("ref.research").unwrap(),
        root_agent_semver: "1.0.0".into(),
        agents: Default::default(),
        routing: None,
        parent_run_id: None,
        forked_from_run_id: None,
        pipeline_id: None,
        pipeline_semver: None,
        surface: "api".into(),
        mode: "balanced".into(),
        invocation: None,
        mode_bounds: None,
        submitted_by: Actor { actor_id: ActorId::new("ann").unwrap(), role: Role::Creator },
        scopes: vec![],
        plan: Plan { steps: vec![], max_parallel: None },
        inputs: json!({}),
        sealed: signalbox_domain::run::sealed::SealedPlan::default(),
        grants: vec![],
        budgets: vec![],
        provenance_bundle_id: "bundle".into(),
        submission_hash: "hash".into(),
        carried_outputs: vec![],
        handoff_rules: None,
        handed_off: None,
    };
    NewRun {
        run_key,
        run_id,
        tenant_id: tenant(tenant_name),
        events: vec![NewEvent::system(RunEvent::RunSubmitted(Box::new(submitted)))],
        projection: projection(),
        owner: Some(node(1)),
    }
}

pub fn projection() -> RunProjection {
    RunProjection {
        status: RunStatus::Running,
        closed: false,
        total_cost_micros: 0,
        percent: 0,
        waiting_for: None,
        wake_at: None,
        slow_at: None,
        has_warnings: false,
        words: String::new(),
        open_approvals: vec![],
        killed_by: None,
    }
}

/// An entry that says nothing, at the place and under the claim `head` shows.
pub fn entry(head: &RunHead) -> Entry {
    Entry {
        run_key: head.run_key,
        expected_seq: head.last_seq,
        lease_epoch: head.lease_epoch,
        control_seq: head.control_seq,
        governance_epoch: 0,
        facts: vec![],
        releases: vec![],
        asks: vec![],
        answers: vec![],
        projection: None,
        projection_if_asked: None,
        tells: vec![],
        below: None,
        park: false,
    }
}

/// An entry with one fact that says `text`.
pub fn saying(head: &RunHead, text: &str) -> Entry {
    Entry { facts: vec![fact(text)], ..entry(head) }
}

/// A fact that carries `text`.
pub fn fact(text: &str) -> NewEvent {
    NewEvent::system(RunEvent::StepSkipped {
        step_id: step("one"),
        label: None,
        reason: text.into(),
        branch_not_taken: false,
    })
}

pub fn step(name: &str) -> StepId {
    StepId::new(name).unwrap()
}

/// What every call here is aimed at: `source.fetch` for the run's tenant.
pub fn target(head: &RunHead) -> Target {
    Target {
        tenant_id: head.tenant_id.clone(),
        run_id: head.run_id,
        user_id: ActorId::new("ann").unwrap(),
        role: Role::Creator,
        agent_id: AgentId::new("ref.research").unwrap(),
        family: Some("research".into()),
        pipeline_id: None,
        tool_id: ToolId::new("source.fetch").unwrap(),
        provider_id: None,
        region: None,
    }
}

/// A request to admit call `number`, reserving cost units on these budgets.
pub fn ask(head: &RunHead, number: u64, reservations: &[(&str, i64)]) -> Ask {
    let reservations = reservations.iter().map(|(budget, units)| Reservation {
        budget_id: BudgetId::new(*budget).unwrap(),
        category: BudgetCategory::CostUnits,
        amount: Micros::units(*units),
    });
    let pending = CallPending {
        call_id: call(number),
        step_id: step("one"),
        stage_id: StageId::new("one").unwrap(),
        agent_id: target(head).agent_id,
        tool_id: target(head).tool_id,
        tool_semver: "1.0.0".into(),
        args_hash: "hash".into(),
        redacted_args: StoredValue::Inline(json!({})),
        secrets: std::collections::BTreeMap::new(),
        grant_id: GrantId::new("grant").unwrap(),
        attempt: 1,
        recovery: Recovery::Idempotent,
        estimated_usage: Usage::none(),
        reservations: reservations.collect(),
        scope_check_result_id: "scope".into(),
        capability_audit_ids: vec![],
        budget_warnings: vec![],
        requested_at_unix_ms: UnixMs(0),
        timeout_ms: 1_000,
        simulated: false,
        answers: Vec::new(),
        epoch: 0,
        meters: vec![],
    };
    Ask {
        call_id: pending.call_id,
        step_id: pending.step_id.clone(),
        target: target(head),
        events: vec![NewEvent::system(RunEvent::CallPending(Box::new(pending)))],
        sub_run: None,
    }
}

/// The settlement of a call that cost this many units.
pub fn settled(call_id: CallId, units: i64) -> NewEvent {
    NewEvent::system(RunEvent::CallSettled(Box::new(CallSettled {
        call_id,
        outcome: CallOutcome::Ok,
        output: None,
        error: None,
        measured_usage: None,
        charged: cost(units),
        evidence: None,
        effects: vec![],
        artifacts: vec![],
        latency_ms: 1,
        simulated: false,
        tone_note: None,
        meters: vec![],
    })))
}

pub fn cost(units: i64) -> Usage {
    Usage::of(BudgetCategory::CostUnits, Micros::units(units))
}

/// A hard budget in cost units for everything `acme` does.
pub fn budget(id: &str, limit: i64) -> Budget {
    Budget {
        budget_id: BudgetId::new(id).unwrap(),
        tenant_id: Some(tenant("acme")),
        scope: BudgetScope::Tenant,
        scope_key: "acme".into(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(limit),
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    }
}

/// A switch on one tool.
pub fn switch_on(tool: &str) -> GovernanceChange {
    GovernanceChange::SwitchArmed(KillSwitch {
        switch_id: SwitchId::new(format!("switch-{tool}")).unwrap(),
        tenant_id: None,
        scope: SwitchScope::Tool,
        target_id: Some(tool.into()),
        armed_by: operator(),
        armed_at_unix_ms: UnixMs(0),
        reason: "a drill".into(),
        user_visible_status_copy: "Stopped.".into(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    })
}

pub fn command(number: u64, class: CommandClass) -> InboxCommand {
    InboxCommand { command_id: command_id(number), class, body: format!("{{\"command\":{number}}}").into_bytes() }
}

pub fn yes(seq: u64) -> CommandAnswer {
    CommandAnswer { accepted: true, code: "ok".into(), message: "Done.".into(), seq }
}
