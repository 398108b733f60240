//! How bad a weakness is, where its source says so: a CVSS vector, or a plain sentence. Nothing is guessed.

use std::str::FromStr as _;
use std::sync::LazyLock;

use cvss::Cvss;
use regex::Regex;

use super::model::{Level, Severity};

/// "Low severity", "This is a high-severity flaw", "Severity: critical": at the beginning of a sentence only.
static STATED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const LEVELS: &str = "low|moderate|medium|high|critical";
    let first = format!(r"(?:this is (?:a |an )?|rated |considered )?({LEVELS})[ -]severity\b");
    let second = format!(r"severity(?: is| was|:)? (?:rated )?({LEVELS})\b");
    Regex::new(&format!(r"(?i)^\W*(?:{first}|{second})")).ok()
});

/// The severity of a CVSS vector of version 2, 3.0, 3.1 or 4.0; `None` if it is none.
pub(crate) fn of_vector(vector: &str) -> Option<Severity> {
    let vector = vector.trim();
    let parsed = Cvss::from_str(vector).ok()?;
    let version = match &parsed {
        Cvss::CvssV20(_) => "2.0",
        Cvss::CvssV30(_) => "3.0",
        Cvss::CvssV31(_) => "3.1",
        Cvss::CvssV40(_) => "4.0",
        _ => return None,
    };
    let level = match parsed.severity() {
        cvss::Severity::None => Level::None,
        cvss::Severity::Low => Level::Low,
        cvss::Severity::Medium => Level::Medium,
        cvss::Severity::High => Level::High,
        cvss::Severity::Critical => Level::Critical,
    };
    // One decimal is all a score has; rounding takes off what floating point adds.
    let score = (parsed.score() * 10.0).round() / 10.0;
    Some(Severity {
        level,
        score: score.is_finite().then_some(score),
        vector: Some(vector.to_owned()),
        from: format!("CVSS {version} score, computed from the vector"),
    })
}

/// The severity that a sentence states as such, like "Low severity." or "Severity: high".
pub(crate) fn of_sentence(sentence: &str) -> Option<Severity> {
    let captures = STATED.as_ref()?.captures(sentence)?;
    let word = captures.get(1).or(captures.get(2))?.as_str().to_ascii_lowercase();
    let level = match word.as_str() {
        "low" => Level::Low,
        "moderate" | "medium" => Level::Medium,
        "high" => Level::High,
        _ => Level::Critical,
    };
    Some(Severity { level, score: None, vector: None, from: "stated in the text".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(vector: &str) -> Option<(Level, Option<f64>)> {
        of_vector(vector).map(|severity| (severity.level, severity.score))
    }

    #[test]
    fn a_vector_of_each_version_gives_its_published_score() {
        // The examples of the CVSS 3.1 and 4.0 specification documents.
        assert_eq!(scored("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"), Some((Level::Critical, Some(9.8))));
        assert_eq!(scored("CVSS:3.0/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N"), Some((Level::Medium, Some(6.1))));
        assert_eq!(
            scored("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:H/SI:H/SA:H"),
            Some((Level::Critical, Some(10.0)))
        );
        assert_eq!(scored("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N"), Some((Level::None, Some(0.0))));
    }

    #[test]
    fn what_is_no_vector_is_not_scored() {
        for text in ["", "high", "CVSS:3.1/AV:X", "CVSS:9.9/AV:N", "CVSS:3.1/"] {
            assert_eq!(scored(text), None, "{text}");
        }
    }

    #[test]
    fn a_sentence_counts_only_if_it_states_the_severity() {
        assert_eq!(of_sentence("Low severity.").map(|s| s.level), Some(Level::Low));
        assert_eq!(of_sentence("Severity: Moderate").map(|s| s.level), Some(Level::Medium));
        assert_eq!(of_sentence("This is a critical-severity flaw.").map(|s| s.level), Some(Level::Critical));
        assert_eq!(of_sentence("A high number of users saw no low severity bugs."), None);
    }
}
