//! Budgets that come into force while a node reads the rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use signalbox_domain::governance::budget::{Budget, MeteredBudget};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::ids::{ActorId, BudgetId, StoreIncarnation};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::governance::Governance;
use signalbox_ports::journal::StoreError;
use signalbox_ports::memory::FakeTools;

use crate::harness::{World, chain, switch, tool};

/// Rules in which a budget is opened right after the budgets were read.
struct Opening {
    inner: Arc<dyn Governance>,
    armed: Arc<AtomicBool>,
}

#[async_trait]
impl Governance for Opening {
    async fn epoch(&self) -> Result<(StoreIncarnation, u64), StoreError> {
        self.inner.epoch().await
    }
    async fn changes(&self, after_epoch: u64) -> Result<Vec<EpochChange>, StoreError> {
        self.inner.changes(after_epoch).await
    }
    async fn change(&self, change: GovernanceChange, by: &ActorId) -> Result<EpochChange, StoreError> {
        self.inner.change(change, by).await
    }
    async fn put_budget(&self, budget: Budget) -> Result<(), StoreError> {
        self.inner.put_budget(budget).await
    }
    async fn retire_budget(&self, budget: &BudgetId) -> Result<(), StoreError> {
        self.inner.retire_budget(budget).await
    }
    async fn budgets(&self) -> Result<Vec<MeteredBudget>, StoreError> {
        let read = self.inner.budgets().await;
        if self.armed.swap(false, Ordering::SeqCst) {
            self.inner.put_budget(one_unit()).await?;
        }
        read
    }
}

fn one_unit() -> Budget {
    serde_json::from_value(json!({ "budgetId": "b", "tenantId": "acme", "scope": "tenant", "scopeKey": "acme",
        "category": "cost-units", "limit": 1 }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_budget_opened_between_two_readings_is_never_left_out_of_a_reservation() {
    let armed = Arc::new(AtomicBool::new(false));
    let opens = armed.clone();
    let world = World::with(FakeTools::new([tool("memory.read")]), move |ports| {
        ports.governance = Arc::new(Opening { inner: ports.governance.clone(), armed: opens });
    })
    .await;
    armed.store(true, Ordering::SeqCst);
    world.change(switch("other", SwitchScope::Tool, Some("web.fetch"))).await;
    while armed.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let run = world.submit(chain("memory.read", 3)).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Killed);
    assert_eq!(world.tools.count(&tool("memory.read")), 1);
}
