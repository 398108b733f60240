//! Reading what whoever triggers a pipeline gives: every field is one the pipeline has, of its kind and within its bounds.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde_json::{Map, Value};

use super::spec::{InputCondition, InputField, InputKind, PipelineSpec};
use crate::time::UnixMs;

/// Longest text of an input, in bytes.
pub const INPUT_TEXT_BYTES_MAX: usize = 8 << 10;
/// Most items of a list that names no bound of its own.
pub const INPUT_ITEMS_MAX: usize = 100;
/// How much of somebody's words a refusal repeats, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// Why an input is not one of its pipeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the input `{field}` {problem}")]
pub struct InputError {
    /// The field; empty if the input is no object at all.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl InputError {
    /// Stable code.
    pub const CODE: &'static str = "pipeline-input-invalid";

    fn at(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.chars().take(SHOWN_CHARS_MAX).collect(), problem: problem.into() }
    }
}

/// An input that fits its pipeline, with what stands if nothing is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineInput(Map<String, Value>);

impl PipelineInput {
    /// Reads what was given; `null` counts as an empty object.
    ///
    /// # Errors
    /// The first field that does not fit, in the order in which the pipeline names them.
    pub fn read(spec: &PipelineSpec, given: &Value) -> Result<Self, InputError> {
        let empty = Map::new();
        let given = match given {
            Value::Object(members) => members,
            Value::Null => &empty,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(InputError::at("", "must be a JSON object"));
            }
        };
        let known = |name: &String| spec.inputs.iter().any(|field| field.name == *name);
        if let Some(unknown) = given.keys().find(|name| !known(name)) {
            let names: Vec<&str> = spec.inputs.iter().map(|field| field.name.as_str()).collect();
            return Err(InputError::at(unknown, format!("is none of this pipeline's: {}", names.join(", "))));
        }
        let mut read = Map::new();
        for field in &spec.inputs {
            match given.get(&field.name).filter(|value| !value.is_null()) {
                Some(value) => {
                    check(field, value).map_err(|problem| InputError::at(&field.name, problem))?;
                    read.insert(field.name.clone(), value.clone());
                }
                None if field.required => {
                    let problem = format!("is missing; give {}, such as {}", field.kind.in_words(), field.example);
                    return Err(InputError::at(&field.name, problem));
                }
                None => {
                    if let Some(first) = field.choices.first() {
                        read.insert(field.name.clone(), Value::String(first.clone()));
                    }
                }
            }
        }
        if let (Some(from), Some(to)) = (day(&read, "from"), day(&read, "to"))
            && to <= from
        {
            return Err(InputError::at("to", "must be a day after `from`; it is the first day that is left out"));
        }
        Ok(Self(read))
    }

    /// An input that somebody in this process has put together.
    pub(super) const fn chosen(input: Map<String, Value>) -> Self {
        Self(input)
    }

    /// An input, if it was given or has a value that stands otherwise.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// True if the condition holds.
    pub fn holds(&self, condition: &InputCondition) -> bool {
        match (self.get(&condition.input), &condition.is) {
            (Some(value), Some(wanted)) => value == wanted,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// The whole input.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }
}

/// Most days that a relative day may lie away.
const DAYS_AWAY_MAX: i64 = 3_660;

/// An input whose days may be told from a moment on, as a schedule needs it: `-7d` is a week before the day of `at`, `0d` that
/// day, `7d` a week after it. The day is the one in the input's `zone`, if it names one, or else the one in UTC. Everything
/// else stays as it is.
///
/// # Errors
/// A relative day that lies too far away.
pub fn days_told_from(spec: &PipelineSpec, given: &Value, at: UnixMs) -> Result<Value, InputError> {
    let mut told = given.clone();
    let zone = given.get("zone").and_then(Value::as_str).and_then(|zone| TimeZone::get(zone).ok());
    let instant = Timestamp::from_millisecond(at.0).map_err(|_| InputError::at("", "is told from no possible day"))?;
    let today = zone.unwrap_or(TimeZone::UTC).to_datetime(instant).date();
    for field in spec.inputs.iter().filter(|field| field.kind == InputKind::Day) {
        let Some(said) = told.get_mut(&field.name) else { continue };
        let away = said.as_str().and_then(|text| text.strip_suffix('d')).and_then(|days| days.parse::<i64>().ok());
        let Some(away) = away else { continue };
        let day = (away.unsigned_abs() <= DAYS_AWAY_MAX.unsigned_abs())
            .then(|| today.checked_add(Span::new().days(away)).ok())
            .flatten();
        let far = || InputError::at(&field.name, format!("may lie at most {DAYS_AWAY_MAX} days away"));
        *said = Value::String(day.ok_or_else(far)?.to_string());
    }
    Ok(told)
}

fn day(read: &Map<String, Value>, name: &str) -> Option<Date> {
    read.get(name)?.as_str()?.parse().ok()
}

fn check(field: &InputField, value: &Value) -> Result<(), String> {
    let wrong = || format!("must be {}, such as {}", field.kind.in_words(), field.example);
    match field.kind {
        InputKind::Text => text(value.as_str().ok_or_else(wrong)?),
        InputKind::Texts => {
            let items = value.as_array().ok_or_else(wrong)?;
            let most = field.items_max.unwrap_or(INPUT_ITEMS_MAX);
            if items.is_empty() || items.len() > most {
                return Err(format!("must have 1 to {most} items, and has {}", items.len()));
            }
            items.iter().try_for_each(|item| text(item.as_str().ok_or_else(wrong)?))
        }
        InputKind::Day => {
            let said = value.as_str().ok_or_else(wrong)?;
            // The library reads more forms than the one that is meant.
            match said.parse::<Date>() {
                Ok(date) if date.to_string() == said => Ok(()),
                Ok(_) | Err(_) => Err(wrong()),
            }
        }
        InputKind::Whole => {
            let (least, most) = field.range.unwrap_or((0, u64::from(u32::MAX)));
            let number = value.as_u64().ok_or_else(wrong)?;
            if (least..=most).contains(&number) { Ok(()) } else { Err(format!("must be between {least} and {most}")) }
        }
        InputKind::Choice => {
            let said = value.as_str().ok_or_else(wrong)?;
            if field.choices.iter().any(|choice| choice == said) {
                return Ok(());
            }
            Err(format!("must be one of {}", field.choices.join(", ")))
        }
    }
}

fn text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("may not be empty".to_owned());
    }
    if text.len() > INPUT_TEXT_BYTES_MAX {
        return Err(format!("may have at most {INPUT_TEXT_BYTES_MAX} bytes in each text"));
    }
    if text.chars().any(char::is_control) {
        return Err("may not contain control characters".to_owned());
    }
    Ok(())
}

impl InputKind {
    /// The kind, to people.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Texts => "a list of texts",
            Self::Day => "a day",
            Self::Whole => "a whole number",
            Self::Choice => "one of its words",
        }
    }
}
