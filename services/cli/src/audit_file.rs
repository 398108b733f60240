//! An exported audit journal as a file of JSON lines: a head line with the format, one line for each act, and a tail that says
//! where the store remembers the journal to end. Bodies are texts holding the exact bytes that were hashed. A file is hostile
//! input.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, TenantId};
use signalbox_domain::run::chain::EventHash;
use signalbox_domain::time::UnixMicros;
use signalbox_proto::v1;

use crate::failure::Failure;

/// The format's name and version, in the first line.
const FORMAT: &str = "signalbox.audit.v1";
/// Longest line that is read, in bytes: a body and its escapes.
const LINE_BYTES_MAX: u64 = 8 << 20;
/// Most acts that are read.
const ACTS_MAX: usize = 1_000_000;

/// A whole audit journal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AuditFile {
    /// The acts as they stand in the file.
    pub(crate) events: Vec<AuditEvent>,
    /// Where the journal ends; `None` if the file says nothing of it: it was cut.
    pub(crate) head: Option<AuditHead>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct First {
    format: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    seq: u64,
    at_unix_micros: i64,
    tenant_id: Option<TenantId>,
    actor_id: ActorId,
    actor_role: Role,
    kind: String,
    subject: Subject,
    version: u16,
    epoch: u64,
    body: String,
    prev_hash: EventHash,
    hash: EventHash,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tail {
    head: AuditHead,
}

/// Writes an audit journal as it arrives.
pub(crate) struct AuditWriter<W> {
    to: W,
}

impl<W: Write> AuditWriter<W> {
    /// Writes the first line.
    pub(crate) fn begin(mut to: W) -> Result<Self, Failure> {
        put(&mut to, &First { format: FORMAT.to_owned() })?;
        Ok(Self { to })
    }
    /// Writes one act.
    pub(crate) fn act(&mut self, act: v1::AuditEvent) -> Result<(), Failure> {
        let named = serde_json::Value::String(act.actor_role);
        let tenant = (!act.tenant_id.is_empty()).then(|| act.tenant_id.parse()).transpose();
        let line = Line {
            seq: act.seq,
            at_unix_micros: act.at_unix_micros,
            tenant_id: tenant.map_err(not_an_export)?,
            actor_id: act.actor_id.parse().map_err(not_an_export)?,
            actor_role: serde_json::from_value(named).map_err(not_an_export)?,
            kind: act.kind,
            subject: Subject::stored(act.subject),
            version: u16::try_from(act.version).map_err(not_an_export)?,
            epoch: act.epoch,
            // JSON is UTF-8; bytes that are not would be found by their hash.
            body: String::from_utf8_lossy(&act.body_json).into_owned(),
            prev_hash: hash(&act.prev_hash)?,
            hash: hash(&act.hash)?,
        };
        put(&mut self.to, &line)
    }
    /// Writes where the journal ends.
    pub(crate) fn end(mut self, head: v1::AuditHead) -> Result<(), Failure> {
        let head = AuditHead { seq: head.seq, hash: hash(&head.hash)?, at: UnixMicros(head.at_unix_micros) };
        put(&mut self.to, &Tail { head })?;
        self.to.flush()?;
        Ok(())
    }
}

/// Reads a file; `-` is standard input.
pub(crate) fn open(path: &Path) -> Result<AuditFile, Failure> {
    if path == Path::new("-") {
        return read(std::io::stdin().lock());
    }
    let file = std::fs::File::open(path).map_err(|error| {
        let message = format!("`{}` cannot be read: {}", path.display(), error.kind());
        Failure::usage("file-unreadable", message)
    })?;
    read(BufReader::new(file))
}

/// Reads an exported audit journal.
pub(crate) fn read(mut from: impl BufRead) -> Result<AuditFile, Failure> {
    let Some(first) = line(&mut from)? else { return Err(bad_line(1, "the file is empty")) };
    let first: First = serde_json::from_slice(&first).map_err(|error| bad_line(1, error))?;
    if first.format != FORMAT {
        return Err(bad_line(1, format!("the format is not {FORMAT}")));
    }
    let mut file = AuditFile { events: Vec::new(), head: None };
    let mut number = 1;
    while let Some(bytes) = line(&mut from)? {
        number += 1;
        if file.head.is_some() {
            return Err(bad_line(number, "there is something after the end"));
        }
        if let Ok(tail) = serde_json::from_slice::<Tail>(&bytes) {
            file.head = Some(tail.head);
            continue;
        }
        if file.events.len() >= ACTS_MAX {
            return Err(bad_line(number, format!("there are more than {ACTS_MAX} acts")));
        }
        let line: Line = serde_json::from_slice(&bytes).map_err(|error| bad_line(number, error))?;
        file.events.push(line.into_event());
    }
    Ok(file)
}

impl Line {
    fn into_event(self) -> AuditEvent {
        AuditEvent {
            seq: self.seq,
            at: UnixMicros(self.at_unix_micros),
            tenant_id: self.tenant_id,
            actor: Actor { actor_id: self.actor_id, role: self.actor_role },
            kind: self.kind,
            subject: self.subject,
            version: self.version,
            epoch: self.epoch,
            body: self.body.into_bytes(),
            prev_hash: self.prev_hash,
            hash: self.hash,
        }
    }
}

fn put(to: &mut impl Write, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new("output-failed", error.to_string()))?;
    writeln!(to, "{text}")?;
    Ok(())
}

fn hash(text: &str) -> Result<EventHash, Failure> {
    EventHash::from_hex(text).ok_or_else(|| not_an_export("a hash is none"))
}

// One line; `None` at the end of the file.
fn line(from: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let mut bytes = Vec::new();
    let mut limited = std::io::Read::take(&mut *from, LINE_BYTES_MAX);
    let read = limited.read_until(b'\n', &mut bytes).map_err(|error| not_an_export(error.to_string()))?;
    if read as u64 >= LINE_BYTES_MAX {
        return Err(not_an_export(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
    }
    Ok((read > 0).then_some(bytes))
}

fn not_an_export(problem: impl std::fmt::Display) -> Failure {
    Failure::usage("audit-export-invalid", format!("this is no exported audit journal: {problem}"))
        .next("make one with `signalbox audit export > audit.jsonl`")
}

fn bad_line(number: usize, problem: impl std::fmt::Display) -> Failure {
    not_an_export(format!("line {number}: {problem}"))
}

#[cfg(test)]
mod tests {
    use signalbox_domain::governance::audit::{AuditBody, verify_audit};

    use super::*;

    fn act(seq: u64, prev_hash: EventHash) -> AuditEvent {
        let mut event = AuditEvent {
            seq,
            at: UnixMicros(seq.cast_signed()),
            tenant_id: None,
            actor: Actor { actor_id: ActorId::new("ada").unwrap(), role: Role::PlatformOperator },
            kind: "switch-armed".to_owned(),
            subject: Subject::switch(&"no-web"),
            version: 1,
            epoch: seq,
            body: AuditBody { reason: "a drill".to_owned(), ..AuditBody::default() }.to_bytes(),
            prev_hash,
            hash: EventHash::ZERO,
        };
        event.hash = event.expected_hash();
        event
    }

    fn text() -> String {
        let (first, mut to) = (act(1, EventHash::ZERO), Vec::new());
        let second = act(2, first.hash);
        let mut writer = AuditWriter::begin(&mut to).unwrap();
        for event in [&first, &second] {
            writer
                .act(v1::AuditEvent {
                    seq: event.seq,
                    at_unix_micros: event.at.0,
                    tenant_id: String::new(),
                    actor_id: event.actor.actor_id.to_string(),
                    actor_role: event.actor.role.as_str().to_owned(),
                    kind: event.kind.clone(),
                    subject: event.subject.to_string(),
                    version: 1,
                    epoch: event.epoch,
                    body_json: event.body.clone().into(),
                    prev_hash: event.prev_hash.hex(),
                    hash: event.hash.hex(),
                })
                .unwrap();
        }
        writer.end(v1::AuditHead { seq: 2, hash: second.hash.hex(), at_unix_micros: 2 }).unwrap();
        String::from_utf8(to).unwrap()
    }

    fn codes(text: &str) -> Vec<String> {
        let file = read(text.as_bytes()).unwrap();
        verify_audit(&file.events, file.head).findings.into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn what_was_exported_reads_as_it_was_written_and_is_sound() {
        assert!(codes(&text()).is_empty());
    }

    #[test]
    fn a_file_that_was_cut_changed_or_reordered_is_found_out() {
        let text = text();
        let lines: Vec<_> = text.lines().collect();
        let file = |lines: &[&str]| lines.join("\n") + "\n";
        assert_eq!(codes(&file(&lines[..3])), ["audit-cut"]);
        assert_eq!(codes(&file(&[lines[0], lines[1], lines[3]])), ["audit-cut"]);
        assert!(codes(&file(&[lines[0], lines[2], lines[3]])).contains(&"audit-out-of-order".to_owned()));
        assert!(codes(&file(&[lines[0], lines[2], lines[1], lines[3]])).contains(&"audit-chain-broken".to_owned()));
        assert!(codes(&text.replacen("a drill", "a thrill", 1)).contains(&"audit-hash-wrong".to_owned()));
    }

    #[test]
    fn what_is_no_export_is_refused_with_its_line() {
        for bad in ["", "{}\n", "{\"format\":\"other\"}\n", "{\"format\":\"signalbox.audit.v1\"}\nnot json\n"] {
            assert_eq!(read(bad.as_bytes()).unwrap_err().code, "audit-export-invalid");
        }
    }
}
