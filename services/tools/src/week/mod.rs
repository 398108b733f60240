//! A week as calendar files and memory have it, and a draft of its review.
//!
//! `ics` reads iCalendar files, `recurrence` works out what comes back, `calendar` puts both into a span of days in a zone,
//! `review` drafts the review. Nothing is booked, sent or judged: the draft counts and lists, and asks.

mod calendar;
mod ics;
mod recurrence;
mod review;
pub(crate) mod tools;

pub use tools::read_of;
