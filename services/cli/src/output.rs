//! What commands print: JSON for scripts, aligned tables for people, and nothing that could steer a terminal.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;
use signalbox_domain::quantity::Micros;

use crate::failure::Failure;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns and sentences.
    Table,
    /// JSON with stable names in camelCase; one line for each item where a command streams.
    Json,
}

/// Where results go.
pub(crate) struct Out {
    format: Format,
    bold: bool,
    to: Box<dyn Write + Send>,
}

impl Out {
    /// Standard output. Headings are bold on a terminal, unless `NO_COLOR` is set.
    pub(crate) fn stdout(format: Format) -> Self {
        Self { format, bold: io::stdout().is_terminal() && colour_wanted(), to: Box::new(io::stdout()) }
    }
    /// Anywhere else, without colour.
    #[cfg(test)]
    pub(crate) fn to(format: Format, to: Box<dyn Write + Send>) -> Self {
        Self { format, bold: false, to }
    }
    /// True if JSON is wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }
    /// One line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|e| Failure::new("output-failed", e.to_string()))?;
        writeln!(self.to, "{text}")?;
        self.to.flush()?;
        Ok(())
    }
    /// One line of text, made harmless.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.to, "{}", plain(text))?;
        self.to.flush()?;
        Ok(())
    }
    /// Columns under their headings; the last is not padded.
    pub(crate) fn table(&mut self, headings: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        let heading = aligned(headings.iter().copied(), &widths);
        if self.bold {
            writeln!(self.to, "\u{1b}[1m{heading}\u{1b}[0m")?;
        } else {
            writeln!(self.to, "{heading}")?;
        }
        for row in &rows {
            writeln!(self.to, "{}", aligned(row.iter().map(String::as_str), &widths))?;
        }
        self.to.flush()?;
        Ok(())
    }
    /// Names and their values, aligned; empty values are left out.
    pub(crate) fn fields(&mut self, fields: &[(&str, String)]) -> Result<(), Failure> {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            writeln!(self.to, "{name:<width$}  {}", plain(value))?;
        }
        self.to.flush()?;
        Ok(())
    }
}

/// A warning on standard error.
pub(crate) fn warn(code: &str, text: &str) {
    // If standard error is gone there is nobody to warn.
    let _ = writeln!(io::stderr(), "warning[{code}]: {}", plain(text));
}

/// False if `NO_COLOR` is set to anything but the empty text.
pub(crate) fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The text on one line, without characters that a terminal would obey: it may come from a document or a tool.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => ' ',
            c if c.is_control() || is_invisible_mark(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

// Marks that turn the direction of text around, so that it would be read differently from what it is.
const fn is_invisible_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// An instant as people read it, in UTC.
pub(crate) fn instant(unix_micros: i64) -> String {
    match jiff::Timestamp::from_microsecond(unix_micros) {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => unix_micros.to_string(),
    }
}

/// Cost units from millionths.
pub(crate) const fn cost(micros: i64) -> Micros {
    Micros(micros)
}

/// A length of time as people read it.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

fn aligned<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.zip(widths) {
        line.push_str(cell);
        line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn printed(print: impl FnOnce(&mut Out)) -> String {
        let kept = Kept::default();
        print(&mut Out::to(Format::Table, Box::new(kept.clone())));
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn columns_are_aligned_and_lines_end_with_their_last_word() {
        let rows = [vec!["1".to_owned(), "running".to_owned()], vec!["22".to_owned(), "ü".to_owned()]];
        let text = printed(|out| out.table(&["ID", "STATUS"], &rows).unwrap());
        assert_eq!(text, "ID  STATUS\n1   running\n22  ü\n");
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_printed() {
        let text = printed(|out| out.line("a\u{1b}[2Jb\r\nc\u{202e}d").unwrap());
        assert_eq!(text, "a\u{fffd}[2Jb\u{fffd} c\u{fffd}d\n");
    }

    #[test]
    fn times_and_amounts_read_well() {
        assert_eq!(instant(1_000_000), "1970-01-01 00:00:01");
        assert_eq!(instant(i64::MAX), i64::MAX.to_string());
        assert_eq!(cost(1_500_000).to_string(), "1.5");
        for (ms, text) in [(7, "7 ms"), (1_250, "1.2 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min")] {
            assert_eq!(duration(ms), text);
        }
    }
}
