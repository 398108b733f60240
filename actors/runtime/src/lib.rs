//! The ractor actors: they apply the rules of `signalbox-domain` through the ports.
//!
//! One node's tree: `Node` supervises the governance actors, the leases and `Runs`, which supervises one `Run` per active
//! run. The journal's group commit is no actor: whoever appends first writes for all. Messages are private; callers see a
//! [`NodeHandle`].
//!
//! Invariant: memory changes only after the journal has accepted.

mod api;
mod buckets;
mod caught;
mod commands;
mod dispatch;
mod elsewhere;
mod feeds;
mod flights;
mod governance;
mod hearing;
mod inboxes;
mod journal;
mod leases;
mod load;
mod node;
mod progress;
mod rollback;
mod run;
mod runs;
mod schedules;
mod sweeps;
mod swept;
mod telling;
mod tone;
mod top_ups;
mod turns;
mod values;
mod watching;
mod webhooks;

pub use api::{ApiError, Caller, ErrorKind, Preflight, Question, Submitted, WatchItem, Whose};
pub use governance::Revocations;
pub use node::{
    AgentStanding, ArmedSwitch, AuditedKeys, BudgetForecast, BudgetHistory, BudgetStanding, DisarmedSwitch, Fired,
    Forecast, GrantFilter, GrantStanding, Node, NodeConfig, NodeHandle, NodeStanding, Pinged, PipelineStanding, Ports,
    PutBudget, RevokedGrant, RolloutStanding, RolloutStep, ScheduleStanding, SetThrottle, StartError, SweptNode,
    SwitchEffect, SwitchStanding, ThrottleStanding, WebhookStanding,
};
pub use rollback::{RollbackAccepted, accept_rollback};
