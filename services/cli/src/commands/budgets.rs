//! `budgets put`, `get`, `list`, `top-up`, `retire` and `history`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use signalbox_domain::quantity::Micros;
use signalbox_proto::v1;

use super::audit::{act_line, act_view};
use crate::client::{Governance, timed};
use crate::failure::Failure;
use crate::output::{Out, cost, instant};

/// `budgets`.
#[derive(Debug, Subcommand)]
pub(crate) enum BudgetsCommand {
    /// Creates a budget or changes its rule; what was spent stays spent.
    #[command(after_help = "Example:
  signalbox budgets put acme-daily --scope tenant --key acme --limit 500 --calendar day --reason \"the new contract\"")]
    Put(Box<PutArgs>),
    /// Shows one budget and how it stands.
    #[command(after_help = "Example:
  signalbox budgets get acme-daily")]
    Get {
        /// The budget.
        id: String,
    },
    /// Lists the budgets in force.
    #[command(after_help = "Example:
  signalbox budgets list")]
    List,
    /// Raises a limit, and lets the runs go on that were held because it was used up.
    #[command(after_help = "Example:
  signalbox budgets top-up acme-daily --by 100 --reason \"a busy day\"")]
    TopUp {
        /// The budget.
        id: String,
        /// How much more, with at most six places.
        #[arg(long, value_name = "N", value_parser = amount, allow_negative_numbers = true)]
        by: Micros,
        /// How it is done.
        #[command(flatten)]
        how: HowArgs,
    },
    /// Takes a budget out of force; its figures are kept.
    #[command(after_help = "Example:
  signalbox budgets retire acme-daily --reason \"the contract ended\"")]
    Retire {
        /// The budget.
        id: String,
        /// How it is done.
        #[command(flatten)]
        how: HowArgs,
    },
    /// Shows the windows of a budget that are over, and who changed it.
    #[command(after_help = "Example:
  signalbox budgets history acme-daily")]
    History {
        /// The budget.
        id: String,
        /// Most windows and most acts.
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
}

/// How a budget is changed.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The revision you have seen: refused if somebody has changed it since.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    expected_revision: Option<u64>,
    /// Only say what would change, by the rules the node decides by; nothing is changed.
    #[arg(long)]
    dry_run: bool,
}

/// `budgets put`.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The budget.
    id: String,
    /// The whole rule as JSON instead of the options below; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scope", "key", "category", "limit", "period", "calendar",
        "zone", "warn", "grace", "grace_for", "on_exceeded"])]
    file: Option<PathBuf>,
    /// What it belongs to: tenant, role, agent, run, tool, user or pipeline.
    #[arg(long, required_unless_present = "file")]
    scope: Option<String>,
    /// Which one.
    #[arg(long, required_unless_present = "file", value_name = "ID")]
    key: Option<String>,
    /// What it is kept in, such as cost-units or external-calls.
    #[arg(long, default_value = "cost-units")]
    category: String,
    /// The limit, with at most six places.
    #[arg(long, required_unless_present = "file", value_name = "N", allow_negative_numbers = true)]
    limit: Option<String>,
    /// Windows of this length, such as 1h or 30d; without this and --calendar it is for life.
    #[arg(long, value_name = "DURATION", value_parser = super::switches::seconds, conflicts_with = "calendar")]
    period: Option<u64>,
    /// Windows of a calendar: day, week, month or year.
    #[arg(long, value_name = "UNIT")]
    calendar: Option<String>,
    /// Whose midnight begins a window.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// From this share of the limit on it warns [default: 0.8].
    #[arg(long, value_name = "RATIO", allow_negative_numbers = true)]
    warn: Option<String>,
    /// Up to this share of the limit it gives grace, such as 1.1; 1 makes it hard [default: 1].
    #[arg(long, value_name = "RATIO", requires = "grace_for", allow_negative_numbers = true)]
    grace: Option<String>,
    /// How long grace lasts from the first overrun in a window.
    #[arg(long, value_name = "DURATION", value_parser = super::switches::seconds, requires = "grace")]
    grace_for: Option<u64>,
    /// What happens to a run when it is exceeded: kill or pause.
    #[arg(long, default_value = "kill")]
    on_exceeded: String,
    /// The tenant it belongs to; your own if left out.
    #[arg(long, value_name = "TENANT", conflicts_with = "platform_wide")]
    tenant: Option<String>,
    /// One meter for all tenants.
    #[arg(long)]
    platform_wide: bool,
    /// Refused if the budget exists already.
    #[arg(long, conflicts_with = "expected_revision")]
    create: bool,
    /// How it is done.
    #[command(flatten)]
    how: HowArgs,
}

fn amount(text: &str) -> Result<Micros, String> {
    let wrong = || format!("`{text}` is no decimal with at most six places");
    let number: Value = serde_json::from_str(text).map_err(|_| wrong())?;
    if !number.is_number() {
        return Err(wrong());
    }
    serde_json::from_value(number).map_err(|_| wrong())
}

/// Does what was asked.
pub(crate) async fn run(client: Governance, command: BudgetsCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        BudgetsCommand::Put(args) => put(client, *args, out).await,
        BudgetsCommand::Get { id } => get(client, id, out).await,
        BudgetsCommand::List => list(client, out).await,
        BudgetsCommand::TopUp { id, by, how } => top_up(client, id, by, how, out).await,
        BudgetsCommand::Retire { id, how } => retire(client, id, how, out).await,
        BudgetsCommand::History { id, limit } => history(client, id, limit, out).await,
    }
}

async fn put(mut client: Governance, args: PutArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::PutBudgetRequest {
        budget_json: rule(&args)?.into(),
        tenant_id: args.tenant.unwrap_or_default(),
        platform_wide: args.platform_wide,
        reason: args.how.reason,
        expected_revision: args.how.expected_revision.unwrap_or_default(),
        expects_none: args.create,
        dry_run: args.how.dry_run,
    };
    let answer = client.put_budget(timed(request)).await?.into_inner();
    let budget = answer.budget.unwrap_or_default();
    if args.how.dry_run {
        return would(answer.before.as_ref(), &budget, None, out);
    }
    if out.is_json() {
        return out.json(&json!({ "budget": view(&budget)?, "unchanged": answer.unchanged }));
    }
    let what = if answer.unchanged { "is like that already" } else { "is in force" };
    out.line(&format!("{} {what}: {}", budget.budget_id, standing(&budget)))
}

/// The rule as JSON: from a file, with the id of the command line, or out of the options. What the options say is judged by the
/// server, so that it is judged in one place.
fn rule(args: &PutArgs) -> Result<Vec<u8>, Failure> {
    if let Some(path) = &args.file {
        let bytes = super::runs::read_file(path)?;
        let named =
            serde_json::from_slice::<Value>(&bytes).ok().and_then(|rule| Some(rule["budgetId"].as_str()? == args.id));
        return match named {
            Some(false) => Err(Failure::usage(
                "budget-id-mismatch",
                format!("the file is about another budget than `{}`", args.id),
            )),
            Some(true) | None => Ok(bytes),
        };
    }
    let number = |field: &str, text: &str| -> Result<Value, Failure> {
        let number = serde_json::from_str::<Value>(text).ok().filter(Value::is_number);
        number.ok_or_else(|| Failure::usage("number-invalid", format!("--{field}: `{text}` is no number")))
    };
    let mut rule = Map::new();
    let mut say = |field: &str, value: Value| rule.insert(field.to_owned(), value);
    say("budgetId", json!(args.id));
    say("scope", json!(args.scope));
    say("scopeKey", json!(args.key));
    say("category", json!(args.category));
    say("limit", number("limit", args.limit.as_deref().unwrap_or_default())?);
    say("onExceeded", json!(args.on_exceeded));
    if let Some(period) = args.period {
        say("periodSeconds", json!(period));
    }
    if let Some(unit) = &args.calendar {
        say("calendar", json!({ "unit": unit, "timeZone": args.zone }));
    }
    if let Some(warn) = &args.warn {
        say("warnRatio", number("warn", warn)?);
    }
    if let Some(grace) = &args.grace {
        say("graceRatio", number("grace", grace)?);
    }
    if let Some(seconds) = args.grace_for {
        say("graceSeconds", json!(seconds));
    }
    serde_json::to_vec(&rule).map_err(|error| Failure::new("output-failed", error.to_string()))
}

async fn get(mut client: Governance, id: String, out: &mut Out) -> Result<(), Failure> {
    let answer = client.get_budget(timed(v1::GetBudgetRequest { budget_id: id })).await?.into_inner();
    let budget = answer.budget.unwrap_or_default();
    if out.is_json() {
        return out.json(&view(&budget)?);
    }
    let rule = rule_of(&budget)?;
    let text = |field: &str| match &rule[field] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    };
    let time = |seconds: i64| if seconds == 0 { String::new() } else { instant(seconds.saturating_mul(1_000_000)) };
    out.fields(&[
        ("budget", budget.budget_id.clone()),
        ("tenant", if budget.tenant_id.is_empty() { "(platform)".to_owned() } else { budget.tenant_id.clone() }),
        ("counts", format!("{} of {} {}", text("category"), text("scope"), text("scopeKey"))),
        ("limit", cost(budget.limit_micros).to_string()),
        ("spent", cost(budget.consumed_micros).to_string()),
        ("held by open calls", cost(budget.reserved_micros).to_string()),
        ("verdict", budget.verdict.clone()),
        ("when exceeded", text("onExceeded")),
        ("window since", time(budget.window_start_unix_seconds)),
        ("next window", time(budget.next_window_unix_seconds)),
        ("grace ends", time(budget.grace_end_unix_seconds)),
        ("revision", budget.revision.to_string()),
    ])
}

async fn list(mut client: Governance, out: &mut Out) -> Result<(), Failure> {
    let budgets = client.list_budgets(timed(v1::ListBudgetsRequest {})).await?.into_inner().budgets;
    if out.is_json() {
        let budgets = budgets.iter().map(view).collect::<Result<Vec<_>, _>>()?;
        return out.json(&json!({ "budgets": budgets }));
    }
    if budgets.is_empty() {
        return out.line("no budget is in force");
    }
    let rows = budgets.iter().map(|budget| {
        let rule = rule_of(budget)?;
        let text = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        Ok(vec![
            budget.budget_id.clone(),
            format!("{} {}", text("scope"), text("scopeKey")),
            text("category"),
            cost(budget.consumed_micros).to_string(),
            cost(budget.reserved_micros).to_string(),
            cost(budget.limit_micros).to_string(),
            budget.verdict.clone(),
            budget.revision.to_string(),
        ])
    });
    let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
    out.table(&["BUDGET", "OF", "CATEGORY", "SPENT", "HELD", "LIMIT", "VERDICT", "REVISION"], &rows)
}

async fn top_up(mut client: Governance, id: String, by: Micros, how: HowArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::TopUpBudgetRequest {
        budget_id: id,
        amount_micros: by.0,
        reason: how.reason,
        expected_revision: how.expected_revision.unwrap_or_default(),
        dry_run: how.dry_run,
    };
    let answer = client.top_up_budget(timed(request)).await?.into_inner();
    let budget = answer.budget.unwrap_or_default();
    if how.dry_run {
        return would(answer.before.as_ref(), &budget, Some(answer.resumed), out);
    }
    if out.is_json() {
        return out.json(&json!({ "budget": view(&budget)?, "resumed": answer.resumed }));
    }
    out.line(&format!("{}: {}; runs told to go on: {}", budget.budget_id, standing(&budget), answer.resumed))
}

async fn retire(mut client: Governance, id: String, how: HowArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::RetireBudgetRequest {
        budget_id: id,
        reason: how.reason,
        expected_revision: how.expected_revision.unwrap_or_default(),
        dry_run: how.dry_run,
    };
    let budget = client.retire_budget(timed(request)).await?.into_inner().budget.unwrap_or_default();
    if how.dry_run {
        if out.is_json() {
            return out.json(&json!({ "dryRun": true, "budget": view(&budget)? }));
        }
        return out.line(&format!(
            "would take {} out of force: {}. Nothing was done",
            budget.budget_id,
            standing(&budget)
        ));
    }
    if out.is_json() {
        return out.json(&json!({ "budget": view(&budget)? }));
    }
    out.line(&format!("{} is out of force; {}", budget.budget_id, standing(&budget)))
}

/// What would change, as the node says: before and after.
fn would(before: Option<&v1::Budget>, after: &v1::Budget, resumed: Option<u32>, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        let before = before.map(view).transpose()?;
        let mut shown = json!({ "dryRun": true, "before": before, "after": view(after)? });
        if let Some(resumed) = resumed {
            shown["resumed"] = json!(resumed);
        }
        return out.json(&shown);
    }
    let (old, new) = (before.map(rule_of).transpose()?.unwrap_or_default(), rule_of(after)?);
    let said = |value: &Value| if value.is_null() { "-".to_owned() } else { value.to_string().replace('"', "") };
    let fields = new.as_object().into_iter().flatten().map(|(field, _)| field.clone());
    let gone = old.as_object().into_iter().flatten().map(|(field, _)| field.clone());
    let all: std::collections::BTreeSet<String> = fields.chain(gone).collect();
    let changed: Vec<_> = all
        .into_iter()
        .filter(|field| old[field.as_str()] != new[field.as_str()])
        .map(|field| vec![said(&old[field.as_str()]), said(&new[field.as_str()]), field])
        .map(|mut row| {
            row.rotate_right(1);
            row
        })
        .collect();
    if changed.is_empty() {
        return out.line(&format!("{} is like that already. Nothing was done", after.budget_id));
    }
    out.table(&["FIELD", "BEFORE", "AFTER"], &changed)?;
    let stood = before.map_or_else(|| "not in force".to_owned(), standing);
    let goes_on = resumed.map(|resumed| format!("; runs that would go on: {resumed}")).unwrap_or_default();
    out.line(&format!("{}: {stood}; it would be: {}{goes_on}. Nothing was done", after.budget_id, standing(after)))
}

async fn history(mut client: Governance, id: String, limit: u32, out: &mut Out) -> Result<(), Failure> {
    let request = v1::GetBudgetHistoryRequest { budget_id: id, limit };
    let answer = client.get_budget_history(timed(request)).await?.into_inner();
    if out.is_json() {
        let windows: Vec<_> = answer.windows.iter().map(window_view).collect();
        let acts: Vec<_> = answer.acts.iter().map(act_view).collect();
        return out.json(&json!({ "windows": windows, "acts": acts }));
    }
    if answer.windows.is_empty() {
        out.line("no window in which something was spent is over")?;
    } else {
        let time = |seconds: i64| instant(seconds.saturating_mul(1_000_000));
        let rows: Vec<_> = answer
            .windows
            .iter()
            .map(|window| {
                vec![
                    time(window.starts_unix_seconds),
                    time(window.ended_unix_seconds),
                    cost(window.consumed_micros).to_string(),
                    cost(window.limit_micros).to_string(),
                ]
            })
            .collect();
        out.table(&["WINDOW SINCE", "UNTIL", "SPENT", "LIMIT"], &rows)?;
    }
    out.line("")?;
    answer.acts.iter().try_for_each(|act| out.line(&act_line(act)))
}

fn standing(budget: &v1::Budget) -> String {
    format!(
        "{} spent and {} held of {}, {}; revision {}",
        cost(budget.consumed_micros),
        cost(budget.reserved_micros),
        cost(budget.limit_micros),
        budget.verdict,
        budget.revision
    )
}

fn rule_of(budget: &v1::Budget) -> Result<Value, Failure> {
    serde_json::from_slice(&budget.budget_json)
        .map_err(|error| Failure::new("answer-invalid", format!("the server sent a budget that is not JSON: {error}")))
}

/// A budget as scripts read it: its rule, and how it stands.
fn view(budget: &v1::Budget) -> Result<Value, Failure> {
    let time = |seconds: i64| (seconds != 0).then_some(seconds);
    Ok(json!({
        "budget": rule_of(budget)?,
        "revision": budget.revision,
        "consumed": cost(budget.consumed_micros),
        "reserved": cost(budget.reserved_micros),
        "limit": cost(budget.limit_micros),
        "verdict": budget.verdict,
        "windowStartUnixSeconds": budget.window_start_unix_seconds,
        "nextWindowUnixSeconds": time(budget.next_window_unix_seconds),
        "graceEndUnixSeconds": time(budget.grace_end_unix_seconds),
    }))
}

fn window_view(window: &v1::BudgetWindow) -> Value {
    json!({
        "startsUnixSeconds": window.starts_unix_seconds,
        "endedUnixSeconds": window.ended_unix_seconds,
        "consumed": cost(window.consumed_micros),
        "limit": cost(window.limit_micros),
    })
}
