//! Managing budgets. A limit stands on its meter, so changing one needs no epoch: the next append reads it.

use signalbox_domain::governance::audit::{AuditBody, AuditEvent, AuditKind, Subject};
use signalbox_domain::governance::budget::{
    Budget, BudgetVerdict, EndedWindow, Meter, MeteredBudget, applies, check_budget,
};
use signalbox_domain::governance::budgeting::{self, BUDGETS_MAX, BudgetDenial, Expected, Known, Putting};
use signalbox_domain::governance::switching::Reach;
use signalbox_domain::ids::{BudgetId, CommandId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::PauseCause;
use signalbox_ports::acts::{AUDIT_ROWS_MAX, AuditFilter, Effect, PAUSED_RUNS_MAX};
use signalbox_ports::inbox::{CommandClass, InboxCommand};

use super::NodeHandle;
use super::governing::{Decided, Draft, check_operator, operator, recorded};
use crate::api::{ApiError, Caller};
use crate::commands::Order;
use crate::load::load;
use crate::runs;

/// A budget, its figures and its revision.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetStanding {
    /// Rule and figures.
    pub metered: MeteredBudget,
    /// The last act on it; 0 if none is recorded.
    pub revision: u64,
    /// What it says to a call that costs nothing more.
    pub verdict: BudgetVerdict,
    /// Start of the next window, in seconds since the Unix epoch.
    pub next_window_unix_seconds: Option<i64>,
}

/// A budget as somebody wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct PutBudget {
    /// The rule; whose it is says `reach`.
    pub budget: Budget,
    /// Whose calls it counts.
    pub reach: Reach,
    /// Why.
    pub reason: String,
    /// The revision the caller has seen.
    pub expected: Expected,
}

/// What an act on a budget would change.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetForecast {
    /// The budget as it stands; `None` if there is none in force.
    pub before: Option<BudgetStanding>,
    /// The budget as it would stand.
    pub after: BudgetStanding,
    /// Runs that would be told to go on.
    pub resumed: usize,
}

/// What became of a budget.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BudgetHistory {
    /// Windows that are over, the newest first.
    pub windows: Vec<EndedWindow>,
    /// Acts on it, oldest first.
    pub acts: Vec<AuditEvent>,
}

impl NodeHandle {
    /// Creates a budget or changes its rule; true if nothing had to be changed.
    pub async fn put_budget(&self, caller: &Caller, wish: PutBudget) -> Result<(BudgetStanding, bool), ApiError> {
        let id = wish.budget.budget_id.clone();
        let (wish, id) = (&wish, &id);
        let (unchanged, _) = self
            .act(caller, move |_| async move {
                let Wished { known, putting, .. } = self.judge_put(caller, wish).await?;
                let budget = match putting {
                    Putting::Unchanged => return Ok(Decided::Nothing(true)),
                    Putting::Put(budget) => budget,
                };
                let before = known.as_ref().map(|(metered, _)| metered);
                let draft = draft(AuditKind::BudgetPut, before, &budget, &wish.reason, None);
                Ok(Decided::Act(Box::new(draft), false))
            })
            .await?;
        Ok((self.budget(caller, id).await?, unchanged))
    }

    /// What `put_budget` would change, decided by the same rule on what is in force now. Nothing is written.
    pub async fn would_put_budget(&self, caller: &Caller, wish: PutBudget) -> Result<BudgetForecast, ApiError> {
        let Wished { known, kept, putting } = self.judge_put(caller, &wish).await?;
        let before = known.map(|(metered, revision)| self.standing_of(metered, revision));
        let after = match (putting, &before) {
            (Putting::Unchanged, Some(before)) => before.clone(),
            (Putting::Unchanged, None) => {
                return Err(BudgetDenial::NoSuchBudget(wish.budget.budget_id.to_string()).into());
            }
            (Putting::Put(budget), Some(before)) => {
                let metered = MeteredBudget { budget, meter: before.metered.meter.clone() };
                self.standing_of(metered, before.revision)
            }
            (Putting::Put(budget), None) => {
                let unused = MeteredBudget::unused(budget);
                self.standing_of(MeteredBudget { meter: kept.unwrap_or(unused.meter), budget: unused.budget }, 0)
            }
        };
        Ok(BudgetForecast { before, after, resumed: 0 })
    }

    /// What the rule says of a budget that somebody wants, and what it was asked about.
    async fn judge_put(&self, caller: &Caller, wish: &PutBudget) -> Result<Wished, ApiError> {
        let id = &wish.budget.budget_id;
        let known = self.known(id).await?;
        let (retired, kept) = if known.is_none() { self.retired(id).await? } else { (None, None) };
        let PutBudget { budget, reach, reason, expected } = wish.clone();
        let by = operator(caller);
        let of = known.as_ref().map(|(metered, revision)| Known { metered, revision: *revision });
        let putting = budgeting::put(budget, reach, &reason, expected, by, of, retired.as_ref())?;
        if known.is_none() && self.inner.ports.governance.budgets().await?.len() >= BUDGETS_MAX {
            return Err(BudgetDenial::TooMany.into());
        }
        Ok(Wished { known, kept, putting })
    }

    /// Gives a budget more, and lets the runs go on that it held. Answers how many those are.
    pub async fn top_up_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        amount: Micros,
        reason: &str,
        expected: Expected,
    ) -> Result<(BudgetStanding, usize), ApiError> {
        let (budget, done) = self
            .act(caller, move |_| async move {
                let (metered, revision) = self.seen(caller, id).await?;
                let known = Known { metered: &metered, revision };
                let budget = budgeting::top_up(amount, reason, expected, operator(caller), known)?;
                let details = serde_json::json!({ "amount": amount });
                let draft = draft(AuditKind::BudgetToppedUp, Some(&metered), &budget, reason, Some(details));
                Ok(Decided::Act(Box::new(draft), budget))
            })
            .await?;
        let resumed = match done {
            Some(done) => self.held(&budget, Some(&GoOn { act: &done.event, reason })).await?,
            None => 0,
        };
        Ok((self.budget(caller, id).await?, resumed))
    }

    /// Tells the runs that a top-up has let go on what they may not have been told, because the node that did it died or they
    /// were held at the same moment. Answers how many are still held and were told.
    pub(crate) async fn follow_up_top_up(&self, act: &AuditEvent) -> Result<usize, ApiError> {
        // A record that a later version wrote is followed up by nodes of that version.
        let Some(said) = act.said() else { return Ok(0) };
        let Some(budget) = said.after.and_then(|rule| serde_json::from_value::<Budget>(rule).ok()) else {
            return Ok(0);
        };
        self.held(&budget, Some(&GoOn { act, reason: &said.reason })).await
    }

    /// What `top_up_budget` would change, decided by the same rule on what is in force now. Nothing is written.
    pub async fn would_top_up_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        amount: Micros,
        reason: &str,
        expected: Expected,
    ) -> Result<BudgetForecast, ApiError> {
        let (metered, revision) = self.seen(caller, id).await?;
        let known = Known { metered: &metered, revision };
        let budget = budgeting::top_up(amount, reason, expected, operator(caller), known)?;
        let resumed = self.held(&budget, None).await?;
        let after = self.standing_of(MeteredBudget { budget, meter: metered.meter.clone() }, revision);
        Ok(BudgetForecast { before: Some(self.standing_of(metered, revision)), after, resumed })
    }

    /// Takes a budget out of force.
    pub async fn retire_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        reason: &str,
        expected: Expected,
    ) -> Result<BudgetStanding, ApiError> {
        let (metered, done) = self
            .act(caller, move |_| async move {
                let (metered, revision) = self.seen(caller, id).await?;
                budgeting::retire(reason, expected, operator(caller), Known { metered: &metered, revision })?;
                let body = AuditBody {
                    reason: reason.to_owned(),
                    before: recorded(&metered.budget),
                    after: None,
                    details: recorded(&metered.meter),
                };
                let draft = Draft {
                    tenant_id: metered.budget.tenant_id.clone(),
                    kind: AuditKind::BudgetRetired,
                    subject: Subject::budget(id),
                    body,
                    effect: Effect::RetireBudget(id.clone()),
                };
                Ok(Decided::Act(Box::new(draft), metered))
            })
            .await?;
        Ok(self.standing_of(metered, done.map_or(0, |done| done.event.seq)))
    }

    /// What `retire_budget` would take out of force, decided by the same rule. Nothing is written.
    pub async fn would_retire_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        reason: &str,
        expected: Expected,
    ) -> Result<BudgetStanding, ApiError> {
        let (metered, revision) = self.seen(caller, id).await?;
        budgeting::retire(reason, expected, operator(caller), Known { metered: &metered, revision })?;
        Ok(self.standing_of(metered, revision))
    }

    /// One budget in force.
    pub async fn budget(&self, caller: &Caller, id: &BudgetId) -> Result<BudgetStanding, ApiError> {
        let (metered, revision) = self.seen(caller, id).await?;
        Ok(self.standing_of(metered, revision))
    }

    /// The budgets in force that the caller may see.
    pub async fn budgets(&self, caller: &Caller) -> Result<Vec<BudgetStanding>, ApiError> {
        check_operator(caller)?;
        let mut standings = Vec::new();
        for metered in self.inner.ports.governance.budgets().await? {
            if budgeting::may_see(operator(caller), &metered.budget) {
                let revision = self.revision(&metered.budget.budget_id).await?;
                standings.push(self.standing_of(metered, revision));
            }
        }
        Ok(standings)
    }

    /// What became of a budget.
    pub async fn budget_history(
        &self,
        caller: &Caller,
        id: &BudgetId,
        limit: usize,
    ) -> Result<BudgetHistory, ApiError> {
        self.seen(caller, id).await?;
        let windows = self.inner.ports.acts.ended_windows(id, limit).await?;
        let mut filter =
            AuditFilter { subject: Some(Subject::budget(id)), limit: AUDIT_ROWS_MAX, ..AuditFilter::default() };
        let mut acts = Vec::new();
        loop {
            let page = self.inner.ports.acts.audit(&filter).await?;
            let Some(last) = page.last() else { break };
            filter.after_seq = last.seq;
            acts.extend(page);
            // The newest are kept: what is done now follows from those.
            acts.drain(..acts.len().saturating_sub(limit));
        }
        Ok(BudgetHistory { windows, acts })
    }

    /// A budget the caller may see. Another tenant's is as absent as none (I11).
    async fn seen(&self, caller: &Caller, id: &BudgetId) -> Result<(MeteredBudget, u64), ApiError> {
        check_operator(caller)?;
        let known = self.known(id).await?.filter(|(metered, _)| budgeting::may_see(operator(caller), &metered.budget));
        known.ok_or_else(|| BudgetDenial::NoSuchBudget(id.to_string()).into())
    }

    async fn known(&self, id: &BudgetId) -> Result<Option<(MeteredBudget, u64)>, ApiError> {
        let budgets = self.inner.ports.governance.budgets().await?;
        match budgets.into_iter().find(|metered| metered.budget.budget_id == *id) {
            Some(metered) => Ok(Some((metered, self.revision(id).await?))),
            None => Ok(None),
        }
    }

    async fn revision(&self, id: &BudgetId) -> Result<u64, ApiError> {
        Ok(self.inner.ports.acts.last_act(&Subject::budget(id)).await?.map_or(0, |act| act.seq))
    }

    /// The rule and the figures of a budget that is out of force, as far as they were recorded.
    async fn retired(&self, id: &BudgetId) -> Result<(Option<Budget>, Option<Meter>), ApiError> {
        let last = self.inner.ports.acts.last_act(&Subject::budget(id)).await?;
        let Some(said) = last.and_then(|act| act.said()) else { return Ok((None, None)) };
        let rule = said.before.and_then(|rule| serde_json::from_value(rule).ok());
        Ok((rule, said.details.and_then(|meter| serde_json::from_value(meter).ok())))
    }

    fn standing_of(&self, metered: MeteredBudget, revision: u64) -> BudgetStanding {
        let now = self.inner.shared.clock.now().0.div_euclid(1_000);
        let verdict = check_budget(&metered.budget, &metered.meter, Micros::ZERO, now);
        let next_window_unix_seconds = metered.budget.next_window(now);
        BudgetStanding { metered, revision, verdict, next_window_unix_seconds }
    }

    /// How many runs are held for want of money that this budget counts. With `go_on` they are told to: each asks again, and
    /// is held again if another budget is used up too.
    async fn held(&self, budget: &Budget, go_on: Option<&GoOn<'_>>) -> Result<usize, ApiError> {
        let mut held = 0;
        let mut after = None;
        loop {
            let page = self.inner.ports.acts.paused_runs(budget.tenant_id.as_ref(), after).await?;
            for (run_key, _, run_id) in &page {
                let run = load(self.inner.shared.store.as_ref(), *run_key).await;
                // A run that cannot be read is no reason to leave the others held.
                let Ok(Some(run)) = run else { continue };
                if !is_held_by(&run, budget) || go_on.is_some_and(|go_on| run.submitted_at > go_on.act.at) {
                    continue;
                }
                held += 1;
                let Some(GoOn { act, reason }) = go_on else { continue };
                let command_id = CommandId::new(run_key.derive("top-up", budget.budget_id.as_str(), act.seq));
                let command = RunCommand::Resume { reason: (*reason).to_owned() }.redacted()?;
                let order = Order { command, actor: act.actor.clone(), scopes: Vec::new(), expected_seq: None };
                let body = serde_json::to_vec(&order).map_err(|error| ApiError::Internal(error.to_string()))?;
                let told = InboxCommand { command_id, class: CommandClass::Other, body };
                self.inner.shared.inbox.deliver(*run_key, told).await?;
                let _ = self.inner.runs.cast(runs::Msg::Poke(*run_key));
                tracing::info!(run = %run_id, budget = %budget.budget_id, "told to go on after a top-up");
            }
            after = page.last().map(|(key, _, _)| *key);
            if page.len() < PAUSED_RUNS_MAX {
                return Ok(held);
            }
        }
    }
}

/// What the rule was asked about, and what it said.
struct Wished {
    /// The budget in force, and its revision.
    known: Option<(MeteredBudget, u64)>,
    /// What was spent of one that is out of force.
    kept: Option<Meter>,
    /// The answer.
    putting: Putting,
}

/// How runs are told to go on.
struct GoOn<'a> {
    /// The top-up.
    act: &'a AuditEvent,
    reason: &'a str,
}

fn is_held_by(run: &RunEnvelope, budget: &Budget) -> bool {
    let counts = |target| applies(budget, &target);
    run.pause_cause() == Some(PauseCause::Quota)
        && run.plan.steps.iter().any(|step| run.target_of(step).is_some_and(counts))
}

fn draft(
    kind: AuditKind,
    before: Option<&MeteredBudget>,
    budget: &Budget,
    reason: &str,
    details: Option<serde_json::Value>,
) -> Draft {
    let body = AuditBody {
        reason: reason.to_owned(),
        before: before.and_then(|metered| recorded(&metered.budget)),
        after: recorded(budget),
        details: details.or_else(|| before.and_then(|metered| recorded(&metered.meter))),
    };
    Draft {
        tenant_id: budget.tenant_id.clone(),
        kind,
        subject: Subject::budget(&budget.budget_id),
        body,
        effect: Effect::PutBudget(budget.clone()),
    }
}
