//! Reading documents from a file, a folder or standard input. Everything is read and checked before anything is done.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use signalbox_domain::json::{JsonError, Limits, parse_strict};
use signalbox_domain::redact::redact_text;

use super::{Document, Kind, VERSION_FIELD};
use crate::failure::Failure;

/// Largest file.
const FILE_BYTES_MAX: usize = 4 << 20;
/// Most files of one folder.
const FILES_MAX: usize = 1_000;
/// Most documents of one reading.
const DOCUMENTS_MAX: usize = 10_000;
/// Most problems that are told at once.
const PROBLEMS_MAX: usize = 20;
const LIMITS: Limits = Limits { bytes_max: FILE_BYTES_MAX, ..Limits::DEFAULT };

/// The documents of a file, of the `.yaml`, `.yml` and `.json` files of a folder, or of standard input (`-`), in the order in
/// which they are applied.
pub(crate) fn read(path: &Path) -> Result<Vec<Document>, Failure> {
    let mut problems = Vec::new();
    let mut documents = Vec::new();
    for file in files(path)? {
        let name = file.display().to_string();
        match text(&file).and_then(|text| values(&file, &text)) {
            Ok(values) => {
                let several = values.len() > 1;
                for (at, value) in values.into_iter().enumerate() {
                    let origin = if several { format!("{name}, document {}", at + 1) } else { name.clone() };
                    match document(value, &origin) {
                        Ok(document) => documents.push(document),
                        Err(problem) => problems.push(format!("{origin}: {problem}")),
                    }
                }
            }
            Err(problem) => problems.push(format!("{name}: {problem}")),
        }
        if documents.len() > DOCUMENTS_MAX {
            return Err(Failure::usage("manifest-too-large", format!("there are more than {DOCUMENTS_MAX} documents")));
        }
    }
    problems.extend(twice(&documents));
    if !problems.is_empty() {
        let more = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        return Err(Failure::usage("manifest-invalid", problems.join("\n  ")).next("nothing was done; put them right"));
    }
    documents.sort_by(Document::order);
    Ok(documents)
}

fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::usage("file-unreadable", format!("`{}` cannot be read: {}", path.display(), error.kind()))
    };
    if path == Path::new("-") || !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let hidden = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let known = file.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known));
        if known && !hidden && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        let message = format!("`{}` holds no .yaml, .yml or .json file", path.display());
        return Err(Failure::usage("manifest-empty", message));
    }
    if files.len() > FILES_MAX {
        let message = format!("`{}` holds more than {FILES_MAX} files", path.display());
        return Err(Failure::usage("manifest-too-large", message));
    }
    files.sort();
    Ok(files)
}

fn text(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let bound = FILE_BYTES_MAX as u64 + 1;
    let read = if file == Path::new("-") {
        std::io::stdin().take(bound).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(bound).read_to_end(&mut bytes))
    };
    read.map_err(|error| error.kind().to_string())?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("more than {} MiB", FILE_BYTES_MAX >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())
}

/// The documents as they stand there. YAML goes by way of JSON, so that both are held to the same limits.
fn values(file: &Path, text: &str) -> Result<Vec<Value>, String> {
    let said = |error: JsonError| format!("{} ({})", error, error.code());
    if file.extension().is_some_and(|ending| ending == "json") {
        return Ok(match parse_strict(text.as_bytes(), LIMITS).map_err(said)? {
            Value::Array(several) => several,
            one @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => vec![one],
        });
    }
    yaml(text)?.into_iter().map(|value| parse_strict(value.to_string().as_bytes(), LIMITS).map_err(said)).collect()
}

/// The documents of a YAML text: `no` and `on` are words, and a key that stands twice is refused.
pub(crate) fn yaml(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
    };
    // The reader shows the lines around a mistake; what stands in them is not for a log.
    let first_line = |text: String| redact_text(text.lines().next().unwrap_or_default()).into_owned();
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| first_line(error.to_string()))
}

fn document(value: Value, origin: &str) -> Result<Document, String> {
    let document: Document = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if document.id().is_empty() {
        let field = match document.text(document.kind.id_field()) {
            "" => document.kind.id_field(),
            _ => VERSION_FIELD,
        };
        return Err(format!("spec.{field} is missing: it says which {} this is", document.kind.as_str()));
    }
    let says_whose = document.platform_wide || document.tenant.is_some();
    if says_whose && matches!(document.kind, Kind::Agent | Kind::Executor) {
        let why = if document.kind == Kind::Agent {
            "whose agent it is stands in `spec.tenantScope`"
        } else {
            "an executor serves every tenant; it is nobody's"
        };
        return Err(why.to_owned());
    }
    if document.platform_wide && document.tenant.is_some() {
        return Err("either `tenant` or `platformWide`, not both".to_owned());
    }
    if document.reason.as_ref().is_some_and(|reason| reason.trim().is_empty()) {
        return Err("`reason` is empty".to_owned());
    }
    Ok(Document { origin: origin.to_owned(), ..document })
}

/// Two documents about one thing would undo each other.
fn twice(documents: &[Document]) -> Vec<String> {
    let mut first: BTreeMap<(Kind, &str, Cow<'_, str>), &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for document in documents {
        match first.get(&(document.kind, document.of_tenant(), document.id())) {
            Some(other) => problems.push(format!("{}: {} stands in {other} too", document.origin, document.title())),
            None => {
                first.insert((document.kind, document.of_tenant(), document.id()), &document.origin);
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_yaml(text: &str) -> Result<Vec<Document>, Failure> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rules.yaml"), text).unwrap();
        read(folder.path())
    }

    const BUDGET: &str = "kind: budget\nspec:\n  budgetId: b\n  limit: 0.1\n";

    #[test]
    fn documents_come_in_the_order_they_are_applied_in() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), format!("{BUDGET}---\n{}", BUDGET.replace(" b\n", " a\n")))
            .unwrap();
        std::fs::write(folder.path().join("b.json"), r#"[{"kind":"switch","spec":{"switchId":"s"}}]"#).unwrap();
        std::fs::write(folder.path().join("notes.txt"), "not a document").unwrap();
        std::fs::write(folder.path().join(".hidden.yaml"), "not: one").unwrap();
        let titles: Vec<_> = read(folder.path()).unwrap().iter().map(Document::title).collect();
        assert_eq!(titles, ["switch s", "budget a", "budget b"]);
    }

    #[test]
    fn yaml_says_what_is_written_there() {
        let said =
            read_yaml("kind: budget\nreason: no\nspec: {budgetId: 'on', limit: 0.1, scopeKey: yes, n: 012}\n").unwrap();
        assert_eq!(said[0].reason.as_deref(), Some("no"));
        assert_eq!(said[0].id(), "on");
        assert_eq!(said[0].spec["scopeKey"], "yes");
        assert_eq!(said[0].spec["limit"].to_string(), "0.1");
    }

    #[test]
    fn what_is_wrong_is_told_all_at_once_and_where() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.yaml", "kind: budget\nspec: {budgetId: b}\n---\nkind: budget\nspec: {budgetId: b}\n"),
            ("b.yaml", "kind: weather\nspec: {}\n"),
            ("c.yaml", "kind: budget\nkind: switch\nspec: {}\n"),
            ("d.json", r#"{"kind":"budget","spec":{"budgetId":"x","budgetId":"y"}}"#),
            ("e.json", "{"),
            ("f.yaml", "kind: budget\nspec: {}\n"),
            ("g.yaml", "kind: budget\ntenant: a\nplatformWide: true\nspec: {budgetId: g}\n"),
            ("h.yaml", "kind: budget\nlimit: 1\nspec: {budgetId: h}\n"),
            ("i.yaml", "kind: budget\nreason: '  '\nspec: {budgetId: i}\n"),
            ("j.json", r#"{"kind":"budget","spec":{"budgetId":"j","limit":9007199254740993}}"#),
            ("k.yaml", "kind: budget\nspec: {budgetId: k, limit: 9007199254740993}\n"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let failure = read(folder.path()).unwrap_err();
        assert_eq!(failure.code, "manifest-invalid");
        for name in [
            "a.yaml, document 2",
            "b.yaml",
            "c.yaml",
            "d.json",
            "e.json",
            "f.yaml",
            "g.yaml",
            "h.yaml",
            "i.yaml",
            "j.json",
            "k.yaml",
        ] {
            assert!(failure.message.contains(name), "{name}: {}", failure.message);
        }
    }

    #[test]
    fn what_is_hostile_is_refused() {
        let bomb: String = (0..12).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
            let many = format!("*a{n}, ").repeat(20);
            format!("{text}a{}: &a{} [{many}]\n", n + 1, n + 1)
        });
        for text in [bomb, "[".repeat(5_000), "kind: \u{0}".to_owned(), "x: .nan\n---\n%".to_owned()] {
            assert_eq!(read_yaml(&text).unwrap_err().code, "manifest-invalid");
        }
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(read(empty.path()).unwrap_err().code, "manifest-empty");
        assert_eq!(read(&empty.path().join("none")).unwrap_err().code, "file-unreadable");
    }
}
