//! Invocations (INV): from where a run is triggered, what whoever triggers it declares, and whether that is enough.
//!
//! A preflight is judged before anything is written: a run that lacks something is not there at all. It names every gap at
//! once, so that nobody has to ask as often as there are gaps.
//!
//! Deliberately absent: authority. What a credential allows is checked beside this, from the credential alone; an envelope
//! can only declare less.

mod envelope;
mod policy;
mod preflight;
mod surface;
mod tone;

pub use envelope::{
    CONSENT_DAYS_MAX, ConsentConfirmation, DATA_SCOPES_MAX, ENTITLEMENT_BYTES_MAX, ENTITLEMENTS_MAX,
    InvocationEnvelope, NAME_BYTES_MAX, SOURCES_MAX, StoredInvocation,
};
pub use policy::{AgentRule, InvocationPolicies, InvocationRules, TONE_DEFAULT, TenantRules, rules_for};
pub(crate) use preflight::hands_off;
pub use preflight::{Gap, GapCode, Invocation, estimate, gaps_of, validate_preflight, warnings_of};
pub use surface::{INVOCATION_SURFACES, Surface};
pub use tone::{PhraseTone, TONE_BLOCKED, TonePolicy, ToneVerdict, judge_output, watches_tone};
