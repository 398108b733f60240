//! The audit journal: whatever is done to it afterwards is found.

use proptest::prelude::*;
use signalbox_domain::governance::audit::{AuditBody, AuditEvent, AuditHead, Subject, verify_audit};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, TenantId};
use signalbox_domain::run::chain::EventHash;
use signalbox_domain::time::UnixMicros;

fn journal(length: u64) -> (Vec<AuditEvent>, AuditHead) {
    let mut head = AuditHead::default();
    let mut events = Vec::new();
    for seq in 1..=length {
        let body = AuditBody { reason: format!("reason {seq}"), ..AuditBody::default() };
        let mut event = AuditEvent {
            seq,
            at: UnixMicros(seq.cast_signed()),
            tenant_id: seq.is_multiple_of(2).then(|| TenantId::new("acme").unwrap()),
            actor: Actor { actor_id: ActorId::new("ada").unwrap(), role: Role::PlatformOperator },
            kind: "switch-armed".to_owned(),
            subject: Subject::switch(&format!("s{seq}")),
            version: 1,
            epoch: seq / 2,
            body: body.to_bytes(),
            prev_hash: head.hash,
            hash: EventHash::ZERO,
        };
        event.hash = event.expected_hash();
        head = AuditHead { seq, hash: event.hash, at: event.at };
        events.push(event);
    }
    (events, head)
}

fn codes(events: &[AuditEvent], head: Option<AuditHead>) -> Vec<String> {
    verify_audit(events, head).findings.into_iter().map(|finding| finding.code).collect()
}

fn finds(events: &[AuditEvent], head: AuditHead, code: &str) {
    let found = codes(events, Some(head));
    assert!(found.iter().any(|known| known == code), "{code} is not among {found:?}");
}

#[test]
fn a_journal_as_it_was_written_is_sound() {
    let (events, head) = journal(5);
    let report = verify_audit(&events, Some(head));
    assert!(report.ok && report.events == 5 && report.head_hash == head.hash.hex(), "{report:?}");
    assert!(verify_audit(&[], Some(AuditHead::default())).ok);
}

#[test]
fn an_act_that_was_flipped_dropped_moved_or_cut_off_is_found() {
    let (events, head) = journal(5);
    let mut flipped = events.clone();
    flipped[2].actor.actor_id = ActorId::new("eve").unwrap();
    finds(&flipped, head, "audit-hash-wrong");
    // Even if its own hash is made to fit again, the acts behind it do not follow any more.
    flipped[2].hash = flipped[2].expected_hash();
    finds(&flipped, head, "audit-chain-broken");
    let mut dropped = events.clone();
    dropped.remove(2);
    finds(&dropped, head, "audit-out-of-order");
    finds(&dropped, head, "audit-chain-broken");
    let mut moved = events.clone();
    moved.swap(1, 2);
    finds(&moved, head, "audit-out-of-order");
    finds(&events[..4], head, "audit-cut");
    assert_eq!(codes(&events, None), ["audit-cut"], "nothing says where it ends");
    let other = AuditHead { hash: EventHash([7; 32]), ..head };
    finds(&events, other, "audit-cut");
}

#[test]
fn a_whole_journal_that_was_made_up_does_not_end_where_the_store_remembers() {
    let (_, head) = journal(5);
    let (mut forged, _) = journal(5);
    let mut prev_hash = EventHash::ZERO;
    for event in &mut forged {
        event.actor.actor_id = ActorId::new("eve").unwrap();
        event.prev_hash = prev_hash;
        event.hash = event.expected_hash();
        prev_hash = event.hash;
    }
    assert_eq!(codes(&forged, Some(head)), ["audit-cut"]);
}

#[test]
fn bodies_nobody_wrote_and_time_that_runs_backwards_are_found() {
    let (mut events, head) = journal(3);
    events[1].body = b"nonsense".to_vec();
    events[2].at = UnixMicros(0);
    events[2].epoch = 0;
    let found = codes(&events, Some(head));
    for code in ["audit-body-unreadable", "audit-time-backwards", "audit-epoch-backwards", "audit-hash-wrong"] {
        assert!(found.iter().any(|known| known == code), "{code}: {found:?}");
    }
}

proptest! {
    #[test]
    fn no_single_change_goes_unnoticed(at in 0_usize..6, field in 0_u8..9, byte in 0_usize..32) {
        let (mut events, head) = journal(6);
        let event = &mut events[at];
        match field {
            0 => event.seq += 1,
            1 => event.at.0 += 1,
            2 => event.tenant_id = Some(TenantId::new("other").unwrap()),
            3 => event.actor.role = Role::TenantOperator,
            4 => event.kind.push('x'),
            5 => event.subject = Subject::switch(&"elsewhere"),
            6 => event.epoch += 1,
            7 => { let last = event.body.len() - 3; event.body[last] ^= 1; }
            _ => event.hash.0[byte] ^= 1,
        }
        prop_assert!(!verify_audit(&events, Some(head)).ok);
    }
}
