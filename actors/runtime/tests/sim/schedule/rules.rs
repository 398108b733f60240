//! Switches, grants, bucket rules and budgets that change while runs go on.

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
                self.change(change).await;
            }
            3..8 => {
                let armed = world.model().authority.armed();
                if let Some(switch_id) = self.dice.pick(&armed).cloned() {
                    self.change(GovernanceChange::SwitchDisarmed { switch_id, at_unix_ms: now }).await;
                }
            }
            8..12 => {
                let tools = ["notify.send", "notify.send", "memory.read", "calendar.write"];
                let tool = *self.dice.pick(&tools).unwrap();
                let change = people::grant(&mut self.dice, now, tool);
                self.change(change).await;
            }
            12..14 if world.has(Fault::Grant) => {
                let issued = world.model().authority.issued();
                if let Some(grant_id) = self.dice.pick(&issued).cloned() {
                    self.change(GovernanceChange::GrantRevoked { grant_id, at_unix_ms: now }).await;
                }
            }
            14..16 if world.has(Fault::Throttle) => {
                let change = people::buckets(&mut self.dice);
                self.change(change).await;
            }
            16..19 if world.has(Fault::Budget) => {
                let budget = people::budget(&mut self.dice);
                self.budget(budget).await;
            }
            19 => {
                let known: Vec<_> = self.budgets.iter().cloned().collect();
                if let Some(budget) = self.dice.pick(&known) {
                    world.tell(|| format!("budget {budget} is retired"));
                    let store: &dyn signalbox_ports::governance::Governance = &world.store;
                    store.retire_budget(budget).await.unwrap();
                    world.model().meters.retire(budget);
                }
            }
            _ => {}
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
            self.budgets.insert(budget.budget_id);
        }
    }
}
