//! Sending events of webhooks: signed as Standard Webhooks say, behind the same guard as every other connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use sha2::Sha256;
use signalbox_domain::webhook::{Answer, CONTENT_TYPE as CLOUD_EVENT, check_webhook_url, egress_rules};
use signalbox_ports::secrets::SecretValue;
use signalbox_ports::webhooks::{Courier, Parcel};
use signalbox_ports::zeroize::Zeroizing;
use tokio::time::timeout;

use crate::guarded::{Resolver, SystemResolver, WebFailure, checked_addresses, client_to};

/// Longest time for one attempt, from resolving the name to the end of the answer.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// How long the body of an answer is listened to.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How much of an answer is read, so that the connection ends in good order; the rest is dropped with it.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// What a signing secret begins with.
pub const SIGNING_KEY_PREFIX: &str = "whsec_";
/// How long a key is, in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Sends events over HTTP.
pub struct WebhookCourier {
    resolver: Arc<dyn Resolver>,
}

impl std::fmt::Debug for WebhookCourier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookCourier")
    }
}

impl Default for WebhookCourier {
    fn default() -> Self {
        Self { resolver: Arc::new(SystemResolver) }
    }
}

/// The bytes of a signing secret.
fn key_of(secret: &SecretValue) -> Result<Zeroizing<Vec<u8>>, String> {
    let wrong = || {
        format!(
            "it must be `{SIGNING_KEY_PREFIX}` and {} to {} bytes in base64; \
             `echo {SIGNING_KEY_PREFIX}$(openssl rand -base64 32)` prints one",
            KEY_BYTES.start(),
            KEY_BYTES.end()
        )
    };
    let text = secret.expose().strip_prefix(SIGNING_KEY_PREFIX).ok_or_else(wrong)?;
    let key = STANDARD.decode(text).map(Zeroizing::new).map_err(|_| wrong())?;
    if KEY_BYTES.contains(&key.len()) { Ok(key) } else { Err(wrong()) }
}

/// The value of `webhook-signature`: one signature for each key, the newest first.
fn signatures(parcel: &Parcel) -> Result<String, String> {
    let mut said = Vec::with_capacity(parcel.keys.len());
    for secret in &parcel.keys {
        let key = key_of(secret)?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|_| "the key cannot sign".to_owned())?;
        mac.update(format!("{}.{}.", parcel.id, parcel.timestamp).as_bytes());
        mac.update(&parcel.body);
        said.push(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())));
    }
    Ok(said.join(" "))
}

fn refused(code: &str, message: impl Into<String>) -> Answer {
    Answer::Failed { code: code.to_owned(), message: message.into() }
}

impl From<WebFailure> for Answer {
    fn from(failure: WebFailure) -> Self {
        refused(failure.code, failure.message)
    }
}

impl WebhookCourier {
    async fn attempt(&self, parcel: Parcel) -> Result<Answer, Answer> {
        let checked =
            check_webhook_url(&parcel.url, &parcel.exempt).map_err(|error| refused(error.code(), error.to_string()))?;
        if parcel.keys.is_empty() {
            return Err(refused("webhook-secret-unusable", "there is nothing to sign with"));
        }
        let signature = signatures(&parcel).map_err(|problem| refused("webhook-secret-unusable", problem))?;
        let rules = egress_rules(&parcel.url, &parcel.exempt);
        let addresses = checked_addresses(self.resolver.as_ref(), &checked, &rules).await?;
        let client = client_to(addresses, checked.port)?;
        let request = client
            .post(checked.url.clone())
            .header(CONTENT_TYPE, CLOUD_EVENT)
            .header("webhook-id", &parcel.id)
            .header("webhook-timestamp", parcel.timestamp)
            .header("webhook-signature", signature)
            .body(parcel.body);
        match request.send().await {
            Ok(response) => Ok(answer(response).await),
            Err(error) => {
                tracing::debug!(error = %error.without_url(), host = checked.host, "a delivery failed");
                Err(refused("endpoint-unreachable", format!("`{}` did not answer", checked.host)))
            }
        }
    }
}

/// What an endpoint said. Its status alone counts: some of its body is read for a while, and none of it kept.
async fn answer(mut response: Response) -> Answer {
    let status = response.status().as_u16();
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let reading = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            if read > ANSWER_BYTES_MAX {
                break;
            }
        }
    };
    // An endpoint that has said yes and goes on talking has said yes.
    let _ = timeout(ANSWER_MAX, reading).await;
    Answer::Status { status, retry_after_seconds: seconds }
}

#[async_trait]
impl Courier for WebhookCourier {
    fn check_key(&self, key: &SecretValue) -> Result<(), String> {
        key_of(key).map(drop)
    }

    async fn send(&self, parcel: Parcel) -> Answer {
        match timeout(ATTEMPT_MAX, self.attempt(parcel)).await {
            Ok(Ok(answer) | Err(answer)) => answer,
            Err(_) => refused("endpoint-timeout", format!("no answer within {} s", ATTEMPT_MAX.as_secs())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::bundled::web::testing::{Site, dripping, http};

    const KEYS: [&str; 2] =
        ["whsec_RkFLRS1rZXktb2Ytd2ViaG9va3MtbnVtYmVyLW9uZSE=", "whsec_RkFLRS1rZXktb2Ytd2ViaG9va3MtbnVtYmVyLXR3byE="];
    /// Computed with another implementation.
    const SIGNATURES: &str =
        "v1,r4HT9QXJIXa4VyrKSoiHodyQY10GxvwhZ/TCA9wpLQU= v1,9jChY02bkPaMJ/2Aji9meSfwx0suMBJ7s2mK9WQfHKI=";

    /// Every name leads to this machine.
    struct Here;

    #[async_trait]
    impl Resolver for Here {
        async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<IpAddr>> {
            Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
        }
    }

    fn parcel(url: String) -> Parcel {
        let exempt = signalbox_domain::governance::egress::HostExemption {
            host: "inside.test".into(),
            cidr: "127.0.0.0/8".parse().unwrap(),
        };
        let keys = KEYS.map(|key| SecretValue::new(key.to_owned())).into();
        let body = b"{\"a\":1}".to_vec();
        Parcel { url, id: "evt_1".into(), timestamp: 1_700_000_000, body, keys, exempt: vec![exempt] }
    }

    async fn sent(parcel: Parcel) -> Answer {
        WebhookCourier { resolver: Arc::new(Here) }.send(parcel).await
    }

    fn code(answer: &Answer) -> &str {
        match answer {
            Answer::Failed { code, .. } => code,
            Answer::Status { .. } => panic!("{answer:?}"),
        }
    }

    #[tokio::test]
    async fn what_is_sent_is_signed_with_each_key_and_says_nothing_of_us() {
        let site = Site::serve(|_| Some(http("202 Accepted", &[("retry-after", "7")], b"thanks"))).await;
        let answer = sent(parcel(site.url("inside.test", "/a"))).await;
        assert_eq!(answer, Answer::Status { status: 202, retry_after_seconds: Some(7) });
        let request = site.requests().remove(0);
        assert!(request.starts_with("POST /a HTTP/1.1\r\n"), "{request}");
        let header = |name: &str| {
            let line = request.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        assert_eq!((header("webhook-id"), header("webhook-timestamp")), ("evt_1".into(), "1700000000".into()));
        assert_eq!((header("webhook-signature").as_str(), header("content-type").as_str()), (SIGNATURES, CLOUD_EVENT));
        for none in ["cookie", "authorization", "referer"] {
            assert_eq!(header(none), "");
        }
    }

    #[tokio::test]
    async fn a_host_that_leads_inside_without_an_exemption_is_not_reached() {
        let site = Site::serve(|_| Some(http("200 OK", &[], b""))).await;
        let port = site.address.port();
        assert_eq!(code(&sent(parcel(format!("https://evil.test:{port}/"))).await), "ssrf-loopback");
        assert_eq!(code(&sent(parcel(format!("http://evil.test:{port}/"))).await), "scheme-not-allowed");
        assert_eq!(code(&sent(parcel(format!("http://127.0.0.1:{port}/"))).await), "scheme-not-allowed");
        assert!(site.requests().is_empty());
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_nothing_more() {
        let site = Site::serve(|_| Some(http("308 Moved", &[("location", "/b")], b""))).await;
        let answer = sent(parcel(site.url("inside.test", "/a"))).await;
        assert_eq!((answer.status(), answer.is_success()), (Some(308), false));
        assert_eq!(site.requests().len(), 1);
    }

    #[tokio::test]
    async fn an_endpoint_that_never_ends_its_answer_has_said_yes_and_is_left() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n".to_vec();
        let address = dripping(head, vec![b'x'; 64], Duration::from_millis(5)).await;
        let began = std::time::Instant::now();
        let answer = sent(parcel(format!("http://inside.test:{}/", address.port()))).await;
        assert_eq!(answer.status(), Some(200));
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[tokio::test]
    async fn what_is_no_key_signs_nothing_and_is_not_repeated() {
        let long = format!("whsec_{}", STANDARD.encode([1; 65]));
        for bad in ["", "FAKE-key", "whsec_", "whsec_!!!", "whsec_RkFLRQ==", &long] {
            let key = SecretValue::new(bad.to_owned());
            let problem = WebhookCourier::default().check_key(&key).unwrap_err();
            assert!(problem.contains("openssl") && (bad.len() < 7 || !problem.contains(bad)), "{problem}");
            let keys = vec![key];
            let answer = sent(Parcel { keys, ..parcel("http://inside.test:9999/".into()) }).await;
            assert_eq!(code(&answer), "webhook-secret-unusable");
        }
        let none = sent(Parcel { keys: vec![], ..parcel("http://inside.test:9999/".into()) }).await;
        assert_eq!(code(&none), "webhook-secret-unusable");
    }
}
