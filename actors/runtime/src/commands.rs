//! Commands from the inbox: read, decided by the rules, answered in the same append that carries what follows.

use serde::{Deserialize, Serialize};
use signalbox_domain::identity::Actor;
use signalbox_domain::ids::CommandId;
use signalbox_domain::run::append::{CommandAnswer, NewEvent};
use signalbox_domain::run::decide::{Context, RunCommand, decide};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::evolve::evolve;
use signalbox_domain::time::UnixMs;
use signalbox_ports::inbox::InboxCommand;

/// What lies in the inbox: a command, and who gave it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Order {
    /// The command.
    pub(crate) command: RunCommand,
    /// Who gives it.
    pub(crate) actor: Actor,
    /// What its credential allows, as far as the answer to a question depends on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scopes: Vec<String>,
    /// The last event the caller had seen, if it wants to be refused when there are newer ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expected_seq: Option<u64>,
}

/// Decides every waiting command in turn, each on the run as the ones before it left it.
pub(crate) fn decide_all(
    scratch: &mut RunEnvelope,
    commands: &[InboxCommand],
    now: UnixMs,
) -> (Vec<NewEvent>, Vec<(CommandId, CommandAnswer)>) {
    let (mut facts, mut answers) = (Vec::new(), Vec::new());
    for waiting in commands {
        let (events, answer) = decide_one(scratch, waiting, now);
        for new in &events {
            evolve(scratch, now.micros(), &new.event);
        }
        facts.extend(events);
        answers.push((waiting.command_id, CommandAnswer { seq: scratch.last_seq, ..answer }));
    }
    (facts, answers)
}

fn decide_one(run: &RunEnvelope, waiting: &InboxCommand, now: UnixMs) -> (Vec<NewEvent>, CommandAnswer) {
    let refused = |code: &str, message: String| {
        (Vec::new(), CommandAnswer { accepted: false, code: code.to_owned(), message, seq: 0 })
    };
    let order: Order = match serde_json::from_slice(&waiting.body) {
        Ok(order) => order,
        Err(error) => return refused("command-unreadable", format!("the command cannot be read: {error}")),
    };
    let context = Context { now, actor: order.actor, scopes: order.scopes, expected_seq: order.expected_seq };
    match decide(run, &order.command, &context) {
        Ok(events) => {
            let accepted = CommandAnswer { accepted: true, code: "ok".to_owned(), message: String::new(), seq: 0 };
            (events, accepted)
        }
        Err(denial) => refused(denial.code(), denial.to_string()),
    }
}
