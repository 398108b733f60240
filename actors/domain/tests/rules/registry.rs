//! Agent families and reference agents (REG).

use std::collections::BTreeSet;

use signalbox_domain::catalog::V1_TOOL_IDS;
use signalbox_domain::ids::AgentId;
use signalbox_domain::registry::{
    AGENT_FAMILIES, AgentLifecycle, GroundingPolicy, agent_semver, families, family_meta, family_of, reference_agents,
    validate,
};

use crate::common::tool;

/// Family, a tool outside its ceiling, how many it may use, its domains, its grounding, its persona.
type Row = (&'static str, &'static str, usize, &'static [&'static str], GroundingPolicy, &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("research", "memory.write", 4, &["veritas", "nisaba", "metis", "nyx"], GroundingPolicy::StrictCite, "lilith.scribe"),
    ("drafting", "web.fetch", 8, &["veritas", "tara", "nisaba", "nyx", "arete"], GroundingPolicy::CiteWhereAvailable, "lilith.scribe"),
    ("editing", "source.fetch", 3, &["veritas", "nisaba", "tara", "arete"], GroundingPolicy::CiteWhereAvailable, "lilith.scribe"),
    ("fact-checking", "file.write", 5, &["veritas", "nisaba", "nyx"], GroundingPolicy::StrictCite, "lilith.scribe"),
    ("citation-verification", "memory.read", 3, &["veritas", "nisaba", "metis"], GroundingPolicy::StrictCite, "lilith.scribe"),
    ("illustration", "generate.audio", 6, &["nyx", "nisaba", "metis", "tara"], GroundingPolicy::NoCitation, "lilith.guide"),
    ("narration", "generate.image", 5, &["metis", "tara", "nisaba", "veritas"], GroundingPolicy::NoCitation, "lilith.host"),
    ("translation", "notify.send", 5, &["veritas", "nisaba", "metis", "tara"], GroundingPolicy::CiteWhereAvailable, "lilith.scribe"),
    ("course-generation", "code.exec", 11, &["metis"], GroundingPolicy::StrictCite, "lilith.teacher"),
    ("lesson-scaffolding", "web.fetch", 5, &["metis", "nisaba"], GroundingPolicy::CiteWhereAvailable, "lilith.teacher"),
    ("assessment-generation", "file.write", 5, &["metis", "nisaba"], GroundingPolicy::StrictCite, "lilith.teacher"),
    ("study-plan-synthesis", "web.fetch", 7, &["metis", "arete", "nisaba"], GroundingPolicy::CiteWhereAvailable, "lilith.teacher"),
    ("recommendation-explanation", "memory.write", 3, &["iris", "nisaba", "metis"], GroundingPolicy::CiteWhereAvailable, "lilith.guide"),
    ("moderation-triage", "agent.terminate", 5, &["themis", "lilith"], GroundingPolicy::CiteWhereAvailable, "lilith.scribe"),
    ("support-triage", "file.read", 7, &["platform", "iris"], GroundingPolicy::CiteWhereAvailable, "lilith.host"),
    ("ritual-scriptwriting", "calendar.write", 8, &["tara"], GroundingPolicy::CiteWhereAvailable, "lilith.guide"),
    ("sky-event-briefing", "web.fetch", 9, &["nyx"], GroundingPolicy::StrictCite, "lilith.guide"),
    ("claim-extraction", "memory.write", 4, &["veritas", "sophia"], GroundingPolicy::StrictCite, "lilith.scribe"),
    ("source-ingestion", "sophia.ground", 5, &["veritas", "sophia", "metis", "nisaba"], GroundingPolicy::StrictCite, "lilith.scribe"),
    ("kg-promotion", "notify.send", 6, &["sophia", "veritas"], GroundingPolicy::StrictCite, "lilith.scribe"),
];

#[test]
fn there_are_twenty_families_in_canonical_order() {
    assert_eq!(AGENT_FAMILIES.len(), 20);
    assert!(families().iter().map(|meta| meta.family).eq(AGENT_FAMILIES));
    assert_eq!((AGENT_FAMILIES[0], AGENT_FAMILIES[19]), ("research", "kg-promotion"));
    assert_eq!(family_meta("gardening"), None);
}

#[test]
fn each_family_has_its_ceiling_domains_grounding_and_persona() {
    assert_eq!(ROWS.len(), 20);
    for (family, outside, tools, domains, grounding, persona) in ROWS {
        let meta = family_meta(family).unwrap();
        assert!(!meta.allows(&tool(outside)), "{family} may not use {outside}");
        assert_eq!(meta.tool_grant_ceiling.len(), *tools, "{family}");
        assert_eq!(meta.primary_domains, *domains, "{family}");
        assert_eq!(meta.default_grounding_policy, *grounding, "{family}");
        assert_eq!(meta.default_persona_policy, *persona, "{family}");
        assert!(meta.tool_grant_ceiling.iter().all(|id| V1_TOOL_IDS.contains(id)), "{family}");
    }
}

#[test]
fn the_ceiling_of_research_is_the_stated_one() {
    let meta = family_meta("research").unwrap();
    assert_eq!(meta.tool_grant_ceiling, ["web.fetch", "source.fetch", "sophia.ground", "memory.read"]);
}

#[test]
fn lesson_scaffolding_may_use_nothing_that_course_generation_may_not() {
    let wide = family_meta("course-generation").unwrap();
    let narrow = family_meta("lesson-scaffolding").unwrap();
    assert!(narrow.tool_grant_ceiling.iter().all(|id| wide.tool_grant_ceiling.contains(id)));
}

#[test]
fn every_tool_but_one_is_in_some_ceiling() {
    let union: BTreeSet<&str> = families().iter().flat_map(|meta| meta.tool_grant_ceiling).copied().collect();
    let expected: BTreeSet<&str> = V1_TOOL_IDS.into_iter().filter(|id| *id != "agent.terminate").collect();
    assert_eq!(union, expected);
}

#[test]
fn there_is_one_reference_agent_for_each_family() {
    let agents: Vec<_> = reference_agents().collect();
    assert_eq!(agents.len(), 20);
    for (agent, family) in agents.iter().zip(AGENT_FAMILIES) {
        assert_eq!(agent.agent_id.as_str(), format!("ref.{family}"));
        assert_eq!((agent.agent_semver.as_str(), agent.lifecycle), ("1.0.0", AgentLifecycle::Champion));
        assert_eq!(validate(agent), [], "{family}");
        assert_eq!(agent.problem(), None, "{family}");
        assert_eq!(agent.tool_grants, family_meta(family).unwrap().tool_grant_ceiling);
        assert_eq!(agent.disclosure_requirements, ["ai-generated"]);
        assert_eq!(family_of(&agent.agent_id), Some(family));
        assert_eq!(agent_semver(&agent.agent_id), Some("1.0.0"));
    }
}

#[test]
fn an_agent_nobody_knows_has_no_family() {
    for id in ["research", "ref.gardening", "ref.", "my.research"] {
        assert_eq!(family_of(&AgentId::new(id).unwrap()), None);
        assert_eq!(agent_semver(&AgentId::new(id).unwrap()), None);
    }
}
