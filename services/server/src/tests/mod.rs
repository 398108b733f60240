//! The edge over a real connection, in front of a fake node.

mod approvals;
mod dashboard;
mod duplicates;
mod error_table;
mod errors;
mod explaining;
mod fuzz;
mod governing;
mod http;
mod identity;
mod keys;
mod listing;
mod preflights;
mod private;
mod progress;
mod raw;
mod requests;
mod tokens;
mod transport;
mod watching;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, RunId, TenantId};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::clock::Ids;
use signalbox_ports::memory::{ManualClock, MemoryStore};
use signalbox_proto::v1::run_service_client::RunServiceClient;
use signalbox_tls::ServerTls;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_types::StatusExt;
use uuid::Uuid;

use self::identity::Claims;
use crate::api::Caller;
use crate::fake::{FakeNode, envelope};
use crate::fake_feedback::FakeFeedback;
use crate::fake_governance::FakeGovernance;
use crate::fake_pipelines::FakePipelines;
use crate::identity::ApiKeys;
use crate::serve::{Edge, ServeError, ServeLimits, serve_watched};
use crate::watch::WatchLimits;

struct RandomIds;

impl Ids for RandomIds {
    fn fresh(&self) -> Uuid {
        Uuid::new_v4()
    }
}

struct Fixture {
    node: Arc<FakeNode>,
    governance: Arc<FakeGovernance>,
    client: RunServiceClient<Channel>,
    channel: Channel,
    address: SocketAddr,
    watches: Arc<Semaphore>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Fixture {
    /// Waits until the server has ended every watch.
    async fn until_watches_are_free(&self) {
        drop(self.watches.acquire_many(WATCHES_MAX).await.unwrap());
    }
}

const WATCHES_MAX: u32 = 2;
/// Long enough for any reader that reads at all, however busy the machine is.
const STALL: Duration = Duration::from_secs(60);

async fn fixture() -> Fixture {
    fixture_with(STALL).await
}

/// A fixture whose watches let a reader go after it has stood still for this long.
async fn fixture_with(stall: Duration) -> Fixture {
    fixture_behind(stall, None).await
}

/// The same behind certificates; the fixture's own client knows nothing of them.
async fn fixture_behind(stall: Duration, tls: Option<Arc<ServerTls>>) -> Fixture {
    let node = Arc::new(FakeNode::default());
    let governance = Arc::new(FakeGovernance::default());
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let edge = Edge {
        api: node.clone(),
        governance: governance.clone(),
        webhooks: governance.clone(),
        schedules: governance.clone(),
        registry: governance.clone(),
        feedback: Arc::new(FakeFeedback),
        pipelines: Arc::new(FakePipelines),
        identity: Arc::new(Claims),
        keys: Arc::new(ApiKeys::new(store, clock, Arc::new(RandomIds))),
        ids: Arc::new(RandomIds),
        tls,
        limits: ServeLimits {
            watches_max: WATCHES_MAX as usize,
            watch: WatchLimits { buffer: 2, stall },
            requests: None,
        },
        spans: None,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let watches = Arc::new(Semaphore::new(WATCHES_MAX as usize));
    let serving = tokio::spawn(serve_watched(listener, edge, watches.clone(), async {
        let _ = stopped.await;
    }));
    let channel =
        Endpoint::try_from(format!("http://{address}")).unwrap().initial_stream_window_size(65_535).connect_lazy();
    let client = RunServiceClient::new(channel.clone()).max_decoding_message_size(64 << 20);
    Fixture { node, governance, client, channel, address, watches, stop: Some(stop), serving }
}

/// A caller as a credential makes it.
fn caller(of: &str, actor: &str, role: Role) -> Caller {
    let actor = Actor { actor_id: ActorId::new(actor).unwrap(), role };
    Caller { tenant_id: tenant(of), actor, scopes: Vec::new(), surface: "api" }
}

fn run_id(n: u128) -> RunId {
    RunId::new(Uuid::from_u128(n))
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

/// A fixture that holds run 1 of tenant `acme`.
async fn with_a_run() -> Fixture {
    let fixture = fixture().await;
    hold_a_run(&fixture);
    fixture
}

fn hold_a_run(fixture: &Fixture) {
    fixture.node.hold(envelope(run_id(1), &tenant("acme"), RunStatus::Running));
}

fn as_role<T>(role: &'static str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("role", role.parse().unwrap());
    request
}

fn as_tenant<T>(tenant: &'static str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("tenant", tenant.parse().unwrap());
    request
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

fn field(status: &Status) -> String {
    status.get_details_bad_request().map(|bad| bad.field_violations[0].field.clone()).unwrap_or_default()
}
