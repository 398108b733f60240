//! Feedback (FBK): whether a new version of an agent does better than the one in use.
//!
//! Deliberately absent so far: rollouts and gold sets, which are rows of a store.

pub mod readiness;
