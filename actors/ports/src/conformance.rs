//! The suites that define what an implementation of a port must do.
