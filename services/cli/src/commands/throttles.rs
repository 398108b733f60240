//! `throttles set`, `list`, `show` and `remove`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use signalbox_proto::v1;

use crate::client::{Governance, timed};
use crate::failure::Failure;
use crate::output::Out;

/// `throttles`.
#[derive(Debug, Subcommand)]
pub(crate) enum ThrottlesCommand {
    /// Sets a throttle, or changes one: it binds from the next call on.
    #[command(after_help = "Examples:
  signalbox throttles set fetches --tool web.fetch --capacity 10 --refill 0.5 --reason \"their quota\"
  signalbox throttles set each-user --per user --per tool --capacity 20 --refill 2 --platform-wide --reason \"fair shares\"")]
    Set(Box<SetArgs>),
    /// Lists the throttles.
    #[command(after_help = "Example:
  signalbox throttles list")]
    List,
    /// Shows one throttle.
    #[command(after_help = "Example:
  signalbox throttles show fetches")]
    Show {
        /// The throttle.
        id: String,
    },
    /// Removes a throttle: calls that waited for it alone go on.
    #[command(after_help = "Example:
  signalbox throttles remove fetches --reason \"the quota is gone\"")]
    Remove {
        /// The throttle.
        id: String,
        /// How it is done.
        #[command(flatten)]
        how: HowArgs,
    },
}

/// How a throttle is changed.
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

/// `throttles set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The throttle.
    id: String,
    /// The whole rule as JSON instead of the options below; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["capacity", "refill", "tool", "user", "agent", "provider", "per"])]
    file: Option<PathBuf>,
    /// How many calls may be made at once, with at most six places; at least 1.
    #[arg(long, required_unless_present = "file", value_name = "N", allow_negative_numbers = true)]
    capacity: Option<String>,
    /// How many more each second, with at most six places.
    #[arg(long, required_unless_present = "file", value_name = "N", allow_negative_numbers = true)]
    refill: Option<String>,
    /// Only calls of this tool.
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Only calls of this user's runs.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only calls of this agent.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Only calls to this provider.
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// One bucket for each tenant, user, agent, tool or provider; said twice, for each of both together.
    #[arg(long, value_name = "KIND")]
    per: Vec<String>,
    /// The tenant whose calls are slowed; your own if left out.
    #[arg(long, value_name = "TENANT", conflicts_with = "platform_wide")]
    tenant: Option<String>,
    /// The calls of all tenants are slowed.
    #[arg(long)]
    platform_wide: bool,
    /// Refused if the throttle exists already.
    #[arg(long, conflicts_with = "expected_revision")]
    create: bool,
    /// How it is done.
    #[command(flatten)]
    how: HowArgs,
}

/// Does what was asked.
pub(crate) async fn run(client: Governance, command: ThrottlesCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        ThrottlesCommand::Set(args) => set(client, *args, out).await,
        ThrottlesCommand::List => list(client, out).await,
        ThrottlesCommand::Show { id } => show(client, id, out).await,
        ThrottlesCommand::Remove { id, how } => remove(client, id, how, out).await,
    }
}

async fn set(mut client: Governance, args: SetArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::SetThrottleRequest {
        rule_json: rule(&args)?.into(),
        tenant_id: args.tenant.unwrap_or_default(),
        platform_wide: args.platform_wide,
        reason: args.how.reason,
        expected_revision: args.how.expected_revision.unwrap_or_default(),
        expects_none: args.create,
        dry_run: args.how.dry_run,
    };
    let answer = client.set_throttle(timed(request)).await?.into_inner();
    let throttle = answer.throttle.unwrap_or_default();
    if args.how.dry_run {
        return would_set(answer.before.as_ref(), &throttle, answer.unchanged, out);
    }
    if out.is_json() {
        return out.json(&json!({ "throttle": view(&throttle)?, "unchanged": answer.unchanged }));
    }
    let what = if answer.unchanged { "is like that already" } else { "is set" };
    out.line(&format!("{} {what}: {}; revision {}", throttle.bucket_id, in_words(&throttle)?, throttle.revision))
}

/// What setting it would change.
fn would_set(before: Option<&v1::Throttle>, after: &v1::Throttle, same: bool, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        let before = before.map(view).transpose()?;
        return out.json(&json!({ "dryRun": true, "before": before, "after": view(after)?, "unchanged": same }));
    }
    let (id, would) = (&after.bucket_id, in_words(after)?);
    match before {
        Some(_) if same => out.line(&format!("{id} is like that already: {would}. Nothing was done")),
        Some(before) => out.line(&format!("{id}: {}; it would be: {would}. Nothing was done", in_words(before)?)),
        None => out.line(&format!("{id} would be set: {would}. Nothing was done")),
    }
}

/// The rule as JSON: from a file, with the id of the command line, or out of the options. What it says is judged by the server,
/// so that it is judged in one place.
fn rule(args: &SetArgs) -> Result<Vec<u8>, Failure> {
    if let Some(path) = &args.file {
        let bytes = super::runs::read_file(path)?;
        let named = serde_json::from_slice::<Value>(&bytes).ok();
        return match named.as_ref().and_then(|rule| rule["bucketId"].as_str()) {
            Some(id) if id != args.id => Err(Failure::usage(
                "throttle-id-mismatch",
                format!("the file is about another throttle than `{}`", args.id),
            )),
            Some(_) | None => Ok(bytes),
        };
    }
    let number = |field: &str, text: &Option<String>| -> Result<Value, Failure> {
        let text = text.as_deref().unwrap_or_default();
        let number = serde_json::from_str::<Value>(text).ok().filter(Value::is_number);
        number.ok_or_else(|| Failure::usage("number-invalid", format!("--{field}: `{text}` is no number")))
    };
    let mut rule = Map::new();
    let mut say = |field: &str, value: Value| rule.insert(field.to_owned(), value);
    say("bucketId", json!(args.id));
    say("capacity", number("capacity", &args.capacity)?);
    say("refillPerSecond", number("refill", &args.refill)?);
    let named =
        [("toolId", &args.tool), ("userId", &args.user), ("agentId", &args.agent), ("providerId", &args.provider)];
    for (field, text) in named {
        if let Some(text) = text {
            say(field, json!(text));
        }
    }
    say("per", json!(args.per));
    serde_json::to_vec(&rule).map_err(|error| Failure::new("internal", error.to_string()))
}

async fn list(mut client: Governance, out: &mut Out) -> Result<(), Failure> {
    let throttles = client.list_throttles(timed(v1::ListThrottlesRequest {})).await?.into_inner().throttles;
    if out.is_json() {
        let throttles: Vec<_> = throttles.iter().map(view).collect::<Result<_, _>>()?;
        return out.json(&json!({ "throttles": throttles }));
    }
    if throttles.is_empty() {
        return out.line("no throttle is set");
    }
    let rows = throttles.iter().map(|throttle| {
        let rule = rule_of(throttle)?;
        Ok(vec![
            throttle.bucket_id.clone(),
            whose(throttle),
            what(&rule),
            rule["capacity"].to_string(),
            rule["refillPerSecond"].to_string(),
            throttle.revision.to_string(),
        ])
    });
    let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
    out.table(&["THROTTLE", "OF", "SLOWS", "CAPACITY", "REFILL/S", "REVISION"], &rows)
}

async fn show(mut client: Governance, id: String, out: &mut Out) -> Result<(), Failure> {
    let answer = client.get_throttle(timed(v1::GetThrottleRequest { bucket_id: id })).await?.into_inner();
    let throttle = answer.throttle.unwrap_or_default();
    if out.is_json() {
        return out.json(&view(&throttle)?);
    }
    let rule = rule_of(&throttle)?;
    out.fields(&[
        ("throttle", throttle.bucket_id.clone()),
        ("of", whose(&throttle)),
        ("slows", what(&rule)),
        ("capacity", rule["capacity"].to_string()),
        ("refill per second", rule["refillPerSecond"].to_string()),
        ("revision", throttle.revision.to_string()),
    ])
}

async fn remove(mut client: Governance, id: String, how: HowArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::RemoveThrottleRequest {
        bucket_id: id,
        reason: how.reason,
        expected_revision: how.expected_revision.unwrap_or_default(),
        dry_run: how.dry_run,
    };
    let throttle = client.remove_throttle(timed(request)).await?.into_inner().throttle.unwrap_or_default();
    if how.dry_run && out.is_json() {
        return out.json(&json!({ "dryRun": true, "throttle": view(&throttle)? }));
    }
    if how.dry_run {
        return out.line(&format!("would no longer slow {}. Nothing was done", in_words(&throttle)?));
    }
    if out.is_json() {
        return out.json(&json!({ "throttle": view(&throttle)? }));
    }
    out.line(&format!("{} is removed; it slowed {}", throttle.bucket_id, in_words(&throttle)?))
}

fn whose(throttle: &v1::Throttle) -> String {
    match throttle.tenant_id.as_str() {
        "" => "everybody".to_owned(),
        tenant => format!("tenant {tenant}"),
    }
}

/// Which calls a rule slows, in words.
fn what(rule: &Value) -> String {
    let mut words = Vec::new();
    for (field, kind) in [("toolId", "tool"), ("userId", "user"), ("agentId", "agent"), ("providerId", "provider")] {
        if let Some(text) = rule[field].as_str() {
            words.push(format!("{kind} {text}"));
        }
    }
    let per: Vec<&str> = rule["per"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !per.is_empty() {
        words.push(format!("each {}", per.join(" and ")));
    }
    if words.is_empty() { "all calls".to_owned() } else { words.join(", ") }
}

fn in_words(throttle: &v1::Throttle) -> Result<String, Failure> {
    let rule = rule_of(throttle)?;
    Ok(format!(
        "{} of {} to {} at once and {} a second",
        what(&rule),
        whose(throttle),
        rule["capacity"],
        rule["refillPerSecond"]
    ))
}

fn rule_of(throttle: &v1::Throttle) -> Result<Value, Failure> {
    serde_json::from_slice(&throttle.rule_json).map_err(|error| {
        Failure::new("answer-invalid", format!("the server sent a throttle that is not JSON: {error}"))
    })
}

/// A throttle as scripts read it.
fn view(throttle: &v1::Throttle) -> Result<Value, Failure> {
    Ok(json!({
        "throttle": rule_of(throttle)?,
        "platformWide": throttle.platform_wide,
        "revision": throttle.revision,
    }))
}
