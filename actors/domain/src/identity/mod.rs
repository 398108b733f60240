//! Who acts, and who may do and see what. Identity comes from a credential alone, never from a message (EXE-007).
//!
//! Pure: whether a signature holds is found out at the edge; what a verified credential says, and what follows from it, is
//! decided here.

mod authority;
mod caller;
mod claims;
mod key;
mod role;
mod runs;
mod scope;

pub use authority::{Action, Reach, TenantDenied, may_see, reach, tenant_of};
pub use caller::{Actor, Caller, RESERVED_PREFIXES};
pub use claims::{ClaimNames, ClaimRules, ClaimsError, LEEWAY_SECONDS_DEFAULT, LEEWAY_SECONDS_MAX, read_claims};
pub use key::{
    ApiKey, KEY_PREFIX, KEY_TTL_SECONDS_DEFAULT, KEY_TTL_SECONDS_MAX, KeyDenial, KeyState, KeyText, NewKey, Revoked,
    SECRET_BYTES, last_used_shown, may_create,
};
pub use role::{Role, Visibility};
pub use runs::{OthersDenied, Scope, Whose, scope_of};
pub use scope::{APPROVE_GUARDIAN, APPROVE_TEACHER, SCOPES_MAX, check_scopes};
