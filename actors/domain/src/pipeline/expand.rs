//! From a pipeline and an input to a plan. Deterministic: equal arguments give an equal plan, so that a trigger that is
//! said twice is the same submission.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::input::{InputError, PipelineInput};
use super::spec::{Action, PipelineSpec, Stage, StepTemplate};
use crate::ids::StepId;
use crate::run::plan::{APPROVAL_TTL_SECONDS_DEFAULT, ApprovalRequirement, Plan, Step, StepKind};

/// The steps that each template became; those it waits for if it became none.
type Made = BTreeMap<StepId, Expansion>;

#[derive(Debug, Clone)]
struct Expansion {
    steps: Vec<StepId>,
    /// False: the input left it out, and `steps` are what it would have waited for.
    there: bool,
}

/// The plan of a pipeline for an input. Whether it is sound is for [`Plan::validate`] to say.
///
/// # Errors
/// The first field of the input that does not fit.
pub fn expand(spec: &PipelineSpec, given: &Value) -> Result<Plan, InputError> {
    Ok(expand_read(spec, &PipelineInput::read(spec, given)?))
}

/// The same for an input that was read.
pub fn expand_read(spec: &PipelineSpec, input: &PipelineInput) -> Plan {
    let mut made = Made::new();
    let mut steps = Vec::new();
    // What a template waits for may stand behind it; what it stands for must be known first.
    for (_, template) in spec.templates() {
        let ids = ids_of(template, input);
        let expansion = Expansion { there: !ids.is_empty(), steps: ids };
        made.insert(template.step_id.clone(), expansion);
    }
    for (_, template) in spec.templates() {
        if made.get(&template.step_id).is_some_and(|expansion| !expansion.there) {
            let awaited = awaited(template, spec, &made, 0);
            if let Some(expansion) = made.get_mut(&template.step_id) {
                expansion.steps = awaited;
            }
        }
    }
    for (stage, template) in spec.templates() {
        let Some(expansion) = made.get(&template.step_id).filter(|expansion| expansion.there) else { continue };
        let parts = parts_of(template, input);
        for (index, step_id) in expansion.steps.iter().enumerate() {
            let part = parts.as_ref().and_then(|(name, parts)| Some((name.as_str(), parts.get(index)?)));
            steps.push(step(spec, stage, template, step_id.clone(), Filling { input, made: &made, part }));
        }
    }
    Plan { steps, max_parallel: None }
}

fn ids_of(template: &StepTemplate, input: &PipelineInput) -> Vec<StepId> {
    if template.only_if.as_ref().is_some_and(|condition| !input.holds(condition)) {
        return Vec::new();
    }
    match parts_of(template, input) {
        None => vec![template.step_id.clone()],
        // A number behind an id that is one leaves it one, unless it becomes too long; then it is not there.
        Some((_, parts)) => (1..=parts.len())
            .filter_map(|number| StepId::new(format!("{}.{number:03}", template.step_id)).ok())
            .collect(),
    }
}

fn parts_of(template: &StepTemplate, input: &PipelineInput) -> Option<(String, Vec<Value>)> {
    let each = template.for_each.as_ref()?;
    let items = input.get(&each.input).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let size = items.len().div_ceil(each.parts_max.max(1)).max(1);
    Some((each.input.clone(), items.chunks(size).map(|part| Value::Array(part.to_vec())).collect()))
}

/// The steps a template waits for; in the place of one that is not there stand those it would have waited for.
fn awaited(template: &StepTemplate, spec: &PipelineSpec, made: &Made, depth: usize) -> Vec<StepId> {
    let mut steps: Vec<StepId> = Vec::new();
    for id in &template.after {
        let found = match (made.get(id), spec.template(id)) {
            (Some(expansion), _) if expansion.there => expansion.steps.clone(),
            // A circle of templates that are not there leads nowhere.
            (Some(_), Some((_, gone))) if depth < spec.plan.len() * 8 => awaited(gone, spec, made, depth + 1),
            (Some(_), _) => Vec::new(),
            // Left as it is, so that the plan is refused for it.
            (None, _) => vec![id.clone()],
        };
        for step in found {
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
    }
    steps
}

#[derive(Clone, Copy)]
struct Filling<'a> {
    input: &'a PipelineInput,
    made: &'a Made,
    part: Option<(&'a str, &'a Value)>,
}

fn step(spec: &PipelineSpec, stage: &Stage, template: &StepTemplate, step_id: StepId, filling: Filling<'_>) -> Step {
    let kind = match &template.action {
        Action::Call { tool_id, args } => {
            let args = filling.fill(args).unwrap_or_else(|| json!({}));
            StepKind::Tool { tool_id: tool_id.clone(), args, approved_by: None }
        }
        Action::Ask { prompt, subject, refuse_if } => StepKind::Approval {
            requirement: requirement(spec, template, filling.input),
            approvers: None,
            prompt: prompt.clone(),
            subject: filling.fill(subject).unwrap_or(Value::Null),
            approval_ttl_seconds: APPROVAL_TTL_SECONDS_DEFAULT,
            refuse_if: refuse_if.clone(),
        },
    };
    Step {
        step_id,
        stage_id: Some(stage.stage_id.clone()),
        agent_id: Some(stage.agent_of(template).clone()),
        depends_on_step_ids: awaited(template, spec, filling.made, 0),
        when: None,
        optional: stage.optional || template.optional,
        kind,
    }
}

/// Who must agree at a gate, by the input (PIP-016, PIP-022). A step that asks and is no gate asks an operator.
fn requirement(spec: &PipelineSpec, template: &StepTemplate, input: &PipelineInput) -> ApprovalRequirement {
    let gate = spec.mandatory_approval_gates.iter().find(|gate| gate.step_id == template.step_id);
    gate.map_or(ApprovalRequirement::Operator, |gate| {
        let instead = gate.instead.iter().find(|instead| input.holds(&instead.when));
        instead.map_or(gate.requirement, |instead| instead.requirement)
    })
}

impl Filling<'_> {
    /// A document with its places filled in; `None` where an input stands that was not given.
    fn fill(&self, value: &Value) -> Option<Value> {
        match value {
            Value::Object(members) => match sole(members) {
                Some(("$input", name)) => self.input.get(name).cloned(),
                Some(("$part", name)) => self.part.filter(|(input, _)| *input == name).map(|(_, part)| part.clone()),
                Some(("$each", place)) => Some(self.each(place)),
                Some(("$from", pointer)) if self.is_gone(pointer) => Some(Value::Null),
                Some(_) | None => {
                    let filled = members.iter().filter_map(|(key, member)| Some((key.clone(), self.fill(member)?)));
                    Some(Value::Object(filled.collect()))
                }
            },
            Value::Array(items) => Some(Value::Array(items.iter().filter_map(|item| self.fill(item)).collect())),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
        }
    }

    /// Bindings to a field of every step that a template became.
    fn each(&self, place: &str) -> Value {
        let (template, field) = place.split_once('/').unwrap_or((place, ""));
        let slash = if field.is_empty() { "" } else { "/" };
        let made = StepId::new(template).ok().and_then(|id| self.made.get(&id)).filter(|made| made.there);
        let steps = made.map(|made| made.steps.as_slice()).unwrap_or_default();
        steps.iter().map(|step| json!({ "$from": format!("/steps/{step}/output{slash}{field}") })).collect()
    }

    /// True if a binding reads what no step gives, because the input left its step out: as of a skipped step, it is nothing.
    fn is_gone(&self, pointer: &str) -> bool {
        let named = pointer.strip_prefix("/steps/").and_then(|rest| rest.split('/').next());
        let id = named.and_then(|id| StepId::new(id).ok());
        id.and_then(|id| self.made.get(&id)).is_some_and(|made| !made.there)
    }
}

fn sole(members: &Map<String, Value>) -> Option<(&str, &str)> {
    let (key, value) = members.iter().next().filter(|_| members.len() == 1)?;
    Some((key.as_str(), value.as_str()?))
}
