//! The workspace as files: its crates, their manifests, their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Folders that hold what was made, not what was written.
const MADE: [&str; 4] = ["target", "data", ".git", "node_modules"];

/// How one crate depends on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Normal,
    Build,
    Test,
}

/// A line under one of a manifest's dependency tables.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    /// The package, whatever the crate calls it.
    pub(crate) package: String,
    pub(crate) used_for: Use,
    /// Its version comes from the root manifest.
    pub(crate) inherited: bool,
}

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Relative to the root.
    pub(crate) folder: PathBuf,
    pub(crate) manifest: Table,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A file with its path relative to the root.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every file under `folder` whose name ends with one of `endings`, in order; files that are not text are left out.
pub(crate) fn files(folder: &str, endings: &[&str]) -> Vec<File> {
    let mut paths = Vec::new();
    walk(&signalbox_tests::root().join(folder), &mut paths);
    paths.sort();
    paths
        .into_iter()
        .filter(|path| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)))
        .filter_map(|path| {
            let text = fs::read_to_string(&path).ok()?;
            let path = path.strip_prefix(signalbox_tests::root()).unwrap().to_string_lossy().into_owned();
            Some(File { path, text })
        })
        .collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !MADE.iter().any(|made| entry.file_name() == *made) {
            walk(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// The crates, as the root manifest lists them.
pub(crate) fn members() -> Vec<Member> {
    let root = manifest(Path::new(""));
    let patterns = root["workspace"]["members"].as_array().unwrap();
    let mut folders = Vec::new();
    for pattern in patterns.iter().map(|p| p.as_str().unwrap()) {
        match pattern.strip_suffix("/*") {
            None => folders.push(PathBuf::from(pattern)),
            Some(parent) => {
                for entry in fs::read_dir(signalbox_tests::root().join(parent)).unwrap() {
                    folders.push(Path::new(parent).join(entry.unwrap().file_name()));
                }
            }
        }
    }
    folders.sort();
    folders.into_iter().map(member).collect()
}

fn member(folder: PathBuf) -> Member {
    let manifest = manifest(&folder);
    let name = manifest["package"]["name"].as_str().unwrap().to_owned();
    let mut dependencies = dependencies_of(&manifest);
    if let Some(targets) = manifest.get("target").and_then(Value::as_table) {
        dependencies.extend(targets.values().filter_map(Value::as_table).flat_map(dependencies_of));
    }
    Member { name, folder, manifest, dependencies }
}

fn dependencies_of(table: &Table) -> Vec<Dependency> {
    [("dependencies", Use::Normal), ("build-dependencies", Use::Build), ("dev-dependencies", Use::Test)]
        .into_iter()
        .filter_map(|(key, used_for)| Some((table.get(key)?.as_table()?, used_for)))
        .flat_map(|(lines, used_for)| {
            lines.iter().map(move |(alias, line)| Dependency {
                package: line.get("package").and_then(Value::as_str).unwrap_or(alias).to_owned(),
                used_for,
                inherited: line.get("workspace").and_then(Value::as_bool) == Some(true),
            })
        })
        .collect()
}

/// A manifest by the folder of its crate.
pub(crate) fn manifest(folder: &Path) -> Table {
    let path = signalbox_tests::root().join(folder).join("Cargo.toml");
    fs::read_to_string(&path).unwrap().parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a source says apart from its comments and its tests, line by line with line numbers.
///
/// Good enough for code that `cargo fmt` has been over: a test module written in place is the last thing in its file.
pub(crate) fn code_lines(text: &str) -> Vec<(usize, &str)> {
    let mut code = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let words = line.trim_start();
        if words.starts_with("#[cfg(test)]") {
            let next = lines.peek().map_or("", |(_, next)| next.trim());
            match (next.contains("mod "), next.ends_with(';')) {
                (true, true) => drop(lines.next()),
                (true, false) => break,
                (false, _) => {}
            }
        } else if !words.starts_with("//") {
            code.push((index + 1, line));
        }
    }
    code
}

/// The files that are compiled for tests alone: integration tests, benches, and modules declared under `#[cfg(test)]`.
pub(crate) fn test_files(files: &[File]) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = files
        .iter()
        .map(|file| file.path.clone())
        .filter(|path| ["tests", "benches"].iter().any(|top| path.split('/').any(|part| part == *top)))
        .collect();
    for file in files {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let children = match name {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
            _ => file.path.trim_end_matches(".rs").to_owned(),
        };
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for pair in lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]") {
            let declared = pair[1].split_once("mod ").and_then(|(_, rest)| rest.strip_suffix(';'));
            if let Some(module) = declared {
                let inside = format!("{children}/{module}/");
                found.extend(files.iter().map(|f| &f.path).filter(|path| path.starts_with(&inside)).cloned());
                found.insert(format!("{children}/{module}.rs"));
            }
        }
    }
    found
}

/// Fails with every finding at once, each on its own line.
#[track_caller]
pub(crate) fn none(findings: Vec<String>, rule: &str) {
    assert!(findings.is_empty(), "{rule}\n  {}\n", findings.join("\n  "));
}

/// Counts by key, for rules that say "once".
pub(crate) fn counts<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    items.into_iter().fold(BTreeMap::new(), |mut counts, item| {
        *counts.entry(item).or_default() += 1;
        counts
    })
}
