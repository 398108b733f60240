//! Questions on a material, each with an answer that can be looked up.

use std::collections::BTreeSet;

use super::guide::leading;
use super::model::{Cited, Material, Point, PointKind, Question, QuestionKind, Section};

/// Most questions of one call.
pub(super) const COUNT_MAX: usize = 200;
/// How many questions if nobody says: three a section, and not more than this.
pub(super) const COUNT_DEFAULT_MAX: usize = 60;
/// Questions of one section if nobody says.
const PER_SECTION: usize = 3;
/// Other words to choose from beside the right one.
const DISTRACTORS: usize = 3;
/// Points a section must have for an answer in sentences of one's own.
const OPEN_POINTS_MIN: usize = 3;
/// Shortest beginning of a sentence whose reason can be asked for, in bytes.
const REASON_HEAD_BYTES_MIN: usize = 8;
/// Stands for a word that is missing.
const GAP: &str = "_____";
/// Longest sentence with a gap, in bytes; a longer one is a puzzle of its own.
const GAP_BYTES_MAX: usize = 260;

/// Asks about each section in turn, until there are enough.
pub(super) fn questions(material: &Material, count: Option<usize>) -> Vec<Question> {
    let sections: Vec<&Section> = material.sections.iter().collect();
    let count = count.unwrap_or_else(|| (sections.len() * PER_SECTION).min(COUNT_DEFAULT_MAX));
    let share = count.div_ceil(sections.len().max(1)).max(1);
    let mut asked: BTreeSet<String> = BTreeSet::new();
    let mut all: Vec<Question> = Vec::new();
    for section in sections {
        let mut of_section = Vec::new();
        for question in candidates(material, section) {
            if of_section.len() < share && asked.insert(question.prompt.clone()) {
                of_section.push(question);
            }
        }
        all.append(&mut of_section);
    }
    all.truncate(count);
    for (index, question) in all.iter_mut().enumerate() {
        question.id = format!("q{:02}", index + 1);
    }
    all
}

/// The questions a section gives rise to, of different kinds first.
fn candidates(material: &Material, section: &Section) -> Vec<Question> {
    let of = |kind: PointKind| section.points.iter().filter(move |point| point.kind == kind);
    let mut definitions = of(PointKind::Definition).filter_map(|point| definition(section, point));
    let mut reasons = of(PointKind::Reason).filter_map(|point| reason(section, point));
    let mut gaps =
        of(PointKind::Figure).chain(of(PointKind::Definition)).filter_map(|point| gap(material, section, point));
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(definitions.next());
        all.extend(reasons.next());
        all.extend(gaps.next());
        if all.len() == before {
            break;
        }
    }
    let points = leading(section);
    if points.len() >= OPEN_POINTS_MIN {
        // Where nothing else can be asked, the whole part can; in a long list it comes third.
        all.insert(all.len().min(2), open(section, points));
    }
    all
}

fn question(section: &Section, kind: QuestionKind, prompt: String, answer: String, cited: Vec<Cited>) -> Question {
    Question { id: String::new(), section: section.id.clone(), kind, prompt, choices: Vec::new(), answer, cited }
}

fn definition(section: &Section, point: &Point) -> Option<Question> {
    let term = point.about.as_ref()?;
    let prompt = format!("What does “{term}” mean in this text?");
    Some(question(
        section,
        QuestionKind::Definition,
        prompt,
        point.cited.quote.plain.clone(),
        vec![point.cited.clone()],
    ))
}

/// "X because Y" asks for Y, and so does "X, so that Y". Of other reasons nobody could say where they begin.
fn reason(section: &Section, point: &Point) -> Option<Question> {
    let sentence = point.cited.quote.plain.as_str();
    let (head, tail, asks) = [(" because ", "What reason does the text give?"), (" so that ", "What for?")]
        .into_iter()
        .find_map(|(word, asks)| {
            let at = sentence.find(word).filter(|at| *at >= REASON_HEAD_BYTES_MIN)?;
            Some((sentence.get(..at)?, sentence.get(at..)?, asks))
        })?;
    let head = head.trim_end_matches(',');
    let starts = head.split_whitespace().next().unwrap_or_default();
    // What "it" is must be said.
    let of = if matches!(starts, "It" | "They" | "This" | "These" | "He" | "She") {
        format!("In the part “{}”: ", section.title)
    } else {
        String::new()
    };
    let prompt = format!("{of}“{head} …” {asks}");
    let answer = format!("{}.", capital(tail.trim().trim_end_matches(['.', '!', '?'])));
    Some(question(section, QuestionKind::Reason, prompt, answer, vec![point.cited.clone()]))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A sentence without its figure or its term.
fn gap(material: &Material, section: &Section, point: &Point) -> Option<Question> {
    let sentence = point.cited.quote.plain.as_str();
    let missing = point.about.as_ref()?;
    let at = sentence.to_lowercase().find(&missing.to_lowercase())?;
    let (before, rest) = (sentence.get(..at)?, sentence.get(at..)?);
    let (word, after) = (rest.get(..missing.len())?, rest.get(missing.len()..)?);
    // The word must not stand a second time in the sentence.
    if sentence.len() > GAP_BYTES_MAX || after.to_lowercase().contains(&missing.to_lowercase()) {
        return None;
    }
    let choices = if point.kind == PointKind::Definition { choices(material, missing) } else { Vec::new() };
    // A definition is asked as such already; as a gap it needs something to choose from.
    if point.kind == PointKind::Definition && choices.len() <= 2 {
        return None;
    }
    let prompt = format!("Complete: “{before}{GAP}{after}”");
    let mut question = question(section, QuestionKind::Gap, prompt, word.to_owned(), vec![point.cited.clone()]);
    question.choices = choices;
    Some(question)
}

/// The right term among others, in alphabetical order, so that the place tells nothing.
fn choices(material: &Material, right: &str) -> Vec<String> {
    let known: Vec<&str> = material.terms.iter().filter(|term| term.defined).map(|term| term.term.as_str()).collect();
    let at = known.iter().position(|term| *term == right).unwrap_or(0);
    // Those that follow it in the list, around its end: another choice for each term.
    let mut all: Vec<String> = known
        .iter()
        .cycle()
        .skip(at + 1)
        .take(DISTRACTORS.min(known.len().saturating_sub(1)))
        .filter(|term| **term != right)
        .map(|term| (*term).to_owned())
        .collect();
    all.push(right.to_owned());
    all.sort_by_key(|term| term.to_lowercase());
    all
}

fn open(section: &Section, points: Vec<Cited>) -> Question {
    let prompt = format!("In two or three sentences, what does the part “{}” say?", section.title);
    let answer = "A good answer holds these points:".to_owned();
    question(section, QuestionKind::Open, prompt, answer, points)
}
