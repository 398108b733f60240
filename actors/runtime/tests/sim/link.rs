//! A node's way to the store: it takes time, breaks, loses answers, and ends with the node.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use signalbox_domain::dashboard::{DashboardFilter, RunCounts};
use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::governance::budget::{Budget, EndedWindow, MeteredBudget};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::ids::{
    ActorId, ApprovalId, BudgetId, CallId, CommandId, NodeIncarnation, RunId, RunKey, StoreIncarnation, TenantId,
};
use signalbox_domain::registry::AgentRegistry;
use signalbox_domain::run::append::{CommandAnswer, Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::acts::{Act, Acted, Acts, AuditFilter, SwitchReach};
use signalbox_ports::blobs::Blobs;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::directory::{Directory, OpenQuestion, RunPage, Scope};
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::{Delivered, Inbox, InboxCommand};
use signalbox_ports::journal::{AppendError, Appended, Created, Journal, NewRun, StoreError};
use signalbox_ports::leases::{Leases, NodeSweep, Swept};
use signalbox_ports::memory::MemoryBlobs;

use crate::dice::Dice;
use crate::sabotage::Sabotage;
use crate::world::{Signal, World};

/// Whether a node lives and is awake. What is dead or asleep reaches nothing.
pub(crate) struct Life {
    alive: AtomicBool,
    awake: Signal<bool>,
    pub(crate) incarnation: Mutex<Option<NodeIncarnation>>,
    /// The way to the store is cut for this node alone.
    pub(crate) cut: AtomicBool,
}

impl Life {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            alive: AtomicBool::new(true),
            awake: Signal::new(true),
            incarnation: Mutex::default(),
            cut: AtomicBool::new(false),
        })
    }

    pub(crate) fn end(&self) {
        self.alive.store(false, Ordering::SeqCst);
        self.awake.set(true);
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.awake.get()
    }

    pub(crate) fn sleep(&self, asleep: bool) {
        self.awake.set(!asleep);
    }

    /// Goes on once the node is awake, and never if it is dead.
    pub(crate) async fn goes_on(&self) {
        self.awake.wait_for(|awake| awake).await;
        if !self.is_alive() {
            std::future::pending::<()>().await;
        }
    }

    fn incarnation(&self) -> NodeIncarnation {
        let known = *self.incarnation.lock().unwrap_or_else(PoisonError::into_inner);
        known.unwrap_or(NodeIncarnation::new(uuid::Uuid::nil()))
    }
}

/// What becomes of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    /// Done, and the answer lost.
    DoneUnheard,
    /// Not done, and nobody can tell.
    UndoneUnheard,
}

/// One node's connection.
pub(crate) struct Link {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
    pub(crate) name: String,
    pub(crate) dice: Mutex<Dice>,
    pub(crate) blobs: Arc<MemoryBlobs>,
    /// The calls this process has asked to admit.
    pub(crate) asked: Mutex<BTreeSet<CallId>>,
}

impl Link {
    fn roll<T>(&self, with: impl FnOnce(&mut Dice) -> T) -> T {
        with(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn travel(&self) {
        let weather = *self.world.weather.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = self.roll(|dice| match dice.chance(weather.slow) {
            true => dice.between(1_000, 6_000),
            false => dice.below(weather.latency_ms + 1),
        });
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }

    /// The way there. A node that dies on the way may still be heard, or not.
    async fn there(&self, what: &str, writes: bool) -> Result<Fate, StoreError> {
        self.life.goes_on().await;
        self.world.operation().await;
        self.travel().await;
        if !self.life.is_alive() && self.roll(|dice| dice.chance(50)) {
            std::future::pending::<()>().await;
        }
        let weather = *self.world.weather.lock().unwrap_or_else(PoisonError::into_inner);
        let unavailable = || {
            self.world.tell(|| format!("{}: {what}: the store is not available", self.name));
            Err(StoreError::Unavailable("a fault of the schedule".to_owned()))
        };
        if self.life.cut.load(Ordering::SeqCst) {
            return unavailable();
        }
        let (fails, lost, lands) =
            self.roll(|dice| (dice.chance(weather.unavailable), dice.chance(weather.lost), dice.chance(50)));
        match (fails, writes && lost, lands) {
            (true, _, _) => unavailable(),
            (false, true, true) => Ok(Fate::DoneUnheard),
            (false, true, false) => Ok(Fate::UndoneUnheard),
            (false, false, _) => Ok(Fate::Answered),
        }
    }

    /// The way back. A dead node hears nothing.
    async fn back<T>(&self, what: &str, fate: Fate, answer: T) -> Result<T, StoreError> {
        self.travel().await;
        self.life.goes_on().await;
        if fate == Fate::Answered {
            return Ok(answer);
        }
        let landed = if fate == Fate::DoneUnheard { "which was done" } else { "which was not done" };
        self.world.tell(|| format!("{}: {what}: the answer is lost, {landed}", self.name));
        Err(StoreError::Unknown("a fault of the schedule".to_owned()))
    }

    /// What the store does with a batch, and what it does if something is wrong with it on purpose.
    async fn appended(&self, mut batch: Vec<Entry>, append_began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        let store = &self.world.store;
        let Some(sabotage) = self.world.sabotage else { return store.append(batch, append_began).await };
        let epoch = store.epoch().await.map_or(0, |(_, epoch)| epoch);
        for entry in &mut batch {
            let head = store.head(entry.run_key).await.ok().flatten();
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.extend(entry.asks.iter().map(|ask| ask.call_id));
            sabotage.tampers(entry, head.as_ref(), epoch, &asked);
        }
        if sabotage == Sabotage::WriteForgotten && self.roll(|dice| dice.chance(2)) {
            let before = store.backup();
            let answers = store.append(batch, append_began).await;
            store.restore(before);
            return answers;
        }
        store.append(batch, append_began).await
    }

    async fn reads<T, F: Future<Output = Result<T, StoreError>>>(&self, what: &str, work: F) -> Result<T, StoreError> {
        self.there(what, false).await?;
        let answer = work.await;
        self.back(what, Fate::Answered, ()).await?;
        answer
    }

    async fn writes<T, F: Future<Output = Result<T, StoreError>>>(&self, what: &str, work: F) -> Result<T, StoreError> {
        let fate = self.there(what, true).await?;
        if fate == Fate::UndoneUnheard {
            drop(work);
            return Err(self.back(what, fate, ()).await.unwrap_err());
        }
        let answer = work.await;
        self.back(what, fate, ()).await?;
        answer
    }
}

#[async_trait]
impl Journal for Link {
    async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        self.writes("create", async {
            let answer = self.world.store.create(run).await;
            if let Ok(Created::New { head, .. }) = &answer {
                self.world.tell(|| format!("{}: run {} is created", self.name, head.run_id));
                self.world.model().created(head);
            }
            answer
        })
        .await
    }

    async fn append(&self, batch: Vec<Entry>, append_began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        let count = batch.len();
        let all = |error: StoreError| (0..count).map(|_| Err(AppendError::Store(error.clone()))).collect();
        let fate = match self.there("append", true).await {
            Ok(fate) => fate,
            Err(error) => return all(error),
        };
        if fate == Fate::UndoneUnheard {
            return all(self.back("append", fate, ()).await.unwrap_err());
        }
        let answers = self.appended(batch.clone(), append_began).await;
        let told = self.world.model().appended(self.life.incarnation(), &batch, &answers);
        for line in told {
            self.world.tell(|| format!("{}: {line}", self.name));
        }
        match self.back("append", fate, ()).await {
            Ok(()) => answers,
            Err(error) => all(error),
        }
    }

    async fn read(&self, run: RunKey, after_seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.reads("read", self.world.store.read(run, after_seq, limit)).await
    }

    async fn head(&self, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        self.reads("head", self.world.store.head(run)).await
    }

    async fn find(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError> {
        if self.world.sabotage == Some(Sabotage::TenantNotAsked) {
            let key = self.world.model().runs.values().find(|known| known.run_id == run).map(|known| known.key);
            let Some(key) = key else { return Ok(None) };
            return self.reads("find", self.world.store.head(key)).await;
        }
        self.reads("find", self.world.store.find(tenant, run)).await
    }

    async fn put_snapshot(&self, run: RunKey, seq: u64, fold_version: u32, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.writes("put-snapshot", async {
            self.world.model().snapshot(run, seq, &bytes);
            self.world.store.put_snapshot(run, seq, fold_version, bytes).await
        })
        .await
    }

    async fn snapshot(&self, run: RunKey, fold_version: u32) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        self.reads("snapshot", self.world.store.snapshot(run, fold_version)).await
    }
}

#[async_trait]
impl Directory for Link {
    async fn runs(&self, scope: &Scope, filter: &DashboardFilter, read_at: UnixMicros) -> Result<RunPage, StoreError> {
        self.reads("runs", self.world.store.runs(scope, filter, read_at)).await
    }
    async fn count_runs(&self, scope: &Scope, started_after: Option<UnixMs>) -> Result<RunCounts, StoreError> {
        self.reads("count-runs", self.world.store.count_runs(scope, started_after)).await
    }
    async fn open_approvals(&self, tenant: &TenantId) -> Result<Vec<OpenQuestion>, StoreError> {
        self.reads("open-approvals", self.world.store.open_approvals(tenant)).await
    }
    async fn run_of_approval(&self, tenant: &TenantId, approval: ApprovalId) -> Result<Option<RunId>, StoreError> {
        self.reads("run-of-approval", self.world.store.run_of_approval(tenant, approval)).await
    }
}

#[async_trait]
impl Inbox for Link {
    async fn deliver(&self, run: RunKey, command: InboxCommand) -> Result<Delivered, StoreError> {
        self.writes("deliver", async {
            let answer = self.world.store.deliver(run, command.clone()).await;
            if let Ok(Delivered::Waiting) = &answer {
                self.world.model().delivered(run, &command);
            }
            answer
        })
        .await
    }
    async fn deliver_down(
        &self,
        run: RunKey,
        command: InboxCommand,
        below: Vec<u8>,
    ) -> Result<(Delivered, Vec<RunKey>), StoreError> {
        self.writes("deliver-down", async {
            let answer = self.world.store.deliver_down(run, command.clone(), below).await;
            if let Ok((Delivered::Waiting, _)) = &answer {
                self.world.model().delivered(run, &command);
            }
            answer
        })
        .await
    }
    async fn pending(&self, run: RunKey) -> Result<(Vec<InboxCommand>, u64), StoreError> {
        self.reads("pending", self.world.store.pending(run)).await
    }
    async fn answer(&self, run: RunKey, command: CommandId) -> Result<Option<CommandAnswer>, StoreError> {
        self.reads("answer", self.world.store.answer(run, command)).await
    }
}

#[async_trait]
impl Leases for Link {
    async fn renew(&self, node: NodeIncarnation, name: &str) -> Result<bool, StoreError> {
        *self.life.incarnation.lock().unwrap_or_else(PoisonError::into_inner) = Some(node);
        self.writes("renew", async {
            let answer = self.world.store.renew(node, name).await;
            if let Ok(true) = answer {
                self.world.model().renewed(node);
            }
            answer
        })
        .await
    }
    async fn claim(&self, node: NodeIncarnation, limit: usize) -> Result<Vec<RunHead>, StoreError> {
        self.writes("claim", async {
            if self.world.sabotage == Some(Sabotage::LeaseNotWaitedFor) {
                let others = self.world.model().nodes_but(node);
                for other in others {
                    self.world.store.release(other).await?;
                }
            }
            let answer = self.world.store.claim(node, limit).await;
            for head in answer.iter().flatten() {
                self.world.tell(|| format!("{}: claims run {} as epoch {}", self.name, head.run_id, head.lease_epoch));
                self.world.model().claimed(node, head);
            }
            answer
        })
        .await
    }
    async fn claim_one(&self, node: NodeIncarnation, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        self.writes("claim-one", async {
            let answer = self.world.store.claim_one(node, run).await;
            if let Ok(Some(head)) = &answer {
                self.world.tell(|| format!("{}: claims run {} as epoch {}", self.name, head.run_id, head.lease_epoch));
                self.world.model().claimed(node, head);
            }
            answer
        })
        .await
    }
    async fn waiting(&self, node: NodeIncarnation) -> Result<Vec<RunKey>, StoreError> {
        self.reads("waiting", self.world.store.waiting(node)).await
    }
    async fn swept(&self, node: NodeIncarnation, epoch: u64) -> Result<(), StoreError> {
        self.writes("swept", self.world.store.swept(node, epoch)).await
    }
    async fn sweepers(&self, epoch: u64) -> Result<Vec<NodeSweep>, StoreError> {
        self.reads("sweepers", self.world.store.sweepers(epoch)).await
    }
    async fn sweep(&self, limit: usize) -> Result<Option<Swept>, StoreError> {
        self.writes("sweep", self.world.store.sweep(limit)).await
    }
    async fn release(&self, node: NodeIncarnation) -> Result<(), StoreError> {
        self.writes("release", async {
            self.world.model().released(node);
            self.world.store.release(node).await
        })
        .await
    }
}

#[async_trait]
impl Governance for Link {
    async fn epoch(&self) -> Result<(StoreIncarnation, u64), StoreError> {
        self.reads("epoch", self.world.store.epoch()).await
    }
    async fn changes(&self, after_epoch: u64) -> Result<Vec<EpochChange>, StoreError> {
        self.reads("changes", self.world.store.changes(after_epoch)).await
    }
    async fn change(&self, change: GovernanceChange, by: &ActorId) -> Result<EpochChange, StoreError> {
        self.writes("change", async {
            let answer = self.world.store.change(change, by).await;
            if let Ok(change) = &answer {
                self.world.model().changed(&change.change);
            }
            answer
        })
        .await
    }
    async fn put_budget(&self, budget: Budget) -> Result<(), StoreError> {
        self.writes("put-budget", self.world.store.put_budget(budget)).await
    }
    async fn retire_budget(&self, budget: &BudgetId) -> Result<(), StoreError> {
        self.writes("retire-budget", self.world.store.retire_budget(budget)).await
    }
    async fn budgets(&self) -> Result<Vec<MeteredBudget>, StoreError> {
        self.reads("budgets", self.world.store.budgets()).await
    }
}

#[async_trait]
impl Acts for Link {
    async fn audit_head(&self) -> Result<AuditHead, StoreError> {
        self.reads("audit-head", self.world.store.audit_head()).await
    }
    async fn act(&self, act: Act) -> Result<Acted, StoreError> {
        let effect = act.effect.clone();
        self.writes("act", async {
            let answer = self.world.store.act(act).await;
            if let Ok(Acted::Done(done)) = &answer {
                self.world.tell(|| format!("{}: act {} is done: {}", self.name, done.event.seq, done.event.kind));
                self.world.model().acted(&effect, done);
            }
            answer
        })
        .await
    }
    async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEvent>, StoreError> {
        self.reads("audit", self.world.store.audit(filter)).await
    }
    async fn last_act(&self, subject: &Subject) -> Result<Option<AuditEvent>, StoreError> {
        self.reads("last-act", self.world.store.last_act(subject)).await
    }
    async fn reach(&self, switch: &KillSwitch, registry: &AgentRegistry) -> Result<SwitchReach, StoreError> {
        self.reads("reach", self.world.store.reach(switch, registry)).await
    }
    async fn paused_runs(
        &self,
        tenant: Option<&TenantId>,
        after: Option<RunKey>,
    ) -> Result<Vec<(RunKey, TenantId, RunId)>, StoreError> {
        self.reads("paused-runs", self.world.store.paused_runs(tenant, after)).await
    }
    async fn ended_windows(&self, budget: &BudgetId, limit: usize) -> Result<Vec<EndedWindow>, StoreError> {
        self.reads("ended-windows", self.world.store.ended_windows(budget, limit)).await
    }
}

#[async_trait]
impl Blobs for Link {
    async fn put(&self, tenant: &TenantId, bytes: Bytes) -> Result<String, StoreError> {
        self.there("put", false).await?;
        self.world.model().kept("an object", &bytes);
        self.blobs.put(tenant, bytes).await
    }
    async fn get(&self, tenant: &TenantId, sha256: &str) -> Result<Option<Bytes>, StoreError> {
        self.there("get", false).await?;
        self.blobs.get(tenant, sha256).await
    }
}
