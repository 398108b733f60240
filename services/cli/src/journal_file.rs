//! An exported journal as a file of JSON lines: a head, one line for each event, and a tail.
//!
//! The head names what else was hashed; the tail says how many events there were, so that a file that was cut is told
//! from one that is whole. Bodies are texts holding the exact bytes that were hashed. A file is hostile input.

use std::io::{BufRead, Write};

use serde::Serialize;
use signalbox_domain::identity::Actor;
use signalbox_domain::ids::{RunKey, TenantId};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::export::{FORMAT, Head, Line, Tail};
use signalbox_domain::time::UnixMicros;
use signalbox_proto::v1;

use crate::failure::Failure;

/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 32 << 20;
/// Most events that are read.
const EVENTS_MAX: usize = 1_000_000;

/// A whole journal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JournalFile {
    /// The tenant.
    pub(crate) tenant_id: TenantId,
    /// The internal key of the run.
    pub(crate) run_key: RunKey,
    /// The events as they stand in the file.
    pub(crate) events: Vec<StoredEvent>,
    /// How many events the tail promises, and the hash of the last; `None` if there is no tail: the file was cut.
    pub(crate) tail: Option<(u64, String)>,
}

/// Writes journals as they arrive.
pub(crate) struct JournalWriter<W> {
    to: W,
    events: u64,
    head_hash: String,
}

impl<W: Write> JournalWriter<W> {
    /// Writes the head.
    pub(crate) fn begin(mut to: W, run_id: &str, tenant_id: &str, run_key: &str) -> Result<Self, Failure> {
        let head = Head {
            format: FORMAT.to_owned(),
            run_id: run_id.to_owned(),
            tenant_id: tenant_id.parse().map_err(not_an_export)?,
            run_key: run_key.parse().map_err(not_an_export)?,
        };
        put(&mut to, &head)?;
        Ok(Self { to, events: 0, head_hash: EventHash::ZERO.hex() })
    }
    /// Writes one event.
    pub(crate) fn event(&mut self, event: v1::RunEvent) -> Result<(), Failure> {
        self.events += 1;
        self.head_hash.clone_from(&event.hash);
        put(&mut self.to, &Line::from(&stored(event, RunKey::new(uuid::Uuid::nil()))?))
    }
    /// Writes the tail.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        put(&mut self.to, &Tail { events: self.events, head_hash: self.head_hash })?;
        self.to.flush()?;
        Ok(())
    }
}

/// An event off the wire.
pub(crate) fn stored(event: v1::RunEvent, run_key: RunKey) -> Result<StoredEvent, Failure> {
    let named = |text: &str| serde_json::Value::String(text.to_owned());
    Ok(StoredEvent {
        run_key,
        seq: event.seq,
        at: UnixMicros(event.at_unix_micros),
        actor: Actor {
            actor_id: event.actor_id.parse().map_err(not_an_export)?,
            role: serde_json::from_value(named(&event.actor_role)).map_err(not_an_export)?,
        },
        visibility: serde_json::from_value(named(&event.visibility)).map_err(not_an_export)?,
        kind: event.kind,
        version: u16::try_from(event.version).map_err(not_an_export)?,
        body: event.body_json.to_vec(),
        prev_hash: EventHash::from_hex(&event.prev_hash).ok_or_else(|| not_an_export("a hash is none"))?,
        hash: EventHash::from_hex(&event.hash).ok_or_else(|| not_an_export("a hash is none"))?,
    })
}

/// Reads a journal file.
pub(crate) fn read(mut from: impl BufRead) -> Result<JournalFile, Failure> {
    let Some(head) = line(&mut from)? else {
        return Err(bad_line(1, "the file is empty"));
    };
    let head: Head = serde_json::from_slice(&head).map_err(|error| bad_line(1, error))?;
    if head.format != FORMAT {
        return Err(bad_line(1, format!("the format is not {FORMAT}")));
    }
    let mut file = JournalFile { tenant_id: head.tenant_id, run_key: head.run_key, events: Vec::new(), tail: None };
    let mut number = 1;
    while let Some(bytes) = line(&mut from)? {
        number += 1;
        if file.tail.is_some() {
            return Err(bad_line(number, "there is something after the end"));
        }
        if let Ok(tail) = serde_json::from_slice::<Tail>(&bytes) {
            file.tail = Some((tail.events, tail.head_hash));
            continue;
        }
        if file.events.len() >= EVENTS_MAX {
            return Err(bad_line(number, format!("there are more than {EVENTS_MAX} events")));
        }
        let line: Line = serde_json::from_slice(&bytes).map_err(|error| bad_line(number, error))?;
        file.events.push(line.into_stored(head.run_key));
    }
    Ok(file)
}

fn put(to: &mut impl Write, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new("output-failed", error.to_string()))?;
    writeln!(to, "{text}")?;
    Ok(())
}

// One line without its end; `None` at the end of the file.
fn line(from: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let mut bytes = Vec::new();
    let mut limited = std::io::Read::take(&mut *from, LINE_BYTES_MAX);
    let read = limited.read_until(b'\n', &mut bytes).map_err(|error| not_an_export(error.to_string()))?;
    if read as u64 >= LINE_BYTES_MAX {
        return Err(not_an_export(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
    }
    Ok((read > 0).then_some(bytes))
}

fn bad_line(number: usize, problem: impl std::fmt::Display) -> Failure {
    not_an_export(format!("line {number}: {problem}"))
}

fn not_an_export(problem: impl std::fmt::Display) -> Failure {
    Failure::new("export-invalid", format!("this is not a journal as `signalbox runs export` writes it: {problem}"))
        .next("export the run again with `signalbox runs export ID > FILE`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64) -> v1::RunEvent {
        v1::RunEvent {
            seq,
            at_unix_micros: 7,
            actor_id: "system:run".to_owned(),
            actor_role: "platform-operator".to_owned(),
            visibility: "customer".to_owned(),
            kind: "run-started".to_owned(),
            version: 1,
            body_json: r#"{"note":"ü \" \u0000"}"#.as_bytes().to_vec().into(),
            prev_hash: "0".repeat(64),
            hash: "a".repeat(64),
            ..v1::RunEvent::default()
        }
    }

    fn written(events: u64) -> String {
        let mut bytes = Vec::new();
        let key = uuid::Uuid::from_u128(7).to_string();
        let mut writer = JournalWriter::begin(&mut bytes, &key, "acme", &key).unwrap();
        for seq in 1..=events {
            writer.event(event(seq)).unwrap();
        }
        writer.end().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_was_written_reads_back_byte_for_byte() {
        let file = read(written(2).as_bytes()).unwrap();
        assert_eq!((file.tenant_id.as_str(), file.events.len()), ("acme", 2));
        assert_eq!(file.tail, Some((2, "a".repeat(64))));
        assert_eq!(file.events[1], stored(event(2), file.run_key).unwrap());
    }

    #[test]
    fn a_file_that_was_cut_has_no_tail() {
        let text = written(2);
        let cut = text.lines().take(2).collect::<Vec<_>>().join("\n");
        let file = read(cut.as_bytes()).unwrap();
        assert_eq!((file.events.len(), file.tail), (1, None));
    }

    #[test]
    fn what_is_no_export_is_refused_with_the_line() {
        let text = written(1);
        let lines: Vec<_> = text.lines().collect();
        let with = |i: usize, line: &str| {
            let mut lines = lines.clone();
            lines[i] = line;
            lines.join("\n")
        };
        let cases = [
            (String::new(), "line 1"),
            ("hello".to_owned(), "line 1"),
            (with(0, &lines[0].replace("v1", "v9")), "line 1"),
            (with(1, "{}"), "line 2"),
            (with(1, &lines[1].replace("customer", "everybody")), "line 2"),
            (with(1, &lines[1].replace("aaaa", "zzzz")), "line 2"),
            (format!("{text}{}\n", lines[1]), "line 4"),
        ];
        for (text, at) in cases {
            let failure = read(text.as_bytes()).unwrap_err();
            assert_eq!(failure.code, "export-invalid");
            assert!(failure.message.contains(at), "{}", failure.message);
        }
    }

    #[test]
    fn a_file_of_any_bytes_is_read_and_verified_or_refused() {
        fn run(bytes: &[u8]) {
            match read(bytes) {
                Ok(file) => {
                    let report = signalbox_domain::run::verify::verify(&file.tenant_id, file.run_key, &file.events);
                    assert_eq!(report.events, file.events.len() as u64);
                }
                Err(failure) => assert_eq!(failure.code, "export-invalid"),
            }
        }
        let golden = include_str!("../../../actors/domain/tests/golden/run-submitted.json");
        let mut bytes = Vec::new();
        let key = uuid::Uuid::from_u128(7).to_string();
        let mut writer = JournalWriter::begin(&mut bytes, &key, "acme", &key).unwrap();
        let submitted = v1::RunEvent { kind: "run-submitted".into(), body_json: golden.into(), ..event(1) };
        writer.event(submitted).unwrap();
        writer.event(event(2)).unwrap();
        writer.end().unwrap();
        let seeds = vec![written(0).into_bytes(), written(3).into_bytes(), bytes];
        signalbox_tests::fuzz::drive_over(
            signalbox_tests::fuzz::Target { name: "journal-file", run, weight: 1 },
            seeds,
        );
    }
}
