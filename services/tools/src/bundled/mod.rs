//! The tools that signalbox ships and that need no account anywhere.

mod file;
mod memory;
mod run_files;
pub(crate) mod shared;
pub(crate) mod source;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod web;

use std::path::PathBuf;
use std::sync::Arc;

use signalbox_domain::governance::egress::HostExemption;

use self::file::{FileRead, FileWrite};
use self::memory::{Memories, MemoryRead, MemoryWrite};
use self::run_files::RunFiles;
use self::source::SourceFetch;
use self::web::{SystemResolver, WebFetch, WebFetcher};
use crate::server::ToolServer;
use crate::tool::Tool;
use crate::week::tools::CalendarRead;

/// What the bundled tools need to know of their installation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BundledConfig {
    /// The data folder; files of runs go under `packs/`, memories under `memory/`.
    pub data_dir: PathBuf,
    /// Hosts that may lie inside the installation's own network, each in one block of addresses. Empty by default.
    pub exemptions: Vec<HostExemption>,
}

/// A server of all bundled tools.
pub fn registry(config: BundledConfig) -> ToolServer {
    ToolServer::new(tools(config))
}

/// All bundled tools.
pub(crate) fn tools(config: BundledConfig) -> Vec<Arc<dyn Tool>> {
    let files = Arc::new(RunFiles::new(config.data_dir.clone()));
    let memories = Arc::new(Memories::new(config.data_dir.clone()));
    let web = Arc::new(WebFetcher::new(config.exemptions.clone(), Arc::new(SystemResolver)));
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(SourceFetch(Arc::clone(&web))),
        Arc::new(WebFetch(web)),
        Arc::new(FileRead(Arc::clone(&files))),
        Arc::new(FileWrite(files)),
        Arc::new(MemoryRead(Arc::clone(&memories))),
        Arc::new(MemoryWrite(memories)),
    ];
    tools.push(Arc::new(CalendarRead));
    tools.extend(crate::briefing::tools(&config));
    tools
}
