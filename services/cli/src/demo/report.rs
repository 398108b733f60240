//! What the demonstration has made, once it is over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use signalbox_domain::ids::StepId;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;

use super::gate::calls_made;
use crate::failure::Failure;
use crate::output::{Out, duration};

/// The result. Its JSON names are stable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    run_id: String,
    status: RunStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pack: Option<Pack>,
    cost_units: Micros,
    calls: usize,
    duration_ms: u64,
    skipped: Vec<SkippedStep>,
}

/// Where the three files of the pack are.
#[derive(Debug, Serialize)]
pub(crate) struct Pack {
    markdown: PathBuf,
    html: PathBuf,
    json: PathBuf,
}

/// A step that was left out, and that is no failure.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SkippedStep {
    step_id: StepId,
    reason: String,
}

impl Report {
    /// The report on a run that is over, and on how long this command worked for it.
    pub(crate) fn of(run: &RunEnvelope, data: &Path, took: Duration) -> Self {
        let folder = data.join("packs").join(run.run_id.to_string());
        let skipped = run.plan.steps.iter().zip(&run.steps).filter_map(|(step, state)| match state {
            StepState::Skipped { reason, .. } => {
                Some(SkippedStep { step_id: step.step_id.clone(), reason: reason.clone() })
            }
            StepState::Pending
            | StepState::InFlight { .. }
            | StepState::HandedOff { .. }
            | StepState::Throttled { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::AwaitingBranch
            | StepState::Conversing
            | StepState::Waiting { .. }
            | StepState::Done { .. }
            | StepState::Failed { .. } => None,
        });
        Self {
            run_id: run.run_id.to_string(),
            status: run.status,
            // A run that did not end well may have written some of the files and not others.
            pack: (run.status == RunStatus::Completed).then(|| Pack {
                markdown: folder.join("briefing.md"),
                html: folder.join("briefing.html"),
                json: folder.join("briefing.json"),
            }),
            cost_units: run.cost_ledger.total_cost_units,
            calls: calls_made(run),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            skipped: skipped.collect(),
        }
    }

    /// Prints it.
    pub(crate) fn print(&self, out: &mut Out) -> Result<(), Failure> {
        if out.is_json() {
            return out.json(self);
        }
        let path = |of: fn(&Pack) -> &PathBuf| self.pack.as_ref().map(|pack| of(pack).display().to_string());
        let skipped: Vec<_> = self.skipped.iter().map(|step| step.step_id.as_str()).collect();
        out.fields(&[
            ("pack", path(|pack| &pack.markdown).unwrap_or_default()),
            ("", path(|pack| &pack.html).unwrap_or_default()),
            ("", path(|pack| &pack.json).unwrap_or_default()),
            ("run", self.run_id.clone()),
            ("cost", format!("{} units in {} calls", self.cost_units, self.calls)),
            ("took", duration(self.duration_ms)),
            ("left out", skipped.join(", ")),
        ])
    }
}
