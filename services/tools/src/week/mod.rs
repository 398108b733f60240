//! week
pub(crate) mod tools;
