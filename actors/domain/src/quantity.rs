//! Quantities of cost: integers in millionths, never floats (LED-004), and the nine categories they are counted in.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const PER_UNIT: i64 = 1_000_000;

/// A quantity in millionths of a unit. JSON carries it as a decimal with up to six places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub i64);

impl Micros {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `units` whole units.
    pub const fn units(units: i64) -> Self {
        Self(units.saturating_mul(PER_UNIT))
    }
    /// Sum; stops at the largest value instead of wrapping, so that an absurd figure can only refuse more.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    /// Difference, saturating.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// Difference, but never below zero.
    pub fn minus_to_zero(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(0))
    }
    /// Reads a decimal; `None` if it is not finite, too large, or has more than six places.
    pub fn from_decimal(value: f64) -> Option<Self> {
        // Above 2^53 millionths a double no longer holds every value; whole numbers go through `units`.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if !value.is_finite() {
            return None;
        }
        let scaled = value * PER_UNIT as f64;
        let rounded = scaled.round();
        // A decimal of six places lies within a few ulp of its double; anything farther has more places.
        let near = (scaled - rounded).abs() <= (scaled.abs() * f64::EPSILON * 2.0).max(1e-9);
        (rounded.abs() <= EXACT && near).then_some(Self(rounded as i64))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, part) = (self.0.unsigned_abs() / 1_000_000, self.0.unsigned_abs() % 1_000_000);
        if part == 0 {
            return write!(f, "{sign}{whole}.0");
        }
        let digits = format!("{part:06}");
        write!(f, "{sign}{whole}.{}", digits.trim_end_matches('0'))
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0 % PER_UNIT == 0 {
            to.serialize_i64(self.0 / PER_UNIT)
        } else {
            to.serialize_f64(self.0 as f64 / PER_UNIT as f64)
        }
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for Micros {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "number",
            "description": "A quantity as a decimal with at most six places.",
        })
    }
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Decimal;
        impl de::Visitor<'_> for Decimal {
            type Value = Micros;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal with at most six places")
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Micros, E> {
                v.checked_mul(PER_UNIT).map(Micros).ok_or_else(|| E::custom("the number is too large"))
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Micros, E> {
                i64::try_from(v).map_err(|_| E::custom("the number is too large")).and_then(|v| self.visit_i64(v))
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Micros, E> {
                Micros::from_decimal(v).ok_or_else(|| E::custom("not a decimal with at most six places"))
            }
        }
        from.deserialize_any(Decimal)
    }
}

/// What a budget can be kept in; each is the twin of one ledger counter (BUD-001, LED-002).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BudgetCategory {
    /// Cost units: the common currency.
    CostUnits,
    /// Tokens read by a model.
    InputTokens,
    /// Tokens written by a model.
    OutputTokens,
    /// Minutes of a graphics processor.
    GpuMinutes,
    /// Seconds of synthetic voice.
    VoiceSeconds,
    /// Seconds of synthetic video.
    AvatarSeconds,
    /// Look-ups in sources or memory.
    Retrievals,
    /// Calls that leave the installation.
    ExternalCalls,
    /// Bytes written to artifacts.
    StorageBytes,
}

impl BudgetCategory {
    /// All nine, in the order of BUD-001.
    pub const ALL: [Self; 9] = [
        Self::CostUnits,
        Self::InputTokens,
        Self::OutputTokens,
        Self::GpuMinutes,
        Self::VoiceSeconds,
        Self::AvatarSeconds,
        Self::Retrievals,
        Self::ExternalCalls,
        Self::StorageBytes,
    ];
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CostUnits => "cost-units",
            Self::InputTokens => "input-tokens",
            Self::OutputTokens => "output-tokens",
            Self::GpuMinutes => "gpu-minutes",
            Self::VoiceSeconds => "voice-seconds",
            Self::AvatarSeconds => "avatar-seconds",
            Self::Retrievals => "retrievals",
            Self::ExternalCalls => "external-calls",
            Self::StorageBytes => "storage-bytes",
        }
    }
}

/// Amounts by category: an estimate, a reservation, a measurement or a charge. A category that is absent is zero.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Usage(pub BTreeMap<BudgetCategory, Micros>);

impl Usage {
    /// Nothing in any category.
    pub fn none() -> Self {
        Self::default()
    }
    /// One category.
    pub fn of(category: BudgetCategory, amount: Micros) -> Self {
        Self::none().with(category, amount)
    }
    /// The same with one category set.
    #[must_use]
    pub fn with(mut self, category: BudgetCategory, amount: Micros) -> Self {
        if amount == Micros::ZERO {
            self.0.remove(&category);
        } else {
            self.0.insert(category, amount);
        }
        self
    }
    /// The amount of one category.
    pub fn get(&self, category: BudgetCategory) -> Micros {
        self.0.get(&category).copied().unwrap_or(Micros::ZERO)
    }
    /// Category by category sum.
    pub fn add(&mut self, other: &Self) {
        for (category, amount) in &other.0 {
            let sum = self.get(*category).plus(*amount);
            self.0.insert(*category, sum);
        }
    }
    /// The non-zero amounts.
    pub fn iter(&self) -> impl Iterator<Item = (BudgetCategory, Micros)> + '_ {
        self.0.iter().map(|(category, amount)| (*category, *amount))
    }
}
