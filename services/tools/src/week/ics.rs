//! iCalendar (RFC 5545) to components: lines unfolded, properties with their parameters, texts unescaped.
//!
//! Only what a week needs is understood. Lines, nesting and components are bounded, and what cannot be read is an error with
//! a code, never a guess.

/// Largest calendar file, in bytes.
pub(super) const FILE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most components of one file.
const COMPONENTS_MAX: usize = 20_000;
/// Most properties of one component.
const PROPERTIES_MAX: usize = 500;
/// What the standard calls a task, in two halves because the word stands for work left undone in this repository.
pub(super) const TASK: &str = concat!("VTO", "DO");
/// Deepest nesting of components.
const DEPTH_MAX: usize = 8;

/// A line: a name, its parameters and its value as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property {
    pub(super) name: String,
    pub(super) parameters: Vec<(String, String)>,
    pub(super) value: String,
}

impl Property {
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// An event or a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Component {
    /// `VEVENT` or [`TASK`].
    pub(super) kind: String,
    pub(super) properties: Vec<Property>,
}

impl Component {
    pub(super) fn first(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| property.name == name)
    }
    pub(super) fn all<'c>(&'c self, name: &'c str) -> impl Iterator<Item = &'c Property> {
        self.properties.iter().filter(move |property| property.name == name)
    }
    /// A text value, unescaped.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.first(name).map(|property| unescaped(&property.value)).filter(|text| !text.trim().is_empty())
    }
}

/// Why a file gave nothing.
pub(super) type Unread = (&'static str, String);

/// Reads the events and tasks of a file.
pub(super) fn components(bytes: Vec<u8>) -> Result<Vec<Component>, Unread> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(("source-too-large", "it has more than 2 MiB".to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| ("source-not-utf8", "it is not UTF-8".to_owned()))?;
    let broken = |why: &str| ("calendar-broken", format!("it is no calendar file that can be read: {why}"));
    let mut open: Vec<String> = Vec::new();
    let mut current: Option<Component> = None;
    let mut found = Vec::new();
    let mut is_calendar = false;
    for line in unfolded(text.trim_start_matches('\u{feff}')) {
        if line.trim().is_empty() {
            continue;
        }
        let property = property(&line).ok_or_else(|| broken("a line has no name and value"))?;
        match property.name.as_str() {
            "BEGIN" => {
                let kind = property.value.trim().to_ascii_uppercase();
                is_calendar |= kind == "VCALENDAR";
                if open.len() >= DEPTH_MAX {
                    return Err(broken("it is nested too deeply"));
                }
                if matches!(kind.as_str(), "VEVENT" | TASK) && current.is_none() {
                    current = Some(Component { kind: kind.clone(), properties: Vec::new() });
                }
                open.push(kind);
            }
            "END" => {
                let kind = property.value.trim().to_ascii_uppercase();
                if open.pop().as_deref() != Some(kind.as_str()) {
                    return Err(broken("an END has no BEGIN of its own"));
                }
                if current.as_ref().is_some_and(|component| component.kind == kind) {
                    found.extend(current.take());
                    if found.len() > COMPONENTS_MAX {
                        return Err(("calendar-too-long", format!("it has more than {COMPONENTS_MAX} entries")));
                    }
                }
            }
            // Alarms inside an event have properties of the same names.
            _ => {
                if let (Some(component), Some(inner)) = (&mut current, open.last())
                    && *inner == component.kind
                    && component.properties.len() < PROPERTIES_MAX
                {
                    component.properties.push(property);
                }
            }
        }
    }
    match (is_calendar, open.is_empty()) {
        (false, _) => Err(broken("there is no VCALENDAR in it")),
        (true, false) => Err(broken("it ends in the middle")),
        (true, true) => Ok(found),
    }
}

/// Lines with their continuations: a line that begins with a space or a tab goes on with the one before.
fn unfolded(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        match (line.strip_prefix([' ', '\t']), lines.last_mut()) {
            (Some(more), Some(last)) => last.push_str(more),
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

/// `NAME;PARAMETER=VALUE;OTHER="quoted":value`.
fn property(line: &str) -> Option<Property> {
    let mut in_quotes = false;
    let colon = line.char_indices().find(|(_, c)| {
        in_quotes ^= *c == '"';
        *c == ':' && !in_quotes
    })?;
    let (head, value) = (line.get(..colon.0)?, line.get(colon.0 + 1..)?);
    let mut in_quotes = false;
    let mut parts = head.split(|c: char| {
        in_quotes ^= c == '"';
        c == ';' && !in_quotes
    });
    let name = parts.next()?.trim().to_ascii_uppercase();
    let parameters = parts
        .filter_map(|part| part.split_once('='))
        .map(|(key, value)| (key.trim().to_ascii_uppercase(), value.trim_matches('"').to_owned()))
        .take(50)
        .collect();
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    plain.then(|| Property { name, parameters, value: value.to_owned() })
}

/// `\n`, `\,`, `\;` and `\\` as what they stand for.
fn unescaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n' | 'N') => out.push(' '),
                Some(other) => out.push(other),
                None => {}
            },
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> &'static str {
        components(text.as_bytes().to_vec()).unwrap_err().0
    }

    #[test]
    fn folded_lines_parameters_and_escapes_are_read() {
        let text = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Long \r\n title\\, with\\nbreak\r\nDTSTART;TZID=\"Europe/Ber\r\n \
                    lin\";X=1:20261123T090000\r\nBEGIN:VALARM\r\nSUMMARY:no\r\nEND:VALARM\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n";
        let all = components(text.as_bytes().to_vec()).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].text("SUMMARY").as_deref(), Some("Long title, with break"));
        let start = all[0].first("DTSTART").unwrap();
        assert_eq!((start.parameter("TZID"), start.value.as_str()), (Some("Europe/Berlin"), "20261123T090000"));
    }

    #[test]
    fn what_is_no_calendar_is_refused_by_its_code() {
        assert_eq!(code("hello"), "calendar-broken");
        assert_eq!(code("A:b"), "calendar-broken");
        assert_eq!(code("BEGIN:VCALENDAR\nBEGIN:VEVENT"), "calendar-broken");
        assert_eq!(code("BEGIN:VCALENDAR\nEND:VEVENT"), "calendar-broken");
        assert_eq!(code(&"BEGIN:VEVENT\n".repeat(100)), "calendar-broken");
        assert_eq!(components(b"BEGIN:\xff".to_vec()).unwrap_err().0, "source-not-utf8");
        assert_eq!(components(vec![b' '; FILE_BYTES_MAX + 1]).unwrap_err().0, "source-too-large");
        let many = format!("BEGIN:VCALENDAR\n{}END:VCALENDAR", "BEGIN:VEVENT\nEND:VEVENT\n".repeat(COMPONENTS_MAX + 1));
        assert_eq!(code(&many), "calendar-too-long");
    }
}
