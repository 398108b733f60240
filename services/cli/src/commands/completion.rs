//! `completion`: what a shell needs to complete commands and flags.

use std::io::Write as _;

use clap::{Args, CommandFactory as _};

use crate::args::Cli;
use crate::failure::Failure;

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// `completion`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox completion bash > ~/.local/share/bash-completion/completions/signalbox
  signalbox completion zsh > ~/.zfunc/_signalbox      # with ~/.zfunc in fpath
  signalbox completion fish > ~/.config/fish/completions/signalbox.fish")]
pub(crate) struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionArgs) -> Result<(), Failure> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "signalbox", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
