//! Isolation: secrets, files and hosts of a call against the bounds of its grant (CAP-012, CAP-014).
//!
//! What a call would touch is read off its arguments before anything is resolved or opened. The executor enforces the
//! same bounds again where it opens and connects; this is the check that stands in the journal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::governance::grant::Constraints;
use crate::governance::target::Target;
use crate::ids::{AgentId, SecretId, TenantId, ToolId};

pub use crate::governance::egress::{
    CheckedUrl, EgressDenial, EgressDenialReason, EgressRules, HostExemption, check_redirect, check_resolved,
    check_url, is_private_or_loopback_host, match_host_pattern,
};

/// What a call would touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touches<'a> {
    /// URLs it would reach.
    pub urls: Vec<&'a str>,
    /// Files of this machine it would read; its grant must name them.
    pub paths: Vec<&'a str>,
    /// Files inside the run's own folder.
    pub run_files: Vec<&'a str>,
    /// HTTP methods it would use.
    pub methods: Vec<&'a str>,
    /// Secrets it would use: those at the handles of its plan, never what a bound value says.
    pub secret_ids: Vec<&'a SecretId>,
    /// What in the arguments could not be read, so that nobody knows what it would touch.
    pub unreadable: Option<&'static str>,
}

/// Reads off the arguments and the handles in them what a call of this tool would touch. Of `source.fetch`, what begins with `http://` or
/// `https://` is a URL and everything else a file.
pub fn touches<'a>(tool_id: &ToolId, args: &'a Value, secrets: &'a BTreeMap<String, SecretId>) -> Touches<'a> {
    let mut touches = Touches { secret_ids: secrets.values().collect(), ..Touches::default() };
    match tool_id.as_str() {
        "web.fetch" => match args.get("url") {
            Some(Value::String(url)) => touches.urls.push(url),
            Some(_) | None => touches.unreadable = Some("`url` must be a text"),
        },
        "source.fetch" => match args.get("uris") {
            Some(Value::Array(uris)) => uris.iter().for_each(|uri| match uri.as_str() {
                Some(uri) if uri.starts_with("http://") || uri.starts_with("https://") => touches.urls.push(uri),
                Some(path) => touches.paths.push(path),
                None => touches.unreadable = Some("each of `uris` must be a text"),
            }),
            Some(_) | None => touches.unreadable = Some("`uris` must be a list of texts"),
        },
        // Files of this machine, as for `source.fetch`; without any it reads none.
        "calendar.read" => match args.get("uris") {
            Some(Value::Array(uris)) => uris.iter().for_each(|uri| match uri.as_str() {
                Some(path) => touches.paths.push(path),
                None => touches.unreadable = Some("each of `uris` must be a text"),
            }),
            Some(_) => touches.unreadable = Some("`uris` must be a list of texts"),
            None => {}
        },
        "notify.send" => match args.get("url") {
            Some(Value::String(url)) => touches.urls.push(url),
            Some(_) => touches.unreadable = Some("`url` must be a text"),
            // Without a URL it goes to the bound provider, which is no egress (CAT-007).
            None => {}
        },
        "file.read" | "file.write" => match args.get("path") {
            Some(Value::String(path)) => touches.run_files.push(path),
            Some(_) | None => touches.unreadable = Some("`path` must be a text"),
        },
        _ => {}
    }
    if !touches.urls.is_empty() {
        match args.get("method") {
            Some(Value::String(method)) => touches.methods.push(method),
            Some(_) => touches.unreadable = Some("`method` must be a text"),
            None => touches.methods.push(if tool_id.as_str() == "notify.send" { "POST" } else { "GET" }),
        }
    }
    touches
}

/// Who may use a secret. It never holds the secret itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRule {
    /// Names the secret.
    pub secret_id: SecretId,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// Agents that may use it.
    pub agent_ids: Vec<AgentId>,
    /// Tools that may be given it.
    pub tool_ids: Vec<ToolId>,
}

/// Why a secret is not released (CAP-012).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretDenialReason {
    /// It belongs to another tenant.
    CrossTenant,
    /// This agent may not use it.
    AgentNotPermitted,
    /// This tool may not be given it.
    ToolNotPermitted,
    /// The grant does not name it, or there is no such secret.
    SecretNotGranted,
}

impl SecretDenialReason {
    /// Stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::CrossTenant => "cross-tenant",
            Self::AgentNotPermitted => "agent-not-permitted",
            Self::ToolNotPermitted => "tool-not-permitted",
            Self::SecretNotGranted => "secret-not-granted",
        }
    }
}

/// Whether a call with this target may use a secret; checked in the order tenant, agent, tool (CAP-012).
///
/// # Errors
/// The first check that fails.
pub fn check_secret_access(rule: &SecretRule, target: &Target) -> Result<(), SecretDenialReason> {
    if rule.tenant_id != target.tenant_id {
        return Err(SecretDenialReason::CrossTenant);
    }
    if !rule.agent_ids.contains(&target.agent_id) {
        return Err(SecretDenialReason::AgentNotPermitted);
    }
    if !rule.tool_ids.contains(&target.tool_id) {
        return Err(SecretDenialReason::ToolNotPermitted);
    }
    Ok(())
}

/// Why a call would leave its bounds. Each says what was found and the smallest change that would have let it through.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsolationDenial {
    /// Nobody can say what the call would touch.
    #[error("the arguments cannot be checked: {0}")]
    Unreadable(&'static str),
    /// A secret it may not use.
    #[error("the secret `{secret_id}` is not released to this call ({}); let an operator configure it for this tenant, agent and tool and name it in the grant's `secretIds`", reason.code())]
    Secret {
        /// Which.
        secret_id: SecretId,
        /// Why.
        reason: SecretDenialReason,
    },
    /// A file outside the grant.
    #[error("the file `{path}` is not among the paths of the grant; add it to `paths`")]
    PathNotAllowed {
        /// As it stands in the arguments.
        path: String,
    },
    /// A path that leaves the folder it is confined to.
    #[error("the path `{path}` leaves the run's folder; use a relative path without `..`")]
    PathEscapes {
        /// As it stands in the arguments.
        path: String,
    },
    /// A host, scheme or method outside the grant, or an address inside the installation.
    #[error(transparent)]
    Egress(#[from] EgressDenial),
}

impl IsolationDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "args-unreadable",
            Self::Secret { reason, .. } => reason.code(),
            Self::PathNotAllowed { .. } => "path-not-allowed",
            Self::PathEscapes { .. } => "path-escapes-root",
            Self::Egress(denial) => denial.reason.code(),
        }
    }
}

/// What is needed beside a grant to check isolation.
#[derive(Debug, Clone, Copy)]
pub struct IsolationGround<'a> {
    /// Whose call it is.
    pub target: &'a Target,
    /// The secrets that are configured.
    pub secrets: &'a [SecretRule],
    /// Hosts that may lie inside.
    pub exempt: &'a [HostExemption],
}

/// Checks secrets, then files, then egress phase 1 (ADM-001).
///
/// # Errors
/// The first thing that lies outside the bounds.
pub fn check_isolation(
    touches: &Touches<'_>,
    constraints: &Constraints,
    ground: &IsolationGround<'_>,
) -> Result<(), IsolationDenial> {
    if let Some(problem) = touches.unreadable {
        return Err(IsolationDenial::Unreadable(problem));
    }
    touches.secret_ids.iter().try_for_each(|secret| check_secret(secret, constraints, ground))?;
    touches.run_files.iter().try_for_each(|path| check_run_file(path, constraints.paths.as_deref()))?;
    touches.paths.iter().try_for_each(|path| check_path(path, constraints.paths.as_deref()))?;
    if touches.urls.is_empty() {
        return Ok(());
    }
    let rules = EgressRules::of(constraints, ground.exempt);
    let method = touches.methods.first().copied().unwrap_or("GET");
    touches.urls.iter().try_for_each(|url| check_url(url, method, &rules).map(|_| ()))?;
    Ok(())
}

fn check_secret(
    secret_id: &SecretId,
    constraints: &Constraints,
    ground: &IsolationGround<'_>,
) -> Result<(), IsolationDenial> {
    let rule = ground.secrets.iter().find(|rule| &rule.secret_id == secret_id);
    let released =
        rule.map_or(Err(SecretDenialReason::SecretNotGranted), |rule| check_secret_access(rule, ground.target));
    let named = constraints.secret_ids.as_ref().is_some_and(|ids| ids.contains(secret_id));
    released
        .and(if named { Ok(()) } else { Err(SecretDenialReason::SecretNotGranted) })
        .map_err(|reason| IsolationDenial::Secret { secret_id: secret_id.clone(), reason })
}

/// A file in the run's own folder: bound only if the grant says so, but never outside.
fn check_run_file(path: &str, bound: Option<&[String]>) -> Result<(), IsolationDenial> {
    if path.is_empty() || path.contains('\0') || path.starts_with(['/', '\\']) || climbs(path) {
        return Err(IsolationDenial::PathEscapes { path: quoted(path) });
    }
    match bound {
        Some(bound) if !is_within(path, bound) => Err(IsolationDenial::PathNotAllowed { path: quoted(path) }),
        Some(_) | None => Ok(()),
    }
}

/// A file of this machine: a grant that names no paths allows none (CAP-014).
fn check_path(path: &str, bound: Option<&[String]>) -> Result<(), IsolationDenial> {
    let fits = !path.is_empty() && !path.contains('\0') && !climbs(path) && is_within(path, bound.unwrap_or_default());
    if fits { Ok(()) } else { Err(IsolationDenial::PathNotAllowed { path: quoted(path) }) }
}

pub(super) fn climbs(path: &str) -> bool {
    path.split(['/', '\\']).any(|part| part == "..")
}

/// True if one of the entries is the path itself or a folder above it. Whole names are compared, so `/data` does not
/// allow `/database`.
pub(crate) fn is_within(path: &str, entries: &[String]) -> bool {
    fn names(path: &str) -> impl Iterator<Item = &str> {
        path.split('/').filter(|name| !name.is_empty() && *name != ".")
    }
    entries.iter().any(|entry| {
        let mut rest = names(path);
        !entry.is_empty()
            && !climbs(entry)
            && entry.starts_with('/') == path.starts_with('/')
            && names(entry).all(|name| rest.next() == Some(name))
    })
}

fn quoted(path: &str) -> String {
    path.chars().take(200).collect()
}
