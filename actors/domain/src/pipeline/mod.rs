//! Pipelines as data (PIP): what a pipeline is called, who takes part, what it may cost and where it stops for a yes.
//!
//! A pipeline is no program. It is a [`PipelineSpec`], and [`expand`](expand()) makes a [`Plan`](crate::run::plan::Plan) of
//! it and an input; the runtime walks that plan exactly as it walks any other, so a pipeline can do nothing that a submitted
//! plan could not.
//!
//! When pipelines are fired is here too: what an expression means ([`cron`]) and what a schedule is due ([`schedule`]).

pub mod cron;
mod customize;
mod deviation;
mod expand;
mod fire;
mod fixture;
mod input;
mod lifecycle;
mod picture;
mod registry;
mod rehearsing;
mod report;
pub mod schedule;
mod spec;
mod v1;
pub mod weekly_briefing;

use crate::ids::PipelineId;

pub use customize::{
    ADDED_GATES_MAX, AddedGate, CustomizationDenial, Customizing, EffectivePipeline, PutCustomization,
    TenantPipelineCustomization, Tightening, customize, effective_pipeline_for_tenant, modes_of, only_tightens,
};
pub use deviation::{DeviationKind, PipelineDeviation, detect_pipeline_deviation};
pub use expand::{expand, expand_read};
pub use fire::{FIRE_ID_BYTES_MAX, FIRE_KEY, FireDenial, FirePipeline, INPUT_KEY, fire, fire_run_id, instance_grants};
pub use fixture::{
    CaseScore, Expectations, FIXTURE_CASES_MIN, FixtureCase, FixtureSet, StubAnswer, fixture_sets, score_case,
};
pub use input::{INPUT_ITEMS_MAX, INPUT_TEXT_BYTES_MAX, InputError, PipelineInput, days_told_from};
pub use lifecycle::PipelineLifecycle;
pub use picture::mermaid;
pub use registry::{PipelineCode, PipelineFault, PipelineRegistry, read};
pub use rehearsing::{
    ApprovalRehearsed, CostRange, InForce, Rehearsal, StageRehearsed, SwitchRehearsed, ToolRehearsed, rehearsal_of,
};
pub use report::{PipelineObservabilityReport, REPORT_RUNS, build_pipeline_observability_report};
pub use spec::{
    Action, ForEach, InputCondition, InputField, InputKind, InsteadIf, MandatoryGate, PIPELINE_TIERS, PipelineSpec,
    STAGE_DEPTH, Stage, StepTemplate,
};
pub use weekly_briefing::briefing;

/// The pipeline of this id and version, if this version ships it.
pub fn spec_of(id: &PipelineId, semver: Option<&str>) -> Option<&'static PipelineSpec> {
    PipelineRegistry::shipped().get(id).filter(|spec| semver == Some(spec.semver.as_str()))
}
