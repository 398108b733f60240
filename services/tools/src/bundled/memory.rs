//! `memory.read` and `memory.write`: small values a tenant keeps across runs.
//!
//! One file per key, named by a digest, so that no key can name a path. A value is put in place whole.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::ids::TenantId;
use signalbox_domain::json::{Limits, parse_as};
use signalbox_domain::quantity::BudgetCategory;

use super::shared::{
    args, base_usage, blocking, ceiling_units, check_price, descriptor, disk_failure, outcome, refusal,
};
use crate::tool::{Answer, Descriptor, Failure, ProgressSink, Tool, ToolCall, ToolOutcome};

/// Largest value, in bytes of JSON.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 512;
/// Most keys of one tenant.
const KEYS_MAX: usize = 1_000;
/// What a file may be: the value, its key, and what surrounds them.
const FILE_LIMITS: Limits = Limits { bytes_max: VALUE_BYTES_MAX + 8 * KEY_BYTES_MAX, depth_max: 66 };

/// The memories of all tenants.
#[derive(Debug)]
pub(crate) struct Memories {
    data_dir: PathBuf,
    /// One writer at a time, so that the bound on keys holds and drafts do not meet.
    writing: Mutex<()>,
}

/// A file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    key: String,
    value: Value,
}

impl Memories {
    pub(crate) fn new(data_dir: PathBuf) -> Self {
        Self { data_dir, writing: Mutex::new(()) }
    }

    fn read(&self, tenant: &TenantId, key: &str) -> Result<Option<Value>, Failure> {
        check_key(key)?;
        let disk = |error: io::Error| disk_failure("the memory could not be read", &error);
        let folder = self.folder(tenant).map_err(disk)?;
        let file = match folder.open(file_name(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(disk(error)),
        };
        let mut bytes = Vec::new();
        file.take(FILE_LIMITS.bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(disk)?;
        let kept: Kept = parse_as(&bytes, FILE_LIMITS).map_err(|error| {
            refusal("memory-corrupt", format!("what is kept under this key cannot be read: {error}"))
        })?;
        Ok((kept.key == key).then_some(kept.value))
    }

    /// Keeps a value; answers its size in bytes. `None` if it may not go on.
    fn write(
        &self,
        tenant: &TenantId,
        key: String,
        value: Value,
        may_go_on: impl FnOnce() -> bool,
    ) -> Result<Option<usize>, Failure> {
        check_key(&key)?;
        let size = value.to_string().len();
        if size > VALUE_BYTES_MAX {
            return Err(refusal(
                "value-too-large",
                format!("a value may have at most {VALUE_BYTES_MAX} bytes of JSON"),
            ));
        }
        let name = file_name(&key);
        let bytes = serde_json::to_vec(&Kept { key, value })
            .map_err(|error| refusal("value-not-json", format!("the value cannot be written: {error}")))?;
        // What could not be read back is not written.
        if let Err(error) = parse_as::<Kept>(&bytes, FILE_LIMITS) {
            return Err(refusal("value-not-json", format!("the value cannot be kept: {error}")));
        }
        let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = |error: io::Error| disk_failure("the memory could not be written", &error);
        let folder = self.folder(tenant).map_err(disk)?;
        if !folder.exists(&name) && folder.entries().map_err(disk)?.count() >= KEYS_MAX {
            return Err(refusal("memory-full", format!("a tenant may keep at most {KEYS_MAX} keys")));
        }
        let draft = ".draft";
        let mut options = OpenOptions::new();
        let mut file = folder.open_with(draft, options.write(true).create(true).truncate(true)).map_err(disk)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(disk)?;
        if !may_go_on() {
            return Ok(None);
        }
        folder.rename(draft, &folder, &name).map_err(disk)?;
        folder.open(".").and_then(|names| names.sync_all()).map_err(disk)?;
        Ok(Some(size))
    }

    fn folder(&self, tenant: &TenantId) -> io::Result<Dir> {
        let path = self.data_dir.join("memory").join(folder_name(tenant));
        std::fs::create_dir_all(&path)?;
        Dir::open_ambient_dir(path, ambient_authority())
    }
}

fn check_key(key: &str) -> Result<(), Failure> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(refusal("args-invalid", format!("a key has 1 to {KEY_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn file_name(key: &str) -> String {
    format!("{}.json", sha256_hex(key.as_bytes()))
}

/// The tenant's id where it is a plain name on every file system, otherwise a digest of it. The two cannot meet: no id has
/// a tilde.
fn folder_name(tenant: &TenantId) -> String {
    let id = tenant.as_str();
    let plain =
        id.len() <= 64 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'));
    if plain { id.to_owned() } else { format!("~{}", sha256_hex(id.as_bytes())) }
}

/// Reads a value.
#[derive(Debug)]
pub(crate) struct MemoryRead(pub(crate) Arc<Memories>);

/// Keeps a value.
#[derive(Debug)]
pub(crate) struct MemoryWrite(pub(crate) Arc<Memories>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    key: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    key: String,
    value: Value,
}

impl MemoryRead {
    async fn read(&self, call: ToolCall) -> Result<ToolOutcome, Failure> {
        let ReadArgs { key } = args(&call.args)?;
        check_price(&call)?;
        if ceiling_units(&call, BudgetCategory::Retrievals) == 0 {
            return Err(refusal("ceiling-too-low", "no retrieval is reserved for this call"));
        }
        let mut measured = base_usage(&call.tool_id);
        measured.insert(BudgetCategory::Retrievals, 1.0);
        let (memories, asked) = (Arc::clone(&self.0), key.clone());
        let value = blocking(move || memories.read(&call.tenant_id, &asked)).await?;
        let output = json!({ "key": key, "found": value.is_some(), "value": value });
        Ok(ToolOutcome::Ok(Answer::new(output, measured)))
    }
}

impl MemoryWrite {
    async fn write(&self, call: ToolCall) -> Result<ToolOutcome, Failure> {
        let WriteArgs { key, value } = args(&call.args)?;
        check_price(&call)?;
        let (reserved, mut measured) = (ceiling_units(&call, BudgetCategory::StorageBytes), base_usage(&call.tool_id));
        if value.to_string().len() as u64 > reserved.min(VALUE_BYTES_MAX as u64) {
            let code = if reserved < VALUE_BYTES_MAX as u64 { "ceiling-too-low" } else { "value-too-large" };
            return Err(refusal(code, "the value is larger than may be kept"));
        }
        let (memories, asked) = (Arc::clone(&self.0), key.clone());
        let kept = blocking(move || {
            let may_go_on = || !call.cancelled.is_cancelled();
            memories.write(&call.tenant_id, asked, value, may_go_on)
        });
        let Some(size) = kept.await? else { return Ok(ToolOutcome::Cancelled) };
        measured.insert(BudgetCategory::StorageBytes, size as f64);
        let answer = Answer::new(json!({ "key": key, "size": size }), measured);
        Ok(ToolOutcome::Ok(Answer { effects: vec!["kept one value in memory".to_owned()], ..answer }))
    }
}

#[async_trait]
impl Tool for MemoryRead {
    fn descriptor(&self) -> Descriptor {
        descriptor("memory.read", false)
    }
    async fn run(&self, call: ToolCall, _: ProgressSink) -> ToolOutcome {
        outcome(self.read(call).await)
    }
}

#[async_trait]
impl Tool for MemoryWrite {
    fn descriptor(&self) -> Descriptor {
        descriptor("memory.write", true)
    }
    async fn run(&self, call: ToolCall, _: ProgressSink) -> ToolOutcome {
        outcome(self.write(call).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tenant_names_a_folder_of_another_or_outside() {
        let names: Vec<_> = ["..", ".", "Acme", "acme", "a.b", &"x".repeat(100)]
            .map(|id| folder_name(&TenantId::new(id).unwrap()))
            .into();
        assert_eq!(names[3], "acme");
        for (i, name) in names.iter().enumerate() {
            assert!(i == 3 || (name.starts_with('~') && name.len() == 65), "{name}");
            assert!(!names[..i].contains(name));
        }
    }

    #[test]
    fn a_file_that_was_tampered_with_is_an_error_and_not_a_value() {
        let home = tempfile::tempdir().unwrap();
        let memories = Memories::new(home.path().to_owned());
        let acme = TenantId::new("acme").unwrap();
        memories.write(&acme, "k".into(), json!(1), || true).unwrap();
        std::fs::write(home.path().join("memory/acme").join(file_name("k")), "{\"key\":\"k\"").unwrap();
        assert_eq!(memories.read(&acme, "k").unwrap_err().code, "memory-corrupt");
    }

    #[test]
    fn the_number_of_keys_is_bounded_but_old_ones_can_be_changed() {
        let home = tempfile::tempdir().unwrap();
        let memories = Memories::new(home.path().to_owned());
        let acme = TenantId::new("acme").unwrap();
        memories.write(&acme, "k".into(), json!(1), || true).unwrap();
        for n in 1..KEYS_MAX {
            std::fs::File::create(home.path().join("memory/acme").join(format!("{n}.json"))).unwrap();
        }
        assert_eq!(memories.write(&acme, "new".into(), json!(1), || true).unwrap_err().code, "memory-full");
        assert!(memories.write(&acme, "k".into(), json!(2), || true).unwrap().is_some());
        assert_eq!(memories.write(&acme, "k".into(), json!(3), || false), Ok(None));
        assert_eq!(memories.read(&acme, "k").unwrap(), Some(json!(2)));
    }
}
