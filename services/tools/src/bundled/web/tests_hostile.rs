//! Servers that mean harm: what they are not told, and that nothing they say lasts longer, weighs more or leads elsewhere
//! than it may.

use std::time::Duration;

use serde_json::json;
use signalbox_domain::governance::egress::URL_BYTES_MAX;
use signalbox_domain::quantity::BudgetCategory;
use tokio::time::Instant;

use super::WebFetch;
use super::testing::{Site, dripping, fetcher, http, plain_http};
use crate::bundled::testing::{answer, call, failure, run, usage};
use crate::tool::ToolOutcome;

/// What the tool gives for a URL.
async fn fetched(url: &str) -> ToolOutcome {
    let tool = WebFetch(fetcher());
    let mut order = call(&tool, json!({ "url": url }));
    order.constraints = plain_http();
    run(&tool, order).await
}

/// The text of a page, or the code of a failure that is charged like a call that left.
async fn told(url: &str) -> String {
    let outcome = fetched(url).await;
    if let ToolOutcome::Ok(answer) = outcome {
        return format!("got {}", answer.output["text"].as_str().unwrap());
    }
    let failure = failure(outcome);
    assert_eq!(failure.measured, Some(usage(2.0, [(BudgetCategory::ExternalCalls, 1.0)])), "{}", failure.code);
    failure.code
}

fn raw(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    Some(text.as_ref().to_vec())
}

#[tokio::test]
async fn no_kind_of_redirect_carries_credentials_or_cookies_to_the_second_host() {
    let second = Site::serve(|_| Some(http("200 OK", &[("set-cookie", "second=FAKE")], b"end"))).await;
    let port = second.address.port();
    let first = Site::serve(move |path| {
        let location = format!("http://other.test:{port}/end");
        let headers = [
            ("location", location.as_str()),
            ("set-cookie", "session=FAKE; domain=test; path=/"),
            ("www-authenticate", "Basic realm=\"FAKE\""),
            ("proxy-authenticate", "Basic realm=\"FAKE\""),
            ("authorization", "Bearer FAKE"),
        ];
        let status = path.trim_start_matches('/');
        Some(http(&format!("{status} Moved"), &headers, b""))
    })
    .await;
    for status in [301, 302, 303, 307, 308] {
        assert_eq!(told(&first.url("inside.test", &format!("/{status}"))).await, "got end", "{status}");
    }
    // A challenge is no reason to send any either.
    for status in [401, 407] {
        assert_eq!(told(&first.url("inside.test", &format!("/{status}"))).await, "http-status", "{status}");
    }
    assert_eq!((first.requests().len(), second.requests().len()), (7, 5), "each is asked once");
    for request in first.requests().into_iter().chain(second.requests()) {
        let request = request.to_ascii_lowercase();
        for header in ["authorization", "cookie", "x-api-key", "referer", "origin:", "fake"] {
            assert!(!request.contains(header), "{request}");
        }
    }
    // Nor can a plan add any: the tool takes no headers.
    let tool = WebFetch(fetcher());
    let args = json!({ "url": "http://inside.test/", "headers": { "authorization": "Bearer FAKE" } });
    assert_eq!(failure(run(&tool, call(&tool, args)).await).code, "args-invalid");
}

#[tokio::test]
async fn an_encoding_that_was_not_asked_for_is_refused_and_one_in_another_is_not_taken_off_twice() {
    let gzip = |bytes: &[u8]| {
        use std::io::Write as _;
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    };
    let (once, twice) = (gzip(b"small"), gzip(&gzip(b"small")));
    let site = Site::serve(move |path| {
        let encoded = |encoding: &str| Some(http("200 OK", &[("content-encoding", encoding)], &twice));
        match path {
            "/nested" => encoded("gzip, gzip"),
            "/mixed" => encoded("gzip, br"),
            "/br" => encoded("br"),
            "/deflate" => encoded("deflate"),
            "/zstd" => encoded("zstd"),
            "/twice" => {
                let both = [("content-encoding", "gzip"), ("content-encoding", "gzip")];
                Some(http("200 OK", &both, &twice))
            }
            "/lies" => Some(http("200 OK", &[("content-encoding", "gzip")], b"no gzip at all")),
            "/cut" => Some(http("200 OK", &[("content-encoding", "gzip")], &once[..once.len() - 6])),
            "/identity" => Some(http("200 OK", &[("content-encoding", "identity")], b"plain")),
            _ => Some(http("200 OK", &[("content-encoding", "gzip")], &once)),
        }
    })
    .await;
    for path in ["/nested", "/mixed", "/br", "/deflate", "/zstd"] {
        assert_eq!(told(&site.url("inside.test", path)).await, "encoding-not-supported", "{path}");
    }
    assert_eq!(told(&site.url("inside.test", "/twice")).await, "body-not-text", "what is inside stays packed");
    for path in ["/lies", "/cut"] {
        assert_eq!(told(&site.url("inside.test", path)).await, "fetch-failed", "{path}");
    }
    assert_eq!(told(&site.url("inside.test", "/identity")).await, "got plain");
    assert_eq!(told(&site.url("inside.test", "/once")).await, "got small");
}

#[tokio::test]
async fn a_server_that_drips_is_given_up_at_the_deadline_wherever_it_drips() {
    let ms = Duration::from_millis(20);
    let body = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n".to_vec();
    let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let sites = [
        dripping(b"HTTP/1.1 200".to_vec(), b" ".to_vec(), ms).await,
        dripping(b"HTTP/1.1 200 OK\r\n".to_vec(), b"x: y\r\n".to_vec(), ms).await,
        dripping(Vec::new(), b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), ms).await,
        dripping(body, b"x".to_vec(), ms).await,
        dripping(chunks.clone(), b"1\r\nx\r\n".to_vec(), ms).await,
        dripping(chunks, b"1;ext=xxxxxxxx\r\nx\r\n".to_vec(), ms).await,
    ];
    let fetches = sites.map(|site| async move {
        let url = format!("http://inside.test:{}/", site.port());
        let deadline = Instant::now() + Duration::from_millis(400);
        let failure = fetcher().fetch(&url, "GET", &plain_http(), deadline).await.unwrap_err();
        (failure.code, failure.left, Instant::now() < deadline + Duration::from_secs(5))
    });
    for told in futures::future::join_all(fetches).await {
        assert_eq!(told, ("fetch-timeout", true, true));
    }
}

#[tokio::test]
async fn a_flood_of_headers_of_interim_answers_or_of_body_is_cut() {
    let no_pause = Duration::ZERO;
    let head = b"HTTP/1.1 200 OK\r\n".to_vec();
    let floods = [
        (dripping(head.clone(), vec![b'x'; 65_536], no_pause).await, "fetch-failed"),
        (dripping(head.clone(), b"name: value\r\n".repeat(5_000), no_pause).await, "fetch-failed"),
        (dripping(vec![b'x'; 65_536], vec![b'x'; 65_536], no_pause).await, "fetch-failed"),
        (dripping([head, b"\r\n".to_vec()].concat(), vec![b'x'; 65_536], no_pause).await, "body-too-large"),
    ];
    for (site, expected) in floods {
        assert_eq!(told(&format!("http://inside.test:{}/", site.port())).await, expected);
    }
}

#[tokio::test]
async fn a_length_or_a_framing_that_lies_gives_an_error_or_exactly_what_was_framed() {
    let site = Site::serve(|path| match path {
        "/longer" => raw("HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabcdef"),
        "/shorter" => raw("HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\nabc"),
        "/huge" => raw("HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\nabc"),
        "/beyond" => raw("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nabc"),
        "/negative" => raw("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nabc"),
        "/two" => raw("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd"),
        "/chunk" => raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc"),
        "/chunk-cut" => raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        "/none" => raw("HTTP/1.1 200 OK\r\n\r\nup to the end"),
        _ => raw(""),
    })
    .await;
    for path in ["/shorter", "/huge", "/beyond", "/negative", "/two", "/chunk", "/chunk-cut", "/nothing"] {
        assert_eq!(told(&site.url("inside.test", path)).await, "fetch-failed", "{path}");
    }
    assert_eq!(told(&site.url("inside.test", "/longer")).await, "got abc");
    assert_eq!(told(&site.url("inside.test", "/none")).await, "got up to the end");
}

#[tokio::test]
async fn statuses_that_have_no_body_give_none_and_garbage_gives_an_error() {
    let site = Site::serve(|path| match path {
        "/204" => raw("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello"),
        "/304" => raw("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello"),
        "/101" => raw("HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhello"),
        "/999" => raw("HTTP/1.1 999 Odd\r\nconnection: close\r\n\r\nhello"),
        "/0.9" => raw("<html>hello</html>"),
        "/2" => raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        "/tls" => raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        "/nul" => raw(b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\nhello"),
        "/name" => raw("HTTP/1.1 200 OK\r\nbad name: x\r\n\r\nhello"),
        "/split" => raw("HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\nhello"),
        "/type" => raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/\xff\xfe\r\nconnection: close\r\n\r\nhello"),
        _ => None,
    })
    .await;
    assert_eq!(told(&site.url("inside.test", "/204")).await, "got ");
    for path in ["/304", "/101", "/999"] {
        assert_eq!(told(&site.url("inside.test", path)).await, "http-status", "{path}");
    }
    for path in ["/0.9", "/2", "/tls", "/nul", "/name", "/split"] {
        assert_eq!(told(&site.url("inside.test", path)).await, "fetch-failed", "{path}");
    }
    let page = answer(fetched(&site.url("inside.test", "/type")).await);
    assert_eq!((&page.output["text"], &page.output["mediaType"]), (&json!("hello"), &json!(null)));
}

#[tokio::test]
async fn a_url_longer_than_any_server_takes_is_refused_before_and_after_a_redirect() {
    let mib = "x".repeat(1024 * 1024);
    let long = mib.clone();
    let site = Site::serve(move |path| match path {
        "/long" => Some(http("302 Found", &[("location", &format!("/{}", &long[..200_000]))], b"")),
        "/grows" => Some(http("302 Found", &[("location", &format!("/{}", "\"".repeat(URL_BYTES_MAX / 2)))], b"")),
        "/bytes" => Some([b"HTTP/1.1 302 Found\r\nlocation: /\xff\xfe\r\n\r\n".as_slice()].concat()),
        "/empty" => Some(http("302 Found", &[("location", "")], b"")),
        _ => Some(http("200 OK", &[], b"end")),
    })
    .await;
    for url in [site.url("inside.test", &format!("/{mib}")), format!("http://{mib}/"), mib.clone()] {
        let refused = failure(fetched(&url).await);
        assert_eq!(refused.code, "invalid-url");
        assert!(refused.message.len() < 200 && refused.measured == Some(Default::default()), "nothing is charged");
    }
    assert!(site.requests().is_empty());
    let just = "x".repeat(URL_BYTES_MAX - site.url("inside.test", "/").len());
    assert_eq!(told(&site.url("inside.test", &format!("/{just}"))).await, "got end");
    for path in ["/long", "/grows", "/bytes"] {
        assert_eq!(told(&site.url("inside.test", path)).await, "invalid-url", "{path}");
    }
    assert_eq!(told(&site.url("inside.test", "/empty")).await, "too-many-redirects");
}
