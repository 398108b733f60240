//! The configuration file: read once, here, into plain structs. What it does not know, it refuses.
//!
//! `deploy/signalbox.example.toml` shows every field with a comment.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use signalbox_domain::governance::budget::Budget;
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::governance::grant::{Constraints, Grant, GrantScope};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::governance::throttle::{BucketRule, default_rules};
use signalbox_domain::ids::{ActorId, ExecutorTlsId, GrantId, IdError, SwitchId, TenantId, ToolId};
use signalbox_domain::redact::redact_text;
use signalbox_domain::time::UnixMs;
use signalbox_server::{RequestRate, ServeLimits, WatchLimits};
use signalbox_tls::{ClientFiles, ClientTls, ServerFiles, TlsError};
use signalbox_tools::client::Endpoint;

use crate::bus_file::BusEntry;
use crate::failure::Failure;
use crate::identity_file::IdentityEntry;
use crate::invocation_file::InvocationEntry;
use crate::models_file::ModelEntry;
use crate::secrets::{SealingKeyEntry, SecretEntry, WebhookSecretEntry};
use crate::toml_file;
use crate::traces_file::TracesEntry;

/// The address that is listened on unless something else is said.
pub(crate) const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7420);
/// Who is named as the one who armed or issued what stands in a configuration file.
const FILE_ACTOR: &str = "system:configuration-file";

/// A configuration file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The address that is listened on, as `ip:port`. Without an identity provider only a loopback address is accepted.
    pub(crate) listen: Option<SocketAddr>,
    /// The address that answers probes and scrapers: /livez, /readyz and /metrics. Without it nobody does.
    pub(crate) ops_listen: Option<SocketAddr>,
    /// Whoever is told, span by span, what runs and calls did. Without it nobody is.
    pub(crate) traces: Option<TracesEntry>,
    /// Certificates of the server; without any, it speaks in clear.
    pub(crate) tls: Option<TlsEntry>,
    /// The folder that keeps the journal, the blobs, and what tools write. Relative to where signalbox is started.
    pub(crate) data: Option<PathBuf>,
    /// The PostgreSQL that keeps the journal instead of the data folder, so that several nodes can share it.
    pub(crate) store: Option<StoreAddress>,
    /// How nodes that share a store tell each other at once what the store tells them within a second.
    pub(crate) bus: Option<BusEntry>,
    /// Who is let in. Without it everybody on this machine is the platform's operator.
    pub(crate) identity: Option<IdentityEntry>,
    /// Kill switches that are armed at start. The file arms and never disarms: taking a switch out of it changes nothing.
    pub(crate) switches: Vec<SwitchEntry>,
    /// Scopes whose switches two identities must disarm [default: global]. The development identity is only one: with it an
    /// armed `global` switch can be disarmed by nobody unless this is an empty list.
    pub(crate) second_identity_scopes: Option<BTreeSet<SwitchScope>>,
    /// Budgets. What the file put and no longer names is retired; what operators have changed since stays until the file
    /// says something else. Figures survive every change of a limit.
    pub(crate) budgets: Vec<Budget>,
    /// Token buckets [default: one for each provider, 50 at once and 10 a second]. What the file set and no longer names is
    /// removed; what operators have changed or removed since stays so until the file says something else.
    #[serde(default = "default_rules")]
    pub(crate) throttles: Vec<BucketRule>,
    /// Shared grants. What the file no longer names is revoked.
    pub(crate) grants: Vec<GrantEntry>,
    /// Secrets that tools may be given: where each comes from, and who may use it. The file never holds one.
    pub(crate) secrets: Vec<SecretEntry>,
    /// Secrets that sign webhooks: where each comes from. Tools are given none of these.
    pub(crate) webhook_secrets: Vec<WebhookSecretEntry>,
    /// Hosts inside private networks that webhooks may reach, over plain HTTP too: each with the addresses it may have.
    pub(crate) webhook_exemptions: Vec<HostExemption>,
    /// Keys that seal what may not lie anywhere in clear. The first seals, all of them open.
    pub(crate) sealing_keys: Vec<SealingKeyEntry>,
    /// Models, by the provider and the name that agents are bound to.
    pub(crate) models: Vec<ModelEntry>,
    /// Executors beside the bundled tools.
    pub(crate) executors: Vec<ExecutorEntry>,
    /// Certificates for executors that are registered while the node runs, by the names that registrations use.
    pub(crate) executor_tls: Vec<ExecutorTlsEntry>,
    /// Hosts that may lie in private networks, such as an internal feed: each with the addresses it may have. Everything
    /// else inside stays refused (CAP-009).
    pub(crate) exemptions: Vec<HostExemption>,
    /// What tenants allow of invocations: sources, tones, personas, modes, consents.
    pub(crate) invocations: Vec<InvocationEntry>,
    /// Bounds of this node.
    pub(crate) limits: LimitsEntry,
}

/// The address of a database. It may hold a password, so nothing prints it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct StoreAddress(String);

impl StoreAddress {
    /// The address as it was given.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn check(&self) -> Result<(), String> {
        let schemes = ["postgres://", "postgresql://"];
        if schemes.iter().any(|scheme| self.0.starts_with(scheme)) {
            Ok(())
        } else {
            Err("store must be like postgres://user@host/database".to_owned())
        }
    }
}

impl FromStr for StoreAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let address = Self(text.to_owned());
        address.check().map(|()| address)
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreAddress(…)")
    }
}

/// A kill switch in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SwitchEntry {
    /// Names the switch.
    pub(crate) switch_id: SwitchId,
    /// Stops only calls of this tenant; of all if left out.
    pub(crate) tenant_id: Option<TenantId>,
    /// What kind of thing it stops: agent, family, tenant, provider, region, tool or global.
    pub(crate) scope: SwitchScope,
    /// Which one; left out for `global`.
    pub(crate) target_id: Option<String>,
    /// Why it is armed.
    pub(crate) reason: String,
    /// What customers are shown.
    pub(crate) user_visible_status_copy: String,
    /// How to degrade gracefully.
    pub(crate) safe_degradation_mode_id: Option<String>,
    /// When it ends by itself, in milliseconds since the Unix epoch.
    pub(crate) expires_at_unix_ms: Option<UnixMs>,
}

/// A shared grant in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GrantEntry {
    /// Names the grant.
    pub(crate) grant_id: GrantId,
    /// What it is tied to: per-tenant, per-user, per-session, per-pipeline-instance or per-run.
    pub(crate) scope: GrantScope,
    /// Which tenant, user, session, instance or run.
    pub(crate) scope_key: String,
    /// The tenant.
    pub(crate) tenant_id: TenantId,
    /// The tool.
    pub(crate) tool_id: ToolId,
    /// Versions of the tool it holds for, such as `^1`.
    pub(crate) tool_range: String,
    /// What its holder may use.
    #[serde(default)]
    pub(crate) constraints: Constraints,
    /// What its holder may hand on; nothing if left out.
    pub(crate) delegable: Option<Constraints>,
    /// When it ends, in milliseconds since the Unix epoch.
    pub(crate) expires_at_unix_ms: Option<UnixMs>,
    /// Why it is issued.
    pub(crate) rationale: String,
}

/// The server's certificates in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TlsEntry {
    /// The certificate, followed by those that lead to its authority, in PEM.
    pub(crate) cert: PathBuf,
    /// Its private key, in PEM.
    pub(crate) key: PathBuf,
    /// Authorities of client certificates, in PEM: whoever has none of theirs is refused.
    pub(crate) client_ca: Option<PathBuf>,
}

/// An executor in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExecutorEntry {
    /// Its address, such as `http://127.0.0.1:7421` or `https://tools.example:7421`.
    pub(crate) uri: String,
    /// Authorities of the executor, in PEM, instead of those this machine trusts; for https alone.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate to show to it, in PEM; for https alone.
    pub(crate) client_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    pub(crate) client_key: Option<PathBuf>,
}

impl ExecutorEntry {
    fn check(&self) -> Result<(), String> {
        let files = [&self.ca, &self.client_cert, &self.client_key];
        if !self.uri.starts_with("https://") && files.into_iter().any(Option::is_some) {
            return Err("certificates are for an executor at https:// alone".to_owned());
        }
        Ok(())
    }

    /// The way to it.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, TlsError> {
        let uri = self.uri.clone();
        if !uri.starts_with("https://") {
            return Ok(Endpoint::Uri(uri));
        }
        let files = ClientFiles { ca: self.ca.clone(), cert: self.client_cert.clone(), key: self.client_key.clone() };
        Ok(Endpoint::Secure { uri, tls: ClientTls::load(files)? })
    }
}

/// Certificates for registered executors in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExecutorTlsEntry {
    /// The name that registrations use.
    pub(crate) tls_id: ExecutorTlsId,
    /// Authorities of the executor, in PEM, instead of those this machine trusts.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate to show to it, in PEM.
    pub(crate) client_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    pub(crate) client_key: Option<PathBuf>,
}

impl ExecutorTlsEntry {
    /// The certificates.
    pub(crate) fn load(&self) -> Result<ClientTls, TlsError> {
        let files = ClientFiles { ca: self.ca.clone(), cert: self.client_cert.clone(), key: self.client_key.clone() };
        ClientTls::load(files)
    }
}

/// Bounds in the file.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct LimitsEntry {
    /// Most active runs; beyond it submissions are answered with `overloaded`.
    pub(crate) runs_active_max: Option<usize>,
    /// Most calls at once on each executor.
    pub(crate) calls_per_executor_max: Option<usize>,
    /// Most watches open at once.
    pub(crate) watches_max: Option<usize>,
    /// Most items that wait for a slow watcher.
    pub(crate) watch_buffer: Option<usize>,
    /// How long a watcher may stand still, in seconds, before its watch ends.
    pub(crate) watch_stall_seconds: Option<u64>,
    /// Requests that one caller may make per second in the long run, over both edges; as many as it likes if left out.
    pub(crate) requests_per_second: Option<u32>,
    /// Requests that one caller may make at once after a rest [default: ten times requestsPerSecond].
    pub(crate) requests_burst: Option<u32>,
    /// Most bytes of the journal's database in the data folder; as the disk allows if left out.
    pub(crate) store_bytes_max: Option<u64>,
}

impl Config {
    /// Reads a file and checks every entry.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = toml_file::text_of(path).map_err(|problem| {
            Failure::usage("config-unreadable", format!("`{}` cannot be read: {problem}", path.display()))
        })?;
        Self::parse(&text).map_err(|problem| {
            Failure::usage("config-invalid", format!("`{}`: {problem}", path.display()))
                .next("deploy/signalbox.example.toml shows every field")
        })
    }

    /// The same from text; the error is in words, with the place.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml_file::parse(text)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let actor = file_actor().map_err(|error| error.to_string())?;
        let now = UnixMs(0);
        each("switches", &self.switches, |switch| {
            switch.to_switch(&actor, now).validate().map_err(|error| error.to_string())
        })?;
        each("budgets", &self.budgets, |budget| budget.validate().map_err(|error| error.to_string()))?;
        each("throttles", &self.throttles, |rule| rule.validate().map_err(|error| error.to_string()))?;
        each("secrets", &self.secrets, SecretEntry::check)?;
        distinct("secrets", self.secrets.iter().map(|secret| secret.rule.secret_id.as_str()))?;
        let webhook_secrets: Vec<_> = self.webhook_secrets.iter().map(WebhookSecretEntry::name).collect();
        distinct("webhookSecrets", webhook_secrets.iter().map(String::as_str))?;
        distinct("webhookExemptions", self.webhook_exemptions.iter().map(|exemption| exemption.host.as_str()))?;
        distinct("sealingKeys", self.sealing_keys.iter().map(|key| key.key_id.as_str()))?;
        self.identity.as_ref().map_or(Ok(()), IdentityEntry::check)?;
        // Not while the text is read: the reader's errors quote what they found.
        self.store.as_ref().map_or(Ok(()), StoreAddress::check)?;
        self.bus.as_ref().map_or(Ok(()), BusEntry::check)?;
        distinct("switches", self.switches.iter().map(|switch| switch.switch_id.as_str()))?;
        distinct("budgets", self.budgets.iter().map(|budget| budget.budget_id.as_str()))?;
        distinct("throttles", self.throttles.iter().map(|rule| rule.bucket_id.as_str()))?;
        distinct("grants", self.grants.iter().map(|grant| grant.grant_id.as_str()))?;
        distinct("exemptions", self.exemptions.iter().map(|exemption| exemption.host.as_str()))?;
        each("models", &self.models, ModelEntry::check)?;
        let models: Vec<_> = self.models.iter().map(ModelEntry::name).collect();
        distinct("models", models.iter().map(String::as_str))?;
        each("executors", &self.executors, ExecutorEntry::check)?;
        distinct("executors", self.executors.iter().map(|executor| executor.uri.as_str()))?;
        distinct("executorTls", self.executor_tls.iter().map(|entry| entry.tls_id.as_str()))?;
        distinct("invocations", self.invocations.iter().map(|entry| entry.tenant_id.as_str()))?;
        each("invocations", &self.invocations, InvocationEntry::check)?;
        self.limits.check()
    }

    /// Certificates of the edge, if it has any.
    pub(crate) fn tls_files(&self) -> Option<ServerFiles> {
        let tls = self.tls.clone()?;
        Some(ServerFiles { cert: tls.cert, key: tls.key, client_ca: tls.client_ca })
    }

    /// Bounds of the edge.
    pub(crate) fn serve_limits(&self) -> ServeLimits {
        let default = ServeLimits::default();
        ServeLimits {
            watches_max: self.limits.watches_max.unwrap_or(default.watches_max),
            watch: WatchLimits {
                buffer: self.limits.watch_buffer.unwrap_or(default.watch.buffer),
                stall: self.limits.watch_stall_seconds.map_or(default.watch.stall, Duration::from_secs),
            },
            requests: self.limits.requests_per_second.map(|per_second| RequestRate {
                per_second,
                burst: self.limits.requests_burst.unwrap_or(per_second.saturating_mul(10)),
            }),
        }
    }
}

impl LimitsEntry {
    fn check(&self) -> Result<(), String> {
        let counts = [
            ("runsActiveMax", self.runs_active_max, 1_000_000),
            ("callsPerExecutorMax", self.calls_per_executor_max, 10_000),
            ("watchesMax", self.watches_max, 100_000),
            ("watchBuffer", self.watch_buffer, 10_000),
            ("requestsPerSecond", self.requests_per_second.map(|n| n as usize), 1_000_000),
            ("requestsBurst", self.requests_burst.map(|n| n as usize), 1_000_000),
            ("watchStallSeconds", self.watch_stall_seconds.and_then(|s| usize::try_from(s).ok()), 3_600),
        ];
        for (name, value, most) in counts {
            if value.is_some_and(|value| value == 0 || value > most) {
                return Err(format!("limits.{name} must be between 1 and {most}"));
            }
        }
        if self.requests_burst.is_some() && self.requests_per_second.is_none() {
            return Err("limits.requestsBurst needs limits.requestsPerSecond".to_owned());
        }
        if self.store_bytes_max.is_some_and(|bytes| bytes < 1 << 20) {
            return Err("limits.storeBytesMax must be at least 1048576".to_owned());
        }
        Ok(())
    }
}

impl SwitchEntry {
    /// The switch as it is armed.
    pub(crate) fn to_switch(&self, armed_by: &ActorId, now: UnixMs) -> KillSwitch {
        KillSwitch {
            switch_id: self.switch_id.clone(),
            tenant_id: self.tenant_id.clone(),
            scope: self.scope,
            target_id: self.target_id.clone(),
            armed_by: armed_by.clone(),
            armed_at_unix_ms: now,
            reason: redact_text(&self.reason).into_owned(),
            user_visible_status_copy: redact_text(&self.user_visible_status_copy).into_owned(),
            safe_degradation_mode_id: self.safe_degradation_mode_id.clone(),
            expires_at_unix_ms: self.expires_at_unix_ms,
            disarmed_at_unix_ms: None,
        }
    }
}

impl GrantEntry {
    /// The grant as it is issued.
    pub(crate) fn to_grant(&self, issued_by: &ActorId, now: UnixMs) -> Grant {
        Grant {
            grant_id: self.grant_id.clone(),
            scope: self.scope,
            scope_key: self.scope_key.clone(),
            tenant_id: self.tenant_id.clone(),
            tool_id: self.tool_id.clone(),
            tool_range: self.tool_range.clone(),
            constraints: self.constraints.clone(),
            delegable: self.delegable.clone(),
            issued_by: issued_by.clone(),
            issued_at_unix_ms: now,
            expires_at_unix_ms: self.expires_at_unix_ms,
            revoked_at_unix_ms: None,
            rationale: redact_text(&self.rationale).into_owned(),
            audit_event_id: format!("configuration/{}", self.grant_id),
            renewed_from_grant_id: None,
        }
    }
}

/// Who is named as the one who armed or issued what stands in the file.
pub(crate) fn file_actor() -> Result<ActorId, IdError> {
    ActorId::new(FILE_ACTOR)
}

fn each<T>(list: &str, items: &[T], check: impl Fn(&T) -> Result<(), String>) -> Result<(), String> {
    for (index, item) in items.iter().enumerate() {
        check(item).map_err(|problem| format!("{list}[{index}]: {problem}"))?;
    }
    Ok(())
}

fn distinct<'a>(list: &str, ids: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for id in ids {
        if !seen.insert(id) {
            return Err(format!("{list}: `{id}` stands there twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../deploy/signalbox.example.toml");

    #[test]
    fn the_example_is_valid_as_it_stands_and_with_every_comment_taken_away() {
        let as_it_stands = Config::parse(EXAMPLE).unwrap();
        assert!(as_it_stands.switches.is_empty() && as_it_stands.identity.is_none());
        let all: String = EXAMPLE.lines().map(|line| line.strip_prefix("#= ").unwrap_or(line)).fold(
            String::new(),
            |mut text, line| {
                text.push_str(line);
                text.push('\n');
                text
            },
        );
        let config = Config::parse(&all).unwrap();
        assert_eq!((config.switches.len(), config.budgets.len(), config.throttles.len()), (1, 1, 1));
        assert_eq!((config.grants.len(), config.executors.len(), config.exemptions.len()), (1, 1, 1));
        assert_eq!(config.executor_tls.len(), 1);
        assert_eq!((config.secrets.len(), config.sealing_keys.len()), (1, 1));
        assert_eq!((config.webhook_secrets.len(), config.webhook_exemptions.len()), (1, 1));
        assert!(config.tls.is_some_and(|tls| tls.client_ca.is_some()));
        assert!(config.identity.is_some_and(|identity| identity.api_keys && identity.claims.scope.is_some()));
        assert!(config.limits.runs_active_max.is_some() && config.limits.store_bytes_max.is_some());
    }

    #[test]
    fn the_address_of_a_database_is_checked_and_printed_nowhere() {
        let url = "postgres://ann:not-a-real-secret@db.example/box";
        let config = Config::parse(&format!("store = \"{url}\"")).unwrap();
        assert_eq!(config.store.as_ref().unwrap().as_str(), url);
        assert!(!format!("{config:?}").contains("not-a-real-secret"));
        for other in ["mysql://ann:not-a-real-secret@db.example/box", "not-a-real-secret", ""] {
            let refused = Config::parse(&format!("store = \"{other}\"")).unwrap_err();
            assert!(refused.contains("postgres://") && !refused.contains("not-a-real-secret"), "{refused}");
            assert!(!other.parse::<StoreAddress>().unwrap_err().contains("not-a-real-secret"));
        }
    }

    #[test]
    fn a_secret_that_was_written_into_the_file_is_not_repeated_by_the_error() {
        for line in [
            "secrets = \"FAKE-value-of-mine\"",
            "[[secrets]]\nvalue = \"FAKE-value-of-mine\"",
            "[[secrets]]\nfrom = \"FAKE-value-of-mine\"",
            "[[secrets]]\nfrom = { env = \"FAKE-value-of-mine\" }",
            "[[secrets]]\nfrom = { value = \"FAKE-value-of-mine\" }",
            "[[sealingKeys]]\nkeyId = \"a\"\nfrom = \"FAKE-value-of-mine\"",
            "[[sealingKeys]]\nkey = \"FAKE-value-of-mine\"",
            "[[webhookSecrets]]\nfrom = \"FAKE-value-of-mine\"",
        ] {
            let problem = Config::parse(line).unwrap_err();
            assert!(!problem.contains("FAKE"), "{problem}");
            assert!(problem.starts_with("line "), "{problem}");
        }
    }

    #[test]
    fn an_empty_file_changes_nothing() {
        let config = Config::parse("").unwrap();
        assert!(
            config.listen.is_none() && config.data.is_none() && config.store.is_none() && config.budgets.is_empty()
        );
        let default = ServeLimits::default();
        assert_eq!(config.serve_limits().watches_max, default.watches_max);
    }

    #[test]
    fn what_the_file_does_not_know_or_may_not_say_is_refused_with_its_place() {
        let switch = r#"[[switches]]
switchId = "s"
scope = "global"
reason = "r"
userVisibleStatusCopy = "c"
"#;
        let cases = [
            ("listen = \"somewhere\"".to_owned(), "listen"),
            (format!("{switch}disarmed = true"), "disarmed"),
            (format!("{switch}disarmedAtUnixMs = 1"), "disarmedAtUnixMs"),
            (format!("{switch}{switch}"), "twice"),
            (format!("{switch}targetId = \"x\""), "switches[0]"),
            ("[identity]".to_owned(), "lets nobody in"),
            ("[identity]\njwksFile = \"k\"\naudience = \"a\"".to_owned(), "identity.issuer"),
            ("[identity]\njwksFile = \"k\"\nissuer = \"i\"\naudience = \"\"".to_owned(), "identity.audience"),
            ("[identity]\napiKeys = true\nissuer = \"i\"".to_owned(), "identity.issuer"),
            ("[identity]\njwksFile = \"k\"\njwksUrl = \"https://i.example\"".to_owned(), "one of them"),
            ("[identity]\njwksUrl = \"http://i.example/k\"".to_owned(), "identity.jwksUrl"),
            ("[identity]\njwksUrl = \"https://u:p@i.example/k\"".to_owned(), "identity.jwksUrl"),
            ("[identity]\njwksUrl = \"file:///etc/passwd\"".to_owned(), "identity.jwksUrl"),
            ("[identity]\napiKeys = true\nleewaySeconds = 301".to_owned(), "leewaySeconds"),
            ("[identity]\napiKeys = true\n[identity.claims]\nrole = \"\"".to_owned(), "identity.claims"),
            ("[identity]\napiKeys = true\nnone = true".to_owned(), "none"),
            ("[limits]\nwatchesMax = 0".to_owned(), "limits.watchesMax"),
            ("[limits]\nwatches = 1".to_owned(), "watches"),
            ("[limits]\nrequestsPerSecond = 0".to_owned(), "limits.requestsPerSecond"),
            ("[limits]\nrequestsBurst = 5".to_owned(), "limits.requestsPerSecond"),
            ("[[executors]]\nurl = \"x\"".to_owned(), "url"),
            ("[[executors]]\nuri = \"http://x\"\nca = \"ca.pem\"".to_owned(), "executors[0]"),
            ("[tls]\ncert = \"cert.pem\"".to_owned(), "key"),
            ("[[exemptions]]\nhost = \"h\"\ncidr = \"everything\"".to_owned(), "cidr"),
        ];
        for (text, place) in cases {
            let problem = Config::parse(&text).unwrap_err();
            assert!(problem.contains(place), "{text}: {problem}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_anywhere_in_the_file_is_refused() {
        let all: Vec<&str> = EXAMPLE.lines().map(|line| line.strip_prefix("#= ").unwrap_or(line)).collect();
        assert!(Config::parse(&all.join("\n")).is_ok());
        let mut keys = 0;
        for (at, line) in all.iter().enumerate() {
            let is_key = line.split_once(" = ").is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_alphanumeric()));
            if is_key || line.starts_with('[') && !line.starts_with("[[") {
                let mut twice = all.clone();
                twice.insert(at, line);
                let problem = Config::parse(&twice.join("\n")).unwrap_err();
                assert!(problem.contains("duplicate"), "{line}: {problem}");
                keys += 1;
            }
        }
        assert!(keys > 40, "{keys}");
        assert!(Config::parse("listen = '127.0.0.1:1'\n\"listen\" = '127.0.0.1:2'").is_err(), "however it is written");
    }

    #[test]
    fn a_file_of_any_bytes_is_read_or_refused() {
        fn run(bytes: &[u8]) {
            let text = String::from_utf8_lossy(bytes);
            if let Err(problem) = Config::parse(&text) {
                assert!(!problem.is_empty());
            }
        }
        let all: String =
            EXAMPLE.lines().map(|line| line.strip_prefix("#= ").unwrap_or(line).to_owned() + "\n").collect();
        let seeds = vec![
            all.clone().into_bytes(),
            all.as_bytes()[all.len() / 2..].to_vec(),
            b"[limits]\nwatchesMax = 1\n".to_vec(),
        ];
        signalbox_tests::fuzz::drive_over(signalbox_tests::fuzz::Target { name: "config", run, weight: 1 }, seeds);
    }

    #[test]
    fn a_file_that_is_not_there_is_a_usage_error() {
        let failure = Config::read(Path::new("/nowhere/signalbox.toml")).unwrap_err();
        assert_eq!((failure.code.as_str(), failure.exit), ("config-unreadable", crate::failure::Exit::Usage));
    }
}
