//! What waits for a run.

use async_trait::async_trait;
use signalbox_domain::ids::{CommandId, RunKey};
use signalbox_domain::run::append::CommandAnswer;
use signalbox_domain::time::UnixMs;

use super::{InboxRow, MemoryStore};
use crate::inbox::{ANSWER_KEPT_MS, CommandClass, Delivered, Inbox, InboxCommand, WAITING_COMMANDS_MAX};
use crate::journal::StoreError;

#[async_trait]
impl Inbox for MemoryStore {
    async fn deliver(&self, run: RunKey, command: InboxCommand) -> Result<Delivered, StoreError> {
        let now = self.now().ms();
        let mut state = self.state()?;
        let Ok(run) = state.run_mut(run) else { return Ok(Delivered::NoSuchRun) };
        run.inbox.retain(|row| row.is_kept(now));
        if let Some(row) = run.inbox.iter().find(|row| row.command.command_id == command.command_id) {
            return Ok(match &row.answer {
                _ if row.command != command => Delivered::Mismatch,
                Some((answer, _)) => Delivered::Answered(answer.clone()),
                None => Delivered::Waiting,
            });
        }
        command.check_size()?;
        match command.class {
            CommandClass::Control => run.head.control_seq += 1,
            CommandClass::Other if run.head.inbox_len >= WAITING_COMMANDS_MAX as u64 => {
                return Err(StoreError::Unavailable("too many commands wait for this run".into()));
            }
            CommandClass::Other => {}
        }
        run.head.inbox_len += 1;
        run.inbox.push(InboxRow { command, answer: None });
        Ok(Delivered::Waiting)
    }

    async fn pending(&self, run: RunKey) -> Result<(Vec<InboxCommand>, u64), StoreError> {
        let state = self.state()?;
        let Some(run) = state.runs.get(&run) else { return Ok((Vec::new(), 0)) };
        let mut commands: Vec<_> = run.waiting().map(|row| row.command.clone()).collect();
        // The sort is stable: within a class the order of arrival stays.
        commands.sort_by_key(|command| command.class != CommandClass::Control);
        Ok((commands, run.head.control_seq))
    }

    async fn answer(&self, run: RunKey, command: CommandId) -> Result<Option<CommandAnswer>, StoreError> {
        let now = self.now().ms();
        let state = self.state()?;
        let mut rows = state.runs.get(&run).into_iter().flat_map(|run| &run.inbox).filter(|row| row.is_kept(now));
        let row = rows.find(|row| row.command.command_id == command);
        Ok(row.and_then(|row| row.answer.as_ref()).map(|(answer, _)| answer.clone()))
    }
}

impl InboxRow {
    fn is_kept(&self, now: UnixMs) -> bool {
        self.answer.as_ref().is_none_or(|(_, answered)| now.since(*answered) < ANSWER_KEPT_MS)
    }
}
