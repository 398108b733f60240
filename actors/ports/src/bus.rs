//! What nodes tell each other: a courtesy that makes things fast. A notice is never believed, only followed up by reading
//! the store; so it may be lost, come twice, come late, or be a lie, and nothing is wrong afterwards.

use async_trait::async_trait;
use signalbox_domain::ids::RunKey;

/// What may be worth a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The governance rules have reached this epoch.
    Governance(u64),
    /// Something lies in the inbox of a run: whoever holds it should look.
    Inbox(RunKey),
    /// The journal of a run has grown, or a command to it was answered.
    Moved(RunKey),
    /// Somebody follows a run at a node that does not hold it: whoever holds it should say when it moves.
    Watched(RunKey),
    /// Something may have been missed: everything is read anew. Said by a node's own end of the bus, after each time that it
    /// began to hear.
    Missed,
}

/// Whether a node can be told anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusStanding {
    /// There is no bus between processes: other nodes are found through the store.
    Local,
    /// Notices are heard.
    Connected,
    /// None are heard, for this reason; the way back is looked for without end.
    Cut(String),
}

/// One node's end of the bus.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Tells the other nodes. Never waits: what cannot be said is lost, which costs time and nothing else.
    fn announce(&self, notice: Notice);
    /// Waits for what another node has said, or for [`Notice::Missed`]. Whoever gives up waiting loses nothing.
    async fn next(&self) -> Notice;
    /// How the bus is.
    fn standing(&self) -> BusStanding {
        BusStanding::Local
    }
}
