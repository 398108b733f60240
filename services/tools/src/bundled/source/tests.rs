//! `source.fetch` as a whole.

use serde_json::{Value, json};
use signalbox_domain::quantity::{BudgetCategory, Micros};

use super::SourceFetch;
use crate::bundled::testing::{answer, call, failure, run, usage};
use crate::bundled::web::testing::{Site, fetcher, http, plain_http};
use crate::tool::{Answer, ToolCall, ToolOutcome};

fn order(tool: &SourceFetch, uris: &[String], paths: &[&std::path::Path]) -> ToolCall {
    let mut order = call(tool, json!({ "uris": uris }));
    order.constraints = plain_http();
    order.constraints.paths = Some(paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect());
    order
}

fn partial(outcome: ToolOutcome) -> Answer {
    if let ToolOutcome::Partial(answer) = outcome { answer } else { panic!("not partial: {outcome:?}") }
}

fn names_and_codes(failures: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    failures.as_array().unwrap().iter().map(|failure| (text(&failure["name"]), text(&failure["code"]))).collect()
}

#[tokio::test]
async fn files_of_a_folder_become_documents_under_relative_names() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("news")).unwrap();
    std::fs::write(home.path().join("news/a.md"), "# A\n").unwrap();
    std::fs::write(home.path().join("b.html"), "<title>B</title><p>b").unwrap();
    let uris = ["news/a.md", "b.html"].map(|name| home.path().join(name).to_str().unwrap().to_owned());
    let tool = SourceFetch(fetcher());
    let given = answer(run(&tool, order(&tool, &uris, &[home.path()])).await);
    let documents = given.output["documents"].as_array().unwrap();
    assert_eq!((&documents[0]["name"], &documents[0]["text"]), (&json!("news/a.md"), &json!("# A\n")));
    assert_eq!(documents[1]["text"], "<title>B</title><p>b", "markup and all");
    assert_eq!(
        (&documents[0]["mediaType"], &documents[1]["mediaType"]),
        (&json!("text/markdown"), &json!("text/html"))
    );
    assert!(documents.iter().all(|document| document.get("uri").is_none()));
    assert_eq!(given.output["failures"], json!([]));
    assert!(!given.output.to_string().contains(home.path().to_str().unwrap()), "no path of this machine");
    assert_eq!(given.measured, Some(usage(2.0, [(BudgetCategory::Retrievals, 2.0)])));
}

#[tokio::test]
async fn one_bad_source_takes_no_other_with_it_and_is_named() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("good.md"), "good").unwrap();
    std::fs::write(home.path().join("latin.txt"), b"caf\xe9").unwrap();
    std::fs::write(home.path().join("empty.txt"), "").unwrap();
    let mut uris: Vec<String> = ["good.md", "latin.txt", "empty.txt", "none.md"]
        .map(|name| home.path().join(name).to_str().unwrap().to_owned())
        .into();
    uris.push("/etc/hostname".to_owned());
    uris.push("http://10.0.0.1/feed.xml?key=fake".to_owned());
    let tool = SourceFetch(fetcher());
    let given = partial(run(&tool, order(&tool, &uris, &[home.path()])).await);
    assert_eq!(given.output["documents"].as_array().unwrap().len(), 1);
    let expected = [
        ("latin.txt", "source-not-utf8"),
        ("empty.txt", "source-empty"),
        ("none.md", "source-missing"),
        ("hostname", "path-not-allowed"),
        ("10.0.0.1/feed.xml", "ssrf-private-ip"),
    ];
    assert_eq!(
        names_and_codes(&given.output["failures"]),
        expected.map(|(name, code)| (name.to_owned(), code.to_owned()))
    );
    assert!(!given.output.to_string().contains(home.path().to_str().unwrap()), "no path of this machine");
    assert_eq!(given.measured, Some(usage(2.0, [(BudgetCategory::Retrievals, 6.0)])), "nothing left this machine");
}

#[tokio::test]
async fn feeds_and_pages_of_the_web_become_documents_with_their_address() {
    const FEED: &str = "<rss version=\"2.0\"><channel><item><title>One</title></item></channel></rss>";
    let site = Site::serve(|path| match path {
        "/feed" => Some(http("200 OK", &[("content-type", "application/rss+xml")], FEED.as_bytes())),
        "/page?id=fake" => Some(http("200 OK", &[("content-type", "text/html; charset=utf-8")], b"<p>page")),
        "/moved" => Some(http("301 Moved Permanently", &[("location", "/feed")], b"")),
        _ => Some(http("404 Not Found", &[], b"")),
    })
    .await;
    let uris = ["/feed", "/page?id=fake", "/moved", "/gone"].map(|path| site.url("inside.test", path));
    let tool = SourceFetch(fetcher());
    let given = partial(run(&tool, order(&tool, &uris, &[])).await);
    let documents = given.output["documents"].as_array().unwrap();
    let names: Vec<_> = documents.iter().map(|document| document["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["inside.test/feed", "inside.test/page", "inside.test/moved"]);
    assert_eq!((&documents[0]["uri"], &documents[0]["text"]), (&json!(uris[0]), &json!(FEED)));
    assert_eq!(
        (&documents[0]["mediaType"], &documents[1]["mediaType"]),
        (&json!("application/rss+xml"), &json!("text/html"))
    );
    assert_eq!(documents[2]["uri"], json!(uris[0]), "where it was in the end");
    assert_eq!(names_and_codes(&given.output["failures"]), [("inside.test/gone".to_owned(), "http-status".to_owned())]);
    let counted = usage(2.0, [(BudgetCategory::Retrievals, 4.0), (BudgetCategory::ExternalCalls, 4.0)]);
    assert_eq!(given.measured, Some(counted));
}

#[tokio::test]
async fn an_answer_without_room_names_the_sources_it_left_out() {
    let home = tempfile::tempdir().unwrap();
    let uris: Vec<String> = (0..5)
        .map(|n| {
            let path = home.path().join(format!("{n}.txt"));
            std::fs::write(&path, "x".repeat(2 * 1024 * 1024)).unwrap();
            path.to_str().unwrap().to_owned()
        })
        .collect();
    let tool = SourceFetch(fetcher());
    let given = partial(run(&tool, order(&tool, &uris, &[home.path()])).await);
    assert_eq!(given.output["documents"].as_array().unwrap().len(), 4);
    assert_eq!(names_and_codes(&given.output["failures"]), [("4.txt".to_owned(), "source-output-full".to_owned())]);
}

#[tokio::test]
async fn bad_arguments_and_more_sources_than_reserved_are_refused() {
    let tool = SourceFetch(fetcher());
    let many = vec!["/a".to_owned(); 101];
    let bad = [
        json!({}),
        json!({ "uris": [] }),
        json!({ "uris": [1] }),
        json!({ "uris": [""] }),
        json!({ "uris": many }),
        json!({ "uris": ["/a"], "x": 1 }),
    ];
    for args in bad {
        assert_eq!(failure(run(&tool, call(&tool, args)).await).code, "args-invalid");
    }
    let mut tight = order(&tool, &["/a".to_owned(), "/b".to_owned()], &[]);
    tight.ceiling = tight.ceiling.with(BudgetCategory::Retrievals, Micros::units(1));
    assert_eq!(failure(run(&tool, tight).await).code, "ceiling-too-low");
    let mut tight = order(&tool, &["https://a.test/".to_owned()], &[]);
    tight.ceiling = tight.ceiling.with(BudgetCategory::ExternalCalls, Micros::ZERO);
    assert_eq!(failure(run(&tool, tight).await).code, "ceiling-too-low");
}

#[tokio::test]
async fn a_folder_is_listed_without_what_is_hidden_linked_or_no_text() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join("deep/er")).unwrap();
    for name in ["b.md", "a.TXT", ".secret.md", "cat.png", "deep/er/c.pdf"] {
        std::fs::write(home.path().join(name), "x").unwrap();
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(home.path(), home.path().join("round")).unwrap();
    let tool = SourceFetch(fetcher());
    let folder = home.path().to_str().unwrap().to_owned();
    let listed = |uris: Vec<String>, paths: Vec<&std::path::Path>| {
        let mut order = order(&tool, &uris, &paths);
        order.args["mode"] = json!("enumerate");
        order
    };
    let given = answer(run(&tool, listed(vec![folder.clone()], vec![home.path()])).await);
    let names: Vec<&str> = given.output["uris"]
        .as_array()
        .unwrap()
        .iter()
        .map(|uri| uri.as_str().unwrap().strip_prefix(&folder).unwrap())
        .collect();
    assert_eq!(names, ["/a.TXT", "/b.md", "/deep/er/c.pdf"]);
    let skipped = names_and_codes(&given.output["skipped"]);
    assert_eq!(skipped[0], ("cat.png".to_owned(), "source-not-text".to_owned()));

    let refused =
        partial(run(&tool, listed(vec!["/etc".to_owned(), "http://a.org".to_owned()], vec![home.path()])).await);
    let codes: Vec<String> = names_and_codes(&refused.output["failures"]).into_iter().map(|(_, code)| code).collect();
    assert_eq!(codes, ["path-not-allowed", "source-not-a-folder"]);
    assert_eq!(refused.output["uris"], json!([]));
}
