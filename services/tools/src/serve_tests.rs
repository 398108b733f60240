//! Serving on a real socket.

use std::sync::Arc;

use serde_json::json;
use signalbox_domain::run::step::CallEnding;
use signalbox_ports::clock::Clock as _;
use signalbox_ports::tools::Tools as _;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::client::ExecutorClient;
use crate::client::testing::{HandClock, ScriptedTool, admission, order};
use crate::tool::{Answer, Measured, ToolOutcome};

#[tokio::test]
async fn a_server_that_shuts_down_finishes_its_calls_and_refuses_new_ones() {
    let (running, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (bell, gate) = (Arc::clone(&running), Arc::clone(&go));
    let server = ScriptedTool::new(move |_, _| {
        bell.notify_one();
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            ToolOutcome::Ok(Answer::new(json!({}), Measured::new()))
        }
    })
    .server();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(crate::serve(listener, None, server.clone(), async {
        let _ = stopped.await;
    }));
    let clock = Arc::new(HandClock::default());
    let client = Arc::new(ExecutorClient::connect(&uri, clock.clone()).await.unwrap());
    let call = |n| {
        let (client, order) = (Arc::clone(&client), order(n));
        let admitted = admission(&order, clock.boot());
        tokio::spawn(async move {
            let permit = client.permit(&order.tool_id).unwrap();
            client.execute(admitted, order, permit, mpsc::channel(1).0).await.ending
        })
    };
    let first = call(1);
    running.notified().await;
    server.drain();
    let refused = call(2).await.unwrap();
    assert!(matches!(&refused, CallEnding::NotStarted { code, .. } if code == "executor-draining"), "{refused:?}");
    stop.send(()).unwrap();
    go.notify_one();
    assert!(matches!(first.await.unwrap(), CallEnding::Answered { .. }));
    serving.await.unwrap().unwrap();
}
