//! The tools that signalbox ships and that need no account anywhere.

mod file;
mod memory;
mod run_files;
pub(crate) mod shared;
mod source;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use self::file::{FileRead, FileWrite};
use self::memory::{Memories, MemoryRead, MemoryWrite};
use self::run_files::RunFiles;
use crate::server::ToolServer;
use crate::tool::Tool;

/// What the bundled tools need to know of their installation.
#[derive(Debug, Clone, PartialEq)]
pub struct BundledConfig {
    /// The data folder; files of runs go under `packs/`, memories under `memory/`.
    pub data_dir: PathBuf,
}

/// A server of all bundled tools.
pub fn registry(config: BundledConfig) -> ToolServer {
    let files = Arc::new(RunFiles::new(config.data_dir.clone()));
    let memories = Arc::new(Memories::new(config.data_dir.clone()));
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(FileRead(Arc::clone(&files))),
        Arc::new(FileWrite(files)),
        Arc::new(MemoryRead(Arc::clone(&memories))),
        Arc::new(MemoryWrite(memories)),
    ];
    tools.extend(crate::briefing::tools(&config));
    ToolServer::new(tools)
}
