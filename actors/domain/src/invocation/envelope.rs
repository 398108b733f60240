//! What whoever triggers a run declares (INV-003 to INV-005), and what of it is kept.

use serde::{Deserialize, Deserializer, Serialize};

use crate::redact::redact_text;
use crate::registry::DataScope;
use crate::time::UnixMs;

/// Most entitlements one envelope declares.
pub const ENTITLEMENTS_MAX: usize = 256;
/// Longest entitlement, in bytes.
pub const ENTITLEMENT_BYTES_MAX: usize = 200;
/// Most sources one envelope declares.
pub const SOURCES_MAX: usize = 1_000;
/// Longest name of a source, a tone, a persona, a consent, a subject or a text's version, in bytes.
pub const NAME_BYTES_MAX: usize = 200;
/// Most kinds of data one consent names: there are no more.
pub const DATA_SCOPES_MAX: usize = 8;
/// How long a consent holds, in days (INV-005).
pub const CONSENT_DAYS_MAX: i64 = 365;

/// What an invocation declares. All five members must be there; `consent` may be `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InvocationEnvelope {
    /// The scopes it means to use. The run has these and no others of the credential.
    pub entitlements: Vec<String>,
    /// The sets of sources it draws on.
    pub source_set: Vec<String>,
    /// The tone it wants.
    pub tone: String,
    /// The persona it wants.
    pub persona: String,
    /// What the person that the data is about has agreed to.
    #[serde(deserialize_with = "stated")]
    pub consent: Option<ConsentConfirmation>,
}

// Left out is not the same as stated to be absent: only what is stated was thought of.
fn stated<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ConsentConfirmation>, D::Error> {
    Option::deserialize(from)
}

/// That a person has agreed to something (INV-005).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsentConfirmation {
    /// Names the record of it, kept where it was given.
    pub consent_id: String,
    /// Whose data it is about.
    pub subject_id: String,
    /// Which version of the text was agreed to.
    pub text_version: String,
    /// When.
    pub accepted_at_unix_ms: UnixMs,
    /// To the use of which data.
    pub data_scopes: Vec<DataScope>,
}

/// What is kept of an envelope in the run's first event. A consent is kept by its id: whose it is stays where it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoredInvocation {
    /// The scopes it declared.
    pub entitlements: Vec<String>,
    /// The sets of sources it draws on.
    pub source_set: Vec<String>,
    /// The tone.
    pub tone: String,
    /// The persona.
    pub persona: String,
    /// Names the consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent_id: Option<String>,
    /// The version of the text that was agreed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent_text_version: Option<String>,
}

impl InvocationEnvelope {
    /// Why the envelope cannot be taken as it is: a list or a name that is too long, empty, said twice, or looks like a
    /// secret. Names the member.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let lists = [
            ("invocation.entitlements", &self.entitlements, ENTITLEMENTS_MAX, ENTITLEMENT_BYTES_MAX),
            ("invocation.sourceSet", &self.source_set, SOURCES_MAX, NAME_BYTES_MAX),
        ];
        for (member, list, most, bytes) in lists {
            if list.len() > most {
                return Some((member, format!("it has {} entries; at most {most} are allowed", list.len())));
            }
            if let Some(problem) = list.iter().find_map(|name| name_problem(name, bytes)) {
                return Some((member, problem));
            }
            let distinct: std::collections::BTreeSet<_> = list.iter().collect();
            if distinct.len() != list.len() {
                return Some((member, "an entry stands twice in it".to_owned()));
            }
        }
        let consent = self.consent.iter().flat_map(|consent| {
            [
                ("invocation.consent.consentId", &consent.consent_id),
                ("invocation.consent.subjectId", &consent.subject_id),
                ("invocation.consent.textVersion", &consent.text_version),
            ]
        });
        let names = [("invocation.tone", &self.tone), ("invocation.persona", &self.persona)];
        if let Some(problem) = names
            .into_iter()
            .chain(consent)
            .find_map(|(member, name)| Some((member, name_problem(name, NAME_BYTES_MAX)?)))
        {
            return Some(problem);
        }
        let scopes = &self.consent.as_ref()?.data_scopes;
        let distinct: std::collections::BTreeSet<_> = scopes.iter().collect();
        (scopes.len() > DATA_SCOPES_MAX || distinct.len() != scopes.len())
            .then(|| ("invocation.consent.dataScopes", "an entry stands twice in it".to_owned()))
    }

    /// What is kept of it.
    pub fn stored(&self) -> StoredInvocation {
        StoredInvocation {
            entitlements: self.entitlements.clone(),
            source_set: self.source_set.clone(),
            tone: self.tone.clone(),
            persona: self.persona.clone(),
            consent_id: self.consent.as_ref().map(|consent| consent.consent_id.clone()),
            consent_text_version: self.consent.as_ref().map(|consent| consent.text_version.clone()),
        }
    }
}

// Names are shown and kept as they are, so they must be short, plain, and nothing that looks like a secret.
fn name_problem(name: &str, bytes_max: usize) -> Option<String> {
    if name.is_empty() {
        return Some("an entry is empty".to_owned());
    }
    if name.len() > bytes_max {
        return Some(format!("an entry has {} bytes; at most {bytes_max} are allowed", name.len()));
    }
    if name.chars().any(|c| c.is_control() || is_invisible(c)) {
        return Some("an entry has a character that nobody can see".to_owned());
    }
    matches!(redact_text(name), std::borrow::Cow::Owned(_)).then(|| "an entry looks like a secret".to_owned())
}

// Marks that reorder or hide what stands beside them.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
