//! Plain values to start from; each test changes what it is about.

use signalbox_domain::governance::budget::{Budget, BudgetScope, MeteredBudget, OnExceeded};
use signalbox_domain::governance::grant::{Constraints, Grant, GrantScope};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::governance::target::Target;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{ActorId, AgentId, BudgetId, GrantId, PipelineId, ProviderId, RegionId, RunId, SwitchId};
use signalbox_domain::ids::{TenantId, ToolId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::time::UnixMs;

pub(crate) const RUN: &str = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";
pub(crate) const NOW: UnixMs = UnixMs(1_000_000_000_000);

pub(crate) fn tenant(id: &str) -> TenantId {
    TenantId::new(id).unwrap()
}

pub(crate) fn tool(id: &str) -> ToolId {
    ToolId::new(id).unwrap()
}

pub(crate) fn run_id() -> RunId {
    RUN.parse().unwrap()
}

/// A call of `memory.read` by a research agent of tenant `acme`.
pub(crate) fn target() -> Target {
    Target {
        tenant_id: tenant("acme"),
        run_id: run_id(),
        user_id: ActorId::new("ada").unwrap(),
        role: Role::Service,
        agent_id: AgentId::new("ref.research").unwrap(),
        family: Some("research".to_owned()),
        pipeline_id: Some(PipelineId::new("veritas.weekly_briefing_pack").unwrap()),
        tool_id: tool("memory.read"),
        provider_id: Some(ProviderId::new("local").unwrap()),
        region: Some(RegionId::new("eu-1").unwrap()),
    }
}

/// A hard budget of `limit` cost units for life, for tenant `acme`.
pub(crate) fn budget(id: &str, limit: i64) -> Budget {
    Budget {
        budget_id: BudgetId::new(id).unwrap(),
        tenant_id: Some(tenant("acme")),
        scope: BudgetScope::Tenant,
        scope_key: "acme".to_owned(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(limit),
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros::units(1),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    }
}

pub(crate) fn metered(budget: Budget, consumed: i64, reserved: i64) -> MeteredBudget {
    let mut metered = MeteredBudget::unused(budget);
    metered.meter.consumed = Micros::units(consumed);
    metered.meter.reserved = Micros::units(reserved);
    metered
}

/// An armed switch for all tenants.
pub(crate) fn switch(id: &str, scope: SwitchScope, target_id: Option<&str>) -> KillSwitch {
    KillSwitch {
        switch_id: SwitchId::new(id).unwrap(),
        tenant_id: None,
        scope,
        target_id: target_id.map(str::to_owned),
        armed_by: ActorId::new("operator").unwrap(),
        armed_at_unix_ms: UnixMs(1_000),
        reason: "incident".to_owned(),
        user_visible_status_copy: format!("stopped by {id}"),
        safe_degradation_mode_id: Some("read-only".to_owned()),
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    }
}

/// A live grant of `memory.read`, tied to what [`target`] has in this scope.
pub(crate) fn grant(id: &str, scope: GrantScope) -> Grant {
    let scope_key = match scope {
        GrantScope::PerRun => RUN,
        GrantScope::PerPipelineInstance => "instance-1",
        GrantScope::PerSession => "session-1",
        GrantScope::PerUser => "ada",
        GrantScope::PerTenant => "acme",
    };
    Grant {
        grant_id: GrantId::new(id).unwrap(),
        scope,
        scope_key: scope_key.to_owned(),
        tenant_id: tenant("acme"),
        tool_id: tool("memory.read"),
        tool_range: "^1.0.0".to_owned(),
        constraints: Constraints::default(),
        delegable: None,
        issued_by: ActorId::new("operator").unwrap(),
        issued_at_unix_ms: UnixMs(1_000),
        expires_at_unix_ms: Some(UnixMs(NOW.0 + 1)),
        revoked_at_unix_ms: None,
        rationale: "needed".to_owned(),
        audit_event_id: "audit-1".to_owned(),
        renewed_from_grant_id: None,
    }
}
