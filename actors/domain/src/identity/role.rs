//! The standings, and how much of a run each is shown.

use serde::{Deserialize, Serialize};

/// The standing of a caller (CTL-019, REG-046). It comes from the credential alone, never from a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// An end customer.
    Customer,
    /// A creator inside a tenant.
    Creator,
    /// A machine that submits on behalf of a tenant.
    Service,
    /// An operator of one tenant.
    TenantOperator,
    /// An operator of the whole installation.
    PlatformOperator,
}

impl Role {
    /// Every role, rising.
    pub const ALL: [Self; 5] =
        [Self::Customer, Self::Creator, Self::Service, Self::TenantOperator, Self::PlatformOperator];

    /// The role of a wire string.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Creator => "creator",
            Self::Service => "service",
            Self::TenantOperator => "tenant-operator",
            Self::PlatformOperator => "platform-operator",
        }
    }

    /// The most internal events this role is shown (DSH-010).
    pub const fn sees(self) -> Visibility {
        match self {
            Self::Customer => Visibility::Customer,
            Self::Creator | Self::Service => Visibility::Creator,
            Self::TenantOperator => Visibility::TenantOperator,
            Self::PlatformOperator => Visibility::PlatformOperator,
        }
    }
}

/// How internal an event is, rising (DSH-010).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// Everyone who may see the run.
    Customer,
    /// Creators and above.
    Creator,
    /// Operators of the tenant and above.
    TenantOperator,
    /// Operators of the platform only.
    PlatformOperator,
}

impl Visibility {
    /// The wire string; part of what is hashed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Creator => "creator",
            Self::TenantOperator => "tenant-operator",
            Self::PlatformOperator => "platform-operator",
        }
    }
}
