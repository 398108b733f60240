//! `profiles`: the servers somebody works with.

use clap::Subcommand;
use serde_json::json;

use crate::client::{ADDR_DEFAULT, Connection};
use crate::failure::Failure;
use crate::output::{Out, warn};
use crate::profiles::{Profiles, exposed};

/// `profiles`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfilesCommand {
    /// Lists the profiles.
    #[command(after_help = "Example:\n  signalbox profiles list")]
    List,
    /// Uses a profile from now on.
    #[command(after_help = "Example:\n  signalbox profiles use staging")]
    Use {
        /// The profile.
        name: String,
    },
    /// Shows how a server would be reached, and where each value comes from.
    #[command(after_help = "Examples:\n  signalbox profiles show\n  signalbox profiles show staging")]
    Show {
        /// The profile; the one in use if left out.
        name: Option<String>,
    },
}

/// Shows or chooses.
pub(crate) fn run(
    command: ProfilesCommand,
    profiles: &Profiles,
    server: &Connection,
    said: &Connection,
    out: &mut Out,
) -> Result<(), Failure> {
    match command {
        ProfilesCommand::List => list(profiles, server.profile.as_deref(), out),
        ProfilesCommand::Use { name } => {
            profiles.choose(&name)?;
            if out.is_json() {
                return out.json(&json!({ "profile": name }));
            }
            out.line(&format!("profile {name} is used from now on"))
        }
        ProfilesCommand::Show { name: None } => show(server, said, out),
        ProfilesCommand::Show { name } => {
            let named = Connection { profile: name, ..said.clone() };
            show(&named.with_profile(profiles)?, said, out)
        }
    }
}

fn list(profiles: &Profiles, used: Option<&str>, out: &mut Out) -> Result<(), Failure> {
    let addr = |addr: Option<&String>| addr.map_or(ADDR_DEFAULT, String::as_str).to_owned();
    if out.is_json() {
        let all: Vec<_> = profiles
            .all
            .iter()
            .map(|(name, profile)| {
                json!({
                    "name": name,
                    "inUse": used == Some(name),
                    "addr": addr(profile.addr.as_ref()),
                    "tenant": profile.tenant,
                })
            })
            .collect();
        return out.json(&json!({ "profiles": all, "path": profiles.path }));
    }
    if profiles.all.is_empty() {
        let place = profiles.path.as_ref().map(|path| format!(" in {}", path.display())).unwrap_or_default();
        return out.line(&format!("there are no profiles{place}; docs/cli.md shows how to write one"));
    }
    let rows: Vec<Vec<String>> = profiles
        .all
        .iter()
        .map(|(name, profile)| {
            let mark = if used == Some(name) { "*" } else { "" };
            let tenant = profile.tenant.clone().unwrap_or_default();
            vec![mark.to_owned(), name.clone(), addr(profile.addr.as_ref()), tenant]
        })
        .collect();
    out.table(&["", "PROFILE", "SERVER", "TENANT"], &rows)
}

fn show(server: &Connection, said: &Connection, out: &mut Out) -> Result<(), Failure> {
    let found = server.found(said);
    if let Some(problem) = server.token_file.as_deref().and_then(exposed) {
        warn("token-file-exposed", &problem);
    }
    if out.is_json() {
        return out.json(&json!({ "profile": server.profile, "values": found }));
    }
    let rows: Vec<Vec<String>> =
        found.into_iter().map(|found| vec![found.key.to_owned(), found.value, found.from]).collect();
    out.table(&["KEY", "VALUE", "FROM"], &rows)
}
