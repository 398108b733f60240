//! The seven pipelines that ship with this version (PIP-002, PIP-009 to PIP-022), one file each.

/// Their files, in the order in which they are listed.
pub(super) const FILES: [&str; 7] = [
    include_str!("v1/weekly_briefing_pack.json"),
    include_str!("v1/story_drafting.json"),
    include_str!("v1/seasonal_program.json"),
    include_str!("v1/edition_study_guide.json"),
    include_str!("v1/event_explainer_set.json"),
    include_str!("v1/weekly_review_draft.json"),
    include_str!("v1/course_from_byom.json"),
];
