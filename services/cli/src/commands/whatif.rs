//! `whatif`: recorded runs, decided again under other budgets, switches or grants. Nothing is changed anywhere: the journals
//! are read, and the rules are asked here, on this machine.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use signalbox_domain::governance::budget::{Budget, BudgetScope, OnExceeded};
use signalbox_domain::governance::grant::Grant;
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::ids::{BudgetId, RunKey, SwitchId, TenantId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::whatif::{Change, Otherwise, Recorded, WhatIf, whatif};
use signalbox_domain::time::UnixMs;
use signalbox_proto::v1;
use uuid::Uuid;

use super::listing::{When, WhoseArgs, when};
use super::verify;
use crate::client::{Connection, timed};
use crate::config::{Config, file_actor};
use crate::failure::Failure;
use crate::journal_file::{self, JournalFile};
use crate::output::{Out, instant};

/// Most runs that are looked at.
const RUNS_MAX: usize = 10_000;
/// Most events of all of them.
const EVENTS_MAX: usize = 1_000_000;
/// Runs asked for at once.
const PAGE: u32 = 200;

/// `whatif`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox whatif --budget tenant/acme=500 --since 7d
  signalbox whatif --budget agent/ref.research:output-tokens=20000/day --switch tool:web.fetch
  signalbox whatif --grants rules.toml --from exported/ --output json")]
pub(crate) struct WhatIfArgs {
    /// A budget as SCOPE/KEY=LIMIT or SCOPE/KEY:CATEGORY=LIMIT, with /hour, /day or /week behind it; in cost units unless a
    /// category is named; may be repeated.
    #[arg(long, value_name = "BUDGET", value_parser = budget)]
    budget: Vec<Budget>,
    /// Have an exceeded budget pause runs instead of killing them.
    #[arg(long)]
    pause: bool,
    /// A switch as SCOPE or SCOPE:TARGET, armed all the time; may be repeated.
    #[arg(long, value_name = "SWITCH", value_parser = switch)]
    switch: Vec<KillSwitch>,
    /// A configuration file: its [[grants]] instead of those that runs share.
    #[arg(long, value_name = "FILE")]
    grants: Option<PathBuf>,
    /// Only runs accepted then or later: an instant, a day, or how long ago, as in `runs list`.
    #[arg(long, value_name = "WHEN", value_parser = when, conflicts_with = "from")]
    since: Option<When>,
    /// A folder of files made by `signalbox runs export`, or one such file, instead of a server.
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    /// Whose runs.
    #[command(flatten)]
    whose: WhoseArgs,
}

/// Reads the journals and tells what would have become of them.
pub(crate) async fn run(server: &Connection, args: WhatIfArgs, out: &mut Out) -> Result<(), Failure> {
    let mut change = Change { budgets: args.budget, switches: args.switch, grants: None };
    if args.pause {
        change.budgets.iter_mut().for_each(|budget| budget.on_exceeded = OnExceeded::Pause);
    }
    if let Some(path) = &args.grants {
        change.grants = Some(grants(path)?);
    }
    if change == Change::default() {
        let failure = Failure::usage("nothing-to-change", "nothing would be otherwise");
        return Err(failure.next("give at least one of --budget, --switch and --grants"));
    }
    for (index, budget) in change.budgets.iter().enumerate() {
        if change.budgets[..index].iter().any(|other| other.budget_id == budget.budget_id) {
            let message = format!("`{}` is given twice", budget.budget_id);
            return Err(Failure::usage("budget-twice", message));
        }
    }
    let journals = match &args.from {
        Some(path) => from_files(path)?,
        None => from_server(server, args.since, args.whose.all_tenants).await?,
    };
    let recorded: Vec<Recorded<'_>> =
        journals.iter().map(|file| Recorded { run_key: file.run_key, events: &file.events }).collect();
    let found = whatif(&recorded, &change).map_err(|(run, error)| not_sound(run, &error.to_string()))?;
    show(&found, out)
}

fn not_sound(run: RunKey, problem: &str) -> Failure {
    Failure::new("journal-not-sound", format!("the journal {run} cannot be relied on: {problem}"))
        .next("verify it with `signalbox verify`")
}

fn grants(path: &Path) -> Result<Vec<Grant>, Failure> {
    let config = Config::read(path)?;
    let actor = file_actor().map_err(|error| Failure::new("internal", error.to_string()))?;
    // From the beginning: what is asked is what they would have allowed.
    Ok(config.grants.iter().map(|entry| entry.to_grant(&actor, UnixMs(0))).collect())
}

async fn from_server(server: &Connection, since: Option<When>, all_tenants: bool) -> Result<Vec<JournalFile>, Failure> {
    let mut client = server.open().await?;
    let mut request = v1::ListRunsRequest {
        page_size: PAGE,
        started_after_unix_ms: since.map(|since| since.unix_ms(Timestamp::now())),
        all_tenants,
        ..v1::ListRunsRequest::default()
    };
    let mut ids: Vec<Uuid> = Vec::new();
    loop {
        let page = client.list_runs(timed(request.clone())).await?.into_inner();
        for run in page.runs {
            ids.push(
                run.run_id.parse().map_err(|_| Failure::new("answer-invalid", "the server named a run by no id"))?,
            );
        }
        if ids.len() > RUNS_MAX {
            return Err(too_many(format!("there are more than {RUNS_MAX} runs")));
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let mut journals = Vec::with_capacity(ids.len());
    let mut events = 0;
    for id in ids {
        let journal = verify::journal(server, &id.to_string()).await?;
        events += journal.events.len();
        bounded(events)?;
        journals.push(journal);
    }
    Ok(journals)
}

fn from_files(path: &Path) -> Result<Vec<JournalFile>, Failure> {
    let unreadable = |path: &Path, error: std::io::Error| {
        Failure::usage("file-unreadable", format!("`{}` cannot be read: {}", path.display(), error.kind()))
    };
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(|error| unreadable(path, error))? {
            let file = entry.map_err(|error| unreadable(path, error))?.path();
            if file.is_file() && file.extension().is_some_and(|ending| ending == "jsonl") {
                files.push(file);
            }
            if files.len() > RUNS_MAX {
                return Err(too_many(format!("there are more than {RUNS_MAX} files")));
            }
        }
        files.sort();
    } else {
        files.push(path.to_owned());
    }
    let (mut journals, mut events) = (Vec::new(), 0);
    for path in files {
        let file = std::fs::File::open(&path).map_err(|error| unreadable(&path, error))?;
        let journal = journal_file::read(BufReader::new(file))?;
        events += journal.events.len();
        bounded(events)?;
        journals.push(journal);
    }
    Ok(journals)
}

fn bounded(events: usize) -> Result<(), Failure> {
    if events > EVENTS_MAX { Err(too_many(format!("there are more than {EVENTS_MAX} events"))) } else { Ok(()) }
}

fn too_many(message: String) -> Failure {
    Failure::usage("too-much-to-decide", message).next("look at fewer runs, with --since")
}

fn show(found: &WhatIf, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(found);
    }
    let stopped = found.otherwise.iter().filter(|run| run.objections.iter().any(|o| o.stops)).count();
    out.fields(&[
        ("runs", found.runs.to_string()),
        ("calls", found.calls.to_string()),
        ("would stop", stopped.to_string()),
        ("would go otherwise", (found.otherwise.len() - stopped).to_string()),
    ])?;
    if !found.otherwise.is_empty() {
        out.line("")?;
        let headings = ["RUN", "TENANT", "WAS", "WOULD BE", "COST WAS", "WOULD BE", "AT EVENT", "STEP", "WHEN", "WHY"];
        let droppable = ["TENANT", "WHEN", "COST WAS", "STEP"];
        let rows: Vec<Vec<String>> = found.otherwise.iter().map(row).collect();
        out.table_with(&headings, &droppable, &rows)?;
    }
    if !found.meters.is_empty() {
        out.line("")?;
        let rows: Vec<Vec<String>> = found
            .meters
            .iter()
            .map(|meter| {
                let names = [meter.budget_id.to_string(), meter.category.as_str().to_owned()];
                names.into_iter().chain([meter.consumed, meter.reserved, meter.limit].map(|f| f.to_string())).collect()
            })
            .collect();
        out.table(&["BUDGET", "CATEGORY", "CONSUMED", "RESERVED", "LIMIT"], &rows)?;
    }
    Ok(())
}

fn row(run: &Otherwise) -> Vec<String> {
    let told = run.objections.iter().find(|o| o.stops).or_else(|| run.objections.first());
    let part = |part: fn(&signalbox_domain::run::whatif::WouldObject) -> String| told.map(part).unwrap_or_default();
    vec![
        run.run_id.to_string(),
        run.tenant_id.to_string(),
        run.recorded_status.as_str().to_owned(),
        run.status.as_str().to_owned(),
        run.recorded_cost_units.to_string(),
        run.cost_units.to_string(),
        part(|o| o.seq.to_string()),
        part(|o| o.step_id.as_ref().map(ToString::to_string).unwrap_or_default()),
        part(|o| instant(o.at_unix_micros.0)),
        part(|o| format!("{}: {}", o.code, o.message)),
    ]
}

/// `tenant/acme:output-tokens=500/day`.
fn budget(text: &str) -> Result<Budget, String> {
    let wrong =
        || format!("`{text}` is no budget such as tenant/acme=500 or agent/ref.research:output-tokens=20000/day");
    let (what, limit) = text.split_once('=').ok_or_else(wrong)?;
    let (scope, rest) = what.split_once('/').ok_or_else(wrong)?;
    let categories = BudgetCategory::ALL;
    let named = rest.rsplit_once(':').and_then(|(key, name)| {
        categories.into_iter().find(|category| category.as_str() == name).map(|category| (key, category))
    });
    let (key, category) = named.unwrap_or((rest, BudgetCategory::CostUnits));
    let scope: BudgetScope = serde_json::from_value(serde_json::Value::String(scope.to_owned()))
        .map_err(|_| format!("`{scope}` is no scope; use one of tenant, role, agent, run, tool, user, pipeline"))?;
    let (limit, period_seconds) = match limit.split_once('/') {
        None => (limit, None),
        Some((limit, "hour")) => (limit, Some(3_600)),
        Some((limit, "day")) => (limit, Some(86_400)),
        Some((limit, "week")) => (limit, Some(604_800)),
        Some(_) => return Err(wrong()),
    };
    let limit = limit.parse().ok().and_then(Micros::from_decimal).filter(|limit| *limit >= Micros::ZERO);
    let tenant_id = if scope == BudgetScope::Tenant { TenantId::new(key).ok() } else { None };
    let budget = Budget {
        budget_id: BudgetId::new(format!("whatif.{}.{key}.{}", what_word(scope), category.as_str()))
            .map_err(|_| wrong())?,
        tenant_id,
        scope,
        scope_key: key.to_owned(),
        category,
        limit: limit.ok_or_else(wrong)?,
        calendar: None,
        period_seconds,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    };
    budget.validate().map_err(|error| error.to_string())?;
    Ok(budget)
}

const fn what_word(scope: BudgetScope) -> &'static str {
    match scope {
        BudgetScope::Tenant => "tenant",
        BudgetScope::Role => "role",
        BudgetScope::Agent => "agent",
        BudgetScope::Run => "run",
        BudgetScope::Tool => "tool",
        BudgetScope::User => "user",
        BudgetScope::Pipeline => "pipeline",
    }
}

/// `tool:web.fetch`, or `global`.
fn switch(text: &str) -> Result<KillSwitch, String> {
    let (scope, target) = match text.split_once(':') {
        Some((scope, target)) => (scope, Some(target.to_owned())),
        None => (text, None),
    };
    let scope = SwitchScope::ALL.into_iter().find(|known| known.as_str() == scope).ok_or_else(|| {
        format!("`{scope}` is no scope; use one of {}", SwitchScope::ALL.map(SwitchScope::as_str).join(", "))
    })?;
    let switch = KillSwitch {
        switch_id: SwitchId::new(format!("whatif.{}", text.replace(':', "."))).map_err(|error| error.to_string())?,
        tenant_id: None,
        scope,
        target_id: target,
        armed_by: file_actor().map_err(|error| error.to_string())?,
        armed_at_unix_ms: UnixMs(0),
        reason: "what if".to_owned(),
        user_visible_status_copy: "what if".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    };
    switch.validate().map_err(|error| error.to_string())?;
    Ok(switch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_read_from_a_word() {
        let plain = budget("tenant/acme=500").unwrap();
        assert_eq!(
            (plain.scope, plain.scope_key.as_str(), plain.limit),
            (BudgetScope::Tenant, "acme", Micros::units(500))
        );
        assert_eq!((plain.category, plain.period_seconds), (BudgetCategory::CostUnits, None));
        let daily = budget("agent/ref.research:output-tokens=20000/day").unwrap();
        assert_eq!((daily.category, daily.period_seconds), (BudgetCategory::OutputTokens, Some(86_400)));
        for wrong in [
            "",
            "tenant",
            "tenant/acme",
            "tenant/acme=",
            "tenant/acme=-1",
            "tenant/acme=x",
            "acme/tenant=1",
            "tenant/acme=1/fortnight",
            "tenant/acme=1e400",
            "tenant/=1",
            "tenant/acme=NaN",
        ] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_switch_is_read_from_a_word() {
        assert_eq!(switch("global").unwrap().scope, SwitchScope::Global);
        assert_eq!(switch("tool:web.fetch").unwrap().target_id.as_deref(), Some("web.fetch"));
        for wrong in ["", "tool", "global:x", "nothing:x", "tool:"] {
            assert!(switch(wrong).is_err(), "{wrong}");
        }
    }
}
