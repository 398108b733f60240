//! Whatever reaches a run from outside is a row first; messages are only pokes.

use async_trait::async_trait;
use signalbox_domain::ids::{CommandId, RunKey};
use signalbox_domain::run::append::CommandAnswer;

use crate::journal::StoreError;

/// Most bytes of one command.
pub const COMMAND_BYTES_MAX: usize = 1_024 * 1_024;

/// Most commands of class [`CommandClass::Other`] that may wait for one run. Control commands always get in.
pub const WAITING_COMMANDS_MAX: usize = 1_000;

/// How long an answer is kept, in milliseconds: saying a command twice within it returns the first answer.
pub const ANSWER_KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

/// Whether a command stops the next admission by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandClass {
    /// Pause, cancel, kill: counted in `control_seq` by the same transaction.
    Control,
    /// Everything else.
    Other,
}

/// A command as it lies in the inbox. The body is the JSON of a `RunCommand`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxCommand {
    /// Names it; delivering it twice is harmless.
    pub command_id: CommandId,
    /// Its class.
    pub class: CommandClass,
    /// The command, as JSON.
    pub body: Vec<u8>,
}

impl InboxCommand {
    /// Refuses a command no store takes.
    pub fn check_size(&self) -> Result<(), StoreError> {
        if self.body.len() > COMMAND_BYTES_MAX {
            return Err(StoreError::Poison(format!("a command may have at most {COMMAND_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// It waits for the run.
    Waiting,
    /// It was answered before.
    Answered(CommandAnswer),
    /// The same id was used for another command.
    Mismatch,
    /// There is no such run.
    NoSuchRun,
}

/// The inboxes of all runs.
#[async_trait]
pub trait Inbox: Send + Sync + 'static {
    /// Puts a command into a run's inbox, once. A command too big is [`StoreError::Poison`]; a full inbox is
    /// [`StoreError::Unavailable`].
    async fn deliver(&self, run: RunKey, command: InboxCommand) -> Result<Delivered, StoreError>;
    /// The same, and in the same transaction every live run below is told `below`, as a command of the same class: top-down,
    /// each run locked before its children are read, so that a child which is being begun is told too or is not begun
    /// (HND-015). Answers which those are; of a command that was there before, none is told again.
    async fn deliver_down(
        &self,
        run: RunKey,
        command: InboxCommand,
        below: Vec<u8>,
    ) -> Result<(Delivered, Vec<RunKey>), StoreError>;
    /// Commands without an answer, control first, then in order of arrival; and the run's `control_seq`, read together.
    async fn pending(&self, run: RunKey) -> Result<(Vec<InboxCommand>, u64), StoreError>;
    /// The answer to a command, once there is one.
    async fn answer(&self, run: RunKey, command: CommandId) -> Result<Option<CommandAnswer>, StoreError>;
}
