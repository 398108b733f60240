//! `check gate`, `check budget`, `check throttle`, `check grant`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::catalog;
use signalbox_domain::governance::budget::{Budget, BudgetVerdict, Meter, MeteredBudget, check_budget};
use signalbox_domain::governance::change::GovernanceState;
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::governance::gate::{self, Attempt, ControlState, Snapshot};
use signalbox_domain::governance::grant::{Grant, GrantQuery, resolve_grant};
use signalbox_domain::governance::isolation::SecretRule;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::governance::target::Target;
use signalbox_domain::governance::throttle::{
    Bucket, BucketRule, TOKENS_PER_CALL, Throttled, applies, fresh, take_all,
};
use signalbox_domain::governance::verdict::Verdict as GateVerdict;
use signalbox_domain::ids::{ActorId, GrantId, RunId, SecretId, TenantId, ToolId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::time::UnixMs;

use super::{Verdict, read, verdict};

/// One call and everything it is judged by.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    target: Target,
    now_unix_ms: UnixMs,
    #[serde(default)]
    args: Value,
    /// The version an executor serves; that of the catalog if left out.
    tool_semver: Option<String>,
    /// The scopes of the caller's credential; the tool's own if left out.
    scopes: Option<Vec<String>>,
    #[serde(default)]
    switches: Vec<KillSwitch>,
    #[serde(default)]
    grants: Vec<Grant>,
    #[serde(default)]
    grant_uses: BTreeMap<GrantId, u64>,
    #[serde(default)]
    budgets: Vec<Metered>,
    #[serde(default)]
    buckets: Vec<Filled>,
    #[serde(default)]
    exempt: Vec<HostExemption>,
    /// Who may use which secret.
    #[serde(default)]
    secrets: Vec<SecretRule>,
    /// The secret at each handle in `args`, by JSON Pointer.
    #[serde(default)]
    secret_handles: BTreeMap<String, SecretId>,
    /// Why the step's gate has not let this call through; left out if it has, or if the step has no gate.
    unapproved: Option<String>,
    #[serde(default)]
    control: Control,
}

/// What has arrived for the run.
#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Control {
    #[default]
    None,
    Paused,
    Ending,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metered {
    budget: Budget,
    #[serde(default)]
    meter: Meter,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filled {
    rule: BucketRule,
    /// How it stands; full if left out.
    bucket: Option<Bucket>,
}

pub(super) fn gate(line: Value) -> Verdict {
    let call: Call = read(line)?;
    for grant in &call.grants {
        grant.validate().map_err(|error| format!("the grant `{}`: {error}", grant.grant_id))?;
    }
    let mut budgets = Vec::with_capacity(call.budgets.len());
    for Metered { budget, meter } in call.budgets {
        budget.validate().map_err(|error| format!("the budget `{}`: {error}", budget.budget_id))?;
        budgets.push(MeteredBudget { budget, meter });
    }
    let throttled = throttled(call.buckets, &call.target, call.now_unix_ms)?;
    let entry = catalog::entry(&call.target.tool_id);
    let scopes = call.scopes.or_else(|| entry.map(|entry| entry.required_scopes.clone())).unwrap_or_default();
    let state = GovernanceState { switches: call.switches, grants: call.grants, ..GovernanceState::default() };
    let attempt = Attempt {
        declared: true,
        target: &call.target,
        tool: entry,
        configured_semver: call.tool_semver.as_deref().or(entry.map(|entry| entry.semver.as_str())),
        scopes: &scopes,
        args: &call.args,
        secrets: &call.secret_handles,
        unapproved: call.unapproved.as_deref(),
        control: match call.control {
            Control::None => ControlState::None,
            Control::Paused => ControlState::Paused,
            Control::Ending => ControlState::Ending,
        },
        redispatch: false,
        rehearsal: false,
        guarded: false,
        now: call.now_unix_ms,
    };
    let snapshot = Snapshot {
        governance_current: true,
        state: &state,
        // The figures on the line are the store's own, not a node's forecast of them: what they refuse is refused.
        shared_budgets: &[],
        run_budgets: &budgets,
        run_grants: &[],
        grant_uses: &call.grant_uses,
        throttled,
        exempt: &call.exempt,
        secrets: &call.secrets,
    };
    let decision = gate::gate(&attempt, &snapshot);
    let blamed = match &decision.verdict {
        GateVerdict::Kill(blame) => json!(blame.id()),
        GateVerdict::Pause { budget_id, .. } => json!(budget_id),
        GateVerdict::Throttle(throttled) => json!(throttled.bucket_id),
        GateVerdict::Admit(_) | GateVerdict::Simulate(_) | GateVerdict::Deny { .. } | GateVerdict::Hold { .. } => {
            Value::Null
        }
    };
    let (grant, ceiling) = if let GateVerdict::Admit(admissible) = &decision.verdict {
        (json!(admissible.grant.grant_id), json!(admissible.ceiling))
    } else {
        (Value::Null, Value::Null)
    };
    let objection = decision.objection();
    Ok(verdict([
        ("verdict", decision.verdict.outcome().into()),
        ("stage", json!(objection.map(|answer| answer.stage))),
        ("code", json!(objection.map(|answer| &answer.code))),
        ("detail", json!(objection.map(|answer| &answer.detail))),
        ("blamedId", blamed),
        ("grantId", grant),
        ("ceiling", ceiling),
        ("answers", json!(decision.answers)),
    ]))
}

fn throttled(buckets: Vec<Filled>, target: &Target, now: UnixMs) -> Result<Option<Throttled>, String> {
    let mut filled = Vec::with_capacity(buckets.len());
    for Filled { rule, bucket } in buckets {
        rule.validate().map_err(|error| format!("the bucket `{}`: {error}", rule.bucket_id))?;
        let bucket = bucket.unwrap_or_else(|| fresh(&rule, now.0));
        filled.push((rule, bucket));
    }
    let mut pairs: Vec<_> =
        filled.iter_mut().filter(|(rule, _)| applies(rule, target)).map(|(rule, bucket)| (&*rule, bucket)).collect();
    Ok(take_all(&mut pairs, TOKENS_PER_CALL, now.0).err())
}

/// A budget, how it stands, and what one more call may use.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spend {
    budget: Budget,
    #[serde(default)]
    meter: Meter,
    estimate: Micros,
    now_unix_seconds: i64,
}

pub(super) fn budget(line: Value) -> Verdict {
    let Spend { budget, meter, estimate, now_unix_seconds } = read(line)?;
    budget.validate().map_err(|error| error.to_string())?;
    let found = check_budget(&budget, &meter, estimate, now_unix_seconds);
    let (word, grace_end) = match found {
        BudgetVerdict::Ok => ("ok", None),
        BudgetVerdict::Warn => ("warn", None),
        BudgetVerdict::Grace { grace_end_unix_seconds } => ("grace", Some(grace_end_unix_seconds)),
        BudgetVerdict::Exceeded => ("exceeded", None),
    };
    let follows = (found == BudgetVerdict::Exceeded).then_some(budget.on_exceeded);
    Ok(verdict([("verdict", word.into()), ("graceEndUnixSeconds", json!(grace_end)), ("onExceeded", json!(follows))]))
}

/// A bucket, how it stands, and when one more call comes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Take {
    rule: BucketRule,
    bucket: Option<Bucket>,
    #[serde(default = "one_token")]
    tokens: Micros,
    now_ms: i64,
}

const fn one_token() -> Micros {
    TOKENS_PER_CALL
}

pub(super) fn throttle(line: Value) -> Verdict {
    let Take { rule, bucket, tokens, now_ms } = read(line)?;
    rule.validate().map_err(|error| error.to_string())?;
    if tokens <= Micros::ZERO || tokens > rule.capacity {
        return Err("`tokens` must be above 0 and at most the capacity, or no call ever passes".to_owned());
    }
    let mut bucket = bucket.unwrap_or_else(|| fresh(&rule, now_ms));
    let taken = take_all(&mut [(&rule, &mut bucket)], tokens, now_ms);
    let (word, wait) = match taken {
        Ok(()) => ("ok", None),
        Err(throttled) => ("throttled", Some(throttled.retry_after_seconds)),
    };
    Ok(verdict([("verdict", word.into()), ("retryAfterSeconds", json!(wait)), ("bucket", json!(bucket))]))
}

/// Some grants, and what one is looked for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ask {
    grants: Vec<Grant>,
    query: Query,
    now_unix_ms: UnixMs,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Query {
    tenant_id: TenantId,
    tool_id: ToolId,
    tool_semver: String,
    run_id: RunId,
    user_id: ActorId,
    session_id: Option<String>,
    pipeline_instance: Option<String>,
}

pub(super) fn grant(line: Value) -> Verdict {
    let Ask { grants, query, now_unix_ms } = read(line)?;
    for grant in &grants {
        grant.validate().map_err(|error| format!("the grant `{}`: {error}", grant.grant_id))?;
    }
    let query = GrantQuery {
        tenant_id: &query.tenant_id,
        tool_id: &query.tool_id,
        tool_semver: &query.tool_semver,
        run_id: query.run_id,
        user_id: &query.user_id,
        session_id: query.session_id.as_deref(),
        pipeline_instance: query.pipeline_instance.as_deref(),
    };
    Ok(match resolve_grant(grants.iter(), &query, now_unix_ms) {
        Ok(grant) => verdict([("verdict", "granted".into()), ("grantId", json!(grant.grant_id))]),
        Err(reason) => verdict([("verdict", "denied".into()), ("reason", json!(reason))]),
    })
}
