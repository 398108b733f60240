//! What operators do with new versions of agents: rollouts, and runs to go by (FBK-014).

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_domain::feedback::gold_set::DurableGoldSetEntryRow;
use signalbox_domain::feedback::outcome::Tally;
use signalbox_domain::ids::RolloutId;
use signalbox_domain::quantity::Micros;
use signalbox_proto::v1;
use signalbox_runtime::{RolloutStanding, RolloutStep};

use super::call::{Answered, Call, json};
use crate::errors::Refusal;
use crate::feedback::read;
use crate::governing::read::{expected, text};
use crate::validate::{self, bad};

/// How a new version is tried.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RolloutModeName {
    /// It works beside the champion, and its answer reaches nobody.
    Shadow,
    /// A share of the users gets it.
    Canary,
}

/// What is done to a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transition {
    /// It is begun.
    StartRollout,
    /// The challenger becomes champion, if it is ready.
    PromoteChallengerToChampion,
    /// Everything goes to the champion for now.
    FreezeRollout,
    /// It goes on from where it was.
    UnfreezeRollout,
    /// The champion from before the promotion is champion again.
    RollbackToPriorChampion,
    /// It is given up.
    EndRollout,
}

/// A rollout to be begun or moved.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RolloutRequest {
    /// The rollout.
    pub(crate) rollout_id: String,
    /// What is done to it.
    pub(crate) transition: Transition,
    /// Why; kept for ever.
    pub(crate) reason: String,
    /// The revision you have seen: refused if there is a later one.
    #[serde(default)]
    pub(crate) expected_revision: u64,
    /// Only to begin one: what is to be tried.
    #[serde(default)]
    pub(crate) start: Option<StartFields>,
}

/// What a new rollout tries.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StartFields {
    /// The agent.
    pub(crate) agent_id: String,
    /// The version in use.
    pub(crate) champion_semver: String,
    /// The version to be tried.
    pub(crate) challenger_semver: String,
    /// How.
    pub(crate) mode: RolloutModeName,
    /// The share of users that get the challenger, from 0 to 0.5 with at most six places; 0 in mode `shadow`.
    #[serde(default)]
    pub(crate) canary_fraction: f64,
    /// Only runs of this tenant are routed. Left out, and without `platformWide`: of the caller's.
    #[serde(default)]
    pub(crate) tenant_id: String,
    /// Everybody's runs are routed. For operators of the installation.
    #[serde(default)]
    pub(crate) platform_wide: bool,
}

/// What the runs of one side have come to.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ArmTallyView {
    /// Runs that count as success.
    successes: u64,
    /// Runs that are over.
    n: u64,
    /// How many of those can still be complained about.
    still_open: u64,
}

/// What the runs of a rollout say of its challenger.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Readiness {
    /// `not-enough-samples`, `inconclusive`, `challenger-worse` or `challenger-ready`.
    verdict: &'static str,
    /// Runs of the champion.
    champion: ArmTallyView,
    /// Runs of the challenger.
    challenger: ArmTallyView,
    /// Positive if the challenger does better; absent without samples of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    z: Option<f64>,
    /// How likely such a difference is by chance; absent without samples of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<f64>,
}

/// A rollout, with its figures as they are now.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RolloutView {
    /// The id.
    rollout_id: String,
    /// Only runs of this tenant are routed; absent: those of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<String>,
    /// The agent.
    agent_id: String,
    /// The version in use when it began.
    champion_semver: String,
    /// The version that is tried.
    challenger_semver: String,
    /// `shadow` or `canary`.
    mode: &'static str,
    /// The share of users that get the challenger.
    canary_fraction: f64,
    /// `live`, `frozen`, `promoted`, `rolled-back` or `ended`.
    state: &'static str,
    /// The version that the promotion has replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    prior_champion: Option<String>,
    /// The last act on it.
    revision: u64,
    /// What its runs have come to.
    readiness: Readiness,
}

/// A run whose input is to go into a gold set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GoldRequest {
    /// The set; one that is not there begins with this entry.
    pub(crate) gold_set_id: String,
    /// A completed run of the caller's tenant.
    pub(crate) source_run_id: String,
    /// What a run on its input should give.
    pub(crate) expected_output: Value,
    /// How to judge what it gives.
    pub(crate) rubric: String,
}

/// One entry of a gold set (FBK-015).
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GoldEntry {
    /// The id.
    entry_id: String,
    /// The set.
    gold_set_id: String,
    /// The lead agent of the run.
    agent_id: String,
    /// Its version.
    agent_semver: String,
    /// Lower-case hex SHA-256 of the input as canonical JSON.
    input_hash: String,
    /// What the run was given, redacted.
    input: Value,
    /// What a run on it should give.
    expected_output: Value,
    /// How to judge what it gives.
    rubric: String,
    /// Who has put it in.
    promoted_by: String,
    /// When, in milliseconds since the Unix epoch.
    promoted_at: i64,
    /// The run.
    source_run_id: String,
    /// Version of the row.
    schema_version: u16,
}

/// `POST /api/admin/agentic-operations/champion-challengers/rollout`
pub(super) fn rollout(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let wish: RolloutRequest = call.body().await?;
        let step = match (wish.transition, wish.start) {
            (Transition::StartRollout, Some(fields)) => {
                let request = asked(wish.rollout_id, wish.reason, fields)?;
                let standing =
                    call.runs.feedback.start_rollout(&caller, read::wish(request, &caller.tenant_id)?).await?;
                return json(StatusCode::CREATED, &view(standing));
            }
            (Transition::StartRollout, None) => {
                return Err(bad("field-missing", "start", "`start` must say what is to be tried"));
            }
            (_, Some(_)) => {
                return Err(bad("field-unexpected", "start", "`start` goes with the transition start-rollout alone"));
            }
            (Transition::PromoteChallengerToChampion, None) => RolloutStep::Promote,
            (Transition::FreezeRollout, None) => RolloutStep::Freeze,
            (Transition::UnfreezeRollout, None) => RolloutStep::Unfreeze,
            (Transition::RollbackToPriorChampion, None) => RolloutStep::Rollback,
            (Transition::EndRollout, None) => RolloutStep::End,
        };
        let id: RolloutId = validate::id("rolloutId", &wish.rollout_id)?;
        let reason = text("reason", wish.reason)?;
        let revision = expected(wish.expected_revision);
        json(StatusCode::OK, &view(call.runs.feedback.move_rollout(&caller, &id, step, &reason, revision).await?))
    })
}

/// `POST /api/admin/agentic-operations/gold-sets/promote`
pub(super) fn promote_gold(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let wish: GoldRequest = call.body().await?;
        let request = v1::PromoteGoldSetEntryRequest {
            gold_set_id: wish.gold_set_id,
            source_run_id: wish.source_run_id,
            expected_output_json: wish.expected_output.to_string().into(),
            rubric: wish.rubric,
        };
        let row = call.runs.feedback.promote_gold(&caller, read::gold(request)?).await?;
        json(StatusCode::CREATED, &entry(row))
    })
}

// The same request as over gRPC, so that it is read by the same rules.
fn asked(rollout_id: String, reason: String, fields: StartFields) -> Result<v1::StartRolloutRequest, Refusal> {
    let fraction = Micros::from_decimal(fields.canary_fraction).filter(|_| !fields.canary_fraction.is_sign_negative());
    let Some(fraction) = fraction else {
        let message = "`canaryFraction` is a decimal from 0 to 0.5 with at most six places";
        return Err(bad("canary-fraction-invalid", "canaryFraction", message));
    };
    let mode = match fields.mode {
        RolloutModeName::Shadow => v1::RolloutMode::Shadow,
        RolloutModeName::Canary => v1::RolloutMode::Canary,
    };
    Ok(v1::StartRolloutRequest {
        rollout_id,
        tenant_id: fields.tenant_id,
        platform_wide: fields.platform_wide,
        agent_id: fields.agent_id,
        champion_semver: fields.champion_semver,
        challenger_semver: fields.challenger_semver,
        mode: mode.into(),
        canary_fraction_micros: fraction.0,
        reason,
    })
}

fn view(standing: RolloutStanding) -> RolloutView {
    let arm = |tally: Tally| ArmTallyView { successes: tally.successes, n: tally.n, still_open: tally.still_open };
    let rollout = standing.rollout;
    RolloutView {
        rollout_id: rollout.rollout_id.to_string(),
        tenant_id: rollout.tenant_id.map(|tenant| tenant.to_string()),
        agent_id: rollout.agent_id.to_string(),
        champion_semver: rollout.champion_semver,
        challenger_semver: rollout.challenger_semver,
        mode: rollout.mode.as_str(),
        canary_fraction: rollout.canary_fraction.0 as f64 / 1e6,
        state: rollout.state.as_str(),
        prior_champion: rollout.prior_champion,
        revision: standing.revision,
        readiness: Readiness {
            verdict: standing.readiness.verdict.as_str(),
            champion: arm(standing.tallies.champion),
            challenger: arm(standing.tallies.challenger),
            z: standing.readiness.z,
            p: standing.readiness.p,
        },
    }
}

fn entry(row: DurableGoldSetEntryRow) -> GoldEntry {
    GoldEntry {
        entry_id: row.entry_id.to_string(),
        gold_set_id: row.gold_set_id.to_string(),
        agent_id: row.agent_id.to_string(),
        agent_semver: row.agent_semver,
        input_hash: row.input_hash,
        input: row.input,
        expected_output: row.expected_output,
        rubric: row.rubric,
        promoted_by: row.promoted_by.to_string(),
        promoted_at: row.promoted_at.0,
        source_run_id: row.source_run_id.to_string(),
        schema_version: row.schema_version,
    }
}
