//! Secrets and keys by configuration: where each comes from. A value is read when it is needed, and stands in no message.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Deserializer, de};
use signalbox_domain::governance::isolation::SecretRule;
use signalbox_domain::ids::{AgentId, SecretId, TenantId, ToolId};
use signalbox_domain::redact::scrub::SECRET_BYTES_MAX;
use signalbox_domain::registry::may_be_registered;
use signalbox_ports::secrets::{SecretError, SecretValue, Secrets};
use signalbox_ports::zeroize::Zeroizing;
use signalbox_store::{KeyRing, fresh_sealing_key};

use crate::failure::Failure;

/// The key a node makes for itself, in its data folder.
pub(crate) const KEY_FILE: &str = "sealing.key";
/// What that key is called.
const KEY_FILE_ID: &str = "data-folder";

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A variable of the environment.
    Env(String),
    /// A file that nobody but its owner and group may read.
    File(PathBuf),
}

// By hand, because a derived error would quote what stands there, and that may be the secret itself.
impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let refused = || de::Error::custom("must be { env = \"NAME\" } or { file = \"path\" }");
        let toml::Value::Table(table) = toml::Value::deserialize(from)? else { return Err(refused()) };
        let mut members = table.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
        match (members.next(), table.len()) {
            (Some(("env", name)), 1) if is_variable(name) => Ok(Self::Env(name.to_owned())),
            (Some(("file", path)), 1) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => Err(refused()),
        }
    }
}

fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl Source {
    /// The value as it is now; the error says what is wrong with the source.
    pub(crate) fn read(&self) -> Result<Zeroizing<String>, String> {
        let mut value = Zeroizing::new(match self {
            Self::Env(name) => std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => format!("the environment has no variable `{name}`"),
                std::env::VarError::NotUnicode(_) => format!("the variable `{name}` is not UTF-8"),
            })?,
            Self::File(path) => read_private(path)?,
        });
        // Editors and `echo` end a file with one; it is no part of the value.
        let kept = value.strip_suffix('\n').map_or(value.len(), |line| line.strip_suffix('\r').unwrap_or(line).len());
        value.truncate(kept);
        Ok(value)
    }
}

fn read_private(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("`{shown}` cannot be read: {}", error.kind());
    // Looked at before it is opened: opening a pipe would wait for its other end.
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(format!("`{shown}` is no file"));
    }
    let file = File::open(path).map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        if mode & 0o027 != 0 {
            return Err(format!("others may read or change `{shown}`; take that away with chmod 600"));
        }
    }
    let mut text = Zeroizing::new(String::new());
    file.take(SECRET_BYTES_MAX as u64 + 3).read_to_string(&mut text).map_err(failed)?;
    Ok(std::mem::take(&mut text))
}

/// A secret in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenSecret {
    secret_id: SecretId,
    tenant_id: TenantId,
    agent_ids: Vec<AgentId>,
    tool_ids: Vec<ToolId>,
    from: Source,
}

/// A secret in the file: who may use it, and where its value comes from.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "WrittenSecret")]
pub(crate) struct SecretEntry {
    pub(crate) rule: SecretRule,
    from: Source,
}

impl From<WrittenSecret> for SecretEntry {
    fn from(written: WrittenSecret) -> Self {
        let WrittenSecret { secret_id, tenant_id, agent_ids, tool_ids, from } = written;
        Self { rule: SecretRule { secret_id, tenant_id, agent_ids, tool_ids }, from }
    }
}

impl SecretEntry {
    /// Why the value cannot be had at this moment, if it cannot.
    pub(crate) fn problem(&self) -> Option<String> {
        self.from.read().err()
    }
    /// Nobody can use a secret of an agent or tool that there is not: a misspelled one is better found now. Agents are
    /// registered while nodes run, so of their ids only those that can never be registered are known to be wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let rule = &self.rule;
        if let Some(agent) = rule.agent_ids.iter().find(|agent| !may_be_registered(agent)) {
            return Err(format!("the agent `{agent}` does not ship with this version"));
        }
        match rule.tool_ids.iter().find(|tool| signalbox_domain::catalog::entry(tool).is_none()) {
            Some(tool) => Err(format!("the tool `{tool}` is not in the catalog")),
            None => Ok(()),
        }
    }
}

/// The secrets of the configuration file.
#[derive(Debug)]
pub(crate) struct ConfiguredSecrets {
    rules: Vec<SecretRule>,
    sources: BTreeMap<(TenantId, SecretId), Source>,
    webhook_keys: BTreeMap<(Option<TenantId>, SecretId), Source>,
}

impl ConfiguredSecrets {
    pub(crate) fn new(entries: &[SecretEntry]) -> Self {
        let source = |entry: &SecretEntry| {
            let SecretRule { tenant_id, secret_id, .. } = &entry.rule;
            if let Err(problem) = entry.from.read() {
                tracing::warn!(secret = %secret_id, problem, "calls that need the secret will not begin");
            }
            ((tenant_id.clone(), secret_id.clone()), entry.from.clone())
        };
        Self {
            rules: entries.iter().map(|entry| entry.rule.clone()).collect(),
            sources: entries.iter().map(source).collect(),
            webhook_keys: BTreeMap::new(),
        }
    }

    /// The same, with what signs webhooks.
    pub(crate) fn with_webhook_keys(mut self, entries: &[WebhookSecretEntry]) -> Self {
        for entry in entries {
            if let Some(problem) = entry.problem() {
                tracing::warn!(secret = %entry.secret_id, problem, "webhooks signed with the secret are not delivered");
            }
            self.webhook_keys.insert((entry.tenant_id.clone(), entry.secret_id.clone()), entry.from.clone());
        }
        self
    }
}

#[async_trait]
impl Secrets for ConfiguredSecrets {
    fn rules(&self) -> &[SecretRule] {
        &self.rules
    }

    async fn value(&self, tenant: &TenantId, secret: &SecretId) -> Result<SecretValue, SecretError> {
        let source = self.sources.get(&(tenant.clone(), secret.clone()));
        read_soon(source, secret).await
    }

    async fn webhook_key(&self, tenant: Option<&TenantId>, secret: &SecretId) -> Result<SecretValue, SecretError> {
        read_soon(self.webhook_keys.get(&(tenant.cloned(), secret.clone())), secret).await
    }
}

/// The value of a source, if there is one.
async fn read_soon(source: Option<&Source>, secret: &SecretId) -> Result<SecretValue, SecretError> {
    let source = source.cloned().ok_or_else(|| SecretError::Unknown(secret.clone()))?;
    let read = tokio::task::spawn_blocking(move || source.read()).await;
    let read = read.unwrap_or_else(|_| Err("reading it failed".to_owned()));
    let unreadable = |problem| SecretError::Unreadable { secret_id: secret.clone(), problem };
    read.map(|mut value| SecretValue::new(std::mem::take(&mut *value))).map_err(unreadable)
}

/// A secret in the file that signs webhooks.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WebhookSecretEntry {
    /// What webhooks name it by.
    pub(crate) secret_id: SecretId,
    /// Whose webhooks it signs; left out, those of the platform.
    pub(crate) tenant_id: Option<TenantId>,
    from: Source,
}

impl WebhookSecretEntry {
    /// Why the value cannot be had at this moment, if it cannot.
    pub(crate) fn problem(&self) -> Option<String> {
        self.from.read().err()
    }
    /// What tells it from others: the same id may be another secret in another tenant.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.tenant_id.as_ref().map_or("", TenantId::as_str), self.secret_id)
    }
}

/// A sealing key in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SealingKeyEntry {
    /// Names the key. What it has sealed names it too.
    pub(crate) key_id: String,
    from: Source,
}

impl SealingKeyEntry {
    /// Why the key cannot be had at this moment, if it cannot.
    pub(crate) fn problem(&self) -> Option<String> {
        self.from.read().err()
    }
}

/// The keys of the file, then the one of the data folder; if there is neither, one is made there. Without a data folder of
/// its own a node has the keys of the file alone, and with none of them it seals nothing.
pub(crate) fn key_ring(entries: &[SealingKeyEntry], own: Option<&Path>) -> Result<KeyRing, Failure> {
    let mut keys = Vec::new();
    for entry in entries {
        keys.push((entry.key_id.clone(), key(&entry.key_id, entry.from.read())?));
    }
    if let Some(folder) = own {
        let path = folder.join(KEY_FILE);
        if path.exists() {
            keys.push((KEY_FILE_ID.to_owned(), key(KEY_FILE_ID, Source::File(path).read())?));
        } else if keys.is_empty() {
            let fresh = fresh_sealing_key().map_err(|error| Failure::new(error.code(), error.to_string()))?;
            write_key(folder, &path, &fresh)
                .map_err(|error| Failure::new("sealing-key-not-kept", format!("`{}`: {error}", path.display())))?;
            keys.push((KEY_FILE_ID.to_owned(), fresh));
        }
    }
    KeyRing::new(keys).map_err(|error| Failure::usage("sealing-key-invalid", error.to_string()))
}

fn key(id: &str, read: Result<Zeroizing<String>, String>) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let text = read.map_err(|problem| {
        Failure::usage("sealing-key-unreadable", format!("the sealing key `{id}` cannot be read: {problem}"))
    })?;
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    match digits.map(Zeroizing::new) {
        Some(digits) if digits.len() == 64 => {
            Ok(Zeroizing::new(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()))
        }
        Some(_) | None => {
            let message = format!("the sealing key `{id}` is not 64 hexadecimal digits");
            Err(Failure::usage("sealing-key-invalid", message).next("`openssl rand -hex 32` prints one"))
        }
    }
}

// Durable before anything is sealed with it.
fn write_key(folder: &Path, path: &Path, key: &[u8]) -> std::io::Result<()> {
    let digits: Zeroizing<String> = Zeroizing::new(key.iter().map(|byte| format!("{byte:02x}")).collect());
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    // Under another name first: half a key must never be taken for one.
    let begun = folder.join("sealing.key.new");
    if begun.exists() {
        std::fs::remove_file(&begun)?;
    }
    let mut file = options.open(&begun)?;
    writeln!(file, "{}", *digits)?;
    file.sync_all()?;
    std::fs::rename(&begun, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use signalbox_ports::sealing::Sealing as _;

    use super::*;

    fn file(folder: &Path, name: &str, text: &str, mode: u32) -> Source {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Source::File(path)
    }

    fn entry(id: &str, from: Source) -> SecretEntry {
        let rule = SecretRule {
            secret_id: SecretId::new(id).unwrap(),
            tenant_id: TenantId::new("acme").unwrap(),
            agent_ids: vec![],
            tool_ids: vec![],
        };
        SecretEntry { rule, from }
    }

    #[test]
    fn a_file_gives_its_text_without_the_line_end_and_only_if_it_is_private() {
        let dir = tempfile::tempdir().unwrap();
        for (text, value) in [("FAKE-value", "FAKE-value"), ("FAKE-value\n", "FAKE-value"), ("a\r\nb\r\n", "a\r\nb")] {
            assert_eq!(file(dir.path(), "s", text, 0o600).read().unwrap().as_str(), value);
        }
        assert!(file(dir.path(), "s", "FAKE", 0o640).read().is_ok());
        for mode in [0o604, 0o602, 0o620, 0o666] {
            assert!(file(dir.path(), "s", "FAKE", mode).read().unwrap_err().contains("chmod 600"), "{mode:o}");
        }
        for missing in [Source::File(dir.path().join("nowhere")), Source::File(dir.path().to_owned())] {
            assert!(missing.read().is_err());
        }
        let long = file(dir.path(), "long", &"x".repeat(1 << 20), 0o600).read().unwrap();
        assert!(long.len() < SECRET_BYTES_MAX + 4);
    }

    #[tokio::test]
    async fn a_value_is_read_when_it_is_asked_for_and_belongs_to_its_tenant() {
        let dir = tempfile::tempdir().unwrap();
        let source = file(dir.path(), "s", "FAKE-one", 0o600);
        let absent = Source::Env("SIGNALBOX_TEST_NO_SUCH_VARIABLE".to_owned());
        let secrets = ConfiguredSecrets::new(&[entry("mail", source), entry("absent", absent)]);
        let (acme, mail) = (TenantId::new("acme").unwrap(), SecretId::new("mail").unwrap());
        assert_eq!(secrets.value(&acme, &mail).await.unwrap().expose(), "FAKE-one");
        file(dir.path(), "s", "FAKE-two", 0o600);
        let value = secrets.value(&acme, &mail).await.unwrap();
        assert_eq!((value.expose(), format!("{value:?}").as_str()), ("FAKE-two", "[redacted]"));
        let foreign = secrets.value(&TenantId::new("globex").unwrap(), &mail).await.unwrap_err();
        assert_eq!(foreign.code(), "secret-unknown");
        let absent = secrets.value(&acme, &SecretId::new("absent").unwrap()).await.unwrap_err();
        assert_eq!(absent.code(), "secret-unreadable");
        assert!(absent.to_string().contains("SIGNALBOX_TEST_NO_SUCH_VARIABLE"));
    }

    #[test]
    fn a_node_on_its_own_folder_makes_a_private_key_once_and_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let context = signalbox_ports::sealing::SealContext {
            tenant_id: TenantId::new("acme").unwrap(),
            run_key: signalbox_domain::ids::RunKey::new(uuid::Uuid::from_u128(1)),
            part: signalbox_domain::run::sealed::Part::Inputs,
        };
        let sealed = key_ring(&[], Some(dir.path())).unwrap().seal(&context, b"FAKE").unwrap();
        let path = dir.path().join(KEY_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(key_ring(&[], Some(dir.path())).unwrap().open(&context, &sealed).unwrap().as_slice(), b"FAKE");
        // A configured key takes over, and what the old one has sealed still opens.
        let newer = SealingKeyEntry { key_id: "newer".into(), from: file(dir.path(), "k", &"ab".repeat(32), 0o600) };
        let both = key_ring(&[newer], Some(dir.path())).unwrap();
        assert_eq!(both.open(&context, &sealed).unwrap().as_slice(), b"FAKE");
        assert!(both.seal(&context, b"x").unwrap().windows(5).any(|name| name == b"newer"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(key_ring(&[], Some(dir.path())).unwrap_err().code, "sealing-key-unreadable");
        assert_eq!(key_ring(&[], None).unwrap().seal(&context, b"x").unwrap_err().code(), "sealing-key-missing");
    }

    #[test]
    fn a_key_that_is_none_is_refused_without_being_shown() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "FAKE", &"g".repeat(64), &"ab".repeat(31), &"ab".repeat(33)] {
            let entry = SealingKeyEntry { key_id: "k".into(), from: file(dir.path(), "k", text, 0o600) };
            let refused = key_ring(&[entry], None).unwrap_err();
            assert_eq!(refused.code, "sealing-key-invalid");
            assert!(text.is_empty() || !refused.to_string().contains(text));
        }
    }
}
