//! Managing budgets. A limit stands on its meter, so changing one needs no epoch: the next append reads it.

use signalbox_domain::governance::audit::{AuditBody, AuditEvent, AuditKind, Subject};
use signalbox_domain::governance::budget::{Budget, BudgetVerdict, EndedWindow, MeteredBudget, applies, check_budget};
use signalbox_domain::governance::budgeting::{self, BUDGETS_MAX, BudgetDenial, Expected, Known, Putting};
use signalbox_domain::governance::switching::Reach;
use signalbox_domain::ids::{BudgetId, CommandId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::PauseCause;
use signalbox_ports::acts::{AUDIT_ROWS_MAX, AuditFilter, Done, Effect, PAUSED_RUNS_MAX};
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
                let known = self.known(id).await?;
                let retired = if known.is_none() { self.retired_rule(id).await? } else { None };
                let PutBudget { budget, reach, reason, expected } = wish.clone();
                let by = operator(caller);
                let of = known.as_ref().map(|(metered, revision)| Known { metered, revision: *revision });
                let budget = match budgeting::put(budget, reach, &reason, expected, by, of, retired.as_ref())? {
                    Putting::Unchanged => return Ok(Decided::Nothing(true)),
                    Putting::Put(budget) => budget,
                };
                if known.is_none() && self.inner.ports.governance.budgets().await?.len() >= BUDGETS_MAX {
                    return Err(BudgetDenial::TooMany.into());
                }
                let before = known.as_ref().map(|(metered, _)| metered);
                let draft = draft(AuditKind::BudgetPut, before, &budget, &reason, None);
                Ok(Decided::Act(Box::new(draft), false))
            })
            .await?;
        Ok((self.budget(caller, id).await?, unchanged))
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
            Some(done) => self.resume_held(caller, &budget, &done, reason).await?,
            None => 0,
        };
        Ok((self.budget(caller, id).await?, resumed))
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

    /// The rule of a budget that is out of force, as far as it was recorded.
    async fn retired_rule(&self, id: &BudgetId) -> Result<Option<Budget>, ApiError> {
        let last = self.inner.ports.acts.last_act(&Subject::budget(id)).await?;
        let before = last.and_then(|act| act.said()).and_then(|said| said.before);
        Ok(before.and_then(|rule| serde_json::from_value(rule).ok()))
    }

    fn standing_of(&self, metered: MeteredBudget, revision: u64) -> BudgetStanding {
        let now = self.inner.shared.clock.now().0.div_euclid(1_000);
        let verdict = check_budget(&metered.budget, &metered.meter, Micros::ZERO, now);
        let next_window_unix_seconds = metered.budget.next_window(now);
        BudgetStanding { metered, revision, verdict, next_window_unix_seconds }
    }

    /// Tells the runs that were held for want of money, and that this budget counts, to go on. Each asks again, and is held
    /// again if another budget is used up too.
    async fn resume_held(
        &self,
        caller: &Caller,
        budget: &Budget,
        done: &Done,
        reason: &str,
    ) -> Result<usize, ApiError> {
        let mut resumed = 0;
        let mut after = None;
        loop {
            let page = self.inner.ports.acts.paused_runs(budget.tenant_id.as_ref(), after).await?;
            for (run_key, _, run_id) in &page {
                let run = load(self.inner.shared.store.as_ref(), *run_key).await;
                // A run that cannot be read is no reason to leave the others held.
                let Ok(Some(run)) = run else { continue };
                if !is_held_by(&run, budget) {
                    continue;
                }
                let command_id = CommandId::new(run_key.derive("top-up", budget.budget_id.as_str(), done.event.seq));
                let command = RunCommand::Resume { reason: reason.to_owned() }.redacted()?;
                let order = Order { command, actor: caller.actor.clone(), scopes: Vec::new(), expected_seq: None };
                let body = serde_json::to_vec(&order).map_err(|error| ApiError::Internal(error.to_string()))?;
                let told = InboxCommand { command_id, class: CommandClass::Other, body };
                self.inner.shared.inbox.deliver(*run_key, told).await?;
                let _ = self.inner.runs.cast(runs::Msg::Poke(*run_key));
                tracing::info!(run = %run_id, budget = %budget.budget_id, "told to go on after a top-up");
                resumed += 1;
            }
            after = page.last().map(|(key, _, _)| *key);
            if page.len() < PAUSED_RUNS_MAX {
                return Ok(resumed);
            }
        }
    }
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
