//! `briefing.html`: one file without scripts, fonts or pictures from anywhere, readable in light and dark, on paper and
//! by a screen reader.

use std::fmt::Write as _;

use super::{CONTRADICTIONS_INTRO, Pack, about, headline, severity, told};
use crate::briefing::model::{Item, Supports};
use crate::briefing::safe::{self, clean, spans};

/// A page made of strangers' words may load and run nothing, even if an escape were forgotten.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
pub(crate) const STYLE: &str = include_str!("style.css");

/// Renders the pack.
pub(super) fn render(pack: Pack<'_>) -> String {
    let draft = pack.draft;
    let title = text(&draft.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n"
    );
    let _ = writeln!(out, "<p class=\"lead\">{}</p>", lines(&draft.glance));
    if let Some(left_out) = pack.left_out() {
        let _ = writeln!(out, "<p>{}</p>", inline(&left_out));
    }
    let _ = writeln!(out, "<p class=\"checks\"><strong>Checked.</strong> {}</p>\n</header>", lines(&pack.checks()));
    contents(&mut out, pack);
    out.push_str("<main>\n");
    actions(&mut out, pack);
    contradictions(&mut out, pack);
    let (by_id, see_also) = (pack.by_id(), pack.see_also());
    for (number, section) in draft.sections.iter().enumerate() {
        let _ = writeln!(out, "<section aria-labelledby=\"part-{number}\">");
        let heading = inline(&section.heading);
        let _ = writeln!(out, "<h2 id=\"part-{number}\">{heading} <small>{}</small></h2>", section.items.len());
        for line in &section.intro {
            let _ = writeln!(out, "<p class=\"intro\">{}</p>", linked(line));
        }
        for entry in section.items.iter().filter_map(|id| by_id.get(id.as_str())) {
            item(&mut out, entry, see_also.get(entry.id.as_str()).map_or(&[], Vec::as_slice));
        }
        out.push_str("</section>\n");
    }
    problems(&mut out, pack);
    out.push_str("</main>\n");
    sources(&mut out, pack);
    out.push_str("</body>\n</html>\n");
    out
}

fn contents(out: &mut String, pack: Pack<'_>) {
    out.push_str("<nav aria-label=\"Contents\">\n<ul>\n");
    if !pack.draft.actions.is_empty() {
        out.push_str("<li><a href=\"#what-to-do\">What to do</a></li>\n");
    }
    if !pack.claims.contradictions.is_empty() {
        out.push_str("<li><a href=\"#contradictions\">What contradicts</a></li>\n");
    }
    for (number, section) in pack.draft.sections.iter().enumerate() {
        let _ = writeln!(
            out,
            "<li><a href=\"#part-{number}\">{}</a> <small>{}</small></li>",
            inline(&section.heading),
            section.items.len()
        );
    }
    out.push_str("<li><a href=\"#sources\">Sources</a></li>\n</ul>\n</nav>\n");
}

fn actions(out: &mut String, pack: Pack<'_>) {
    if pack.draft.actions.is_empty() {
        return;
    }
    out.push_str(
        "<section aria-labelledby=\"what-to-do\">\n<h2 id=\"what-to-do\">What to do</h2>\n<dl class=\"actions\">\n",
    );
    for group in &pack.draft.actions {
        let _ = writeln!(out, "<dt>{}</dt>", inline(&group.heading));
        for line in &group.lines {
            let _ = writeln!(out, "<dd>{}</dd>", inline(line));
        }
    }
    out.push_str("</dl>\n");
    if let Some(search) = &pack.draft.lockfile_search {
        let _ = writeln!(
            out,
            "<p>To see which of the packages are in your lockfile:</p>\n<pre><code>{}</code></pre>",
            escape(search)
        );
    } else if !pack.draft.packages.is_empty() {
        let names: Vec<String> = pack.draft.packages.iter().map(|name| code(name)).collect();
        let _ = writeln!(out, "<p>Packages to look for: {}.</p>", names.join(", "));
    }
    out.push_str("</section>\n");
}

fn item(out: &mut String, item: &Item, also: &[&str]) {
    let _ = writeln!(out, "<article class=\"{}\">\n<h3>{}</h3>", item.kind.as_str(), inline(&headline(item)));
    let mut facts: Vec<(&str, String)> = Vec::new();
    if item.package.is_some() {
        facts.push(("Id", text(&item.id)));
    }
    facts.extend(item.date.as_ref().map(|date| ("Date", format!("<time datetime=\"{0}\">{0}</time>", text(date)))));
    facts.extend(severity(item).map(|severity| {
        let level = item.severity.as_ref().map_or("unstated", |stated| stated.level.as_str());
        ("Severity", format!("<span class=\"level {level}\">{}</span>", text(&severity)))
    }));
    if let Some(affected) = &item.affected {
        let named: Vec<String> = item.named_versions.iter().map(|version| code(version)).collect();
        let named = if named.is_empty() { String::new() } else { format!(" (the title names {})", named.join(", ")) };
        facts.push(("Affected", format!("{}{named}", version(affected))));
    }
    facts.extend(item.patched.as_ref().map(|patched| ("Patched", version(patched))));
    facts.extend(item.unaffected.as_ref().map(|unaffected| ("Unaffected", version(unaffected))));
    if !facts.is_empty() {
        let facts: Vec<String> =
            facts.into_iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>")).collect();
        let _ = writeln!(out, "<dl class=\"facts\">{}</dl>", facts.concat());
    }
    let action = item.action.as_ref().map(|action| inline(&action.text));
    let told = told(item).map(|told| format!("The source says: {}", inline(&told)));
    if action.is_some() || told.is_some() {
        let parts: Vec<String> = action.into_iter().chain(told).collect();
        let _ = writeln!(out, "<p class=\"do\"><strong>What to do.</strong> {}</p>", parts.join(" "));
    }
    let summary: Vec<String> = item.quotes_for(Supports::Summary).map(|quote| inline(&quote.plain)).collect();
    if !summary.is_empty() {
        let _ = writeln!(out, "<blockquote><p>{}</p></blockquote>", summary.join(" "));
    }
    let mut tail = vec![format!("Source: {}", text(&item.source))];
    tail.extend(item.link.as_deref().and_then(anchor));
    if !also.is_empty() {
        tail.push(format!("see also {}", also.iter().map(|id| text(id)).collect::<Vec<_>>().join(", ")));
    }
    let _ = writeln!(out, "<p class=\"tail\">{}</p>\n</article>", tail.join(" · "));
}

fn contradictions(out: &mut String, pack: Pack<'_>) {
    if pack.claims.contradictions.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "<section aria-labelledby=\"contradictions\">\n\
         <h2 id=\"contradictions\">What contradicts <small>{}</small></h2>\n\
         <p class=\"intro\">{CONTRADICTIONS_INTRO}</p>",
        pack.claims.contradictions.len()
    );
    for contradiction in &pack.claims.contradictions {
        let _ = writeln!(out, "<article class=\"contradiction\">\n<h3>{}</h3>\n<ul>", inline(&about(contradiction)));
        for stated in &contradiction.values {
            for quote in &stated.quotes {
                let (value, source) = (code(&stated.value), text(&quote.source));
                let _ = writeln!(out, "<li>{value} in {source}: <q>{}</q></li>", inline(&quote.plain));
            }
        }
        out.push_str("</ul>\n</article>\n");
    }
    out.push_str("</section>\n");
}

fn problems(out: &mut String, pack: Pack<'_>) {
    let all: Vec<_> = pack.citations.problems.iter().chain(&pack.claims.problems).collect();
    if !all.is_empty() {
        let _ = writeln!(out, "<section>\n<h2>What did not hold <small>{}</small></h2>\n<ul>", all.len());
        for problem in all {
            let (about, reason) = (text(&problem.about), text(&problem.reason));
            let _ = writeln!(out, "<li>{about}: {reason} ({})</li>", code(&problem.code));
        }
        out.push_str("</ul>\n</section>\n");
    }
    let unusable = &pack.draft.unusable;
    if !unusable.is_empty() {
        let _ = writeln!(out, "<section>\n<h2>Not usable <small>{}</small></h2>\n<ul>", unusable.len());
        for source in unusable {
            let (name, reason) = (text(&source.name), text(&source.reason));
            let _ = writeln!(out, "<li>{name}: {reason} ({})</li>", code(&source.code));
        }
        out.push_str("</ul>\n</section>\n");
    }
}

fn sources(out: &mut String, pack: Pack<'_>) {
    let _ = writeln!(
        out,
        "<footer>\n<h2 id=\"sources\">Sources <small>{}</small></h2>\n<div class=\"wide\"><table>\n\
         <thead><tr><th scope=\"col\">Source</th><th scope=\"col\">Read as</th><th scope=\"col\">Items</th>\
         <th scope=\"col\">SHA-256</th></tr></thead>\n<tbody>",
        pack.draft.sources.len()
    );
    for source in &pack.draft.sources {
        let altered = if source.altered { " (text differs from the file: redacted or converted)" } else { "" };
        let _ = writeln!(
            out,
            "<tr><td>{}{altered}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            text(&source.name),
            text(&source.read_as),
            source.items,
            code(&source.sha256)
        );
    }
    out.push_str("</tbody>\n</table></div>\n</footer>\n");
}

/// A link, if it may be offered.
fn anchor(link: &str) -> Option<String> {
    let link = safe::link(link)?;
    let shown = link.strip_prefix("https://").unwrap_or(&link);
    Some(format!("<a rel=\"noopener noreferrer nofollow\" href=\"{}\">{}</a>", text(&link), text(shown)))
}

/// A line whose last word may be an address.
fn linked(line: &str) -> String {
    match line.rsplit_once(' ') {
        Some((before, last)) if last.starts_with("http") => match anchor(last) {
            Some(anchor) => format!("{} {anchor}", inline(before)),
            None => inline(line),
        },
        _ => inline(line),
    }
}

fn lines(all: &[String]) -> String {
    all.iter().map(|line| inline(line)).collect::<Vec<_>>().join(" ")
}

/// `none` and "all versions" are words, anything else is a requirement.
fn version(versions: &str) -> String {
    match versions {
        "none" => "none".to_owned(),
        versions if versions.starts_with("all versions") => inline(versions),
        versions => code(versions),
    }
}

/// Shown text as HTML: code stays code, and nothing else of it is markup.
pub(crate) fn inline(shown: &str) -> String {
    spans(&clean(shown)).iter().map(|span| if span.is_code { code(&span.text) } else { escape(&span.text) }).collect()
}

fn code(shown: &str) -> String {
    format!("<code>{}</code>", escape(&clean(shown)))
}

/// Text without any markup.
pub(crate) fn text(shown: &str) -> String {
    escape(&clean(shown))
}

fn escape(shown: &str) -> String {
    let mut out = String::with_capacity(shown.len() + 16);
    for c in shown.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_source_says_becomes_markup() {
        assert_eq!(inline("<b>`<i>` & \"x\" 'y'"), "&lt;b&gt;<code>&lt;i&gt;</code> &amp; &quot;x&quot; &#39;y&#39;");
        assert_eq!(anchor("javascript:alert(1)"), None);
        let anchor = anchor("https://x.example/?a=1&b=\"><script>").unwrap();
        assert!(!anchor.contains("<script") && anchor.contains("&amp;b=%22%3E%3Cscript%3E"), "{anchor}");
    }

    #[test]
    fn an_address_at_the_end_of_a_line_is_a_link() {
        let line = linked("They refer to https://x.example/a");
        assert!(line.starts_with("They refer to <a ") && line.ends_with(">x.example/a</a>"), "{line}");
        assert_eq!(linked("They refer to http"), "They refer to http");
    }
}
