//! `[identity]` of the configuration file: whose tokens are believed, and whether API keys are.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use signalbox_domain::identity::{ClaimNames, ClaimRules, LEEWAY_SECONDS_DEFAULT, LEEWAY_SECONDS_MAX};
use signalbox_ports::clock::Clock;
use signalbox_server::identity::{ApiKeys, Credentials, Identify, KeyPlace, KeySource, RefreshTimes, Tokens};

use crate::failure::Failure;

/// Who is let in. Without it everybody on this machine is the platform's operator, and nobody else can come in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct IdentityEntry {
    /// The issuer's public keys, as a file with a JWK set.
    pub(crate) jwks_file: Option<PathBuf>,
    /// The same, at an https address; or at http on this machine.
    pub(crate) jwks_url: Option<String>,
    /// Who must have issued a token (`iss`).
    pub(crate) issuer: Option<String>,
    /// Whom it must be meant for (`aud`).
    pub(crate) audience: Option<String>,
    /// Difference between clocks that is forgiven, in seconds.
    pub(crate) leeway_seconds: Option<u64>,
    /// Whether API keys are let in.
    pub(crate) api_keys: bool,
    /// How the issuer calls the claims that no standard names.
    pub(crate) claims: ClaimsEntry,
}

/// `[identity.claims]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ClaimsEntry {
    /// The tenant.
    pub(crate) tenant: Option<String>,
    /// The role.
    pub(crate) role: Option<String>,
    /// The scopes.
    pub(crate) scope: Option<String>,
}

impl IdentityEntry {
    /// Refuses what lets nobody in, or leaves open whom.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.place()?;
        let has_tokens = self.jwks_file.is_some() || self.jwks_url.is_some();
        for (name, value) in [("issuer", &self.issuer), ("audience", &self.audience)] {
            match (has_tokens, value.as_deref()) {
                (true, None | Some("")) => return Err(format!("identity.{name} is missing")),
                (false, Some(_)) => return Err(format!("identity.{name} is of no use without jwksFile or jwksUrl")),
                (true, Some(_)) | (false, None) => {}
            }
        }
        if !has_tokens && !self.api_keys {
            return Err("identity lets nobody in; give jwksFile or jwksUrl, or set apiKeys".to_owned());
        }
        if self.leeway_seconds.is_some_and(|leeway| leeway > LEEWAY_SECONDS_MAX) {
            return Err(format!("identity.leewaySeconds may be at most {LEEWAY_SECONDS_MAX}"));
        }
        let names = [&self.claims.tenant, &self.claims.role, &self.claims.scope];
        if names.into_iter().flatten().any(|name| name.is_empty() || name.len() > 200) {
            return Err("identity.claims: the name of a claim has 1 to 200 bytes".to_owned());
        }
        Ok(())
    }

    fn place(&self) -> Result<Option<KeyPlace>, String> {
        match (&self.jwks_file, &self.jwks_url) {
            (None, None) => Ok(None),
            (Some(path), None) => Ok(Some(KeyPlace::File(path.clone()))),
            (None, Some(url)) => KeyPlace::url(url).map(Some).map_err(|error| format!("identity.jwksUrl: {error}")),
            (Some(_), Some(_)) => Err("identity has jwksFile and jwksUrl; give one of them".to_owned()),
        }
    }

    /// Reads the issuer's keys for the first time.
    pub(crate) async fn tokens(&self, clock: &Arc<dyn Clock>) -> Result<Option<Tokens>, Failure> {
        let Some(place) = self.place().map_err(|problem| Failure::usage("config-invalid", problem))? else {
            return Ok(None);
        };
        let source = KeySource::open(place, RefreshTimes::default(), clock.clone())
            .await
            .map_err(|problem| Failure::usage("jwks-unusable", problem))?;
        let names = ClaimNames::default();
        let rules = ClaimRules {
            issuer: self.issuer.clone().unwrap_or_default(),
            audience: self.audience.clone().unwrap_or_default(),
            leeway_seconds: self.leeway_seconds.unwrap_or(LEEWAY_SECONDS_DEFAULT),
            names: ClaimNames {
                tenant: self.claims.tenant.clone().unwrap_or(names.tenant),
                role: self.claims.role.clone().unwrap_or(names.role),
                scope: self.claims.scope.clone().unwrap_or(names.scope),
            },
        };
        Ok(Some(Tokens { source, rules }))
    }

    /// The identity of a server over these tokens and the keys of its store.
    pub(crate) fn identity(
        &self,
        tokens: Option<Tokens>,
        keys: &Arc<ApiKeys>,
        clock: &Arc<dyn Clock>,
    ) -> Arc<dyn Identify> {
        Arc::new(Credentials::new(tokens, self.api_keys.then(|| keys.clone()), clock.clone()))
    }
}
