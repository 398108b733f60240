//! `migrate` and `store`: an operator's tools on a store, without a node.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, CommandId};
use signalbox_ports::clock::{Clock, Ids as _, RandomIds, SystemClock};
use signalbox_ports::journal::StoreError;
use signalbox_ports::maintenance::Maintenance;
use signalbox_runtime::RollbackAccepted;

use crate::args::DATA_DEFAULT;
use crate::config::{Config, StoreAddress};
use crate::failure::Failure;
use crate::output::Out;
use crate::wire::StorePorts;

/// Who the journal names for what is done on this command line.
const OPERATOR: &str = "operator:store";

/// Where a store is.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The folder that keeps everything [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The PostgreSQL that keeps the journal [default: SQLite in the data folder].
    #[arg(long, env = "SIGNALBOX_STORE", hide_env_values = true, value_name = "URL", value_parser = store_address)]
    pub(crate) store: Option<StoreAddress>,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `store`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Goes on from an earlier state of the store, such as a restored backup: every run that is not over is held, so that
    /// somebody looks at what was done since. Stop all nodes before.
    AcceptRollback {
        /// Where the store is.
        #[command(flatten)]
        place: StoreArgs,
        /// Why; kept in the journal of each run that is held.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Do it. Without this only the number of runs is told.
        #[arg(long)]
        yes: bool,
    },
}

/// A store, and where it is in words.
async fn open(args: StoreArgs) -> Result<(StorePorts, String), Failure> {
    let config = args.config.as_deref().map(Config::read).transpose()?;
    let data = args.data.or_else(|| config.as_ref().and_then(|config| config.data.clone()));
    let data = data.unwrap_or_else(|| PathBuf::from(DATA_DEFAULT));
    let address = args.store.or_else(|| config.as_ref().and_then(|config| config.store.clone()));
    let limits = config.as_ref().map(|config| config.limits).unwrap_or_default();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = StorePorts::open(&data, address.as_ref(), &clock, limits).await?;
    // The address of a database may hold a password.
    let place = if address.is_some() { "on PostgreSQL".to_owned() } else { format!("in {}", data.display()) };
    Ok((store, place))
}

/// `store`.
pub(crate) async fn run(command: StoreCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        StoreCommand::AcceptRollback { place, reason, yes } => accept_rollback(place, &reason, yes, out).await,
    }
}

/// Opens the store, which brings it up to date.
pub(crate) async fn migrate(args: StoreArgs, out: &mut Out) -> Result<(), Failure> {
    let (_, place) = open(args).await?;
    let version = signalbox_store::SCHEMA_VERSION;
    if out.is_json() {
        return out.json(&json!({ "schemaVersion": version }));
    }
    out.line(&format!("the store {place} is at version {version} of its schema"))
}

/// Holds every run that is not over, and gives the store another incarnation.
async fn accept_rollback(args: StoreArgs, reason: &str, yes: bool, out: &mut Out) -> Result<(), Failure> {
    if reason.trim().is_empty() {
        return Err(Failure::usage(
            "reason-required",
            "`--reason` is empty; say which state the store was set back to",
        ));
    }
    let (store, place) = open(args).await?;
    if !yes {
        let live = live(store.maintenance.as_ref()).await.map_err(failed)?;
        let message = format!("nothing was done; live runs of the store {place} that would be held: {live}");
        return Err(
            Failure::usage("confirmation-required", message).next("stop all nodes, and say it again with --yes")
        );
    }
    let actor_id = ActorId::new(OPERATOR).map_err(|error| Failure::new("internal", error.to_string()))?;
    let actor = Actor { actor_id, role: Role::PlatformOperator };
    let command_id = CommandId::new(RandomIds.fresh());
    let accepted =
        signalbox_runtime::accept_rollback(store.maintenance.as_ref(), store.inbox.as_ref(), command_id, actor, reason);
    let RollbackAccepted { incarnation, held } = accepted.await.map_err(failed)?;
    if out.is_json() {
        return out.json(&json!({ "incarnation": incarnation, "held": held }));
    }
    out.line(&format!("runs of the store {place} that are held: {held}; start the nodes, look at each, and resume it"))
}

/// The address of a database as the command line gives it.
pub(crate) fn store_address(text: &str) -> Result<StoreAddress, String> {
    text.parse()
}

async fn live(store: &dyn Maintenance) -> Result<u64, StoreError> {
    let (mut live, mut after) = (0, None);
    loop {
        let page = store.live_runs(after).await?;
        let Some(last) = page.last().copied() else { return Ok(live) };
        live += page.len() as u64;
        after = Some(last);
    }
}

fn failed(error: StoreError) -> Failure {
    Failure::new(error.code(), error.to_string()).next("say it again: what is held already stays held")
}
