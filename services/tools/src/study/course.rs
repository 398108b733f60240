//! A course: the material cut into lessons, each with goals, reading, points, terms and exercises.

use super::guide::{goal, leading};
use super::model::{Course, Exercise, Lesson, Material, Planned, Reading, Section, minutes};
use crate::page::counted;

/// Most lessons of a course.
pub(super) const LESSONS_MAX: usize = 60;
/// How many at most if nobody says.
const LESSONS_DEFAULT: usize = 12;
/// Most goals of one lesson.
const GOALS_MAX: usize = 4;
/// Most points of one lesson.
const POINTS_MAX: usize = 10;

/// Cuts the material into lessons.
pub(super) fn course(material: &Material, title: Option<String>, most: Option<usize>) -> Course {
    let groups = grouped(&material.sections, most.unwrap_or(LESSONS_DEFAULT));
    let lessons: Vec<Planned> = groups
        .into_iter()
        .enumerate()
        .map(|(index, sections)| {
            let mut goals: Vec<String> = Vec::new();
            let (explaining, plain): (Vec<String>, Vec<String>) =
                sections.iter().map(|section| goal(material, section)).partition(|goal| goal.starts_with("Explain"));
            // Saying what a part tells is the goal of every part; it is named only where there is no other.
            goals.extend(explaining.into_iter().take(GOALS_MAX));
            if goals.is_empty() {
                goals.extend(plain.into_iter().take(1));
            }
            Planned {
                number: index + 1,
                title: lesson_title(&sections),
                minutes: minutes(sections.iter().map(|section| section.words).fold(0, usize::saturating_add))
                    + exercise_minutes(),
                sections: sections.iter().map(|section| section.id.clone()).collect(),
                goals,
            }
        })
        .collect();
    let total = lessons.iter().map(|lesson| lesson.minutes).sum();
    let introduction = vec![
        format!(
            "{} of about {} altogether, from {}.",
            counted(lessons.len(), "lesson", "lessons"),
            counted(total, "minute", "minutes"),
            counted(material.sources.len(), "text of your own", "texts of your own")
        ),
        "Take the lessons in order. Each begins with what to read in your material, goes on with its key points and terms, and ends with \
         exercises and questions. The answers are in a file of their own."
            .to_owned(),
    ];
    Course {
        title: title.unwrap_or_else(|| format!("Course: {}", material.title)),
        minutes: total,
        introduction,
        lessons,
        sources: material.sources.clone(),
        unusable: material.unusable.clone(),
    }
}

/// Time for the exercises and questions of a lesson.
const fn exercise_minutes() -> usize {
    10
}

/// A lesson is called after its first section of the highest level.
fn lesson_title(sections: &[&Section]) -> String {
    let first = sections.iter().min_by_key(|section| section.level);
    first.map_or_else(|| "Lesson".to_owned(), |section| section.title.clone())
}

/// Sections in lessons: a lesson begins at each heading of the highest level that comes up more than once, and at each new
/// text; then the shortest neighbours are put together until there are few enough.
fn grouped(sections: &[Section], most: usize) -> Vec<Vec<&Section>> {
    let level =
        (1..=6).find(|level| sections.iter().filter(|section| section.level == *level).count() > 1).unwrap_or(1);
    let mut groups: Vec<Vec<&Section>> = Vec::new();
    for section in sections {
        let new_text = groups.last().and_then(|group| group.last()).is_none_or(|last| last.source != section.source);
        // The words right below the title of a text belong to its first part.
        let only_opening = groups.last().is_some_and(|group| group.iter().all(|one| one.level < level));
        match groups.last_mut() {
            Some(group) if !new_text && (section.level > level || only_opening) => group.push(section),
            _ => groups.push(vec![section]),
        }
    }
    let words = |group: &Vec<&Section>| group.iter().map(|section| section.words).fold(0, usize::saturating_add);
    while groups.len() > most.max(1) {
        let Some((at, _)) =
            groups.windows(2).enumerate().min_by_key(|(_, pair)| pair.iter().map(words).fold(0, usize::saturating_add))
        else {
            break;
        };
        let mut next = groups.remove(at + 1);
        if let Some(group) = groups.get_mut(at) {
            group.append(&mut next);
        }
    }
    groups
}

/// Writes the lessons of a course.
pub(super) fn lessons(material: &Material, course: &Course) -> Vec<Lesson> {
    course
        .lessons
        .iter()
        .map(|planned| {
            let sections: Vec<&Section> = planned
                .sections
                .iter()
                .filter_map(|id| material.sections.iter().find(|section| section.id == *id))
                .collect();
            let reading = sections.iter().map(|section| Reading {
                title: section.title.clone(),
                place: section.place.clone(),
                minutes: minutes(section.words),
            });
            let terms: Vec<_> =
                material.terms.iter().filter(|term| planned.sections.contains(&term.section)).cloned().collect();
            let defined: Vec<&str> = terms.iter().filter(|term| term.defined).map(|term| term.term.as_str()).collect();
            Lesson {
                number: planned.number,
                title: planned.title.clone(),
                minutes: planned.minutes,
                sections: planned.sections.clone(),
                goals: planned.goals.clone(),
                reading: reading.collect(),
                points: sections.iter().flat_map(|section| leading(section)).take(POINTS_MAX).collect(),
                exercises: exercises(&planned.title, &defined),
                terms,
            }
        })
        .collect()
}

/// What to do after reading; made of the lesson's title and terms.
fn exercises(title: &str, terms: &[&str]) -> Vec<Exercise> {
    let mut all = vec![format!(
        "Close the text. Write down in five lines what “{title}” was about, then compare with the key points above."
    )];
    match terms {
        [one, other, ..] => all.push(format!(
            "Explain to somebody how “{one}” and “{other}” belong together and how they differ, without reading it off."
        )),
        [one] => all.push(format!("Find an example of “{one}” that the text does not give.")),
        [] => all.push("Find the one sentence of the reading that matters most to you, and say why.".to_owned()),
    }
    all.push("Write one question that the reading leaves open, and where you would look for its answer.".to_owned());
    all.into_iter().map(|exercise| Exercise { exercise }).collect()
}

/// The lessons to be read aloud.
pub(super) fn narration(lessons: &[Lesson]) -> String {
    let mut text = String::new();
    for lesson in lessons {
        text.push_str(&format!("Lesson {}. {}.\n{}\n", lesson.number, lesson.title, lesson.goals.join(" ")));
        for point in &lesson.points {
            text.push_str(&format!("{}\n", point.quote.plain.replace('`', "")));
        }
        text.push('\n');
    }
    text
}
