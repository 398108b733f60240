//! Criterion benches and the load generator: what one governed call costs, and how to measure it again.

pub mod load;
pub mod rules;
