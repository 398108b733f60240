//! One schedule: from a seed, one or two nodes, people who submit and steer, faults, and after them rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::ids::{BranchId, CommandId, RunId, RunKey, StepId};
use signalbox_domain::run::append::CommandAnswer;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{ApprovalDecision, Overrides, PauseCause};
use signalbox_domain::run::step::StepState;
use signalbox_domain::run::submission::parse;
use signalbox_ports::clock::Ids;
use signalbox_ports::memory::{MemoryBlobs, SequentialIds};
use signalbox_runtime::{ApiError, Caller, Node, NodeConfig, NodeHandle, Ports};
use tokio::task::JoinHandle;

use crate::dice::Dice;
use crate::executors::{Executors, Hands};
use crate::link::{Life, Link};
use crate::people;
use crate::world::{Fault, SimBus, SimClock, World};

/// Steps of a whole schedule.
pub(crate) const STEPS: u64 = 60;
/// Runs of one schedule.
const RUNS_MAX: usize = 5;
/// Simulated seconds within which everything must have come to rest after the faults.
const REST_WITHIN_SECONDS: u64 = 600;

/// What to play.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    pub(crate) without: BTreeSet<Fault>,
}

/// What came of it.
pub(crate) struct Played {
    /// Broken promises, the first first.
    pub(crate) violations: Vec<(&'static str, String)>,
    /// A digest over all journals: the same whenever the same script is played.
    pub(crate) digest: String,
    /// Events of all journals.
    pub(crate) events: usize,
    /// Calls that executors began.
    pub(crate) executions: u64,
    /// What happened, line by line, if it was asked for.
    pub(crate) history: Vec<String>,
}

/// One machine: its clock outlives the processes on it.
struct Machine {
    name: String,
    clock: Arc<SimClock>,
    node: Option<Living>,
    started: u64,
}

struct Living {
    handle: NodeHandle,
    ended: JoinHandle<()>,
    life: Arc<Life>,
    asleep: bool,
}

/// A command somebody gave, and what was answered first.
struct Said {
    caller: Caller,
    run: RunId,
    id: CommandId,
    command: RunCommand,
    answer: Arc<Mutex<Option<Result<CommandAnswer, String>>>>,
}

struct Schedule {
    world: Arc<World>,
    executors: Arc<Executors>,
    ids: Arc<SequentialIds>,
    blobs: Arc<MemoryBlobs>,
    machines: Vec<Machine>,
    dice: Dice,
    said: Vec<Said>,
    submitted: Vec<(Caller, RunId, serde_json::Value)>,
    budgets: BTreeSet<signalbox_domain::ids::BudgetId>,
}

/// Plays a script on a runtime of its own, with paused time and one thread.
pub(crate) fn play(script: &Script, tells: bool) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut schedule = Schedule::new(script, tells);
        schedule.go(script.steps).await;
        schedule.over()
    })
}

impl Schedule {
    fn new(script: &Script, tells: bool) -> Self {
        let world = World::new(script.seed, script.without.clone(), tells);
        let executors = Executors::new(world.clone());
        let mut dice = Dice::new(script.seed, "schedule");
        let two = dice.chance(60) && world.has(Fault::SecondNode);
        let machines = (0..if two { 2 } else { 1 }).map(|at| Machine {
            name: format!("node {at}"),
            clock: Arc::new(SimClock::of(&world, 3_600_000 * (at + 1))),
            node: None,
            started: 0,
        });
        let machines: Vec<Machine> = machines.collect();
        for machine in &machines {
            world.model().add_clock(machine.clock.clone());
        }
        Self {
            executors,
            ids: Arc::new(SequentialIds::default()),
            blobs: Arc::default(),
            machines,
            dice,
            said: Vec::new(),
            submitted: Vec::new(),
            budgets: BTreeSet::new(),
            world,
        }
    }

    async fn go(&mut self, steps: u64) {
        for at in 0..self.machines.len() {
            self.start(at).await;
        }
        self.begin().await;
        for _ in 0..steps {
            self.step().await;
            if self.is_broken() {
                return;
            }
        }
        self.heal().await;
        self.come_to_rest().await;
        if !self.is_broken() {
            self.said_again().await;
            self.world.model().at_rest();
        }
    }

    /// What is there before anything goes wrong.
    async fn begin(&mut self) {
        let now = signalbox_ports::clock::Clock::now_micros(self.world.clock.as_ref()).ms();
        for tenant in people::TENANTS {
            if self.dice.chance(80) {
                let change = people::grant_in(&mut self.dice, now, "notify.send", tenant);
                self.change(change).await;
            }
        }
        if self.dice.chance(50) && self.world.has(Fault::Budget) {
            let budget = people::budget(&mut self.dice);
            self.budget(budget).await;
        }
        for _ in 0..2 {
            self.submit();
        }
    }

    fn is_broken(&self) -> bool {
        !self.world.model().violations.is_empty()
    }

    fn over(self) -> Played {
        let mut model = self.world.model();
        let hashes: Vec<String> = model.runs.values().flat_map(|run| run.events.last()).map(|e| e.hash.hex()).collect();
        let ended = self.world.since_began().as_millis();
        let digest = sha256_hex(format!("{hashes:?} {} {ended}", model.executions).as_bytes());
        Played {
            violations: std::mem::take(&mut model.violations),
            digest,
            events: model.runs.values().map(|run| run.events.len()).sum(),
            executions: model.executions,
            history: self.world.history(),
        }
    }

    // Nodes.

    async fn start(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.started += 1;
        let life = Life::new();
        let name = format!("{}.{}", machine.name, machine.started);
        let named = |what: &str| Dice::new(self.world.seed, &format!("{name} {what}"));
        let link = Arc::new(Link {
            world: self.world.clone(),
            life: life.clone(),
            name: name.clone(),
            dice: Mutex::new(named("link")),
            blobs: self.blobs.clone(),
        });
        let hands = Hands {
            executors: self.executors.clone(),
            life: life.clone(),
            clock: machine.clock.clone(),
            dice: Mutex::new(named("hands")),
        };
        let ports = Ports {
            journal: link.clone(),
            directory: link.clone(),
            inbox: link.clone(),
            leases: link.clone(),
            governance: link.clone(),
            blobs: link,
            bus: Arc::new(SimBus::new(self.world.clone(), named("bus"))),
            tools: Arc::new(hands),
            clock: machine.clock.clone(),
            ids: self.ids.clone(),
        };
        let config = NodeConfig { name: name.clone(), ..NodeConfig::default() };
        match Node::start(config, ports).await {
            Ok((handle, ended)) => {
                self.world.tell(|| format!("{name} starts"));
                machine.node = Some(Living { handle, ended, life, asleep: false });
            }
            Err(error) => self.world.tell(|| format!("{name} does not start: {error}")),
        }
    }

    async fn crash(&mut self, at: usize) {
        let Some(living) = self.machines[at].node.take() else { return };
        self.world.tell(|| format!("{} is killed", self.machines[at].name));
        living.life.end();
        living.handle.abandon().await;
    }

    /// What supervises processes starts those again that have ended.
    async fn supervise(&mut self) {
        for at in 0..self.machines.len() {
            let ended = self.machines[at].node.as_ref().is_some_and(|node| node.ended.is_finished());
            if ended {
                self.world.tell(|| format!("{} has ended by itself", self.machines[at].name));
                self.crash(at).await;
                self.start(at).await;
            }
        }
    }

    fn awake(&mut self) -> Option<NodeHandle> {
        let nodes: Vec<_> = self.machines.iter().filter_map(|machine| machine.node.as_ref()).collect();
        let awake: Vec<_> = nodes.into_iter().filter(|node| !node.asleep).map(|node| node.handle.clone()).collect();
        self.dice.pick(&awake).cloned()
    }

    // People.

    fn submit(&mut self) {
        let Some(node) = self.awake() else { return };
        let caller = people::somebody(&mut self.dice);
        let body = people::submission(&mut self.dice);
        let id = RunId::new(self.dice.uuid());
        self.world.tell(|| format!("{} submits {id}: {body}", caller.actor.actor_id));
        self.submitted.push((caller.clone(), id, body.clone()));
        self.send(node, caller, id, &body);
    }

    fn send(&self, node: NodeHandle, caller: Caller, id: RunId, body: &serde_json::Value) {
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

    fn submit_again(&mut self) {
        let (Some(node), Some((caller, id, body))) = (self.awake(), self.dice.pick(&self.submitted).cloned()) else {
            return;
        };
        self.send(node, caller, id, &body);
    }

    fn some_run(&mut self) -> Option<(RunKey, RunEnvelope)> {
        let runs: Vec<_> =
            self.world.model().runs.values().filter_map(|run| Some((run.key, run.fold.clone()?))).collect();
        let open: Vec<_> = runs.iter().filter(|(_, run)| !run.closed).cloned().collect();
        let among = if open.is_empty() || self.dice.chance(10) { &runs } else { &open };
        self.dice.pick(among).cloned()
    }

    fn command(&mut self) {
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

    fn stranger(&self, run: &RunEnvelope) -> Caller {
        people::caller(run.tenant_id.as_str(), "carol", signalbox_domain::identity::Role::Creator)
    }

    fn give(&mut self, caller: Caller, run: RunId, command: RunCommand) {
        let id = CommandId::new(self.dice.uuid());
        let Some(node) = self.awake() else { return };
        self.world.tell(|| format!("{} says to {run}: {command:?}", caller.actor.actor_id));
        let answer = Arc::default();
        self.said.push(Said { caller: caller.clone(), run, id, command: command.clone(), answer: Arc::clone(&answer) });
        self.ask(node, caller, run, id, command, answer);
    }

    /// Says a command and compares the answer with the first one.
    fn ask(
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

    fn say_again(&mut self) {
        let Some(node) = self.awake() else { return };
        let at = self.dice.below(self.said.len() as u64);
        let Some(said) = self.said.get(usize::try_from(at).unwrap()) else { return };
        self.world.tell(|| format!("{} says again to {}: {:?}", said.caller.actor.actor_id, said.run, said.command));
        self.ask(node, said.caller.clone(), said.run, said.id, said.command.clone(), said.answer.clone());
    }

    /// Everything that was said is said once more when all is over.
    async fn said_again(&mut self) {
        for _ in 0..self.said.len().min(10) {
            self.say_again();
        }
        tokio::time::sleep(Duration::from_secs(15)).await;
    }

    /// Somebody of another tenant looks: the run is as absent as one that does not exist (I11). Its own people see the fold.
    fn look(&mut self) {
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

    // Rules.

    async fn govern(&mut self) {
        use signalbox_domain::governance::change::GovernanceChange;
        let now = signalbox_ports::clock::Clock::now_micros(self.world.clock.as_ref()).ms();
        let kind = self.dice.below(20);
        let world = self.world.clone();
        match kind {
            0..3 if world.has(Fault::Switch) => {
                let change = people::switch(&mut self.dice, now);
                self.change(change).await;
            }
            3..8 => {
                let armed = world.model().authority.armed();
                if let Some(switch_id) = self.dice.pick(&armed).cloned() {
                    self.change(GovernanceChange::SwitchDisarmed { switch_id, at_unix_ms: now }).await;
                }
            }
            8..12 => {
                let tools = ["notify.send", "notify.send", "memory.read", "calendar.write"];
                let tool = *self.dice.pick(&tools).unwrap();
                let change = people::grant(&mut self.dice, now, tool);
                self.change(change).await;
            }
            12..14 if world.has(Fault::Grant) => {
                let issued = world.model().authority.issued();
                if let Some(grant_id) = self.dice.pick(&issued).cloned() {
                    self.change(GovernanceChange::GrantRevoked { grant_id, at_unix_ms: now }).await;
                }
            }
            14..16 if world.has(Fault::Throttle) => {
                let change = people::buckets(&mut self.dice);
                self.change(change).await;
            }
            16..19 if world.has(Fault::Budget) => {
                let budget = people::budget(&mut self.dice);
                self.budget(budget).await;
            }
            19 => {
                let known: Vec<_> = self.budgets.iter().cloned().collect();
                if let Some(budget) = self.dice.pick(&known) {
                    world.tell(|| format!("budget {budget} is retired"));
                    let store: &dyn signalbox_ports::governance::Governance = &world.store;
                    store.retire_budget(budget).await.unwrap();
                    world.model().meters.retire(budget);
                }
            }
            _ => {}
        }
    }

    async fn change(&mut self, change: signalbox_domain::governance::change::GovernanceChange) {
        use signalbox_ports::governance::Governance as _;
        let by = signalbox_domain::ids::ActorId::new("grace").unwrap();
        self.world.tell(|| format!("grace changes the rules: {}", serde_json::to_string(&change).unwrap()));
        let changed = self.world.store.change(change, &by).await.unwrap();
        self.world.model().changed(&changed.change);
        self.world.announced.set(changed.epoch);
    }

    async fn budget(&mut self, budget: signalbox_domain::governance::budget::Budget) {
        use signalbox_ports::governance::Governance as _;
        self.world.tell(|| format!("grace puts a budget: {}", serde_json::to_string(&budget).unwrap()));
        // A budget of that name in another category is refused, which changes nothing.
        if self.world.store.put_budget(budget.clone()).await.is_ok() {
            let now = signalbox_ports::clock::Clock::now_micros(self.world.clock.as_ref());
            self.world.model().meters.put(&budget, now);
            self.budgets.insert(budget.budget_id);
        }
    }

    // One step.

    async fn step(&mut self) {
        let ms = match self.dice.below(20) {
            0..12 => self.dice.below(60),
            12..18 => self.dice.between(100, 2_000),
            18 => self.dice.between(2_000, 8_000),
            _ => self.dice.between(8_000, 25_000),
        };
        tokio::time::sleep(Duration::from_millis(ms)).await;
        self.supervise().await;
        match self.dice.below(100) {
            0..8 if self.submitted.len() < RUNS_MAX => self.submit(),
            8..11 => self.submit_again(),
            11..37 if self.world.has(Fault::Control) => self.command(),
            37..43 if self.world.has(Fault::Control) => self.say_again(),
            43..59 => self.govern().await,
            59..64 => self.look(),
            64..66 => self.fork().await,
            66..71 if self.world.has(Fault::Crash) => self.lose_a_node().await,
            71..76 => self.bring_nodes_up().await,
            76..80 if self.world.has(Fault::Sleep) => self.put_to_sleep(),
            80..84 => self.wake(),
            84..87 if self.world.has(Fault::Clock) => self.set_a_clock(),
            87..94 if self.world.has(Fault::Store) => self.weather(),
            94..97 if self.world.has(Fault::Store) => self.cut(),
            97..100 if self.world.has(Fault::Bus) => self.bus(),
            _ => {}
        }
    }

    async fn fork(&mut self) {
        use signalbox_domain::run::advance::projection;
        use signalbox_domain::run::control::fork;
        use signalbox_domain::run::decide::Context;
        use signalbox_ports::journal::{Created, Journal as _, NewRun};
        let Some((_, run)) = self.some_run() else { return };
        if self.world.model().runs.len() > RUNS_MAX {
            return;
        }
        let (run_key, run_id) = (RunKey::new(self.ids.fresh()), RunId::new(self.dice.uuid()));
        let actor = people::operator(run.tenant_id.as_str()).actor;
        let now = signalbox_ports::clock::Clock::now_micros(self.world.clock.as_ref());
        let context = Context { now: now.ms(), actor, expected_seq: None };
        let Ok(events) = fork(&run, run_key, Some((run_id, false)), "a drill", &context) else { return };
        let mut envelope = None;
        for new in &events {
            match (&mut envelope, &new.event) {
                (None, signalbox_domain::run::event::RunEvent::RunSubmitted(submitted)) => {
                    envelope = Some(signalbox_domain::run::evolve::submitted_run(submitted, now));
                }
                (Some(run), event) => signalbox_domain::run::evolve::evolve(run, now, event),
                (None, _) => {}
            }
        }
        let projection = projection(&envelope.unwrap());
        let new = NewRun { run_key, run_id, tenant_id: run.tenant_id.clone(), events, projection, owner: None };
        self.world.tell(|| format!("run {} is forked as {run_id}", run.run_id));
        if let Ok(Created::New { head, .. }) = self.world.store.create(new).await {
            self.world.model().created(&head);
        }
    }

    async fn lose_a_node(&mut self) {
        let at = usize::try_from(self.dice.below(self.machines.len() as u64)).unwrap();
        let again = self.dice.chance(60);
        if self.dice.chance(20) {
            // Politely, as at a new release.
            if let Some(living) = self.machines[at].node.take() {
                self.world.tell(|| format!("{} is told to end", self.machines[at].name));
                living.life.sleep(false);
                let drained = tokio::time::timeout(Duration::from_secs(40), living.handle.drain()).await;
                self.world.tell(|| format!("{} has ended: {}", self.machines[at].name, drained.is_ok()));
                living.life.end();
                living.handle.abandon().await;
            }
        } else {
            self.crash(at).await;
        }
        if again && self.machines[at].node.is_none() {
            self.start(at).await;
        }
    }

    async fn bring_nodes_up(&mut self) {
        for at in 0..self.machines.len() {
            if self.machines[at].node.is_none() {
                self.start(at).await;
            }
        }
    }

    fn put_to_sleep(&mut self) {
        let at = usize::try_from(self.dice.below(self.machines.len() as u64)).unwrap();
        let name = self.machines[at].name.clone();
        if let Some(living) = &mut self.machines[at].node {
            self.world.tell(|| format!("{name} falls asleep"));
            living.asleep = true;
            living.life.sleep(true);
        }
    }

    fn wake(&mut self) {
        for machine in &mut self.machines {
            if let Some(living) = machine.node.as_mut().filter(|living| living.asleep) {
                self.world.tell(|| format!("{} wakes up", machine.name));
                living.asleep = false;
                living.life.sleep(false);
            }
        }
    }

    fn set_a_clock(&mut self) {
        self.world.model().tick();
        let clocks: Vec<_> = self.machines.iter().map(|machine| machine.clock.clone()).collect();
        let all: Vec<_> = clocks.into_iter().chain([self.world.clock.clone()]).collect();
        let at = self.dice.below(all.len() as u64);
        let clock = &all[usize::try_from(at).unwrap()];
        let ms = i64::try_from(self.dice.below(60_000)).unwrap() - 30_000;
        clock.step_ms(ms);
        self.world.tell(|| format!("clock {at} is set by {ms} ms and is {} ms off", clock.skew_ms()));
        self.world.model().tick();
    }

    fn weather(&mut self) {
        let dice = &mut self.dice;
        let weather = match dice.below(6) {
            0 | 1 => crate::world::Weather { latency_ms: 5, ..Default::default() },
            2 => crate::world::Weather { unavailable: 100, latency_ms: 20, ..Default::default() },
            3 => crate::world::Weather { unavailable: 15, lost: 5, latency_ms: 40, slow: 1 },
            4 => crate::world::Weather { lost: 10, latency_ms: 10, ..Default::default() },
            _ => crate::world::Weather { latency_ms: 400, slow: 10, ..Default::default() },
        };
        self.world.tell(|| format!("the store: {weather:?}"));
        *self.world.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
    }

    fn cut(&mut self) {
        let cut = self.dice.chance(50);
        let at = usize::try_from(self.dice.below(self.machines.len() as u64)).unwrap();
        if let Some(living) = &self.machines[at].node {
            self.world.tell(|| format!("{}: the way to the store is cut: {cut}", self.machines[at].name));
            living.life.cut.store(cut, Ordering::SeqCst);
        }
    }

    fn bus(&mut self) {
        use crate::world::BusMode;
        let mode = *self.dice.pick(&[BusMode::Works, BusMode::Dead, BusMode::Late, BusMode::Twice]).unwrap();
        self.world.tell(|| format!("the bus: {mode:?}"));
        *self.world.bus_mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    // After the faults.

    async fn heal(&mut self) {
        use signalbox_domain::governance::change::GovernanceChange;
        self.world.tell(|| "the time of faults is over".to_owned());
        *self.world.weather.lock().unwrap_or_else(PoisonError::into_inner) =
            crate::world::Weather { latency_ms: 2, ..Default::default() };
        *self.world.bus_mode.lock().unwrap_or_else(PoisonError::into_inner) = crate::world::BusMode::Works;
        self.world.healed.set(true);
        self.wake();
        for machine in &self.machines {
            if let Some(living) = &machine.node {
                living.life.cut.store(false, Ordering::SeqCst);
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
    async fn come_to_rest(&mut self) {
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

    fn help(&mut self, run: &RunEnvelope) {
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

    async fn nothing_goes_on(&mut self) {
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
