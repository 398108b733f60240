//! Bringing the store in line with a configuration file, without ever loosening what somebody else has tightened.
//!
//! The file arms switches and never disarms one. A grant that was revoked stays revoked, whatever the file says. Budgets
//! come from the file alone, so one that it no longer names is retired.

use std::collections::BTreeSet;

use signalbox_domain::governance::change::{GovernanceChange, GovernanceState};
use signalbox_domain::governance::grant::Grant;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::ids::ActorId;
use signalbox_domain::time::UnixMs;
use signalbox_ports::governance::Governance;
use signalbox_ports::journal::StoreError;

use crate::config::{Config, file_actor};
use crate::failure::Failure;

/// What was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Applied {
    /// Switches armed.
    pub(crate) armed: usize,
    /// Grants issued.
    pub(crate) issued: usize,
    /// Grants revoked.
    pub(crate) revoked: usize,
    /// True if the buckets were set.
    pub(crate) throttles_set: bool,
    /// Budgets created or changed.
    pub(crate) budgets_put: usize,
    /// Budgets retired.
    pub(crate) budgets_retired: usize,
}

/// Applies the file. Doing it twice changes nothing the second time.
pub(crate) async fn apply(store: &dyn Governance, config: &Config, now: UnixMs) -> Result<Applied, Failure> {
    let actor = file_actor().map_err(|error| Failure::new("config-invalid", error.to_string()))?;
    let changes = store.changes(0).await.map_err(failed)?;
    let state = GovernanceState::fold(&changes);
    let mut applied = Applied::default();
    for change in planned(&state, config, &actor, now)? {
        match &change {
            GovernanceChange::SwitchArmed(_) => applied.armed += 1,
            GovernanceChange::GrantIssued(_) => applied.issued += 1,
            GovernanceChange::GrantRevoked { .. } => applied.revoked += 1,
            GovernanceChange::ThrottlesSet(_) => applied.throttles_set = true,
            GovernanceChange::SwitchDisarmed { .. }
            | GovernanceChange::BudgetOpened(_)
            | GovernanceChange::SwitchDisarmProposed(_) => {}
        }
        store.change(change, &actor).await.map_err(failed)?;
    }
    let known = store.budgets().await.map_err(failed)?;
    for budget in &config.budgets {
        if !known.iter().any(|metered| metered.budget == *budget) {
            store.put_budget(budget.clone()).await.map_err(failed)?;
            applied.budgets_put += 1;
        }
    }
    let named: BTreeSet<_> = config.budgets.iter().map(|budget| &budget.budget_id).collect();
    for metered in known.iter().filter(|metered| !named.contains(&metered.budget.budget_id)) {
        store.retire_budget(&metered.budget.budget_id).await.map_err(failed)?;
        applied.budgets_retired += 1;
    }
    Ok(applied)
}

/// The changes that bring a state in line with the file, the tightening ones first.
fn planned(
    state: &GovernanceState,
    config: &Config,
    actor: &ActorId,
    now: UnixMs,
) -> Result<Vec<GovernanceChange>, Failure> {
    let mut changes = Vec::new();
    for entry in &config.switches {
        let wanted = entry.to_switch(actor, now);
        let known = state.switches.iter().find(|switch| switch.switch_id == wanted.switch_id);
        if !known.is_some_and(|known| same_switch(known, &wanted)) {
            changes.push(GovernanceChange::SwitchArmed(wanted));
        }
    }
    if state.buckets != config.throttles {
        changes.push(GovernanceChange::ThrottlesSet(config.throttles.clone()));
    }
    let named: BTreeSet<_> = config.grants.iter().map(|grant| &grant.grant_id).collect();
    let gone = |grant: &&Grant| {
        grant.issued_by == *actor && grant.revoked_at_unix_ms.is_none() && !named.contains(&grant.grant_id)
    };
    for grant in state.grants.iter().filter(gone) {
        changes.push(GovernanceChange::GrantRevoked { grant_id: grant.grant_id.clone(), at_unix_ms: now });
    }
    for (index, entry) in config.grants.iter().enumerate() {
        let wanted = entry.to_grant(actor, now);
        match state.grants.iter().find(|grant| grant.grant_id == wanted.grant_id) {
            Some(known) if known.revoked_at_unix_ms.is_some() => {
                let message = format!("grants[{index}]: `{}` was revoked, and stays so", wanted.grant_id);
                return Err(Failure::usage("grant-revoked", message).next("give the grant another id"));
            }
            Some(known) if same_grant(known, &wanted) => {}
            Some(_) | None => {
                wanted
                    .validate()
                    .map_err(|error| Failure::usage("config-invalid", format!("grants[{index}]: {error}")))?;
                changes.push(GovernanceChange::GrantIssued(wanted));
            }
        }
    }
    Ok(changes)
}

// Who armed it and when are no part of what a switch does.
fn same_switch(known: &KillSwitch, wanted: &KillSwitch) -> bool {
    let plain =
        KillSwitch { armed_by: known.armed_by.clone(), armed_at_unix_ms: known.armed_at_unix_ms, ..wanted.clone() };
    *known == plain
}

fn same_grant(known: &Grant, wanted: &Grant) -> bool {
    let plain =
        Grant { issued_by: known.issued_by.clone(), issued_at_unix_ms: known.issued_at_unix_ms, ..wanted.clone() };
    *known == plain
}

fn failed(error: StoreError) -> Failure {
    Failure::new(error.code(), format!("the configuration could not be applied: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use signalbox_domain::ids::SwitchId;
    use signalbox_ports::clock::SystemClock;
    use signalbox_ports::memory::MemoryStore;

    use super::*;

    const FILE: &str = r#"
        [[switches]]
        switchId = "no-web"
        scope = "tool"
        targetId = "web.fetch"
        reason = "maintenance"
        userVisibleStatusCopy = "Later."
        [[budgets]]
        budgetId = "daily"
        scope = "tenant"
        scopeKey = "default"
        category = "cost-units"
        limit = 100
        [[throttles]]
        bucketId = "all"
        capacity = 2
        refillPerSecond = 1
        [[grants]]
        grantId = "feed"
        scope = "per-pipeline-instance"
        scopeKey = "p"
        tenantId = "default"
        toolId = "source.fetch"
        toolRange = "^1"
        rationale = "reads a feed"
    "#;

    fn store() -> MemoryStore {
        MemoryStore::new(Arc::new(SystemClock))
    }

    async fn applied(store: &MemoryStore, file: &str) -> Result<Applied, Failure> {
        apply(store, &Config::parse(file).unwrap(), UnixMs(1_000)).await
    }

    async fn state(store: &MemoryStore) -> GovernanceState {
        GovernanceState::fold(&store.changes(0).await.unwrap())
    }

    #[tokio::test]
    async fn a_file_is_applied_once_and_the_second_time_changes_nothing() {
        let store = store();
        let first = applied(&store, FILE).await.unwrap();
        let all = Applied { armed: 1, issued: 1, throttles_set: true, budgets_put: 1, ..Applied::default() };
        assert_eq!(first, all);
        assert_eq!(applied(&store, FILE).await.unwrap(), Applied::default());
    }

    #[tokio::test]
    async fn an_empty_file_revokes_and_retires_but_disarms_nothing() {
        let store = store();
        applied(&store, FILE).await.unwrap();
        let second = applied(&store, "").await.unwrap();
        let gone = Applied { revoked: 1, throttles_set: true, budgets_retired: 1, ..Applied::default() };
        assert_eq!(second, gone);
        let state = state(&store).await;
        assert!(state.switches.iter().all(|switch| switch.disarmed_at_unix_ms.is_none()));
        assert!(state.grants.iter().all(|grant| grant.revoked_at_unix_ms.is_some()));
        assert!(store.budgets().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_switch_that_was_disarmed_is_armed_again_while_the_file_names_it() {
        let store = store();
        applied(&store, FILE).await.unwrap();
        let disarmed =
            GovernanceChange::SwitchDisarmed { switch_id: SwitchId::new("no-web").unwrap(), at_unix_ms: UnixMs(2_000) };
        store.change(disarmed, &file_actor().unwrap()).await.unwrap();
        assert_eq!(applied(&store, FILE).await.unwrap().armed, 1);
        assert_eq!(state(&store).await.switches[0].disarmed_at_unix_ms, None);
    }

    #[tokio::test]
    async fn a_grant_that_was_revoked_stays_so_whatever_the_file_says() {
        let store = store();
        applied(&store, FILE).await.unwrap();
        applied(&store, "").await.unwrap();
        let refused = applied(&store, FILE).await.unwrap_err();
        assert_eq!(refused.code, "grant-revoked");
        assert!(state(&store).await.grants[0].revoked_at_unix_ms.is_some());
    }

    #[tokio::test]
    async fn a_changed_limit_is_put_and_keeps_its_meter() {
        let store = store();
        applied(&store, FILE).await.unwrap();
        let raised = applied(&store, &FILE.replace("limit = 100", "limit = 200")).await.unwrap();
        assert_eq!(raised, Applied { budgets_put: 1, ..Applied::default() });
    }

    #[tokio::test]
    async fn a_grant_that_lives_too_long_for_its_scope_is_refused() {
        let file =
            FILE.replace("per-pipeline-instance", "per-tenant").replace("scopeKey = \"p\"", "scopeKey = \"default\"");
        let refused = applied(&store(), &file).await.unwrap_err();
        assert_eq!(refused.code, "config-invalid");
        assert!(refused.message.contains("grants[0]"), "{}", refused.message);
    }
}
