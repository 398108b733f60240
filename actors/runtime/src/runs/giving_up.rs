//! The end of a run that cannot be carried on (RUN-029).

use std::sync::Arc;

use signalbox_domain::ids::RunKey;
use signalbox_domain::invocation::ToneVerdict;
use signalbox_domain::run::advance::{advance, projection};
use signalbox_domain::run::append::{Entry, EntryRefusal, NewEvent};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{OutputKind, RunEvent, RunFinished};
use signalbox_domain::run::evolve::evolve;
use signalbox_domain::run::settle::{Ended, settle, unknown_result};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::journal::{AppendError, StoreError};

use crate::load::load;
use crate::progress::Item;
use crate::run::Shared;
use crate::run::handing::{ends, told_above, told_below};

/// Ends a run whose actor keeps failing, settles what it has out, and has its calls cancelled. Whatever waits in its inbox,
/// also a kill, finds a run that is over.
pub(super) async fn give_up(shared: &Shared, run_key: RunKey, lease_epoch: u64) -> Result<(), StoreError> {
    let Some(before) = load(shared.store.as_ref(), run_key).await? else { return Ok(()) };
    let now = shared.clock.now();
    let mut run = before.clone();
    let mut facts = Vec::new();
    let mut releases = Vec::new();
    let mut write = |run: &mut RunEnvelope, events: Vec<NewEvent>| {
        for new in &events {
            evolve(run, now.micros(), &new.event);
        }
        facts.extend(events);
    };
    if run.end.is_none() {
        let end = NewEvent::system(crash_loop_event(&run));
        write(&mut run, vec![end]);
    }
    for call in before.open_calls() {
        let result = unknown_result("the run's actor failed while the call was out");
        let (events, release) =
            settle(&run, &Ended { call_id: call.call_id, result, stored_output: None, tone: ToneVerdict::Pass }, now);
        write(&mut run, events);
        releases.extend(release);
    }
    let closing = advance(&run, now);
    write(&mut run, closing);
    let entry = Entry {
        run_key,
        expected_seq: before.last_seq,
        lease_epoch,
        // Nothing is asked: a run that is over needs no leave to be so.
        control_seq: 0,
        governance_epoch: shared.governance.view().state.epoch,
        facts,
        asks: Vec::new(),
        answers: Vec::new(),
        releases,
        projection: Some(projection(&run)),
        projection_if_asked: None,
        tells: if run.closed { told_above(&run)? } else { Vec::new() },
        below: if ends(&before, &run) { told_below(&run)? } else { None },
        park: false,
    };
    match shared.journal.append(entry).await {
        Ok(appended) => {
            for event in appended.events {
                shared.hub.publish(run_key, Item::Event(Arc::new(event)));
            }
            for call in before.open_calls() {
                let (tools, tool_id, call_id) = (shared.tools.clone(), call.tool_id.clone(), call.call_id);
                tokio::spawn(async move { tools.cancel(&tool_id, call_id).await });
            }
            Ok(())
        }
        // It is in other hands now.
        Err(AppendError::Refused(EntryRefusal::Fenced { .. } | EntryRefusal::GivenUp | EntryRefusal::NoSuchRun)) => {
            Ok(())
        }
        Err(AppendError::Refused(refusal)) => Err(StoreError::Unknown(refusal.to_string())),
        Err(AppendError::Store(error)) => Err(error),
    }
}

fn crash_loop_event(run: &RunEnvelope) -> RunEvent {
    RunEvent::RunFinished(Box::new(RunFinished {
        status: RunStatus::Failed,
        code: Some("actor-crash-loop".to_owned()),
        message: Some("the run's actor failed three times within a minute".to_owned()),
        user_visible_status_copy: None,
        safe_degradation_mode_id: None,
        blamed_id: None,
        step_id: None,
        outputs: run.bundle(OutputKind::PartialOnFailure),
    }))
}
