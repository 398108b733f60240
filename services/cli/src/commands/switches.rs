//! `switches arm`, `disarm`, `list`, `show` and `watch`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use signalbox_domain::governance::switching::PROPOSAL_LAPSES_AFTER_MS;
use signalbox_proto::v1;
use tonic::Request;

use super::audit::{act_line, act_view};
use crate::client::{Governance, timed};
use crate::failure::{Exit, Failure};
use crate::output::{Out, instant};

/// What customers read unless something else is said.
pub(super) const STATUS_COPY_DEFAULT: &str = "This was stopped by an operator.";
/// How long arming may take with `--wait`: a little longer than the server waits.
const WAIT_WITHIN: Duration = Duration::from_secs(40);

/// `switches`.
#[derive(Debug, Subcommand)]
pub(crate) enum SwitchesCommand {
    /// Stops everything that matches, from this instant on: no call of it is admitted, running ones are cancelled.
    #[command(after_help = "Examples:
  signalbox switches arm --scope tool --target web.fetch --reason \"the proxy is replaced\" --for 2h --wait
  signalbox switches arm --scope tenant --target acme --reason \"they asked for it\"")]
    Arm(ArmArgs),
    /// Lets what a switch stops go on again. A `global` switch needs two identities: the second says the same.
    #[command(after_help = "Example:
  signalbox switches disarm no-web --reason \"the proxy is back\"")]
    Disarm {
        /// The switch.
        id: String,
        /// Why; kept in the audit journal.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Only say what would go on again; nothing is changed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Lists the switches that are armed.
    #[command(after_help = "Example:
  signalbox switches list --all")]
    List {
        /// Those that are disarmed or expired too.
        #[arg(long)]
        all: bool,
    },
    /// Shows one switch and what it has done.
    #[command(after_help = "Example:
  signalbox switches show no-web")]
    Show {
        /// The switch.
        id: String,
    },
    /// Follows what happens to switches until it is interrupted.
    #[command(after_help = "Example:
  signalbox switches watch --after 12")]
    Watch {
        /// Only what happens after this act.
        #[arg(long, default_value_t = 0, value_name = "SEQ")]
        after: u64,
    },
}

/// `switches arm`.
#[derive(Debug, Args)]
pub(crate) struct ArmArgs {
    /// What kind of thing is stopped.
    #[arg(long, value_enum)]
    scope: Scope,
    /// Which one: an agent, a family, a tenant, a provider, a region or a tool. Not for `global`.
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// Why; kept in the audit journal and in that of each run it ends.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// What customers read.
    #[arg(long, value_name = "TEXT", default_value = STATUS_COPY_DEFAULT)]
    status_copy: String,
    /// What is offered in place of a blank failure: cached-answer, read-only, queue-for-later or human-handover.
    #[arg(long, value_name = "MODE")]
    degrade_to: Option<String>,
    /// It ends by itself after so long, such as 90s, 30m, 2h or 7d.
    #[arg(long = "for", value_name = "DURATION", value_parser = seconds)]
    lasts: Option<u64>,
    /// The tenant whose calls are stopped; your own if left out.
    #[arg(long, value_name = "TENANT", conflicts_with = "platform_wide")]
    tenant: Option<String>,
    /// The calls of all tenants are stopped.
    #[arg(long)]
    platform_wide: bool,
    /// An id for it; saying the same twice under one is harmless.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Wait until the runs it matches have ended and their calls are cancelled.
    #[arg(long)]
    wait: bool,
    /// Only say what would be stopped; nothing is changed.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Scope {
    Agent,
    Family,
    Tenant,
    Provider,
    Region,
    Tool,
    Global,
}

impl From<Scope> for v1::SwitchScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Agent => Self::Agent,
            Scope::Family => Self::Family,
            Scope::Tenant => Self::Tenant,
            Scope::Provider => Self::Provider,
            Scope::Region => Self::Region,
            Scope::Tool => Self::Tool,
            Scope::Global => Self::Global,
        }
    }
}

/// A length of time: a whole number and one of s, m, h, d.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no length of time such as 90s, 30m, 2h or 7d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let each = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let digits = &text[..text.len() - 1];
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(each).filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

/// Does what was asked.
pub(crate) async fn run(client: Governance, command: SwitchesCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        SwitchesCommand::Arm(args) => arm(client, args, out).await,
        SwitchesCommand::Disarm { id, reason, dry_run: true } => would_disarm(client, id, reason, out).await,
        SwitchesCommand::Disarm { id, reason, dry_run: false } => disarm(client, id, reason, out).await,
        SwitchesCommand::List { all } => list(client, all, out).await,
        SwitchesCommand::Show { id } => show(client, id, out).await,
        SwitchesCommand::Watch { after } => watch(client, after, out).await,
    }
}

async fn arm(mut client: Governance, args: ArmArgs, out: &mut Out) -> Result<(), Failure> {
    let mut request = Request::new(v1::ArmSwitchRequest {
        switch_id: args.id.unwrap_or_default(),
        tenant_id: args.tenant.unwrap_or_default(),
        platform_wide: args.platform_wide,
        scope: v1::SwitchScope::from(args.scope).into(),
        target_id: args.target.unwrap_or_default(),
        reason: args.reason,
        user_visible_status_copy: args.status_copy,
        safe_degradation_mode_id: args.degrade_to.unwrap_or_default(),
        expiry: args.lasts.map(v1::arm_switch_request::Expiry::ExpiresAfterSeconds),
        wait: args.wait,
        dry_run: args.dry_run,
    });
    request.set_timeout(WAIT_WITHIN);
    let answer = client.arm_switch(request).await?.into_inner();
    let switch = answer.switch.clone().unwrap_or_default();
    if args.dry_run {
        return would_arm(&switch, answer.replayed, out);
    }
    let effect = switch.effect.clone().unwrap_or_default();
    if out.is_json() {
        out.json(&json!({
            "switch": view(&switch),
            "replayed": answer.replayed,
            "epoch": answer.epoch,
            "committedAtUnixMs": answer.committed_at_unix_ms,
            "swept": args.wait.then_some(answer.swept),
            "sweptAfterMs": answer.swept.then(|| answer.swept_after_micros as f64 / 1_000.0),
        }))?;
    } else {
        let again = if answer.replayed { " already" } else { "" };
        out.line(&format!("{} is armed{again}: it stops {}", switch.switch_id, what(&switch)))?;
        out.line(&format!("no admission since {} (epoch {})", at(answer.committed_at_unix_ms), answer.epoch))?;
        if answer.swept {
            let ms = answer.swept_after_micros as f64 / 1_000.0;
            let nodes = swept_on(&effect.nodes);
            out.line(&format!("swept{nodes} after {ms:.1} ms; runs ended: {}", effect.killed))?;
        }
    }
    if args.wait && !answer.swept {
        let nodes = swept_on(&effect.nodes);
        let message = format!("the switch is in force, but something it matches has not ended yet; swept{nodes}");
        return Err(Failure::new("sweep-unfinished", message)
            .next(format!("see how far it is with `signalbox switches show {}`", switch.switch_id)));
    }
    Ok(())
}

/// What arming would stop, as the node says.
fn would_arm(switch: &v1::KillSwitch, replayed: bool, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&json!({ "dryRun": true, "switch": view(switch), "replayed": replayed }));
    }
    if replayed {
        return out.line(&format!("{} is armed like that already. Nothing was done", switch.switch_id));
    }
    let effect = switch.effect.clone().unwrap_or_default();
    out.line(&format!(
        "would stop {}: every call that matches, and the runs that have one out or wait for one; runs it would reach now: {}. \
         Nothing was done",
        what(switch),
        effect.left
    ))
}

/// What disarming would let go on, as the node says.
async fn would_disarm(mut client: Governance, id: String, reason: String, out: &mut Out) -> Result<(), Failure> {
    let request = v1::DisarmSwitchRequest { switch_id: id, reason, dry_run: true };
    let answer = client.disarm_switch(timed(request)).await?.into_inner();
    let switch = answer.switch.unwrap_or_default();
    if out.is_json() {
        return out.json(&json!({ "dryRun": true, "switch": view(&switch), "disarmed": answer.disarmed }));
    }
    let asks = if answer.disarmed { "" } else { "; another identity must say the same" };
    out.line(&format!(
        "{} is {}; disarming it would let {} go on again{asks}. Nothing was done",
        switch.switch_id,
        switch.state,
        what(&switch)
    ))
}

async fn disarm(mut client: Governance, id: String, reason: String, out: &mut Out) -> Result<(), Failure> {
    let answer = client
        .disarm_switch(timed(v1::DisarmSwitchRequest { switch_id: id, reason, dry_run: false }))
        .await?
        .into_inner();
    let switch = answer.switch.unwrap_or_default();
    if out.is_json() {
        out.json(&json!({ "switch": view(&switch), "disarmed": answer.disarmed }))?;
    }
    if !answer.disarmed {
        let minutes = PROPOSAL_LAPSES_AFTER_MS / 60_000;
        let message = format!(
            "{} stays armed until another identity says the same; what {} asked lapses at {}",
            switch.switch_id,
            switch.disarm_proposed_by,
            at(switch.disarm_lapses_at_unix_ms)
        );
        let failure = Failure::new("second-identity-needed", message)
            .next(format!("have somebody else disarm it within {minutes} minutes"));
        return Err(Failure { exit: Exit::Waiting, ..failure });
    }
    if out.is_json() {
        return Ok(());
    }
    let effect = switch.effect.unwrap_or_default();
    out.line(&format!(
        "{} is disarmed; runs it ended: {}, runs it had left: {}",
        switch.switch_id, effect.killed, effect.left
    ))
}

async fn list(mut client: Governance, all: bool, out: &mut Out) -> Result<(), Failure> {
    let answer = client.list_switches(timed(v1::ListSwitchesRequest { all })).await?.into_inner();
    if out.is_json() {
        let switches: Vec<_> = answer.switches.iter().map(view).collect();
        return out.json(&json!({ "switches": switches }));
    }
    if answer.switches.is_empty() {
        return out.line(if all { "no switch was ever armed" } else { "no switch is armed" });
    }
    let rows: Vec<_> = answer
        .switches
        .into_iter()
        .map(|switch| {
            let state = match switch.disarm_proposed_by.as_str() {
                "" => switch.state.clone(),
                by => format!("{} ({by} asks to disarm)", switch.state),
            };
            vec![
                switch.switch_id.clone(),
                what(&switch),
                state,
                at(switch.armed_at_unix_ms),
                switch.armed_by,
                switch.reason,
            ]
        })
        .collect();
    out.table(&["SWITCH", "STOPS", "STATE", "SINCE", "ARMED BY", "REASON"], &rows)
}

async fn show(mut client: Governance, id: String, out: &mut Out) -> Result<(), Failure> {
    let answer = client.get_switch(timed(v1::GetSwitchRequest { switch_id: id })).await?.into_inner();
    let switch = answer.switch.unwrap_or_default();
    if out.is_json() {
        return out.json(&view(&switch));
    }
    let effect = switch.effect.clone().unwrap_or_default();
    let nodes = effect.nodes.iter().map(|node| {
        let since = if node.swept {
            format!(
                "{}, {:.1} ms after it was armed",
                at(node.swept_at_unix_ms),
                node.swept_after_micros as f64 / 1_000.0
            )
        } else {
            "not yet".to_owned()
        };
        format!("{} {}: {since}", node.name, node.node_id)
    });
    let nodes = nodes.collect::<Vec<_>>().join("; ");
    let proposed = match switch.disarm_proposed_by.as_str() {
        "" => String::new(),
        by => format!("by {by}, until {}: {}", at(switch.disarm_lapses_at_unix_ms), switch.disarm_reason),
    };
    let time = |ms: i64| if ms == 0 { String::new() } else { at(ms) };
    out.fields(&[
        ("switch", switch.switch_id.clone()),
        ("stops", what(&switch)),
        ("state", switch.state.clone()),
        ("armed by", switch.armed_by.clone()),
        ("armed at", at(switch.armed_at_unix_ms)),
        ("reason", switch.reason.clone()),
        ("customers read", switch.user_visible_status_copy.clone()),
        ("degrades to", switch.safe_degradation_mode_id.clone()),
        ("expires at", time(switch.expires_at_unix_ms)),
        ("disarmed at", time(switch.disarmed_at_unix_ms)),
        ("disarming asked", proposed),
        ("runs ended", effect.killed.to_string()),
        ("runs left", effect.left.to_string()),
        ("calls still out", effect.calls_out.to_string()),
        ("swept on", nodes),
    ])
}

async fn watch(mut client: Governance, after_seq: u64, out: &mut Out) -> Result<(), Failure> {
    let mut acts = client.watch_switches(v1::WatchSwitchesRequest { after_seq }).await?.into_inner();
    while let Some(message) = acts.message().await? {
        let Some(act) = message.event else { continue };
        if out.is_json() { out.json(&act_view(&act))? } else { out.line(&act_line(&act))? }
    }
    Ok(())
}

/// What a switch stops, in words.
fn what(switch: &v1::KillSwitch) -> String {
    let whose = match switch.tenant_id.as_str() {
        "" => "everybody".to_owned(),
        tenant => format!("tenant {tenant}"),
    };
    match scope(switch) {
        "global" => format!("everything of {whose}"),
        "tenant" => format!("tenant {}", switch.target_id),
        kind => format!("{kind} {} for {whose}", switch.target_id),
    }
}

fn scope(switch: &v1::KillSwitch) -> &'static str {
    match switch.scope() {
        v1::SwitchScope::Agent => "agent",
        v1::SwitchScope::Family => "family",
        v1::SwitchScope::Tenant => "tenant",
        v1::SwitchScope::Provider => "provider",
        v1::SwitchScope::Region => "region",
        v1::SwitchScope::Tool => "tool",
        v1::SwitchScope::Global => "global",
        v1::SwitchScope::Unspecified => "unknown",
    }
}

/// A switch as scripts read it: the names of the requirements (KIL-005).
fn view(switch: &v1::KillSwitch) -> Value {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let time = |ms: i64| (ms != 0).then_some(ms);
    json!({
        "switchId": switch.switch_id,
        "tenantId": text(&switch.tenant_id),
        "scope": scope(switch),
        "targetId": text(&switch.target_id),
        "armedBy": switch.armed_by,
        "armedAtUnixMs": switch.armed_at_unix_ms,
        "reason": switch.reason,
        "userVisibleStatusCopy": switch.user_visible_status_copy,
        "safeDegradationModeId": text(&switch.safe_degradation_mode_id),
        "expiresAtUnixMs": time(switch.expires_at_unix_ms),
        "disarmedAtUnixMs": time(switch.disarmed_at_unix_ms),
        "state": switch.state,
        "disarmProposedBy": text(&switch.disarm_proposed_by),
        "disarmReason": text(&switch.disarm_reason),
        "disarmLapsesAtUnixMs": time(switch.disarm_lapses_at_unix_ms),
        "killed": switch.effect.as_ref().map(|effect| effect.killed),
        "left": switch.effect.as_ref().map(|effect| effect.left),
        "callsOut": switch.effect.as_ref().map(|effect| effect.calls_out),
        "nodes": switch.effect.as_ref().map(|effect| effect.nodes.iter().map(node_view).collect::<Vec<_>>()),
    })
}

fn node_view(node: &v1::SweptNode) -> Value {
    json!({
        "nodeId": node.node_id,
        "name": node.name,
        "swept": node.swept,
        "sweptAtUnixMs": node.swept.then_some(node.swept_at_unix_ms),
        "sweptAfterMs": node.swept.then(|| node.swept_after_micros as f64 / 1_000.0),
    })
}

/// On how many of how many nodes, if the server says.
fn swept_on(nodes: &[v1::SweptNode]) -> String {
    match nodes {
        [] => String::new(),
        nodes => format!(" on {} of {} nodes", nodes.iter().filter(|node| node.swept).count(), nodes.len()),
    }
}

fn at(unix_ms: i64) -> String {
    instant(unix_ms.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_a_whole_number_with_a_unit() {
        for (text, length) in [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("7d", 604_800)] {
            assert_eq!(seconds(text), Ok(length));
        }
        for text in ["", "s", "0s", "-1s", "+1s", "1.5h", "1w", "1", "99999999999999999999s", "ü", "1ü"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
