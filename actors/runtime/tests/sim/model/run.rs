//! One run of the model: its journal, held against the promises event by event.

use std::collections::{BTreeMap, BTreeSet};

use signalbox_domain::canonical::{self, sha256_hex};
use signalbox_domain::catalog::Recovery;
use signalbox_domain::governance::target::Target;
use signalbox_domain::ids::{AgentId, CallId, CommandId, GrantId, NodeIncarnation, RunId, RunKey, StepId, TenantId};
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{
    ApprovalDecision, CallOutcome, CallPending, CallSettled, ControlEffect, RunEvent, RunSubmitted,
};
use signalbox_domain::run::evolve::{begin, fold, fold_one};
use signalbox_domain::run::plan::StepKind;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::verify::verify;
use signalbox_ports::tools::CallOrder;

use super::call::CallModel;

/// What was admitted is handed out this soon, or not at all (I5).
const DISPATCHED_WITHIN_MS: u64 = 2_000;

/// The mode in which nothing outside is touched, and the tools of the schedules that would (I12).
const REHEARSAL: &str = "rehearsal-dry-run";
const HAS_EFFECT: [&str; 5] =
    ["memory.write", "calendar.write", "notify.send", "persona.invoke", "composition.suggest"];

type Said = Vec<(&'static str, String)>;

pub(crate) struct RunModel {
    pub(crate) run_id: RunId,
    pub(crate) key: RunKey,
    pub(crate) tenant: TenantId,
    pub(crate) submitted: RunSubmitted,
    pub(crate) events: Vec<StoredEvent>,
    /// The fold so far, event by event.
    pub(crate) fold: Option<RunEnvelope>,
    /// The fold as it stood at some earlier event, through JSON, as a snapshot is kept; and folded on from there.
    resumed: Option<RunEnvelope>,
    pub(crate) calls: BTreeMap<CallId, CallModel>,
    pub(crate) owner: Option<NodeIncarnation>,
    /// Who may write: the last owner, until it gives the run up.
    pub(crate) writer: Option<NodeIncarnation>,
    /// Pauses, cancels and kills that were delivered and not answered.
    pub(crate) controls: BTreeSet<CommandId>,
    ended: Option<RunStatus>,
    pub(crate) closed: bool,
    held: bool,
    permitted: Option<StepId>,
    /// Steps whose call of an at-most-once tool has begun: another needs somebody's word.
    done_once: BTreeMap<StepId, CallId>,
    own_budgets: Vec<(String, i64, i64, i64)>,
    second: u64,
    entries: u64,
}

impl RunModel {
    pub(crate) fn new(head: &RunHead) -> Self {
        Self {
            run_id: head.run_id,
            key: head.run_key,
            tenant: head.tenant_id.clone(),
            submitted: placeholder(head),
            events: Vec::new(),
            fold: None,
            resumed: None,
            calls: BTreeMap::new(),
            owner: head.owner,
            writer: head.owner,
            controls: BTreeSet::new(),
            ended: None,
            closed: false,
            held: false,
            permitted: None,
            done_once: BTreeMap::new(),
            own_budgets: Vec::new(),
            second: 0,
            entries: 0,
        }
    }

    /// Counts an entry; too many within a second are no progress.
    pub(crate) fn paced(&mut self, boot_ms: u64, most: u64) -> Said {
        if self.second != boot_ms / 1_000 {
            (self.second, self.entries) = (boot_ms / 1_000, 0);
        }
        self.entries += 1;
        let spins = self.entries == most;
        spins.then(|| ("spin", format!("run {}: {most} entries within a second", self.run_id))).into_iter().collect()
    }

    /// An entry of this node was taken (I10).
    pub(crate) fn written_by(&mut self, node: NodeIncarnation, entry: &Entry) -> Said {
        let mut said = Said::new();
        if self.writer != Some(node) {
            said.push(("I10", format!("run {}: a node wrote that does not own the run", self.run_id)));
        }
        for (command, _) in &entry.answers {
            self.controls.remove(command);
        }
        if entry.park {
            (self.owner, self.writer) = (None, None);
        }
        said
    }

    /// The event is the next one, and its hash follows from what it says and the hash before (I9).
    pub(crate) fn follows(&mut self, event: &StoredEvent) -> Said {
        let mut said = Said::new();
        let last = self.events.last();
        if event.seq != self.events.len() as u64 + 1 {
            said.push(("I9", format!("event {} after {}", event.seq, self.events.len())));
        }
        if last.is_some_and(|last| event.at < last.at) {
            said.push(("I9", "earlier than the event before it".to_owned()));
        }
        let prev = last.map_or([0; 32], |last| last.hash.0);
        let (mut hashed, key) = (Vec::new(), self.key.uuid());
        let fields: [&[u8]; 11] = [
            b"signalbox.event.v1",
            &prev,
            self.tenant.as_str().as_bytes(),
            key.as_bytes(),
            &event.seq.to_be_bytes(),
            &event.at.0.to_be_bytes(),
            event.actor.actor_id.as_str().as_bytes(),
            event.actor.role.as_str().as_bytes(),
            event.visibility.as_str().as_bytes(),
            event.kind.as_bytes(),
            &event.version.to_be_bytes(),
        ];
        for field in fields.into_iter().chain([event.body.as_slice()]) {
            hashed.extend((field.len() as u64).to_be_bytes());
            hashed.extend(field);
        }
        if event.prev_hash.0 != prev || event.hash.hex() != sha256_hex(&hashed) {
            said.push(("I9", "the hash chain is broken".to_owned()));
        }
        let late = matches!(event.kind.as_str(), "call-settled" | "late-evidence" | "run-closed");
        if self.closed || (self.ended.is_some() && !late) {
            said.push(("I8", "nothing of the kind may follow the end of a run".to_owned()));
        }
        said
    }

    /// What a call of this step is aimed at.
    pub(crate) fn target_of(&self, step: &StepId) -> Option<Target> {
        let step = self.submitted.plan.steps.iter().find(|other| other.step_id == *step)?;
        let StepKind::Tool { tool_id, .. } = &step.kind else { return None };
        let agent_id: AgentId = step.agent_id.clone().unwrap_or_else(|| self.submitted.root_agent_id.clone());
        Some(Target {
            tenant_id: self.tenant.clone(),
            run_id: self.run_id,
            user_id: self.submitted.submitted_by.actor_id.clone(),
            role: self.submitted.submitted_by.role,
            family: agent_id.as_str().strip_prefix("ref.").map(str::to_owned),
            agent_id,
            pipeline_id: self.submitted.pipeline_id.clone(),
            tool_id: tool_id.clone(),
            provider_id: None,
            region: None,
        })
    }

    fn open(&self) -> usize {
        self.calls.values().filter(|call| call.settled.is_none()).count()
    }

    pub(crate) fn uses_of(&self, grant: &GrantId) -> u64 {
        let counts = |call: &&CallModel| {
            call.pending.grant_id == *grant
                && call.settled.as_ref().is_none_or(|settled| settled.outcome != CallOutcome::Held)
        };
        self.calls.values().filter(counts).count() as u64
    }

    pub(crate) fn is_rehearsal(&self) -> bool {
        self.submitted.mode == REHEARSAL
    }

    /// A call was admitted.
    pub(crate) fn pending(&mut self, pending: &CallPending, boot_ms: u64) -> Said {
        let mut said = self.may_admit(&pending.step_id);
        if self.calls.contains_key(&pending.call_id) {
            said.push(("I3", format!("call {} is admitted twice", pending.call_id)));
        }
        let twin = self.calls.values().find(|c| c.settled.is_none() && c.pending.step_id == pending.step_id);
        if twin.is_some() {
            said.push(("I3", format!("step {} has two open calls", pending.step_id)));
        }
        if self.open() >= self.submitted.plan.max_parallel.unwrap_or(8) as usize {
            said.push(("fan-out", "more calls are open than the plan allows".to_owned()));
        }
        for held in &pending.reservations {
            let own = self.own_budgets.iter_mut().find(|own| own.0 == held.budget_id.as_str());
            let Some((id, limit, consumed, reserved)) = own else { continue };
            *reserved += held.amount.0;
            if *consumed + *reserved > *limit {
                said.push(("I4", format!("budget {id}: {consumed} + {reserved} of {limit}")));
            }
        }
        if let Some(before) = self.done_once.get(&pending.step_id) {
            said.push(("at-most-once", format!("call {before} was begun, and the step is to be done again")));
        }
        let call =
            CallModel { pending: pending.clone(), attempt: 1, settled: None, admitted_at: boot_ms, begun: Vec::new() };
        self.calls.insert(pending.call_id, call);
        said
    }

    pub(crate) fn redispatched(&mut self, call: CallId, attempt: u32, boot_ms: u64) -> Said {
        let mut said = Said::new();
        if !self.controls.is_empty() {
            said.push(("control", "admitted again although a control waits".to_owned()));
        }
        match self.calls.get_mut(&call) {
            Some(call) if call.settled.is_none() && attempt == call.attempt + 1 => {
                (call.attempt, call.admitted_at) = (attempt, boot_ms);
                if call.pending.recovery != Recovery::Idempotent {
                    said.push(("at-most-once", format!("call {} is sent again", call.pending.call_id)));
                }
            }
            _ => said.push(("I3", format!("call {call} is sent again and is not open"))),
        }
        said
    }

    fn may_admit(&self, step: &StepId) -> Said {
        let mut said = Said::new();
        if !self.controls.is_empty() {
            said.push(("control", "admitted although a pause, cancel or kill waits".to_owned()));
        }
        if self.held && self.permitted.as_ref() != Some(step) {
            said.push(("control", "admitted although the run is held".to_owned()));
        }
        said
    }

    /// A call was settled: it was open, and no more is charged than was reserved (I3).
    pub(crate) fn settled(&mut self, settled: &CallSettled) -> Said {
        let mut said = Said::new();
        let Some(call) = self.calls.get_mut(&settled.call_id) else {
            return vec![("I3", format!("call {} is settled and was never admitted", settled.call_id))];
        };
        if call.settled.is_some() {
            said.push(("I3", format!("call {} is settled twice", settled.call_id)));
        }
        for (category, charged) in settled.charged.iter() {
            if charged > call.pending.estimated_usage.get(category) {
                said.push(("I4", format!("call {} is charged more than was reserved", settled.call_id)));
            }
        }
        for held in &call.pending.reservations {
            let own = self.own_budgets.iter_mut().find(|own| own.0 == held.budget_id.as_str());
            let Some((_, _, consumed, reserved)) = own else { continue };
            *reserved -= held.amount.0;
            *consumed += settled.charged.get(held.category).0;
        }
        call.settled = Some(settled.clone());
        said
    }

    /// Everything else that the model has to remember.
    pub(crate) fn other(&mut self, event: &RunEvent) {
        match event {
            RunEvent::RunSubmitted(submitted) => {
                let budgets = submitted.budgets.iter();
                self.own_budgets = budgets.map(|b| (b.budget_id.to_string(), b.limit.0, 0, 0)).collect();
                self.submitted = (**submitted).clone();
            }
            RunEvent::RunFinished(end) => {
                self.ended = Some(end.status);
                self.held = false;
            }
            RunEvent::RunClosed {} => self.closed = true,
            RunEvent::ApprovalDecided { approval_id, decision, .. } => {
                let asked =
                    self.fold.as_ref().and_then(|run| run.approvals.iter().find(|a| a.approval_id == *approval_id));
                if let Some(asked) = asked
                    && *decision == ApprovalDecision::Approve
                {
                    self.done_once.remove(&asked.step_id);
                }
            }
            RunEvent::ControlApplied(control) => match &control.effect {
                ControlEffect::Paused { .. } => (self.held, self.permitted) = (true, None),
                ControlEffect::Resumed => (self.held, self.permitted) = (false, None),
                ControlEffect::Rewound { step_id, .. } => {
                    (self.held, self.permitted) = (false, None);
                    for step in self.submitted.plan.behind(step_id) {
                        self.done_once.remove(&step);
                    }
                }
                ControlEffect::StepPermitted { step_id } => self.permitted = Some(step_id.clone()),
                ControlEffect::Ended | ControlEffect::BranchChosen { .. } | ControlEffect::Forked => {}
            },
            _ => {}
        }
    }

    /// The fold goes on, live and from a snapshot alike; a terminal status never changes (I8, I9).
    pub(crate) fn folded(&mut self, stored: &StoredEvent) -> Said {
        let mut said = Said::new();
        let ended = self.fold.as_ref().filter(|run| run.status.is_terminal()).map(|run| (run.status, run.end.clone()));
        let result = match &mut self.fold {
            None => begin(stored).map(|run| self.fold = Some(run)),
            Some(run) => fold_one(run, stored),
        };
        if let Err(error) = result {
            said.push(("I9", error.to_string()));
        }
        if let Some(run) = &mut self.resumed
            && let Err(error) = fold_one(run, stored)
        {
            said.push(("I9", error.to_string()));
        }
        if let (Some(before), Some(run)) = (ended, &self.fold)
            && before != (run.status, run.end.clone())
        {
            said.push(("I8", format!("{} became {}", before.0.as_str(), run.status.as_str())));
        }
        self.events.push(stored.clone());
        // Every so often the run is put down and taken up again, as a snapshot is.
        if self.events.len() % 7 == 3
            && let Some(run) = &self.fold
        {
            self.resumed = serde_json::from_slice(&serde_json::to_vec(run).unwrap()).ok();
        }
        if self.resumed.is_some() && self.resumed != self.fold {
            said.push(("I9", "folding on from a snapshot gives another envelope".to_owned()));
        }
        said
    }

    /// A snapshot that a node keeps is the fold of the journal (I9).
    pub(crate) fn snapshot(&self, seq: u64, bytes: &[u8]) -> Option<(&'static str, String)> {
        let upto = usize::try_from(seq).unwrap();
        let mine = self.events.get(..upto).and_then(|events| fold(events).ok());
        let theirs: Option<RunEnvelope> = serde_json::from_slice(bytes).ok();
        (mine != theirs).then(|| ("I9", format!("run {}: the snapshot at event {seq} is not the fold", self.run_id)))
    }

    /// An executor is about to begin a call: it is pending, as it was admitted, not long ago, and not begun before (I1, I2,
    /// I5).
    pub(crate) fn begins(&mut self, order: &CallOrder, boot_ms: u64) -> Said {
        let mut said = Said::new();
        let run = self.run_id;
        let rehearsal = self.is_rehearsal();
        let Some(call) = self.calls.get_mut(&order.call_id) else {
            return vec![("I1", format!("run {run}: call {} was executed without an admission", order.call_id))];
        };
        let pending = &call.pending;
        if call.settled.is_some() {
            said.push(("I2", format!("run {run}: call {} began after it was settled", order.call_id)));
        }
        if pending.simulated || (rehearsal && HAS_EFFECT.contains(&order.tool_id.as_str())) {
            said.push(("I12", format!("run {run}: call {} is made, and the run is a rehearsal", order.call_id)));
        }
        let digest = canonical::digest(&order.args).unwrap_or_default();
        if order.attempt != call.attempt
            || order.tool_id != pending.tool_id
            || order.step_id != pending.step_id
            || order.ceiling != pending.estimated_usage
            || digest != pending.args_hash
        {
            said.push(("I1", format!("run {run}: call {} is not executed as it was admitted", order.call_id)));
        }
        if call.begun.contains(&order.attempt) {
            said.push(("I1", format!("run {run}: attempt {} of call {} began twice", order.attempt, order.call_id)));
        }
        let age_ms = boot_ms - call.admitted_at;
        if age_ms > DISPATCHED_WITHIN_MS {
            said.push(("I5", format!("run {run}: call {} begins {age_ms} ms after its admission", order.call_id)));
        }
        call.begun.push(order.attempt);
        if pending.recovery == Recovery::AtMostOnce {
            if call.begun.len() > 1 {
                said.push(("at-most-once", format!("run {run}: call {} was executed twice", order.call_id)));
            }
            if let Some(before) = self.done_once.insert(order.step_id.clone(), order.call_id) {
                let what = format!("run {run}: step {} was done by {before} and again", order.step_id);
                said.push(("at-most-once", what));
            }
        }
        said
    }

    /// What must hold of the journal as a whole.
    pub(crate) fn whole(&self) -> Said {
        let mut said = Said::new();
        let report = verify(&self.tenant, self.key, &self.events);
        if !report.ok {
            said.push(("verify", format!("run {}: {:?}", self.run_id, report.findings)));
        }
        if fold(&self.events).ok() != self.fold {
            said.push(("I9", format!("run {}: the fold from the first event is another envelope", self.run_id)));
        }
        if self.closed {
            let open = self.calls.values().filter(|call| call.settled.is_none());
            said.extend(
                open.map(|c| ("I3", format!("run {}: call {} is never settled", self.run_id, c.pending.call_id))),
            );
            let held = self.own_budgets.iter().filter(|own| own.3 != 0);
            said.extend(held.map(|own| ("I4", format!("run {}: budget {} still holds {}", self.run_id, own.0, own.3))));
        }
        if let Some(run) = &self.fold {
            for own in &run.run_budgets {
                let mine = self.own_budgets.iter().find(|mine| mine.0 == own.budget.budget_id.as_str());
                if mine.is_none_or(|mine| (mine.2, mine.3) != (own.meter.consumed.0, own.meter.reserved.0)) {
                    said.push((
                        "I4",
                        format!("run {}: budget {} adds up otherwise", self.run_id, own.budget.budget_id),
                    ));
                }
            }
        }
        said
    }
}

/// Stands in until event 1 is read, which happens before anything else can.
fn placeholder(head: &RunHead) -> RunSubmitted {
    serde_json::from_value(serde_json::json!({
        "runKey": head.run_key, "runId": head.run_id, "tenantId": head.tenant_id, "rootAgentId": "ref.research",
        "rootAgentSemver": "1.0.0", "surface": "api", "mode": "balanced",
        "submittedBy": { "actorId": "nobody", "role": "service" }, "scopes": [], "plan": { "steps": [] },
        "inputs": null, "grants": [], "budgets": [], "provenanceBundleId": "", "submissionHash": "",
    }))
    .unwrap()
}
