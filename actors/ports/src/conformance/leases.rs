//! A run has one owner, and an owner that was replaced cannot write (I10).

use signalbox_domain::ids::RunKey;
use signalbox_domain::run::append::{Entry, EntryRefusal, RunProjection};
use signalbox_domain::run::status::RunStatus;

use super::world::*;
use crate::clock::Clock;
use crate::inbox::CommandClass;
use crate::journal::{AppendError, NewRun};
use crate::leases::{LEASE_MS, LEASE_REMEMBERED_MS, NodeSweep, SWEPT_EPOCHS_KEPT};

impl Fixture {
    async fn claimed(&self, by: u64) -> Vec<RunKey> {
        let claimed = self.leases.claim(node(by), 10).await.unwrap();
        assert!(claimed.iter().all(|head| head.owner == Some(node(by))));
        claimed.iter().map(|head| head.run_key).collect()
    }

    async fn renewed(&self, number: u64) -> bool {
        self.leases.renew(node(number), "node").await.unwrap()
    }
}

pub async fn a_run_with_commands_cannot_be_parked(f: &Fixture) {
    let head = f.run(1).await;
    f.inbox.deliver(head.run_key, command(1, CommandClass::Other)).await.unwrap();
    let park = Entry { park: true, ..saying(&head, "good night") };
    assert_eq!(f.append(park.clone()).await.unwrap_err(), AppendError::Refused(EntryRefusal::InboxNotEmpty));
    assert_eq!(f.head(head.run_key).await.last_seq, 1, "nothing of it was written");
    let answered = f.append(Entry { answers: vec![(command_id(1), yes(1))], ..park }).await.unwrap();
    assert_eq!(answered.head.owner, None);
    assert_eq!(f.head(head.run_key).await, answered.head);
}

pub async fn a_parked_run_is_claimed_when_a_command_arrives(f: &Fixture) {
    let parked = f.parked(1, None).await;
    assert_eq!(f.claimed(1).await, []);
    f.inbox.deliver(parked.run_key, command(1, CommandClass::Other)).await.unwrap();
    let claimed = f.leases.claim(node(1), 10).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!((claimed[0].lease_epoch, claimed[0].inbox_len), (parked.lease_epoch + 1, 1));
    assert_eq!(f.head(parked.run_key).await, claimed[0]);
    assert_eq!(f.claimed(1).await, []);
}

pub async fn a_parked_run_is_claimed_when_it_is_due(f: &Fixture) {
    let parked = f.parked(1, Some(f.clock.now().plus_ms(1_000))).await;
    f.clock.advance_ms(999);
    assert_eq!(f.claimed(1).await, []);
    f.clock.advance_ms(1);
    assert_eq!(f.claimed(1).await, [parked.run_key]);
}

pub async fn a_claim_fences_the_owner_before(f: &Fixture) {
    let head = f.run(1).await;
    f.leases.release(node(1)).await.unwrap();
    assert!(f.renewed(2).await);
    let claimed = f.leases.claim_one(node(2), head.run_key).await.unwrap().unwrap();
    let refused = f.append(saying(&head, "still me")).await.unwrap_err();
    assert_eq!(refused, AppendError::Refused(EntryRefusal::Fenced { expected: 1, actual: 2 }));
    f.append(saying(&claimed, "me now")).await.unwrap();
}

/// The answer to giving a run up may be lost, and then its owner goes on as if it had kept it.
pub async fn a_run_that_was_given_up_is_claimed_before_it_is_written_to(f: &Fixture) {
    let parked = f.parked(1, None).await;
    let refused = f.append(saying(&parked, "still me")).await.unwrap_err();
    assert_eq!(refused, AppendError::Refused(EntryRefusal::GivenUp));
    assert!(f.renewed(1).await);
    let claimed = f.leases.claim_one(node(1), parked.run_key).await.unwrap().unwrap();
    f.append(saying(&claimed, "me again")).await.unwrap();
}

pub async fn a_released_node_cannot_renew_and_its_runs_can_be_claimed(f: &Fixture) {
    let run = f.run(1).await.run_key;
    assert!(f.renewed(1).await && f.renewed(2).await);
    assert_eq!(f.claimed(2).await, []);
    f.leases.release(node(1)).await.unwrap();
    assert!(!f.renewed(1).await);
    assert_eq!(f.claimed(1).await, []);
    assert_eq!(f.claimed(2).await, [run]);
}

pub async fn a_lease_that_ran_out_is_given_up_when_another_node_claims(f: &Fixture) {
    let run = f.run(1).await.run_key;
    f.clock.advance_ms(LEASE_MS - 1);
    assert!(f.renewed(2).await);
    assert_eq!(f.claimed(2).await, [], "the first node's lease is still good");
    f.clock.advance_ms(1);
    assert_eq!(f.claimed(2).await, [run]);
    assert!(!f.renewed(1).await, "it is fenced");
}

pub async fn a_late_renewal_that_nobody_noticed_is_accepted(f: &Fixture) {
    let run = f.run(1).await.run_key;
    f.clock.advance_ms(LEASE_MS * 10);
    assert!(f.renewed(2).await);
    assert!(f.renewed(1).await, "a node that slept alone goes on");
    assert_eq!(f.claimed(2).await, []);
    assert_eq!(f.head(run).await.owner, Some(node(1)));
}

pub async fn a_closed_run_is_never_claimed(f: &Fixture) {
    let head = f.run(1).await;
    let closed = RunProjection { status: RunStatus::Completed, closed: true, ..projection() };
    let closed = Entry { park: true, projection: Some(closed), ..saying(&head, "the end") };
    assert!(f.append(closed).await.unwrap().head.closed);
    f.inbox.deliver(head.run_key, command(1, CommandClass::Control)).await.unwrap();
    assert_eq!(f.claimed(1).await, []);
    assert_eq!(f.leases.claim_one(node(1), head.run_key).await.unwrap(), None);
}

pub async fn a_live_owner_keeps_its_run_and_may_ask_for_it_again(f: &Fixture) {
    let head = f.run(1).await;
    assert!(f.renewed(2).await);
    assert_eq!(f.leases.claim_one(node(2), head.run_key).await.unwrap(), None);
    assert_eq!(f.leases.claim_one(node(1), head.run_key).await.unwrap(), Some(head), "nobody is fenced");
    let parked = f.parked(2, None).await;
    let claimed = f.leases.claim_one(node(2), parked.run_key).await.unwrap().unwrap();
    assert_eq!((claimed.owner, claimed.lease_epoch), (Some(node(2)), parked.lease_epoch + 1));
    assert_eq!(f.leases.claim_one(node(2), run_key("acme", 9)).await.unwrap(), None);
}

pub async fn a_node_without_a_lease_claims_nothing(f: &Fixture) {
    let head = f.create(NewRun { owner: None, ..new_run("acme", 1) }).await;
    assert_eq!(f.claimed(1).await, []);
    assert_eq!(f.leases.claim_one(node(1), head.run_key).await.unwrap(), None);
    assert!(f.renewed(1).await);
    f.clock.advance_ms(LEASE_MS);
    assert_eq!(f.claimed(1).await, [], "it has run out");
    assert!(f.renewed(1).await);
    assert_eq!(f.claimed(1).await, [head.run_key]);
}

pub async fn a_claim_takes_no_more_than_its_limit(f: &Fixture) {
    for number in 0..5 {
        f.create(NewRun { owner: None, ..new_run("acme", number) }).await;
    }
    assert!(f.renewed(1).await);
    let mut taken = Vec::new();
    for expected in [0, 3, 2, 0] {
        let limit = if expected == 0 && taken.is_empty() { 0 } else { 3 };
        let claimed = f.leases.claim(node(1), limit).await.unwrap();
        assert_eq!(claimed.len(), expected);
        taken.extend(claimed.iter().map(|head| head.run_key));
    }
    taken.sort_unstable();
    assert_eq!(taken, (0..5).map(|number| run_key("acme", number)).collect::<Vec<_>>());
}

pub async fn a_lease_that_was_given_up_is_forgotten_after_a_day(f: &Fixture) {
    let head = f.run(1).await;
    f.leases.release(node(1)).await.unwrap();
    f.clock.advance_ms(LEASE_REMEMBERED_MS - 1);
    assert!(f.renewed(2).await);
    assert_eq!(f.leases.claim(node(2), 0).await.unwrap(), []);
    assert!(!f.renewed(1).await, "it is told so for a day");

    f.clock.advance_ms(LEASE_REMEMBERED_MS + LEASE_MS);
    assert!(f.renewed(2).await);
    assert_eq!(f.claimed(2).await, [head.run_key], "a run whose owner nobody remembers has none");
    assert!(f.renewed(1).await, "it begins anew");
    assert_eq!(f.claimed(1).await, []);
    let refused = f.append(saying(&head, "still me")).await.unwrap_err();
    assert_eq!(refused, AppendError::Refused(EntryRefusal::Fenced { expected: 1, actual: 2 }));
}

pub async fn a_node_is_told_which_of_its_runs_have_commands_waiting(f: &Fixture) {
    let (head, other) = (f.run(1).await, f.run(2).await);
    assert_eq!(f.leases.waiting(node(1)).await.unwrap(), []);
    f.inbox.deliver(head.run_key, command(1, CommandClass::Other)).await.unwrap();
    assert_eq!(f.leases.waiting(node(1)).await.unwrap(), [head.run_key]);
    assert_eq!(f.leases.waiting(node(2)).await.unwrap(), [], "they are another node's");
    f.inbox.deliver(other.run_key, command(2, CommandClass::Control)).await.unwrap();
    let mut both = f.leases.waiting(node(1)).await.unwrap();
    both.sort_unstable();
    assert_eq!(both, [head.run_key, other.run_key]);
    f.append(Entry { answers: vec![(command_id(1), yes(1))], ..saying(&head, "heard") }).await.unwrap();
    assert_eq!(f.leases.waiting(node(1)).await.unwrap(), [other.run_key]);
}

pub async fn each_live_node_says_since_when_it_has_swept(f: &Fixture) {
    for number in [1, 2, 3] {
        assert!(f.renewed(number).await);
    }
    f.leases.release(node(3)).await.unwrap();
    let told = |sweepers: Vec<NodeSweep>| -> Vec<_> {
        let mut told: Vec<_> = sweepers.into_iter().map(|sweep| (sweep.node, sweep.swept_at)).collect();
        told.sort_unstable();
        told
    };
    let none = [(node(1), None), (node(2), None)];
    assert_eq!(told(f.leases.sweepers(4).await.unwrap()), none, "a node that gave its lease up counts no more");
    let first = f.clock.now_micros();
    f.leases.swept(node(1), 4).await.unwrap();
    f.clock.advance_ms(50);
    f.leases.swept(node(1), 4).await.unwrap();
    assert_eq!(told(f.leases.sweepers(4).await.unwrap()), [(node(1), Some(first)), (node(2), None)]);
    assert_eq!(told(f.leases.sweepers(5).await.unwrap()), none);
    let second = f.clock.now_micros();
    f.leases.swept(node(1), 6).await.unwrap();
    f.leases.swept(node(2), 6).await.unwrap();
    assert_eq!(told(f.leases.sweepers(4).await.unwrap()), [(node(1), Some(first)), (node(2), Some(second))]);
    assert_eq!(told(f.leases.sweepers(5).await.unwrap()), [(node(1), Some(second)), (node(2), Some(second))]);
    f.leases.swept(node(1), 5 + SWEPT_EPOCHS_KEPT).await.unwrap();
    let sweepers = told(f.leases.sweepers(1).await.unwrap());
    assert_eq!(
        sweepers[0],
        (node(1), Some(second)),
        "what is older is forgotten, and never told as earlier than it was"
    );
    let names = f.leases.sweepers(1).await.unwrap();
    assert!(names.iter().all(|sweep| sweep.name == "node"), "{names:?}");
}
