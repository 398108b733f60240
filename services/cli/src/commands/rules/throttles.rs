//! Throttles as documents.

use serde_json::Value;
use signalbox_proto::v1;

use super::Planned;
use crate::client::{Governance, timed};
use crate::failure::Failure;
use crate::manifest::{Document, Kind};

/// What applying it comes to: the node decides, and writes nothing.
pub(super) async fn plan(client: &mut Governance, document: Document) -> Result<Planned, Failure> {
    let request = v1::SetThrottleRequest { dry_run: true, ..request(&document)? };
    let answer = client.set_throttle(timed(request)).await?.into_inner();
    let revision = answer.before.as_ref().map_or(0, |before| before.revision);
    let before = answer.before.as_ref().map(rule).transpose()?;
    let after = rule(&answer.throttle.unwrap_or_default())?;
    Ok(Planned { document, before, after, revision, moot: None })
}

/// Sets it, unless somebody has changed it since it was planned.
pub(super) async fn carry_out(client: &mut Governance, planned: &Planned) -> Result<(), Failure> {
    let request = v1::SetThrottleRequest {
        expected_revision: planned.revision,
        expects_none: planned.before.is_none(),
        ..request(&planned.document)?
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

fn request(document: &Document) -> Result<v1::SetThrottleRequest, Failure> {
    Ok(v1::SetThrottleRequest {
        rule_json: super::bytes(&document.spec)?.into(),
        tenant_id: document.tenant.clone().unwrap_or_default(),
        platform_wide: document.platform_wide,
        reason: document.reason(),
        ..v1::SetThrottleRequest::default()
    })
}

async fn list(client: &mut Governance) -> Result<Vec<v1::Throttle>, Failure> {
    Ok(client.list_throttles(timed(v1::ListThrottlesRequest {})).await?.into_inner().throttles)
}

fn rule(throttle: &v1::Throttle) -> Result<Value, Failure> {
    super::answered(&throttle.rule_json).map(super::without_tenant)
}
