//! Why a store cannot be used at all.

use std::path::PathBuf;

/// The schema this version writes, in either database, and the newest it can read. Each migration that changes the meaning
/// of something raises `min_reader` in `store_meta`.
pub const SCHEMA_VERSION: i64 = 11;

/// Why a store cannot be opened. Where it is stands in the message; a password never does.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the data directory.
    #[error("the data folder `{}` is in use by another signalbox", dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// A newer version has written it, in a way this one cannot read.
    #[error(
        "the store in `{place}` needs a signalbox that knows schema {min_reader}; this one knows {SCHEMA_VERSION}. \
         Use the newer version, or restore a backup from before the upgrade"
    )]
    SchemaNewer {
        /// The data directory, or the server and database.
        place: String,
        /// The schema it needs.
        min_reader: i64,
    },
    /// It would lose what it has acknowledged, and every promise with it.
    #[error("the store in `{place}` would lose what it has acknowledged: {problem}")]
    NotDurable {
        /// The data directory, or the server and database.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// It cannot be read or written.
    #[error("the store in `{place}` is not available: {problem}")]
    Unavailable {
        /// The data directory, or the server and database.
        place: String,
        /// What is wrong.
        problem: String,
    },
}

impl OpenError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "data-folder-in-use",
            Self::SchemaNewer { .. } => "store-schema-newer",
            Self::NotDurable { .. } => "store-not-durable",
            Self::Unavailable { .. } => "store-unavailable",
        }
    }
}
