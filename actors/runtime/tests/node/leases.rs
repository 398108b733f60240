//! A node whose lease may have run out admits nothing; one whose lease was given up ends (I10).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use signalbox_domain::ids::{NodeIncarnation, RunKey};
use signalbox_domain::run::append::RunHead;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::{Leases, NodeSweep, Swept};
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{Node, NodeConfig};

use crate::harness::{World, chain, tool};

/// Leases that cannot be renewed while the link is cut; the rest of the store can be reached.
struct Cut {
    inner: Arc<dyn Leases>,
    cut: Arc<AtomicBool>,
}

impl Cut {
    fn check(&self) -> Result<(), StoreError> {
        if self.cut.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("the control connection is gone".to_owned()));
        }
        Ok(())
    }
}

#[async_trait]
impl Leases for Cut {
    async fn renew(&self, node: NodeIncarnation, name: &str) -> Result<bool, StoreError> {
        self.check()?;
        self.inner.renew(node, name).await
    }
    async fn claim(&self, node: NodeIncarnation, limit: usize) -> Result<Vec<RunHead>, StoreError> {
        self.check()?;
        self.inner.claim(node, limit).await
    }
    async fn claim_one(&self, node: NodeIncarnation, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        self.check()?;
        self.inner.claim_one(node, run).await
    }
    async fn sweep(&self, limit: usize) -> Result<Option<Swept>, StoreError> {
        self.check()?;
        self.inner.sweep(limit).await
    }
    async fn waiting(&self, node: NodeIncarnation) -> Result<Vec<RunKey>, StoreError> {
        self.check()?;
        self.inner.waiting(node).await
    }
    async fn swept(&self, node: NodeIncarnation, epoch: u64) -> Result<(), StoreError> {
        self.check()?;
        self.inner.swept(node, epoch).await
    }
    async fn sweepers(&self, epoch: u64) -> Result<Vec<NodeSweep>, StoreError> {
        self.check()?;
        self.inner.sweepers(epoch).await
    }
    async fn release(&self, node: NodeIncarnation) -> Result<(), StoreError> {
        self.check()?;
        self.inner.release(node).await
    }
}

async fn world_with_a_link() -> (World, Arc<AtomicBool>) {
    let cut = Arc::new(AtomicBool::new(false));
    let link = Arc::clone(&cut);
    let world = World::with(FakeTools::new([tool("memory.read")]), move |ports| {
        ports.leases = Arc::new(Cut { inner: ports.leases.clone(), cut: link });
    })
    .await;
    // Each call takes half a second, so that a long run is always in the middle of something.
    world.tools.on(&tool("memory.read"), async |_, _| {
        tokio::time::sleep(Duration::from_millis(500)).await;
        FakeTools::answered(serde_json::json!({}))
    });
    (world, cut)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_renew_its_lease_admits_nothing_keeps_its_runs_and_goes_on_when_it_can() {
    let (world, cut) = world_with_a_link().await;
    let run = world.submit(chain("memory.read", 40)).await;
    world.tools.begun(5).await;
    cut.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(9)).await;
    let sent = world.tools.calls().len();
    assert!((6..40).contains(&sent), "it went on while its lease was good, and stopped before that ran out: {sent}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.tools.calls().len(), sent);
    assert_eq!(world.get(run).await.open_calls().count(), 0, "what was out came home");
    cut.store(false, Ordering::SeqCst);
    let envelope = world.until_closed(run).await;
    assert_eq!((envelope.status, world.tools.calls().len()), (RunStatus::Completed, 40), "no call was made twice");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_lease_was_given_to_another_ends_and_the_other_goes_on() {
    let (world, cut) = world_with_a_link().await;
    let run = world.submit(chain("memory.read", 40)).await;
    world.tools.begun(5).await;
    cut.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(9)).await;
    let mut ports = world.ports.clone();
    ports.leases = world.store.clone();
    let (other, _) = Node::start(NodeConfig::default(), ports).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    cut.store(false, Ordering::SeqCst);
    let caller = crate::harness::operator();
    loop {
        let envelope = other.get(&caller, run).await.unwrap();
        if envelope.closed {
            assert_eq!(envelope.status, RunStatus::Completed);
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.verify(run).await;
    let calls = world.tools.calls();
    let mut ids: Vec<_> = calls.iter().map(|order| (order.call_id, order.attempt)).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), calls.len(), "no attempt was sent by both");
}
