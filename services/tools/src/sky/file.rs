//! The files of explainers and of a season.

use serde_json::{Value, json};

use super::event::Event;
use super::explain::Explainer;
use super::picture::Picture;
use super::season::Program;
use super::tools::Checked;
use crate::editorial::tone::Tone;
use crate::folder::{Files, both, data, rendered};
use crate::page::{Block, Entry, Page};

/// How the texts were made.
const MADE: &str = "The times were worked out from the theories of the planets and the Moon, and the texts from templates; no model \
                    wrote them. What is seen from your place is not worked out.";

/// Draws the picture anew: what is handed in says only which events have one.
fn draw(page: &mut Page, files: &mut Files, pictures: &[Picture], event: &Event) {
    if !pictures.iter().any(|picture| picture.event == event.id) {
        return;
    }
    let picture = super::picture::draw(event);
    files.insert(picture.file.clone(), picture.svg.clone());
    page.blocks.push(Block::Picture {
        svg: picture.svg.clone(),
        file: picture.file.clone(),
        shows: picture.shows.clone(),
    });
}

fn checked(page: &mut Page, check: Option<&Checked>) {
    if let Some(check) = check {
        page.note(format!(
            "Checked: {} of {} events were worked out again with the same result.",
            check.confirmed, check.events
        ));
        for problem in &check.problems {
            page.note(format!("Not confirmed: {}: {}.", problem.about, problem.reason));
        }
    }
}

/// The explainers: one page with all of them, and a picture each.
pub(super) fn events(short: &[Explainer], long: &[Explainer], pictures: &[Picture], check: Option<&Checked>) -> Value {
    let mut files = Files::new();
    let title = match (short.first(), short.last()) {
        (Some(first), Some(last)) if first.event.id != last.event.id => {
            format!("In the sky, {} to {}", day(first), day(last))
        }
        (Some(one), _) => format!("In the sky, {}", day(one)),
        _ => "In the sky".to_owned(),
    };
    let pages = ["md", "html"].map(|ending| overview(&title, (short, long), pictures, check, (ending, &mut files)));
    let [markdown, html] = pages;
    files.insert("events.md".to_owned(), markdown.markdown());
    files.insert("index.html".to_owned(), html.html());
    files.insert("events.json".to_owned(), data(&json!({ "title": title, "short": short, "long": long })));
    let counts =
        json!({ "events": short.len(), "pictures": pictures.len(), "confirmed": check.map(|check| check.confirmed) });
    rendered(&title, &counts, files)
}

/// The page with all events; its links lead to pages of the same ending.
fn overview(
    title: &str,
    (short, long): (&[Explainer], &[Explainer]),
    pictures: &[Picture],
    check: Option<&Checked>,
    (ending, files): (&str, &mut Files),
) -> Page {
    let mut page = Page::new(title);
    page.table(&["When", "What"], short.iter().map(|one| vec![one.when.clone(), one.title.clone()]).collect());
    for one in short {
        page.heading(2, one.title.clone());
        draw(&mut page, files, pictures, &one.event);
        for part in &one.parts {
            page.text(part.text.clone());
        }
        if let Some(long) = long.iter().find(|long| long.event.id == one.event.id) {
            let name = super::picture::plain_id(&one.event);
            page.list(vec![Entry::led("More about it", String::new()).linking(format!("{name}.{ending}"))]);
            let detail = long_page(long, pictures, check, ending);
            let text = if ending == "md" { detail.markdown() } else { detail.html() };
            files.insert(format!("{name}.{ending}"), text);
        }
    }
    page.note(MADE);
    checked(&mut page, check);
    page
}

/// The page of one event.
fn long_page(long: &Explainer, pictures: &[Picture], check: Option<&Checked>, ending: &str) -> Page {
    let mut page = Page::new(long.title.clone());
    // The picture is a file of the folder already.
    draw(&mut page, &mut Files::new(), pictures, &long.event);
    for part in &long.parts {
        page.heading(2, part.heading.clone());
        page.text(part.text.clone());
    }
    page.list(vec![Entry::led("All events", String::new()).linking(if ending == "md" {
        "events.md"
    } else {
        "index.html"
    })]);
    page.note(MADE);
    checked(&mut page, check);
    page
}

fn day(explainer: &Explainer) -> String {
    super::explain::long_day(explainer.event.local.get(..10).unwrap_or_default())
}

/// The program of a season.
pub(super) fn season(program: &Program, pictures: &[Picture], check: Option<&Checked>, tone: Option<&Tone>) -> Value {
    let mut files = Files::new();
    let mut page = Page::new(program.title.clone());
    for line in &program.introduction {
        page.text(line.clone());
    }
    page.heading(2, "The gatherings");
    page.table(
        &["When", "What", "Minutes"],
        program
            .gatherings
            .iter()
            .map(|one| vec![one.when.clone(), one.title.clone(), one.minutes.to_string()])
            .collect(),
    );
    for (number, gathering) in program.gatherings.iter().enumerate() {
        page.heading(2, format!("{}. {}", number + 1, gathering.title));
        page.text(format!("{} · {} minutes", gathering.when, gathering.minutes));
        draw(&mut page, &mut files, pictures, &gathering.event);
        page.list(vec![Entry::led("You need:", gathering.needs.join("; "))]);
        for part in &gathering.parts {
            page.heading(3, format!("{} ({} minutes)", part.name, part.minutes));
            for line in &part.lines {
                page.text(line.clone());
            }
            if part.name == "Read" {
                for reading in &gathering.readings {
                    page.quote(reading.plain.clone(), reading.source.clone());
                }
            }
        }
    }
    page.note(MADE);
    checked(&mut page, check);
    if let Some(tone) = tone {
        page.note(tone.in_words());
    }
    both(&mut files, "program", &page);
    files.insert("program.json".to_owned(), data(&json!(program)));
    let counts = json!({
        "gatherings": program.gatherings.len(),
        "pictures": files.keys().filter(|name| name.ends_with(".svg")).count(),
        "confirmed": check.map(|check| check.confirmed),
        "toneFindings": tone.map(|tone| tone.findings.len()),
    });
    rendered(&program.title, &counts, files)
}
