//! The gate: one pure function over one snapshot, in front of every tool call of every front door (ADM).

use serde::{Deserialize, Serialize};

/// The stages, in the order in which the first objection decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Can the store be asked, and is the snapshot current?
    Governance,
    /// Has a pause, cancel or kill arrived; is a switch armed?
    Safety,
    /// Is the tool known, configured, in the family's ceiling and in the caller's scopes?
    Tool,
    /// Is there a live grant?
    Grant,
    /// Do secrets, paths, hosts and methods lie inside the grant?
    Isolation,
    /// Can it be paid for?
    Cost,
    /// Is it too fast?
    Rate,
}

/// What one stage said, kept for `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageAnswer {
    /// Which stage.
    pub stage: Stage,
    /// True if it had nothing against the call.
    pub passed: bool,
    /// Stable code: `ok`, `warn`, or the reason of the objection.
    pub code: String,
    /// In words: what it found, and the smallest change that would have let the call through.
    pub detail: String,
}

use crate::catalog::{CatalogEntry, Recovery};
use crate::governance::budget::{MeterReading, MeteredBudget};
use crate::governance::change::GovernanceState;
use crate::governance::grant::Grant;
use crate::governance::kill_switch::KillSwitch;
use crate::governance::target::Target;
use crate::governance::throttle::Throttled;
use crate::ids::{BudgetId, GrantId};
use crate::quantity::Usage;
use crate::run::event::{BudgetWarning, Reservation};
use crate::time::UnixMs;
use serde_json::Value;
use std::collections::BTreeMap;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlState {
    None,
    Paused,
    Ending,
}
pub struct Attempt<'a> {
    pub target: &'a Target,
    pub tool: Option<&'a CatalogEntry>,
    pub configured_semver: Option<&'a str>,
    pub scopes: &'a [String],
    pub args: &'a Value,
    pub control: ControlState,
    pub now: UnixMs,
}
pub struct Snapshot<'a> {
    pub governance_current: bool,
    pub state: &'a GovernanceState,
    pub shared_budgets: &'a [MeteredBudget],
    pub run_budgets: &'a [MeteredBudget],
    pub run_grants: &'a [Grant],
    pub grant_uses: &'a BTreeMap<GrantId, u64>,
    pub throttled: Option<Throttled>,
}
pub struct Decision {
    pub verdict: Verdict,
    pub answers: Vec<StageAnswer>,
}
pub enum Verdict {
    Admit(Admissible),
    Deny { code: String, message: String },
    Kill(Blame),
    Pause { budget_id: BudgetId, readings: Vec<MeterReading> },
    Throttle(Throttled),
    Hold { reason: String },
}
pub enum Blame {
    Switch(KillSwitch),
    Budget { budget_id: BudgetId, readings: Vec<MeterReading> },
}
pub struct Admissible {
    pub grant: Grant,
    pub tool_semver: String,
    pub ceiling: Usage,
    pub reservations: Vec<Reservation>,
    pub budget_warnings: Vec<BudgetWarning>,
    pub recovery: Recovery,
    pub timeout_ms: u64,
}

pub fn gate(a: &Attempt<'_>, s: &Snapshot<'_>) -> Decision {
    let v = |verdict| Decision { verdict, answers: vec![] };
    if !s.governance_current {
        return v(Verdict::Hold { reason: "governance-stale".into() });
    }
    if let Some(sw) = crate::governance::kill_switch::decide_execution(&s.state.switches, a.target, a.now) {
        return v(Verdict::Kill(Blame::Switch(sw.clone())));
    }
    let (Some(tool), Some(semver)) = (a.tool, a.configured_semver) else {
        return v(Verdict::Deny { code: "agent_tools_not_configured".into(), message: "x".into() });
    };
    let fam = a.target.family.as_deref().and_then(crate::registry::family_meta);
    if !fam.is_some_and(|f| f.allows(&a.target.tool_id)) {
        return v(Verdict::Deny { code: "agent_tools_not_configured".into(), message: "x".into() });
    }
    let q = crate::governance::grant::GrantQuery {
        tenant_id: &a.target.tenant_id,
        tool_id: &a.target.tool_id,
        tool_semver: semver,
        run_id: a.target.run_id,
        user_id: &a.target.user_id,
        session_id: None,
        pipeline_instance: None,
    };
    let g = match crate::governance::grant::resolve_grant(s.run_grants.iter().chain(s.state.grants.iter()), &q, a.now) {
        Ok(g) => g,
        Err(e) => return v(Verdict::Deny { code: e.code().into(), message: "x".into() }),
    };
    let mut reservations = vec![];
    for b in s.run_budgets.iter().chain(s.shared_budgets) {
        let amt = tool.ceiling.get(b.budget.category);
        if amt == crate::quantity::Micros::ZERO || !crate::governance::budget::applies(&b.budget, a.target) {
            continue;
        }
        let own = s.run_budgets.iter().any(|o| o.budget.budget_id == b.budget.budget_id);
        if own
            && crate::governance::budget::check_budget(&b.budget, &b.meter, amt, a.now.0 / 1000)
                == crate::governance::budget::BudgetVerdict::Exceeded
        {
            return v(Verdict::Kill(Blame::Budget {
                budget_id: b.budget.budget_id.clone(),
                readings: vec![b.reading(amt)],
            }));
        }
        reservations.push(Reservation {
            budget_id: b.budget.budget_id.clone(),
            category: b.budget.category,
            amount: amt,
        });
    }
    if let Some(t) = &s.throttled {
        return v(Verdict::Throttle(t.clone()));
    }
    v(Verdict::Admit(Admissible {
        grant: g.clone(),
        tool_semver: semver.into(),
        ceiling: tool.ceiling.clone(),
        reservations,
        budget_warnings: vec![],
        recovery: tool.recovery,
        timeout_ms: tool.timeout_ms,
    }))
}
pub fn exceeded_by_store(b: &[MeteredBudget], id: BudgetId, readings: Vec<MeterReading>) -> Verdict {
    match b.iter().find(|x| x.budget.budget_id == id).map(|x| x.budget.on_exceeded) {
        Some(crate::governance::budget::OnExceeded::Pause) => Verdict::Pause { budget_id: id, readings },
        _ => Verdict::Kill(Blame::Budget { budget_id: id, readings }),
    }
}
