//! A PostgreSQL server of a test's own, which the test may stop, start and configure as it likes.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test, and not every binary needs all of them"
)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Somebody else may take the free port before the server does.
const PORT_TRIES_MAX: usize = 10;

/// The server, which is there until this is dropped.
pub(crate) struct Server {
    programs: PathBuf,
    dir: TempDir,
    port: u16,
    password: String,
}

impl Server {
    /// Starts one with these settings, such as `fsync=off`.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let password = uuid::Uuid::new_v4().simple().to_string();
        std::fs::write(dir.path().join("password"), &password).unwrap();
        if is_root() {
            // PostgreSQL refuses to run as root.
            run(Command::new("chown").args(["-R", "postgres"]).arg(dir.path()));
        }
        let mut server = Self { programs: programs(), dir, port: 0, password };
        let mut initdb = server.program("initdb");
        initdb.args(["--username=signalbox", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        initdb.arg("--pwfile").arg(server.dir.path().join("password")).arg("--pgdata").arg(server.data());
        run(&mut initdb);
        for _ in 0..PORT_TRIES_MAX {
            server.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if server.try_start(settings) {
                return server;
            }
        }
        panic!("PostgreSQL does not start: {}", server.log());
    }

    /// Starts it again where it was before.
    pub(crate) fn start_again(&self, settings: &[&str]) {
        assert!(self.try_start(settings), "PostgreSQL does not start again: {}", self.log());
    }

    /// Stops it: `fast` ends every session, `immediate` is as good as a crash.
    pub(crate) fn stop(&self, mode: &str) {
        run(self.program("pg_ctl").args(["stop", "--wait", "--silent", "--mode", mode, "--pgdata"]).arg(self.data()));
    }

    /// The address of its first database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://signalbox:{}@127.0.0.1:{}/postgres", self.password, self.port)
    }

    /// What it has written to its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn try_start(&self, settings: &[&str]) -> bool {
        let mut options = format!("-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories=''", self.port);
        settings.iter().for_each(|setting| options.push_str(&format!(" -c {setting}")));
        let mut start = self.program("pg_ctl");
        start.args(["start", "--wait", "--silent", "--options", &options, "--pgdata"]).arg(self.data());
        // The server outlives the command, and must not keep the pipes of the test open.
        start.arg("--log").arg(self.dir.path().join("log")).stdout(Stdio::null()).stderr(Stdio::null());
        start.status().unwrap().success()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["--user", "postgres", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir("/").stdin(Stdio::null());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be stopped already.
        let mut stop = self.program("pg_ctl");
        stop.args(["stop", "--wait", "--silent", "--mode", "immediate", "--pgdata"]).arg(self.data());
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Where the newest server's programs lie: Debian keeps them out of PATH, one folder for each version.
fn programs() -> PathBuf {
    let mut folders: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|folder| folder.ok())
        .filter_map(|folder| Some((folder.file_name().to_str()?.parse().ok()?, folder.path().join("bin"))))
        .collect();
    folders.sort();
    let in_path =
        std::env::var_os("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let candidates = folders.into_iter().rev().map(|(_, folder)| folder).chain(in_path);
    let has_server = |folder: &Path| folder.join("initdb").is_file() && folder.join("pg_ctl").is_file();
    // Never skipped: a suite that is green because it could not be run is worth nothing.
    candidates.into_iter().find(|folder| has_server(folder)).unwrap_or_else(|| {
        panic!("initdb and pg_ctl are missing: apt-get install postgresql, or run it through make test")
    })
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
