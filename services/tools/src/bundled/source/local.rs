//! Files as sources: only what the grant names, opened so that no link leads elsewhere (CAP-014).

use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::document::{Raw, SourceFailure};
use crate::material::MATERIAL_BYTES_MAX;

/// Reads a file that lies inside one of the paths the grant allows.
pub(crate) fn fetch(uri: &str, allowed: Option<&[String]>) -> Result<Raw, SourceFailure> {
    let path = Path::new(uri);
    let plain = path.file_name().map_or_else(|| "source".to_owned(), |name| name.to_string_lossy().into_owned());
    let refuse = |code, message: &str| Err(SourceFailure::new(plain.clone(), code, message));
    // Decided by the text of the path alone, so that a refusal does not tell whether something is there.
    let Some(place) = Place::of(path, allowed.unwrap_or_default()) else {
        return refuse("path-not-allowed", "it is not among the files this call may read");
    };
    let read = match place.open() {
        Ok(opened) => opened.read(),
        Err(error) => Err(error),
    };
    match read {
        Ok(bytes) => Ok(Raw { name: place.name(&plain), uri: None, declared: None, bytes }),
        Err(Trouble::NoFile) => refuse("source-not-a-file", "it is not a file"),
        Err(Trouble::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            refuse("source-missing", "there is no such file")
        }
        // An escape is refused by the capability itself, without asking the system.
        Err(Trouble::Io(error))
            if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() =>
        {
            refuse("path-not-allowed", "a link leads out of what this call may read")
        }
        Err(Trouble::Io(error)) => {
            tracing::debug!(%error, "a source could not be read");
            refuse("source-unreadable", &format!("it cannot be read: {}", error.kind()))
        }
    }
}

/// Opens a folder that lies inside one of the paths the grant allows.
pub(super) fn open_folder(uri: &str, allowed: Option<&[String]>) -> Result<Dir, SourceFailure> {
    let path = Path::new(uri);
    let plain = path.file_name().map_or_else(|| "folder".to_owned(), |name| name.to_string_lossy().into_owned());
    let Some(place) = Place::of(path, allowed.unwrap_or_default()) else {
        return Err(SourceFailure::new(plain, "path-not-allowed", "it is not among the files this call may read"));
    };
    let opened = std::fs::canonicalize(&place.allowed).and_then(|base| {
        let base = Dir::open_ambient_dir(base, ambient_authority())?;
        if place.inside.as_os_str().is_empty() { Ok(base) } else { base.open_dir(&place.inside) }
    });
    opened.map_err(|error| {
        tracing::debug!(%error, "a folder could not be opened");
        SourceFailure::new(plain, "source-not-a-folder", "it is no folder that can be read")
    })
}

#[derive(Debug)]
enum Trouble {
    NoFile,
    Io(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A file below one allowed path.
#[derive(Debug)]
struct Place {
    allowed: PathBuf,
    /// From the allowed path to the file; empty if the two are the same.
    inside: PathBuf,
}

struct Opened {
    folder: Dir,
    name: PathBuf,
}

impl Place {
    fn of(path: &Path, allowed: &[String]) -> Option<Self> {
        let is_plain = path.is_absolute() && path.components().all(|part| !matches!(part, Component::ParentDir));
        if !is_plain {
            return None;
        }
        let matching = allowed.iter().map(Path::new).filter(|allowed| allowed.is_absolute());
        let found = matching.filter_map(|allowed| path.strip_prefix(allowed).ok().map(|inside| (allowed, inside)));
        // The narrowest of several gives the shortest name.
        let (allowed, inside) = found.min_by_key(|(_, inside)| inside.components().count())?;
        Some(Self { allowed: allowed.to_owned(), inside: inside.to_owned() })
    }

    fn open(&self) -> Result<Opened, Trouble> {
        let (folder, name) = if self.inside.as_os_str().is_empty() {
            // One exact file: its folder is the capability, so a link in its place must stay there.
            let (Some(folder), Some(name)) = (self.allowed.parent(), self.allowed.file_name()) else {
                return Err(Trouble::NoFile);
            };
            (folder, PathBuf::from(name))
        } else {
            (self.allowed.as_path(), self.inside.clone())
        };
        let folder = Dir::open_ambient_dir(std::fs::canonicalize(folder)?, ambient_authority())?;
        Ok(Opened { folder, name })
    }

    /// The path inside an allowed folder, or the name of an allowed file.
    fn name(&self, plain: &str) -> String {
        if self.inside.as_os_str().is_empty() {
            return plain.to_owned();
        }
        self.inside.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
    }
}

impl Opened {
    fn read(&self) -> Result<Vec<u8>, Trouble> {
        // Asked before opening: opening a pipe would wait for somebody to write into it.
        if !self.folder.metadata(&self.name)?.is_file() {
            return Err(Trouble::NoFile);
        }
        let mut bytes = Vec::new();
        // One byte more than allowed, so that a file which is too large is seen to be.
        self.folder.open(&self.name)?.take(MATERIAL_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(uri: &Path, allowed: &[&Path]) -> String {
        let allowed: Vec<String> = allowed.iter().map(|path| path.to_str().unwrap().to_owned()).collect();
        match fetch(uri.to_str().unwrap(), Some(&allowed)) {
            Ok(raw) => raw.name,
            Err(failure) => failure.code.to_owned(),
        }
    }

    #[test]
    fn a_file_is_read_if_the_grant_names_it_or_a_folder_above_it() {
        let home = tempfile::tempdir().unwrap();
        let (folder, file) = (home.path().join("src/deep"), home.path().join("src/deep/a.md"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&file, "x").unwrap();
        assert_eq!(code(&file, &[&file]), "a.md");
        assert_eq!(code(&file, &[&home.path().join("src")]), "deep/a.md");
        assert_eq!(code(&file, &[home.path(), &folder]), "a.md", "the narrowest folder gives the name");
        assert_eq!(code(&folder, &[home.path()]), "source-not-a-file");
        assert_eq!(code(&folder, &[&folder]), "source-not-a-file");
        assert_eq!(code(&folder.join("none.md"), &[&folder]), "source-missing");
    }

    #[test]
    fn a_path_the_grant_does_not_hold_is_refused_whether_it_exists_or_not() {
        let home = tempfile::tempdir().unwrap();
        let (inside, outside) = (home.path().join("in"), home.path().join("out.md"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(&outside, "x").unwrap();
        let refused = [
            outside.clone(),
            home.path().join("none.md"),
            inside.join("../out.md"),
            home.path().join("in2/a"),
            "a.md".into(),
        ];
        for path in refused {
            assert_eq!(code(&path, &[&inside]), "path-not-allowed", "{path:?}");
        }
        assert!(fetch(outside.to_str().unwrap(), None).is_err(), "no bound given is no file allowed");
        assert!(fetch("file:///etc/hostname", Some(&["/etc".to_owned()])).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_inside_and_never_out() {
        use std::os::unix::fs::symlink;
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("in");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(home.path().join("secret"), "x").unwrap();
        std::fs::write(folder.join("real.md"), "x").unwrap();
        symlink("real.md", folder.join("near.md")).unwrap();
        symlink("../secret", folder.join("far.md")).unwrap();
        symlink(home.path(), folder.join("up")).unwrap();
        assert_eq!(code(&folder.join("near.md"), &[&folder]), "near.md");
        assert_eq!(code(&folder.join("far.md"), &[&folder]), "path-not-allowed");
        assert_eq!(code(&folder.join("far.md"), &[&folder.join("far.md")]), "path-not-allowed");
        assert_eq!(code(&folder.join("up/secret"), &[&folder]), "path-not-allowed");
    }
}
