//! `veritas.weekly_briefing_pack` (PIP-009, PIP-010): a folder of sources becomes a briefing in three formats.
//!
//! The plan is a pure function of the list of sources, so submitting it again gives the same digest, and a run that was
//! interrupted goes on with the very same steps. Each stage is a group of `tool` steps; many small `source.fetch`
//! steps instead of one mean that a crash repeats one chunk of sources, not all of them.

use serde_json::{Value, json};

use super::{PipelineLifecycle, PipelineSpec, Stage};
use crate::ids::{AgentId, PipelineId, StageId, StepId, ToolId};
use crate::quantity::Micros;
use crate::run::plan::{APPROVAL_TTL_SECONDS_DEFAULT, ApprovalRequirement, Plan, Step, StepKind};

/// The pipeline's id (PIP-009).
pub const PIPELINE_ID: &str = "veritas.weekly_briefing_pack";
/// Its version.
pub const PIPELINE_SEMVER: &str = "1.0.0";
/// The most one instance may spend, in cost units (PIP-009).
pub const BUDGET_CAP: Micros = Micros::units(5_000);
/// Most `source.fetch` steps in one plan. More sources than this share a step.
pub const FETCH_STEPS_MAX: usize = 100;
/// Most sources one briefing takes; `sophia.ground` refuses more.
pub const SOURCES_MAX: usize = 10_000;
/// The step that renders the pack; its output has `markdown`, `html`, `json` and `summary`.
pub const RENDER_STEP: &str = "assemble.render";
/// The step that asks before anything is written.
pub const GATE_STEP: &str = "assemble.gate";
/// The three files and the fields of the render step's output that fill them.
pub const FILES: [(&str, &str, &str); 3] = [
    ("assemble.markdown", "briefing.md", "markdown"),
    ("assemble.html", "briefing.html", "html"),
    ("assemble.json", "briefing.json", "json"),
];

/// Stage, agent, tools, stages before it, optional, gated: the row of PIP-010.
type Row = (&'static str, &'static str, &'static [&'static str], &'static [&'static str], bool, bool);

const STAGES: [Row; 9] = [
    ("select_stories", "ref.research", &["source.fetch"], &[], false, false),
    ("extract_claims", "ref.claim-extraction", &["sophia.ground"], &["select_stories"], false, false),
    ("draft_pack", "ref.drafting", &["composition.suggest"], &["extract_claims"], false, false),
    ("fact_check", "ref.fact-checking", &["sophia.fact_check"], &["draft_pack"], false, false),
    ("verify_citations", "ref.citation-verification", &["sophia.fact_check"], &["fact_check"], false, false),
    ("edit", "ref.editing", &["persona.invoke"], &["verify_citations"], false, false),
    ("audio", "ref.narration", &["generate.audio"], &["edit"], true, false),
    ("cover", "ref.illustration", &["generate.image"], &["edit"], true, false),
    ("assemble", "ref.drafting", &["composition.suggest", "file.write"], &["audio", "cover"], false, true),
];

/// The pipeline as data (PIP-009, PIP-010).
pub fn spec() -> PipelineSpec {
    let stage = |(stage, agent, tools, after, optional, gated): Row| Stage {
        stage_id: StageId::constant(stage),
        agent_id: AgentId::constant(agent),
        tool_ids: tools.iter().map(|tool| ToolId::constant(tool)).collect(),
        after: after.iter().map(|stage| StageId::constant(stage)).collect(),
        optional,
        gate: gated.then_some(ApprovalRequirement::UserConfirmBeforeProceed),
    };
    PipelineSpec {
        pipeline_id: PipelineId::constant(PIPELINE_ID),
        semver: PIPELINE_SEMVER,
        tier: "creator",
        total_budget_cap: BUDGET_CAP,
        stages: STAGES.into_iter().map(stage).collect(),
        expected_handoff_depth: 1,
        evaluation_fixture_set_id: "gold.veritas.weekly_briefing_pack.v1",
        lifecycle_state: PipelineLifecycle::Live,
        // Being multi-agent with a cap up to 5 000, it needs a `multiAgent` mode with one gate (PIP-023).
        default_mode: "deep",
    }
}

/// The plan for these sources, in the order given: file paths, or URLs that start with `http://` or `https://`.
/// `since` (`YYYY-MM-DD`) leaves out items dated before it.
///
/// Deterministic: equal arguments give an equal plan. The plan is valid for any number of sources; more than
/// [`SOURCES_MAX`] are refused by the tool that reads them.
pub fn briefing(sources: &[String], since: Option<&str>) -> Plan {
    let fetches: Vec<Step> = chunks(sources)
        .enumerate()
        .map(|(index, uris)| {
            let id = format!("select_stories.{:03}", index + 1);
            tool(&id, "select_stories", "source.fetch", json!({ "uris": uris }), &[])
        })
        .collect();
    let each = |field: &str| -> Value {
        fetches.iter().map(|step| from(step.step_id.as_str(), field)).collect::<Vec<_>>().into()
    };
    let fetched: Vec<&str> = fetches.iter().map(|step| step.step_id.as_str()).collect();
    let documents = each("documents");
    let mut ground = json!({ "documents": documents.clone(), "failures": each("failures") });
    if let (Some(since), Some(args)) = (since, ground.as_object_mut()) {
        args.insert("since".to_owned(), since.into());
    }
    let mut steps = vec![
        tool("extract_claims", "extract_claims", "sophia.ground", ground, &fetched),
        tool(
            "draft_pack",
            "draft_pack",
            "composition.suggest",
            json!({ "mode": "draft", "ground": from("extract_claims", "") }),
            &["extract_claims"],
        ),
        tool(
            "fact_check",
            "fact_check",
            "sophia.fact_check",
            json!({ "mode": "claims", "claims": from("extract_claims", "claims"), "documents": documents.clone() }),
            &["draft_pack"],
        ),
        tool(
            "verify_citations",
            "verify_citations",
            "sophia.fact_check",
            json!({ "mode": "citations", "draft": from("draft_pack", "draft"), "documents": documents }),
            &["fact_check"],
        ),
        tool(
            "edit",
            "edit",
            "persona.invoke",
            json!({ "persona": "lilith.scribe", "draft": from("draft_pack", "draft") }),
            &["verify_citations"],
        ),
        optional(tool("audio", "audio", "generate.audio", json!({ "text": from("edit", "narration") }), &["edit"])),
        optional(tool("cover", "cover", "generate.image", json!({ "prompt": from("edit", "coverPrompt") }), &["edit"])),
        tool(
            RENDER_STEP,
            "assemble",
            "composition.suggest",
            json!({
                "mode": "render",
                "draft": from("edit", "draft"),
                "claims": from("fact_check", ""),
                "citations": from("verify_citations", ""),
                "tone": from("edit", "changes"),
            }),
            &["edit", "audio", "cover"],
        ),
        gate(),
    ];
    steps.extend(FILES.map(|(id, path, field)| {
        tool(id, "assemble", "file.write", json!({ "path": path, "content": from(RENDER_STEP, field) }), &[GATE_STEP])
    }));
    let mut all = fetches;
    all.append(&mut steps);
    Plan { steps: all, max_parallel: None }
}

/// At most [`FETCH_STEPS_MAX`] chunks of nearly equal size, in order.
fn chunks(sources: &[String]) -> impl Iterator<Item = &[String]> {
    let size = sources.len().div_ceil(FETCH_STEPS_MAX).max(1);
    sources.chunks(size)
}

/// A binding to a field of a step's output; the whole output if the field is empty.
fn from(step: &str, field: &str) -> Value {
    let slash = if field.is_empty() { "" } else { "/" };
    json!({ "$from": format!("/steps/{step}/output{slash}{field}") })
}

fn agent_of(stage: &str) -> Option<AgentId> {
    STAGES.iter().find(|row| row.0 == stage).map(|row| AgentId::constant(row.1))
}

/// A step id of this module; its texts are constants and small numbers, which are always well-formed.
fn step_id(text: &str) -> StepId {
    StepId::new(text).unwrap_or_else(|_| StepId::constant("step"))
}

fn step(id: &str, stage: &'static str, kind: StepKind, after: &[&str]) -> Step {
    Step {
        step_id: step_id(id),
        stage_id: Some(StageId::constant(stage)),
        agent_id: agent_of(stage),
        depends_on_step_ids: after.iter().map(|id| step_id(id)).collect(),
        when: None,
        optional: false,
        kind,
    }
}

fn tool(id: &str, stage: &'static str, tool: &'static str, args: Value, after: &[&str]) -> Step {
    step(id, stage, StepKind::Tool { tool_id: ToolId::constant(tool), args, approved_by: None }, after)
}

fn optional(step: Step) -> Step {
    Step { optional: true, ..step }
}

/// The mandatory gate: whoever says yes sees the counts and the digests of the three files, and agrees to those.
fn gate() -> Step {
    let kind = StepKind::Approval {
        requirement: ApprovalRequirement::UserConfirmBeforeProceed,
        approvers: None,
        prompt: "Write the briefing pack?".to_owned(),
        subject: from(RENDER_STEP, "summary"),
        approval_ttl_seconds: APPROVAL_TTL_SECONDS_DEFAULT,
    };
    step(GATE_STEP, "assemble", kind, &[RENDER_STEP])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::canonical::digest;
    use crate::registry::{family_meta, family_of};

    fn sources(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("/srv/news/{n:05}.md")).collect()
    }

    fn uris(plan: &Plan) -> Vec<Vec<String>> {
        let uris = |step: &Step| {
            let StepKind::Tool { tool_id, args, .. } = &step.kind else { return None };
            let fetches = tool_id.as_str() == "source.fetch";
            fetches.then(|| serde_json::from_value(args["uris"].clone()).ok()).flatten()
        };
        plan.steps.iter().filter_map(uris).collect()
    }

    #[test]
    fn the_spec_row_equals_pip_009_and_pip_010() {
        let spec = spec();
        assert_eq!(spec.pipeline_id.as_str(), "veritas.weekly_briefing_pack");
        assert_eq!((spec.tier, spec.total_budget_cap), ("creator", Micros::units(5_000)));
        assert_eq!((spec.expected_handoff_depth, spec.lifecycle_state), (1, PipelineLifecycle::Live));
        assert_eq!(spec.evaluation_fixture_set_id, "gold.veritas.weekly_briefing_pack.v1");
        let agents: Vec<&str> = spec.participating_agent_ids().into_iter().map(AgentId::as_str).collect();
        assert_eq!(
            agents,
            [
                "ref.research",
                "ref.claim-extraction",
                "ref.drafting",
                "ref.fact-checking",
                "ref.citation-verification",
                "ref.editing",
                "ref.narration",
                "ref.illustration"
            ]
        );
        assert_eq!(spec.root_agent_id().map(AgentId::as_str), Some("ref.research"));
        assert_eq!(spec.gate_count(), 1);
        assert_eq!(spec.default_mode, "deep");
    }

    #[test]
    fn the_stages_of_the_plan_are_those_of_the_spec_in_order() {
        let mut stages: Vec<StageId> = Vec::new();
        for step in briefing(&sources(3), None).steps {
            if stages.last() != Some(&step.stage()) {
                stages.push(step.stage());
            }
        }
        let wanted: Vec<StageId> = spec().stages.into_iter().map(|stage| stage.stage_id).collect();
        assert_eq!(stages, wanted);
    }

    #[test]
    fn a_plan_for_one_to_ten_thousand_sources_is_valid_and_fetches_each_source_once_in_order() {
        for count in [1, 2, 24, 99, 100, 101, 199, 250, 1_000, 9_999, SOURCES_MAX] {
            let all = sources(count);
            let plan = briefing(&all, None);
            assert_eq!(plan.validate(), Ok(()), "{count} sources");
            let chunks = uris(&plan);
            assert!(chunks.len() <= FETCH_STEPS_MAX, "{count} sources in {} steps", chunks.len());
            assert!(chunks.iter().all(|chunk| chunk.len() <= count.div_ceil(FETCH_STEPS_MAX)));
            assert_eq!(chunks.concat(), all);
        }
    }

    #[test]
    fn up_to_a_hundred_sources_have_a_step_each_so_that_a_crash_repeats_one() {
        assert_eq!(uris(&briefing(&sources(24), None)).len(), 24);
        assert_eq!(uris(&briefing(&sources(100), None)).len(), 100);
        assert_eq!(uris(&briefing(&sources(101), None)).len(), 51);
    }

    #[test]
    fn a_plan_without_sources_is_still_a_valid_plan() {
        assert_eq!(briefing(&[], None).validate(), Ok(()));
    }

    #[test]
    fn every_tool_of_the_plan_lies_inside_the_ceiling_of_its_agents_family() {
        for step in briefing(&sources(3), Some("2026-08-01")).steps {
            let agent = step.agent_id.as_ref().expect("each step names its agent");
            let family = family_of(agent).and_then(family_meta).expect("each agent is of a family");
            if let StepKind::Tool { tool_id, .. } = &step.kind {
                assert!(family.allows(tool_id), "{agent} may not call {tool_id}");
            }
        }
    }

    #[test]
    fn equal_arguments_give_an_equal_digest_and_another_date_gives_another() {
        let digest_of = |since| digest(&serde_json::to_value(briefing(&sources(5), since)).unwrap()).unwrap();
        assert_eq!(digest_of(None), digest_of(None));
        assert_ne!(digest_of(None), digest_of(Some("2026-08-01")));
    }

    #[test]
    fn no_date_is_asked_for_unless_one_is_given() {
        let since = |given: Option<&str>| {
            let plan = briefing(&sources(1), given);
            let StepKind::Tool { args, .. } = &plan.step(&step_id("extract_claims")).unwrap().kind else {
                panic!("extract_claims calls a tool")
            };
            args.get("since").cloned()
        };
        assert_eq!(since(None), None);
        assert_eq!(since(Some("2026-08-10")), Some(json!("2026-08-10")));
    }

    #[test]
    fn only_audio_and_cover_are_optional_and_nothing_is_written_before_the_gate() {
        let plan = briefing(&sources(2), None);
        let optional: Vec<&str> = plan.steps.iter().filter(|s| s.optional).map(|s| s.step_id.as_str()).collect();
        assert_eq!(optional, ["audio", "cover"]);
        for (id, path, _) in FILES {
            let step = plan.step(&step_id(id)).unwrap();
            assert_eq!(step.depends_on_step_ids, [step_id(GATE_STEP)], "{path}");
        }
    }

    #[test]
    fn every_binding_names_a_step_that_is_over_before_the_binding_one_starts() {
        let plan = briefing(&sources(250), Some("2026-08-01"));
        for step in &plan.steps {
            let mut before: BTreeSet<StepId> = BTreeSet::new();
            let mut open: Vec<&StepId> = step.dependencies().collect();
            while let Some(id) = open.pop() {
                if before.insert(id.clone()) {
                    open.extend(plan.step(id).unwrap().dependencies());
                }
            }
            let text = serde_json::to_string(&step.kind).unwrap();
            for part in text.split("/steps/").skip(1) {
                let bound = part.split('/').next().unwrap();
                assert!(before.contains(&step_id(bound)), "{} binds {bound} without waiting for it", step.step_id);
            }
        }
    }

    #[test]
    fn only_a_live_pipeline_accepts_every_mode() {
        use PipelineLifecycle::{Draft, Live, Rehearsal, Retired, Suspended};
        let accepts = |state: PipelineLifecycle| (state.accepts("deep"), state.accepts("rehearsal-dry-run"));
        assert_eq!(accepts(Live), (true, true));
        assert_eq!(accepts(Rehearsal), (false, true));
        for state in [Draft, Suspended, Retired] {
            assert_eq!(accepts(state), (false, false), "{}", state.as_str());
        }
    }
}
