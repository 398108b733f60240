//! A hundred thousand runs of one tenant: no filter looks at more than its bound, and each finds what it should.

use std::time::{Duration, Instant};

use signalbox_domain::dashboard::{
    CostBand, DASHBOARD_ROWS_MAX, DashboardFilter, LatencyBand, RunBucket, STATUS_COUNT_MAX,
};
use signalbox_domain::ids::{AgentId, PipelineId, TenantId};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::directory::{Directory, SCAN_ROWS_MAX, Scope};
use signalbox_store::{PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use crate::database::Database;

const RUNS: i64 = 100_000;
/// Run n was accepted n seconds after this.
const BEGAN: i64 = 1_800_000_000_000_000;
/// Slow enough for the busiest machine; what a page looks at is bounded by the number of pages.
const PAGE_WITHIN: Duration = Duration::from_secs(2);

/// Run n has an even key, and something rare about it if n is a multiple of 20 000: a warning, a high cost, a long time, a
/// failure, a pipeline, an agent or a word of its own. All others are completed within two seconds, for nothing.
const ON_SQLITE: &str = "
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)
    INSERT INTO runs (run_key, tenant, run_id, owner_incarnation, lease_epoch, last_seq, last_hash, last_at, control_seq,
        inbox_len, wake_at_ms, parked, closed, format)
    SELECT unhex(printf('%032x', n * 2)), 'acme', unhex(printf('%032x', n * 2)), NULL, 1, 3, zeroblob(32),
        1800000000000000 + n * 1000000, 0, 0, NULL, 1, 1, 1 FROM n;
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)
    INSERT INTO run_dashboard (run_key, tenant, pipeline_id, root_agent_id, submitted_at, status, total_cost_micros, percent,
        waiting_for, open_approvals, ended_at, cost_band, slow_at_ms, warned, words)
    SELECT unhex(printf('%032x', n * 2)), 'acme', CASE WHEN n % 20000 = 5 THEN 'rare.pipeline' ELSE 'common.pipeline' END,
        CASE WHEN n % 20000 = 6 THEN 'ref.narration' ELSE 'ref.research' END, 1800000000000000 + n * 1000000,
        CASE WHEN n % 20000 = 4 THEN 'failed' ELSE 'completed' END,
        CASE WHEN n % 20000 = 2 THEN 600000000 ELSE 0 END, 100, NULL, CAST('[]' AS BLOB),
        1800000000000000 + n * 1000000 + CASE WHEN n % 20000 = 3 THEN 3600000000 ELSE 2000000 END,
        CASE WHEN n % 20000 = 2 THEN 3 ELSE 0 END, NULL, n % 20000 = 1,
        CAST(CASE WHEN n % 20000 = 7 THEN 'needle' ELSE 'hay hay hay hay hay hay hay hay hay hay' END AS BLOB) FROM n;
    ANALYZE;";

fn on_postgres() -> String {
    let key = "lpad(to_hex(n * 2), 32, '0')::uuid";
    format!(
        "INSERT INTO runs (run_key, tenant, run_id, owner_incarnation, lease_epoch, last_seq, last_hash, last_at, \
         control_seq, inbox_len, wake_at_ms, parked, closed, format) SELECT {key}, 'acme', {key}, NULL, 1, 3, decode(repeat('00', 32), 'hex'), \
         1800000000000000 + n * 1000000, 0, 0, NULL, TRUE, TRUE, 1 FROM generate_series(1::int8, 100000) AS n; \
         INSERT INTO run_dashboard (run_key, tenant, pipeline_id, root_agent_id, submitted_at, status, \
         total_cost_micros, percent, waiting_for, open_approvals, ended_at, cost_band, slow_at_ms, warned, words) \
         SELECT {key}, 'acme', CASE WHEN n % 20000 = 5 THEN 'rare.pipeline' ELSE 'common.pipeline' END, \
         CASE WHEN n % 20000 = 6 THEN 'ref.narration' ELSE 'ref.research' END, 1800000000000000 + n * 1000000, \
         CASE WHEN n % 20000 = 4 THEN 'failed' ELSE 'completed' END, \
         CASE WHEN n % 20000 = 2 THEN 600000000 ELSE 0 END, 100, NULL, '[]'::bytea, \
         1800000000000000 + n * 1000000 + CASE WHEN n % 20000 = 3 THEN 3600000000 ELSE 2000000 END, \
         CASE WHEN n % 20000 = 2 THEN 3 ELSE 0 END, NULL, n % 20000 = 1, \
         convert_to(CASE WHEN n % 20000 = 7 THEN 'needle' ELSE 'hay hay hay hay hay hay hay hay hay hay' END, 'UTF8') \
         FROM generate_series(1::int8, 100000) AS n; VACUUM ANALYZE run_dashboard; VACUUM ANALYZE runs;"
    )
}

/// A filter, how many runs it finds in all, and whether an index leads to them, so that one page holds them all.
fn filters() -> Vec<(&'static str, DashboardFilter, usize, bool)> {
    let one = DashboardFilter::default;
    let at = |n: i64| Some(UnixMs((BEGAN + n * 1_000_000) / 1_000));
    let all = DASHBOARD_ROWS_MAX;
    vec![
        ("none", one(), all, true),
        ("agent, rare", DashboardFilter { agent_id: AgentId::new("ref.narration").ok(), ..one() }, 5, true),
        ("family, rare", DashboardFilter { family: Some("narration".into()), ..one() }, 5, true),
        ("pipeline, rare", DashboardFilter { pipeline_id: PipelineId::new("rare.pipeline").ok(), ..one() }, 5, true),
        (
            "pipeline, common",
            DashboardFilter { pipeline_id: PipelineId::new("common.pipeline").ok(), ..one() },
            all,
            true,
        ),
        ("status, rare", DashboardFilter { status: vec![RunStatus::Failed], ..one() }, 5, true),
        ("status, common", DashboardFilter { status: vec![RunStatus::Completed], ..one() }, all, true),
        ("bucket, rare", DashboardFilter { bucket: vec![RunBucket::Attention], ..one() }, 5, true),
        ("bucket, none", DashboardFilter { bucket: vec![RunBucket::InFlight], ..one() }, 0, true),
        ("costBand, rare", DashboardFilter { cost_band: vec![CostBand::High], ..one() }, 5, true),
        ("costBand, common", DashboardFilter { cost_band: vec![CostBand::Free], ..one() }, all, true),
        ("costBand, none", DashboardFilter { cost_band: vec![CostBand::Medium], ..one() }, 0, false),
        ("latencyBand, rare", DashboardFilter { latency_band: vec![LatencyBand::Stalled], ..one() }, 5, true),
        ("latencyBand, common", DashboardFilter { latency_band: vec![LatencyBand::Quick], ..one() }, all, true),
        ("latencyBand, none", DashboardFilter { latency_band: vec![LatencyBand::Slow], ..one() }, 0, false),
        ("window, long ago", DashboardFilter { started_after: at(100), started_before: at(200), ..one() }, 100, true),
        ("warnings, rare", DashboardFilter { has_warnings: Some(true), ..one() }, 5, true),
        ("warnings, common", DashboardFilter { has_warnings: Some(false), ..one() }, all, true),
        ("text, rare", DashboardFilter { text: Some("NEEDLE".into()), ..one() }, 5, false),
        ("text, none", DashboardFilter { text: Some("%".into()), ..one() }, 0, false),
        (
            "text in a window",
            DashboardFilter { text: Some("needle".into()), started_after: at(1), started_before: at(50), ..one() },
            1,
            true,
        ),
        (
            "failed, of a pipeline, dear",
            DashboardFilter {
                status: vec![RunStatus::Failed],
                pipeline_id: PipelineId::new("rare.pipeline").ok(),
                cost_band: vec![CostBand::High],
                ..one()
            },
            0,
            true,
        ),
    ]
}

async fn each_filter_is_answered_within_its_bound(store: &dyn Directory, of: &str) {
    let read_at = UnixMicros(BEGAN + (RUNS + 10_000) * 1_000_000);
    let own = Scope::Tenant(TenantId::new("acme").unwrap());
    for (scope, whose) in [(&own, "one tenant"), (&Scope::AllTenants, "all tenants")] {
        for (name, mut filter, expected, is_direct) in filters() {
            let (mut found, mut pages, mut longest) = (0, 0, Duration::ZERO);
            loop {
                let began = Instant::now();
                let page = store.runs(scope, &filter, read_at).await.unwrap();
                longest = longest.max(began.elapsed());
                pages += 1;
                found += page.rows.len();
                filter.cursor = page.next;
                if page.next.is_none() || found >= DASHBOARD_ROWS_MAX {
                    break;
                }
            }
            println!("{of}, {whose}, {name}: {found} in {pages} pages, longest {longest:?}");
            assert_eq!(found, expected, "{of}, {whose}, {name}");
            assert!(longest < PAGE_WITHIN, "{of}, {whose}, {name}: a page took {longest:?}");
            let most = if is_direct && *scope == own { 1 } else { RUNS as usize / SCAN_ROWS_MAX + 1 };
            assert!(pages <= most, "{of}, {whose}, {name}: {pages} pages");
        }
        let began = Instant::now();
        let counts = store.count_runs(scope, None).await.unwrap();
        println!("{of}, {whose}, counts: {:?}", began.elapsed());
        assert_eq!(counts.of_bucket(RunBucket::Attention), 5);
        assert_eq!(counts.of_bucket(RunBucket::Done), RUNS as u64 - 5);
        assert!(began.elapsed() < 2 * PAGE_WITHIN && (RUNS as u64) <= STATUS_COUNT_MAX);
    }
}

#[tokio::test]
async fn among_a_hundred_thousand_runs_each_filter_is_answered_within_its_bound_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), SqliteOptions::default()).await.unwrap();
    let mut beside = SqliteConnectOptions::new().filename(dir.path().join("signalbox.db")).connect().await.unwrap();
    sqlx::raw_sql(ON_SQLITE).execute(&mut beside).await.unwrap();
    each_filter_is_answered_within_its_bound(&store, "SQLite").await;
}

#[tokio::test]
async fn among_a_hundred_thousand_runs_each_filter_is_answered_within_its_bound_on_postgres() {
    let database = Database::create().await;
    let store = PostgresStore::connect(&database.url(), PostgresOptions::default()).await.unwrap();
    for statement in on_postgres().split_inclusive(';') {
        database.execute(statement).await;
    }
    each_filter_is_answered_within_its_bound(&store, "PostgreSQL").await;
}
