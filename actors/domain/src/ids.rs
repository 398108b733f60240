//! Distinct types for every id, so that swapping a run id and a grant id does not compile.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

/// Longest textual id that is accepted, in bytes.
pub const ID_BYTES_MAX: usize = 128;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("an id may not be empty")]
    Empty,
    /// The text is longer than [`ID_BYTES_MAX`].
    #[error("an id may have at most {ID_BYTES_MAX} bytes")]
    TooLong,
    /// A character outside letters, digits and `. _ : @ -`.
    #[error("`{0}` is not allowed in an id; use ASCII letters, digits and . _ : @ -")]
    BadCharacter(char),
    /// Not the textual form of a UUID.
    #[error("`{0}` is not a UUID")]
    NotAUuid(String),
}

fn check_text(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > ID_BYTES_MAX {
        return Err(IdError::TooLong);
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '@' | '-'))) {
        Some(bad) => Err(IdError::BadCharacter(bad)),
        None => Ok(()),
    }
}

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Checks the text and makes an id of it.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check_text(&text)?;
                Ok(Self(text))
            }
            /// An id from a constant of this crate, known to be well-formed.
            #[allow(dead_code, reason = "only some ids have constants")]
            pub(crate) fn constant(text: &'static str) -> Self {
                debug_assert!(check_text(text).is_ok());
                Self(text.to_owned())
            }
            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(from)?).map_err(serde::de::Error::custom)
            }
        }
    )+ };
}

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID.
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }
            /// The UUID inside.
            pub const fn uuid(&self) -> Uuid {
                self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Uuid::parse_str(text).map(Self).map_err(|_| IdError::NotAUuid(text.chars().take(64).collect()))
            }
        }
    )+ };
}

text_id! {
    /// A tenant: the outer wall of everything.
    TenantId,
    /// Whoever acts: a person, a service, or `system:…` for the runtime itself.
    ActorId,
    /// A registered agent, such as `ref.research`.
    AgentId,
    /// A tool of the catalog, such as `source.fetch`.
    ToolId,
    /// A step of a plan, unique within it.
    StepId,
    /// A stage: a named group of steps.
    StageId,
    /// A branch of a branch step.
    BranchId,
    /// A pipeline, such as `veritas.weekly_briefing_pack`.
    PipelineId,
    /// A budget and the meter that stands behind it.
    BudgetId,
    /// A kill switch.
    SwitchId,
    /// A grant.
    GrantId,
    /// A token bucket.
    BucketId,
    /// A provider of models or media.
    ProviderId,
    /// A region.
    RegionId,
    /// A secret, never its value.
    SecretId,
    /// A webhook.
    WebhookId,
    /// An executor of tools that was registered at run time.
    ExecutorId,
    /// Certificates for executors, as an operator's configuration names them.
    ExecutorTlsId,
    /// A comparison of two versions of an agent.
    RolloutId,
    /// A set of inputs and what is expected of them.
    GoldSetId,
    /// A schedule, unique within its tenant.
    ScheduleId,
}

uuid_id! {
    /// The internal key of a run (UUIDv7): ours, never the caller's.
    RunKey,
    /// The public id of a run, unique within its tenant; the caller may choose it.
    RunId,
    /// One tool call; executors receive it as their idempotency key.
    CallId,
    /// One approval that was asked for.
    ApprovalId,
    /// One command to a run; saying it twice is harmless.
    CommandId,
    /// One API key, never its secret.
    KeyId,
    /// One entry of a gold set.
    GoldSetEntryId,
    /// One life of one node process.
    NodeIncarnation,
    /// One life of the store: restoring a backup begins another.
    StoreIncarnation,
}

impl RunKey {
    /// An id that is a function of this run and a name, so that a decision taken again after a crash names the same thing.
    pub fn derive(&self, kind: &str, name: &str, ordinal: u64) -> Uuid {
        Uuid::new_v5(&self.0, format!("{kind}/{name}/{ordinal}").as_bytes())
    }
}
