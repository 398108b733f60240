//! Which tools are on their way out, for whoever reviews the registry (CAT-005).

use jiff::Timestamp;

use crate::catalog::Catalog;
use crate::ids::ToolId;
use crate::time::UnixMs;

/// A tool that is on its way out, and who is hurt by that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurfacedDeprecation {
    /// The tool.
    pub tool_id: ToolId,
    /// Since when, RFC 3339.
    pub deprecated_at: String,
    /// What to use instead.
    pub replacement_tool_id: Option<ToolId>,
    /// The tools that need it, in the order of the catalog.
    pub dependents: Vec<ToolId>,
}

/// The instant of an RFC 3339 text.
pub fn instant_of(text: &str) -> Option<UnixMs> {
    text.parse::<Timestamp>().ok().map(|at| UnixMs(at.as_millisecond()))
}

/// Every tool that was deprecated between two instants, both included; without one, there is no end on that side. A
/// deprecation whose instant cannot be read is surfaced always: it must not be overlooked.
pub fn surface_deprecations(catalog: &Catalog, from: Option<UnixMs>, to: Option<UnixMs>) -> Vec<SurfacedDeprecation> {
    let within = |text: &str| {
        instant_of(text).is_none_or(|at| from.is_none_or(|from| from <= at) && to.is_none_or(|to| at <= to))
    };
    let entries = catalog.entries().iter();
    let leaving = entries.filter_map(|entry| Some((entry, entry.deprecation.as_ref()?)));
    leaving
        .filter(|(_, deprecation)| within(&deprecation.deprecated_at))
        .map(|(entry, deprecation)| SurfacedDeprecation {
            tool_id: entry.tool_id.clone(),
            deprecated_at: deprecation.deprecated_at.clone(),
            replacement_tool_id: deprecation.replacement_tool_id.clone(),
            dependents: catalog
                .entries()
                .iter()
                .filter(|other| other.dependencies.iter().any(|needed| needed.tool_id == entry.tool_id))
                .map(|other| other.tool_id.clone())
                .collect(),
        })
        .collect()
}
