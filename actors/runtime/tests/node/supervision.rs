//! What fails ends alone, and comes back from the journal (RUN-029).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::ids::{BranchId, CommandId, RunId, RunKey, StepId, TenantId};
use signalbox_domain::run::append::{CommandAnswer, Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::inbox::{Delivered, Inbox, InboxCommand};
use signalbox_ports::journal::{AppendError, Appended, Created, Journal, NewRun, StoreError};
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::ApiError;

use crate::harness::{World, chain, operator, tool};

/// An inbox that panics when a command comes up, so many times.
struct Poisoned {
    inner: Arc<dyn Inbox>,
    command: CommandId,
    times: AtomicUsize,
}

#[async_trait]
impl Inbox for Poisoned {
    async fn deliver(&self, run: RunKey, command: InboxCommand) -> Result<Delivered, StoreError> {
        self.inner.deliver(run, command).await
    }
    async fn deliver_down(
        &self,
        run: RunKey,
        command: InboxCommand,
        below: Vec<u8>,
    ) -> Result<(Delivered, Vec<RunKey>), StoreError> {
        self.inner.deliver_down(run, command, below).await
    }
    async fn pending(&self, run: RunKey) -> Result<(Vec<InboxCommand>, u64), StoreError> {
        let (commands, control_seq) = self.inner.pending(run).await?;
        if commands.iter().any(|waiting| waiting.command_id == self.command) {
            let left = self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            assert!(left.is_err(), "a test makes the run's actor panic");
        }
        Ok((commands, control_seq))
    }
    async fn answer(&self, run: RunKey, command: CommandId) -> Result<Option<CommandAnswer>, StoreError> {
        self.inner.answer(run, command).await
    }
}

fn command_id(number: u128) -> CommandId {
    CommandId::new(uuid::Uuid::from_u128(0x1000 + number))
}

async fn poisoned_world(times: usize) -> World {
    World::with(FakeTools::new([tool("memory.read")]), move |ports| {
        let times = AtomicUsize::new(times);
        ports.inbox = Arc::new(Poisoned { inner: ports.inbox.clone(), command: command_id(10), times });
    })
    .await
}

/// A hundred branches to choose, one by each command.
fn hundred_branches() -> Value {
    (1..=100)
        .map(|n| json!({ "stepId": format!("b{n}"), "kind": "branch", "branches": [{ "branchId": "on", "title": "On" }] }))
        .collect()
}

/// A hundred commands, delivered in order while nobody waits for an answer; and what was answered, in that order.
async fn a_hundred_choices(world: &World, run: RunId) -> Vec<Result<CommandAnswer, ApiError>> {
    let mut answers = Vec::new();
    for number in 1..=100 {
        let node = world.node.clone();
        let choose = RunCommand::ChooseBranch {
            step_id: Some(StepId::new(format!("b{number}")).unwrap()),
            branch_id: BranchId::new("on").unwrap(),
            reason: String::new(),
        };
        answers.push(tokio::spawn(async move { node.command(&operator(), run, command_id(number), choose).await }));
    }
    let mut said = Vec::new();
    for answer in answers {
        said.push(answer.await.unwrap());
    }
    said
}

#[tokio::test(start_paused = true)]
async fn of_a_hundred_commands_the_tenth_fails_the_actor_and_all_are_answered_in_order_while_others_go_on() {
    let world = poisoned_world(1).await;
    let run = world.submit(hundred_branches()).await;
    world.until_status(run, RunStatus::AwaitingBranchSelection).await;
    let mut others = Vec::new();
    for _ in 0..20 {
        others.push(world.submit(chain("memory.read", 5)).await);
    }
    let answers = a_hundred_choices(&world, run).await;
    let seqs: Vec<u64> = answers.into_iter().map(|answer| answer.unwrap().seq).collect();
    assert!(seqs.is_sorted(), "{seqs:?}");
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    let (_, _, events) = world.node.export(&operator(), run).await.unwrap();
    let chosen: Vec<String> = events
        .iter()
        .filter_map(|event| match event.event() {
            Some(RunEvent::ControlApplied(applied)) => serde_json::to_value(&applied.effect).ok(),
            _ => None,
        })
        .map(|effect| effect["stepId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(chosen, (1..=100).map(|n| format!("b{n}")).collect::<Vec<_>>(), "each once, in the order of arrival");
    for other in others {
        assert_eq!(world.until_closed(other).await.status, RunStatus::Completed);
    }
    assert_eq!(world.tools.calls().len(), 100, "no call of the others was made twice");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_fails_the_actor_each_time_ends_the_run_visibly_and_everybody_is_told() {
    let world = poisoned_world(usize::MAX).await;
    let run = world.submit(hundred_branches()).await;
    world.until_status(run, RunStatus::AwaitingBranchSelection).await;
    let other = world.submit(chain("memory.read", 5)).await;
    let asked = tokio::time::Instant::now();
    for answer in a_hundred_choices(&world, run).await {
        assert!(answer.is_ok() || answer.as_ref().unwrap_err().code() == "run-terminal", "{answer:?}");
    }
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let failed = world.until_closed(run).await;
    assert_eq!((failed.status, failed.end.unwrap().code.as_deref()), (RunStatus::Failed, Some("actor-crash-loop")));
    assert_eq!(world.until_closed(other).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn two_crashes_a_minute_apart_are_no_loop() {
    let world = poisoned_world(2).await;
    let run = world.submit(hundred_branches()).await;
    world.until_status(run, RunStatus::AwaitingBranchSelection).await;
    assert!(a_hundred_choices(&world, run).await.iter().all(Result::is_ok));
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn the_store_gone_for_a_minute_is_no_crash_and_nothing_is_lost_or_done_twice() {
    let world = World::new().await;
    let (go, gone) = tokio::sync::watch::channel(false);
    world.tools.on(&tool("memory.read"), move |_, _| {
        let mut gone = gone.clone();
        async move {
            let _ = gone.wait_for(|go| *go).await;
            FakeTools::answered(json!({}))
        }
    });
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(world.submit(chain("memory.read", 3)).await);
    }
    world.tools.begun(20).await;
    world.store.fail_with(Some(StoreError::Unavailable("a test".to_owned())));
    // The calls end while nobody can write it down.
    go.send(true).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.tools.calls().len(), 20, "no call begins without the store");
    world.store.fail_with(None);
    for run in runs {
        let done = world.until_closed(run).await;
        assert_eq!((done.status, done.tool_calls.len()), (RunStatus::Completed, 3));
        assert!(done.tool_calls.iter().all(|call| call.attempt == 1));
    }
    assert_eq!(world.tools.calls().len(), 60);
}

/// A journal that cannot be read, or written, while a test says so.
struct Unreadable {
    inner: Arc<dyn Journal>,
    reading_fails: Arc<AtomicBool>,
    writing_fails: Arc<AtomicBool>,
}

impl Unreadable {
    fn check(fails: &AtomicBool) -> Result<(), StoreError> {
        if fails.load(Ordering::SeqCst) { Err(StoreError::Unavailable("a test".to_owned())) } else { Ok(()) }
    }
}

#[async_trait]
impl Journal for Unreadable {
    async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        self.inner.create(run).await
    }
    async fn append(&self, batch: Vec<Entry>, began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        match Self::check(&self.writing_fails) {
            Ok(()) => self.inner.append(batch, began).await,
            Err(error) => batch.iter().map(|_| Err(error.clone().into())).collect(),
        }
    }
    async fn read(&self, run: RunKey, after_seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        Self::check(&self.reading_fails)?;
        self.inner.read(run, after_seq, limit).await
    }
    async fn head(&self, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        Self::check(&self.reading_fails)?;
        self.inner.head(run).await
    }
    async fn find(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError> {
        self.inner.find(tenant, run).await
    }
    async fn put_snapshot(&self, run: RunKey, seq: u64, fold_version: u32, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.inner.put_snapshot(run, seq, fold_version, bytes).await
    }
    async fn snapshot(&self, run: RunKey, fold_version: u32) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        Self::check(&self.reading_fails)?;
        self.inner.snapshot(run, fold_version).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_read_when_it_is_taken_up_is_read_again_until_it_can() {
    let mut world = World::with(FakeTools::new([tool("memory.read")]), |_| {}).await;
    world.tools.set_permits(&tool("memory.read"), 0);
    let run = world.submit(chain("memory.read", 2)).await;
    let reading_fails = Arc::new(AtomicBool::new(true));
    let fails = reading_fails.clone();
    // A new run need not be read; one that another node has begun must be.
    let unreadable = move |ports: &mut signalbox_runtime::Ports| {
        let inner = ports.journal.clone();
        ports.journal = Arc::new(Unreadable { inner, reading_fails: fails, writing_fails: Arc::default() });
    };
    world.crash_and_come_back_with(unreadable).await;
    world.tools.set_permits(&tool("memory.read"), 8);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(world.tools.calls().is_empty());
    reading_fails.store(false, Ordering::SeqCst);
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_keeps_failing_while_the_store_cannot_write_is_ended_when_it_can() {
    let writing_fails = Arc::new(AtomicBool::new(false));
    let fails = writing_fails.clone();
    let world = World::with(FakeTools::new([tool("memory.read")]), move |ports| {
        let inner = ports.journal.clone();
        ports.journal = Arc::new(Unreadable { inner, reading_fails: Arc::default(), writing_fails: fails });
        let inner = ports.inbox.clone();
        ports.inbox = Arc::new(Poisoned { inner, command: command_id(10), times: AtomicUsize::new(usize::MAX) });
    })
    .await;
    world.tools.hang(&tool("memory.read"));
    let run = world.submit(chain("memory.read", 1)).await;
    world.tools.begun(1).await;
    world.until(run, |run| run.open_calls().count() == 1).await;
    writing_fails.store(true, Ordering::SeqCst);
    let node = world.node.clone();
    let pause = RunCommand::Pause { reason: "now".to_owned() };
    let told = tokio::spawn(async move { node.command(&operator(), run, command_id(10), pause).await });
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(!world.get(run).await.status.is_terminal());
    writing_fails.store(false, Ordering::SeqCst);
    let failed = world.until_closed(run).await;
    assert_eq!((failed.status, failed.end.unwrap().code.as_deref()), (RunStatus::Failed, Some("actor-crash-loop")));
    assert_eq!(world.tools.cancelled().len(), 1, "its call is cancelled");
    assert_eq!(told.await.unwrap().unwrap_err().code(), "run-terminal");
}
