//! Grants as documents: issued, never changed and never brought back.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_domain::governance::grant::{Constraints, Grant, GrantScope};
use signalbox_proto::v1;

use super::Planned;
use crate::client::{Governance, timed};
use crate::failure::Failure;
use crate::manifest::{Document, Kind};

/// Most grants of one answer.
const PAGE: u32 = 200;

/// A grant in a document; who issued it and when says the audit journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    grant_id: String,
    scope: GrantScope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope_key: Option<String>,
    tool_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_range: Option<String>,
    #[serde(default)]
    constraints: Constraints,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delegable: Option<Constraints>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at_unix_ms: Option<i64>,
}

/// What applying it comes to. A grant that is over stays over: whoever revoked it meant it.
pub(super) async fn plan(client: &mut Governance, document: Document) -> Result<Planned, Failure> {
    let wanted = read(&document)?;
    let planned = |document, before, after, moot| Ok(Planned { document, before, after, revision: 0, moot });
    let Some(standing) = standing(client, &document.id()).await? else {
        if wanted.expires_at_unix_ms.is_some_and(|at| at <= super::now_unix_ms()) {
            let after = value(&wanted)?;
            return planned(document, None, after, Some("it has expired"));
        }
        let request = v1::IssueGrantRequest { dry_run: true, ..request(&document)? };
        let answer = client.issue_grant(timed(request)).await?.into_inner();
        let after = value(&rule(&answer.grant.unwrap_or_default())?)?;
        return planned(document, None, after, None);
    };
    let known = rule(&standing)?;
    // What the document leaves out, the server has filled in.
    let whole = Rule {
        scope_key: wanted.scope_key.clone().or_else(|| known.scope_key.clone()),
        tool_range: wanted.tool_range.clone().or_else(|| known.tool_range.clone()),
        ..wanted
    };
    let (before, after) = (value(&known)?, value(&whole)?);
    if standing.state != "live" {
        let moot = if standing.state == "revoked" { "it was revoked" } else { "it has expired" };
        return planned(document, Some(before), after, Some(moot));
    }
    if before != after {
        let message = "it is live and says something else; a grant is never changed";
        return Err(Failure::new("grant-id-conflict", message).next("choose another id, or renew or revoke it first"));
    }
    planned(document, Some(before), after, None)
}

/// Issues it.
pub(super) async fn carry_out(client: &mut Governance, planned: &Planned) -> Result<(), Failure> {
    client.issue_grant(timed(request(&planned.document)?)).await?;
    Ok(())
}

fn request(document: &Document) -> Result<v1::IssueGrantRequest, Failure> {
    let mut spec = document.spec.clone();
    let expires = spec.remove("expiresAtUnixMs").and_then(|at| at.as_i64());
    Ok(v1::IssueGrantRequest {
        grant_json: super::bytes(&spec)?.into(),
        tenant_id: document.tenant.clone().unwrap_or_default(),
        rationale: document.reason(),
        expiry: expires.map(v1::issue_grant_request::Expiry::ExpiresAtUnixMs),
        dry_run: false,
    })
}

/// The grants that are live and outlive the runs they are for.
pub(super) async fn in_force(client: &mut Governance) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    let mut after_grant_id = String::new();
    loop {
        let request = v1::ListGrantsRequest { after_grant_id, limit: PAGE, ..Default::default() };
        let grants = client.list_grants(timed(request)).await?.into_inner().grants;
        for grant in &grants {
            let rule = rule(grant)?;
            if matches!(rule.scope, GrantScope::PerRun | GrantScope::PerPipelineInstance) {
                continue;
            }
            let document = super::of_server(Kind::Grant, &grant.tenant_id, super::object(value(&rule)?)?)?;
            documents.push(Document { reason: Some(whole(grant)?.rationale), ..document });
        }
        match grants.last() {
            Some(last) if grants.len() == PAGE as usize => after_grant_id = last.grant_id.clone(),
            Some(_) | None => return Ok(documents),
        }
    }
}

async fn standing(client: &mut Governance, id: &str) -> Result<Option<v1::Grant>, Failure> {
    let asked = client.get_grant(timed(v1::GetGrantRequest { grant_id: id.to_owned() })).await;
    match asked.map_err(Failure::from) {
        Ok(answer) => Ok(answer.into_inner().grant),
        Err(failure) if failure.code == "no-such-grant" => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn read(document: &Document) -> Result<Rule, Failure> {
    if document.platform_wide {
        return Err(Failure::usage("grant-invalid", "a grant is some tenant's; there are none for everybody"));
    }
    serde_json::from_value(Value::Object(document.spec.clone()))
        .map_err(|error| Failure::usage("grant-invalid", format!("spec: {error}")))
}

fn whole(grant: &v1::Grant) -> Result<Grant, Failure> {
    serde_json::from_value(super::answered(&grant.grant_json)?).map_err(|error| {
        Failure::new("answer-invalid", format!("the server sent a grant that cannot be read: {error}"))
    })
}

fn rule(grant: &v1::Grant) -> Result<Rule, Failure> {
    let grant = whole(grant)?;
    Ok(Rule {
        grant_id: grant.grant_id.to_string(),
        scope: grant.scope,
        scope_key: Some(grant.scope_key),
        tool_id: grant.tool_id.to_string(),
        tool_range: Some(grant.tool_range),
        constraints: grant.constraints,
        delegable: grant.delegable,
        expires_at_unix_ms: grant.expires_at_unix_ms.map(|at| at.0),
    })
}

fn value(rule: &Rule) -> Result<Value, Failure> {
    serde_json::to_value(rule).map_err(|error| Failure::new("output-failed", error.to_string()))
}
