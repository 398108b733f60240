//! What follows from an attempt: delivered, tried again later, or given up.

use crate::time::UnixMs;

/// The first wait is a random part of this, in milliseconds; each further one of twice as much.
pub const RETRY_FIRST_MS: u64 = 1_000;
/// The longest wait, in milliseconds: half an hour.
pub const RETRY_LONGEST_MS: u64 = 30 * 60 * 1_000;
/// So long after its first attempt a delivery is given up: a day, in milliseconds.
pub const DELIVERY_GIVES_UP_AFTER_MS: i64 = 24 * 60 * 60 * 1_000;
/// The longest `Retry-After` that is honoured, in seconds.
pub const RETRY_AFTER_SECONDS_MAX: u64 = 60 * 60;
/// Most bytes that are kept of why an attempt failed.
pub const PROBLEM_BYTES_MAX: usize = 256;

/// What an endpoint said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It answered.
    Status {
        /// The HTTP status.
        status: u16,
        /// When it wants to be asked again, in seconds.
        retry_after_seconds: Option<u64>,
    },
    /// It did not, or was not asked.
    Failed {
        /// Stable code.
        code: String,
        /// In words; names the host at most.
        message: String,
    },
}

impl Answer {
    /// True if it has taken the event.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Status { status: 200..=299, .. })
    }
    /// True if it never wants another (410).
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Status { status: 410, .. })
    }
    /// The HTTP status, if there was one.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Failed { .. } => None,
        }
    }
    /// What went wrong, in a word; `None` if nothing did.
    pub fn problem(&self) -> Option<String> {
        let problem = match self {
            Self::Status { status: 200..=299, .. } => return None,
            Self::Status { status: 300..=399, .. } => "redirects are not followed".to_owned(),
            Self::Status { status, .. } => format!("answered {status}"),
            Self::Failed { code, message } => format!("{code}: {message}"),
        };
        let mut end = problem.len().min(PROBLEM_BYTES_MAX);
        while !problem.is_char_boundary(end) {
            end -= 1;
        }
        Some(problem.get(..end).unwrap_or_default().to_owned())
    }
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is delivered.
    Delivered,
    /// It is tried again at this time.
    Retry(UnixMs),
    /// It is given up; somebody may have it sent again.
    Dead,
}

/// How long to wait before the attempt after `attempts` of them: a random part of a bound that doubles (full jitter). `random`
/// is any number.
pub const fn retry_delay_ms(attempts: u32, random: u64) -> u64 {
    let doublings = if attempts > 20 { 20 } else { attempts.saturating_sub(1) };
    let bound = RETRY_FIRST_MS << doublings;
    let bound = if bound > RETRY_LONGEST_MS { RETRY_LONGEST_MS } else { bound };
    random % (bound + 1)
}

/// What follows from the answer to attempt number `attempts`, of a delivery that was first tried at `first`.
pub fn judge_answer(answer: &Answer, attempts: u32, first: UnixMs, now: UnixMs, random: u64) -> Next {
    if answer.is_success() {
        return Next::Delivered;
    }
    // What is gone does not come back.
    if answer.is_gone() {
        return Next::Dead;
    }
    let asked = match answer {
        Answer::Status { retry_after_seconds: Some(seconds), .. } => {
            seconds.saturating_mul(1_000).min(RETRY_AFTER_SECONDS_MAX * 1_000)
        }
        Answer::Status { .. } | Answer::Failed { .. } => 0,
    };
    let wait = retry_delay_ms(attempts, random).max(asked);
    let at = now.plus_ms(i64::try_from(wait).unwrap_or(i64::MAX));
    if at.since(first) > DELIVERY_GIVES_UP_AFTER_MS { Next::Dead } else { Next::Retry(at) }
}
