//! How a run ended, what it gives, what was decided on the way, and what stopped it.

use serde::{Deserialize, Serialize};

use super::ArtifactRef;
use crate::governance::budget::MeterReading;
use crate::ids::{ActorId, BudgetId, CallId, RunId, StageId, StepId, SwitchId, TenantId};
use crate::quantity::{Micros, Usage};
use crate::run::status::RunStatus;
use crate::time::UnixMs;

/// Labels of decisions (RUN-017, RUN-018).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DecisionLabel {
    /// The plan was made anew.
    PlanReplanned,
    /// A gate said no.
    GateFailed,
    /// The stage had nothing to stand on.
    Abstained,
    /// A gate said yes.
    GatePassed,
    /// A branch was chosen.
    BranchChosen,
    /// The fallback model was used.
    ModelFallback,
    /// An optional tool was left out.
    ToolSkipped,
    /// Something was tried again.
    Retry,
    /// A degraded answer was given.
    Degraded,
    /// A sub-run was started.
    HandoffDispatched,
}

/// A stop, an overrun, or a claim that was not believed, for the audit trail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "audit", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum GovernanceAudited {
    /// A switch matched.
    KillSwitch {
        /// Which.
        switch_id: SwitchId,
        /// Who armed it.
        armed_by: ActorId,
        /// When.
        armed_at_unix_ms: UnixMs,
        /// Why.
        reason: String,
    },
    /// A budget was exceeded.
    Budget {
        /// Which.
        budget_id: BudgetId,
        /// What the store read when it refused.
        readings: Vec<MeterReading>,
    },
    /// A tool reported more than it had reserved, or nonsense.
    Overshoot {
        /// The call.
        call_id: CallId,
        /// What it reported beyond its ceiling, per category; empty if the report was nonsense.
        beyond: Usage,
        /// In words.
        detail: String,
    },
    /// A sub-run used more than it was given (HND-012). It is charged in full.
    #[serde(rename = "subagent_budget_exceeded")]
    SubagentBudgetExceeded {
        /// The sub-run.
        child_run_id: RunId,
        /// What it was given.
        given: Micros,
        /// What it used.
        used: Micros,
        /// The difference.
        beyond: Micros,
    },
    /// A submission named another tenant than its credential does, which changed nothing (EXE-019).
    IdentityMismatch {
        /// What the submission said; the run belongs to the tenant of the credential.
        claimed_tenant_id: TenantId,
    },
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunFinished {
    /// One of the four terminal statuses.
    pub status: RunStatus,
    /// Stable code of the reason; absent for `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the customer is shown (ADM-003).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_visible_status_copy: Option<String>,
    /// How to degrade gracefully (KIL-011).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_degradation_mode_id: Option<String>,
    /// The switch or budget that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blamed_id: Option<String>,
    /// The step that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// What the run gives (RUN-019).
    pub outputs: Vec<RunOutputBundle>,
}

/// A set of artifacts the run gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunOutputBundle {
    /// What kind of output.
    pub kind: OutputKind,
    /// The stage it comes from.
    pub stage_id: StageId,
    /// The artifacts.
    pub artifacts: Vec<ArtifactRef>,
}

/// Kinds of output bundles (RUN-019).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OutputKind {
    /// The result.
    Final,
    /// On the way.
    Intermediate,
    /// To look at.
    Preview,
    /// What there was when the run failed.
    PartialOnFailure,
}
