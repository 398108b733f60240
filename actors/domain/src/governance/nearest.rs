//! Which grant would almost have allowed a call, and what keeps it from doing so: what somebody needs to know who wonders
//! why their grant does not hold (`explain`).
//!
//! Only grants of the call's own tenant and tool are looked at: what another tenant was granted is nobody's business, and
//! a grant for another tool is not near.

use jiff::Timestamp;

use crate::governance::grant::{Grant, GrantQuery, GrantScope};
use crate::time::UnixMs;

/// A grant that does not hold, and everything that keeps it from holding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Near<'a> {
    /// The grant.
    pub grant: &'a Grant,
    /// What would have to be different, in words that follow the grant's name.
    pub differs: Vec<String>,
}

/// The grant that differs in the fewest ways; among equals the one issued last, then the smallest id.
pub fn nearest_grant<'a>(
    grants: impl Iterator<Item = &'a Grant>,
    query: &GrantQuery<'_>,
    now: UnixMs,
) -> Option<Near<'a>> {
    grants
        .filter(|grant| &grant.tenant_id == query.tenant_id && &grant.tool_id == query.tool_id)
        .map(|grant| Near { grant, differs: differs(grant, query, now) })
        .filter(|near| !near.differs.is_empty())
        .min_by(|a, b| {
            let issued = |near: &Near<'_>| near.grant.issued_at_unix_ms;
            let by_count = a.differs.len().cmp(&b.differs.len());
            by_count.then_with(|| issued(b).cmp(&issued(a))).then_with(|| a.grant.grant_id.cmp(&b.grant.grant_id))
        })
}

impl Near<'_> {
    /// As part of a sentence.
    pub fn in_words(&self) -> String {
        format!("the nearest, `{}`, {}", self.grant.grant_id, self.differs.join(" and "))
    }
}

fn differs(grant: &Grant, query: &GrantQuery<'_>, now: UnixMs) -> Vec<String> {
    let mut differs = Vec::new();
    if !grant.scope_key_matches(query) {
        let of = match grant.scope {
            GrantScope::PerRun => "run",
            GrantScope::PerPipelineInstance => "pipeline instance",
            GrantScope::PerSession => "session",
            GrantScope::PerUser => "user",
            GrantScope::PerTenant => "tenant",
        };
        differs.push(format!("is for {of} `{}`", grant.scope_key));
    }
    if !grant.range_holds(query.tool_semver) {
        differs.push(format!("is for versions `{}`", grant.tool_range));
    }
    if let Some(revoked) = grant.revoked_at_unix_ms {
        differs.push(format!("was revoked at {}", instant(revoked)));
    } else if let Some(end) = grant.expires_at_unix_ms.filter(|_| grant.is_expired(now)) {
        differs.push(format!("ended at {}", instant(end)));
    }
    differs
}

/// An instant as people read it.
pub(super) fn instant(at: UnixMs) -> String {
    Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ids::{ActorId, RunId, TenantId, ToolId};

    fn grant(id: &str, change: serde_json::Value) -> Grant {
        let mut grant = json!({
            "grantId": id, "scope": "per-tenant", "scopeKey": "acme", "tenantId": "acme", "toolId": "web.fetch",
            "toolRange": "^1", "issuedBy": "olga", "issuedAtUnixMs": 1, "rationale": "r", "auditEventId": "e",
        });
        for (key, value) in change.as_object().unwrap() {
            grant[key] = value.clone();
        }
        serde_json::from_value(grant).unwrap()
    }

    fn near(grants: &[Grant]) -> Option<String> {
        let (tenant_id, tool_id) = (TenantId::new("acme").unwrap(), ToolId::new("web.fetch").unwrap());
        let (run_id, user_id) = (RunId::new(uuid::Uuid::nil()), ActorId::new("ann").unwrap());
        let query = GrantQuery {
            tenant_id: &tenant_id,
            tool_id: &tool_id,
            tool_semver: "1.2.0",
            run_id,
            user_id: &user_id,
            session_id: None,
            pipeline_instance: None,
        };
        nearest_grant(grants.iter(), &query, UnixMs(100_000)).map(|near| near.in_words())
    }

    #[test]
    fn the_grant_with_the_fewest_differences_is_named_with_all_of_them() {
        let far = grant("far", json!({"scope": "per-user", "scopeKey": "bob", "toolRange": "^2"}));
        assert_eq!(
            near(std::slice::from_ref(&far)).unwrap(),
            "the nearest, `far`, is for user `bob` and is for versions `^2`"
        );
        let over = grant("over", json!({"expiresAtUnixMs": 5_000}));
        assert_eq!(near(&[far.clone(), over]).unwrap(), "the nearest, `over`, ended at 1970-01-01T00:00:05Z");
        let revoked = grant("revoked", json!({"revokedAtUnixMs": 6_000}));
        assert_eq!(near(&[far, revoked]).unwrap(), "the nearest, `revoked`, was revoked at 1970-01-01T00:00:06Z");
    }

    #[test]
    fn what_another_tenant_was_granted_is_never_named() {
        let foreign = grant("foreign", json!({"tenantId": "other", "scopeKey": "other"}));
        let other_tool = grant("other-tool", json!({"toolId": "web.search"}));
        assert_eq!(near(&[foreign, other_tool]), None);
    }
}
