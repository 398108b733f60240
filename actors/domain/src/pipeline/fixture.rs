//! The sets of cases that pipelines are judged by (PIP-031): what a pipeline is given, what its tools answer, and what must
//! come of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{PipelineId, StepId};
use crate::json::{self, Limits};
use crate::quantity::Micros;
use crate::run::envelope::RunEnvelope;
use crate::run::event::StoredValue;
use crate::run::plan::{ApprovalRequirement, StepKind};
use crate::run::status::RunStatus;
use crate::run::step::StepState;

/// Fewest cases of a set.
pub const FIXTURE_CASES_MIN: usize = 5;

/// Each set, by its id.
pub(super) const FIXTURE_SETS: [(&str, &str); 7] = [
    ("gold.veritas.weekly_briefing_pack.v1", include_str!("fixtures/weekly_briefing_pack.json")),
    ("gold.veritas.story_drafting.v1", include_str!("fixtures/story_drafting.json")),
    ("gold.tara.seasonal_program.v1", include_str!("fixtures/seasonal_program.json")),
    ("gold.nisaba.edition_study_guide.v1", include_str!("fixtures/edition_study_guide.json")),
    ("gold.nyx.event_explainer_set.v1", include_str!("fixtures/event_explainer_set.json")),
    ("gold.arete.weekly_review_draft.v1", include_str!("fixtures/weekly_review_draft.json")),
    ("gold.metis.course_from_byom.v1", include_str!("fixtures/course_from_byom.json")),
];

/// A set of cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FixtureSet {
    /// Its id.
    pub fixture_set_id: String,
    /// The pipeline it judges.
    pub pipeline_id: PipelineId,
    /// The cases.
    pub cases: Vec<FixtureCase>,
}

/// A case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FixtureCase {
    /// What it is about.
    pub name: String,
    /// What the pipeline is given.
    pub input: Value,
    /// What tools answer that a rehearsal really calls, by step.
    #[serde(default)]
    pub answers: BTreeMap<StepId, StubAnswer>,
    /// What must come of it.
    pub expected: Expectations,
    /// The share of expectations that must hold, 0 to 1.
    pub minimum_score: Micros,
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum StubAnswer {
    /// It answers this.
    Output(Value),
    /// It fails.
    Fails {
        /// With this code.
        code: String,
        /// In these words.
        message: String,
    },
}

/// What must come of a case. Each entry counts once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectations {
    /// How the run ends.
    pub status: RunStatus,
    /// The code of its end, if it is not a good one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How many steps its plan has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// What stages gave: by step, values by JSON Pointer into its output.
    #[serde(default)]
    pub outputs: BTreeMap<StepId, BTreeMap<String, Value>>,
    /// What tools were called with: by step, values by JSON Pointer into the arguments.
    #[serde(default)]
    pub arguments: BTreeMap<StepId, BTreeMap<String, Value>>,
    /// Whom it asks, in the order of the plan.
    #[serde(default)]
    pub asks: Vec<(StepId, ApprovalRequirement)>,
    /// Steps that are not begun.
    #[serde(default)]
    pub not_reached: Vec<StepId>,
    /// Steps that are left out quietly.
    #[serde(default)]
    pub left_out: Vec<StepId>,
}

/// How a case went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseScore {
    /// How many expectations hold.
    pub met: usize,
    /// Each that does not, in words.
    pub missed: Vec<String>,
    /// The share that does, 0 to 1, rounded down to a millionth.
    pub score: Micros,
    /// True if that is enough.
    pub passed: bool,
}

/// The sets that ship with this version; one that could not be read would be missing.
pub fn fixture_sets() -> Vec<FixtureSet> {
    let limits = Limits { bytes_max: 4 << 20, ..Limits::DEFAULT };
    let read = |text: &str| json::parse_as::<FixtureSet>(text.as_bytes(), limits).ok();
    FIXTURE_SETS.iter().filter_map(|(_, text)| read(text)).collect()
}

/// Holds the run of a case against what must come of it.
pub fn score_case(case: &FixtureCase, run: &RunEnvelope) -> CaseScore {
    let mut tally = Tally { met: 0, missed: Vec::new() };
    let wanted = &case.expected;
    tally.same("status", &wanted.status.as_str(), &run.status.as_str());
    let code = run.end.as_ref().and_then(|end| end.code.as_deref());
    tally.same("code", &wanted.code.as_deref(), &code);
    if let Some(steps) = wanted.steps {
        tally.same("steps", &steps, &run.plan.steps.len());
    }
    for (step, values) in &wanted.outputs {
        let output = output_of(run, step);
        tally.values(step, "gave", output, values);
    }
    for (step, values) in &wanted.arguments {
        let call = run.tool_calls.iter().rev().find(|call| call.step_id == *step);
        let args = call.and_then(|call| inline(&call.redacted_args));
        tally.values(step, "was called with", args, values);
    }
    if !wanted.asks.is_empty() {
        let asks = run.plan.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Approval { requirement, .. } => Some((step.step_id.clone(), *requirement)),
            StepKind::Tool { .. }
            | StepKind::Agent { .. }
            | StepKind::Model { .. }
            | StepKind::Turn { .. }
            | StepKind::Branch { .. }
            | StepKind::Wait { .. } => None,
        });
        tally.same("asks", &wanted.asks, &asks.collect());
    }
    let state =
        |id: &StepId| run.plan.steps.iter().zip(&run.steps).find(|(step, _)| step.step_id == *id).map(|(_, s)| s);
    for step in &wanted.not_reached {
        tally.holds(&format!("{step} is not reached"), state(step) == Some(&StepState::Pending));
    }
    for step in &wanted.left_out {
        tally.holds(&format!("{step} is left out"), matches!(state(step), Some(StepState::Skipped { .. })));
    }
    let all = tally.met + tally.missed.len();
    let millionths = (tally.met * 1_000_000).checked_div(all).and_then(|share| i64::try_from(share).ok());
    let score = Micros(millionths.unwrap_or(0));
    CaseScore { met: tally.met, missed: tally.missed, score, passed: score >= case.minimum_score }
}

fn output_of<'r>(run: &'r RunEnvelope, id: &StepId) -> Option<&'r Value> {
    let (_, state) = run.plan.steps.iter().zip(&run.steps).find(|(step, _)| step.step_id == *id)?;
    if let StepState::Done { output: Some(output), .. } = state { inline(output) } else { None }
}

fn inline(stored: &StoredValue) -> Option<&Value> {
    if let StoredValue::Inline(value) = stored { Some(value) } else { None }
}

struct Tally {
    met: usize,
    missed: Vec<String>,
}

impl Tally {
    fn holds(&mut self, what: &str, holds: bool) {
        if holds { self.met += 1 } else { self.missed.push(what.to_owned()) }
    }

    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, wanted: &T, found: &T) {
        if wanted == found { self.met += 1 } else { self.missed.push(format!("{what}: {found:?}, not {wanted:?}")) }
    }

    fn values(&mut self, step: &StepId, did: &str, found: Option<&Value>, wanted: &BTreeMap<String, Value>) {
        for (pointer, value) in wanted {
            let found = found.and_then(|found| found.pointer(pointer));
            if found == Some(value) {
                self.met += 1;
            } else {
                self.missed.push(format!("{step} {did} {found:?} at `{pointer}`, not {value}"));
            }
        }
    }
}
