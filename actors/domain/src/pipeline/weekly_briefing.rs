//! `veritas.weekly_briefing_pack` for callers inside the process: what its plan is called, and the plan for given sources.

use serde_json::{Map, Value};

use super::expand::expand_read;
use super::input::PipelineInput;
use super::{PipelineRegistry, PipelineSpec};
use crate::ids::PipelineId;
use crate::run::plan::Plan;

/// The pipeline's id (PIP-009).
pub const PIPELINE_ID: &str = "veritas.weekly_briefing_pack";
/// Its version.
pub const PIPELINE_SEMVER: &str = "1.0.0";
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

/// The pipeline as data (PIP-009, PIP-010); it ships with every version.
pub fn spec() -> Option<&'static PipelineSpec> {
    PipelineRegistry::shipped().get(&PipelineId::constant(PIPELINE_ID))
}

/// The plan for these sources, in the order given: file paths, or URLs that start with `http://` or `https://`.
/// `since` (`YYYY-MM-DD`) leaves out items dated before it.
///
/// Deterministic: equal arguments give an equal plan. The plan is valid for any number of sources; more than
/// [`SOURCES_MAX`] are refused by the tool that reads them.
pub fn briefing(sources: &[String], since: Option<&str>) -> Plan {
    let mut input = Map::from_iter([("sources".to_owned(), Value::from(sources.to_vec()))]);
    input.extend(since.map(|since| ("since".to_owned(), Value::from(since))));
    let nothing = || Plan { steps: Vec::new(), max_parallel: None };
    // Whoever calls has chosen the sources one by one; what a stranger gives is read more strictly.
    spec().map_or_else(nothing, |spec| expand_read(spec, &PipelineInput::chosen(input)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::canonical::digest;
    use crate::ids::{AgentId, StageId, StepId};
    use crate::mode::Mode;
    use crate::pipeline::PipelineLifecycle;
    use crate::quantity::Micros;
    use crate::registry::{family_meta, family_of};
    use crate::run::plan::{Step, StepKind};

    fn named(text: &str) -> StepId {
        StepId::new(text).unwrap()
    }

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
        let spec = spec().unwrap();
        assert_eq!(spec.pipeline_id.as_str(), "veritas.weekly_briefing_pack");
        assert_eq!((spec.tier.as_str(), spec.total_budget_cap), ("creator", Micros::units(5_000)));
        assert_eq!((spec.expected_handoff_depth, spec.lifecycle_state), (1, PipelineLifecycle::Live));
        assert_eq!(spec.evaluation_fixture_set_id, "gold.veritas.weekly_briefing_pack.v1");
        let agents: Vec<&str> = spec.participating_agent_ids.iter().map(AgentId::as_str).collect();
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
        assert_eq!(spec.default_mode(), Mode::Deep);
    }

    #[test]
    fn the_stages_of_the_plan_are_those_of_the_spec_in_order() {
        let mut stages: Vec<StageId> = Vec::new();
        for step in briefing(&sources(3), None).steps {
            if stages.last() != Some(&step.stage()) {
                stages.push(step.stage());
            }
        }
        let wanted: Vec<StageId> = spec().unwrap().plan.iter().map(|stage| stage.stage_id.clone()).collect();
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
            let StepKind::Tool { args, .. } = &plan.step(&named("extract_claims")).unwrap().kind else {
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
            let step = plan.step(&named(id)).unwrap();
            assert_eq!(step.depends_on_step_ids, [named(GATE_STEP)], "{path}");
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
                assert!(before.contains(&named(bound)), "{} binds {bound} without waiting for it", step.step_id);
            }
        }
    }
}
