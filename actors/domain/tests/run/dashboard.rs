//! Rows of the dashboard: buckets, bands, words and the filter (DSH-001 to DSH-005).

use serde_json::json;
use signalbox_domain::dashboard::{
    CostBand, DASHBOARD_ROWS_MAX, DASHBOARD_TEXT_BYTES_MAX, DASHBOARD_WORDS_BYTES_MAX, DashboardEntry, DashboardFilter,
    LatencyBand, RUN_LIST_BUCKETS, RunBucket, RunCounts, STATUS_COUNT_MAX, bucket_for_status, cost_band_for,
    dashboard_words, filter_dashboard, latency_band_for,
};
use signalbox_domain::governance::gate::Admissible;
use signalbox_domain::ids::{AgentId, BudgetId, PipelineId, RunId, RunKey, TenantId};
use signalbox_domain::quantity::{Micros, Usage};
use signalbox_domain::run::advance::projection;
use signalbox_domain::run::append::RunProjection;
use signalbox_domain::run::call::admit;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{BudgetWarning, GovernanceAudited, RunEvent};
use signalbox_domain::run::evolve::evolve;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::{UnixMicros, UnixMs};
use uuid::Uuid;

use crate::given::{Story, answered, failed, kill, tool};
use crate::golden::every_event;

const SECOND: i64 = 1_000_000;
const READ_AT: UnixMicros = UnixMicros(1_000_000 * SECOND);

fn row(number: u128) -> DashboardEntry {
    DashboardEntry {
        run_key: RunKey::new(Uuid::from_u128(number)),
        run_id: RunId::new(Uuid::from_u128(number + 1_000)),
        tenant_id: TenantId::new("acme").unwrap(),
        root_agent_id: AgentId::new("ref.research").unwrap(),
        pipeline_id: None,
        started_at: UnixMicros(READ_AT.0 - 5 * SECOND),
        ended_at: None,
        last_seq: 3,
        last_at: READ_AT,
        read_at: READ_AT,
        projection: RunProjection {
            status: RunStatus::Running,
            closed: false,
            total_cost_micros: 0,
            percent: 0,
            waiting_for: None,
            wake_at: None,
            slow_at: None,
            has_warnings: false,
            words: String::new(),
            open_approvals: vec![],
            killed_by: None,
        },
    }
}

fn with(number: u128, change: impl FnOnce(&mut DashboardEntry)) -> DashboardEntry {
    let mut row = row(number);
    change(&mut row);
    row
}

fn found(rows: &[DashboardEntry], filter: &DashboardFilter) -> Vec<u128> {
    filter_dashboard(rows, filter).iter().map(|row| row.run_key.uuid().as_u128()).collect()
}

#[test]
fn each_of_the_eleven_statuses_is_in_one_of_six_buckets() {
    let table = [
        ("queued", "queued"),
        ("starting", "in-flight"),
        ("running", "in-flight"),
        ("awaiting_tool", "in-flight"),
        ("awaiting_approval", "waiting-on-human"),
        ("awaiting_branch_selection", "waiting-on-human"),
        ("paused", "suspended"),
        ("completed", "done"),
        ("cancelled", "done"),
        ("failed", "attention"),
        ("killed", "attention"),
    ];
    assert_eq!(table.len(), RunStatus::ALL.len());
    for (status, bucket) in table {
        assert_eq!(bucket_for_status(RunStatus::parse(status).unwrap()).as_str(), bucket, "{status}");
        assert_eq!(RunBucket::parse(bucket).map(RunBucket::as_str), Some(bucket));
    }
    let names = RUN_LIST_BUCKETS.map(RunBucket::as_str);
    assert_eq!(names, ["queued", "in-flight", "waiting-on-human", "suspended", "done", "attention"]);
    assert_eq!(serde_json::to_value(RUN_LIST_BUCKETS).unwrap(), json!(names));
    assert_eq!(RunBucket::parse("nowhere"), None);
}

#[test]
fn a_cost_belongs_to_the_band_whose_bound_it_does_not_pass() {
    let table = [
        (0, "free"),
        (1, "low"),
        (50_000_000, "low"),
        (50_001_000, "medium"),
        (500_000_000, "medium"),
        (500_000_001, "high"),
        (5_000_000_000, "high"),
        (5_000_001_000, "extreme"),
        (i64::MAX, "extreme"),
        (i64::MIN, "free"),
    ];
    for (micros, band) in table {
        assert_eq!(cost_band_for(Micros(micros)).as_str(), band, "{micros}");
    }
    for band in CostBand::ALL {
        assert_eq!((CostBand::parse(band.as_str()), json!(band)), (Some(band), json!(band.as_str())));
    }
    assert_eq!(CostBand::parse("cheap"), None);
}

#[test]
fn a_wall_time_belongs_to_the_band_whose_bound_it_does_not_pass() {
    let table = [
        (0, "instant"),
        (1_500, "instant"),
        (1_501, "quick"),
        (10_000, "quick"),
        (10_001, "slow"),
        (120_000, "slow"),
        (120_001, "long"),
        (1_800_000, "long"),
        (1_800_001, "stalled"),
        (u64::MAX, "stalled"),
    ];
    for (ms, band) in table {
        assert_eq!(latency_band_for(ms).as_str(), band, "{ms}");
    }
    for band in LatencyBand::ALL {
        let (from, to) = band.ms_range();
        assert_eq!(latency_band_for(from), band);
        assert_eq!(to.map(|to| (latency_band_for(to - 1), latency_band_for(to) > band)), to.map(|_| (band, true)));
        assert_eq!((LatencyBand::parse(band.as_str()), json!(band)), (Some(band), json!(band.as_str())));
    }
}

#[test]
fn a_live_run_moves_through_the_latency_bands_and_one_that_is_over_stays_in_its_own() {
    let live = |seconds: i64| with(1, |row| row.started_at = UnixMicros(READ_AT.0 - seconds * SECOND)).latency_band();
    assert_eq!([1, 5, 60, 600, 3_600].map(live), LatencyBand::ALL);
    let over = with(1, |row| {
        row.started_at = UnixMicros(READ_AT.0 - 3_600 * SECOND);
        row.ended_at = Some(UnixMicros(row.started_at.0 + SECOND));
    });
    assert_eq!((over.latency_ms(), over.latency_band()), (1_000, LatencyBand::Instant));
    let clock_set_back = with(1, |row| row.started_at = UnixMicros(READ_AT.0 + SECOND));
    assert_eq!(clock_set_back.latency_ms(), 0);
}

#[test]
fn a_run_that_waits_for_a_tool_is_shown_so_although_nothing_is_written_then() {
    let mut story = Story::started(vec![tool("a", &[])]);
    story.call("a");
    let shown = projection(&story.run);
    assert_eq!(shown.status, RunStatus::Running);
    let slow_at = shown.slow_at.unwrap();
    for ms in [-1, 0, 1] {
        let read_at = slow_at.plus_ms(ms);
        let entry = DashboardEntry { projection: shown.clone(), read_at: read_at.micros(), ..row(1) };
        assert_eq!(entry.status(), story.run.status_at(read_at), "{ms} ms after");
        assert_eq!(entry.bucket(), RunBucket::InFlight);
        assert_eq!(entry.waiting_for().is_some(), ms >= 0);
    }
    // Of two calls the younger decides, and a step that can begin keeps the run running.
    let mut two = Story::started(vec![tool("a", &[]), tool("b", &[])]);
    two.call("a");
    assert_eq!(projection(&two.run).slow_at, None);
    two.after_ms(1_000);
    two.call("b");
    let slow_at = projection(&two.run).slow_at.unwrap();
    assert_eq!(two.run.status_at(slow_at.plus_ms(-1)), RunStatus::Running);
    assert_eq!(two.run.status_at(slow_at), RunStatus::AwaitingTool);
}

/// Seven rows, the last the newest, each with something of its own.
fn rows() -> Vec<DashboardEntry> {
    let started = |number: i64| UnixMicros(READ_AT.0 - (100 - number) * SECOND);
    let mut rows = vec![
        with(1, |row| row.tenant_id = TenantId::new("globex").unwrap()),
        with(2, |row| row.root_agent_id = AgentId::new("ref.moderation-triage").unwrap()),
        with(3, |row| row.pipeline_id = Some(PipelineId::new("veritas.weekly_briefing_pack").unwrap())),
        with(4, |row| row.projection.status = RunStatus::AwaitingApproval),
        with(5, |row| row.projection.total_cost_micros = 600_000_000),
        with(6, |row| row.projection.has_warnings = true),
        with(7, |row| row.projection.words = "straße\nfifty % of _all_".to_owned()),
    ];
    for (number, row) in (1..).zip(&mut rows) {
        row.started_at = started(number);
    }
    rows[2].ended_at = Some(UnixMicros(rows[2].started_at.0 + SECOND));
    rows[2].projection.status = RunStatus::Completed;
    rows
}

#[test]
fn each_field_of_the_filter_narrows_by_itself() {
    let rows = rows();
    let all = DashboardFilter::default();
    let started_ms = |number: i64| Some(UnixMs((READ_AT.0 - (100 - number) * SECOND) / 1_000));
    assert_eq!(found(&rows, &all), [7, 6, 5, 4, 3, 2, 1]);
    let cases: Vec<(&str, DashboardFilter, Vec<u128>)> = vec![
        ("tenantId", DashboardFilter { tenant_id: Some(TenantId::new("globex").unwrap()), ..all.clone() }, vec![1]),
        ("agentId", DashboardFilter { agent_id: AgentId::new("ref.moderation-triage").ok(), ..all.clone() }, vec![2]),
        ("family", DashboardFilter { family: Some("moderation-triage".into()), ..all.clone() }, vec![2]),
        ("pipelineId", DashboardFilter { pipeline_id: rows[2].pipeline_id.clone(), ..all.clone() }, vec![3]),
        ("status", DashboardFilter { status: vec![RunStatus::AwaitingApproval], ..all.clone() }, vec![4]),
        ("status", DashboardFilter { status: vec![RunStatus::Completed, RunStatus::Killed], ..all.clone() }, vec![3]),
        (
            "bucket",
            DashboardFilter { bucket: vec![RunBucket::WaitingOnHuman, RunBucket::Done], ..all.clone() },
            vec![4, 3],
        ),
        ("costBand", DashboardFilter { cost_band: vec![CostBand::High, CostBand::Extreme], ..all.clone() }, vec![5]),
        ("latencyBand", DashboardFilter { latency_band: vec![LatencyBand::Instant], ..all.clone() }, vec![3]),
        ("startedAfter", DashboardFilter { started_after: started_ms(6), ..all.clone() }, vec![7, 6]),
        ("startedBefore", DashboardFilter { started_before: started_ms(3), ..all.clone() }, vec![2, 1]),
        ("hasWarnings", DashboardFilter { has_warnings: Some(true), ..all.clone() }, vec![6]),
        ("hasWarnings", DashboardFilter { has_warnings: Some(false), limit: 2, ..all.clone() }, vec![7, 5]),
        ("text", DashboardFilter { text: Some("STRASSE".into()), ..all.clone() }, vec![]),
        ("text", DashboardFilter { text: Some("Straße".into()), ..all.clone() }, vec![7]),
        ("text", DashboardFilter { text: Some("% of _".into()), ..all.clone() }, vec![7]),
        ("text", DashboardFilter { text: Some("%".into()), ..all.clone() }, vec![7]),
        ("cursor", DashboardFilter { cursor: Some(rows[2].place()), ..all.clone() }, vec![2, 1]),
        ("limit", DashboardFilter { limit: 1, ..all.clone() }, vec![7]),
    ];
    for (field, filter, expected) in cases {
        assert_eq!(filter.check(), Ok(()), "{field}");
        assert_eq!(found(&rows, &filter), expected, "{field}: {filter:?}");
    }
}

#[test]
fn fields_combine_by_and_and_lists_by_or() {
    let rows = rows();
    let both = DashboardFilter {
        bucket: vec![RunBucket::InFlight, RunBucket::Done],
        status: vec![RunStatus::Running, RunStatus::AwaitingApproval],
        agent_id: AgentId::new("ref.research").ok(),
        family: Some("research".into()),
        tenant_id: TenantId::new("acme").ok(),
        cost_band: vec![CostBand::Free, CostBand::High],
        latency_band: vec![LatencyBand::Slow],
        has_warnings: Some(false),
        ..DashboardFilter::default()
    };
    assert_eq!(found(&rows, &both), [7, 5]);
    let of_another_family = DashboardFilter { family: Some("moderation-triage".into()), ..both.clone() };
    assert_eq!((of_another_family.agents(), found(&rows, &of_another_family)), (Some(vec![]), vec![]));
    let known = ["ref.research", "acme.digger"].map(|id| AgentId::new(id).unwrap()).into();
    let registered = DashboardFilter { family_agents: Some(known), agent_id: None, ..both.clone() };
    assert_eq!(registered.agents().unwrap().len(), 2, "who is of a family says the registry");
    assert_eq!(found(&rows, &registered), [7, 5]);
    let nowhere = DashboardFilter { status: vec![RunStatus::Killed], bucket: vec![RunBucket::Done], ..both };
    assert_eq!((nowhere.statuses(), found(&rows, &nowhere)), (Some(vec![]), vec![]));
}

#[test]
fn pages_follow_each_other_without_gap_or_repeat_also_within_one_instant() {
    let rows: Vec<_> = (1..=7).map(row).collect();
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let page = DashboardFilter { limit: 3, cursor, ..DashboardFilter::default() };
        let found = filter_dashboard(&rows, &page);
        let Some(last) = found.last() else { break };
        cursor = Some(last.place());
        seen.extend(found.iter().map(|row| row.run_key.uuid().as_u128()));
    }
    assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn a_filter_that_cannot_be_meant_is_refused_with_its_field() {
    let refused = |filter: DashboardFilter| filter.check().map_err(|error| (error.field(), error.code())).unwrap_err();
    let text = |text: &str| DashboardFilter { text: Some(text.to_owned()), ..DashboardFilter::default() };
    assert_eq!(refused(text("")), ("text", "text-empty"));
    assert_eq!(refused(text("a\u{0}b")), ("text", "text-invalid"));
    assert_eq!(refused(text("a\nb")), ("text", "text-invalid"));
    assert_eq!(refused(text(&"x".repeat(1 << 20))), ("text", "text-too-long"));
    assert_eq!(text(&"x".repeat(DASHBOARD_TEXT_BYTES_MAX)).check(), Ok(()));
    let family = DashboardFilter { family: Some("x".repeat(1 << 20)), ..DashboardFilter::default() };
    let error = family.check().unwrap_err();
    assert_eq!((error.field(), error.code()), ("family", "family-unknown"));
    assert!(error.to_string().len() < 100, "an error does not repeat a megabyte");
    let limit = DashboardFilter { limit: DASHBOARD_ROWS_MAX + 1, ..DashboardFilter::default() };
    assert_eq!(refused(limit), ("limit", "page-size-invalid"));
}

#[test]
fn instants_at_the_end_of_the_range_do_not_wrap_around() {
    let rows = rows();
    let window = |after, before| DashboardFilter {
        started_after: Some(UnixMs(after)),
        started_before: Some(UnixMs(before)),
        ..DashboardFilter::default()
    };
    assert_eq!(found(&rows, &window(i64::MIN, i64::MAX)).len(), 7);
    assert_eq!(found(&rows, &window(i64::MAX, i64::MIN)), [0; 0]);
}

#[test]
fn until_a_run_ends_no_event_changes_its_words() {
    let story = Story::started(vec![tool("a", &[]), tool("b", &[])]);
    let words = dashboard_words(&story.run);
    for event in every_event() {
        let mut run = RunEnvelope::clone(&story.run);
        evolve(&mut run, UnixMicros(1), &event);
        if run.end.is_none() {
            assert_eq!(dashboard_words(&run), words, "{}", event.encode().0);
        }
    }
}

#[test]
fn the_words_of_a_run_are_bounded_folded_and_without_secrets() {
    let mut story = Story::queued(vec![tool("a", &[])]);
    story.run.inputs = std::sync::Arc::new(json!({
        "topic": "Größte Leuchttürme\u{0}of the coast",
        "note": "my key is sk-FAKE1234567890abcdefghijklmnop1234567890",
        "nested": [[{"deep": "Sirius"}], 7, null],
        "long": "ü".repeat(10_000),
    }));
    let words = dashboard_words(&story.run);
    assert!(words.len() <= DASHBOARD_WORDS_BYTES_MAX, "{}", words.len());
    for word in ["größte leuchttürme\nof the coast", "sirius", "research", &story.run.run_id.to_string()] {
        assert!(words.contains(word), "{word} in {words}");
    }
    assert!(!words.contains("sk-fake") && !words.contains('\u{0}'), "{words}");
    story.run.inputs = std::sync::Arc::new(json!(vec!["x".repeat(300); 1_000]));
    assert!(dashboard_words(&story.run).len() <= DASHBOARD_WORDS_BYTES_MAX);
}

#[test]
fn a_run_is_found_by_the_code_it_ended_with() {
    let mut story = Story::started(vec![tool("a", &[])]);
    assert_eq!(projection(&story.run).words, dashboard_words(&story.run));
    story.does("a", failed("egress-denied"));
    assert!(projection(&story.run).words.contains("egress-denied"));
}

#[test]
fn a_budget_that_comes_near_its_limit_is_a_warning_for_good() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &["a"])]);
    assert!(!projection(&story.run).has_warnings);
    let prepared = story.prepared("a");
    let warning =
        BudgetWarning { budget_id: BudgetId::new("b").unwrap(), verdict: "warn".into(), grace_end_unix_seconds: None };
    let admissible = Admissible { budget_warnings: vec![warning], ..story.admissible(&prepared) };
    let ask = admit(&prepared, &admissible, story.now);
    story.asked(ask);
    assert!(projection(&story.run).has_warnings);
    let call = story.run.open_calls().next().unwrap().call_id;
    story.end(call, answered(json!(1)));
    story.does("b", answered(json!(1)));
    assert!(projection(&story.run).has_warnings, "also once the run is over");

    let mut other = Story::started(vec![tool("a", &[])]);
    let call_id = other.call("a");
    other.command(kill()).unwrap();
    assert!(!projection(&other.run).has_warnings, "a kill is no budget");
    let audit = GovernanceAudited::Overshoot { call_id, beyond: Usage::none(), detail: "more than its ceiling".into() };
    other.force(RunEvent::GovernanceAudited(Box::new(audit)));
    assert!(projection(&other.run).has_warnings);
}

#[test]
fn counts_are_one_for_each_bucket_and_say_where_they_stop() {
    let counts = RunCounts::of(&[
        (RunStatus::Running, 2),
        (RunStatus::AwaitingTool, 3),
        (RunStatus::Completed, STATUS_COUNT_MAX),
        (RunStatus::Failed, 1),
    ]);
    let shown: Vec<_> = counts.0.iter().map(|count| (count.bucket.as_str(), count.runs, count.at_least)).collect();
    assert_eq!(
        shown,
        [
            ("queued", 0, false),
            ("in-flight", 5, false),
            ("waiting-on-human", 0, false),
            ("suspended", 0, false),
            ("done", STATUS_COUNT_MAX, true),
            ("attention", 1, false),
        ]
    );
    assert_eq!(counts.of_bucket(RunBucket::InFlight), 5);
}
