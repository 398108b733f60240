//! A store that has forgotten what it had acknowledged is not trusted: nothing is admitted on it, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::ids::CommandId;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::memory::{FakeTools, MemoryStore};

use signalbox_runtime::accept_rollback;

use crate::harness::{World, chain, operator, switch, tool};

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

#[tokio::test(start_paused = true)]
async fn a_rollback_that_is_accepted_holds_every_run_until_somebody_resumes_it() {
    let mut world = world().await;
    let run = world.submit(chain("memory.read", 20)).await;
    world.tools.begun(4).await;
    let backup = world.store.backup();
    world.tools.begun(8).await;
    world.node.abandon().await;
    world.store.restore(backup);
    let (before, _) = world.ports.governance.epoch().await.unwrap();
    let store = world.store.clone();
    let accepted = accept_rollback(
        store.as_ref(),
        store.as_ref(),
        CommandId::new(world.ports.ids.fresh()),
        operator().actor,
        "last night's backup",
    );
    let accepted = accepted.await.unwrap();
    assert_eq!(accepted.held, 1);
    assert_ne!(accepted.incarnation, before);
    let made = world.tools.calls().len();
    world.crash().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.get(run).await.status, RunStatus::Paused);
    assert!(world.tools.calls().len() <= made + 1, "at most the call that was out is sent again under its own id");
    world.command(run, RunCommand::Resume { reason: "looked at it".to_owned() }).await.unwrap();
    let ended = world.until_closed(run).await;
    assert_eq!(ended.status, RunStatus::Completed);
}
