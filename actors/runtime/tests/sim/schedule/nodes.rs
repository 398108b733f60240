//! Nodes that start, crash, end, sleep and wake, and clocks that are set.

use super::*;

impl Schedule {
    pub(super) async fn start(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.started += 1;
        let life = Life::new();
        let name = format!("{}.{}", machine.name, machine.started);
        let named = |what: &str| Dice::new(self.world.seed, &format!("{name} {what}"));
        use signalbox_ports::webhooks::NoCourier;
        let link = Arc::new(Link {
            world: self.world.clone(),
            life: life.clone(),
            name: name.clone(),
            dice: Mutex::new(named("link")),
            blobs: self.blobs.clone(),
            asked: Mutex::default(),
        });
        let hands = Hands {
            executors: self.executors.clone(),
            life: life.clone(),
            clock: machine.clock.clone(),
            dice: Mutex::new(named("hands")),
        };
        let (bus, ear) = SimBus::new(self.world.clone(), life.clone(), named("bus"));
        let ports = Ports {
            journal: link.clone(),
            directory: link.clone(),
            inbox: link.clone(),
            leases: link.clone(),
            governance: link.clone(),
            acts: link.clone(),
            deliveries: Arc::new(self.world.store.clone()),
            courier: Arc::new(NoCourier),
            feedback: Arc::new(self.world.store.clone()),
            schedules: Arc::new(self.world.store.clone()),
            blobs: link,
            bus: Arc::new(bus),
            tools: Arc::new(hands),
            models: Arc::new(signalbox_ports::models::NoModels),
            secrets: Arc::new(MemorySecrets::default()),
            sealing: Arc::new(FakeSeal::new()),
            clock: machine.clock.clone(),
            ids: self.ids.clone(),
        };
        let config = NodeConfig { name: name.clone(), ..NodeConfig::default() };
        match Node::start(config, ports).await {
            Ok((handle, ended)) => {
                self.world.tell(|| format!("{name} starts"));
                machine.node = Some(Living { handle, ended, life, ear, asleep: false });
            }
            Err(error) => self.world.tell(|| format!("{name} does not start: {error}")),
        }
    }

    pub(super) async fn crash(&mut self, at: usize) {
        let Some(living) = self.machines[at].node.take() else { return };
        self.world.tell(|| format!("{} is killed", self.machines[at].name));
        living.life.end();
        living.handle.abandon().await;
    }

    /// What supervises processes starts those again that have ended.
    pub(super) async fn supervise(&mut self) {
        for at in 0..self.machines.len() {
            let ended = self.machines[at].node.as_ref().is_some_and(|node| node.ended.is_finished());
            if ended {
                self.world.tell(|| format!("{} has ended by itself", self.machines[at].name));
                self.crash(at).await;
                self.start(at).await;
            }
        }
    }

    pub(super) fn awake(&mut self) -> Option<NodeHandle> {
        let nodes: Vec<_> = self.machines.iter().filter_map(|machine| machine.node.as_ref()).collect();
        let awake: Vec<_> = nodes.into_iter().filter(|node| !node.asleep).map(|node| node.handle.clone()).collect();
        self.dice.pick(&awake).cloned()
    }

    pub(super) async fn lose_a_node(&mut self) {
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

    pub(super) async fn bring_nodes_up(&mut self) {
        for at in 0..self.machines.len() {
            if self.machines[at].node.is_none() {
                self.start(at).await;
            }
        }
    }

    pub(super) fn put_to_sleep(&mut self) {
        let at = usize::try_from(self.dice.below(self.machines.len() as u64)).unwrap();
        let name = self.machines[at].name.clone();
        if let Some(living) = &mut self.machines[at].node {
            self.world.tell(|| format!("{name} falls asleep"));
            living.asleep = true;
            living.life.sleep(true);
        }
    }

    pub(super) fn wake(&mut self) {
        for machine in &mut self.machines {
            if let Some(living) = machine.node.as_mut().filter(|living| living.asleep) {
                self.world.tell(|| format!("{} wakes up", machine.name));
                living.asleep = false;
                living.life.sleep(false);
            }
        }
    }

    pub(super) fn set_a_clock(&mut self) {
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
}
