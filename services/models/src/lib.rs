//! Models behind the port: an offline one that follows a script, and any that speaks the chat completions protocol.
//!
//! Nothing is decided here: what a model proposes goes back as it came, within bounds. Keys are read when they are used, stand
//! in no message and in no log.

mod configured;
mod offline;
mod openai;

pub use configured::{ConfiguredModels, ModelKind, ModelSpec, TURNS_AT_ONCE};
pub use openai::{EndpointError, KeySource, OpenAiEndpoint};
