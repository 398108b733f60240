//! Bindings: `{"$from": "/steps/select/output/items"}` in arguments is replaced when a call is made.
//!
//! One pass, from the outside in, and never inside a bound value: what a tool gave cannot bind anything by itself. A literal
//! key `$from` is written `$$from`; one `$` is taken off any key that starts with `$$`.
//!
//! A handle `{"$secret": "id"}` is seen in the same pass and stays as it is. Where it stands is noted: only there the
//! secret's value is put in when the call is sent, so that what a tool gave cannot ask for a secret either (CAP-013).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::ids::{SecretId, StepId};
use crate::run::envelope::RunEnvelope;
use crate::run::event::StoredValue;
use crate::run::plan::Plan;
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
    /// Not of the form `{"$secret": "…"}`.
    #[error("a secret is written {{\"$secret\": \"id\"}}, alone in its object; a literal key is written `$$secret`")]
    SecretMalformed,
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
            Self::SecretMalformed => "secret-handle-malformed",
            Self::NotFound(_) => "binding-not-found",
            Self::TooDeep => "json-too-deep",
            Self::TooLarge => "json-too-large",
        }
    }
}

/// The key of a secret's handle in arguments.
pub const SECRET_KEY: &str = "$secret";

/// Arguments with every binding replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bound {
    /// The arguments; secrets are still handles.
    pub value: Value,
    /// The secret at each handle, by the JSON Pointer to it. Whatever else looks like a handle is data.
    pub secrets: BTreeMap<String, SecretId>,
}

/// True if arguments of a plan hold a handle.
pub fn names_secret(args: &Value) -> bool {
    match args {
        Value::Object(members) => {
            !members.contains_key("$from") && (members.contains_key(SECRET_KEY) || members.values().any(names_secret))
        }
        Value::Array(items) => items.iter().any(names_secret),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// What bindings read from.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The run.
    pub run: &'a RunEnvelope,
    /// What stands under `/inputs`, unredacted.
    pub inputs: &'a Value,
    /// The loaded output of a finished step.
    pub output: &'a dyn Fn(&StepId) -> Option<Value>,
}

/// The steps whose outputs the arguments bind to.
pub fn steps_bound(args: &Value) -> BTreeSet<StepId> {
    let mut pointers = Vec::new();
    collect(args, 0, &mut pointers);
    pointers.into_iter().filter_map(|pointer| output_step(&pointer)).collect()
}

/// True if the arguments bind to the inputs.
pub fn reads_inputs(args: &Value) -> bool {
    let mut pointers = Vec::new();
    collect(args, 0, &mut pointers);
    pointers.iter().any(|pointer| under(pointer, "/inputs").is_some())
}

/// What the steps of a plan bind to in the output of one of them, each as the tokens of a JSON Pointer into it.
pub fn bound_of(plan: &Plan, step: &StepId) -> BTreeSet<Vec<String>> {
    let mut pointers = Vec::new();
    for document in plan.steps.iter().filter_map(|step| step.kind.document()) {
        collect(document, 0, &mut pointers);
    }
    let of_step = |pointer: &String| {
        let (id, rest) = under(pointer, "/steps")?.strip_prefix('/')?.split_once('/')?;
        let rest = rest.strip_prefix("output")?.strip_prefix('/')?;
        (unescape(id) == step.as_str()).then(|| rest.split('/').map(unescape).collect())
    };
    pointers.iter().filter_map(of_step).collect()
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

/// Replaces every binding; a skipped step's output is `null`.
pub fn bind(args: &Value, sources: Sources<'_>) -> Result<Bound, BindingError> {
    let mut binder = Binder { sources, bytes_left: BOUND_BYTES_MAX, place: String::new(), secrets: BTreeMap::new() };
    let value = binder.replace(args, 0)?;
    Ok(Bound { value, secrets: binder.secrets })
}

struct Binder<'a> {
    sources: Sources<'a>,
    bytes_left: usize,
    /// The JSON Pointer to where the binder is, in the bound arguments.
    place: String,
    secrets: BTreeMap<String, SecretId>,
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
                    let bound = resolve(pointer, self.sources)?;
                    self.measure(&bound, depth)?;
                    return Ok(bound);
                }
                if let Some(handle) = members.get(SECRET_KEY) {
                    let id = handle.as_str().and_then(|id| SecretId::new(id).ok()).filter(|_| members.len() == 1);
                    self.secrets.insert(self.place.clone(), id.ok_or(BindingError::SecretMalformed)?);
                    return Ok(value.clone());
                }
                let mut bound = Map::new();
                for (key, member) in members {
                    let key = if key.starts_with("$$") { key[1..].to_owned() } else { key.clone() };
                    let member = self.replace_in(&key, member, depth)?;
                    bound.insert(key, member);
                }
                Ok(Value::Object(bound))
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, item)| self.replace_in(&index.to_string(), item, depth))
                    .collect::<Result<_, _>>()
                    .map(Value::Array)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(value.clone()),
        }
    }

    fn replace_in(&mut self, token: &str, member: &Value, depth: usize) -> Result<Value, BindingError> {
        let here = self.place.len();
        self.place.push('/');
        self.place.push_str(&token.replace('~', "~0").replace('/', "~1"));
        let bound = self.replace(member, depth + 1);
        self.place.truncate(here);
        bound
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

fn resolve(pointer: &str, sources: Sources<'_>) -> Result<Value, BindingError> {
    let missing = || BindingError::NotFound(pointer.chars().take(200).collect());
    if let Some(rest) = under(pointer, "/inputs") {
        return sources.inputs.pointer(rest).cloned().ok_or_else(missing);
    }
    let rest = under(pointer, "/steps").and_then(|rest| rest.strip_prefix('/')).ok_or_else(missing)?;
    let (id, rest) = rest.split_once('/').ok_or_else(missing)?;
    let step = StepId::new(unescape(id)).map_err(|_| missing())?;
    let rest = under(&format!("/{rest}"), "/output").map(str::to_owned).ok_or_else(missing)?;
    match sources.run.step_state(&step) {
        Some(StepState::Skipped { .. }) => Ok(Value::Null),
        Some(StepState::Done { .. }) => {
            (sources.output)(&step).and_then(|value| value.pointer(&rest).cloned()).ok_or_else(missing)
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
            Some(StepState::Done { output, .. }) => output.as_deref(),
            _ => None,
        }
    }
}
