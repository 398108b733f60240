//! An explanation in words: aligned lines for people, the same at every edge and on the command line.
//!
//! What is told came from plans, tools and people, so each piece is kept on one line. Characters that could steer a
//! terminal are the business of whoever prints to one.

use serde::Serialize;

use super::explain::{CallStory, Explanation};
use crate::governance::budget::MeterReading;
use crate::run::event::GovernanceAudited;
use crate::time::UnixMicros;

/// The whole explanation. With `in_full` also what admitted calls were admitted by, which else only those that a stage
/// objected to are told of.
pub fn tell(found: &Explanation, in_full: bool) -> String {
    let mut text = Text::default();
    run(found, &mut text);
    audits(found, &mut text);
    handoffs(found, &mut text);
    calls(found, in_full, &mut text);
    text.0
}

fn run(found: &Explanation, text: &mut Text) {
    let end = found.end.as_ref();
    let because = end.and_then(|end| Some((end.code.as_ref()?, end.message.as_deref().unwrap_or_default())));
    let ended = end.map(|end| {
        let at = instant(end.at_unix_micros);
        format!("{at}, by {} (event {})", end.actor.actor_id, end.seq)
    });
    let known = |value: Option<String>| value.unwrap_or_default();
    text.fields(&[
        ("run", found.run_id.to_string()),
        ("status", found.status.as_str().to_owned()),
        ("because", known(because.map(|(code, message)| format!("{code}: {message}")))),
        ("ended", known(ended)),
        ("blamed", known(end.and_then(|end| end.blamed_id.clone()))),
        ("at step", known(end.and_then(|end| end.step_id.as_ref()).map(ToString::to_string))),
        ("not known", found.unknown_call_ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    ]);
    for steering in &found.controls {
        let (by, kind) = (&steering.actor.actor_id, word(steering.kind));
        text.line(&format!("event {}: {kind} by {by}: {}", steering.seq, steering.reason_text));
    }
}

fn audits(found: &Explanation, text: &mut Text) {
    for audit in &found.audits {
        match &audit.what {
            GovernanceAudited::KillSwitch { switch_id, armed_by, armed_at_unix_ms, reason } => {
                let at = instant(armed_at_unix_ms.micros());
                text.line(&format!(
                    "event {}: the switch `{switch_id}`, armed by {armed_by} at {at}: {reason}",
                    audit.seq
                ));
            }
            GovernanceAudited::Budget { budget_id, readings } => {
                text.line(&format!("event {}: the budget `{budget_id}`", audit.seq));
                meters(readings, text);
            }
            GovernanceAudited::Overshoot { call_id, detail, .. } => {
                text.line(&format!("event {}: call {call_id} used more than was reserved: {detail}", audit.seq));
            }
            GovernanceAudited::SubagentBudgetExceeded { child_run_id, given, used, beyond } => {
                text.line(&format!(
                    "event {}: sub-run {child_run_id} used {used} of the {given} it was given, {beyond} more than it had",
                    audit.seq
                ));
            }
            GovernanceAudited::IdentityMismatch { claimed_tenant_id } => {
                text.line(&format!("event {}: submitted in the name of `{claimed_tenant_id}`", audit.seq));
            }
        }
    }
}

fn meters(readings: &[MeterReading], text: &mut Text) {
    let rows: Vec<Vec<String>> = readings
        .iter()
        .map(|meter| {
            let figures = [meter.consumed, meter.reserved, meter.limit, meter.asked].map(|figure| figure.to_string());
            let names = [meter.budget_id.to_string(), meter.category.as_str().to_owned()];
            names.into_iter().chain(figures).collect()
        })
        .collect();
    text.table(&["BUDGET", "CATEGORY", "CONSUMED", "RESERVED", "LIMIT", "ASKED"], &rows);
}

fn handoffs(found: &Explanation, text: &mut Text) {
    for refused in &found.refused_handoffs {
        let (step, agent) = (&refused.step_id, &refused.agent_id);
        text.line(&format!(
            "event {}: step `{step}` could not hand off to `{agent}`: {}: {}",
            refused.seq,
            refused.reason.code(),
            refused.message
        ));
    }
}

fn calls(found: &Explanation, in_full: bool, text: &mut Text) {
    if found.calls.is_empty() {
        return;
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
    text.line("");
    text.table(&["CALL", "STEP", "TOOL", "OUTCOME", "BECAUSE"], &rows);
    for call in found.calls.iter().filter(|call| in_full || !call.answers.is_empty()) {
        story(call, in_full, text);
    }
}

/// What the gate said of one call, stage by stage; of an admitted one, under which grant, at which epoch, on which meters.
fn story(call: &CallStory, in_full: bool, text: &mut Text) {
    text.line("");
    text.line(&format!("call {} of `{}` for step `{}`, event {}", call.call_id, call.tool_id, call.step_id, call.seq));
    if let Some(error) = &call.error {
        text.line(&error.message);
    }
    if let Some(grant) = &call.grant_id {
        text.line(&format!("admitted by the grant `{grant}` at epoch {}", call.epoch.unwrap_or_default()));
    }
    if in_full && !call.meters.is_empty() {
        meters(&call.meters, text);
    }
    if call.answers.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = call
        .answers
        .iter()
        .map(|answer| {
            let said = if answer.passed { "passed" } else { "objected" };
            vec![word(answer.stage), said.to_owned(), answer.code.to_string(), answer.detail.to_string()]
        })
        .collect();
    text.table(&["STAGE", "SAID", "CODE", "WHY"], &rows);
}

/// The wire string of an enumeration.
fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// An instant as people read it, in UTC.
fn instant(at: UnixMicros) -> String {
    match jiff::Timestamp::from_microsecond(at.0) {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => at.0.to_string(),
    }
}

/// Lines, aligned.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, text: &str) {
        self.0.push_str(&one_line(text));
        self.0.push('\n');
    }

    /// Names and their values; empty values are left out.
    fn fields(&mut self, fields: &[(&str, String)]) {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            self.line(&format!("{name:<width$}  {value}"));
        }
    }

    /// Columns under their headings; the last is not padded.
    fn table(&mut self, headings: &[&str], rows: &[Vec<String>]) {
        let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
        let all = || std::iter::once(&headings).chain(&rows);
        let width = |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..headings.len()).map(|column| width(column).unwrap_or(0)).collect();
        for row in all() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
            }
            self.line(line.trim_end());
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ")
}
