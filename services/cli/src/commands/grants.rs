//! `grants issue`, `renew`, `revoke`, `list` and `show`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use signalbox_proto::v1;

use crate::client::{Governance, timed};
use crate::failure::Failure;
use crate::output::{Out, instant};

/// `grants`.
#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// Grants a tool: from this instant on, calls inside its bounds may be made.
    #[command(after_help = "Examples:
  signalbox grants issue --tool web.fetch --scope per-tenant --host '*.example.org' --for 30d --reason \"the press desk\"
  signalbox grants issue --tool notify.send --scope per-run --key 0190d6a8-3c1e-7bbb-8f5e-000000000001 --max-calls 1 --reason \"one note for this run\"")]
    Issue(Box<IssueArgs>),
    /// Makes a new grant that continues one: also one that has expired, up to 24 hours after its end.
    #[command(after_help = "Example:
  signalbox grants renew press --for 30d --reason \"the desk stays\" --expected-revision 4")]
    Renew {
        /// The grant that is to go on.
        id: String,
        /// The new one ends after so long, such as 12h or 30d.
        #[arg(long = "for", value_name = "DURATION", value_parser = super::switches::seconds)]
        lasts: Option<u64>,
        /// An id for the new one; saying the same twice under one is harmless.
        #[arg(long = "id", value_name = "ID")]
        new_id: Option<String>,
        /// How it is done.
        #[command(flatten)]
        how: HowArgs,
    },
    /// Revokes a grant, and what a renewal has tied to it: no call is admitted under it any more.
    #[command(after_help = "Example:
  signalbox grants revoke press --reason \"the desk is closed\"")]
    Revoke {
        /// The grant.
        id: String,
        /// How it is done.
        #[command(flatten)]
        how: HowArgs,
    },
    /// Lists the grants that are live.
    #[command(after_help = "Example:
  signalbox grants list --tool web.fetch --all")]
    List(ListArgs),
    /// Shows one grant, its bounds and where it stands.
    #[command(after_help = "Example:
  signalbox grants show press")]
    Show {
        /// The grant.
        id: String,
    },
}

/// How a grant is changed.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The revision you have seen: refused if somebody has changed it since.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    expected_revision: Option<u64>,
    /// Only say what would change, as the server decides it; nothing is changed.
    #[arg(long)]
    dry_run: bool,
}

/// `grants issue`.
#[derive(Debug, Args)]
pub(crate) struct IssueArgs {
    /// The whole grant as JSON instead of the options below; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tool", "scope", "key", "id", "range", "hosts", "paths", "methods",
        "schemes", "secrets", "max_calls", "max_cost", "delegable"])]
    file: Option<PathBuf>,
    /// The tool.
    #[arg(long, required_unless_present = "file", value_name = "TOOL")]
    tool: Option<String>,
    /// Whom it is for: per-run, per-pipeline-instance, per-session, per-user or per-tenant.
    #[arg(long, required_unless_present = "file")]
    scope: Option<String>,
    /// Which run, pipeline instance, session or user; not needed for per-tenant.
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// It ends after so long, such as 12h or 30d. Needed but for a run or a pipeline instance, with whose end it ends.
    #[arg(long = "for", value_name = "DURATION", value_parser = super::switches::seconds)]
    lasts: Option<u64>,
    /// Versions of the tool it holds for; those compatible with the catalog's if left out.
    #[arg(long, value_name = "RANGE")]
    range: Option<String>,
    /// A host that may be reached, such as example.org or *.example.org; may be said again.
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// A file or folder that may be touched; may be said again.
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
    /// An HTTP method that may be used; may be said again.
    #[arg(long = "method", value_name = "METHOD")]
    methods: Vec<String>,
    /// A URL scheme that may be used; https alone if left out. May be said again.
    #[arg(long = "scheme", value_name = "SCHEME")]
    schemes: Vec<String>,
    /// A secret that may be used; may be said again.
    #[arg(long = "secret", value_name = "ID")]
    secrets: Vec<String>,
    /// Most calls of each run.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_calls: Option<String>,
    /// Most cost units of one call.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_cost: Option<String>,
    /// What its holder may hand on, as JSON such as {"hosts":["a.example.org"]}: a part of the bounds above.
    #[arg(long, value_name = "JSON")]
    delegable: Option<String>,
    /// The tenant it is for; your own if left out.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// An id for it; saying the same twice under one is harmless.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Only say what would change, as the server decides it; nothing is changed.
    #[arg(long)]
    dry_run: bool,
}

/// `grants list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only grants of this tool.
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Only grants of this scope.
    #[arg(long)]
    scope: Option<String>,
    /// Only grants of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Those that are expired or revoked too.
    #[arg(long)]
    all: bool,
    /// Only those whose ids come after this one.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Most grants.
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

/// Does what was asked.
pub(crate) async fn run(client: Governance, command: GrantsCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        GrantsCommand::Issue(args) => issue(client, *args, out).await,
        GrantsCommand::Renew { id, lasts, new_id, how } => renew(client, id, lasts, new_id, how, out).await,
        GrantsCommand::Revoke { id, how } => revoke(client, id, how, out).await,
        GrantsCommand::List(args) => list(client, args, out).await,
        GrantsCommand::Show { id } => show(client, id, out).await,
    }
}

async fn issue(mut client: Governance, args: IssueArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::IssueGrantRequest {
        grant_json: wish(&args)?.into(),
        tenant_id: args.tenant.unwrap_or_default(),
        rationale: args.reason,
        expiry: args.lasts.map(v1::issue_grant_request::Expiry::ExpiresAfterSeconds),
        dry_run: args.dry_run,
    };
    let answer = client.issue_grant(timed(request)).await?.into_inner();
    issued(&answer.grant.unwrap_or_default(), answer.replayed, args.dry_run, out)
}

fn issued(grant: &v1::Grant, replayed: bool, dry_run: bool, out: &mut Out) -> Result<(), Failure> {
    if dry_run && out.is_json() {
        return out.json(&json!({ "dryRun": true, "grant": view(grant)?, "replayed": replayed }));
    }
    if dry_run {
        let would = if replayed { "is issued already" } else { "would be issued" };
        return out.line(&format!("{} {would}: {}. Nothing was done", grant.grant_id, what(&whole(grant)?)));
    }
    if out.is_json() {
        return out.json(&json!({ "grant": view(grant)?, "replayed": replayed }));
    }
    let again = if replayed { " already" } else { "" };
    out.line(&format!("{} is issued{again}: {}; revision {}", grant.grant_id, what(&whole(grant)?), grant.revision))
}

/// The grant as JSON: from a file, or out of the options. What it says is judged by the server, so that it is judged in one
/// place.
fn wish(args: &IssueArgs) -> Result<Vec<u8>, Failure> {
    if let Some(path) = &args.file {
        return super::runs::read_file(path);
    }
    let number = |field: &str, text: &str| -> Result<Value, Failure> {
        let number = serde_json::from_str::<Value>(text).ok().filter(Value::is_number);
        number.ok_or_else(|| Failure::usage("number-invalid", format!("--{field}: `{text}` is no number")))
    };
    let mut constraints = Map::new();
    let lists = [
        ("hosts", &args.hosts),
        ("paths", &args.paths),
        ("methods", &args.methods),
        ("schemes", &args.schemes),
        ("secretIds", &args.secrets),
    ];
    for (field, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        constraints.insert(field.to_owned(), json!(list));
    }
    if let Some(most) = &args.max_calls {
        constraints.insert("maxCalls".to_owned(), number("max-calls", most)?);
    }
    if let Some(most) = &args.max_cost {
        constraints.insert("maxCostUnits".to_owned(), number("max-cost", most)?);
    }
    let mut wish = Map::new();
    let mut say = |field: &str, value: Value| wish.insert(field.to_owned(), value);
    say("toolId", json!(args.tool));
    say("scope", json!(args.scope));
    say("constraints", Value::Object(constraints));
    for (field, text) in [("scopeKey", &args.key), ("toolRange", &args.range), ("grantId", &args.id)] {
        if let Some(text) = text {
            say(field, json!(text));
        }
    }
    if let Some(text) = &args.delegable {
        let delegable = signalbox_domain::json::parse_strict(text.as_bytes(), signalbox_domain::json::Limits::DEFAULT);
        say("delegable", delegable.map_err(|error| Failure::usage(error.code(), format!("--delegable: {error}")))?);
    }
    serde_json::to_vec(&wish).map_err(|error| Failure::new("internal", error.to_string()))
}

async fn renew(
    mut client: Governance,
    id: String,
    lasts: Option<u64>,
    new_id: Option<String>,
    how: HowArgs,
    out: &mut Out,
) -> Result<(), Failure> {
    let request = v1::RenewGrantRequest {
        grant_id: id,
        new_grant_id: new_id.unwrap_or_default(),
        rationale: how.reason,
        expiry: lasts.map(v1::renew_grant_request::Expiry::ExpiresAfterSeconds),
        expected_revision: how.expected_revision.unwrap_or_default(),
        dry_run: how.dry_run,
    };
    let answer = client.renew_grant(timed(request)).await?.into_inner();
    issued(&answer.grant.unwrap_or_default(), answer.replayed, how.dry_run, out)
}

async fn revoke(mut client: Governance, id: String, how: HowArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::RevokeGrantRequest {
        grant_id: id,
        reason: how.reason,
        expected_revision: how.expected_revision.unwrap_or_default(),
        dry_run: how.dry_run,
    };
    let answer = client.revoke_grant(timed(request)).await?.into_inner();
    let grant = answer.grant.unwrap_or_default();
    if how.dry_run {
        return would_revoke(&grant, &answer.revoked_grant_ids, out);
    }
    let applied_ms = answer.applied_after_micros as f64 / 1_000.0;
    if out.is_json() {
        return out.json(&json!({
            "grant": view(&grant)?,
            "already": answer.already,
            "revokedGrantIds": answer.revoked_grant_ids,
            "epoch": answer.epoch,
            "appliedAfterMs": applied_ms,
        }));
    }
    if answer.already {
        return out.line(&format!("{} was revoked before", grant.grant_id));
    }
    let others: Vec<_> = answer.revoked_grant_ids.iter().filter(|id| **id != grant.grant_id).cloned().collect();
    let with = if others.is_empty() { String::new() } else { format!(", and with it {}", others.join(", ")) };
    out.line(&format!(
        "{} is revoked{with}: no call is admitted under it since epoch {}; this node knew after {applied_ms:.1} ms",
        grant.grant_id, answer.epoch
    ))
}

/// What revoking would take away.
fn would_revoke(grant: &v1::Grant, with: &[String], out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&json!({ "dryRun": true, "grant": view(grant)?, "revokedGrantIds": with }));
    }
    let what = what(&whole(grant)?);
    out.line(&format!("{} is {}; would take away: {what}. Nothing was done", grant.grant_id, grant.state))
}

async fn list(mut client: Governance, args: ListArgs, out: &mut Out) -> Result<(), Failure> {
    let all = args.all;
    let request = v1::ListGrantsRequest {
        tenant_id: args.tenant.unwrap_or_default(),
        tool_id: args.tool.unwrap_or_default(),
        scope: args.scope.unwrap_or_default(),
        all,
        after_grant_id: args.after.unwrap_or_default(),
        limit: args.limit,
    };
    let answer = client.list_grants(timed(request)).await?.into_inner();
    if out.is_json() {
        let grants: Vec<_> = answer.grants.iter().map(view).collect::<Result<_, _>>()?;
        let heard = answer.revocations.unwrap_or_default();
        return out.json(&json!({
            "grants": grants,
            "revocations": {
                "applied": heard.applied,
                "grantRevocationSloMissTotal": heard.slo_missed,
                "slowestMs": heard.slowest_ms,
            },
        }));
    }
    if answer.grants.is_empty() {
        return out.line(if all { "no grant was found" } else { "no live grant was found" });
    }
    let rows = answer.grants.iter().map(|grant| {
        let said = whole(grant)?;
        let text = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
        Ok(vec![
            grant.grant_id.clone(),
            text("toolId"),
            format!("{} {}", text("scope"), text("scopeKey")),
            grant.state.clone(),
            until(&said),
            text("issuedBy"),
            grant.revision.to_string(),
        ])
    });
    let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
    out.table(&["GRANT", "TOOL", "FOR", "STATE", "UNTIL", "ISSUED BY", "REVISION"], &rows)
}

async fn show(mut client: Governance, id: String, out: &mut Out) -> Result<(), Failure> {
    let answer = client.get_grant(timed(v1::GetGrantRequest { grant_id: id })).await?.into_inner();
    let grant = answer.grant.unwrap_or_default();
    if out.is_json() {
        return out.json(&view(&grant)?);
    }
    let said = whole(&grant)?;
    let text = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
    let bounds = |field: &str| said.get(field).map(ToString::to_string).unwrap_or_default();
    let handed_on = bounds("delegable");
    out.fields(&[
        ("grant", grant.grant_id.clone()),
        ("state", grant.state.clone()),
        ("tool", format!("{} {}", text("toolId"), text("toolRange"))),
        ("tenant", grant.tenant_id.clone()),
        ("for", format!("{} {}", text("scope"), text("scopeKey"))),
        ("bounds", bounds("constraints")),
        ("may be handed on", if handed_on.is_empty() { "nothing".to_owned() } else { handed_on }),
        ("issued by", text("issuedBy")),
        ("issued at", time(&said, "issuedAtUnixMs")),
        ("rationale", text("rationale")),
        ("record", text("auditEventId")),
        ("renewed from", text("renewedFromGrantId")),
        ("until", until(&said)),
        ("revoked at", time(&said, "revokedAtUnixMs")),
        ("revision", grant.revision.to_string()),
    ])
}

/// What a grant allows, in words.
fn what(grant: &Value) -> String {
    let text = |field: &str| grant[field].as_str().unwrap_or_default();
    format!(
        "{} {} for {} {}, until {}",
        text("toolId"),
        text("toolRange"),
        text("scope"),
        text("scopeKey"),
        until(grant)
    )
}

fn until(grant: &Value) -> String {
    match grant["expiresAtUnixMs"].as_i64() {
        Some(_) => time(grant, "expiresAtUnixMs"),
        None => "it is over".to_owned(),
    }
}

fn time(grant: &Value, field: &str) -> String {
    grant[field].as_i64().map(|ms| instant(ms.saturating_mul(1_000))).unwrap_or_default()
}

fn whole(grant: &v1::Grant) -> Result<Value, Failure> {
    serde_json::from_slice(&grant.grant_json)
        .map_err(|error| Failure::new("answer-invalid", format!("the server sent a grant that is not JSON: {error}")))
}

/// A grant as scripts read it: the grant itself, and where it stands.
fn view(grant: &v1::Grant) -> Result<Value, Failure> {
    Ok(json!({ "grant": whole(grant)?, "state": grant.state, "revision": grant.revision }))
}
