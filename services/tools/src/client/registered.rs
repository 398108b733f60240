//! Executors that were registered while the node runs. Their addresses come from an operator of the platform and not from
//! this machine's configuration, so the way to them is guarded as the way to any outside address is: what a name resolves to
//! is checked where the connection is made, and only what was checked is connected to (CAP-008, CAP-009).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use signalbox_domain::governance::egress::{CheckedUrl, EgressRules, HostExemption, check_resolved, check_url};
use signalbox_domain::ids::{ExecutorId, ExecutorTlsId, ToolId};
use signalbox_domain::registry::{
    DescribedTool, ExecutorDenial, ExecutorRegistration, RegisteredExecutor, check_address,
};
use signalbox_tls::ClientTls;
use tonic::transport::Channel;

use super::executor::Executor;
use super::{Bound, ExecutorClient, channel_over, parsed};

/// Most addresses of one host that are looked at.
const ADDRESSES_MAX: usize = 64;
/// Most tools that one description may hold: no catalog has as many.
const TOOLS_DESCRIBED_MAX: usize = 256;

/// What this machine's configuration says of executors that are registered elsewhere.
#[derive(Debug, Clone, Default)]
pub struct RegisteredRules {
    /// Hosts that may lie inside private networks.
    pub exempt: Vec<HostExemption>,
    /// Certificates, by the names that registrations use.
    pub tls: BTreeMap<ExecutorTlsId, ClientTls>,
}

/// The executors that were registered, as of one governance epoch.
#[derive(Default)]
pub(super) struct Registered {
    /// The tools that may be called there.
    pub(super) tools: BTreeMap<ToolId, Bound>,
    /// Where each tool was called last, retired executors too: what is out there can still be cancelled and asked for.
    pub(super) last: BTreeMap<ToolId, Arc<Executor>>,
    by_id: BTreeMap<ExecutorId, (ExecutorRegistration, Arc<Executor>)>,
}

impl ExecutorClient {
    /// What an executor that is about to be registered says it serves.
    pub(super) async fn described_by(
        &self,
        registration: &ExecutorRegistration,
    ) -> Result<Vec<DescribedTool>, ExecutorDenial> {
        let executor = self.executor_at(registration)?;
        let response = executor.describe().await.map_err(ExecutorDenial::NotDescribed)?;
        if response.tools.len() > TOOLS_DESCRIBED_MAX {
            let problem = format!("it describes more than {TOOLS_DESCRIBED_MAX} tools");
            return Err(ExecutorDenial::NotDescribed(problem));
        }
        let read =
            |tool| crate::wire::described_in(tool).map_err(|error| ExecutorDenial::NotDescribed(error.to_string()));
        response.tools.iter().map(read).collect()
    }

    /// Uses exactly these executors beside those of the configuration.
    pub(super) fn use_registered(&self, executors: &[RegisteredExecutor]) {
        let before = self.registered.load();
        let mut next = Registered::default();
        for known in executors {
            let RegisteredExecutor { registration, tools, .. } = known;
            let same = before.by_id.get(&registration.executor_id).filter(|(kept, _)| kept == registration);
            let executor = match same.map(|(_, executor)| Ok(Arc::clone(executor))) {
                Some(kept) => kept,
                None => self.executor_at(registration).map(Arc::new),
            };
            let executor = match executor {
                Ok(executor) => executor,
                Err(error) => {
                    let id = &registration.executor_id;
                    tracing::warn!(executor = %id, %error, code = error.code(), "this node cannot use an executor");
                    continue;
                }
            };
            for served in tools {
                next.last.insert(served.tool_id.clone(), Arc::clone(&executor));
                if !known.is_active() {
                    continue;
                }
                if self.tools.contains_key(&served.tool_id) {
                    let (id, tool) = (&registration.executor_id, &served.tool_id);
                    tracing::warn!(executor = %id, %tool, "the configuration binds this tool, and that counts");
                    continue;
                }
                let bound =
                    Bound { executor: Arc::clone(&executor), semver: served.semver.clone(), declared: served.recovery };
                next.tools.insert(served.tool_id.clone(), bound);
            }
            next.by_id.insert(registration.executor_id.clone(), (registration.clone(), executor));
        }
        self.registered.store(Arc::new(next));
    }

    fn executor_at(&self, registration: &ExecutorRegistration) -> Result<Executor, ExecutorDenial> {
        let rules = check_address(&registration.address, &self.rules.exempt)?;
        let private = registration.address.starts_with("https://");
        let tls = match (&registration.tls_id, private) {
            (Some(id), _) => {
                let known = self.rules.tls.get(id).cloned();
                Some(known.ok_or_else(|| ExecutorDenial::TlsUnknown(id.clone()))?)
            }
            (None, true) => {
                let trusting = ClientTls::load(signalbox_tls::ClientFiles::default());
                Some(trusting.map_err(|error| ExecutorDenial::NotDescribed(error.to_string()))?)
            }
            (None, false) => None,
        };
        let channel = guarded(&registration.address, tls, rules)?;
        Ok(self.executor(registration.executor_id.to_string(), channel))
    }
}

/// A channel that connects to checked addresses alone.
fn guarded(address: &str, tls: Option<ClientTls>, rules: EgressRules) -> Result<Channel, ExecutorDenial> {
    let refused = |error: String| ExecutorDenial::AddressRefused(error);
    let uri = parsed(address, tls.is_some()).map_err(|error| refused(error.to_string()))?;
    let url = check_url(address, "POST", &rules).map_err(|denial| refused(denial.to_string()))?;
    let guard = Arc::new((url, rules));
    let resolver = tower::service_fn(move |name: Name| {
        let guard = Arc::clone(&guard);
        async move { resolved(&name, &guard.0, &guard.1).await }
    });
    Ok(channel_over(uri, HttpConnector::new_with_resolver(resolver), tls))
}

async fn resolved(name: &Name, url: &CheckedUrl, rules: &EgressRules) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    let found: Vec<SocketAddr> =
        tokio::net::lookup_host((name.as_str(), url.port)).await?.take(ADDRESSES_MAX).collect();
    for address in &found {
        check_resolved(url, address.ip(), rules).map_err(io::Error::other)?;
    }
    Ok(found.into_iter())
}
