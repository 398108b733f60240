//! The gate: one pure function over one snapshot, in front of every tool call of every front door (ADM).
//!
//! It asks every stage and keeps every answer, so that `explain` can show all of them; the first objection in stage order
//! decides. Nothing is persisted, resolved or dispatched here: an [`Admissible`] call is admitted by the append alone,
//! which reads meters and governance again in its own transaction.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::catalog::CatalogEntry;
use crate::governance::budget::MeteredBudget;
use crate::governance::change::GovernanceState;
use crate::governance::cost;
use crate::governance::grant::{Grant, GrantQuery, resolve_grant};
use crate::governance::isolation::{HostExemption, IsolationGround, SecretRule, check_isolation, touches};
use crate::governance::kill_switch::decide_execution;
use crate::governance::nearest::{instant, nearest_grant};
use crate::governance::target::Target;
use crate::governance::throttle::Throttled;
use crate::ids::{GrantId, SecretId};
use crate::mode::{SIMULATED_CODE, is_simulated};
use crate::quantity::{BudgetCategory, Micros, Usage};
use crate::registry::family_meta;
use crate::run::model_step::is_turn;
use crate::time::UnixMs;

pub use crate::governance::verdict::{
    Admissible, BUDGET_EXHAUSTED_STATUS_COPY, Blame, HoldReason, Simulated, Verdict, exceeded_by_store,
};

/// The stages, in the order in which the first objection decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Can the store be asked, and is the snapshot current?
    Governance,
    /// Has a pause, cancel or kill arrived; is a switch armed?
    Safety,
    /// Is the tool known, configured, in the family's ceiling and in the caller's scopes?
    Tool,
    /// Is there a live grant, and has the step's gate let exactly this call through?
    Grant,
    /// Do secrets, paths, hosts and methods lie inside the grant?
    Isolation,
    /// Can it be paid for?
    Cost,
    /// Is it too fast?
    Rate,
}

impl Stage {
    /// All seven, in order.
    pub const ALL: [Self; 7] =
        [Self::Governance, Self::Safety, Self::Tool, Self::Grant, Self::Isolation, Self::Cost, Self::Rate];
}

/// What one stage said, kept for `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StageAnswer {
    /// Which stage.
    pub stage: Stage,
    /// True if it had nothing against the call.
    pub passed: bool,
    /// Stable code: `ok`, `warn`, or the reason of the objection.
    pub code: Cow<'static, str>,
    /// In words: what it found, and the smallest change that would have let the call through.
    pub detail: Cow<'static, str>,
}

/// What has arrived for the run and not been applied yet (ADM-011).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ControlState {
    /// Nothing.
    #[default]
    None,
    /// A pause: the run is held.
    Paused,
    /// A cancel or kill: the run is over, or about to be.
    Ending,
}

/// One call that wants to be made.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// What it is aimed at.
    pub target: &'a Target,
    /// The agent's own entry declares the tool; a reference agent declares all that its family may use (REG-007).
    pub declared: bool,
    /// The tool's catalog entry; `None` if it has none.
    pub tool: Option<&'a CatalogEntry>,
    /// The version an executor serves; `None` if none does.
    pub configured_semver: Option<&'a str>,
    /// The scopes of the caller's credential.
    pub scopes: &'a [String],
    /// The arguments, bound and unredacted.
    pub args: &'a Value,
    /// The secrets at the handles in the arguments, by JSON Pointer.
    pub secrets: &'a BTreeMap<String, SecretId>,
    /// Why the step's gate does not let exactly this call through; `None` if it does, or if the step has no gate.
    pub unapproved: Option<&'a str>,
    /// The step names a gate that must let it through.
    pub guarded: bool,
    /// What has arrived for the run.
    pub control: ControlState,
    /// The call was admitted before and is to be sent again under the reservation it still holds (I2): it neither asks
    /// for money nor counts as a use of its grant once more.
    pub redispatch: bool,
    /// The run is a rehearsal: what could have an effect is never admitted, whoever has granted it, and what is done is
    /// booked on no budget that runs share (I12).
    pub rehearsal: bool,
    /// Now.
    pub now: UnixMs,
}

impl Attempt<'_> {
    /// True if a stand-in answers the call. A tool that nobody knows may do anything; and what an approval guards is not
    /// done where nobody is asked.
    fn is_simulated(&self) -> bool {
        self.rehearsal && (self.guarded || self.tool.is_none_or(is_simulated))
    }
}

/// What the gate decides on: values that belong together.
#[derive(Debug, Clone)]
pub struct Snapshot<'a> {
    /// The store can be asked, and the state is of its epoch.
    pub governance_current: bool,
    /// Switches, shared grants and bucket rules.
    pub state: &'a GovernanceState,
    /// Budgets that runs share, with what their meters last showed: a forecast.
    pub shared_budgets: &'a [MeteredBudget],
    /// Budgets of this run alone, folded from its journal: exact.
    pub run_budgets: &'a [MeteredBudget],
    /// Grants of this run alone.
    pub run_grants: &'a [Grant],
    /// How often each grant was used.
    pub grant_uses: &'a BTreeMap<GrantId, u64>,
    /// What the node's buckets said, asked just before.
    pub throttled: Option<Throttled>,
    /// Hosts that may lie inside, by the operator's configuration.
    pub exempt: &'a [HostExemption],
    /// Who may use which secret, by the operator's configuration.
    pub secrets: &'a [SecretRule],
}

/// What the gate says.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What follows.
    pub verdict: Verdict,
    /// What every stage answered, in stage order.
    pub answers: Vec<StageAnswer>,
}

impl Decision {
    /// The answer that decided; `None` if no stage objected.
    pub fn objection(&self) -> Option<&StageAnswer> {
        self.answers.iter().find(|answer| !answer.passed)
    }
}

/// Checks of a call that reaches no host.
const CHECKS_INSIDE: [&str; 3] = ["grant", "secret", "isolation"];
/// Checks of a call that does: the second phase happens where the connection is made.
const CHECKS_EGRESS: [&str; 5] = ["grant", "secret", "isolation", "egress-1", "egress-2"];

/// What a stage that has nothing against the call says.
pub(super) struct Pass {
    pub(super) code: &'static str,
    pub(super) detail: Cow<'static, str>,
}

impl Pass {
    pub(super) const fn ok(detail: &'static str) -> Self {
        Self { code: "ok", detail: Cow::Borrowed(detail) }
    }
}

/// What the stages say that a call which nobody makes never comes to.
const NOT_ASKED: Pass =
    Pass { code: "not-asked", detail: Cow::Borrowed("a stand-in costs nothing and waits for nobody") };

/// What a stage that objects says.
pub(super) struct Objection {
    pub(super) code: &'static str,
    pub(super) detail: String,
    pub(super) verdict: Verdict,
}

impl Objection {
    fn deny(code: &'static str, message: String) -> Self {
        Self { code, detail: message.clone(), verdict: Verdict::Deny { code, message } }
    }
    fn hold(reason: HoldReason, detail: &str) -> Self {
        Self { code: reason.code(), detail: detail.to_owned(), verdict: Verdict::Hold { reason } }
    }
}

/// The answers so far and the first objection.
struct Record {
    answers: Vec<StageAnswer>,
    verdict: Option<Verdict>,
}

impl Record {
    fn note(&mut self, stage: Stage, answer: Result<Pass, Objection>) {
        let (passed, code, detail) = match answer {
            Ok(pass) => (true, pass.code, pass.detail),
            Err(objection) => {
                self.verdict.get_or_insert(objection.verdict);
                (false, objection.code, objection.detail.into())
            }
        };
        self.answers.push(StageAnswer { stage, passed, code: code.into(), detail });
    }
}

/// Asks every stage about one call.
pub fn gate(attempt: &Attempt<'_>, snapshot: &Snapshot<'_>) -> Decision {
    let mut record = Record { answers: Vec::with_capacity(Stage::ALL.len()), verdict: None };
    record.note(Stage::Governance, governance(snapshot));
    record.note(Stage::Safety, safety(attempt, snapshot));
    record.note(Stage::Tool, tool(attempt));
    let grant = match grant(attempt, snapshot) {
        Ok(grant) => rehearsed(attempt, Some(grant)),
        Err(_) if attempt.is_simulated() => rehearsed(attempt, None),
        Err(denied) => Err(denied),
    };
    let granted = grant.as_ref().ok().copied();
    record.note(Stage::Grant, grant.map(|_| Pass::ok("a live grant allows this tool")));
    let (isolated, capability_checks) = isolation(attempt, snapshot, granted);
    record.note(Stage::Isolation, isolated);
    let ceiling = ceiling(attempt, granted);
    let (paid, bill) = cost::check(attempt, snapshot, &ceiling);
    record.note(Stage::Cost, if attempt.is_simulated() { Ok(NOT_ASKED) } else { paid });
    record.note(Stage::Rate, if attempt.is_simulated() { Ok(NOT_ASKED) } else { rate(snapshot) });
    let verdict = record.verdict.unwrap_or_else(|| match (granted, attempt.tool, attempt.configured_semver) {
        (Some(grant), Some(tool), Some(semver)) => Verdict::Admit(Box::new(Admissible {
            grant: grant.clone(),
            tool_semver: semver.to_owned(),
            ceiling,
            reservations: bill.reservations,
            budget_warnings: bill.warnings,
            capability_checks,
            recovery: tool.recovery,
            timeout_ms: tool.timeout_ms,
        })),
        // Without an objection all three are there; if not, the call is not made.
        (_, _, _) => Verdict::Hold { reason: HoldReason::GovernanceStale },
    });
    Decision { verdict, answers: record.answers }
}

fn governance(snapshot: &Snapshot<'_>) -> Result<Pass, Objection> {
    if snapshot.governance_current {
        return Ok(Pass::ok("the governance state is current"));
    }
    Err(Objection::hold(
        HoldReason::GovernanceStale,
        "the store cannot be asked whether anything has changed; the call waits until it can",
    ))
}

/// A switch comes before everything else (ADM-003), also before a pause: a paused run is to be killed too.
fn safety(attempt: &Attempt<'_>, snapshot: &Snapshot<'_>) -> Result<Pass, Objection> {
    if let Some(switch) = decide_execution(&snapshot.state.switches, attempt.target, attempt.now) {
        let detail = format!(
            "the {} switch `{}` is armed by `{}` since {} (epoch {}): {}; disarm it",
            switch.scope.as_str(),
            switch.switch_id,
            switch.armed_by,
            instant(switch.armed_at_unix_ms),
            snapshot.state.epoch,
            switch.reason
        );
        return Err(Objection {
            code: "kill-switch",
            detail,
            verdict: Verdict::Kill(Blame::Switch(Box::new(switch.clone()))),
        });
    }
    match attempt.control {
        ControlState::None => Ok(Pass::ok("no switch in force matches, and no pause, cancel or kill has arrived")),
        ControlState::Paused => Err(Objection::hold(HoldReason::RunPaused, "the run is paused; resume it")),
        ControlState::Ending => {
            Err(Objection::hold(HoldReason::RunTerminal, "a cancel or kill has arrived; submit the run anew"))
        }
    }
}

/// In the catalog, served by an executor, inside the family's ceiling, covered by the caller's scopes (ADM-022).
fn tool(attempt: &Attempt<'_>) -> Result<Pass, Objection> {
    const NOT_CONFIGURED: &str = "agent_tools_not_configured";
    let target = attempt.target;
    let tool_id = &target.tool_id;
    let Some(tool) = attempt.tool else {
        return Err(Objection::deny(
            NOT_CONFIGURED,
            format!("`{tool_id}` is not in the tool catalog; use a tool that is"),
        ));
    };
    // What a stand-in answers needs nobody to serve it.
    if attempt.configured_semver.is_none() && !attempt.is_simulated() {
        let detail = if is_turn(tool_id) {
            let provider = target.provider_id.as_ref().map_or("none", |provider| provider.as_str());
            format!(
                "no model of provider `{provider}` is configured that the agent is bound to; add it under [[models]]"
            )
        } else {
            format!("no executor serves `{tool_id}`; configure one that does")
        };
        return Err(Objection::deny(NOT_CONFIGURED, detail));
    }
    let agent = &target.agent_id;
    match target.family.as_deref().map(|family| (family, family_meta(family))) {
        // Every agent has a model (REG-042): what its family may use says nothing of that.
        Some((_, Some(_))) if is_turn(tool_id) => {}
        Some((_, Some(meta))) if meta.allows(tool_id) && attempt.declared => {}
        Some((_, Some(meta))) if meta.allows(tool_id) => {
            let detail = format!("agent `{agent}` does not declare `{tool_id}`; publish a version of it that does");
            return Err(Objection::deny(NOT_CONFIGURED, detail));
        }
        Some((family, _)) => {
            let detail = format!(
                "`{tool_id}` is outside the ceiling of family `{family}`, to which agent `{agent}` belongs; give the step an agent whose family may use it"
            );
            return Err(Objection::deny(NOT_CONFIGURED, detail));
        }
        None => {
            let detail = format!("agent `{agent}` is not registered; give the step a registered agent");
            return Err(Objection::deny(NOT_CONFIGURED, detail));
        }
    }
    if let Some(missing) = tool.required_scopes.iter().find(|scope| !attempt.scopes.contains(scope)) {
        let detail = format!("the caller's credential lacks the scope `{missing}`; issue one that has it");
        return Err(Objection::deny("tool_scope_missing", detail));
    }
    Ok(Pass::ok("the tool is configured, and family and scopes cover it"))
}

/// The grant is resolved anew for each call (ADM-012).
fn grant<'a>(attempt: &Attempt<'_>, snapshot: &Snapshot<'a>) -> Result<&'a Grant, Objection> {
    let target = attempt.target;
    let mut text = Uuid::encode_buffer();
    let run: &str = target.run_id.uuid().hyphenated().encode_lower(&mut text);
    let query = GrantQuery {
        tenant_id: &target.tenant_id,
        tool_id: &target.tool_id,
        tool_semver: attempt.configured_semver.or(attempt.tool.map(|tool| tool.semver.as_str())).unwrap_or_default(),
        run_id: target.run_id,
        user_id: &target.user_id,
        session_id: None,
        // An instance of a pipeline is the run it began with.
        pipeline_instance: target.pipeline_id.as_ref().map(|_| run),
    };
    let grants = || snapshot.run_grants.iter().chain(&snapshot.state.grants);
    let grant = resolve_grant(grants(), &query, attempt.now).map_err(|reason| {
        let near = nearest_grant(grants(), &query, attempt.now);
        let near = near.map(|near| format!(" ({})", near.in_words())).unwrap_or_default();
        let detail = format!(
            "{reason} for `{}` {} in tenant `{}` and run `{run}`{near}; issue one",
            target.tool_id, query.tool_semver, target.tenant_id
        );
        Objection::deny(reason.code(), detail)
    })?;
    let used = snapshot.grant_uses.get(&grant.grant_id).copied().unwrap_or(0);
    match grant.constraints.max_calls {
        Some(max) if used >= max && !attempt.redispatch => {
            let detail =
                format!("the grant `{}` allows {max} calls and all are used; raise `maxCalls`", grant.grant_id);
            return Err(Objection::deny("grant-calls-used-up", detail));
        }
        Some(_) | None => {}
    }
    match attempt.unapproved {
        Some(detail) => Err(Objection::deny("action-not-approved", detail.to_owned())),
        None => Ok(grant),
    }
}

/// In a rehearsal no grant lets a call with an effect through, be it there or not: it is answered by a stand-in (MOD-007).
/// The answer says what a real run would have been told.
fn rehearsed<'a>(attempt: &Attempt<'_>, grant: Option<&'a Grant>) -> Result<&'a Grant, Objection> {
    let granted = match grant {
        Some(grant) if !attempt.is_simulated() => return Ok(grant),
        Some(grant) => format!("a real run would make it under the grant `{}`", grant.grant_id),
        None => "a real run would need a grant for it that is not there yet".to_owned(),
    };
    let detail = format!("a stand-in answers `{}` in a rehearsal; {granted}", attempt.target.tool_id);
    let semver = attempt.configured_semver.or(attempt.tool.map(|tool| tool.semver.as_str())).unwrap_or_default();
    let simulated = Simulated {
        tool_semver: semver.to_owned(),
        ceiling: ceiling(attempt, None),
        timeout_ms: attempt.tool.map_or(0, |tool| tool.timeout_ms),
    };
    Err(Objection { code: SIMULATED_CODE, detail, verdict: Verdict::Simulate(Box::new(simulated)) })
}

fn isolation(
    attempt: &Attempt<'_>,
    snapshot: &Snapshot<'_>,
    grant: Option<&Grant>,
) -> (Result<Pass, Objection>, &'static [&'static str]) {
    let Some(grant) = grant else {
        let pass = Pass { code: "not-asked", detail: Cow::Borrowed("there is no grant whose bounds could be checked") };
        return (Ok(pass), &CHECKS_INSIDE);
    };
    let touches = touches(&attempt.target.tool_id, attempt.args, attempt.secrets);
    let checks: &'static [&'static str] = if touches.urls.is_empty() { &CHECKS_INSIDE } else { &CHECKS_EGRESS };
    let ground = IsolationGround { target: attempt.target, secrets: snapshot.secrets, exempt: snapshot.exempt };
    let answer = match check_isolation(&touches, &grant.constraints, &ground) {
        Ok(()) => Ok(Pass::ok("secrets, files and hosts lie inside the grant")),
        Err(denial) => Err(Objection::deny(denial.code(), denial.to_string())),
    };
    (answer, checks)
}

/// The ceiling of the catalog entry, or the grant's where that is tighter.
fn ceiling(attempt: &Attempt<'_>, grant: Option<&Grant>) -> Usage {
    let ceiling = attempt.tool.map(|tool| tool.ceiling.clone()).unwrap_or_default();
    match grant.and_then(|grant| grant.constraints.max_cost_units) {
        Some(max) if max < ceiling.get(BudgetCategory::CostUnits) => {
            ceiling.with(BudgetCategory::CostUnits, max.max(Micros::ZERO))
        }
        Some(_) | None => ceiling,
    }
}

fn rate(snapshot: &Snapshot<'_>) -> Result<Pass, Objection> {
    let Some(throttled) = &snapshot.throttled else { return Ok(Pass::ok("no bucket is empty")) };
    let detail = format!(
        "the bucket `{}` is empty; the call goes on by itself in {} s",
        throttled.bucket_id, throttled.retry_after_seconds
    );
    Err(Objection { code: "throttled", detail, verdict: Verdict::Throttle(throttled.clone()) })
}
