//! Traces as a collector hears them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::{Request, Response, Status};

use crate::harness::{Server, run, signalbox};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource in request.into_inner().resource_spans {
            let named = resource.resource.iter().flat_map(|resource| &resource.attributes);
            assert!(named.clone().any(|attribute| attribute.key == "service.name"));
            self.0.lock().unwrap().extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts one; where it listens. It ends with the runtime.
    fn start(&self, runtime: &Runtime) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let service = TraceServiceServer::new(self.clone());
        runtime.spawn(async move {
            let incoming = tokio::net::TcpListener::from_std(listener).unwrap();
            let incoming = tonic::transport::server::TcpIncoming::from(incoming);
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await
        });
        format!("http://{address}")
    }

    fn named(&self, name: &str) -> Vec<Span> {
        self.0.lock().unwrap().iter().filter(|span| span.name == name).cloned().collect()
    }
}

fn attributes(span: &Span) -> BTreeMap<&str, String> {
    let text = |value: Option<&Any>| match value {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        Some(Any::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let value = |value: &Option<opentelemetry_proto::tonic::common::v1::AnyValue>| {
        text(value.as_ref().and_then(|value| value.value.as_ref()))
    };
    span.attributes.iter().map(|attribute| (attribute.key.as_str(), value(&attribute.value))).collect()
}

fn post(server: &Server, headers: &str, body: &Value) -> u16 {
    let mut stream = TcpStream::connect(server.addr.strip_prefix("http://").unwrap()).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         {headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

fn plan(run: &str) -> Value {
    let step =
        |id: &str| json!({"stepId": id, "kind": "tool", "toolId": "memory.read", "args": {"key": "a-private-key"}});
    json!({"runId": run, "rootAgentId": "ref.drafting", "plan": {"steps": [step("a"), step("b")]}})
}

#[test]
fn a_collector_hears_of_a_request_its_run_and_each_call_in_one_trace_and_of_no_argument() {
    let runtime = Runtime::new().unwrap();
    let collector = Collector::default();
    let server = Server::over(TempDir::new().unwrap(), &["--otlp", &collector.start(&runtime)]);
    let run_id = "0190d6a8-3c1e-7bbb-8f5e-0000000000ab";
    assert_eq!(post(&server, &format!("traceparent: {PARENT}\r\n"), &plan(run_id)), 201);
    assert_eq!(server.json(&format!("runs watch {run_id}")).exit, 0);
    let arm = ["switches", "arm", "--scope", "tool", "--target", "memory.read", "--reason", "a test"];
    assert_eq!(run(server.command("").args(arm)).exit, 0);
    let refused_id = "0190d6a8-3c1e-7bbb-8f5e-0000000000ac";
    assert_eq!(post(&server, "traceparent: 00-no-parent\r\n", &plan(refused_id)), 201);
    assert_ne!(server.json(&format!("runs watch {refused_id}")).exit, 0);
    assert_eq!(server.end().0, 0);

    // The request lies in the caller's trace, and the run it submitted is linked to it.
    let posts = collector.named("POST");
    let caller = posts.iter().find(|span| span.trace_id[..2] == [0x4b, 0xf9]).unwrap();
    assert_eq!(caller.parent_span_id, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
    assert_eq!(attributes(caller)["http.response.status_code"], "201");
    let submits = collector.named("submit");
    let of = |run: &str| submits.iter().find(|span| attributes(span)["signalbox.run.id"] == run).unwrap();
    let submit = of(run_id);
    assert_eq!((&submit.links[0].trace_id, &submit.links[0].span_id), (&caller.trace_id, &caller.span_id));

    // One trace holds the run, its entries and its calls; the calls lie under the run.
    let runs = collector.named("invoke_agent");
    let root = runs.iter().find(|span| span.trace_id == submit.trace_id).unwrap();
    assert_eq!(attributes(root)["signalbox.run.status"], "completed");
    assert!(root.parent_span_id.is_empty());
    let calls = collector.named("execute_tool memory.read");
    let made: Vec<_> = calls.iter().filter(|span| span.trace_id == root.trace_id).collect();
    assert_eq!(made.len(), 2);
    for call in &made {
        let said = attributes(call);
        assert_eq!(call.parent_span_id, root.span_id);
        assert!(
            call.start_time_unix_nano >= root.start_time_unix_nano
                && call.end_time_unix_nano >= call.start_time_unix_nano
        );
        assert_eq!(
            (said["gen_ai.tool.name"].as_str(), said["gen_ai.agent.id"].as_str()),
            ("memory.read", "ref.drafting")
        );
        assert_eq!(said["signalbox.call.ending"], "answered");
        assert!(said.contains_key("signalbox.grant.id") && said.contains_key("signalbox.governance.epoch"), "{said:?}");
    }
    let appends = collector.named("journal.append");
    assert!(appends.iter().filter(|span| span.trace_id == root.trace_id).count() >= 2);

    // A refusal is a span of its own, with the code that `explain` tells.
    let refused = calls.iter().find(|span| span.trace_id == of(refused_id).trace_id).unwrap();
    assert_eq!(attributes(refused)["signalbox.call.outcome"], "killed");
    assert!(of(refused_id).links.iter().all(|link| link.trace_id != caller.trace_id));

    let everything = format!("{:?}", collector.0.lock().unwrap());
    assert!(!everything.contains("a-private-key"), "{everything}");
    // No two spans of one trace share an id.
    let spans = collector.0.lock().unwrap();
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| (&span.trace_id, &span.span_id)).collect();
    assert_eq!(ids.len(), spans.len());
}

#[test]
fn a_collector_that_is_not_there_keeps_no_run_from_its_end_and_no_node_from_its_own() {
    let server = Server::over(TempDir::new().unwrap(), &["--otlp", "http://127.0.0.1:9"]);
    let step = json!({"stepId": "a", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}});
    assert_eq!(server.submit(&json!({"rootAgentId": "ref.drafting", "plan": [step]}), "--watch").exit, 0);
    assert_eq!(server.end().0, 0);
}

#[test]
fn an_address_that_is_none_is_refused_before_anything_is_touched() {
    let data = TempDir::new().unwrap();
    for address in ["https://collector.example:4317", "collector", "unix:/tmp/x", ""] {
        let mut command = signalbox();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path().join("data"));
        let said = run(command.args(["--otlp", address, "--output", "json"]));
        assert_eq!((said.exit, said.code()), (2, "config-invalid"), "{address}: {}", said.err);
        assert!(!data.path().join("data").exists());
    }
}
