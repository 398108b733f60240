//! Who acts, and who may do and see what. Identity comes from a credential alone, never from a message (EXE-007).

mod caller;
mod role;

pub use caller::{Actor, Caller};
pub use role::{Role, Visibility};
