//! The folder of a run: where `file.write` puts what a run gives, and all that `file.read` can see (CAP-015).
//!
//! Paths are opened through a capability of the folder, never by name from the root of the file system, so neither `..`
//! nor a symbolic link leads out. Names are checked all the same, because a refusal with a reason is better than an
//! error from the system.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::ids::{RunId, TenantId};

use super::shared::{disk_failure, refusal};
use crate::tool::Failure;

/// Most bytes of all files of one run (CAP-015).
const RUN_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Most files of one run.
const RUN_FILES_MAX: usize = 10_000;
/// Largest file that can be written or read.
pub(crate) const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 512;
/// Deepest path.
const PATH_DEPTH_MAX: usize = 16;
/// The folder of all runs, in the data folder.
const PACKS: &str = "packs";
/// Where it is written down whose run a folder belongs to.
const OWNERS: &str = ".owners";
/// How many runs can be written to side by side.
const LOCKS: usize = 16;

/// The folders of all runs.
#[derive(Debug)]
pub(crate) struct RunFiles {
    data_dir: PathBuf,
    /// Two writes to one run must not both find room for themselves.
    locks: [Mutex<()>; LOCKS],
}

/// A file as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) persisted_key: String,
    pub(crate) sha256: String,
    pub(crate) size: u64,
}

impl RunFiles {
    pub(crate) fn new(data_dir: PathBuf) -> Self {
        Self { data_dir, locks: Default::default() }
    }

    /// Puts a whole file in place, or leaves everything as it was. `may_go_on` is asked last before the file appears.
    pub(crate) fn write(
        &self,
        tenant: &TenantId,
        run: RunId,
        path: &str,
        content: &[u8],
        may_go_on: impl FnOnce() -> bool,
    ) -> Result<Option<Written>, Failure> {
        let path = RunPath::parse(path)?;
        if content.len() > FILE_BYTES_MAX {
            return Err(refusal("file-too-large", format!("a file may have at most {FILE_BYTES_MAX} bytes")));
        }
        let _guard = self.lock(run);
        let disk = |error: io::Error| disk_failure("the file could not be written", &error);
        let (root, root_name) = self.root(tenant, run).map_err(disk)?;
        let replaced = root.metadata(&path.text).map_or(0, |old| if old.is_file() { old.len() } else { 0 });
        let used = Used::of(&root).map_err(disk)?;
        if used.bytes.saturating_sub(replaced) + content.len() as u64 > RUN_BYTES_MAX || used.files >= RUN_FILES_MAX {
            return Err(refusal("run-storage-full", "the files of this run would exceed 64 MiB"));
        }
        let blocked = |error: io::Error| path_failure(&error);
        let folder = match path.folder() {
            Some(folder) => {
                root.create_dir_all(folder).map_err(blocked)?;
                root.open_dir(folder).map_err(blocked)?
            }
            None => root.try_clone().map_err(disk)?,
        };
        let name = path.name();
        if folder.symlink_metadata(name).is_ok_and(|there| !there.is_file()) {
            return Err(refusal("path-not-allowed", "there is something else than a file at this path"));
        }
        // One name for all writers: nobody else writes to this run now, and a crash leaves at most one such file.
        let draft = format!(".draft-{name}");
        let mut options = OpenOptions::new();
        let mut file = folder.open_with(&draft, options.write(true).create(true).truncate(true)).map_err(disk)?;
        let kept = file.write_all(content).and_then(|()| file.sync_all());
        if let Err(error) = kept {
            // The first error says what is wrong; what is left of the draft is overwritten next time.
            let _ = folder.remove_file(&draft);
            return Err(disk(error));
        }
        if !may_go_on() {
            let _ = folder.remove_file(&draft);
            return Ok(None);
        }
        folder.rename(&draft, &folder, name).map_err(disk)?;
        sync(&folder).map_err(disk)?;
        Ok(Some(Written {
            persisted_key: format!("{PACKS}/{root_name}/{}", path.text),
            sha256: sha256_hex(content),
            size: content.len() as u64,
        }))
    }

    /// Refuses a path that could not be written.
    pub(crate) fn check(path: &str) -> Result<(), Failure> {
        RunPath::parse(path).map(|_| ())
    }

    /// Reads a whole file as text.
    pub(crate) fn read(&self, tenant: &TenantId, run: RunId, path: &str) -> Result<String, Failure> {
        let path = RunPath::parse(path)?;
        let disk = |error: io::Error| disk_failure("the file could not be read", &error);
        let missing = || refusal("file-missing", "there is no such file in this run");
        let (root, _) = self.root(tenant, run).map_err(disk)?;
        let there = match root.metadata(&path.text) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(error) => return Err(path_failure(&error)),
        };
        if !there.is_file() {
            return Err(missing());
        }
        let mut bytes = Vec::new();
        let file = root.open(&path.text).map_err(|error| path_failure(&error))?;
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(disk)?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(refusal("file-too-large", format!("only files of at most {FILE_BYTES_MAX} bytes can be read")));
        }
        String::from_utf8(bytes).map_err(|_| refusal("file-not-text", "the file is not UTF-8 text"))
    }

    /// The folder of a run, and its name. Two tenants may choose the same id for a run: the folder belongs to the first,
    /// and the other gets one under another name, so that they neither meet nor learn of each other (I11).
    fn root(&self, tenant: &TenantId, run: RunId) -> io::Result<(Dir, String)> {
        std::fs::create_dir_all(self.data_dir.join(PACKS).join(OWNERS))?;
        let packs = Dir::open_ambient_dir(self.data_dir.join(PACKS), ambient_authority())?;
        let name = run.to_string();
        let owner_file = format!("{OWNERS}/{name}");
        let mut options = OpenOptions::new();
        match packs.open_with(&owner_file, options.write(true).create_new(true)) {
            Ok(mut file) => {
                file.write_all(tenant.as_str().as_bytes())?;
                file.sync_all()?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let owner = packs.read_to_string(&owner_file)?;
        let name = if owner == tenant.as_str() {
            name
        } else {
            let tag = sha256_hex(tenant.as_str().as_bytes());
            format!("{name}.{}", tag.get(..16).unwrap_or(&tag))
        };
        packs.create_dir_all(&name)?;
        Ok((packs.open_dir(&name)?, name))
    }

    fn lock(&self, run: RunId) -> std::sync::MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        run.hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0);
        self.locks[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the names in a folder durable.
fn sync(folder: &Dir) -> io::Result<()> {
    folder.open(".")?.sync_all()
}

/// An error from opening a path inside the folder: most likely a link that leads out of it.
fn path_failure(error: &io::Error) -> Failure {
    use io::ErrorKind::{AlreadyExists, NotADirectory, NotFound, PermissionDenied};
    if matches!(error.kind(), PermissionDenied | NotADirectory | AlreadyExists | NotFound) {
        return refusal("path-not-allowed", "this path does not stay inside the folder of the run");
    }
    disk_failure("the path could not be opened", error)
}

/// A relative path of plain names.
#[derive(Debug)]
struct RunPath {
    text: String,
}

impl RunPath {
    fn parse(text: &str) -> Result<Self, Failure> {
        let not_allowed = |why: &str| refusal("path-not-allowed", why);
        if text.is_empty() || text.len() > PATH_BYTES_MAX {
            return Err(not_allowed("a path has 1 to 512 bytes"));
        }
        if text.contains(|c: char| c.is_control() || matches!(c, '\\' | ':')) {
            return Err(not_allowed("a path has no control characters, backslashes or colons"));
        }
        if text.split('/').count() > PATH_DEPTH_MAX {
            return Err(not_allowed("a path has at most 16 parts"));
        }
        // Hidden names are ours: drafts and owners.
        if text.split('/').any(|part| part.is_empty() || part.starts_with('.')) {
            return Err(not_allowed("a path is relative, and no part of it is empty or begins with a dot"));
        }
        Ok(Self { text: text.to_owned() })
    }
    fn folder(&self) -> Option<&str> {
        self.text.rsplit_once('/').map(|(folder, _)| folder)
    }
    fn name(&self) -> &str {
        self.text.rsplit_once('/').map_or(self.text.as_str(), |(_, name)| name)
    }
}

/// What a folder holds, with all folders below it.
#[derive(Debug, Default)]
struct Used {
    bytes: u64,
    files: usize,
}

impl Used {
    fn of(root: &Dir) -> io::Result<Self> {
        let mut used = Self::default();
        let mut open = vec![root.try_clone()?];
        while let Some(folder) = open.pop() {
            for entry in folder.entries()? {
                let entry = entry?;
                let kind = entry.file_type()?;
                used.files += 1;
                if kind.is_dir() {
                    open.push(entry.open_dir()?);
                } else if kind.is_file() {
                    used.bytes += entry.metadata()?.len();
                }
                if used.files > RUN_FILES_MAX {
                    return Ok(used);
                }
            }
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }
    fn run(n: u128) -> RunId {
        RunId::new(Uuid::from_u128(n))
    }
    fn write(files: &RunFiles, path: &str, content: &str) -> Result<Option<Written>, Failure> {
        files.write(&tenant("acme"), run(1), path, content.as_bytes(), || true)
    }

    #[test]
    fn a_file_is_there_whole_under_its_key_and_can_be_replaced() {
        let home = tempfile::tempdir().unwrap();
        let files = RunFiles::new(home.path().to_owned());
        let first = write(&files, "out/briefing.md", "one").unwrap().unwrap();
        assert_eq!(first.persisted_key, format!("packs/{}/out/briefing.md", run(1)));
        assert_eq!(std::fs::read(home.path().join(&first.persisted_key)).unwrap(), b"one");
        let second = write(&files, "out/briefing.md", "two").unwrap().unwrap();
        assert_eq!((second.size, second.sha256), (3, sha256_hex(b"two")));
        assert_eq!(files.read(&tenant("acme"), run(1), "out/briefing.md").unwrap(), "two");
        let names: Vec<_> =
            std::fs::read_dir(home.path().join(PACKS).join(run(1).to_string()).join("out")).unwrap().collect();
        assert_eq!(names.len(), 1, "no draft is left");
    }

    #[test]
    fn paths_that_are_not_plain_and_relative_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let files = RunFiles::new(home.path().to_owned());
        let long = "a".repeat(513);
        let deep = vec!["a"; 17].join("/");
        let paths =
            ["", "/etc/x", "../x", "a/../../x", "./x", "a//b", "a/", ".hidden", "a\\b", "c:x", "a\0b", &long, &deep];
        for path in paths {
            assert_eq!(write(&files, path, "x").unwrap_err().code, "path-not-allowed", "{path:?}");
            assert_eq!(files.read(&tenant("acme"), run(1), path).unwrap_err().code, "path-not-allowed", "{path:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leaves_the_folder_is_not_followed() {
        use std::os::unix::fs::symlink;
        let (home, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("secret"), "not yours").unwrap();
        let files = RunFiles::new(home.path().to_owned());
        write(&files, "a.md", "x").unwrap();
        let root = home.path().join(PACKS).join(run(1).to_string());
        symlink(outside.path(), root.join("dir")).unwrap();
        symlink(outside.path().join("secret"), root.join("file")).unwrap();
        for path in ["dir/secret", "file"] {
            assert_eq!(files.read(&tenant("acme"), run(1), path).unwrap_err().code, "path-not-allowed", "{path}");
            assert_eq!(write(&files, path, "gone").unwrap_err().code, "path-not-allowed", "{path}");
        }
        assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "not yours");
    }

    #[test]
    fn the_files_of_a_run_stay_under_64_mib() {
        let home = tempfile::tempdir().unwrap();
        let files = RunFiles::new(home.path().to_owned());
        write(&files, "a.md", "x").unwrap();
        let big = std::fs::File::create(home.path().join(PACKS).join(run(1).to_string()).join("big.bin")).unwrap();
        big.set_len(RUN_BYTES_MAX - 4).unwrap();
        assert_eq!(write(&files, "b.md", "1234").unwrap_err().code, "run-storage-full");
        assert!(write(&files, "a.md", "1234").is_ok(), "what is replaced makes room");
        assert_eq!(write(&files, "a.md", &"x".repeat(FILE_BYTES_MAX + 1)).unwrap_err().code, "file-too-large");
    }

    #[test]
    fn a_write_that_may_not_go_on_leaves_everything_as_it_was() {
        let home = tempfile::tempdir().unwrap();
        let files = RunFiles::new(home.path().to_owned());
        write(&files, "a.md", "before").unwrap();
        assert_eq!(files.write(&tenant("acme"), run(1), "a.md", b"after", || false), Ok(None));
        assert_eq!(files.read(&tenant("acme"), run(1), "a.md").unwrap(), "before");
    }

    #[test]
    fn two_tenants_with_the_same_run_id_never_meet() {
        let home = tempfile::tempdir().unwrap();
        let files = RunFiles::new(home.path().to_owned());
        write(&files, "a.md", "acme's").unwrap();
        assert_eq!(files.read(&tenant("other"), run(1), "a.md").unwrap_err().code, "file-missing");
        files.write(&tenant("other"), run(1), "a.md", b"other's", || true).unwrap();
        assert_eq!(files.read(&tenant("acme"), run(1), "a.md").unwrap(), "acme's");
        assert_eq!(files.read(&tenant("other"), run(1), "a.md").unwrap(), "other's");
    }

    #[test]
    fn what_is_missing_or_no_text_is_said_so() {
        let home = tempfile::tempdir().unwrap();
        let files = RunFiles::new(home.path().to_owned());
        files.write(&tenant("acme"), run(1), "dir/a.bin", &[0xff, 0xfe], || true).unwrap();
        for (path, code) in [("none.md", "file-missing"), ("dir", "file-missing"), ("dir/a.bin", "file-not-text")] {
            assert_eq!(files.read(&tenant("acme"), run(1), path).unwrap_err().code, code);
        }
        assert_eq!(write(&files, "dir", "x").unwrap_err().code, "path-not-allowed");
    }
}
