//! What a call becomes when the connection below it fails, at each point where it can.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use serde_json::json;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::run::step::CallEnding;
use signalbox_proto::v1::tool_executor_client::ToolExecutorClient;
use tokio::io::DuplexStream;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Uri};

use super::breaker::Breaker;
use super::dispatch::WatchedChannel;
use super::executor::Executor;
use super::testing::{Bench, HandClock, ScriptedTool, order};
use super::{Bound, ExecutorClient, RegisteredRules, Target};
use crate::tool::{Answer, Measured, ToolOutcome};

/// A client over whatever `connect` gives, without asking first what is served there.
fn bench_over(
    clock: Arc<HandClock>,
    connect: impl Fn() -> BoxFuture<'static, io::Result<DuplexStream>> + Send + Sync + 'static,
) -> Bench {
    let connect = Arc::new(connect);
    let connector = tower::service_fn(move |_: Uri| {
        let connect = Arc::clone(&connect);
        async move { connect().await.map(TokioIo::new) }
    });
    let channel: Channel = Target::from_static("http://test").connect_with_connector_lazy(connector);
    let executor = Arc::new(Executor {
        name: "test".to_owned(),
        client: ToolExecutorClient::new(WatchedChannel(channel)),
        permits: Arc::new(Semaphore::new(4)),
        breaker: Breaker::default(),
        clock: clock.clone(),
    });
    let bound = Bound { executor, semver: "1.0.0".to_owned(), declared: Recovery::Idempotent };
    let client = ExecutorClient {
        tools: [(order(1).tool_id, bound)].into(),
        registered: ArcSwap::default(),
        rules: RegisteredRules::default(),
        concurrency: 4,
        clock: clock.clone(),
    };
    Bench { client, clock }
}

/// What a bare HTTP/2 server does with the first request.
#[derive(Debug, Clone, Copy)]
enum Raw {
    Refuse,
    Die,
    Ignore,
}

/// The near end of a connection to such a server.
fn raw_server(behaviour: Raw) -> DuplexStream {
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let mut connection = h2::server::handshake(far).await.unwrap();
        let Some(Ok((request, mut respond))) = connection.accept().await else { return };
        match behaviour {
            Raw::Refuse => respond.send_reset(h2::Reason::REFUSED_STREAM),
            Raw::Die => {
                // The message has arrived, then the machine is gone.
                let mut body = request.into_body();
                tokio::select! {
                    _ = body.data() => return,
                    _ = connection.accept() => return,
                }
            }
            Raw::Ignore => {}
        }
        while connection.accept().await.is_some() {}
        drop(respond);
    });
    near
}

#[tokio::test(start_paused = true)]
async fn a_refused_stream_is_not_started_and_whatever_else_follows_sending_is_unknown() {
    let started = [(Raw::Refuse, false), (Raw::Die, true), (Raw::Ignore, true)];
    for (behaviour, unknown) in started {
        let bench = bench_over(Arc::default(), move || Box::pin(async move { Ok(raw_server(behaviour)) }));
        let ending = bench.call(order(1)).await.ending;
        if unknown {
            assert!(matches!(ending, CallEnding::Unknown { .. }), "{behaviour:?} gave {ending:?}");
        } else {
            assert_eq!(not_started(&ending), "executor-refused-call");
        }
    }
}

fn not_started(ending: &CallEnding) -> &str {
    if let CallEnding::NotStarted { code, .. } = ending { code } else { panic!("{ending:?}") }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_connection_is_not_started() {
    let refused = bench_over(Arc::default(), || Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) }));
    assert_eq!(not_started(&refused.call(order(1)).await.ending), "executor-unreachable");
    let hanging = bench_over(Arc::default(), || Box::pin(std::future::pending()));
    assert_eq!(not_started(&hanging.call(order(1)).await.ending), "executor-unreachable");
}

#[tokio::test]
async fn a_connection_that_comes_after_the_window_is_not_given_the_call() {
    let ran = Arc::new(AtomicUsize::new(0));
    for (waited_ms, expected_runs) in [(2_001, 0), (2_000, 1)] {
        let (clock, counter) = (Arc::new(HandClock::default()), Arc::clone(&ran));
        let server = ScriptedTool::new(move |_, _| {
            counter.fetch_add(1, Ordering::SeqCst);
            async { ToolOutcome::Ok(Answer::new(json!({}), Measured::new())) }
        })
        .server();
        let hands = Arc::clone(&clock);
        let bench = bench_over(clock, move || {
            let (server, hands) = (server.clone(), Arc::clone(&hands));
            Box::pin(async move {
                let (near, far) = tokio::io::duplex(1 << 16);
                let (accept, incoming) = tokio::sync::mpsc::channel::<io::Result<DuplexStream>>(1);
                accept.send(Ok(far)).await.unwrap();
                let serving = crate::serve::builder().add_service(server.service());
                tokio::spawn(serving.serve_with_incoming(ReceiverStream::new(incoming)));
                hands.advance_ms(waited_ms);
                Ok(near)
            })
        });
        let ending = bench.call(order(1)).await.ending;
        assert_eq!(ran.load(Ordering::SeqCst), expected_runs, "{ending:?}");
        if expected_runs == 0 {
            assert_eq!(not_started(&ending), "dispatch-window-missed");
        }
    }
}
