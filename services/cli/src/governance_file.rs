//! Bringing the store in line with a configuration file, without ever loosening what somebody else has tightened.
//!
//! The file arms switches and never disarms one. A grant that was revoked stays revoked, whatever the file says. A budget that
//! the file put and no longer names is retired; what operators have set or changed since is theirs. The same holds of throttles,
//! and one that an operator has removed stays away until the file says something else of it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::change::{GovernanceChange, GovernanceState};
use signalbox_domain::governance::grant::Grant;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, GrantId, TenantId};
use signalbox_domain::time::UnixMs;
use signalbox_ports::acts::{AUDIT_ROWS_MAX, Act, Acted, Acts, AuditFilter, Effect};
use signalbox_ports::governance::Governance;
use signalbox_ports::journal::StoreError;

use crate::config::{Config, file_actor};
use crate::failure::Failure;

/// What is recorded as the reason of what the file does not give one for.
const REASON: &str = "the configuration file says so";
/// How often others may come in between.
const STALE_MAX: usize = 100;

/// What was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Applied {
    /// Switches armed.
    pub(crate) armed: usize,
    /// Grants issued.
    pub(crate) issued: usize,
    /// Grants revoked.
    pub(crate) revoked: usize,
    /// Token buckets set.
    pub(crate) throttles_set: usize,
    /// Token buckets removed.
    pub(crate) throttles_removed: usize,
    /// Grants that the file names and that stay revoked.
    pub(crate) left_revoked: usize,
    /// Budgets created or changed.
    pub(crate) budgets_put: usize,
    /// Budgets retired.
    pub(crate) budgets_retired: usize,
}

/// Applies the file. Doing it twice changes nothing the second time. Each change is an act of its own in the audit journal,
/// decided on what is in force just then: other nodes may apply theirs at the same time.
pub(crate) async fn apply(
    rules: &dyn Governance,
    acts: &dyn Acts,
    config: &Config,
    now: UnixMs,
) -> Result<Applied, Failure> {
    let actor = file_actor().map_err(|error| Failure::new("config-invalid", error.to_string()))?;
    let mut applied = Applied::default();
    let mut stale = 0;
    let known = GovernanceState::fold(&rules.changes(0).await.map_err(failed)?);
    for entry in &config.grants {
        let revoked = |grant: &&Grant| grant.grant_id == entry.grant_id && grant.revoked_at_unix_ms.is_some();
        if known.grants.iter().any(|grant| revoked(&grant)) {
            applied.left_revoked += 1;
            tracing::warn!(grant = %entry.grant_id, "the file names a grant that was revoked; it stays so. Give it another id");
        }
    }
    loop {
        let head = acts.audit_head().await.map_err(failed)?;
        let changes = rules.changes(0).await.map_err(failed)?;
        let state = GovernanceState::fold(&changes);
        let wish = next_wish(rules, acts, &state, config, &actor, now).await?;
        let Some(wish) = wish else { return Ok(applied) };
        let kind = wish.kind;
        let act = Act {
            expected_seq: head.seq,
            expected_epoch: state.epoch,
            tenant_id: wish.tenant_id,
            actor: Actor { actor_id: actor.clone(), role: Role::PlatformOperator },
            kind,
            subject: wish.subject,
            body: AuditBody { reason: wish.reason, before: wish.before, after: wish.after, details: None },
            effect: wish.effect,
        };
        match acts.act(act).await.map_err(failed)? {
            Acted::Done(_) => applied.count(kind),
            Acted::Stale if stale < STALE_MAX => stale += 1,
            Acted::Stale => {
                return Err(Failure::new("governance-contended", "the rules were changed by others again and again")
                    .next("start it again"));
            }
        }
    }
}

async fn next_wish(
    rules: &dyn Governance,
    acts: &dyn Acts,
    state: &GovernanceState,
    config: &Config,
    actor: &ActorId,
    now: UnixMs,
) -> Result<Option<Wish>, Failure> {
    if let Some(change) = planned(state, config, actor, now)?.into_iter().next() {
        return Ok(Some(of_change(state, change)));
    }
    match of_throttles(state, acts, config, actor).await? {
        Some(wish) => Ok(Some(wish)),
        None => of_budgets(rules, acts, config, actor).await,
    }
}

impl Applied {
    const fn count(&mut self, kind: AuditKind) {
        match kind {
            AuditKind::SwitchArmed => self.armed += 1,
            AuditKind::GrantIssued | AuditKind::GrantRenewed => self.issued += 1,
            AuditKind::GrantRevoked => self.revoked += 1,
            AuditKind::ThrottlesSet | AuditKind::ThrottleSet => self.throttles_set += 1,
            AuditKind::ThrottleRemoved => self.throttles_removed += 1,
            AuditKind::BudgetPut | AuditKind::BudgetToppedUp => self.budgets_put += 1,
            AuditKind::BudgetRetired => self.budgets_retired += 1,
            // The file never loosens.
            AuditKind::SwitchDisarmProposed | AuditKind::SwitchDisarmed => {}
            // Nor does it say anything of webhooks, agents and executors: these are managed by commands.
            AuditKind::WebhookPut
            | AuditKind::WebhookRemoved
            | AuditKind::WebhookDisabled
            | AuditKind::WebhookReplayed
            | AuditKind::AgentRegistered
            | AuditKind::AgentPublished
            | AuditKind::AgentMoved
            | AuditKind::ExecutorRegistered
            | AuditKind::ExecutorRetired => {}
            // And it says nothing of rollouts and gold sets.
            AuditKind::RolloutStarted
            | AuditKind::ChallengerPromoted
            | AuditKind::RolloutFrozen
            | AuditKind::RolloutUnfrozen
            | AuditKind::RolloutRolledBack
            | AuditKind::RolloutEnded
            | AuditKind::PipelineCustomized
            | AuditKind::GoldSetEntryPromoted => {}
            // Nor of schedules.
            AuditKind::SchedulePut
            | AuditKind::SchedulePaused
            | AuditKind::ScheduleResumed
            | AuditKind::ScheduleRemoved
            | AuditKind::ScheduleBackfilled
            | AuditKind::ScheduleRedriven => {}
            // Nor of API keys.
            AuditKind::ApiKeyMade | AuditKind::ApiKeyRevoked => {}
        }
    }
}

/// What is to be done and recorded.
struct Wish {
    tenant_id: Option<TenantId>,
    kind: AuditKind,
    subject: Subject,
    reason: String,
    before: Option<Value>,
    after: Option<Value>,
    effect: Effect,
}

fn json(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok()
}

fn of_change(state: &GovernanceState, change: GovernanceChange) -> Wish {
    let grant = |id: &GrantId| state.grants.iter().find(|known| known.grant_id == *id);
    let said = REASON.to_owned();
    let effect = Effect::Change(change.clone());
    match change {
        GovernanceChange::SwitchArmed(switch) => Wish {
            tenant_id: switch.tenant_id.clone(),
            kind: AuditKind::SwitchArmed,
            subject: Subject::switch(&switch.switch_id),
            reason: switch.reason.clone(),
            before: state.switches.iter().find(|known| known.switch_id == switch.switch_id).and_then(json),
            after: json(&switch),
            effect,
        },
        GovernanceChange::GrantIssued(issued) => Wish {
            tenant_id: Some(issued.tenant_id.clone()),
            kind: AuditKind::GrantIssued,
            subject: Subject::grant(&issued.grant_id),
            reason: said,
            before: grant(&issued.grant_id).and_then(json),
            after: json(&issued),
            effect,
        },
        GovernanceChange::GrantRevoked { grant_id, .. } => Wish {
            tenant_id: grant(&grant_id).map(|known| known.tenant_id.clone()),
            kind: AuditKind::GrantRevoked,
            subject: Subject::grant(&grant_id),
            reason: said,
            before: grant(&grant_id).and_then(json),
            after: None,
            effect,
        },
        // The file plans no change of another kind.
        GovernanceChange::ThrottlesSet(_)
        | GovernanceChange::ThrottleSet(_)
        | GovernanceChange::ThrottleRemoved { .. }
        | GovernanceChange::SwitchDisarmed { .. }
        | GovernanceChange::SwitchDisarmProposed(_)
        | GovernanceChange::WebhookPut(_)
        | GovernanceChange::WebhookRemoved { .. }
        | GovernanceChange::SchedulePut(_)
        | GovernanceChange::ScheduleRemoved { .. }
        | GovernanceChange::BudgetOpened(_)
        | GovernanceChange::AgentPublished(_)
        | GovernanceChange::AgentMoved(_)
        | GovernanceChange::PipelineCustomized(_)
        | GovernanceChange::RolloutSet { .. }
        | GovernanceChange::ExecutorRegistered(_)
        | GovernanceChange::ExecutorRetired { .. } => Wish {
            tenant_id: None,
            kind: AuditKind::ThrottlesSet,
            subject: Subject::throttles(),
            reason: said,
            before: json(&state.buckets),
            after: match &effect {
                Effect::Change(GovernanceChange::ThrottlesSet(rules)) => json(rules),
                Effect::Change(_)
                | Effect::PutBudget(_)
                | Effect::RetireBudget(_)
                | Effect::SendAgain(..)
                | Effect::PutGoldSetEntry(_)
                | Effect::MakeApiKey(_)
                | Effect::RevokeApiKey(..)
                | Effect::PutFires(_) => None,
            },
            effect,
        },
    }
}

/// The next bucket that is to be set or removed. What somebody has changed or removed since the file was applied stays so until
/// the file says something else than it did; a bucket that the file did not set is none of its business.
async fn of_throttles(
    state: &GovernanceState,
    acts: &dyn Acts,
    config: &Config,
    actor: &ActorId,
) -> Result<Option<Wish>, Failure> {
    for rule in &config.throttles {
        let before = state.buckets.iter().find(|known| known.bucket_id == rule.bucket_id);
        let subject = Subject::throttle(&rule.bucket_id);
        if before == Some(rule) || said_by_file(acts, &subject, actor).await? == json(rule) {
            continue;
        }
        return Ok(Some(Wish {
            tenant_id: rule.tenant_id.clone(),
            kind: AuditKind::ThrottleSet,
            subject,
            reason: REASON.to_owned(),
            before: before.and_then(json),
            after: json(rule),
            effect: Effect::Change(GovernanceChange::ThrottleSet(rule.clone())),
        }));
    }
    let named: BTreeSet<_> = config.throttles.iter().map(|rule| &rule.bucket_id).collect();
    for rule in state.buckets.iter().filter(|rule| !named.contains(&rule.bucket_id)) {
        let subject = Subject::throttle(&rule.bucket_id);
        let last = acts.last_act(&subject).await.map_err(failed)?;
        // Before buckets had acts of their own all of them came from files.
        if last.is_none_or(|act| act.actor.actor_id == *actor) {
            return Ok(Some(Wish {
                tenant_id: rule.tenant_id.clone(),
                kind: AuditKind::ThrottleRemoved,
                subject,
                reason: REASON.to_owned(),
                before: json(rule),
                after: None,
                effect: Effect::Change(GovernanceChange::ThrottleRemoved { bucket_id: rule.bucket_id.clone() }),
            }));
        }
    }
    Ok(None)
}

/// The next budget that is to be put or retired. What somebody has changed since the file was applied stays so until the file
/// says something else than it did; a budget that the file did not put is none of its business.
async fn of_budgets(
    rules: &dyn Governance,
    acts: &dyn Acts,
    config: &Config,
    actor: &ActorId,
) -> Result<Option<Wish>, Failure> {
    let known = rules.budgets().await.map_err(failed)?;
    for budget in &config.budgets {
        let before = known.iter().find(|metered| metered.budget.budget_id == budget.budget_id);
        if before.is_some_and(|metered| metered.budget == *budget) {
            continue;
        }
        let said_before = said_by_file(acts, &Subject::budget(&budget.budget_id), actor).await?;
        if before.is_some() && said_before.is_some() && said_before == json(budget) {
            continue;
        }
        return Ok(Some(Wish {
            tenant_id: budget.tenant_id.clone(),
            kind: AuditKind::BudgetPut,
            subject: Subject::budget(&budget.budget_id),
            reason: REASON.to_owned(),
            before: before.and_then(|metered| json(&metered.budget)),
            after: json(budget),
            effect: Effect::PutBudget(budget.clone()),
        }));
    }
    let named: BTreeSet<_> = config.budgets.iter().map(|budget| &budget.budget_id).collect();
    for metered in known.iter().filter(|metered| !named.contains(&metered.budget.budget_id)) {
        let subject = Subject::budget(&metered.budget.budget_id);
        let last = acts.last_act(&subject).await.map_err(failed)?;
        // Before acts were recorded all budgets came from files.
        if last.is_none_or(|act| act.actor.actor_id == *actor) {
            return Ok(Some(Wish {
                tenant_id: metered.budget.tenant_id.clone(),
                kind: AuditKind::BudgetRetired,
                reason: REASON.to_owned(),
                before: json(&metered.budget),
                after: None,
                effect: Effect::RetireBudget(metered.budget.budget_id.clone()),
                subject,
            }));
        }
    }
    Ok(None)
}

/// The rule the file put last under an id.
async fn said_by_file(acts: &dyn Acts, of: &Subject, actor: &ActorId) -> Result<Option<Value>, Failure> {
    let mut filter = AuditFilter { subject: Some(of.clone()), limit: AUDIT_ROWS_MAX, ..AuditFilter::default() };
    let mut said = None;
    loop {
        let page = acts.audit(&filter).await.map_err(failed)?;
        let Some(last) = page.last() else { return Ok(said) };
        filter.after_seq = last.seq;
        let by_file = page.iter().rev().find(|act| act.actor.actor_id == *actor);
        said = by_file.map_or(said, |act| act.said().and_then(|body| body.after));
    }
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
            // Taken away by an operator or by a file before: a node must start all the same, and the grant stays away.
            Some(known) if known.revoked_at_unix_ms.is_some() => {}
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

    use signalbox_domain::governance::throttle::BucketRule;
    use signalbox_domain::ids::{BucketId, BudgetId, SwitchId};
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
        apply(store, store, &Config::parse(file).unwrap(), UnixMs(1_000)).await
    }

    async fn state(store: &MemoryStore) -> GovernanceState {
        GovernanceState::fold(&store.changes(0).await.unwrap())
    }

    #[tokio::test]
    async fn a_file_is_applied_once_and_the_second_time_changes_nothing() {
        let store = store();
        let first = applied(&store, FILE).await.unwrap();
        let all = Applied { armed: 1, issued: 1, throttles_set: 1, budgets_put: 1, ..Applied::default() };
        assert_eq!(first, all);
        assert_eq!(applied(&store, FILE).await.unwrap(), Applied::default());
    }

    #[tokio::test]
    async fn an_empty_file_revokes_and_retires_but_disarms_nothing() {
        let store = store();
        applied(&store, FILE).await.unwrap();
        let second = applied(&store, "throttles = []").await.unwrap();
        let gone = Applied { revoked: 1, throttles_removed: 1, budgets_retired: 1, ..Applied::default() };
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
        let again = applied(&store, FILE).await.unwrap();
        assert_eq!((again.issued, again.left_revoked), (0, 1), "and the node starts all the same");
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
    async fn what_operators_have_set_outlives_the_file_and_what_it_does_is_recorded() {
        let store = store();
        applied(&store, FILE).await.unwrap();
        let mut budget = store.budgets().await.unwrap().remove(0).budget;
        budget.limit = signalbox_domain::quantity::Micros::units(150);
        let by_operator = |effect: Effect, id: &str, head: u64, epoch: u64| Act {
            expected_seq: head,
            expected_epoch: epoch,
            tenant_id: None,
            actor: Actor { actor_id: ActorId::new("olga").unwrap(), role: Role::PlatformOperator },
            kind: AuditKind::BudgetPut,
            subject: Subject::budget(&id),
            body: AuditBody::default(),
            effect,
        };
        let epoch = store.epoch().await.unwrap().1;
        store.act(by_operator(Effect::PutBudget(budget.clone()), "daily", 4, epoch)).await.unwrap();
        let own = signalbox_domain::governance::budget::Budget { budget_id: BudgetId::new("own").unwrap(), ..budget };
        store.act(by_operator(Effect::PutBudget(own), "own", 5, epoch)).await.unwrap();
        // The file as it was: the operator's limit stays, and so does the operator's budget.
        assert_eq!(applied(&store, FILE).await.unwrap(), Applied::default());
        let limits: Vec<_> = store.budgets().await.unwrap().iter().map(|known| known.budget.limit.0).collect();
        assert_eq!(limits, [150_000_000, 150_000_000]);
        // The file says something new: that counts.
        applied(&store, &FILE.replace("limit = 100", "limit = 120")).await.unwrap();
        assert_eq!(store.budgets().await.unwrap()[0].budget.limit.0, 120_000_000);
        // What the file put last it may take back; the operator's is not its own.
        assert_eq!(applied(&store, "throttles = []").await.unwrap().budgets_retired, 1);
        assert_eq!(store.budgets().await.unwrap().len(), 1);
        let acts = store.audit(&AuditFilter { limit: 100, ..AuditFilter::default() }).await.unwrap();
        let head = store.audit_head().await.unwrap();
        assert!(signalbox_domain::governance::audit::verify_audit(&acts, Some(head)).ok);
        assert_eq!(acts[0].kind, "switch-armed");
    }

    #[tokio::test]
    async fn a_throttle_that_an_operator_has_changed_or_removed_stays_so_until_the_file_says_something_new() {
        let store = store();
        applied(&store, FILE).await.unwrap();
        let by_olga = async |change: GovernanceChange, kind, id: &str| {
            let act = Act {
                expected_seq: store.audit_head().await.unwrap().seq,
                expected_epoch: store.epoch().await.unwrap().1,
                tenant_id: None,
                actor: Actor { actor_id: ActorId::new("olga").unwrap(), role: Role::PlatformOperator },
                kind,
                subject: Subject::throttle(&id),
                body: AuditBody::default(),
                effect: Effect::Change(change),
            };
            assert!(matches!(store.act(act).await.unwrap(), Acted::Done(_)));
        };
        let rule = state(&store).await.buckets[0].clone();
        let own = BucketRule { bucket_id: BucketId::new("own").unwrap(), ..rule.clone() };
        by_olga(GovernanceChange::ThrottleSet(own), AuditKind::ThrottleSet, "own").await;
        let removed = GovernanceChange::ThrottleRemoved { bucket_id: rule.bucket_id.clone() };
        by_olga(removed, AuditKind::ThrottleRemoved, "all").await;
        assert_eq!(applied(&store, FILE).await.unwrap(), Applied::default());
        assert_eq!(state(&store).await.buckets.len(), 1, "the operator's own");
        let again = applied(&store, &FILE.replace("capacity = 2", "capacity = 3")).await.unwrap();
        assert_eq!(again, Applied { throttles_set: 1, ..Applied::default() });
        // What the file set last it may take back; the operator's is not its own.
        applied(&store, "throttles = []").await.unwrap();
        let left = state(&store).await.buckets;
        assert_eq!(left.iter().map(|rule| rule.bucket_id.as_str()).collect::<Vec<_>>(), ["own"]);
    }

    #[tokio::test]
    async fn a_file_that_says_nothing_of_throttles_sets_the_one_for_each_provider() {
        let store = store();
        assert_eq!(applied(&store, "").await.unwrap(), Applied { throttles_set: 1, ..Applied::default() });
        assert_eq!(state(&store).await.buckets, signalbox_domain::governance::throttle::default_rules());
        assert_eq!(applied(&store, "").await.unwrap(), Applied::default());
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
