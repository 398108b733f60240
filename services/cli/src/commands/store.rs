//! `migrate` and `store`: an operator's tools on a store, without a node.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, CommandId};
use signalbox_ports::clock::{Clock, Ids as _, RandomIds, SystemClock};
use signalbox_ports::journal::StoreError;
use signalbox_runtime::RollbackAccepted;
use signalbox_store::{OpenError, StoreFacts};

use crate::args::DATA_DEFAULT;
use crate::config::{Config, LimitsEntry, StoreAddress};
use crate::confirm::{ConfirmArgs, confirm};
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

/// `migrate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox migrate --data ./data
  signalbox migrate --dry-run      # which version the store has, and which it would have")]
pub(crate) struct MigrateArgs {
    /// Where the store is.
    #[command(flatten)]
    place: StoreArgs,
    /// Only say what would be done; nothing is changed.
    #[arg(long)]
    dry_run: bool,
}

/// `store`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Goes on from an earlier state of the store, such as a restored backup: every run that is not over is held, so that
    /// somebody looks at what was done since. Stop all nodes before.
    #[command(after_help = "Examples:
  signalbox store accept-rollback --reason \"Monday's backup\" --dry-run
  signalbox store accept-rollback --reason \"Monday's backup\" --yes")]
    AcceptRollback {
        /// Where the store is.
        #[command(flatten)]
        place: StoreArgs,
        /// Why; kept in the journal of each run that is held.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Whether to ask.
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
}

/// Where a store is, as the flags, the configuration file and the defaults say together.
pub(crate) struct Place {
    /// The data folder.
    pub(crate) data: PathBuf,
    /// The database, if it is not in that folder.
    pub(crate) address: Option<StoreAddress>,
    limits: LimitsEntry,
}

impl Place {
    /// Puts together what is said.
    pub(crate) fn of(args: StoreArgs) -> Result<Self, Failure> {
        let config = args.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        Ok(Self::with(args, &config))
    }

    /// The same over a configuration that was read already.
    pub(crate) fn with(args: StoreArgs, config: &Config) -> Self {
        Self {
            data: args.data.or_else(|| config.data.clone()).unwrap_or_else(|| PathBuf::from(DATA_DEFAULT)),
            address: args.store.or_else(|| config.store.clone()),
            limits: config.limits,
        }
    }

    /// In words. The address of a database may hold a password.
    fn words(&self) -> String {
        if self.address.is_some() { "on PostgreSQL".to_owned() } else { format!("in {}", self.data.display()) }
    }

    async fn open(&self) -> Result<StorePorts, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        StorePorts::open(&self.data, self.address.as_ref(), &clock, self.limits).await
    }

    /// What lies there, without opening it.
    pub(crate) async fn inspect(&self) -> Result<StoreFacts, OpenError> {
        match &self.address {
            Some(address) => signalbox_store::inspect_postgres(address.as_str()).await,
            None => signalbox_store::inspect_sqlite(&self.data).await,
        }
    }
}

/// `store`.
pub(crate) async fn run(command: StoreCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        StoreCommand::AcceptRollback { place, reason, confirm } => accept_rollback(place, &reason, confirm, out).await,
    }
}

/// Opens the store, which brings it up to date.
pub(crate) async fn migrate(args: MigrateArgs, out: &mut Out) -> Result<(), Failure> {
    let (place, version) = (Place::of(args.place)?, signalbox_store::SCHEMA_VERSION);
    let words = place.words();
    if args.dry_run {
        let there = looked(&place).await?.schema_version;
        if out.is_json() {
            return out.json(&json!({ "dryRun": true, "schemaVersion": there, "schemaVersionAfter": version }));
        }
        return out.line(&match there {
            Some(there) if there >= version => format!("the store {words} is at version {there} of its schema already"),
            Some(there) => format!(
                "would bring the store {words} from version {there} of its schema to {version}. Nothing was done"
            ),
            None => format!("would make a store {words}, at version {version} of its schema. Nothing was done"),
        });
    }
    place.open().await?;
    if out.is_json() {
        return out.json(&json!({ "schemaVersion": version }));
    }
    out.line(&format!("the store {words} is at version {version} of its schema"))
}

/// Holds every run that is not over, and gives the store another incarnation.
async fn accept_rollback(
    args: StoreArgs,
    reason: &str,
    ConfirmArgs { yes, dry_run }: ConfirmArgs,
    out: &mut Out,
) -> Result<(), Failure> {
    if reason.trim().is_empty() {
        return Err(Failure::usage(
            "reason-required",
            "`--reason` is empty; say which state the store was set back to",
        ));
    }
    let place = Place::of(args)?;
    let words = place.words();
    if dry_run || !yes {
        let facts = looked(&place).await?;
        if facts.in_use {
            let message = format!("the store {words} is in use by another signalbox");
            return Err(Failure::new("data-folder-in-use", message).next("stop the nodes first"));
        }
        let live = facts.live_runs.unwrap_or_default();
        if dry_run && out.is_json() {
            return out.json(&json!({ "dryRun": true, "held": live }));
        }
        let would = format!("live runs of the store {words} that would be held: {live}");
        if dry_run {
            return out.line(&format!("{would}. Nothing was done"));
        }
        confirm(yes, &would).await?;
    }
    let store = place.open().await?;
    let actor_id = ActorId::new(OPERATOR).map_err(|error| Failure::new("internal", error.to_string()))?;
    let actor = Actor { actor_id, role: Role::PlatformOperator };
    let command_id = CommandId::new(RandomIds.fresh());
    let accepted =
        signalbox_runtime::accept_rollback(store.maintenance.as_ref(), store.inbox.as_ref(), command_id, actor, reason);
    let RollbackAccepted { incarnation, held } = accepted.await.map_err(failed)?;
    if out.is_json() {
        return out.json(&json!({ "incarnation": incarnation, "held": held }));
    }
    out.line(&format!("runs of the store {words} that are held: {held}; start the nodes, look at each, and resume it"))
}

async fn looked(place: &Place) -> Result<StoreFacts, Failure> {
    place.inspect().await.map_err(|error| Failure::new(error.code(), error.to_string()))
}

/// The address of a database as the command line gives it.
pub(crate) fn store_address(text: &str) -> Result<StoreAddress, String> {
    text.parse()
}

fn failed(error: StoreError) -> Failure {
    Failure::new(error.code(), error.to_string()).next("say it again: what is held already stays held")
}
