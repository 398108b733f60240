//! Learning from one's own material: an edition becomes a study guide, a set of texts becomes a course.
//!
//! Extractive like the briefing: key points and definitions are the material's own sentences with their places, and what is
//! written around them is counted or made from its headings and terms. A question's answer is always a place to look up.

mod course;
mod guide;
mod model;
mod questions;
mod read;
mod render;
mod terms;
pub(crate) mod tools;
