//! Acts of management: the change and its record are one, and nobody acts on what is no longer so.

use std::sync::Arc;

use signalbox_domain::governance::audit::{AuditBody, AuditEvent, AuditKind, Subject, verify_audit};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::SwitchId;
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::AgentRegistry;
use signalbox_domain::run::append::{Entry, RunHead, RunProjection};
use signalbox_domain::run::status::RunStatus;

use super::budgets::{admitted, settling};
use super::world::*;
use crate::acts::{Act, Acted, AuditFilter, Done, Effect, SwitchReach};
use crate::journal::StoreError;

fn by(actor: &str) -> Actor {
    Actor { actor_id: signalbox_domain::ids::ActorId::new(actor).unwrap(), role: Role::PlatformOperator }
}

fn armed(tool: &str) -> KillSwitch {
    let GovernanceChange::SwitchArmed(switch) = switch_on(tool) else { panic!("switch_on arms no switch") };
    switch
}

impl Fixture {
    async fn draft(&self, kind: AuditKind, subject: Subject, effect: Effect) -> Act {
        Act {
            expected_seq: self.acts.audit_head().await.unwrap().seq,
            expected_epoch: self.governance.epoch().await.unwrap().1,
            tenant_id: None,
            actor: by("ada"),
            kind,
            subject,
            body: AuditBody { reason: "because".into(), ..AuditBody::default() },
            effect,
        }
    }

    async fn arming(&self, tool: &str) -> Act {
        let subject = Subject::switch(&armed(tool).switch_id);
        self.draft(AuditKind::SwitchArmed, subject, Effect::Change(switch_on(tool))).await
    }

    async fn done(&self, act: Act) -> Done {
        match self.acts.act(act).await.unwrap() {
            Acted::Done(done) => *done,
            Acted::Stale => panic!("nobody else acts"),
        }
    }

    async fn recorded(&self) -> Vec<AuditEvent> {
        self.acts.audit(&AuditFilter { limit: 1_000, ..AuditFilter::default() }).await.unwrap()
    }

    /// A call that is admitted on a budget, and settled at what it reserved.
    async fn spend(&self, head: &RunHead, number: u64, budget: &str, units: i64) -> RunHead {
        let appended = self.append(self.asking(head, number, &[(budget, units)]).await).await.unwrap();
        let pending = admitted(&appended).clone();
        self.append(settling(&appended.head, &pending, units)).await.unwrap().head
    }

    async fn sound(&self) {
        let report = verify_audit(&self.recorded().await, Some(self.acts.audit_head().await.unwrap()));
        assert!(report.ok, "{:#?}", report.findings);
    }
}

pub async fn an_act_and_its_record_are_written_together_and_chained(f: &Fixture) {
    assert_eq!(f.acts.audit_head().await.unwrap().seq, 0);
    let first = f.done(f.arming("web.fetch").await).await;
    f.clock.advance_ms(5);
    let tenants = Act { tenant_id: Some(tenant("acme")), ..f.arming("source.fetch").await };
    let second = f.done(tenants).await;
    assert_eq!((first.event.seq, second.event.seq), (1, 2));
    assert_eq!((first.event.epoch, second.event.epoch), (1, 2));
    assert_eq!(second.event.prev_hash, first.event.hash);
    assert_eq!(second.event.at.0 - first.event.at.0, 5_000);
    assert_eq!(f.recorded().await, [first.event.clone(), second.event.clone()]);
    let changes = f.governance.changes(0).await.unwrap();
    assert_eq!(changes, [first.change.unwrap(), second.change.unwrap()]);
    f.sound().await;
}

pub async fn an_act_decided_on_what_is_no_longer_so_writes_nothing(f: &Fixture) {
    let late = f.arming("web.fetch").await;
    let done = f.done(f.arming("source.fetch").await).await;
    assert_eq!(f.acts.act(late).await.unwrap(), Acted::Stale);
    // A change without a record moves the epoch, and what was decided under the older one is as old.
    let late = f.arming("web.fetch").await;
    f.governance.change(switch_on("memory.read"), &operator()).await.unwrap();
    assert_eq!(f.acts.act(late).await.unwrap(), Acted::Stale);
    assert_eq!(f.recorded().await, [done.event]);
    assert_eq!(f.governance.epoch().await.unwrap().1, 2);
}

pub async fn of_operators_who_act_at_once_each_act_is_recorded_once(f: &Fixture) {
    let mut operators = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (acts, governance) = (Arc::clone(&f.acts), Arc::clone(&f.governance));
        operators.spawn(async move {
            loop {
                let act = Act {
                    expected_seq: acts.audit_head().await.unwrap().seq,
                    expected_epoch: governance.epoch().await.unwrap().1,
                    tenant_id: None,
                    actor: by(&format!("operator-{number}")),
                    kind: AuditKind::SwitchArmed,
                    subject: Subject::switch(&number),
                    body: AuditBody::default(),
                    effect: Effect::Change(switch_on(&format!("tool-{number}"))),
                };
                if let Acted::Done(_) = acts.act(act).await.unwrap() {
                    return;
                }
            }
        });
    }
    operators.join_all().await;
    assert_eq!(f.recorded().await.len(), 8);
    assert_eq!(f.governance.epoch().await.unwrap().1, 8);
    f.sound().await;
}

pub async fn an_act_that_is_refused_leaves_neither_change_nor_record(f: &Fixture) {
    let unsound = signalbox_domain::governance::budget::Budget { limit: Micros(-1), ..budget("b", 10) };
    let act = f.draft(AuditKind::BudgetPut, Subject::budget(&"b"), Effect::PutBudget(unsound)).await;
    assert!(matches!(f.acts.act(act).await, Err(StoreError::Poison(_))));
    let huge = AuditBody { reason: "x".repeat(2 << 20), ..AuditBody::default() };
    let act = Act { body: huge, ..f.arming("web.fetch").await };
    assert!(matches!(f.acts.act(act).await, Err(StoreError::Poison(_))));
    assert_eq!((f.recorded().await.len(), f.governance.epoch().await.unwrap().1), (0, 0));
    assert!(f.governance.budgets().await.unwrap().is_empty());
    assert_eq!(f.acts.audit_head().await.unwrap().seq, 0);
}

pub async fn a_budget_is_put_and_retired_by_acts_and_only_its_coming_into_force_moves_the_epoch(f: &Fixture) {
    let put = |limit| Effect::PutBudget(budget("b", limit));
    let subject = || Subject::budget(&"b");
    let opened = f.done(f.draft(AuditKind::BudgetPut, subject(), put(10)).await).await;
    assert!(opened.change.is_some());
    let raised = f.done(f.draft(AuditKind::BudgetToppedUp, subject(), put(20)).await).await;
    assert_eq!((raised.change, raised.event.epoch), (None, 1));
    assert_eq!(f.acts.last_act(&subject()).await.unwrap().unwrap().seq, raised.event.seq);
    assert_eq!(f.governance.budgets().await.unwrap()[0].budget.limit, Micros::units(20));
    let gone = Effect::RetireBudget(budget("b", 20).budget_id);
    f.done(f.draft(AuditKind::BudgetRetired, subject(), gone).await).await;
    assert!(f.governance.budgets().await.unwrap().is_empty());
    assert_eq!(f.acts.last_act(&Subject::budget(&"other")).await.unwrap(), None);
    f.sound().await;
}

pub async fn acts_are_read_by_cursor_subject_and_tenant(f: &Fixture) {
    f.done(f.arming("web.fetch").await).await;
    f.done(Act { tenant_id: Some(tenant("acme")), ..f.arming("source.fetch").await }).await;
    f.done(Act { tenant_id: Some(tenant("other")), ..f.arming("memory.read").await }).await;
    f.done(f.arming("web.fetch").await).await;
    let read = async |filter: AuditFilter| -> Vec<u64> {
        f.acts.audit(&filter).await.unwrap().iter().map(|act| act.seq).collect()
    };
    let all = AuditFilter { limit: 10, ..AuditFilter::default() };
    assert_eq!(read(all.clone()).await, [1, 2, 3, 4]);
    assert_eq!(read(AuditFilter { after_seq: 1, limit: 2, ..all.clone() }).await, [2, 3]);
    let subject = Some(Subject::switch(&"switch-web.fetch"));
    assert_eq!(read(AuditFilter { subject, ..all.clone() }).await, [1, 4]);
    assert_eq!(read(AuditFilter { tenant_id: Some(tenant("acme")), ..all }).await, [2]);
}

pub async fn a_switch_knows_how_many_runs_it_has_ended_and_how_many_it_reaches(f: &Fixture) {
    // Runs of these tests are led by `ref.research`.
    let (ours, theirs) = (f.create(new_run("acme", 1)).await, f.create(new_run("other", 2)).await);
    let over = f.create(new_run("acme", 3)).await;
    let switch = |scope, target: Option<&str>| KillSwitch { scope, target_id: target.map(str::to_owned), ..armed("x") };
    let everything = switch(SwitchScope::Global, None);
    let killed = RunProjection {
        status: RunStatus::Killed,
        closed: true,
        killed_by: Some(everything.switch_id.clone()),
        ..projection()
    };
    f.append(Entry { projection: Some(killed), ..saying(&over, "the end") }).await.unwrap();
    let reach = async |switch: &KillSwitch| f.acts.reach(switch, &AgentRegistry::default()).await.unwrap();
    assert_eq!(reach(&everything).await, SwitchReach { killed: 1, left: 2 });
    let own = KillSwitch { tenant_id: Some(tenant("acme")), ..everything.clone() };
    assert_eq!(reach(&own).await.left, 1);
    assert_eq!(reach(&switch(SwitchScope::Family, Some("research"))).await.left, 2);
    assert_eq!(reach(&switch(SwitchScope::Agent, Some("ref.editing"))).await.left, 0);
    let other =
        KillSwitch { switch_id: SwitchId::new("other").unwrap(), ..switch(SwitchScope::Tool, Some("web.fetch")) };
    assert_eq!(reach(&other).await, SwitchReach { killed: 0, left: 0 });
    drop((ours, theirs));
}

pub async fn paused_runs_are_found_by_tenant_in_pages(f: &Fixture) {
    let mut paused = Vec::new();
    for (number, name) in [(1, "acme"), (2, "other"), (3, "acme")] {
        let held = RunProjection { status: RunStatus::Paused, ..projection() };
        let head = f.create(crate::journal::NewRun { projection: held, ..new_run(name, number) }).await;
        paused.push((head.run_key, head.tenant_id.clone(), head.run_id));
    }
    f.run(4).await;
    assert_eq!(f.acts.paused_runs(None, None).await.unwrap(), paused);
    assert_eq!(f.acts.paused_runs(Some(&tenant("acme")), Some(paused[0].0)).await.unwrap(), paused[2..]);
}

pub async fn windows_in_which_something_was_spent_are_kept_when_they_are_over(f: &Fixture) {
    let daily = signalbox_domain::governance::budget::Budget { period_seconds: Some(60), ..budget("b", 100) };
    f.governance.put_budget(daily.clone()).await.unwrap();
    let mut spent = f.run(1).await;
    for (number, cost) in [(1, 30), (2, 40)] {
        spent = f.spend(&spent, number, "b", cost).await;
        f.clock.advance_ms(60_000);
    }
    // A window in which nothing happened is no part of the history; the one that goes on is not over.
    f.clock.advance_ms(60_000);
    f.spend(&spent, 3, "b", 5).await;
    let windows = f.acts.ended_windows(&daily.budget_id, 10).await.unwrap();
    let figures: Vec<_> = windows.iter().map(|window| (window.consumed, window.limit)).collect();
    assert_eq!(figures, [(Micros::units(40), Micros::units(100)), (Micros::units(30), Micros::units(100))]);
    assert_eq!(windows[1].ended_unix_seconds - windows[1].window_start_unix_seconds, 60);
    assert_eq!(f.acts.ended_windows(&daily.budget_id, 1).await.unwrap().len(), 1);
}
