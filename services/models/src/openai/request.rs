//! What is sent: the conversation in the protocol's words.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What the protocol calls our tools: their names may hold no dots there.
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    pub(super) fn of(args: &Value) -> Self {
        let tools = args.get("tools").and_then(Value::as_array).into_iter().flatten();
        let ids = tools.filter_map(|tool| tool.get("tool").and_then(Value::as_str));
        Self(ids.map(|id| (outward(id), id.to_owned())).collect())
    }

    /// Our name of a tool; a name that is none of ours stays as it is, and is refused where it is judged.
    pub(super) fn ours(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }
}

fn outward(tool: &str) -> String {
    tool.replace('.', "__")
}

/// The body of a request.
pub(super) fn body(args: &Value, model: &str) -> String {
    let part = |key: &str| args.get(key).cloned().unwrap_or_default();
    let messages: Vec<Value> =
        args.get("messages").and_then(Value::as_array).into_iter().flatten().map(message).collect();
    let micros = args.get("temperatureMicros").and_then(Value::as_i64).unwrap_or_default();
    let mut body = json!({
        "model": model,
        "messages": messages,
        "max_tokens": part("maxTokens"),
        "temperature": micros as f64 / 1_000_000.0,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    let tools: Vec<Value> = args.get("tools").and_then(Value::as_array).into_iter().flatten().map(tool).collect();
    if let (false, Value::Object(members)) = (tools.is_empty(), &mut body) {
        members.insert("tools".to_owned(), Value::Array(tools));
    }
    body.to_string()
}

fn tool(tool: &Value) -> Value {
    let name = outward(tool.get("tool").and_then(Value::as_str).unwrap_or_default());
    let schema = tool.get("schema").filter(|schema| schema.is_object());
    let schema = schema.cloned().unwrap_or_else(|| json!({ "type": "object" }));
    let title = tool.get("title").cloned().unwrap_or_default();
    json!({ "type": "function", "function": { "name": name, "description": title, "parameters": schema } })
}

fn message(message: &Value) -> Value {
    let part = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
    match part("role") {
        "tool" => json!({ "role": "tool", "tool_call_id": part("callId"), "content": part("text") }),
        "assistant" => {
            let mut said = Map::new();
            said.insert("role".to_owned(), json!("assistant"));
            said.insert("content".to_owned(), json!(part("text")));
            let calls = message.get("calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if !calls.is_empty() {
                said.insert("tool_calls".to_owned(), calls.iter().map(call).collect());
            }
            Value::Object(said)
        }
        role => json!({ "role": role, "content": part("text") }),
    }
}

fn call(call: &Value) -> Value {
    let part = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default();
    let args = call.get("args").map_or_else(|| "{}".to_owned(), Value::to_string);
    json!({ "id": part("id"), "type": "function", "function": { "name": outward(part("tool")), "arguments": args } })
}
