//! Lists: each field of the filter over the wire, and what is refused of it.

use signalbox_domain::dashboard::{CostBand, DashboardFilter, LatencyBand, RunBucket};
use signalbox_domain::ids::{AgentId, PipelineId, TenantId};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_proto::v1;
use tonic::Code;

use super::{as_role, field, fixture, reason, run_id, tenant, with_a_run};
use crate::api::Whose;
use crate::fake::envelope;

#[tokio::test]
async fn each_field_of_a_filter_reaches_the_node_as_it_was_meant() {
    let mut fixture = fixture().await;
    let request = v1::ListRunsRequest {
        status: vec!["failed".into(), "killed".into(), "failed".into()],
        pipeline_id: "a.b".into(),
        page_size: 7,
        page_token: String::new(),
        agent_id: "ref.research".into(),
        family: "research".into(),
        bucket: vec!["attention".into()],
        cost_band: vec!["free".into(), "extreme".into()],
        latency_band: vec!["stalled".into()],
        started_after_unix_ms: Some(i64::MIN),
        started_before_unix_ms: Some(i64::MAX),
        has_warnings: Some(false),
        text: "50 % of_it".into(),
        tenant_id: "globex".into(),
        all_tenants: false,
    };
    fixture.client.list_runs(request).await.unwrap();
    fixture.client.list_runs(v1::ListRunsRequest { all_tenants: true, ..Default::default() }).await.unwrap();
    fixture.client.list_runs(v1::ListRunsRequest::default()).await.unwrap();
    let filters = fixture.node.filters();
    let expected = DashboardFilter {
        tenant_id: None,
        agent_id: AgentId::new("ref.research").ok(),
        family: Some("research".into()),
        family_agents: None,
        pipeline_id: PipelineId::new("a.b").ok(),
        status: vec![RunStatus::Failed, RunStatus::Killed],
        bucket: vec![RunBucket::Attention],
        cost_band: vec![CostBand::Free, CostBand::Extreme],
        latency_band: vec![LatencyBand::Stalled],
        started_after: Some(UnixMs(i64::MIN)),
        started_before: Some(UnixMs(i64::MAX)),
        has_warnings: Some(false),
        text: Some("50 % of_it".into()),
        cursor: None,
        limit: 7,
    };
    assert_eq!(filters[0], (Whose::Of(TenantId::new("globex").unwrap()), expected));
    let plain = DashboardFilter { limit: 50, ..DashboardFilter::default() };
    assert_eq!(filters[1..], [(Whose::All, plain.clone()), (Whose::Own, plain)]);
}

#[tokio::test]
async fn whatever_is_wrong_with_a_filter_is_refused_with_its_field_and_its_code() {
    let mut fixture = with_a_run().await;
    let all = v1::ListRunsRequest::default;
    let huge = "x".repeat(1 << 20);
    let cases = [
        (v1::ListRunsRequest { status: vec!["done".into()], ..all() }, "status", "status-unknown"),
        (v1::ListRunsRequest { status: vec![String::new()], ..all() }, "status", "status-unknown"),
        (v1::ListRunsRequest { bucket: vec!["Done".into()], ..all() }, "bucket", "bucket-unknown"),
        (v1::ListRunsRequest { cost_band: vec![huge.clone()], ..all() }, "cost_band", "cost-band-unknown"),
        (v1::ListRunsRequest { latency_band: vec!["slow\0".into()], ..all() }, "latency_band", "latency-band-unknown"),
        (v1::ListRunsRequest { agent_id: "a b".into(), ..all() }, "agent_id", "id-invalid"),
        (v1::ListRunsRequest { agent_id: huge.clone(), ..all() }, "agent_id", "id-invalid"),
        (v1::ListRunsRequest { family: "Research".into(), ..all() }, "family", "family-unknown"),
        (v1::ListRunsRequest { family: huge.clone(), ..all() }, "family", "family-unknown"),
        (v1::ListRunsRequest { pipeline_id: "%".into(), ..all() }, "pipeline_id", "id-invalid"),
        (v1::ListRunsRequest { text: "a\0b".into(), ..all() }, "text", "text-invalid"),
        (v1::ListRunsRequest { text: huge.clone(), ..all() }, "text", "text-too-long"),
        (v1::ListRunsRequest { tenant_id: "a/b".into(), ..all() }, "tenant_id", "id-invalid"),
        (v1::ListRunsRequest { tenant_id: "acme".into(), all_tenants: true, ..all() }, "tenant_id", "tenant-ambiguous"),
        (v1::ListRunsRequest { page_size: u32::MAX, ..all() }, "page_size", "page-size-invalid"),
        (v1::ListRunsRequest { page_token: huge, ..all() }, "page_token", "page-token-invalid"),
        (v1::ListRunsRequest { page_token: "f".repeat(64), ..all() }, "page_token", "page-token-invalid"),
    ];
    for (request, named, code) in cases {
        let refused = fixture.client.list_runs(request).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, code), "{named}");
        assert_eq!(field(&refused), named, "{code}");
        assert!(refused.message().len() < 300, "{code}: an error does not repeat a megabyte");
    }
    assert!(fixture.node.filters().is_empty(), "the node never heard of any of them");
}

#[tokio::test]
async fn a_page_token_is_good_for_its_own_list_alone() {
    let mut fixture = fixture().await;
    for n in 1..=3 {
        fixture.node.hold(envelope(run_id(n), &tenant("acme"), RunStatus::Running));
    }
    let first = v1::ListRunsRequest { page_size: 1, text: String::new(), ..Default::default() };
    let token = fixture.client.list_runs(first).await.unwrap().into_inner().next_page_token;
    assert!(!token.is_empty());
    let with = |page_token: &str| v1::ListRunsRequest { page_token: page_token.to_owned(), ..Default::default() };
    let strangers = [
        v1::ListRunsRequest { status: vec!["running".into()], ..with(&token) },
        v1::ListRunsRequest { has_warnings: Some(true), ..with(&token) },
        v1::ListRunsRequest { started_before_unix_ms: Some(9), ..with(&token) },
        v1::ListRunsRequest { all_tenants: true, ..with(&token) },
        with(&token[1..]),
        with(&format!("{token}0")),
    ];
    for request in strangers {
        let refused = fixture.client.list_runs(request.clone()).await.unwrap_err();
        assert_eq!(reason(&refused), "page-token-invalid", "{request:?}");
    }
    let foreign = super::as_tenant("other", with(&token));
    assert_eq!(reason(&fixture.client.list_runs(foreign).await.unwrap_err()), "page-token-invalid");
    let page = fixture.client.list_runs(with(&token)).await.unwrap().into_inner();
    assert_eq!(page.runs.len(), 2);
}

#[tokio::test]
async fn a_row_shows_customers_neither_agent_nor_cost_and_warnings_to_operators_alone() {
    let mut fixture = with_a_run().await;
    for (role, agent, cost, warned) in [
        ("customer", "", 0, false),
        ("creator", "ref.research", 1_500_000, false),
        ("tenant-operator", "ref.research", 1_500_000, true),
    ] {
        let list = as_role(role, v1::ListRunsRequest::default());
        let run = fixture.client.list_runs(list).await.unwrap().into_inner().runs.remove(0);
        assert_eq!(
            (run.root_agent_id.as_str(), run.total_cost_micros, run.has_warnings),
            (agent, cost, warned),
            "{role}"
        );
        assert_eq!(run.family.is_empty() && run.cost_band.is_empty(), role == "customer");
        assert_eq!((run.bucket.as_str(), run.tenant_id.as_str()), ("in-flight", "acme"));
        assert_eq!((run.latency_band.as_str(), run.ended_at_unix_micros), ("instant", None));
        let get = as_role(role, v1::GetRunRequest { run_id: run_id(1).to_string() });
        let run = fixture.client.get_run(get).await.unwrap().into_inner().run.unwrap();
        assert_eq!((run.root_agent_id.as_str(), run.bucket.as_str()), (agent, "in-flight"), "{role}");
    }
}
