//! What waits for a run.

use async_trait::async_trait;
use signalbox_domain::handoff::command_from_above;
use signalbox_domain::ids::{CommandId, RunKey};
use signalbox_domain::run::append::CommandAnswer;
use signalbox_domain::time::UnixMs;

use super::{InboxRow, MemoryStore, State};
use crate::inbox::{ANSWER_KEPT_MS, CommandClass, Delivered, Inbox, InboxCommand, WAITING_COMMANDS_MAX};
use crate::journal::StoreError;

#[async_trait]
impl Inbox for MemoryStore {
    async fn deliver(&self, run: RunKey, command: InboxCommand) -> Result<Delivered, StoreError> {
        let now = self.now().ms();
        self.state()?.deliver(run, command, now).map(|(delivered, _)| delivered)
    }

    async fn deliver_down(
        &self,
        run: RunKey,
        command: InboxCommand,
        below: Vec<u8>,
    ) -> Result<(Delivered, Vec<RunKey>), StoreError> {
        let now = self.now().ms();
        let mut state = self.state()?;
        let (command_id, class) = (command.command_id, command.class);
        let (delivered, is_new) = state.deliver(run, command, now)?;
        let told = if is_new { state.tell_below(run, command_id, class, &below) } else { Vec::new() };
        Ok((delivered, told))
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

impl State {
    /// Puts a command into the inbox of a run, and says whether it was not there before.
    fn deliver(&mut self, run: RunKey, command: InboxCommand, now: UnixMs) -> Result<(Delivered, bool), StoreError> {
        let Ok(run) = self.run_mut(run) else { return Ok((Delivered::NoSuchRun, false)) };
        run.inbox.retain(|row| row.is_kept(now));
        if let Some(row) = run.inbox.iter().find(|row| row.command.command_id == command.command_id) {
            return Ok((
                match &row.answer {
                    _ if row.command != command => Delivered::Mismatch,
                    Some((answer, _)) => Delivered::Answered(answer.clone()),
                    None => Delivered::Waiting,
                },
                false,
            ));
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
        Ok((Delivered::Waiting, true))
    }

    /// Tells every live run below one, top-down; answers which those are.
    pub(super) fn tell_below(
        &mut self,
        top: RunKey,
        above: CommandId,
        class: CommandClass,
        body: &[u8],
    ) -> Vec<RunKey> {
        let mut level = vec![top];
        let mut told = Vec::new();
        while !level.is_empty() {
            let below =
                |run: &&super::Run| run.parent.is_some_and(|parent| level.contains(&parent)) && !run.head.closed;
            level = self.runs.values().filter(below).map(|run| run.head.run_key).collect();
            for key in &level {
                let command = InboxCommand { command_id: command_from_above(*key, above), class, body: body.to_vec() };
                if let Ok(run) = self.run_mut(*key) {
                    run.tell_once(command);
                    told.push(*key);
                }
            }
        }
        told
    }
}

impl super::Run {
    /// A command of the runtime itself: it always gets in, once.
    pub(super) fn tell_once(&mut self, command: InboxCommand) {
        if self.inbox.iter().any(|row| row.command.command_id == command.command_id) {
            return;
        }
        self.head.control_seq += u64::from(command.class == CommandClass::Control);
        self.head.inbox_len += 1;
        self.inbox.push(InboxRow { command, answer: None });
    }
}
