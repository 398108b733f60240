//! After a store was set back to an earlier state, such as a restored backup.
//!
//! What happened behind that state is forgotten, but it did happen: calls may have been made of which no journal knows. So
//! every run that is not over is held before anything goes on, and somebody looks at what its executors did. Until then a
//! node that knows more than the store does admits nothing (see the governance actor).

use signalbox_domain::identity::Actor;
use signalbox_domain::ids::{CommandId, StoreIncarnation};
use signalbox_domain::redact::redact_text;
use signalbox_domain::run::decide::RunCommand;
use signalbox_ports::inbox::{CommandClass, Inbox, InboxCommand};
use signalbox_ports::journal::StoreError;
use signalbox_ports::maintenance::Maintenance;

use crate::commands::Order;

/// What accepting a rollback did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollbackAccepted {
    /// The store's new incarnation: nodes that know the one before admit nothing any more, and are to be started again.
    pub incarnation: StoreIncarnation,
    /// How many runs were told to pause.
    pub held: u64,
}

/// Tells every run that is not closed to pause, and then gives the store another incarnation. To be done while no node uses
/// the store; doing it again after it broke off is harmless.
///
/// # Errors
/// The store could not be read or written. What was held by then stays held.
pub async fn accept_rollback(
    maintenance: &dyn Maintenance,
    inbox: &dyn Inbox,
    command_id: CommandId,
    actor: Actor,
    reason: &str,
) -> Result<RollbackAccepted, StoreError> {
    let command = RunCommand::Pause { reason: redact_text(reason).into_owned() };
    let order = Order { command, actor, scopes: Vec::new(), expected_seq: None };
    let body = serde_json::to_vec(&order).map_err(|error| StoreError::Poison(error.to_string()))?;
    let command = InboxCommand { command_id, class: CommandClass::Control, body };
    let (mut held, mut after) = (0, None);
    loop {
        let page = maintenance.live_runs(after).await?;
        let Some(last) = page.last().copied() else { break };
        for run in page {
            inbox.deliver(run, command.clone()).await?;
            held += 1;
        }
        after = Some(last);
    }
    Ok(RollbackAccepted { incarnation: maintenance.begin_incarnation().await?, held })
}
