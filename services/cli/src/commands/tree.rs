//! `signalbox runs get ID --tree`: a run and everything below it.

use serde::Serialize;
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::status::RunStatus;
use signalbox_proto::v1;
use uuid::Uuid;

use crate::client::{Client, timed};
use crate::failure::Failure;
use crate::output::Out;

/// Most runs of one tree that are looked at.
const RUNS_MAX: usize = 1_000;

/// One run of a tree. The fields are a promise to scripts.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Branch {
    run_id: Uuid,
    depth: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_run_id: Option<Uuid>,
    /// The parent's step that waits, or waited, for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    agent_id: String,
    status: RunStatus,
    /// What it cost, its own sub-runs included.
    cost: Micros,
    /// What it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    given: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

/// Prints the tree below a run, the run itself first, each run before what is below it.
pub(super) async fn run(mut client: Client, id: Uuid, out: &mut Out) -> Result<(), Failure> {
    let mut waiting = vec![(id, 0, None)];
    let mut branches = Vec::new();
    while let Some((run_id, depth, given)) = waiting.pop() {
        if branches.len() >= RUNS_MAX {
            return Err(Failure::new(
                "tree-too-large",
                format!("the tree has more than {RUNS_MAX} runs; ask for a part of it"),
            ));
        }
        let request = timed(v1::GetRunRequest { run_id: run_id.to_string() });
        let run = client.get_run(request).await?.into_inner().run.unwrap_or_default();
        let envelope: RunEnvelope = serde_json::from_slice(&run.envelope_json)
            .map_err(|error| Failure::new("answer-unreadable", format!("run {run_id} cannot be read: {error}")))?;
        for handoff in envelope.handoffs.iter().rev() {
            let given = handoff.given.get(BudgetCategory::CostUnits);
            waiting.push((handoff.child_run_id.uuid(), depth + 1, Some(given)));
        }
        branches.push(branch(&envelope, depth, given));
    }
    if out.is_json() {
        return out.json(&branches);
    }
    let rows: Vec<_> = branches
        .iter()
        .map(|branch| {
            let given = branch.given.map(|given| given.to_string()).unwrap_or_default();
            vec![
                format!("{}{}", "  ".repeat(branch.depth), branch.run_id),
                branch.agent_id.clone(),
                branch.status.as_str().to_owned(),
                branch.cost.to_string(),
                given,
                branch.code.clone().unwrap_or_default(),
            ]
        })
        .collect();
    out.table(&["RUN", "AGENT", "STATUS", "COST", "GIVEN", "BECAUSE"], &rows)
}

fn branch(run: &RunEnvelope, depth: usize, given: Option<Micros>) -> Branch {
    let parent = run.handed_off.as_ref().and_then(|handed| handed.parent.as_ref());
    Branch {
        run_id: run.run_id.uuid(),
        depth,
        parent_run_id: run.parent_run_id.map(|parent| parent.uuid()),
        step_id: parent.map(|parent| parent.step_id.to_string()),
        agent_id: run.root_agent_id.to_string(),
        status: run.status,
        cost: run.cost_ledger.total_cost_units,
        given,
        code: run.end.as_ref().and_then(|end| end.code.clone()),
    }
}
