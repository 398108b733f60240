//! Every store finds the rows that `filter_dashboard` says, in pages, and counts them.

use std::collections::BTreeSet;

use signalbox_domain::dashboard::{
    CostBand, DashboardEntry, DashboardFilter, LatencyBand, RUN_LIST_BUCKETS, RunBucket, filter_dashboard,
};
use signalbox_domain::ids::{AgentId, PipelineId, RunKey};
use signalbox_domain::run::append::{Entry, RunProjection};
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::{UnixMicros, UnixMs};
use uuid::Uuid;

use super::world::*;
use crate::clock::Clock;
use crate::directory::{RunPage, Scope};
use crate::journal::NewRun;

impl Fixture {
    async fn page(&self, scope: &Scope, filter: &DashboardFilter) -> RunPage {
        self.directory.runs(scope, filter, self.clock.now_micros()).await.unwrap()
    }

    /// All rows, through as many pages as it takes.
    async fn rows(&self, scope: &Scope, filter: &DashboardFilter) -> Vec<DashboardEntry> {
        let mut filter = filter.clone();
        let mut rows = Vec::new();
        loop {
            let page = self.page(scope, &filter).await;
            rows.extend(page.rows);
            match page.next {
                Some(next) => filter.cursor = Some(next),
                None => return rows,
            }
        }
    }
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
    fn of<T: Clone>(&mut self, some: &[T]) -> T {
        some[self.roll(some.len())].clone()
    }
    fn maybe<T: Clone>(&mut self, some: &[T]) -> Option<T> {
        (self.roll(3) == 0).then(|| self.of(some))
    }
    fn few<T: Clone>(&mut self, some: &[T]) -> Vec<T> {
        if self.roll(3) > 0 { Vec::new() } else { (0..=self.roll(3)).map(|_| self.of(some)).collect() }
    }
}

const COSTS: [i64; 7] = [0, 1, 50_000_000, 50_000_001, 600_000_000, 5_000_000_000, 5_000_000_001];
const WORDS: [&str; 5] = ["plain", "ten % of it", "a_b", "stra\u{df}e", "it's \\ here"];
const TEXTS: [&str; 7] = ["%", "_", "PLAIN", "Stra\u{df}e", "'s \\ h", "nowhere", "a"];

fn agents() -> [AgentId; 3] {
    ["ref.research", "ref.moderation-triage", "ref.narration"].map(|id| AgentId::new(id).unwrap())
}

fn pipelines() -> [PipelineId; 2] {
    ["veritas.weekly_briefing_pack", "a.b"].map(|id| PipelineId::new(id).unwrap())
}

fn thrown(dice: &mut Dice, now: UnixMs) -> RunProjection {
    RunProjection {
        status: dice.of(&RunStatus::ALL),
        total_cost_micros: dice.of(&COSTS),
        has_warnings: dice.roll(4) == 0,
        words: dice.of(&WORDS).to_owned(),
        slow_at: (dice.roll(2) == 0).then(|| now.plus_ms([-1_000, 0, 50_000][dice.roll(3)])),
        ..projection()
    }
}

/// Runs of two tenants, with pauses of every length between them, half of which have gone on since.
async fn many_runs(f: &Fixture, dice: &mut Dice) {
    for number in 1..=60 {
        let name = dice.of(&["acme", "acme", "globex"]);
        let mut run = NewRun { projection: thrown(dice, f.clock.now()), ..new_run(name, number) };
        if let RunEvent::RunSubmitted(submitted) = &mut run.events[0].event {
            submitted.root_agent_id = dice.of(&agents());
            submitted.pipeline_id = dice.maybe(&pipelines());
        }
        let head = f.create(run).await;
        f.clock.advance_ms(dice.of(&[0, 1, 1_000, 20_000, 400_000]));
        if dice.roll(2) == 0 {
            let projection = Some(thrown(dice, f.clock.now()));
            f.append(Entry { projection, ..saying(&head, "on") }).await.unwrap();
        }
    }
}

fn any_filter(dice: &mut Dice, rows: &[DashboardEntry]) -> DashboardFilter {
    let instants: Vec<_> = rows.iter().flat_map(|row| [row.started_at.ms(), row.started_at.ms().plus_ms(1)]).collect();
    DashboardFilter {
        tenant_id: dice.maybe(&["acme", "globex"]).map(tenant),
        agent_id: dice.maybe(&agents()),
        family: dice.maybe(&["research", "moderation-triage"]).map(str::to_owned),
        family_agents: dice.maybe(&[BTreeSet::new(), agents().into_iter().take(1).collect()]),
        pipeline_id: dice.maybe(&pipelines()),
        status: dice.few(&RunStatus::ALL),
        bucket: dice.few(&RUN_LIST_BUCKETS),
        cost_band: dice.few(&CostBand::ALL),
        latency_band: dice.few(&LatencyBand::ALL),
        started_after: dice.maybe(&instants),
        started_before: dice.maybe(&instants),
        has_warnings: dice.maybe(&[true, false]),
        text: dice.maybe(&TEXTS).map(str::to_owned),
        cursor: dice.maybe(rows).map(|row| row.place()),
        limit: dice.of(&[0, 1, 7, 200]),
    }
}

pub async fn every_filter_finds_what_the_rule_finds(f: &Fixture) {
    let dice = &mut Dice(7);
    many_runs(f, dice).await;
    let scopes = [Scope::AllTenants, Scope::Tenant(tenant("acme")), Scope::Tenant(tenant("globex"))];
    let all = f.rows(&Scope::AllTenants, &DashboardFilter::default()).await;
    assert_eq!(all.len(), 60);
    let mut found = 0;
    for _ in 0..600 {
        let (scope, filter) = (dice.of(&scopes), any_filter(dice, &all));
        filter.check().unwrap();
        let in_scope = all.iter().filter(|row| match &scope {
            Scope::AllTenants => true,
            Scope::Tenant(own) => row.tenant_id == *own,
            // None of the scopes above: a row does not say who submitted it.
            Scope::Submitter(..) => false,
        });
        let unlimited = DashboardFilter { limit: 0, ..filter.clone() };
        let expected: Vec<_> = filter_dashboard(in_scope, &unlimited).iter().map(|row| row.run_key).collect();
        let rows: Vec<_> = f.rows(&scope, &filter).await.iter().map(|row| row.run_key).collect();
        assert_eq!(rows, expected, "{scope:?}: {filter:?}");
        let page = f.page(&scope, &filter).await;
        assert!(page.rows.len() <= filter.rows_max(), "{filter:?}");
        found += expected.len();
    }
    assert!(found > 600, "filters that find nothing show nothing: {found}");
}

pub async fn each_field_of_a_filter_finds_its_rows_in_the_store(f: &Fixture) {
    let dice = &mut Dice(11);
    many_runs(f, dice).await;
    let all = f.rows(&Scope::AllTenants, &DashboardFilter::default()).await;
    let one = DashboardFilter::default;
    let slow = all.iter().filter(|row| row.status() == RunStatus::AwaitingTool).count();
    assert!(slow > 0, "some run has waited too long for a tool");
    let filters = [
        DashboardFilter { tenant_id: Some(tenant("globex")), ..one() },
        DashboardFilter { agent_id: Some(agents()[1].clone()), ..one() },
        DashboardFilter { family: Some("narration".into()), ..one() },
        DashboardFilter { pipeline_id: Some(pipelines()[0].clone()), ..one() },
        DashboardFilter { status: vec![RunStatus::AwaitingTool], ..one() },
        DashboardFilter { status: vec![RunStatus::Running, RunStatus::Completed], ..one() },
        DashboardFilter { bucket: vec![RunBucket::Attention], ..one() },
        DashboardFilter { cost_band: vec![CostBand::Extreme, CostBand::High, CostBand::High], ..one() },
        DashboardFilter { cost_band: vec![CostBand::Free], ..one() },
        DashboardFilter { latency_band: vec![LatencyBand::Stalled], ..one() },
        DashboardFilter { latency_band: vec![LatencyBand::Long, LatencyBand::Stalled], ..one() },
        DashboardFilter { latency_band: vec![LatencyBand::Instant, LatencyBand::Slow], ..one() },
        DashboardFilter { started_after: Some(all[30].started_at.ms()), ..one() },
        DashboardFilter { started_before: Some(all[30].started_at.ms()), ..one() },
        DashboardFilter { has_warnings: Some(true), ..one() },
        DashboardFilter { text: Some("%".into()), ..one() },
    ];
    for filter in filters {
        for scope in [Scope::AllTenants, Scope::Tenant(tenant("acme")), Scope::Tenant(tenant("globex"))] {
            let own =
                |row: &&DashboardEntry| scope == Scope::AllTenants || scope == Scope::Tenant(row.tenant_id.clone());
            let expected: Vec<_> = filter_dashboard(all.iter().filter(own), &filter).into_iter().cloned().collect();
            assert_eq!(f.rows(&scope, &filter).await, expected, "{scope:?}: {filter:?}");
        }
        assert!(!f.rows(&Scope::AllTenants, &filter).await.is_empty(), "{filter:?}");
    }
}

pub async fn a_filter_cannot_reach_beyond_its_scope(f: &Fixture) {
    f.run(1).await;
    f.create(new_run("globex", 2)).await;
    let foreign = DashboardFilter { tenant_id: Some(tenant("globex")), ..DashboardFilter::default() };
    let own = Scope::Tenant(tenant("acme"));
    assert_eq!(f.page(&own, &foreign).await, RunPage::default());
    let rows = f.rows(&own, &DashboardFilter::default()).await;
    assert!(rows.iter().all(|row| row.tenant_id == tenant("acme")) && rows.len() == 1);
    assert_eq!(f.rows(&Scope::AllTenants, &foreign).await.len(), 1);
}

pub async fn a_run_that_is_over_keeps_the_instant_of_its_end(f: &Fixture) {
    let began = f.clock.now_micros();
    let head = f.run(1).await;
    f.clock.advance_ms(2_000);
    let ended = Some(RunProjection { status: RunStatus::Killed, ..projection() });
    let head = f.append(Entry { projection: ended.clone(), ..saying(&head, "over") }).await.unwrap().head;
    f.clock.advance_ms(60_000);
    let closed = ended.map(|ended| RunProjection { closed: true, percent: 100, ..ended });
    f.append(Entry { projection: closed, ..saying(&head, "closed") }).await.unwrap();
    let rows = f.rows(&Scope::Tenant(tenant("acme")), &DashboardFilter::default()).await;
    assert_eq!(rows[0].started_at, began);
    assert_eq!(rows[0].ended_at, Some(UnixMicros(began.0 + 2_000_000)));
    assert_eq!((rows[0].latency_band(), rows[0].projection.closed), (LatencyBand::Quick, true));
    let born_dead = RunProjection { status: RunStatus::Failed, ..projection() };
    let now = f.clock.now_micros();
    f.create(NewRun { projection: born_dead, ..new_run("acme", 2) }).await;
    let rows = f.rows(&Scope::Tenant(tenant("acme")), &DashboardFilter::default()).await;
    assert_eq!(rows[0].ended_at, Some(now));
}

pub async fn words_are_found_as_bytes_whatever_is_in_them(f: &Fixture) {
    let words = "caf\u{e9}\n100 % _safe_ \\ 'quoted' \u{1f600}";
    f.create(NewRun { projection: RunProjection { words: words.into(), ..projection() }, ..new_run("acme", 1) }).await;
    f.create(NewRun { projection: RunProjection { words: "other".into(), ..projection() }, ..new_run("acme", 2) })
        .await;
    for (text, expected) in [
        ("CAF\u{c9}", 1),
        ("% _s", 1),
        ("%e", 0),
        ("s_fe", 0),
        ("\\", 1),
        ("'quoted'", 1),
        ("\u{1f600}", 1),
        ("'; DROP TABLE runs; --", 0),
        ("\u{e9}\n1", 1),
        ("\u{0}", 0),
        ("o", 2),
    ] {
        let filter = DashboardFilter { text: Some(text.into()), ..DashboardFilter::default() };
        let rows = f.rows(&Scope::Tenant(tenant("acme")), &filter).await;
        assert_eq!(rows.len(), expected, "{text:?}");
    }
    let long = DashboardFilter { text: Some("x".repeat(1 << 20)), ..DashboardFilter::default() };
    assert_eq!(f.rows(&Scope::AllTenants, &long).await, []);
}

pub async fn runs_are_counted_by_bucket_tenant_and_window(f: &Fixture) {
    for (number, status) in (1..).zip(RunStatus::ALL) {
        f.create(NewRun { projection: RunProjection { status, ..projection() }, ..new_run("acme", number) }).await;
    }
    f.clock.advance_ms(5);
    let later = f.clock.now();
    f.create(new_run("acme", 90)).await;
    f.create(new_run("globex", 91)).await;
    let counted = async |scope: Scope, after: Option<UnixMs>| {
        let counts = f.directory.count_runs(&scope, after).await.unwrap();
        assert!(counts.0.iter().all(|count| !count.at_least));
        RUN_LIST_BUCKETS.map(|bucket| counts.of_bucket(bucket))
    };
    assert_eq!(counted(Scope::Tenant(tenant("acme")), None).await, [1, 4, 2, 1, 2, 2]);
    assert_eq!(counted(Scope::AllTenants, None).await, [1, 5, 2, 1, 2, 2]);
    assert_eq!(counted(Scope::Tenant(tenant("acme")), Some(later)).await, [0, 1, 0, 0, 0, 0]);
    assert_eq!(counted(Scope::Tenant(tenant("nobody")), None).await, [0; 6]);
    assert_eq!(counted(Scope::AllTenants, Some(UnixMs(i64::MAX))).await, [0; 6]);
}

pub async fn a_cursor_is_a_place_also_where_no_run_is(f: &Fixture) {
    f.run(1).await;
    let at = f.clock.now_micros();
    f.clock.advance_ms(1);
    f.run(2).await;
    let behind = async |started_at: i64, key: u128| {
        let run_key = RunKey::new(Uuid::from_u128(key));
        let cursor = Some(signalbox_domain::dashboard::DashboardCursor { started_at: UnixMicros(started_at), run_key });
        let filter = DashboardFilter { cursor, ..DashboardFilter::default() };
        f.rows(&Scope::Tenant(tenant("acme")), &filter).await.len()
    };
    assert_eq!(behind(i64::MAX, u128::MAX).await, 2);
    assert_eq!(behind(at.0, u128::MAX).await, 1);
    assert_eq!(behind(at.0, 0).await, 0);
    assert_eq!(behind(i64::MIN, 0).await, 0);
}
