//! The plans of the shipped pipelines, each step called as it is planned: what a plan binds is what a tool gives.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use signalbox_domain::ids::PipelineId;
use signalbox_domain::pipeline::{PipelineRegistry, expand};
use signalbox_domain::run::plan::StepKind;

use super::samples;
use crate::bundled::BundledConfig;
use crate::bundled::testing::{call, run};
use crate::tool::{Tool, ToolOutcome};

/// Every bundled tool over a data folder.
fn tools(home: &Path) -> BTreeMap<String, Arc<dyn Tool>> {
    let config = BundledConfig { data_dir: home.to_owned(), exemptions: Vec::new() };
    crate::bundled::tools(config).into_iter().map(|tool| (tool.descriptor().tool_id, tool)).collect()
}

/// The arguments with what earlier steps gave; `None` if one of them gave nothing.
fn bound(args: &Value, outputs: &BTreeMap<String, Value>) -> Option<Value> {
    match args {
        Value::Object(members) => match members.get("$from").and_then(Value::as_str) {
            Some(pointer) => {
                let (step, rest) = pointer.strip_prefix("/steps/")?.split_once("/output")?;
                outputs.get(step)?.pointer(rest).cloned()
            }
            None => members.iter().map(|(key, one)| Some((key.clone(), bound(one, outputs)?))).collect(),
        },
        Value::Array(all) => all.iter().map(|one| bound(one, outputs)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(args.clone()),
    }
}

/// Walks a plan; gives the names of the files it wrote.
async fn walk(pipeline: &str, input: Value) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    let tools = tools(home.path());
    let spec = PipelineRegistry::shipped().get(&PipelineId::new(pipeline).unwrap()).unwrap();
    let plan = expand(spec, &input).unwrap();
    let mut outputs: BTreeMap<String, Value> = BTreeMap::new();
    let mut over: Vec<String> = Vec::new();
    let mut written = Vec::new();
    while over.len() < plan.steps.len() {
        let ready = |id: &str| over.iter().any(|other| other == id);
        let next = plan
            .steps
            .iter()
            .find(|step| !ready(step.step_id.as_str()) && step.dependencies().all(|before| ready(before.as_str())));
        let step = next.unwrap();
        let id = step.step_id.as_str().to_owned();
        if let StepKind::Tool { tool_id, args, .. } = &step.kind {
            match tools.get(tool_id.as_str()) {
                Some(tool) => {
                    let args = bound(args, &outputs)
                        .unwrap_or_else(|| panic!("{pipeline} {id} binds what is not there: {args}"));
                    let mut order = call(tool.as_ref(), args);
                    order.constraints.paths = Some(["material", "story", "week"].map(samples).into());
                    if tool_id.as_str() == "file.write" {
                        order.constraints.paths = None;
                    }
                    match run(tool.as_ref(), order).await {
                        ToolOutcome::Ok(answer) | ToolOutcome::Partial(answer) => {
                            written.extend(answer.artifacts.iter().map(|artifact| artifact.name.clone()));
                            outputs.insert(id.clone(), answer.output);
                        }
                        other @ (ToolOutcome::Error(_) | ToolOutcome::Cancelled) => {
                            panic!("{pipeline} {id}: {other:?}")
                        }
                    }
                }
                None => assert!(step.optional, "{pipeline} {id}: {tool_id} needs an account and is not optional"),
            }
        }
        over.push(id);
    }
    written
}

fn material() -> Value {
    json!(
        ["01-tides.md", "02-dry-stone-walls.html", "03-sundials.pdf", "04-bread.epub"]
            .map(|name| samples(&format!("material/{name}")))
    )
}

#[tokio::test]
async fn the_plans_of_all_pipelines_end_in_files_without_an_account() {
    let days = json!({ "from": "2026-09-01", "to": "2026-10-01", "zone": "Europe/Berlin" });
    let season = json!({
        "from": "2026-12-15", "to": "2027-03-25", "zone": "Europe/Berlin", "hemisphere": "north",
        "sources": [samples("material/03-sundials.pdf")], "theme": "light and shadow",
    });
    let week = json!({
        "calendars": [samples("week/week.ics")], "from": "2026-11-23", "to": "2026-11-30", "zone": "Europe/Berlin",
    });
    let rows = [
        (
            "nisaba.edition_study_guide",
            json!({ "edition": material(), "title": "Four small crafts" }),
            "study-guide.html",
        ),
        ("metis.course_from_byom", json!({ "material": material(), "lessons": 6 }), "index.html"),
        ("veritas.story_drafting", json!({ "folder": samples("story") }), "story.html"),
        ("nyx.event_explainer_set", days, "index.html"),
        ("tara.seasonal_program", season, "program.html"),
        ("arete.weekly_review_draft", week, "review.html"),
        ("veritas.weekly_briefing_pack", json!({ "sources": [samples("story/council-minutes.md")] }), "briefing.html"),
    ];
    for (pipeline, input, file) in rows {
        let written = walk(pipeline, input).await;
        assert!(written.iter().any(|name| name.ends_with(file)), "{pipeline}: {written:?}");
    }
}
