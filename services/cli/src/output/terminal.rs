//! What the terminal can show, and what was asked of it: `--color`, `NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE`, `TERM`, `COLUMNS`.

use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

/// When colour is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless the environment says otherwise (NO_COLOR, CLICOLOR, TERM=dumb).
    Auto,
    /// Also in pipes and files.
    Always,
    /// Nowhere.
    Never,
}

/// One of the two streams a command writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    fn is_terminal(self) -> bool {
        match self {
            Self::Out => io::stdout().is_terminal(),
            Self::Err => io::stderr().is_terminal(),
        }
    }
}

static CHOSEN: OnceLock<Colour> = OnceLock::new();

/// Keeps what the command line says of colour. Said once, before anything is printed.
pub(crate) fn choose_colour(colour: Colour) {
    // A second choice is not made anywhere; if it were, the first would stand.
    let _ = CHOSEN.set(colour);
}

/// True if this stream is to be coloured.
pub(crate) fn colour_on(stream: Stream) -> bool {
    let chosen = CHOSEN.get().copied().unwrap_or(Colour::Auto);
    wanted(chosen, stream.is_terminal(), |name| std::env::var(name).ok())
}

/// True if bars that move may be drawn on standard error.
pub(crate) fn bars_wanted() -> bool {
    Stream::Err.is_terminal() && !is_dumb(std::env::var("TERM").ok().as_deref())
}

/// The width that tables must fit; `None` if standard output is no terminal.
pub(super) fn screen_width() -> Option<usize> {
    if !Stream::Out.is_terminal() {
        return None;
    }
    let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|columns| *columns > 0);
    asked.or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0))
}

fn wanted(chosen: Colour, is_terminal: bool, env: impl Fn(&str) -> Option<String>) -> bool {
    match chosen {
        Colour::Always => return true,
        Colour::Never => return false,
        Colour::Auto => {}
    }
    let set = |name| env(name).filter(|value| !value.is_empty());
    if set("NO_COLOR").is_some() {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    is_terminal && set("CLICOLOR").is_none_or(|value| value != "0") && !is_dumb(env("TERM").as_deref())
}

fn is_dumb(term: Option<&str>) -> bool {
    term == Some("dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_the_flag_then_the_environment_then_the_terminal() {
        let case = |chosen, terminal, set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            wanted(chosen, terminal, |name| set.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()))
        };
        assert!(case(Colour::Auto, true, &[]) && !case(Colour::Auto, false, &[]));
        assert!(!case(Colour::Auto, true, &[("NO_COLOR", "1")]) && case(Colour::Auto, true, &[("NO_COLOR", "")]));
        assert!(case(Colour::Always, false, &[("NO_COLOR", "1")]) && !case(Colour::Never, true, &[]));
        assert!(!case(Colour::Auto, true, &[("CLICOLOR", "0")]) && !case(Colour::Auto, true, &[("TERM", "dumb")]));
        assert!(case(Colour::Auto, false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!case(Colour::Auto, false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!case(Colour::Auto, true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    }
}
