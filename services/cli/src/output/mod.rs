//! What commands print, in one place: JSON or YAML for scripts, tables for people that fit their screen, and nothing that
//! could steer a terminal.

mod table;
mod terminal;
mod yaml;

use std::io::{self, Write};

use serde::Serialize;
use signalbox_domain::quantity::Micros;

use self::table::{Table, fields_of, wrap};
use self::terminal::screen_width;
pub(crate) use self::terminal::{Colour, Stream, bars_wanted, choose_colour, colour_on};
use crate::failure::Failure;

/// A JSON text as YAML, with its members in their order.
pub(crate) fn yaml_of(json: &str) -> Result<String, String> {
    yaml::from_json(json)
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Aligned columns and sentences.
    Table,
    /// JSON with stable names in camelCase; one line for each item where a command streams.
    Json,
    /// The same as YAML; one document for each item where a command streams.
    Yaml,
}

/// Where results go.
pub(crate) struct Out {
    format: Format,
    bold: bool,
    width: Option<usize>,
    documents: u64,
    to: Box<dyn Write + Send>,
}

impl Out {
    /// Standard output. On a terminal headings are bold where colour is wanted, and tables fit its width.
    pub(crate) fn stdout(format: Format) -> Self {
        Self { format, bold: colour_on(Stream::Out), width: screen_width(), documents: 0, to: Box::new(io::stdout()) }
    }
    /// Anywhere else, without colour.
    #[cfg(test)]
    pub(crate) fn to(format: Format, width: Option<usize>, to: Box<dyn Write + Send>) -> Self {
        Self { format, bold: false, width, documents: 0, to }
    }
    /// True if a value is wanted and no text for people: as JSON, or the same as YAML.
    pub(crate) fn is_json(&self) -> bool {
        self.format != Format::Table
    }
    /// A value, as one line of JSON or one document of YAML.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let failed = |error: String| Failure::new("output-failed", error);
        let text = serde_json::to_string(value).map_err(|error| failed(error.to_string()))?;
        if self.format == Format::Yaml {
            let text = yaml::from_json(&text).map_err(failed)?;
            if self.documents > 0 {
                writeln!(self.to, "---")?;
            }
            writeln!(self.to, "{}", text.trim_end_matches('\n'))?;
        } else {
            writeln!(self.to, "{text}")?;
        }
        self.documents += 1;
        self.to.flush()?;
        Ok(())
    }
    /// One line of text, made harmless.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.to, "{}", plain(text))?;
        self.to.flush()?;
        Ok(())
    }
    /// Columns under their headings. Where they do not fit the screen, the last wraps between words; where that is not
    /// enough, each field gets its line.
    pub(crate) fn table(&mut self, headings: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        self.table_with(headings, &[], rows)
    }
    /// The same with columns that may be left out where there is no room; a last line names those that were.
    pub(crate) fn table_with(
        &mut self,
        headings: &[&str],
        optional: &[&str],
        rows: &[Vec<String>],
    ) -> Result<(), Failure> {
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
        let laid = Table { headings, optional, rows: &rows }.lay(self.width);
        match laid.heading {
            Some(heading) if self.bold => writeln!(self.to, "\u{1b}[1m{heading}\u{1b}[0m")?,
            Some(heading) => writeln!(self.to, "{heading}")?,
            None => {}
        }
        for line in laid.lines {
            writeln!(self.to, "{line}")?;
        }
        if !laid.left_out.is_empty() {
            let note = format!("(no room for {}; --output yaml shows all)", laid.left_out.join(", "));
            for line in wrap(&note, self.width.unwrap_or(usize::MAX)) {
                writeln!(self.to, "{line}")?;
            }
        }
        self.to.flush()?;
        Ok(())
    }
    /// Names and their values, aligned; empty values are left out.
    pub(crate) fn fields(&mut self, fields: &[(&str, String)]) -> Result<(), Failure> {
        let fields: Vec<(&str, String)> = fields.iter().map(|(name, value)| (*name, plain(value))).collect();
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for line in fields_of(&fields, self.width) {
            writeln!(self.to, "{line}")?;
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
        printed_as(Format::Table, print)
    }

    fn printed_as(format: Format, print: impl FnOnce(&mut Out)) -> String {
        let kept = Kept::default();
        print(&mut Out::to(format, None, Box::new(kept.clone())));
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
    fn json_streams_as_lines_and_yaml_as_documents() {
        let print = |out: &mut Out| {
            for n in 1..3 {
                out.json(&serde_json::json!({ "runId": "a", "seq": n })).unwrap();
            }
        };
        assert_eq!(printed_as(Format::Json, print), "{\"runId\":\"a\",\"seq\":1}\n{\"runId\":\"a\",\"seq\":2}\n");
        assert_eq!(printed_as(Format::Yaml, print), "runId: a\nseq: 1\n---\nrunId: a\nseq: 2\n");
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
