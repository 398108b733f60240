//! What PostgreSQL's errors mean for whoever asked.

use signalbox_ports::journal::StoreError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// Why a transaction did not do its work. Nothing of it was written.
#[derive(Debug)]
pub(super) enum Problem {
    /// Another transaction was in the way (a deadlock, a failed serialization): the same again may well succeed.
    InTheWay(String),
    /// The same again would end the same.
    Store(StoreError),
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What a statement's failure means.
///
/// The statement's own fault (a value, a constraint, a limit, a trigger that says no) stays a fault however often it is
/// tried. Everything else is the server's: connections, resources, an operator, a schema that is not as it should be.
pub(super) fn failed(doing: &'static str) -> impl Fn(sqlx::Error) -> Problem {
    move |error| {
        let message = format!("cannot {doing}: {error}");
        if matches!(error, sqlx::Error::Encode(_)) {
            return StoreError::Poison(message).into();
        }
        // Cardinality, data, constraints, program limits, PL/pgSQL.
        const STATEMENTS_OWN: [&str; 5] = ["21", "22", "23", "54", "P0"];
        match refusal(&error).map(PgDatabaseError::code) {
            Some("40001" | "40P01") => Problem::InTheWay(message),
            Some(code) if STATEMENTS_OWN.iter().any(|class| code.starts_with(class)) => {
                StoreError::Poison(message).into()
            }
            Some(_) | None => StoreError::Unavailable(message).into(),
        }
    }
}

/// The same for a reader, who has nobody in the way.
pub(super) fn unread(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| StoreError::Unavailable(format!("cannot {doing}: {error}"))
}

/// True if the server itself has said that the transaction is undone. A connection that ends with its COMMIT says nothing:
/// the server may have committed before it went.
pub(super) fn is_undone(error: &sqlx::Error) -> bool {
    // 25P03: the transaction stood idle for too long, and ended before the COMMIT came.
    refusal(error).is_some_and(|refusal| refusal.severity() == PgSeverity::Error || refusal.code() == "25P03")
}

/// True if it is the connection that failed, not what was asked of it.
pub(super) fn is_connection(error: &sqlx::Error) -> bool {
    match refusal(error) {
        Some(refusal) => matches!(refusal.severity(), PgSeverity::Fatal | PgSeverity::Panic),
        None => matches!(error, sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::Tls(_)),
    }
}

fn refusal(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}
