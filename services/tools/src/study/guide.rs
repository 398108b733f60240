//! The outline and the study guide of a material.

use super::model::{Cited, Guide, GuidePart, Material, Outline, Part, Section, minutes};
use crate::page::counted;

/// Most terms that a goal names.
const GOAL_TERMS_MAX: usize = 4;
/// Most key points of one part.
const POINTS_SHOWN_MAX: usize = 4;

/// The parts of the material in reading order.
pub(super) fn outline(material: &Material, title: Option<String>) -> Outline {
    let parts = material
        .sections
        .iter()
        .map(|section| Part {
            section: section.id.clone(),
            level: section.level,
            title: section.title.clone(),
            place: section.place.clone(),
            minutes: minutes(section.words),
            goal: goal(material, section),
        })
        .collect();
    Outline {
        title: title.unwrap_or_else(|| format!("Study guide: {}", material.title)),
        minutes: minutes(material.words()),
        parts,
    }
}

/// What a reader should be able to do after a section.
pub(super) fn goal(material: &Material, section: &Section) -> String {
    let terms: Vec<String> = material
        .terms_of(&section.id)
        .filter(|term| term.defined)
        .take(GOAL_TERMS_MAX)
        .map(|term| format!("“{}”", term.term))
        .collect();
    match terms.as_slice() {
        [] => format!("Say in your own words what the part “{}” tells.", section.title),
        terms => format!("Explain {} in your own words.", crate::briefing::compose::listed(terms)),
    }
}

/// The sentences that stand for a section.
pub(super) fn leading(section: &Section) -> Vec<Cited> {
    let leads = section.points.iter().filter(|point| point.leads);
    leads.map(|point| point.cited.clone()).take(POINTS_SHOWN_MAX).collect()
}

/// The study guide: for each part of the outline its goal, its key points and its terms.
pub(super) fn guide(material: Material, outline: &Outline) -> Guide {
    let parts: Vec<GuidePart> = outline
        .parts
        .iter()
        .filter_map(|part| {
            let section = material.sections.iter().find(|section| section.id == part.section)?;
            Some(GuidePart {
                section: part.section.clone(),
                level: part.level,
                title: part.title.clone(),
                place: part.place.clone(),
                goal: part.goal.clone(),
                points: leading(section),
                terms: material
                    .terms_of(&section.id)
                    .filter(|term| term.defined)
                    .map(|term| term.term.clone())
                    .collect(),
            })
        })
        .collect();
    let introduction = vec![
        format!(
            "This guide follows {} with {} and takes about {} to read alongside.",
            counted(material.sources.len(), "text", "texts"),
            counted(parts.len(), "part", "parts"),
            counted(outline.minutes, "minute", "minutes")
        ),
        "For each part: read its goal, read the part itself at the place named, then come back to the key points and the questions."
            .to_owned(),
    ];
    Guide {
        title: outline.title.clone(),
        introduction,
        parts,
        glossary: material.terms,
        sources: material.sources,
        unusable: material.unusable,
    }
}
