//! One call of the model: what was admitted, how it was settled, and what its executor did.

use signalbox_domain::run::event::{CallPending, CallSettled};

pub(crate) struct CallModel {
    pub(crate) pending: CallPending,
    pub(crate) attempt: u32,
    pub(crate) settled: Option<CallSettled>,
    /// When it was last admitted, in milliseconds since the boot of the store's machine.
    pub(crate) admitted_at: u64,
    /// The attempts that an executor began.
    pub(crate) begun: Vec<u32>,
}
