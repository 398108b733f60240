//! A small disk that is full when a test says so.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// How much a mounted disk holds.
const MOUNTED_BYTES: u64 = 8 * 1_024 * 1_024;

/// What the kernel sends with a write beyond the limit on a file's size, on Linux.
const SIGXFSZ: i32 = 25;

pub(crate) enum Disk {
    /// A file system in memory: what does not fit is `ENOSPC`.
    Mounted(TempDir),
    /// This process's limit on the size of its files: what does not fit is `EFBIG`. Needs no power, and bounds every file
    /// the process writes.
    Limited(TempDir, Rlimit),
}

impl Disk {
    /// A disk of its own; `None` where mounting is not allowed.
    pub(crate) fn mounted() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={MOUNTED_BYTES}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        mount.is_ok_and(|mount| mount.status.success()).then_some(Self::Mounted(dir))
    }

    pub(crate) fn limited() -> Self {
        // A handler, so that the signal does not end the process: it stays for as long as the process does.
        drop(signal(SignalKind::from_raw(SIGXFSZ)).unwrap());
        Self::Limited(tempfile::tempdir().unwrap(), getrlimit(Resource::Fsize))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Mounted(dir) | Self::Limited(dir, _) => dir.path(),
        }
    }

    /// From now on nothing grows.
    pub(crate) fn fill(&self) {
        match self {
            Self::Mounted(_) => {
                let mut file = File::create(self.filler()).unwrap();
                for piece in [vec![0; 65_536], vec![0; 512]] {
                    while file.write(&piece).is_ok_and(|written| written == piece.len()) {}
                }
            }
            Self::Limited(_, unlimited) => {
                let sizes =
                    std::fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
                let limit = Rlimit { current: sizes.max(), maximum: unlimited.maximum };
                setrlimit(Resource::Fsize, limit).unwrap();
            }
        }
    }

    pub(crate) fn make_room(&self) {
        match self {
            Self::Mounted(_) => std::fs::remove_file(self.filler()).unwrap(),
            Self::Limited(_, unlimited) => setrlimit(Resource::Fsize, *unlimited).unwrap(),
        }
    }

    /// Every file but the one that fills the disk, with what is in it.
    pub(crate) fn files(&self, below: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut folders, mut files) = (vec![self.path().join(below)], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    let mut bytes = Vec::new();
                    File::open(entry.path()).unwrap().read_to_end(&mut bytes).unwrap();
                    files.push((entry.path(), bytes));
                }
            }
        }
        files
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        match self {
            Self::Mounted(dir) => {
                // Lazily: the store may be closing its files this moment.
                let unmounted = Command::new("umount").arg("--lazy").arg(dir.path()).status();
                assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
            }
            Self::Limited(_, unlimited) => {
                // The limit is this process's own, and was raised before.
                let _ = setrlimit(Resource::Fsize, *unlimited);
            }
        }
    }
}
