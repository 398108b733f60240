//! Whose runs a caller may ask for at once: lists, counts, the snapshot of operators (DSH, I11).

use super::{Action, Caller, Reach, Role, reach};
use crate::ids::{ActorId, TenantId};

/// Whose runs are meant. Whatever is not the caller's own needs an operator of the whole installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// The caller's tenant's.
    Own,
    /// This tenant's.
    Of(TenantId),
    /// Everybody's.
    All,
}

/// Whose runs are looked at. It comes from the caller's credential, beside any filter, so that no filter reaches beyond it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Those that one actor of a tenant submitted.
    Submitter(TenantId, ActorId),
    /// One tenant's.
    Tenant(TenantId),
    /// Everybody's: for operators of the whole installation.
    AllTenants,
}

/// The caller asked for what belongs to other tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("only an operator of the whole installation may ask for what belongs to other tenants")]
pub struct OthersDenied;

impl Scope {
    /// The tenant it is within, if it is within one.
    pub const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Submitter(tenant, _) | Self::Tenant(tenant) => Some(tenant),
            Self::AllTenants => None,
        }
    }
    /// The actor whose runs alone are in it, if there is one.
    pub const fn submitter(&self) -> Option<&ActorId> {
        match self {
            Self::Submitter(_, actor) => Some(actor),
            Self::Tenant(_) | Self::AllTenants => None,
        }
    }
}

/// Whose runs the caller is shown when it asks for these. Whoever is no operator is shown its own alone.
///
/// # Errors
/// Another tenant's, or everybody's, whether or not there is a tenant of that name (I11).
pub fn scope_of(caller: &Caller, whose: Whose) -> Result<Scope, OthersDenied> {
    let own = || Scope::Submitter(caller.tenant_id.clone(), caller.actor.actor_id.clone());
    let all = caller.actor.role == Role::PlatformOperator;
    let own_alone = reach(caller.actor.role, Action::ReadRuns) < Reach::Tenant;
    match whose {
        Whose::Own if own_alone => Ok(own()),
        Whose::Of(tenant) if own_alone && tenant == caller.tenant_id => Ok(own()),
        Whose::Own => Ok(Scope::Tenant(caller.tenant_id.clone())),
        Whose::Of(tenant) if all || tenant == caller.tenant_id => Ok(Scope::Tenant(tenant)),
        Whose::All if all => Ok(Scope::AllTenants),
        Whose::Of(_) | Whose::All => Err(OthersDenied),
    }
}
