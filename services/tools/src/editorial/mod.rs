//! Writing from sources under an editor's eye: contradictions, counterclaims, tone, and what goes to the inbox.
//!
//! Claims, quotes and the check of figures are the briefing's; here is what a story needs beyond them. `walk` goes through a
//! work of any shape, so that citations and tone are checked alike for every pipeline.

pub(crate) mod citations;
mod denials;
mod inbox;
mod story;
pub(crate) mod tone;
pub(crate) mod tools;
pub(crate) mod walk;
