//! What a schedule fires, and the submission a fire comes to.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FireId, TRIGGER_BYTES_MAX};
use crate::ids::{AgentId, PipelineId};
use crate::pipeline::{FirePipeline, InputError, PipelineInput, PipelineSpec, days_told_from, spec_of};
use crate::redact::redact_value;
use crate::run::submission::{self, Submission, SubmissionError};
use crate::time::UnixMs;

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

/// What is asked for when a schedule fires: a pipeline's trigger, or a submission.
#[derive(Debug, Clone, PartialEq)]
pub enum Firing {
    /// As anybody triggers a pipeline, under the id of the fire.
    Pipeline(FirePipeline),
    /// As anybody submits a run.
    Submission(Box<Submission>),
}

/// Why nothing can be fired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TriggerDenial {
    /// No such pipeline in this version.
    #[error("there is no pipeline `{0}` of version {1}")]
    NoSuchPipeline(PipelineId, String),
    /// The pipeline does not take this.
    #[error("`input` is none that the pipeline takes: {0}")]
    BadInput(#[from] InputError),
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
            Self::BadInput(_) => InputError::CODE,
            Self::Submission(error) => error.code(),
            Self::HoldsSecret => "schedule-holds-secret",
            Self::TooLarge(_) => "schedule-too-large",
        }
    }
}

impl Trigger {
    /// What a fire whose slot is `at` asks for: equal arguments give an equal answer, so a fire that is started again says
    /// the same. Days that are said as a distance are told from the slot.
    pub fn firing(&self, fire_id: &FireId, at: UnixMs) -> Result<Firing, TriggerDenial> {
        match self {
            Self::Pipeline { pipeline_id, pipeline_semver, input } => Ok(Firing::Pipeline(FirePipeline {
                pipeline_id: pipeline_id.clone(),
                pipeline_semver: Some(pipeline_semver.clone()),
                input: days_told_from(spec(pipeline_id, pipeline_semver)?, input, at)?,
                mode: None,
                fire_id: Some(fire_id.to_string()),
            })),
            Self::Submission { submission } => Ok(Firing::Submission(Box::new(submission::read(submission.clone())?))),
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
        match self {
            Self::Pipeline { pipeline_id, pipeline_semver, input } => {
                let spec = spec(pipeline_id, pipeline_semver)?;
                PipelineInput::read(spec, &days_told_from(spec, input, at)?)?;
            }
            Self::Submission { submission } => drop(submission::read(submission.clone())?),
        }
        Ok(())
    }
}

fn spec(id: &PipelineId, semver: &str) -> Result<&'static PipelineSpec, TriggerDenial> {
    let none = || TriggerDenial::NoSuchPipeline(id.clone(), semver.chars().take(64).collect());
    spec_of(id, Some(semver)).ok_or_else(none)
}
