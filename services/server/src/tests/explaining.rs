//! Verifying and explaining a run at the server.

use serde_json::Value;
use signalbox_domain::identity::{Actor, Visibility};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::submission::{self, Submitter, accept};
use signalbox_domain::time::UnixMicros;
use signalbox_proto::v1;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::{Fixture, as_role, as_tenant, reason, run_id, tenant, with_a_run};
use crate::fake::{envelope, event};

fn verify() -> v1::VerifyRunRequest {
    v1::VerifyRunRequest { run_id: run_id(1).to_string() }
}

fn explain() -> v1::ExplainRunRequest {
    v1::ExplainRunRequest { run_id: run_id(1).to_string(), call_id: String::new() }
}

/// A fixture whose run has a journal that is sound.
async fn with_a_journal() -> Fixture {
    let fixture = with_a_run().await;
    let run = envelope(run_id(1), &tenant("acme"), signalbox_domain::run::status::RunStatus::Running);
    let json = br#"{"rootAgentId":"ref.research","plan":[{"stepId":"s","kind":"wait","seconds":1}]}"#;
    let submitter = Submitter {
        run_key: run.run_key,
        run_id: run.run_id,
        tenant_id: run.tenant_id.clone(),
        actor: Actor::system(),
        scopes: Vec::new(),
        surface: "api".to_owned(),
    };
    let submitted = accept(submission::parse(json).unwrap(), submitter, Vec::new()).unwrap();
    let events = [RunEvent::RunSubmitted(Box::new(submitted)), RunEvent::RunStarted {}];
    let (mut journal, mut prev_hash) = (Vec::new(), EventHash::ZERO);
    for (seq, event) in (1..).zip(events) {
        let (kind, body) = event.encode();
        let mut stored = StoredEvent {
            run_key: run.run_key,
            seq,
            at: UnixMicros(1_000),
            actor: Actor::system(),
            visibility: event.visibility(),
            kind,
            version: 1,
            body,
            prev_hash,
            hash: EventHash::ZERO,
        };
        stored.hash = stored.expected_hash(&run.tenant_id);
        prev_hash = stored.hash;
        journal.push(stored);
    }
    fixture.node.record(journal);
    fixture
}

#[tokio::test]
async fn a_sound_journal_is_verified_and_a_broken_one_is_refused_with_its_first_problem() {
    let mut fixture = with_a_journal().await;
    let found = fixture.client.verify_run(verify()).await.unwrap().into_inner();
    assert_eq!((found.ok, found.events, found.finding_count), (true, 2, 0), "{found:?}");
    assert_eq!(found.head_hash.len(), 64);
    fixture.node.record((1..=3).map(|seq| event(seq, Visibility::Customer)).collect());
    let found = fixture.client.verify_run(verify()).await.unwrap().into_inner();
    let first = found.first_finding.unwrap();
    assert!(!found.ok && found.finding_count > 1);
    assert_eq!((first.seq, first.code.as_str()), (1, "hash-mismatch"));
}

#[tokio::test]
async fn an_explanation_has_its_facts_for_machines_and_its_words_for_people() {
    let mut fixture = with_a_journal().await;
    let found = fixture.client.explain_run(explain()).await.unwrap().into_inner();
    let facts: Value = serde_json::from_slice(&found.explanation_json).unwrap();
    assert_eq!(
        (facts["runId"].as_str(), facts["status"].as_str()),
        (Some(run_id(1).to_string().as_str()), Some("starting"))
    );
    for field in ["audits", "controls", "calls", "unknownCallIds"] {
        assert!(facts[field].is_array(), "{field}");
    }
    assert!(found.text.contains("status     starting"), "{}", found.text);
    let call = v1::ExplainRunRequest { call_id: run_id(5).to_string(), ..explain() };
    let refused = fixture.client.explain_run(call).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "no-such-call"));
    assert_eq!(refused.get_details_resource_info().unwrap().resource_type, "signalbox.v1.Call");
    let nonsense = v1::ExplainRunRequest { call_id: "call".to_owned(), ..explain() };
    let refused = fixture.client.explain_run(nonsense).await.unwrap_err();
    assert_eq!((reason(&refused).as_str(), super::field(&refused).as_str()), ("id-invalid", "call_id"));
}

#[tokio::test]
async fn a_journal_that_does_not_fold_is_corrupt_and_not_explained() {
    let mut fixture = with_a_run().await;
    fixture.node.record(vec![event(1, Visibility::Customer)]);
    let refused = fixture.client.explain_run(explain()).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::DataLoss, "journal-corrupt"));
}

#[tokio::test]
async fn what_is_read_off_the_whole_journal_is_for_those_who_may_see_all_of_it() {
    let mut fixture = with_a_journal().await;
    for role in ["customer", "creator"] {
        fixture.node.record(vec![event(1, Visibility::TenantOperator)]);
        let refused = fixture.client.explain_run(as_role(role, explain())).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "not-authorized"), "{role}");
        let refused = fixture.client.verify_run(as_role(role, verify())).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "not-authorized"), "{role}");
    }
    let foreign = fixture.client.explain_run(as_tenant("other", explain())).await.unwrap_err();
    assert_eq!((foreign.code(), reason(&foreign).as_str()), (Code::NotFound, "no-such-run"));
    let foreign = fixture.client.verify_run(as_tenant("other", verify())).await.unwrap_err();
    assert_eq!((foreign.code(), reason(&foreign).as_str()), (Code::NotFound, "no-such-run"));
}
