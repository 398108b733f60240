//! What can go wrong on the way to a server and back.

use std::time::Duration;

use signalbox_tls::TlsError;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::connection_broke;

/// Why a request came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The address makes no sense.
    #[error("`{0}` is no address such as http://127.0.0.1:7420")]
    Address(String),
    /// A token or a tenant has characters that no header takes.
    #[error("the {0} has characters that no header takes")]
    Credential(&'static str),
    /// A token would have gone over the network in clear.
    #[error("the token would go to {0} in clear; use https")]
    TokenInClear(String),
    /// Nobody answered.
    #[error("nobody answers at {addr}: {why}")]
    Unreachable {
        /// Where.
        addr: String,
        /// In words.
        why: String,
    },
    /// The certificates that were named cannot be used.
    #[error(transparent)]
    Certificates(TlsError),
    /// Somebody answers, and no private connection comes about.
    #[error("{addr}: {problem}")]
    Tls {
        /// Where.
        addr: String,
        /// In words.
        problem: String,
    },
    /// The server answered something that makes no sense.
    #[error("the server sent {0}")]
    Answer(&'static str),
    /// The server said no.
    #[error("{code}: {message}")]
    Refused {
        /// Stable code, such as `run_id_conflict`; `server-unreachable` if the connection broke.
        code: String,
        /// In words.
        message: String,
        /// How long the server says to wait, if waiting helps.
        retry_after: Option<Duration>,
        /// The status as it came, with all its details.
        status: Box<Status>,
    },
}

impl ClientError {
    /// Stable code.
    pub fn code(&self) -> &str {
        match self {
            Self::Address(_) => "addr-invalid",
            Self::Credential(_) => "credential-invalid",
            Self::TokenInClear(_) => "token-in-clear",
            Self::Unreachable { .. } => "server-unreachable",
            Self::Certificates(problem) => problem.code(),
            Self::Tls { .. } => "tls-failed",
            Self::Answer(_) => "answer-invalid",
            Self::Refused { code, .. } => code,
        }
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        let reason = status.get_details_error_info().map(|info| info.reason).filter(|reason| !reason.is_empty());
        let code = match reason {
            Some(reason) => reason,
            None if status.code() == Code::Unavailable || connection_broke(&status) => "server-unreachable".to_owned(),
            None => format!("grpc-{}", kebab(status.code())),
        };
        let retry_after = status.get_details_retry_info().and_then(|retry| retry.retry_delay);
        Self::Refused { code, message: status.message().to_owned(), retry_after, status: Box::new(status) }
    }
}

fn kebab(code: Code) -> String {
    let mut text = String::new();
    for (i, c) in format!("{code:?}").chars().enumerate() {
        if c.is_ascii_uppercase() && i > 0 {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_refusal_keeps_the_code_it_carries() {
        let mut details = ErrorDetails::with_error_info("overloaded", "signalbox", HashMap::new());
        details.set_retry_info(Some(Duration::from_secs(3)));
        let status = Status::with_error_details(Code::Unavailable, "later", details);
        let error = ClientError::from(status);
        assert_eq!(error.code(), "overloaded");
        let ClientError::Refused { retry_after, .. } = error else { panic!("no refusal") };
        assert_eq!(retry_after, Some(Duration::from_secs(3)));
        assert_eq!(ClientError::from(Status::unavailable("x")).code(), "server-unreachable");
        assert_eq!(ClientError::from(Status::out_of_range("x")).code(), "grpc-out-of-range");
    }
}
