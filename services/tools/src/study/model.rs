//! The values that the steps of a study guide and a course hand to each other.

use serde::{Deserialize, Serialize};

use crate::briefing::model::{Quote, Unusable};

/// Most sections that are read from one material.
pub(super) const SECTIONS_MAX: usize = 1_000;
/// Most points that are kept of one section.
pub(super) const POINTS_MAX: usize = 10;
/// Most terms of one material.
pub(super) const TERMS_MAX: usize = 60;
/// Words read in a minute.
pub(super) const WORDS_PER_MINUTE: usize = 180;

/// Words of the material and where they stand, as a reader would say it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Cited {
    /// `tides.pdf, page 3, “Spring tides”`.
    pub(crate) place: String,
    pub(crate) quote: Quote,
}

/// Why a sentence was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PointKind {
    /// It says what something is.
    Definition,
    /// It gives a reason.
    Reason,
    /// It gives a figure or a day.
    Figure,
    /// It says most about its section.
    Key,
}

/// A sentence that was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Point {
    pub(crate) kind: PointKind,
    pub(crate) cited: Cited,
    /// It stands for its section in a summary.
    #[serde(default)]
    pub(crate) leads: bool,
    /// What it defines, or the figure it gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) about: Option<String>,
}

/// A part of the material under one heading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Section {
    /// `s001` and so on, in reading order.
    pub(crate) id: String,
    /// 1 is the largest heading.
    pub(crate) level: u8,
    pub(crate) title: String,
    pub(crate) place: String,
    pub(crate) source: String,
    pub(crate) words: usize,
    pub(crate) points: Vec<Point>,
}

/// A word or phrase the material explains or often uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Term {
    pub(crate) term: String,
    /// The sentence that explains it, or else the first that uses it.
    pub(crate) cited: Cited,
    /// Whether that sentence explains it.
    pub(crate) defined: bool,
    pub(crate) mentions: usize,
    /// The section of that sentence.
    pub(crate) section: String,
}

/// A text of the material.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SourceRow {
    pub(crate) name: String,
    pub(crate) sha256: String,
    pub(crate) read_as: String,
    pub(crate) sections: usize,
}

/// What `sophia.ground` in mode `material` gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Material {
    pub(crate) title: String,
    pub(crate) sources: Vec<SourceRow>,
    pub(crate) sections: Vec<Section>,
    pub(crate) terms: Vec<Term>,
    #[serde(default)]
    pub(crate) unusable: Vec<Unusable>,
}

impl Material {
    pub(super) fn words(&self) -> usize {
        self.sections.iter().map(|section| section.words).fold(0, usize::saturating_add)
    }
    pub(super) fn terms_of<'m>(&'m self, section: &'m str) -> impl Iterator<Item = &'m Term> {
        self.terms.iter().filter(move |term| term.section == section)
    }
}

/// Minutes to read so many words, at least one.
pub(super) fn minutes(words: usize) -> usize {
    words.div_ceil(WORDS_PER_MINUTE).max(1)
}

/// What kind of question it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum QuestionKind {
    /// What is this?
    Definition,
    /// Which word is missing?
    Gap,
    /// Why?
    Reason,
    /// In your own words.
    Open,
}

/// A question and where its answer stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Question {
    /// `q01` and so on.
    pub(crate) id: String,
    pub(crate) section: String,
    pub(crate) kind: QuestionKind,
    pub(crate) prompt: String,
    /// To choose from, in alphabetical order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) choices: Vec<String>,
    /// In words.
    pub(crate) answer: String,
    /// What bears the answer out.
    pub(crate) cited: Vec<Cited>,
}

/// A part of an outline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Part {
    pub(crate) section: String,
    pub(crate) level: u8,
    pub(crate) title: String,
    pub(crate) place: String,
    pub(crate) minutes: usize,
    pub(crate) goal: String,
}

/// The order of a study guide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Outline {
    pub(crate) title: String,
    pub(crate) minutes: usize,
    pub(crate) parts: Vec<Part>,
}

/// A part of a study guide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GuidePart {
    pub(crate) section: String,
    pub(crate) level: u8,
    pub(crate) title: String,
    pub(crate) place: String,
    pub(crate) goal: String,
    pub(crate) points: Vec<Cited>,
    pub(crate) terms: Vec<String>,
}

/// A study guide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Guide {
    pub(crate) title: String,
    pub(crate) introduction: Vec<String>,
    pub(crate) parts: Vec<GuidePart>,
    pub(crate) glossary: Vec<Term>,
    pub(crate) sources: Vec<SourceRow>,
    pub(crate) unusable: Vec<Unusable>,
}

/// A lesson before it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Planned {
    pub(crate) number: usize,
    pub(crate) title: String,
    pub(crate) minutes: usize,
    /// The ids of its sections.
    pub(crate) sections: Vec<String>,
    pub(crate) goals: Vec<String>,
}

/// The order of a course.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Course {
    pub(crate) title: String,
    pub(crate) minutes: usize,
    pub(crate) introduction: Vec<String>,
    pub(crate) lessons: Vec<Planned>,
    pub(crate) sources: Vec<SourceRow>,
    pub(crate) unusable: Vec<Unusable>,
}

/// A lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Lesson {
    pub(crate) number: usize,
    pub(crate) title: String,
    pub(crate) minutes: usize,
    pub(crate) sections: Vec<String>,
    pub(crate) goals: Vec<String>,
    /// What to read, in order.
    pub(crate) reading: Vec<Reading>,
    /// What the lesson says, in the material's words.
    pub(crate) points: Vec<Cited>,
    pub(crate) terms: Vec<Term>,
    pub(crate) exercises: Vec<Exercise>,
}

/// Something to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Reading {
    pub(crate) title: String,
    pub(crate) place: String,
    pub(crate) minutes: usize,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Exercise {
    pub(crate) exercise: String,
}
