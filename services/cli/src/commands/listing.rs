//! `runs list`, `runs counts` and `dashboard`: many runs at once.

use clap::Args;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use serde_json::json;
use signalbox_proto::v1;

use super::view::RunView;
use crate::client::{Client, Dashboard, timed};
use crate::failure::Failure;
use crate::output::{Out, cost, duration, instant};

/// Most pages that are asked for to fill one: beyond that the place to go on is told.
const PAGES_MAX: usize = 64;

/// `runs list`. Options that are given must all hold; of one that is given more than once, one value must.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only runs in this status; may be given more than once.
    #[arg(long, value_name = "STATUS")]
    status: Vec<String>,
    /// Only runs in this bucket: queued, in-flight, waiting-on-human, suspended, done or attention; may be repeated.
    #[arg(long, value_name = "BUCKET")]
    bucket: Vec<String>,
    /// Only runs in this cost band: free, low, medium, high or extreme; may be repeated.
    #[arg(long, value_name = "BAND")]
    cost_band: Vec<String>,
    /// Only runs in this latency band: instant, quick, slow, long or stalled; may be repeated.
    #[arg(long, value_name = "BAND")]
    latency_band: Vec<String>,
    /// Only runs led by this agent.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Only runs led by an agent of this family.
    #[arg(long, value_name = "FAMILY")]
    family: Option<String>,
    /// Only instances of this pipeline.
    #[arg(long, value_name = "PIPELINE")]
    pipeline: Option<String>,
    /// Only runs accepted then or later: an instant (2026-11-30T08:00:00Z), a day in UTC (2026-11-30), or how long ago (90m, 2h, 7d).
    #[arg(long, value_name = "WHEN", value_parser = when)]
    since: Option<When>,
    /// Only runs accepted before then.
    #[arg(long, value_name = "WHEN", value_parser = when)]
    until: Option<When>,
    /// Only runs with this text among their ids, the beginning of their inputs, or the words they ended with.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only runs with warnings; without them: --warnings=false.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    warnings: Option<bool>,
    /// Most runs that are shown.
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    /// The token that the page before ended with.
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Whose runs.
    #[command(flatten)]
    whose: WhoseArgs,
}

/// Whose runs are meant.
#[derive(Debug, Args)]
pub(crate) struct WhoseArgs {
    /// Of all tenants, not of your own alone.
    #[arg(long)]
    pub(super) all_tenants: bool,
}

/// `runs counts`.
#[derive(Debug, Args)]
pub(crate) struct CountArgs {
    /// Only runs accepted then or later: an instant, a day, or how long ago, as in `runs list`.
    #[arg(long, value_name = "WHEN", value_parser = when)]
    since: Option<When>,
    /// Whose runs.
    #[command(flatten)]
    whose: WhoseArgs,
}

/// `dashboard`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  signalbox dashboard")]
pub(crate) struct DashboardArgs {
    /// Whose runs.
    #[command(flatten)]
    whose: WhoseArgs,
}

/// A moment as it was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Milliseconds since the Unix epoch.
    At(i64),
    /// So many milliseconds ago.
    Ago(i64),
}

impl When {
    pub(crate) fn unix_ms(self, now: Timestamp) -> i64 {
        match self {
            Self::At(ms) => ms,
            Self::Ago(ms) => now.as_millisecond().saturating_sub(ms),
        }
    }
}

/// Lists runs. Pages that the server answers short are filled up.
pub(crate) async fn list(mut client: Client, args: ListArgs, out: &mut Out) -> Result<(), Failure> {
    let now = Timestamp::now();
    let mut request = v1::ListRunsRequest {
        status: args.status,
        pipeline_id: args.pipeline.unwrap_or_default(),
        page_size: args.limit,
        page_token: args.page_token.unwrap_or_default(),
        agent_id: args.agent.unwrap_or_default(),
        family: args.family.unwrap_or_default(),
        bucket: args.bucket,
        cost_band: args.cost_band,
        latency_band: args.latency_band,
        started_after_unix_ms: args.since.map(|when| when.unix_ms(now)),
        started_before_unix_ms: args.until.map(|when| when.unix_ms(now)),
        has_warnings: args.warnings,
        text: args.text.unwrap_or_default(),
        tenant_id: String::new(),
        all_tenants: args.whose.all_tenants,
    };
    let mut runs = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = client.list_runs(timed(request.clone())).await?.into_inner();
        request.page_size = request.page_size.saturating_sub(u32::try_from(page.runs.len()).unwrap_or(u32::MAX));
        request.page_token = page.next_page_token;
        runs.extend(page.runs);
        if request.page_token.is_empty() || request.page_size == 0 {
            break;
        }
    }
    if out.is_json() {
        let views = runs.iter().map(RunView::of).collect::<Result<Vec<_>, _>>()?;
        let next = Some(request.page_token.as_str()).filter(|token| !token.is_empty());
        return out.json(&json!({ "runs": views, "nextPageToken": next }));
    }
    let headings =
        ["RUN", "STATUS", "DONE", "COST", "TOOK", "SUBMITTED", "TENANT", "PIPELINE OR AGENT", "WAITING FOR", "WARNED"];
    // A narrow terminal keeps what leads to the rest.
    let droppable = ["WARNED", "TENANT", "SUBMITTED", "PIPELINE OR AGENT", "WAITING FOR", "TOOK", "COST", "DONE"];
    out.table_with(&headings, &droppable, &runs.iter().map(row).collect::<Vec<_>>())?;
    if !request.page_token.is_empty() {
        out.line("")?;
        out.line("There are more, with the same options and")?;
        out.line(&format!("  --page-token {}", request.page_token))?;
    }
    Ok(())
}

/// How many runs are in each bucket.
pub(crate) async fn counts(mut client: Dashboard, args: CountArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::CountRunsRequest {
        tenant_id: String::new(),
        all_tenants: args.whose.all_tenants,
        started_after_unix_ms: args.since.map(|when| when.unix_ms(Timestamp::now())),
    };
    let answer = client.count_runs(timed(request)).await?.into_inner();
    if out.is_json() {
        return out.json(&json!({ "counts": views(&answer.counts) }));
    }
    buckets(&answer.counts, out)
}

/// What an operator sees at a glance: how many runs are where, and which switches are in force.
pub(crate) async fn dashboard(mut client: Dashboard, args: DashboardArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::GetSnapshotRequest { tenant_id: String::new(), all_tenants: args.whose.all_tenants };
    let shown = client.get_snapshot(timed(request)).await?.into_inner();
    if out.is_json() {
        return out.json(&json!({
            "takenAtUnixMs": shown.taken_at_unix_ms,
            "tenantId": Some(&shown.tenant_id).filter(|tenant| !tenant.is_empty()),
            "counts": views(&shown.counts),
            "activeSwitches": shown.active_switches.iter().map(SwitchView::of).collect::<Vec<_>>(),
            "governanceEpoch": shown.governance_epoch,
        }));
    }
    let whose =
        if shown.tenant_id.is_empty() { "all tenants".to_owned() } else { format!("tenant {}", shown.tenant_id) };
    out.line(&format!("{whose} at {} UTC", instant(shown.taken_at_unix_ms.saturating_mul(1_000))))?;
    out.line("")?;
    buckets(&shown.counts, out)?;
    out.line("")?;
    if shown.active_switches.is_empty() {
        return out.line("No kill switch is in force.");
    }
    let rows: Vec<Vec<String>> = shown.active_switches.iter().map(switch_row).collect();
    out.table(&["SWITCH", "STOPS", "UNTIL", "ARMED BY", "REASON"], &rows)
}

fn row(run: &v1::Run) -> Vec<String> {
    let what = if run.pipeline_id.is_empty() { &run.root_agent_id } else { &run.pipeline_id };
    vec![
        run.run_id.clone(),
        run.status.clone(),
        format!("{} %", run.percent),
        cost(run.total_cost_micros).to_string(),
        duration(run.latency_ms),
        instant(run.submitted_at_unix_micros),
        run.tenant_id.clone(),
        what.clone(),
        run.waiting_for.clone(),
        if run.has_warnings { "yes" } else { "" }.to_owned(),
    ]
}

/// A bucket and its count.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CountView<'a> {
    bucket: &'a str,
    runs: u64,
    at_least: bool,
}

fn views(counts: &[v1::BucketCount]) -> Vec<CountView<'_>> {
    counts.iter().map(|c| CountView { bucket: &c.bucket, runs: c.runs, at_least: c.at_least }).collect()
}

fn buckets(counts: &[v1::BucketCount], out: &mut Out) -> Result<(), Failure> {
    let count = |c: &v1::BucketCount| format!("{}{}", if c.at_least { "at least " } else { "" }, c.runs);
    let rows: Vec<Vec<String>> = counts.iter().map(|c| vec![c.bucket.clone(), count(c)]).collect();
    out.table(&["BUCKET", "RUNS"], &rows)
}

/// A switch in force.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SwitchView<'a> {
    switch_id: &'a str,
    scope: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    target_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tenant_id: &'a str,
    armed_by: &'a str,
    armed_at_unix_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_unix_ms: Option<i64>,
    reason: &'a str,
    user_visible_status_copy: &'a str,
}

impl<'a> SwitchView<'a> {
    fn of(switch: &'a v1::ActiveSwitch) -> Self {
        Self {
            switch_id: &switch.switch_id,
            scope: &switch.scope,
            target_id: &switch.target_id,
            tenant_id: &switch.tenant_id,
            armed_by: &switch.armed_by,
            armed_at_unix_ms: switch.armed_at_unix_ms,
            expires_at_unix_ms: switch.expires_at_unix_ms,
            reason: &switch.reason,
            user_visible_status_copy: &switch.user_visible_status_copy,
        }
    }
}

fn switch_row(switch: &v1::ActiveSwitch) -> Vec<String> {
    let target = if switch.target_id.is_empty() { String::new() } else { format!(" {}", switch.target_id) };
    let until = switch.expires_at_unix_ms.map_or_else(|| "disarmed".to_owned(), |ms| instant(ms.saturating_mul(1_000)));
    vec![
        switch.switch_id.clone(),
        format!("{}{target}", switch.scope),
        until,
        switch.armed_by.clone(),
        switch.reason.clone(),
    ]
}

/// Reads an instant, a day, or how long ago.
pub(crate) fn when(text: &str) -> Result<When, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(When::At(at.as_millisecond()));
    }
    if text.parse::<Date>().is_ok()
        && let Ok(midnight) = format!("{text}T00:00:00Z").parse::<Timestamp>()
    {
        return Ok(When::At(midnight.as_millisecond()));
    }
    let unit = text.chars().last().unwrap_or(' ');
    let unit_ms = match unit {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => 0,
    };
    let number = text.strip_suffix(unit).filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
    match number.and_then(|number| number.parse::<i64>().ok()).and_then(|number| number.checked_mul(unit_ms)) {
        Some(ms) if unit_ms > 0 => Ok(When::Ago(ms)),
        _ => {
            Err("give an instant such as 2026-11-30T08:00:00Z, a day such as 2026-11-30, or 90s, 30m, 2h, 7d"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_instant_a_day_or_how_long_ago() {
        for (text, expected) in [
            ("1970-01-01T00:00:01Z", When::At(1_000)),
            ("1970-01-02T00:00:00+01:00", When::At(82_800_000)),
            ("1970-01-02", When::At(86_400_000)),
            ("90s", When::Ago(90_000)),
            ("30m", When::Ago(1_800_000)),
            ("2h", When::Ago(7_200_000)),
            ("7d", When::Ago(604_800_000)),
        ] {
            assert_eq!(when(text), Ok(expected), "{text}");
        }
        for text in ["", "h", "-2h", "2 h", "1.5h", "yesterday", "2026-02-30", "99999999999999999d", "9é", "7w"] {
            assert!(when(text).is_err(), "{text}");
        }
        assert_eq!(When::Ago(i64::MAX).unix_ms(Timestamp::UNIX_EPOCH), -i64::MAX);
    }
}
