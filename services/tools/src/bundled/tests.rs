//! The bundled tools as a whole: files and memory.

use std::sync::Arc;

use serde_json::json;
use signalbox_domain::catalog;
use signalbox_domain::ids::ToolId;
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};

use super::file::{FileRead, FileWrite};
use super::memory::{Memories, MemoryRead, MemoryWrite};
use super::run_files::RunFiles;
use super::testing::{answer, call, failure, run, usage};
use super::{BundledConfig, registry};
use crate::tool::{Tool, ToolOutcome};

struct Home {
    _folder: tempfile::TempDir,
    write: FileWrite,
    read: FileRead,
    keep: MemoryWrite,
    recall: MemoryRead,
}

fn home() -> Home {
    let folder = tempfile::tempdir().unwrap();
    let files = Arc::new(RunFiles::new(folder.path().to_owned()));
    let memories = Arc::new(Memories::new(folder.path().to_owned()));
    Home {
        write: FileWrite(files.clone()),
        read: FileRead(files),
        keep: MemoryWrite(memories.clone()),
        recall: MemoryRead(memories),
        _folder: folder,
    }
}

#[tokio::test]
async fn what_file_write_puts_file_read_gives_back_with_its_digest() {
    let home = home();
    let wrote =
        answer(run(&home.write, call(&home.write, json!({ "path": "briefing.md", "content": "# Hallo" }))).await);
    assert_eq!(wrote.output["size"], 7);
    assert_eq!(wrote.measured, Some(usage(1.0, [(BudgetCategory::StorageBytes, 7.0)])));
    assert_eq!(wrote.effects, ["wrote briefing.md"]);
    let artifact = &wrote.artifacts[0];
    assert_eq!(
        (artifact.name.as_str(), artifact.media_type.as_str(), artifact.size),
        ("briefing.md", "text/markdown", 7)
    );
    assert!(artifact.persisted_key.starts_with("packs/") && artifact.persisted_key.ends_with("/briefing.md"));
    let read = answer(run(&home.read, call(&home.read, json!({ "path": "briefing.md" }))).await);
    assert_eq!(read.output["content"], "# Hallo");
    assert_eq!(read.output["sha256"], wrote.output["sha256"]);
    assert_eq!(read.measured, Some(usage(1.0, [])));
}

#[tokio::test]
async fn content_that_is_no_text_is_written_as_json() {
    let home = home();
    let args = json!({ "path": "pack.json", "content": { "a": [1] } });
    assert_eq!(answer(run(&home.write, call(&home.write, args)).await).artifacts[0].media_type, "application/json");
    let read = answer(run(&home.read, call(&home.read, json!({ "path": "pack.json" }))).await);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(read.output["content"].as_str().unwrap()).unwrap(),
        json!({ "a": [1] })
    );
}

#[tokio::test]
async fn arguments_of_another_shape_are_refused_and_cost_nothing() {
    let home = home();
    let cases: [(&dyn Tool, serde_json::Value); 8] = [
        (&home.write, json!({ "path": "a.md" })),
        (&home.write, json!({ "path": 1, "content": "x" })),
        (&home.write, json!({ "path": "a.md", "content": "x", "mode": "append" })),
        (&home.read, json!([])),
        (&home.read, json!({})),
        (&home.keep, json!({ "key": "", "value": 1 })),
        (&home.keep, json!({ "key": "k" })),
        (&home.recall, json!({ "key": "k".repeat(513) })),
    ];
    for (tool, args) in cases {
        let failure = failure(run(tool, call(tool, args.clone())).await);
        assert_eq!((failure.code.as_str(), failure.measured), ("args-invalid", Some(usage_of_nothing())), "{args}");
    }
}

fn usage_of_nothing() -> crate::tool::Measured {
    crate::tool::Measured::new()
}

#[tokio::test]
async fn a_tool_stops_at_its_ceiling_before_it_does_anything() {
    let home = home();
    let mut order = call(&home.write, json!({ "path": "a.md", "content": "four" }));
    order.ceiling = order.ceiling.with(BudgetCategory::StorageBytes, Micros::units(3));
    assert_eq!(failure(run(&home.write, order).await).code, "ceiling-too-low");
    assert_eq!(failure(run(&home.read, call(&home.read, json!({ "path": "a.md" }))).await).code, "file-missing");
    let cases: [(&dyn Tool, serde_json::Value); 4] = [
        (&home.write, json!({ "path": "a.md", "content": "x" })),
        (&home.read, json!({ "path": "a.md" })),
        (&home.keep, json!({ "key": "k", "value": 1 })),
        (&home.recall, json!({ "key": "k" })),
    ];
    for (tool, args) in cases {
        let mut order = call(tool, args);
        order.ceiling = Usage::none();
        assert_eq!(failure(run(tool, order).await).code, "ceiling-too-low");
    }
}

#[tokio::test]
async fn a_write_that_was_cancelled_in_time_changes_nothing() {
    let home = home();
    let order = call(&home.write, json!({ "path": "a.md", "content": "x" }));
    order.cancelled.cancel();
    assert_eq!(run(&home.write, order).await, ToolOutcome::Cancelled);
    assert_eq!(failure(run(&home.read, call(&home.read, json!({ "path": "a.md" }))).await).code, "file-missing");
}

#[tokio::test]
async fn memory_keeps_a_value_for_its_tenant_alone() {
    let home = home();
    let kept =
        answer(run(&home.keep, call(&home.keep, json!({ "key": "tone/../x", "value": { "formal": true } }))).await);
    assert_eq!(kept.measured, Some(usage(1.0, [(BudgetCategory::StorageBytes, 15.0)])));
    let ask = || call(&home.recall, json!({ "key": "tone/../x" }));
    let recalled = answer(run(&home.recall, ask()).await);
    assert_eq!(recalled.output, json!({ "key": "tone/../x", "found": true, "value": { "formal": true } }));
    assert_eq!(recalled.measured, Some(usage(1.0, [(BudgetCategory::Retrievals, 1.0)])));
    let mut foreign = ask();
    foreign.tenant_id = "other".parse().unwrap();
    assert_eq!(answer(run(&home.recall, foreign).await).output["found"], false);
}

#[tokio::test]
async fn a_value_over_64_kib_is_not_kept() {
    let home = home();
    let args = json!({ "key": "k", "value": "x".repeat(64 * 1024) });
    assert_eq!(failure(run(&home.keep, call(&home.keep, args)).await).code, "value-too-large");
}

#[test]
fn every_bundled_tool_is_in_the_catalog_once_and_under_the_catalogs_version() {
    let folder = tempfile::tempdir().unwrap();
    let descriptors =
        registry(BundledConfig { data_dir: folder.path().to_owned(), ..BundledConfig::default() }).descriptors();
    for descriptor in &descriptors {
        let id = ToolId::new(descriptor.tool_id.as_str()).unwrap();
        let entry = catalog::entry(&id).expect("in the catalog");
        assert_eq!(
            (&entry.semver, &entry.ceiling, entry.recovery),
            (&descriptor.semver, &descriptor.ceiling, descriptor.recovery)
        );
    }
    for expected in ["source.fetch", "web.fetch", "file.read", "file.write", "memory.read", "memory.write"] {
        assert!(descriptors.iter().any(|descriptor| descriptor.tool_id == expected), "{expected}");
    }
}

#[tokio::test]
async fn a_folder_is_written_in_one_call_and_nothing_of_it_if_a_name_leads_out() {
    let home = home();
    let content = json!({ "index.md": "# Index\n", "part/one.md": "one" });
    let args = json!({ "mode": "folder", "path": "course/", "content": content });
    let given = answer(run(&home.write, call(&home.write, args)).await);
    assert_eq!(given.output["path"], "course");
    assert_eq!(given.output["files"][0]["path"], "course/index.md");
    assert_eq!(given.artifacts.len(), 2);
    assert_eq!(given.measured, Some(usage(1.0, [(BudgetCategory::StorageBytes, 11.0)])));
    let read = answer(run(&home.read, call(&home.read, json!({ "path": "course/part/one.md" }))).await);
    assert_eq!(read.output["content"], "one");

    let code = async |args: serde_json::Value| failure(run(&home.write, call(&home.write, args)).await).code;
    let out = json!({ "mode": "folder", "path": "b", "content": { "a.md": "x", "../../out.md": "x" } });
    assert_eq!(code(out).await, "path-not-allowed");
    assert_eq!(failure(run(&home.read, call(&home.read, json!({ "path": "b/a.md" }))).await).code, "file-missing");
    for content in [json!("text"), json!({}), json!({ "a.md": 1 }), json!(["a.md"])] {
        assert_eq!(code(json!({ "mode": "folder", "path": "b", "content": content })).await, "args-invalid");
    }
    let mut order = call(&home.write, json!({ "mode": "folder", "path": "b", "content": { "a": "aa", "b": "bb" } }));
    order.ceiling = order.ceiling.with(BudgetCategory::StorageBytes, Micros::units(3));
    assert_eq!(failure(run(&home.write, order).await).code, "ceiling-too-low");
}
