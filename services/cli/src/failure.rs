//! How a command ends when it does not end well: a stable code, a sentence, and what to do next.

use std::fmt;
use std::process::ExitCode;

use signalbox_domain::redact::redact_text;
use signalbox_proto::client::connection_broke;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// The exit codes scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Refused or failed: 1.
    Failed,
    /// The command line, a file named on it, or the configuration makes no sense: 2.
    Usage,
    /// A run waits for somebody to decide: 3.
    Waiting,
    /// Whoever read the output has gone: 0, without a word.
    Quiet,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Waiting => 3,
            Exit::Quiet => 0,
        })
    }
}

/// A command that did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Stable code.
    pub(crate) code: String,
    /// In words.
    pub(crate) message: String,
    /// What to do next, if there is something.
    pub(crate) next: Option<String>,
    /// The exit code.
    pub(crate) exit: Exit,
}

impl Failure {
    /// Refused or failed.
    pub(crate) fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let code = code.into();
        Self { next: hint(&code).map(ToOwned::to_owned), code, message: message.into(), exit: Exit::Failed }
    }
    /// Makes no sense as it was asked for.
    pub(crate) fn usage(code: &str, message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(code, message) }
    }
    /// The same with something to do next.
    #[must_use]
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may repeat what was typed.
        write!(f, "error[{}]: {}", self.code, redact_text(&self.message))?;
        if let Some(next) = &self.next {
            write!(f, "\nnext: {next}")?;
        }
        Ok(())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Quiet, ..Self::new("output-closed", "the reader of the output has gone") };
        }
        Self::new("output-failed", format!("the output cannot be written: {error}"))
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let info = status.get_details_error_info();
        let code = match info {
            Some(info) if !info.reason.is_empty() => info.reason,
            Some(_) | None if status.code() == Code::Unavailable || connection_broke(&status) => {
                "server-unreachable".to_owned()
            }
            Some(_) | None => format!("grpc-{}", kebab(&format!("{:?}", status.code()))),
        };
        let mut failure = Self::new(code, status.message().to_owned());
        if let Some(delay) = status.get_details_retry_info().and_then(|retry| retry.retry_delay)
            && failure.next.is_none()
        {
            failure.next = Some(format!("try again in {} s", delay.as_secs().max(1)));
        }
        failure
    }
}

// What helps most often, by code. Where the command knows better, it says so itself.
fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "server-unreachable" => "start a server with `signalbox serve`, or name another with --addr",
        "tls-failed" => "see --ca, --client-cert and --client-key, and whether the server speaks TLS at all",
        "token-in-clear" => "use an https address; a token in clear is anybody's",
        "no-such-run" => "list the runs there are with `signalbox runs list`",
        "no-such-approval" => "list the open questions with `signalbox approvals list`",
        "approval-closed" => "see what became of it with `signalbox approvals show ID`",
        "approval-subject-changed" => "see what it is about now with `signalbox approvals show ID`",
        "not-an-approver" => "see who may answer with `signalbox approvals show ID`",
        "run-terminal" => "a run that has ended cannot be steered; see how it ended with `signalbox runs get ID`",
        "run_id_conflict" => "choose another --run-id, or leave it out",
        "data-folder-in-use" => "stop the other signalbox process that uses the folder, or choose another with --data",
        "store-schema-newer" => "it was written by a newer signalbox; use that version, or another --data or --store",
        "store-not-durable" => "turn fsync and full_page_writes on at the PostgreSQL server, and restart it",
        "identity-not-configured" => "listen on a loopback address, such as --listen 127.0.0.1:7420",
        "unauthenticated" => {
            "give a token or an API key with --token-file FILE, or in SIGNALBOX_TOKEN; the server's log says what was wrong"
        }
        "not-authorized" => "see what you may do with `signalbox whoami`",
        "jwks-unusable" => "see docs/identity.md for what a key set looks like",
        "no-such-key" => "list the keys there are with `signalbox keys list --all`",
        "sealing-key-missing" => "see [[sealingKeys]] in deploy/signalbox.example.toml",
        "listen-failed" => "choose another address with --listen, or stop whoever listens there",
        "agent_tools_not_configured" => "bind the tool to an executor under [[executors]] of the configuration file",
        "no-such-switch" => "list the switches there are with `signalbox switches list --all`",
        "switch-reach-missing" => "add --platform-wide, or --tenant TENANT",
        "no-such-budget" => "list the budgets in force with `signalbox budgets list`",
        "stale-revision" => "look at it again; somebody has changed it since you did",
        "page-token-invalid" => "start again at the first page, without --page-token",
        _ => return None,
    })
}

fn kebab(camel: &str) -> String {
    let mut text = String::new();
    for (i, c) in camel.chars().enumerate() {
        if c.is_ascii_uppercase() && i > 0 {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_failure_shows_its_code_and_what_to_do_next() {
        let failure = Failure::new("no-such-run", "there is no such run");
        assert_eq!(
            failure.to_string(),
            "error[no-such-run]: there is no such run\nnext: list the runs there are with `signalbox runs list`"
        );
        assert_eq!(Failure::new("odd", "odd").to_string(), "error[odd]: odd");
    }

    #[test]
    fn a_status_keeps_the_code_it_carries() {
        let details = ErrorDetails::with_error_info("run-terminal", "signalbox", std::collections::HashMap::new());
        let status = Status::with_error_details(Code::FailedPrecondition, "it is over", details);
        assert_eq!(Failure::from(status).code, "run-terminal");
        assert_eq!(Failure::from(Status::unavailable("x")).code, "server-unreachable");
        assert_eq!(Failure::from(Status::out_of_range("x")).code, "grpc-out-of-range");
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let gone = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(Failure::from(gone).exit, Exit::Quiet);
    }
}
