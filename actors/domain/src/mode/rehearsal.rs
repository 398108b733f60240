//! What a rehearsal does not do (MOD-006, MOD-007, I12).

use super::Mode;
use crate::catalog::{CatalogEntry, Effect};
use crate::ids::ToolId;
use crate::run::envelope::RunEnvelope;
use crate::run::plan::{Step, StepKind};

/// What the gate says of a call that a stand-in answers.
pub const SIMULATED_CODE: &str = "simulated-in-rehearsal";

/// Why an approval of a rehearsal counts as given.
pub const REHEARSAL_APPROVAL_REASON: &str = "rehearsal: nobody is asked, and nothing that this lets through is done";

/// True if a rehearsal answers calls of this tool by a stand-in: it changes, makes or steers something, or its calls leave
/// the installation.
pub fn is_simulated(tool: &CatalogEntry) -> bool {
    tool.external || tool.effect != Effect::Read
}

/// True if a run in this mode answers calls of the step's tool by a stand-in. A tool that is not in the catalog may do
/// anything, so it is never called in a rehearsal; and what an approval guards is not done without one.
pub fn simulates(mode: &str, tool: &ToolId, guarded: bool) -> bool {
    Mode::parse(mode).is_some_and(Mode::is_rehearsal)
        && (guarded || crate::catalog::entry(tool).is_none_or(is_simulated))
}

impl RunEnvelope {
    /// True if the run touches nothing outside.
    pub fn is_rehearsal(&self) -> bool {
        Mode::parse(&self.mode).is_some_and(Mode::is_rehearsal)
    }

    /// True if a stand-in answers the calls of this step.
    pub fn simulates(&self, step: &Step) -> bool {
        if matches!(step.kind, StepKind::Turn { .. }) {
            // A rehearsal asks no model.
            return self.is_rehearsal();
        }
        step.kind.tool_id().is_some_and(|tool| simulates(&self.mode, tool, step.kind.approved_by().is_some()))
    }
}
