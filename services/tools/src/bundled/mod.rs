//! The tools that signalbox ships and that need no account anywhere.

use std::path::PathBuf;

/// What the bundled tools need to know of their installation.
#[derive(Debug, Clone, PartialEq)]
pub struct BundledConfig {
    /// The data folder; files of runs go under `packs/`, memories under `memory/`.
    pub data_dir: PathBuf,
}
