//! `executors register`, `list`, `show` and `retire`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use signalbox_proto::v1;

use super::agents::{document, refused};
use crate::client::{Registry, timed};
use crate::failure::Failure;
use crate::output::{Out, instant};

/// `executors`.
#[derive(Debug, Subcommand)]
pub(crate) enum ExecutorsCommand {
    /// Lets every node call an executor: it is asked what it serves, and refused if it claims what it may not.
    #[command(after_help = "Examples:
  signalbox executors register media --address https://media.example:7421 --tool generate.image --reason \"the new studio\"
  signalbox executors register --file media.yaml --reason \"the new studio\"")]
    Register(RegisterArgs),
    /// Lists the executors that were registered.
    #[command(after_help = "Example:
  signalbox executors list --all")]
    List {
        /// The retired ones too.
        #[arg(long)]
        all: bool,
    },
    /// Shows one executor.
    #[command(after_help = "Example:
  signalbox executors show media")]
    Show {
        /// The executor.
        id: String,
    },
    /// Sends nothing new to an executor; what is out there is let end.
    #[command(after_help = "Example:
  signalbox executors retire media --reason \"it is replaced\"")]
    Retire {
        /// The executor.
        id: String,
        /// Why; kept in the audit journal.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Only say which tools could no longer be called; nothing is changed.
        #[arg(long)]
        dry_run: bool,
    },
}

/// `executors register`.
#[derive(Debug, Args)]
pub(crate) struct RegisterArgs {
    /// Names it.
    #[arg(required_unless_present = "file")]
    id: Option<String>,
    /// The whole registration as JSON or YAML instead of the options below; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["id", "address", "tool", "schemas_digest", "tls_id"])]
    file: Option<PathBuf>,
    /// Where it is: http://host:port or https://host:port.
    #[arg(long, value_name = "URL", required_unless_present = "file")]
    address: Option<String>,
    /// A tool it serves; say it once for each.
    #[arg(long, value_name = "TOOL", required_unless_present = "file")]
    tool: Vec<String>,
    /// What its schemas must amount to; any that fit the catalog if left out.
    #[arg(long, value_name = "SHA256")]
    schemas_digest: Option<String>,
    /// The certificates for it, by the name that the nodes' configuration gives them.
    #[arg(long, value_name = "NAME")]
    tls_id: Option<String>,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Does what was asked.
pub(crate) async fn run(mut client: Registry, command: ExecutorsCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        ExecutorsCommand::Register(args) => {
            let executor_json = registration(&args)?.into();
            let request = v1::RegisterExecutorRequest { executor_json, reason: args.reason };
            let answer = client.register_executor(timed(request)).await.map_err(refused)?.into_inner();
            told(&answer.executor.unwrap_or_default(), "is registered and serves", out)
        }
        ExecutorsCommand::List { all } => {
            let executors = known(&mut client, all).await?;
            if out.is_json() {
                return out.json(&json!({ "executors": executors.iter().map(view).collect::<Vec<_>>() }));
            }
            if executors.is_empty() {
                return out.line("no executor is registered; those of the configuration are in `signalbox tools list`");
            }
            let rows: Vec<_> = executors
                .iter()
                .map(|executor| {
                    vec![executor.executor_id.clone(), executor.address.clone(), tools(executor), state(executor)]
                })
                .collect();
            out.table(&["EXECUTOR", "ADDRESS", "TOOLS", "STATE"], &rows)
        }
        ExecutorsCommand::Show { id } => {
            let executor = one(&mut client, &id).await?;
            if out.is_json() {
                return out.json(&view(&executor));
            }
            out.fields(&[
                ("executor", executor.executor_id.clone()),
                ("address", executor.address.clone()),
                ("tools", tools(&executor)),
                ("schemas digest", executor.schemas_digest.clone()),
                ("certificates", executor.tls_id.clone()),
                ("registered by", executor.registered_by.clone()),
                ("registered at", instant(executor.registered_at_unix_ms.saturating_mul(1_000))),
                ("state", state(&executor)),
            ])
        }
        ExecutorsCommand::Retire { id, dry_run: true, .. } => {
            let executor = one(&mut client, &id).await?;
            if out.is_json() {
                return out.json(&json!({ "dryRun": true, "executor": view(&executor) }));
            }
            out.line(&format!("would send nothing more to {id}, which serves {}. Nothing was done", tools(&executor)))
        }
        ExecutorsCommand::Retire { id, reason, dry_run: false } => {
            let request = v1::RetireExecutorRequest { executor_id: id, reason };
            let answer = client.retire_executor(timed(request)).await?.into_inner();
            told(&answer.executor.unwrap_or_default(), "is retired; nothing more is sent there for", out)
        }
    }
}

fn registration(args: &RegisterArgs) -> Result<Vec<u8>, Failure> {
    if let Some(path) = &args.file {
        return document(path);
    }
    let mut say = Map::new();
    say.insert("executorId".to_owned(), json!(args.id));
    say.insert("address".to_owned(), json!(args.address));
    say.insert("toolIds".to_owned(), json!(args.tool));
    if let Some(digest) = &args.schemas_digest {
        say.insert("schemasDigest".to_owned(), json!(digest));
    }
    if let Some(tls) = &args.tls_id {
        say.insert("tlsId".to_owned(), json!(tls));
    }
    serde_json::to_vec(&say).map_err(|error| Failure::new("output-failed", error.to_string()))
}

async fn known(client: &mut Registry, all: bool) -> Result<Vec<v1::RegisteredExecutor>, Failure> {
    Ok(client.list_executors(timed(v1::ListExecutorsRequest { all })).await?.into_inner().executors)
}

async fn one(client: &mut Registry, id: &str) -> Result<v1::RegisteredExecutor, Failure> {
    let found = known(client, true).await?.into_iter().find(|executor| executor.executor_id == id);
    found.ok_or_else(|| Failure::new("no-such-executor", format!("there is no executor `{id}`")))
}

fn told(executor: &v1::RegisteredExecutor, what: &str, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&json!({ "executor": view(executor) }));
    }
    out.line(&format!("{} {what} {}", executor.executor_id, tools(executor)))
}

fn tools(executor: &v1::RegisteredExecutor) -> String {
    executor.tools.iter().map(|tool| tool.tool_id.as_str()).collect::<Vec<_>>().join(", ")
}

fn state(executor: &v1::RegisteredExecutor) -> String {
    if executor.retired_at_unix_ms == 0 { "in use".to_owned() } else { "retired".to_owned() }
}

fn view(executor: &v1::RegisteredExecutor) -> Value {
    let tools: Vec<_> =
        executor.tools.iter().map(|tool| json!({ "toolId": tool.tool_id, "semver": tool.semver })).collect();
    json!({
        "executorId": executor.executor_id,
        "address": executor.address,
        "tools": tools,
        "schemasDigest": executor.schemas_digest,
        "tlsId": executor.tls_id,
        "registeredBy": executor.registered_by,
        "registeredAtUnixMs": executor.registered_at_unix_ms,
        "retiredAtUnixMs": executor.retired_at_unix_ms,
    })
}
