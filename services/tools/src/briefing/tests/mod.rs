//! The pipeline's own plan, walked by hand: what each step gives is bound into the next, exactly as the plan says.

mod advisories;
mod check;
mod hostile;
mod sample;
mod stand_ins;
mod tools;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::pipeline;
use signalbox_domain::run::plan::StepKind;

use crate::bundled::testing::{call, run};
use crate::tool::{Answer, Tool, ToolOutcome};

/// A source of a test.
pub(super) fn document(name: &str, text: &str) -> Value {
    let media_type = match name.rsplit('.').next() {
        Some("html") => "text/html",
        Some("md") => "text/markdown",
        _ => "text/plain",
    };
    json!({
        "uri": format!("/srv/somewhere/{name}"),
        "name": name,
        "mediaType": media_type,
        "sha256": sha256_hex(text.as_bytes()),
        "text": text,
    })
}

/// Everything a walk of the plan gave.
pub(super) struct Walk {
    pub(super) outputs: BTreeMap<String, Value>,
    pub(super) files: BTreeMap<String, String>,
}

impl Walk {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.files["briefing.json"]).unwrap()
    }
    pub(super) fn item(&self, id: &str) -> Value {
        let json = self.json();
        json["items"].as_array().unwrap().iter().find(|item| item["id"] == id).unwrap().clone()
    }
    pub(super) fn ids(&self) -> Vec<String> {
        let json = self.json();
        json["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    }
}

/// A tool by its id.
pub(super) fn tool(id: &str) -> Arc<dyn Tool> {
    let config = crate::bundled::BundledConfig::default();
    super::tools(&config).into_iter().find(|tool| tool.descriptor().tool_id == id).unwrap()
}

/// The answer of a tool, whole or partial.
pub(super) async fn answered(id: &str, args: Value) -> Answer {
    let tool = tool(id);
    let outcome = run(tool.as_ref(), call(tool.as_ref(), args)).await;
    if let ToolOutcome::Ok(answer) | ToolOutcome::Partial(answer) = outcome {
        answer
    } else {
        panic!("{id}: {outcome:?}")
    }
}

/// The code of a refusal.
pub(super) async fn refused(id: &str, args: Value) -> String {
    let tool = tool(id);
    let outcome = run(tool.as_ref(), call(tool.as_ref(), args)).await;
    if let ToolOutcome::Error(failure) = outcome { failure.code } else { panic!("{id}: {outcome:?}") }
}

/// Walks the briefing plan over these documents, one source each.
pub(super) async fn walk(documents: &[Value], since: Option<&str>) -> Walk {
    let uris: Vec<String> = documents.iter().map(|document| document["uri"].as_str().unwrap().to_owned()).collect();
    let plan = pipeline::briefing(&uris, since);
    let order = plan.topological_order().unwrap();
    let mut walk = Walk { outputs: BTreeMap::new(), files: BTreeMap::new() };
    for index in order {
        let step = &plan.steps[index];
        let StepKind::Tool { tool_id, args, .. } = &step.kind else { continue };
        let args = bound(args, &walk.outputs);
        let output = match tool_id.as_str() {
            "source.fetch" => {
                let wanted = args["uris"].as_array().unwrap();
                let fetched: Vec<&Value> = documents.iter().filter(|d| wanted.contains(&d["uri"])).collect();
                json!({ "documents": fetched, "failures": [] })
            }
            "file.write" => {
                let (path, content) = (args["path"].as_str().unwrap(), args["content"].as_str().unwrap());
                walk.files.insert(path.to_owned(), content.to_owned());
                json!({})
            }
            // Optional steps are skipped where nobody serves their tool.
            "generate.audio" | "generate.image" => continue,
            id => answered(id, args).await.output,
        };
        walk.outputs.insert(step.step_id.to_string(), output);
    }
    walk
}

/// Replaces each binding by what it names.
fn bound(value: &Value, outputs: &BTreeMap<String, Value>) -> Value {
    match value {
        Value::Object(members) => match members.get("$from").and_then(Value::as_str) {
            Some(pointer) => {
                let rest = pointer.strip_prefix("/steps/").unwrap();
                let (step, field) = rest.split_once("/output").unwrap();
                outputs[step].pointer(field).unwrap_or_else(|| panic!("{pointer} is missing")).clone()
            }
            None => members.iter().map(|(key, value)| (key.clone(), bound(value, outputs))).collect(),
        },
        Value::Array(values) => values.iter().map(|value| bound(value, outputs)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Checks every quote of a pack against the sources, byte for byte; answers how many there were.
pub(super) fn quotes_found(pack: &Value, documents: &[Value]) -> usize {
    let mut count = 0;
    for item in pack["items"].as_array().unwrap() {
        let quotes = item["quotes"].as_array().unwrap();
        assert!(!quotes.is_empty(), "{} has no quote", item["id"]);
        for quote in quotes {
            let source = documents.iter().find(|document| document["name"] == quote["source"]).unwrap();
            let bytes = source["text"].as_str().unwrap().as_bytes();
            let range = quote["start"].as_u64().unwrap() as usize..quote["end"].as_u64().unwrap() as usize;
            assert_eq!(&bytes[range], quote["text"].as_str().unwrap().as_bytes(), "{}", item["id"]);
            count += 1;
        }
    }
    count
}
