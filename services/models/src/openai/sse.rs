//! Server-sent events: the `data` of each, out of chunks that are cut anywhere.

use super::answer::Bad;

/// Longest event.
const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of which the end has not come yet.
#[derive(Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: String,
    has_data: bool,
}

impl Events {
    /// Every event that these bytes complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, Bad> {
        let mut events = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() + self.data.len() > EVENT_BYTES_MAX {
                    return Err(Bad::too_large());
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8(line).map_err(|_| Bad::new("the answer is not UTF-8"))?;
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if line.is_empty() {
                if std::mem::take(&mut self.has_data) {
                    events.push(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
                self.has_data = true;
            }
            // Comments, names and ids say nothing here.
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn events_come_out_whole_however_the_bytes_are_cut() {
        let stream = ": hello\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:one\ndata: two\n\ndata: [DONE]\n\n".as_bytes();
        for size in 1..stream.len() {
            let mut events = Events::default();
            let found: Vec<String> = stream.chunks(size).flat_map(|chunk| events.push(chunk).unwrap()).collect();
            assert_eq!(found, ["{\"a\":1}", "one\ntwo", "[DONE]"], "{size}");
        }
    }

    #[test]
    fn an_event_that_never_ends_is_refused() {
        let mut events = Events::default();
        let long = vec![b'x'; EVENT_BYTES_MAX + 1];
        assert_eq!(events.push(&long).unwrap_err().code, "model-answer-too-large");
    }
}
