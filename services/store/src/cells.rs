//! The cells of a row, read alike from either database, so that what a row means is said once.

use rusqlite::types::FromSql;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

/// A row of a table that both databases have. Every reading gives the cell, or what is wrong with it.
pub(crate) trait Cells {
    fn int(&self, column: &str) -> Result<i64, String>;
    fn int_or_null(&self, column: &str) -> Result<Option<i64>, String>;
    fn flag(&self, column: &str) -> Result<bool, String>;
    /// A text of a known alphabet: an id, or the wire string of an enumeration.
    fn text(&self, column: &str) -> Result<&str, String>;
    fn text_or_null(&self, column: &str) -> Result<Option<&str>, String>;
    /// A text somebody wrote: any character may be in it.
    fn prose_or_null(&self, column: &str) -> Result<Option<String>, String>;
    fn bytes(&self, column: &str) -> Result<&[u8], String>;
    fn bytes_or_null(&self, column: &str) -> Result<Option<&[u8]>, String>;
    fn id(&self, column: &str) -> Result<Uuid, String>;
    fn id_or_null(&self, column: &str) -> Result<Option<Uuid>, String>;
}

/// The readings that are the same for every driver.
macro_rules! plain_readings {
    () => {
        fn int(&self, column: &str) -> Result<i64, String> {
            self.try_get(column).map_err(text)
        }
        fn int_or_null(&self, column: &str) -> Result<Option<i64>, String> {
            self.try_get(column).map_err(text)
        }
        fn flag(&self, column: &str) -> Result<bool, String> {
            self.try_get(column).map_err(text)
        }
        fn text(&self, column: &str) -> Result<&str, String> {
            self.try_get(column).map_err(text)
        }
        fn text_or_null(&self, column: &str) -> Result<Option<&str>, String> {
            self.try_get(column).map_err(text)
        }
        fn bytes(&self, column: &str) -> Result<&[u8], String> {
            self.try_get(column).map_err(text)
        }
        fn bytes_or_null(&self, column: &str) -> Result<Option<&[u8]>, String> {
            self.try_get(column).map_err(text)
        }
    };
}

impl Cells for SqliteRow {
    plain_readings!();

    fn prose_or_null(&self, column: &str) -> Result<Option<String>, String> {
        self.try_get(column).map_err(text)
    }
    fn id(&self, column: &str) -> Result<Uuid, String> {
        self.bytes(column).and_then(|bytes| id(bytes, column))
    }
    fn id_or_null(&self, column: &str) -> Result<Option<Uuid>, String> {
        self.bytes_or_null(column)?.map(|bytes| id(bytes, column)).transpose()
    }
}

impl Cells for PgRow {
    plain_readings!();

    /// PostgreSQL's own texts cannot hold a NUL, so these are bytes there.
    fn prose_or_null(&self, column: &str) -> Result<Option<String>, String> {
        let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| format!("`{column}` is not UTF-8"));
        self.bytes_or_null(column)?.map(utf8).transpose()
    }
    fn id(&self, column: &str) -> Result<Uuid, String> {
        self.try_get(column).map_err(text)
    }
    fn id_or_null(&self, column: &str) -> Result<Option<Uuid>, String> {
        self.try_get(column).map_err(text)
    }
}

/// A row read straight from SQLite.
impl Cells for rusqlite::Row<'_> {
    fn int(&self, column: &str) -> Result<i64, String> {
        get(self, column)
    }
    fn int_or_null(&self, column: &str) -> Result<Option<i64>, String> {
        get(self, column)
    }
    fn flag(&self, column: &str) -> Result<bool, String> {
        get(self, column)
    }
    fn text(&self, column: &str) -> Result<&str, String> {
        cell(self, column)?.as_str().map_err(|error| format!("`{column}`: {error}"))
    }
    fn text_or_null(&self, column: &str) -> Result<Option<&str>, String> {
        cell(self, column)?.as_str_or_null().map_err(|error| format!("`{column}`: {error}"))
    }
    fn prose_or_null(&self, column: &str) -> Result<Option<String>, String> {
        get(self, column)
    }
    fn bytes(&self, column: &str) -> Result<&[u8], String> {
        cell(self, column)?.as_blob().map_err(|error| format!("`{column}`: {error}"))
    }
    fn bytes_or_null(&self, column: &str) -> Result<Option<&[u8]>, String> {
        cell(self, column)?.as_blob_or_null().map_err(|error| format!("`{column}`: {error}"))
    }
    fn id(&self, column: &str) -> Result<Uuid, String> {
        self.bytes(column).and_then(|bytes| id(bytes, column))
    }
    fn id_or_null(&self, column: &str) -> Result<Option<Uuid>, String> {
        self.bytes_or_null(column)?.map(|bytes| id(bytes, column)).transpose()
    }
}

fn get<T: FromSql>(row: &rusqlite::Row<'_>, column: &str) -> Result<T, String> {
    row.get(column).map_err(|error| error.to_string())
}

fn cell<'r>(row: &'r rusqlite::Row<'_>, column: &str) -> Result<rusqlite::types::ValueRef<'r>, String> {
    row.get_ref(column).map_err(|error| error.to_string())
}

fn id(bytes: &[u8], column: &str) -> Result<Uuid, String> {
    Uuid::from_slice(bytes).map_err(|_| format!("`{column}` is not a UUID"))
}

fn text(error: sqlx::Error) -> String {
    error.to_string()
}
