//! `explain`: why a run stopped and why its calls were refused. What is told is read off the journal on this machine; a
//! server is asked for nothing but the journal itself.

use clap::Args;
use serde::Serialize;
use signalbox_domain::governance::budget::MeterReading;
use signalbox_domain::run::event::GovernanceAudited;
use signalbox_domain::run::explain::{CallStory, Explanation, explain};
use uuid::Uuid;

use super::verify::journal;
use crate::client::Connection;
use crate::describe::control;
use crate::failure::Failure;
use crate::output::{Out, instant};

/// `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A run's id, or a file made by `signalbox runs export`; `-` reads standard input.
    #[arg(value_name = "ID|FILE")]
    what: String,
    /// Only this call.
    #[arg(value_name = "CALL")]
    call: Option<Uuid>,
}

/// Explains a run of the server, or of a file; all of its calls, or one.
pub(crate) async fn run(server: &Connection, args: ExplainArgs, out: &mut Out) -> Result<(), Failure> {
    let call = args.call;
    let file = journal(server, &args.what).await?;
    let mut found = explain(&file.events).map_err(|error| {
        let message = format!("the journal cannot be read at event {}: {}", error.seq, error.problem);
        Failure::new("journal-not-sound", message).next("see what `signalbox verify` finds")
    })?;
    if let Some(call) = call {
        found.calls.retain(|story| story.call_id.uuid() == call);
        if found.calls.is_empty() {
            return Err(Failure::new("no-such-call", format!("run {} has made no call {call}", found.run_id)));
        }
    }
    if out.is_json() {
        return out.json(&found);
    }
    show_run(&found, out)?;
    show_audits(&found, out)?;
    show_calls(&found, call.is_some(), out)
}

fn show_run(found: &Explanation, out: &mut Out) -> Result<(), Failure> {
    let because =
        found.end.as_ref().and_then(|end| Some((end.code.as_ref()?, end.message.as_deref().unwrap_or_default())));
    let ended = found.end.as_ref().map(|end| {
        let at = instant(end.at_unix_micros.0);
        format!("{at}, by {} (event {})", end.actor.actor_id, end.seq)
    });
    let text = |value: Option<String>| value.unwrap_or_default();
    out.fields(&[
        ("run", found.run_id.to_string()),
        ("status", found.status.as_str().to_owned()),
        ("because", text(because.map(|(code, message)| format!("{code}: {message}")))),
        ("ended", text(ended)),
        ("blamed", text(found.end.as_ref().and_then(|end| end.blamed_id.clone()))),
        ("at step", text(found.end.as_ref().and_then(|end| end.step_id.as_ref()).map(ToString::to_string))),
        ("not known", found.unknown_call_ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    ])?;
    for steering in &found.controls {
        let by = &steering.actor.actor_id;
        out.line(&format!("event {}: {} by {by}: {}", steering.seq, control(steering.kind), steering.reason_text))?;
    }
    Ok(())
}

fn show_audits(found: &Explanation, out: &mut Out) -> Result<(), Failure> {
    for audit in &found.audits {
        match &audit.what {
            GovernanceAudited::KillSwitch { switch_id, armed_by, armed_at_unix_ms, reason } => {
                let at = instant(armed_at_unix_ms.micros().0);
                out.line(&format!(
                    "event {}: the switch `{switch_id}`, armed by {armed_by} at {at}: {reason}",
                    audit.seq
                ))?;
            }
            GovernanceAudited::Budget { budget_id, readings } => {
                out.line(&format!("event {}: the budget `{budget_id}`", audit.seq))?;
                show_meters(readings, out)?;
            }
            GovernanceAudited::Overshoot { call_id, detail, .. } => {
                out.line(&format!("event {}: call {call_id} used more than was reserved: {detail}", audit.seq))?;
            }
        }
    }
    Ok(())
}

fn show_meters(readings: &[MeterReading], out: &mut Out) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = readings
        .iter()
        .map(|meter| {
            let figures = [meter.consumed, meter.reserved, meter.limit, meter.asked].map(|figure| figure.to_string());
            let names = [meter.budget_id.to_string(), meter.category.as_str().to_owned()];
            names.into_iter().chain(figures).collect()
        })
        .collect();
    out.table(&["BUDGET", "CATEGORY", "CONSUMED", "RESERVED", "LIMIT", "ASKED"], &rows)
}

fn show_calls(found: &Explanation, all: bool, out: &mut Out) -> Result<(), Failure> {
    if found.calls.is_empty() {
        return Ok(());
    }
    let rows: Vec<Vec<String>> = found
        .calls
        .iter()
        .map(|call| {
            let because = call.error.as_ref().map(|error| error.code.clone()).unwrap_or_default();
            let ids = [call.call_id.to_string(), call.step_id.to_string(), call.tool_id.to_string()];
            ids.into_iter().chain([call.outcome.as_str().to_owned(), because]).collect()
        })
        .collect();
    out.line("")?;
    out.table(&["CALL", "STEP", "TOOL", "OUTCOME", "BECAUSE"], &rows)?;
    for call in found.calls.iter().filter(|call| all || !call.answers.is_empty()) {
        show_call(call, all, out)?;
    }
    Ok(())
}

/// What the gate said of one call, stage by stage; of an admitted one, under which grant, at which epoch, on which meters.
fn show_call(call: &CallStory, all: bool, out: &mut Out) -> Result<(), Failure> {
    out.line("")?;
    out.line(&format!("call {} of `{}` for step `{}`, event {}", call.call_id, call.tool_id, call.step_id, call.seq))?;
    if let Some(error) = &call.error {
        out.line(&error.message)?;
    }
    if let Some(grant) = &call.grant_id {
        out.line(&format!("admitted by the grant `{grant}` at epoch {}", call.epoch.unwrap_or_default()))?;
    }
    if all && !call.meters.is_empty() {
        show_meters(&call.meters, out)?;
    }
    if call.answers.is_empty() {
        return Ok(());
    }
    let rows: Vec<Vec<String>> = call
        .answers
        .iter()
        .map(|answer| {
            let said = if answer.passed { "passed" } else { "objected" };
            vec![word(answer.stage), said.to_owned(), answer.code.to_string(), answer.detail.to_string()]
        })
        .collect();
    out.table(&["STAGE", "SAID", "CODE", "WHY"], &rows)
}

/// The wire string of an enumeration.
fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
