//! The tool catalog (CAT): what each tool is, may cost and needs.

use serde::{Deserialize, Serialize};

/// What happens to a pending call whose outcome is not known after a crash (RUN-026).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// It is dispatched again under the same call id.
    Idempotent,
    /// The executor is asked for the outcome of the call id.
    Deduplicating,
    /// It settles as `unknown` and an operator is asked.
    #[default]
    AtMostOnce,
}
