//! What all nodes of one schedule share: the store behind its faults, the executors, the clocks, the bus and the model.

use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::bus::{Bus, BusStanding, Notice};
use signalbox_ports::clock::{BootInstant, Clock};
use signalbox_ports::memory::MemoryStore;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::dice::Dice;
use crate::link::Life;
use crate::model::Model;
use crate::sabotage::Sabotage;

/// What may go wrong. A failing schedule is tried again without each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Store,
    Crash,
    Sleep,
    Clock,
    Bus,
    Executor,
    Switch,
    Budget,
    Throttle,
    Grant,
    Control,
    SecondNode,
}

impl Fault {
    pub(crate) const ALL: [Self; 12] = [
        Self::Store,
        Self::Crash,
        Self::Sleep,
        Self::Clock,
        Self::Bus,
        Self::Executor,
        Self::Switch,
        Self::Budget,
        Self::Throttle,
        Self::Grant,
        Self::Control,
        Self::SecondNode,
    ];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| format!("{fault:?}").eq_ignore_ascii_case(text))
    }
}

/// How the store behaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Of a hundred operations so many fail and change nothing.
    pub(crate) unavailable: u64,
    /// Of a hundred writes so many lose their answer.
    pub(crate) lost: u64,
    /// Longest way to the store or back, in milliseconds.
    pub(crate) latency_ms: u64,
    /// Of a hundred operations so many take seconds.
    pub(crate) slow: u64,
}

/// How the bus behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusMode {
    Works,
    Dead,
    Late,
    Twice,
    /// Half of what is said is lost, and nobody is told.
    Lossy,
}

/// A value that can be waited on. Those who wait are woken in the order they came: tokio's `watch` wakes them in a random one.
pub(crate) struct Signal<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Signal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> T {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, value: T) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
        self.changed.notify_waiters();
    }

    pub(crate) async fn wait_for(&self, is_so: impl Fn(T) -> bool) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let value = self.get();
            if is_so(value) {
                return value;
            }
            changed.await;
        }
    }
}

/// The one place that knows what happened.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) without: BTreeSet<Fault>,
    pub(crate) store: MemoryStore,
    pub(crate) clock: Arc<SimClock>,
    began: Instant,
    model: Mutex<Model>,
    pub(crate) weather: Mutex<Weather>,
    pub(crate) bus_mode: Mutex<BusMode>,
    ears: Mutex<Vec<Arc<Ear>>>,
    pub(crate) sabotage: Option<Sabotage>,
    /// The time of faults is over.
    pub(crate) healed: Signal<bool>,
    operations: AtomicU64,
    stuck: AtomicBool,
    history: Option<Mutex<Vec<String>>>,
}

/// More operations than any sound schedule needs: something goes round in circles.
const OPERATIONS_MAX: u64 = 400_000;

impl World {
    pub(crate) fn new(seed: u64, without: BTreeSet<Fault>, sabotage: Option<Sabotage>, tells: bool) -> Arc<Self> {
        let began = Instant::now();
        let clock = Arc::new(SimClock::new(began, 0));
        let store = MemoryStore::new(clock.clone());
        Arc::new(Self {
            seed,
            without,
            model: Mutex::new(Model::new(store.clone(), clock.clone())),
            store,
            clock,
            began,
            weather: Mutex::new(Weather { latency_ms: 5, ..Weather::default() }),
            bus_mode: Mutex::new(BusMode::Works),
            ears: Mutex::default(),
            sabotage,
            healed: Signal::new(false),
            operations: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
            history: tells.then(Mutex::default),
        })
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        !self.without.contains(&fault)
    }

    /// Something is said on the bus, to everybody but whoever says it.
    pub(crate) fn announce(&self, from: Option<&Arc<Ear>>, notice: Notice) {
        let ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        let others = ears.iter().filter(|ear| from.is_none_or(|from| !Arc::ptr_eq(from, ear)));
        let mode = *self.bus_mode.lock().unwrap_or_else(PoisonError::into_inner);
        others.for_each(|ear| ear.is_told(notice, mode));
    }

    /// The bus goes on as before; whoever heard nothing meanwhile knows that something may have been missed.
    pub(crate) fn set_bus(&self, mode: BusMode) {
        let before = std::mem::replace(&mut *self.bus_mode.lock().unwrap_or_else(PoisonError::into_inner), mode);
        if before == BusMode::Dead && mode != BusMode::Dead {
            self.ears.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|ear| ear.hears(Notice::Missed));
        }
    }

    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a promise is broken.
    pub(crate) async fn breaks(&self) {
        while self.model().violations.is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    pub(crate) fn since_began(&self) -> Duration {
        self.began.elapsed()
    }

    /// A line of the history, made only if somebody wants to read it.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(history) = &self.history {
            let at = self.began.elapsed().as_millis();
            let line = format!("{:>9} {}", format!("{}.{:03}", at / 1_000, at % 1_000), line());
            history.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    pub(crate) fn history(&self) -> Vec<String> {
        let lines = |history: &Mutex<Vec<String>>| history.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.history.as_ref().map(lines).unwrap_or_default()
    }

    /// Counts an operation of a node. One that spins without letting time pass is stopped here, or the schedule would
    /// never end.
    pub(crate) async fn operation(&self) {
        let count = self.operations.fetch_add(1, Ordering::Relaxed);
        if count >= OPERATIONS_MAX && !self.stuck.swap(true, Ordering::Relaxed) {
            self.model().violated("spin", format!("{OPERATIONS_MAX} operations and no end"));
        }
        // What is broken need not be broken further.
        if !self.model().violations.is_empty() {
            std::future::pending::<()>().await;
        }
    }
}

/// The answer of a future that has nothing to wait for, as those of the memory store are.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory store never waits"),
    }
}

/// One machine's clocks over tokio's paused time. The wall clock may be set; the boot clock never is.
pub(crate) struct SimClock {
    began: Instant,
    skew_ms: AtomicI64,
    boot_offset_ms: u64,
    readings: AtomicU64,
}

impl SimClock {
    pub(crate) const fn new(began: Instant, boot_offset_ms: u64) -> Self {
        Self { began, skew_ms: AtomicI64::new(0), boot_offset_ms, readings: AtomicU64::new(0) }
    }

    pub(crate) fn of(world: &World, boot_offset_ms: u64) -> Self {
        Self::new(world.began, boot_offset_ms)
    }

    pub(crate) fn step_ms(&self, ms: i64) {
        self.skew_ms.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) fn skew_ms(&self) -> i64 {
        self.skew_ms.load(Ordering::SeqCst)
    }

    /// How often somebody looked at the wall clock: a run that does nothing looks seldom.
    pub(crate) fn readings(&self) -> u64 {
        self.readings.load(Ordering::Relaxed)
    }
}

impl Clock for SimClock {
    fn now(&self) -> UnixMs {
        self.readings.fetch_add(1, Ordering::Relaxed);
        self.now_micros().ms()
    }
    fn now_micros(&self) -> UnixMicros {
        let elapsed = i64::try_from(self.began.elapsed().as_micros()).unwrap();
        UnixMicros(1_800_000_000_000_000 + elapsed + self.skew_ms() * 1_000)
    }
    fn boot(&self) -> BootInstant {
        let elapsed = u64::try_from(self.began.elapsed().as_nanos()).unwrap();
        BootInstant(elapsed + self.boot_offset_ms * 1_000_000)
    }
}

/// What a node hears of the bus.
pub(crate) struct Ear {
    life: Arc<Life>,
    queue: Mutex<VecDeque<Notice>>,
    arrived: Notify,
    dice: Mutex<Dice>,
    /// The way to the bus is cut for this node alone.
    cut: AtomicBool,
}

impl Ear {
    fn hears(&self, notice: Notice) {
        if self.life.is_alive() && !self.cut.load(Ordering::SeqCst) {
            self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(notice);
            self.arrived.notify_one();
        }
    }

    fn is_told(self: &Arc<Self>, notice: Notice, mode: BusMode) {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        match mode {
            BusMode::Dead => {}
            BusMode::Lossy if dice.chance(50) => {}
            BusMode::Works | BusMode::Lossy => self.hears(notice),
            BusMode::Twice => {
                self.hears(notice);
                self.hears(notice);
            }
            // Each takes its own time, so that what was said later may be heard before.
            BusMode::Late => {
                let (ear, late) = (Arc::clone(self), Duration::from_millis(dice.between(1, 5_000)));
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    ear.hears(notice);
                });
            }
        }
    }

    /// Cut off, or back: then the node knows that it may have missed something.
    pub(crate) fn is_cut(&self, cut: bool) {
        let before = self.cut.swap(cut, Ordering::SeqCst);
        if before && !cut {
            self.hears(Notice::Missed);
        }
    }
}

/// A node's end of the bus.
pub(crate) struct SimBus {
    world: Arc<World>,
    ear: Arc<Ear>,
}

impl SimBus {
    pub(crate) fn new(world: Arc<World>, life: Arc<Life>, dice: Dice) -> (Self, Arc<Ear>) {
        let ear = Arc::new(Ear {
            life,
            queue: Mutex::default(),
            arrived: Notify::new(),
            dice: Mutex::new(dice),
            cut: AtomicBool::new(false),
        });
        {
            let mut ears = world.ears.lock().unwrap_or_else(PoisonError::into_inner);
            ears.retain(|ear| ear.life.is_alive());
            ears.push(ear.clone());
        }
        (Self { world, ear: ear.clone() }, ear)
    }
}

#[async_trait]
impl Bus for SimBus {
    fn announce(&self, notice: Notice) {
        // What is dead, asleep or cut off says nothing to anybody.
        if self.ear.life.is_alive() && self.ear.life.is_awake() && !self.ear.cut.load(Ordering::SeqCst) {
            self.world.announce(Some(&self.ear), notice);
        }
    }

    async fn next(&self) -> Notice {
        loop {
            let heard = self.ear.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(notice) = heard {
                self.ear.life.goes_on().await;
                return notice;
            }
            self.ear.arrived.notified().await;
        }
    }

    fn standing(&self) -> BusStanding {
        BusStanding::Connected
    }
}
