//! `tools list`, `show`, `deps` and `deprecations`: the catalog as the server has it, and what of it can be called there.

use clap::Subcommand;
use serde_json::{Map, Value, json};
use signalbox_proto::v1;

use crate::client::{Registry, timed};
use crate::failure::Failure;
use crate::output::Out;

/// What `tools` says of the catalog.
#[derive(Debug, Subcommand)]
pub(crate) enum CatalogCommand {
    /// Lists the tools of the catalog, and which of them the server can call.
    #[command(after_help = "Example:
  signalbox tools list")]
    List,
    /// Shows one tool.
    #[command(after_help = "Example:
  signalbox tools show web.fetch")]
    Show {
        /// The tool.
        id: String,
    },
    /// Lists what a tool needs, in the order in which it can be set up.
    #[command(after_help = "Example:
  signalbox tools deps themis.adjudicate")]
    Deps {
        /// The tool.
        id: String,
    },
    /// Lists tools that are on their way out, with what replaces them and who needs them.
    #[command(after_help = "Example:
  signalbox tools deprecations --from 2026-01-01T00:00:00Z --to 2026-12-31T23:59:59Z")]
    Deprecations {
        /// Only those deprecated at this instant or later.
        #[arg(long, value_name = "INSTANT")]
        from: Option<String>,
        /// Only those deprecated at this instant or earlier.
        #[arg(long, value_name = "INSTANT")]
        to: Option<String>,
    },
}

/// Does what was asked.
pub(crate) async fn run(mut client: Registry, command: CatalogCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        CatalogCommand::List => {
            let answer = client.list_tools(timed(v1::ListToolsRequest::default())).await?.into_inner();
            if out.is_json() {
                return listed(&answer, out);
            }
            let rows = answer.tools.iter().map(|tool| {
                let entry = view(tool)?;
                let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
                let served = if tool.served { tool.served_semver.clone() } else { "no".to_owned() };
                Ok(vec![
                    tool.tool_id.clone(),
                    tool.semver.clone(),
                    text("risk"),
                    text("effect"),
                    text("recovery"),
                    served,
                ])
            });
            let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
            out.table(&["TOOL", "VERSION", "RISK", "EFFECT", "RECOVERY", "SERVED"], &rows)
        }
        CatalogCommand::Show { id } => {
            let answer = client.get_tool(timed(v1::GetToolRequest { tool_id: id })).await?.into_inner();
            let tool = answer.tool.unwrap_or_default();
            if out.is_json() {
                return out.json(&json!({ "tool": view(&tool)?, "order": answer.order }));
            }
            let entry = view(&tool)?;
            let text = |name: &str| entry[name].as_str().map_or_else(|| entry[name].to_string(), str::to_owned);
            out.fields(&[
                ("tool", tool.tool_id.clone()),
                ("version", tool.semver.clone()),
                ("title", text("title")),
                ("risk", text("risk")),
                ("effect", text("effect")),
                ("recovery", text("recovery")),
                ("leaves the installation", text("external")),
                ("needs a secret", text("needsSecret")),
                ("scopes", text("requiredScopes")),
                ("one call uses at most", text("ceiling")),
                ("timeout in ms", text("timeoutMs")),
                ("needs, in order", answer.order.join(", ")),
                ("served in", if tool.served { tool.served_semver.clone() } else { "not at all".to_owned() }),
                ("deprecated", tool.deprecation.map(|found| found.deprecated_at).unwrap_or_default()),
            ])
        }
        CatalogCommand::Deps { id } => {
            let answer = client.get_tool(timed(v1::GetToolRequest { tool_id: id })).await?.into_inner();
            if out.is_json() {
                return out.json(&json!({ "order": answer.order }));
            }
            answer.order.iter().try_for_each(|tool| out.line(tool))
        }
        CatalogCommand::Deprecations { from, to } => {
            let request = v1::ListToolsRequest {
                deprecated: true,
                deprecated_from: from.unwrap_or_default(),
                deprecated_to: to.unwrap_or_default(),
            };
            let answer = client.list_tools(timed(request)).await?.into_inner();
            if out.is_json() {
                return listed(&answer, out);
            }
            if answer.tools.is_empty() {
                return out.line("no tool of the catalog is on its way out");
            }
            let rows: Vec<_> = answer
                .tools
                .into_iter()
                .map(|tool| {
                    let found = tool.deprecation.unwrap_or_default();
                    let needed_by = found.dependent_tool_ids.join(", ");
                    vec![tool.tool_id, found.deprecated_at, found.replacement_tool_id, needed_by]
                })
                .collect();
            out.table(&["TOOL", "DEPRECATED", "USE INSTEAD", "NEEDED BY"], &rows)
        }
    }
}

fn listed(answer: &v1::ListToolsResponse, out: &mut Out) -> Result<(), Failure> {
    let tools = answer.tools.iter().map(view).collect::<Result<Vec<_>, _>>()?;
    out.json(&json!({
        "catalogVersion": answer.catalog_version, "publishedAt": answer.published_at, "tools": tools,
    }))
}

fn view(tool: &v1::CatalogTool) -> Result<Value, Failure> {
    let mut entry: Map<String, Value> = serde_json::from_slice(&tool.entry_json)
        .map_err(|error| Failure::new("answer-unreadable", format!("the server's answer cannot be read: {error}")))?;
    entry.insert("served".to_owned(), json!(tool.served));
    entry.insert("servedSemver".to_owned(), json!(tool.served_semver));
    if let Some(found) = &tool.deprecation {
        entry.insert("dependentToolIds".to_owned(), json!(found.dependent_tool_ids));
    }
    Ok(Value::Object(entry))
}
