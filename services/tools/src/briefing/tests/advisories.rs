//! Advisories of our own writing, in the shapes that real ones have.

use serde_json::{Value, json};

use super::{Walk, document, quotes_found, walk};

fn advisory(id: &str, head: &str, body: &str) -> Value {
    document(&format!("{id}.md"), &format!("```toml\n[advisory]\nid = \"{id}\"\n{head}\n```\n\n{body}\n"))
}

fn week() -> Vec<Value> {
    vec![
        advisory(
            "DEMO-1",
            "package = \"kitecore\"\ndate = \"2026-08-02\"\nreferences = [\"https://kite.example/talk/7\"]\n\
             informational = \"unmaintained\"\n[versions]\npatched = []",
            "# `kitecore` is unmaintained\n\nThe `kitecore` crate is no longer maintained. \
             Users should migrate to [`kitekit`](https://kite.example/kitekit).",
        ),
        advisory(
            "DEMO-2",
            "package = \"kitetail\"\ndate = \"2026-08-03\"\ninformational = \"unmaintained\"\n[versions]\npatched = []",
            "# `kitetail` is unmaintained   \n\nThe `kitetail` crate is no longer maintained by anybody.",
        ),
        advisory(
            "DEMO-3",
            "package = \"stringy\"\ndate = \"2026-08-04\"\ninformational = \"unsound\"\n[affected]\n[affected.functions]\n\
             \"stringy::Knot::tie\" = [\"<= 0.7.0\"]\n\"stringy::Knot::cut\" = [\"<= 0.7.0\"]\n\n[versions]\npatched = []",
            "# Unsoundness in `Knot`\n\nTying a knot reads memory that was never written. The repository is archived \
             and no fix is available.",
        ),
        advisory(
            "DEMO-4",
            "package = \"goodkite\"\ndate = \"2026-08-05\"\ncategories = [\"malicious\"]\n\
             url = \"https://kite.example/campaign\"\n[versions]\nunaffected = [\"<= 0.3.9\"]\npatched = []",
            "# `goodkite` 0.3.10 was removed from the registry due to a malicious dependency\n\nA new version of the \
             `goodkite` crate was published with a dependency on `badtail`. It was removed from the registry after an hour.",
        ),
        advisory(
            "DEMO-5",
            "package = \"badtail\"\ndate = \"2026-08-05\"\nexpect-deleted = true\n\
             url = \"https://kite.example/campaign\"\n[versions]\npatched = []",
            "# `badtail` was removed from the registry due to malicious code\n\nWe found that `badtail` ran malicious \
             code in a build script. The crate had 2 versions.",
        ),
        advisory(
            "DEMO-6",
            "package = \"knotserver\"\ndate = \"2026-08-06\"\ncategories = [\"denial-of-service\"]\n\
             [versions]\npatched = [\">= 0.4.16\"]",
            "# knotserver queues empty knots\n\nThe server queues empty knots without limit, until memory is used up.\n\n\
             Low severity.\n\nPatched in v0.4.16.",
        ),
        advisory(
            "DEMO-7",
            "package = \"openknot\"\ndate = \"2026-08-07\"\ncategories = [\"crypto-failure\"]\n\
             [versions]\npatched = [\">= 2.0.0\"]",
            "# Knots can be forged\n\nEvery knot that begins with a zero verifies for every rope in the shed. \
             Applications must upgrade, find the affected ropes and rotate them.",
        ),
        advisory(
            "DEMO-8",
            "package = \"untar-kite\"\ndate = \"2026-08-08\"\n\
             cvss = \"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H\"\n[versions]\npatched = []",
            "# Path traversal in `untar-kite`\n\nUnpacking follows names that lead out of the folder it unpacks to.",
        ),
        advisory(
            "DEMO-9",
            "package = \"calm\"\ndate = \"2026-08-08\"\ninformational = \"notice\"\n[versions]\npatched = []",
            "# `calm` changes its licence\n\nThe next version of `calm` comes under another licence than before.",
        ),
    ]
}

async fn pack() -> Walk {
    walk(&week(), None).await
}

#[tokio::test]
async fn malicious_comes_first_then_vulnerabilities_by_severity_then_unsound_unmaintained_and_notices() {
    assert_eq!(
        pack().await.ids(),
        ["DEMO-4", "DEMO-5", "DEMO-8", "DEMO-7", "DEMO-6", "DEMO-3", "DEMO-2", "DEMO-1", "DEMO-9"]
    );
}

#[tokio::test]
async fn each_item_has_its_kind_versions_and_what_to_do_from_its_own_data() {
    let walk = pack().await;
    let rows: Vec<(String, String, String, String)> = walk.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let field = |name: &str| item[name].as_str().unwrap().to_owned();
            (field("kind"), field("affected"), field("patched"), field("whatToDo"))
        })
        .collect();
    let wanted = [
        (
            "malicious",
            "> 0.3.9",
            "none",
            "Use only versions of `goodkite` that are listed as unaffected, `<= 0.3.9`; no patched one is listed.",
        ),
        (
            "malicious",
            "all versions",
            "none",
            "Use no version of `badtail`: all are affected, and neither a patched nor an unaffected one is listed.",
        ),
        (
            "vulnerability",
            "all versions",
            "none",
            "All versions of `untar-kite` are affected and no patched one is listed: decide whether to keep it.",
        ),
        (
            "vulnerability",
            "< 2.0.0",
            ">= 2.0.0",
            "Upgrade `openknot` to `>= 2.0.0`. The source says: “Applications must upgrade, find the affected ropes and \
             rotate them.”",
        ),
        ("vulnerability", "< 0.4.16", ">= 0.4.16", "Upgrade `knotserver` to `>= 0.4.16`."),
        (
            "unsound",
            "<= 0.7.0",
            "none",
            "No patched version of `stringy` is listed: stay clear of the affected functions, `Knot::cut`, `Knot::tie`. \
             The source says: “The repository is archived and no fix is available.”",
        ),
        (
            "unmaintained",
            "all versions",
            "none",
            "No patched version of `kitetail` is listed and the source names no replacement: decide whether to keep it.",
        ),
        (
            "unmaintained",
            "all versions",
            "none",
            "No patched version of `kitecore` is listed; the source names a replacement, `kitekit`. The source says: \
             “Users should migrate to `kitekit`.”",
        ),
        ("notice", "all versions", "none", "Nothing to change is stated: read the notice."),
    ];
    let wanted: Vec<(String, String, String, String)> =
        wanted.iter().map(|(a, b, c, d)| ((*a).into(), (*b).into(), (*c).into(), (*d).into())).collect();
    assert_eq!(rows, wanted);
}

#[tokio::test]
async fn severity_is_given_where_it_is_stated_and_nowhere_else() {
    let walk = pack().await;
    let severity = |id: &str| (walk.item(id)["severity"].clone(), walk.item(id)["score"].clone());
    assert_eq!(severity("DEMO-8"), (json!("critical"), json!(9.8)));
    assert_eq!(severity("DEMO-6"), (json!("low"), Value::Null));
    assert_eq!(severity("DEMO-7"), (Value::Null, Value::Null));
    assert!(walk.files["briefing.md"].contains("severity: not stated"));
}

#[tokio::test]
async fn every_quote_is_found_and_every_claim_of_a_head_is_borne_out() {
    let walk = pack().await;
    let json = walk.json();
    let count = quotes_found(&json, &week());
    assert_eq!(json["checks"]["quotesFound"], json!(count));
    assert_eq!(json["checks"]["claims"], json["checks"]["claimsSupported"]);
    assert_eq!((&json["problems"], &json["contradictions"]), (&json!([]), &json!([])));
    let patched = |item: &Value| item["quotes"].as_array().unwrap().iter().any(|quote| quote["supports"] == "patched");
    assert!(json["items"].as_array().unwrap().iter().all(patched));
}

#[tokio::test]
async fn a_link_is_the_stated_one_or_else_that_of_the_public_database() {
    let walk = pack().await;
    assert_eq!(walk.item("DEMO-4")["link"], "https://kite.example/campaign");
    assert_eq!(walk.item("DEMO-1")["link"], "https://kite.example/talk/7");
    assert_eq!(walk.item("DEMO-2").get("link"), None);
    let rustsec = advisory(
        "RUSTSEC-1999-0001",
        "package = \"x\"\n[versions]\npatched = []",
        "# X\n\nThe crate is broken in a small way.",
    );
    let walk = super::walk(&[rustsec], None).await;
    let item = walk.item("RUSTSEC-1999-0001");
    assert_eq!(item["link"], "https://rustsec.org/advisories/RUSTSEC-1999-0001.html");
    assert_eq!(item["linkFrom"], "derived from the id");
    assert!(walk.files["briefing.md"].contains("grep -nE '^name = \"(x)\"' Cargo.lock"));
}

#[tokio::test]
async fn what_there_is_to_do_is_listed_once_by_sort() {
    let walk = pack().await;
    let markdown = &walk.files["briefing.md"];
    for line in [
        "- **Use no version:** `badtail`\n",
        "- **Use only versions listed as unaffected:** `goodkite` `<= 0.3.9`\n",
        "  - `openknot` to `>= 2.0.0`\n",
        "- **No patch; the source names a replacement:** `kitecore`: `kitekit`\n",
        "- **No patch; stay clear of the affected functions:** `stringy`: `Knot::cut`, `Knot::tie`\n",
        "All of these refer to https://kite.example/campaign\n",
    ] {
        assert!(markdown.contains(line), "{line} is missing from\n{markdown}");
    }
}

#[tokio::test]
async fn a_broken_source_is_listed_with_its_reason_and_the_rest_is_used() {
    let good = week().remove(0);
    let broken = |name: &str, text: &str| document(name, text);
    let mut sources = vec![
        broken("a-no-toml.md", "```toml\n[advisory]\nid = \"x\npackage\n```\n\n# Title\n"),
        broken(
            "b-no-id.md",
            "```toml\n[advisory]\npackage = \"x\"\n```\n\n# Title\n\nSome sentence of enough length here.\n",
        ),
        broken("c-odd-package.md", "```toml\n[advisory]\nid = \"X-1\"\npackage = 3\n```\n\n# Title\n"),
        broken("d-open.md", "```toml\n[advisory]\nid = \"X-2\"\n\n# Title\n"),
        broken("e-empty.txt", " \n"),
        broken("f-binary.txt", "\u{0}\u{1}\u{2}\u{0}\u{1}\u{2}binary"),
        broken("g-large.txt", &"long ".repeat(500_000)),
        broken("h-code.md", "```\nlet x = 1;\n```\n"),
    ];
    let mut again = good.clone();
    again["name"] = json!("i-again.md");
    again["uri"] = json!("/srv/somewhere/i-again.md");
    sources.extend([good, again]);
    let walk = walk(&sources, None).await;
    assert_eq!(walk.ids(), ["DEMO-1"]);
    let json = walk.json();
    let rows: Vec<(&str, &str)> = json["unusable"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    assert_eq!(
        rows,
        [
            ("a-no-toml.md", "head-not-readable"),
            ("b-no-id.md", "head-without-id"),
            ("c-odd-package.md", "head-package-not-text"),
            ("d-open.md", "head-not-readable"),
            ("e-empty.txt", "document-empty"),
            ("f-binary.txt", "document-not-text"),
            ("g-large.txt", "document-too-large"),
            ("h-code.md", "document-without-sentences"),
            ("i-again.md", "document-repeated"),
        ]
    );
    assert!(walk.files["briefing.md"].contains("## Not usable (9)"));
}

#[tokio::test]
async fn two_files_about_one_advisory_are_one_item_and_their_differences_are_reported() {
    let one = week().remove(5);
    let mut other = document("zz-copy.md", &one["text"].as_str().unwrap().replace(">= 0.4.16", ">= 0.4.17"));
    other["uri"] = json!("/srv/somewhere/zz-copy.md");
    let walk = walk(&[one, other], None).await;
    assert_eq!(walk.ids(), ["DEMO-6"]);
    let json = walk.json();
    assert_eq!(json["unusable"][0]["code"], "item-repeated");
    let contradiction = &json["contradictions"][0];
    assert_eq!((&contradiction["kind"], &contradiction["unit"]), (&json!("field"), &json!("patched")));
    assert_eq!(contradiction["values"][0]["value"], ">= 0.4.16");
    assert_eq!(contradiction["values"][1]["value"], ">= 0.4.17");
}

#[tokio::test]
async fn a_withdrawn_advisory_is_a_notice_and_a_weakness_in_handling_malicious_input_is_no_malware() {
    let withdrawn = advisory(
        "DEMO-20",
        "package = \"a\"\ndate = \"2026-08-01\"\nwithdrawn = \"2026-08-09\"\n[versions]\npatched = []",
        "# Nothing after all\n\nThis advisory was issued by mistake and has been withdrawn.",
    );
    let input = advisory(
        "DEMO-21",
        "package = \"b\"\ndate = \"2026-08-01\"\n[versions]\npatched = [\">= 1.0.1\"]",
        "# Panic on malicious archives\n\nA malicious archive makes the reader panic before it is read.",
    );
    let walk = walk(&[withdrawn, input], None).await;
    assert_eq!(walk.item("DEMO-20")["kind"], "notice");
    assert_eq!(walk.item("DEMO-20")["kindFrom"], "withdrawn on 2026-08-09");
    assert_eq!(walk.item("DEMO-21")["kind"], "vulnerability");
}
