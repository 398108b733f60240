//! Whoever acts: as the journal names it, and as a credential describes it.

use serde::{Deserialize, Serialize};

use super::Role;
use crate::ids::{ActorId, TenantId};

/// Beginnings of actor ids that no token may claim: they are ours, and what they name is not a person.
pub const RESERVED_PREFIXES: [&str; 3] = ["system:", "key:", "dev:"];

/// Whoever caused something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    /// The id from the credential, or `system:…`.
    pub actor_id: ActorId,
    /// The standing it acts with.
    pub role: Role,
}

impl Actor {
    /// The runtime itself, acting by its rules.
    pub fn system() -> Self {
        Self { actor_id: ActorId::constant("system:run"), role: Role::PlatformOperator }
    }
}

/// Whoever calls, as its credential says and nothing else does (EXE-007).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant it acts in.
    pub tenant_id: TenantId,
    /// Who, in which standing.
    pub actor: Actor,
    /// What the credential allows, such as `tool:web.fetch`.
    pub scopes: Vec<String>,
    /// Where it calls from (INV-002), such as `api`.
    pub surface: &'static str,
}

impl Caller {
    /// True if the credential has this scope.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|own| own == scope)
    }
}
