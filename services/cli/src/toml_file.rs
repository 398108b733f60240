//! TOML that somebody wrote by hand: read within bounds, and refused with the place of the mistake and the key that was
//! probably meant. A line may hold a secret, so none is quoted.

use std::io::Read as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use signalbox_domain::redact::redact_text;

/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How alike two names must be for one to be taken for the other; 1: the same.
const ALIKE_MIN: f64 = 0.75;

/// The text of a file; the error says why it cannot be read.
pub(crate) fn text_of(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.kind().to_string())?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.kind().to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err("it has more than 1 MiB".to_owned());
    }
    Ok(text)
}

/// A text as what it should be; the error is in words, with the place.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| place_of(text, &error))
}

/// What is wrong, and at which line and name.
fn place_of(text: &str, error: &toml::de::Error) -> String {
    let mut problem = redact_text(error.message()).into_owned();
    if let (Some(from), Some(to)) = (problem.find('"'), problem.rfind('"')) {
        problem.replace_range(from..=to, "given");
    }
    if let Some(shorter) = unknown_key(&problem) {
        problem = shorter;
    }
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return problem };
    let line = 1 + before.matches('\n').count();
    let begun = before.rsplit('\n').next().unwrap_or_default();
    match begun.split_once('=') {
        Some((name, _)) => format!("line {line}, `{}`: {problem}", name.trim()),
        None => format!("line {line}: {problem}"),
    }
}

/// A shorter word on an unknown key, if this is about one: which known one is meant, or else which there are.
fn unknown_key(problem: &str) -> Option<String> {
    let (given, known) = problem.strip_prefix("unknown field `")?.split_once('`')?;
    let names: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let alike = |name: &&str| (strsim::jaro_winkler(&given.to_lowercase(), &name.to_lowercase()), (*name).to_owned());
    let nearest = names.iter().map(alike).max_by(|a, b| a.0.total_cmp(&b.0));
    Some(match nearest {
        Some((score, name)) if score >= ALIKE_MIN => format!("there is no key `{given}`; `{name}` may be meant"),
        Some(_) => format!("there is no key `{given}`; there are {}", names.join(", ")),
        None => format!("there is no key `{given}`; nothing can be said here"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_names_the_one_that_is_probably_meant() {
        let say =
            |given: &str| unknown_key(&format!("unknown field `{given}`, expected one of `watchesMax`, `watchBuffer`"));
        assert_eq!(say("watches").unwrap(), "there is no key `watches`; `watchesMax` may be meant");
        assert_eq!(say("watchbuffer").unwrap(), "there is no key `watchbuffer`; `watchBuffer` may be meant");
        assert_eq!(say("zzz").unwrap(), "there is no key `zzz`; there are watchesMax, watchBuffer");
        assert_eq!(unknown_key("missing field `a`"), None);
    }
}
