//! What comes back: pieces of an answer, put together within bounds.

use std::collections::BTreeMap;

use serde::Deserialize;
use signalbox_domain::run::model_step::{ANSWER_BYTES_MAX, Finish, ModelAnswer, ModelUsage, ProposedCall};

use super::request::Names;

/// Most calls of one answer that are read.
const CALLS_MAX: usize = 64;

/// An answer that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Bad {
    pub(super) fn new(message: &str) -> Self {
        Self { code: "model-bad-answer", message: message.to_owned() }
    }
    pub(super) fn too_large() -> Self {
        Self { code: "model-answer-too-large", message: "the answer is larger than may be".to_owned() }
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u32,
    #[serde(alias = "message")]
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize)]
struct CallDelta {
    index: Option<u32>,
    id: Option<String>,
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// An answer on its way.
#[derive(Default)]
pub(super) struct Reading {
    text: String,
    calls: BTreeMap<u32, ProposedCall>,
    finish: Option<Finish>,
    usage: Option<ModelUsage>,
    bytes: usize,
}

impl Reading {
    /// Takes one piece in and answers what of it is text.
    pub(super) fn chunk(&mut self, data: &str) -> Result<String, Bad> {
        let chunk: Chunk = serde_json::from_str(data).map_err(|_| Bad::new("a piece of the answer is no JSON"))?;
        self.take(chunk)
    }

    /// Takes a whole answer in.
    pub(super) fn whole(&mut self, body: &[u8]) -> Result<(), Bad> {
        let chunk: Chunk =
            serde_json::from_slice(body).map_err(|_| Bad::new("the answer is no JSON of this protocol"))?;
        if chunk.choices.is_empty() && chunk.error.is_none() {
            return Err(Bad::new("the answer has no choices"));
        }
        self.take(chunk)?;
        self.finish.get_or_insert_default();
        Ok(())
    }

    fn take(&mut self, chunk: Chunk) -> Result<String, Bad> {
        if chunk.error.is_some() {
            return Err(Bad::new("the provider reported an error within its answer"));
        }
        if let Some(usage) = chunk.usage {
            let (input_tokens, output_tokens) = (usage.prompt_tokens, usage.completion_tokens);
            self.usage = Some(ModelUsage { input_tokens, output_tokens });
        }
        let mut said = String::new();
        // One answer was asked for.
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            if let Some(delta) = choice.delta {
                if let Some(text) = delta.content {
                    self.weigh(text.len())?;
                    self.text.push_str(&text);
                    said.push_str(&text);
                }
                for (place, call) in (0_u32..).zip(delta.tool_calls.into_iter().flatten()) {
                    self.call(call.index.unwrap_or(place), call)?;
                }
            }
            if let Some(reason) = choice.finish_reason {
                self.finish = Some(match reason.as_str() {
                    "tool_calls" | "function_call" => Finish::Calls,
                    "length" => Finish::Length,
                    "content_filter" => Finish::Filtered,
                    _ => Finish::Stop,
                });
            }
        }
        Ok(said)
    }

    fn call(&mut self, index: u32, delta: CallDelta) -> Result<(), Bad> {
        if !self.calls.contains_key(&index) && self.calls.len() >= CALLS_MAX {
            return Err(Bad::too_large());
        }
        let (name, arguments) = delta.function.map(|f| (f.name, f.arguments)).unwrap_or_default();
        let pieces = [delta.id.as_deref(), name.as_deref(), arguments.as_deref()];
        self.weigh(pieces.into_iter().flatten().map(str::len).sum())?;
        let call = self.calls.entry(index).or_default();
        if let Some(id) = delta.id {
            call.id = id;
        }
        if let Some(name) = name {
            call.name.push_str(&name);
        }
        if let Some(arguments) = arguments {
            call.arguments.push_str(&arguments);
        }
        Ok(())
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), Bad> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > ANSWER_BYTES_MAX { Err(Bad::too_large()) } else { Ok(()) }
    }

    /// True once the provider has said why it stopped: what then is missing is not of the answer.
    pub(super) const fn has_ended(&self) -> bool {
        self.finish.is_some()
    }

    /// The answer.
    pub(super) fn finish(self, names: &Names) -> Result<ModelAnswer, Bad> {
        let Some(finish) = self.finish else { return Err(Bad::new("the answer ended without saying why")) };
        let calls = self.calls.into_values().enumerate().map(|(place, call)| ProposedCall {
            // Some providers name none, and the results must be told apart.
            id: if call.id.is_empty() { format!("call-{}", place + 1) } else { call.id },
            name: names.ours(&call.name),
            arguments: call.arguments,
        });
        Ok(ModelAnswer { text: self.text, calls: calls.collect(), finish, usage: self.usage })
    }
}
