//! What a set of tools needs, in the order in which it can be set up (CAT-003, CAT-004).

use std::collections::BTreeMap;

use crate::catalog::Catalog;
use crate::catalog::version::range_matches;
use crate::ids::ToolId;

/// Why the dependencies of a tool cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DependencyError {
    /// A tool that is not in the catalog.
    #[error("there is no tool `{0}` in the catalog")]
    UnknownTool(ToolId),
    /// The catalog has another version than the one needed.
    #[error("`{tool}` needs `{needs}` in {range}, but the catalog has {found}")]
    SemverRangeNoMatch {
        /// Who needs it.
        tool: ToolId,
        /// What it needs.
        needs: ToolId,
        /// In which versions.
        range: String,
        /// What there is.
        found: String,
    },
    /// Tools that need each other.
    #[error("the tools need each other in a circle through `{0}`")]
    Cycle(ToolId),
}

impl DependencyError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownTool(_) => "unknown-tool",
            Self::SemverRangeNoMatch { .. } => "semver-range-no-match",
            Self::Cycle(_) => "dependency-cycle",
        }
    }
}

/// Whether a tool's own needs are being looked at, or all met.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Open,
    Done,
}

/// The tools asked for and all they need, each after what it needs, each once.
///
/// # Errors
/// A tool that does not exist, a version out of range, or a circle.
pub fn resolve_tool_dependencies<'a>(
    catalog: &'a Catalog,
    tools: impl IntoIterator<Item = &'a ToolId>,
) -> Result<Vec<ToolId>, DependencyError> {
    let mut marks = BTreeMap::new();
    let mut order = Vec::new();
    for tool in tools {
        visit(catalog, tool, &mut marks, &mut order)?;
    }
    Ok(order)
}

// The depth is bounded by the number of tools in the catalog: a tool on the way is marked open.
fn visit<'a>(
    catalog: &'a Catalog,
    tool: &'a ToolId,
    marks: &mut BTreeMap<&'a ToolId, Mark>,
    order: &mut Vec<ToolId>,
) -> Result<(), DependencyError> {
    match marks.get(tool) {
        Some(Mark::Done) => return Ok(()),
        Some(Mark::Open) => return Err(DependencyError::Cycle(tool.clone())),
        None => marks.insert(tool, Mark::Open),
    };
    let entry = catalog.entry(tool).ok_or_else(|| DependencyError::UnknownTool(tool.clone()))?;
    for needed in &entry.dependencies {
        let found =
            catalog.entry(&needed.tool_id).ok_or_else(|| DependencyError::UnknownTool(needed.tool_id.clone()))?;
        if !range_matches(&needed.range, &found.semver) {
            return Err(DependencyError::SemverRangeNoMatch {
                tool: tool.clone(),
                needs: needed.tool_id.clone(),
                range: needed.range.clone(),
                found: found.semver.clone(),
            });
        }
        visit(catalog, &needed.tool_id, marks, order)?;
    }
    marks.insert(tool, Mark::Done);
    order.push(tool.clone());
    Ok(())
}
