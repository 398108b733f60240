//! After the faults: everybody who is asked answers, until nothing goes on any more.

use super::*;

/// Simulated seconds within which a switch has ended what it matches, with nothing wrong.
const ENDED_WITHIN_SECONDS: u64 = 5;

impl Schedule {
    pub(super) async fn heal(&mut self) {
        use signalbox_domain::governance::change::GovernanceChange;
        self.world.tell(|| "the time of faults is over".to_owned());
        *self.world.weather.lock().unwrap_or_else(PoisonError::into_inner) =
            crate::world::Weather { latency_ms: 2, ..Default::default() };
        self.world.set_bus(BusMode::Works);
        self.world.healed.set(true);
        self.wake();
        for machine in &self.machines {
            if let Some(living) = &machine.node {
                living.life.cut.store(false, Ordering::SeqCst);
                living.ear.is_cut(false);
            }
        }
        self.bring_nodes_up().await;
        let now = signalbox_ports::clock::Clock::now_micros(self.world.clock.as_ref()).ms();
        let armed = self.world.model().authority.armed();
        for switch_id in armed {
            self.change(GovernanceChange::SwitchDisarmed { switch_id, at_unix_ms: now }).await;
        }
        self.change(GovernanceChange::ThrottlesSet(Vec::new())).await;
        let rules: Vec<_> =
            self.world.model().meters.rules().filter(|(_, retired)| !retired).map(|(rule, _)| rule.clone()).collect();
        for rule in rules {
            let limit = signalbox_domain::quantity::Micros::units(1_000_000);
            self.budget(signalbox_domain::governance::budget::Budget { limit, ..rule }).await;
        }
    }

    /// Everybody who is asked answers, until every run is closed. Then nothing may go on any more.
    pub(super) async fn come_to_rest(&mut self) {
        let mut seen: BTreeMap<RunKey, (u64, u64)> = BTreeMap::new();
        for second in 0..REST_WITHIN_SECONDS {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.supervise().await;
            if self.is_broken() {
                return;
            }
            let open: Vec<RunEnvelope> = {
                let model = self.world.model();
                model.runs.values().filter_map(|run| run.fold.clone()).filter(|run| !run.closed).collect()
            };
            // What was submitted last may still be on its way.
            if open.is_empty() && second > 12 {
                return self.nothing_goes_on().await;
            }
            for run in open {
                let (seq, since) = seen.entry(run.run_key).or_insert((run.last_seq, second));
                if *seq != run.last_seq {
                    (*seq, *since) = (run.last_seq, second);
                }
                // Whoever is asked takes some seconds, and asks again if nothing came of it.
                if (second - *since) % 12 == 2 {
                    self.help(&run);
                }
            }
        }
        let open: Vec<String> = {
            let model = self.world.model();
            let open = model.runs.values().filter(|run| !run.closed);
            open.filter_map(|run| run.fold.as_ref()).map(standing).collect()
        };
        self.world.model().violated("liveness", format!("still open after {REST_WITHIN_SECONDS} s: {open:?}"));
    }

    pub(super) fn help(&mut self, run: &RunEnvelope) {
        let reason = "it goes on".to_owned();
        let waiting = run.plan.steps.iter().zip(&run.steps).find(|(_, state)| **state == StepState::AwaitingBranch);
        let command = if run.end.is_some() {
            return;
        } else if run.hold.as_ref().is_some_and(|hold| hold.cause != PauseCause::Throttle) {
            // What its own budget stops can never go on.
            match run.hold.as_ref().is_some_and(|hold| hold.cause == PauseCause::Quota) && self.dice.chance(50) {
                true => RunCommand::Cancel { reason },
                false => RunCommand::Resume { reason },
            }
        } else if let Some(approval) = run.approvals.iter().find(|approval| approval.is_open()) {
            let (approval_id, decision) = (approval.approval_id, ApprovalDecision::Approve);
            RunCommand::DecideApproval { approval_id, decision, reason, subject_digest: None }
        } else if let Some((step, _)) = waiting {
            let branch_id = BranchId::new("left").unwrap();
            RunCommand::ChooseBranch { step_id: Some(step.step_id.clone()), branch_id, reason }
        } else {
            return;
        };
        self.give(people::operator(run.tenant_id.as_str()), run.run_id, command);
    }

    /// With nothing wrong any more, a switch ends every run of its tenant, in hand or parked, on whatever node (I5).
    pub(super) async fn last_drill(&mut self) {
        use signalbox_domain::governance::change::GovernanceChange;
        let tenant = *self.dice.pick(&people::TENANTS).unwrap();
        for _ in 0..2 {
            let Some(node) = self.awake() else { return };
            let id = RunId::new(self.dice.uuid());
            self.world.tell(|| format!("a nap {id}"));
            self.send(node, people::operator(tenant), id, &people::nap());
        }
        // Parked by then, or not yet.
        let seconds = self.dice.between(1, 8);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let now = signalbox_ports::clock::Clock::now_micros(self.world.clock.as_ref()).ms();
        self.change_somehow(people::tenant_switch(tenant, now)).await;
        tokio::time::sleep(Duration::from_secs(ENDED_WITHIN_SECONDS)).await;
        let left: Vec<String> = {
            let model = self.world.model();
            let left = model.runs.values().filter(|run| run.tenant.as_str() == tenant && !run.closed);
            left.filter_map(|run| run.fold.as_ref()).map(standing).collect()
        };
        if !left.is_empty() {
            self.world.model().violated("sweep", format!("not ended by a switch: {left:?}"));
        }
        let switch_id = people::last_switch();
        self.change(GovernanceChange::SwitchDisarmed { switch_id, at_unix_ms: now }).await;
    }

    pub(super) async fn nothing_goes_on(&mut self) {
        let look = |schedule: &Self| -> (u64, u64) {
            let readings = schedule.machines.iter().map(|machine| machine.clock.readings()).sum();
            let events = schedule.world.model().runs.values().map(|run| run.events.len() as u64).sum();
            (readings, events)
        };
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = look(self);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let after = look(self);
        if after.1 != before.1 || after.0 - before.0 > 100 {
            let what = format!("with every run closed there were {before:?} and then {after:?} readings and events");
            self.world.model().violated("spin", what);
        }
    }
}

fn standing(run: &RunEnvelope) -> String {
    let open: Vec<_> = run.open_calls().map(|call| (call.call_id, call.attempt)).collect();
    format!(
        "run {} at event {} is {:?}, hold {:?}, open {open:?}, steps {:?}",
        run.run_id, run.last_seq, run.status, run.hold, run.steps
    )
}
