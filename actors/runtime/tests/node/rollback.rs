//! A store that has forgotten what it had acknowledged is not trusted: nothing is admitted on it, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_ports::memory::{FakeTools, MemoryStore};

use crate::harness::{World, chain, switch, tool};

async fn world() -> World {
    let world = World::with(FakeTools::new([tool("memory.read")]), |_| {}).await;
    world.tools.on(&tool("memory.read"), async |_, _| {
        tokio::time::sleep(Duration::from_millis(500)).await;
        FakeTools::answered(serde_json::json!({}))
    });
    world
}

/// Whatever is under way comes home, and after that nothing more is sent.
async fn admits_nothing(world: &World) {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sent = world.tools.calls().len();
    world.submit(chain("memory.read", 1)).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.tools.calls().len(), sent);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_got_shorter_makes_no_call_again() {
    let world = world().await;
    let run = world.submit(chain("memory.read", 20)).await;
    world.tools.begun(4).await;
    let backup = world.store.backup();
    world.tools.begun(8).await;
    world.store.restore(backup);
    admits_nothing(&world).await;
    let calls = world.tools.calls();
    let mut ids: Vec<_> = calls.iter().map(|order| order.step_id.to_string()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), calls.len(), "no step is done again");
    assert!(world.get(run).await.end.is_none(), "and the run is not ended for it");
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_governance_went_back_admits_nothing() {
    let world = world().await;
    let backup = world.store.backup();
    world.change(switch("other", SwitchScope::Tool, Some("web.fetch"))).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.store.restore(backup);
    admits_nothing(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_of_another_incarnation_admits_nothing() {
    let world = world().await;
    let other = Arc::new(MemoryStore::new(world.ports.clock.clone()));
    world.store.restore(other.backup());
    admits_nothing(&world).await;
}
