//! Starting the binary and reading what it says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The binary, far from whatever the environment says.
pub(crate) fn signalbox() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signalbox"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SIGNALBOX_")) {
        command.env_remove(name);
    }
    for name in ["RUST_LOG", "RUST_BACKTRACE", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "HOME"] {
        command.env_remove(name);
    }
    // Whoever runs the tests may have profiles.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command.stdin(Stdio::null());
    command
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) exit: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Standard output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
    /// The code of the error on standard error.
    pub(crate) fn code(&self) -> &str {
        let (_, rest) = self.err.split_once("error[").unwrap_or_else(|| panic!("no error: {self:?}"));
        rest.split_once(']').map_or("", |(code, _)| code)
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    Said {
        exit: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A server in a folder of its own, ended when it is dropped.
pub(crate) struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) addr: String,
    /// Where probes and scrapers are answered.
    pub(crate) ops: Option<String>,
    pub(crate) data: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::over(TempDir::new().unwrap(), &[])
    }

    /// Serves an existing folder, with more arguments.
    pub(crate) fn over(data: TempDir, more: &[&str]) -> Self {
        Self::run(signalbox(), Stdio::piped(), data, more)
    }

    /// The same, saying everything it does in a file.
    pub(crate) fn traced(log: std::fs::File, data: TempDir, more: &[&str]) -> Self {
        let mut command = signalbox();
        command.env("RUST_LOG", "trace");
        Self::run(command, log.into(), data, more)
    }

    /// One whose log goes to a file, so that no pipe fills up however much it has to say.
    pub(crate) fn logged(log: std::fs::File, data: TempDir, more: &[&str]) -> Self {
        Self::run(signalbox(), log.into(), data, more)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn run(mut command: Command, errors: Stdio, data: TempDir, more: &[&str]) -> Self {
        command.args(["serve", "--output", "json", "--data"]).arg(data.path()).args(more);
        if !more.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let started: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not started: {}", rest(&mut child)));
        let addr = format!("http://{}", started["listen"].as_str().unwrap());
        let ops = started["opsListen"].as_str().map(ToOwned::to_owned);
        Self { child, out, addr, ops, data }
    }

    /// A command to this server.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = signalbox();
        command.env("SIGNALBOX_ADDR", &self.addr).args(line.split_whitespace());
        command
    }

    /// Runs a command to this server, with its output as JSON.
    pub(crate) fn json(&self, line: &str) -> Said {
        run(self.command(line).args(["--output", "json"]))
    }

    /// Submits a plan.
    pub(crate) fn submit(&self, plan: &Value, more: &str) -> Said {
        let mut command = self.command(&format!("runs submit --plan - --output json {more}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(plan.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        Said {
            exit: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asks the server to end, and answers how it did.
    pub(crate) fn end(mut self) -> (i32, TempDir) {
        let terminated = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status().unwrap();
        assert!(terminated.success());
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        let exit = self.child.wait().unwrap().code().unwrap_or(-1);
        (exit, std::mem::replace(&mut self.data, TempDir::new().unwrap()))
    }

    /// Ends the server as a power cut would.
    pub(crate) fn cut(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.data, TempDir::new().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut text).unwrap();
    }
    text
}

/// Writes a file in a folder.
pub(crate) fn put(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}
