//! What a node says of switches, budgets and acts, on the wire.

use std::time::Duration;

use signalbox_domain::governance::audit::{AuditEvent, AuditHead};
use signalbox_domain::governance::budget::{BudgetVerdict, EndedWindow};
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::ids::TenantId;
use signalbox_domain::time::UnixMs;
use signalbox_proto::v1;
use signalbox_runtime::{ArmedSwitch, BudgetHistory, BudgetStanding, SweptNode, SwitchStanding};

use crate::api::ApiError;
use crate::errors::Refusal;

pub(super) fn armed(armed: ArmedSwitch) -> v1::ArmSwitchResponse {
    v1::ArmSwitchResponse {
        replayed: armed.replayed,
        epoch: armed.epoch,
        committed_at_unix_ms: armed.committed_at.0,
        swept: armed.swept_after.is_some(),
        swept_after_micros: armed.swept_after.map_or(0, micros),
        switch: Some(switch(armed.standing)),
    }
}

pub(super) fn switch(standing: SwitchStanding) -> v1::KillSwitch {
    let SwitchStanding { switch, state, proposal, effect } = standing;
    let at = |time: Option<UnixMs>| time.map_or(0, |time| time.0);
    let lapses = proposal.as_ref().map_or(0, |open| open.lapses_at_unix_ms.0);
    let (by, why) = proposal.map_or_else(Default::default, |open| (open.proposed_by.to_string(), open.reason));
    v1::KillSwitch {
        switch_id: switch.switch_id.to_string(),
        tenant_id: tenant(switch.tenant_id.as_ref()),
        scope: scope(switch.scope).into(),
        target_id: switch.target_id.unwrap_or_default(),
        armed_by: switch.armed_by.to_string(),
        armed_at_unix_ms: switch.armed_at_unix_ms.0,
        reason: switch.reason,
        user_visible_status_copy: switch.user_visible_status_copy,
        safe_degradation_mode_id: switch.safe_degradation_mode_id.unwrap_or_default(),
        expires_at_unix_ms: at(switch.expires_at_unix_ms),
        disarmed_at_unix_ms: at(switch.disarmed_at_unix_ms),
        state: state.to_owned(),
        disarm_proposed_by: by,
        disarm_reason: why,
        disarm_lapses_at_unix_ms: lapses,
        effect: effect.map(|effect| v1::SwitchEffect {
            killed: effect.killed,
            left: effect.left,
            calls_out: effect.calls_out,
            nodes: effect.nodes.into_iter().map(swept).collect(),
        }),
    }
}

fn swept(node: SweptNode) -> v1::SweptNode {
    v1::SweptNode {
        node_id: node.node.to_string(),
        name: node.name,
        swept: node.swept_at.is_some(),
        swept_at_unix_ms: node.swept_at.map_or(0, |at| at.ms().0),
        swept_after_micros: node.swept_after.map_or(0, micros),
    }
}

fn micros(waited: Duration) -> i64 {
    i64::try_from(waited.as_micros()).unwrap_or(i64::MAX)
}

fn tenant(id: Option<&TenantId>) -> String {
    id.map(ToString::to_string).unwrap_or_default()
}

const fn scope(scope: SwitchScope) -> v1::SwitchScope {
    match scope {
        SwitchScope::Agent => v1::SwitchScope::Agent,
        SwitchScope::Family => v1::SwitchScope::Family,
        SwitchScope::Tenant => v1::SwitchScope::Tenant,
        SwitchScope::Provider => v1::SwitchScope::Provider,
        SwitchScope::Region => v1::SwitchScope::Region,
        SwitchScope::Tool => v1::SwitchScope::Tool,
        SwitchScope::Global => v1::SwitchScope::Global,
    }
}

pub(super) fn budget(standing: BudgetStanding) -> Result<v1::Budget, Refusal> {
    let BudgetStanding { metered, revision, verdict, next_window_unix_seconds } = standing;
    let rule = serde_json::to_vec(&metered.budget).map_err(|error| ApiError::Internal(error.to_string()))?;
    let verdict = match verdict {
        BudgetVerdict::Ok => "ok",
        BudgetVerdict::Warn => "warn",
        BudgetVerdict::Grace { .. } => "grace",
        BudgetVerdict::Exceeded => "exceeded",
    };
    Ok(v1::Budget {
        budget_id: metered.budget.budget_id.to_string(),
        tenant_id: tenant(metered.budget.tenant_id.as_ref()),
        budget_json: rule.into(),
        revision,
        window_start_unix_seconds: metered.meter.window_start_unix_seconds,
        consumed_micros: metered.meter.consumed.0,
        reserved_micros: metered.meter.reserved.0,
        limit_micros: metered.budget.limit.0,
        grace_end_unix_seconds: metered.meter.grace_end_unix_seconds.unwrap_or_default(),
        verdict: verdict.to_owned(),
        next_window_unix_seconds: next_window_unix_seconds.unwrap_or_default(),
    })
}

pub(super) fn history(history: BudgetHistory) -> v1::GetBudgetHistoryResponse {
    v1::GetBudgetHistoryResponse {
        windows: history.windows.into_iter().map(window).collect(),
        acts: history.acts.into_iter().map(act).collect(),
    }
}

fn window(window: EndedWindow) -> v1::BudgetWindow {
    v1::BudgetWindow {
        starts_unix_seconds: window.window_start_unix_seconds,
        ended_unix_seconds: window.ended_unix_seconds,
        consumed_micros: window.consumed.0,
        limit_micros: window.limit.0,
    }
}

pub(super) fn act(event: AuditEvent) -> v1::AuditEvent {
    v1::AuditEvent {
        seq: event.seq,
        at_unix_micros: event.at.0,
        tenant_id: tenant(event.tenant_id.as_ref()),
        actor_id: event.actor.actor_id.to_string(),
        actor_role: event.actor.role.as_str().to_owned(),
        kind: event.kind,
        subject: event.subject.to_string(),
        version: u32::from(event.version),
        epoch: event.epoch,
        body_json: event.body.into(),
        prev_hash: event.prev_hash.hex(),
        hash: event.hash.hex(),
    }
}

pub(super) fn head(head: AuditHead) -> v1::AuditHead {
    v1::AuditHead { seq: head.seq, hash: head.hash.hex(), at_unix_micros: head.at.0 }
}
