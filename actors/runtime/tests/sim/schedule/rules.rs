//! Switches, grants, bucket rules and budgets that change while runs go on.

use super::operators::BudgetWish;
use super::*;

impl Schedule {
    pub(super) async fn govern(&mut self) {
        use signalbox_domain::governance::change::GovernanceChange;
        let now = signalbox_ports::clock::Clock::now_micros(self.world.clock.as_ref()).ms();
        let kind = self.dice.below(20);
        let world = self.world.clone();
        match kind {
            0..3 if world.has(Fault::Switch) => {
                let change = people::switch(&mut self.dice, now);
                self.change_somehow(change).await;
            }
            3..8 => {
                let armed = world.model().authority.armed();
                if let Some(switch_id) = self.dice.pick(&armed).cloned() {
                    self.change_somehow(GovernanceChange::SwitchDisarmed { switch_id, at_unix_ms: now }).await;
                }
            }
            8..12 => {
                let tools = ["notify.send", "notify.send", "memory.read", "calendar.write"];
                let tool = *self.dice.pick(&tools).unwrap();
                let change = people::grant(&mut self.dice, now, tool);
                self.change_somehow(change).await;
            }
            12..14 if world.has(Fault::Grant) => {
                let issued = world.model().authority.issued();
                if let Some(grant_id) = self.dice.pick(&issued).cloned() {
                    self.change_somehow(GovernanceChange::GrantRevoked { grant_id, at_unix_ms: now }).await;
                }
            }
            14..16 if world.has(Fault::Throttle) => {
                let change = people::buckets(&mut self.dice);
                self.change(change).await;
            }
            16..19 if world.has(Fault::Budget) => {
                let budget = people::budget(&mut self.dice);
                match self.dice.below(3) {
                    0 => self.wants_budget(BudgetWish::Put(Box::new(budget))),
                    1 => match self.some_budget() {
                        Some(budget) => self.wants_budget(BudgetWish::TopUp(budget)),
                        None => self.budget(budget).await,
                    },
                    _ => self.budget(budget).await,
                }
            }
            19 => {
                let Some(budget) = self.some_budget() else { return };
                if self.dice.chance(50) {
                    return self.wants_budget(BudgetWish::Retire(budget));
                }
                world.tell(|| format!("budget {budget} is retired"));
                let store: &dyn signalbox_ports::governance::Governance = &world.store;
                store.retire_budget(&budget).await.unwrap();
                world.model().meters.retire(&budget);
            }
            _ => {}
        }
    }

    fn some_budget(&mut self) -> Option<signalbox_domain::ids::BudgetId> {
        let known: Vec<_> = self.world.model().meters.rules().map(|(rule, _)| rule.budget_id.clone()).collect();
        self.dice.pick(&known).cloned()
    }

    /// By a node that is asked, or by somebody who writes to the store from outside.
    pub(super) async fn change_somehow(&mut self, change: signalbox_domain::governance::change::GovernanceChange) {
        match self.dice.chance(60) {
            true => self.wants(&change),
            false => self.change(change).await,
        }
    }

    pub(super) async fn change(&mut self, change: signalbox_domain::governance::change::GovernanceChange) {
        use signalbox_ports::governance::Governance as _;
        let by = signalbox_domain::ids::ActorId::new("grace").unwrap();
        self.world.tell(|| format!("grace changes the rules: {}", serde_json::to_string(&change).unwrap()));
        let changed = self.world.store.change(change, &by).await.unwrap();
        self.world.model().changed(&changed.change);
        self.world.announce(None, signalbox_ports::bus::Notice::Governance(changed.epoch));
    }

    pub(super) async fn budget(&mut self, budget: signalbox_domain::governance::budget::Budget) {
        use signalbox_ports::governance::Governance as _;
        self.world.tell(|| format!("grace puts a budget: {}", serde_json::to_string(&budget).unwrap()));
        // A budget of that name in another category is refused, which changes nothing.
        if self.world.store.put_budget(budget.clone()).await.is_ok() {
            let now = signalbox_ports::clock::Clock::now_micros(self.world.clock.as_ref());
            self.world.model().meters.put(&budget, now);
        }
    }
}
