//! The files of a study guide and of a course.

use serde_json::{Value, json};

use super::model::{Course, Guide, Lesson, Question, QuestionKind, SourceRow, Term};
use crate::briefing::model::Unusable;
use crate::editorial::citations::Citations;
use crate::folder::{Files, both, data, rendered};
use crate::page::{Entry, Page, counted};

/// How the texts were made.
const MADE: &str = "No model wrote this: key points, definitions and answers are sentences of the material, and the rest is made from its \
                    headings and terms.";

fn checked(page: &mut Page, citations: &Citations) {
    page.note(format!("{MADE} {}", citations.in_words()));
    for problem in citations.problems.iter().take(20) {
        page.note(format!("Not found: {}: {}.", problem.about, problem.reason));
    }
}

fn glossary(page: &mut Page, terms: &[Term]) {
    let (defined, used): (Vec<&Term>, Vec<&Term>) = terms.iter().partition(|term| term.defined);
    for term in defined {
        page.list(vec![
            Entry::led(format!("{}:", term.term), term.cited.quote.plain.clone()).with(vec![term.cited.place.clone()]),
        ]);
    }
    if !used.is_empty() {
        let names: Vec<String> = used.iter().map(|term| term.term.clone()).collect();
        page.text(format!("Often used and nowhere explained: {}.", names.join(", ")));
    }
}

fn sources(page: &mut Page, sources: &[SourceRow], unusable: &[Unusable]) {
    page.heading(2, "The material");
    page.table(
        &["Text", "Read as", "Parts", "SHA-256"],
        sources
            .iter()
            .map(|row| {
                vec![row.name.clone(), row.read_as.clone(), row.sections.to_string(), format!("`{}`", row.sha256)]
            })
            .collect(),
    );
    if !unusable.is_empty() {
        page.text("Not used:");
        page.list(unusable.iter().map(|one| Entry::led(format!("{}:", one.name), one.reason.clone())).collect());
    }
}

fn asked(questions: &[&Question]) -> Vec<Entry> {
    let entry = |question: &&Question| {
        let choices = match question.choices.as_slice() {
            [] => Vec::new(),
            choices => vec![format!("Choose: {}", choices.join(" · "))],
        };
        Entry::led(format!("{}.", question.id), question.prompt.clone()).with(choices)
    };
    questions.iter().map(entry).collect()
}

fn answers(page: &mut Page, questions: &[&Question]) {
    for question in questions {
        let under: Vec<String> = match question.kind {
            QuestionKind::Open => {
                question.cited.iter().map(|cited| format!("“{}” ({})", cited.quote.plain, cited.place)).collect()
            }
            QuestionKind::Definition => question.cited.iter().map(|cited| format!("See {}", cited.place)).collect(),
            QuestionKind::Gap | QuestionKind::Reason => {
                question.cited.iter().map(|cited| format!("See {}: “{}”", cited.place, cited.quote.plain)).collect()
            }
        };
        page.list(vec![Entry::led(format!("{}.", question.id), question.answer.clone()).with(under)]);
    }
}

/// The study guide, its questions and its answers.
pub(super) fn guide(guide: &Guide, questions: &[Question], citations: &Citations) -> Value {
    let mut page = Page::new(guide.title.clone());
    for line in &guide.introduction {
        page.text(line.clone());
    }
    page.list(guide.parts.iter().map(|part| Entry::led(part.title.clone(), format!("({})", part.place))).collect());
    let of = |section: &str| -> Vec<&Question> { questions.iter().filter(|one| one.section == section).collect() };
    for part in &guide.parts {
        page.heading(if part.level <= 2 { 2 } else { 3 }, part.title.clone());
        page.list(vec![Entry::led("Goal:", part.goal.clone()), Entry::led("Read:", part.place.clone())]);
        if !part.terms.is_empty() {
            page.list(vec![Entry::led("Terms:", part.terms.join(", "))]);
        }
        for point in &part.points {
            page.quote(point.quote.plain.clone(), point.place.clone());
        }
        let asked = asked(&of(&part.section));
        if !asked.is_empty() {
            page.text("Ask yourself:");
            page.list(asked);
        }
    }
    if !guide.glossary.is_empty() {
        page.heading(2, "Terms");
        glossary(&mut page, &guide.glossary);
    }
    sources(&mut page, &guide.sources, &guide.unusable);
    checked(&mut page, citations);

    let all: Vec<&Question> = questions.iter().collect();
    let mut asking = Page::new(format!("Questions on {}", bare(&guide.title)));
    asking.text("The answers and their places are in `answers.md`.");
    for part in guide.parts.iter().filter(|part| !of(&part.section).is_empty()) {
        asking.heading(2, part.title.clone());
        asking.list(self::asked(&of(&part.section)));
    }
    let mut answering = Page::new(format!("Answers to the questions on {}", bare(&guide.title)));
    answers(&mut answering, &all);

    let mut files = Files::new();
    both(&mut files, "study-guide", &page);
    files.insert("questions.md".to_owned(), asking.markdown());
    files.insert("answers.md".to_owned(), answering.markdown());
    files.insert("study-guide.json".to_owned(), data(&json!({ "guide": guide, "questions": questions })));
    let counts = json!({
        "parts": guide.parts.len(),
        "terms": guide.glossary.len(),
        "questions": questions.len(),
        "quotes": citations.quotes,
        "quotesFound": citations.found,
        "unusable": guide.unusable.len(),
    });
    rendered(&guide.title, &counts, files)
}

/// A title without what kind of thing it is.
fn bare(title: &str) -> &str {
    title.split_once(": ").map_or(title, |(_, rest)| rest)
}

/// The folder of a course.
pub(super) fn course(course: &Course, lessons: &[Lesson], questions: &[Question], citations: &Citations) -> Value {
    let mut files = Files::new();
    let name = |number: usize| format!("lesson-{number:02}");
    for ending in ["md", "html"] {
        let mut index = Page::new(course.title.clone());
        for line in &course.introduction {
            index.text(line.clone());
        }
        index.heading(2, "Lessons");
        index.steps(
            lessons
                .iter()
                .map(|lesson| {
                    let goals = lesson.goals.clone();
                    Entry::led(lesson.title.clone(), format!("({})", counted(lesson.minutes, "minute", "minutes")))
                        .linking(format!("{}.{ending}", name(lesson.number)))
                        .with(goals)
                })
                .collect(),
        );
        index.list(vec![Entry::led("Answers", String::new()).linking(format!("answers.{ending}"))]);
        sources(&mut index, &course.sources, &course.unusable);
        checked(&mut index, citations);
        let text = if ending == "md" { index.markdown() } else { index.html() };
        files.insert(format!("index.{ending}"), text);
        for lesson in lessons {
            let page = lesson_page(lesson, lessons.len(), questions, ending);
            let text = if ending == "md" { page.markdown() } else { page.html() };
            files.insert(format!("{}.{ending}", name(lesson.number)), text);
        }
    }
    let mut answering = Page::new(format!("Answers: {}", bare(&course.title)));
    for lesson in lessons {
        let of_lesson: Vec<&Question> =
            questions.iter().filter(|question| lesson.sections.contains(&question.section)).collect();
        if !of_lesson.is_empty() {
            answering.heading(2, format!("Lesson {}: {}", lesson.number, lesson.title));
            answers(&mut answering, &of_lesson);
        }
    }
    both(&mut files, "answers", &answering);
    files.insert(
        "course.json".to_owned(),
        data(&json!({ "course": course, "lessons": lessons, "questions": questions })),
    );
    let counts = json!({
        "lessons": lessons.len(),
        "minutes": course.minutes,
        "questions": questions.len(),
        "quotes": citations.quotes,
        "quotesFound": citations.found,
        "unusable": course.unusable.len(),
    });
    rendered(&course.title, &counts, files)
}

fn lesson_page(lesson: &Lesson, all: usize, questions: &[Question], ending: &str) -> Page {
    let mut page = Page::new(format!("Lesson {}: {}", lesson.number, lesson.title));
    page.text(format!("Lesson {} of {all}, about {}.", lesson.number, counted(lesson.minutes, "minute", "minutes")));
    page.heading(2, "Goals");
    page.list(lesson.goals.iter().map(Entry::text).collect());
    page.heading(2, "Read");
    page.steps(
        lesson
            .reading
            .iter()
            .map(|one| {
                Entry::led(one.title.clone(), format!("{} ({})", one.place, counted(one.minutes, "minute", "minutes")))
            })
            .collect(),
    );
    page.heading(2, "Key points");
    for point in &lesson.points {
        page.quote(point.quote.plain.clone(), point.place.clone());
    }
    if !lesson.terms.is_empty() {
        page.heading(2, "Terms");
        glossary(&mut page, &lesson.terms);
    }
    page.heading(2, "Exercises");
    page.steps(lesson.exercises.iter().map(|one| Entry::text(&one.exercise)).collect());
    let of_lesson: Vec<&Question> =
        questions.iter().filter(|question| lesson.sections.contains(&question.section)).collect();
    if !of_lesson.is_empty() {
        page.heading(2, "Questions");
        page.list(asked(&of_lesson));
    }
    let mut links = vec![
        Entry::led("All lessons", String::new()).linking(format!("index.{ending}")),
        Entry::led("Answers", String::new()).linking(format!("answers.{ending}")),
    ];
    if lesson.number < all {
        links.insert(
            0,
            Entry::led("Next lesson", String::new()).linking(format!("lesson-{:02}.{ending}", lesson.number + 1)),
        );
    }
    page.list(links);
    page
}
