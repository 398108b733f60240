//! The pages tell the truth: links lead somewhere, commands exist, and every test that a page names is there.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::workspace::{File, counts, files, none};

const REQUIREMENTS: &str = "docs/requirements.md";

fn pages() -> Vec<File> {
    files("", &[".md"]).into_iter().filter(|file| !file.path.starts_with("samples/")).collect()
}

fn page(path: &str) -> String {
    std::fs::read_to_string(signalbox_tests::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn events(text: &str) -> impl Iterator<Item = Event<'_>> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

fn links(text: &str) -> Vec<String> {
    events(text)
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.into_string()),
            _ => None,
        })
        .collect()
}

/// The anchors of a page's headings, as code hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in events(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let words = heading.take().unwrap_or_default().to_lowercase();
                let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
                anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            _ => {}
        }
    }
    anchors
}

/// The lines of a page's code blocks in the shell's language.
fn shell_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside = false;
    for event in events(text) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => inside = &*language == "sh",
            Event::End(TagEnd::CodeBlock) => inside = false,
            Event::Text(block) if inside => lines.extend(block.lines().map(|l| l.trim().to_owned())),
            _ => {}
        }
    }
    lines
}

fn resolved(from: &str, to: &str) -> PathBuf {
    let mut path = Path::new(from).parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(to).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path
}

#[test]
fn every_link_in_the_pages_leads_somewhere() {
    let mut found = Vec::new();
    for file in pages() {
        for link in links(&file.text).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (target, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let path = if target.is_empty() { PathBuf::from(&file.path) } else { resolved(&file.path, target) };
            if !signalbox_tests::root().join(&path).exists() {
                found.push(format!("{}: {link}", file.path));
            } else if !anchor.is_empty() && !anchors(&page(&path.to_string_lossy())).contains(anchor) {
                found.push(format!("{}: {link}: there is no such heading", file.path));
            }
        }
    }
    none(found, "dead links:");
}

#[test]
fn every_make_target_the_pages_name_exists() {
    let makefile = page("Makefile");
    let targets: BTreeSet<&str> = makefile.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let mut found = Vec::new();
    for file in pages() {
        for line in shell_lines(&file.text) {
            let Some(rest) = line.strip_prefix("make ") else { continue };
            let words = rest.split('#').next().unwrap_or_default().split_whitespace();
            for target in words.filter(|word| !word.contains('=') && !targets.contains(word)) {
                found.push(format!("{}: make {target}", file.path));
            }
        }
    }
    none(found, "the Makefile has no such target:");
}

#[test]
fn every_command_line_the_pages_show_is_one_the_binary_knows() {
    let binary = signalbox_tests::binary().unwrap();
    let mut found = Vec::new();
    for file in pages() {
        for line in shell_lines(&file.text) {
            let line = line.split(" #").next().unwrap_or_default();
            let Some(rest) = line.strip_prefix("signalbox ") else { continue };
            let words: Vec<&str> = rest.split_whitespace().collect();
            let is_command =
                |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
            let path: Vec<&str> = words.iter().take_while(is_command).copied().collect();
            let help = Command::new(&binary).args(&path).arg("--help").output().unwrap();
            let text = String::from_utf8_lossy(&help.stdout).into_owned();
            if !help.status.success() {
                found.push(format!("{}: signalbox {}", file.path, path.join(" ")));
            }
            for flag in words.iter().filter(|word| word.starts_with("--")).filter(|flag| !text.contains(**flag)) {
                found.push(format!("{}: signalbox {} has no {flag}", file.path, path.join(" ")));
            }
        }
    }
    none(found, "the pages show what is not there:");
}

#[test]
fn every_decision_is_listed_and_every_listed_decision_exists() {
    let index = page("docs/decisions/README.md");
    let listed: BTreeSet<String> = links(&index).into_iter().filter(|link| !link.contains('/')).collect();
    let written: BTreeSet<String> = files("docs/decisions", &[".md"])
        .into_iter()
        .filter_map(|file| file.path.rsplit('/').next().map(str::to_owned))
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(listed, written, "docs/decisions/README.md lists each page once");
}

// --- the requirements ---------------------------------------------------------------------------------------------------

struct Row {
    id: String,
    state: String,
    /// The last part of the path of each test that is named.
    tests: Vec<String>,
    /// What is said beside the tests.
    words: String,
}

/// The rows of the tables with the columns id, what, state, shown by.
fn rows() -> Vec<Row> {
    let text = page(REQUIREMENTS);
    let cells = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        (cells.len() == 4 && cells[0].contains('-') && cells[0].starts_with(|c: char| c.is_ascii_uppercase()))
            .then_some(cells)
    });
    cells
        .map(|cells| {
            let quoted = cells[3].split('`').skip(1).step_by(2).filter(|name| name.contains("::"));
            Row {
                id: cells[0].to_owned(),
                state: cells[2].to_owned(),
                tests: quoted.map(|name| name.rsplit("::").next().unwrap_or(name).to_owned()).collect(),
                words: cells[3].to_owned(),
            }
        })
        .collect()
}

#[test]
fn every_requirement_stands_once_and_in_a_known_state() {
    let rows = rows();
    assert!(!rows.is_empty(), "{REQUIREMENTS} has no rows");
    let mut found: Vec<String> = counts(rows.iter().map(|row| row.id.clone()))
        .into_iter()
        .filter(|(_, n)| *n > 1)
        .map(|(id, n)| format!("{id} stands {n} times"))
        .collect();
    for row in rows.iter().filter(|row| !matches!(row.state.as_str(), "done" | "part" | "left")) {
        found.push(format!("{}: `{}` is none of done, part, left", row.id, row.state));
    }
    none(found, REQUIREMENTS);
}

#[test]
fn a_requirement_that_is_done_names_a_test_and_one_that_is_not_says_what_is_left() {
    let mut found = Vec::new();
    for row in rows() {
        match row.state.as_str() {
            "done" if row.tests.is_empty() => found.push(format!("{} is done, says it, and names no test", row.id)),
            "part" | "left" if row.words.is_empty() => found.push(format!("{} does not say what is left", row.id)),
            _ => {}
        }
    }
    none(found, REQUIREMENTS);
}

/// The names of all functions there are, tests among them.
fn functions() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for file in files("", &[".rs"]) {
        for line in file.text.lines().map(str::trim_start) {
            let line = line.trim_start_matches("pub ").trim_start_matches("async ");
            known.extend(line.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next()).map(str::to_owned));
        }
    }
    known
}

#[test]
fn every_test_that_the_requirements_name_exists() {
    let known = functions();
    let mut found = Vec::new();
    for row in rows() {
        for test in row.tests.iter().filter(|test| !known.contains(*test)) {
            found.push(format!("{}: {test}", row.id));
        }
    }
    none(found, "there is no such test:");
}

#[test]
fn every_test_that_the_promises_name_exists() {
    let (known, text) = (functions(), page("docs/promises.md"));
    let quoted = text.split('`').skip(1).step_by(2).filter(|name| name.contains("::"));
    let tests: Vec<&str> = quoted.filter_map(|name| name.rsplit("::").next()).collect();
    assert!(tests.len() > 10, "docs/promises.md names no tests");
    none(
        tests.into_iter().filter(|test| !known.contains(*test)).map(str::to_owned).collect(),
        "there is no such test:",
    );
}
