//! Named approvers: who, of those a requirement lets answer, may answer one question.
//!
//! Names only narrow: whoever decides must meet the requirement of the gate as well. So a plan cannot lend anybody a
//! standing that its credential does not have.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::identity::{APPROVE_GUARDIAN, APPROVE_TEACHER, Actor, Role};
use crate::ids::ActorId;
use crate::run::plan::ApprovalRequirement;

/// Most people one gate may name.
pub const APPROVERS_MAX: usize = 50;

/// The people and roles that may answer; everybody else may not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approvers {
    /// People, by the id in their credential.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub actor_ids: BTreeSet<ActorId>,
    /// Everybody of these standings.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<Role>,
}

impl Approvers {
    /// True if the actor is named, by id or by role.
    pub fn names(&self, actor: &Actor) -> bool {
        self.actor_ids.contains(&actor.actor_id) || self.roles.contains(&actor.role)
    }

    /// What is wrong with naming these where that is required, and what would be right.
    pub(super) fn problem(&self, requirement: ApprovalRequirement) -> Option<String> {
        if matches!(requirement, ApprovalRequirement::None | ApprovalRequirement::UserConfirmBeforeProceed) {
            return Some("`requirement` says already who answers; leave `approvers` out".to_owned());
        }
        if self.actor_ids.is_empty() && self.roles.is_empty() {
            return Some("`approvers` names nobody; give `actorIds` or `roles`, or leave it out".to_owned());
        }
        if self.actor_ids.len() > APPROVERS_MAX {
            return Some(format!("`approvers.actorIds` may name at most {APPROVERS_MAX} people"));
        }
        let unfit = self.roles.iter().find(|role| !requirement.can_be_met_by(**role));
        unfit
            .map(|role| format!("`approvers.roles` names {}, which the requirement does not let answer", role.as_str()))
    }
}

impl ApprovalRequirement {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Operator => "operator",
            Self::Teacher => "teacher",
            Self::Guardian => "guardian",
            Self::UserConfirmBeforeProceed => "user-confirm-before-proceed",
        }
    }

    /// True if the standing may answer (HND-002). Whether it is the user who invoked the run is another question.
    // A teacher and a guardian are whoever the credential says is one, in whatever role: an operator is neither by itself.
    pub fn lets(self, role: Role, scopes: &[String]) -> bool {
        let has = |scope: &str| scopes.iter().any(|own| own == scope);
        match self {
            Self::None | Self::UserConfirmBeforeProceed => true,
            Self::Operator => self.can_be_met_by(role),
            Self::Teacher => has(APPROVE_TEACHER),
            Self::Guardian => has(APPROVE_GUARDIAN),
        }
    }

    /// True if somebody of this role can have the standing.
    pub const fn can_be_met_by(self, role: Role) -> bool {
        match self {
            Self::Operator => matches!(role, Role::TenantOperator | Role::PlatformOperator),
            Self::None | Self::UserConfirmBeforeProceed | Self::Teacher | Self::Guardian => true,
        }
    }
}
