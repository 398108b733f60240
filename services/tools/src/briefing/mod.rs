//! The tools of the briefing pipeline: grounding, fact check, composition and editing.

use std::sync::Arc;

use crate::bundled::BundledConfig;
use crate::tool::Tool;

/// The briefing tools.
pub fn tools(_config: &BundledConfig) -> Vec<Arc<dyn Tool>> {
    Vec::new()
}
