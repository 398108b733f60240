//! `check handoff`.

use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::handoff::ChainLink;
use signalbox_domain::handoff::dispatch::{Authority, DEFAULT_DEPTH_CAP, Dispatch, Parent, validate_dispatch};
use signalbox_domain::ids::AgentId;
use signalbox_domain::quantity::Micros;

use super::{Verdict, read, verdict};

#[derive(Deserialize)]
struct Line {
    parent: Stored,
    dispatch: Asked,
}

/// The agent that hands off, as its stored chain says.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Stored {
    chain: Vec<ChainLink>,
    #[serde(default = "depth_cap")]
    depth_cap: u32,
    authority: Authority,
    #[serde(default)]
    live_children: u32,
    remaining: Micros,
}

const fn depth_cap() -> u32 {
    DEFAULT_DEPTH_CAP
}

/// What is asked for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Asked {
    agent_id: AgentId,
    authority: Authority,
    sub_budget: Micros,
}

pub(super) fn handoff(line: Value) -> Verdict {
    let Line { parent, dispatch } = read(line)?;
    let stored = Parent {
        chain: &parent.chain,
        depth_cap: parent.depth_cap,
        authority: &parent.authority,
        live_children: parent.live_children,
        remaining: parent.remaining,
    };
    let asked =
        Dispatch { agent_id: &dispatch.agent_id, authority: &dispatch.authority, sub_budget: dispatch.sub_budget };
    Ok(match validate_dispatch(&stored, &asked) {
        Ok(()) => {
            let left = parent.remaining.minus(dispatch.sub_budget);
            verdict([("verdict", "allow".into()), ("remaining", json!(left))])
        }
        Err(reason) => {
            verdict([("verdict", "deny".into()), ("reason", json!(reason)), ("detail", reason.to_string().into())])
        }
    })
}
