//! The briefing: from sources to a pack that can be read, looked up and trusted.
//!
//! `sophia.ground` reads the sources and takes items and claims from them, each with the words it stands on.
//! `composition.suggest` orders them and, at the end, renders the three files. `sophia.fact_check` looks every quote up
//! in its source and compares the sources with each other. `persona.invoke` edits what was written here, never a quote.
//!
//! Without a model the text is extractive, and says so. Everything is a pure function of the documents: no clock, no
//! host, no run, so an interrupted and an uninterrupted run give equal bytes.
//!
//! Invariant: a [`model::Quote`]'s text equals the bytes it names; the fact check proves it again from the sources.

mod action;
mod advisory;
pub(crate) mod block;
pub(crate) mod bm25;
pub(crate) mod claims;
pub mod compose;
pub(crate) mod dates;
pub(crate) mod extract;
pub mod factcheck;
pub(crate) mod figures;
pub mod ground;
pub(crate) mod mapped;
pub mod model;
pub mod persona;
pub(crate) mod prose;
pub(crate) mod quote;
mod rank;
pub(crate) mod read;
pub mod related;
pub mod render;
pub(crate) mod safe;
pub(crate) mod select;
mod severity;
mod story;
#[cfg(test)]
mod tests;
pub(crate) mod tools;
mod versions;

use std::sync::Arc;

use self::tools::{CompositionSuggest, PersonaInvoke, SophiaFactCheck, SophiaGround};
use crate::bundled::BundledConfig;
use crate::tool::Tool;

/// The briefing tools. They keep nothing, so the configuration does not matter to them.
pub fn tools(_config: &BundledConfig) -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(SophiaGround), Arc::new(SophiaFactCheck), Arc::new(CompositionSuggest), Arc::new(PersonaInvoke)]
}
