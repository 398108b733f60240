//! `rollouts start`, `list`, `show`, `promote`, `freeze`, `unfreeze`, `rollback` and `end`.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use signalbox_domain::quantity::Micros;
use signalbox_proto::v1;

use crate::client::{Feedback, timed};
use crate::failure::Failure;
use crate::output::{Out, instant};

/// `rollouts`.
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutsCommand {
    /// Begins to try a new version of an agent against the one in use.
    #[command(after_help = "Examples:
  signalbox rollouts start research-1.1 --agent ref.research --champion 1.0.0 --challenger 1.1.0 --mode canary --fraction 0.05 --reason \"it reads better\"
  signalbox rollouts start unseen --agent ref.research --champion 1.0.0 --challenger 1.1.0 --mode shadow --reason \"a first look\"")]
    Start(Box<StartArgs>),
    /// Lists the rollouts that are live or frozen.
    #[command(after_help = "Example:
  signalbox rollouts list --all")]
    List {
        /// Those that are over too.
        #[arg(long)]
        all: bool,
    },
    /// Shows one rollout, and what its runs have come to.
    #[command(after_help = "Example:
  signalbox rollouts show research-1.1")]
    Show {
        /// The rollout.
        id: String,
    },
    /// Makes the challenger champion. Refused unless it does significantly better.
    #[command(after_help = "Example:
  signalbox rollouts promote research-1.1 --reason \"better in 400 runs\"")]
    Promote(MoveArgs),
    /// Sends everything to the champion for now.
    #[command(after_help = "Example:
  signalbox rollouts freeze research-1.1 --reason \"complaints; we look into it\"")]
    Freeze(MoveArgs),
    /// Lets a frozen rollout go on from where it was.
    #[command(after_help = "Example:
  signalbox rollouts unfreeze research-1.1 --reason \"it was the source\"")]
    Unfreeze(MoveArgs),
    /// Makes the champion from before the promotion champion again.
    #[command(after_help = "Example:
  signalbox rollouts rollback research-1.1 --reason \"worse on Mondays\"")]
    Rollback(MoveArgs),
    /// Gives a rollout up that has promoted nothing.
    #[command(after_help = "Example:
  signalbox rollouts end research-1.1 --reason \"no difference to be seen\"")]
    End(MoveArgs),
}

/// How a new version is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// It works beside the champion, and its answer reaches nobody.
    Shadow,
    /// A share of the users gets it.
    Canary,
}

/// `rollouts start`.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Names the rollout; users are spread by it.
    id: String,
    /// The agent.
    #[arg(long, value_name = "AGENT")]
    agent: String,
    /// The version in use.
    #[arg(long, value_name = "SEMVER")]
    champion: String,
    /// The version to be tried.
    #[arg(long, value_name = "SEMVER")]
    challenger: String,
    /// How.
    #[arg(long, value_enum)]
    mode: Mode,
    /// The share of users that get the challenger, from 0 to 0.5; not in mode shadow.
    #[arg(long, value_name = "N", value_parser = fraction, default_value = "0", allow_negative_numbers = true)]
    fraction: Micros,
    /// Everybody's runs are routed, and not only those of your tenant.
    #[arg(long)]
    platform_wide: bool,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// How a rollout is moved.
#[derive(Debug, Args)]
pub(crate) struct MoveArgs {
    /// The rollout.
    id: String,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The revision you have seen: refused if somebody has changed it since.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    expected_revision: Option<u64>,
}

fn fraction(text: &str) -> Result<Micros, String> {
    let wrong = || format!("`{text}` is no decimal from 0 to 0.5 with at most six places");
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = text.parse().map_err(|_| wrong())?;
    Micros::from_decimal(number).filter(|_| plain).ok_or_else(wrong)
}

/// Does what was asked.
pub(crate) async fn run(mut client: Feedback, command: RolloutsCommand, out: &mut Out) -> Result<(), Failure> {
    let rollout = match command {
        RolloutsCommand::List { all } => return list(client, all, out).await,
        RolloutsCommand::Start(args) => start(client, *args).await?,
        RolloutsCommand::Show { id } => {
            client.get_rollout(timed(v1::GetRolloutRequest { rollout_id: id })).await?.into_inner().rollout
        }
        RolloutsCommand::Promote(MoveArgs { id: rollout_id, reason, expected_revision }) => {
            let expected_revision = expected_revision.unwrap_or_default();
            let request = v1::PromoteChallengerRequest { rollout_id, reason, expected_revision };
            client.promote_challenger(timed(request)).await?.into_inner().rollout
        }
        RolloutsCommand::Freeze(MoveArgs { id: rollout_id, reason, expected_revision }) => {
            let expected_revision = expected_revision.unwrap_or_default();
            let request = v1::FreezeRolloutRequest { rollout_id, reason, expected_revision };
            client.freeze_rollout(timed(request)).await?.into_inner().rollout
        }
        RolloutsCommand::Unfreeze(MoveArgs { id: rollout_id, reason, expected_revision }) => {
            let expected_revision = expected_revision.unwrap_or_default();
            let request = v1::UnfreezeRolloutRequest { rollout_id, reason, expected_revision };
            client.unfreeze_rollout(timed(request)).await?.into_inner().rollout
        }
        RolloutsCommand::Rollback(MoveArgs { id: rollout_id, reason, expected_revision }) => {
            let expected_revision = expected_revision.unwrap_or_default();
            let request = v1::RollbackRolloutRequest { rollout_id, reason, expected_revision };
            client.rollback_rollout(timed(request)).await?.into_inner().rollout
        }
        RolloutsCommand::End(MoveArgs { id: rollout_id, reason, expected_revision }) => {
            let expected_revision = expected_revision.unwrap_or_default();
            let request = v1::EndRolloutRequest { rollout_id, reason, expected_revision };
            client.end_rollout(timed(request)).await?.into_inner().rollout
        }
    };
    show(&rollout.unwrap_or_default(), out)
}

async fn start(mut client: Feedback, args: StartArgs) -> Result<Option<v1::Rollout>, Failure> {
    let mode = match args.mode {
        Mode::Shadow => v1::RolloutMode::Shadow,
        Mode::Canary => v1::RolloutMode::Canary,
    };
    let request = v1::StartRolloutRequest {
        rollout_id: args.id,
        tenant_id: String::new(),
        platform_wide: args.platform_wide,
        agent_id: args.agent,
        champion_semver: args.champion,
        challenger_semver: args.challenger,
        mode: mode.into(),
        canary_fraction_micros: args.fraction.0,
        reason: args.reason,
    };
    Ok(client.start_rollout(timed(request)).await?.into_inner().rollout)
}

async fn list(mut client: Feedback, all: bool, out: &mut Out) -> Result<(), Failure> {
    let rollouts = client.list_rollouts(timed(v1::ListRolloutsRequest { all })).await?.into_inner().rollouts;
    if out.is_json() {
        return out.json(&json!({ "rollouts": rollouts.iter().map(view).collect::<Vec<_>>() }));
    }
    if rollouts.is_empty() {
        return out.line(if all { "there is no rollout" } else { "no rollout is open" });
    }
    let rows: Vec<_> = rollouts
        .iter()
        .map(|rollout| {
            vec![
                rollout.rollout_id.clone(),
                rollout.agent_id.clone(),
                format!("{} against {}", rollout.challenger_semver, rollout.champion_semver),
                how(rollout),
                whose(rollout),
                rollout.state.clone(),
                instant(rollout.started_at_unix_ms.saturating_mul(1_000)),
            ]
        })
        .collect();
    out.table(&["ROLLOUT", "AGENT", "TRIES", "HOW", "TENANT", "STATE", "SINCE"], &rows)
}

fn show(rollout: &v1::Rollout, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&view(rollout));
    }
    let readiness = rollout.readiness.clone().unwrap_or_default();
    let arm = |tally: Option<v1::ArmTally>| {
        let tally = tally.unwrap_or_default();
        format!("{} of {} runs succeeded; {} can still be complained about", tally.successes, tally.n, tally.still_open)
    };
    let number = |value: Option<f64>| value.map(|value| format!("{value:.4}")).unwrap_or_default();
    out.fields(&[
        ("rollout", rollout.rollout_id.clone()),
        ("agent", rollout.agent_id.clone()),
        ("tenant", whose(rollout)),
        ("how", how(rollout)),
        ("state", rollout.state.clone()),
        ("why", rollout.reason.clone()),
        ("champion", rollout.champion_semver.clone()),
        ("", arm(readiness.champion)),
        ("challenger", rollout.challenger_semver.clone()),
        (" ", arm(readiness.challenger)),
        ("z", number(readiness.z)),
        ("p", number(readiness.p)),
        ("verdict", readiness.verdict),
        ("prior champion", rollout.prior_champion.clone()),
        ("started by", rollout.started_by.clone()),
        ("started at", instant(rollout.started_at_unix_ms.saturating_mul(1_000))),
        ("revision", rollout.revision.to_string()),
    ])
}

fn how(rollout: &v1::Rollout) -> String {
    match mode_of(rollout) {
        "canary" => format!("canary, {}", Micros(rollout.canary_fraction_micros)),
        other => other.to_owned(),
    }
}

fn whose(rollout: &v1::Rollout) -> String {
    if rollout.tenant_id.is_empty() { "(all)".to_owned() } else { rollout.tenant_id.clone() }
}

fn mode_of(rollout: &v1::Rollout) -> &'static str {
    match rollout.mode() {
        v1::RolloutMode::Shadow => "shadow",
        v1::RolloutMode::Canary => "canary",
        v1::RolloutMode::Unspecified => "unknown",
    }
}

fn view(rollout: &v1::Rollout) -> Value {
    let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    let arm = |tally: &Option<v1::ArmTally>| {
        let tally = tally.unwrap_or_default();
        json!({ "successes": tally.successes, "n": tally.n, "stillOpen": tally.still_open })
    };
    let readiness = rollout.readiness.as_ref().map(|readiness| {
        json!({
            "verdict": readiness.verdict, "z": readiness.z, "p": readiness.p,
            "champion": arm(&readiness.champion), "challenger": arm(&readiness.challenger),
        })
    });
    json!({
        "rolloutId": rollout.rollout_id, "tenantId": text(&rollout.tenant_id), "agentId": rollout.agent_id,
        "championSemver": rollout.champion_semver, "challengerSemver": rollout.challenger_semver,
        "mode": mode_of(rollout), "canaryFraction": Micros(rollout.canary_fraction_micros), "state": rollout.state,
        "priorChampion": text(&rollout.prior_champion), "startedBy": rollout.started_by,
        "startedAtUnixMs": rollout.started_at_unix_ms, "changedAtUnixMs": rollout.changed_at_unix_ms,
        "reason": rollout.reason,
        "revision": if rollout.revision == 0 { Value::Null } else { json!(rollout.revision) },
        "readiness": readiness,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_a_plain_decimal_and_nothing_else() {
        assert_eq!(fraction("0.05"), Ok(Micros(50_000)));
        assert_eq!(fraction("0"), Ok(Micros::ZERO));
        // Whether it is too large is for the server to say.
        assert_eq!(fraction("0.51"), Ok(Micros(510_000)));
        for bad in ["-0", "-0.1", "NaN", "inf", "half", "", "1e-3", "+0.1", "0.0000001", ".", "0,1"] {
            assert!(fraction(bad).is_err(), "{bad}");
        }
    }
}
