//! Whole-system tests, and what they share: where the workspace lies and where its binary is.
//!
//! `tests/house` holds the rules about the code itself, `tests/services` the proof that PostgreSQL and Redis are there,
//! `tests/fuzz` drives the parsers over hostile bytes.

pub mod fuzz;
pub mod issuer;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The `signalbox` binary, as `cargo test --workspace` has built it for the tests of its own crate; where only these tests
/// are run and it was never built, it is built now.
///
/// # Errors
/// If cargo cannot be run, or the binary does not build.
pub fn binary() -> io::Result<PathBuf> {
    // The tests' own executable lies in target/PROFILE/deps, the binary in target/PROFILE.
    let own = std::env::current_exe()?;
    let profile = own.ancestors().nth(2).ok_or_else(|| io::Error::other("the tests lie outside a target folder"))?;
    let binary = profile.join("signalbox");
    // Not built again where it is there: asked for alone, it would be built with other features and take minutes.
    if !binary.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--package", "signalbox", "--bin", "signalbox"])
            .current_dir(root())
            .status()?;
        if !built.success() {
            return Err(io::Error::other("the signalbox binary does not build"));
        }
    }
    Ok(binary)
}
