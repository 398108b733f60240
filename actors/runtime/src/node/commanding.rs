//! Commands to runs: durable before anything is said to the run, and answered once.

use std::time::Duration;

use signalbox_domain::identity::{APPROVE_GUARDIAN, APPROVE_TEACHER};
use signalbox_domain::ids::{CommandId, RunId};
use signalbox_domain::run::append::{CommandAnswer, RunHead};
use signalbox_domain::run::decide::{self, RunCommand};
use signalbox_domain::run::plan::StepKind;
use signalbox_ports::inbox::{CommandClass, Delivered, InboxCommand, WAITING_COMMANDS_MAX};

use super::NodeHandle;
use crate::api::{ApiError, Caller};
use crate::commands::Order;
use crate::runs;

/// How long a caller waits for the answer to a command.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How often the inbox is looked at although nothing was announced. Of a run that another node may hold it is looked at soon
/// and then ever more seldom: the news of the answer may be lost.
const ANSWER_POLL: Duration = Duration::from_millis(250);
const ANSWER_POLL_ELSEWHERE: Duration = Duration::from_millis(20);

impl NodeHandle {
    /// Steers a run, whatever has happened to it meanwhile.
    pub async fn command(
        &self,
        caller: &Caller,
        run_id: RunId,
        command_id: CommandId,
        command: RunCommand,
    ) -> Result<CommandAnswer, ApiError> {
        self.command_at(caller, run_id, command_id, None, command).await
    }

    /// Steers a run, unless it has moved on from `expected_seq`. The command is durable before anything is said to the run;
    /// saying it twice is harmless.
    pub async fn command_at(
        &self,
        caller: &Caller,
        run_id: RunId,
        command_id: CommandId,
        expected_seq: Option<u64>,
        command: RunCommand,
    ) -> Result<CommandAnswer, ApiError> {
        let head = self.find(caller, run_id).await?;
        // The inbox keeps it.
        let command = command.redacted()?;
        let class = if command.stops() { CommandClass::Control } else { CommandClass::Other };
        // Pause, cancel and kill have a lane of their own that nothing else can fill (RUN-028).
        if class == CommandClass::Other && head.inbox_len >= WAITING_COMMANDS_MAX as u64 {
            return Err(ApiError::Overloaded { retry_after_ms: 1_000 });
        }
        let order = Order { scopes: scopes_for(caller, &command), command, actor: caller.actor.clone(), expected_seq };
        let body = serde_json::to_vec(&order).map_err(|error| ApiError::Internal(error.to_string()))?;
        let mut news = self.inner.shared.hub.subscribe(head.run_key);
        let delivered = self.deliver(&head, InboxCommand { command_id, class, body }, &order).await?;
        match delivered {
            Delivered::Waiting => {}
            Delivered::Answered(answer) => return judged(answer),
            Delivered::Mismatch => return Err(ApiError::CommandIdConflict(command_id.to_string())),
            Delivered::NoSuchRun => return Err(ApiError::NoSuchRun(run_id.to_string())),
        }
        if head.closed {
            return self.answer_closed(&head, &order).await;
        }
        let _ = self.inner.runs.cast(runs::Msg::Poke(head.run_key));
        // Another node may hold it by now, whatever was read before.
        self.inner.shared.elsewhere.commanded(head.run_key);
        let here = head.owner == Some(self.inner.node);
        let mut poll = if here { ANSWER_POLL } else { ANSWER_POLL_ELSEWHERE };
        let waiting = async {
            loop {
                if let Some(answer) = self.inner.shared.inbox.answer(head.run_key, command_id).await? {
                    return judged(answer);
                }
                // It came too late for the run's last pass: nobody else will answer it.
                if let Some(closed) = self.inner.shared.store.head(head.run_key).await?.filter(|head| head.closed) {
                    return match self.inner.shared.inbox.answer(head.run_key, command_id).await? {
                        Some(answer) => judged(answer),
                        None => self.answer_closed(&closed, &order).await,
                    };
                }
                // Whatever is announced, or nothing for a while: the inbox is looked at again.
                let _ = tokio::time::timeout(poll, news.recv()).await;
                poll = (poll * 2).min(ANSWER_POLL);
            }
        };
        match tokio::time::timeout(ANSWER_WITHIN, waiting).await {
            Ok(answer) => answer,
            // A run whose journal cannot be read answers nothing, ever: say so instead of asking for patience.
            Err(_) => self.envelope(&head).await.and(Err(ApiError::AnswerPending)),
        }
    }

    /// Puts a command into the inbox of a run, and what holds, ends or resumes it into the inbox of every live run below, in
    /// one transaction (HND-015). What the run would refuse reaches nobody else.
    async fn deliver(&self, head: &RunHead, command: InboxCommand, order: &Order) -> Result<Delivered, ApiError> {
        let shared = &self.inner.shared;
        let down = order.command.stops() || matches!(order.command, RunCommand::Resume { .. });
        if down && !head.closed {
            let run = self.envelope(head).await?;
            let context = decide::Context {
                now: shared.clock.now(),
                actor: order.actor.clone(),
                scopes: order.scopes.clone(),
                expected_seq: order.expected_seq,
            };
            let below = run.plan.steps.iter().any(|step| matches!(step.kind, StepKind::Agent { .. }));
            if below && decide::decide(&run, &order.command, &context).is_ok() {
                // Those below have moved on in their own way.
                let order = Order { expected_seq: None, ..order.clone() };
                let body = serde_json::to_vec(&order).map_err(|error| ApiError::Internal(error.to_string()))?;
                let (delivered, told) = shared.inbox.deliver_down(head.run_key, command, body).await?;
                for run in told {
                    let _ = self.inner.runs.cast(runs::Msg::Poke(run));
                    shared.elsewhere.commanded(run);
                }
                return Ok(delivered);
            }
        }
        Ok(shared.inbox.deliver(head.run_key, command).await?)
    }

    // A closed run has no actor and never changes: the rules answer without it.
    async fn answer_closed(&self, head: &RunHead, order: &Order) -> Result<CommandAnswer, ApiError> {
        let run = self.envelope(head).await?;
        let context = decide::Context {
            now: self.inner.shared.clock.now(),
            actor: order.actor.clone(),
            scopes: order.scopes.clone(),
            expected_seq: order.expected_seq,
        };
        match decide::decide(&run, &order.command, &context) {
            Err(denial) => Err(denial.into()),
            Ok(_) => Err(ApiError::Internal("a closed run accepted a command".to_owned())),
        }
    }
}

// No more of a credential than the answer depends on: the same command said with a fresher token is still the same.
fn scopes_for(caller: &Caller, command: &RunCommand) -> Vec<String> {
    if !matches!(command, RunCommand::DecideApproval { .. }) {
        return Vec::new();
    }
    [APPROVE_GUARDIAN, APPROVE_TEACHER].into_iter().filter(|s| caller.has_scope(s)).map(str::to_owned).collect()
}

fn judged(answer: CommandAnswer) -> Result<CommandAnswer, ApiError> {
    if answer.accepted {
        return Ok(answer);
    }
    Err(ApiError::DeniedBefore { code: answer.code, message: answer.message })
}
