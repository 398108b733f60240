//! A pipeline as a picture: a Mermaid flowchart of its stages and gates.

use std::fmt::Write as _;

use super::spec::{Action, PipelineSpec, Stage, StepTemplate};

/// The flowchart. Stages are boxes, optional ones dashed; gates are rhombs.
pub fn mermaid(spec: &PipelineSpec) -> String {
    let mut chart = "flowchart TD\n".to_owned();
    let mut edges = String::new();
    let mut dashed = Vec::new();
    // Writing into a string cannot fail.
    for stage in &spec.plan {
        let _ = writeln!(chart, "  subgraph {}[\"{}\"]", node("stage", stage.stage_id.as_str()), title(stage));
        for step in &stage.steps {
            let id = node("step", step.step_id.as_str());
            let _ = match &step.action {
                Action::Call { tool_id, .. } => writeln!(chart, "    {id}[\"{}<br>{tool_id}\"]", label(stage, step)),
                Action::Ask { .. } => writeln!(chart, "    {id}{{{{\"{}<br>{}\"}}}}", step.step_id, asks(spec, step)),
            };
            for before in &step.after {
                let _ = writeln!(edges, "  {} --> {id}", node("step", before.as_str()));
            }
            if stage.optional || step.optional {
                dashed.push(id);
            }
        }
        chart.push_str("  end\n");
    }
    chart.push_str(&edges);
    if !dashed.is_empty() {
        chart.push_str("  classDef optional stroke-dasharray: 5 5\n");
        let _ = writeln!(chart, "  class {} optional", dashed.join(","));
    }
    chart
}

// Ids of steps hold dots and dashes, which mean something in a chart.
fn node(kind: &str, id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("{kind}_{}", id.chars().map(plain).collect::<String>())
}

fn title(stage: &Stage) -> String {
    let optional = if stage.optional { ", optional" } else { "" };
    format!("{} ({}{optional})", stage.stage_id, stage.agent_id)
}

fn label(stage: &Stage, step: &StepTemplate) -> String {
    let each = if step.for_each.is_some() { " ×n" } else { "" };
    match &step.agent_id {
        Some(agent) if *agent != stage.agent_id => format!("{}{each}<br>{agent}", step.step_id),
        Some(_) | None => format!("{}{each}", step.step_id),
    }
}

fn asks(spec: &PipelineSpec, step: &StepTemplate) -> String {
    let gate = spec.mandatory_approval_gates.iter().find(|gate| gate.step_id == step.step_id);
    let who =
        gate.map(|gate| std::iter::once(gate.requirement).chain(gate.instead.iter().map(|other| other.requirement)));
    let words: Vec<String> = who.into_iter().flatten().map(|who| who.as_str().to_owned()).collect();
    words.join(" or ")
}
