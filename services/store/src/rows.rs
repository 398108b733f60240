//! Rows as this crate reads them, from either database: what a row means, and what to say of one that means nothing.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use signalbox_domain::dashboard::DashboardEntry;
use signalbox_domain::governance::budget::{Meter, MeteredBudget};
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::identity::Actor;
use signalbox_domain::ids::{
    ActorId, AgentId, CommandId, NodeIncarnation, PipelineId, RunId, RunKey, SwitchId, TenantId,
};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::append::{RunHead, RunProjection};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::directory::OpenQuestion;
use signalbox_ports::inbox::{CommandClass, InboxCommand};
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::NodeSweep;
use uuid::Uuid;

use crate::cells::Cells;

/// The columns [`run_row`] reads, of `runs`.
macro_rules! run_columns {
    () => {
        "run_key, tenant, run_id, owner_incarnation, lease_epoch, last_seq, last_hash, last_at, control_seq, inbox_len, \
         wake_at_ms, parked, closed"
    };
}
pub(crate) use run_columns;

/// A parked run, as far as a sweep looks at it.
pub(crate) struct Parked {
    pub(crate) run_key: Uuid,
    tenant: TenantId,
    root_agent: AgentId,
}

/// A page of parked runs, in their order. One whose row cannot be read is in nobody's reach, and left to whoever claims it.
pub(crate) fn parked_runs(rows: &[impl Cells]) -> Vec<Parked> {
    let parked = |row: &_| -> Result<Parked, String> {
        let invalid = |error: signalbox_domain::ids::IdError| error.to_string();
        Ok(Parked {
            run_key: Cells::id(row, "run_key")?,
            tenant: TenantId::new(Cells::text(row, "tenant")?).map_err(invalid)?,
            root_agent: AgentId::new(Cells::text(row, "root_agent_id")?).map_err(invalid)?,
        })
    };
    rows.iter().filter_map(|row| parked(row).ok()).collect()
}

/// The keys of some runs.
pub(crate) fn run_keys(rows: &[impl Cells]) -> Result<Vec<RunKey>, StoreError> {
    let key = |row: &_| Cells::id(row, "run_key").map(RunKey::new).map_err(StoreError::Unavailable);
    rows.iter().map(key).collect()
}

/// Nodes, and since when each has swept.
pub(crate) fn node_sweeps(rows: &[impl Cells]) -> Result<Vec<NodeSweep>, StoreError> {
    let read = |row: &_| -> Result<NodeSweep, String> {
        Ok(NodeSweep {
            node: NodeIncarnation::new(Cells::id(row, "incarnation")?),
            name: Cells::prose_or_null(row, "name")?.unwrap_or_default(),
            swept_at: Cells::int_or_null(row, "at")?.map(UnixMicros),
        })
    };
    rows.iter().map(|row| read(row).map_err(StoreError::Unavailable)).collect()
}

/// The runs of a page that a switch reaches.
pub(crate) fn reached<'p>(switch: &'p KillSwitch, page: &'p [Parked]) -> impl Iterator<Item = Uuid> + 'p {
    page.iter().filter(|run| switch.may_reach(&run.tenant, &run.root_agent)).map(|run| run.run_key)
}

/// A count as a database keeps it. Nothing real comes near the end of the range.
pub(crate) fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(crate) const fn seconds(at: UnixMicros) -> i64 {
    at.0.div_euclid(1_000_000)
}

pub(crate) fn count(row: &impl Cells, column: &str) -> Result<u64, String> {
    number(row, column)
}

pub(crate) fn number<T: TryFrom<i64>>(row: &impl Cells, column: &str) -> Result<T, String> {
    let value = row.int(column)?;
    T::try_from(value).map_err(|_| format!("`{column}` cannot be {value}"))
}

pub(crate) fn hash(row: &impl Cells, column: &str) -> Result<EventHash, String> {
    row.bytes(column)?.try_into().map(EventHash).map_err(|_| format!("`{column}` does not have 32 bytes"))
}

/// A value of an enumeration by its wire string.
pub(crate) fn word<'r, T: Deserialize<'r>>(row: &'r impl Cells, column: &str) -> Result<T, String> {
    let words: StrDeserializer<'r, ValueError> = row.text(column)?.into_deserializer();
    T::deserialize(words).map_err(|error| format!("`{column}`: {error}"))
}

/// A JSON body kept as bytes.
pub(crate) fn json<'r, T: Deserialize<'r>>(row: &'r impl Cells, column: &str) -> Result<T, String> {
    serde_json::from_slice(row.bytes(column)?).map_err(|error| format!("`{column}`: {error}"))
}

/// The row of a run, with what only the store looks at.
#[derive(Debug, Clone)]
pub(crate) struct RunRow {
    pub(crate) head: RunHead,
    pub(crate) wake_at: Option<UnixMs>,
    pub(crate) parked: bool,
    /// What it was read with, of what claims and timers look for.
    read: Sought,
}

/// The columns of a run that indexes are over.
type Sought = (Option<NodeIncarnation>, u64, Option<UnixMs>, bool, bool);

impl RunRow {
    /// True if its journal has grown and nothing else: most appends change no more, and no index hears of them.
    pub(crate) fn has_only_grown(&self) -> bool {
        self.sought() == self.read
    }

    const fn sought(&self) -> Sought {
        sought(&self.head, self.wake_at, self.parked)
    }
}

const fn sought(head: &RunHead, wake_at: Option<UnixMs>, parked: bool) -> Sought {
    (head.owner, head.inbox_len, wake_at, parked, head.closed)
}

/// Reads [`run_columns!`]. A row that cannot be what was written is reported by run and event.
pub(crate) fn run_row(row: &impl Cells) -> Result<RunRow, StoreError> {
    let run_key = row.id("run_key").map(RunKey::new);
    let parse = || {
        let head = RunHead {
            run_key: run_key.clone()?,
            run_id: RunId::new(row.id("run_id")?),
            tenant_id: TenantId::new(row.text("tenant")?).map_err(|error| error.to_string())?,
            owner: row.id_or_null("owner_incarnation")?.map(NodeIncarnation::new),
            lease_epoch: count(row, "lease_epoch")?,
            last_seq: count(row, "last_seq")?,
            last_hash: hash(row, "last_hash")?,
            last_at: UnixMicros(row.int("last_at")?),
            control_seq: count(row, "control_seq")?,
            inbox_len: count(row, "inbox_len")?,
            closed: row.flag("closed")?,
        };
        let (wake_at, parked) = (row.int_or_null("wake_at_ms")?.map(UnixMs), row.flag("parked")?);
        let read = sought(&head, wake_at, parked);
        Ok(RunRow { head, wake_at, parked, read })
    };
    parse().map_err(|problem: String| StoreError::Corrupt {
        run: run_key.clone().unwrap_or(RunKey::new(Uuid::nil())),
        seq: count(row, "last_seq").unwrap_or_default(),
        problem: format!("the row of the run: {problem}"),
    })
}

/// The rows of runs that were claimed. The others must not wait for one that cannot be read, with which nobody can do
/// anything.
pub(crate) fn claimed_heads(rows: &[impl Cells]) -> Vec<RunHead> {
    let heads = rows.iter().filter_map(|row| {
        run_row(row).inspect_err(|error| tracing::error!(%error, "a run that was claimed cannot be read")).ok()
    });
    heads.map(|run| run.head).collect()
}

/// Reads an event of `run` that must be number `seq`.
fn event(row: &impl Cells, run_key: RunKey, seq: u64) -> Result<StoredEvent, StoreError> {
    let parse = || {
        let found = count(row, "seq")?;
        if found != seq {
            return Err(format!("it is missing; the next one is {found}"));
        }
        let event = StoredEvent {
            run_key,
            seq,
            at: UnixMicros(row.int("at")?),
            actor: Actor {
                actor_id: ActorId::new(row.text("actor_id")?).map_err(|error| error.to_string())?,
                role: word(row, "actor_role")?,
            },
            visibility: word(row, "visibility")?,
            kind: row.text("kind")?.to_owned(),
            version: number(row, "version")?,
            body: row.bytes("body")?.to_vec(),
            prev_hash: hash(row, "prev_hash")?,
            hash: hash(row, "hash")?,
        };
        if event.event().is_none() {
            return Err(format!("its body cannot be read as `{}`", event.kind));
        }
        Ok(event)
    };
    parse().map_err(|problem| StoreError::Corrupt { run: run_key, seq, problem })
}

/// A page of a journal as it is read, which must be what must be there: each event the successor of the one before, up to the
/// end of the page or of the journal. The rows are the run's own `last_seq` joined with its events.
pub(crate) struct EventPage {
    run: RunKey,
    limit: usize,
    next: u64,
    /// Where the journal ends; `None` before the first row.
    last_seq: Option<u64>,
    events: Result<Vec<StoredEvent>, StoreError>,
}

impl EventPage {
    /// Nothing yet of what follows an event.
    pub(crate) const fn after(run: RunKey, after_seq: u64, limit: usize) -> Self {
        Self { run, limit, next: after_seq.saturating_add(1), last_seq: None, events: Ok(Vec::new()) }
    }

    /// Takes the next row; after one that cannot be right the others do not count.
    pub(crate) fn take(&mut self, row: &impl Cells) {
        if let Ok(events) = &mut self.events {
            let corrupt = |seq, problem| StoreError::Corrupt { run: self.run, seq, problem };
            let read = || {
                let last_seq = match self.last_seq {
                    Some(known) => known,
                    None => count(row, "last_seq").map_err(|problem| corrupt(self.next - 1, problem))?,
                };
                // Without any event the join still gives the run's own row.
                if matches!(row.int_or_null("seq"), Ok(None)) {
                    return Ok((last_seq, None));
                }
                if self.next > last_seq {
                    let problem = format!("the journal ends at event {last_seq}, and yet there is another");
                    return Err(corrupt(self.next, problem));
                }
                Ok((last_seq, Some(event(row, self.run, self.next)?)))
            };
            match read() {
                Ok((last_seq, event)) => {
                    self.last_seq = Some(last_seq);
                    self.next += u64::from(event.is_some());
                    events.extend(event);
                }
                Err(problem) => self.events = Err(problem),
            }
        }
    }

    /// The events, if none is missing.
    pub(crate) fn finish(self) -> Result<Vec<StoredEvent>, StoreError> {
        let events = self.events?;
        let last_seq = self.last_seq.unwrap_or_default();
        if events.len() < self.limit && self.next <= last_seq {
            let problem = format!("it is missing; the journal ends at event {last_seq}");
            return Err(StoreError::Corrupt { run: self.run, seq: self.next, problem });
        }
        Ok(events)
    }
}

/// The same of rows that are all there.
pub(crate) fn read_events(
    run: RunKey,
    after_seq: u64,
    limit: usize,
    rows: &[impl Cells],
) -> Result<Vec<StoredEvent>, StoreError> {
    let mut page = EventPage::after(run, after_seq, limit);
    rows.iter().for_each(|row| page.take(row));
    page.finish()
}

/// A meter's row: the budget with its figures, and whether it is retired.
pub(crate) fn metered(row: &impl Cells) -> Result<(MeteredBudget, bool), String> {
    let meter = Meter {
        window_start_unix_seconds: row.int("window_start_seconds")?,
        consumed: Micros(row.int("consumed")?),
        reserved: Micros(row.int("reserved")?),
        grace_end_unix_seconds: row.int_or_null("grace_end_seconds")?,
    };
    Ok((MeteredBudget { budget: json(row, "budget")?, meter }, row.flag("retired")?))
}

/// How a class stands in the column of that name.
pub(crate) const fn class_number(class: CommandClass) -> i64 {
    match class {
        CommandClass::Control => 0,
        CommandClass::Other => 1,
    }
}

/// A command as it lies in the inbox.
pub(crate) fn inbox_command(row: &impl Cells) -> Result<InboxCommand, String> {
    let class = match row.int("class")? {
        0 => CommandClass::Control,
        1 => CommandClass::Other,
        other => return Err(format!("`class` is {other}")),
    };
    Ok(InboxCommand { command_id: CommandId::new(row.id("command_id")?), class, body: row.bytes("body")?.to_vec() })
}

/// The commands that wait for a run as they are read, in their order. The rows are the run's own `control_seq` joined with
/// its inbox.
pub(crate) struct WaitingCommands {
    run: RunKey,
    read: Result<(Vec<InboxCommand>, u64), StoreError>,
}

impl WaitingCommands {
    /// None yet.
    pub(crate) const fn of(run: RunKey) -> Self {
        Self { run, read: Ok((Vec::new(), 0)) }
    }

    /// Takes the next row; after one that cannot be read the others do not count.
    pub(crate) fn take(&mut self, row: &impl Cells) {
        let Ok((commands, control_seq)) = &mut self.read else { return };
        let read = || {
            let control_seq = count(row, "control_seq")?;
            let none = matches!(row.int_or_null("class"), Ok(None));
            Ok((control_seq, if none { None } else { Some(inbox_command(row)?) }))
        };
        match read() {
            Ok((count, command)) => {
                *control_seq = count;
                commands.extend(command);
            }
            Err(problem) => self.read = Err(unreadable_inbox(self.run, problem)),
        }
    }

    /// The commands, and how many control commands were ever delivered.
    pub(crate) fn finish(self) -> Result<(Vec<InboxCommand>, u64), StoreError> {
        self.read
    }
}

fn unreadable_inbox(run: RunKey, problem: String) -> StoreError {
    StoreError::Unavailable(format!("the inbox of run {run} cannot be read: {problem}"))
}

/// The same of rows that are all there.
pub(crate) fn waiting_commands(run: RunKey, rows: &[impl Cells]) -> Result<(Vec<InboxCommand>, u64), StoreError> {
    let mut waiting = WaitingCommands::of(run);
    rows.iter().for_each(|row| waiting.take(row));
    waiting.finish()
}

/// Keeps a row of a list if it can be read: one that cannot must not hide the others.
pub(crate) fn readable<T>(what: &str, row: Result<T, String>) -> Option<T> {
    row.inspect_err(|problem| tracing::error!(problem, "{what} in a list cannot be read")).ok()
}

/// An open question in a list.
pub(crate) fn open_question(row: &impl Cells) -> Result<OpenQuestion, String> {
    Ok(OpenQuestion {
        run_id: RunId::new(row.id("run_id")?),
        submitted_by: ActorId::new(row.text("submitted_by")?).map_err(|error| error.to_string())?,
        open: json(row, "body")?,
    })
}

/// A run in a list.
pub(crate) fn listed_run(row: &impl Cells, read_at: UnixMicros) -> Result<DashboardEntry, String> {
    let invalid = |error: signalbox_domain::ids::IdError| error.to_string();
    let words = String::from_utf8(row.bytes("words")?.to_vec()).map_err(|_| "`words` is not UTF-8")?;
    Ok(DashboardEntry {
        run_key: RunKey::new(row.id("run_key")?),
        run_id: RunId::new(row.id("run_id")?),
        tenant_id: TenantId::new(row.text("tenant")?).map_err(invalid)?,
        root_agent_id: AgentId::new(row.text("root_agent_id")?).map_err(invalid)?,
        pipeline_id: row.text_or_null("pipeline_id")?.map(PipelineId::new).transpose().map_err(invalid)?,
        started_at: UnixMicros(row.int("submitted_at")?),
        ended_at: row.int_or_null("ended_at")?.map(UnixMicros),
        last_seq: count(row, "last_seq")?,
        last_at: UnixMicros(row.int("last_at")?),
        read_at,
        projection: RunProjection {
            status: word(row, "status")?,
            closed: row.flag("closed")?,
            total_cost_micros: row.int("total_cost_micros")?,
            percent: number(row, "percent")?,
            waiting_for: row.prose_or_null("waiting_for")?,
            wake_at: row.int_or_null("wake_at_ms")?.map(UnixMs),
            slow_at: row.int_or_null("slow_at_ms")?.map(UnixMs),
            has_warnings: row.flag("warned")?,
            words,
            open_approvals: json(row, "open_approvals")?,
            // One that is no id names no switch that could be shown.
            killed_by: row.text_or_null("killed_by")?.and_then(|id| SwitchId::new(id).ok()),
        },
    })
}
