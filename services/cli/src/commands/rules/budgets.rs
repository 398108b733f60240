//! Budgets as documents.

use serde_json::Value;
use signalbox_proto::v1;

use super::Planned;
use crate::client::{Governance, timed};
use crate::failure::Failure;
use crate::manifest::{Document, Kind};

/// What applying it comes to: the node decides, and writes nothing.
pub(super) async fn plan(client: &mut Governance, document: Document) -> Result<Planned, Failure> {
    let request = v1::PutBudgetRequest { dry_run: true, ..request(&document)? };
    let answer = client.put_budget(timed(request)).await?.into_inner();
    let revision = answer.before.as_ref().map_or(0, |before| before.revision);
    let before = answer.before.as_ref().map(rule).transpose()?;
    let after = rule(&answer.budget.unwrap_or_default())?;
    Ok(Planned { document, before, after, revision, moot: None })
}

/// Puts it, unless somebody has changed it since it was planned.
pub(super) async fn carry_out(client: &mut Governance, planned: &Planned) -> Result<(), Failure> {
    let request = v1::PutBudgetRequest {
        expected_revision: planned.revision,
        expects_none: planned.before.is_none(),
        ..request(&planned.document)?
    };
    client.put_budget(timed(request)).await?;
    Ok(())
}

/// The budgets in force.
pub(super) async fn in_force(client: &mut Governance) -> Result<Vec<Document>, Failure> {
    let budgets = client.list_budgets(timed(v1::ListBudgetsRequest {})).await?.into_inner().budgets;
    budgets
        .iter()
        .map(|budget| super::of_server(Kind::Budget, &budget.tenant_id, super::object(rule(budget)?)?))
        .collect()
}

fn request(document: &Document) -> Result<v1::PutBudgetRequest, Failure> {
    Ok(v1::PutBudgetRequest {
        budget_json: super::bytes(&document.spec)?.into(),
        tenant_id: document.tenant.clone().unwrap_or_default(),
        platform_wide: document.platform_wide,
        reason: document.reason(),
        ..v1::PutBudgetRequest::default()
    })
}

fn rule(budget: &v1::Budget) -> Result<Value, Failure> {
    super::answered(&budget.budget_json).map(super::without_tenant)
}
