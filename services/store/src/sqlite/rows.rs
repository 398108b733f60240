//! Rows as this crate reads and writes them, and what SQLite's errors mean.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use signalbox_domain::canonical::hex;
use signalbox_domain::identity::Actor;
use signalbox_domain::ids::{ActorId, NodeIncarnation, RunId, RunKey, TenantId};
use signalbox_domain::run::append::RunHead;
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::journal::StoreError;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row as _, Sqlite, Type};
use uuid::Uuid;

/// The columns [`run_row`] reads, of `runs`.
macro_rules! run_columns {
    () => {
        "run_key, tenant, run_id, owner_incarnation, lease_epoch, last_seq, last_hash, last_at, control_seq, inbox_len, \
         wake_at_ms, parked, closed"
    };
}
pub(super) use run_columns;

/// What SQLite's refusal means for whoever asked.
///
/// The statement's own fault (a constraint, a value too big, a mismatch) stays a fault however often it is tried; the
/// machine's (disk full, I/O, locks, memory) does not.
pub(super) fn failed(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        // Error, too big, constraint, mismatch, misuse, range.
        const STATEMENTS_OWN: [i32; 6] = [1, 18, 19, 20, 21, 25];
        let refusal = error.as_database_error().and_then(|refusal| refusal.code()?.parse::<i32>().ok());
        let is_own = refusal.is_some_and(|code| STATEMENTS_OWN.contains(&(code & 0xff)))
            || matches!(error, sqlx::Error::Encode(_));
        let message = format!("cannot {doing}: {error}");
        if is_own { StoreError::Poison(message) } else { StoreError::Unavailable(message) }
    }
}

/// A count as SQLite keeps it. Nothing real comes near the end of the range.
pub(super) fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A UUID as it is kept in a BLOB.
pub(super) fn blob(id: Uuid) -> Vec<u8> {
    id.as_bytes().to_vec()
}

/// A UUID as it travels inside a JSON argument.
pub(super) fn hex_id(id: Uuid) -> String {
    hex(id.as_bytes())
}

/// A cell, or what is wrong with it.
pub(super) fn cell<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(row: &'r SqliteRow, column: &str) -> Result<T, String> {
    row.try_get(column).map_err(|error| error.to_string())
}

pub(super) fn count(row: &SqliteRow, column: &str) -> Result<u64, String> {
    let value: i64 = cell(row, column)?;
    u64::try_from(value).map_err(|_| format!("`{column}` is negative"))
}

pub(super) fn uuid(row: &SqliteRow, column: &str) -> Result<Uuid, String> {
    let bytes: &[u8] = cell(row, column)?;
    Uuid::from_slice(bytes).map_err(|_| format!("`{column}` is not a UUID"))
}

fn hash(row: &SqliteRow, column: &str) -> Result<EventHash, String> {
    let bytes: &[u8] = cell(row, column)?;
    bytes.try_into().map(EventHash).map_err(|_| format!("`{column}` does not have 32 bytes"))
}

/// A value of an enumeration by its wire string.
pub(super) fn word<'r, T: Deserialize<'r>>(row: &'r SqliteRow, column: &str) -> Result<T, String> {
    let text: &str = cell(row, column)?;
    let words: StrDeserializer<'r, ValueError> = text.into_deserializer();
    T::deserialize(words).map_err(|error| format!("`{column}`: {error}"))
}

/// A JSON body kept in a BLOB.
pub(super) fn json<'r, T: Deserialize<'r>>(row: &'r SqliteRow, column: &str) -> Result<T, String> {
    let bytes: &[u8] = cell(row, column)?;
    serde_json::from_slice(bytes).map_err(|error| format!("`{column}`: {error}"))
}

/// The row of a run, with what only the store looks at.
#[derive(Debug, Clone)]
pub(super) struct RunRow {
    pub(super) head: RunHead,
    pub(super) wake_at: Option<UnixMs>,
    pub(super) parked: bool,
}

/// Reads [`run_columns!`]. A row that cannot be what was written is reported by run and event.
pub(super) fn run_row(row: &SqliteRow) -> Result<RunRow, StoreError> {
    let run_key = uuid(row, "run_key").map(RunKey::new);
    let parse = || {
        let head = RunHead {
            run_key: run_key.clone()?,
            run_id: RunId::new(uuid(row, "run_id")?),
            tenant_id: TenantId::new(cell::<String>(row, "tenant")?).map_err(|error| error.to_string())?,
            owner: match cell::<Option<&[u8]>>(row, "owner_incarnation")? {
                Some(_) => Some(NodeIncarnation::new(uuid(row, "owner_incarnation")?)),
                None => None,
            },
            lease_epoch: count(row, "lease_epoch")?,
            last_seq: count(row, "last_seq")?,
            last_hash: hash(row, "last_hash")?,
            last_at: UnixMicros(cell(row, "last_at")?),
            control_seq: count(row, "control_seq")?,
            inbox_len: count(row, "inbox_len")?,
            closed: cell(row, "closed")?,
        };
        let wake_at = cell::<Option<i64>>(row, "wake_at_ms")?.map(UnixMs);
        Ok(RunRow { head, wake_at, parked: cell(row, "parked")? })
    };
    parse().map_err(|problem: String| StoreError::Corrupt {
        run: run_key.clone().unwrap_or(RunKey::new(Uuid::nil())),
        seq: count(row, "last_seq").unwrap_or_default(),
        problem: format!("the row of the run: {problem}"),
    })
}

/// Reads an event of `run` that must be number `seq`.
pub(super) fn event(row: &SqliteRow, run_key: RunKey, seq: u64) -> Result<StoredEvent, StoreError> {
    let parse = || {
        let found = count(row, "seq")?;
        if found != seq {
            return Err(format!("it is missing; the next one is {found}"));
        }
        let event = StoredEvent {
            run_key,
            seq,
            at: UnixMicros(cell(row, "at")?),
            actor: Actor {
                actor_id: ActorId::new(cell::<String>(row, "actor_id")?).map_err(|error| error.to_string())?,
                role: word(row, "actor_role")?,
            },
            visibility: word(row, "visibility")?,
            kind: cell(row, "kind")?,
            version: cell(row, "version")?,
            body: cell(row, "body")?,
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
