//! Where the issuer's keys come from, and how they change while the server runs.
//!
//! A token signed by a key that is not known makes the set be read again, but not more often than an interval allows: whoever
//! makes up key names cannot make this server knock at the issuer's door. The set is also read again from time to time, so
//! that a key the issuer has taken back ends here too. A source that fails changes nothing: the last good set is kept.

use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::redirect::Policy;
use signalbox_ports::clock::{BootInstant, Clock};
use tokio::sync::Mutex;
use url::{Host, Url};

use super::jwk::{KeySet, SET_BYTES_MAX};

/// How long an answer of the issuer may take.
const FETCH_WITHIN: Duration = Duration::from_secs(5);

/// Where a key set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// In a file.
    File(PathBuf),
    /// At an address that [`KeyPlace::url`] has accepted.
    Url(Url),
}

/// An address that keys may not come from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("keys are fetched over https, or over http from a loopback address; and the address holds no password")]
pub struct KeyPlaceError;

impl KeyPlace {
    /// An address, if what comes from there can be believed: whoever can change the keys can be anybody.
    pub fn url(text: &str) -> Result<Self, KeyPlaceError> {
        let url = Url::parse(text).map_err(|_| KeyPlaceError)?;
        let is_here = match url.host() {
            Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
            Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => return Err(KeyPlaceError),
        };
        let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_here);
        if !is_safe || !url.username().is_empty() || url.password().is_some() {
            return Err(KeyPlaceError);
        }
        Ok(Self::Url(url))
    }
}

impl std::fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "`{}`", path.display()),
            Self::Url(url) => write!(f, "`{url}`"),
        }
    }
}

/// How often keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefreshTimes {
    /// They are read again although nothing asks for it, after this many milliseconds.
    pub every_ms: u64,
    /// They are not read more often than this, in milliseconds, whatever asks for it.
    pub at_most_every_ms: u64,
}

impl Default for RefreshTimes {
    fn default() -> Self {
        Self { every_ms: 300_000, at_most_every_ms: 10_000 }
    }
}

/// The keys of one issuer.
pub struct KeySource {
    place: KeyPlace,
    times: RefreshTimes,
    clock: Arc<dyn Clock>,
    client: reqwest::Client,
    keys: RwLock<Arc<KeySet>>,
    /// When they were last asked for. Held while they are: one asks, and the others wait for its answer.
    asked: Mutex<BootInstant>,
}

impl KeySource {
    /// Reads the keys for the first time. A file must be there and good. An issuer that cannot be reached now is asked again
    /// when somebody comes with a token; until then nobody is let in with one.
    pub async fn open(place: KeyPlace, times: RefreshTimes, clock: Arc<dyn Clock>) -> Result<Arc<Self>, String> {
        let client = client(&place).map_err(|error| error.to_string())?;
        let keys = match (read(&client, &place).await, &place) {
            (Ok(keys), _) => keys,
            (Err(problem), KeyPlace::File(_)) => return Err(format!("{place}: {problem}")),
            (Err(problem), KeyPlace::Url(_)) => {
                tracing::warn!(%place, problem, "the issuer's keys cannot be read; no token is good until they can");
                KeySet::default()
            }
        };
        let asked = Mutex::new(clock.boot());
        Ok(Arc::new(Self { place, times, clock, client, keys: RwLock::new(Arc::new(keys)), asked }))
    }

    /// The keys as they are known. If that was long ago they are read again meanwhile, for whoever comes later.
    pub(super) fn known(self: &Arc<Self>) -> Arc<KeySet> {
        if let Ok(asked) = self.asked.try_lock()
            && self.clock.boot().ms_since(*asked) >= self.times.every_ms
        {
            drop(asked);
            let source = Arc::clone(self);
            tokio::spawn(async move { source.read_again(source.times.every_ms).await });
        }
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The keys, read again unless that was just done: somebody came with a key that is not among them.
    pub(super) async fn fresh(self: &Arc<Self>) -> Arc<KeySet> {
        self.read_again(self.times.at_most_every_ms).await;
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn read_again(&self, unless_within_ms: u64) {
        let mut asked = self.asked.lock().await;
        if self.clock.boot().ms_since(*asked) < unless_within_ms {
            return;
        }
        match read(&self.client, &self.place).await {
            Ok(keys) => *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys),
            Err(problem) => {
                tracing::warn!(place = %self.place, problem, "the issuer's keys cannot be read; the last good ones are kept");
            }
        }
        *asked = self.clock.boot();
    }
}

fn client(place: &KeyPlace) -> Result<reqwest::Client, reqwest::Error> {
    let mut builder = reqwest::Client::builder()
        // A redirect could lead anywhere, out of https for one.
        .redirect(Policy::none())
        .no_gzip()
        .timeout(FETCH_WITHIN)
        .user_agent(concat!("signalbox/", env!("CARGO_PKG_VERSION")));
    if matches!(place, KeyPlace::Url(url) if url.scheme() == "http") {
        builder = builder.no_proxy();
    }
    builder.build()
}

async fn read(client: &reqwest::Client, place: &KeyPlace) -> Result<KeySet, String> {
    let bytes = match place {
        KeyPlace::File(path) => {
            let path = path.clone();
            let reading = tokio::task::spawn_blocking(move || read_file(&path));
            reading.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?
        }
        KeyPlace::Url(url) => fetch(client, url.clone()).await?,
    };
    if bytes.len() > SET_BYTES_MAX {
        return Err(format!("the key set has more than {SET_BYTES_MAX} bytes"));
    }
    KeySet::parse(&bytes).map_err(|error| error.to_string())
}

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(SET_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// At most one byte more than a set may have.
async fn fetch(client: &reqwest::Client, url: Url) -> Result<Vec<u8>, String> {
    let asking = client.get(url).header("accept", "application/jwk-set+json, application/json").send();
    let mut answer = asking.await.map_err(|error| error.without_url().to_string())?;
    if answer.status() != reqwest::StatusCode::OK {
        return Err(format!("the issuer answers with status {}", answer.status().as_u16()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| error.without_url().to_string())? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > SET_BYTES_MAX {
            break;
        }
    }
    Ok(bytes)
}
