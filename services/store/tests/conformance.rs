//! SQLite and PostgreSQL keep the promises every store keeps.
#![allow(clippy::unwrap_used, reason = "a store that does not open fails the test")]

mod database;

mod sqlite {
    use std::sync::Arc;

    use signalbox_ports::conformance::Fixture;
    use signalbox_ports::memory::ManualClock;
    use signalbox_store::{SqliteOptions, SqliteStore};

    async fn open() -> Fixture {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::default()));
        let options = SqliteOptions { clock: clock.clone(), ..SqliteOptions::default() };
        let store = SqliteStore::open(dir.path(), options).await.unwrap();
        Fixture::over(Arc::new(store), clock, dir)
    }

    signalbox_ports::store_conformance!(crate::sqlite::open);
}

mod postgres {
    use std::sync::Arc;

    use signalbox_ports::conformance::Fixture;
    use signalbox_ports::memory::ManualClock;
    use signalbox_store::{PostgresOptions, PostgresStore};

    use crate::database::Database;

    async fn open() -> Fixture {
        let (database, clock) = (Database::create().await, Arc::new(ManualClock::default()));
        let options = PostgresOptions { clock: Some(clock.clone()), ..PostgresOptions::default() };
        let store = PostgresStore::connect(&database.url(), options).await.unwrap();
        Fixture::over(Arc::new(store), clock, database)
    }

    signalbox_ports::store_conformance!(crate::postgres::open);
}
