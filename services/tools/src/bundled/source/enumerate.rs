//! `source.fetch`, mode `enumerate`: which files of a folder can be read, as paths for a later call.

use std::path::Path;

use cap_std::fs::Dir;
use serde_json::json;
use signalbox_domain::quantity::BudgetCategory;

use super::document::SourceFailure;
use super::local::open_folder;
use super::{URIS_MAX, is_web};
use crate::bundled::shared::{base_usage, blocking};
use crate::tool::{Answer, Failure, ToolCall, ToolOutcome};

/// Deepest folder below the one that is named.
const DEPTH_MAX: usize = 8;
/// Most names that are looked at.
const NAMES_MAX: usize = 10_000;
/// Endings of what can be read as a source.
const ENDINGS: [&str; 14] =
    ["md", "markdown", "txt", "text", "html", "htm", "xhtml", "rss", "atom", "xml", "json", "jsonfeed", "pdf", "epub"];

/// What a folder holds.
#[derive(Default)]
struct Listing {
    uris: Vec<String>,
    skipped: Vec<SourceFailure>,
    failures: Vec<SourceFailure>,
    looked_at: usize,
}

/// Lists what the folders hold. Hidden files, links and what is no text are left out, and named as such.
pub(super) async fn enumerate(folders: Vec<String>, call: &ToolCall) -> Result<ToolOutcome, Failure> {
    let mut measured = base_usage(&call.tool_id);
    measured.insert(BudgetCategory::Retrievals, folders.len() as f64);
    let paths = call.constraints.paths.clone();
    let listing = blocking(move || {
        let mut listing = Listing::default();
        for folder in &folders {
            if is_web(folder) {
                listing.failures.push(SourceFailure::new(
                    "web",
                    "source-not-a-folder",
                    "only folders of files can be listed",
                ));
                continue;
            }
            match open_folder(folder, paths.as_deref()) {
                Ok(dir) => walk(&dir, Path::new(folder), "", 0, &mut listing),
                Err(failure) => listing.failures.push(failure),
            }
        }
        listing.uris.sort();
        listing.uris.dedup();
        for uri in listing.uris.drain(listing.uris.len().min(URIS_MAX)..) {
            let name = uri.rsplit('/').next().unwrap_or_default().to_owned();
            listing.skipped.push(SourceFailure::new(
                name,
                "too-many-sources",
                format!("at most {URIS_MAX} are listed"),
            ));
        }
        listing.skipped.sort_by(|a, b| a.name.cmp(&b.name));
        listing.skipped.truncate(URIS_MAX * 10);
        Ok(listing)
    })
    .await?;
    let partial = !listing.failures.is_empty();
    let output = json!({ "uris": listing.uris, "skipped": listing.skipped, "failures": listing.failures });
    let answer = Answer::new(output, measured);
    Ok(if partial { ToolOutcome::Partial(answer) } else { ToolOutcome::Ok(answer) })
}

fn walk(dir: &Dir, path: &Path, inside: &str, depth: usize, listing: &mut Listing) {
    let Ok(entries) = dir.entries() else {
        listing.failures.push(SourceFailure::new(inside, "source-unreadable", "the folder cannot be read"));
        return;
    };
    let mut names: Vec<String> = entries
        .take(NAMES_MAX)
        .filter_map(|entry| entry.ok().and_then(|entry| entry.file_name().into_string().ok()))
        .collect();
    names.sort();
    for name in names {
        listing.looked_at += 1;
        if listing.looked_at > NAMES_MAX || name.starts_with('.') {
            continue;
        }
        let shown = if inside.is_empty() { name.clone() } else { format!("{inside}/{name}") };
        // Asked without following it: a link could lead to the same folder again.
        let Ok(kind) = dir.symlink_metadata(&name) else { continue };
        let here = path.join(&name);
        if kind.is_dir() && depth < DEPTH_MAX {
            if let Ok(below) = dir.open_dir(&name) {
                walk(&below, &here, &shown, depth + 1, listing);
            }
        } else if kind.is_file() && is_readable(&name) {
            listing.uris.push(here.to_string_lossy().into_owned());
        } else {
            listing.skipped.push(SourceFailure::new(
                shown,
                "source-not-text",
                "it is no file that is read as a source",
            ));
        }
    }
}

fn is_readable(name: &str) -> bool {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    ENDINGS.contains(&ending.as_str())
}
