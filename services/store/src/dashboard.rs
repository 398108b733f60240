//! Which rows of the dashboard a filter asks for, as SQL that both databases speak.
//!
//! A page is found in two steps. First an index alone says how far [`SCAN_ROWS_MAX`] of its entries reach: the floor. Then the
//! rows between the cursor and the floor are read in the order of that index, each held against the whole filter, until the
//! page is full. So no filter, however rare what it asks for, looks at more rows than that, and what it did not reach it
//! names as the place to go on.
//!
//! An index that holds little but what is asked for is preferred: that of a status, an agent, a pipeline, of warnings, of high
//! costs, of long runs. Where several of its ranges are wanted (two statuses), each is a branch, and the branches are merged.

use signalbox_domain::dashboard::{
    CostBand, DashboardCursor, DashboardFilter, LatencyBand, RunCounts, STATUS_COUNT_MAX,
};
use signalbox_domain::ids::{RunKey, TenantId};
use signalbox_domain::run::append::RunProjection;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::directory::{RunPage, SCAN_ROWS_MAX, Scope};
use uuid::Uuid;

use crate::cells::Cells;
use crate::rows::{int, listed_run, readable};

/// Which database it is written for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// An argument of a statement.
#[derive(Debug, Clone)]
pub(crate) enum Arg {
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    Id(Uuid),
}

/// A statement and its arguments, in order.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) args: Vec<Arg>,
    dialect: Dialect,
}

/// One range of one index.
#[derive(Debug, Clone)]
enum Branch {
    /// Every run in scope.
    All,
    Status(RunStatus),
    Agent(String),
    Pipeline(String),
    Warned,
    Cost(CostBand),
    /// Over, and longer than two minutes.
    TookLong,
}

/// A question, ready to be put to a database.
#[derive(Debug)]
pub(crate) struct Question<'f> {
    dialect: Dialect,
    scope: &'f Scope,
    filter: &'f DashboardFilter,
    read_at: UnixMicros,
    branches: Vec<Branch>,
}

/// The columns that [`Question::page`] reads.
const COLUMNS: &str = "d.*, r.run_id, r.last_seq, r.last_at, r.closed, r.wake_at_ms";
/// Beyond this a run that is over is in the index of long ones: the first microsecond of the band `long`. Written out, because
/// a partial index is used only where its own words are said again.
const TOOK_LONG: &str = "ended_at - submitted_at >= 120001000";
const NEWEST_FIRST: &str = " ORDER BY submitted_at DESC, run_key DESC LIMIT ";

impl<'f> Question<'f> {
    /// `None` if no run can be among those asked for.
    pub(crate) fn of(
        dialect: Dialect,
        scope: &'f Scope,
        filter: &'f DashboardFilter,
        read_at: UnixMicros,
    ) -> Option<Self> {
        let branches = branches(scope, filter)?;
        Some(Self { dialect, scope, filter, read_at, branches })
    }

    /// Where the last of so many entries lies in the indexes that are walked; no row if they end before.
    pub(crate) fn floor(&self) -> Statement {
        let mut statement = Statement::new(self.dialect);
        self.each_branch(&mut statement, |statement, branch| {
            statement.push("SELECT d.submitted_at, d.run_key FROM run_dashboard AS d WHERE ");
            self.push_range(statement, branch);
            statement.push(NEWEST_FIRST);
            statement.push("1 OFFSET ").bind(Arg::Int(int(SCAN_ROWS_MAX as u64 - 1)));
        });
        // Of several branches the one that reaches least far is the end for all.
        statement.push(NEWEST_FIRST).push("1");
        statement
    }

    /// The rows of the page, and one more if there is any.
    pub(crate) fn page(&self, floor: Option<DashboardCursor>) -> Statement {
        let limit = int(self.filter.rows_max() as u64 + 1);
        let mut statement = Statement::new(self.dialect);
        self.each_branch(&mut statement, |statement, branch| {
            statement.push("SELECT ").push(COLUMNS);
            statement.push(" FROM run_dashboard AS d JOIN runs AS r ON r.run_key = d.run_key WHERE ");
            self.push_range(statement, branch);
            if let Some(floor) = floor {
                statement.push(" AND (d.submitted_at, d.run_key) >= ");
                statement.bind_place(floor);
            }
            self.push_filter(statement);
            statement.push(" ORDER BY d.submitted_at DESC, d.run_key DESC LIMIT ").bind(Arg::Int(limit));
        });
        statement.push(NEWEST_FIRST).bind(Arg::Int(limit));
        statement
    }

    /// The page that the rows make. One that cannot be read must not hide the others.
    pub(crate) fn answer(&self, rows: &[impl Cells], floor: Option<DashboardCursor>) -> RunPage {
        let most = self.filter.rows_max();
        let next = if rows.len() > most { rows.get(most - 1).and_then(|row| place(row).ok()) } else { floor };
        let kept = rows.iter().take(most);
        RunPage { rows: kept.filter_map(|row| readable("a run", listed_run(row, self.read_at))).collect(), next }
    }

    fn each_branch(&self, statement: &mut Statement, push: impl Fn(&mut Statement, &Branch)) {
        statement.push("SELECT * FROM (");
        for (number, branch) in self.branches.iter().enumerate() {
            if number > 0 {
                statement.push(" UNION ALL ");
            }
            statement.push("SELECT * FROM (");
            push(statement, branch);
            statement.push(") AS branch");
        }
        statement.push(") AS merged");
    }

    /// What an index can tell: whose, of which kind, in which window, behind which cursor.
    fn push_range(&self, statement: &mut Statement, branch: &Branch) {
        match branch {
            Branch::All => statement.push("TRUE"),
            Branch::Status(status) => statement.push("d.status = ").bind(Arg::Text(status.as_str().to_owned())),
            Branch::Agent(agent) => statement.push("d.root_agent_id = ").bind(Arg::Text(agent.clone())),
            Branch::Pipeline(pipeline) => statement.push("d.pipeline_id = ").bind(Arg::Text(pipeline.clone())),
            Branch::Warned => statement.push("d.warned"),
            // The bound of the partial index stands there in its own words.
            Branch::Cost(band) => {
                statement.push("d.cost_band >= 3 AND d.cost_band = ").bind(Arg::Int(i64::from(band.rank())))
            }
            Branch::TookLong => statement.push("d.").push(&TOOK_LONG.replace("- ", "- d.")),
        };
        if let Some(tenant) = self.scope.tenant() {
            statement.push(" AND d.tenant = ").bind(Arg::Text(tenant.to_string()));
        }
        if let Some(actor) = self.scope.submitter() {
            statement.push(" AND d.submitted_by = ").bind(Arg::Text(actor.to_string()));
        }
        if let Some(after) = self.filter.started_after {
            statement.push(" AND d.submitted_at >= ").bind(Arg::Int(after.micros().0));
        }
        if let Some(before) = self.filter.started_before.map(UnixMs::micros).into_iter().chain(self.latest()).min() {
            statement.push(" AND d.submitted_at < ").bind(Arg::Int(before.0));
        }
        if let Some(cursor) = self.filter.cursor {
            statement.push(" AND (d.submitted_at, d.run_key) < ");
            statement.bind_place(cursor);
        }
    }

    /// What takes long has begun long ago, whether it is over or not.
    fn latest(&self) -> Option<UnixMicros> {
        let (least_ms, _) = self.filter.latency_band.iter().min()?.ms_range();
        let least = i64::try_from(least_ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        (least > 0).then(|| UnixMicros(self.read_at.0.saturating_sub(least).saturating_add(1)))
    }

    /// Everything else.
    fn push_filter(&self, statement: &mut Statement) {
        let filter = self.filter;
        if let Some(tenant) = &filter.tenant_id {
            statement.push(" AND d.tenant = ").bind(Arg::Text(tenant.to_string()));
        }
        if let Some(agents) = filter.agents() {
            let agents = agents.iter().map(|agent| Arg::Text(agent.to_string()));
            statement.push(" AND d.root_agent_id IN (").bind_all(agents).push(")");
        }
        if let Some(pipeline) = &filter.pipeline_id {
            statement.push(" AND d.pipeline_id = ").bind(Arg::Text(pipeline.to_string()));
        }
        if let Some(statuses) = filter.statuses() {
            statement.push(" AND CASE WHEN d.status = 'running' AND d.slow_at_ms <= ");
            statement.bind(Arg::Int(self.read_at.ms().0));
            statement.push(" THEN 'awaiting_tool' ELSE d.status END IN (");
            statement.bind_all(statuses.iter().map(|status| Arg::Text(status.as_str().to_owned()))).push(")");
        }
        if !filter.cost_band.is_empty() {
            let bands = filter.cost_band.iter().map(|band| Arg::Int(i64::from(band.rank())));
            statement.push(" AND d.cost_band IN (").bind_all(bands).push(")");
        }
        self.push_latency(statement);
        match filter.has_warnings {
            Some(true) => statement.push(" AND d.warned"),
            Some(false) => statement.push(" AND NOT d.warned"),
            None => statement,
        };
        if let Some(needle) = filter.needle() {
            // Bytes within bytes: a `%` or a `_` is what it is.
            match self.dialect {
                Dialect::Sqlite => statement.push(" AND instr(d.words, ").bind(Arg::Bytes(needle.into())),
                Dialect::Postgres => {
                    statement.push(" AND position(").bind(Arg::Bytes(needle.into())).push(" IN d.words")
                }
            };
            statement.push(") > 0");
        }
    }

    fn push_latency(&self, statement: &mut Statement) {
        for (number, band) in self.filter.latency_band.iter().enumerate() {
            statement.push(if number == 0 { " AND (" } else { " OR " });
            let (from, to) = band.ms_range();
            let micros = |ms: u64| Arg::Int(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000));
            let ends = [(" >= ", Some(from).filter(|from| *from > 0)), (" < ", to)];
            let ends: Vec<_> = ends.into_iter().filter_map(|(compare, end)| Some((compare, end?))).collect();
            for (part, (compare, end)) in ends.into_iter().enumerate() {
                statement.push(if part == 0 { "(" } else { " AND " });
                statement.push("COALESCE(d.ended_at, ").bind(Arg::Int(self.read_at.0)).push(") - d.submitted_at");
                statement.push(compare).bind(micros(end));
            }
            statement.push(")");
        }
        if !self.filter.latency_band.is_empty() {
            statement.push(")");
        }
    }
}

/// How many runs of each status there are.
pub(crate) fn counts(dialect: Dialect, scope: &Scope, started_after: Option<UnixMs>) -> Statement {
    let mut statement = Statement::new(dialect);
    for (number, status) in RunStatus::ALL.into_iter().enumerate() {
        if number > 0 {
            statement.push(" UNION ALL ");
        }
        statement.push("SELECT '").push(status.as_str()).push("' AS status, count(*) AS runs FROM (");
        statement.push("SELECT 1 FROM run_dashboard WHERE status = ").bind(Arg::Text(status.as_str().to_owned()));
        if let Some(tenant) = scope.tenant() {
            statement.push(" AND tenant = ").bind(Arg::Text(tenant.to_string()));
        }
        if let Some(actor) = scope.submitter() {
            statement.push(" AND submitted_by = ").bind(Arg::Text(actor.to_string()));
        }
        if let Some(after) = started_after {
            statement.push(" AND submitted_at >= ").bind(Arg::Int(after.micros().0));
        }
        statement.push(" LIMIT ").bind(Arg::Int(int(STATUS_COUNT_MAX))).push(") AS counted");
    }
    statement
}

/// The counts that the rows make.
pub(crate) fn counted(rows: &[impl Cells]) -> RunCounts {
    let count = |row: &_| {
        let status = Cells::text(row, "status").ok().and_then(RunStatus::parse)?;
        Some((status, u64::try_from(Cells::int(row, "runs").ok()?).ok()?))
    };
    RunCounts::of(&rows.iter().filter_map(count).collect::<Vec<_>>())
}

/// A place in the list.
pub(crate) fn place(row: &impl Cells) -> Result<DashboardCursor, String> {
    Ok(DashboardCursor { started_at: UnixMicros(row.int("submitted_at")?), run_key: RunKey::new(row.id("run_key")?) })
}

/// The band of a cost, as the dashboard keeps it.
pub(crate) fn cost_band(projection: &RunProjection) -> i64 {
    let cost = signalbox_domain::quantity::Micros(projection.total_cost_micros);
    i64::from(signalbox_domain::dashboard::cost_band_for(cost).rank())
}

/// When a run ended, if this is what it was written with.
pub(crate) fn ended_at(projection: &RunProjection, last_at: UnixMicros) -> Option<i64> {
    projection.status.is_terminal().then_some(last_at.0)
}

/// The ranges to walk, or `None` if what is asked for excludes itself.
fn branches(scope: &Scope, filter: &DashboardFilter) -> Option<Vec<Branch>> {
    let (statuses, agents) = (filter.statuses(), filter.agents());
    let nothing = |list: &Option<Vec<_>>| list.as_ref().is_some_and(Vec::is_empty);
    let outside = |tenant: &TenantId| scope.tenant().is_some_and(|own| own != tenant);
    let none_of_family = agents.as_ref().is_some_and(Vec::is_empty);
    if nothing(&statuses) || none_of_family || filter.tenant_id.as_ref().is_some_and(outside) {
        return None;
    }
    if *scope == Scope::AllTenants {
        return Some(vec![Branch::All]);
    }
    let stored = statuses.map(|statuses| stored_statuses(&statuses));
    let of_statuses = |stored: Vec<RunStatus>| stored.into_iter().map(Branch::Status).collect();
    let long = |band: &LatencyBand| *band >= LatencyBand::Long;
    Some(match stored {
        // Most runs are completed, and few are anything else.
        Some(stored) if !stored.contains(&RunStatus::Completed) => of_statuses(stored),
        _ if filter.has_warnings == Some(true) => vec![Branch::Warned],
        _ if !filter.cost_band.is_empty() && filter.cost_band.iter().all(|band| *band >= CostBand::High) => {
            let mut bands = filter.cost_band.clone();
            bands.sort_unstable();
            bands.dedup();
            bands.into_iter().map(Branch::Cost).collect()
        }
        _ if !filter.latency_band.is_empty() && filter.latency_band.iter().all(long) => {
            let live = RunStatus::ALL.into_iter().filter(|status| !status.is_terminal());
            live.map(Branch::Status).chain([Branch::TookLong]).collect()
        }
        stored => match (agents, &filter.pipeline_id, stored) {
            (_, Some(pipeline), _) => vec![Branch::Pipeline(pipeline.to_string())],
            (Some(agents), None, _) => agents.iter().map(|agent| Branch::Agent(agent.to_string())).collect(),
            (None, None, Some(stored)) => of_statuses(stored),
            (None, None, None) => vec![Branch::All],
        },
    })
}

/// The statuses as they are written: a run that waits for a tool may stand there as running.
fn stored_statuses(statuses: &[RunStatus]) -> Vec<RunStatus> {
    let waits = statuses.contains(&RunStatus::AwaitingTool);
    let is_asked = |status: &RunStatus| statuses.contains(status) || (waits && *status == RunStatus::Running);
    RunStatus::ALL.into_iter().filter(is_asked).collect()
}

impl Statement {
    const fn new(dialect: Dialect) -> Self {
        Self { sql: String::new(), args: Vec::new(), dialect }
    }

    fn push(&mut self, sql: &str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    fn bind(&mut self, arg: Arg) -> &mut Self {
        self.args.push(arg);
        match self.dialect {
            Dialect::Sqlite => self.sql.push('?'),
            Dialect::Postgres => self.sql.push_str(&format!("${}", self.args.len())),
        }
        self
    }

    fn bind_all(&mut self, args: impl Iterator<Item = Arg>) -> &mut Self {
        for (number, arg) in args.enumerate() {
            if number > 0 {
                self.push(", ");
            }
            self.bind(arg);
        }
        self
    }

    fn bind_place(&mut self, place: DashboardCursor) {
        self.push("(").bind(Arg::Int(place.started_at.0)).push(", ").bind(Arg::Id(place.run_key.uuid())).push(")");
    }
}
