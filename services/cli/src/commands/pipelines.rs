//! `pipelines list`, `show`, `fire`, `rehearse`, `customize` and `report`, and `rehearse`, which is short for one of them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use signalbox_domain::mode::COST_QUALITY_MODES;
use signalbox_domain::pipeline::{
    Action, InputField, PipelineObservabilityReport, PipelineSpec, Rehearsal, ToolRehearsed, mermaid,
};
use signalbox_domain::run::status::RunStatus;
use signalbox_proto::client::Watch;
use signalbox_proto::v1;

use super::runs::read_file;
use super::view::raw;
use super::watch;
use crate::client::{Client, Connection, Pipelines, timed};
use crate::failure::Failure;
use crate::output::{Out, cost};

/// The mode of a rehearsal.
const REHEARSAL: &str = "rehearsal-dry-run";

/// `pipelines`.
#[derive(Debug, Subcommand)]
pub(crate) enum PipelinesCommand {
    /// Lists the pipelines as they are for your tenant.
    #[command(after_help = "Example:
  signalbox pipelines list")]
    List,
    /// Shows one pipeline: what it takes, its stages, and where it asks.
    #[command(after_help = "Examples:
  signalbox pipelines show nyx.event_explainer_set
  signalbox pipelines show nyx.event_explainer_set --mermaid > pipeline.mmd")]
    Show {
        /// The pipeline.
        id: String,
        /// Print it as a Mermaid flowchart.
        #[arg(long)]
        mermaid: bool,
        /// As it ships, and not as it is for your tenant.
        #[arg(long)]
        shipped: bool,
    },
    /// Triggers a pipeline.
    #[command(after_help = "Examples:
  signalbox pipelines fire nyx.event_explainer_set --input sky.json --watch
  signalbox pipelines fire nyx.event_explainer_set --input sky.json --fire-id 2026-09-01   # harmless to repeat")]
    Fire(FireArgs),
    /// Rehearses a pipeline: nothing is touched; says what a real run would cost, whom it would ask, and what would stop it.
    #[command(after_help = "Example:
  signalbox pipelines rehearse nyx.event_explainer_set --input sky.json")]
    Rehearse(RehearseArgs),
    /// Makes a pipeline tighter for your tenant, or takes that back.
    #[command(after_help = "Examples:
  signalbox pipelines customize nyx.event_explainer_set --file tighter.json --reason \"two pairs of eyes\"
  signalbox pipelines customize nyx.event_explainer_set --reset --reason \"as it ships again\"")]
    Customize(CustomizeArgs),
    /// Shows what the last runs of a pipeline came to, and where they differ from what it pins.
    #[command(after_help = "Example:
  signalbox pipelines report nyx.event_explainer_set")]
    Report {
        /// The pipeline.
        id: String,
    },
}

/// `pipelines fire`.
#[derive(Debug, Args)]
pub(crate) struct FireArgs {
    /// The pipeline.
    id: String,
    /// What it is given: a file with a JSON object, the object itself, or `-` for standard input.
    #[arg(long, value_name = "FILE_OR_JSON")]
    input: Option<String>,
    /// The mode; the pipeline's own if none is named.
    #[arg(long, value_name = "MODE", value_parser = COST_QUALITY_MODES)]
    mode: Option<String>,
    /// Names the trigger: said again with the same input, it answers the same run.
    #[arg(long, value_name = "ID")]
    fire_id: Option<String>,
    /// The version that is meant; another one is refused.
    #[arg(long, value_name = "SEMVER")]
    semver: Option<String>,
    /// Follow the run until it has ended or waits for a decision.
    #[arg(long)]
    watch: bool,
}

/// `pipelines rehearse` and `rehearse`.
#[derive(Debug, Args)]
pub(crate) struct RehearseArgs {
    /// The pipeline.
    id: String,
    /// What it is given: a file with a JSON object, the object itself, or `-` for standard input.
    #[arg(long, value_name = "FILE_OR_JSON")]
    input: Option<String>,
}

/// `pipelines customize`.
#[derive(Debug, Args)]
pub(crate) struct CustomizeArgs {
    /// The pipeline.
    id: String,
    /// What is to be tighter, as JSON: disabledSteps, addedGates, totalBudgetCap, modes, agentVersions; `-` reads standard
    /// input.
    #[arg(long, value_name = "FILE", required_unless_present = "reset")]
    file: Option<PathBuf>,
    /// As it ships again.
    #[arg(long, conflicts_with = "file")]
    reset: bool,
    /// Why; kept in the audit journal.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The revision you have seen: refused if somebody has changed it since.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    expected_revision: Option<u64>,
}

/// Does what was asked.
pub(crate) async fn run(server: &Connection, command: PipelinesCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        PipelinesCommand::List => list(server.pipelines().await?, out).await,
        PipelinesCommand::Show { id, mermaid, shipped } => {
            show(server.pipelines().await?, id, mermaid, shipped, out).await
        }
        PipelinesCommand::Fire(args) => fire(server, args, out).await,
        PipelinesCommand::Rehearse(args) => rehearse(server, args, out).await,
        PipelinesCommand::Customize(args) => customize(server.pipelines().await?, args, out).await,
        PipelinesCommand::Report { id } => report(server.pipelines().await?, id, out).await,
    }
}

async fn list(mut client: Pipelines, out: &mut Out) -> Result<(), Failure> {
    let pipelines = client.list_pipelines(timed(v1::ListPipelinesRequest {})).await?.into_inner().pipelines;
    if out.is_json() {
        return out.json(&json!({ "pipelines": pipelines.iter().map(short).collect::<Vec<_>>() }));
    }
    let row = |pipeline: &v1::Pipeline| {
        vec![
            pipeline.pipeline_id.clone(),
            pipeline.semver.clone(),
            pipeline.lifecycle_state.clone(),
            pipeline.tier.clone(),
            cost(pipeline.total_budget_cap_micros).to_string(),
            pipeline.default_mode.clone(),
            if pipeline.customized { "yes" } else { "" }.to_owned(),
        ]
    };
    let rows: Vec<_> = pipelines.iter().map(row).collect();
    out.table(&["PIPELINE", "VERSION", "STATE", "FROM TIER", "CAP", "MODE", "CUSTOMIZED"], &rows)
}

fn short(pipeline: &v1::Pipeline) -> Value {
    json!({
        "pipelineId": pipeline.pipeline_id,
        "semver": pipeline.semver,
        "title": pipeline.title,
        "summary": pipeline.summary,
        "tier": pipeline.tier,
        "lifecycleState": pipeline.lifecycle_state,
        "totalBudgetCap": cost(pipeline.total_budget_cap_micros),
        "defaultMode": pipeline.default_mode,
        "modes": pipeline.modes,
        "mayFire": pipeline.may_fire,
        "customized": pipeline.customized,
    })
}

async fn show(mut client: Pipelines, id: String, as_chart: bool, shipped: bool, out: &mut Out) -> Result<(), Failure> {
    let (pipeline, customization, revision) = if shipped {
        let answer = client.get_pipeline(timed(v1::GetPipelineRequest { pipeline_id: id })).await?.into_inner();
        (answer.pipeline.unwrap_or_default(), None, 0)
    } else {
        let request = v1::GetEffectivePipelineRequest { pipeline_id: id };
        let answer = client.get_effective_pipeline(timed(request)).await?.into_inner();
        let own = (!answer.customization_json.is_empty()).then_some(answer.customization_json);
        (answer.pipeline.unwrap_or_default(), own, answer.revision)
    };
    let spec: PipelineSpec = serde_json::from_slice(&pipeline.spec_json).map_err(unreadable)?;
    if as_chart {
        return mermaid(&spec).lines().try_for_each(|line| out.line(line));
    }
    if out.is_json() {
        let mut view = short(&pipeline);
        view["spec"] = serde_json::to_value(&spec).map_err(unreadable)?;
        if let Some(own) = customization {
            view["customization"] = serde_json::from_slice(&own).map_err(unreadable)?;
            view["revision"] = json!(revision);
        }
        return out.json(&view);
    }
    out.fields(&[
        ("pipeline", format!("{} {}", spec.pipeline_id, spec.semver)),
        ("makes", spec.summary.clone()),
        ("state", spec.lifecycle_state.as_str().to_owned()),
        ("from tier", spec.tier.clone()),
        ("cap", format!("{} units", spec.total_budget_cap)),
        ("mode", pipeline.default_mode.clone()),
        ("modes", pipeline.modes.join(", ")),
        ("lead", spec.root_agent_id().map(ToString::to_string).unwrap_or_default()),
        ("hand-offs", format!("{} deep", spec.expected_handoff_depth)),
        ("cases", spec.evaluation_fixture_set_id.clone()),
        ("customized", if revision > 0 { format!("revision {revision}") } else { String::new() }),
    ])?;
    out.line("")?;
    let inputs: Vec<_> = spec.inputs.iter().map(input_row).collect();
    out.table(&["INPUT", "KIND", "NEEDED", "WHAT IT IS"], &inputs)?;
    out.line("")?;
    let mut rows = Vec::new();
    for stage in &spec.plan {
        let before: Vec<&str> = spec.stages_before(stage).into_iter().map(|stage| stage.as_str()).collect();
        let tools: Vec<&str> = PipelineSpec::tools_of(stage).into_iter().map(|tool| tool.as_str()).collect();
        let asks = stage.steps.iter().filter(|step| matches!(step.action, Action::Ask { .. }));
        let gates = asks.filter_map(|step| {
            let gate = spec.mandatory_approval_gates.iter().find(|gate| gate.step_id == step.step_id)?;
            let who = std::iter::once(gate.requirement).chain(gate.instead.iter().map(|instead| instead.requirement));
            Some(who.map(|who| who.as_str()).collect::<Vec<_>>().join(" or "))
        });
        rows.push(vec![
            stage.stage_id.to_string(),
            stage.agent_id.to_string(),
            before.join(", "),
            tools.join(", "),
            gates.collect::<Vec<_>>().join(", "),
            if stage.optional { "yes" } else { "" }.to_owned(),
        ]);
    }
    out.table(&["STAGE", "AGENT", "AFTER", "CALLS", "ASKS", "OPTIONAL"], &rows)
}

fn input_row(field: &InputField) -> Vec<String> {
    let kind = match (&field.choices[..], field.range) {
        ([], Some((least, most))) => format!("{} {least} to {most}", field.kind.as_str()),
        ([], None) => field.kind.as_str().to_owned(),
        (choices, _) => choices.join(" | "),
    };
    let needed = if field.required { "yes" } else { "" }.to_owned();
    vec![field.name.clone(), kind, needed, field.about.clone()]
}

async fn fire(server: &Connection, args: FireArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::FirePipelineRequest {
        pipeline_id: args.id,
        pipeline_semver: args.semver.unwrap_or_default(),
        input_json: read_input(args.input.as_deref())?.into(),
        mode: args.mode.unwrap_or_default(),
        fire_id: args.fire_id.unwrap_or_default(),
    };
    let fired = server.pipelines().await?.fire_pipeline(timed(request)).await?.into_inner();
    if out.is_json() {
        out.json(&json!({
            "runId": fired.run_id,
            "replayed": fired.replayed,
            "pipelineSemver": fired.pipeline_semver,
            "mode": fired.mode,
            "warnings": fired.warnings,
        }))?;
    } else {
        let note = if fired.replayed { " (fired before)" } else { "" };
        out.line(&format!("run {}{note} in mode {}", fired.run_id, fired.mode))?;
        fired.warnings.iter().for_each(|warning| crate::output::warn("agent-deprecated", warning));
    }
    if args.watch { watch::run(server.open().await?, &fired.run_id, 0, false, out).await } else { Ok(()) }
}

/// Rehearses a pipeline, waits for its end and says what it has shown.
pub(crate) async fn rehearse(server: &Connection, args: RehearseArgs, out: &mut Out) -> Result<(), Failure> {
    let request = v1::FirePipelineRequest {
        pipeline_id: args.id,
        input_json: read_input(args.input.as_deref())?.into(),
        mode: REHEARSAL.to_owned(),
        ..Default::default()
    };
    let mut pipelines = server.pipelines().await?;
    let fired = pipelines.fire_pipeline(timed(request)).await?.into_inner();
    until_over(server.open().await?, &fired.run_id).await?;
    let asked = timed(v1::GetRehearsalRequest { run_id: fired.run_id.clone() });
    let answer = pipelines.get_rehearsal(asked).await?.into_inner();
    let rehearsal: Rehearsal = serde_json::from_slice(&answer.rehearsal_json).map_err(unreadable)?;
    if out.is_json() {
        out.json(&raw(&answer.rehearsal_json)?)?;
    } else {
        tell(&rehearsal, out)?;
    }
    if rehearsal.status == RunStatus::Completed {
        return Ok(());
    }
    let code = rehearsal.code.unwrap_or_else(|| format!("run-{}", rehearsal.status.as_str()));
    let message = rehearsal.message.unwrap_or_else(|| "no reason is recorded".to_owned());
    Err(Failure::new(code, format!("the rehearsal is {}: {message}", rehearsal.status.as_str()))
        .next(format!("see each step with `signalbox runs get {}`", fired.run_id)))
}

async fn until_over(client: Client, run_id: &str) -> Result<(), Failure> {
    let mut follow = Watch::new(client, run_id, 0);
    loop {
        let item = tokio::select! {
            item = follow.next() => item?,
            _ = tokio::signal::ctrl_c() => {
                return Err(Failure::new("interrupted", format!("the rehearsal {run_id} goes on without you")));
            }
        };
        if item.is_none() {
            return Ok(());
        }
    }
}

fn tell(rehearsal: &Rehearsal, out: &mut Out) -> Result<(), Failure> {
    let range = &rehearsal.cost;
    out.fields(&[
        ("run", rehearsal.run_id.to_string()),
        ("pipeline", format!("{} {}", rehearsal.pipeline_id, rehearsal.pipeline_semver)),
        ("status", rehearsal.status.as_str().to_owned()),
        ("would cost", format!("{} to {} units, at most {}", range.least, range.most, range.cap)),
        ("not configured", tools(&rehearsal.tools_not_configured)),
        ("not granted", tools(&rehearsal.grants_missing)),
    ])?;
    out.line("")?;
    let stages: Vec<_> = rehearsal
        .stages
        .iter()
        .map(|stage| {
            vec![
                stage.stage_id.to_string(),
                stage.state.clone(),
                stage.simulated_calls.to_string(),
                stage.real_calls.to_string(),
            ]
        })
        .collect();
    out.table(&["STAGE", "STATE", "SIMULATED CALLS", "REAL CALLS"], &stages)?;
    out.line("")?;
    let approvals: Vec<_> = rehearsal
        .approvals
        .iter()
        .map(|asked| {
            let who = asked.requirement.as_str().to_owned();
            vec![asked.step_id.to_string(), who, asked.outcome.clone(), asked.prompt.clone()]
        })
        .collect();
    out.table(&["WOULD ASK AT", "WHOM", "OUTCOME", "WHAT"], &approvals)?;
    for switch in &rehearsal.switches {
        let (id, step, steps, reason) = (&switch.switch_id, &switch.step_id, switch.steps, &switch.reason);
        out.line(&format!("the switch {id} would stop it at {step} ({steps} steps): {reason}"))?;
    }
    if rehearsal.switches.is_empty() {
        out.line("no switch that is armed would stop it")?;
    }
    Ok(())
}

fn tools(lacking: &[ToolRehearsed]) -> String {
    let word = |tool: &ToolRehearsed| {
        let optional = if tool.optional { " (optional)" } else { "" };
        format!("{}{optional}", tool.tool_id)
    };
    lacking.iter().map(word).collect::<Vec<_>>().join(", ")
}

async fn customize(mut client: Pipelines, args: CustomizeArgs, out: &mut Out) -> Result<(), Failure> {
    let customization = match &args.file {
        Some(file) => read_file(file)?,
        None => b"{}".to_vec(),
    };
    let request = v1::PutCustomizationRequest {
        pipeline_id: args.id,
        customization_json: customization.into(),
        reason: args.reason,
        expected_revision: args.expected_revision.unwrap_or_default(),
        tenant_id: String::new(),
    };
    let answer = client.put_customization(timed(request)).await?.into_inner();
    let pipeline = answer.pipeline.unwrap_or_default();
    if out.is_json() {
        let mut view = short(&pipeline);
        view["revision"] = json!(answer.revision);
        return out.json(&view);
    }
    out.fields(&[
        ("pipeline", pipeline.pipeline_id),
        ("customized", if pipeline.customized { "yes" } else { "no, it is as it ships" }.to_owned()),
        ("cap", format!("{} units", cost(pipeline.total_budget_cap_micros))),
        ("mode", pipeline.default_mode),
        ("modes", pipeline.modes.join(", ")),
        ("revision", answer.revision.to_string()),
    ])
}

async fn report(mut client: Pipelines, id: String, out: &mut Out) -> Result<(), Failure> {
    let request = v1::GetPipelineReportRequest { pipeline_id: id };
    let answer = client.get_pipeline_report(timed(request)).await?.into_inner();
    if out.is_json() {
        return out.json(&raw(&answer.report_json)?);
    }
    let report: PipelineObservabilityReport = serde_json::from_slice(&answer.report_json).map_err(unreadable)?;
    let counts = |counts: &std::collections::BTreeMap<String, usize>| {
        counts.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    };
    let or_none = |value: Option<String>| value.unwrap_or_default();
    out.fields(&[
        ("pipeline", format!("{} {}", report.pipeline_id, report.pipeline_semver)),
        ("last runs", report.runs.to_string()),
        ("status", counts(&report.by_status)),
        ("of other versions", report.of_other_versions.to_string()),
        ("latency p50", or_none(report.latency_p50_ms.map(|ms| format!("{ms} ms")))),
        ("latency p95", or_none(report.latency_p95_ms.map(|ms| format!("{ms} ms")))),
        ("cost on average", or_none(report.cost_mean.map(|cost| format!("{cost} units")))),
        ("cost at most", or_none(report.cost_max.map(|cost| format!("{cost} units")))),
        ("gates passed", format!("{} of {}", report.gates_passed, report.gates_asked)),
    ])?;
    out.line("")?;
    if report.deviations.is_empty() {
        return out.line("no run differs from the pipeline");
    }
    let rows: Vec<_> = report
        .deviations
        .iter()
        .map(|found| vec![found.run_id.to_string(), found.kind.as_str().to_owned(), found.message.clone()])
        .collect();
    out.table(&["RUN", "DEVIATION", "WHAT"], &rows)
}

/// What was said to be given: a JSON object, a file that holds one, or standard input. Nothing is an empty object.
fn read_input(said: Option<&str>) -> Result<Vec<u8>, Failure> {
    match said {
        None => Ok(b"{}".to_vec()),
        Some(text) if text.trim_start().starts_with('{') => Ok(text.as_bytes().to_vec()),
        Some(path) => read_file(Path::new(path)),
    }
}

fn unreadable(error: serde_json::Error) -> Failure {
    Failure::new("answer-invalid", format!("the server sent something that cannot be read: {error}"))
}
