//! The governance actor: the only writer of the node's view of switches, grants, bucket rules and budget figures.
//!
//! The hot path reads the published view without a message. The view may be a moment old; the append has the last word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use signalbox_domain::governance::budget::MeteredBudget;
use signalbox_domain::governance::cascade::is_within_slo;
use signalbox_domain::governance::change::{GovernanceChange, GovernanceState};
use signalbox_domain::ids::StoreIncarnation;
use signalbox_domain::time::UnixMs;
use signalbox_ports::clock::{BootInstant, Clock};
use signalbox_ports::governance::Governance;
use signalbox_ports::journal::StoreError;

/// How often the store's epoch is read whether or not the bus says anything.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// A view that could not be checked for this long is not current: nothing is dispatched under it.
const CURRENT_FOR_MS: u64 = 5_000;

/// What the gate reads.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Switches, grants and bucket rules, as of one epoch.
    pub(crate) state: Arc<GovernanceState>,
    /// Shared budgets and their last known figures: a forecast.
    pub(crate) budgets: Arc<Vec<MeteredBudget>>,
    /// How soon revocations were heard of.
    revocations: Revocations,
    /// When the epoch was last compared with the store's.
    checked: BootInstant,
    /// The store this node began with.
    incarnation: StoreIncarnation,
    /// True once the store was found to have forgotten something: all views of this node share it.
    rolled_back: Arc<AtomicBool>,
}

impl View {
    /// True if the store was asked recently enough, and has forgotten nothing that this node knows of.
    pub(crate) fn is_current(&self, now: BootInstant) -> bool {
        now.ms_since(self.checked) <= CURRENT_FOR_MS && !self.rolled_back.load(Ordering::Acquire)
    }

    /// When the epoch was last compared with the store's.
    pub(crate) const fn checked(&self) -> BootInstant {
        self.checked
    }

    /// From now on, and until the process is started again, this node admits nothing: the store has forgotten what it had
    /// acknowledged, as after a restored backup, and calls that were made may be missing from its journals.
    pub(crate) fn found_rolled_back(&self, problem: &str) {
        if !self.rolled_back.swap(true, Ordering::AcqRel) {
            tracing::error!(
                problem,
                "the store was rolled back; nothing is admitted any more. See which calls its journals lack, then start the node again"
            );
        }
    }

    /// What the store has forgotten, going by its incarnation and epoch.
    fn forgotten_by(&self, incarnation: StoreIncarnation, epoch: u64) -> Option<String> {
        if incarnation != self.incarnation {
            return Some(format!("it is incarnation {incarnation}, and was {}", self.incarnation));
        }
        let known = self.state.epoch;
        (epoch < known).then(|| format!("its governance is at epoch {epoch}, and was at {known}"))
    }
}

/// How soon a node has held its own calls against the revocations of grants that it read while it ran (GRA-013). A delay is
/// taken between the store's stamp and this node's clock: where those are two machines, it holds their difference too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revocations {
    /// How many there were.
    pub applied: u64,
    /// Those that took longer than five seconds: `grant_revocation_slo_miss_total`.
    pub slo_missed: u64,
    /// The longest delay, in milliseconds.
    pub slowest_ms: u64,
}

impl Revocations {
    fn note(&mut self, committed_at: UnixMs, now: UnixMs) {
        self.applied += 1;
        self.slowest_ms = self.slowest_ms.max(u64::try_from(now.since(committed_at)).unwrap_or(0));
        if !is_within_slo(committed_at, now) {
            self.slo_missed += 1;
            tracing::warn!(delay_ms = now.since(committed_at), "a revoked grant was heard of too late here");
        }
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct GovernanceHandle {
    actor: ActorRef<Msg>,
    view: Arc<ArcSwap<View>>,
}

impl GovernanceHandle {
    pub(crate) const fn new(actor: ActorRef<Msg>, view: Arc<ArcSwap<View>>) -> Self {
        Self { actor, view }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub(crate) fn revocations(&self) -> Revocations {
        self.view.load().revocations
    }

    /// Reads the store now and waits until the view is at least as new.
    pub(crate) async fn refresh(&self) {
        let _ = self.actor.call(Msg::Refresh, Some(Duration::from_secs(2))).await;
    }
}

pub(crate) enum Msg {
    Poll,
    Refresh(RpcReplyPort<()>),
}

pub(crate) struct GovernanceActor;

/// What follows from rules that have changed.
pub(crate) type Changed = Arc<dyn Fn(&Arc<GovernanceState>) + Send + Sync>;

pub(crate) struct Args {
    pub(crate) store: Arc<dyn Governance>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) changed: Changed,
}

/// The view a node starts with, read from the store before anything is admitted.
pub(crate) async fn first_view(store: &dyn Governance, clock: &dyn Clock) -> Result<View, StoreError> {
    let checked = clock.boot();
    let (incarnation, _) = store.epoch().await?;
    let state = Arc::new(GovernanceState::fold(store.changes(0).await?.iter()));
    let budgets = Arc::new(store.budgets().await?);
    let revocations = Revocations::default();
    Ok(View { state, budgets, revocations, checked, incarnation, rolled_back: Arc::default() })
}

impl Actor for GovernanceActor {
    type Msg = Msg;
    type State = Args;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<Args, ActorProcessingErr> {
        myself.send_interval(POLL_EVERY, || Msg::Poll);
        Ok(args)
    }

    async fn handle(&self, _: ActorRef<Msg>, message: Msg, state: &mut Args) -> Result<(), ActorProcessingErr> {
        if let Err(error) = refresh(state).await {
            tracing::warn!(%error, code = error.code(), "the governance rows cannot be read; nothing new is dispatched");
        }
        if let Msg::Refresh(reply) = message {
            let _ = reply.send(());
        }
        Ok(())
    }
}

async fn refresh(args: &Args) -> Result<(), StoreError> {
    let before = args.view.load_full();
    let checked = args.clock.boot();
    let (incarnation, epoch) = args.store.epoch().await?;
    if let Some(problem) = before.forgotten_by(incarnation, epoch) {
        before.found_rolled_back(&problem);
        return Ok(());
    }
    let (mut state, mut revocations) = (before.state.clone(), before.revocations);
    let moved = epoch != state.epoch;
    if moved {
        let next = Arc::make_mut(&mut state);
        for change in args.store.changes(next.epoch).await? {
            next.apply(&change);
            if let GovernanceChange::GrantRevoked { .. } = change.change {
                revocations.note(change.at_unix_ms, args.clock.now());
            }
        }
    }
    // After the changes: a budget that came into force with one of them must be among those that are reserved on, or calls
    // would be admitted past it at an epoch that knows of it (I4).
    let budgets = Arc::new(args.store.budgets().await?);
    args.view.store(Arc::new(View { state: state.clone(), budgets, revocations, checked, ..View::clone(&before) }));
    if moved {
        (args.changed)(&state);
    }
    Ok(())
}
