//! A model that needs nobody: the same question always has the same answer.
//!
//! A prompt may hold a `script`, one entry for each turn: `{"calls": [{"tool", "args"}]}` proposes, `{"say": "…"}` answers, with
//! `"withResults": true` followed by what its calls gave, `{"fail": "code"}` fails, and `delayMs` takes that long first. Without
//! one, each line `call TOOL JSON` of the prompt is proposed in the first turn, and the last answer sums up what came of it.

use std::time::Duration;

use serde_json::Value;
use signalbox_domain::run::model_step::{Finish, ModelAnswer, ModelUsage, ProposedCall};
use signalbox_ports::models::{ModelError, TurnOrder};

/// Longest pause that a script may ask for.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Bytes that this model counts as one token.
const BYTES_PER_TOKEN: usize = 4;
/// Longest part of a question that an answer repeats, in characters.
const ECHO_CHARS_MAX: usize = 200;

/// One turn.
pub(crate) async fn turn(order: &TurnOrder) -> Result<ModelAnswer, ModelError> {
    let turn = order.args.get("turn").and_then(Value::as_u64).unwrap_or(1);
    let place = usize::try_from(turn.saturating_sub(1)).unwrap_or(usize::MAX);
    let scripted = order.args.get("script").and_then(|script| script.get(place));
    let mut answer = match scripted {
        Some(entry) => follow(entry, &order.args).await?,
        None => plan(turn, &order.args),
    };
    let read = order.args.get("messages").map(|messages| messages.to_string().len()).unwrap_or_default();
    let written = answer.text.len() + answer.calls.iter().map(|call| call.arguments.len()).sum::<usize>();
    let tokens = |bytes: usize| bytes.div_ceil(BYTES_PER_TOKEN) as u64;
    answer.usage = Some(ModelUsage { input_tokens: tokens(read), output_tokens: tokens(written) });
    Ok(answer)
}

async fn follow(entry: &Value, args: &Value) -> Result<ModelAnswer, ModelError> {
    if let Some(ms) = entry.get("delayMs").and_then(Value::as_u64) {
        tokio::time::sleep(Duration::from_millis(ms).min(DELAY_MAX)).await;
    }
    match entry.get("fail").and_then(Value::as_str) {
        Some("unavailable") => {
            let message = "the script has the model unavailable".to_owned();
            return Err(ModelError::Transient { code: "model-unavailable", message });
        }
        Some(_) => {
            let message = "the script has the model refuse".to_owned();
            return Err(ModelError::Terminal { code: "model-refused", message });
        }
        None => {}
    }
    let mut text = entry.get("say").and_then(Value::as_str).unwrap_or_default().to_owned();
    if entry.get("withResults") == Some(&Value::Bool(true)) {
        for result in results(args) {
            text.push('\n');
            text.push_str(&result);
        }
    }
    let wanted = entry.get("calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let calls: Vec<ProposedCall> = wanted
        .iter()
        .enumerate()
        .map(|(index, call)| ProposedCall {
            id: format!("call-{}", index + 1),
            name: call.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned(),
            arguments: match call.get("args") {
                // What a script gives as a text is handed on as it is: also what is no JSON.
                Some(Value::String(text)) => text.clone(),
                Some(args) => args.to_string(),
                None => "{}".to_owned(),
            },
        })
        .collect();
    let finish = if calls.is_empty() { Finish::Stop } else { Finish::Calls };
    Ok(ModelAnswer { text, calls, finish, usage: None })
}

fn plan(turn: u64, args: &Value) -> ModelAnswer {
    let question = texts(args, "user").next().unwrap_or_default();
    let calls: Vec<ProposedCall> = question
        .lines()
        .filter(|_| turn == 1)
        .filter_map(|line| line.trim().strip_prefix("call ")?.split_once(' '))
        .enumerate()
        .map(|(index, (name, arguments))| ProposedCall {
            id: format!("call-{}", index + 1),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        })
        .collect();
    if !calls.is_empty() {
        return ModelAnswer { calls, finish: Finish::Calls, ..ModelAnswer::default() };
    }
    let echo: String = question.chars().take(ECHO_CHARS_MAX).collect();
    let mut text = format!("Asked offline: {echo}");
    for result in results(args) {
        text.push('\n');
        text.push_str(&result);
    }
    ModelAnswer { text, ..ModelAnswer::default() }
}

fn results(args: &Value) -> impl Iterator<Item = String> + '_ {
    messages(args).filter(|message| message.get("role").and_then(Value::as_str) == Some("tool")).map(|message| {
        let part = |key| message.get(key).and_then(Value::as_str).unwrap_or_default();
        format!("{}: {}", part("tool"), part("text"))
    })
}

fn texts<'a>(args: &'a Value, role: &'a str) -> impl Iterator<Item = &'a str> + 'a {
    let of_role = move |message: &&Value| message.get("role").and_then(Value::as_str) == Some(role);
    messages(args).filter(of_role).filter_map(|message| message.get("text").and_then(Value::as_str))
}

fn messages(args: &Value) -> impl Iterator<Item = &Value> {
    args.get("messages").and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;
    use signalbox_domain::ids::{CallId, ProviderId, TenantId};

    use super::*;

    async fn asked(args: Value) -> Result<ModelAnswer, ModelError> {
        let order = TurnOrder {
            call_id: CallId::new(uuid::Uuid::from_u128(1)),
            tenant_id: TenantId::new("acme").unwrap(),
            provider_id: ProviderId::new("offline").unwrap(),
            model_id: "any".to_owned(),
            args,
            timeout_ms: 1_000,
        };
        turn(&order).await
    }

    #[tokio::test]
    async fn a_script_is_followed_turn_by_turn() {
        let script = json!([{ "calls": [{ "tool": "memory.read", "args": { "key": "a" } }] }, { "say": "done" }]);
        let first = asked(json!({ "turn": 1, "messages": [], "script": script })).await.unwrap();
        assert_eq!(
            (first.calls[0].name.as_str(), first.calls[0].arguments.as_str()),
            ("memory.read", r#"{"key":"a"}"#)
        );
        let second = asked(json!({ "turn": 2, "messages": [], "script": script })).await.unwrap();
        assert_eq!((second.text.as_str(), second.calls.len()), ("done", 0));
    }

    #[tokio::test]
    async fn without_a_script_it_proposes_the_lines_that_say_call_and_then_sums_up() {
        let user = json!({ "role": "user", "text": "please\n call memory.read {\"key\":\"a\"}" });
        let first = asked(json!({ "turn": 1, "messages": [user] })).await.unwrap();
        assert_eq!(first.calls.len(), 1);
        let told = json!([user, { "role": "tool", "tool": "memory.read", "text": "{\"value\":42}" }]);
        let second = asked(json!({ "turn": 2, "messages": told })).await.unwrap();
        assert!(second.text.contains("memory.read: {\"value\":42}"), "{}", second.text);
        assert!(second.usage.unwrap().input_tokens > 0);
    }
}
