//! A document as it is written for people: one list of blocks, rendered as Markdown and as HTML.
//!
//! Every pipeline writes through here, so that nothing a source says becomes markup anywhere: text is escaped in one
//! place for each format, code stands between backticks, and only pictures made here are put in as they are.

use std::fmt::Write as _;

use crate::briefing::render::{html, markdown};

/// A document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

/// A part of a document. Texts are plain, with code between backticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Block {
    /// A heading of level 2 or 3.
    Heading(u8, String),
    /// A paragraph.
    Text(String),
    /// A paragraph that says how the page was made.
    Note(String),
    /// Words of a source and where they stand.
    Quote { words: String, place: String },
    /// Entries without an order.
    List(Vec<Entry>),
    /// Entries in their order, numbered from 1.
    Steps(Vec<Entry>),
    /// A table with its head.
    Table { head: Vec<String>, rows: Vec<Vec<String>> },
    /// A picture made here: its SVG, the file that holds it, and what it shows in words.
    Picture { svg: String, file: String, shows: String },
}

/// An entry of a list: what leads it, its text, and a file of the same folder it links to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) lead: String,
    pub(crate) text: String,
    pub(crate) file: Option<String>,
    pub(crate) under: Vec<String>,
}

impl Entry {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
    pub(crate) fn led(lead: impl Into<String>, text: impl Into<String>) -> Self {
        Self { lead: lead.into(), text: text.into(), ..Self::default() }
    }
    /// The lead becomes a link to a file of the folder.
    pub(crate) fn linking(self, file: impl Into<String>) -> Self {
        Self { file: Some(file.into()), ..self }
    }
    /// Lines below the entry.
    pub(crate) fn with(self, under: Vec<String>) -> Self {
        Self { under, ..self }
    }
}

impl Page {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: Vec::new() }
    }
    pub(crate) fn heading(&mut self, level: u8, text: impl Into<String>) {
        self.blocks.push(Block::Heading(level, text.into()));
    }
    pub(crate) fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Note(text.into()));
    }
    pub(crate) fn quote(&mut self, words: impl Into<String>, place: impl Into<String>) {
        self.blocks.push(Block::Quote { words: words.into(), place: place.into() });
    }
    /// Nothing if there is no entry.
    pub(crate) fn list(&mut self, entries: Vec<Entry>) {
        if !entries.is_empty() {
            self.blocks.push(Block::List(entries));
        }
    }
    pub(crate) fn steps(&mut self, entries: Vec<Entry>) {
        if !entries.is_empty() {
            self.blocks.push(Block::Steps(entries));
        }
    }
    pub(crate) fn table(&mut self, head: &[&str], rows: Vec<Vec<String>>) {
        if !rows.is_empty() {
            self.blocks.push(Block::Table { head: head.iter().map(|cell| (*cell).to_owned()).collect(), rows });
        }
    }

    /// The page as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("# {}\n", markdown::inline(&self.title));
        for block in &self.blocks {
            out.push('\n');
            self.block_markdown(&mut out, block);
        }
        out
    }

    fn block_markdown(&self, out: &mut String, block: &Block) {
        let inline = |text: &str| markdown::guard(&markdown::inline(text));
        match block {
            Block::Heading(level, text) => {
                let _ = writeln!(out, "{} {}", "#".repeat(usize::from(*level)), markdown::inline(text));
            }
            Block::Text(text) => {
                let _ = writeln!(out, "{}", inline(text));
            }
            Block::Note(text) => {
                let _ = writeln!(out, "*{}*", markdown::inline(text));
            }
            Block::Quote { words, place } => {
                let _ = writeln!(out, "> {}\n>\n> — {}", inline(words), markdown::inline(place));
            }
            Block::List(entries) => entries.iter().for_each(|one| entry_markdown(out, "-", one)),
            Block::Steps(entries) => {
                for (number, one) in entries.iter().enumerate() {
                    entry_markdown(out, &format!("{}.", number + 1), one);
                }
            }
            Block::Table { head, rows } => {
                let line = |cells: &[String]| {
                    format!("| {} |", cells.iter().map(|cell| markdown::inline(cell)).collect::<Vec<_>>().join(" | "))
                };
                let _ = writeln!(out, "{}\n|{}", line(head), "---|".repeat(head.len()));
                for row in rows {
                    let _ = writeln!(out, "{}", line(row));
                }
            }
            Block::Picture { file, shows, .. } => {
                let _ = writeln!(out, "![{}]({file})", markdown::inline(shows));
            }
        }
    }

    /// The page as one HTML file that loads nothing.
    pub(crate) fn html(&self) -> String {
        let title = html::text(&self.title);
        let (policy, style) = (html::POLICY, html::STYLE);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
             <title>{title}</title>\n<style>\n{style}{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        );
        for block in &self.blocks {
            self.block_html(&mut out, block);
        }
        out.push_str("</main>\n</body>\n</html>\n");
        out
    }

    fn block_html(&self, out: &mut String, block: &Block) {
        let _ = match block {
            Block::Heading(level, text) => writeln!(out, "<h{level}>{}</h{level}>", html::inline(text)),
            Block::Text(text) => writeln!(out, "<p>{}</p>", html::inline(text)),
            Block::Note(text) => writeln!(out, "<p class=\"checks\">{}</p>", html::inline(text)),
            Block::Quote { words, place } => writeln!(
                out,
                "<blockquote><p>{}</p><p class=\"tail\">— {}</p></blockquote>",
                html::inline(words),
                html::inline(place)
            ),
            Block::List(entries) => writeln!(out, "<ul>\n{}</ul>", entries_html(entries)),
            Block::Steps(entries) => writeln!(out, "<ol>\n{}</ol>", entries_html(entries)),
            Block::Table { head, rows } => {
                let cells = |tag: &str, cells: &[String]| -> String {
                    cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", html::inline(cell))).collect()
                };
                let rows: String = rows.iter().map(|row| format!("<tr>{}</tr>\n", cells("td", row))).collect();
                writeln!(
                    out,
                    "<div class=\"wide\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>",
                    cells("th scope=\"col\"", head).replace("</th scope=\"col\">", "</th>")
                )
            }
            Block::Picture { svg, .. } => writeln!(out, "<figure>\n{}</figure>", svg),
        };
    }
}

/// What pages need beside the style of the briefing.
const STYLE: &str = "figure { margin: 1rem 0; }\nfigure svg { max-width: 100%; height: auto; border-radius: 8px; }\n\
                     li { margin: 0.25rem 0; }\nblockquote { border-left: 3px solid var(--line); padding-left: 1rem; }\n";

fn entry_markdown(out: &mut String, mark: &str, entry: &Entry) {
    let text = markdown::inline(&entry.text);
    let lead = markdown::inline(&entry.lead);
    let lead = match (&entry.file, lead.is_empty()) {
        (_, true) => String::new(),
        (Some(file), false) => format!("[{lead}]({file})"),
        (None, false) => format!("**{lead}**"),
    };
    let text = if lead.is_empty() { markdown::guard(&text) } else { text };
    let between = if lead.is_empty() || text.is_empty() { "" } else { " " };
    let _ = writeln!(out, "{mark} {lead}{between}{text}");
    for line in &entry.under {
        let _ = writeln!(out, "   - {}", markdown::guard(&markdown::inline(line)));
    }
}

fn entries_html(entries: &[Entry]) -> String {
    let mut out = String::new();
    for entry in entries {
        let lead = html::inline(&entry.lead);
        let lead = match (&entry.file, lead.is_empty()) {
            (_, true) => String::new(),
            (Some(file), false) => format!("<a href=\"{}\">{lead}</a> ", html::text(file)),
            (None, false) => format!("<strong>{lead}</strong> "),
        };
        let under: String = entry.under.iter().map(|line| format!("<li>{}</li>", html::inline(line))).collect();
        let under = if under.is_empty() { under } else { format!("<ul>{under}</ul>") };
        let _ = writeln!(out, "<li>{lead}{}{under}</li>", html::inline(&entry.text));
    }
    out
}

/// `1 page`, `2 pages`.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_page_becomes_markup_in_either_format() {
        let mut page = Page::new("A <script> & more");
        page.heading(2, "# not | a heading");
        page.text("1. no list, <b>no</b> *stars*");
        page.quote("> no [link](javascript:x)", "page 3");
        page.list(vec![Entry::led("<i>", "`code` | cell").linking("a.html").with(vec!["- under".to_owned()])]);
        page.table(&["a|b"], vec![vec!["c|d <".to_owned()]]);
        insta::assert_snapshot!(page.markdown(), @r"
        # A \<script\> & more

        ## \# not \| a heading

        1\. no list, \<b\>no\</b\> \*stars\*

        > \> no \[link\](javascript\:x)
        >
        > — page 3

        - [\<i\>](a.html) `code` \| cell
           - \- under

        | a\|b |
        |---|
        | c\|d \< |
        ");
        let html = page.html();
        for forbidden in ["<script>", "<b>", "<i>", "javascript:x)\""] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
    }
}
