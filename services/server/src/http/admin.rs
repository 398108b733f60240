//! What operators do by hand or by script: kill switches, and one look at everything (KIL-006, DSH-013).

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use signalbox_domain::dashboard::OperatorSnapshot;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::ids::SwitchId;
use signalbox_ports::clock::{Clock as _, SystemClock};
use signalbox_proto::v1::{self, arm_switch_request::Expiry};
use signalbox_runtime::SwitchStanding;

use super::call::{Answered, Call, json};
use crate::governing::read;
use crate::listing::whose;
use crate::validate::bad;

/// What a switch stops.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scope {
    /// One agent.
    Agent,
    /// One family of agents, or a reserved plane.
    Family,
    /// One tenant.
    Tenant,
    /// One provider.
    Provider,
    /// One region.
    Region,
    /// One tool.
    Tool,
    /// Everything.
    Global,
}

/// A switch to be armed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ArmRequest {
    /// Names the switch: arming the same twice is one act. Left out, the server chooses.
    #[serde(default)]
    pub(crate) switch_id: String,
    /// What kind of thing it stops.
    pub(crate) scope: Scope,
    /// Which one; left out for `global`.
    #[serde(default)]
    pub(crate) target_id: String,
    /// Stops only calls of this tenant. Left out, and without `platformWide`: of the caller's.
    #[serde(default)]
    pub(crate) tenant_id: String,
    /// Stops calls of every tenant. For operators of the installation.
    #[serde(default)]
    pub(crate) platform_wide: bool,
    /// Why; kept for ever.
    pub(crate) reason: String,
    /// What customers are shown meanwhile; must be given.
    #[serde(default)]
    pub(crate) user_visible_status_copy: String,
    /// `cached-answer`, `read-only`, `queue-for-later` or `human-handover` (KIL-011).
    #[serde(default)]
    pub(crate) safe_degradation_mode_id: String,
    /// When it ends by itself, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub(crate) expires_at_unix_ms: Option<i64>,
    /// The same, counted from now.
    #[serde(default)]
    pub(crate) expires_after_seconds: Option<u64>,
    /// Answer only when nothing is left that it matches, or after half a minute.
    #[serde(default)]
    pub(crate) wait: bool,
}

/// Why a switch is disarmed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DisarmRequest {
    /// Why; kept for ever.
    pub(crate) reason: String,
}

/// A kill switch and what has become of it (KIL-005).
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Switch {
    /// Names the switch.
    switch_id: String,
    /// Stops only calls of this tenant; absent: of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<String>,
    /// What kind of thing it stops, such as `tool`.
    scope: &'static str,
    /// Which one; absent for `global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    target_id: Option<String>,
    /// `armed`, `disarmed` or `expired`.
    state: &'static str,
    /// Who armed it.
    armed_by: String,
    /// When, in milliseconds since the Unix epoch.
    armed_at_unix_ms: i64,
    /// Why.
    reason: String,
    /// What customers are shown.
    user_visible_status_copy: String,
    /// How to degrade gracefully.
    #[serde(skip_serializing_if = "Option::is_none")]
    safe_degradation_mode_id: Option<String>,
    /// When it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_unix_ms: Option<i64>,
    /// When it was disarmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    disarmed_at_unix_ms: Option<i64>,
    /// Who has asked to disarm it; another identity must do so too.
    #[serde(skip_serializing_if = "Option::is_none")]
    disarm_asked_by: Option<String>,
}

/// Kill switches.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SwitchList {
    /// In the order they were armed.
    kill_switches: Vec<Switch>,
}

/// A switch that is armed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Armed {
    /// The switch.
    switch: Switch,
    /// True if the same was armed before.
    replayed: bool,
    /// The epoch of governance since which no matching call is admitted.
    epoch: u64,
    /// When that was, by the store's clock.
    committed_at_unix_ms: i64,
    /// After how many milliseconds nothing was left that it matches; absent if that was not waited for, or not in vain.
    #[serde(skip_serializing_if = "Option::is_none")]
    swept_after_ms: Option<u64>,
}

/// What became of disarming.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disarmed {
    /// The switch.
    switch: Switch,
    /// False if another identity must confirm.
    disarmed: bool,
}

/// How many runs are in a bucket.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Count {
    /// The bucket, such as `attention`.
    bucket: &'static str,
    /// How many.
    runs: u64,
    /// True if there are more than were counted.
    at_least: bool,
}

/// What stands where, at one instant.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    /// When it was taken, in milliseconds since the Unix epoch.
    taken_at_unix_ms: i64,
    /// Whose runs are counted; absent: everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<String>,
    /// One for each bucket.
    counts: Vec<Count>,
    /// The switches in force that can stop these runs, in the order they were armed.
    active_switches: Vec<Switch>,
    /// The epoch of governance that the switches are as of.
    governance_epoch: u64,
}

/// `GET /api/admin/agentic-operations/snapshot`
pub(super) fn snapshot(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let whose = whose(call.query.text("tenantId"), call.query.flag("allTenants")?.unwrap_or(false))?;
        json(StatusCode::OK, &taken(call.runs.api.snapshot(&caller, whose).await?))
    })
}

/// `GET /api/admin/agentic-operations/kill-switches`
pub(super) fn switches(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let all = call.query.flag("all")?.unwrap_or(false);
        let known = call.runs.governance.switches(&caller).await?.into_iter();
        let shown = known.filter(|standing| all || standing.state == "armed").map(standing);
        json(StatusCode::OK, &SwitchList { kill_switches: shown.collect() })
    })
}

/// `POST /api/admin/agentic-operations/kill-switches`
pub(super) fn arm(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let wish: ArmRequest = call.body().await?;
        let wait = wish.wait;
        let order = read::order(asked(wish)?, call.runs.ids.fresh(), SystemClock.now())?;
        let armed = call.runs.governance.arm_switch(&caller, order, wait).await?;
        let status = if armed.replayed { StatusCode::OK } else { StatusCode::CREATED };
        let answer = Armed {
            switch: standing(armed.standing),
            replayed: armed.replayed,
            epoch: armed.epoch,
            committed_at_unix_ms: armed.committed_at.0,
            swept_after_ms: armed.swept_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        };
        json(status, &answer)
    })
}

/// `POST /api/admin/agentic-operations/kill-switches/{switchId}/disarm`
pub(super) fn disarm(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let switch_id: SwitchId = call.id("switchId")?;
        let DisarmRequest { reason } = call.body().await?;
        let reason = read::text("reason", reason)?;
        let answer = call.runs.governance.disarm_switch(&caller, &switch_id, &reason).await?;
        json(StatusCode::OK, &Disarmed { disarmed: answer.disarmed, switch: standing(answer.standing) })
    })
}

// The same request as over gRPC, so that it is read by the same rules.
fn asked(wish: ArmRequest) -> Result<v1::ArmSwitchRequest, crate::errors::Refusal> {
    let expiry = match (wish.expires_at_unix_ms, wish.expires_after_seconds) {
        (Some(_), Some(_)) => {
            let message = "`expiresAtUnixMs` and `expiresAfterSeconds` exclude each other; give one";
            return Err(bad("expiry-invalid", "expiresAfterSeconds", message));
        }
        (Some(at), None) => Some(Expiry::ExpiresAtUnixMs(at)),
        (None, Some(seconds)) => Some(Expiry::ExpiresAfterSeconds(seconds)),
        (None, None) => None,
    };
    let scope = match wish.scope {
        Scope::Agent => v1::SwitchScope::Agent,
        Scope::Family => v1::SwitchScope::Family,
        Scope::Tenant => v1::SwitchScope::Tenant,
        Scope::Provider => v1::SwitchScope::Provider,
        Scope::Region => v1::SwitchScope::Region,
        Scope::Tool => v1::SwitchScope::Tool,
        Scope::Global => v1::SwitchScope::Global,
    };
    Ok(v1::ArmSwitchRequest {
        switch_id: wish.switch_id,
        scope: scope.into(),
        target_id: wish.target_id,
        tenant_id: wish.tenant_id,
        platform_wide: wish.platform_wide,
        reason: wish.reason,
        user_visible_status_copy: wish.user_visible_status_copy,
        safe_degradation_mode_id: wish.safe_degradation_mode_id,
        wait: wish.wait,
        expiry,
        dry_run: false,
    })
}

fn standing(standing: SwitchStanding) -> Switch {
    let asked_by = standing.proposal.map(|proposal| proposal.proposed_by.to_string());
    Switch { disarm_asked_by: asked_by, ..switch(standing.switch, standing.state) }
}

fn switch(switch: KillSwitch, state: &'static str) -> Switch {
    Switch {
        switch_id: switch.switch_id.to_string(),
        tenant_id: switch.tenant_id.map(|id| id.to_string()),
        scope: switch.scope.as_str(),
        target_id: switch.target_id,
        state,
        armed_by: switch.armed_by.to_string(),
        armed_at_unix_ms: switch.armed_at_unix_ms.0,
        reason: switch.reason,
        user_visible_status_copy: switch.user_visible_status_copy,
        safe_degradation_mode_id: switch.safe_degradation_mode_id,
        expires_at_unix_ms: switch.expires_at_unix_ms.map(|at| at.0),
        disarmed_at_unix_ms: switch.disarmed_at_unix_ms.map(|at| at.0),
        disarm_asked_by: None,
    }
}

fn taken(snapshot: OperatorSnapshot) -> Snapshot {
    let count = |of: signalbox_domain::dashboard::BucketCount| Count {
        bucket: of.bucket.as_str(),
        runs: of.runs,
        at_least: of.at_least,
    };
    Snapshot {
        taken_at_unix_ms: snapshot.taken_at_unix_ms.0,
        tenant_id: snapshot.tenant_id.map(|id| id.to_string()),
        counts: snapshot.counts.0.into_iter().map(count).collect(),
        active_switches: snapshot.active_switches.into_iter().map(|known| switch(known, "armed")).collect(),
        governance_epoch: snapshot.governance_epoch,
    }
}
