//! `file.read` and `file.write`: the files of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::quantity::BudgetCategory;
use signalbox_domain::run::event::ArtifactRef;

use super::run_files::{RunFiles, Written};
use super::shared::{args, base_usage, blocking, ceiling_units, check_price, descriptor, outcome, refusal};
use crate::tool::{Answer, Descriptor, Failure, ProgressSink, Tool, ToolCall, ToolOutcome};

/// Writes a file of the run.
#[derive(Debug)]
pub(crate) struct FileWrite(pub(crate) Arc<RunFiles>);

/// Reads a file of the run.
#[derive(Debug)]
pub(crate) struct FileRead(pub(crate) Arc<RunFiles>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    path: String,
    /// Text, or any other JSON, which is then written as such.
    content: Value,
    #[serde(default)]
    mode: Option<WriteMode>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WriteMode {
    /// `path` is a folder and `content` an object from name to text: each becomes a file in it.
    Folder,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    path: String,
}

impl FileWrite {
    async fn write(&self, call: ToolCall) -> Result<ToolOutcome, Failure> {
        let WriteArgs { path, content, mode } = args(&call.args)?;
        check_price(&call)?;
        if let Some(WriteMode::Folder) = mode {
            return self.write_folder(call, path, content).await;
        }
        let text = if let Value::String(text) = content { text } else { format!("{content:#}\n") };
        let bytes = text.into_bytes();
        if bytes.len() as u64 > ceiling_units(&call, BudgetCategory::StorageBytes) {
            return Err(refusal("ceiling-too-low", "the file is larger than the storage reserved for this call"));
        }
        let (files, call_for_work, path_for_work) = (Arc::clone(&self.0), call.clone(), path.clone());
        let written = blocking(move || {
            let may_go_on = || !call_for_work.cancelled.is_cancelled();
            files.write(&call_for_work.tenant_id, call_for_work.run_id, &path_for_work, &bytes, may_go_on)
        });
        let Some(written) = written.await? else { return Ok(ToolOutcome::Cancelled) };
        let mut measured = base_usage(&call.tool_id);
        measured.insert(BudgetCategory::StorageBytes, written.size as f64);
        Ok(ToolOutcome::Ok(Answer {
            output: json!({ "path": path, "sha256": written.sha256, "size": written.size }),
            evidence: None,
            artifacts: vec![ArtifactRef {
                media_type: media_type(&path).to_owned(),
                persisted_key: written.persisted_key,
                sha256: written.sha256,
                size: written.size,
                name: path.clone(),
            }],
            effects: vec![format!("wrote {path}")],
            measured: Some(measured),
        }))
    }
}

/// Most files of one folder.
const FOLDER_FILES_MAX: usize = 500;

impl FileWrite {
    /// Writes the files of a folder, in the order of their names. All names and sizes are looked at before the first is
    /// written; each file appears whole.
    async fn write_folder(&self, call: ToolCall, path: String, content: Value) -> Result<ToolOutcome, Failure> {
        let texts: BTreeMap<String, String> = serde_json::from_value(content)
            .map_err(|_| refusal("args-invalid", "of a folder, `content` is an object from name to text"))?;
        if texts.is_empty() || texts.len() > FOLDER_FILES_MAX {
            return Err(refusal("args-invalid", format!("a folder has 1 to {FOLDER_FILES_MAX} files")));
        }
        let size: usize = texts.values().map(String::len).sum();
        if size as u64 > ceiling_units(&call, BudgetCategory::StorageBytes) {
            return Err(refusal("ceiling-too-low", "the files are larger than the storage reserved for this call"));
        }
        let folder = path.trim_end_matches('/').to_owned();
        let named: Vec<(String, String)> =
            texts.into_iter().map(|(name, text)| (format!("{folder}/{name}"), text)).collect();
        for (name, _) in &named {
            RunFiles::check(name)?;
        }
        let (files, call_for_work) = (Arc::clone(&self.0), call.clone());
        let written = blocking(move || {
            let mut written: Vec<(String, Written)> = Vec::new();
            for (name, text) in named {
                let may_go_on = || !call_for_work.cancelled.is_cancelled();
                match files.write(&call_for_work.tenant_id, call_for_work.run_id, &name, text.as_bytes(), may_go_on)? {
                    Some(file) => written.push((name, file)),
                    None => break,
                }
            }
            Ok(written)
        })
        .await?;
        if written.is_empty() {
            return Ok(ToolOutcome::Cancelled);
        }
        let mut measured = base_usage(&call.tool_id);
        measured.insert(BudgetCategory::StorageBytes, written.iter().map(|(_, file)| file.size as f64).sum());
        let rows: Vec<Value> = written
            .iter()
            .map(|(name, file)| json!({ "path": name, "sha256": file.sha256, "size": file.size }))
            .collect();
        let artifact = |(name, file): (String, Written)| ArtifactRef {
            media_type: media_type(&name).to_owned(),
            persisted_key: file.persisted_key,
            sha256: file.sha256,
            size: file.size,
            name,
        };
        let effects = written.iter().map(|(name, _)| format!("wrote {name}")).collect();
        Ok(ToolOutcome::Ok(Answer {
            output: json!({ "path": folder, "files": rows, "size": size }),
            evidence: None,
            artifacts: written.into_iter().map(artifact).collect(),
            effects,
            measured: Some(measured),
        }))
    }
}

impl FileRead {
    async fn read(&self, call: ToolCall) -> Result<ToolOutcome, Failure> {
        let ReadArgs { path } = args(&call.args)?;
        check_price(&call)?;
        let measured = base_usage(&call.tool_id);
        let (files, path_for_work) = (Arc::clone(&self.0), path.clone());
        let content = blocking(move || files.read(&call.tenant_id, call.run_id, &path_for_work)).await?;
        let (sha256, size) = (sha256_hex(content.as_bytes()), content.len());
        let output = json!({ "path": path, "content": content, "sha256": sha256, "size": size });
        Ok(ToolOutcome::Ok(Answer::new(output, measured)))
    }
}

#[async_trait]
impl Tool for FileWrite {
    fn descriptor(&self) -> Descriptor {
        descriptor("file.write", true)
    }
    async fn run(&self, call: ToolCall, _: ProgressSink) -> ToolOutcome {
        outcome(self.write(call).await)
    }
}

#[async_trait]
impl Tool for FileRead {
    fn descriptor(&self) -> Descriptor {
        descriptor("file.read", false)
    }
    async fn run(&self, call: ToolCall, _: ProgressSink) -> ToolOutcome {
        outcome(self.read(call).await)
    }
}

/// The media type of a name, by its ending.
fn media_type(path: &str) -> &'static str {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match ending.as_str() {
        "md" | "markdown" => "text/markdown",
        "html" | "htm" => "text/html",
        "txt" => "text/plain",
        "csv" => "text/csv",
        "json" => "application/json",
        "xml" => "application/xml",
        "ics" => "text/calendar",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
