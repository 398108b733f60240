//! Writing from sources under an editor's eye: contradictions, counterclaims, tone, and what goes to the inbox.

pub(crate) mod citations;
pub(crate) mod tone;
pub(crate) mod tools;
pub(crate) mod walk;
