//! How rows are laid out: as columns where they fit, and as one field a line where they do not, so that an id is never cut
//! or broken and can be copied from any terminal.

use unicode_width::UnicodeWidthStr as _;

/// Spaces between two columns.
const GAP: usize = 2;
/// The narrowest a last column of sentences is made before something else is done.
const WRAP_MIN: usize = 16;

/// Rows under their headings.
pub(super) struct Table<'a> {
    /// What each column is called.
    pub(super) headings: &'a [&'a str],
    /// Columns that may be left out where there is no room, by their headings.
    pub(super) optional: &'a [&'a str],
    /// The cells, made harmless already.
    pub(super) rows: &'a [Vec<String>],
}

/// A table as lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Laid {
    /// The line of headings; `None` if each line names its field itself.
    pub(super) heading: Option<String>,
    /// Everything below.
    pub(super) lines: Vec<String>,
    /// The headings that were left out.
    pub(super) left_out: Vec<String>,
}

impl Table<'_> {
    /// Lays the table out for a screen of this many columns; without a screen everything stands on its line.
    pub(super) fn lay(&self, width: Option<usize>) -> Laid {
        let mut shown: Vec<usize> = (0..self.headings.len()).collect();
        let mut left_out = Vec::new();
        let Some(width) = width else { return self.columns(&shown, None, left_out) };
        loop {
            if self.least(&shown) <= width {
                return self.columns(&shown, Some(width), left_out);
            }
            let Some(at) = shown.iter().rposition(|column| self.optional.contains(&self.headings[*column])) else {
                return self.records(width);
            };
            left_out.insert(0, self.headings[shown.remove(at)].to_owned());
        }
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| row.get(column)).map(String::as_str)
    }

    fn natural(&self, column: usize) -> usize {
        self.cells(column).chain([self.headings[column]]).map(|cell| cell.width()).max().unwrap_or(0)
    }

    // The narrowest form of these columns: only the last may wrap, and only between words.
    fn least(&self, shown: &[usize]) -> usize {
        let Some((last, others)) = shown.split_last() else { return 0 };
        let fixed: usize = others.iter().map(|column| self.natural(*column) + GAP).sum();
        let words = self.cells(*last).flat_map(str::split_whitespace).map(|word| word.width()).max().unwrap_or(0);
        fixed + self.natural(*last).min(words.max(self.headings[*last].width()).max(WRAP_MIN))
    }

    fn columns(&self, shown: &[usize], width: Option<usize>, left_out: Vec<String>) -> Laid {
        let mut widths: Vec<usize> = shown.iter().map(|column| self.natural(*column)).collect();
        if let (Some(width), Some((last, others))) = (width, widths.split_last_mut()) {
            let fixed: usize = others.iter().map(|width| width + GAP).sum();
            *last = (*last).min(width.saturating_sub(fixed));
        }
        let heading = aligned(shown.iter().map(|column| self.headings[*column]), &widths);
        let mut lines = Vec::new();
        for row in self.rows {
            let mut cells: Vec<&str> =
                shown.iter().map(|column| row.get(*column).map(String::as_str).unwrap_or_default()).collect();
            let (Some(text), Some(room)) = (cells.pop(), widths.last()) else { continue };
            let indent: usize = widths.iter().rev().skip(1).map(|width| width + GAP).sum();
            let mut wrapped = wrap(text, *room).into_iter();
            let first = wrapped.next().unwrap_or_default();
            lines.push(aligned(cells.into_iter().chain([first.as_str()]), &widths));
            lines.extend(wrapped.map(|line| format!("{:indent$}{line}", "")));
        }
        Laid { heading: Some(heading), lines, left_out }
    }

    fn records(&self, width: usize) -> Laid {
        let mut lines = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                lines.push(String::new());
            }
            let fields: Vec<(&str, &str)> = self.headings.iter().copied().zip(row.iter().map(String::as_str)).collect();
            lines.extend(fields_of(&fields, Some(width)));
        }
        Laid { heading: None, lines, left_out: Vec::new() }
    }
}

/// Names and their values, aligned; empty values are left out, long ones wrap between words under their beginning.
pub(super) fn fields_of(fields: &[(&str, &str)], width: Option<usize>) -> Vec<String> {
    let named: Vec<_> = fields.iter().filter(|(_, value)| !value.is_empty()).collect();
    let names = named.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let indent = names + GAP;
    let room = width.map(|width| width.saturating_sub(indent));
    let mut lines = Vec::new();
    for (name, value) in named {
        // A word that is too long for its place stands on a line of its own, whole, where it can be copied.
        let beneath = room.is_some_and(|room| value.width() > room && !value.contains(' '));
        if beneath {
            lines.push((*name).to_owned());
            lines.push((*value).to_owned());
            continue;
        }
        let mut wrapped = room.map_or_else(|| vec![(*value).to_owned()], |room| wrap(value, room)).into_iter();
        let first = wrapped.next().unwrap_or_default();
        lines.push(format!("{name}{:pad$}{first}", "", pad = indent - name.width()));
        // A word that is too long for its place begins at the edge of the screen, so that the terminal need not break it.
        let placed = |line: String| {
            if room.is_some_and(|room| line.width() > room) { line } else { format!("{:indent$}{line}", "") }
        };
        lines.extend(wrapped.map(placed));
    }
    lines
}

/// A text as lines of at most this width, broken between words; a word that is wider stands alone and whole.
pub(super) fn wrap(text: &str, room: usize) -> Vec<String> {
    if text.width() <= room {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.width() + 1 + word.width() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn aligned<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.zip(widths) {
        line.push_str(cell);
        line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width()) + GAP));
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0190d6a8-3c1e-7bbb-8f5e-000000000001";

    fn rows() -> Vec<Vec<String>> {
        [[ID, "running", "7", "until somebody has looked at it"], [ID, "paused", "12", ""]]
            .map(|row| row.map(str::to_owned).to_vec())
            .to_vec()
    }

    fn lay(width: Option<usize>, optional: &[&str]) -> Laid {
        Table { headings: &["RUN", "STATUS", "COST", "WAITING FOR"], optional, rows: &rows() }.lay(width)
    }

    #[test]
    fn without_a_screen_every_row_is_one_line() {
        let laid = lay(None, &["COST"]);
        assert_eq!(laid.lines.len(), 2);
        assert!(laid.lines[0].ends_with("until somebody has looked at it") && laid.left_out.is_empty());
    }

    #[test]
    fn sentences_wrap_under_their_heading_before_anything_is_left_out() {
        let laid = lay(Some(80), &["COST"]);
        let at = laid.heading.as_ref().unwrap().find("WAITING").unwrap();
        assert!(laid.lines.len() > 2 && laid.left_out.is_empty(), "{laid:?}");
        assert!(laid.lines.iter().all(|line| line.width() <= 80));
        assert!(laid.lines[1].starts_with(&" ".repeat(at)) && !laid.lines[1][at..].starts_with(' '));
    }

    #[test]
    fn columns_that_may_go_go_and_are_named() {
        let laid = lay(Some(66), &["COST"]);
        assert_eq!(laid.left_out, ["COST"]);
        assert!(laid.lines.iter().all(|line| line.width() <= 66), "{laid:?}");
    }

    #[test]
    fn at_forty_columns_each_field_has_its_line_and_an_id_stays_whole() {
        let laid = lay(Some(40), &["COST"]);
        assert_eq!((laid.heading.as_ref(), laid.left_out.len()), (None, 0));
        assert!(laid.lines.contains(&ID.to_owned()), "{laid:?}");
        assert!(laid.lines.iter().all(|line| line.width() <= 40), "{laid:?}");
        assert!(laid.lines.iter().any(|line| line.starts_with("COST") && line.ends_with('7')));
    }

    #[test]
    fn an_id_inside_a_sentence_stays_whole_too() {
        let said = format!("question {ID} of yesterday");
        let lines = fields_of(&[("BECAUSE", said.as_str())], Some(40));
        assert_eq!(lines, ["BECAUSE  question".to_owned(), ID.to_owned(), "         of yesterday".to_owned()]);
    }

    #[test]
    fn nothing_is_lost_at_any_width() {
        for width in 0..120 {
            let laid = lay(Some(width), &[]);
            let text = laid.lines.join(" ");
            for cell in rows().concat() {
                assert!(cell.split(' ').all(|word| text.contains(word)), "{cell} at {width}");
            }
        }
    }

    #[test]
    fn wide_characters_count_as_what_they_take() {
        let rows = [vec!["日本".to_owned(), "a".to_owned()], vec!["x".to_owned(), "b".to_owned()]];
        let laid = Table { headings: &["N", "V"], optional: &[], rows: &rows }.lay(None);
        assert_eq!(laid.lines, ["日本  a", "x     b"]);
    }
}
