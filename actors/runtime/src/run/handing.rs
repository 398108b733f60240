//! Hand-offs of a run: a ready `agent` step becomes the ask that begins its sub-run; the end of a run goes up and down.

use std::sync::Arc;

use signalbox_domain::governance::grant::Grant;
use signalbox_domain::handoff::{beginning, ending, handed_grants};
use signalbox_domain::identity::Actor;
use signalbox_domain::run::append::{Ask, Telling};
use signalbox_domain::run::call;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::plan::Step;
use signalbox_domain::run::sealed::Part;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;

use super::asking::Unready;
use super::{At, Draft, State, add};
use crate::commands::Order;
use crate::values;

impl State {
    /// Makes a ready `agent` step the ask that begins its sub-run, or records why it does not begin. `true` if nothing else
    /// may be asked in the same append: what a sub-run is given and what calls reserve would not know of each other.
    pub(super) async fn hand_off(
        &mut self,
        scratch: &mut Arc<RunEnvelope>,
        step: &Step,
        draft: &mut Draft,
        At { now, boot }: At,
    ) -> Result<bool, StoreError> {
        if !draft.asks.is_empty() {
            // Asked about at once again, when the journal says what became of those.
            return Ok(false);
        }
        match self.sub_run(scratch, step, now).await? {
            Ok(ask) => {
                draft.asks.push(*ask);
                Ok(true)
            }
            Err(Unready::Fails(problem)) => {
                add(scratch, &mut draft.facts, vec![*problem], now);
                Ok(false)
            }
            Err(Unready::Waits) => {
                self.hold(&step.step_id, boot);
                Ok(false)
            }
        }
    }

    async fn sub_run(
        &mut self,
        scratch: &RunEnvelope,
        step: &Step,
        now: UnixMs,
    ) -> Result<Result<Box<Ask>, Unready>, StoreError> {
        let input = match self.bind(scratch, step).await? {
            Ok(bound) => bound.value,
            Err(unready) => return Ok(Err(unready)),
        };
        let submitted = match beginning::submission(scratch, step, input, now) {
            Ok(submitted) => submitted,
            Err(denied) => return Ok(Err(Unready::Fails(denied))),
        };
        // What its inputs say in clear lies sealed, as of any run.
        let (mut submitted, raw) = values::conceal(submitted).await?;
        for (part, document) in raw {
            let sealed = values::seal(&self.shared, &submitted.tenant_id, submitted.run_key, &part, &document).await?;
            match (sealed, part) {
                (Ok(at), Part::Inputs) => submitted.sealed.inputs = Some(at),
                (Ok(at), Part::Step(step)) => {
                    submitted.sealed.steps.insert(step, at);
                }
                (Err(error), _) => {
                    tracing::warn!(run = %self.run.run_id, step = %step.step_id, %error, "held");
                    return Ok(Err(Unready::Waits));
                }
            }
        }
        Ok(Ok(Box::new(beginning::ask(scratch, step, submitted, now))))
    }

    /// Why a sub-run may not make this call, if what was delegated to it does not reach so far.
    pub(super) fn beyond_delegation(scratch: &RunEnvelope, step: &Step) -> Option<Unready> {
        let (code, message) = scratch.not_delegated(step.kind.tool_id()?)?;
        Some(Unready::Fails(Box::new(call::fail_step(step, code, &message))))
    }

    /// The grants that runs share, as a sub-run may use them; `None` for a run that is none.
    pub(super) fn handed_grants(scratch: &RunEnvelope, shared: &[Grant]) -> Option<Vec<Grant>> {
        let handed = scratch.handed_off.as_ref()?;
        Some(handed_grants::as_handed_on(shared, handed, scratch.run_id))
    }
}

/// What a run that is closed by what is about to be written tells its parent.
pub(crate) fn told_above(run: &RunEnvelope) -> Result<Vec<Telling>, StoreError> {
    let Some((run_key, command_id, end)) = ending::report(run) else { return Ok(Vec::new()) };
    let body = order(RunCommand::SubRunEnded { end: Box::new(end) })?;
    Ok(vec![Telling { run_key, command_id, body }])
}

/// What every live run below is told if what is about to be written ends the run.
pub(crate) fn told_below(run: &RunEnvelope) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(end) = run.end.as_ref().filter(|_| run.live_handoffs().next().is_some()) else { return Ok(None) };
    let reason = format!("the run above, {}, has ended: {}", run.run_id, end.status.as_str());
    let command = if end.status == RunStatus::Killed {
        RunCommand::Kill { reason, blamed_id: end.blamed_id.clone() }
    } else {
        RunCommand::Cancel { reason }
    };
    order(command).map(Some)
}

fn order(command: RunCommand) -> Result<Vec<u8>, StoreError> {
    let order = Order { command, actor: Actor::system(), scopes: Vec::new(), expected_seq: None };
    serde_json::to_vec(&order).map_err(|error| StoreError::Poison(error.to_string()))
}

/// True if what is about to be written ends the run.
pub(crate) fn ends(before: &RunEnvelope, after: &RunEnvelope) -> bool {
    before.end.is_none() && after.end.is_some()
}
