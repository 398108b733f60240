//! Profiles: the servers somebody works with, each under a name, in one file of their own. A flag wins over the
//! environment, the environment over the profile, the profile over what is said nowhere.
//!
//! The file is `$SIGNALBOX_CONFIG`, or `signalbox/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`. It holds no secret:
//! a token lies in a file that it names.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;
use crate::output::Format;
use crate::toml_file;

/// The variable that names the file.
const FILE_VARIABLE: &str = "SIGNALBOX_CONFIG";

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Written {
    /// The profile that is used unless another is named.
    profile: Option<String>,
    /// The profiles.
    profiles: BTreeMap<String, Profile>,
}

/// One server, and how it is spoken to. Paths are relative to the folder of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Profile {
    /// The server.
    pub(crate) addr: Option<String>,
    /// The file that holds the bearer token.
    pub(crate) token_file: Option<PathBuf>,
    /// The tenant that is spoken for.
    pub(crate) tenant: Option<String>,
    /// The authorities that are trusted, as PEM.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate that is shown, as PEM.
    pub(crate) client_cert: Option<PathBuf>,
    /// Its key, as PEM.
    pub(crate) client_key: Option<PathBuf>,
    /// How results are printed.
    pub(crate) output: Option<Format>,
}

/// Every profile, and which of them is in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Profiles {
    /// The file, if there is a place for one.
    pub(crate) path: Option<PathBuf>,
    /// The profile the file says is used.
    pub(crate) current: Option<String>,
    /// The profiles by name.
    pub(crate) all: BTreeMap<String, Profile>,
}

impl Profiles {
    /// Reads the file. One that is not there has no profiles, unless the environment names it.
    pub(crate) fn read() -> Result<Self, Failure> {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = set(FILE_VARIABLE);
        let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
        match named.clone().or_else(|| folder.map(|folder| folder.join("signalbox/config.toml"))) {
            Some(path) if named.is_some() || path.exists() => Self::of(path),
            path => Ok(Self { path, ..Self::default() }),
        }
    }

    fn of(path: PathBuf) -> Result<Self, Failure> {
        let text = toml_file::text_of(&path).map_err(|problem| {
            Failure::usage("profiles-unreadable", format!("`{}` cannot be read: {problem}", path.display()))
                .next(format!("set {FILE_VARIABLE} to the file that holds your profiles, or unset it"))
        })?;
        let (current, mut all) = parse(&text).map_err(|problem| {
            Failure::usage("profiles-invalid", format!("`{}`: {problem}", path.display()))
                .next("docs/cli.md shows every key of a profile")
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        for profile in all.values_mut() {
            for file in [&mut profile.token_file, &mut profile.ca, &mut profile.client_cert, &mut profile.client_key] {
                *file = file.take().map(|file| folder.join(file));
            }
        }
        Ok(Self { path: Some(path), current, all })
    }

    /// The profile of this name, or the one in use, with its name; none if there is none in use.
    pub(crate) fn chosen(&self, name: Option<&str>) -> Result<Option<(&str, &Profile)>, Failure> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        match self.all.get_key_value(name) {
            Some((name, profile)) => Ok(Some((name, profile))),
            None => Err(self.unknown(name)),
        }
    }

    /// Writes into the file which profile is used from now on; everything else in it stays as it was written.
    pub(crate) fn choose(&self, name: &str) -> Result<(), Failure> {
        let Some(path) = self.path.as_deref().filter(|_| self.all.contains_key(name)) else {
            return Err(self.unknown(name));
        };
        let failed = |problem: String| {
            Failure::new("profiles-unwritable", format!("`{}` cannot be written: {problem}", path.display()))
        };
        let text = with_current(&toml_file::text_of(path).map_err(failed)?, name);
        // What is written must say what was meant, whatever the file looked like.
        match parse(&text) {
            Ok((Some(current), _)) if current == name => {}
            Ok(_) | Err(_) => {
                return Err(
                    failed("its form is unusual".to_owned()).next(format!("write profile = \"{name}\" yourself"))
                );
            }
        }
        let beside = path.with_extension("toml.new");
        let kept = std::fs::metadata(path).map(|about| about.permissions());
        let written = std::fs::write(&beside, text)
            .and_then(|()| kept.and_then(|kept| std::fs::set_permissions(&beside, kept)))
            .and_then(|()| std::fs::rename(&beside, path));
        written.map_err(|error| failed(error.kind().to_string()))
    }

    fn unknown(&self, name: &str) -> Failure {
        let known: Vec<_> = self.all.keys().map(String::as_str).collect();
        let there = match (&self.path, known.is_empty()) {
            (None, _) => "no folder for one is known: set SIGNALBOX_CONFIG or HOME".to_owned(),
            (Some(path), true) => format!("write [profiles.{name}] into {}; docs/cli.md shows how", path.display()),
            (Some(path), false) => format!("{} has {}", path.display(), known.join(", ")),
        };
        Failure::usage("no-such-profile", format!("there is no profile `{name}`")).next(there)
    }
}

fn parse(text: &str) -> Result<(Option<String>, BTreeMap<String, Profile>), String> {
    let Written { profile, profiles } = toml_file::parse(text)?;
    for name in profiles.keys() {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
            return Err(format!("`{name}` is no name for a profile; use letters, digits, - _ and ."));
        }
    }
    Ok((profile, profiles))
}

/// The text with another `profile`, which stands before the first table.
fn with_current(text: &str, name: &str) -> String {
    let line = format!("profile = \"{name}\"");
    let mut lines: Vec<&str> = text.lines().collect();
    let tables = lines.iter().position(|line| line.trim_start().starts_with('[')).unwrap_or(lines.len());
    let there = lines[..tables].iter().position(|line| {
        line.trim_start().strip_prefix("profile").is_some_and(|rest| rest.trim_start().starts_with('='))
    });
    match there {
        Some(at) => lines[at] = &line,
        None => lines.insert(0, &line),
    }
    lines.join("\n") + "\n"
}

/// A warning if others on this machine may read a file that holds a secret.
pub(crate) fn exposed(path: &Path) -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path).ok()?.permissions().mode();
        if mode & 0o007 != 0 {
            return Some(format!("everybody on this machine may read `{}`; chmod 600 takes that away", path.display()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\n\n[profiles.here]\naddr = \"http://127.0.0.1:1\"\n\n[profiles.staging]\ntokenFile = \"t\"\noutput = \"yaml\"\n";

    #[test]
    fn choosing_a_profile_leaves_everything_else_as_it_was() {
        let once = with_current(FILE, "here");
        assert_eq!(once, format!("profile = \"here\"\n{FILE}"));
        assert_eq!(with_current(&once, "staging"), format!("profile = \"staging\"\n{FILE}"));
        assert_eq!(parse(&once).unwrap().0.as_deref(), Some("here"));
    }

    #[test]
    fn a_file_is_read_whole_or_refused_with_the_key_that_is_meant() {
        let (current, all) = parse(FILE).unwrap();
        assert_eq!((current, all.len(), all["staging"].output), (None, 2, Some(Format::Yaml)));
        for (text, said) in [
            ("[profiles.a]\naddres = \"x\"", "`addr` may be meant"),
            ("[profiles.a]\noutput = \"xml\"", "line 2"),
            ("[profiles.\"a b\"]\naddr = \"x\"", "no name for a profile"),
            ("[profile.a]\naddr = \"x\"", "line 1"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }

    #[test]
    fn a_profile_that_is_not_there_is_a_usage_error_that_names_those_there_are() {
        let (_, all) = parse(FILE).unwrap();
        let profiles = Profiles { path: Some("c.toml".into()), current: None, all };
        assert_eq!(profiles.chosen(None), Ok(None));
        let failure = profiles.chosen(Some("nowhere")).unwrap_err();
        assert_eq!(failure.code, "no-such-profile");
        assert!(failure.next.unwrap().contains("here, staging"));
    }
}
