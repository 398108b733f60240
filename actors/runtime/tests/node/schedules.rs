//! Schedules on one node: what is due is recorded, and fires start their runs, with time that stands still until everybody
//! waits.

use std::time::Duration;

use serde_json::{Value, json};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{RunId, ScheduleId, SwitchId};
use signalbox_domain::pipeline::schedule::{
    CatchUp, FireState, Misfire, Overlap, PutSchedule, Reason, Timing, Trigger,
};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;
use signalbox_ports::memory::FakeTools;
use signalbox_ports::schedules::Fire;

use crate::harness::{World, caller, operator, step, switch, tool};

fn wish(id: &str, seconds: u64, plan: Value) -> PutSchedule {
    PutSchedule {
        schedule_id: ScheduleId::new(id).unwrap(),
        fires: Trigger::Submission { submission: json!({ "rootAgentId": "ref.course-generation", "plan": plan }) },
        timing: Timing::Interval { seconds },
        timezone: "UTC".to_owned(),
        start_at: None,
        end_at: None,
        misfire: Misfire::default(),
        catch_up: CatchUp::default(),
        overlap: Overlap::default(),
        jitter_seconds: 0,
        reason: "a test".to_owned(),
        expected: Expected::Any,
    }
}

fn quick() -> Value {
    json!([step("s", "memory.read", &[])])
}

/// A run that goes on for so long.
fn slow(seconds: u64) -> Value {
    json!([{ "stepId": "w", "kind": "wait", "seconds": seconds }])
}

fn id() -> ScheduleId {
    ScheduleId::new("s").unwrap()
}

impl World {
    async fn put(&self, wish: PutSchedule) {
        self.node.put_schedule(&operator(), wish, false).await.unwrap();
    }

    /// What became of slots, the earliest first.
    async fn fires(&self) -> Vec<Fire> {
        let mut fires = self.node.schedule_fires(&operator(), None, None, 1_000).await.unwrap();
        fires.reverse();
        fires
    }

    async fn states(&self) -> Vec<(FireState, Option<Reason>)> {
        self.fires().await.into_iter().map(|fire| (fire.state, fire.reason)).collect()
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

const STARTED: (FireState, Option<Reason>) = (FireState::Started, None);

#[tokio::test(start_paused = true)]
async fn each_slot_starts_one_run_in_the_name_of_whoever_put_the_schedule() {
    let world = World::new().await;
    world.put(wish("s", 10, quick())).await;
    pass(51).await;
    let fires = world.fires().await;
    assert_eq!(fires.len(), 5, "{fires:?}");
    for fire in &fires {
        assert_eq!((fire.state, fire.attempts), (FireState::Started, 1), "{fire:?}");
        let run = world.until_closed(fire.run_id.unwrap()).await;
        assert_eq!((run.status, run.submitted_by), (RunStatus::Completed, operator().actor));
        assert_eq!(run.surface, "schedule");
    }
    let mut runs: Vec<RunId> = fires.iter().filter_map(|fire| fire.run_id).collect();
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_starts_no_slot_twice_and_loses_none() {
    let mut world = World::new().await;
    world.put(wish("s", 5, quick())).await;
    for _ in 0..6 {
        pass(9).await;
        world.crash().await;
    }
    pass(60).await;
    let fires = world.fires().await;
    assert!(fires.iter().all(|fire| fire.state == FireState::Started), "{fires:#?}");
    let slots: Vec<i64> = fires.iter().map(|fire| fire.at.0).collect();
    assert!(slots.windows(2).all(|pair| pair[1] - pair[0] == 5_000), "{slots:?}");
    assert_eq!(fires.len(), 22, "{slots:?}");
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_of_six_hours_fifty_minutely_schedules_start_a_bounded_number_of_runs() {
    let mut world = World::new().await;
    for number in 0..50 {
        let id = format!("s{number}");
        world
            .put(PutSchedule { timing: Timing::Cron { expression: "* * * * *".to_owned() }, ..wish(&id, 1, quick()) })
            .await;
    }
    world.node.abandon().await;
    pass(6 * 3_600).await;
    world.crash_and_come_back_with(|_| {}).await;
    pass(5).await;
    let fires = world.fires().await;
    let started = fires.iter().filter(|fire| fire.state == FireState::Started).count();
    assert_eq!(started, 50, "one for each schedule: overlapping ones are skipped");
    let missed: u64 = fires.iter().filter(|fire| fire.reason == Some(Reason::Missed)).map(|fire| fire.slots).sum();
    assert!(missed >= 50 * 350, "{missed}");
    assert!(fires.len() <= 50 * 4, "{}", fires.len());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_too_soon_is_skipped_or_waits_or_takes_the_others_place() {
    let skipped = (FireState::Skipped, Some(Reason::Overlap));
    let full = (FireState::Skipped, Some(Reason::BufferFull));
    let buffered = (FireState::Buffered, None);
    for (overlap, expected) in [
        (Overlap::Skip, vec![STARTED, skipped, skipped]),
        (Overlap::BufferOne, vec![STARTED, buffered, full]),
        (Overlap::BufferAll, vec![STARTED, buffered, buffered]),
        (Overlap::AllowAll, vec![STARTED, STARTED, STARTED]),
    ] {
        let world = World::new().await;
        world.put(PutSchedule { overlap, ..wish("s", 100, slow(350)) }).await;
        pass(302).await;
        assert_eq!(world.states().await, expected, "{overlap:?}");
        world.node.abandon().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_begins_when_the_run_before_it_is_over() {
    let world = World::new().await;
    world.put(PutSchedule { overlap: Overlap::BufferAll, ..wish("s", 100, slow(150)) }).await;
    pass(260).await;
    assert_eq!(world.states().await, [STARTED, STARTED]);
    let fires = world.fires().await;
    let runs = [fires[0].run_id.unwrap(), fires[1].run_id.unwrap()];
    assert_eq!(world.get(runs[0]).await.status, RunStatus::Completed);
    assert!(!world.get(runs[1]).await.status.is_terminal());
}

#[tokio::test(start_paused = true)]
async fn a_later_slot_cancels_or_kills_the_run_of_the_earlier_one() {
    for (overlap, ended) in [(Overlap::CancelOther, RunStatus::Cancelled), (Overlap::KillOther, RunStatus::Killed)] {
        let world = World::new().await;
        world.put(PutSchedule { overlap, ..wish("s", 100, slow(1_000)) }).await;
        pass(205).await;
        let fires = world.fires().await;
        assert_eq!(world.states().await, [STARTED, STARTED], "{overlap:?}");
        assert_eq!(world.get(fires[0].run_id.unwrap()).await.status, ended);
        assert!(!world.get(fires[1].run_id.unwrap()).await.status.is_terminal());
        world.node.abandon().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fire_is_suppressed_by_a_switch_and_says_which() {
    let world = World::new().await;
    world.put(wish("s", 10, quick())).await;
    world.change(switch("stop-agent", SwitchScope::Agent, Some("ref.course-generation"))).await;
    pass(12).await;
    let fires = world.fires().await;
    assert_eq!((fires[0].state, fires[0].reason), (FireState::Suppressed, Some(Reason::KillSwitch)));
    assert!(fires[0].details.as_deref().unwrap().contains("stop-agent"), "{fires:?}");
    assert_eq!((fires.len(), fires[0].run_id), (1, None));
    let at_unix_ms = UnixMs(world.ports.clock.now().0);
    let switch_id = SwitchId::new("stop-agent").unwrap();
    world.change(GovernanceChange::SwitchDisarmed { switch_id, at_unix_ms }).await;
    pass(10).await;
    assert_eq!(world.states().await[1], STARTED);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_tried_again_and_ends_as_a_dead_letter_that_may_be_redriven() {
    let mut world = World::with(FakeTools::new(["memory.write"].map(tool)), |_| {}).await;
    let once = PutSchedule { end_at: Some(UnixMs(1_800_000_015_000)), ..wish("s", 10, quick()) };
    world.put(once).await;
    pass(11).await;
    let waiting = &world.fires().await[0];
    assert_eq!((waiting.state, waiting.attempts), (FireState::Waiting, 1));
    assert!(waiting.details.as_deref().unwrap().starts_with("agent_tools_not_configured"), "{waiting:?}");
    let early = world.node.redrive_fire(&operator(), &id(), waiting.at, "x").await;
    assert_eq!(early.unwrap_err().code(), "no-such-dead-letter");
    pass(120).await;
    let dead = world.fires().await.remove(0);
    assert_eq!((dead.state, dead.reason, dead.attempts), (FireState::Dead, Some(Reason::StartFailed), 5));
    pass(600).await;
    assert_eq!(world.fires().await, std::slice::from_ref(&dead), "nobody tries it any more");
    let able = FakeTools::new(["memory.read"].map(tool)).with_clock(world.ports.clock.clone());
    world.crash_and_come_back_with(|ports| ports.tools = std::sync::Arc::new(able)).await;
    world.node.redrive_fire(&operator(), &id(), dead.at, "the tool is back").await.unwrap();
    pass(3).await;
    assert_eq!(world.states().await, [STARTED]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_reached_counts_as_no_attempt() {
    let world = World::new().await;
    world.put(wish("s", 10, quick())).await;
    pass(9).await;
    world.store.fail_with(Some(StoreError::Unavailable("a test".into())));
    pass(4).await;
    world.store.fail_with(None);
    pass(5).await;
    let fires = world.fires().await;
    assert_eq!((fires[0].state, fires[0].attempts), (FireState::Started, 1), "{fires:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_fires_while_paused_and_slots_meanwhile_are_recorded_as_such() {
    let world = World::new().await;
    world.put(wish("s", 10, quick())).await;
    let (id, by) = (id(), operator());
    let pause = |paused| world.node.set_schedule_paused(&by, &id, paused, "a test", Expected::Any);
    assert!(!pause(true).await.unwrap().1);
    assert!(pause(true).await.unwrap().1, "it is like that already");
    pass(45).await;
    assert_eq!(world.fires().await, []);
    let (standing, _) = pause(false).await.unwrap();
    assert!(standing.next_at.is_some());
    pass(10).await;
    let fires = world.fires().await;
    assert_eq!((fires[0].slots, fires[0].reason), (4, Some(Reason::Paused)), "{fires:?}");
    assert_eq!(world.states().await[1], STARTED);
}

#[tokio::test(start_paused = true)]
async fn filling_in_fires_each_slot_once_one_after_the_other() {
    let world = World::new().await;
    pass(1_000).await;
    let early = PutSchedule { start_at: Some(UnixMs(1_800_000_000_000)), ..wish("s", 100, quick()) };
    world.put(early).await;
    let stretch = (UnixMs(1_800_000_000_000), UnixMs(1_800_000_900_000));
    let (id, by) = (id(), operator());
    let fill = |dry_run| world.node.backfill_schedule(&by, &id, stretch, false, "the days before", dry_run);
    assert_eq!((fill(true).await.unwrap().len(), world.fires().await.len()), (10, 0));
    fill(false).await.unwrap();
    fill(false).await.unwrap();
    pass(30).await;
    let fires = world.fires().await;
    assert_eq!(fires.iter().filter(|fire| fire.at <= stretch.1).count(), 10);
    assert!(fires.iter().all(|fire| fire.state == FireState::Started), "{fires:?}");
    fill(false).await.unwrap();
    pass(30).await;
    assert!(world.fires().await.iter().all(|fire| fire.attempts == 1), "a slot that has its run keeps it");
}

#[tokio::test(start_paused = true)]
async fn a_removed_schedule_fires_no_more_and_one_put_anew_begins_anew() {
    let world = World::new().await;
    world.put(wish("s", 10, quick())).await;
    pass(11).await;
    let removed = world.node.remove_schedule(&operator(), &id(), "x", Expected::Any, true).await.unwrap();
    assert_eq!(removed.schedule_id, id());
    assert!(world.node.schedule(&operator(), &id()).await.is_ok(), "a dry run removes nothing");
    world.node.remove_schedule(&operator(), &id(), "x", Expected::Any, false).await.unwrap();
    pass(60).await;
    world.put(wish("s", 10, quick())).await;
    pass(11).await;
    assert_eq!(world.states().await, [STARTED, STARTED]);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_on_one_store_start_each_slot_once() {
    let world = World::new().await;
    let mut others = Vec::new();
    for _ in 0..2 {
        let (node, _) = signalbox_runtime::Node::start(Default::default(), world.ports.clone()).await.unwrap();
        others.push(node);
    }
    for number in 0..10 {
        world.put(PutSchedule { overlap: Overlap::AllowAll, ..wish(&format!("s{number}"), 10, quick()) }).await;
    }
    pass(102).await;
    let fires = world.fires().await;
    assert_eq!(fires.len(), 100);
    assert!(fires.iter().all(|fire| (fire.state, fire.attempts) == (FireState::Started, 1)), "{fires:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_no_operator_sees_and_steers_its_own_schedules_only() {
    let world = World::new().await;
    world.put(wish("s", 10, quick())).await;
    let stranger = caller("acme", "carl", Role::Customer);
    assert_eq!(world.node.schedules(&stranger).await.unwrap(), []);
    assert_eq!(world.node.schedule(&stranger, &id()).await.unwrap_err().code(), "no-such-schedule");
    let own = PutSchedule { schedule_id: ScheduleId::new("mine").unwrap(), ..wish("mine", 10, quick()) };
    world.node.put_schedule(&stranger, own, false).await.unwrap();
    assert_eq!(world.node.schedules(&stranger).await.unwrap().len(), 1);
    pass(12).await;
    let seen = world.node.schedule_fires(&stranger, None, None, 100).await.unwrap();
    assert_eq!(seen.len(), 1);
    let elsewhere = caller("globex", "ada", Role::PlatformOperator);
    assert_eq!(world.node.schedules(&elsewhere).await.unwrap(), []);
}
