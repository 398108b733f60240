//! Fetching from the web behind the guard against forged requests (CAP-008 to CAP-011).
//!
//! Every hop goes through both phases: the URL is checked before anything is resolved, every address its host resolves to
//! is checked, and the connection can only go to one of those addresses, because the HTTP client is given no other
//! resolver. Redirects are followed here and not by the client. Nothing that could identify a caller is ever sent: no
//! cookies, no credentials, no referrer; and no proxy is used, since a proxy would resolve names again.

mod tool;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_hostile;

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use reqwest::{Method, Response, StatusCode};
use signalbox_domain::governance::egress::{
    BODY_BYTES_MAX, CheckedUrl, EgressRules, HostExemption, REDIRECTS_MAX, check_redirect, check_url,
};
use signalbox_domain::governance::grant::Constraints;
use tokio::time::{Instant, timeout_at};

pub(crate) use crate::guarded::{Resolver, SystemResolver, WebFailure};
use crate::guarded::{checked_addresses, client_to, failed};

pub(crate) use self::tool::WebFetch;

/// Longest time for one page with all its redirects.
const FETCH_MAX: Duration = Duration::from_secs(30);

/// Fetches pages.
pub(crate) struct WebFetcher {
    exempt: Vec<HostExemption>,
    resolver: Arc<dyn Resolver>,
}

/// A page.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// Where it was in the end.
    pub(crate) url: String,
    pub(crate) status: u16,
    /// What the server says it is, without parameters, in lower case.
    pub(crate) media_type: Option<String>,
    /// The decoded body.
    pub(crate) body: Vec<u8>,
}

impl WebFetcher {
    pub(crate) fn new(exempt: Vec<HostExemption>, resolver: Arc<dyn Resolver>) -> Self {
        Self { exempt, resolver }
    }

    /// Fetches a page inside the bounds of a grant. `GET` and `HEAD` are possible: a call may be repeated after a crash,
    /// and only these do nothing the second time.
    pub(crate) async fn fetch(
        &self,
        url: &str,
        method: &str,
        constraints: &Constraints,
        deadline: Instant,
    ) -> Result<Fetched, WebFailure> {
        let rules = EgressRules::of(constraints, &self.exempt);
        let checked = check_url(url, method, &rules)?;
        let method = match method.to_ascii_uppercase().as_str() {
            "GET" => Method::GET,
            "HEAD" => Method::HEAD,
            _ => return failed("method-not-allowed", "only GET and HEAD can be used", false),
        };
        let deadline = deadline.min(Instant::now() + FETCH_MAX);
        let host = checked.host.clone();
        let fetching = self.follow(checked, &method, &rules);
        timeout_at(deadline, fetching)
            .await
            .unwrap_or_else(|_| failed("fetch-timeout", format!("`{host}` did not answer in time"), true))
    }

    async fn follow(&self, first: CheckedUrl, method: &Method, rules: &EgressRules) -> Result<Fetched, WebFailure> {
        let (mut here, mut left) = (first, false);
        for _ in 0..=REDIRECTS_MAX {
            let response = match self.hop(&here, method, rules).await {
                Ok(response) => response,
                Err(failure) => return Err(WebFailure { left: left || failure.left, ..failure }),
            };
            left = true;
            let status = response.status();
            let location = response.headers().get(LOCATION).filter(|_| is_redirect(status));
            let Some(location) = location else { return body(&here, response).await };
            let Ok(location) = location.to_str() else {
                return failed("invalid-url", format!("`{}` redirects to no URL", here.host), true);
            };
            let next = check_redirect(&here, location, method.as_str(), rules);
            here = next.map_err(|denial| WebFailure { left: true, ..denial.into() })?;
        }
        failed("too-many-redirects", format!("there were more than {REDIRECTS_MAX} redirects"), true)
    }

    /// One request, to one of the addresses that were checked.
    async fn hop(&self, here: &CheckedUrl, method: &Method, rules: &EgressRules) -> Result<Response, WebFailure> {
        let addresses = checked_addresses(self.resolver.as_ref(), here, rules).await?;
        let client = client_to(addresses, here.port)?;
        match client.request(method.clone(), here.url.clone()).send().await {
            Ok(response) => Ok(response),
            Err(error) => {
                tracing::debug!(error = %error.without_url(), host = here.host, "a fetch failed");
                failed("fetch-failed", format!("`{}` could not be reached", here.host), true)
            }
        }
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Reads the body, decoded, up to its limit.
async fn body(here: &CheckedUrl, mut response: Response) -> Result<Fetched, WebFailure> {
    let status = response.status();
    if !status.is_success() {
        return failed("http-status", format!("`{}` answered {}", here.host, status.as_u16()), true);
    }
    // The client takes off the one encoding it asked for. What is left would have to be decoded again, without an end in
    // sight, and would be stored as noise otherwise.
    if response.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let message = format!("`{}` sent an encoding that was not asked for", here.host);
        return failed("encoding-not-supported", message, true);
    }
    let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(essence);
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > BODY_BYTES_MAX => {
                return failed("body-too-large", format!("`{}` sent more than 2 MiB", here.host), true);
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(error) => {
                tracing::debug!(error = %error.without_url(), host = here.host, "a body broke off");
                return failed("fetch-failed", format!("the answer of `{}` broke off", here.host), true);
            }
        }
    }
    Ok(Fetched { url: here.url.to_string(), status: status.as_u16(), media_type, body })
}

/// A media type without its parameters.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
