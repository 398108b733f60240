//! What a schedule fires, and the submission a fire comes to.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::TRIGGER_BYTES_MAX;
use crate::governance::budget::OnExceeded;
use crate::ids::{AgentId, PipelineId};
use crate::pipeline::{briefing, spec_of, weekly_briefing};
use crate::quantity::BudgetCategory;
use crate::redact::redact_value;
use crate::run::plan::Plan;
use crate::run::submission::{self, PlanInput, RunBudget, Submission, SubmissionError};
use crate::time::UnixMs;

/// Most days back that a briefing may reach by `sinceDays`.
const SINCE_DAYS_MAX: u64 = 3_660;

/// What is fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Trigger {
    /// A pipeline with its input.
    Pipeline {
        /// Which.
        pipeline_id: PipelineId,
        /// Which version.
        pipeline_semver: String,
        /// What it is given; what that may hold is the pipeline's to say.
        input: Value,
    },
    /// A submission, as it would be sent by itself.
    Submission {
        /// Its body.
        submission: Value,
    },
}

/// Why nothing can be fired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TriggerDenial {
    /// No such pipeline in this version.
    #[error("there is no pipeline `{0}` of version {1}")]
    NoSuchPipeline(PipelineId, String),
    /// The pipeline does not take this.
    #[error("`input` is none that the pipeline takes: {0}")]
    BadInput(String),
    /// The submission is not acceptable.
    #[error(transparent)]
    Submission(#[from] SubmissionError),
    /// It holds something that looks like a secret.
    #[error(
        "what is fired looks like it holds a secret, and a schedule is kept in clear; name a configured one, as {{\"$secret\": \"id\"}}"
    )]
    HoldsSecret,
    /// It is too large to be kept.
    #[error("what is fired has {0} bytes; a schedule keeps at most {TRIGGER_BYTES_MAX}")]
    TooLarge(usize),
}

impl TriggerDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchPipeline(..) => "no-such-pipeline",
            Self::BadInput(_) => "pipeline-input-invalid",
            Self::Submission(error) => error.code(),
            Self::HoldsSecret => "schedule-holds-secret",
            Self::TooLarge(_) => "schedule-too-large",
        }
    }
}

impl Trigger {
    /// The submission of a fire whose slot is `at`: equal arguments give an equal one, so a fire that is started again says
    /// the same.
    pub fn submission(&self, at: UnixMs) -> Result<Submission, TriggerDenial> {
        match self {
            Self::Pipeline { pipeline_id, pipeline_semver, input } => {
                submission_of_trigger(pipeline_id, pipeline_semver, input, at)
            }
            Self::Submission { submission } => Ok(submission::read(submission.clone())?),
        }
    }

    /// The pipeline, if it is one.
    pub const fn pipeline_id(&self) -> Option<&PipelineId> {
        match self {
            Self::Pipeline { pipeline_id, .. } => Some(pipeline_id),
            Self::Submission { .. } => None,
        }
    }

    /// The lead agent of its runs.
    pub fn root_agent_id(&self) -> Option<AgentId> {
        match self {
            Self::Pipeline { pipeline_id, pipeline_semver, .. } => {
                spec_of(pipeline_id, Some(pipeline_semver))?.root_agent_id().cloned()
            }
            Self::Submission { submission } => submission.get("rootAgentId")?.as_str()?.parse().ok(),
        }
    }

    /// Whether it may be kept: it is read, small enough, and holds nothing in clear that looks like a secret (I13).
    pub fn check(&self, at: UnixMs) -> Result<(), TriggerDenial> {
        let body = match self {
            Self::Pipeline { input, .. } => input,
            Self::Submission { submission } => submission,
        };
        let bytes = body.to_string().len();
        if bytes > TRIGGER_BYTES_MAX {
            return Err(TriggerDenial::TooLarge(bytes));
        }
        if redact_value(body).1 {
            return Err(TriggerDenial::HoldsSecret);
        }
        self.submission(at).map(drop)
    }
}

/// The plan of a pipeline trigger, as the submission of a run: the one place where a schedule meets the pipelines there are.
pub fn submission_of_trigger(
    pipeline_id: &PipelineId,
    semver: &str,
    input: &Value,
    at: UnixMs,
) -> Result<Submission, TriggerDenial> {
    let none = || TriggerDenial::NoSuchPipeline(pipeline_id.clone(), semver.chars().take(64).collect());
    let spec = spec_of(pipeline_id, Some(semver)).ok_or_else(none)?;
    let root_agent_id = spec.root_agent_id().cloned().ok_or_else(none)?;
    let plan = match pipeline_id.as_str() {
        weekly_briefing::PIPELINE_ID => briefing_of(input, at).map_err(TriggerDenial::BadInput)?,
        _ => return Err(none()),
    };
    Ok(Submission {
        root_agent_id,
        plan: PlanInput::Plan(plan),
        inputs: json!({ "trigger": input, "slotUnixMs": at }),
        agent_versions: Default::default(),
        mode: spec.default_mode.to_owned(),
        pipeline_id: Some(spec.pipeline_id),
        pipeline_semver: Some(spec.semver.to_owned()),
        budgets: vec![RunBudget {
            category: BudgetCategory::CostUnits,
            limit: spec.total_budget_cap,
            on_exceeded: OnExceeded::Kill,
        }],
        invocation: None,
        mode_override: None,
    })
}

/// What a briefing is given.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BriefingInput {
    sources: Vec<String>,
    #[serde(default)]
    since: Option<String>,
    /// The same, counted back from the fire: what a schedule means by "the last week".
    #[serde(default)]
    since_days: Option<u64>,
}

fn briefing_of(input: &Value, at: UnixMs) -> Result<Plan, String> {
    let input = BriefingInput::deserialize(input).map_err(|error| error.to_string())?;
    if input.sources.is_empty() || input.sources.len() > weekly_briefing::SOURCES_MAX {
        return Err(format!("`sources` names 1 to {} files or feeds", weekly_briefing::SOURCES_MAX));
    }
    let since = match (input.since, input.since_days) {
        (Some(_), Some(_)) => return Err("say `since` or `sinceDays`, not both".to_owned()),
        (Some(day), None) => {
            day.parse::<Date>().map_err(|_| "`since` is a day such as 2026-12-01".to_owned())?;
            Some(day)
        }
        (None, Some(days)) => Some(days_before(at, days).ok_or("`sinceDays` is 0 to 3660 days")?),
        (None, None) => None,
    };
    Ok(briefing(&input.sources, since.as_deref()))
}

fn days_before(at: UnixMs, days: u64) -> Option<String> {
    let days = i64::try_from(days).ok().filter(|_| days <= SINCE_DAYS_MAX)?;
    let then = Timestamp::from_millisecond(at.plus_seconds(days * -86_400).0).ok()?;
    Some(then.strftime("%Y-%m-%d").to_string())
}
