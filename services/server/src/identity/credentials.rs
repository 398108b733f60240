//! The identity of a server in earnest: tokens of one issuer, and API keys.

use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderMap;
use signalbox_domain::identity::{ClaimRules, KEY_PREFIX, KeyText, read_claims};
use signalbox_ports::clock::Clock;

use super::api_keys::KeyProblem;
use super::refusals::Refusals;
use super::token::{Token, TokenError};
use super::{ApiKeys, Identify, KeySource, headers, unauthenticated};
use crate::api::{ApiError, Caller, ErrorKind};
use crate::errors::Refusal;

/// The tokens of one issuer.
pub struct Tokens {
    /// Its keys.
    pub source: Arc<KeySource>,
    /// What its tokens must say.
    pub rules: ClaimRules,
}

/// Believes tokens of one issuer, and API keys of the store.
pub struct Credentials {
    tokens: Option<Tokens>,
    keys: Option<Arc<ApiKeys>>,
    clock: Arc<dyn Clock>,
    refusals: Refusals,
}

impl Credentials {
    /// Each of the two is believed if it is there.
    pub fn new(tokens: Option<Tokens>, keys: Option<Arc<ApiKeys>>, clock: Arc<dyn Clock>) -> Self {
        Self { tokens, keys, refusals: Refusals::new(clock.clone()), clock }
    }

    fn refused(&self, why: &dyn std::fmt::Display) -> Refusal {
        self.refusals.note(why);
        unauthenticated()
    }

    async fn caller(&self, credential: &str) -> Result<Caller, Refusal> {
        if credential.starts_with(KEY_PREFIX) {
            return self.by_key(credential).await;
        }
        let Some(tokens) = &self.tokens else { return Err(self.refused(&"tokens are not configured")) };
        self.by_token(tokens, credential).await.map_err(|why| self.refused(&why))
    }

    async fn by_token(&self, tokens: &Tokens, credential: &str) -> Result<Caller, TokenError> {
        let token = Token::parse(credential)?;
        let claims = match token.verify(&tokens.source.known()) {
            // The issuer may have begun to sign with another key.
            Err(TokenError::UnknownKey(_)) => token.verify(tokens.source.fresh().await.as_ref())?,
            verified => verified?,
        };
        Ok(read_claims(&claims, &tokens.rules, self.clock.now().0.div_euclid(1_000))?)
    }

    async fn by_key(&self, credential: &str) -> Result<Caller, Refusal> {
        let Some(keys) = &self.keys else { return Err(self.refused(&"API keys are not configured")) };
        let Some(text) = KeyText::parse(credential) else { return Err(self.refused(&"not the form of an API key")) };
        keys.recognize(&text).await.map_err(|problem| match problem {
            // Nothing is known of the key then, good or bad: whoever has a good one is told to come again.
            KeyProblem::Store(error) => ApiError::from(error).into(),
            KeyProblem::Busy => Refusal::new(ErrorKind::Overloaded, "overloaded", problem.to_string()),
            KeyProblem::Unknown(_) | KeyProblem::WrongSecret(_) | KeyProblem::Ended(..) | KeyProblem::Damaged(_) => {
                self.refused(&problem)
            }
        })
    }
}

#[async_trait]
impl Identify for Credentials {
    async fn identify(&self, given: &HeaderMap) -> Result<Caller, Refusal> {
        let credential = headers::credential(given).map_err(|problem| self.refused(&problem))?;
        headers::in_tenant(self.caller(credential).await?, given)
    }
    fn loopback_only(&self) -> bool {
        false
    }
}
