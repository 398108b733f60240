//! One node: the tree of actors, the order of starting and draining, and the handle the edges hold.

mod agents;
mod approving;
mod auditing;
mod budgeting;
mod claiming;
mod commanding;
mod compliance;
mod dashboard;
mod executors;
mod feedback;
mod forking;
mod governing;
mod granting;
mod keys;
mod pipelines;
mod rollouts;
mod routing;
mod scheduling;
mod sealing;
mod standing;
mod submitting;
mod throttling;
mod webhooks;

pub use agents::AgentStanding;
pub use budgeting::{BudgetForecast, BudgetHistory, BudgetStanding, PutBudget};
pub use governing::{ArmedSwitch, DisarmedSwitch, Forecast, SweptNode, SwitchEffect, SwitchStanding};
pub use granting::{GrantFilter, GrantStanding, RevokedGrant};
pub use keys::AuditedKeys;
pub use pipelines::{Fired, PipelineStanding};
pub use rollouts::{RolloutStanding, RolloutStep};
pub use scheduling::ScheduleStanding;
pub(crate) use scheduling::key_of;
pub use standing::NodeStanding;
pub use throttling::{SetThrottle, ThrottleStanding};
pub use webhooks::{Pinged, WebhookStanding};

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::governance::switching::SecondIdentity;
use signalbox_domain::identity::{self, Action, Reach, Visibility};
use signalbox_domain::ids::{NodeIncarnation, RunId, RunKey, TenantId};
use signalbox_domain::invocation::{InvocationPolicies, TonePolicy};
use signalbox_domain::run::advance::projection;
use signalbox_domain::run::append::{NewEvent, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{RunEvent, RunSubmitted};
use signalbox_domain::run::evolve::{evolve, fold, submitted_run};
use signalbox_domain::run::replay::{At, reconstruct_state_at};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_ports::acts::Acts;
use signalbox_ports::blobs::Blobs;
use signalbox_ports::bus::{Bus, BusStanding};
use signalbox_ports::clock::{Clock, Ids};
use signalbox_ports::directory::Directory;
use signalbox_ports::feedback::Feedback;
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::Inbox;
use signalbox_ports::journal::{Created, Journal, NewRun, StoreError};
use signalbox_ports::leases::Leases;
use signalbox_ports::models::Models;
use signalbox_ports::schedules::Schedules;
use signalbox_ports::sealing::Sealing;
use signalbox_ports::secrets::Secrets;
use signalbox_ports::tools::Tools;
use signalbox_ports::trace::carried;
use signalbox_ports::webhooks::{Courier, Deliveries};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::api::{ApiError, Caller, WatchItem, reading};
use crate::buckets::{Buckets, BucketsHandle, Tell};
use crate::elsewhere::Elsewhere;
use crate::feeds::Feeds;
use crate::flights::Flights;
use crate::governance::{self, GovernanceActor, GovernanceHandle};
use crate::hearing::{self, Hearing};
use crate::inboxes::Inboxes;
use crate::journal::JournalHandle;
use crate::leases::{self, Lease, LeasesActor};
use crate::load::{history, load};
use crate::progress::ProgressHub;
use crate::run::Shared;
use crate::runs::{self, Runs};
use crate::schedules::SchedulesActor;
use crate::sweeps::{self, SweepsActor};
use crate::swept::{self, SweptActor};
use crate::telling::Tellers;
use crate::tone::ToneHook;
use crate::top_ups::TopUpsActor;
use crate::turns::WithModels;
use crate::watching::follow;
use crate::webhooks::WebhooksActor;

/// Active runs a node takes on unless its configuration says otherwise.
pub(crate) const RUNS_ACTIVE_DEFAULT: usize = 10_000;
/// Items that may wait for a slow watcher before its reading is slowed down.
const WATCH_WAITING_MAX: usize = 64;
/// Longest time shutting down may take, beyond what calls in flight are given.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// What a node is built on.
#[derive(Clone)]
pub struct Ports {
    /// The journal.
    pub journal: Arc<dyn Journal>,
    /// Lists.
    pub directory: Arc<dyn Directory>,
    /// Inboxes.
    pub inbox: Arc<dyn Inbox>,
    /// Leases.
    pub leases: Arc<dyn Leases>,
    /// Governance rows.
    pub governance: Arc<dyn Governance>,
    /// Acts of management and the audit journal.
    pub acts: Arc<dyn Acts>,
    /// Deliveries of webhooks.
    pub deliveries: Arc<dyn Deliveries>,
    /// Sends them.
    pub courier: Arc<dyn Courier>,
    /// Feedback on runs, and gold sets.
    pub feedback: Arc<dyn Feedback>,
    /// Fires of schedules.
    pub schedules: Arc<dyn Schedules>,
    /// The object store.
    pub blobs: Arc<dyn Blobs>,
    /// The bus.
    pub bus: Arc<dyn Bus>,
    /// The executors.
    pub tools: Arc<dyn Tools>,
    /// The models.
    pub models: Arc<dyn Models>,
    /// Secrets.
    pub secrets: Arc<dyn Secrets>,
    /// Seals.
    pub sealing: Arc<dyn Sealing>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Fresh ids.
    pub ids: Arc<dyn Ids>,
}

/// What a node may be told.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// A name for people; need not be unique.
    pub name: String,
    /// Most active runs; beyond it submissions are answered with `overloaded`.
    pub runs_active_max: usize,
    /// Hosts that may lie inside private networks, by the operator's configuration.
    pub exempt: Vec<HostExemption>,
    /// Hosts inside private networks that webhooks may reach, by the operator's configuration.
    pub webhook_exempt: Vec<HostExemption>,
    /// Scopes whose switches two identities must disarm.
    pub second_identity: SecondIdentity,
    /// What tenants allow of invocations, by the operator's configuration.
    pub invocations: InvocationPolicies,
    /// Judges text for customers and creators instead of the phrases that tenants have configured (INV-008).
    pub tone: Option<Arc<dyn TonePolicy>>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: "node".to_owned(),
            runs_active_max: RUNS_ACTIVE_DEFAULT,
            exempt: Vec::new(),
            webhook_exempt: Vec::new(),
            second_identity: SecondIdentity::default(),
            invocations: InvocationPolicies::default(),
            tone: None,
        }
    }
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be read.
    #[error("the governance rows cannot be read")]
    Governance(#[source] StoreError),
    /// The lease was not given.
    #[error("the node's lease cannot be taken")]
    Lease(#[source] StoreError),
    /// An actor did not start.
    #[error("the actor `{0}` did not start: {1}")]
    Actor(&'static str, String),
}

impl StartError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Governance(_) | Self::Lease(_) => "store-unavailable",
            Self::Actor(..) => "internal",
        }
    }
}

/// The root of the tree: if one of its parts fails for good, the node stops, and another process takes over.
#[derive(Debug)]
pub struct Node;

#[doc(hidden)]
#[derive(Debug)]
pub enum Msg {
    Stop,
}

impl Actor for Node {
    type Msg = Msg;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Msg>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Msg>, _: Msg, (): &mut ()) -> Result<(), ActorProcessingErr> {
        myself.stop(None);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Msg>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(cell, error) = event {
            // Its handles are everywhere; starting over from the journal is what every part of the system is built for.
            tracing::error!(actor = ?cell.get_name(), %error, "a part of the node failed; the node stops");
            myself.stop(Some("a part of the node failed".to_owned()));
        }
        Ok(())
    }
}

/// Who is told when the rules have changed; they start after whoever tells them.
type Followers = (ActorRef<runs::Msg>, ActorRef<swept::Msg>);

impl Node {
    /// Starts the tree: lease, governance view, journal, runs, and then the claims that bring runs back.
    pub async fn start(config: NodeConfig, ports: Ports) -> Result<(NodeHandle, JoinHandle<()>), StartError> {
        let node = NodeIncarnation::new(ports.ids.fresh());
        let lease = Lease::asked_at(ports.clock.boot());
        ports.leases.renew(node, &config.name).await.map_err(StartError::Lease)?;
        let view = governance::first_view(ports.governance.as_ref(), ports.clock.as_ref())
            .await
            .map_err(StartError::Governance)?;
        let view = Arc::new(ArcSwap::from_pointee(view));
        let (root, join) =
            Actor::spawn(None, Self, ()).await.map_err(|error| StartError::Actor("node", error.to_string()))?;
        let cell = root.get_cell();

        let moved: Arc<ArcSwap<Option<Followers>>> = Arc::new(ArcSwap::from_pointee(None));
        let turns = moved.clone();
        let turn: Tell = Arc::new(move |run_key, call_id| {
            if let Some((runs, _)) = turns.load().as_ref() {
                let _ = runs.cast(runs::Msg::Turn(run_key, call_id));
            }
        });
        let bucket_args = (ports.clock.clone(), view.load().state.clone(), turn);
        let buckets = BucketsHandle::new(spawn("throttles", Buckets, bucket_args, cell.clone()).await?);
        let (tell, throttles, tools) = (moved.clone(), buckets.clone(), ports.tools.clone());
        tools.follow(&view.load().state.executors);
        let governance_args = governance::Args {
            store: ports.governance.clone(),
            clock: ports.clock.clone(),
            view: view.clone(),
            changed: Arc::new(move |state| {
                throttles.rules(state.clone());
                tools.follow(&state.executors);
                if let Some((runs, swept)) = tell.load().as_ref() {
                    let _ = runs.cast(runs::Msg::GovernanceMoved);
                    let _ = swept.cast(swept::Msg::Moved);
                }
            }),
        };
        let governance = spawn("governance", GovernanceActor, governance_args, cell.clone()).await?;
        let shared = Arc::new(Shared {
            node,
            store: ports.journal.clone(),
            inbox: ports.inbox.clone(),
            blobs: ports.blobs.clone(),
            tools: Arc::new(WithModels {
                tools: ports.tools.clone(),
                models: ports.models.clone(),
                clock: ports.clock.clone(),
            }),
            models: ports.models.clone(),
            secrets: ports.secrets.clone(),
            sealing: ports.sealing.clone(),
            clock: ports.clock.clone(),
            journal: JournalHandle::new(ports.journal.clone(), ports.clock.clone()),
            governance: GovernanceHandle::new(governance, view),
            buckets,
            hub: ProgressHub::default(),
            elsewhere: Elsewhere::new(ports.bus.clone(), ports.clock.clone()),
            lease: lease.clone(),
            flights: Flights::default(),
            exempt: config.exempt.clone(),
            tone: ToneHook::new(&config.invocations, config.tone.clone()),
        });
        let active = Arc::new(AtomicUsize::new(0));
        let runs_args = runs::Args { shared: shared.clone(), leases: ports.leases.clone(), active: active.clone() };
        let runs = spawn("runs", Runs, runs_args, cell.clone()).await?;
        let swept_args = swept::Args {
            store: ports.leases.clone(),
            node,
            governance: shared.governance.clone(),
            runs: runs.clone(),
        };
        let swept = spawn("swept", SweptActor, swept_args, cell.clone()).await?;
        moved.store(Arc::new(Some((runs.clone(), swept))));
        let lease_args = (ports.leases.clone(), ports.clock.clone(), node, config.name.clone(), runs.clone(), lease);
        let leases = spawn("leases", LeasesActor, lease_args, cell.clone()).await?;
        let sweeps = spawn("sweeps", SweepsActor, (ports.leases.clone(), leases.clone()), cell.clone()).await?;
        let inboxes = spawn("inboxes", Inboxes, (ports.leases.clone(), node, runs.clone()), cell.clone()).await?;
        let hearing_args = hearing::Args {
            bus: ports.bus.clone(),
            governance: shared.governance.clone(),
            runs: runs.clone(),
            inboxes,
            hub: shared.hub.clone(),
            elsewhere: shared.elsewhere.clone(),
        };
        spawn("hearing", Hearing, hearing_args, cell.clone()).await?;
        let feeds = Feeds::new(shared.hub.clone(), shared.elsewhere.clone(), ports.journal.clone(), node);
        let handle = NodeHandle {
            inner: Arc::new(Inner {
                shared,
                feeds,
                ports,
                config,
                node,
                active,
                runs,
                leases,
                sweeps,
                root,
                tellers: Tellers::default(),
                draining: AtomicBool::new(false),
                webhooks: OnceLock::new(),
                schedules: OnceLock::new(),
            }),
        };
        spawn("top-ups", TopUpsActor, handle.clone(), cell.clone()).await?;
        let webhooks = spawn("webhooks", WebhooksActor, handle.clone(), cell.clone()).await?;
        let schedules = spawn("schedules", SchedulesActor, handle.clone(), cell).await?;
        // Nobody else has the handle yet, so nobody has set them.
        let _ = (handle.inner.webhooks.set(webhooks), handle.inner.schedules.set(schedules));
        Ok((handle, join))
    }
}

async fn spawn<A: Actor>(
    name: &'static str,
    actor: A,
    args: A::Arguments,
    parent: ActorCell,
) -> Result<ActorRef<A::Msg>, StartError> {
    match Actor::spawn_linked(None, actor, args, parent).await {
        Ok((actor, _)) => Ok(actor),
        Err(error) => Err(StartError::Actor(name, error.to_string())),
    }
}

/// The way to a node: cheap to clone, safe to share.
#[derive(Clone)]
pub struct NodeHandle {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    feeds: Feeds,
    ports: Ports,
    config: NodeConfig,
    node: NodeIncarnation,
    active: Arc<AtomicUsize>,
    runs: ActorRef<runs::Msg>,
    leases: ActorRef<leases::Msg>,
    sweeps: ActorRef<sweeps::Msg>,
    root: ActorRef<Msg>,
    tellers: Tellers,
    draining: AtomicBool,
    webhooks: OnceLock<ActorRef<crate::webhooks::Msg>>,
    schedules: OnceLock<ActorRef<crate::schedules::Msg>>,
}

impl std::fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeHandle").field("node", &self.inner.node).finish_non_exhaustive()
    }
}

impl NodeHandle {
    fn check_room(&self) -> Result<(), ApiError> {
        if self.inner.draining.load(Ordering::Relaxed) {
            return Err(ApiError::Draining);
        }
        if self.inner.active.load(Ordering::Relaxed) >= self.inner.config.runs_active_max {
            return Err(ApiError::Overloaded { retry_after_ms: 1_000 });
        }
        Ok(())
    }

    /// Creates a run with its submission and what goes with it, and takes it up; with the status it begins in.
    async fn create(
        &self,
        caller: &Caller,
        submitted: RunSubmitted,
        with: Vec<NewEvent>,
        now: UnixMs,
    ) -> Result<(Created, RunStatus), ApiError> {
        let mut envelope = submitted_run(&submitted, now.micros());
        for new in &with {
            evolve(&mut envelope, now.micros(), &new.event);
        }
        let (run_key, run_id, tenant_id) = (submitted.run_key, submitted.run_id, submitted.tenant_id.clone());
        let first = NewEvent::by(caller.actor.clone(), RunEvent::RunSubmitted(Box::new(submitted)));
        let new = NewRun {
            run_key,
            run_id,
            tenant_id,
            events: std::iter::once(first).chain(with).collect(),
            projection: projection(&envelope),
            owner: Some(self.inner.node),
        };
        // In a task of its own: whoever asked may hang up, and a run that is in the store must still be taken up.
        let node = self.clone();
        let created = tokio::spawn(carried(async move { node.create_and_own(new).await })).await;
        let created = created.map_err(|error| ApiError::Internal(format!("creating the run failed: {error}")))??;
        Ok((created, envelope.status))
    }

    async fn create_and_own(&self, new: NewRun) -> Result<Created, StoreError> {
        let run_key = new.run_key;
        let created = self.inner.shared.store.create(new).await;
        match &created {
            Ok(Created::New { head, events }) => {
                let head = Box::new(head.clone());
                let _ = self.inner.runs.cast(match fold(events) {
                    Ok(run) => runs::Msg::Born(head, Box::new(run)),
                    // Reading it says what is wrong.
                    Err(_) => runs::Msg::Own(head),
                });
            }
            // It may be there, and then it is this node's, and nobody else's while this one lives.
            Err(StoreError::Unknown(_)) => {
                let _ = self.inner.runs.cast(runs::Msg::Poke(run_key));
            }
            Ok(Created::Exists(_)) | Err(_) => {}
        }
        created
    }

    /// One run as it stands.
    pub async fn get(&self, caller: &Caller, run_id: RunId) -> Result<RunEnvelope, ApiError> {
        let (_, mut run) = self.find_whole(caller, run_id).await?;
        run.status = run.status_at(self.inner.shared.clock.now());
        Ok(run)
    }

    /// The run's events after a cursor, then each new one as it happens. Ends after the run is closed.
    pub async fn watch(
        &self,
        caller: &Caller,
        run_id: RunId,
        after_seq: u64,
    ) -> Result<mpsc::Receiver<Result<WatchItem, ApiError>>, ApiError> {
        let head = self.find(caller, run_id).await?;
        if after_seq > head.last_seq {
            return Err(ApiError::CursorUnknown { after_seq, last_seq: head.last_seq });
        }
        let (items, receiver) = mpsc::channel(WATCH_WAITING_MAX);
        let feeds = self.inner.feeds.clone();
        // Seated before the first reading: what happens in between is sent, or read, but never missed.
        let seat = feeds.sit(head.run_key);
        tokio::spawn(async move {
            if let Err(error) = follow(&feeds, head.run_key, after_seq, seat, &items).await {
                let _ = items.send(Err(error)).await;
            }
        });
        if caller.actor.role.sees() == Visibility::Customer {
            return Ok(self.inner.tellers.tell(self.inner.shared.store.clone(), head.run_key, receiver));
        }
        Ok(receiver)
    }

    /// The run as it stood after an event. Nothing is executed.
    pub async fn replay(&self, caller: &Caller, run_id: RunId, at_seq: u64) -> Result<RunEnvelope, ApiError> {
        let head = self.find(caller, run_id).await?;
        let events = history(self.inner.shared.store.as_ref(), head.run_key).await;
        let events = events.map_err(|error| reading(head.run_id, error))?;
        Ok(reconstruct_state_at(&events, At::Seq(at_seq))?)
    }

    /// The whole journal of a run, with what is hashed beside the events.
    pub async fn export(
        &self,
        caller: &Caller,
        run_id: RunId,
    ) -> Result<(TenantId, RunKey, Vec<StoredEvent>), ApiError> {
        let head = self.find(caller, run_id).await?;
        let events = history(self.inner.shared.store.as_ref(), head.run_key).await;
        let events = events.map_err(|error| reading(head.run_id, error))?;
        Ok((head.tenant_id, head.run_key, events))
    }

    /// True while the node takes runs: it holds its lease, which it can renew only at a store that answers, and is not
    /// shutting down.
    pub fn is_ready(&self) -> bool {
        let draining = self.inner.draining.load(Ordering::Relaxed);
        !draining && self.inner.shared.lease.is_held(self.inner.shared.clock.boot())
    }

    /// How the bus to the other nodes is. A node takes runs without one, and everything it promises holds.
    pub fn bus(&self) -> BusStanding {
        self.inner.ports.bus.standing()
    }

    /// Stops taking runs, gives calls in flight 20 seconds, and ends the node as a crash would, only politely (RUN-030).
    pub async fn drain(&self) {
        if self.inner.draining.swap(true, Ordering::Relaxed) {
            return;
        }
        let _ = self.inner.leases.cast(leases::Msg::Drain);
        let _ = self.inner.runs.call(runs::Msg::Drain, Some(STOP_WITHIN)).await;
        if let Err(error) = self.inner.ports.leases.release(self.inner.node).await {
            tracing::warn!(%error, "the lease could not be given back; it runs out by itself");
        }
        let _ = self.inner.root.cast(Msg::Stop);
    }

    /// Ends the node as a crash would: nothing is finished, nothing is given back. For tests of recovery.
    #[doc(hidden)]
    pub async fn abandon(&self) {
        let _ = self.inner.root.get_cell().kill_and_wait(Some(STOP_WITHIN)).await;
    }

    // A foreign run, and one that the caller may not see, is as absent as one that does not exist (I11).
    async fn find(&self, caller: &Caller, run_id: RunId) -> Result<RunHead, ApiError> {
        if identity::reach(caller.actor.role, Action::ReadRuns) >= Reach::Tenant {
            return self.find_any(caller, run_id).await;
        }
        Ok(self.find_whole(caller, run_id).await?.0)
    }

    /// The same, with the run as it stands.
    async fn find_whole(&self, caller: &Caller, run_id: RunId) -> Result<(RunHead, RunEnvelope), ApiError> {
        let head = self.find_any(caller, run_id).await?;
        let run = self.envelope(&head).await?;
        if identity::may_see(caller, &run) { Ok((head, run)) } else { Err(ApiError::NoSuchRun(run_id.to_string())) }
    }

    async fn find_any(&self, caller: &Caller, run_id: RunId) -> Result<RunHead, ApiError> {
        let head = self.inner.shared.store.find(&caller.tenant_id, run_id).await?;
        head.ok_or_else(|| ApiError::NoSuchRun(run_id.to_string()))
    }

    async fn envelope(&self, head: &RunHead) -> Result<RunEnvelope, ApiError> {
        let run = load(self.inner.shared.store.as_ref(), head.run_key).await;
        run.map_err(|error| reading(head.run_id, error))?
            .ok_or_else(|| ApiError::Internal(format!("run {} has no events", head.run_id)))
    }
}
