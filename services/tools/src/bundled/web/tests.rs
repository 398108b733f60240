//! The guard in both phases, redirects, limits, and the tool as a whole.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::quantity::{BudgetCategory, Usage};
use tokio::time::Instant;

use super::testing::{Site, fetcher, http, plain_http};
use super::{WebFailure, WebFetch};
use crate::bundled::testing::{answer, call, failure, run, usage};
use crate::tool::{Measured, ToolOutcome};

async fn code(url: &str, constraints: &Constraints) -> String {
    let fetched = fetcher().fetch(url, "GET", constraints, Instant::now() + Duration::from_secs(20)).await;
    fetched
        .map_or_else(|failure| failure.code.to_owned(), |page| format!("got {}", String::from_utf8_lossy(&page.body)))
}

async fn hello() -> Site {
    Site::serve(|_| Some(http("200 OK", &[("content-type", "text/plain; charset=utf-8")], b"hello"))).await
}

#[tokio::test]
async fn a_page_is_fetched_from_an_exempt_host_and_counted_once() {
    let site = hello().await;
    let tool = WebFetch(fetcher());
    let mut order = call(&tool, json!({ "url": site.url("inside.test", "/a?q=1") }));
    order.constraints = plain_http();
    let page = answer(run(&tool, order).await);
    assert_eq!((&page.output["text"], &page.output["status"]), (&json!("hello"), &json!(200)));
    assert_eq!(page.output["mediaType"], "text/plain");
    assert_eq!(page.output["url"], site.url("inside.test", "/a?q=1"));
    assert_eq!(page.measured, Some(usage(2.0, [(BudgetCategory::ExternalCalls, 1.0)])));
    let request = site.requests().remove(0).to_ascii_lowercase();
    for header in ["cookie", "authorization", "referer", "proxy"] {
        assert!(!request.contains(header), "{request}");
    }
}

#[tokio::test]
async fn phase_one_refuses_a_url_before_anything_is_resolved_and_nothing_is_charged() {
    let site = hello().await;
    let http = plain_http();
    let only_a = Constraints { hosts: Some(vec!["a.test".to_owned()]), ..plain_http() };
    let cases = [
        (site.url("127.0.0.1", "/"), &http, "ssrf-loopback"),
        (site.url("0x7f.1", "/"), &http, "ssrf-loopback"),
        (site.url("localhost", "/"), &http, "ssrf-loopback"),
        (site.url("169.254.169.254", "/"), &http, "ssrf-link-local"),
        ("http://10.1.2.3/".to_owned(), &http, "ssrf-private-ip"),
        ("http://[::ffff:10.0.0.1]/".to_owned(), &http, "ssrf-private-ip"),
        (site.url("inside.test", "/"), &only_a, "host-not-in-allowlist"),
        ("nowhere".to_owned(), &http, "invalid-url"),
        ("http://user:fake@inside.test/".to_owned(), &http, "invalid-url"),
        ("ftp://inside.test/".to_owned(), &http, "scheme-not-allowed"),
    ];
    for (url, constraints, expected) in cases {
        assert_eq!(code(&url, constraints).await, expected, "{url}");
    }
    assert_eq!(code(&site.url("inside.test", "/"), &Constraints::default()).await, "scheme-not-allowed");
    assert!(site.requests().is_empty());
    let tool = WebFetch(fetcher());
    let refused = failure(run(&tool, call(&tool, json!({ "url": "http://10.0.0.1/" }))).await);
    assert_eq!((refused.code.as_str(), refused.measured), ("scheme-not-allowed", Some(Measured::new())));
}

#[tokio::test]
async fn phase_two_refuses_a_name_if_any_of_its_addresses_lies_inside() {
    let site = hello().await;
    for (host, expected) in
        [("evil.test", "ssrf-loopback"), ("private.test", "ssrf-private-ip"), ("rebind.test", "ssrf-loopback")]
    {
        assert_eq!(code(&site.url(host, "/"), &plain_http()).await, expected);
    }
    for host in ["empty.test", "unknown.test"] {
        assert_eq!(code(&site.url(host, "/"), &plain_http()).await, "name-not-resolved");
    }
    assert!(site.requests().is_empty());
}

#[tokio::test]
async fn each_redirect_goes_through_both_phases_again() {
    let site = Site::serve(|path| {
        let to = |location: &str| Some(http("302 Found", &[("location", location)], b""));
        match path {
            "/private" => to("http://private.test/"),
            "/literal" => to("http://10.0.0.1/"),
            "/evil" => to("http://evil.test/"),
            "/scheme" => to("file:///etc/passwd"),
            "/credentials" => to("http://user:fake@inside.test/"),
            "/loop" => to("/loop"),
            "/good" => to("/end"),
            "/bare" => Some(http("302 Found", &[], b"")),
            _ => Some(http("200 OK", &[], b"end")),
        }
    })
    .await;
    let cases = [
        ("/private", "ssrf-private-ip"),
        ("/literal", "ssrf-private-ip"),
        ("/evil", "ssrf-loopback"),
        ("/scheme", "scheme-not-allowed"),
        ("/credentials", "invalid-url"),
        ("/good", "got end"),
        ("/bare", "http-status"),
    ];
    for (path, expected) in cases {
        assert_eq!(code(&site.url("inside.test", path), &plain_http()).await, expected, "{path}");
    }
    let before = site.requests().len();
    assert_eq!(code(&site.url("inside.test", "/loop"), &plain_http()).await, "too-many-redirects");
    assert_eq!(site.requests().len() - before, 6, "the first request and five redirects");
}

#[tokio::test]
async fn nothing_of_one_host_is_carried_to_another_by_a_redirect() {
    let site = Site::serve(|path| match path {
        "/end" => Some(http("200 OK", &[], b"end")),
        other => {
            let location = format!("http://other.test:{}/end", other.trim_start_matches('/'));
            Some(http("302 Found", &[("location", &location), ("set-cookie", "session=fake")], b""))
        }
    })
    .await;
    let url = site.url("inside.test", &format!("/{}", site.address.port()));
    assert_eq!(code(&url, &plain_http()).await, "got end");
    let second = site.requests().remove(1).to_ascii_lowercase();
    assert!(
        second.contains("host: other.test") && !second.contains("cookie") && !second.contains("referer"),
        "{second}"
    );
    let only_first = Constraints { hosts: Some(vec!["inside.test".to_owned()]), ..plain_http() };
    assert_eq!(code(&url, &only_first).await, "host-not-in-allowlist");
}

#[tokio::test]
async fn a_body_stops_at_two_mib_after_decoding() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![b'x'; 64 * 1024 * 1024]).unwrap();
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 100_000);
    let mut small = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    small.write_all(b"small").unwrap();
    let small = small.finish().unwrap();
    let site = Site::serve(move |path| {
        let gzip = [("content-encoding", "gzip")];
        match path {
            "/bomb" => Some(http("200 OK", &gzip, &bomb)),
            "/small" => Some(http("200 OK", &gzip, &small)),
            "/limit" => Some(http("200 OK", &[], &vec![b'x'; 2 * 1024 * 1024])),
            _ => Some(http("200 OK", &[], &vec![b'x'; 2 * 1024 * 1024 + 1])),
        }
    })
    .await;
    for (path, expected) in [("/bomb", "body-too-large"), ("/over", "body-too-large"), ("/small", "got small")] {
        assert_eq!(code(&site.url("inside.test", path), &plain_http()).await, expected, "{path}");
    }
    assert!(code(&site.url("inside.test", "/limit"), &plain_http()).await.starts_with("got x"));
}

#[tokio::test]
async fn what_goes_wrong_on_the_way_has_its_code_and_is_charged() {
    let site = Site::serve(|path| match path {
        "/missing" => Some(http("404 Not Found", &[], b"")),
        "/broken" => Some(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec()),
        "/binary" => Some(http("200 OK", &[], b"\xff\xfe")),
        _ => Some(b"nonsense".to_vec()),
    })
    .await;
    let tool = WebFetch(fetcher());
    let cases = [
        ("/missing", "http-status"),
        ("/broken", "fetch-failed"),
        ("/binary", "body-not-text"),
        ("/x", "fetch-failed"),
    ];
    for (path, expected) in cases {
        let mut order = call(&tool, json!({ "url": site.url("inside.test", path) }));
        order.constraints = plain_http();
        let failure = failure(run(&tool, order).await);
        assert_eq!(failure.code, expected, "{path}");
        assert_eq!(failure.measured, Some(usage(2.0, [(BudgetCategory::ExternalCalls, 1.0)])));
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_at_the_deadline() {
    let site = Site::serve(|_| None).await;
    let deadline = Instant::now() + Duration::from_millis(50);
    let failure = fetcher().fetch(&site.url("inside.test", "/"), "GET", &plain_http(), deadline).await.unwrap_err();
    assert_eq!((failure.code, failure.left), ("fetch-timeout", true));
}

#[tokio::test]
async fn only_get_and_head_can_be_used_whatever_the_grant_says() {
    let site = hello().await;
    let post = Constraints { methods: Some(vec!["POST".to_owned(), "HEAD".to_owned()]), ..plain_http() };
    let deadline = Instant::now() + Duration::from_secs(20);
    let url = site.url("inside.test", "/");
    for method in ["GET", "POST", "DELETE"] {
        let failure: WebFailure = fetcher().fetch(&url, method, &post, deadline).await.unwrap_err();
        assert_eq!(failure.code, "method-not-allowed", "{method}");
    }
    let head = fetcher().fetch(&url, "HEAD", &post, deadline).await.unwrap();
    assert!(head.body.is_empty() && site.requests()[0].starts_with("HEAD "));
}

#[tokio::test]
async fn bad_arguments_and_a_ceiling_without_an_external_call_are_refused() {
    let tool = WebFetch(fetcher());
    for args in [json!({}), json!({ "url": 1 }), json!({ "url": "https://a.test", "body": "x" })] {
        assert_eq!(failure(run(&tool, call(&tool, args)).await).code, "args-invalid");
    }
    let mut order = call(&tool, json!({ "url": "https://a.test" }));
    order.ceiling = Usage::of(BudgetCategory::CostUnits, order.ceiling.get(BudgetCategory::CostUnits));
    let refused = run(&tool, order).await;
    assert!(matches!(refused, ToolOutcome::Error(failure) if failure.code == "ceiling-too-low"));
}
