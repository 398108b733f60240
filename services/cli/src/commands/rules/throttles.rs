//! Throttles as documents.

use serde_json::Value;
use signalbox_domain::governance::throttle::BucketRule;
use signalbox_proto::v1;

use super::Planned;
use crate::client::{Governance, timed};
use crate::failure::Failure;
use crate::manifest::{Document, Kind};

/// What applying it comes to: the rule is held to its own sense here, and to everything else when it is set.
pub(super) async fn plan(client: &mut Governance, document: Document) -> Result<Planned, Failure> {
    let invalid = |message: String| Failure::usage("throttle-invalid", message);
    let wanted: BucketRule = serde_json::from_value(Value::Object(document.spec.clone()))
        .map_err(|error| invalid(format!("spec: {error}")))?;
    wanted.validate().map_err(|error| Failure::usage(error.code(), error.to_string()))?;
    let after = super::without_tenant(serde_json::to_value(&wanted).map_err(|error| invalid(error.to_string()))?);
    let standing = list(client).await?.into_iter().find(|known| known.bucket_id == document.id());
    let revision = standing.as_ref().map_or(0, |known| known.revision);
    let before = standing.as_ref().map(rule).transpose()?;
    Ok(Planned { document, before, after, revision, moot: None })
}

/// Sets it, unless somebody has changed it since it was planned.
pub(super) async fn carry_out(client: &mut Governance, planned: &Planned) -> Result<(), Failure> {
    let document = &planned.document;
    let request = v1::SetThrottleRequest {
        rule_json: super::bytes(&document.spec)?.into(),
        tenant_id: document.tenant.clone().unwrap_or_default(),
        platform_wide: document.platform_wide,
        reason: document.reason(),
        expected_revision: planned.revision,
        expects_none: planned.before.is_none(),
    };
    client.set_throttle(timed(request)).await?;
    Ok(())
}

/// The throttles that are set.
pub(super) async fn in_force(client: &mut Governance) -> Result<Vec<Document>, Failure> {
    let throttles = list(client).await?;
    throttles
        .iter()
        .map(|throttle| super::of_server(Kind::Throttle, &throttle.tenant_id, super::object(rule(throttle)?)?))
        .collect()
}

async fn list(client: &mut Governance) -> Result<Vec<v1::Throttle>, Failure> {
    Ok(client.list_throttles(timed(v1::ListThrottlesRequest {})).await?.into_inner().throttles)
}

fn rule(throttle: &v1::Throttle) -> Result<Value, Failure> {
    super::answered(&throttle.rule_json).map(super::without_tenant)
}
