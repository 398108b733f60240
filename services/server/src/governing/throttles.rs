//! Token buckets on the wire: rules are read strictly, and answers say whose they are.

use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::throttle::BucketRule;
use signalbox_domain::json::{self, Limits};
use signalbox_proto::v1;
use signalbox_runtime::{Forecast, SetThrottle, ThrottleStanding};
use tonic::Request;

use super::{Governing, read};
use crate::api::ApiError;
use crate::errors::Refusal;
use crate::identity::caller_of;
use crate::validate::{self, bad};

/// Most bytes of a rule: it has a dozen short fields.
const RULE_BYTES_MAX: usize = 16 << 10;

impl Governing {
    pub(super) async fn set_throttle_to(
        &self,
        request: Request<v1::SetThrottleRequest>,
    ) -> Result<v1::SetThrottleResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let dry_run = request.dry_run;
        let wish = wish(request)?;
        if dry_run {
            let Forecast { before, after, unchanged } = self.api.would_set_throttle(&caller, wish).await?;
            let (after, before) = (Some(throttle(after)?), before.map(throttle).transpose()?);
            return Ok(v1::SetThrottleResponse { throttle: after, unchanged, before });
        }
        let (standing, unchanged) = self.api.set_throttle(&caller, wish).await?;
        Ok(v1::SetThrottleResponse { throttle: Some(throttle(standing)?), unchanged, before: None })
    }

    pub(super) async fn removed_throttle(
        &self,
        request: Request<v1::RemoveThrottleRequest>,
    ) -> Result<v1::RemoveThrottleResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("bucket_id", &request.bucket_id)?;
        let reason = read::text("reason", request.reason)?;
        let expected = read::expected(request.expected_revision);
        let standing = if request.dry_run {
            self.api.would_remove_throttle(&caller, &id, &reason, expected).await?
        } else {
            self.api.remove_throttle(&caller, &id, &reason, expected).await?
        };
        Ok(v1::RemoveThrottleResponse { throttle: Some(throttle(standing)?) })
    }

    pub(super) async fn throttle(
        &self,
        request: Request<v1::GetThrottleRequest>,
    ) -> Result<v1::GetThrottleResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("bucket_id", &request.get_ref().bucket_id)?;
        Ok(v1::GetThrottleResponse { throttle: Some(throttle(self.api.throttle(&caller, &id).await?)?) })
    }

    pub(super) async fn throttles(
        &self,
        request: Request<v1::ListThrottlesRequest>,
    ) -> Result<v1::ListThrottlesResponse, Refusal> {
        let caller = caller_of(&request)?;
        let throttles = self.api.throttles(&caller).await?.into_iter().map(throttle);
        Ok(v1::ListThrottlesResponse { throttles: throttles.collect::<Result<_, _>>()? })
    }
}

pub(crate) fn wish(request: v1::SetThrottleRequest) -> Result<SetThrottle, Refusal> {
    let limits = Limits { bytes_max: RULE_BYTES_MAX, ..Limits::DEFAULT };
    let value = json::parse_strict(&request.rule_json, limits)
        .map_err(|error| bad(error.code(), "rule_json", error.to_string()))?;
    let rule: BucketRule =
        serde_json::from_value(value).map_err(|error| bad("throttle-invalid", "rule_json", error.to_string()))?;
    let expected = match (request.expects_none, request.expected_revision) {
        (true, 0) => Expected::None,
        (true, _) => {
            let message = "`expects_none` and `expected_revision` cannot both be said";
            return Err(bad("revision-invalid", "expects_none", message));
        }
        (false, revision) => read::expected(revision),
    };
    Ok(SetThrottle {
        rule,
        reach: read::reach(&request.tenant_id, request.platform_wide)?,
        reason: read::text("reason", request.reason)?,
        expected,
    })
}

fn throttle(standing: ThrottleStanding) -> Result<v1::Throttle, Refusal> {
    let ThrottleStanding { rule, revision } = standing;
    let json = serde_json::to_vec(&rule).map_err(|error| ApiError::Internal(error.to_string()))?;
    Ok(v1::Throttle {
        bucket_id: rule.bucket_id.to_string(),
        tenant_id: rule.tenant_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        rule_json: json.into(),
        revision,
        platform_wide: rule.tenant_id.is_none(),
    })
}
