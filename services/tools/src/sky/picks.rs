//! picks
