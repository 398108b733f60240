//! Executors that are registered at run time: what they may claim, and who may register them.
//!
//! An executor describes itself, and none of that is believed further than the catalog goes: it may serve exactly the tools
//! it was registered for, with the catalog's recovery policies, within the catalog's ceilings, and with schemas that take
//! what the catalog's take. What it has described is kept in the log, so every node binds it in the same way.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canonical;
use crate::catalog::version::is_version;
use crate::catalog::{self, CatalogEntry, Recovery};
use crate::governance::egress::{EgressRules, HostExemption, check_url};
use crate::governance::grant::Constraints;
use crate::governance::kill_switch::SWITCH_TEXT_BYTES_MAX;
use crate::identity::Role;
use crate::ids::{ActorId, ExecutorId, ExecutorTlsId, ToolId};
use crate::json::{JsonError, Limits, parse_as};
use crate::quantity::Usage;
use crate::time::UnixMs;

/// Most executors that are registered and not retired.
pub const EXECUTORS_MAX: usize = 256;
/// Longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 512;
/// How big the document of a registration may be.
const REGISTRATION_LIMITS: Limits = Limits { bytes_max: 16 * 1024, depth_max: 8 };

/// An executor as an operator asks for it to be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecutorRegistration {
    /// Names it.
    pub executor_id: ExecutorId,
    /// Where it is: `http://host:port` or `https://host:port`.
    pub address: String,
    /// The tools it serves, all of them.
    pub tool_ids: BTreeSet<ToolId>,
    /// What the schemas of its tools must amount to, see [`schemas_digest`]; whatever fits the catalog if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemas_digest: Option<String>,
    /// The certificates for it, by the name that each node's configuration gives them; those the machine trusts if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_id: Option<ExecutorTlsId>,
}

/// A tool as an executor describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribedTool {
    /// Which.
    pub tool_id: String,
    /// In which version.
    pub semver: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its output.
    pub output_schema: Value,
    /// The most one call may use.
    pub ceiling: Usage,
    /// What may be done if an outcome is not known.
    pub recovery: Recovery,
}

/// A tool that an executor was taken for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedTool {
    /// Which.
    pub tool_id: ToolId,
    /// In which version.
    pub semver: String,
    /// What may be done if an outcome is not known.
    pub recovery: Recovery,
}

/// An executor that was registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredExecutor {
    /// As it was asked for, its digest filled in.
    pub registration: ExecutorRegistration,
    /// As it described itself then.
    pub tools: Vec<ServedTool>,
    /// Who registered it.
    pub registered_by: ActorId,
    /// When.
    pub registered_at_unix_ms: UnixMs,
    /// Since when nothing new is sent to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at_unix_ms: Option<UnixMs>,
}

impl RegisteredExecutor {
    /// True while calls may be sent to it.
    pub const fn is_active(&self) -> bool {
        self.retired_at_unix_ms.is_none()
    }

    /// True if it was taken for the tool.
    pub fn serves(&self, tool: &ToolId) -> bool {
        self.tools.iter().any(|served| served.tool_id == *tool)
    }
}

/// What is wrong with a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutorFaultCode {
    /// A tool that no catalog knows.
    ExecutorToolUnknown,
    /// A tool that it was not registered for.
    ExecutorToolNotRegistered,
    /// A tool it was registered for and does not serve.
    ExecutorToolMissing,
    /// A tool it describes twice.
    ExecutorToolTwice,
    /// A version that is none.
    ExecutorVersionInvalid,
    /// It means to use more than the catalog allows.
    ExecutorCeilingExceedsCatalog,
    /// Another recovery policy than the catalog's.
    ExecutorRecoveryDiffers,
    /// Schemas that do not take what the catalog's take.
    ExecutorSchemaDiffers,
    /// Other schemas than those that were agreed on.
    ExecutorSchemasDigestDiffers,
}

impl ExecutorFaultCode {
    /// The wire string.
    pub const fn code(self) -> &'static str {
        match self {
            Self::ExecutorToolUnknown => "executor-tool-unknown",
            Self::ExecutorToolNotRegistered => "executor-tool-not-registered",
            Self::ExecutorToolMissing => "executor-tool-missing",
            Self::ExecutorToolTwice => "executor-tool-twice",
            Self::ExecutorVersionInvalid => "executor-version-invalid",
            Self::ExecutorCeilingExceedsCatalog => "executor-ceiling-exceeds-catalog",
            Self::ExecutorRecoveryDiffers => "executor-recovery-differs",
            Self::ExecutorSchemaDiffers => "executor-schema-differs",
            Self::ExecutorSchemasDigestDiffers => "executor-schemas-digest-differs",
        }
    }
}

/// One thing that is wrong with a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorFault {
    /// What kind of thing.
    pub code: ExecutorFaultCode,
    /// Of which tool; of all together if empty.
    pub tool_id: String,
    /// In words.
    pub message: String,
}

/// Why an executor is neither registered nor retired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorDenial {
    /// The document is no registration.
    #[error("the registration cannot be read: {0}")]
    Json(#[from] JsonError),
    /// A member that is no possible value.
    #[error("`{0}` {1}")]
    BadMember(&'static str, String),
    /// An address that may not be reached from here.
    #[error("`address`: {0}")]
    AddressRefused(String),
    /// Certificates that this node's configuration does not name.
    #[error("this node's configuration names no certificates `{0}`; add them under executorTls")]
    TlsUnknown(ExecutorTlsId),
    /// It does not answer, or not sensibly.
    #[error("the executor does not describe its tools: {0}")]
    NotDescribed(String),
    /// It claims what it may not, or lacks what it should have.
    #[error("the executor is refused: {}", in_words(.0))]
    Faulty(Vec<ExecutorFault>),
    /// Another executor serves the tool.
    #[error("`{0}` is served by {1}; retire that one first")]
    ToolTaken(ToolId, String),
    /// The id is that of another executor that is not retired.
    #[error("the executor `{0}` is registered; retire it first, or choose another id")]
    Exists(ExecutorId),
    /// No executor of this id.
    #[error("there is no executor `{0}`")]
    NoSuchExecutor(ExecutorId),
    /// It was retired before.
    #[error("the executor `{0}` is retired already")]
    AlreadyRetired(ExecutorId),
    /// Executors serve every tenant.
    #[error("a {0} may not manage executors, which serve every tenant; it is for platform operators")]
    NotAuthorized(&'static str),
    /// No reason, or one that is too long.
    #[error("`reason` must say why, in at most {SWITCH_TEXT_BYTES_MAX} bytes")]
    BadReason,
    /// So many that something is wrong.
    #[error("{EXECUTORS_MAX} executors are registered; retire some first")]
    TooMany,
}

impl ExecutorDenial {
    /// Stable code. Of a description with several faults it is the first one's.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Json(JsonError::WrongShape(_)) | Self::BadMember(..) => "executor-invalid",
            Self::Json(error) => error.code(),
            Self::AddressRefused(_) => "executor-address-refused",
            Self::TlsUnknown(_) => "executor-tls-unknown",
            Self::NotDescribed(_) => "executor-not-described",
            Self::Faulty(faults) => faults.first().map_or("executor-not-described", |fault| fault.code.code()),
            Self::ToolTaken(..) => "tool-bound-twice",
            Self::Exists(_) => "executor-exists",
            Self::NoSuchExecutor(_) => "no-such-executor",
            Self::AlreadyRetired(_) => "executor-already-retired",
            Self::NotAuthorized(_) => "not-authorized",
            Self::BadReason => "reason-required",
            Self::TooMany => "too-many-executors",
        }
    }
}

impl ExecutorRegistration {
    /// Reads a registration: duplicate keys, deep nesting and unknown members are refused.
    ///
    /// # Errors
    /// What makes it none.
    pub fn parse(bytes: &[u8]) -> Result<Self, ExecutorDenial> {
        let read: Self = parse_as(bytes, REGISTRATION_LIMITS)?;
        read.check()?;
        Ok(read)
    }

    fn check(&self) -> Result<(), ExecutorDenial> {
        let bad = |member, problem: &str| Err(ExecutorDenial::BadMember(member, problem.to_owned()));
        if self.tool_ids.is_empty() {
            return bad("toolIds", "names no tool");
        }
        if let Some(tool) = self.tool_ids.iter().find(|tool| catalog::entry(tool).is_none()) {
            return Err(ExecutorDenial::Faulty(vec![unknown_tool(tool.as_str())]));
        }
        let is_digest =
            |text: &String| text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !self.schemas_digest.as_ref().is_none_or(is_digest) {
            return bad("schemasDigest", "is not 64 lower-case hexadecimal digits");
        }
        if self.address.len() > ADDRESS_BYTES_MAX {
            return bad("address", "is too long");
        }
        if self.tls_id.is_some() && !self.address.starts_with("https://") {
            return bad("tlsId", "is for an executor at https:// alone");
        }
        Ok(())
    }
}

/// Whether an address may be reached at all, judged by its text: as any other outside address, unless an operator's
/// configuration exempts its host. What a name resolves to is checked where the connection is made.
///
/// # Errors
/// Why not.
pub fn check_address(address: &str, exempt: &[HostExemption]) -> Result<EgressRules, ExecutorDenial> {
    let refused = |why: String| Err(ExecutorDenial::AddressRefused(why));
    let constraints = Constraints {
        schemes: Some(vec!["http".to_owned(), "https".to_owned()]),
        methods: Some(vec!["POST".to_owned()]),
        ..Constraints::default()
    };
    let rules = EgressRules::of(&constraints, exempt);
    match check_url(address, "POST", &rules) {
        Err(denial) => refused(denial.to_string()),
        Ok(url) if url.url.path() != "/" || url.url.query().is_some() || url.url.fragment().is_some() => {
            refused("is more than http://host:port or https://host:port".to_owned())
        }
        Ok(_) => Ok(rules),
    }
}

/// Who may register an executor, and whether its id and its tools are free.
///
/// # Errors
/// What stands against it.
pub fn may_register_executor(
    registration: &ExecutorRegistration,
    reason: &str,
    role: Role,
    known: &[RegisteredExecutor],
) -> Result<(), ExecutorDenial> {
    may_manage(role, reason)?;
    registration.check()?;
    let active = || known.iter().filter(|executor| executor.is_active());
    if active().any(|executor| executor.registration.executor_id == registration.executor_id) {
        return Err(ExecutorDenial::Exists(registration.executor_id.clone()));
    }
    for tool in &registration.tool_ids {
        if let Some(other) = active().find(|executor| executor.serves(tool)) {
            let name = format!("the executor `{}`", other.registration.executor_id);
            return Err(ExecutorDenial::ToolTaken(tool.clone(), name));
        }
    }
    if active().count() >= EXECUTORS_MAX { Err(ExecutorDenial::TooMany) } else { Ok(()) }
}

/// Who may retire an executor, and whether it is there.
///
/// # Errors
/// What stands against it.
pub fn may_retire_executor<'a>(
    id: &ExecutorId,
    reason: &str,
    role: Role,
    known: &'a [RegisteredExecutor],
) -> Result<&'a RegisteredExecutor, ExecutorDenial> {
    may_manage(role, reason)?;
    match known.iter().find(|executor| executor.registration.executor_id == *id) {
        None => Err(ExecutorDenial::NoSuchExecutor(id.clone())),
        Some(executor) if !executor.is_active() => Err(ExecutorDenial::AlreadyRetired(id.clone())),
        Some(executor) => Ok(executor),
    }
}

fn may_manage(role: Role, reason: &str) -> Result<(), ExecutorDenial> {
    if role != Role::PlatformOperator {
        return Err(ExecutorDenial::NotAuthorized(role.as_str()));
    }
    let said = !reason.trim().is_empty() && reason.len() <= SWITCH_TEXT_BYTES_MAX;
    if said { Ok(()) } else { Err(ExecutorDenial::BadReason) }
}

/// The digest of an executor's schemas: SHA-256 over the canonical JSON of its tools with their versions and schemas, by
/// their ids. An operator who has read them pins it, and another set is refused.
pub fn schemas_digest(tools: &[DescribedTool]) -> Option<String> {
    let mut by_id: Vec<&DescribedTool> = tools.iter().collect();
    by_id.sort_by(|a, b| a.tool_id.cmp(&b.tool_id));
    let listed: Vec<Value> = by_id
        .into_iter()
        .map(|tool| {
            json!({
                "toolId": tool.tool_id, "semver": tool.semver,
                "inputSchema": tool.input_schema, "outputSchema": tool.output_schema,
            })
        })
        .collect();
    canonical::digest(&Value::Array(listed)).ok()
}

/// Holds a description against the registration and the catalog. Answers what the executor is taken for.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_described(
    registration: &ExecutorRegistration,
    described: &[DescribedTool],
) -> Result<Vec<ServedTool>, Vec<ExecutorFault>> {
    let mut faults = Vec::new();
    let mut served: Vec<ServedTool> = Vec::new();
    for tool in described {
        let known = ToolId::new(tool.tool_id.as_str()).ok().and_then(|id| Some((catalog::entry(&id)?, id)));
        let Some((entry, id)) = known else {
            faults.push(unknown_tool(&tool.tool_id));
            continue;
        };
        if !registration.tool_ids.contains(&id) {
            let message = format!("it claims `{id}`, which it was not registered for");
            faults.push(fault(ExecutorFaultCode::ExecutorToolNotRegistered, &id, message));
            continue;
        }
        if served.iter().any(|other| other.tool_id == id) {
            faults.push(fault(ExecutorFaultCode::ExecutorToolTwice, &id, format!("it describes `{id}` twice")));
            continue;
        }
        faults.extend(against_catalog(tool, entry, &id));
        served.push(ServedTool { tool_id: id, semver: tool.semver.clone(), recovery: tool.recovery });
    }
    for missing in registration.tool_ids.iter().filter(|id| !served.iter().any(|tool| tool.tool_id == **id)) {
        let message = format!("it was registered for `{missing}` and does not serve it");
        faults.push(fault(ExecutorFaultCode::ExecutorToolMissing, missing, message));
    }
    let pinned = registration.schemas_digest.as_deref();
    if pinned.is_some() && pinned != schemas_digest(described).as_deref() {
        let found = schemas_digest(described).unwrap_or_default();
        let message = format!("its schemas amount to {found}, and another digest was agreed on");
        faults.push(ExecutorFault {
            code: ExecutorFaultCode::ExecutorSchemasDigestDiffers,
            tool_id: String::new(),
            message,
        });
    }
    if faults.is_empty() { Ok(served) } else { Err(faults) }
}

fn against_catalog(tool: &DescribedTool, entry: &CatalogEntry, id: &ToolId) -> Vec<ExecutorFault> {
    let mut faults = Vec::new();
    if tool.semver.len() > 100 || !is_version(&tool.semver) {
        let message = format!("`{id}` has no version that is one");
        faults.push(fault(ExecutorFaultCode::ExecutorVersionInvalid, id, message));
    }
    for (category, amount) in tool.ceiling.iter() {
        let most = entry.ceiling.get(category);
        if amount > most {
            let category = category.as_str();
            let message = format!("`{id}` claims up to {amount} {category}, and the catalog gives it {most}");
            faults.push(fault(ExecutorFaultCode::ExecutorCeilingExceedsCatalog, id, message));
        }
    }
    if tool.recovery != entry.recovery {
        let message = format!("`{id}` has another recovery policy than the catalog");
        faults.push(fault(ExecutorFaultCode::ExecutorRecoveryDiffers, id, message));
    }
    if let Some(problem) = input_problem(&tool.input_schema, &entry.input_schema)
        .or_else(|| type_problem(&tool.output_schema, &entry.output_schema).map(|problem| format!("output: {problem}")))
    {
        let message = format!("the schema of `{id}` does not take what the catalog's takes: {problem}");
        faults.push(fault(ExecutorFaultCode::ExecutorSchemaDiffers, id, message));
    }
    faults
}

// What the catalog lets through must not be refused by the executor for its shape: it may ask for no argument more, and must
// read those of the catalog as the catalog does. Optional arguments of its own are its business.
fn input_problem(own: &Value, catalog: &Value) -> Option<String> {
    if let Some(problem) = type_problem(own, catalog) {
        return Some(problem);
    }
    let required = |schema: &Value| -> BTreeSet<String> {
        let names = schema["required"].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let known = required(catalog);
    if let Some(more) = required(own).into_iter().find(|name| !known.contains(name)) {
        return Some(format!("it needs `{}` as well", more.chars().take(64).collect::<String>()));
    }
    for (name, expected) in catalog["properties"].as_object().into_iter().flatten() {
        let Some(found) = own["properties"].get(name) else {
            return Some(format!("it does not know `{name}`"));
        };
        if let Some(problem) = type_problem(found, expected) {
            return Some(format!("`{name}`: {problem}"));
        }
    }
    None
}

fn type_problem(own: &Value, catalog: &Value) -> Option<String> {
    let expected = catalog.get("type").and_then(Value::as_str)?;
    let takes = match own.get("type") {
        // Whoever says nothing takes everything.
        None if own.is_object() => true,
        Some(Value::String(found)) => found == expected,
        Some(Value::Array(several)) => several.iter().any(|one| one == expected),
        Some(_) | None => false,
    };
    (!takes).then(|| format!("its type is not `{expected}`"))
}

fn unknown_tool(tool: &str) -> ExecutorFault {
    let tool: String = tool.chars().filter(|c| !c.is_control()).take(64).collect();
    let message = format!("`{tool}` is not in the catalog");
    ExecutorFault { code: ExecutorFaultCode::ExecutorToolUnknown, tool_id: tool, message }
}

fn fault(code: ExecutorFaultCode, tool: &ToolId, message: String) -> ExecutorFault {
    ExecutorFault { code, tool_id: tool.to_string(), message }
}

/// Most faults that a message names: it travels in a header.
const FAULTS_NAMED_MAX: usize = 3;

fn in_words(faults: &[ExecutorFault]) -> String {
    let mut words: Vec<String> = faults
        .iter()
        .take(FAULTS_NAMED_MAX)
        .map(|fault| format!("{}: {}", fault.code.code(), fault.message.chars().take(200).collect::<String>()))
        .collect();
    if faults.len() > FAULTS_NAMED_MAX {
        words.push(format!("and {} more", faults.len() - FAULTS_NAMED_MAX));
    }
    words.join("; ")
}
