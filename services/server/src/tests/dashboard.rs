//! Counts and snapshot over the wire.

use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::ids::{ActorId, SwitchId};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;
use signalbox_proto::v1;
use signalbox_proto::v1::dashboard_service_client::DashboardServiceClient;
use tonic::Code;

use super::{as_role, field, reason, run_id, tenant, with_a_run};
use crate::api::ApiError;
use crate::fake::envelope;

fn armed() -> KillSwitch {
    KillSwitch {
        switch_id: SwitchId::new("stop").unwrap(),
        tenant_id: None,
        scope: SwitchScope::Tool,
        target_id: Some("web.fetch".into()),
        armed_by: ActorId::new("ops").unwrap(),
        armed_at_unix_ms: UnixMs(3),
        reason: "a drill".into(),
        user_visible_status_copy: "Stopped.".into(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: Some(UnixMs(5)),
        disarmed_at_unix_ms: None,
    }
}

#[tokio::test]
async fn a_snapshot_has_a_count_for_each_bucket_and_the_switches_in_force() {
    let fixture = with_a_run().await;
    fixture.node.hold(envelope(run_id(2), &tenant("acme"), RunStatus::Failed));
    fixture.node.arm(armed());
    let mut client = DashboardServiceClient::new(fixture.channel.clone());
    let shown = client.get_snapshot(v1::GetSnapshotRequest::default()).await.unwrap().into_inner();
    let counts: Vec<_> = shown.counts.iter().map(|count| (count.bucket.as_str(), count.runs)).collect();
    assert_eq!(
        counts,
        [("queued", 0), ("in-flight", 1), ("waiting-on-human", 0), ("suspended", 0), ("done", 0), ("attention", 1)]
    );
    assert_eq!((shown.tenant_id.as_str(), shown.taken_at_unix_ms, shown.governance_epoch), ("acme", 9, 4));
    let [switch] = shown.active_switches.as_slice() else { panic!("one switch") };
    assert_eq!(
        (switch.switch_id.as_str(), switch.scope.as_str(), switch.target_id.as_str()),
        ("stop", "tool", "web.fetch")
    );
    assert_eq!((switch.armed_by.as_str(), switch.expires_at_unix_ms), ("ops", Some(5)));
    let counted = client.count_runs(v1::CountRunsRequest::default()).await.unwrap().into_inner();
    assert_eq!(counted.counts, shown.counts);
    let all = v1::GetSnapshotRequest { all_tenants: true, ..Default::default() };
    assert_eq!(client.get_snapshot(all).await.unwrap().into_inner().tenant_id, "");
}

#[tokio::test]
async fn what_is_wrong_with_the_question_or_the_store_is_said_by_its_code() {
    let fixture = with_a_run().await;
    let mut client = DashboardServiceClient::new(fixture.channel.clone());
    let both = v1::CountRunsRequest { tenant_id: "acme".into(), all_tenants: true, ..Default::default() };
    let refused = client.count_runs(both).await.unwrap_err();
    assert_eq!((reason(&refused).as_str(), field(&refused).as_str()), ("tenant-ambiguous", "tenant_id"));
    let bad = v1::GetSnapshotRequest { tenant_id: "no such\0tenant".into(), ..Default::default() };
    assert_eq!(reason(&client.get_snapshot(bad).await.unwrap_err()), "id-invalid");
    let nobody = as_role("nobody", v1::GetSnapshotRequest::default());
    assert_eq!(client.get_snapshot(nobody).await.unwrap_err().code(), Code::Unauthenticated);
    fixture.node.refuse_with(ApiError::AboveStanding("what operators see"));
    let refused = client.count_runs(v1::CountRunsRequest::default()).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "not-authorized"));
    fixture.node.refuse_with(ApiError::Store(StoreError::Unavailable("away".into())));
    let refused = client.get_snapshot(v1::GetSnapshotRequest::default()).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "store-unavailable"));
}
