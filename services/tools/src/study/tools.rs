//! The modes of the tools that are about learning: arguments in, answers out.

use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::run::event::Evidence;

use super::model::{Course, Guide, Lesson, Material, Outline, Question, SECTIONS_MAX};
use super::{course, guide, questions, read, render};
use crate::briefing::model::{Document, Unusable};
use crate::briefing::tools::{Nested, documents, evidence, flat};
use crate::bundled::shared::{args, refusal};
use crate::editorial::citations::{Citations, QuotesChanged, unchanged};
use crate::modes::{Given, given, titled};
use crate::tool::Failure;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MaterialArgs {
    documents: Vec<Nested<Document>>,
    #[serde(default)]
    failures: Vec<Nested<Unusable>>,
    #[serde(default)]
    title: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionArgs {
    material: Material,
    #[serde(default)]
    count: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutlineArgs {
    material: Material,
    #[serde(default)]
    title: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GuideArgs {
    material: Material,
    outline: Outline,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CourseArgs {
    material: Material,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    lessons: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LessonArgs {
    material: Material,
    course: Course,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenderGuide {
    guide: Guide,
    questions: Vec<Question>,
    citations: Citations,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenderCourse {
    course: Course,
    lessons: Vec<Lesson>,
    questions: Vec<Question>,
    citations: Citations,
}

/// The modes of `sophia.ground` that are about learning.
pub(crate) fn ground(mode: &str, asked: &Value) -> Option<Given> {
    match mode {
        "material" => Some(material(asked)),
        "questions" => Some(args::<QuestionArgs>(asked).and_then(|QuestionArgs { material, count }| {
            bounded(&material)?;
            if count.is_some_and(|count| !(1..=questions::COUNT_MAX).contains(&count)) {
                return Err(refusal("args-invalid", format!("`count` is 1 to {}", questions::COUNT_MAX)));
            }
            given(&json!({ "questions": questions::questions(&material, count) }))
        })),
        _ => None,
    }
}

fn material(asked: &Value) -> Given {
    let MaterialArgs { documents: nested, failures, title } = args(asked)?;
    let title = titled(title)?;
    let material = read::material(documents(nested)?, flat(failures), title);
    if material.sections.is_empty() {
        let reasons: Vec<String> =
            material.unusable.iter().take(5).map(|one| format!("{}: {}", one.name, one.reason)).collect();
        let why = if reasons.is_empty() { "no document was given".to_owned() } else { reasons.join("; ") };
        return Err(refusal("material-empty", format!("there is nothing to learn from: {why}")));
    }
    let names: Vec<&str> = material.sources.iter().map(|source| source.sha256.as_str()).collect();
    let quotes = material.sections.iter().map(|section| section.points.len()).sum();
    let evidence: Evidence = evidence(&names.join("\n"), material.sections.len(), material.sections.len(), quotes);
    let whole = material.unusable.is_empty();
    let (value, _, _) = given(&material)?;
    Ok((value, Some(evidence), whole))
}

/// The modes of `composition.suggest` that are about learning.
pub(crate) fn compose(mode: &str, asked: &Value) -> Option<Given> {
    Some(match mode {
        "outline" => args::<OutlineArgs>(asked).and_then(|OutlineArgs { material, title }| {
            bounded(&material)?;
            given(&json!({ "outline": guide::outline(&material, titled(title)?) }))
        }),
        "study-guide" => args::<GuideArgs>(asked).and_then(|GuideArgs { material, outline }| {
            bounded(&material)?;
            given(&json!({ "guide": guide::guide(material, &outline) }))
        }),
        "render-guide" => args::<RenderGuide>(asked).and_then(|RenderGuide { guide, questions, citations }| {
            checked(&json!([&guide, &questions]), &citations)?;
            given(&render::guide(&guide, &questions, &citations))
        }),
        "course-outline" => args::<CourseArgs>(asked).and_then(|CourseArgs { material, title, lessons }| {
            bounded(&material)?;
            if lessons.is_some_and(|lessons| !(1..=course::LESSONS_MAX).contains(&lessons)) {
                return Err(refusal("args-invalid", format!("`lessons` is 1 to {}", course::LESSONS_MAX)));
            }
            given(&json!({ "course": course::course(&material, titled(title)?, lessons) }))
        }),
        "lessons" => args::<LessonArgs>(asked).and_then(|LessonArgs { material, course }| {
            bounded(&material)?;
            if course.lessons.len() > course::LESSONS_MAX {
                return Err(refusal("args-invalid", format!("a course has at most {} lessons", course::LESSONS_MAX)));
            }
            let lessons = course::lessons(&material, &course);
            let narration = course::narration(&lessons);
            given(&json!({ "lessons": lessons, "narration": narration }))
        }),
        "render-course" => args::<RenderCourse>(asked).and_then(|asked| {
            let RenderCourse { course, lessons, questions, citations } = asked;
            checked(&json!([&lessons, &questions]), &citations)?;
            given(&render::course(&course, &lessons, &questions, &citations))
        }),
        _ => return None,
    })
}

fn checked(work: &Value, citations: &Citations) -> Result<(), Failure> {
    unchanged(&[work], citations).map_err(|error| refusal(QuotesChanged::CODE, error.to_string()))
}

fn bounded(material: &Material) -> Result<(), Failure> {
    if material.sections.len() > SECTIONS_MAX {
        return Err(refusal("too-many-sections", format!("a material has at most {SECTIONS_MAX} sections")));
    }
    Ok(())
}
