//! The rules about the code itself, as tests: who may import whom, what the rules crate may not touch, what the wire
//! contract promises, and that the pages tell the truth.
//!
//! None of them needs a service. Each failure says what is wrong, where, and what to do.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a page or a descriptor has many parts that a rule does not look at"
)]

#[cfg(test)]
mod admission;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod leftovers;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod proto;
#[cfg(test)]
mod purity;
#[cfg(test)]
mod workspace;
