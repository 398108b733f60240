//! Switches as documents: armed, never disarmed.

use serde_json::{Map, Value, json};
use signalbox_proto::v1;

use super::Planned;
use crate::client::{Governance, timed};
use crate::failure::Failure;
use crate::manifest::{Document, Kind};

/// The members of a rule on a switch.
const FIELDS: [&str; 6] =
    ["switchId", "scope", "targetId", "userVisibleStatusCopy", "safeDegradationModeId", "expiresAtUnixMs"];

/// What applying it comes to. A switch that is armed and says the same is left alone, whoever has armed it.
pub(super) async fn plan(client: &mut Governance, document: Document) -> Result<Planned, Failure> {
    let armed = client.list_switches(timed(v1::ListSwitchesRequest { all: false })).await?.into_inner().switches;
    let standing = armed.iter().find(|armed| armed.switch_id == document.id());
    let request = request(&document)?;
    let expiry = match request.expiry {
        Some(v1::arm_switch_request::Expiry::ExpiresAtUnixMs(at)) => Some(at),
        Some(v1::arm_switch_request::Expiry::ExpiresAfterSeconds(_)) | None => None,
    };
    if standing.is_none() && expiry.is_some_and(|at| at <= super::now_unix_ms()) {
        let after = Value::Object(document.spec.clone());
        return Ok(Planned { document, before: None, after, revision: 0, moot: Some("it has expired") });
    }
    if let Some(standing) = standing {
        let before = rule(standing);
        let asked = v1::KillSwitch {
            switch_id: request.switch_id,
            scope: request.scope,
            target_id: request.target_id,
            user_visible_status_copy: request.user_visible_status_copy,
            safe_degradation_mode_id: request.safe_degradation_mode_id,
            expires_at_unix_ms: expiry.unwrap_or_default(),
            ..v1::KillSwitch::default()
        };
        let after = rule(&asked);
        if before != after {
            let message = "it is armed and says something else; a file never loosens a switch that stands";
            return Err(Failure::new("switch-id-conflict", message).next("choose another id, or disarm it first"));
        }
        return Ok(Planned { document, before: Some(before), after, revision: 0, moot: None });
    }
    let request = v1::ArmSwitchRequest { dry_run: true, ..request };
    let answer = client.arm_switch(timed(request)).await?.into_inner();
    let after = rule(&answer.switch.unwrap_or_default());
    Ok(Planned { document, before: None, after, revision: 0, moot: None })
}

/// Arms it.
pub(super) async fn carry_out(client: &mut Governance, planned: &Planned) -> Result<(), Failure> {
    client.arm_switch(timed(request(&planned.document)?)).await?;
    Ok(())
}

/// The switches that are armed.
pub(super) async fn in_force(client: &mut Governance) -> Result<Vec<Document>, Failure> {
    let armed = client.list_switches(timed(v1::ListSwitchesRequest { all: false })).await?.into_inner().switches;
    armed
        .iter()
        .map(|armed| {
            let document = super::of_server(Kind::Switch, &armed.tenant_id, super::object(rule(armed))?)?;
            Ok(Document { reason: Some(armed.reason.clone()), ..document })
        })
        .collect()
}

fn request(document: &Document) -> Result<v1::ArmSwitchRequest, Failure> {
    let unknown = document.spec.keys().find(|name| !FIELDS.contains(&name.as_str()));
    if let Some(name) = unknown {
        return Err(Failure::usage("manifest-invalid", format!("spec.{name} is no member of a switch")));
    }
    let is_right =
        |name: &str, value: &Value| if name == "expiresAtUnixMs" { value.is_i64() } else { value.is_string() };
    if let Some((name, value)) = document.spec.iter().find(|(name, value)| !is_right(name, value)) {
        return Err(Failure::usage("manifest-invalid", format!("spec.{name} cannot be {value}")));
    }
    let scope = v1::SwitchScope::from_str_name(&format!("SWITCH_SCOPE_{}", document.text("scope").to_uppercase()));
    let Some(scope) = scope else {
        let message = format!("spec.scope: there is no scope `{}`", document.text("scope"));
        return Err(Failure::usage("manifest-invalid", message));
    };
    let expiry = document.spec.get("expiresAtUnixMs").and_then(Value::as_i64);
    Ok(v1::ArmSwitchRequest {
        switch_id: document.id().into_owned(),
        tenant_id: document.tenant.clone().unwrap_or_default(),
        platform_wide: document.platform_wide,
        scope: scope.into(),
        target_id: document.text("targetId").to_owned(),
        reason: document.reason(),
        user_visible_status_copy: match document.text("userVisibleStatusCopy") {
            "" => crate::commands::switches::STATUS_COPY_DEFAULT.to_owned(),
            copy => copy.to_owned(),
        },
        safe_degradation_mode_id: document.text("safeDegradationModeId").to_owned(),
        expiry: expiry.map(v1::arm_switch_request::Expiry::ExpiresAtUnixMs),
        ..v1::ArmSwitchRequest::default()
    })
}

/// What a switch says, without who armed it and when.
fn rule(switch: &v1::KillSwitch) -> Value {
    let scope = switch.scope().as_str_name().trim_start_matches("SWITCH_SCOPE_").to_lowercase();
    let mut rule = Map::new();
    rule.insert("switchId".to_owned(), json!(switch.switch_id));
    rule.insert("scope".to_owned(), json!(scope));
    for (name, text) in [
        ("targetId", &switch.target_id),
        ("userVisibleStatusCopy", &switch.user_visible_status_copy),
        ("safeDegradationModeId", &switch.safe_degradation_mode_id),
    ] {
        if !text.is_empty() {
            rule.insert(name.to_owned(), json!(text));
        }
    }
    if switch.expires_at_unix_ms != 0 {
        rule.insert("expiresAtUnixMs".to_owned(), json!(switch.expires_at_unix_ms));
    }
    Value::Object(rule)
}
