//! The tool catalog (CAT): what each tool is, may cost and needs.
//!
//! The catalog is a contract shared by everyone who speaks of tools. It binds none of them to an implementation: a tool
//! that no executor serves is in the catalog all the same, and is refused at the gate.

mod deprecated;
pub mod resolve;
mod v1;
pub mod version;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::ToolId;
use crate::quantity::{Micros, Usage};

pub use deprecated::{SurfacedDeprecation, instant_of, surface_deprecations};
pub use resolve::{DependencyError, resolve_tool_dependencies};
pub use v1::{V1_CATALOG_PUBLISHED_AT, V1_CATALOG_VERSION, V1_TOOL_IDS};

/// How long a tool may take unless its entry says otherwise, in milliseconds (ADM-020).
pub const TIMEOUT_MS_DEFAULT: u64 = 60_000;

/// What happens to a pending call whose outcome is not known after a crash (RUN-026).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// It is dispatched again under the same call id.
    Idempotent,
    /// The executor is asked for the outcome of the call id.
    Deduplicating,
    /// It settles as `unknown` and an operator is asked.
    #[default]
    AtMostOnce,
}

impl Recovery {
    /// What holds for a tool that this catalog describes and an executor serves: what the executor declares, but never
    /// more than the catalog allows. Asking for an outcome sends nothing, so an executor that remembers may always be
    /// asked; sending again needs both to say so.
    #[must_use]
    pub const fn as_declared(self, declared: Self) -> Self {
        match (self, declared) {
            (Self::Idempotent, Self::Idempotent) => Self::Idempotent,
            (_, Self::Deduplicating) | (Self::Deduplicating, Self::Idempotent) => Self::Deduplicating,
            (_, Self::AtMostOnce) | (Self::AtMostOnce, Self::Idempotent) => Self::AtMostOnce,
        }
    }
}

/// How much harm a tool can do (CAT-007).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Risk {
    /// Next to none.
    Low,
    /// Some, inside the installation.
    Medium,
    /// It reaches outside, or spends much.
    High,
    /// It runs foreign code or ends an agent.
    Critical,
}

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// It looks.
    Read,
    /// It changes something.
    Mutate,
    /// It makes something.
    Generate,
    /// It steers runs and agents.
    Control,
}

/// A tool that another one needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolDependency {
    /// Which.
    pub tool_id: ToolId,
    /// In which versions.
    pub range: String,
}

/// A tool that is on its way out (CAT-005).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Deprecation {
    /// Since when, RFC 3339.
    pub deprecated_at: String,
    /// What to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_tool_id: Option<ToolId>,
}

/// One tool (CAT-006).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CatalogEntry {
    /// Names the tool.
    pub tool_id: ToolId,
    /// The version described here.
    pub semver: String,
    /// Shown to people.
    pub title: String,
    /// How much harm it can do.
    pub risk: Risk,
    /// What it does to the world.
    pub effect: Effect,
    /// What happens if its outcome is not known.
    pub recovery: Recovery,
    /// True if its calls leave the installation.
    pub external: bool,
    /// True if it cannot work without a secret.
    pub needs_secret: bool,
    /// Scopes a caller's credential must have (CAT-009).
    pub required_scopes: Vec<String>,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its output.
    pub output_schema: Value,
    /// Tools it needs (CAT-008).
    pub dependencies: Vec<ToolDependency>,
    /// The most one call may use, per category: what is reserved.
    pub ceiling: Usage,
    /// How long it may take, in milliseconds (ADM-020).
    pub timeout_ms: u64,
    /// What its cost is booked as.
    pub meter_reason: String,
    /// Set if it is on its way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<Deprecation>,
}

impl CatalogEntry {
    /// True if a grant may be minted for it without a broker (EXE-014): low or medium risk and no secret. Tools that
    /// pick their own hosts are all of high risk (CAT-007).
    pub fn is_bounded(&self) -> bool {
        matches!(self.risk, Risk::Low | Risk::Medium) && !self.needs_secret
    }
}

/// Why a set of entries is no catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Two entries for one tool.
    #[error("the tool `{0}` stands twice in the catalog")]
    DuplicateTool(ToolId),
    /// A version that is none.
    #[error("the tool `{0}` has no valid version")]
    BadVersion(ToolId),
    /// A tool that could never finish.
    #[error("the tool `{0}` has a timeout of 0 ms")]
    NoTimeout(ToolId),
    /// A dependency that is missing or too old.
    #[error(transparent)]
    Dependency(#[from] DependencyError),
}

impl CatalogError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::DuplicateTool(_) => "duplicate-tool-id",
            Self::BadVersion(_) => "invalid-semver",
            Self::NoTimeout(_) => "invalid-timeout",
            Self::Dependency(error) => error.code(),
        }
    }
}

/// A set of tools that fit together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Catalog {
    entries: Vec<CatalogEntry>,
}

impl Catalog {
    /// Checks the entries and that the dependencies among them hold and form no circle (CAT-004).
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(entries: Vec<CatalogEntry>) -> Result<Self, CatalogError> {
        for (i, entry) in entries.iter().enumerate() {
            if entries[..i].iter().any(|other| other.tool_id == entry.tool_id) {
                return Err(CatalogError::DuplicateTool(entry.tool_id.clone()));
            }
            if !version::is_version(&entry.semver) {
                return Err(CatalogError::BadVersion(entry.tool_id.clone()));
            }
            if entry.timeout_ms == 0 {
                return Err(CatalogError::NoTimeout(entry.tool_id.clone()));
            }
        }
        let catalog = Self { entries };
        resolve_tool_dependencies(&catalog, catalog.entries.iter().map(|entry| &entry.tool_id))?;
        Ok(catalog)
    }

    /// All tools, in the order of the catalog.
    pub fn entries(&self) -> &[CatalogEntry] {
        &self.entries
    }

    /// One tool.
    pub fn entry(&self, tool: &ToolId) -> Option<&CatalogEntry> {
        self.entries.iter().find(|entry| &entry.tool_id == tool)
    }
}

static V1_TOOL_CATALOG: LazyLock<Catalog> =
    // The entries are constants and a test loads them; an empty catalog would refuse every call.
    LazyLock::new(|| Catalog::load(v1::entries()).unwrap_or_default());

/// The catalog of this version (CAT-001, CAT-002).
pub fn v1_catalog() -> &'static Catalog {
    &V1_TOOL_CATALOG
}

/// The 21 tools of this version.
pub fn catalog() -> &'static [CatalogEntry] {
    V1_TOOL_CATALOG.entries()
}

/// One tool of this version.
pub fn entry(tool: &ToolId) -> Option<&'static CatalogEntry> {
    V1_TOOL_CATALOG.entry(tool)
}

/// The base price of one call in cost units; nothing for a tool that does not exist (LED-009).
pub fn base_price(tool: &ToolId) -> Micros {
    v1::base_price(tool.as_str())
}

/// The price of one call that read and wrote so many tokens: the base price, 1 per 1 000 read, 4 per 1 000 written
/// (LED-009).
pub fn price(tool: &ToolId, tokens_in: u64, tokens_out: u64) -> Micros {
    let per_token = |tokens: u64, micros: i64| Micros(i64::try_from(tokens).unwrap_or(i64::MAX).saturating_mul(micros));
    base_price(tool).plus(per_token(tokens_in, 1_000)).plus(per_token(tokens_out, 4_000))
}
