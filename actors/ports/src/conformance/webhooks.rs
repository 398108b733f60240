//! Deliveries of webhooks: written with what they tell, due in order, noted by one node, and sent again when asked.

use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{BudgetId, SecretId, WebhookId};
use signalbox_domain::run::append::{Ask, Entry, NewEvent, RunHead};
use signalbox_domain::run::event::{ApprovalDecision, BudgetWarning, RunEvent, RunFinished};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_domain::webhook::{EventType, Webhook};

use super::world::*;
use crate::acts::{Act, Acted, Effect};
use crate::webhooks::{
    Again, Attempted, ClaimedWebhook, DEAD_KEPT_MS, DELIVERED_KEPT_MS, Delivery, DeliveryState, Place,
};

const HOOK: &str = "hook";

fn hook(id: &str, tenant_name: Option<&str>, events: &[EventType]) -> Webhook {
    Webhook {
        webhook_id: WebhookId::new(id).unwrap(),
        tenant_id: tenant_name.map(tenant),
        url: "https://hooks.example/".into(),
        events: events.to_vec(),
        secret_ids: vec![SecretId::new("key").unwrap()],
        enabled: true,
        disabled_because: None,
    }
}

fn finished(status: RunStatus) -> NewEvent {
    NewEvent::system(RunEvent::RunFinished(Box::new(RunFinished {
        status,
        code: None,
        message: None,
        user_visible_status_copy: None,
        safe_degradation_mode_id: None,
        blamed_id: None,
        step_id: None,
        outputs: vec![],
    })))
}

fn decided(number: u64) -> NewEvent {
    NewEvent::system(RunEvent::ApprovalDecided {
        approval_id: signalbox_domain::ids::ApprovalId::new(command_id(number).uuid()),
        decision: ApprovalDecision::Approve,
        decided_by: Actor { actor_id: operator(), role: Role::TenantOperator },
        reason: "read".into(),
    })
}

impl Fixture {
    async fn act_of(&self, kind: AuditKind, effect: Effect, tenant_name: Option<&str>) -> Acted {
        let act = Act {
            expected_seq: self.acts.audit_head().await.unwrap().seq,
            expected_epoch: self.governance.epoch().await.unwrap().1,
            tenant_id: tenant_name.map(tenant),
            actor: Actor { actor_id: operator(), role: Role::PlatformOperator },
            kind,
            subject: Subject::stored("switch:s"),
            body: AuditBody { reason: "because".into(), ..AuditBody::default() },
            effect,
        };
        let acted = self.acts.act(act).await.unwrap();
        assert!(matches!(acted, Acted::Done(_)));
        acted
    }

    async fn put_hook(&self, webhook: Webhook) {
        self.act_of(AuditKind::WebhookPut, Effect::Change(GovernanceChange::WebhookPut(webhook)), None).await;
    }

    /// Ends a run; answers its head.
    async fn ends(&self, number: u64) -> RunHead {
        let head = self.run(number).await;
        self.append(Entry { facts: vec![finished(RunStatus::Completed)], ..entry(&head) }).await.unwrap().head
    }

    async fn told(&self, id: &str) -> Vec<Delivery> {
        self.deliveries.deliveries(&WebhookId::new(id).unwrap(), 100).await.unwrap()
    }

    async fn claimed_hook(&self, number: u64) -> Option<ClaimedWebhook> {
        assert!(self.leases.renew(node(number), "node").await.unwrap());
        let mut claims = self.deliveries.claim_webhooks(node(number)).await.unwrap();
        assert!(claims.len() < 2);
        claims.pop()
    }

    async fn due_places(&self, claim: &ClaimedWebhook) -> Vec<Place> {
        let due = self.deliveries.due(claim, 10).await.unwrap();
        let mut places: Vec<_> = due.into_iter().map(|delivery| delivery.place).collect();
        places.sort();
        places
    }

    async fn noted(&self, claim: &ClaimedWebhook, place: &Place, state: DeliveryState, next_at: UnixMs) -> bool {
        let problem = (state != DeliveryState::Delivered).then(|| "answered 500, \0 and \u{1f4a5}".to_owned());
        let status = if state == DeliveryState::Delivered { 204 } else { 500 };
        let at = crate::clock::Clock::now(self.clock.as_ref());
        let attempt = Attempted { at, state, next_at, status: Some(status), problem };
        self.deliveries.note_attempt(claim, place, attempt).await.unwrap()
    }
}

pub async fn a_delivery_is_written_with_what_it_tells_and_only_for_those_who_want_it(f: &Fixture) {
    f.ends(1).await;
    let wanted = [EventType::RunCompleted, EventType::SwitchArmed];
    f.put_hook(hook("own", Some("acme"), &wanted)).await;
    f.put_hook(hook("platform", None, &wanted)).await;
    f.put_hook(hook("foreign", Some("globex"), &wanted)).await;
    f.put_hook(hook("other", Some("acme"), &[EventType::RunFailed])).await;
    f.put_hook(Webhook { enabled: false, ..hook("off", Some("acme"), &wanted) }).await;
    let head = f.ends(2).await;
    let refused = f.append(Entry { facts: vec![finished(RunStatus::Killed)], ..entry(&f.run(3).await) }).await;
    assert!(refused.is_ok());
    // What is refused tells nobody anything.
    let late = Entry { expected_seq: 0, facts: vec![finished(RunStatus::Completed)], ..entry(&head) };
    assert!(f.append(late).await.is_err());

    let own = f.told("own").await;
    assert_eq!(own.len(), 1, "{own:?}");
    let event = &f.journal.read(head.run_key, head.last_seq - 1, 1).await.unwrap()[0];
    assert_eq!((own[0].hash, own[0].place.run_key, own[0].place.seq), (event.hash, Some(head.run_key), event.seq));
    assert_eq!(
        (own[0].event_type, own[0].state, own[0].attempts),
        (EventType::RunCompleted, DeliveryState::Waiting, 0)
    );
    assert_eq!((own[0].tenant_id.clone(), own[0].queued_at), (Some(tenant("acme")), event.at.ms()));
    assert_eq!(f.told("platform").await.len(), 1);
    for silent in ["foreign", "other", "off"] {
        assert_eq!(f.told(silent).await, [], "{silent}");
    }

    // An act of the platform is told to the platform's webhooks alone, one on a tenant's rules to that tenant's too.
    f.act_of(AuditKind::SwitchArmed, Effect::Change(switch_on("web.fetch")), None).await;
    let Acted::Done(done) =
        f.act_of(AuditKind::SwitchArmed, Effect::Change(switch_on("memory.read")), Some("acme")).await
    else {
        panic!("it was done")
    };
    let own = f.told("own").await;
    assert_eq!((own.len(), f.told("platform").await.len(), f.told("foreign").await.len()), (2, 3, 0));
    let act = own.iter().find(|told| told.place.run_key.is_none()).unwrap();
    assert_eq!((act.hash, act.place.subject.as_str(), act.place.seq), (done.event.hash, "switch:s", done.event.seq));
}

pub async fn deliveries_of_one_run_are_due_in_their_order(f: &Fixture) {
    f.put_hook(hook(HOOK, None, &[EventType::ApprovalDecided, EventType::RunCompleted])).await;
    let (first, second) = (f.run(1).await, f.run(2).await);
    let facts = vec![decided(1), decided(2), finished(RunStatus::Completed)];
    f.append(Entry { facts, ..entry(&first) }).await.unwrap();
    f.append(Entry { facts: vec![decided(3)], ..entry(&second) }).await.unwrap();
    let claim = f.claimed_hook(1).await.unwrap();
    let runs = [Some(first.run_key), Some(second.run_key)];
    let places = f.due_places(&claim).await;
    assert_eq!(places.iter().map(|place| (place.run_key, place.seq)).collect::<Vec<_>>(), [(runs[0], 2), (runs[1], 2)]);
    // One that waits for its next attempt keeps those behind it, and nobody else.
    let soon = crate::clock::Clock::now(f.clock.as_ref()).plus_ms(1_000);
    assert!(f.noted(&claim, &places[0], DeliveryState::Waiting, soon).await);
    assert_eq!(f.due_places(&claim).await.len(), 1);
    f.clock.advance_ms(1_000);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let Some(place) = f.due_places(&claim).await.into_iter().find(|place| place.run_key == runs[0]) else { break };
        seen.push(place.seq);
        assert!(f.noted(&claim, &place, DeliveryState::Delivered, UnixMs(0)).await);
        assert!(!f.noted(&claim, &place, DeliveryState::Delivered, UnixMs(0)).await, "it waits no more");
    }
    assert_eq!(seen, [2, 3, 4]);
    let told = f.told(HOOK).await;
    let tried = told.iter().find(|told| told.place == places[0]).unwrap();
    assert_eq!((tried.attempts, tried.state, tried.last_status), (2, DeliveryState::Delivered, Some(204)));
    assert!(tried.first_at < tried.last_at && tried.last_problem.is_none(), "{tried:?}");
}

pub async fn one_node_sends_for_a_webhook_and_an_older_claim_notes_nothing(f: &Fixture) {
    f.put_hook(hook(HOOK, Some("acme"), &[EventType::RunCompleted])).await;
    assert!(f.deliveries.claim_webhooks(node(7)).await.unwrap().is_empty(), "a node without a lease claims nothing");
    assert_eq!(f.claimed_hook(1).await, None, "nothing is due");
    f.ends(1).await;
    let first = f.claimed_hook(1).await.unwrap();
    assert_eq!(f.claimed_hook(1).await.unwrap(), first, "its own is given to a node as it is");
    assert_eq!(f.claimed_hook(2).await, None, "its owner lives");
    let place = f.deliveries.due(&first, 10).await.unwrap().remove(0).place;
    // The owner is silent for longer than its lease, and somebody who claims notices.
    f.clock.advance_ms(crate::leases::LEASE_MS + 1);
    assert!(f.leases.renew(node(2), "node").await.unwrap());
    f.leases.claim(node(2), 10).await.unwrap();
    let second = f.claimed_hook(2).await.unwrap();
    assert!(second.lease_epoch > first.lease_epoch);
    assert!(f.deliveries.due(&first, 10).await.unwrap().is_empty());
    assert!(!f.noted(&first, &place, DeliveryState::Delivered, UnixMs(0)).await);
    assert_eq!(f.told(HOOK).await[0].state, DeliveryState::Waiting);
    assert!(f.noted(&second, &place, DeliveryState::Delivered, UnixMs(0)).await);
    assert_eq!(f.claimed_hook(2).await, None, "nothing is due any more");
}

pub async fn a_webhook_that_is_disabled_or_removed_leaves_nothing_waiting(f: &Fixture) {
    let webhook = hook(HOOK, Some("acme"), &[EventType::RunCompleted]);
    f.put_hook(webhook.clone()).await;
    f.ends(1).await;
    f.put_hook(Webhook { enabled: false, ..webhook.clone() }).await;
    f.ends(2).await;
    let told = f.told(HOOK).await;
    assert_eq!(told.iter().map(|told| told.state).collect::<Vec<_>>(), [DeliveryState::Dead], "{told:?}");
    assert_eq!(f.claimed_hook(1).await, None);
    // What it wants from now on is what it says now.
    f.put_hook(Webhook { events: vec![EventType::RunKilled], ..webhook.clone() }).await;
    f.ends(3).await;
    assert_eq!(f.told(HOOK).await.len(), 1);
    let removed = GovernanceChange::WebhookRemoved { webhook_id: webhook.webhook_id.clone() };
    f.act_of(AuditKind::WebhookRemoved, Effect::Change(removed), None).await;
    assert_eq!(f.told(HOOK).await, []);
    f.ends(4).await;
    assert_eq!(f.told(HOOK).await, []);
}

pub async fn what_arrived_or_was_given_up_is_sent_again_when_asked(f: &Fixture) {
    f.put_hook(hook(HOOK, Some("acme"), &[EventType::RunCompleted])).await;
    let (id, other) = (WebhookId::new(HOOK).unwrap(), WebhookId::new("other").unwrap());
    f.ends(1).await;
    f.clock.advance_ms(1_000);
    f.ends(2).await;
    let claim = f.claimed_hook(1).await.unwrap();
    let due = f.deliveries.due(&claim, 10).await.unwrap();
    let waiting = Again::One { hash: due[0].hash, part: 0 };
    assert_eq!(f.deliveries.count_again(&id, &waiting).await.unwrap(), 0, "it waits anyway");
    assert!(f.noted(&claim, &due[0].place, DeliveryState::Dead, UnixMs(0)).await);
    assert!(f.noted(&claim, &due[1].place, DeliveryState::Delivered, UnixMs(0)).await);
    let again = Again::of_event_id(&due[0].event_id()).unwrap();
    assert_eq!(again, waiting);
    for (again, count) in [
        (again.clone(), 1),
        (Again::One { hash: due[0].hash, part: 1 }, 0),
        (Again::Since(due[0].queued_at), 2),
        (Again::Since(due[1].queued_at), 1),
        (Again::Since(due[1].queued_at.plus_ms(1)), 0),
    ] {
        assert_eq!(f.deliveries.count_again(&id, &again).await.unwrap(), count, "{again:?}");
        assert_eq!(f.deliveries.count_again(&other, &again).await.unwrap(), 0);
    }
    f.act_of(AuditKind::WebhookReplayed, Effect::SendAgain(id.clone(), again), None).await;
    let due_again = f.deliveries.due(&claim, 10).await.unwrap();
    assert_eq!(due_again.len(), 1);
    assert_eq!((due_again[0].hash, due_again[0].attempts, due_again[0].first_at), (due[0].hash, 0, None));
    f.act_of(AuditKind::WebhookReplayed, Effect::SendAgain(id, Again::Since(UnixMs(0))), None).await;
    assert_eq!(f.deliveries.due(&claim, 10).await.unwrap().len(), 2);
}

pub async fn a_warning_of_a_budget_is_told_once_in_a_window(f: &Fixture) {
    f.governance.put_budget(budget("b", 100)).await.unwrap();
    f.put_hook(hook(HOOK, Some("acme"), &[EventType::BudgetWarned])).await;
    let warned = |ask: Ask, verdicts: &[&str]| {
        let mut ask = ask;
        for new in &mut ask.events {
            if let RunEvent::CallPending(pending) = &mut new.event {
                pending.budget_warnings = verdicts
                    .iter()
                    .map(|verdict| BudgetWarning {
                        budget_id: BudgetId::new("b").unwrap(),
                        verdict: (*verdict).to_owned(),
                        grace_end_unix_seconds: None,
                    })
                    .collect();
            }
        }
        ask
    };
    for (number, verdicts) in [(1, vec!["warn"]), (2, vec!["warn"]), (3, vec!["warn", "grace"]), (4, vec!["grace"])] {
        let head = f.run(number).await;
        let asks = vec![warned(ask(&head, number, &[("b", 1)]), &verdicts)];
        let entry = f.up_to_date(Entry { asks, ..entry(&head) }).await;
        f.append(entry).await.unwrap();
    }
    let told = f.told(HOOK).await;
    let mut parts: Vec<_> = told.iter().map(|told| (told.place.run_key, told.place.part)).collect();
    parts.sort();
    assert_eq!(parts, [(Some(run_key("acme", 1)), 0), (Some(run_key("acme", 3)), 1)], "{told:?}");
}

pub async fn old_deliveries_are_forgotten_and_those_that_wait_for_ever_given_up(f: &Fixture) {
    f.put_hook(hook(HOOK, Some("acme"), &[EventType::RunCompleted])).await;
    for number in 1..=3 {
        f.ends(number).await;
    }
    let claim = f.claimed_hook(1).await.unwrap();
    let due = f.deliveries.due(&claim, 10).await.unwrap();
    assert!(f.noted(&claim, &due[0].place, DeliveryState::Delivered, UnixMs(0)).await);
    assert!(f.noted(&claim, &due[1].place, DeliveryState::Dead, UnixMs(0)).await);
    assert_eq!(f.deliveries.forget_deliveries().await.unwrap(), 0);
    f.clock.advance_ms(u64::try_from(DELIVERED_KEPT_MS).unwrap() + 1);
    assert_eq!(f.deliveries.forget_deliveries().await.unwrap(), 1);
    assert_eq!(f.told(HOOK).await.len(), 2);
    f.clock.advance_ms(u64::try_from(DEAD_KEPT_MS - DELIVERED_KEPT_MS).unwrap() + 1);
    while f.deliveries.forget_deliveries().await.unwrap() > 0 {}
    assert!(f.told(HOOK).await.iter().all(|told| told.state != DeliveryState::Waiting));
}
