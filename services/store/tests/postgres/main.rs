//! What PostgreSQL promises beyond the suite: locks in one order, nothing lost with a connection, damage contained.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

#[path = "../database/mod.rs"]
mod database;
mod postgres_budgets;
mod postgres_damage;
mod postgres_faults;
mod postgres_locks;
mod postgres_opening;
mod proxy;

use std::sync::Arc;

use signalbox_domain::dashboard::{DashboardEntry, DashboardFilter};
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::conformance::world::*;
use signalbox_ports::directory::{Directory, Scope};
use signalbox_ports::governance::Governance;
use signalbox_ports::journal::{AppendError, Appended, Created, Journal};
use signalbox_ports::leases::Leases;
use signalbox_ports::memory::ManualClock;
use signalbox_store::{PostgresOptions, PostgresStore};

use database::Database;

fn options() -> PostgresOptions {
    PostgresOptions { clock: Some(Arc::new(ManualClock::default())), ..PostgresOptions::default() }
}

async fn open(database: &Database) -> Arc<PostgresStore> {
    open_at(&database.url()).await
}

async fn open_at(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::connect(url, options()).await.unwrap())
}

/// The runs of `acme`.
async fn listing(store: &PostgresStore) -> Vec<DashboardEntry> {
    let own = Scope::Tenant(tenant("acme"));
    store.runs(&own, &DashboardFilter::default(), UnixMicros(0)).await.unwrap().rows
}

async fn create(store: &PostgresStore, number: u64) -> RunHead {
    store.renew(node(1), "node").await.unwrap();
    match store.create(new_run("acme", number)).await.unwrap() {
        Created::New { head, .. } => head,
        Created::Exists(head) => panic!("run {} exists", head.run_key),
    }
}

/// A request to admit call `number` by a writer that has seen every governance change.
async fn asking(store: &PostgresStore, head: &RunHead, number: u64, reservations: &[(&str, i64)]) -> Entry {
    let (_, governance_epoch) = store.epoch().await.unwrap();
    Entry { asks: vec![ask(head, number, reservations)], governance_epoch, ..entry(head) }
}

async fn append(store: &PostgresStore, entry: Entry) -> Result<Appended, AppendError> {
    store.append(vec![entry], BootInstant(0)).await.remove(0)
}

async fn whole(store: &PostgresStore, head: &RunHead) -> Vec<StoredEvent> {
    store.read(head.run_key, 0, 1_000).await.unwrap()
}
