//! `briefing.md`.

use std::fmt::Write as _;

use super::{CONTRADICTIONS_INTRO, Pack, about, headline, severity, told};
use crate::briefing::factcheck::Contradiction;
use crate::briefing::model::{Item, Supports};
use crate::briefing::safe::{self, clean, spans};

/// Renders the pack.
pub(super) fn render(pack: Pack<'_>) -> String {
    let draft = pack.draft;
    let mut out = format!("# {}\n\n", inline(&draft.title));
    let glance: Vec<String> = draft.glance.iter().map(|line| inline(line)).collect();
    let _ = writeln!(out, "**At a glance.** {}\n", glance.join(" "));
    if let Some(left_out) = pack.left_out() {
        let _ = writeln!(out, "{}\n", inline(&left_out));
    }
    let checks: Vec<String> = pack.checks().iter().map(|line| inline(line)).collect();
    let _ = writeln!(out, "**Checked.** {}\n", checks.join(" "));
    actions(&mut out, pack);
    contradictions(&mut out, pack);
    let (by_id, see_also) = (pack.by_id(), pack.see_also());
    for section in &draft.sections {
        let _ = writeln!(out, "## {} ({})\n", inline(&section.heading), section.items.len());
        for line in &section.intro {
            let _ = writeln!(out, "{}\n", inline(line));
        }
        for entry in section.items.iter().filter_map(|id| by_id.get(id.as_str())) {
            item(&mut out, entry, see_also.get(entry.id.as_str()).map_or(&[], Vec::as_slice));
        }
    }
    problems(&mut out, pack);
    sources(&mut out, pack);
    out
}

fn actions(out: &mut String, pack: Pack<'_>) {
    if pack.draft.actions.is_empty() {
        return;
    }
    out.push_str("## What to do\n\n");
    for group in &pack.draft.actions {
        match group.lines.as_slice() {
            [line] => {
                let _ = writeln!(out, "- **{}:** {}", inline(&group.heading), inline(line));
            }
            lines => {
                let _ = writeln!(out, "- **{}:**", inline(&group.heading));
                for line in lines {
                    let _ = writeln!(out, "  - {}", inline(line));
                }
            }
        }
    }
    out.push('\n');
    if let Some(search) = &pack.draft.lockfile_search {
        let _ = writeln!(
            out,
            "To see which of the packages are in your lockfile:\n\n```sh\n{}\n```\n",
            search.replace("```", "")
        );
    } else if !pack.draft.packages.is_empty() {
        let names: Vec<String> = pack.draft.packages.iter().map(|name| code(name)).collect();
        let _ = writeln!(out, "Packages to look for: {}.\n", names.join(", "));
    }
}

fn item(out: &mut String, item: &Item, also: &[&str]) {
    let _ = writeln!(out, "### {}\n", inline(&headline(item)));
    let mut facts: Vec<String> = Vec::new();
    if item.package.is_some() {
        facts.push(inline(&item.id));
    }
    facts.extend(item.date.clone());
    facts.extend(severity(item).map(|severity| format!("severity: {severity}")));
    if let Some(affected) = &item.affected {
        let named = match item.named_versions.as_slice() {
            [] => String::new(),
            versions => {
                format!(" (the title names {})", versions.iter().map(|v| code(v)).collect::<Vec<_>>().join(", "))
            }
        };
        facts.push(format!("affected: {}{named}", version(affected)));
    }
    facts.extend(item.patched.as_ref().map(|patched| format!("patched: {}", version(patched))));
    facts.extend(item.unaffected.as_ref().map(|unaffected| format!("unaffected: {}", version(unaffected))));
    if !facts.is_empty() {
        let _ = writeln!(out, "{}\n", facts.join(" · "));
    }
    let action = item.action.as_ref().map(|action| inline(&action.text));
    let told = told(item).map(|told| format!("The source says: {}", inline(&told)));
    if action.is_some() || told.is_some() {
        let lines: Vec<String> = action.into_iter().chain(told).collect();
        let _ = writeln!(out, "**What to do.** {}\n", lines.join(" "));
    }
    let summary: Vec<String> = item.quotes_for(Supports::Summary).map(|quote| inline(&quote.plain)).collect();
    if !summary.is_empty() {
        let _ = writeln!(out, "> {}\n", guard(&summary.join(" ")));
    }
    let mut tail = vec![format!("Source: {}", inline(&item.source))];
    if let Some(link) = item.link.as_deref().and_then(safe::link) {
        tail.push(format!("<{link}>"));
    }
    if !also.is_empty() {
        tail.push(format!("see also {}", also.iter().map(|id| inline(id)).collect::<Vec<_>>().join(", ")));
    }
    let _ = writeln!(out, "{}\n", tail.join(" · "));
}

fn contradictions(out: &mut String, pack: Pack<'_>) {
    if pack.claims.contradictions.is_empty() {
        return;
    }
    let _ = writeln!(out, "## What contradicts ({})\n", pack.claims.contradictions.len());
    let _ = writeln!(out, "{CONTRADICTIONS_INTRO}\n");
    for contradiction in &pack.claims.contradictions {
        one_contradiction(out, contradiction);
    }
}

fn one_contradiction(out: &mut String, contradiction: &Contradiction) {
    let _ = writeln!(out, "### {}\n", inline(&about(contradiction)));
    for stated in &contradiction.values {
        for quote in &stated.quotes {
            let (value, source) = (code(&stated.value), inline(&quote.source));
            let _ = writeln!(out, "- {value} in {source}: “{}”", inline(&quote.plain));
        }
    }
    out.push('\n');
}

fn problems(out: &mut String, pack: Pack<'_>) {
    let all: Vec<_> = pack.citations.problems.iter().chain(&pack.claims.problems).collect();
    if !all.is_empty() {
        let _ = writeln!(out, "## What did not hold ({})\n", all.len());
        for problem in all {
            let (about, reason) = (inline(&problem.about), inline(&problem.reason));
            let _ = writeln!(out, "- {about}: {reason} ({})", code(&problem.code));
        }
        out.push('\n');
    }
    let unusable = &pack.draft.unusable;
    if !unusable.is_empty() {
        let _ = writeln!(out, "## Not usable ({})\n", unusable.len());
        for source in unusable {
            let _ = writeln!(out, "- {}: {} ({})", inline(&source.name), inline(&source.reason), code(&source.code));
        }
        out.push('\n');
    }
}

fn sources(out: &mut String, pack: Pack<'_>) {
    let _ = writeln!(out, "## Sources ({})\n", pack.draft.sources.len());
    if pack.draft.sources.is_empty() {
        return;
    }
    out.push_str("| Source | Read as | Items | SHA-256 |\n|---|---|---:|---|\n");
    for source in &pack.draft.sources {
        let altered = if source.altered { " (text differs from the file: redacted or converted)" } else { "" };
        let (name, read_as) = (inline(&source.name), inline(&source.read_as));
        let _ = writeln!(out, "| {name}{altered} | {read_as} | {} | {} |", source.items, code(&source.sha256));
    }
}

/// `none` and "all versions" are words, anything else is a requirement.
fn version(text: &str) -> String {
    match text {
        "none" => "none".to_owned(),
        text if text.starts_with("all versions") => inline(text),
        text => code(text),
    }
}

/// Shown text as Markdown: code stays code, and nothing else of it is markup.
pub(crate) fn inline(text: &str) -> String {
    spans(&clean(text)).iter().map(|span| if span.is_code { code(&span.text) } else { escape(&span.text) }).collect()
}

/// A code span that its content cannot leave.
fn code(text: &str) -> String {
    // A pipe would end a cell of a table even in code.
    let text = clean(text).replace('`', "'").replace('|', "¦");
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied().unwrap_or(' ');
        let mark = match c {
            '\\' | '*' | '[' | ']' | '<' | '>' | '|' | '~' | '#' | '$' => true,
            // Within a word an underscore is no emphasis.
            '_' => !(before.is_alphanumeric() && next.is_alphanumeric()),
            '!' => next == '[',
            '&' => next == '#' || next.is_ascii_alphabetic(),
            // What would be linked by itself although it is no web address.
            ':' => next.is_ascii_alphabetic() && !before.is_whitespace(),
            _ => false,
        };
        if mark {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    out
}

/// Text at the beginning of a line, where `1.`, `-`, `+` and `=` would begin a block.
pub(crate) fn guard(text: &str) -> String {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 && text[digits..].starts_with(['.', ')']) {
        return format!("{}\\{}", &text[..digits], &text[digits..]);
    }
    if text.starts_with(['-', '+', '=']) { format!("\\{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(markdown: &str) -> String {
        let mut out = String::new();
        pulldown_cmark::html::push_html(
            &mut out,
            pulldown_cmark::Parser::new_ext(markdown, pulldown_cmark::Options::all()),
        );
        out
    }

    #[test]
    fn markup_of_a_source_is_shown_and_does_nothing() {
        for hostile in [
            "<script>alert(1)</script>",
            "[click](javascript:alert(1))",
            "![x](https://evil.example/p.png)",
            "**bold** _em_ ~~no~~",
            "&lt;b&gt; &#60;i&#62;",
            "| a | b |",
            "<https://evil.example>",
            "# no heading",
            "[ref]: https://evil.example",
        ] {
            let shown = html(&format!("> {}\n", guard(&inline(hostile))));
            for made in ["<script", "<a ", "<img", "<strong", "<em", "<del", "<h1", "<table", "<b>", "<i>"] {
                assert!(!shown.contains(made), "{hostile} became {shown}");
            }
        }
    }

    #[test]
    fn code_stays_code_and_cannot_be_left() {
        assert_eq!(inline("use `a::b` of a_b"), "use `a::b` of a_b");
        assert_eq!(code("a`b|c"), "`a'b¦c`");
        assert_eq!(html(&inline("x `<script>` y")), "<p>x <code>&lt;script&gt;</code> y</p>\n");
    }

    #[test]
    fn a_line_cannot_begin_a_block() {
        for text in ["1. one", "23) x", "- x", "+ x", "=== x"] {
            let shown = html(&format!("> {}\n", guard(&inline(text))));
            assert!(shown.contains("<p>") && !shown.contains("<li>") && !shown.contains("<h1>"), "{text}: {shown}");
        }
    }
}
