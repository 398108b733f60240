//! `audit list` and `audit export`, and `verify --audit`.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};
use signalbox_domain::governance::audit::{AuditReport, verify_audit};
use signalbox_proto::v1;

use crate::audit_file::{self, AuditFile, AuditWriter};
use crate::client::{Connection, Governance, timed};
use crate::failure::Failure;
use crate::output::{Out, instant};

/// `audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Lists who changed which rule, oldest first.
    #[command(after_help = "Example:
  signalbox audit list --subject switch:no-web")]
    List {
        /// Only acts after this one.
        #[arg(long, default_value_t = 0, value_name = "SEQ")]
        after: u64,
        /// Only acts about this, such as switch:no-web or budget:daily.
        #[arg(long, value_name = "KIND:ID")]
        subject: Option<String>,
        /// Most acts that are shown.
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Prints the whole audit journal as JSON lines, for `signalbox verify --audit`.
    #[command(after_help = "Example:
  signalbox audit export > audit.jsonl")]
    Export,
}

/// Does what was asked.
pub(crate) async fn run(client: Governance, command: AuditCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        AuditCommand::List { after, subject, limit } => list(client, after, subject, limit, out).await,
        AuditCommand::Export => {
            let mut to = BufWriter::new(std::io::stdout());
            export(client, &mut to).await?;
            to.flush()?;
            Ok(())
        }
    }
}

async fn list(
    mut client: Governance,
    after_seq: u64,
    subject: Option<String>,
    limit: u32,
    out: &mut Out,
) -> Result<(), Failure> {
    let request = v1::ListAuditRequest { after_seq, subject: subject.unwrap_or_default(), limit };
    let acts = client.list_audit(timed(request)).await?.into_inner().events;
    if out.is_json() {
        let acts: Vec<_> = acts.iter().map(act_view).collect();
        return out.json(&json!({ "acts": acts }));
    }
    if acts.is_empty() {
        return out.line("nothing is recorded");
    }
    let rows: Vec<_> = acts
        .iter()
        .map(|act| {
            let whose = if act.tenant_id.is_empty() { "(platform)" } else { act.tenant_id.as_str() };
            vec![
                act.seq.to_string(),
                instant(act.at_unix_micros),
                act.actor_id.clone(),
                whose.to_owned(),
                act.kind.clone(),
                act.subject.clone(),
                reason(act),
            ]
        })
        .collect();
    out.table(&["ACT", "AT", "BY", "TENANT", "WHAT", "SUBJECT", "REASON"], &rows)
}

/// Writes the whole audit journal.
async fn export(mut client: Governance, to: impl std::io::Write) -> Result<(), Failure> {
    let mut stream = client.export_audit(v1::ExportAuditRequest {}).await?.into_inner();
    let mut writer = AuditWriter::begin(to)?;
    let mut head = None;
    while let Some(message) = stream.message().await? {
        for act in message.events {
            writer.act(act)?;
        }
        head = message.head.or(head);
    }
    let head = head.ok_or_else(|| Failure::new("answer-invalid", "the server did not say where the journal ends"))?;
    writer.end(head)
}

/// Verifies the server's audit journal, or an exported one.
pub(crate) async fn verify(server: &Connection, file: Option<&Path>, out: &mut Out) -> Result<(), Failure> {
    let file = match file {
        Some(path) => audit_file::open(path)?,
        None => {
            let mut bytes = Vec::new();
            export(server.governance().await?, &mut bytes).await?;
            audit_file::read(bytes.as_slice())?
        }
    };
    let report = report(&file);
    show(&report, out)?;
    if report.ok {
        return Ok(());
    }
    let codes: std::collections::BTreeSet<_> = report.findings.iter().map(|finding| finding.code.as_str()).collect();
    let codes = codes.into_iter().collect::<Vec<_>>().join(", ");
    Err(Failure::new("journal-not-sound", format!("the audit journal is not sound: {codes}"))
        .next("compare it with a copy from elsewhere, such as a backup"))
}

fn report(file: &AuditFile) -> AuditReport {
    verify_audit(&file.events, file.head)
}

fn show(report: &AuditReport, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(report);
    }
    out.fields(&[
        ("sound", if report.ok { "yes" } else { "no" }.to_owned()),
        ("acts", report.events.to_string()),
        ("last hash", report.head_hash.clone()),
    ])?;
    if report.findings.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = report
        .findings
        .iter()
        .map(|finding| vec![finding.seq.to_string(), finding.code.clone(), finding.message.clone()])
        .collect();
    out.line("")?;
    out.table(&["ACT", "FINDING", "MEANING"], &rows)
}

fn body(act: &v1::AuditEvent) -> Value {
    serde_json::from_slice(&act.body_json).unwrap_or(Value::Null)
}

fn reason(act: &v1::AuditEvent) -> String {
    body(act)["reason"].as_str().unwrap_or_default().to_owned()
}

/// An act in one line.
pub(super) fn act_line(act: &v1::AuditEvent) -> String {
    format!(
        "{:>6} {} {} {} by {}: {}",
        act.seq,
        instant(act.at_unix_micros),
        act.kind,
        act.subject,
        act.actor_id,
        reason(act)
    )
}

/// An act as scripts read it.
pub(super) fn act_view(act: &v1::AuditEvent) -> Value {
    let body = body(act);
    json!({
        "seq": act.seq,
        "atUnixMicros": act.at_unix_micros,
        "tenantId": (!act.tenant_id.is_empty()).then(|| act.tenant_id.clone()),
        "actorId": act.actor_id,
        "actorRole": act.actor_role,
        "kind": act.kind,
        "subject": act.subject,
        "epoch": act.epoch,
        "reason": body["reason"],
        "before": body["before"],
        "after": body["after"],
        "details": body["details"],
        "hash": act.hash,
    })
}
