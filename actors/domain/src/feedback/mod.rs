//! Feedback (FBK): whether a new version of an agent does better than the one in use, and what is kept to try versions on.
//!
//! A rollout sends a share of an agent's runs to another version, or lets that version work unseen beside the one in use.
//! What came of the runs is counted, and only a difference that chance does not explain makes the new version the champion.
//!
//! Deliberately absent: when anything is counted. Outcomes are read off the rows of runs, so there is no moment at which a
//! crash could lose or double one.

pub mod gold_set;
pub mod outcome;
pub mod readiness;
pub mod rollout;
pub mod routing;
