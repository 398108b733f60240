//! Calls of a rehearsal that nobody makes: a stand-in answers them, in the journal and nowhere else (MOD-007, I12).

use signalbox_domain::governance::gate::{Simulated, StageAnswer};
use signalbox_domain::mode::stand_in;
use signalbox_domain::run::append::{Ask, NewEvent};
use signalbox_domain::run::call;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::model_step::{self, ModelAnswered, ModelEnd};
use signalbox_domain::run::plan::StepKind;
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;

use super::State;
use crate::values;

impl State {
    /// What records a call and its stand-in. There is no order, no permit and no admission, so no executor can hear of it.
    pub(super) async fn simulated(
        &self,
        scratch: &RunEnvelope,
        prepared: &call::Prepared,
        simulated: &Simulated,
        answers: Vec<StageAnswer>,
        now: UnixMs,
    ) -> Result<Ask, StoreError> {
        if let StepKind::Turn { of, number } = &prepared.step.kind {
            let answer = model_step::stand_in(&scratch.plan, of);
            let looked = values::look(answer).await?;
            let stored = looked.keep(self.shared.blobs.as_ref(), &self.run.tenant_id).await?;
            let mut ask = call::simulate(prepared, simulated, stored, answers, now);
            let (step_id, turn, call_id) = (of.clone(), *number, prepared.call_id);
            let (proposed, refused, end) = (Vec::new(), Vec::new(), Some(ModelEnd::default()));
            let answered = ModelAnswered { step_id, turn, call_id, proposed, refused, end };
            ask.events.push(NewEvent::system(RunEvent::ModelAnswered(Box::new(answered))));
            return Ok(ask);
        }
        let answer = stand_in(&scratch.plan, &prepared.step.step_id, &prepared.target.tool_id, &prepared.args);
        let looked = values::look(answer).await?;
        let stored = looked.keep(self.shared.blobs.as_ref(), &self.run.tenant_id).await?;
        Ok(call::simulate(prepared, simulated, stored, answers, now))
    }
}
