//! Gaps on the wire: each one a violation of its own, and all of them in a preflight.

use signalbox_domain::invocation::{Gap, GapCode};
use signalbox_proto::v1;
use tonic::Code;
use tonic_types::StatusExt;

use super::{reason, with_a_run};
use crate::api::ApiError;

fn gaps(count: usize) -> Vec<Gap> {
    let code = |n: usize| GapCode::ALL[n % GapCode::ALL.len()];
    (0..count)
        .map(|n| Gap {
            code: code(n),
            subject: format!("subject-{n}"),
            message: format!("{n}: {}", "words ".repeat(200)),
        })
        .collect()
}

fn submission() -> Vec<u8> {
    br#"{"rootAgentId":"ref.research","plan":[]}"#.to_vec()
}

#[tokio::test]
async fn a_submission_that_lacks_something_is_told_each_gap_by_its_code() {
    let mut fixture = with_a_run().await;
    fixture.node.refuse_with(ApiError::Preflight(gaps(10)));
    let request = v1::SubmitRunRequest { run_id: String::new(), submission_json: submission().into() };
    let refused = fixture.client.submit_run(request).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::FailedPrecondition, "preflight-failed"));
    assert_eq!(refused.get_details_error_info().unwrap().metadata["gaps"], "10");
    let violations = refused.get_details_precondition_failure().unwrap().violations;
    let types: Vec<&str> = violations.iter().map(|violation| violation.r#type.as_str()).collect();
    assert_eq!(types, GapCode::ALL.map(GapCode::code));
    assert_eq!(violations[3].subject, "subject-3");
}

#[tokio::test]
async fn however_many_gaps_there_are_the_status_arrives() {
    let mut fixture = with_a_run().await;
    fixture.node.refuse_with(ApiError::Preflight(gaps(1_000)));
    let request = v1::SubmitRunRequest { run_id: String::new(), submission_json: submission().into() };
    let refused = fixture.client.submit_run(request).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::FailedPrecondition, "preflight-failed"));
    assert_eq!(refused.get_details_error_info().unwrap().metadata["gaps"], "1000");
}

#[tokio::test]
async fn a_preflight_answers_all_gaps_and_is_no_error() {
    let mut fixture = with_a_run().await;
    let request = v1::PreflightRunRequest { submission_json: submission().into() };
    let none = fixture.client.preflight_run(request.clone()).await.unwrap().into_inner();
    assert!(none.ok && none.gaps.is_empty());
    fixture.node.refuse_with(ApiError::Preflight(gaps(1_000)));
    let told = fixture.client.preflight_run(request).await.unwrap().into_inner();
    assert_eq!((told.ok, told.gaps.len(), told.gaps[0].code.as_str()), (false, 1_000, "missing-entitlement"));
    assert!(fixture.node.submissions().is_empty());
}

#[tokio::test]
async fn a_preflight_reads_as_strictly_as_a_submission() {
    let mut fixture = with_a_run().await;
    for (bytes, code) in [
        (&b"nonsense"[..], "json-invalid"),
        (br#"{"plan":[],"plan":[],"rootAgentId":"ref.research"}"#, "json-duplicate-key"),
        (br#"{"plan":[],"rootAgentId":"ref.research","sudo":true}"#, "json-invalid"),
    ] {
        let refused = fixture.client.preflight_run(v1::PreflightRunRequest { submission_json: bytes.into() }).await;
        let refused = refused.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, code));
    }
}
