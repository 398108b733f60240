//! Which moves an agent's life cycle allows, and through whom (REG-037).

use serde::{Deserialize, Serialize};

use super::{AgentLifecycle, TenantScope};
use crate::ids::AgentId;

/// Through whom a version is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MovedBy {
    /// An operator, by hand.
    Operator,
    /// A promotion that the comparison of versions has allowed (FBK-011).
    Promotion,
    /// A rollback to the champion before (FBK-012).
    Rollback,
}

impl MovedBy {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Operator, Self::Promotion, Self::Rollback];
}

/// Why a version is not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoveDenial {
    /// The life cycle knows no such move.
    #[error("a version that is `{}` cannot become `{}`; from there it can become: {}", .from.as_str(), .to.as_str(), next(*.from))]
    NoSuchMove {
        /// Where it stands.
        from: AgentLifecycle,
        /// Where it was to go.
        to: AgentLifecycle,
    },
    /// A challenger becomes champion by its figures alone.
    #[error("a challenger becomes champion only by a promotion, which its figures must bear out; start a rollout")]
    OnlyByPromotion,
    /// A deprecated version becomes champion again by a rollback alone.
    #[error("a deprecated version becomes champion again only by a rollback; roll the agent back")]
    OnlyByRollback,
}

impl MoveDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchMove { .. } => "lifecycle-move-not-allowed",
            Self::OnlyByPromotion => "champion-only-by-promotion",
            Self::OnlyByRollback => "champion-only-by-rollback",
        }
    }
}

/// The twelve moves (REG-037).
pub const LIFECYCLE_MOVES: [(AgentLifecycle, AgentLifecycle); 12] = {
    use AgentLifecycle::{Challenger, Champion, Deprecated, Draft, Rehearsal, Retired, Shadow};
    [
        (Draft, Rehearsal),
        (Rehearsal, Draft),
        (Rehearsal, Shadow),
        (Shadow, Rehearsal),
        (Shadow, Challenger),
        (Shadow, Retired),
        (Challenger, Shadow),
        (Challenger, Champion),
        (Challenger, Retired),
        (Champion, Deprecated),
        (Deprecated, Champion),
        (Deprecated, Retired),
    ]
};

/// Whether a version may go from one state to another, through whom.
///
/// # Errors
/// That there is no such move, or that it takes a promotion or a rollback.
pub fn may_move(from: AgentLifecycle, to: AgentLifecycle, by: MovedBy) -> Result<(), MoveDenial> {
    if !LIFECYCLE_MOVES.contains(&(from, to)) {
        return Err(MoveDenial::NoSuchMove { from, to });
    }
    let needed = match (from, to) {
        (AgentLifecycle::Challenger, AgentLifecycle::Champion) => MovedBy::Promotion,
        (AgentLifecycle::Deprecated, AgentLifecycle::Champion) => MovedBy::Rollback,
        _ => MovedBy::Operator,
    };
    match needed {
        needed if needed == by => Ok(()),
        MovedBy::Promotion => Err(MoveDenial::OnlyByPromotion),
        MovedBy::Rollback => Err(MoveDenial::OnlyByRollback),
        // A promotion and a rollback move to champion and nowhere else.
        MovedBy::Operator => Err(MoveDenial::NoSuchMove { from, to }),
    }
}

/// What `experimental` says after a move: states that leave no choice set it (REG-010).
pub const fn experimental_after(to: AgentLifecycle, experimental: bool) -> bool {
    match to {
        AgentLifecycle::Rehearsal | AgentLifecycle::Shadow => true,
        AgentLifecycle::Champion | AgentLifecycle::Deprecated | AgentLifecycle::Retired => false,
        AgentLifecycle::Draft | AgentLifecycle::Challenger => experimental,
    }
}

/// A version that was moved; with it, the champion it took the place of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentMove {
    /// Whose agent.
    pub tenant_scope: TenantScope,
    /// Which.
    pub agent_id: AgentId,
    /// Which version.
    pub agent_semver: String,
    /// Where it stood.
    pub from: AgentLifecycle,
    /// Where it stands.
    pub to: AgentLifecycle,
    /// Through whom.
    pub by: MovedBy,
    /// The version that was champion until then, and is `deprecated` with the same entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demoted_semver: Option<String>,
}

fn next(from: AgentLifecycle) -> String {
    let next: Vec<&str> = LIFECYCLE_MOVES.iter().filter(|(at, _)| *at == from).map(|(_, to)| to.as_str()).collect();
    if next.is_empty() { "nothing any more".to_owned() } else { next.join(", ") }
}
