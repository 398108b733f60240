//! A request to execute, read strictly.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use signalbox_domain::canonical;
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::ids::{CallId, RunId, StepId, TenantId, ToolId};
use signalbox_domain::json::{Limits, parse_as};
use signalbox_domain::quantity::Usage;
use signalbox_domain::run::binding::SECRET_KEY;
use signalbox_proto::v1;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::limits::TIMEOUT_MS_MAX;
use crate::tool::ToolCall;
use crate::wire::{self, WireError};

/// A request that makes sense.
pub(super) struct Order {
    pub(super) call_id: CallId,
    pub(super) tool_id: ToolId,
    pub(super) tool_semver: String,
    /// A digest of all that must stay the same when the call id is sent again.
    pub(super) fingerprint: String,
    attempt: u32,
    tenant_id: TenantId,
    run_id: RunId,
    step_id: StepId,
    args: Value,
    ceiling: Usage,
    constraints: Constraints,
    deadline: Instant,
}

impl Order {
    /// Reads a request; the error names the field.
    pub(super) fn read(request: v1::ExecuteRequest) -> Result<Self, WireError> {
        let arrived = Instant::now();
        if request.attempt == 0 {
            return Err(WireError("attempt: counted from 1".to_owned()));
        }
        if request.timeout_ms == 0 || request.timeout_ms > TIMEOUT_MS_MAX {
            return Err(WireError(format!("timeout_ms: from 1 to {TIMEOUT_MS_MAX}")));
        }
        let args = wire::payload_in(&request.args_json).map_err(|error| WireError(format!("args_json: {error}")))?;
        // Absent bounds would mean no bounds: whoever means that has to say `{}`.
        let constraints = parse_as(&request.constraints_json, Limits::DEFAULT)
            .map_err(|error| WireError(format!("constraints_json: {error}")))?;
        let subject = json!([request.tenant_id, request.run_id, request.step_id, request.tool_id, &args]);
        // The values of secrets are no part of it: they may change, and the call is still the same.
        let fingerprint = canonical::digest(&subject).map_err(|error| WireError(format!("args_json: {error}")))?;
        let args = with_secrets(args, request.secrets)?;
        Ok(Self {
            call_id: field("call_id", &request.call_id)?,
            tool_id: field("tool_id", &request.tool_id)?,
            tool_semver: request.tool_semver,
            fingerprint,
            attempt: request.attempt,
            tenant_id: field("tenant_id", &request.tenant_id)?,
            run_id: field("run_id", &request.run_id)?,
            step_id: field("step_id", &request.step_id)?,
            args,
            ceiling: wire::usage_in(request.ceiling.as_ref())
                .map_err(|error| WireError(format!("ceiling: {error}")))?,
            constraints,
            deadline: arrived + Duration::from_millis(request.timeout_ms),
        })
    }

    /// The call for the tool.
    pub(super) fn into_call(self, cancelled: CancellationToken) -> ToolCall {
        ToolCall {
            call_id: self.call_id,
            attempt: self.attempt,
            tenant_id: self.tenant_id,
            run_id: self.run_id,
            step_id: self.step_id,
            tool_id: self.tool_id,
            args: self.args,
            ceiling: self.ceiling,
            deadline: self.deadline,
            constraints: self.constraints,
            cancelled,
        }
    }
}

/// Puts the values in at their handles, and nowhere else.
fn with_secrets(mut args: Value, secrets: HashMap<String, String>) -> Result<Value, WireError> {
    for (pointer, secret) in secrets {
        match args.pointer_mut(&pointer) {
            Some(handle) if handle.get(SECRET_KEY).is_some_and(Value::is_string) => *handle = Value::String(secret),
            Some(_) | None => return Err(WireError("secrets: each stands at a handle in args_json".to_owned())),
        }
    }
    Ok(args)
}

fn field<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> Result<T, WireError> {
    text.parse().map_err(|error| WireError(format!("{name}: {error}")))
}
