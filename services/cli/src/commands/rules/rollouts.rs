//! Rollouts as documents: begun, and never moved: what has become of one is decided by those who watch it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_domain::feedback::rollout::{self, RolloutMode, StartRollout};
use signalbox_domain::governance::switching::Operator;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, AgentId, RolloutId, TenantId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::time::UnixMs;
use signalbox_proto::v1;

use super::{Planned, Services};
use crate::client::{Feedback, timed};
use crate::failure::Failure;
use crate::manifest::{Document, Kind};

/// A rollout in a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    rollout_id: RolloutId,
    agent_id: AgentId,
    champion_semver: String,
    challenger_semver: String,
    mode: RolloutMode,
    #[serde(default)]
    canary_fraction: Micros,
}

/// What applying it comes to. One that was frozen, promoted, rolled back or ended stays what it is.
pub(super) async fn plan(services: &mut Services, document: Document) -> Result<Planned, Failure> {
    let wanted = read(&document)?;
    let after = value(&wanted)?;
    let planned = |document, before, after, moot| Ok(Planned { document, before, after, revision: 0, moot });
    let known = list(&mut services.feedback, true).await?;
    if let Some(standing) = known.iter().find(|known| known.rollout_id == document.id()) {
        let before = value(&rule(standing)?)?;
        let moot = match standing.state.as_str() {
            "live" => None,
            "frozen" => Some("it is frozen"),
            _ => Some("it is over"),
        };
        if moot.is_none() && before != after {
            let message = "it is live and says something else; a rollout is never changed";
            return Err(Failure::new("rollout-id-conflict", message).next("choose another id, and end this one first"));
        }
        return planned(document, Some(before), after, moot);
    }
    judge(services, &document, wanted).await?;
    planned(document, None, after, None)
}

/// Held against the rules of beginning one. Whether the caller may, and whether another is open, is for the node to say.
async fn judge(services: &mut Services, document: &Document, wanted: Rule) -> Result<(), Failure> {
    let invalid = |message: String| Failure::usage("rollout-invalid", message);
    let tenant_id = document.tenant.as_deref().map(TenantId::new).transpose();
    let tenant_id = tenant_id.map_err(|error| invalid(format!("tenant: {error}")))?;
    let mut stand = Vec::new();
    for semver in [&wanted.champion_semver, &wanted.challenger_semver] {
        let (agents, client) = (&mut services.agents, &mut services.registry);
        stand.push((semver.clone(), agents.stands(client, tenant_id.as_ref(), &wanted.agent_id, semver).await?));
    }
    let actor_id = ActorId::new("apply").map_err(|error| invalid(error.to_string()))?;
    let actor = Actor { actor_id, role: Role::PlatformOperator };
    let of = match &tenant_id {
        Some(tenant) => tenant.clone(),
        None => TenantId::new("platform").map_err(|error| invalid(error.to_string()))?,
    };
    let wish = StartRollout {
        rollout_id: wanted.rollout_id,
        tenant_id,
        agent_id: wanted.agent_id,
        champion_semver: wanted.champion_semver,
        challenger_semver: wanted.challenger_semver,
        mode: wanted.mode,
        canary_fraction: wanted.canary_fraction,
        reason: document.reason(),
    };
    let stands = |_: &AgentId, semver: &str| stand.iter().find(|(known, _)| known == semver).and_then(|(_, at)| *at);
    let judged = rollout::start(wish, Operator { tenant_id: &of, actor: &actor }, &[], stands, UnixMs(0));
    judged.map_err(|denial| Failure::usage(denial.code(), denial.to_string()))?;
    Ok(())
}

/// Begins it.
pub(super) async fn carry_out(client: &mut Feedback, planned: &Planned) -> Result<(), Failure> {
    let document = &planned.document;
    let rule = read(document)?;
    let mode = match rule.mode {
        RolloutMode::Shadow => v1::RolloutMode::Shadow,
        RolloutMode::Canary => v1::RolloutMode::Canary,
    };
    let request = v1::StartRolloutRequest {
        rollout_id: rule.rollout_id.to_string(),
        tenant_id: document.tenant.clone().unwrap_or_default(),
        platform_wide: document.platform_wide,
        agent_id: rule.agent_id.to_string(),
        champion_semver: rule.champion_semver,
        challenger_semver: rule.challenger_semver,
        mode: mode.into(),
        canary_fraction_micros: rule.canary_fraction.0,
        reason: document.reason(),
    };
    client.start_rollout(timed(request)).await?;
    Ok(())
}

/// The rollouts that are live. One that is frozen would be live where it is applied anew, so it is left out.
pub(super) async fn in_force(client: &mut Feedback) -> Result<Vec<Document>, Failure> {
    let known = list(client, false).await?;
    let live = known.iter().filter(|known| known.state == "live");
    live.map(|known| {
        let document = super::of_server(Kind::Rollout, &known.tenant_id, super::object(value(&rule(known)?)?)?)?;
        Ok(Document { reason: Some(known.reason.clone()), ..document })
    })
    .collect()
}

async fn list(client: &mut Feedback, all: bool) -> Result<Vec<v1::Rollout>, Failure> {
    Ok(client.list_rollouts(timed(v1::ListRolloutsRequest { all })).await?.into_inner().rollouts)
}

fn read(document: &Document) -> Result<Rule, Failure> {
    serde_json::from_value(Value::Object(document.spec.clone()))
        .map_err(|error| Failure::usage("rollout-invalid", format!("spec: {error}")))
}

fn rule(rollout: &v1::Rollout) -> Result<Rule, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::new("answer-invalid", format!("the server sent a rollout that cannot be read: {error}"))
    };
    Ok(Rule {
        rollout_id: RolloutId::new(&rollout.rollout_id).map_err(|error| unreadable(&error))?,
        agent_id: AgentId::new(&rollout.agent_id).map_err(|error| unreadable(&error))?,
        champion_semver: rollout.champion_semver.clone(),
        challenger_semver: rollout.challenger_semver.clone(),
        mode: match rollout.mode() {
            v1::RolloutMode::Shadow => RolloutMode::Shadow,
            v1::RolloutMode::Canary => RolloutMode::Canary,
            v1::RolloutMode::Unspecified => return Err(unreadable(&"it has no mode")),
        },
        canary_fraction: Micros(rollout.canary_fraction_micros),
    })
}

fn value(rule: &Rule) -> Result<Value, Failure> {
    serde_json::to_value(rule).map_err(|error| Failure::new("output-failed", error.to_string()))
}
