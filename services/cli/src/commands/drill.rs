//! `drill kill`: how long a kill switch takes to take hold, shown on calls that were made for it.
//!
//! The switch is a real one, on the agent `drill.kill`, which leads the drill's own runs and nothing else; so the way from the
//! act to the last admitted call is the one that every switch takes, and no other run can match.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use signalbox_proto::v1;
use tonic::Request;
use uuid::Uuid;

use crate::client::{Client, Connection, Governance, timed};
use crate::failure::Failure;
use crate::output::Out;

/// The agent that leads the drill's runs. It is registered by the first drill of a tenant.
const AGENT: &str = "drill.kill";
/// The tool that is called: it changes nothing, and every node has it.
const TOOL: &str = "memory.read";
/// Calls of one run: enough that it is still at it when the switch comes.
const CALLS: usize = 150;
/// The switch ends by itself after so long, should the drill be interrupted.
const EXPIRES_SECONDS: u64 = 300;
/// How long a drill waits until its runs have begun to make calls.
const BEGIN_WITHIN: Duration = Duration::from_secs(20);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// `drill`.
#[derive(Debug, Subcommand)]
pub(crate) enum DrillCommand {
    /// Arms a kill switch on runs made for this drill, and measures how soon nothing of them is admitted any more. No other
    /// run is touched: the switch is on the agent drill.kill, which leads nothing else.
    #[command(after_help = "Examples:
  signalbox drill kill --scope tenant:acme --reason \"the quarterly drill\"
  signalbox drill kill --node http://10.0.0.2:7420 --node http://10.0.0.3:7420 --rounds 20 --reason \"after the upgrade\" -o json")]
    Kill(KillArgs),
}

/// `drill kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// Whose runs are drilled, as tenant:ID; your own tenant if left out. Nothing wider can be drilled: it would stop real work.
    #[arg(long, value_name = "tenant:ID", value_parser = tenant)]
    scope: Option<String>,
    /// A further node that gets runs of the drill; say it once for each. How soon each node swept is measured on all of them.
    #[arg(long, value_name = "URL")]
    node: Vec<String>,
    /// Runs on each node and round.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// How often it is done.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each round waits for every node to have swept, in seconds; the server waits half a minute at most.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=300))]
    wait: u64,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT", default_value = "a drill")]
    reason: String,
}

fn tenant(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some(("tenant", id)) if !id.is_empty() => Ok(id.to_owned()),
        _ => Err("only `tenant:ID` can be drilled; anything wider would stop real work".to_owned()),
    }
}

/// What one round has shown.
#[derive(Debug, Default)]
struct Round {
    /// Calls that were admitted at all.
    admitted: usize,
    /// Those whose record is later than the switch.
    admitted_after: usize,
    /// Of each run: from the commit of the switch to its last admitted call; zero if that was before.
    last_admitted_ms: Vec<u64>,
    /// Runs that were still making calls when the switch came.
    working: usize,
    /// Calls that were out then, and whose results count for nothing.
    fenced: usize,
    /// Results that came after all, and were kept as evidence.
    late_results: usize,
    /// Of each node: its name, and how long after the commit it had swept; absent: it has not.
    swept: Vec<(String, Option<i64>)>,
}

/// Does what was asked.
pub(crate) async fn run(server: &Connection, command: DrillCommand, out: &mut Out) -> Result<(), Failure> {
    let DrillCommand::Kill(args) = command;
    let mut server = server.clone();
    if args.scope.is_some() {
        server.tenant.clone_from(&args.scope);
    }
    let me = server.identities().await?.who_am_i(timed(v1::WhoAmIRequest {})).await?.into_inner();
    if args.scope.as_ref().is_some_and(|scope| *scope != me.tenant_id) {
        return Err(Failure::new("not-authorized", "another tenant's runs are drilled by platform operators alone"));
    }
    let mut nodes = vec![server.open().await?];
    for node in &args.node {
        nodes.push(Connection { addr: Some(node.clone()), ..server.clone() }.open().await?);
    }
    ensure_agent(&server, &me.tenant_id).await?;
    let mut governance = server.governance().await?;
    let drill = Uuid::now_v7();
    let mut rounds = Vec::new();
    for number in 1..=args.rounds {
        let id = format!("drill-{drill}-{number}");
        rounds.push(round(&mut governance, &mut nodes, &id, &args, &rounds).await?);
    }
    tell(&report(&drill, &me.tenant_id, &args, &rounds), &rounds, out)
}

/// The drill's agent, registered once for each tenant.
async fn ensure_agent(server: &Connection, tenant_id: &str) -> Result<(), Failure> {
    let mut registry = server.registry().await?;
    let asked =
        v1::GetAgentRequest { agent_id: AGENT.to_owned(), tenant_id: tenant_id.to_owned(), ..Default::default() };
    match registry.get_agent(timed(asked)).await.map_err(Failure::from) {
        Ok(_) => return Ok(()),
        Err(failure) if failure.code == "no-such-agent" => {}
        Err(failure) => return Err(failure),
    }
    let entry = json!({
        "agentId": AGENT, "agentSemver": "1.0.0", "title": "Leads the runs of kill drills, and nothing else",
        "family": "editing", "lifecycle": "champion", "experimental": false,
        "capabilities": [{"capabilityId": "drill", "semver": "1.0.0"}], "dataScopes": ["tenant.private"],
        "toolGrants": [TOOL], "costClass": "large",
        "modelBinding": {
            "providerId": "none", "modelId": "none", "semver": "1.0.0", "defaultMaxTokens": 1, "defaultTemperature": 0,
            "fallbackProviderId": "none", "fallbackModelId": "none-either",
        },
        "personaBinding": "lilith.scribe", "tonePolicyId": "tone.default", "groundingPolicyId": "cite-where-available",
        "auditPolicyId": "audit.full", "tenantScope": {"tenantId": tenant_id}, "visibility": ["tenant"],
        "disclosureRequirements": ["ai-generated"],
    });
    let entry_json = entry.to_string().into_bytes().into();
    let reason = "the agent that kill drills are made with".to_owned();
    match registry.register_agent(timed(v1::RegisterAgentRequest { entry_json, reason })).await.map_err(Failure::from) {
        // Another drill began at the same moment.
        Err(failure) if failure.code != "duplicate-agent-id" => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn round(
    governance: &mut Governance,
    nodes: &mut [Client],
    id: &str,
    args: &KillArgs,
    before: &[Round],
) -> Result<Round, Failure> {
    let plan: Vec<_> = (0..CALLS)
        .map(|n| {
            let after: Vec<_> = n.checked_sub(1).map(|n| format!("s{n}")).into_iter().collect();
            json!({"stepId": format!("s{n}"), "kind": "tool", "toolId": TOOL, "args": {"key": "drill"},
                "dependsOnStepIds": after})
        })
        .collect();
    let body = json!({ "rootAgentId": AGENT, "plan": plan }).to_string().into_bytes();
    let mut runs = Vec::new();
    for (at, node) in nodes.iter_mut().enumerate() {
        for _ in 0..args.runs {
            let request = v1::SubmitRunRequest { run_id: String::new(), submission_json: body.clone().into() };
            runs.push((at, node.submit_run(timed(request)).await?.into_inner().run_id));
        }
    }
    for (at, run) in &runs {
        until_begun(&mut nodes[*at], run).await?;
    }
    let armed = arm(governance, id, args).await?;
    let mut seen = Round { swept: swept(governance, id).await?, ..Round::default() };
    for (at, run) in &runs {
        judge(&mut nodes[*at], run, armed.committed_at_unix_ms, &mut seen).await?;
    }
    let reason = evidence(&seen, before.len() + 1, &args.reason);
    governance
        .disarm_switch(timed(v1::DisarmSwitchRequest { switch_id: id.to_owned(), reason, dry_run: false }))
        .await?;
    Ok(seen)
}

async fn until_begun(node: &mut Client, run: &str) -> Result<(), Failure> {
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < BEGIN_WITHIN {
        let shown = node.get_run(timed(v1::GetRunRequest { run_id: run.to_owned() })).await?.into_inner().run;
        // Submitted and started come first; then each call is two events.
        if shown.is_some_and(|shown| shown.last_seq >= 4) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(Failure::new("drill-inconclusive", format!("run {run} makes no calls")).next("see `signalbox explain`"))
}

async fn arm(governance: &mut Governance, id: &str, args: &KillArgs) -> Result<v1::ArmSwitchResponse, Failure> {
    let mut request = Request::new(v1::ArmSwitchRequest {
        switch_id: id.to_owned(),
        scope: v1::SwitchScope::Agent.into(),
        target_id: AGENT.to_owned(),
        reason: args.reason.clone(),
        user_visible_status_copy: "This is a drill.".to_owned(),
        expiry: Some(v1::arm_switch_request::Expiry::ExpiresAfterSeconds(EXPIRES_SECONDS)),
        wait: true,
        ..v1::ArmSwitchRequest::default()
    });
    // The server answers what it knows after half a minute.
    request.set_timeout(Duration::from_secs(args.wait.max(40)));
    Ok(governance.arm_switch(request).await?.into_inner())
}

async fn swept(governance: &mut Governance, id: &str) -> Result<Vec<(String, Option<i64>)>, Failure> {
    let shown = governance.get_switch(timed(v1::GetSwitchRequest { switch_id: id.to_owned() })).await?.into_inner();
    let nodes = shown.switch.and_then(|switch| switch.effect).map(|effect| effect.nodes).unwrap_or_default();
    Ok(nodes.into_iter().map(|node| (node.name, node.swept.then_some(node.swept_after_micros))).collect())
}

/// What the journal of one of the drill's runs says of the switch.
async fn judge(node: &mut Client, run: &str, committed_ms: i64, seen: &mut Round) -> Result<(), Failure> {
    let mut stream = node.export_run(v1::ExportRunRequest { run_id: run.to_owned() }).await?.into_inner();
    let (mut last, mut pending, mut ended_well) = (None, 0, 0);
    let mut ended_by_switch = false;
    while let Some(message) = stream.message().await? {
        for event in message.events {
            let at_ms = event.at_unix_micros.div_euclid(1_000);
            let body: Value = serde_json::from_slice(&event.body_json).unwrap_or_default();
            match event.kind.as_str() {
                "call-pending" => {
                    pending += 1;
                    seen.admitted += 1;
                    seen.admitted_after += usize::from(at_ms > committed_ms);
                    last = Some(at_ms);
                }
                "call-settled" if body["outcome"] == "ok" => ended_well += 1,
                "late-evidence" => seen.late_results += 1,
                "run-finished" => ended_by_switch = body["status"] == "killed",
                _ => {}
            }
        }
    }
    if let Some(last) = last {
        seen.last_admitted_ms.push(u64::try_from(last - committed_ms).unwrap_or(0));
    }
    seen.working += usize::from(ended_by_switch);
    seen.fenced += usize::saturating_sub(pending, ended_well);
    Ok(())
}

/// What the audit journal keeps of a round, as the reason of the act that ends it.
fn evidence(seen: &Round, number: usize, reason: &str) -> String {
    let swept: Vec<_> = seen.swept.iter().filter_map(|(_, after)| *after).collect();
    let missing = seen.swept.len() - swept.len();
    let reason: String = reason.chars().take(200).collect();
    format!(
        "kill drill, round {number}: of {} admitted calls {} after the commit; commit to last admitted at most {} ms; \
         {} nodes swept after at most {} us, {missing} have not; runs ended {}; calls fenced {}; late results {}; why: {reason}",
        seen.admitted,
        seen.admitted_after,
        seen.last_admitted_ms.iter().max().copied().unwrap_or_default(),
        swept.len(),
        swept.iter().max().copied().unwrap_or_default(),
        seen.working,
        seen.fenced,
        seen.late_results,
    )
}

/// The median, the 99th percentile and the most of some figures.
fn figures(mut all: Vec<f64>) -> Value {
    all.sort_by(f64::total_cmp);
    // The smallest figure that so many of a hundred do not pass.
    let at = |percent: usize| all.get((all.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    json!({ "p50": at(50), "p99": at(99), "max": all.last(), "count": all.len() })
}

fn report(drill: &Uuid, tenant_id: &str, args: &KillArgs, rounds: &[Round]) -> Value {
    let sum = |of: fn(&Round) -> usize| rounds.iter().map(of).sum::<usize>();
    let last = rounds.iter().flat_map(|round| &round.last_admitted_ms).map(|ms| *ms as f64).collect();
    let swept = || rounds.iter().flat_map(|round| &round.swept);
    let after = |micros: &i64| *micros as f64 / 1_000.0;
    let mut names: Vec<_> = swept().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    let nodes: Vec<_> = names
        .into_iter()
        .map(|name| {
            let own = swept().filter(|(of, _)| of == name).filter_map(|(_, micros)| micros.as_ref().map(after));
            json!({ "node": name, "commitToSweptMs": figures(own.collect()) })
        })
        .collect();
    let unswept = swept().filter(|(_, micros)| micros.is_none()).count();
    let took_hold = sum(|round| round.admitted_after) == 0 && unswept == 0;
    json!({
        "drillId": drill.to_string(),
        "tenantId": tenant_id,
        "rounds": rounds.len(),
        "runs": rounds.len() * args.runs as usize * (args.node.len() + 1),
        "runsEnded": sum(|round| round.working),
        "callsAdmitted": sum(|round| round.admitted),
        "admittedAfterCommit": sum(|round| round.admitted_after),
        "commitToLastAdmittedMs": figures(last),
        "commitToSweptMs": figures(swept().filter_map(|(_, micros)| micros.as_ref().map(after)).collect()),
        "nodes": nodes,
        "nodesNotSwept": unswept,
        "callsFenced": sum(|round| round.fenced),
        "lateResults": sum(|round| round.late_results),
        "evidence": (1..=rounds.len()).map(|number| format!("switch:drill-{drill}-{number}")).collect::<Vec<_>>(),
        "tookHold": took_hold,
    })
}

fn tell(report: &Value, rounds: &[Round], out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        out.json(report)?;
    } else {
        let said = |value: &Value| format!("p50 {} p99 {} most {} ms", value["p50"], value["p99"], value["max"]);
        let text = |field: &str| report[field].to_string().replace('"', "");
        out.fields(&[
            ("drill", text("drillId")),
            ("tenant", text("tenantId")),
            ("runs ended by the switch", format!("{} of {}", report["runsEnded"], report["runs"])),
            ("admitted after the commit", format!("{} of {}", report["admittedAfterCommit"], report["callsAdmitted"])),
            ("commit to last admitted", said(&report["commitToLastAdmittedMs"])),
            ("commit to swept", said(&report["commitToSweptMs"])),
            ("nodes that have not swept", text("nodesNotSwept")),
            ("calls fenced", text("callsFenced")),
            ("late results", text("lateResults")),
            ("kept in the audit journal as", format!("{} and the like", text("evidence"))),
        ])?;
    }
    if rounds.iter().any(|round| round.working == 0) {
        let message = "the runs of a round were over before the switch came: it shows nothing";
        return Err(Failure::new("drill-inconclusive", message).next("say --runs with more"));
    }
    if report["tookHold"] != true {
        let message = "calls were admitted after the commit, or a node has not swept; the report says which";
        return Err(Failure::new("switch-not-in-effect", message).next("look at the nodes' logs and at /readyz"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_wider_than_a_tenant_is_drilled() {
        assert_eq!(tenant("tenant:acme"), Ok("acme".to_owned()));
        for wide in ["global", "tenant:", "tenant", "tool:web.fetch", "agent:ref.drafting", ""] {
            assert!(tenant(wide).is_err(), "{wide}");
        }
    }

    #[test]
    fn percentiles_are_figures_that_were_measured() {
        let told = figures((1..=200).rev().map(f64::from).collect());
        assert_eq!((&told["p50"], &told["p99"], &told["max"]), (&json!(100.0), &json!(198.0), &json!(200.0)));
        assert_eq!(figures(vec![7.0])["p99"], json!(7.0));
        assert_eq!(figures(Vec::new())["max"], Value::Null);
    }

    #[test]
    fn a_call_admitted_after_the_commit_or_a_node_that_did_not_sweep_is_no_success() {
        let args = KillArgs { scope: None, node: vec![], runs: 1, rounds: 1, wait: 30, reason: "x".to_owned() };
        let good = || Round { admitted: 9, working: 1, swept: vec![("a".to_owned(), Some(900))], ..Round::default() };
        let of = |round| report(&Uuid::nil(), "acme", &args, &[round]);
        assert_eq!((&of(good())["tookHold"], &of(good())["commitToSweptMs"]["max"]), (&json!(true), &json!(0.9)));
        assert_eq!(of(Round { admitted_after: 1, ..good() })["tookHold"], false);
        assert_eq!(of(Round { swept: vec![("a".to_owned(), None)], ..good() })["tookHold"], false);
        assert!(evidence(&good(), 1, &"x".repeat(9_000)).len() < 2_000);
    }
}
