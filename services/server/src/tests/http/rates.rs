//! One caller that asks too often hears when to come again, on both edges, and nobody else is slowed (THR-006).

use signalbox_proto::v1;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::super::reason;
use super::node::{RUN, Served};
use super::{ask, get};
use crate::rates::RequestRate;

const ONCE: RequestRate = RequestRate { per_second: 1, burst: 2 };

#[tokio::test]
async fn a_caller_that_asks_too_often_is_told_when_to_come_again_on_both_edges() {
    let mut served = Served::with(Some(ONCE)).await;
    for _ in 0..2 {
        assert_eq!(get(served.address, "/v1/runs").await.status, 200);
    }
    let refused = get(served.address, "/v1/runs").await;
    assert_eq!(refused.problem(), (429, "too-many-requests".to_owned()));
    assert_eq!(refused.header("retry-after"), "1");
    // The bucket is the caller's, whichever edge it asks at.
    let over_grpc = served.grpc.get_run(v1::GetRunRequest { run_id: RUN.to_owned() }).await.unwrap_err();
    assert_eq!((over_grpc.code(), reason(&over_grpc).as_str()), (Code::ResourceExhausted, "too-many-requests"));
    assert!(over_grpc.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs() >= 1);
    assert!(over_grpc.get_details_quota_failure().is_some());
    // Somebody else is not slowed, and neither is what needs no credential.
    assert_eq!(ask(served.address, "GET", "/v1/runs", &[("actor", "bob")]).await.status, 200);
    assert_eq!(get(served.address, "/openapi.json").await.status, 200);
}

#[tokio::test]
async fn nobody_is_limited_unless_it_is_configured() {
    let served = Served::start().await;
    for _ in 0..200 {
        assert_eq!(get(served.address, "/v1/runs").await.status, 200);
    }
}
