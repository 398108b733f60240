//! Values as SQLite takes them, and what its errors mean.

use signalbox_domain::canonical::hex;
use signalbox_ports::journal::StoreError;
use uuid::Uuid;

const IO_ERROR: i32 = 10;
const FULL: i32 = 13;

/// What SQLite's refusal means for whoever asked.
///
/// The statement's own fault (a constraint, a value too big, a mismatch) stays a fault however often it is tried; the
/// machine's (disk full, I/O, locks, memory) does not.
pub(super) fn failed(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        let refusal = error.as_database_error().and_then(|refusal| refusal.code()?.parse::<i32>().ok());
        problem(doing, refusal, matches!(error, sqlx::Error::Encode(_)), &error)
    }
}

/// The same where SQLite was asked directly.
pub(super) fn refused(doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| {
        let refusal =
            if let rusqlite::Error::SqliteFailure(failure, _) = &error { Some(failure.extended_code) } else { None };
        problem(doing, refusal, matches!(error, rusqlite::Error::ToSqlConversionFailure(_)), &error)
    }
}

fn problem(doing: &str, code: Option<i32>, is_own: bool, error: &dyn std::fmt::Display) -> StoreError {
    // Error, too big, constraint, mismatch, misuse, range.
    const STATEMENTS_OWN: [i32; 6] = [1, 18, 19, 20, 21, 25];
    // The low byte is the class of a code, the rest its details.
    let class = code.map(|code| code & 0xff);
    let advice = match class {
        Some(FULL) => "; make room on its disk, or raise storeBytesMax",
        Some(IO_ERROR) => "; see whether its disk works and has room",
        _ => "",
    };
    let message = format!("cannot {doing}: {error}{advice}");
    if is_own || class.is_some_and(|class| STATEMENTS_OWN.contains(&class)) {
        StoreError::Poison(message)
    } else {
        StoreError::Unavailable(message)
    }
}

/// A UUID as it is kept in a BLOB.
pub(super) fn blob(id: Uuid) -> Vec<u8> {
    id.as_bytes().to_vec()
}

/// A UUID as it travels inside a JSON argument.
pub(super) fn hex_id(id: Uuid) -> String {
    hex(id.as_bytes())
}
