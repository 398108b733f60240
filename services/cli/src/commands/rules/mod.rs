//! `apply` and `export`: rules as files. Applying creates and changes; it never disarms, revokes, retires or removes.

mod agents;
mod budgets;
mod executors;
mod grants;
mod rollouts;
mod switches;
mod throttles;
mod webhooks;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use signalbox_ports::clock::{Clock as _, SystemClock};

use self::agents::Agents;
use crate::client::{Connection, Feedback, Governance, Registry, Webhooks};
use crate::confirm::{ConfirmArgs, confirm};
use crate::failure::{Exit, Failure};
use crate::manifest::{self, Document, Kind, differences};
use crate::output::{Format, Out, yaml_of};

/// Most problems that are told at once.
const PROBLEMS_MAX: usize = 20;

/// `apply`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox apply -f rules --dry-run
  signalbox apply -f rules --yes")]
pub(crate) struct ApplyArgs {
    /// A file, a folder of .yaml, .yml and .json files, or - for standard input.
    #[arg(long, short, value_name = "PATH")]
    file: PathBuf,
    /// Whether it asks first.
    #[command(flatten)]
    how: ConfirmArgs,
}

/// `export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox export > rules.yaml
  signalbox export --to rules")]
pub(crate) struct ExportArgs {
    /// A folder that gets one file for each kind, instead of standard output.
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

/// The services that rules are managed by.
struct Services {
    governance: Governance,
    webhooks: Webhooks,
    registry: Registry,
    feedback: Feedback,
    /// The agents there are, and those that would be entered by what was planned before.
    agents: Agents,
}

impl Services {
    async fn open(server: &Connection) -> Result<Self, Failure> {
        Ok(Self {
            governance: server.governance().await?,
            webhooks: server.webhooks().await?,
            registry: server.registry().await?,
            feedback: server.feedback().await?,
            agents: Agents::default(),
        })
    }
}

/// What applying a document comes to, as the node has decided it.
#[derive(Debug, Clone, PartialEq)]
struct Planned {
    /// The document.
    document: Document,
    /// The rule as it stands; absent: there is none.
    before: Option<Value>,
    /// The rule as it would stand.
    after: Value,
    /// The revision it was planned on.
    revision: u64,
    /// Why nothing is to be done, if that is not for want of a difference.
    moot: Option<&'static str>,
}

impl Planned {
    fn is_change(&self) -> bool {
        self.moot.is_none() && self.before.as_ref() != Some(&self.after)
    }

    const fn action(&self) -> &'static str {
        if self.before.is_none() { "create" } else { "change" }
    }

    /// What differs, a line each.
    fn lines(&self) -> Vec<String> {
        let shown = |value: &Option<Value>| value.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        let empty = json!({});
        let told = differences(self.before.as_ref().unwrap_or(&empty), &self.after);
        told.iter()
            .map(|one| match &self.before {
                Some(_) => format!("    {}: {} -> {}", one.path, shown(&one.before), shown(&one.after)),
                None => format!("    {}: {}", one.path, shown(&one.after)),
            })
            .collect()
    }

    fn view(&self) -> Value {
        json!({
            "action": self.action(),
            "kind": self.document.kind,
            "id": self.document.id(),
            "from": self.document.origin,
            "before": self.before,
            "after": self.after,
        })
    }
}

/// Brings the rules of the server in line with what the files say.
pub(crate) async fn apply(server: &Connection, args: ApplyArgs, out: &mut Out) -> Result<(), Failure> {
    let documents = manifest::read(&args.file)?;
    let services = &mut Services::open(server).await?;
    let mut planned = Vec::new();
    let mut problems = Vec::new();
    for document in documents {
        let title = format!("{}: {}", document.origin, document.title());
        match plan(services, document).await {
            Ok(one) => planned.push(one),
            // What the server cannot be asked about is no problem of the files.
            Err(failure) if is_about_the_server(&failure) => return Err(failure),
            Err(failure) => problems.push(format!("{title}: {} ({})", failure.message, failure.code)),
        }
    }
    if !problems.is_empty() {
        let more = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        return Err(Failure::new("apply-refused", problems.join("\n  ")).next("nothing was done; put them right"));
    }
    let (changes, same): (Vec<_>, Vec<_>) = planned.into_iter().partition(Planned::is_change);
    tell(&changes, &same, args.how.dry_run, out)?;
    if args.how.dry_run || changes.is_empty() {
        return Ok(());
    }
    let created = changes.iter().filter(|change| change.before.is_none()).count();
    confirm(args.how.yes, &format!("{created} rules would be created and {} changed", changes.len() - created)).await?;
    for (done, change) in changes.iter().enumerate() {
        if let Err(failure) = carry_out(services, change).await {
            let message =
                format!("{}: {}; {done} of {} are done", change.document.title(), failure.message, changes.len());
            return Err(Failure { message, ..failure }.next("apply it again: what is done is done once"));
        }
        if !out.is_json() {
            out.line(&format!("{} is in force", change.document.title()))?;
        }
    }
    if out.is_json() {
        return out.json(&json!({ "applied": changes.len() }));
    }
    Ok(())
}

fn is_about_the_server(failure: &Failure) -> bool {
    failure.exit == Exit::Failed
        && ["server-unreachable", "unavailable", "deadline-exceeded", "unauthenticated"]
            .contains(&failure.code.as_str())
}

fn tell(changes: &[Planned], same: &[Planned], dry_run: bool, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        let changes: Vec<_> = changes.iter().map(Planned::view).collect();
        return out.json(&json!({ "dryRun": dry_run, "changes": changes, "unchanged": same.len() }));
    }
    for change in changes {
        let sign = if change.before.is_none() { '+' } else { '~' };
        out.line(&format!("{sign} {}", change.document.title()))?;
        change.lines().iter().try_for_each(|line| out.line(line))?;
    }
    for one in same {
        if let Some(why) = one.moot {
            out.line(&format!("= {}: {why}", one.document.title()))?;
        }
    }
    let nothing = if dry_run { ". Nothing was done" } else { "" };
    out.line(&format!("to change: {}, as they should be: {}{nothing}", changes.len(), same.len()))
}

async fn plan(services: &mut Services, document: Document) -> Result<Planned, Failure> {
    match document.kind {
        Kind::Switch => switches::plan(&mut services.governance, document).await,
        Kind::Throttle => throttles::plan(&mut services.governance, document).await,
        Kind::Budget => budgets::plan(&mut services.governance, document).await,
        Kind::Grant => grants::plan(&mut services.governance, document).await,
        Kind::Webhook => webhooks::plan(&mut services.webhooks, document).await,
        Kind::Executor => executors::plan(&mut services.registry, document).await,
        Kind::Agent => agents::plan(services, document).await,
        Kind::Rollout => rollouts::plan(services, document).await,
    }
}

async fn carry_out(services: &mut Services, planned: &Planned) -> Result<(), Failure> {
    match planned.document.kind {
        Kind::Switch => switches::carry_out(&mut services.governance, planned).await,
        Kind::Throttle => throttles::carry_out(&mut services.governance, planned).await,
        Kind::Budget => budgets::carry_out(&mut services.governance, planned).await,
        Kind::Grant => grants::carry_out(&mut services.governance, planned).await,
        Kind::Webhook => webhooks::carry_out(&mut services.webhooks, planned).await,
        Kind::Executor => executors::carry_out(&mut services.registry, planned).await,
        Kind::Agent => agents::carry_out(&mut services.registry, planned).await,
        Kind::Rollout => rollouts::carry_out(&mut services.feedback, planned).await,
    }
}

/// Writes what is in force as documents that `apply` reads.
pub(crate) async fn export(server: &Connection, args: ExportArgs, out: &mut Out) -> Result<(), Failure> {
    let services = &mut Services::open(server).await?;
    let mut documents = switches::in_force(&mut services.governance).await?;
    documents.extend(throttles::in_force(&mut services.governance).await?);
    documents.extend(budgets::in_force(&mut services.governance).await?);
    documents.extend(grants::in_force(&mut services.governance).await?);
    documents.extend(webhooks::in_force(&mut services.webhooks).await?);
    documents.extend(executors::in_force(&mut services.registry).await?);
    documents.extend(agents::in_force(&mut services.registry).await?);
    documents.extend(rollouts::in_force(&mut services.feedback).await?);
    documents.sort_by(Document::order);
    if let Some(folder) = &args.to {
        return write(folder, &documents, out);
    }
    if out.is_json() {
        return out.json(&documents);
    }
    let mut yaml = Out::stdout(Format::Yaml);
    documents.iter().try_for_each(|document| yaml.json(document))
}

fn yaml(document: &Document) -> Result<String, Failure> {
    let text = serde_json::to_string(document).map_err(|error| error.to_string()).and_then(|text| yaml_of(&text));
    text.map_err(|error| Failure::new("output-failed", error))
}

/// One file for each kind. Nothing that is there is overwritten: it may say more than the server knows, such as why.
fn write(folder: &Path, documents: &[Document], out: &mut Out) -> Result<(), Failure> {
    let failed = |path: &Path, error: std::io::Error| {
        Failure::usage("file-unwritable", format!("`{}` cannot be written: {}", path.display(), error.kind()))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let mut written = Vec::new();
    for of_kind in documents.chunk_by(|a, b| a.kind == b.kind) {
        let Some(first) = of_kind.first() else { continue };
        let path = folder.join(format!("{}.yaml", first.kind.as_str()));
        let texts = of_kind.iter().map(yaml).collect::<Result<Vec<_>, _>>()?;
        let mut file = std::fs::File::create_new(&path).map_err(|error| failed(&path, error))?;
        file.write_all(texts.join("---\n").as_bytes()).map_err(|error| failed(&path, error))?;
        written.push((path, of_kind.len()));
    }
    if out.is_json() {
        let files: Vec<_> = written.iter().map(|(path, count)| json!({ "file": path, "documents": count })).collect();
        return out.json(&json!({ "written": files }));
    }
    if written.is_empty() {
        return out.line("no rule is in force; nothing was written");
    }
    written.iter().try_for_each(|(path, count)| out.line(&format!("{}: {count}", path.display())))
}

/// A rule of the server as a document.
fn of_server(kind: Kind, tenant: &str, spec: serde_json::Map<String, Value>) -> Result<Document, Failure> {
    let tenant = (!tenant.is_empty()).then(|| tenant.to_owned());
    Ok(Document { kind, platform_wide: tenant.is_none(), tenant, reason: None, spec, origin: "the server".to_owned() })
}

/// A rule the server sent as JSON.
fn answered(json: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(json)
        .map_err(|error| Failure::new("answer-invalid", format!("the server sent a rule that is not JSON: {error}")))
}

fn object(rule: Value) -> Result<serde_json::Map<String, Value>, Failure> {
    match rule {
        Value::Object(members) => Ok(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Failure::new("answer-invalid", "the server sent a rule that is no object"))
        }
    }
}

/// Whose rule it is stands in the document, not in the rule.
fn without_tenant(mut rule: Value) -> Value {
    if let Value::Object(members) = &mut rule {
        members.remove("tenantId");
    }
    rule
}

fn bytes(spec: &serde_json::Map<String, Value>) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(spec).map_err(|error| Failure::new("output-failed", error.to_string()))
}

fn now_unix_ms() -> i64 {
    SystemClock.now().0
}
