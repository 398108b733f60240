//! The sets of cases that pipelines are judged by (PIP-031).

/// Each set, by its id.
pub(super) const FIXTURE_SETS: [(&str, &str); 7] = [
    ("gold.veritas.weekly_briefing_pack.v1", ""),
    ("gold.veritas.story_drafting.v1", ""),
    ("gold.tara.seasonal_program.v1", ""),
    ("gold.nisaba.edition_study_guide.v1", ""),
    ("gold.nyx.event_explainer_set.v1", ""),
    ("gold.arete.weekly_review_draft.v1", ""),
    ("gold.metis.course_from_byom.v1", ""),
];
