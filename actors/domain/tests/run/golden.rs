//! One body of each kind of event as it was once written: a stored event is a promise, and these must decode for ever.
//!
//! A file is added when a kind or a field is added. None is ever changed; if a test here fails, the code is wrong.

use std::collections::BTreeSet;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::identity::{Actor, Role, Visibility};
use signalbox_domain::ids::{ActorId, RunKey, TenantId};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::event::{EVENT_VERSION, RunEvent};
use signalbox_domain::time::UnixMicros;
use uuid::Uuid;

/// Kinds are counted here, so that a new one does not compile without its place, and does not pass without its file.
const fn place(event: &RunEvent) -> usize {
    match event {
        RunEvent::RunSubmitted(_) => 0,
        RunEvent::RunStarted {} => 1,
        RunEvent::CallPending(_) => 2,
        RunEvent::CallSettled(_) => 3,
        RunEvent::CallRefused(_) => 4,
        RunEvent::CallRedispatched { .. } => 5,
        RunEvent::LateEvidence(_) => 6,
        RunEvent::StepThrottled { .. } => 7,
        RunEvent::StepSkipped { .. } => 8,
        RunEvent::StepFailed { .. } => 9,
        RunEvent::ApprovalRequested(_) => 10,
        RunEvent::ApprovalReminded { .. } => 11,
        RunEvent::ApprovalDecided { .. } => 12,
        RunEvent::ApprovalExpired { .. } => 13,
        RunEvent::BranchOffered { .. } => 14,
        RunEvent::TimerSet { .. } => 15,
        RunEvent::TimerFired { .. } => 16,
        RunEvent::ControlApplied(_) => 17,
        RunEvent::GovernanceAudited(_) => 18,
        RunEvent::RunFinished(_) => 19,
        RunEvent::RunClosed {} => 20,
        RunEvent::HandoffDispatched(_) => 21,
        RunEvent::HandoffDenied(_) => 22,
        RunEvent::HandoffReconciled(_) => 23,
        RunEvent::ModelBegan { .. } => 24,
        RunEvent::ModelAsked(_) => 25,
        RunEvent::ModelAnswered(_) => 26,
        RunEvent::ModelFellBack { .. } => 27,
    }
}
const KINDS: usize = 28;

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Kind and body of every golden file: `<kind>.json`, or `<kind>.<what is special about it>.json`.
fn files() -> Vec<(String, String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(golden())
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let kind = name.split('.').next().unwrap().to_owned();
            (name, kind, std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// An event of each kind, and of some kinds several.
pub(crate) fn every_event() -> Vec<RunEvent> {
    let read = |(name, kind, body): (String, String, Vec<u8>)| {
        RunEvent::decode(&kind, &body).unwrap_or_else(|| panic!("{name} no longer decodes"))
    };
    files().into_iter().map(read).collect()
}

#[test]
fn every_golden_body_decodes_and_none_of_its_fields_is_lost() {
    for (name, kind, body) in files() {
        let event = RunEvent::decode(&kind, &body).unwrap_or_else(|| panic!("{name} no longer decodes"));
        let (written_kind, written) = event.encode();
        assert_eq!(written_kind, kind, "{name}");
        let (was, is): (Value, Value) =
            (serde_json::from_slice(&body).unwrap(), serde_json::from_slice(&written).unwrap());
        assert_eq!(is, was, "{name}");
    }
}

#[test]
fn every_kind_of_event_has_a_golden_body() {
    let places: BTreeSet<_> = every_event().iter().map(place).collect();
    assert_eq!(places, (0..KINDS).collect());
}

#[test]
fn golden_bodies_name_no_field_that_this_version_made_optional_since() {
    // Absent fields read as their defaults: what an older version did not know, it did not mean.
    let bare = json!({
        "callId": Uuid::from_u128(1), "outcome": "ok", "charged": {}, "latencyMs": 1,
    });
    assert!(RunEvent::decode("call-settled", bare.to_string().as_bytes()).is_some());
    let bare = json!({"callId": Uuid::from_u128(1), "outcome": "ok"});
    assert!(RunEvent::decode("late-evidence", bare.to_string().as_bytes()).is_some());
}

#[test]
fn a_body_from_a_later_version_still_reads_if_it_only_has_more_fields() {
    for (name, kind, body) in files() {
        let mut later: Value = serde_json::from_slice(&body).unwrap();
        later["addedLater"] = json!({"a": 1});
        let read = RunEvent::decode(&kind, later.to_string().as_bytes());
        assert_eq!(read, RunEvent::decode(&kind, &body), "{name}");
    }
}

#[test]
fn an_unknown_kind_or_a_broken_body_is_none() {
    assert_eq!(RunEvent::decode("run-exploded", b"{}"), None);
    assert_eq!(RunEvent::decode("run-closed", b""), None);
    assert_eq!(RunEvent::decode("call-settled", b"{}"), None);
    assert_eq!(RunEvent::decode("run-closed", &[b'['; 100_000]), None, "nested without end");
}

#[test]
fn the_hash_of_an_event_is_made_of_its_fields_each_with_its_length_in_front() {
    let event = StoredEvent {
        run_key: RunKey::new(Uuid::from_u128(0x0102)),
        seq: 3,
        at: UnixMicros(1_800_000_000_000_001),
        actor: Actor { actor_id: ActorId::new("ann").unwrap(), role: Role::TenantOperator },
        visibility: Visibility::Customer,
        kind: "timer-fired".to_owned(),
        version: EVENT_VERSION,
        body: br#"{"stepId":"w"}"#.to_vec(),
        prev_hash: EventHash([7; 32]),
        hash: EventHash::ZERO,
    };
    let mut bytes = Vec::new();
    let mut field = |field: &[u8]| {
        bytes.extend((field.len() as u64).to_be_bytes());
        bytes.extend(field);
    };
    field(b"signalbox.event.v1");
    field(&[7; 32]);
    field(b"acme");
    field(&0x0102_u128.to_be_bytes());
    field(&3_u64.to_be_bytes());
    field(&1_800_000_000_000_001_i64.to_be_bytes());
    field(b"ann");
    field(b"tenant-operator");
    field(b"customer");
    field(b"timer-fired");
    field(&1_u16.to_be_bytes());
    field(br#"{"stepId":"w"}"#);
    let hash = event.expected_hash(&TenantId::new("acme").unwrap()).hex();
    assert_eq!(hash, sha256_hex(&bytes));
    assert_eq!(hash, "c9e92a38821110f827189a63b5b4414096b44d071be9ddf49601cbcb9544f5c0");
}

proptest! {
    #[test]
    fn no_bytes_make_decoding_panic(kind in "[a-z-]{0,20}", body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = RunEvent::decode(&kind, &body);
    }

    #[test]
    fn no_mutation_of_a_golden_body_makes_decoding_panic(
        file in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let files = files();
        let (_, kind, body) = &files[file.index(files.len())];
        let mut body = body.clone();
        let at = at.index(body.len());
        body[at] = byte;
        let _ = RunEvent::decode(kind, &body);
    }
}
