//! Stand-ins: what a rehearsal answers for a tool that it does not call (MOD-007).
//!
//! Tools whose answers other tools read have recorded ones, so that what comes after them is really rehearsed. Every other
//! answer is derived from the tool's output schema. Whatever a later step of the plan binds to is there, if only as `null`.
//! A stand-in never holds anything of the arguments: it is the same for everybody.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::ids::{StepId, ToolId};
use crate::run::binding;
use crate::run::plan::Plan;

/// The member that tells a stand-in from an answer.
pub const SIMULATED_KEY: &str = "simulated";
/// Deepest nesting that is derived from a schema.
const DEPTH_MAX: usize = 16;
/// Most items a derived list has, whatever its schema asks for.
const ITEMS_MAX: u64 = 16;

static RECORDED: LazyLock<Value> =
    // A constant of this crate; a test reads it, and a recording that were missing would only be derived.
    LazyLock::new(|| serde_json::from_str(include_str!("stand_ins.json")).unwrap_or(Value::Null));

/// The recorded answer of a tool; for a tool with several ways to work, of the one its arguments name as `mode`.
pub fn recorded(tool: &ToolId, args: &Value) -> Option<&'static Value> {
    let of_tool = RECORDED.get(tool.as_str())?;
    match args.get("mode").and_then(Value::as_str) {
        Some(mode) => of_tool.get(mode),
        None => of_tool.get(""),
    }
}

/// What stands for the answer of a step's call. `args` are the arguments, bound.
pub fn stand_in(plan: &Plan, step: &StepId, tool: &ToolId, args: &Value) -> Value {
    let derived = || {
        let schema = crate::catalog::entry(tool).map(|entry| &entry.output_schema);
        schema.map_or(Value::Null, |schema| from_schema(schema, 0))
    };
    let mut answer = recorded(tool, args).cloned().unwrap_or_else(derived);
    if !answer.is_object() {
        answer = json!({ "value": answer });
    }
    for pointer in binding::bound_of(plan, step) {
        make_way(&mut answer, &pointer);
    }
    if let Value::Object(members) = &mut answer {
        members.insert(SIMULATED_KEY.to_owned(), Value::Bool(true));
    }
    answer
}

/// The smallest value that a JSON Schema lets through, as far as its usual words go.
fn from_schema(schema: &Value, depth: usize) -> Value {
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    if let Some(given) = schema.get("const").or_else(|| schema.get("default")) {
        return given.clone();
    }
    for list in ["examples", "enum"] {
        if let Some(first) = schema.get(list).and_then(Value::as_array).and_then(|values| values.first()) {
            return first.clone();
        }
    }
    for list in ["oneOf", "anyOf"] {
        if let Some(first) = schema.get(list).and_then(Value::as_array).and_then(|schemas| schemas.first()) {
            return from_schema(first, depth + 1);
        }
    }
    match type_of(schema) {
        Some("object") => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let members = properties.into_iter().flatten().map(|(k, v)| (k.clone(), from_schema(v, depth + 1)));
            Value::Object(members.collect())
        }
        Some("array") => {
            let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0).min(ITEMS_MAX);
            let item = schema.get("items").map_or(Value::Null, |items| from_schema(items, depth + 1));
            Value::Array((0..least).map(|_| item.clone()).collect())
        }
        Some("string") => Value::String("rehearsal".to_owned()),
        Some("number" | "integer") => schema.get("minimum").cloned().unwrap_or_else(|| json!(0)),
        Some("boolean") => Value::Bool(false),
        Some(_) | None => Value::Null,
    }
}

fn type_of(schema: &Value) -> Option<&str> {
    match schema.get("type")? {
        Value::String(one) => Some(one),
        Value::Array(several) => several.first().and_then(Value::as_str),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Adds what a pointer names to an answer, unless it is there or a plain value stands in its way. Too deep a pointer adds
/// nothing: what it names could not be read back from the journal.
fn make_way(answer: &mut Value, pointer: &[String]) {
    if pointer.len() > DEPTH_MAX {
        return;
    }
    let mut at = answer;
    for token in pointer {
        if at.is_null() {
            let is_place = !token.is_empty() && token.bytes().all(|b| b.is_ascii_digit());
            *at = if is_place { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
        }
        at = match at {
            Value::Object(members) => members.entry(token.clone()).or_insert(Value::Null),
            Value::Array(items) => {
                let Some(index) = token.parse().ok().filter(|index| *index < ITEMS_MAX as usize) else { return };
                while items.len() <= index {
                    items.push(items.last().cloned().unwrap_or(Value::Null));
                }
                &mut items[index]
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
        };
    }
}
