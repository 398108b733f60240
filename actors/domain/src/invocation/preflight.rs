//! The preflight (INV-003 to INV-007): everything an invocation lacks, at once, before anything is written.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::envelope::{CONSENT_DAYS_MAX, ConsentConfirmation, InvocationEnvelope};
use super::policy::{InvocationPolicies, InvocationRules, rules_for};
use crate::ids::AgentId;
use crate::mode::{HANDOFF_TOOL, InvocationTier, Mode, in_words};
use crate::pipeline::spec_of;
use crate::quantity::{BudgetCategory, Micros};
use crate::registry::{Invocable, Ways};
use crate::run::event::RunSubmitted;
use crate::run::plan::{ApprovalRequirement, Plan, Step, StepKind};
use crate::time::UnixMs;

/// How far ahead of ours the clock may be by which a consent was given, in milliseconds.
const CONSENT_AHEAD_MS: i64 = 60_000;
const DAY_MS: i64 = 86_400_000;

/// Why an invocation is refused (INV-003, INV-005, INV-006).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GapCode {
    /// A scope that a planned tool needs is not declared.
    MissingEntitlement,
    /// No consent, or none that holds today.
    ConsentRequired,
    /// The consent does not cover a kind of data.
    ConsentScopeMissing,
    /// A set of sources that may not be drawn on.
    SourceNotAllowed,
    /// A tone that may not be asked for.
    ToneNotAllowed,
    /// A persona that may not be asked for.
    PersonaNotAllowed,
    /// A mode that may not be chosen, or that does not allow what the plan does.
    ModeNotAllowed,
    /// An agent that may not be invoked, or not in this way.
    AgentNotInvocable,
    /// The plan may cost more than a run of its agent may.
    CostClassExceeded,
    /// The plan asks people less often than its mode demands.
    CheckpointsMissing,
}

impl GapCode {
    /// All of them, in the order in which gaps are told.
    pub const ALL: [Self; 10] = [
        Self::MissingEntitlement,
        Self::ConsentRequired,
        Self::ConsentScopeMissing,
        Self::SourceNotAllowed,
        Self::ToneNotAllowed,
        Self::PersonaNotAllowed,
        Self::ModeNotAllowed,
        Self::AgentNotInvocable,
        Self::CostClassExceeded,
        Self::CheckpointsMissing,
    ];

    /// Stable for ever.
    pub const fn code(self) -> &'static str {
        match self {
            Self::MissingEntitlement => "missing-entitlement",
            Self::ConsentRequired => "consent-required",
            Self::ConsentScopeMissing => "consent-scope-missing",
            Self::SourceNotAllowed => "source-not-allowed",
            Self::ToneNotAllowed => "tone-not-allowed",
            Self::PersonaNotAllowed => "persona-not-allowed",
            Self::ModeNotAllowed => "mode-not-allowed",
            Self::AgentNotInvocable => "agent-not-invocable",
            Self::CostClassExceeded => "cost-class-exceeded",
            Self::CheckpointsMissing => "checkpoints-missing",
        }
    }
}

/// One thing an invocation lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// What kind of thing.
    pub code: GapCode,
    /// Which one: a scope, a source, a mode, an agent, a step.
    pub subject: String,
    /// In words, with what would be right.
    pub message: String,
}

/// An invocation, as far as its preflight asks.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// What it declares; one that declares nothing means to use all of its credential, and asks for no tone, persona or
    /// sources.
    pub envelope: Option<&'a InvocationEnvelope>,
    /// The scopes of the credential.
    pub scopes: &'a [String],
    /// The mode.
    pub mode: Mode,
    /// The lead agent.
    pub root: &'a AgentId,
    /// The plan.
    pub plan: &'a Plan,
    /// Now.
    pub now: UnixMs,
}

/// Everything an invocation lacks, in the order of [`GapCode::ALL`]; nothing is written while there is anything (INV-007).
pub fn validate_preflight(invocation: &Invocation<'_>, rules: &InvocationRules) -> Vec<Gap> {
    let mut gaps = Vec::new();
    entitlements(invocation, rules, &mut gaps);
    consent(invocation, rules, &mut gaps);
    if let Some(envelope) = invocation.envelope {
        choices(envelope, rules, &mut gaps);
    }
    mode(invocation, rules, &mut gaps);
    agents(invocation, rules, &mut gaps);
    checkpoints(invocation, &mut gaps);
    gaps
}

/// Everything that stands against a run that is about to be written, on what its tenant has configured. The envelope is
/// what was said; what is kept of it does not hold the consent.
pub fn gaps_of(
    run: &RunSubmitted,
    envelope: Option<&InvocationEnvelope>,
    policies: &InvocationPolicies,
    now: UnixMs,
) -> Vec<Gap> {
    let mut rules = rules_of(run, policies);
    // Whoever forks takes over what was consented to; a consent is kept by its id alone, and is not asked for again.
    if run.forked_from_run_id.is_some() {
        rules.consent_scopes.clear();
    }
    let Some(mode) = Mode::parse(&run.mode) else { return Vec::new() };
    let invocation = Invocation { envelope, scopes: &run.scopes, mode, root: &run.root_agent_id, plan: &run.plan, now };
    validate_preflight(&invocation, &rules)
}

/// What whoever invokes should know although nothing stands against it: agents that are on their way out (REG-038).
pub fn warnings_of(run: &RunSubmitted, policies: &InvocationPolicies) -> Vec<String> {
    let rules = rules_of(run, policies);
    let ways = Ways { rehearsal: Mode::parse(&run.mode).is_some_and(Mode::is_rehearsal), pipeline: rules.pinned };
    let leaving = rules.agents.iter().filter(|(_, (state, _))| ways.invocable(*state) == Invocable::WithWarning);
    let version = |agent: &AgentId| run.agents.semver_of(agent).unwrap_or_default().to_owned();
    let say = |agent: &AgentId| {
        format!(
            "version {} of the agent `{agent}` is deprecated; it goes on because the pipeline has pinned it",
            version(agent)
        )
    };
    leaving.map(|(agent, _)| say(agent)).collect()
}

fn rules_of(run: &RunSubmitted, policies: &InvocationPolicies) -> InvocationRules {
    let pipeline = run.pipeline_id.as_ref().and_then(|id| spec_of(id, run.pipeline_semver.as_deref()));
    let tier = InvocationTier::of(run.submitted_by.role);
    rules_for(policies.of(&run.tenant_id), tier, pipeline, &run.root_agent_id, &run.plan, &run.agents)
}

/// The most a plan's calls may cost, each made once, in cost units.
pub fn estimate(plan: &Plan) -> Micros {
    let steps = plan.all_steps().into_iter();
    let tools = steps.filter_map(|step| step.kind.tool_id()).filter_map(crate::catalog::entry);
    tools.fold(Micros::ZERO, |sum, tool| sum.plus(tool.ceiling.get(BudgetCategory::CostUnits)))
}

fn gap(gaps: &mut Vec<Gap>, code: GapCode, subject: &str, message: String) {
    gaps.push(Gap { code, subject: subject.to_owned(), message });
}

fn entitlements(invocation: &Invocation<'_>, rules: &InvocationRules, gaps: &mut Vec<Gap>) {
    let declared = invocation.envelope.map_or(invocation.scopes, |envelope| &envelope.entitlements);
    let declared: BTreeSet<&String> = declared.iter().collect();
    for scope in rules.required_entitlements.iter().filter(|scope| !declared.contains(scope)) {
        let message = format!("the plan needs the scope `{scope}`, which the invocation does not declare; declare it");
        gap(gaps, GapCode::MissingEntitlement, scope, message);
    }
}

fn consent(invocation: &Invocation<'_>, rules: &InvocationRules, gaps: &mut Vec<Gap>) {
    let given = invocation.envelope.and_then(|envelope| envelope.consent.as_ref());
    let Some(given) = given else {
        if !rules.consent_scopes.is_empty() {
            let message = "the tenant asks for a consent, and the invocation states none; confirm one".to_owned();
            gap(gaps, GapCode::ConsentRequired, "consent", message);
        }
        return;
    };
    // One that is stated must hold, also where none is asked for: it is kept beside the run, and must not mislead.
    if let Some(problem) = consent_problem(given, invocation.now) {
        return gap(gaps, GapCode::ConsentRequired, &given.consent_id, problem);
    }
    for scope in rules.consent_scopes.iter().filter(|scope| !given.data_scopes.contains(scope)) {
        let scope = scope.as_str();
        let message = format!("the consent does not cover `{scope}`; confirm one that does");
        gap(gaps, GapCode::ConsentScopeMissing, scope, message);
    }
}

fn consent_problem(given: &ConsentConfirmation, now: UnixMs) -> Option<String> {
    let age_ms = now.0.saturating_sub(given.accepted_at_unix_ms.0);
    if age_ms < -CONSENT_AHEAD_MS {
        return Some("the consent was accepted at an instant that has not come yet; confirm it as it was".to_owned());
    }
    (age_ms > CONSENT_DAYS_MAX * DAY_MS)
        .then(|| format!("the consent is older than {CONSENT_DAYS_MAX} days; ask for it again"))
}

fn choices(envelope: &InvocationEnvelope, rules: &InvocationRules, gaps: &mut Vec<Gap>) {
    let listed = |allowed: &BTreeSet<String>| match allowed.iter().map(String::as_str).collect::<Vec<_>>() {
        none if none.is_empty() => "none".to_owned(),
        some => some.join(", "),
    };
    if let Some(allowed) = &rules.sources {
        for source in envelope.source_set.iter().filter(|source| !allowed.contains(*source)) {
            let message = format!("the source set `{source}` may not be drawn on; allowed: {}", listed(allowed));
            gap(gaps, GapCode::SourceNotAllowed, source, message);
        }
    }
    if let Some(allowed) = rules.tones.as_ref().filter(|allowed| !allowed.contains(&envelope.tone)) {
        let message = format!("the tone `{}` may not be asked for; allowed: {}", envelope.tone, listed(allowed));
        gap(gaps, GapCode::ToneNotAllowed, &envelope.tone, message);
    }
    if !rules.personas.contains(&envelope.persona) {
        let (persona, allowed) = (&envelope.persona, listed(&rules.personas));
        let message = format!("the persona `{persona}` may not be asked for; allowed: {allowed}");
        gap(gaps, GapCode::PersonaNotAllowed, persona, message);
    }
}

fn mode(invocation: &Invocation<'_>, rules: &InvocationRules, gaps: &mut Vec<Gap>) {
    let mode = invocation.mode;
    if !rules.modes.contains(&mode) {
        let message =
            format!("the mode `{}` may not be chosen here; allowed: {}", mode.as_str(), in_words(&rules.modes));
        gap(gaps, GapCode::ModeNotAllowed, mode.as_str(), message);
    }
    if mode.meta().multi_agent {
        return;
    }
    for step in invocation.plan.steps.iter().filter(|step| hands_off(step)) {
        let message = format!(
            "step `{}` hands work to another agent, which the mode `{}` does not allow; choose deep or exhaustive",
            step.step_id,
            mode.as_str()
        );
        gap(gaps, GapCode::ModeNotAllowed, step.step_id.as_str(), message);
    }
}

/// True if the step hands work to another agent (MOD-013).
pub(crate) fn hands_off(step: &Step) -> bool {
    matches!(step.kind, StepKind::Agent { .. }) || step.kind.tool_id().is_some_and(|tool| tool.as_str() == HANDOFF_TOOL)
}

fn agents(invocation: &Invocation<'_>, rules: &InvocationRules, gaps: &mut Vec<Gap>) {
    let ways = Ways { rehearsal: invocation.mode.is_rehearsal(), pipeline: rules.pinned };
    for (agent, (lifecycle, _)) in &rules.agents {
        if ways.invocable(*lifecycle) == Invocable::No {
            let message = format!("the agent `{agent}` is `{}` and may not be invoked in this way", lifecycle.as_str());
            gap(gaps, GapCode::AgentNotInvocable, agent.as_str(), message);
        }
    }
    if let Some((_, class)) = rules.agents.get(invocation.root) {
        let (cost, bound) = (estimate(invocation.plan), class.bound());
        if cost > bound {
            let message = format!(
                "the plan may cost {cost} units, and a run of an agent of class `{}` at most {bound}; plan less",
                class.as_str()
            );
            gap(gaps, GapCode::CostClassExceeded, invocation.root.as_str(), message);
        }
    }
}

fn checkpoints(invocation: &Invocation<'_>, gaps: &mut Vec<Gap>) {
    let asks = |step: &&Step| match &step.kind {
        StepKind::Approval { requirement, .. } => *requirement != ApprovalRequirement::None,
        StepKind::Agent(handoff) => handoff.requirement != ApprovalRequirement::None,
        StepKind::Tool { .. }
        | StepKind::Model { .. }
        | StepKind::Turn { .. }
        | StepKind::Branch { .. }
        | StepKind::Wait { .. } => false,
    };
    let there = invocation.plan.steps.iter().filter(asks).count();
    let needed = invocation.mode.meta().human_checkpoint_count;
    if there < needed {
        let mode = invocation.mode.as_str();
        let message = format!(
            "the mode `{mode}` demands {needed} approval gates that ask somebody, and the plan has {there}; add some"
        );
        gap(gaps, GapCode::CheckpointsMissing, mode, message);
    }
}
