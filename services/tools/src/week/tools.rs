//! `calendar.read`, and the modes of `composition.suggest` that are about a week.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::calendar::{Asked, ENTRIES_MAX, Found, Week};
use super::review::{Review, render, review};
use crate::bundled::shared::{args, base_usage, blocking, check_price, descriptor, outcome, refusal};
use crate::bundled::source::local;
use crate::modes::{Given, given};
use crate::sky;
use crate::tool::{Answer, Descriptor, Failure, ProgressSink, Tool, ToolCall, ToolOutcome};

/// Most calendar files of one call.
const URIS_MAX: usize = 20;
/// Longest span of one call, in days.
const DAYS_MAX: i64 = 92;
/// Most outputs of `memory.read` that one review takes.
const MEMORY_MAX: usize = 50;

/// `calendar.read`.
#[derive(Debug)]
pub(crate) struct CalendarRead;

/// How many events and tasks a calendar file holds for two weeks of 2026, and how many things in it cannot be read.
pub fn read_of(bytes: Vec<u8>) -> (usize, usize) {
    let (Ok(from), Ok(to)) = (sky::day("2026-11-23"), sky::day("2026-12-07")) else { return (0, 0) };
    let mut found = Found::default();
    found.add("a.ics", bytes, &Asked { from, to, zone: jiff::tz::TimeZone::UTC });
    (found.events.len() + found.todos.len(), found.failures.len())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilesArgs {
    uris: Vec<String>,
    from: String,
    to: String,
    #[serde(default)]
    zone: Option<String>,
}

/// Reads the calendar files that the grant names.
fn files(asked: &Value, allowed: Option<&[String]>) -> Given {
    let FilesArgs { uris, from, to, zone } = args(asked)?;
    if uris.is_empty() || uris.len() > URIS_MAX {
        return Err(refusal("args-invalid", format!("`uris` are 1 to {URIS_MAX} calendar files")));
    }
    let (first, after) = (sky::day(&from)?, sky::day(&to)?);
    let (zone_name, zone) = sky::zone(zone.as_deref())?;
    let days = first.until(after).map_or(0, |span| i64::from(span.get_days()));
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(refusal("span-out-of-range", format!("the span has {days} days; give 1 to {DAYS_MAX}")));
    }
    let asked = Asked { from: first, to: after, zone };
    let mut found = Found::default();
    for uri in uris {
        match local::fetch(&uri, allowed) {
            Ok(raw) => found.add(&raw.name, raw.bytes, &asked),
            Err(failure) => found.fail(&failure.name, failure.code, failure.message),
        }
    }
    let Found { mut events, mut todos, failures } = found;
    events.sort_by(|a, b| (&a.day, &a.start, &a.title).cmp(&(&b.day, &b.start, &b.title)));
    // The same entry in two files happened once.
    events.dedup_by(|a, b| (&a.day, &a.start, &a.end, &a.title) == (&b.day, &b.start, &b.end, &b.title));
    todos.sort_by(|a, b| {
        (a.done.is_some(), a.due.is_none(), &a.due, &a.title).cmp(&(
            b.done.is_some(),
            b.due.is_none(),
            &b.due,
            &b.title,
        ))
    });
    let whole = failures.is_empty();
    let (value, evidence, _) = given(&Week { from, to, zone: zone_name, events, todos, failures })?;
    Ok((value, evidence, whole))
}

#[async_trait]
impl Tool for CalendarRead {
    fn descriptor(&self) -> Descriptor {
        descriptor("calendar.read", false)
    }

    async fn run(&self, call: ToolCall, _progress: ProgressSink) -> ToolOutcome {
        let result = async {
            check_price(&call)?;
            let measured = base_usage(&call.tool_id);
            let (mut asked, paths) = (call.args, call.constraints.paths);
            let mode = asked.as_object_mut().and_then(|members| members.remove("mode"));
            let (value, _, whole) = blocking(move || match mode.as_ref().and_then(Value::as_str) {
                Some("files") => files(&asked, paths.as_deref()),
                Some("sky") => sky::tools::read(&asked),
                Some(_) | None => Err(refusal("args-invalid", "`mode` is `files` or `sky`")),
            })
            .await?;
            let answer = Answer::new(value, measured);
            Ok(if whole { ToolOutcome::Ok(answer) } else { ToolOutcome::Partial(answer) })
        };
        outcome(result.await)
    }
}

/// One output of `memory.read`, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Memory {
    Many(Vec<Value>),
    One(Value),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReviewArgs {
    week: Week,
    #[serde(default)]
    memory: Option<Memory>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenderReview {
    review: Review,
}

/// The modes of `composition.suggest` that are about a week.
pub(crate) fn compose(mode: &str, asked: &Value) -> Option<Given> {
    Some(match mode {
        "review" => args::<ReviewArgs>(asked).and_then(|ReviewArgs { week, memory }| {
            bounded(week.events.len() + week.todos.len())?;
            let memory = match memory {
                None => Vec::new(),
                Some(Memory::Many(all)) => all,
                Some(Memory::One(one)) => vec![one],
            };
            if memory.len() > MEMORY_MAX {
                return Err(refusal("args-invalid", format!("`memory` has at most {MEMORY_MAX} entries")));
            }
            given(&json!({ "review": review(week, &memory) }))
        }),
        "render-review" => args::<RenderReview>(asked).and_then(|RenderReview { review }| {
            bounded(review.days.iter().map(|day| day.entries.len()).sum())?;
            given(&render(&review))
        }),
        _ => return None,
    })
}

fn bounded(entries: usize) -> Result<(), Failure> {
    if entries > 2 * ENTRIES_MAX {
        return Err(refusal("calendar-too-long", format!("{entries} entries are too many")));
    }
    Ok(())
}
