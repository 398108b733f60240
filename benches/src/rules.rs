//! Plain values for the benches of the rules: a large installation around one call, and the journal of a run.

use std::collections::BTreeMap;
use std::io::Write as _;

use serde_json::{Value, json};
use signalbox_domain::catalog::{self, CatalogEntry};
use signalbox_domain::governance::budget::{Budget, BudgetScope, MeteredBudget, OnExceeded};
use signalbox_domain::governance::change::GovernanceState;
use signalbox_domain::governance::gate::{Admissible, Attempt, ControlState, Snapshot, Verdict, gate};
use signalbox_domain::governance::grant::{Constraints, Grant, GrantScope};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::governance::target::Target;
use signalbox_domain::governance::throttle::BucketRule;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, AgentId, BucketId, BudgetId, GrantId, RunId, RunKey, SwitchId, TenantId, ToolId};
use signalbox_domain::invocation::ToneVerdict;
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::advance::advance;
use signalbox_domain::run::append::{NewEvent, RunHead, stamp};
use signalbox_domain::run::call::{self, Prepared};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{RunEvent, StoredValue};
use signalbox_domain::run::evolve::{evolve, submitted_run};
use signalbox_domain::run::settle::{Ended, settle};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_domain::run::submission::{Submitter, accept, mint_grants, parse};
use signalbox_domain::time::UnixMs;
use uuid::Uuid;

pub use crate::load::Failure;
use crate::load::drive::plan;
use crate::load::executor::{AGENT, TOOL};

/// When everything happens.
pub const NOW: UnixMs = UnixMs(1_800_000_000_000);

const TENANT: &str = "acme";

/// Writes a line beside the benches' own.
pub fn say(line: &str) {
    // Without an output there is nobody to read it.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// An installation with 100 switches, 20 meters, 50 grants and 10 buckets, and a call in it that is admitted.
#[derive(Debug)]
pub struct Place {
    state: GovernanceState,
    budgets: Vec<MeteredBudget>,
    run_grants: Vec<Grant>,
    uses: BTreeMap<GrantId, u64>,
    secrets: BTreeMap<String, signalbox_domain::ids::SecretId>,
    scopes: Vec<String>,
    args: Value,
    target: Target,
    tool: Option<&'static CatalogEntry>,
}

impl Place {
    /// Builds it.
    pub fn large() -> Result<Self, Failure> {
        let tool_id = ToolId::new(TOOL)?;
        let run = Uuid::from_u128(7).to_string();
        let mut state = GovernanceState::default();
        for n in 0..100 {
            let scopes = [SwitchScope::Agent, SwitchScope::Tenant, SwitchScope::Tool, SwitchScope::Provider];
            state.switches.push(switch(n, scopes[n % scopes.len()])?);
        }
        for n in 0..50 {
            // Half are for other tools, as it is where grants are shared.
            let tool = if n % 2 == 0 { tool_id.clone() } else { ToolId::new("memory.read")? };
            let (scope, key) =
                if n % 5 == 0 { (GrantScope::PerTenant, TENANT.to_owned()) } else { (GrantScope::PerRun, run_of(n)) };
            state.grants.push(grant(&format!("g{n}"), scope, key, tool)?);
        }
        for n in 0..10 {
            state.buckets.push(BucketRule {
                bucket_id: BucketId::new(format!("b{n}"))?,
                tenant_id: Some(TenantId::new(format!("t{n}"))?),
                tool_id: None,
                user_id: None,
                provider_id: None,
                agent_id: None,
                per: Vec::new(),
                capacity: Micros::units(50),
                refill_per_second: Micros::units(10),
            });
        }
        // Four meters apply: the tenant's, the agent's, the tool's, the user's.
        let scopes = [
            (BudgetScope::Tenant, TENANT),
            (BudgetScope::Agent, AGENT),
            (BudgetScope::Tool, TOOL),
            (BudgetScope::User, "ada"),
        ];
        let mut budgets = Vec::new();
        for n in 0..20 {
            let (scope, key) = scopes[n % scopes.len()];
            let key = if n < scopes.len() { key.to_owned() } else { format!("other{n}") };
            budgets.push(MeteredBudget::unused(budget(n, scope, key)?));
        }
        Ok(Self {
            state,
            budgets,
            run_grants: vec![grant("own", GrantScope::PerRun, run, tool_id.clone())?],
            uses: BTreeMap::new(),
            secrets: BTreeMap::new(),
            scopes: vec![format!("tool:{TOOL}")],
            args: json!({ "step": 3 }),
            target: Target {
                tenant_id: TenantId::new(TENANT)?,
                run_id: RunId::new(Uuid::from_u128(7)),
                user_id: ActorId::new("ada")?,
                role: Role::Service,
                agent_id: AgentId::new(AGENT)?,
                family: Some("study-plan-synthesis".to_owned()),
                pipeline_id: None,
                tool_id: tool_id.clone(),
                provider_id: None,
                region: None,
            },
            tool: catalog::entry(&tool_id),
        })
    }

    /// The call.
    pub fn attempt(&self) -> Attempt<'_> {
        Attempt {
            target: &self.target,
            tool: self.tool,
            configured_semver: Some("1.0.0"),
            scopes: &self.scopes,
            args: &self.args,
            secrets: &self.secrets,
            unapproved: None,
            control: ControlState::None,
            redispatch: false,
            declared: true,
            rehearsal: false,
            guarded: false,
            now: NOW,
        }
    }

    /// What it is judged by.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            governance_current: true,
            state: &self.state,
            shared_budgets: &self.budgets,
            run_budgets: &[],
            run_grants: &self.run_grants,
            grant_uses: &self.uses,
            throttled: None,
            exempt: &[],
            secrets: &[],
        }
    }
}

fn run_of(n: usize) -> String {
    Uuid::from_u128(1_000 + n as u128).to_string()
}

fn switch(n: usize, scope: SwitchScope) -> Result<KillSwitch, Failure> {
    Ok(KillSwitch {
        switch_id: SwitchId::new(format!("s{n}"))?,
        tenant_id: None,
        scope,
        target_id: Some(format!("other{n}")),
        armed_by: ActorId::new("operator")?,
        armed_at_unix_ms: UnixMs(1_000),
        reason: "a bench".to_owned(),
        user_visible_status_copy: "stopped".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    })
}

fn grant(id: &str, scope: GrantScope, scope_key: String, tool_id: ToolId) -> Result<Grant, Failure> {
    Ok(Grant {
        grant_id: GrantId::new(id)?,
        scope,
        scope_key,
        tenant_id: TenantId::new(TENANT)?,
        tool_id,
        tool_range: "^1.0.0".to_owned(),
        constraints: Constraints::default(),
        delegable: None,
        issued_by: ActorId::new("operator")?,
        issued_at_unix_ms: UnixMs(1_000),
        expires_at_unix_ms: Some(UnixMs(NOW.0 + 1_000)),
        revoked_at_unix_ms: None,
        rationale: "a bench".to_owned(),
        audit_event_id: "audit".to_owned(),
        renewed_from_grant_id: None,
    })
}

fn budget(n: usize, scope: BudgetScope, scope_key: String) -> Result<Budget, Failure> {
    Ok(Budget {
        budget_id: BudgetId::new(format!("m{n:02}"))?,
        tenant_id: if scope == BudgetScope::Tenant { None } else { Some(TenantId::new(TENANT)?) },
        scope,
        scope_key,
        category: BudgetCategory::CostUnits,
        limit: Micros::units(1_000_000),
        calendar: None,
        period_seconds: Some(86_400),
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros::units(1),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    })
}

/// A run of sequential calls, from its submission to its end.
#[derive(Debug)]
pub struct History {
    /// Its journal.
    pub events: Vec<StoredEvent>,
    half: Option<HalfWay>,
}

/// The run in the middle: a call is out, and has just ended.
#[derive(Debug, Clone)]
pub struct HalfWay {
    /// As it stands.
    pub run: RunEnvelope,
    /// What has come back.
    pub ended: Ended,
    /// The event that will say so.
    pub settled: RunEvent,
    /// The call as it was asked about.
    pub prepared: Prepared,
    /// And as it was let through.
    pub admissible: Admissible,
}

/// Writes events into a journal and folds them in.
struct Writer {
    head: RunHead,
    run: RunEnvelope,
    events: Vec<StoredEvent>,
}

impl Writer {
    fn write(&mut self, news: &[NewEvent]) {
        for new in news {
            self.events.push(stamp(&mut self.head, NOW.micros(), new));
            evolve(&mut self.run, NOW.micros(), &new.event);
        }
    }
}

impl History {
    /// A run of so many calls, one after another.
    pub fn of(calls: usize) -> Result<Self, Failure> {
        let mut writer = begin(calls)?;
        let mut half = None;
        writer.write(&advance(&writer.run, NOW));
        for n in 0..calls {
            let (prepared, admissible) = next_call(&writer.run)?;
            writer.write(&call::admit(&prepared, &admissible, NOW).events);
            let ending = CallEnding::Answered {
                output: json!({ "pad": "x".repeat(88) }),
                partial: false,
                evidence: None,
                artifacts: Vec::new(),
                effects: Vec::new(),
            };
            let output = StoredValue::Inline(json!({ "pad": "x".repeat(88) }));
            let result = CallResult { ending, measured: None, latency_ms: 1 };
            let ended =
                Ended { call_id: prepared.call_id, result, stored_output: Some(output), tone: ToneVerdict::Pass };
            let (events, _) = settle(&writer.run, &ended, NOW);
            if n == calls / 2 {
                let settled = events.first().ok_or("nothing was settled")?.event.clone();
                half = Some(HalfWay { run: writer.run.clone(), ended, settled, prepared, admissible });
            }
            writer.write(&events);
            writer.write(&advance(&writer.run, NOW));
        }
        Ok(Self { events: writer.events, half })
    }

    /// The run in the middle.
    pub fn half_way(&self) -> Result<HalfWay, Failure> {
        Ok(self.half.clone().ok_or("the run has no call")?)
    }
}

fn begin(calls: usize) -> Result<Writer, Failure> {
    let submission = json!({ "rootAgentId": AGENT, "plan": plan(calls, 1), "inputs": { "week": 12 } });
    let submitter = Submitter {
        run_key: RunKey::new(Uuid::from_u128(1)),
        run_id: RunId::new(Uuid::from_u128(2)),
        tenant_id: TenantId::new(TENANT)?,
        actor: Actor { actor_id: ActorId::new("ada")?, role: Role::Service },
        scopes: vec![format!("tool:{TOOL}")],
        surface: "api".to_owned(),
    };
    let mut submitted = accept(parse(submission.to_string().as_bytes())?, submitter, Vec::new())?;
    submitted.grants.extend(mint_grants(&submitted, NOW));
    let mut head = RunHead {
        run_key: submitted.run_key,
        run_id: submitted.run_id,
        tenant_id: submitted.tenant_id.clone(),
        owner: None,
        lease_epoch: 1,
        last_seq: 0,
        last_hash: EventHash::ZERO,
        last_at: NOW.micros(),
        control_seq: 0,
        inbox_len: 0,
        closed: false,
    };
    let run = submitted_run(&submitted, NOW.micros());
    let first = NewEvent::system(RunEvent::RunSubmitted(Box::new(submitted)));
    let events = vec![stamp(&mut head, NOW.micros(), &first)];
    Ok(Writer { head, run, events })
}

fn next_call(run: &RunEnvelope) -> Result<(Prepared, Admissible), Failure> {
    let index = run.ready_to_bind(NOW).first().copied().ok_or("no step is ready")?;
    let step = run.plan.steps[index].clone();
    let target = run.target_of(&step).ok_or("the step makes no call")?;
    let args = json!({ "step": index });
    let prepared = Prepared {
        call_id: run.next_call_id(&step),
        step,
        target,
        args: args.clone(),
        args_hash: signalbox_domain::canonical::digest(&args)?,
        redacted_args: StoredValue::Inline(args),
        secrets: BTreeMap::new(),
    };
    let attempt = Attempt {
        target: &prepared.target,
        tool: catalog::entry(&prepared.target.tool_id),
        configured_semver: Some("1.0.0"),
        scopes: &run.scopes,
        args: &prepared.args,
        secrets: &prepared.secrets,
        unapproved: None,
        control: ControlState::None,
        redispatch: false,
        declared: true,
        rehearsal: false,
        guarded: false,
        now: NOW,
    };
    let snapshot = Snapshot {
        governance_current: true,
        state: &GovernanceState::default(),
        shared_budgets: &[],
        run_budgets: &run.run_budgets,
        run_grants: &run.grants,
        grant_uses: &run.grant_uses,
        throttled: None,
        exempt: &[],
        secrets: &[],
    };
    let verdict = gate(&attempt, &snapshot).verdict;
    let Verdict::Admit(admissible) = verdict else {
        return Err(format!("the call is not admitted: {}", verdict.outcome()).into());
    };
    Ok((prepared, *admissible))
}
