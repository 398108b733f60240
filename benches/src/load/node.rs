//! The node under load: `signalbox serve` with nothing configured but the executor and room for the load.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::Failure;
use super::executor::Process;
use super::options::Options;

/// A running node and the folder it keeps its data in.
#[derive(Debug)]
pub struct Node {
    /// The process.
    pub process: Process,
    folder: TempDir,
}

impl Node {
    /// Starts a node on an empty data folder, or on the database as it is.
    pub fn start(options: &Options, executor: &str) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("signalbox-loadgen-").tempdir_in(&options.data)?;
        std::fs::write(folder.path().join("signalbox.toml"), config(options, executor))?;
        let process = serve(options, folder.path())?;
        Ok(Self { process, folder })
    }

    /// Kills the node as a power cut would, and starts another on what it has left.
    pub fn restart(&mut self, options: &Options) -> Result<(), Failure> {
        self.process.end();
        self.process = serve(options, self.folder.path())?;
        Ok(())
    }

    /// Bytes that lie in the data folder.
    pub fn stored_bytes(&self) -> u64 {
        let entries = std::fs::read_dir(self.folder.path().join("data")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
    }
}

fn serve(options: &Options, folder: &Path) -> Result<Process, Failure> {
    let mut command = Command::new(&options.node);
    command.args(["serve", "--listen", "127.0.0.1:0", "--output", "json", "--data"]).arg(folder.join("data"));
    command.arg("--config").arg(folder.join("signalbox.toml"));
    command.env_remove("SIGNALBOX_STORE").stderr(Stdio::inherit());
    if let Some(store) = &options.store {
        // In the environment, where no process list shows a password.
        command.env("SIGNALBOX_STORE", store);
    }
    Process::start(command)
}

fn config(options: &Options, executor: &str) -> String {
    let calls = (options.conc * options.parallel).max(64);
    let watches = options.conc.max(1_024);
    let mut config = format!(
        "[[executors]]\nuri = \"{executor}\"\n\n\
         [limits]\nrunsActiveMax = 1000000\ncallsPerExecutorMax = {calls}\nwatchesMax = {watches}\n"
    );
    if options.meter {
        config.push_str(
            "\n[[budgets]]\nbudgetId = \"loadgen\"\ntenantId = \"default\"\nscope = \"tenant\"\nscopeKey = \"default\"\n\
             category = \"cost-units\"\nlimit = 1000000000\nonExceeded = \"kill\"\n",
        );
    }
    config
}
