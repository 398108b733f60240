//! What kinds of data there are (REG-041): what a consent is given for.

use serde::{Deserialize, Serialize};

/// A kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub enum DataScope {
    /// What a tenant shows to everybody.
    #[serde(rename = "tenant.public")]
    TenantPublic,
    /// What a tenant keeps to itself.
    #[serde(rename = "tenant.private")]
    TenantPrivate,
    /// What a user shows to others.
    #[serde(rename = "user.public")]
    UserPublic,
    /// What a user keeps to itself.
    #[serde(rename = "user.private")]
    UserPrivate,
    /// What editors have not published.
    #[serde(rename = "editorial.draft")]
    EditorialDraft,
    /// What editors have published.
    #[serde(rename = "editorial.published")]
    EditorialPublished,
    /// What the platform knows about itself.
    #[serde(rename = "platform.metadata")]
    PlatformMetadata,
    /// What the platform has picked.
    #[serde(rename = "platform.curated")]
    PlatformCurated,
}

/// The kinds of data (REG-041).
pub const DATA_SCOPES: [DataScope; 8] = [
    DataScope::TenantPublic,
    DataScope::TenantPrivate,
    DataScope::UserPublic,
    DataScope::UserPrivate,
    DataScope::EditorialDraft,
    DataScope::EditorialPublished,
    DataScope::PlatformMetadata,
    DataScope::PlatformCurated,
];

impl DataScope {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TenantPublic => "tenant.public",
            Self::TenantPrivate => "tenant.private",
            Self::UserPublic => "user.public",
            Self::UserPrivate => "user.private",
            Self::EditorialDraft => "editorial.draft",
            Self::EditorialPublished => "editorial.published",
            Self::PlatformMetadata => "platform.metadata",
            Self::PlatformCurated => "platform.curated",
        }
    }
}
