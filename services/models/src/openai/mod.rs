//! The chat completions protocol, as a client that believes nothing.
//!
//! The endpoint is an operator's explicit word, so it may lie inside the installation; addresses that hand out credentials
//! (link-local ones) are never reached, whatever a name resolves to. No redirect is followed and no proxy is used. What is
//! read is bounded in size and time.

mod answer;
mod request;
mod sse;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Response, StatusCode, redirect};
use signalbox_domain::run::model_step::ModelAnswer;
use signalbox_ports::models::{ModelError, TurnOrder};
use signalbox_ports::secrets::SecretValue;
use signalbox_ports::tools::CallProgress;
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::{Host, Url};

use self::answer::Reading;
use self::request::{Names, body};
use self::sse::Events;

/// Longest time to connect.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest silence within an answer.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Most bytes of an answer, of whatever kind.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// First pause before something is tried again; doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause, also if the provider asks for a longer one: beyond it another model may be asked.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Who we say we are.
const USER_AGENT: &str = concat!("signalbox/", env!("CARGO_PKG_VERSION"));

/// Reads the key of a provider when it is needed; the error says what is wrong with where it comes from.
pub type KeySource = Arc<dyn Fn() -> Result<SecretValue, String> + Send + Sync>;

/// Where a provider answers.
#[derive(Clone)]
pub struct OpenAiEndpoint {
    base: Url,
    /// What the provider calls the model.
    pub upstream_model: String,
    /// Its key, if it wants one.
    pub key: Option<KeySource>,
    /// How often one turn is tried, from 1.
    pub attempts: u32,
}

impl std::fmt::Debug for OpenAiEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiEndpoint").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// Why an endpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// No URL that anything could be asked of.
    #[error("`baseUrl` must be an http or https URL with a host, without credentials, query and fragment")]
    NotAUrl,
    /// The key would cross a network in clear.
    #[error(
        "`baseUrl` must be https unless its host is this machine, or `plainHttp = true` says that the way there is safe"
    )]
    PlainHttp,
    /// It hands out credentials.
    #[error("`baseUrl` names a link-local address, which is never reached")]
    LinkLocal,
}

impl OpenAiEndpoint {
    /// An endpoint below this URL, such as `https://models.example/v1`.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn new(base: &str, upstream_model: String, plain_http: bool) -> Result<Self, EndpointError> {
        let mut base = Url::parse(base).map_err(|_| EndpointError::NotAUrl)?;
        let clean = base.query().is_none() && base.fragment().is_none();
        let anonymous = base.username().is_empty() && base.password().is_none();
        let local = match base.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => {
                if is_link_local(IpAddr::V4(address)) {
                    return Err(EndpointError::LinkLocal);
                }
                address.is_loopback()
            }
            Some(Host::Ipv6(address)) => {
                if is_link_local(IpAddr::V6(address)) {
                    return Err(EndpointError::LinkLocal);
                }
                address.is_loopback()
            }
            None => return Err(EndpointError::NotAUrl),
        };
        match base.scheme() {
            _ if !clean || !anonymous => return Err(EndpointError::NotAUrl),
            "https" => {}
            "http" if local || plain_http => {}
            "http" => return Err(EndpointError::PlainHttp),
            _ => return Err(EndpointError::NotAUrl),
        }
        let path = format!("{}/chat/completions", base.path().trim_end_matches('/'));
        base.set_path(&path);
        Ok(Self { base, upstream_model, key: None, attempts: 3 })
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => mapped.is_link_local(),
            // fd00:ec2::/32 is where one cloud answers with credentials.
            None => address.is_unicast_link_local() || address.segments()[..2] == [0xfd00, 0x0ec2],
        },
    }
}

/// Resolves names, but never to where credentials are handed out.
struct Elsewhere;

impl reqwest::dns::Resolve for Elsewhere {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.filter(|address| !is_link_local(address.ip())).collect();
            let addresses: reqwest::dns::Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

/// A provider that is asked.
pub(crate) struct OpenAi {
    endpoint: OpenAiEndpoint,
    client: reqwest::Client,
}

/// How one attempt went wrong.
enum Trouble {
    /// It may go well the next time, after this pause at least.
    Again { code: &'static str, message: String, after: Option<Duration> },
    /// It will not.
    Over(ModelError),
}

fn over<T>(code: &'static str, message: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Over(ModelError::Terminal { code, message: message.into() }))
}

fn again<T>(code: &'static str, message: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Again { code, message: message.into(), after: None })
}

impl OpenAi {
    pub(crate) fn new(endpoint: OpenAiEndpoint) -> Result<Self, ModelError> {
        let client = reqwest::Client::builder()
            .dns_resolver(Arc::new(Elsewhere))
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(CONNECT_MAX)
            .user_agent(USER_AGENT)
            .build();
        let client = client.map_err(|error| {
            tracing::error!(%error, "no HTTP client could be made");
            let message = "this installation cannot make web requests".to_owned();
            ModelError::Terminal { code: "web-client-unavailable", message }
        })?;
        Ok(Self { endpoint, client })
    }

    /// One turn, with what is tried again in it. The caller bounds its time.
    pub(crate) async fn turn(
        &self,
        order: &TurnOrder,
        progress: &mpsc::Sender<CallProgress>,
    ) -> Result<ModelAnswer, ModelError> {
        let names = Names::of(&order.args);
        let body = body(&order.args, &self.endpoint.upstream_model);
        let ends = Instant::now() + Duration::from_millis(order.timeout_ms);
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            let (code, message, after) = match self.attempt(&body, &names, progress).await {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Over(error)) => return Err(error),
                Err(Trouble::Again { code, message, after }) => (code, message, after),
            };
            // A provider that asks for more patience than there is is as good as away.
            let wait = after.unwrap_or(pause);
            let worth_it = wait <= PAUSE_MAX && Instant::now() + wait < ends;
            if attempt >= self.endpoint.attempts || !worth_it {
                let message = format!("{message} (tried {attempt} times)");
                return Err(ModelError::Transient { code, message });
            }
            tracing::debug!(call = %order.call_id, attempt, code, "a model is asked again");
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        body: &str,
        names: &Names,
        progress: &mpsc::Sender<CallProgress>,
    ) -> Result<ModelAnswer, Trouble> {
        let mut request = self.client.post(self.endpoint.base.clone());
        request =
            request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream, application/json");
        if let Some(key) = &self.endpoint.key {
            match key() {
                Ok(key) => request = request.bearer_auth(key.expose()),
                Err(problem) => return over("model-key-unusable", problem),
            }
        }
        let sent = tokio::time::timeout(SILENCE_MAX, request.body(body.to_owned()).send()).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                // The error of a request names its URL, which is nobody's business.
                tracing::debug!(error = %error.without_url(), "a model could not be asked");
                return again("model-unavailable", "the provider could not be reached");
            }
            Err(_) => return again("model-timeout", "the provider did not begin to answer"),
        };
        checked(&response)?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "text/event-stream" => streamed(response, names, progress).await,
            "application/json" => whole(response, names).await,
            _ => over("model-bad-answer", "the provider answered with something else than JSON or an event stream"),
        }
    }
}

fn checked(response: &Response) -> Result<(), Trouble> {
    let status = response.status();
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let after = seconds.map(Duration::from_secs);
    match status {
        StatusCode::OK => Ok(()),
        StatusCode::TOO_MANY_REQUESTS => {
            let message = "the provider is asked too often".to_owned();
            Err(Trouble::Again { code: "model-overloaded", message, after })
        }
        StatusCode::REQUEST_TIMEOUT => again("model-timeout", "the provider timed out"),
        _ if status.is_server_error() => {
            let message = format!("the provider answered {}", status.as_u16());
            Err(Trouble::Again { code: "model-unavailable", message, after })
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            over("model-key-refused", "the provider refuses the key; check where it comes from")
        }
        // What it says may repeat the question, so it is not.
        _ => over("model-refused", format!("the provider answered {}", status.as_u16())),
    }
}

async fn chunk(response: &mut Response) -> Result<Option<Vec<u8>>, Trouble> {
    match tokio::time::timeout(SILENCE_MAX, response.chunk()).await {
        Ok(Ok(chunk)) => Ok(chunk.map(|bytes| bytes.to_vec())),
        Ok(Err(_)) => again("model-unavailable", "the answer was cut off"),
        Err(_) => again("model-timeout", "the provider fell silent within its answer"),
    }
}

async fn streamed(
    mut response: Response,
    names: &Names,
    progress: &mpsc::Sender<CallProgress>,
) -> Result<ModelAnswer, Trouble> {
    let (mut events, mut reading, mut total) = (Events::default(), Reading::default(), 0_usize);
    while let Some(bytes) = chunk(&mut response).await? {
        total = total.saturating_add(bytes.len());
        if total > BODY_BYTES_MAX {
            return over("model-answer-too-large", "the answer is larger than may be");
        }
        for data in events.push(&bytes).map_err(bad)? {
            if data == "[DONE]" {
                return reading.finish(names).map_err(bad);
            }
            let said = reading.chunk(&data).map_err(bad)?;
            if !said.is_empty() {
                // Lines that nobody has time for are not worth waiting for.
                let _ = progress.try_send(CallProgress { message: said, percent: None });
            }
        }
    }
    if reading.has_ended() {
        return reading.finish(names).map_err(bad);
    }
    again("model-unavailable", "the answer was cut off")
}

async fn whole(mut response: Response, names: &Names) -> Result<ModelAnswer, Trouble> {
    let mut body = Vec::new();
    while let Some(bytes) = chunk(&mut response).await? {
        if body.len().saturating_add(bytes.len()) > BODY_BYTES_MAX {
            return over("model-answer-too-large", "the answer is larger than may be");
        }
        body.extend_from_slice(&bytes);
    }
    let mut reading = Reading::default();
    reading.whole(&body).map_err(bad)?;
    reading.finish(names).map_err(bad)
}

fn bad(problem: answer::Bad) -> Trouble {
    Trouble::Over(ModelError::Terminal { code: problem.code, message: problem.message })
}
