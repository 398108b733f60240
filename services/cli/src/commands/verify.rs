//! `verify`: is a journal whole, and does it keep the promises it was written under? The check runs here, on this
//! machine; a server is asked for nothing but the journal itself.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::path::Path;

use clap::Args;
use signalbox_domain::run::verify::{Finding, Report, verify};
use uuid::Uuid;

use super::{audit, export};
use crate::client::Connection;
use crate::failure::Failure;
use crate::journal_file::{self, JournalFile};
use crate::output::Out;

/// `verify`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox verify RUN
  signalbox verify run.jsonl      # without any server")]
pub(crate) struct VerifyArgs {
    /// A run's id, or a file made by `signalbox runs export`; `-` reads standard input. With --audit a file made by
    /// `signalbox audit export`.
    #[arg(value_name = "ID|FILE", required_unless_present = "audit")]
    what: Option<String>,
    /// The audit journal: the server's, or the exported file.
    #[arg(long)]
    audit: bool,
}

/// Verifies a run of the server, or a file.
pub(crate) async fn run(server: &Connection, args: VerifyArgs, out: &mut Out) -> Result<(), Failure> {
    if args.audit {
        return audit::verify(server, args.what.as_deref().map(Path::new), out).await;
    }
    let file = journal(server, args.what.as_deref().unwrap_or_default()).await?;
    let report = report(&file);
    show(&report, out)?;
    if report.ok {
        return Ok(());
    }
    let codes: BTreeSet<_> = report.findings.iter().map(|finding| finding.code.as_str()).collect();
    let codes = codes.into_iter().collect::<Vec<_>>().join(", ");
    let message = format!("the journal is not sound: {codes}");
    Err(Failure::new("journal-not-sound", message).next("compare it with a copy from elsewhere, such as a backup"))
}

/// The whole journal of a run: asked of the server by the run's id, or read from a file.
pub(super) async fn journal(server: &Connection, what: &str) -> Result<JournalFile, Failure> {
    match what.parse::<Uuid>() {
        Ok(id) => {
            let mut bytes = Vec::new();
            export::write(server.open().await?, id, &mut bytes).await?;
            journal_file::read(bytes.as_slice())
        }
        Err(_) => from_file(Path::new(what)),
    }
}

fn from_file(path: &Path) -> Result<JournalFile, Failure> {
    if path == Path::new("-") {
        return journal_file::read(std::io::stdin().lock());
    }
    let file = std::fs::File::open(path).map_err(|error| {
        let message =
            format!("`{}` is neither a run's id nor a file that can be read: {}", path.display(), error.kind());
        Failure::usage("file-unreadable", message)
    })?;
    journal_file::read(BufReader::new(file))
}

/// What the rules find, and whether the file is whole as a file.
fn report(file: &JournalFile) -> Report {
    let mut report = verify(&file.tenant_id, file.run_key, &file.events);
    let problem = match &file.tail {
        None => Some("the file has no tail: it was cut".to_owned()),
        Some((events, _)) if *events != report.events => {
            Some(format!("the tail promises {events} events and there are {}", report.events))
        }
        Some((_, hash)) if *hash != report.head_hash => Some("the tail promises another last event".to_owned()),
        Some(_) => None,
    };
    if let Some(message) = problem {
        report.findings.push(Finding { seq: 0, code: "export-cut".to_owned(), message });
        report.ok = false;
    }
    report
}

fn show(report: &Report, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(report);
    }
    let open = report.open_calls.len();
    out.fields(&[
        ("sound", if report.ok { "yes" } else { "no" }.to_owned()),
        ("events", report.events.to_string()),
        ("last hash", report.head_hash.clone()),
        ("open calls", if open == 0 { String::new() } else { open.to_string() }),
    ])?;
    if report.findings.is_empty() {
        return Ok(());
    }
    let rows: Vec<Vec<String>> = report
        .findings
        .iter()
        .map(|finding| vec![finding.seq.to_string(), finding.code.clone(), finding.message.clone()])
        .collect();
    out.line("")?;
    out.table(&["EVENT", "FINDING", "MEANING"], &rows)
}

#[cfg(test)]
mod tests {
    use signalbox_domain::identity::{Actor, Visibility};
    use signalbox_domain::ids::{RunKey, TenantId};
    use signalbox_domain::run::chain::{EventHash, StoredEvent};
    use signalbox_domain::time::UnixMicros;

    use super::*;

    fn file() -> JournalFile {
        let (tenant_id, run_key) = (TenantId::new("acme").unwrap(), RunKey::new(Uuid::from_u128(1)));
        let mut event = StoredEvent {
            run_key,
            seq: 1,
            at: UnixMicros(1),
            actor: Actor::system(),
            visibility: Visibility::Customer,
            kind: "run-started".to_owned(),
            version: 1,
            body: b"{}".to_vec(),
            prev_hash: EventHash::ZERO,
            hash: EventHash::ZERO,
        };
        event.hash = event.expected_hash(&tenant_id);
        let tail = Some((1, event.hash.hex()));
        JournalFile { tenant_id, run_key, events: vec![event], tail }
    }

    fn codes(file: &JournalFile) -> Vec<String> {
        report(file).findings.into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_file_that_was_cut_or_continued_is_found_out() {
        assert!(!codes(&file()).contains(&"export-cut".to_owned()));
        let cut = JournalFile { tail: None, ..file() };
        let fewer = JournalFile { events: Vec::new(), ..file() };
        let other = JournalFile { tail: Some((1, "0".repeat(64))), ..file() };
        for bad in [cut, fewer, other] {
            assert!(codes(&bad).contains(&"export-cut".to_owned()));
        }
    }

    #[test]
    fn a_changed_event_is_found_out_by_its_hash() {
        let mut changed = file();
        changed.events[0].body = b"{\"x\":1}".to_vec();
        assert!(codes(&changed).iter().any(|code| code.contains("hash")), "{:?}", codes(&changed));
    }
}
