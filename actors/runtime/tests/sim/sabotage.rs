//! Known faults, put in on purpose. Each takes away one protection that the store or the way to the executors gives, and
//! the schedules must notice: a check that finds nothing wrong shows nothing.

use std::collections::BTreeSet;

use signalbox_domain::ids::CallId;
use signalbox_domain::run::append::{Entry, RunHead};

/// What is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// The append does not look at the lease epoch: whoever comes with the right sequence number writes (I10).
    FencingSkipped,
    /// The append does not look at what governance has changed since the writer looked (I5).
    EpochIgnored,
    /// The append does not look for a pause, cancel or kill that the writer has not seen.
    ControlsIgnored,
    /// The client sends a call again whose outcome is not known, also one that must be sent at most once.
    UnknownSentAgain,
    /// The client sends a call however old its admission is (I5).
    StaleDispatched,
    /// Whoever settles a call after a crash forgets what it held on shared meters (I4).
    ReservationForgotten,
    /// An admission holds nothing on shared meters (I4).
    NothingReserved,
    /// A claim does not wait for the owner's lease to run out (I10).
    LeaseNotWaitedFor,
    /// Now and then the store forgets what it said was kept (I9).
    WriteForgotten,
    /// A run is found by whoever knows its id (I11).
    TenantNotAsked,
}

impl Sabotage {
    pub(crate) const ALL: [Self; 10] = [
        Self::FencingSkipped,
        Self::EpochIgnored,
        Self::ControlsIgnored,
        Self::UnknownSentAgain,
        Self::StaleDispatched,
        Self::ReservationForgotten,
        Self::NothingReserved,
        Self::LeaseNotWaitedFor,
        Self::WriteForgotten,
        Self::TenantNotAsked,
    ];

    /// The promise that is broken first, or one of them.
    pub(crate) const fn breaks(self) -> &'static [&'static str] {
        match self {
            Self::FencingSkipped | Self::LeaseNotWaitedFor => &["I10"],
            Self::EpochIgnored => &["I5", "grant", "I4"],
            Self::ControlsIgnored => &["control"],
            Self::UnknownSentAgain => &["I1", "at-most-once"],
            Self::StaleDispatched => &["I5"],
            Self::ReservationForgotten | Self::NothingReserved => &["I4"],
            Self::WriteForgotten => &["I9"],
            Self::TenantNotAsked => &["I11"],
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sabotage| format!("{sabotage:?}").eq_ignore_ascii_case(text))
    }

    /// The entry as a store would judge it that lacks the protection. `own` are the calls this process has asked for.
    pub(crate) fn tampers(self, entry: &mut Entry, head: Option<&RunHead>, epoch: u64, own: &BTreeSet<CallId>) {
        match self {
            Self::FencingSkipped => entry.lease_epoch = head.map_or(entry.lease_epoch, |head| head.lease_epoch),
            Self::EpochIgnored => entry.governance_epoch = epoch,
            Self::ControlsIgnored => entry.control_seq = head.map_or(entry.control_seq, |head| head.control_seq),
            Self::ReservationForgotten => entry.releases.retain(|release| own.contains(&release.call_id)),
            Self::NothingReserved => {
                for new in entry.asks.iter_mut().flat_map(|ask| &mut ask.events) {
                    if let signalbox_domain::run::event::RunEvent::CallPending(pending) = &mut new.event {
                        pending.reservations.clear();
                    }
                }
            }
            Self::UnknownSentAgain
            | Self::StaleDispatched
            | Self::LeaseNotWaitedFor
            | Self::WriteForgotten
            | Self::TenantNotAsked => {}
        }
    }
}
