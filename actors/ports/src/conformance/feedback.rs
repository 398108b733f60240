//! Outcomes are read off the runs, whoever crashes; what is said is kept once; an input is in a gold set once.

use serde_json::json;
use signalbox_domain::feedback::gold_set::{DurableGoldSetEntryRow, GOLD_SET_SCHEMA_VERSION, GoldSetFacts};
use signalbox_domain::feedback::outcome::{FeedbackKind, RunFeedback, tally};
use signalbox_domain::feedback::rollout::RolloutMode;
use signalbox_domain::feedback::routing::{RolloutArm, Routing};
use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, AgentId, GoldSetEntryId, GoldSetId, RolloutId, RunId, RunKey};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::append::{Entry, RunProjection};
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use uuid::Uuid;

use super::world::*;
use crate::acts::{Act, Acted, Effect};
use crate::clock::Clock;
use crate::feedback::{GOLD_ENTRIES_PAGE_MAX, GoldSetEntryOf};
use crate::journal::{Created, NewRun};

fn rollout(name: &str) -> RolloutId {
    RolloutId::new(name).unwrap()
}

fn routed(number: u64, of: &str, arm: RolloutArm, shadow_of: Option<RunId>) -> NewRun {
    let mut run = new_run("acme", number);
    let Some(RunEvent::RunSubmitted(submitted)) = run.events.first_mut().map(|new| &mut new.event) else {
        panic!("a run begins with its submission")
    };
    submitted.routing = Some(Routing {
        rollout_id: rollout(of),
        mode: RolloutMode::Canary,
        arm,
        min_evaluation_score: Micros(700_000),
        shadow_of,
    });
    run
}

fn said(run: RunKey, who: &str, kind: FeedbackKind, score: Option<i64>, at: i64) -> RunFeedback {
    let actor = Actor { actor_id: ActorId::new(who).unwrap(), role: Role::Service };
    RunFeedback { run_key: run, actor, kind, score: score.map(Micros), at: UnixMs(at) }
}

impl Fixture {
    async fn ended(&self, run: NewRun, status: RunStatus) -> RunKey {
        let head = self.create(run).await;
        let over = RunProjection { status, ..projection() };
        self.append(Entry { projection: Some(over), ..saying(&head, "over") }).await.unwrap();
        head.run_key
    }
}

pub async fn outcomes_are_those_of_the_runs_that_are_over_each_once(f: &Fixture) {
    let (champion, challenger) = (RolloutArm::Champion, RolloutArm::Challenger);
    f.ended(routed(1, "r", champion, None), RunStatus::Completed).await;
    f.ended(routed(2, "r", champion, None), RunStatus::Killed).await;
    f.create(routed(3, "r", champion, None)).await;
    let good = f.ended(routed(4, "r", challenger, None), RunStatus::Completed).await;
    let poor = f.ended(routed(5, "r", challenger, None), RunStatus::Completed).await;
    let blamed = f.ended(routed(6, "r", challenger, None), RunStatus::Completed).await;
    f.ended(routed(7, "other", challenger, None), RunStatus::Completed).await;
    f.ended(new_run("acme", 8), RunStatus::Completed).await;
    // Created twice it is still one run.
    assert!(matches!(f.journal.create(routed(1, "r", champion, None)).await.unwrap(), Created::Exists(_)));
    let now = f.clock.now();
    f.feedback.say(said(good, "judge", FeedbackKind::Evaluation, Some(700_000), now.0)).await.unwrap();
    f.feedback.say(said(good, "ulla", FeedbackKind::Positive, None, now.0)).await.unwrap();
    f.feedback.say(said(poor, "judge", FeedbackKind::Evaluation, Some(699_999), now.0)).await.unwrap();
    f.feedback.say(said(blamed, "ulla", FeedbackKind::Negative, None, now.0)).await.unwrap();
    let tallies = tally(&f.feedback.outcomes(&rollout("r"), now.plus_ms(-1_000)).await.unwrap());
    assert_eq!((tallies.champion.successes, tallies.champion.n, tallies.champion.still_open), (1, 2, 2));
    assert_eq!((tallies.challenger.successes, tallies.challenger.n), (1, 3));
    let later = tally(&f.feedback.outcomes(&rollout("r"), now.plus_ms(60_000)).await.unwrap());
    assert_eq!((later.champion.n, later.champion.still_open), (2, 0));
    assert!(f.feedback.outcomes(&rollout("none"), now).await.unwrap().is_empty());
}

pub async fn what_is_said_of_a_run_is_kept_once_for_each_actor(f: &Fixture) {
    let run = f.run(1).await.run_key;
    f.feedback.say(said(run, "ulla", FeedbackKind::Negative, None, 5)).await.unwrap();
    f.feedback.say(said(run, "ulla", FeedbackKind::Negative, None, 6)).await.unwrap();
    f.feedback.say(said(run, "ulla", FeedbackKind::Positive, None, 7)).await.unwrap();
    f.feedback.say(said(run, "judge", FeedbackKind::Evaluation, Some(1), 8)).await.unwrap();
    f.feedback.say(said(run, "judge", FeedbackKind::Evaluation, Some(900_000), 9)).await.unwrap();
    let kept = f.feedback.said(run).await.unwrap();
    let expected = [
        said(run, "ulla", FeedbackKind::Negative, None, 5),
        said(run, "ulla", FeedbackKind::Positive, None, 7),
        said(run, "judge", FeedbackKind::Evaluation, Some(900_000), 9),
    ];
    assert_eq!(kept, expected);
    let nobody = f.feedback.say(said(run_key("acme", 99), "ulla", FeedbackKind::Negative, None, 5)).await.unwrap_err();
    assert_eq!(nobody.code(), "entry-refused-by-store");
}

pub async fn what_works_unseen_is_in_nobodys_list(f: &Fixture) {
    use crate::directory::Scope;
    let mine = f.ended(routed(1, "r", RolloutArm::Champion, None), RunStatus::Completed).await;
    let of = f.journal.head(mine).await.unwrap().unwrap().run_id;
    let shadow = f.ended(routed(2, "r", RolloutArm::Challenger, Some(of)), RunStatus::Completed).await;
    let submitter = routed(1, "r", RolloutArm::Champion, None).submitted().unwrap().submitted_by.actor_id.clone();
    let filter = signalbox_domain::dashboard::DashboardFilter { limit: 10, ..Default::default() };
    let seen = async |scope: Scope| -> Vec<RunKey> {
        let page = f.directory.runs(&scope, &filter, f.clock.now_micros()).await.unwrap();
        page.rows.iter().map(|row| row.run_key).collect()
    };
    assert_eq!(seen(Scope::Submitter(tenant("acme"), submitter)).await, [mine]);
    assert_eq!(seen(Scope::Tenant(tenant("acme"))).await.len(), 2);
    assert_ne!(mine, shadow);
}

fn gold(number: u128, set: &str, input: &str) -> DurableGoldSetEntryRow {
    let input = json!({"topic": input, "nul": "\u{0}"});
    DurableGoldSetEntryRow {
        entry_id: GoldSetEntryId::new(Uuid::from_u128(number)),
        gold_set_id: GoldSetId::new(set).unwrap(),
        agent_id: AgentId::new("ref.research").unwrap(),
        agent_semver: "1.0.0".into(),
        input_hash: signalbox_domain::feedback::gold_set::input_hash(&input).unwrap(),
        input,
        expected_output: json!({"items": [1, 2.5]}),
        rubric: "names all\nof them".into(),
        promoted_by: operator(),
        promoted_at: UnixMs(7),
        source_run_id: RunId::new(Uuid::from_u128(77)),
        schema_version: GOLD_SET_SCHEMA_VERSION,
    }
}

impl Fixture {
    async fn puts(&self, of: &str, row: DurableGoldSetEntryRow) -> Result<Acted, crate::journal::StoreError> {
        let act = Act {
            expected_seq: self.acts.audit_head().await.unwrap().seq,
            expected_epoch: self.governance.epoch().await.unwrap().1,
            tenant_id: Some(tenant(of)),
            actor: Actor { actor_id: operator(), role: Role::TenantOperator },
            kind: AuditKind::GoldSetEntryPromoted,
            subject: Subject::gold_set(&row.gold_set_id),
            body: AuditBody { reason: "a good one".into(), ..AuditBody::default() },
            effect: Effect::PutGoldSetEntry(Box::new(GoldSetEntryOf { tenant_id: tenant(of), row })),
        };
        self.acts.act(act).await
    }
}

pub async fn a_gold_sets_entries_come_back_as_they_were_put_in(f: &Fixture) {
    for (of, row) in [
        ("acme", gold(3, "g", "c")),
        ("acme", gold(1, "g", "a")),
        ("acme", gold(2, "h", "a")),
        ("globex", gold(4, "g", "a")),
    ] {
        assert!(matches!(f.puts(of, row).await.unwrap(), Acted::Done(_)));
    }
    let (acme, g) = (tenant("acme"), GoldSetId::new("g").unwrap());
    let all = f.feedback.gold_entries(&acme, &g, None, GOLD_ENTRIES_PAGE_MAX).await.unwrap();
    assert_eq!(all, [gold(1, "g", "a"), gold(3, "g", "c")]);
    let behind = f.feedback.gold_entries(&acme, &g, Some(gold(1, "g", "a").entry_id), 10).await.unwrap();
    assert_eq!(behind, [gold(3, "g", "c")]);
    assert_eq!(f.feedback.gold_entries(&acme, &g, None, 1).await.unwrap(), [gold(1, "g", "a")]);
    assert!(f.feedback.gold_entries(&tenant("initech"), &g, None, 10).await.unwrap().is_empty());
    let facts = f.feedback.gold_set(&acme, &g, &gold(1, "g", "a").input_hash).await.unwrap();
    assert_eq!(facts, GoldSetFacts { same_input: Some(gold(1, "g", "a").entry_id), entries: 2 });
    assert_eq!(f.feedback.gold_set(&tenant("initech"), &g, "").await.unwrap(), GoldSetFacts::default());
}

pub async fn an_input_is_in_a_gold_set_once_and_a_refusal_leaves_no_record(f: &Fixture) {
    assert!(matches!(f.puts("acme", gold(1, "g", "a")).await.unwrap(), Acted::Done(_)));
    let head = f.acts.audit_head().await.unwrap();
    let again = f.puts("acme", gold(2, "g", "a")).await.unwrap_err();
    assert_eq!(again.code(), "entry-refused-by-store");
    assert_eq!(f.acts.audit_head().await.unwrap(), head);
}
