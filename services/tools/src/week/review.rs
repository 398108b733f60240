//! The draft of a weekly review: what was done, where the time went, what is open, and what to ask oneself.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::calendar::{Entry, Todo, Week};
use crate::briefing::compose::listed;
use crate::briefing::model::Unusable;
use crate::briefing::safe::{clean, cut};
use crate::folder::{Files, both, data, rendered};
use crate::page::{self, Page, counted};
use crate::sky::explain::long_day;

/// What has no category.
const NO_CATEGORY: &str = "without a category";
/// Most notes that are taken from memory.
const NOTES_MAX: usize = 200;
/// Longest note, in bytes.
const NOTE_BYTES_MAX: usize = 400;

/// Time of one category.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Spent {
    pub(crate) category: String,
    pub(crate) minutes: u32,
    pub(crate) events: usize,
}

/// A day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Day {
    pub(crate) day: String,
    pub(crate) minutes: u32,
    pub(crate) entries: Vec<Entry>,
}

/// Something that is not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Thread {
    pub(crate) title: String,
    /// Why it is listed.
    pub(crate) because: String,
}

/// The draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Review {
    pub(crate) title: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) zone: String,
    /// The week in sentences.
    pub(crate) summary: Vec<String>,
    pub(crate) days: Vec<Day>,
    pub(crate) spent: Vec<Spent>,
    pub(crate) finished: Vec<String>,
    pub(crate) open: Vec<Thread>,
    /// From memory, as they were kept.
    pub(crate) kept: Vec<String>,
    /// What to ask oneself.
    pub(crate) questions: Vec<String>,
    pub(crate) failures: Vec<Unusable>,
}

/// What memory holds that a review can use.
#[derive(Default)]
struct Remembered {
    done: Vec<String>,
    open: Vec<String>,
    kept: Vec<String>,
}

/// Drafts the review of a week.
pub(super) fn review(week: Week, memory: &[Value]) -> Review {
    let remembered = remembered(memory);
    let held = |entry: &&Entry| entry.status.as_deref() != Some("cancelled");
    let days = days(&week);
    let spent = spent(week.events.iter().filter(held));
    let mut finished: Vec<String> =
        week.todos.iter().filter(|todo| todo.done.is_some()).map(|todo| todo.title.clone()).collect();
    finished.extend(remembered.done);
    let mut open: Vec<Thread> =
        week.todos.iter().filter(|todo| todo.done.is_none()).map(|todo| open_todo(todo, &week.to)).collect();
    for entry in &week.events {
        if let Some(status) = &entry.status {
            let because = match status.as_str() {
                "cancelled" => format!("was cancelled on {}", long_day(&entry.day)),
                _ => format!("was still tentative on {}", long_day(&entry.day)),
            };
            open.push(Thread { title: entry.title.clone(), because });
        }
    }
    open.extend(
        remembered.open.into_iter().map(|title| Thread { title, because: "kept in memory as open".to_owned() }),
    );
    let mut seen = BTreeSet::new();
    open.retain(|thread| seen.insert(thread.title.to_lowercase()));
    let last = week.to.parse::<Date>().ok().and_then(|day| day.yesterday().ok());
    let last = last.map_or_else(|| week.to.clone(), |day| day.to_string());
    let title = format!("Review of {} to {}", long_day(&week.from), long_day(&last));
    let summary = summary(&week, &days, &spent, &finished, &open);
    let questions = questions(&spent, &open);
    Review {
        title,
        from: week.from,
        to: week.to,
        zone: week.zone,
        summary,
        days,
        spent,
        finished,
        open,
        kept: remembered.kept,
        questions,
        failures: week.failures,
    }
}

/// Every day of the span, also those without an entry; a long span only those with one.
fn days(week: &Week) -> Vec<Day> {
    let mut days: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    if let (Ok(from), Ok(to)) = (week.from.parse::<Date>(), week.to.parse::<Date>()) {
        let all = from.series(jiff::Span::new().days(1)).take_while(|day| *day < to).take(14);
        days.extend(all.map(|day| (day.to_string(), Vec::new())));
    }
    for entry in &week.events {
        days.entry(entry.day.clone()).or_default().push(entry.clone());
    }
    let day = |(day, entries): (String, Vec<Entry>)| {
        let held = entries.iter().filter(|entry| entry.status.as_deref() != Some("cancelled"));
        Day { day, minutes: held.map(|entry| entry.minutes).fold(0, u32::saturating_add), entries }
    };
    days.into_iter().map(day).collect()
}

fn spent<'e>(events: impl Iterator<Item = &'e Entry>) -> Vec<Spent> {
    let mut all: BTreeMap<String, (u32, usize)> = BTreeMap::new();
    for entry in events.filter(|entry| entry.minutes > 0) {
        let category = entry.category.clone().unwrap_or_else(|| NO_CATEGORY.to_owned());
        let (minutes, events) = all.entry(category).or_default();
        *minutes = minutes.saturating_add(entry.minutes);
        *events += 1;
    }
    let mut spent: Vec<Spent> =
        all.into_iter().map(|(category, (minutes, events))| Spent { category, minutes, events }).collect();
    spent.sort_by(|a, b| b.minutes.cmp(&a.minutes).then_with(|| a.category.cmp(&b.category)));
    spent
}

fn open_todo(todo: &Todo, to: &str) -> Thread {
    let because = match &todo.due {
        Some(due) if due.as_str() < to => format!("was due on {}", long_day(due)),
        Some(due) => format!("due on {}", long_day(due)),
        None => "no day is set".to_owned(),
    };
    Thread { title: todo.title.clone(), because }
}

/// What `memory.read` gave: a text, a list of texts, or an object with `done`, `open` and anything else.
fn remembered(memory: &[Value]) -> Remembered {
    let mut all = Remembered::default();
    for output in memory {
        let value = output.get("value").unwrap_or(output);
        let Some(members) = value.as_object() else {
            texts(value, &mut all.kept);
            continue;
        };
        for (key, one) in members {
            let into = match key.as_str() {
                "done" | "finished" => &mut all.done,
                "open" | "openThreads" | "todo" => &mut all.open,
                _ => &mut all.kept,
            };
            texts(one, into);
        }
    }
    all
}

fn texts(value: &Value, into: &mut Vec<String>) {
    let one = std::slice::from_ref(value);
    let all = value.as_array().map_or(one, Vec::as_slice);
    for text in all.iter().filter_map(Value::as_str).filter(|text| !text.trim().is_empty()) {
        if into.len() < NOTES_MAX {
            into.push(clean(cut(text, NOTE_BYTES_MAX)));
        }
    }
}

/// `3 h 30 min`.
fn duration(minutes: u32) -> String {
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

fn weekday(day: &str) -> String {
    day.parse::<Date>().map_or_else(|_| day.to_owned(), |date| date.strftime("%A, %-d %B").to_string())
}

fn summary(week: &Week, days: &[Day], spent: &[Spent], finished: &[String], open: &[Thread]) -> Vec<String> {
    let held = week.events.iter().filter(|entry| entry.status.as_deref() != Some("cancelled")).count();
    if held == 0 && finished.is_empty() && open.is_empty() {
        return vec!["The calendars hold nothing for this time.".to_owned()];
    }
    let total: u32 = spent.iter().map(|one| one.minutes).fold(0, u32::saturating_add);
    let mut lines = vec![format!("{} took {} of this time.", counted(held, "entry", "entries"), duration(total))];
    if let Some(first) = spent.first().filter(|_| total > 0) {
        let share = u64::from(first.minutes) * 100 / u64::from(total.max(1));
        let rest: Vec<String> =
            spent.iter().skip(1).take(3).map(|one| format!("{} {}", one.category, duration(one.minutes))).collect();
        let rest = if rest.is_empty() { String::new() } else { format!("; then came {}", listed(&rest)) };
        lines.push(format!("Most went to {}: {}, {share} percent{rest}.", first.category, duration(first.minutes)));
    }
    if let Some(longest) =
        days.iter().filter(|day| day.minutes > 0).max_by_key(|day| (day.minutes, std::cmp::Reverse(&day.day)))
    {
        lines.push(format!("The fullest day was {} with {}.", weekday(&longest.day), duration(longest.minutes)));
    }
    let free: Vec<String> = days.iter().filter(|day| day.entries.is_empty()).map(|day| weekday(&day.day)).collect();
    if !free.is_empty() && free.len() < days.len() {
        lines.push(format!("Nothing is entered for {}.", listed(&free)));
    }
    lines.push(match (finished.len(), open.len()) {
        (0, 0) => "No task was finished, and none is open.".to_owned(),
        (done, open) => format!(
            "{} finished, {} open.",
            counted(done, "task was", "tasks were"),
            counted(open, "thread is", "threads are")
        ),
    });
    lines
}

fn questions(spent: &[Spent], open: &[Thread]) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(first) = spent.first() {
        all.push(format!("{} got most of the time. Did it deserve it?", capital(&first.category)));
    }
    if let Some(thread) = open.iter().find(|thread| thread.because.starts_with("was due")).or(open.first()) {
        all.push(format!("What would it take to close “{}” next week?", thread.title));
    }
    all.push("What went better than you expected, and why?".to_owned());
    all.push("What is the one thing that next week must hold?".to_owned());
    all
}

fn capital(text: &str) -> String {
    if text == NO_CATEGORY {
        return "What has no category".to_owned();
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The files of a review.
pub(super) fn render(review: &Review) -> Value {
    let mut page = Page::new(review.title.clone());
    page.note(format!(
        "A draft, in the zone {}. It counts and lists what calendars and memory hold; the judgement is yours.",
        review.zone
    ));
    for line in &review.summary {
        page.text(line.clone());
    }
    if !review.spent.is_empty() {
        page.heading(2, "Where the time went");
        let row = |one: &Spent| vec![one.category.clone(), duration(one.minutes), one.events.to_string()];
        page.table(&["Category", "Time", "Entries"], review.spent.iter().map(row).collect());
    }
    page.heading(2, "What was done");
    for day in review.days.iter().filter(|day| !day.entries.is_empty()) {
        page.heading(3, weekday(&day.day));
        page.list(day.entries.iter().map(line).collect());
    }
    if !review.finished.is_empty() {
        page.heading(3, "Finished");
        page.list(review.finished.iter().map(page::Entry::text).collect());
    }
    if !review.open.is_empty() {
        page.heading(2, "Open threads");
        let entry = |thread: &Thread| page::Entry::text(format!("{} ({})", thread.title, thread.because));
        page.list(review.open.iter().map(entry).collect());
    }
    if !review.kept.is_empty() {
        page.heading(2, "From memory");
        page.list(review.kept.iter().map(page::Entry::text).collect());
    }
    page.heading(2, "To think about");
    page.list(review.questions.iter().map(page::Entry::text).collect());
    if !review.failures.is_empty() {
        page.heading(2, "Not read");
        let entry = |one: &Unusable| page::Entry::led(format!("{}:", one.name), one.reason.clone());
        page.list(review.failures.iter().map(entry).collect());
    }
    let mut files = Files::new();
    both(&mut files, "review", &page);
    files.insert("review.json".to_owned(), data(&json!(review)));
    let counts = json!({
        "days": review.days.len(),
        "entries": review.days.iter().map(|day| day.entries.len()).sum::<usize>(),
        "finished": review.finished.len(),
        "open": review.open.len(),
        "notRead": review.failures.len(),
    });
    rendered(&review.title, &counts, files)
}

fn line(entry: &Entry) -> page::Entry {
    let when = match (&entry.start, &entry.end) {
        (Some(start), Some(end)) => format!("{start}–{end}"),
        (Some(start), None) => start.clone(),
        (None, _) => "All day".to_owned(),
    };
    let mut notes: Vec<String> = Vec::new();
    notes.extend(entry.category.clone());
    notes.extend(entry.place.clone());
    notes.extend(entry.status.clone());
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
    page::Entry::led(when, format!("{}{notes}", entry.title))
}
