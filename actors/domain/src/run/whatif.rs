//! What if? Recorded runs, decided again under other budgets, switches or grants: which would have stopped, where, and why.
//!
//! The gate is a pure function, and what it decided on is in the journals: what a call was aimed at, what it reserved and what
//! it was charged. So every admission is asked about anew, in the order in which all of them happened, by the same functions
//! that decide a call: [`decide_execution`] for switches, [`reserve`] and [`settle`] for meters, [`resolve_grant`] for grants.
//! A run that would have stopped makes no further call here, and what it had out is settled as it was.
//!
//! What is not here: what a run would have done instead (a model might have answered otherwise), and what was not changed: a
//! recorded refusal stays one.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::governance::budget::{
    Budget, BudgetVerdict, MeterReading, MeteredBudget, OnExceeded, applies, reserve, settle,
};
use crate::governance::grant::{Grant, GrantQuery, resolve_grant};
use crate::governance::kill_switch::{KillSwitch, SwitchScope, decide_execution};
use crate::governance::target::Target;
use crate::ids::{BudgetId, CallId, RunId, RunKey, StepId, TenantId, ToolId};
use crate::quantity::Micros;
use crate::run::chain::StoredEvent;
use crate::run::envelope::RunEnvelope;
use crate::run::event::{CallPending, CallSettled, RunEvent};
use crate::run::evolve::{FoldError, begin, fold_read};
use crate::run::model_step::{fallback_of, is_turn};
use crate::run::status::RunStatus;
use crate::run::sweep::swept_by;
use crate::time::{UnixMicros, UnixMs};

/// What is to be otherwise.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    /// Budgets beside, or with other limits; each meter begins empty with the first event that is looked at.
    pub budgets: Vec<Budget>,
    /// Switches that are armed all the time.
    pub switches: Vec<KillSwitch>,
    /// The grants that runs share, instead of those there were. What a run was granted for itself stays.
    pub grants: Option<Vec<Grant>>,
}

/// One journal.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// The internal key of the run.
    pub run_key: RunKey,
    /// Its events, from the first on.
    pub events: &'a [StoredEvent],
}

/// What would have come of it all.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// How many runs were looked at.
    pub runs: u64,
    /// How many calls were decided again.
    pub calls: u64,
    /// Runs that would have ended otherwise, or lost calls, in the order in which that would have happened.
    pub otherwise: Vec<Otherwise>,
    /// The budgets of the change, as they would stand in the end.
    pub meters: Vec<MeterReading>,
}

/// A run that would have gone another way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Otherwise {
    /// The run.
    pub run_id: RunId,
    /// Its tenant.
    pub tenant_id: TenantId,
    /// Where it stands in truth.
    pub recorded_status: RunStatus,
    /// Where it would stand; as recorded if it had only gone without some calls.
    pub status: RunStatus,
    /// What it was charged in truth, as far as it is recorded.
    pub recorded_cost_units: Micros,
    /// What it would have been charged.
    pub cost_units: Micros,
    /// What would have stood in its way, in order; the last one ended it, if any did.
    pub objections: Vec<WouldObject>,
}

/// A call that would not have been made.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WouldObject {
    /// The recorded event that would not be there.
    pub seq: u64,
    /// When it happened.
    pub at_unix_micros: UnixMicros,
    /// The step; absent if the run would not have begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<ToolId>,
    /// Stable code, as the gate says it.
    pub code: String,
    /// In words.
    pub message: String,
    /// The switch or budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blamed_id: Option<String>,
    /// True if the run would have stopped there.
    pub stops: bool,
}

struct Run {
    envelope: RunEnvelope,
    /// What each call that was admitted here holds, on which meter of the change.
    held: BTreeMap<CallId, Vec<(BudgetId, Micros)>>,
    made: BTreeMap<CallId, bool>,
    objections: Vec<WouldObject>,
    stopped: Option<RunStatus>,
    cost_units: Micros,
    recorded_cost_units: Micros,
}

struct Again<'a> {
    change: &'a Change,
    meters: Vec<MeteredBudget>,
    calls: u64,
}

/// Decides recorded runs again.
///
/// # Errors
/// A journal that does not fold: what it says cannot be relied on.
pub fn whatif(recorded: &[Recorded<'_>], change: &Change) -> Result<WhatIf, (RunKey, FoldError)> {
    let mut order: Vec<(UnixMicros, usize, usize)> = Vec::new();
    for (run, journal) in recorded.iter().enumerate() {
        order.extend(journal.events.iter().enumerate().map(|(place, event)| (event.at, run, place)));
    }
    order.sort_unstable();
    let meters = change.budgets.iter().cloned().map(MeteredBudget::unused).collect();
    let mut again = Again { change, meters, calls: 0 };
    let mut runs: BTreeMap<usize, Run> = BTreeMap::new();
    for (_, at, place) in order {
        let (journal, stored) = (&recorded[at], &recorded[at].events[place]);
        let failed = |error| (journal.run_key, error);
        let unreadable = FoldError { seq: stored.seq, problem: "its kind or body is unknown to this version" };
        match runs.get_mut(&at) {
            None => {
                let mut run = Run::of(begin(stored).map_err(failed)?);
                again.begins(&mut run, stored);
                runs.insert(at, run);
            }
            Some(run) => {
                let event = stored.event().ok_or(unreadable).map_err(failed)?;
                again.next(run, stored, &event);
                fold_read(&mut run.envelope, stored, &event).map_err(failed)?;
            }
        }
    }
    let mut otherwise: Vec<Otherwise> =
        runs.into_values().filter(|run| !run.objections.is_empty()).map(Run::told).collect();
    otherwise.sort_by_key(|run| run.objections.first().map(|first| first.at_unix_micros));
    Ok(WhatIf {
        runs: recorded.len() as u64,
        calls: again.calls,
        otherwise,
        meters: again.meters.iter().map(|metered| metered.reading(Micros::ZERO)).collect(),
    })
}

impl Run {
    const fn of(envelope: RunEnvelope) -> Self {
        Self {
            envelope,
            held: BTreeMap::new(),
            made: BTreeMap::new(),
            objections: Vec::new(),
            stopped: None,
            cost_units: Micros::ZERO,
            recorded_cost_units: Micros::ZERO,
        }
    }

    fn told(self) -> Otherwise {
        let recorded_status = self.envelope.status;
        Otherwise {
            run_id: self.envelope.run_id,
            tenant_id: self.envelope.tenant_id.clone(),
            recorded_status,
            status: self.stopped.unwrap_or(recorded_status),
            recorded_cost_units: self.recorded_cost_units,
            cost_units: self.cost_units,
            objections: self.objections,
        }
    }

    fn object(&mut self, stored: &StoredEvent, call: Option<&CallPending>, objection: Objection) {
        let Objection { code, message, blamed_id, status } = objection;
        self.objections.push(WouldObject {
            seq: stored.seq,
            at_unix_micros: stored.at,
            step_id: call.map(|call| call.step_id.clone()),
            tool_id: call.map(|call| call.tool_id.clone()),
            code: code.to_owned(),
            message,
            blamed_id,
            stops: status.is_some(),
        });
        self.stopped = status;
    }
}

struct Objection {
    code: &'static str,
    message: String,
    blamed_id: Option<String>,
    /// Where the run would stand; `None` if it would go on without the call.
    status: Option<RunStatus>,
}

impl Again<'_> {
    // A switch on what a run is ends it before its first call (KIL-010).
    fn begins(&self, run: &mut Run, stored: &StoredEvent) {
        if let Some(switch) = swept_by(&run.envelope, &self.change.switches, stored.at.ms()) {
            let objection = by_switch(switch);
            run.object(stored, None, objection);
        }
    }

    fn next(&mut self, run: &mut Run, stored: &StoredEvent, event: &RunEvent) {
        if let RunEvent::CallPending(pending) = event {
            if pending.simulated || run.stopped.is_some() {
                return;
            }
            let Some(target) = target_of(&run.envelope, pending) else { return };
            self.calls += 1;
            match self.objection(run, pending, &target, stored.at.ms()) {
                Some(objection) => run.object(stored, Some(pending), objection),
                None => {
                    run.made.insert(pending.call_id, true);
                }
            }
        } else if let RunEvent::CallSettled(settled) = event {
            self.settled(run, stored, settled);
        }
    }

    fn settled(&mut self, run: &mut Run, stored: &StoredEvent, settled: &CallSettled) {
        if settled.simulated {
            return;
        }
        let cost = settled.charged.get(crate::quantity::BudgetCategory::CostUnits);
        run.recorded_cost_units = run.recorded_cost_units.plus(cost);
        if !run.made.contains_key(&settled.call_id) {
            return;
        }
        run.cost_units = run.cost_units.plus(cost);
        let seconds = stored.at.ms().0.div_euclid(1_000);
        for (budget_id, held) in run.held.remove(&settled.call_id).unwrap_or_default() {
            if let Some(metered) = self.meters.iter_mut().find(|m| m.budget.budget_id == budget_id) {
                let charged = settled.charged.get(metered.budget.category);
                settle(metered, held, charged, seconds);
            }
        }
    }

    fn objection(&mut self, run: &mut Run, pending: &CallPending, target: &Target, now: UnixMs) -> Option<Objection> {
        if let Some(switch) = decide_execution(&self.change.switches, target, now) {
            return Some(self.by_other_model(run, pending, target, switch, now).unwrap_or_else(|| by_switch(switch)));
        }
        if let Some(objection) = self.ungranted(run, pending, target, now) {
            return Some(objection);
        }
        self.unpaid(run, pending, target, now)
    }

    // A switch on a model's provider makes the other model be asked, if it is not of the same (REG-043).
    fn by_other_model(
        &self,
        run: &Run,
        pending: &CallPending,
        target: &Target,
        switch: &KillSwitch,
        now: UnixMs,
    ) -> Option<Objection> {
        let of_models = matches!(switch.scope, SwitchScope::Provider | SwitchScope::Region);
        let step = run.envelope.plan.step(&pending.step_id).filter(|_| of_models && is_turn(&pending.tool_id))?;
        let other = fallback_of(run.envelope.binding_of(step)?);
        let target = Target { provider_id: Some(other.provider_id.clone()), region: None, ..target.clone() };
        if decide_execution(&self.change.switches, &target, now).is_some() {
            return None;
        }
        Some(Objection {
            code: "model-fallback",
            message: format!("`{}` of `{}` would have been asked instead", other.model_id, other.provider_id),
            blamed_id: Some(switch.switch_id.to_string()),
            status: None,
        })
    }

    fn ungranted(&self, run: &Run, pending: &CallPending, target: &Target, now: UnixMs) -> Option<Objection> {
        let shared = self.change.grants.as_ref()?;
        let own_id = target.run_id.to_string();
        let query = GrantQuery {
            tenant_id: &target.tenant_id,
            tool_id: &target.tool_id,
            tool_semver: &pending.tool_semver,
            run_id: target.run_id,
            user_id: &target.user_id,
            session_id: None,
            pipeline_instance: target.pipeline_id.as_ref().map(|_| own_id.as_str()),
        };
        let reason = resolve_grant(run.envelope.grants.iter().chain(shared), &query, now).err()?;
        let optional = run.envelope.plan.step(&pending.step_id).is_some_and(|step| step.optional);
        Some(Objection {
            code: reason.code(),
            message: format!("{reason} for `{}` {}", target.tool_id, pending.tool_semver),
            blamed_id: None,
            status: (!optional).then_some(RunStatus::Failed),
        })
    }

    // All or nothing, as the append reserves.
    fn unpaid(&mut self, run: &mut Run, pending: &CallPending, target: &Target, now: UnixMs) -> Option<Objection> {
        let seconds = now.0.div_euclid(1_000);
        if run.envelope.is_rehearsal() {
            return None;
        }
        let before = self.meters.clone();
        let mut held = Vec::new();
        for metered in &mut self.meters {
            let amount = pending.estimated_usage.get(metered.budget.category);
            if amount == Micros::ZERO || !applies(&metered.budget, target) {
                continue;
            }
            if reserve(metered, amount, seconds) == BudgetVerdict::Exceeded {
                let objection = by_budget(metered, amount);
                self.meters = before;
                return Some(objection);
            }
            held.push((metered.budget.budget_id.clone(), amount));
        }
        run.held.insert(pending.call_id, held);
        None
    }
}

/// What a recorded call was aimed at. A model's provider is what was asked, which the journal says just before.
fn target_of(run: &RunEnvelope, pending: &CallPending) -> Option<Target> {
    run.plan.step(&pending.step_id).and_then(|step| run.target_of(step))
}

fn by_switch(switch: &KillSwitch) -> Objection {
    Objection {
        code: "kill-switch",
        message: format!("the {} switch `{}` would have been armed", switch.scope.as_str(), switch.switch_id),
        blamed_id: Some(switch.switch_id.to_string()),
        status: Some(RunStatus::Killed),
    }
}

fn by_budget(metered: &MeteredBudget, asked: Micros) -> Objection {
    let (budget, meter) = (&metered.budget, &metered.meter);
    let status = match budget.on_exceeded {
        OnExceeded::Pause => RunStatus::Paused,
        OnExceeded::Kill => RunStatus::Killed,
    };
    Objection {
        code: "budget-exceeded",
        message: format!(
            "the budget `{}` would have had {} {} consumed and {} reserved of {}, and the call may use {asked}",
            budget.budget_id,
            meter.consumed,
            budget.category.as_str(),
            meter.reserved,
            budget.limit
        ),
        blamed_id: Some(budget.budget_id.to_string()),
        status: Some(status),
    }
}
