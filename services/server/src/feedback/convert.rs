//! What a node says of rollouts and gold sets, on the wire.

use signalbox_domain::feedback::gold_set::DurableGoldSetEntryRow;
use signalbox_domain::feedback::outcome::Tally;
use signalbox_domain::feedback::rollout::{Rollout, RolloutMode};
use signalbox_proto::v1;
use signalbox_runtime::RolloutStanding;

/// A rollout without figures.
pub(super) fn rollout(rollout: Rollout) -> v1::Rollout {
    v1::Rollout {
        rollout_id: rollout.rollout_id.to_string(),
        tenant_id: rollout.tenant_id.map(|tenant| tenant.to_string()).unwrap_or_default(),
        agent_id: rollout.agent_id.to_string(),
        champion_semver: rollout.champion_semver,
        challenger_semver: rollout.challenger_semver,
        mode: match rollout.mode {
            RolloutMode::Shadow => v1::RolloutMode::Shadow,
            RolloutMode::Canary => v1::RolloutMode::Canary,
        }
        .into(),
        canary_fraction_micros: rollout.canary_fraction.0,
        state: rollout.state.as_str().to_owned(),
        prior_champion: rollout.prior_champion.unwrap_or_default(),
        started_by: rollout.started_by.to_string(),
        started_at_unix_ms: rollout.started_at_unix_ms.0,
        changed_at_unix_ms: rollout.changed_at_unix_ms.0,
        reason: rollout.reason,
        revision: 0,
        readiness: None,
    }
}

/// A rollout with its figures.
pub(super) fn standing(standing: RolloutStanding) -> v1::Rollout {
    let arm = |tally: Tally| v1::ArmTally { successes: tally.successes, n: tally.n, still_open: tally.still_open };
    let readiness = v1::Readiness {
        verdict: standing.readiness.verdict.as_str().to_owned(),
        champion: Some(arm(standing.tallies.champion)),
        challenger: Some(arm(standing.tallies.challenger)),
        z: standing.readiness.z,
        p: standing.readiness.p,
    };
    v1::Rollout { revision: standing.revision, readiness: Some(readiness), ..rollout(standing.rollout) }
}

/// An entry of a gold set.
pub(super) fn entry(row: DurableGoldSetEntryRow) -> v1::GoldSetEntry {
    v1::GoldSetEntry {
        entry_id: row.entry_id.to_string(),
        gold_set_id: row.gold_set_id.to_string(),
        agent_id: row.agent_id.to_string(),
        agent_semver: row.agent_semver,
        input_hash: row.input_hash,
        input_json: row.input.to_string().into(),
        expected_output_json: row.expected_output.to_string().into(),
        rubric: row.rubric,
        promoted_by: row.promoted_by.to_string(),
        promoted_at_unix_ms: row.promoted_at.0,
        source_run_id: row.source_run_id.to_string(),
        schema_version: row.schema_version.into(),
    }
}
