//! A provider on loopback that answers as a test tells it to: well, badly, slowly, and too much.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use signalbox_domain::ids::{CallId, ProviderId, TenantId};
use signalbox_domain::run::model_step::Finish;
use signalbox_ports::models::{ModelError, TurnOrder};
use signalbox_ports::secrets::SecretValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::{EndpointError, OpenAi, OpenAiEndpoint};

const KEY: &str = "FAKE-provider-key-of-a-test";

/// Answers one connection after another with these bytes; the last answer again and again.
struct Provider {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    async fn answers(answers: Vec<Vec<u8>>) -> Self {
        Self::pieces(answers.into_iter().map(|answer| vec![answer]).collect(), Duration::ZERO).await
    }

    /// The same in pieces, with a pause before each.
    async fn pieces(answers: Vec<Vec<Vec<u8>>>, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        tokio::spawn(async move {
            let mut place = 0;
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let answer = answers[place.min(answers.len() - 1)].clone();
                place += 1;
                let seen = seen.clone();
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    let mut buffer = [0; 4096];
                    while !is_whole(&request) {
                        let read = stream.read(&mut buffer).await.unwrap_or(0);
                        if read == 0 {
                            break;
                        }
                        request.extend_from_slice(&buffer[..read]);
                    }
                    seen.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                    for piece in answer {
                        tokio::time::sleep(pause).await;
                        if stream.write_all(&piece).await.is_err() {
                            return;
                        }
                    }
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { port, requests }
    }

    fn model(&self, attempts: u32) -> OpenAi {
        let base = format!("http://127.0.0.1:{}/v1", self.port);
        let mut endpoint = OpenAiEndpoint::new(&base, "upstream-1".to_owned(), false).unwrap();
        endpoint.attempts = attempts;
        endpoint.key = Some(Arc::new(|| Ok(SecretValue::new(KEY.to_owned()))));
        OpenAi::new(endpoint).unwrap()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned));
    length.and_then(|length| length.trim().parse().ok()).is_some_and(|length: usize| body.len() >= length)
}

fn http(status: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    format!("{head}\r\n{body}").into_bytes()
}

fn stream(chunks: &[Value]) -> Vec<u8> {
    let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    http("200 OK", &["content-type: text/event-stream; charset=utf-8"], &format!("{body}data: [DONE]\n\n"))
}

fn said(text: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] })
}

fn stopped(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn order(timeout_ms: u64) -> TurnOrder {
    let args = json!({ "model": "default", "maxTokens": 64, "temperatureMicros": 200_000,
        "messages": [{ "role": "system", "text": "be brief" }, { "role": "user", "text": "hello" },
            { "role": "assistant", "text": "", "calls": [{ "id": "c1", "tool": "memory.read", "args": { "key": "a" } }] },
            { "role": "tool", "callId": "c1", "tool": "memory.read", "text": "42" }],
        "tools": [{ "tool": "memory.read", "title": "Reads", "schema": { "type": "object" } }] });
    TurnOrder {
        call_id: CallId::new(uuid::Uuid::from_u128(1)),
        tenant_id: TenantId::new("acme").unwrap(),
        provider_id: ProviderId::new("p").unwrap(),
        model_id: "default".to_owned(),
        args,
        timeout_ms,
    }
}

async fn asked(provider: &Provider, attempts: u32) -> Result<super::ModelAnswer, ModelError> {
    let (lines, _kept) = mpsc::channel(32);
    provider.model(attempts).turn(&order(60_000), &lines).await
}

fn code(error: ModelError) -> &'static str {
    match error {
        ModelError::Transient { code, .. } | ModelError::Terminal { code, .. } => code,
        other @ (ModelError::NotStarted { .. } | ModelError::Lost { .. } | ModelError::Cancelled) => {
            panic!("{other:?}")
        }
    }
}

#[tokio::test]
async fn a_streamed_answer_is_put_together_and_told_as_it_comes() {
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 7 } });
    let provider = Provider::answers(vec![stream(&[said("Hel"), said("lo"), stopped("stop"), usage])]).await;
    let (lines, mut told) = mpsc::channel(32);
    let answer = provider.model(1).turn(&order(60_000), &lines).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.finish), ("Hello", Finish::Stop));
    let usage = answer.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (11, 7));
    assert_eq!(told.recv().await.unwrap().message, "Hel");
}

#[tokio::test]
async fn a_request_holds_the_conversation_in_the_words_of_the_protocol_and_the_key() {
    let provider = Provider::answers(vec![stream(&[said("ok"), stopped("stop")])]).await;
    asked(&provider, 1).await.unwrap();
    let request = provider.requests().remove(0);
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1"), "{request}");
    assert!(request.to_ascii_lowercase().contains(&format!("authorization: bearer {}", KEY.to_ascii_lowercase())));
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body["model"], "upstream-1");
    assert_eq!(body["tools"][0]["function"]["name"], "memory__read");
    assert_eq!(body["messages"][2]["tool_calls"][0]["function"]["arguments"], r#"{"key":"a"}"#);
    assert_eq!(body["messages"][3], json!({ "role": "tool", "tool_call_id": "c1", "content": "42" }));
}

#[tokio::test]
async fn tool_calls_that_come_in_pieces_are_whole_and_named_as_we_name_them() {
    let piece = |value: Value| json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [value] } }] });
    let chunks = [
        piece(json!({ "index": 0, "id": "a", "function": { "name": "memory__read", "arguments": "{\"ke" } })),
        piece(json!({ "index": 1, "id": "b", "function": { "name": "rm_rf", "arguments": "{}" } })),
        piece(json!({ "index": 0, "function": { "arguments": "y\":\"a\"}" } })),
        stopped("tool_calls"),
    ];
    let provider = Provider::answers(vec![stream(&chunks)]).await;
    let answer = asked(&provider, 1).await.unwrap();
    assert_eq!(answer.finish, Finish::Calls);
    assert_eq!((answer.calls[0].name.as_str(), answer.calls[0].arguments.as_str()), ("memory.read", r#"{"key":"a"}"#));
    assert_eq!(answer.calls[1].name, "rm_rf", "it is refused where it is judged");
    assert_eq!(answer.usage, None);
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_read_as_well() {
    let body = json!({ "choices": [{ "index": 0, "message": { "role": "assistant", "content": "all at once" },
        "finish_reason": "length" }], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } });
    let provider =
        Provider::answers(vec![http("200 OK", &["content-type: application/json"], &body.to_string())]).await;
    let answer = asked(&provider, 1).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.finish), ("all at once", Finish::Length));
}

#[tokio::test]
async fn an_overloaded_provider_is_asked_again_after_the_time_it_names() {
    let busy = http("429 Too Many Requests", &["retry-after: 1"], "");
    let provider = Provider::answers(vec![busy, stream(&[said("now"), stopped("stop")])]).await;
    let began = std::time::Instant::now();
    assert_eq!(asked(&provider, 2).await.unwrap().text, "now");
    assert!(began.elapsed() >= Duration::from_millis(950), "{:?}", began.elapsed());
    assert_eq!(provider.requests().len(), 2);
}

#[tokio::test]
async fn a_provider_that_asks_for_too_much_patience_is_given_up() {
    let provider = Provider::answers(vec![http("429 Too Many Requests", &["retry-after: 3600"], "")]).await;
    assert_eq!(code(asked(&provider, 3).await.unwrap_err()), "model-overloaded");
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn a_broken_provider_is_tried_so_often_and_then_given_up() {
    let provider = Provider::answers(vec![http("503 Service Unavailable", &[], "")]).await;
    assert_eq!(code(asked(&provider, 2).await.unwrap_err()), "model-unavailable");
    assert_eq!(provider.requests().len(), 2);
}

#[tokio::test]
async fn a_stream_that_is_cut_is_no_answer_and_is_asked_for_again() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n";
    let cut = format!("{head}data: {}\n\n", said("half of")).into_bytes();
    let provider = Provider::answers(vec![cut, stream(&[said("whole"), stopped("stop")])]).await;
    assert_eq!(asked(&provider, 2).await.unwrap().text, "whole");
    let closed = http("200 OK", &["content-type: text/event-stream"], &format!("data: {}\n\n", said("half of")));
    let provider = Provider::answers(vec![closed]).await;
    assert_eq!(code(asked(&provider, 1).await.unwrap_err()), "model-unavailable");
}

#[tokio::test]
async fn answers_that_are_no_answers_are_refused_and_not_asked_for_again() {
    let kind = ["content-type: text/event-stream"];
    let cases = [
        (http("200 OK", &kind, "data: {garbage\n\n"), "model-bad-answer"),
        (http("200 OK", &kind, "data: \u{0}\u{1}\n\n"), "model-bad-answer"),
        (http("200 OK", &kind, "data: {\"error\":{\"message\":\"x\"}}\n\n"), "model-bad-answer"),
        (http("200 OK", &["content-type: text/html"], "<html>"), "model-bad-answer"),
        (http("200 OK", &["content-type: application/json"], "{}"), "model-bad-answer"),
        (http("200 OK", &[], "hello"), "model-bad-answer"),
        (http("401 Unauthorized", &[], KEY), "model-key-refused"),
        (http("400 Bad Request", &[], "you said hello"), "model-refused"),
        (http("302 Found", &["location: http://169.254.169.254/"], ""), "model-refused"),
    ];
    for (answer, expected) in cases {
        let shown = String::from_utf8_lossy(&answer).into_owned();
        let provider = Provider::answers(vec![answer]).await;
        let error = asked(&provider, 3).await.unwrap_err();
        assert!(!error.to_string().contains(KEY) && !error.to_string().contains("hello"), "{error}");
        assert_eq!(code(error), expected, "{shown}");
        assert_eq!(provider.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_huge_answer_is_cut_off_where_it_passes_the_bound() {
    let big = said(&"x".repeat(400_000)).to_string();
    let body = format!("data: {big}\n\n").repeat(4);
    let provider = Provider::answers(vec![http("200 OK", &["content-type: text/event-stream"], &body)]).await;
    assert_eq!(code(asked(&provider, 1).await.unwrap_err()), "model-answer-too-large");
    let endless = "x".repeat(2 * 1024 * 1024);
    let provider = Provider::answers(vec![http("200 OK", &["content-type: text/event-stream"], &endless)]).await;
    assert_eq!(code(asked(&provider, 1).await.unwrap_err()), "model-answer-too-large");
}

#[tokio::test]
async fn a_key_that_cannot_be_read_is_said_without_asking_anybody() {
    let provider = Provider::answers(vec![stream(&[stopped("stop")])]).await;
    let base = format!("http://127.0.0.1:{}/v1", provider.port);
    let mut endpoint = OpenAiEndpoint::new(&base, "m".to_owned(), false).unwrap();
    endpoint.key = Some(Arc::new(|| Err("the environment has no variable `X`".to_owned())));
    let (lines, _kept) = mpsc::channel(1);
    let error = OpenAi::new(endpoint).unwrap().turn(&order(1_000), &lines).await.unwrap_err();
    assert_eq!(code(error), "model-key-unusable");
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn a_provider_that_drips_is_stopped_by_the_time_of_the_turn() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
    let drops = std::iter::once(head).chain((0..1_000).map(|_| b": still here\n".to_vec())).collect();
    let provider = Provider::pieces(vec![drops], Duration::from_millis(50)).await;
    let (lines, _kept) = mpsc::channel(1);
    let model = provider.model(1);
    // The port bounds the whole turn; whatever drips cannot outlast it.
    let asking = tokio::time::timeout(Duration::from_millis(400), model.turn(&order(400), &lines)).await;
    assert!(asking.is_err());
}

#[test]
fn an_endpoint_is_where_an_operator_may_send_a_key() {
    let of = |base: &str, plain| OpenAiEndpoint::new(base, "m".to_owned(), plain).map(|_| ()).unwrap_err();
    assert_eq!(of("http://models.example/v1", false), EndpointError::PlainHttp);
    assert_eq!(of("ftp://models.example/v1", true), EndpointError::NotAUrl);
    assert_eq!(of("https://user:FAKE@models.example/v1", true), EndpointError::NotAUrl);
    assert_eq!(of("https://models.example/v1?key=FAKE", true), EndpointError::NotAUrl);
    assert_eq!(of("no url", true), EndpointError::NotAUrl);
    for inside in
        ["http://169.254.169.254/", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/", "http://[fd00:ec2::254]/"]
    {
        assert_eq!(of(inside, true), EndpointError::LinkLocal, "{inside}");
    }
    for fine in ["https://models.example/v1", "http://127.0.0.1:8000/v1", "http://localhost:8000", "http://[::1]:1/v1"]
    {
        assert!(OpenAiEndpoint::new(fine, "m".to_owned(), false).is_ok(), "{fine}");
    }
}
