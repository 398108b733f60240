//! The 21 tools of catalog version 1.0.0, as data (CAT-001, CAT-007 to CAT-009, LED-009, LED-010).

use serde_json::{Value, json};

use crate::catalog::{CatalogEntry, Effect, Recovery, Risk, TIMEOUT_MS_DEFAULT, ToolDependency};
use crate::ids::ToolId;
use crate::quantity::{BudgetCategory, Micros, Usage};

/// Version of the catalog (CAT-002).
pub const V1_CATALOG_VERSION: &str = "1.0.0";
/// When it was published (CAT-002).
pub const V1_CATALOG_PUBLISHED_AT: &str = "2026-05-11T00:00:00Z";

/// The tools, in the order of the catalog (CAT-001).
pub const V1_TOOL_IDS: [&str; 21] = [
    "web.fetch",
    "source.fetch",
    "sophia.ground",
    "sophia.fact_check",
    "memory.read",
    "memory.write",
    "persona.invoke",
    "generate.image",
    "generate.video",
    "generate.audio",
    "composition.suggest",
    "themis.adjudicate",
    "code.exec",
    "file.read",
    "file.write",
    "calendar.read",
    "calendar.write",
    "notify.send",
    "handoff",
    "approval.request",
    "agent.terminate",
];

const SEMVER: &str = "1.0.0";
const DEPENDENCY_RANGE: &str = "^1.0.0";
const KIB: i64 = 1_024;
const MIB: i64 = 1_024 * KIB;

pub(super) fn base_price(tool: &str) -> Micros {
    Micros::units(match tool {
        "memory.read" | "memory.write" | "file.read" | "file.write" | "calendar.read" | "calendar.write"
        | "notify.send" | "handoff" => 1,
        "web.fetch" | "source.fetch" | "persona.invoke" | "composition.suggest" => 2,
        "sophia.ground" => 3,
        "sophia.fact_check" | "themis.adjudicate" => 5,
        "code.exec" => 10,
        "generate.audio" => 15,
        "generate.image" => 20,
        "generate.video" => 200,
        // `approval.request` and `agent.terminate` cost nothing.
        _ => 0,
    })
}

pub(super) fn entries() -> Vec<CatalogEntry> {
    V1_TOOL_IDS.into_iter().map(entry).collect()
}

fn entry(tool: &'static str) -> CatalogEntry {
    let mut required_scopes = vec![format!("tool:{tool}")];
    if matches!(tool, "code.exec" | "agent.terminate") {
        required_scopes.push("operator:agents".to_owned());
    }
    let dependency =
        |on: &&'static str| ToolDependency { tool_id: ToolId::constant(on), range: DEPENDENCY_RANGE.to_owned() };
    CatalogEntry {
        tool_id: ToolId::constant(tool),
        semver: SEMVER.to_owned(),
        title: title(tool).to_owned(),
        risk: risk(tool),
        effect: effect(tool),
        recovery: recovery(tool),
        external: is_external(tool),
        needs_secret: tool == "notify.send" || tool.starts_with("generate."),
        required_scopes,
        input_schema: input_schema(tool),
        output_schema: json!({"type": "object"}),
        dependencies: dependencies(tool).iter().map(dependency).collect(),
        ceiling: ceiling(tool),
        timeout_ms: match tool {
            "code.exec" => 30_000,
            "generate.video" => 1_800_000,
            _ => TIMEOUT_MS_DEFAULT,
        },
        meter_reason: format!("agentic.{tool}"),
        deprecation: None,
    }
}

fn title(tool: &str) -> &'static str {
    match tool {
        "web.fetch" => "Fetch a page",
        "source.fetch" => "Fetch sources and files",
        "sophia.ground" => "Ground claims in sources",
        "sophia.fact_check" => "Check claims against sources",
        "memory.read" => "Read from memory",
        "memory.write" => "Write to memory",
        "persona.invoke" => "Apply a persona",
        "generate.image" => "Make an image",
        "generate.video" => "Make a video",
        "generate.audio" => "Make audio",
        "composition.suggest" => "Suggest a composition",
        "themis.adjudicate" => "Adjudicate a dispute",
        "code.exec" => "Run code in a sandbox",
        "file.read" => "Read a file of the run",
        "file.write" => "Write a file of the run",
        "calendar.read" => "Read a calendar",
        "calendar.write" => "Write to a calendar",
        "notify.send" => "Send a notification",
        "handoff" => "Hand off to another agent",
        "approval.request" => "Ask for an approval",
        _ => "Terminate an agent",
    }
}

fn risk(tool: &str) -> Risk {
    match tool {
        "sophia.ground"
        | "sophia.fact_check"
        | "memory.read"
        | "persona.invoke"
        | "composition.suggest"
        | "calendar.read"
        | "approval.request" => Risk::Low,
        "memory.write" | "themis.adjudicate" | "file.read" | "calendar.write" | "handoff" | "generate.image"
        | "generate.audio" => Risk::Medium,
        "web.fetch" | "source.fetch" | "generate.video" | "file.write" | "notify.send" => Risk::High,
        _ => Risk::Critical,
    }
}

fn effect(tool: &str) -> Effect {
    match tool {
        "memory.write" | "file.write" | "calendar.write" | "notify.send" | "code.exec" => Effect::Mutate,
        "persona.invoke" | "composition.suggest" | "generate.image" | "generate.video" | "generate.audio" => {
            Effect::Generate
        }
        "handoff" | "approval.request" | "agent.terminate" => Effect::Control,
        _ => Effect::Read,
    }
}

/// Looks and writes of named content can be repeated; what sends, books, generates or steers cannot.
fn recovery(tool: &str) -> Recovery {
    match tool {
        "web.fetch"
        | "source.fetch"
        | "sophia.ground"
        | "sophia.fact_check"
        | "memory.read"
        | "memory.write"
        | "persona.invoke"
        | "composition.suggest"
        | "file.read"
        | "file.write"
        | "calendar.read" => Recovery::Idempotent,
        _ => Recovery::AtMostOnce,
    }
}

fn is_external(tool: &str) -> bool {
    matches!(tool, "web.fetch" | "source.fetch" | "notify.send") || tool.starts_with("generate.")
}

fn dependencies(tool: &str) -> &'static [&'static str] {
    match tool {
        "sophia.fact_check" => &["sophia.ground"],
        "themis.adjudicate" => &["sophia.fact_check"],
        "memory.write" | "composition.suggest" => &["memory.read"],
        "file.write" | "code.exec" => &["file.read"],
        "calendar.write" => &["calendar.read"],
        "generate.video" => &["generate.image"],
        "agent.terminate" => &["approval.request"],
        _ => &[],
    }
}

/// One call of `source.fetch` may name up to a hundred sources; every other tool makes one look-up or outside call.
fn ceiling(tool: &str) -> Usage {
    let calls = if tool == "source.fetch" { 100 } else { 1 };
    let mut most = Usage::of(BudgetCategory::CostUnits, base_price(tool));
    if is_external(tool) {
        most = most.with(BudgetCategory::ExternalCalls, Micros::units(calls));
    }
    if tool.starts_with("sophia.") || matches!(tool, "source.fetch" | "memory.read") {
        most = most.with(BudgetCategory::Retrievals, Micros::units(calls));
    }
    match tool {
        "file.write" => most.with(BudgetCategory::StorageBytes, Micros::units(16 * MIB)),
        "memory.write" => most.with(BudgetCategory::StorageBytes, Micros::units(64 * KIB)),
        "generate.image" => most
            .with(BudgetCategory::GpuMinutes, Micros::units(1))
            .with(BudgetCategory::StorageBytes, Micros::units(16 * MIB)),
        "generate.audio" => most
            .with(BudgetCategory::VoiceSeconds, Micros::units(600))
            .with(BudgetCategory::StorageBytes, Micros::units(32 * MIB)),
        "generate.video" => most
            .with(BudgetCategory::GpuMinutes, Micros::units(30))
            .with(BudgetCategory::AvatarSeconds, Micros::units(300))
            .with(BudgetCategory::StorageBytes, Micros::units(512 * MIB)),
        _ => most,
    }
}

fn input_schema(tool: &str) -> Value {
    let required: Value = match tool {
        "web.fetch" => json!({"url": {"type": "string"}}),
        "source.fetch" => json!({"uris": {"type": "array", "items": {"type": "string"}, "maxItems": 100}}),
        "file.read" => json!({"path": {"type": "string"}}),
        "file.write" => json!({"path": {"type": "string"}, "content": {}}),
        "memory.read" => json!({"key": {"type": "string"}}),
        "memory.write" => json!({"key": {"type": "string"}, "value": {}}),
        _ => json!({}),
    };
    let names: Vec<&String> = required.as_object().into_iter().flat_map(|members| members.keys()).collect();
    json!({"type": "object", "required": names, "properties": required})
}
