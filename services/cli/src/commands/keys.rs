//! `keys create`, `list` and `revoke`, and `whoami`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use signalbox_proto::v1;
use uuid::Uuid;

use crate::client::{Identities, timed};
use crate::failure::Failure;
use crate::output::{Out, instant};

/// `keys`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Makes an API key for a machine and prints it, this once.
    #[command(after_help = "Example:
  signalbox keys create --name nightly-import --scope tool:web.fetch --days 30")]
    Create(CreateArgs),
    /// Lists API keys, the newest first.
    #[command(after_help = "Example:
  signalbox keys list --all")]
    List {
        /// Also those that have expired or were revoked.
        #[arg(long)]
        all: bool,
    },
    /// Takes an API key back, for good: five seconds later at most nobody comes in with it.
    #[command(after_help = "Example:
  signalbox keys revoke KEY")]
    Revoke {
        /// The key.
        id: Uuid,
        /// Only say which key that is; nothing is changed.
        #[arg(long)]
        dry_run: bool,
    },
}

/// `keys create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// What it is for; its holder acts as `key:` and this name.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The role its holder acts in.
    #[arg(long, default_value = "service", value_name = "ROLE")]
    role: String,
    /// What it allows, such as tool:web.fetch; may be given more than once.
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// How many days it is good for.
    #[arg(long, default_value_t = 90, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
}

/// Makes, lists or revokes keys.
pub(crate) async fn run(mut client: Identities, command: KeysCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        KeysCommand::Create(args) => create(client, args, out).await,
        KeysCommand::List { all } => list(client, all, out).await,
        KeysCommand::Revoke { id, dry_run: true } => would_revoke(client, id, out).await,
        KeysCommand::Revoke { id, dry_run: false } => {
            let request = v1::RevokeApiKeyRequest { key_id: id.to_string() };
            let key = client.revoke_api_key(timed(request)).await?.into_inner().api_key.unwrap_or_default();
            if out.is_json() {
                return out.json(&view(&key));
            }
            out.line(&format!("{} of `{}` is {}, by {}", key.key_id, key.name, key.state, key.revoked_by))
        }
    }
}

async fn create(mut client: Identities, args: CreateArgs, out: &mut Out) -> Result<(), Failure> {
    let CreateArgs { name, role, scope, days } = args;
    let request = v1::CreateApiKeyRequest { name, role, scopes: scope, ttl_seconds: days * 86_400 };
    let answer = client.create_api_key(timed(request)).await?.into_inner();
    let key = answer.api_key.unwrap_or_default();
    if out.is_json() {
        let mut shown = view(&key);
        shown["secret"] = json!(answer.secret);
        return out.json(&shown);
    }
    out.fields(&[
        ("key", key.key_id.clone()),
        ("acts as", format!("key:{}", key.name)),
        ("role", key.role.clone()),
        ("scopes", key.scopes.join(" ")),
        ("expires at", at(key.expires_at_unix_ms)),
        ("secret", answer.secret),
    ])?;
    out.line(
        "the secret is shown this once; keep it in a file that only its user can read, and name that with --token-file",
    )
}

/// Which key would be taken back. Whoever is shown a key may take it back.
async fn would_revoke(mut client: Identities, id: Uuid, out: &mut Out) -> Result<(), Failure> {
    let request = v1::ListApiKeysRequest { include_ended: true };
    let keys = client.list_api_keys(timed(request)).await?.into_inner().api_keys;
    let Some(key) = keys.into_iter().find(|key| key.key_id == id.to_string()) else {
        return Err(Failure::new("no-such-key", format!("there is no API key `{id}`"))
            .next("see which there are with `signalbox keys list --all`"));
    };
    if out.is_json() {
        return out.json(&json!({ "dryRun": true, "apiKey": view(&key) }));
    }
    let then = if key.state == "live" { "would be taken back, for good" } else { "is not in force any more" };
    let last = key.last_used_hour_unix_ms;
    let used = if last == 0 { "never".to_owned() } else { at(last) };
    out.line(&format!("{} of `{}` ({}, last used: {used}) {then}. Nothing was done", key.key_id, key.name, key.state))
}

async fn list(mut client: Identities, all: bool, out: &mut Out) -> Result<(), Failure> {
    let request = v1::ListApiKeysRequest { include_ended: all };
    let keys = client.list_api_keys(timed(request)).await?.into_inner().api_keys;
    if out.is_json() {
        let keys: Vec<Value> = keys.iter().map(view).collect();
        return out.json(&json!({ "apiKeys": keys }));
    }
    if keys.is_empty() {
        return out.line("there is no API key");
    }
    let rows: Vec<Vec<String>> = keys
        .into_iter()
        .map(|key| {
            let state =
                if key.revoked_by.is_empty() { key.state } else { format!("{} by {}", key.state, key.revoked_by) };
            let last =
                if key.last_used_hour_unix_ms == 0 { "never".to_owned() } else { at(key.last_used_hour_unix_ms) };
            let made = format!("{} by {}", at(key.created_at_unix_ms), key.created_by);
            vec![key.key_id, key.name, key.role, state, made, at(key.expires_at_unix_ms), last, key.scopes.join(" ")]
        })
        .collect();
    out.table(&["KEY", "NAME", "ROLE", "STATE", "MADE", "EXPIRES", "LAST USED (HOUR)", "SCOPES"], &rows)
}

/// Prints whom the server takes the caller for.
pub(crate) async fn who_am_i(mut client: Identities, out: &mut Out) -> Result<(), Failure> {
    let me = client.who_am_i(timed(v1::WhoAmIRequest {})).await?.into_inner();
    if out.is_json() {
        let may: Vec<Value> =
            me.permissions.iter().map(|may| json!({ "action": may.action, "reach": may.reach })).collect();
        return out.json(&json!({
            "tenantId": me.tenant_id, "actorId": me.actor_id, "role": me.role, "scopes": me.scopes, "permissions": may,
        }));
    }
    let may: Vec<String> = me.permissions.iter().map(|may| format!("{} ({})", may.action, may.reach)).collect();
    out.fields(&[
        ("actor", me.actor_id),
        ("tenant", me.tenant_id),
        ("role", me.role),
        ("scopes", me.scopes.join(" ")),
        ("may", may.join(", ")),
    ])
}

fn view(key: &v1::ApiKey) -> Value {
    let known = |ms: i64| (ms != 0).then_some(ms);
    json!({
        "keyId": key.key_id, "name": key.name, "role": key.role, "scopes": key.scopes, "state": key.state,
        "createdAtUnixMs": key.created_at_unix_ms, "createdBy": key.created_by,
        "expiresAtUnixMs": key.expires_at_unix_ms, "revokedAtUnixMs": known(key.revoked_at_unix_ms),
        "revokedBy": Some(&key.revoked_by).filter(|by| !by.is_empty()),
        "lastUsedHourUnixMs": known(key.last_used_hour_unix_ms),
    })
}

fn at(unix_ms: i64) -> String {
    instant(unix_ms.saturating_mul(1_000))
}
