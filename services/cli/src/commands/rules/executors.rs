//! Executors as documents: registered, never changed and never brought back.

use serde_json::Value;
use signalbox_domain::registry::ExecutorRegistration;
use signalbox_proto::v1;

use super::Planned;
use crate::client::{Registry, timed};
use crate::failure::Failure;
use crate::manifest::{Document, Kind};

/// What applying it comes to. The executor itself is asked what it serves when it is registered.
pub(super) async fn plan(client: &mut Registry, document: Document) -> Result<Planned, Failure> {
    let wanted = ExecutorRegistration::parse(&super::bytes(&document.spec)?)
        .map_err(|denial| Failure::usage(denial.code(), denial.to_string()))?;
    let planned = |document, before, after, moot| Ok(Planned { document, before, after, revision: 0, moot });
    let known = list(client, true).await?;
    let Some(standing) = known.iter().find(|known| known.executor_id == document.id()) else {
        let taken = known.iter().filter(|known| known.retired_at_unix_ms == 0).find_map(|known| {
            let tool = known.tools.iter().find(|tool| wanted.tool_ids.iter().any(|id| id.as_str() == tool.tool_id));
            tool.map(|tool| format!("`{}` is served by the executor `{}`", tool.tool_id, known.executor_id))
        });
        if let Some(taken) = taken {
            return Err(Failure::new("tool-bound-twice", taken).next("retire that one first"));
        }
        let after = value(&wanted)?;
        return planned(document, None, after, None);
    };
    let before = Value::Object(rule(standing)?);
    // What the document leaves out, the server has filled in.
    let digest = wanted.schemas_digest.clone().or_else(|| Some(standing.schemas_digest.clone()));
    let after = value(&ExecutorRegistration { schemas_digest: digest, ..wanted })?;
    if standing.retired_at_unix_ms != 0 {
        return planned(document, Some(before), after, Some("it was retired"));
    }
    if before != after {
        let message = "it is registered and says something else; an executor is never changed";
        return Err(Failure::new("executor-exists", message).next("choose another id, or retire it first"));
    }
    planned(document, Some(before), after, None)
}

/// Registers it.
pub(super) async fn carry_out(client: &mut Registry, planned: &Planned) -> Result<(), Failure> {
    let document = &planned.document;
    let executor_json = super::bytes(&document.spec)?.into();
    let request = v1::RegisterExecutorRequest { executor_json, reason: document.reason() };
    client.register_executor(timed(request)).await?;
    Ok(())
}

/// The executors that are registered and not retired; none for whoever may not see them.
pub(super) async fn in_force(client: &mut Registry) -> Result<Vec<Document>, Failure> {
    let known = match list(client, false).await {
        Ok(known) => known,
        Err(failure) if failure.code == "not-authorized" => return Ok(Vec::new()),
        Err(failure) => return Err(failure),
    };
    known
        .iter()
        .map(|known| {
            let document = super::of_server(Kind::Executor, "", rule(known)?)?;
            Ok(Document { platform_wide: false, ..document })
        })
        .collect()
}

async fn list(client: &mut Registry, all: bool) -> Result<Vec<v1::RegisteredExecutor>, Failure> {
    Ok(client.list_executors(timed(v1::ListExecutorsRequest { all })).await?.into_inner().executors)
}

/// What an executor was registered as, without who did it and when.
fn rule(executor: &v1::RegisteredExecutor) -> Result<serde_json::Map<String, Value>, Failure> {
    let text = |text: &String| (!text.is_empty()).then(|| Value::String(text.clone()));
    let mut tools: Vec<_> = executor.tools.iter().map(|tool| tool.tool_id.clone()).collect();
    tools.sort();
    let members = [
        ("executorId", text(&executor.executor_id)),
        ("address", text(&executor.address)),
        ("toolIds", Some(tools.into())),
        ("schemasDigest", text(&executor.schemas_digest)),
        ("tlsId", text(&executor.tls_id)),
    ];
    Ok(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

fn value(registration: &ExecutorRegistration) -> Result<Value, Failure> {
    serde_json::to_value(registration).map_err(|error| Failure::new("output-failed", error.to_string()))
}
