//! `runs watch`, and what `runs submit --watch` does after submitting.

use signalbox_domain::ids::{ApprovalId, StepId};
use signalbox_domain::run::event::{ControlEffect, RunEvent};
use signalbox_domain::run::status::RunStatus;
use signalbox_proto::client::{Item, Watch};
use signalbox_proto::v1;
use std::collections::BTreeSet;

use super::view::{EventView, ProgressView, event_line};
use crate::client::{Client, timed};
use crate::failure::{Exit, Failure};
use crate::output::Out;

/// Follows a run to its end. A run that ends badly, or waits for somebody to decide, is a failure of the command.
pub(crate) async fn run(
    mut client: Client,
    run_id: &str,
    after: u64,
    through_decisions: bool,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut follow = Watch::new(client.clone(), run_id, after);
    let mut open = OpenQuestions::default();
    loop {
        let item = tokio::select! {
            item = follow.next() => item?,
            _ = tokio::signal::ctrl_c() => return Err(interrupted(run_id, follow.cursor())),
        };
        let Some(item) = item else { break };
        match &item {
            Item::Event(event) => {
                show(event, out)?;
                if let Some(event) = RunEvent::decode(&event.kind, &event.body_json) {
                    open.apply(&event);
                }
            }
            Item::Progress(line) if out.is_json() => out.json(&ProgressView::of(line))?,
            Item::Progress(line) => {
                let percent = line.percent.map(|percent| format!(" ({percent} %)")).unwrap_or_default();
                out.line(&format!("       {}: {}{percent}", line.step_id, line.message))?;
            }
        }
        if !through_decisions && !open.is_empty() {
            let run = status(&mut client, run_id).await?;
            // Whatever is still to come will change the picture first.
            if run.last_seq <= follow.cursor() && waits_for_a_decision(&run.status) {
                return Err(waiting(&run));
            }
        }
    }
    ended(&status(&mut client, run_id).await?)
}

/// Whoever watched has seen enough; the run itself is not touched by that.
fn interrupted(run_id: &str, cursor: u64) -> Failure {
    Failure::new("interrupted", format!("the watch ends here; run {run_id} goes on"))
        .next(format!("go on watching with `signalbox runs watch {run_id} --after {cursor}`"))
}

/// The run as it stands.
pub(crate) async fn status(client: &mut Client, run_id: &str) -> Result<v1::Run, Failure> {
    let answer = client.get_run(timed(v1::GetRunRequest { run_id: run_id.to_owned() })).await?.into_inner();
    Ok(answer.run.unwrap_or_default())
}

fn waits_for_a_decision(status: &str) -> bool {
    [RunStatus::AwaitingApproval, RunStatus::AwaitingBranchSelection].iter().any(|known| known.as_str() == status)
}

fn waiting(run: &v1::Run) -> Failure {
    let next = if run.status == RunStatus::AwaitingBranchSelection.as_str() {
        format!("choose with `signalbox runs choose-branch {} --branch BRANCH`", run.run_id)
    } else {
        "see `signalbox approvals list`, and answer with `signalbox approvals decide ID --approve --reason …`"
            .to_owned()
    };
    let failure = Failure::new("waiting-for-decision", format!("run {} waits for a decision", run.run_id)).next(next);
    Failure { exit: Exit::Waiting, ..failure }
}

/// A run that has ended in another status than `completed` is a failure with the code of its end.
pub(crate) fn ended(run: &v1::Run) -> Result<(), Failure> {
    if run.status == RunStatus::Completed.as_str() {
        return Ok(());
    }
    let envelope = serde_json::from_slice::<signalbox_domain::run::envelope::RunEnvelope>(&run.envelope_json);
    let end = envelope.ok().and_then(|envelope| envelope.end);
    let code = end.as_ref().and_then(|end| end.code.clone()).unwrap_or_else(|| format!("run-{}", run.status));
    let message = end.and_then(|end| end.message).map(|message| format!(": {message}")).unwrap_or_default();
    Err(Failure::new(code, format!("run {} is {}{message}", run.run_id, run.status))
        .next(format!("see each step with `signalbox runs get {}`", run.run_id)))
}

fn show(event: &v1::RunEvent, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() { out.json(&EventView::of(event)?) } else { out.line(&event_line(event)) }
}

/// Which questions and choices may be open, as a fold over the events seen: a rewind takes some back without naming them,
/// so the run itself is asked before anything is made of this.
#[derive(Debug, Default)]
struct OpenQuestions {
    approvals: BTreeSet<ApprovalId>,
    branches: BTreeSet<StepId>,
}

impl OpenQuestions {
    fn is_empty(&self) -> bool {
        self.approvals.is_empty() && self.branches.is_empty()
    }

    fn apply(&mut self, event: &RunEvent) {
        if let RunEvent::ApprovalRequested(asked) = event {
            self.approvals.insert(asked.approval_id);
        } else if let RunEvent::ApprovalDecided { approval_id, .. } | RunEvent::ApprovalExpired { approval_id } = event
        {
            self.approvals.remove(approval_id);
        } else if let RunEvent::BranchOffered { step_id, .. } = event {
            self.branches.insert(step_id.clone());
        } else if let RunEvent::ControlApplied(control) = event {
            if let ControlEffect::BranchChosen { step_id, .. } = &control.effect {
                self.branches.remove(step_id);
            } else if let ControlEffect::Ended = &control.effect {
                *self = Self::default();
            }
        }
    }
}
