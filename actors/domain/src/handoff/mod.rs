//! Hand-offs (HND): an agent gives part of its work, its authority and its money to another.
//!
//! Everything here is read off the stored chain, never off a request (HND-016). [`dispatch`] says whether a hand-off may be
//! made, [`sub_budget`] keeps the books between a parent and its children, [`handed`] is what a sub-run keeps of what it was
//! given, [`beginning`] makes a sub-run of a step, and [`ending`] brings its end back.

pub mod beginning;
pub mod dispatch;
pub mod ending;
pub mod handed;
pub mod handed_grants;
pub mod sub_budget;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, CommandId, RunKey};

/// One agent of a chain, the root first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChainLink {
    /// The agent.
    pub agent_id: AgentId,
    /// Whether an ancestor may be entered again. It counts at the root of a chain and nowhere else (HND-003).
    #[serde(default)]
    pub allow_cycle: bool,
}

/// Names what a run is told because something was said to a run above it: the same however often it is worked out.
pub fn command_from_above(run: RunKey, above: CommandId) -> CommandId {
    CommandId::new(run.derive("from-above", &above.to_string(), 0))
}

/// Names what is said to everything below a run because it has ended.
pub fn command_of_end(run: RunKey) -> CommandId {
    CommandId::new(run.derive("ended", "below", 0))
}

/// Who made something, from the root agent to the one that produced it (HND-014).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct AttributionChain(pub Vec<AgentId>);

/// The attribution of what the last agent of a chain produced (HND-014).
pub fn derive_attribution_chain(chain: &[ChainLink]) -> AttributionChain {
    AttributionChain(chain.iter().map(|link| link.agent_id.clone()).collect())
}

impl fmt::Display for AttributionChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, agent) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(" > ")?;
            }
            write!(f, "{agent}")?;
        }
        Ok(())
    }
}

impl AttributionChain {
    /// True if nobody is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
