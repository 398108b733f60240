//! Asking before something dangerous: at a terminal a question, anywhere else a refusal that says what `--yes` would do.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::Args;

use crate::failure::Failure;

/// The flags of a command that asks first.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ConfirmArgs {
    /// Do it without asking.
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Only say what would be done; nothing is changed.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

/// Asks unless `yes` was said. `would` says what is about to be done.
pub(crate) async fn confirm(yes: bool, would: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !somebody_is_there() {
        return Err(Failure::usage("confirmation-required", format!("nothing was done; {would}"))
            .next("say it again with --yes, or with --dry-run to see more"));
    }
    match ask(format!("{would}. Do it?")).await? {
        Some(true) => Ok(()),
        Some(false) | None => Err(Failure::new("declined", "nothing was done")),
    }
}

/// True if somebody sits there who can be asked.
pub(crate) fn somebody_is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for y or n until one of them comes. No answer at all is no answer.
pub(crate) async fn ask(prompt: String) -> Result<Option<bool>, Failure> {
    let asked = tokio::task::spawn_blocking(move || {
        loop {
            let mut to = std::io::stderr();
            write!(to, "{prompt} [y/n] ")?;
            to.flush()?;
            let mut answer = String::new();
            if std::io::stdin().lock().read_line(&mut answer)? == 0 {
                return Ok(None);
            }
            match answer.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return Ok(Some(true)),
                "n" | "no" => return Ok(Some(false)),
                _ => {}
            }
        }
    });
    let asked: std::io::Result<Option<bool>> =
        asked.await.map_err(|error| Failure::new("start-failed", error.to_string()))?;
    Ok(asked?)
}
