//! The tools of the briefing pipeline: grounding, fact check, composition and editing.

use std::sync::Arc;

use crate::bundled::BundledConfig;
use crate::tool::Tool;

mod action;
mod advisory;
mod block;
mod bm25;
mod claims;
pub mod compose;
mod dates;
mod extract;
pub mod factcheck;
mod figures;
pub mod ground;
mod mapped;
pub mod model;
pub mod persona;
mod prose;
mod quote;
mod rank;
mod read;
pub mod related;
pub mod render;
mod safe;
mod select;
mod severity;
mod story;
mod versions;

/// The briefing tools.
pub fn tools(_config: &BundledConfig) -> Vec<Arc<dyn Tool>> {
    Vec::new()
}
