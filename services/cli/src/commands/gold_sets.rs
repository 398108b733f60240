//! `gold-sets promote`, `list` and `export`, and `runs feedback`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use signalbox_domain::quantity::Micros;
use signalbox_proto::v1;

use crate::client::{Feedback, timed};
use crate::failure::Failure;
use crate::output::{Out, instant};

/// Entries that are asked for at once.
const PAGE: u32 = 200;

/// `gold-sets`.
#[derive(Debug, Subcommand)]
pub(crate) enum GoldSetsCommand {
    /// Puts the input of a completed run into a gold set.
    #[command(after_help = "Example:
  signalbox gold-sets promote gold.research RUN --expected answer.json --rubric \"names every source\"")]
    Promote {
        /// The set; one that is not there begins with this entry.
        set: String,
        /// The run.
        run: String,
        /// What a run on its input should give, as JSON; `-` reads standard input.
        #[arg(long, value_name = "FILE")]
        expected: PathBuf,
        /// How to judge what it gives.
        #[arg(long, value_name = "TEXT")]
        rubric: String,
    },
    /// Lists the entries of a gold set.
    #[command(after_help = "Example:
  signalbox gold-sets list gold.research")]
    List {
        /// The set.
        set: String,
    },
    /// Prints every entry of a gold set whole, one JSON object a line.
    #[command(after_help = "Example:
  signalbox gold-sets export gold.research > gold.jsonl")]
    Export {
        /// The set.
        set: String,
    },
}

/// `runs feedback`.
#[derive(Debug, Args)]
pub(crate) struct FeedbackArgs {
    /// The run.
    run: String,
    /// It was no good; it does not count as success.
    #[arg(long, required_unless_present_any = ["positive", "score"], conflicts_with_all = ["positive", "score"])]
    negative: bool,
    /// It was good.
    #[arg(long, conflicts_with = "score")]
    positive: bool,
    /// It scored so much, from 0 to 1; for machines and operators.
    #[arg(long, value_name = "N", value_parser = score, allow_negative_numbers = true)]
    score: Option<Micros>,
}

fn score(text: &str) -> Result<Micros, String> {
    let wrong = || format!("`{text}` is no decimal with at most six places");
    let number: f64 = text.parse().map_err(|_| wrong())?;
    Micros::from_decimal(number).ok_or_else(wrong)
}

/// Says what a run was like.
pub(crate) async fn feedback(mut client: Feedback, args: FeedbackArgs, out: &mut Out) -> Result<(), Failure> {
    let (kind, said) = match (args.negative, args.score) {
        (true, _) => (v1::FeedbackKind::Negative, "negative"),
        (false, Some(_)) => (v1::FeedbackKind::Evaluation, "evaluation"),
        (false, None) => (v1::FeedbackKind::Positive, "positive"),
    };
    let score_micros = args.score.map(|score| score.0);
    let request = v1::RecordFeedbackRequest { run_id: args.run.clone(), kind: kind.into(), score_micros };
    client.record_feedback(timed(request)).await?;
    if out.is_json() {
        return out.json(&json!({ "runId": args.run, "kind": said, "score": args.score }));
    }
    out.line(&format!("noted of run {}: {said}", args.run))
}

/// Does what was asked.
pub(crate) async fn run(client: Feedback, command: GoldSetsCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        GoldSetsCommand::Promote { set, run, expected, rubric } => {
            promote(client, set, run, super::runs::read_file(&expected)?, rubric, out).await
        }
        GoldSetsCommand::List { set } => list(client, set, out).await,
        GoldSetsCommand::Export { set } => export(client, set, out).await,
    }
}

async fn promote(
    mut client: Feedback,
    gold_set_id: String,
    source_run_id: String,
    expected: Vec<u8>,
    rubric: String,
    out: &mut Out,
) -> Result<(), Failure> {
    let expected_output_json = expected.into();
    let request = v1::PromoteGoldSetEntryRequest { gold_set_id, source_run_id, expected_output_json, rubric };
    let answer = client.promote_gold_set_entry(timed(request)).await?.into_inner();
    let entry = answer.entry.unwrap_or_default();
    if out.is_json() {
        return out.json(&view(&entry)?);
    }
    out.line(&format!("{} has run {} as entry {}", entry.gold_set_id, entry.source_run_id, entry.entry_id))
}

async fn list(client: Feedback, set: String, out: &mut Out) -> Result<(), Failure> {
    let entries = entries(client, set).await?;
    if out.is_json() {
        let entries = entries.iter().map(view).collect::<Result<Vec<_>, _>>()?;
        return out.json(&json!({ "entries": entries }));
    }
    if entries.is_empty() {
        return out.line("there is no entry in this gold set");
    }
    let rows: Vec<_> = entries
        .into_iter()
        .map(|entry| {
            vec![
                entry.entry_id,
                format!("{} {}", entry.agent_id, entry.agent_semver),
                entry.source_run_id,
                entry.input_hash.chars().take(12).collect(),
                entry.promoted_by,
                instant(entry.promoted_at_unix_ms.saturating_mul(1_000)),
            ]
        })
        .collect();
    out.table(&["ENTRY", "AGENT", "RUN", "INPUT", "BY", "SINCE"], &rows)
}

async fn export(client: Feedback, set: String, out: &mut Out) -> Result<(), Failure> {
    for entry in entries(client, set).await? {
        out.line(&view(&entry)?.to_string())?;
    }
    Ok(())
}

async fn entries(mut client: Feedback, set: String) -> Result<Vec<v1::GoldSetEntry>, Failure> {
    let mut entries: Vec<v1::GoldSetEntry> = Vec::new();
    loop {
        let after_entry_id = entries.last().map(|entry| entry.entry_id.clone()).unwrap_or_default();
        let request = v1::ListGoldSetEntriesRequest { gold_set_id: set.clone(), after_entry_id, limit: PAGE };
        let page = client.list_gold_set_entries(timed(request)).await?.into_inner();
        let is_last = !page.more || page.entries.is_empty();
        entries.extend(page.entries);
        if is_last {
            return Ok(entries);
        }
    }
}

fn view(entry: &v1::GoldSetEntry) -> Result<Value, Failure> {
    let value = |bytes: &[u8]| {
        serde_json::from_slice::<Value>(bytes).map_err(|error| Failure::new("answer-invalid", error.to_string()))
    };
    Ok(json!({
        "entryId": entry.entry_id, "goldSetId": entry.gold_set_id, "agentId": entry.agent_id,
        "agentSemver": entry.agent_semver, "inputHash": entry.input_hash, "input": value(&entry.input_json)?,
        "expectedOutput": value(&entry.expected_output_json)?, "rubric": entry.rubric, "promotedBy": entry.promoted_by,
        "promotedAt": entry.promoted_at_unix_ms, "sourceRunId": entry.source_run_id,
        "schemaVersion": entry.schema_version,
    }))
}
