//! People who submit, steer, look, and say everything twice.

use super::*;

impl Schedule {
    pub(super) fn submit(&mut self) {
        let Some(node) = self.awake() else { return };
        let caller = people::somebody(&mut self.dice);
        let body = people::submission(&mut self.dice);
        let id = RunId::new(self.dice.uuid());
        self.world.tell(|| format!("{} submits {id}: {body}", caller.actor.actor_id));
        self.submitted.push((caller.clone(), id, body.clone()));
        self.send(node, caller, id, &body);
    }

    pub(super) fn send(&self, node: NodeHandle, caller: Caller, id: RunId, body: &serde_json::Value) {
        let submission = parse(body.to_string().as_bytes()).unwrap();
        let world = self.world.clone();
        tokio::spawn(async move {
            let answer = node.submit(&caller, Some(id), submission).await;
            world.tell(|| format!("submission of {id} is answered: {answer:?}"));
            if let Err(ApiError::RunIdConflict(_)) = answer {
                world.model().violated("EXE-010", format!("run {id}: the same submission is said to be another"));
            }
        });
    }

    pub(super) fn submit_again(&mut self) {
        let (Some(node), Some((caller, id, body))) = (self.awake(), self.dice.pick(&self.submitted).cloned()) else {
            return;
        };
        self.send(node, caller, id, &body);
    }

    pub(super) fn some_run(&mut self) -> Option<(RunKey, RunEnvelope)> {
        let runs: Vec<_> =
            self.world.model().runs.values().filter_map(|run| Some((run.key, run.fold.clone()?))).collect();
        let open: Vec<_> = runs.iter().filter(|(_, run)| !run.closed).cloned().collect();
        let among = if open.is_empty() || self.dice.chance(10) { &runs } else { &open };
        self.dice.pick(among).cloned()
    }

    pub(super) fn command(&mut self) {
        let Some((_, run)) = self.some_run() else { return };
        let dice = &mut self.dice;
        let steps: Vec<StepId> = run.plan.steps.iter().map(|step| step.step_id.clone()).collect();
        let reason = "a drill".to_owned();
        let command = match dice.below(40) {
            0..8 => RunCommand::Pause { reason },
            8..16 => RunCommand::Resume { reason },
            16..18 => RunCommand::Cancel { reason },
            18..20 => RunCommand::Kill { reason, blamed_id: None },
            20..24 => RunCommand::ChooseBranch {
                step_id: None,
                branch_id: BranchId::new(*dice.pick(&["left", "right", "up"]).unwrap()).unwrap(),
                reason,
            },
            24..28 => {
                let step_id = dice.pick(&steps).unwrap().clone();
                let mut params = BTreeMap::new();
                if dice.chance(40) {
                    params.insert(step_id.clone(), serde_json::json!({ "key": "other", "n": dice.below(9) }));
                }
                let branch = dice.chance(20).then(|| BranchId::new("left").unwrap());
                let overrides = Overrides { params, branch, ..Overrides::default() };
                RunCommand::RetryWithChanges { step_id, overrides, reason }
            }
            28..32 => {
                let step_id = dice.chance(50).then(|| dice.pick(&steps).unwrap().clone());
                RunCommand::OperatorStep { step_id, reason }
            }
            _ => {
                let asked: Vec<_> = run.approvals.iter().map(|approval| approval.approval_id).collect();
                let Some(approval_id) = dice.pick(&asked).copied() else { return };
                let answers = [ApprovalDecision::Approve, ApprovalDecision::Reject, ApprovalDecision::Skip];
                let decision = *dice.pick(&answers).unwrap();
                RunCommand::DecideApproval { approval_id, decision, reason, subject_digest: None }
            }
        };
        let caller = if self.dice.chance(80) { people::operator(run.tenant_id.as_str()) } else { self.stranger(&run) };
        self.give(caller, run.run_id, command);
    }

    pub(super) fn stranger(&self, run: &RunEnvelope) -> Caller {
        people::caller(run.tenant_id.as_str(), "carol", signalbox_domain::identity::Role::Creator)
    }

    pub(super) fn give(&mut self, caller: Caller, run: RunId, command: RunCommand) {
        let id = CommandId::new(self.dice.uuid());
        let Some(node) = self.awake() else { return };
        self.world.tell(|| format!("{} says to {run}: {command:?}", caller.actor.actor_id));
        let answer = Arc::default();
        self.said.push(Said { caller: caller.clone(), run, id, command: command.clone(), answer: Arc::clone(&answer) });
        self.ask(node, caller, run, id, command, answer);
    }

    /// Says a command and compares the answer with the first one.
    pub(super) fn ask(
        &self,
        node: NodeHandle,
        caller: Caller,
        run: RunId,
        id: CommandId,
        command: RunCommand,
        first: Arc<Mutex<Option<Result<CommandAnswer, String>>>>,
    ) {
        let world = self.world.clone();
        tokio::spawn(async move {
            let answer = node.command(&caller, run, id, command).await;
            world.tell(|| format!("to {run} it is answered: {answer:?}"));
            let answer = match answer {
                Ok(answer) => Ok(answer),
                Err(ApiError::Denied(denial)) => Err(denial.code().to_owned()),
                Err(ApiError::DeniedBefore { code, .. }) => Err(code),
                Err(ApiError::CommandIdConflict(_)) => Err("conflict".to_owned()),
                Err(_) => return,
            };
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            match &*first {
                Some(first) if *first != answer => {
                    let what = format!("run {run}: command {id} was answered {first:?} and then {answer:?}");
                    world.model().violated("twice", what);
                }
                Some(_) => {}
                None => *first = Some(answer),
            }
        });
    }

    pub(super) fn say_again(&mut self) {
        let Some(node) = self.awake() else { return };
        let at = self.dice.below(self.said.len() as u64);
        let Some(said) = self.said.get(usize::try_from(at).unwrap()) else { return };
        self.world.tell(|| format!("{} says again to {}: {:?}", said.caller.actor.actor_id, said.run, said.command));
        self.ask(node, said.caller.clone(), said.run, said.id, said.command.clone(), said.answer.clone());
    }

    /// Everything that was said is said once more when all is over.
    pub(super) async fn said_again(&mut self) {
        for _ in 0..self.said.len().min(10) {
            self.say_again();
        }
        tokio::time::sleep(Duration::from_secs(15)).await;
    }

    /// Somebody of another tenant looks: the run is as absent as one that does not exist (I11). Its own people see the fold.
    pub(super) fn look(&mut self) {
        let (Some(node), Some((key, run))) = (self.awake(), self.some_run()) else { return };
        let world = self.world.clone();
        let foreign = people::TENANTS.into_iter().find(|tenant| *tenant != run.tenant_id.as_str()).unwrap();
        let seq = self.dice.between(1, run.last_seq);
        tokio::spawn(async move {
            match node.get(&people::operator(foreign), run.run_id).await {
                Err(ApiError::NoSuchRun(_) | ApiError::Store(_)) => {}
                other => {
                    let what = format!("run {} is shown to tenant {foreign}: {other:?}", run.run_id);
                    world.model().violated("I11", what);
                }
            }
            let own = people::operator(run.tenant_id.as_str());
            let Ok(then) = node.replay(&own, run.run_id, seq).await else { return };
            let mut model = world.model();
            let upto = usize::try_from(seq).unwrap();
            let mine = model.runs.get(&key).map(|run| signalbox_domain::run::evolve::fold(&run.events[..upto]));
            if mine != Some(Ok(then)) {
                model.violated("I9", format!("run {}: the replay at event {seq} is not the fold", run.run_id));
            }
        });
    }

    /// A fork, now and then asked for twice under one command: that is one run.
    pub(super) fn fork(&mut self) {
        let (Some(node), Some((_, run))) = (self.awake(), self.some_run()) else { return };
        if self.world.model().runs.len() > RUNS_MAX {
            return;
        }
        let (id, command) = (RunId::new(self.dice.uuid()), CommandId::new(self.dice.uuid()));
        let caller = people::operator(run.tenant_id.as_str());
        let (world, times) = (self.world.clone(), self.dice.between(1, 2));
        tokio::spawn(async move {
            for _ in 0..times {
                let answer = node.fork(&caller, run.run_id, command, None, Some(id), "a drill").await;
                world.tell(|| format!("fork of {} as {id} is answered: {answer:?}", run.run_id));
                if let Err(ApiError::Denied(denial)) = answer {
                    let what = format!("the fork of {} as {id} is refused: {denial}", run.run_id);
                    world.model().violated("CTL-009", what);
                }
            }
        });
    }
}
