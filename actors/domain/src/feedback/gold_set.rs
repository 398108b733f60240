//! Gold sets: inputs of finished runs, with what is expected of them, kept to try versions on (FBK-013, FBK-015).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical;
use crate::governance::switching::{self, Operator};
use crate::ids::{ActorId, AgentId, GoldSetEntryId, GoldSetId, RunId};
use crate::redact::{redact_text, redact_value};
use crate::run::envelope::RunEnvelope;
use crate::run::status::RunStatus;
use crate::time::UnixMs;

/// Version of the rows this program writes.
pub const GOLD_SET_SCHEMA_VERSION: u16 = 1;
/// Largest input or expected output, as canonical JSON, in bytes.
pub const GOLD_VALUE_BYTES_MAX: usize = 256 * 1_024;
/// Longest rubric, in bytes.
pub const RUBRIC_BYTES_MAX: usize = 16 * 1_024;
/// Most entries of one gold set.
pub const GOLD_ENTRIES_MAX: u64 = 10_000;

/// One entry of a gold set, as it lies in the store (FBK-015).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DurableGoldSetEntryRow {
    /// Names it.
    pub entry_id: GoldSetEntryId,
    /// The set.
    pub gold_set_id: GoldSetId,
    /// The lead agent of the run.
    pub agent_id: AgentId,
    /// Its version.
    pub agent_semver: String,
    /// Lower-case hex SHA-256 of the input as canonical JSON: an input is in a set once.
    pub input_hash: String,
    /// What the run was given, as its journal keeps it: redacted.
    pub input: Value,
    /// What a run on it should give; redacted.
    pub expected_output: Value,
    /// How to judge what it gives; redacted.
    pub rubric: String,
    /// Who has put it in.
    pub promoted_by: ActorId,
    /// When.
    pub promoted_at: UnixMs,
    /// The run it was taken from.
    pub source_run_id: RunId,
    /// Version of the row.
    pub schema_version: u16,
}

/// What an operator wants of a run in a gold set.
#[derive(Debug, Clone, PartialEq)]
pub struct PromoteGold {
    /// The set.
    pub gold_set_id: GoldSetId,
    /// The run.
    pub source_run_id: RunId,
    /// What a run on its input should give.
    pub expected_output: Value,
    /// How to judge it.
    pub rubric: String,
}

/// Why nothing is put into a gold set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoldDenial {
    /// Gold sets are for operators.
    #[error("a {0} may not manage gold sets; they are for operators")]
    NotAuthorized(&'static str),
    /// The run did not end well.
    #[error("the run is `{}`; only a completed run shows what an input is worth", .0.as_str())]
    SourceNotCompleted(RunStatus),
    /// The input is in the set.
    #[error("the gold set `{set}` has this input already, as entry {entry}")]
    Duplicate {
        /// The set.
        set: GoldSetId,
        /// The entry that has it.
        entry: GoldSetEntryId,
    },
    /// Too big.
    #[error("`{field}` has {bytes} bytes; at most {max} are kept")]
    TooBig {
        /// What.
        field: &'static str,
        /// How big it is.
        bytes: usize,
        /// How big it may be.
        max: usize,
    },
    /// No rubric.
    #[error("`rubric` must say how an answer is judged")]
    NoRubric,
    /// A number that a double cannot hold.
    #[error(transparent)]
    NumberNotExact(#[from] canonical::NumberNotExact),
    /// The set is full.
    #[error("the gold set `{0}` has {GOLD_ENTRIES_MAX} entries; begin another set")]
    Full(GoldSetId),
}

impl GoldDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotAuthorized(_) => "not-authorized",
            Self::SourceNotCompleted(_) => "source-run-not-completed",
            Self::Duplicate { .. } => "gold-set-entry-exists",
            Self::TooBig { .. } => "gold-set-entry-too-big",
            Self::NoRubric => "rubric-required",
            Self::NumberNotExact(_) => canonical::NumberNotExact::CODE,
            Self::Full(_) => "gold-set-full",
        }
    }
}

/// Whether the caller may see and fill gold sets at all: those of its own tenant.
///
/// # Errors
/// Whoever is no operator.
pub fn check_curator(by: Operator<'_>) -> Result<(), GoldDenial> {
    match switching::may_see(by, Some(by.tenant_id)) {
        true => Ok(()),
        false => Err(GoldDenial::NotAuthorized(by.actor.role.as_str())),
    }
}

/// What is known of the set an entry goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GoldSetFacts {
    /// The entry that has the same input.
    pub same_input: Option<GoldSetEntryId>,
    /// How many entries there are.
    pub entries: u64,
}

/// The digest by which an input is found in its set.
///
/// # Errors
/// A number that a double cannot hold.
pub fn input_hash(input: &Value) -> Result<String, canonical::NumberNotExact> {
    canonical::digest(input)
}

/// Decides on putting the input of a finished run into a gold set.
///
/// # Errors
/// Whatever is wrong; nothing is written.
pub fn promote(
    wish: &PromoteGold,
    run: &RunEnvelope,
    facts: GoldSetFacts,
    entry_id: GoldSetEntryId,
    by: Operator<'_>,
    now: UnixMs,
) -> Result<DurableGoldSetEntryRow, GoldDenial> {
    check_curator(by)?;
    check_wish(wish)?;
    if run.status != RunStatus::Completed {
        return Err(GoldDenial::SourceNotCompleted(run.status));
    }
    let input = (*run.inputs).clone();
    check_size("input", &input)?;
    if let Some(entry) = facts.same_input {
        return Err(GoldDenial::Duplicate { set: wish.gold_set_id.clone(), entry });
    }
    if facts.entries >= GOLD_ENTRIES_MAX {
        return Err(GoldDenial::Full(wish.gold_set_id.clone()));
    }
    let (expected_output, _) = redact_value(&wish.expected_output);
    Ok(DurableGoldSetEntryRow {
        entry_id,
        gold_set_id: wish.gold_set_id.clone(),
        agent_id: run.root_agent_id.clone(),
        agent_semver: run.root_agent_semver.clone(),
        input_hash: input_hash(&input)?,
        input,
        expected_output,
        rubric: redact_text(&wish.rubric).into_owned(),
        promoted_by: by.actor.actor_id.clone(),
        promoted_at: now,
        source_run_id: run.run_id,
        schema_version: GOLD_SET_SCHEMA_VERSION,
    })
}

/// Refuses a wish by itself, before any run is read.
///
/// # Errors
/// What is too big, missing, or no number that can be kept.
pub fn check_wish(wish: &PromoteGold) -> Result<(), GoldDenial> {
    if wish.rubric.trim().is_empty() {
        return Err(GoldDenial::NoRubric);
    }
    if wish.rubric.len() > RUBRIC_BYTES_MAX {
        let bytes = wish.rubric.len();
        return Err(GoldDenial::TooBig { field: "rubric", bytes, max: RUBRIC_BYTES_MAX });
    }
    check_size("expectedOutput", &wish.expected_output)
}

fn check_size(field: &'static str, value: &Value) -> Result<(), GoldDenial> {
    let bytes = canonical::canonical_bytes(value)?.len();
    if bytes > GOLD_VALUE_BYTES_MAX {
        return Err(GoldDenial::TooBig { field, bytes, max: GOLD_VALUE_BYTES_MAX });
    }
    Ok(())
}
