//! A body of 1 MiB that unpacks to 1 GiB, against the tool as an installation serves it (C-044).
//!
//! Alone in its process, because the memory of the process is what is measured.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use flate2::{Compress, Compression, FlushCompress};
use serde_json::{Value, json};
use signalbox_domain::catalog;
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::ids::ToolId;
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::tool_executor_server::ToolExecutor as _;
use signalbox_tools::bundled::{self, BundledConfig};
use tokio_stream::StreamExt as _;

const MIB: usize = 1024 * 1024;
static GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// One MiB of zeros, deflated and flushed to a byte: it can be said again and again.
fn mebibyte_of_zeros() -> Vec<u8> {
    let mut deflate = Compress::new(Compression::best(), false);
    let mut block = Vec::with_capacity(64 * 1024);
    deflate.compress_vec(&vec![0; MIB], &mut block, FlushCompress::Full).unwrap();
    block
}

/// The same as a whole member of a gzip file.
fn member_of_zeros() -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), Compression::best());
    to.write_all(&vec![0; MIB]).unwrap();
    to.finish().unwrap()
}

/// Serves `head` and then 1,024 times `piece`, each a chunk of its own where `chunked`. It stops when nobody listens.
fn serve(head: &'static [u8], piece: Vec<u8>, chunked: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let framing = if chunked {
            "transfer-encoding: chunked".to_owned()
        } else {
            format!("content-length: {}", head.len() + 1024 * piece.len())
        };
        let mut said =
            stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n{framing}\r\n\r\n").as_bytes());
        for part in
            std::iter::once(head).filter(|head| !head.is_empty()).chain(std::iter::repeat_n(piece.as_slice(), 1024))
        {
            if said.is_err() {
                return;
            }
            said = if chunked {
                let chunk = [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
                stream.write_all(&chunk)
            } else {
                stream.write_all(part)
            };
        }
    });
    address
}

/// The most memory this process has had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn request(n: u128, address: SocketAddr) -> v1::ExecuteRequest {
    let tool = ToolId::new("web.fetch").unwrap();
    let entry = catalog::entry(&tool).unwrap();
    let ceiling = entry.ceiling.iter().map(|(category, amount)| (category.as_str().to_owned(), amount.0)).collect();
    v1::ExecuteRequest {
        call_id: uuid::Uuid::from_u128(n).to_string(),
        attempt: 1,
        tenant_id: "acme".to_owned(),
        run_id: uuid::Uuid::from_u128(7).to_string(),
        step_id: "one".to_owned(),
        tool_id: tool.to_string(),
        tool_semver: entry.semver.clone(),
        args_json: json!({ "url": format!("http://127.0.0.1:{}/", address.port()) }).to_string().into(),
        ceiling: Some(v1::Usage { micros: ceiling }),
        timeout_ms: 30_000,
        constraints_json: json!({ "schemes": ["http"] }).to_string().into(),
        secrets: std::collections::HashMap::new(),
    }
}

#[tokio::test]
async fn a_bomb_of_a_gibibyte_is_stopped_at_two_mebibytes_and_charged_without_taking_memory() {
    let exempt = HostExemption { host: "127.0.0.1".to_owned(), cidr: "127.0.0.0/8".parse().unwrap() };
    let data = tempfile::tempdir().unwrap();
    let tools = bundled::registry(BundledConfig { data_dir: data.path().to_owned(), exemptions: vec![exempt] });
    let (block, member) = (mebibyte_of_zeros(), member_of_zeros());
    assert!(block.len() < 1100 && member.len() < 1100, "{} and {} bytes unpack to a MiB", block.len(), member.len());
    // The first call pays for the client and its roots of trust.
    let warm = serve(b"", Vec::new(), false);
    drop(outcome(&tools, request(1, warm)).await);
    let before = peak();
    // One stream of a GiB; and a thousand streams of a MiB, of which only the first is anybody's body.
    let (stream, streams) = ((&GZIP_HEAD[..], &block, "body-too-large"), (&[][..], &member, "fetch-failed"));
    for (n, ((head, piece, expected), chunked)) in
        (2..).zip([(stream, false), (stream, true), (streams, false), (streams, true)])
    {
        let address = serve(head, piece.clone(), chunked);
        let (code, measured) = outcome(&tools, request(n, address)).await;
        assert_eq!(code, expected, "chunked: {chunked}");
        assert_eq!(measured, json!({ "cost-units": 2.0, "external-calls": 1.0 }));
    }
    let grown = peak().saturating_sub(before);
    assert!(grown < 18 * MIB, "{} KiB more", grown / 1024);
}

async fn outcome(tools: &signalbox_tools::ToolServer, request: v1::ExecuteRequest) -> (String, Value) {
    let stream = tools.execute(tonic::Request::new(request)).await.unwrap().into_inner();
    let events: Vec<_> = stream.collect().await;
    let Some(Event::Result(result)) = events.into_iter().next_back().unwrap().unwrap().event else {
        panic!("no result")
    };
    (result.error_code, json!(result.measured.map(|measured| measured.units)))
}
