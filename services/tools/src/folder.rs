//! The files a pipeline gives: a name and a text each, and what somebody who is asked for a yes should see of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signalbox_domain::canonical::sha256_hex;

use crate::page::Page;

/// Files by name.
pub(crate) type Files = BTreeMap<String, String>;

/// `NAME.md` and `NAME.html` of a page.
pub(crate) fn both(files: &mut Files, name: &str, page: &Page) {
    files.insert(format!("{name}.md"), page.markdown());
    files.insert(format!("{name}.html"), page.html());
}

/// A value as a file of JSON.
pub(crate) fn data(value: &Value) -> String {
    format!("{value:#}\n")
}

/// `files`, and `summary` with these counts, the title and the digest of each file.
pub(crate) fn rendered(title: &str, counts: &Value, files: Files) -> Value {
    let digests: BTreeMap<&str, String> =
        files.iter().map(|(name, text)| (name.as_str(), sha256_hex(text.as_bytes()))).collect();
    let mut summary = counts.as_object().cloned().unwrap_or_default();
    summary.insert("title".to_owned(), title.into());
    summary.insert("sha256".to_owned(), json!(digests));
    json!({ "files": files, "summary": summary })
}
