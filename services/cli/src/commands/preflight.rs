//! `runs submit --dry-run`: what a submission lacks, without submitting it.

use serde::Serialize;
use signalbox_domain::json::{self, Limits};
use signalbox_proto::v1;

use crate::client::{Client, timed};
use crate::failure::Failure;
use crate::output::{Out, cost};

/// What is printed as JSON; the names are as in the wire contract.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PreflightView<'a> {
    ok: bool,
    mode: &'a str,
    max_cost_units: signalbox_domain::quantity::Micros,
    estimated_cost_units: signalbox_domain::quantity::Micros,
    simulated_step_ids: &'a [String],
    gaps: Vec<GapView<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GapView<'a> {
    code: &'a str,
    subject: &'a str,
    message: &'a str,
}

/// Asks what a submission lacks, and prints all of it. A submission that lacks anything is a failure.
pub(crate) async fn run(mut client: Client, submission_json: Vec<u8>, out: &mut Out) -> Result<(), Failure> {
    let request = v1::PreflightRunRequest { submission_json: submission_json.into() };
    let answer = client.preflight_run(timed(request)).await?.into_inner();
    if out.is_json() {
        out.json(&PreflightView {
            ok: answer.ok,
            mode: &answer.mode,
            max_cost_units: cost(answer.max_cost_micros),
            estimated_cost_units: cost(answer.estimate_micros),
            simulated_step_ids: &answer.simulated_step_ids,
            gaps: answer.gaps.iter().map(view).collect(),
        })?;
    } else {
        out.fields(&[
            ("mode", answer.mode.clone()),
            ("may cost", format!("{} of {} units", cost(answer.estimate_micros), cost(answer.max_cost_micros))),
            ("simulated", answer.simulated_step_ids.join(", ")),
            ("gaps", answer.gaps.len().to_string()),
        ])?;
        if !answer.gaps.is_empty() {
            out.line("")?;
            let rows: Vec<Vec<String>> = answer
                .gaps
                .iter()
                .map(|gap| vec![gap.code.clone(), gap.subject.clone(), gap.message.clone()])
                .collect();
            out.table(&["GAP", "WHICH", "WHAT TO DO"], &rows)?;
        }
    }
    if answer.ok {
        return Ok(());
    }
    Err(Failure::new("preflight-failed", "the preflight failed; nothing was submitted"))
}

fn view(gap: &v1::PreflightGap) -> GapView<'_> {
    GapView { code: &gap.code, subject: &gap.subject, message: &gap.message }
}

/// The submission in another mode. It is read as strictly as a server does, because what is said twice could mean either.
pub(crate) fn in_mode(submission: &[u8], mode: &str) -> Result<Vec<u8>, Failure> {
    let refuse = |code: &str, message: String| Failure::usage(code, message);
    let mut value =
        json::parse_strict(submission, Limits::DEFAULT).map_err(|error| refuse(error.code(), error.to_string()))?;
    let members =
        value.as_object_mut().ok_or_else(|| refuse("json-invalid", "a submission is a JSON object".to_owned()))?;
    members.insert("mode".to_owned(), mode.into());
    Ok(value.to_string().into_bytes())
}
