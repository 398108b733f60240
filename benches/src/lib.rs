//! Criterion benches and the load generator.
