//! Turns of model steps on their way to the gate: what is asked, of whom, and what it may cost.

use signalbox_domain::canonical;
use signalbox_domain::catalog::CatalogEntry;
use signalbox_domain::governance::throttle::Throttled;
use signalbox_domain::ids::RegionId;
use signalbox_domain::run::append::NewEvent;
use signalbox_domain::run::call;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::model_step::{
    AskedModel, FALLBACK_THROTTLE_SECONDS, MODEL_TURN_SEMVER, TurnFault, fallback_of, primary_of, read_by_turn,
    switched_off, turn_args, turn_entry,
};
use signalbox_domain::run::plan::{Step, StepKind};
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;

use super::State;
use super::asking::Unready;
use crate::values;

impl State {
    /// The call that a turn is: everything that was said so far, out of the journal.
    pub(super) async fn prepare_turn(
        &mut self,
        scratch: &RunEnvelope,
        turn: &Step,
    ) -> Result<Result<call::Prepared, Unready>, StoreError> {
        let owner = if let StepKind::Turn { of, .. } = &turn.kind { scratch.plan.step(of).cloned() } else { None };
        let (Some(owner), Some(mut target)) = (owner, scratch.target_of(turn)) else {
            return Ok(Err(Unready::fails(turn, "internal", "the step is no turn of a model step")));
        };
        let prompt = match self.bind(scratch, &owner).await? {
            Ok(bound) if bound.secrets.is_empty() => bound.value,
            Ok(_) => {
                let fault = TurnFault::SecretInPrompt;
                return Ok(Err(Unready::fails(&owner, fault.code(), &fault.to_string())));
            }
            Err(unready) => return Ok(Err(unready)),
        };
        self.outputs.load(self.shared.blobs.as_ref(), scratch, read_by_turn(scratch, turn)).await?;
        let args = match turn_args(scratch, turn, &prompt, &|step| self.outputs.get(step)) {
            Ok(args) => args,
            Err(fault) => return Ok(Err(Unready::fails(&owner, fault.code(), &fault.to_string()))),
        };
        if let Some(model) = scratch.model_of(turn) {
            target.region = model.region.clone().or_else(|| self.region_of(&model));
        }
        let looked = values::look(args).await?;
        let args_hash = match &looked.digest {
            Ok(hash) => hash.clone(),
            Err(error) => {
                return Ok(Err(Unready::fails(&owner, canonical::NumberNotExact::CODE, &error.to_string())));
            }
        };
        let redacted_args = looked.keep(self.shared.blobs.as_ref(), &self.run.tenant_id).await?;
        let call_id = scratch.next_call_id(turn);
        let (args, step, secrets) = (looked.value, turn.clone(), std::collections::BTreeMap::new());
        Ok(Ok(call::Prepared { call_id, step, target, args, args_hash, redacted_args, secrets }))
    }

    /// What the gate is told of a turn, and the version that is served; `None` for any other call.
    pub(super) fn turn_of(
        &self,
        scratch: &RunEnvelope,
        prepared: &call::Prepared,
    ) -> Option<(CatalogEntry, Option<String>)> {
        if !matches!(prepared.step.kind, StepKind::Turn { .. }) {
            return None;
        }
        let model = scratch.model_of(&prepared.step);
        let bound = model.and_then(|model| self.shared.models.bound(&model.provider_id, &model.model_id));
        let (pricing, timeout_ms) = bound.as_ref().map(|b| (b.pricing, b.timeout_ms)).unwrap_or_default();
        let entry = turn_entry(&prepared.args, &pricing, timeout_ms, scratch.is_rehearsal());
        Some((entry, bound.map(|_| MODEL_TURN_SEMVER.to_owned())))
    }

    /// What makes a turn go to the fallback model before anything was asked: a switch on the provider of the first.
    pub(super) fn falls_back(&self, scratch: &RunEnvelope, turn: &Step, now: UnixMs) -> Option<NewEvent> {
        let binding = scratch.binding_of(turn)?;
        let (primary, other) = (primary_of(binding), fallback_of(binding));
        self.shared.models.bound(&other.provider_id, &other.model_id)?;
        let regions = [self.region_of(&primary), self.region_of(&other)];
        let view = self.shared.governance.view();
        switched_off(scratch, turn, &view.state.switches, regions, now).map(NewEvent::system)
    }

    /// The same of a turn that would have to wait too long at a token bucket.
    pub(super) fn waits_too_long(&self, scratch: &RunEnvelope, turn: &Step, throttled: &Throttled) -> Option<NewEvent> {
        let StepKind::Turn { of, number } = &turn.kind else { return None };
        let binding = scratch.binding_of(turn)?;
        let (primary, other) = (primary_of(binding), fallback_of(binding));
        let fresh = scratch.conversation(of).is_some_and(|conversation| !conversation.fallback);
        let elsewhere = primary.provider_id != other.provider_id;
        if throttled.retry_after_seconds <= FALLBACK_THROTTLE_SECONDS || !fresh || !elsewhere {
            return None;
        }
        self.shared.models.bound(&other.provider_id, &other.model_id)?;
        let (bucket, seconds) = (&throttled.bucket_id, throttled.retry_after_seconds);
        let reason = format!("the bucket `{bucket}` is empty for {seconds} s");
        Some(NewEvent::system(RunEvent::ModelFellBack { step_id: of.clone(), turn: *number, reason }))
    }

    fn region_of(&self, model: &AskedModel) -> Option<RegionId> {
        self.shared.models.bound(&model.provider_id, &model.model_id)?.region
    }
}
