//! One schedule: from a seed, one to three nodes, people who submit and steer, faults, and after them rest.

mod nodes;
mod operators;
mod rest;
mod rules;
mod steering;

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
use signalbox_ports::memory::{FakeSeal, MemoryBlobs, MemorySecrets, SequentialIds};
use signalbox_runtime::{ApiError, Caller, Node, NodeConfig, NodeHandle, Ports};
use tokio::task::JoinHandle;

use crate::dice::Dice;
use crate::executors::{Executors, Hands};
use crate::link::{Life, Link};
use crate::people;
use crate::sabotage::Sabotage;
use crate::world::{BusMode, Ear, Fault, SimBus, SimClock, World};

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
    pub(crate) sabotage: Option<Sabotage>,
}

impl Script {
    /// The whole schedule of a seed.
    pub(crate) const fn of(seed: u64) -> Self {
        Self { seed, steps: STEPS, without: BTreeSet::new(), sabotage: None }
    }
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
    ear: Arc<Ear>,
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
}

/// Plays a script on a runtime of its own, with paused time and one thread.
pub(crate) fn play(script: &Script, tells: bool) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut schedule = Schedule::new(script, tells);
        let world = schedule.world.clone();
        tokio::select! {
            biased;
            () = schedule.go(script.steps) => {}
            // Once a promise is broken no operation of a node ends any more, and whoever waits for one waits for ever.
            () = world.breaks() => {}
        }
        schedule.over()
    })
}

impl Schedule {
    fn new(script: &Script, tells: bool) -> Self {
        let world = World::new(script.seed, script.without.clone(), script.sabotage, tells);
        let executors = Executors::new(world.clone());
        let mut dice = Dice::new(script.seed, "schedule");
        let nodes = match dice.below(100) {
            _ if !world.has(Fault::SecondNode) => 1,
            0..25 => 1,
            25..50 => 2,
            _ => 3,
        };
        let machines = (0..nodes).map(|at| Machine {
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
            self.last_drill().await;
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
            43..59 => {
                // Mostly one change, and now and then several at once.
                let count = if self.dice.chance(25) { 4 } else { 1 };
                for _ in 0..count {
                    self.govern().await;
                    tokio::time::sleep(Duration::from_millis(self.dice.below(8))).await;
                }
            }
            59..64 => self.look(),
            64..66 => self.fork(),
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
        self.world.model().answers_get_lost |= weather.lost > 0;
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
        if self.dice.chance(30) {
            let cut = self.dice.chance(50);
            let at = usize::try_from(self.dice.below(self.machines.len() as u64)).unwrap();
            if let Some(living) = &self.machines[at].node {
                self.world.tell(|| format!("{}: the way to the bus is cut: {cut}", self.machines[at].name));
                living.ear.is_cut(cut);
            }
            return;
        }
        let modes = [BusMode::Works, BusMode::Dead, BusMode::Late, BusMode::Twice, BusMode::Lossy];
        let mode = *self.dice.pick(&modes).unwrap();
        self.world.tell(|| format!("the bus: {mode:?}"));
        self.world.set_bus(mode);
    }
}
