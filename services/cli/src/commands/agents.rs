//! `agents register`, `publish`, `move`, `list` and `show`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use signalbox_proto::v1;
use tonic::Status;
use tonic_types::StatusExt as _;

use crate::client::{Registry, timed};
use crate::failure::Failure;
use crate::output::Out;

/// Rows of one page that is asked for.
const PAGE_ROWS: u32 = 500;

/// `agents`.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// Enters a new agent; whatever is wrong with it is told at once, and then nothing is entered.
    #[command(after_help = "Example:
  signalbox agents register writer.yaml --reason \"the new desk\"")]
    Register {
        /// The entry, as JSON or YAML; `-` reads standard input.
        file: PathBuf,
        /// Why; kept in the audit journal.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Enters a later version of an agent; every older one stays readable.
    #[command(after_help = "Example:
  signalbox agents publish writer-1.1.0.yaml --reason \"shorter answers\"")]
    Publish {
        /// The entry, as JSON or YAML; `-` reads standard input.
        file: PathBuf,
        /// Why; kept in the audit journal.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// The revision you have seen: refused if somebody has changed the agent since.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        expected_revision: Option<u64>,
    },
    /// Moves a version through its life cycle. Champions are made by promotions and rollbacks alone.
    #[command(after_help = "Example:
  signalbox agents move acme.writer 1.1.0 --to rehearsal --reason \"ready to be rehearsed\"")]
    Move(MoveArgs),
    /// Lists the agents you may see, with every version of each.
    #[command(after_help = "Example:
  signalbox agents list --family editing --lifecycle champion")]
    List {
        /// Only those of this family.
        #[arg(long, value_name = "FAMILY")]
        family: Option<String>,
        /// Only those that stand here, such as champion.
        #[arg(long, value_name = "STATE")]
        lifecycle: Option<String>,
    },
    /// Shows an agent: its versions, or the whole entry of one.
    #[command(after_help = "Examples:
  signalbox agents show ref.research
  signalbox agents show acme.writer --version 1.0.0 --output json")]
    Show {
        /// The agent.
        id: String,
        /// One version.
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
        /// Whose agent is meant.
        #[command(flatten)]
        whose: WhoseArgs,
    },
}

/// Whose agent is meant.
#[derive(Debug, Args)]
pub(crate) struct WhoseArgs {
    /// The tenant whose agent is meant; yours, or else the platform's, if left out.
    #[arg(long, value_name = "TENANT", conflicts_with = "platform_wide")]
    of: Option<String>,
    /// The platform's agent is meant.
    #[arg(long)]
    platform_wide: bool,
}

/// `agents move`.
#[derive(Debug, Args)]
pub(crate) struct MoveArgs {
    /// The agent.
    id: String,
    /// The version.
    version: String,
    /// Where it is to stand: draft, rehearsal, shadow, challenger, champion, deprecated or retired.
    #[arg(long, value_name = "STATE")]
    to: String,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The revision you have seen: refused if somebody has changed the agent since.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    expected_revision: Option<u64>,
    /// Whose agent is meant.
    #[command(flatten)]
    whose: WhoseArgs,
}

/// Does what was asked.
pub(crate) async fn run(mut client: Registry, command: AgentsCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        AgentsCommand::Register { file, reason } => {
            let request = v1::RegisterAgentRequest { entry_json: document(&file)?.into(), reason };
            let answer = client.register_agent(timed(request)).await.map_err(refused)?.into_inner();
            entered(&answer.agent.unwrap_or_default(), answer.revision, "is registered", out)
        }
        AgentsCommand::Publish { file, reason, expected_revision } => {
            let request = v1::PublishAgentVersionRequest {
                entry_json: document(&file)?.into(),
                reason,
                expected_revision: expected_revision.unwrap_or_default(),
            };
            let answer = client.publish_agent_version(timed(request)).await.map_err(refused)?.into_inner();
            entered(&answer.agent.unwrap_or_default(), answer.revision, "is published", out)
        }
        AgentsCommand::Move(args) => {
            let request = v1::MoveAgentRequest {
                agent_id: args.id,
                agent_semver: args.version,
                to: args.to,
                reason: args.reason,
                expected_revision: args.expected_revision.unwrap_or_default(),
                tenant_id: args.whose.of.unwrap_or_default(),
                platform_wide: args.whose.platform_wide,
            };
            let answer = client.move_agent(timed(request)).await?.into_inner();
            entered(&answer.agent.unwrap_or_default(), answer.revision, "is moved", out)
        }
        AgentsCommand::List { family, lifecycle } => list(client, family, lifecycle, out).await,
        AgentsCommand::Show { id, version, whose } => show(client, id, version, whose, out).await,
    }
}

/// A document as JSON: a JSON file as it is, so that the server reads what was written; YAML by way of what it says.
pub(super) fn document(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = super::runs::read_file(path)?;
    let begins = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let named_yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    if !named_yaml && matches!(begins, Some(b'{' | b'[')) {
        return Ok(bytes);
    }
    let unreadable = |problem: String| Failure::usage("yaml-invalid", format!("`{}`: {problem}", path.display()));
    let text = std::str::from_utf8(&bytes).map_err(|_| unreadable("the bytes are not UTF-8".to_owned()))?;
    let mut documents = crate::manifest::yaml(text).map_err(unreadable)?;
    let value = match (documents.pop(), documents.pop()) {
        (Some(value), None) => value,
        (None, _) => return Err(unreadable("it holds nothing".to_owned())),
        (Some(_), Some(_)) => return Err(unreadable("it holds several documents; one is read here".to_owned())),
    };
    serde_json::to_vec(&value).map_err(|error| unreadable(error.to_string()))
}

/// A refusal with everything that is wrong, each on a line.
pub(super) fn refused(status: Status) -> Failure {
    let faults = status.get_details_bad_request().map(|found| found.field_violations).unwrap_or_default();
    let failure = Failure::from(status);
    if faults.len() < 2 {
        return failure;
    }
    let lines: String = faults.iter().map(|fault| format!("\n  {} {}", fault.field, fault.description)).collect();
    Failure { message: format!("the document is refused:{lines}"), ..failure }
}

fn entered(agent: &v1::AgentVersion, revision: u64, what: &str, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&json!({ "agent": view(agent)?, "revision": revision }));
    }
    out.line(&format!("{} {} {what}: {}; revision {revision}", agent.agent_id, agent.agent_semver, agent.lifecycle))
}

async fn list(
    mut client: Registry,
    family: Option<String>,
    lifecycle: Option<String>,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut request = v1::ListAgentsRequest {
        family: family.unwrap_or_default(),
        lifecycle: lifecycle.unwrap_or_default(),
        page_size: PAGE_ROWS,
        page_token: String::new(),
    };
    let mut agents = Vec::new();
    loop {
        let page = client.list_agents(timed(request.clone())).await?.into_inner();
        agents.extend(page.agents);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    if out.is_json() {
        let agents = agents.iter().map(view).collect::<Result<Vec<_>, _>>()?;
        return out.json(&json!({ "agents": agents }));
    }
    if agents.is_empty() {
        return out.line("no agent is like that");
    }
    rows(&agents, out)
}

async fn show(
    mut client: Registry,
    id: String,
    version: Option<String>,
    whose: WhoseArgs,
    out: &mut Out,
) -> Result<(), Failure> {
    let request = v1::GetAgentRequest {
        agent_id: id,
        agent_semver: version.unwrap_or_default(),
        tenant_id: whose.of.unwrap_or_default(),
        platform_wide: whose.platform_wide,
    };
    let answer = client.get_agent(timed(request)).await?.into_inner();
    if out.is_json() {
        let versions = answer.versions.iter().map(view).collect::<Result<Vec<_>, _>>()?;
        return out.json(&json!({ "versions": versions, "revision": answer.revision }));
    }
    let [only] = answer.versions.as_slice() else { return rows(&answer.versions, out) };
    let entry = view(only)?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let listed = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
    let model = &entry["modelBinding"];
    out.fields(&[
        ("agent", only.agent_id.clone()),
        ("version", only.agent_semver.clone()),
        ("title", text(&entry["title"])),
        ("family", only.family.clone()),
        ("stands", only.lifecycle.clone()),
        ("experimental", text(&entry["experimental"])),
        ("of", of(only)),
        ("tools", listed(&entry["toolGrants"])),
        ("data scopes", listed(&entry["dataScopes"])),
        ("cost class", text(&entry["costClass"])),
        ("model", format!("{} of {}", text(&model["modelId"]), text(&model["providerId"]))),
        ("falls back on", format!("{} of {}", text(&model["fallbackModelId"]), text(&model["fallbackProviderId"]))),
        ("persona", text(&entry["personaBinding"])),
        ("seen by", listed(&entry["visibility"])),
        ("users are told", listed(&entry["disclosureRequirements"])),
        ("revision", answer.revision.to_string()),
    ])
}

fn rows(agents: &[v1::AgentVersion], out: &mut Out) -> Result<(), Failure> {
    let rows: Vec<_> = agents
        .iter()
        .map(|agent| {
            let AgentRow { id, version, family, stands } = row(agent);
            vec![id, version, family, stands, of(agent)]
        })
        .collect();
    out.table(&["AGENT", "VERSION", "FAMILY", "STANDS", "OF"], &rows)
}

struct AgentRow {
    id: String,
    version: String,
    family: String,
    stands: String,
}

fn row(agent: &v1::AgentVersion) -> AgentRow {
    AgentRow {
        id: agent.agent_id.clone(),
        version: agent.agent_semver.clone(),
        family: agent.family.clone(),
        stands: agent.lifecycle.clone(),
    }
}

fn of(agent: &v1::AgentVersion) -> String {
    if agent.tenant_id.is_empty() { "(platform)".to_owned() } else { agent.tenant_id.clone() }
}

fn view(agent: &v1::AgentVersion) -> Result<Value, Failure> {
    let entry: Map<String, Value> = serde_json::from_slice(&agent.entry_json)
        .map_err(|error| Failure::new("answer-unreadable", format!("the server's answer cannot be read: {error}")))?;
    Ok(Value::Object(entry))
}
