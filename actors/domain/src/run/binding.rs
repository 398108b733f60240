//! Bindings: `{"$from": "/steps/select/output/items"}` in arguments is replaced when a call is made.
//!
//! One pass, from the outside in, and never inside a bound value: what a tool gave cannot bind anything by itself. A literal
//! key `$from` is written `$$from`; one `$` is taken off any key that starts with `$$`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::ids::StepId;
use crate::run::envelope::RunEnvelope;
use crate::run::event::StoredValue;
use crate::run::step::StepState;

/// Deepest nesting of bound arguments: deeper ones could not be read back from the journal.
pub const DEPTH_MAX: usize = 64;
/// Most bytes of bound arguments, about: one binding may name a large output many times.
pub const BOUND_BYTES_MAX: usize = 16 * 1_024 * 1_024;

/// Why arguments cannot be bound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// Not of the form `{"$from": "/…"}`.
    #[error("a binding must be an object with the single key `$from` and a JSON Pointer, not `{0}`")]
    Malformed(String),
    /// The pointer leads nowhere.
    #[error("the binding `{0}` leads nowhere: bind to /inputs/… or /steps/<stepId>/output/…")]
    NotFound(String),
    /// The arguments are nested too deeply.
    #[error("the arguments are nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// The arguments are too large once they are bound.
    #[error("the bound arguments have more than {BOUND_BYTES_MAX} bytes")]
    TooLarge,
}

impl BindingError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "binding-malformed",
            Self::NotFound(_) => "binding-not-found",
            Self::TooDeep => "json-too-deep",
            Self::TooLarge => "json-too-large",
        }
    }
}

/// The steps whose outputs the arguments bind to.
pub fn steps_bound(args: &Value) -> BTreeSet<StepId> {
    let mut pointers = Vec::new();
    collect(args, 0, &mut pointers);
    pointers.into_iter().filter_map(|pointer| output_step(&pointer)).collect()
}

fn output_step(pointer: &str) -> Option<StepId> {
    let mut tokens = pointer.strip_prefix('/')?.split('/');
    if tokens.next()? != "steps" {
        return None;
    }
    StepId::new(unescape(tokens.next()?)).ok()
}

fn collect(value: &Value, depth: usize, pointers: &mut Vec<String>) {
    if depth > DEPTH_MAX {
        return;
    }
    match value {
        Value::Object(members) => match members.get("$from") {
            Some(Value::String(pointer)) => pointers.push(pointer.clone()),
            Some(_) => {}
            None => members.values().for_each(|member| collect(member, depth + 1, pointers)),
        },
        Value::Array(items) => items.iter().for_each(|item| collect(item, depth + 1, pointers)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces every binding. `output` gives the loaded output of a finished step; a skipped step's output is `null`.
pub fn bind(args: &Value, run: &RunEnvelope, output: &dyn Fn(&StepId) -> Option<Value>) -> Result<Value, BindingError> {
    Binder { run, output, bytes_left: BOUND_BYTES_MAX }.replace(args, 0)
}

struct Binder<'a> {
    run: &'a RunEnvelope,
    output: &'a dyn Fn(&StepId) -> Option<Value>,
    bytes_left: usize,
}

impl Binder<'_> {
    fn replace(&mut self, value: &Value, depth: usize) -> Result<Value, BindingError> {
        if depth > DEPTH_MAX {
            return Err(BindingError::TooDeep);
        }
        match value {
            Value::Object(members) => {
                if let Some(from) = members.get("$from") {
                    let Value::String(pointer) = from else { return Err(BindingError::Malformed(brief(from))) };
                    if members.len() != 1 {
                        return Err(BindingError::Malformed(brief(value)));
                    }
                    let bound = resolve(pointer, self.run, self.output)?;
                    self.measure(&bound, depth)?;
                    return Ok(bound);
                }
                let mut bound = Map::new();
                for (key, member) in members {
                    let key = if key.starts_with("$$") { key[1..].to_owned() } else { key.clone() };
                    bound.insert(key, self.replace(member, depth + 1)?);
                }
                Ok(Value::Object(bound))
            }
            Value::Array(items) => {
                items.iter().map(|item| self.replace(item, depth + 1)).collect::<Result<_, _>>().map(Value::Array)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(value.clone()),
        }
    }

    // What a tool gave counts like what the plan says: neither may make arguments that are too deep or too large.
    fn measure(&mut self, bound: &Value, depth: usize) -> Result<(), BindingError> {
        if depth > DEPTH_MAX {
            return Err(BindingError::TooDeep);
        }
        let (own, members): (usize, Vec<&Value>) = match bound {
            Value::Null | Value::Bool(_) | Value::Number(_) => (8, Vec::new()),
            Value::String(text) => (text.len() + 2, Vec::new()),
            Value::Array(items) => (items.len() + 2, items.iter().collect()),
            Value::Object(members) => (members.keys().map(|key| key.len() + 4).sum(), members.values().collect()),
        };
        self.bytes_left = self.bytes_left.checked_sub(own).ok_or(BindingError::TooLarge)?;
        members.into_iter().try_for_each(|member| self.measure(member, depth + 1))
    }
}

fn resolve(pointer: &str, run: &RunEnvelope, output: &dyn Fn(&StepId) -> Option<Value>) -> Result<Value, BindingError> {
    let missing = || BindingError::NotFound(pointer.chars().take(200).collect());
    if let Some(rest) = under(pointer, "/inputs") {
        return run.inputs.pointer(rest).cloned().ok_or_else(missing);
    }
    let rest = under(pointer, "/steps").and_then(|rest| rest.strip_prefix('/')).ok_or_else(missing)?;
    let (id, rest) = rest.split_once('/').ok_or_else(missing)?;
    let step = StepId::new(unescape(id)).map_err(|_| missing())?;
    let rest = under(&format!("/{rest}"), "/output").map(str::to_owned).ok_or_else(missing)?;
    match run.step_state(&step) {
        Some(StepState::Skipped { .. }) => Ok(Value::Null),
        Some(StepState::Done { .. }) => {
            output(&step).and_then(|value| value.pointer(&rest).cloned()).ok_or_else(missing)
        }
        _ => Err(missing()),
    }
}

// The rest of a pointer below a prefix that ends at a token boundary.
fn under<'a>(pointer: &'a str, prefix: &str) -> Option<&'a str> {
    pointer.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn brief(value: &Value) -> String {
    value.to_string().chars().take(100).collect()
}

impl RunEnvelope {
    /// Where the output of a finished step is kept.
    pub fn output_of(&self, step: &StepId) -> Option<&StoredValue> {
        match self.step_state(step) {
            Some(StepState::Done { output, .. }) => output.as_ref(),
            _ => None,
        }
    }
}
