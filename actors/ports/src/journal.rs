//! The durable history of every run: the only place where "it happened" is decided.

use async_trait::async_trait;
use signalbox_domain::ids::{RunId, RunKey, TenantId};
use signalbox_domain::run::append::{
    Accepted, AskAnswer, Entry, EntryRefusal, NewEvent, RunHead, RunProjection, SubRun, stamp,
};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::event::{RunEvent, RunSubmitted};
use signalbox_domain::time::UnixMicros;

use crate::clock::BootInstant;

/// Most events one `read` returns.
pub const READ_EVENTS_MAX: usize = 1_000;

/// Most bytes the body of one event may have. Bigger values belong in the object store.
pub const EVENT_BODY_BYTES_MAX: usize = 4 * 1_024 * 1_024;

/// Most events one entry may write.
pub const ENTRY_EVENTS_MAX: usize = 4_096;

/// Why the store could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, is full, or did not answer in time. Nothing was written. Waiting helps.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The answer to a commit was lost and could not be found out. The caller must reload.
    #[error("it is not known whether the write was committed: {0}")]
    Unknown(String),
    /// What is stored cannot be what was written.
    #[error("the journal of run {run} is corrupt at event {seq}: {problem}")]
    Corrupt {
        /// The run.
        run: RunKey,
        /// The event.
        seq: u64,
        /// What is wrong.
        problem: String,
    },
    /// The store refuses this entry for ever, for example because it is too large.
    #[error("the store refuses this entry: {0}")]
    Poison(String),
    /// The object store holds something else under this hash than what was put there.
    #[error("the value {sha256} in the object store is damaged")]
    BlobDamaged {
        /// Lower-case hex SHA-256 of what was put there.
        sha256: String,
    },
}

impl StoreError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "store-unavailable",
            Self::Unknown(_) => "store-outcome-unknown",
            Self::Corrupt { .. } => "journal-corrupt",
            Self::Poison(_) => "entry-refused-by-store",
            Self::BlobDamaged { .. } => "blob-damaged",
        }
    }
}

/// Why an append did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// By the rules.
    #[error(transparent)]
    Refused(#[from] EntryRefusal),
    /// By the machinery.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A run to be created.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// The internal key.
    pub run_key: RunKey,
    /// The public id.
    pub run_id: RunId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The first events; event 1 is `run-submitted`.
    pub events: Vec<NewEvent>,
    /// Dashboard columns.
    pub projection: RunProjection,
    /// The node that takes the run at once: a submitted run is born owned.
    pub owner: Option<signalbox_domain::ids::NodeIncarnation>,
}

impl From<&SubRun> for NewRun {
    /// A sub-run, queued like any run: whichever node is free takes it.
    fn from(sub_run: &SubRun) -> Self {
        Self {
            run_key: sub_run.run_key,
            run_id: sub_run.run_id,
            tenant_id: sub_run.tenant_id.clone(),
            events: sub_run.events.clone(),
            projection: sub_run.projection.clone(),
            owner: None,
        }
    }
}

impl NewRun {
    /// The run that this one was handed off from, if it is a child.
    pub fn parent(&self) -> Option<RunKey> {
        let parent = self.submitted().ok()?.handed_off.as_ref()?.parent.as_ref()?;
        Some(parent.run_key)
    }

    /// The submission in event 1, if it is this run's.
    pub fn submitted(&self) -> Result<&RunSubmitted, StoreError> {
        match self.events.first().map(|new| &new.event) {
            Some(RunEvent::RunSubmitted(submitted))
                if (submitted.run_key, submitted.run_id, &submitted.tenant_id)
                    == (self.run_key, self.run_id, &self.tenant_id) =>
            {
                Ok(submitted)
            }
            _ => Err(StoreError::Poison("the first event of a run is its own submission".into())),
        }
    }

    /// The row and the events a store writes for it: the same in every store.
    pub fn first_rows(&self, now: UnixMicros) -> Result<(RunHead, Vec<StoredEvent>), StoreError> {
        self.submitted()?;
        let mut head = RunHead {
            run_key: self.run_key,
            run_id: self.run_id,
            tenant_id: self.tenant_id.clone(),
            owner: self.owner,
            // Being born owned is the first claim.
            lease_epoch: u64::from(self.owner.is_some()),
            last_seq: 0,
            last_hash: EventHash::ZERO,
            last_at: now,
            control_seq: 0,
            inbox_len: 0,
            closed: self.projection.closed,
        };
        let events: Vec<_> = self.events.iter().map(|new| stamp(&mut head, now, new)).collect();
        check_events(&events)?;
        Ok((head, events))
    }
}

/// Refuses, in every store alike, what must not get into a journal: too many events for one entry, a body that is too
/// big, and an event that could not be read back, since one of those would end its run for ever. Answers what the events
/// say when they are read back, so that this is done once.
pub fn check_events(events: &[StoredEvent]) -> Result<Vec<RunEvent>, StoreError> {
    if events.len() > ENTRY_EVENTS_MAX {
        return Err(StoreError::Poison(format!("one entry may write at most {ENTRY_EVENTS_MAX} events")));
    }
    let read = events.iter().map(|event| {
        if event.body.len() > EVENT_BODY_BYTES_MAX {
            return Err(StoreError::Poison(format!(
                "event {} has a body of {} bytes; at most {EVENT_BODY_BYTES_MAX} are allowed",
                event.seq,
                event.body.len()
            )));
        }
        let unreadable =
            || StoreError::Poison(format!("event {} of kind `{}` cannot be read back", event.seq, event.kind));
        event.event().ok_or_else(unreadable)
    });
    read.collect()
}

/// What became of a creation.
#[derive(Debug, Clone, PartialEq)]
pub enum Created {
    /// The run is there now, with these events.
    New {
        /// The row.
        head: RunHead,
        /// What was written.
        events: Vec<StoredEvent>,
    },
    /// The tenant already has a run of this id; nothing was written.
    Exists(RunHead),
}

/// What an accepted append wrote.
#[derive(Debug)]
pub struct Appended {
    /// All events, in order.
    pub events: Vec<StoredEvent>,
    /// What each of them says, read back from its bytes.
    pub read_back: Vec<RunEvent>,
    /// The row after it.
    pub head: RunHead,
    /// One answer for each ask, in order; an admitted call comes as the proof that lets it be dispatched.
    pub asks: Vec<AskOutcome>,
}

/// What became of one ask.
#[derive(Debug)]
pub enum AskOutcome {
    /// Pending and durable.
    Admitted(Admitted),
    /// A refusal by the gate, written.
    Recorded,
    /// Not written.
    Refused(signalbox_domain::run::append::AskRefusal),
}

/// A call is handed to its executor within this long of the moment its append began, or not at all (I5).
pub const DISPATCH_WINDOW_MS: u64 = 2_000;

/// The proof that a call is pending in the journal and its reservation is held (I1, I2).
///
/// It cannot be copied, and only [`Appended::accept`] makes one. The function that reaches an executor consumes it.
#[derive(Debug)]
pub struct Admitted {
    event: RunEvent,
    seq: u64,
    run_key: RunKey,
    append_began: BootInstant,
}

impl Admitted {
    /// `CallPending` or `CallRedispatched`, as it was written.
    pub const fn event(&self) -> &RunEvent {
        &self.event
    }
    /// Its place in the journal.
    pub const fn seq(&self) -> u64 {
        self.seq
    }
    /// The run.
    pub const fn run_key(&self) -> RunKey {
        self.run_key
    }
    /// When its append began: a dispatch begins within two seconds of it or not at all (I5).
    pub const fn append_began(&self) -> BootInstant {
        self.append_began
    }
    /// The last instant at which the call may be handed to its executor, by this machine's own clock, which counts
    /// suspension (I5).
    pub const fn dispatch_ends(&self) -> BootInstant {
        BootInstant(self.append_began.0.saturating_add(DISPATCH_WINDOW_MS * 1_000_000))
    }
    /// False once the call must not begin any more (I5).
    pub const fn may_be_dispatched(&self, now: BootInstant) -> bool {
        now.0 <= self.dispatch_ends().0
    }
}

impl Appended {
    /// For implementations of [`Journal`] alone, after their transaction has committed.
    pub fn accept(mut accepted: Accepted, append_began: BootInstant) -> Self {
        let run_key = accepted.head.run_key;
        if accepted.read_back.len() != accepted.events.len() {
            // An event that cannot be read is not admitted below, and does not fold.
            accepted.read_back = accepted.events.iter().map_while(StoredEvent::event).collect();
        }
        let asks = accepted
            .answers
            .into_iter()
            .map(|answer| match answer {
                AskAnswer::Refused(refusal) => AskOutcome::Refused(refusal),
                AskAnswer::Recorded => AskOutcome::Recorded,
                AskAnswer::Admitted { seq } => {
                    let place = accepted.events.iter().position(|event| event.seq == seq);
                    match place.and_then(|place| accepted.read_back.get(place)).cloned() {
                        Some(event) => AskOutcome::Admitted(Admitted { event, seq, run_key, append_began }),
                        // Unreachable for an `Accepted` made by `judge`; refusing is the safe reading of anything else.
                        None => AskOutcome::Refused(signalbox_domain::run::append::AskRefusal::Commanded),
                    }
                }
            })
            .collect();
        Self { events: accepted.events, read_back: accepted.read_back, head: accepted.head, asks }
    }
}

/// The journal.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Creates a run with its first events, unless the tenant already has one of this id.
    async fn create(&self, run: NewRun) -> Result<Created, StoreError>;

    /// Writes a batch in one transaction; each entry is judged alone and answered in its place. One bad entry
    /// never takes another with it.
    async fn append(&self, batch: Vec<Entry>, append_began: BootInstant) -> Vec<Result<Appended, AppendError>>;

    /// Up to `limit` events after `after_seq`, oldest first.
    async fn read(&self, run: RunKey, after_seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError>;

    /// The row of a run.
    async fn head(&self, run: RunKey) -> Result<Option<RunHead>, StoreError>;

    /// The row of a run by its public id; a foreign tenant's run is as absent as one that does not exist (I11).
    async fn find(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError>;

    /// Keeps the folded state of a run at `seq`; replaces an older one.
    async fn put_snapshot(&self, run: RunKey, seq: u64, fold_version: u32, bytes: Vec<u8>) -> Result<(), StoreError>;

    /// The newest snapshot written by this fold version.
    async fn snapshot(&self, run: RunKey, fold_version: u32) -> Result<Option<(u64, Vec<u8>)>, StoreError>;
}
