//! The connection to a server: which one, what is shown to it, and requests with a bound on their time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use signalbox_domain::ids::TenantId;
use signalbox_proto::client::{ANSWER_BYTES_MAX, ClientError, ClientFiles, Connect, Wire};
use signalbox_proto::v1::dashboard_service_client::DashboardServiceClient;
use signalbox_proto::v1::feedback_service_client::FeedbackServiceClient;
use signalbox_proto::v1::governance_service_client::GovernanceServiceClient;
use signalbox_proto::v1::identity_service_client::IdentityServiceClient;
use signalbox_proto::v1::pipeline_service_client::PipelineServiceClient;
use signalbox_proto::v1::registry_service_client::RegistryServiceClient;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use signalbox_proto::v1::schedule_service_client::ScheduleServiceClient;
use signalbox_proto::v1::webhook_service_client::WebhookServiceClient;
use tonic::{Request, Status};

use crate::failure::Failure;
use crate::output::warn;
use crate::profiles::{Profiles, exposed};
use crate::toml_file;

/// The client of the runs service.
pub(crate) type Client = RunServiceClient<Wire>;

/// The client of the feedback service.
pub(crate) type Feedback = FeedbackServiceClient<Wire>;

/// The client of the governance service.
pub(crate) type Governance = GovernanceServiceClient<Wire>;

/// The client of the pipelines service.
pub(crate) type Pipelines = PipelineServiceClient<Wire>;

/// The client of the registry service.
pub(crate) type Registry = RegistryServiceClient<Wire>;

/// The client of the dashboard service.
pub(crate) type Dashboard = DashboardServiceClient<Wire>;
/// The client of the schedule service.
pub(crate) type Schedules = ScheduleServiceClient<Wire>;
/// The client of the webhook service.
pub(crate) type Webhooks = WebhookServiceClient<Wire>;
/// The client of the identity service.
pub(crate) type Identities = IdentityServiceClient<Wire>;

/// Where a server is looked for unless something else is said.
pub(crate) const ADDR_DEFAULT: &str = "http://127.0.0.1:7420";
/// The variable that holds a token, for whom a file is in the way.
const TOKEN_VARIABLE: &str = "SIGNALBOX_TOKEN";
/// How long a single answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Which server is asked, and how it is reached: the one place for what all connections share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Connection {
    /// The server that is asked [default: http://127.0.0.1:7420].
    #[arg(long, global = true, env = "SIGNALBOX_ADDR", hide_env = true, value_name = "URL")]
    pub(crate) addr: Option<String>,
    /// The file that holds the token or API key that is shown [default: what SIGNALBOX_TOKEN holds].
    #[arg(long, global = true, env = "SIGNALBOX_TOKEN_FILE", hide_env = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The tenant that is spoken for; only a platform operator may.
    #[arg(long, global = true, env = "SIGNALBOX_TENANT", hide_env = true, value_name = "TENANT", value_parser = tenant)]
    pub(crate) tenant: Option<String>,
    /// The authorities that are trusted instead of the system's, as PEM.
    #[arg(long, global = true, env = "SIGNALBOX_CA", hide_env = true, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate that is shown, as PEM.
    #[arg(long, global = true, env = "SIGNALBOX_CLIENT_CERT", hide_env = true, value_name = "FILE")]
    pub(crate) client_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM.
    #[arg(long, global = true, env = "SIGNALBOX_CLIENT_KEY", hide_env = true, value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,
    /// The profile whose server is asked; `signalbox profiles list` shows them.
    #[arg(long, global = true, env = "SIGNALBOX_PROFILE", hide_env = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

/// One value of a connection, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Found {
    /// Its name, as in a profile.
    pub(crate) key: &'static str,
    /// The value.
    pub(crate) value: String,
    /// `flag`, a variable of the environment, a profile, or `default`.
    pub(crate) from: String,
}

impl Connection {
    /// To an address.
    pub(crate) fn to(addr: String) -> Self {
        Self { addr: Some(addr), ..Self::default() }
    }

    /// What is said on the command line and in the environment, and for the rest what the profile says.
    pub(crate) fn with_profile(self, profiles: &Profiles) -> Result<Self, Failure> {
        let Some((name, profile)) = profiles.chosen(self.profile.as_deref())? else { return Ok(self) };
        let profile_of = profile.clone();
        Ok(Self {
            addr: self.addr.or(profile_of.addr),
            token_file: self.token_file.or(profile_of.token_file),
            tenant: self.tenant.or(profile_of.tenant),
            ca: self.ca.or(profile_of.ca),
            client_cert: self.client_cert.or(profile_of.client_cert),
            client_key: self.client_key.or(profile_of.client_key),
            profile: Some(name.to_owned()),
        })
    }

    /// Each value there is and where it comes from; `said` is the command line and the environment alone.
    pub(crate) fn found(&self, said: &Self) -> Vec<Found> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let rows = [
            ("addr", "SIGNALBOX_ADDR", self.addr.clone(), said.addr.clone()),
            ("tokenFile", "SIGNALBOX_TOKEN_FILE", path(&self.token_file), path(&said.token_file)),
            ("tenant", "SIGNALBOX_TENANT", self.tenant.clone(), said.tenant.clone()),
            ("ca", "SIGNALBOX_CA", path(&self.ca), path(&said.ca)),
            ("clientCert", "SIGNALBOX_CLIENT_CERT", path(&self.client_cert), path(&said.client_cert)),
            ("clientKey", "SIGNALBOX_CLIENT_KEY", path(&self.client_key), path(&said.client_key)),
        ];
        let profile = self.profile.as_deref().unwrap_or_default();
        rows.into_iter()
            .filter_map(|(key, variable, value, said)| {
                let from = match (&value, said) {
                    (Some(value), Some(said)) if *value == said => match std::env::var(variable) {
                        Ok(set) if set == said => variable.to_owned(),
                        Ok(_) | Err(_) => "flag".to_owned(),
                    },
                    (Some(_), _) => format!("profile {profile}"),
                    (None, _) if key == "addr" => "default".to_owned(),
                    (None, _) => return None,
                };
                Some(Found { key, value: value.unwrap_or_else(|| ADDR_DEFAULT.to_owned()), from })
            })
            .collect()
    }

    /// The address.
    pub(crate) fn addr(&self) -> &str {
        self.addr.as_deref().unwrap_or(ADDR_DEFAULT)
    }

    /// Connects, to ask about runs.
    pub(crate) async fn open(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Connects, to manage switches, budgets and the audit journal.
    pub(crate) async fn governance(&self) -> Result<Governance, Failure> {
        Ok(Governance::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Connects, to manage schedules.
    pub(crate) async fn schedules(&self) -> Result<Schedules, Failure> {
        Ok(Schedules::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }
    /// Connects, to manage webhooks.
    pub(crate) async fn webhooks(&self) -> Result<Webhooks, Failure> {
        Ok(Webhooks::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Connects, to manage agents and executors, and to read the catalog.
    pub(crate) async fn registry(&self) -> Result<Registry, Failure> {
        Ok(Registry::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Connects, for rollouts, gold sets and what is said of runs.
    pub(crate) async fn feedback(&self) -> Result<Feedback, Failure> {
        Ok(Feedback::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Connects, for pipelines.
    pub(crate) async fn pipelines(&self) -> Result<Pipelines, Failure> {
        Ok(Pipelines::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Connects, for what operators see of many runs.
    pub(crate) async fn dashboard(&self) -> Result<Dashboard, Failure> {
        Ok(Dashboard::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Connects, to manage API keys and to ask who one is.
    pub(crate) async fn identities(&self) -> Result<Identities, Failure> {
        Ok(Identities::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Connects, for any service.
    pub(crate) async fn wire(&self) -> Result<Wire, Failure> {
        Ok(self.connect()?.wire().await?)
    }

    fn connect(&self) -> Result<Connect, Failure> {
        let mut connect = Connect::to(self.addr());
        if let Some(path) = &self.token_file {
            if let Some(problem) = exposed(path) {
                warn("token-file-exposed", &problem);
            }
            connect = connect.token(&read("token-file", path)?)?;
        } else if let Some(token) = std::env::var_os(TOKEN_VARIABLE).filter(|token| !token.is_empty()) {
            // Never an argument: every process list would show it.
            let not_text = |_| Failure::usage("credential-invalid", format!("{TOKEN_VARIABLE} is not UTF-8"));
            connect = connect.token(&token.into_string().map_err(not_text)?)?;
        }
        if let Some(tenant) = &self.tenant {
            connect = connect.tenant(tenant)?;
        }
        let (ca, cert, key) = (self.ca.clone(), self.client_cert.clone(), self.client_key.clone());
        Ok(connect.tls(ClientFiles { ca, cert, key }))
    }
}

/// A tenant's id as it is said, so that a wrong one is found out before anybody is asked.
fn tenant(text: &str) -> Result<String, String> {
    TenantId::new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn read(flag: &str, path: &Path) -> Result<String, Failure> {
    toml_file::text_of(path).map_err(|problem| {
        Failure::usage("file-unreadable", format!("--{flag}: `{}` cannot be read: {problem}", path.display()))
    })
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { status, .. } => (*status).into(),
            ClientError::Address(_) | ClientError::Credential(_) | ClientError::TokenInClear(_) => {
                Self::usage(error.code(), error.to_string())
            }
            ClientError::Certificates(problem) => Self::usage(problem.code(), problem.to_string()),
            ClientError::Unreachable { .. } | ClientError::Tls { .. } | ClientError::Answer(_) => {
                Self::new(error.code(), error.to_string())
            }
        }
    }
}

/// A request whose answer must come within half a minute.
pub(crate) fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(ANSWER_WITHIN);
    request
}

/// How often a command that is durable and not answered yet is asked for again.
const PENDING_TRIES: usize = 3;

/// Sends a command until the run has answered it. Saying it again is harmless, because it carries its id.
pub(crate) async fn until_answered<T>(send: impl AsyncFn() -> Result<T, Status>) -> Result<T, Failure> {
    for _ in 1..PENDING_TRIES {
        match send().await.map_err(Failure::from) {
            Err(failure) if failure.code == "answer-pending" => {}
            answered => return answered,
        }
    }
    send().await.map_err(Failure::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::Profile;

    #[test]
    fn a_flag_wins_over_a_profile_and_a_profile_over_the_default() {
        let staging =
            Profile { addr: Some("http://s:1".to_owned()), tenant: Some("acme".to_owned()), ..Profile::default() };
        let all = [("staging".to_owned(), staging)].into();
        let profiles = Profiles { path: None, current: Some("staging".to_owned()), all };
        let said = Connection::to("http://flag:1".to_owned());
        let whole = said.clone().with_profile(&profiles).unwrap();
        assert_eq!((whole.addr(), whole.tenant.as_deref()), ("http://flag:1", Some("acme")));
        let froms: Vec<_> = whole.found(&said).into_iter().map(|found| (found.key, found.from)).collect();
        assert_eq!(froms, [("addr", "flag".to_owned()), ("tenant", "profile staging".to_owned())]);
        let none = Connection::default().with_profile(&Profiles::default()).unwrap();
        assert_eq!(none.found(&Connection::default())[0].from, "default");
    }
}
