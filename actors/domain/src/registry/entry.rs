//! What is written down of one version of an agent (REG-001, REG-042, REG-044).
//!
//! A record is read as a whole or not at all. What its author may have got wrong in substance (a family that is none, a scope
//! that is none) is text here, so that all of it can be reported at once; see [`validate`](super::validate).

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{AgentCostClass, AgentFamilyMeta, AgentLifecycle, family_meta};
use crate::ids::{AgentId, ProviderId, TenantId, ToolId};
use crate::json::{self, JsonError, Limits};
use crate::quantity::Micros;

/// How big the document of one entry may be: 64 KiB and 16 levels.
pub const AGENT_ENTRY_LIMITS: Limits = Limits { bytes_max: 64 * 1024, depth_max: 16 };
/// Most capabilities, tool grants, data scopes or disclosures of one entry.
pub const AGENT_LIST_MAX: usize = 64;
/// Longest name, version or policy id in an entry, in bytes.
pub const AGENT_NAME_BYTES_MAX: usize = 128;
/// Longest title or disclosure, in bytes.
pub const AGENT_TEXT_BYTES_MAX: usize = 500;
/// Most tokens an entry may ask for by default.
pub const MAX_TOKENS_MAX: u32 = 10_000_000;

/// One version of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentRegistryEntry {
    /// Names the agent, in all its versions.
    pub agent_id: AgentId,
    /// This version (REG-008).
    pub agent_semver: String,
    /// Shown to people.
    pub title: String,
    /// Its family: a hard limit on its tools (REG-007). The same in every version.
    pub family: String,
    /// Where it stands (REG-036).
    pub lifecycle: AgentLifecycle,
    /// True while it is being tried out (REG-010).
    pub experimental: bool,
    /// What it can do.
    pub capabilities: Vec<AgentCapability>,
    /// The kinds of data it works on (REG-041).
    pub data_scopes: Vec<String>,
    /// The tools it may use. A grant declared here makes no tool runnable (REG-047).
    pub tool_grants: Vec<String>,
    /// What a run of it may cost at most (REG-040).
    pub cost_class: AgentCostClass,
    /// The model it speaks through (REG-042).
    pub model_binding: ModelBinding,
    /// The persona it speaks as.
    pub persona_binding: String,
    /// What its tone is held against.
    pub tone_policy_id: String,
    /// How it must cite.
    pub grounding_policy_id: String,
    /// What is recorded of it.
    pub audit_policy_id: String,
    /// Whose it is.
    pub tenant_scope: TenantScope,
    /// Who is shown it (REG-046).
    pub visibility: BTreeSet<AgentVisibility>,
    /// What its users are told (REG-012).
    pub disclosure_requirements: Vec<String>,
}

/// Something an agent can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentCapability {
    /// Names it, once in an entry (REG-011).
    pub capability_id: String,
    /// Its version.
    pub semver: String,
}

/// The model an agent speaks through. All seven parts must be there (REG-042).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelBinding {
    /// Who serves it.
    pub provider_id: ProviderId,
    /// Which model.
    pub model_id: String,
    /// The version of this binding.
    pub semver: String,
    /// Most tokens of an answer, unless the call says otherwise.
    pub default_max_tokens: u32,
    /// From 0 to 2, unless the call says otherwise.
    pub default_temperature: Micros,
    /// Who serves the model to fall back on.
    pub fallback_provider_id: ProviderId,
    /// Which model that is; never the same of the same provider (REG-043).
    pub fallback_model_id: String,
}

/// Whose an agent is (REG-044).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TenantScope {
    /// The platform's: `"platform"`.
    Platform,
    /// One tenant's: `{"tenantId": …}`.
    Tenant(TenantId),
}

impl TenantScope {
    /// The tenant, if it is one's.
    pub const fn tenant_id(&self) -> Option<&TenantId> {
        match self {
            Self::Platform => None,
            Self::Tenant(tenant) => Some(tenant),
        }
    }

    /// The scope of a tenant, or the platform's.
    pub fn of(tenant: Option<&TenantId>) -> Self {
        tenant.map_or(Self::Platform, |tenant| Self::Tenant(tenant.clone()))
    }
}

#[derive(Serialize, Deserialize)]
enum PlatformWord {
    #[serde(rename = "platform")]
    Platform,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TenantWord {
    tenant_id: TenantId,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "`tenantScope` is either \"platform\" or {\"tenantId\": …}")]
enum ScopeShape {
    Platform(PlatformWord),
    Tenant(TenantWord),
}

impl Serialize for TenantScope {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let shape = match self {
            Self::Platform => ScopeShape::Platform(PlatformWord::Platform),
            Self::Tenant(tenant) => ScopeShape::Tenant(TenantWord { tenant_id: tenant.clone() }),
        };
        shape.serialize(to)
    }
}

impl<'de> Deserialize<'de> for TenantScope {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match ScopeShape::deserialize(from)? {
            ScopeShape::Platform(PlatformWord::Platform) => Self::Platform,
            ScopeShape::Tenant(TenantWord { tenant_id }) => Self::Tenant(tenant_id),
        })
    }
}

/// Who is shown an agent (REG-044).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentVisibility {
    /// Operators of the platform.
    Platform,
    /// Operators of the tenant.
    Tenant,
    /// Creators.
    Creator,
    /// Customers.
    Customer,
}

impl AgentVisibility {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Platform, Self::Tenant, Self::Creator, Self::Customer];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Tenant => "tenant",
            Self::Creator => "creator",
            Self::Customer => "customer",
        }
    }
}

fn listed<'a>(path: &'static str, texts: &'a [String], max: usize) -> impl Iterator<Item = (String, &'a str, usize)> {
    texts.iter().enumerate().map(move |(i, text)| (format!("{path}/{i}"), text.as_str(), max))
}

/// A member of an entry that is no possible value, whatever the registry holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` {problem}")]
pub struct EntryProblem {
    /// JSON Pointer to it.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// Why a document is no entry. It was not even looked at what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Not acceptable JSON, or not of the shape.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A member that is no possible value.
    #[error(transparent)]
    Member(#[from] EntryProblem),
}

impl EntryError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Json(JsonError::WrongShape(_)) | Self::Member(_) => "agent-entry-invalid",
            Self::Json(error) => error.code(),
        }
    }
}

impl AgentRegistryEntry {
    /// Reads an entry: duplicate keys, deep nesting and unknown members are refused.
    ///
    /// # Errors
    /// The first thing that makes it no entry.
    pub fn parse(bytes: &[u8]) -> Result<Self, EntryError> {
        Self::read(json::parse_strict(bytes, AGENT_ENTRY_LIMITS)?)
    }

    /// Reads an entry out of JSON that was read strictly before.
    ///
    /// # Errors
    /// The first thing that makes it no entry.
    pub fn read(value: Value) -> Result<Self, EntryError> {
        let entry: Self = serde_json::from_value(value).map_err(|error| JsonError::WrongShape(error.to_string()))?;
        match entry.problem() {
            None => Ok(entry),
            Some(problem) => Err(problem.into()),
        }
    }

    /// The first member that is no possible value; its substance is for [`validate`](super::validate).
    pub fn problem(&self) -> Option<EntryProblem> {
        let said = |path: String, problem: &str| Some(EntryProblem { path, problem: problem.to_owned() });
        let lists = [
            ("/capabilities", self.capabilities.len()),
            ("/dataScopes", self.data_scopes.len()),
            ("/toolGrants", self.tool_grants.len()),
            ("/disclosureRequirements", self.disclosure_requirements.len()),
        ];
        if let Some((path, _)) = lists.into_iter().find(|(_, len)| *len > AGENT_LIST_MAX) {
            return said(path.to_owned(), &format!("has more than {AGENT_LIST_MAX} elements"));
        }
        if let Some((path, problem)) = self.texts().find_map(|(path, text, max)| Some((path, bad_text(text, max)?))) {
            return said(path, &problem);
        }
        if self.visibility.is_empty() {
            return said(
                "/visibility".to_owned(),
                "names nobody; name at least one of platform, tenant, creator, customer",
            );
        }
        let model = &self.model_binding;
        if model.default_max_tokens == 0 || model.default_max_tokens > MAX_TOKENS_MAX {
            return said(
                "/modelBinding/defaultMaxTokens".to_owned(),
                &format!("is not between 1 and {MAX_TOKENS_MAX}"),
            );
        }
        if !(Micros::ZERO..=Micros::units(2)).contains(&model.default_temperature) {
            return said("/modelBinding/defaultTemperature".to_owned(), "is not between 0 and 2");
        }
        if model.provider_id == model.fallback_provider_id && model.model_id == model.fallback_model_id {
            return said(
                "/modelBinding/fallbackModelId".to_owned(),
                "is the primary model; name another model, or another provider",
            );
        }
        None
    }

    // Every text with the path to it and the most bytes it may have. Versions are texts until they are looked at.
    fn texts(&self) -> impl Iterator<Item = (String, &str, usize)> {
        const NAME: usize = AGENT_NAME_BYTES_MAX;
        let fixed = [
            ("/agentSemver", self.agent_semver.as_str(), NAME),
            ("/title", self.title.as_str(), AGENT_TEXT_BYTES_MAX),
            ("/family", self.family.as_str(), NAME),
            ("/modelBinding/modelId", self.model_binding.model_id.as_str(), NAME),
            ("/modelBinding/semver", self.model_binding.semver.as_str(), NAME),
            ("/modelBinding/fallbackModelId", self.model_binding.fallback_model_id.as_str(), NAME),
            ("/personaBinding", self.persona_binding.as_str(), NAME),
            ("/tonePolicyId", self.tone_policy_id.as_str(), NAME),
            ("/groundingPolicyId", self.grounding_policy_id.as_str(), NAME),
            ("/auditPolicyId", self.audit_policy_id.as_str(), NAME),
        ];
        let fixed = fixed.into_iter().map(|(path, text, max)| (path.to_owned(), text, max));
        let capabilities = self.capabilities.iter().enumerate().flat_map(|(i, capability)| {
            [
                (format!("/capabilities/{i}/capabilityId"), capability.capability_id.as_str(), NAME),
                (format!("/capabilities/{i}/semver"), capability.semver.as_str(), NAME),
            ]
        });
        fixed
            .chain(capabilities)
            .chain(listed("/dataScopes", &self.data_scopes, NAME))
            .chain(listed("/toolGrants", &self.tool_grants, NAME))
            .chain(listed("/disclosureRequirements", &self.disclosure_requirements, AGENT_TEXT_BYTES_MAX))
    }

    /// What is known of its family; `None` for one that is none.
    pub fn family_meta(&self) -> Option<&'static AgentFamilyMeta> {
        family_meta(&self.family)
    }

    /// The tools it may use: those it declares, and of them none outside its family's ceiling.
    pub fn tools(&self) -> BTreeSet<ToolId> {
        let meta = self.family_meta();
        let declared = self.tool_grants.iter().filter_map(|tool| ToolId::new(tool.as_str()).ok());
        declared.filter(|tool| meta.is_some_and(|meta| meta.allows(tool))).collect()
    }
}

// A version may end in a line feed as far as this goes: that it is no version is said with all else that is wrong.
fn bad_text(text: &str, bytes_max: usize) -> Option<String> {
    if text.is_empty() {
        return Some("is empty".to_owned());
    }
    if text.len() > bytes_max {
        return Some(format!("has more than {bytes_max} bytes"));
    }
    text.contains('\0').then(|| "holds a NUL".to_owned())
}
