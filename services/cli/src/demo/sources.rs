//! The sources of a briefing, as they are named on the command line: files, folders and URLs.
//!
//! Folders are walked in order, without hidden files and without following links, so that the same folder always gives
//! the same list and nothing outside it gets in. The list is bounded before anything is read.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use signalbox_domain::canonical;
use url::Url;

use crate::failure::Failure;

/// Most files.
pub(crate) const FILES_MAX: usize = 10_000;
/// Most bytes of all files together.
pub(crate) const BYTES_MAX: u64 = 64 << 20;
/// Deepest folder below the one named.
const DEPTH_MAX: usize = 32;
/// The kinds of files that are read.
pub(crate) const EXTENSIONS: [&str; 9] = ["md", "markdown", "html", "htm", "txt", "rss", "xml", "atom", "json"];

/// Everything a briefing is made from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sources {
    /// Absolute paths of files, in order, and then URLs, in order; none twice.
    pub(crate) list: Vec<String>,
    /// The folders and files that were named, absolute: what a grant may open.
    pub(crate) roots: Vec<String>,
    /// The hosts of the URLs: what a grant may reach.
    pub(crate) hosts: Vec<String>,
    /// The schemes of the URLs, `https` always among them.
    pub(crate) schemes: Vec<String>,
    /// How many entries of folders were passed over, because of their kind, or as links or hidden.
    pub(crate) passed_over: usize,
}

impl Sources {
    /// Collects what was named.
    pub(crate) fn collect(named: &[String]) -> Result<Self, Failure> {
        let mut collector = Collector::default();
        for name in named {
            if name.contains("://") {
                collector.url(name)?;
            } else {
                collector.path(Path::new(name))?;
            }
        }
        let sources = collector.finish();
        if sources.list.is_empty() {
            let message = format!("there is nothing to read in {}; {}", named.join(", "), kinds());
            return Err(Failure::usage("sources-empty", message));
        }
        Ok(sources)
    }

    /// Tells this list and date from every other: SHA-256 over their canonical form.
    pub(crate) fn key(&self, since: Option<&str>) -> Result<String, Failure> {
        canonical::digest(&json!({ "sources": self.list, "since": since }))
            .map_err(|error| Failure::new("sources-invalid", error.to_string()))
    }
}

#[derive(Default)]
struct Collector {
    files: BTreeSet<String>,
    urls: BTreeSet<String>,
    roots: BTreeSet<String>,
    hosts: BTreeSet<String>,
    schemes: BTreeSet<String>,
    bytes: u64,
    passed_over: usize,
}

impl Collector {
    fn url(&mut self, text: &str) -> Result<(), Failure> {
        let bad = |problem: &str| {
            Failure::usage("source-unsupported", format!("`{text}` {problem}"))
                .next("name files, folders, or URLs that begin with https:// or http://")
        };
        let mut url = Url::parse(text).map_err(|error| bad(&format!("is no URL: {error}")))?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(bad("has a scheme that is not read"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("carries a user name or password; such URLs are not read"));
        }
        let Some(host) = url.host_str().map(ToOwned::to_owned) else {
            return Err(bad("names no host"));
        };
        url.set_fragment(None);
        self.hosts.insert(host);
        self.schemes.insert(url.scheme().to_owned());
        self.urls.insert(url.to_string());
        Ok(())
    }

    fn path(&mut self, named: &Path) -> Result<(), Failure> {
        let missing = |error: &std::io::Error| {
            let message = format!("`{}` cannot be read: {}", named.display(), error.kind());
            Failure::usage("sources-missing", message)
        };
        let path = named.canonicalize().map_err(|error| missing(&error))?;
        let metadata = path.metadata().map_err(|error| missing(&error))?;
        let Some(root) = path.to_str() else {
            return Err(Failure::usage(
                "source-unsupported",
                format!("the name of `{}` is not UTF-8", named.display()),
            ));
        };
        if metadata.is_dir() {
            self.roots.insert(root.to_owned());
            return self.folder(&path, DEPTH_MAX);
        }
        if !has_known_kind(&path) {
            let message = format!("`{}` is of a kind that is not read; {}", named.display(), kinds());
            return Err(Failure::usage("source-unsupported", message));
        }
        self.roots.insert(root.to_owned());
        self.file(root, metadata.len())
    }

    fn folder(&mut self, folder: &Path, depth: usize) -> Result<(), Failure> {
        let unreadable = |error: std::io::Error| {
            Failure::new("sources-missing", format!("`{}` cannot be read: {}", folder.display(), error.kind()))
        };
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            // A link's type is `symlink`, whatever it points to.
            entries.push((entry.path(), entry.file_type().map_err(unreadable)?));
            if entries.len() > FILES_MAX * 10 {
                return Err(too_large(format!("`{}` has more than {} entries", folder.display(), FILES_MAX * 10)));
            }
        }
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (path, kind) in entries {
            if is_hidden(&path) {
                self.passed_over += 1;
            } else if kind.is_dir() && depth > 0 {
                self.folder(&path, depth - 1)?;
            } else if let (true, true, Some(text)) = (kind.is_file(), has_known_kind(&path), path.to_str()) {
                let length = path.symlink_metadata().map_err(unreadable)?.len();
                self.file(text, length)?;
            } else {
                self.passed_over += 1;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &str, length: u64) -> Result<(), Failure> {
        if !self.files.insert(path.to_owned()) {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(length);
        if self.files.len() > FILES_MAX {
            return Err(too_large(format!("there are more than {FILES_MAX} files")));
        }
        if self.bytes > BYTES_MAX {
            return Err(too_large(format!("the files have more than {} MiB together", BYTES_MAX >> 20)));
        }
        Ok(())
    }

    fn finish(mut self) -> Sources {
        self.schemes.insert("https".to_owned());
        Sources {
            list: self.files.into_iter().chain(self.urls).collect(),
            roots: self.roots.into_iter().collect(),
            hosts: self.hosts.into_iter().collect(),
            schemes: self.schemes.into_iter().collect(),
            passed_over: self.passed_over,
        }
    }
}

fn too_large(message: String) -> Failure {
    Failure::usage("sources-too-large", message).next("name fewer or smaller folders")
}

fn kinds() -> String {
    format!("files that end with .{} are read", EXTENSIONS.join(", ."))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn has_known_kind(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    struct Folder(PathBuf, #[expect(dead_code, reason = "removes the folder at the end")] tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::Builder::new().prefix("signalbox-").tempdir().unwrap();
            Self(folder.path().canonicalize().unwrap(), folder)
        }
        fn put(&self, name: &str, bytes: &[u8]) -> &Self {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
            self
        }
        fn named(&self, name: &str) -> String {
            self.0.join(name).to_str().unwrap().to_owned()
        }
        fn collect(&self) -> Result<Sources, Failure> {
            Sources::collect(&[self.named("")])
        }
    }

    #[test]
    fn a_folder_is_walked_in_order_without_hidden_and_foreign_files() {
        let folder = Folder::new();
        folder
            .put("b.md", b"b")
            .put("a/z.HTML", b"z")
            .put("a/.git/x.md", b"x")
            .put(".hidden.md", b"h")
            .put("c.exe", b"c");
        let sources = folder.collect().unwrap();
        assert_eq!(sources.list, [folder.named("a/z.HTML"), folder.named("b.md")]);
        assert_eq!(sources.roots, [folder.0.to_str().unwrap()]);
        assert_eq!((sources.passed_over, sources.hosts.len()), (3, 0));
        assert_eq!(sources.schemes, ["https"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_a_folder_are_not_followed() {
        let (folder, outside) = (Folder::new(), Folder::new());
        outside.put("secret.md", b"s");
        folder.put("a.md", b"a");
        std::os::unix::fs::symlink(outside.named("secret.md"), folder.0.join("link.md")).unwrap();
        std::os::unix::fs::symlink(&outside.0, folder.0.join("linked")).unwrap();
        std::os::unix::fs::symlink(&folder.0, folder.0.join("again")).unwrap();
        let sources = folder.collect().unwrap();
        assert_eq!((sources.list, sources.passed_over), (vec![folder.named("a.md")], 3));
    }

    #[test]
    fn what_is_named_twice_is_read_once() {
        let folder = Folder::new();
        folder.put("a.md", b"a");
        let url = "https://Example.org/feed#top".to_owned();
        let named = [folder.named("a.md"), folder.named(""), folder.named("a.md"), url.clone(), url];
        let sources = Sources::collect(&named).unwrap();
        assert_eq!(sources.list, [folder.named("a.md"), "https://example.org/feed".to_owned()]);
        assert_eq!(sources.hosts, ["example.org"]);
    }

    #[test]
    fn http_is_a_scheme_only_if_a_url_asks_for_it() {
        let named = ["http://a.example/".to_owned(), "https://b.example/x".to_owned()];
        let sources = Sources::collect(&named).unwrap();
        assert_eq!(
            (sources.schemes, sources.hosts),
            (vec!["http".to_owned(), "https".to_owned()], vec!["a.example".to_owned(), "b.example".to_owned()])
        );
    }

    #[test]
    fn each_refusal_has_its_code() {
        let folder = Folder::new();
        folder.put("only.bin", b"b");
        let cases = [
            (folder.named("nowhere"), "sources-missing"),
            (folder.named(""), "sources-empty"),
            (folder.named("only.bin"), "source-unsupported"),
            ("ftp://example.org/x".to_owned(), "source-unsupported"),
            ("https://user:secret@example.org/x".to_owned(), "source-unsupported"),
            ("https://".to_owned(), "source-unsupported"),
        ];
        for (named, code) in cases {
            assert_eq!(Sources::collect(&[named]).unwrap_err().code, code);
        }
        assert_eq!(Sources::collect(&[]).unwrap_err().code, "sources-empty");
    }

    #[test]
    fn too_many_bytes_are_refused_before_they_are_read() {
        let folder = Folder::new();
        let sparse = std::fs::File::create(folder.0.join("big.md")).unwrap();
        sparse.set_len(BYTES_MAX + 1).unwrap();
        assert_eq!(folder.collect().unwrap_err().code, "sources-too-large");
    }

    #[test]
    fn the_key_depends_on_the_list_and_the_date_and_on_nothing_else() {
        let sources = Sources { list: vec!["/a".to_owned()], ..Sources::default() };
        let same = Sources { list: vec!["/a".to_owned()], passed_over: 9, ..Sources::default() };
        let other = Sources { list: vec!["/b".to_owned()], ..Sources::default() };
        assert_eq!(sources.key(None), same.key(None));
        assert_ne!(sources.key(None), other.key(None));
        assert_ne!(sources.key(None), sources.key(Some("2026-01-01")));
    }
}
