use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::catalog::Recovery;
use crate::governance::budget::{Budget, BudgetScope, Meter, OnExceeded};
use crate::governance::change::GovernanceChange;
use crate::governance::kill_switch::{KillSwitch, SwitchScope};
use crate::identity::Role;
use crate::ids::{ActorId, AgentId, GrantId, StageId, SwitchId, ToolId};
use crate::quantity::{BudgetCategory, Micros};
use crate::run::event::{CallOutcome, CallSettled, StoredValue};

const NOW: UnixMicros = UnixMicros(1_800_000_000_000_000);

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn head() -> RunHead {
    RunHead {
        run_key: RunKey::new(Uuid::from_u128(1)),
        run_id: RunId::new(Uuid::from_u128(2)),
        tenant_id: tenant(),
        owner: Some(NodeIncarnation::new(Uuid::from_u128(3))),
        lease_epoch: 4,
        last_seq: 7,
        last_hash: EventHash([9; 32]),
        last_at: NOW,
        control_seq: 0,
        inbox_len: 0,
        closed: false,
    }
}

fn entry() -> Entry {
    Entry {
        run_key: head().run_key,
        expected_seq: 7,
        lease_epoch: 4,
        control_seq: 0,
        governance_epoch: 0,
        facts: vec![],
        releases: vec![],
        asks: vec![],
        answers: vec![],
        projection: None,
        projection_if_asked: None,
        tells: vec![],
        below: None,
        park: false,
    }
}

fn target() -> Target {
    Target {
        tenant_id: tenant(),
        run_id: head().run_id,
        user_id: ActorId::new("ann").unwrap(),
        role: Role::Creator,
        agent_id: AgentId::new("ref.research").unwrap(),
        family: Some("research".into()),
        pipeline_id: None,
        tool_id: ToolId::new("source.fetch").unwrap(),
        provider_id: None,
        region: None,
    }
}

fn reservation(budget: &str, units: i64) -> Reservation {
    let budget_id = BudgetId::new(budget).unwrap();
    Reservation { budget_id, category: BudgetCategory::CostUnits, amount: Micros::units(units) }
}

fn pending(call: u128, reservations: Vec<Reservation>) -> CallPending {
    CallPending {
        call_id: CallId::new(Uuid::from_u128(call)),
        step_id: StepId::new("one").unwrap(),
        stage_id: StageId::new("one").unwrap(),
        agent_id: target().agent_id,
        tool_id: target().tool_id,
        tool_semver: "1.0.0".into(),
        args_hash: String::new(),
        redacted_args: StoredValue::Inline(json!({})),
        secrets: BTreeMap::new(),
        grant_id: GrantId::new("grant").unwrap(),
        attempt: 1,
        recovery: Recovery::Idempotent,
        estimated_usage: Usage::none(),
        reservations,
        scope_check_result_id: "scope".into(),
        capability_audit_ids: vec![],
        budget_warnings: vec![],
        requested_at_unix_ms: NOW.ms(),
        timeout_ms: 1_000,
        simulated: false,
        answers: Vec::new(),
        epoch: 0,
        meters: vec![],
    }
}

fn ask(call: u128, reservations: Vec<Reservation>) -> Ask {
    let pending = pending(call, reservations);
    Ask {
        call_id: pending.call_id,
        step_id: pending.step_id.clone(),
        target: target(),
        events: vec![NewEvent::system(RunEvent::CallPending(Box::new(pending)))],
        sub_run: None,
    }
}

fn settled(call: u128, units: i64) -> NewEvent {
    NewEvent::system(RunEvent::CallSettled(Box::new(CallSettled {
        call_id: CallId::new(Uuid::from_u128(call)),
        outcome: CallOutcome::Ok,
        output: None,
        error: None,
        measured_usage: None,
        charged: Usage::of(BudgetCategory::CostUnits, Micros::units(units)),
        evidence: None,
        effects: vec![],
        artifacts: vec![],
        latency_ms: 1,
        simulated: false,
        tone_note: None,
        meters: vec![],
    })))
}

fn metered(id: &str, limit: i64, consumed: i64, reserved: i64) -> (BudgetId, MeteredBudget) {
    let budget_id = BudgetId::new(id).unwrap();
    let budget = Budget {
        budget_id: budget_id.clone(),
        tenant_id: Some(tenant()),
        scope: BudgetScope::Tenant,
        scope_key: "acme".into(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(limit),
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    };
    let figures = Meter { consumed: Micros::units(consumed), reserved: Micros::units(reserved), ..Meter::default() };
    (budget_id, MeteredBudget { budget, meter: figures })
}

fn tool_switch(epoch: u64, tool: &str) -> EpochChange {
    let switch = KillSwitch {
        switch_id: SwitchId::new("switch").unwrap(),
        tenant_id: None,
        scope: SwitchScope::Tool,
        target_id: Some(tool.into()),
        armed_by: ActorId::new("ops").unwrap(),
        armed_at_unix_ms: NOW.ms(),
        reason: "test".into(),
        user_visible_status_copy: "stopped".into(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    };
    EpochChange { epoch, at_unix_ms: NOW.ms(), change: GovernanceChange::SwitchArmed(switch) }
}

/// The rows of a store with one run.
struct Rows {
    head: Option<RunHead>,
    changes: Vec<EpochChange>,
    meters: BTreeMap<BudgetId, MeteredBudget>,
    retired: BTreeSet<BudgetId>,
    waiting: BTreeSet<CommandId>,
    now: UnixMicros,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            head: Some(head()),
            changes: vec![],
            meters: BTreeMap::new(),
            retired: BTreeSet::new(),
            waiting: BTreeSet::new(),
            now: NOW,
        }
    }
}

impl Rows {
    fn with_meters(meters: impl IntoIterator<Item = (BudgetId, MeteredBudget)>) -> Self {
        Self { meters: meters.into_iter().collect(), ..Self::default() }
    }
    fn judge(&mut self, entry: &Entry) -> Result<Accepted, EntryRefusal> {
        let epoch = self.changes.last().map_or(0, |change| change.epoch);
        judge(
            Ground {
                head: self.head.as_ref(),
                changes: &self.changes,
                epoch,
                meters: &mut self.meters,
                retired: &self.retired,
                waiting: &self.waiting,
                taken: &BTreeSet::new(),
                now: self.now,
            },
            entry,
        )
    }
    fn figures(&self, id: &str) -> (Micros, Micros) {
        let meter = &self.meters[&BudgetId::new(id).unwrap()].meter;
        (meter.consumed, meter.reserved)
    }
}

fn figures(consumed: i64, reserved: i64) -> (Micros, Micros) {
    (Micros::units(consumed), Micros::units(reserved))
}

#[test]
fn an_entry_for_an_unknown_run_is_refused() {
    let refusal = Rows { head: None, ..Rows::default() }.judge(&entry()).unwrap_err();
    assert_eq!(refusal.code(), "no-such-run");
}

#[test]
fn a_writer_without_the_lease_is_fenced_even_if_its_sequence_is_wrong_too() {
    let refusal = Rows::default().judge(&Entry { lease_epoch: 3, expected_seq: 1, ..entry() }).unwrap_err();
    assert_eq!(refusal, EntryRefusal::Fenced { expected: 3, actual: 4 });
    assert_eq!(refusal.code(), "stale-epoch");
}

#[test]
fn nobody_writes_to_a_run_that_was_given_up_before_claiming_it() {
    let mut rows = Rows::default();
    rows.head.as_mut().unwrap().owner = None;
    assert_eq!(rows.judge(&entry()).unwrap_err(), EntryRefusal::GivenUp);
}

#[test]
fn a_writer_behind_the_journal_conflicts() {
    let refusal = Rows::default().judge(&Entry { expected_seq: 6, ..entry() }).unwrap_err();
    assert_eq!(refusal, EntryRefusal::Conflict { expected: 6, actual: 7 });
}

#[test]
fn events_continue_the_chain_and_time_never_goes_back() {
    let mut rows = Rows { now: UnixMicros(NOW.0 - 5), ..Rows::default() };
    let started = NewEvent::system(RunEvent::RunStarted {});
    let accepted = rows.judge(&Entry { facts: vec![started.clone(), started], ..entry() }).unwrap();
    let [first, second] = accepted.events.as_slice() else { panic!("two facts make two events") };
    assert_eq!((first.seq, second.seq), (8, 9));
    assert_eq!((first.at, second.at), (NOW, NOW));
    assert_eq!(first.prev_hash, head().last_hash);
    assert_eq!(second.prev_hash, first.hash);
    assert_eq!(second.hash, second.expected_hash(&tenant()));
    assert_eq!((accepted.head.last_seq, accepted.head.last_hash), (9, second.hash));
}

#[test]
fn facts_are_accepted_although_the_ask_is_refused() {
    let mut rows = Rows { head: Some(RunHead { control_seq: 1, ..head() }), ..Rows::default() };
    let facts = vec![NewEvent::system(RunEvent::RunStarted {})];
    let accepted = rows.judge(&Entry { facts, asks: vec![ask(10, vec![])], ..entry() }).unwrap();
    assert_eq!(accepted.events.len(), 1);
    assert_eq!(accepted.answers, [AskAnswer::Refused(AskRefusal::Commanded)]);
}

#[test]
fn a_matching_change_after_the_writers_epoch_makes_the_ask_stale_and_no_other_does() {
    let asked = Entry { governance_epoch: 1, asks: vec![ask(10, vec![])], ..entry() };
    let mut other =
        Rows { changes: vec![tool_switch(1, "source.fetch"), tool_switch(2, "web.fetch")], ..Rows::default() };
    assert_eq!(other.judge(&asked).unwrap().answers, [AskAnswer::Admitted { seq: 8 }]);
    let mut matching =
        Rows { changes: vec![tool_switch(1, "web.fetch"), tool_switch(2, "source.fetch")], ..Rows::default() };
    assert_eq!(matching.judge(&asked).unwrap().answers, [AskAnswer::Refused(AskRefusal::Stale { epoch: 2 })]);
}

#[test]
fn a_writer_ahead_of_the_store_is_stale() {
    let asked = Entry { governance_epoch: 1, asks: vec![ask(10, vec![])], ..entry() };
    assert_eq!(Rows::default().judge(&asked).unwrap().answers, [AskAnswer::Refused(AskRefusal::Stale { epoch: 0 })]);
}

#[test]
fn an_admission_holds_its_reservations_and_carries_epoch_and_readings() {
    let mut rows = Rows::with_meters([metered("b", 10, 1, 2)]);
    rows.changes = vec![tool_switch(1, "web.fetch")];
    let accepted = rows.judge(&Entry { asks: vec![ask(10, vec![reservation("b", 3)])], ..entry() }).unwrap();
    let Some(RunEvent::CallPending(pending)) = accepted.events[0].event() else { panic!("a pending record") };
    assert_eq!(pending.epoch, 1);
    assert_eq!(pending.meters[0].reserved, Micros::units(5));
    assert_eq!(pending.meters[0].asked, Micros::units(3));
    assert_eq!(rows.figures("b"), figures(1, 5));
}

#[test]
fn an_exceeded_meter_refuses_the_ask_with_readings_and_leaves_every_meter_as_it_was() {
    let mut rows = Rows::with_meters([metered("a", 100, 0, 0), metered("b", 10, 5, 3)]);
    let asks = vec![ask(10, vec![reservation("b", 3), reservation("a", 3)]), ask(11, vec![reservation("b", 2)])];
    let accepted = rows.judge(&Entry { asks, ..entry() }).unwrap();
    let [AskAnswer::Refused(AskRefusal::Exceeded { budget_id, readings }), second] = accepted.answers.as_slice() else {
        panic!("the first ask is refused: {:?}", accepted.answers)
    };
    assert_eq!(budget_id.as_str(), "b");
    let shown: Vec<_> =
        readings.iter().map(|r| (r.budget_id.as_str(), r.consumed, r.reserved, r.limit, r.asked)).collect();
    let units = Micros::units;
    assert_eq!(
        shown,
        [("a", units(0), units(0), units(100), units(3)), ("b", units(5), units(3), units(10), units(3))]
    );
    assert_eq!(*second, AskAnswer::Admitted { seq: 8 }, "the next ask of the same entry still fits");
    assert_eq!(rows.figures("a"), figures(0, 0));
    assert_eq!(rows.figures("b"), figures(5, 5));
}

#[test]
fn settling_turns_what_was_held_into_what_is_charged() {
    let mut rows = Rows::with_meters([metered("b", 10, 0, 0)]);
    let accepted = rows.judge(&Entry { asks: vec![ask(10, vec![reservation("b", 4)])], ..entry() }).unwrap();
    let Some(RunEvent::CallPending(pending)) = accepted.events[0].event() else { panic!("a pending record") };
    rows.head = Some(accepted.head);
    let charged = Usage::of(BudgetCategory::CostUnits, Micros::units(1));
    let release = Release::of(&pending, charged);
    let entry =
        Entry { expected_seq: 8, facts: vec![settled(10, 1), settled(10, 1)], releases: vec![release], ..entry() };
    let accepted = rows.judge(&entry).unwrap();
    assert_eq!(rows.figures("b"), figures(1, 0), "the second settlement of one call books nothing");
    let Some(RunEvent::CallSettled(settled)) = accepted.events[0].event() else { panic!("a settlement") };
    assert_eq!((settled.meters[0].consumed, settled.meters[0].reserved), figures(1, 0));
}

#[test]
fn a_release_without_a_settlement_books_nothing() {
    let mut rows = Rows::with_meters([metered("b", 10, 0, 4)]);
    let call_id = CallId::new(Uuid::from_u128(10));
    let release = Release { call_id, reservations: vec![reservation("b", 4)], charged: Usage::none() };
    rows.judge(&Entry { releases: vec![release], ..entry() }).unwrap();
    assert_eq!(rows.figures("b"), figures(0, 4));
}

#[test]
fn a_meter_that_is_retired_or_not_meant_for_the_call_is_neither_reserved_nor_released() {
    let (id, foreign) = metered("b", 10, 0, 4);
    let foreign_budget = Budget {
        tenant_id: Some(TenantId::new("other").unwrap()),
        scope_key: "other".into(),
        ..foreign.budget.clone()
    };
    for (meter, retired) in
        [(MeteredBudget { budget: foreign_budget, ..foreign.clone() }, BTreeSet::new()), (foreign, [id.clone()].into())]
    {
        let mut rows = Rows { retired, ..Rows::with_meters([(id.clone(), meter)]) };
        let accepted = rows.judge(&Entry { asks: vec![ask(10, vec![reservation("b", 3)])], ..entry() }).unwrap();
        let Some(RunEvent::CallPending(pending)) = accepted.events[0].event() else { panic!("a pending record") };
        assert_eq!(rows.figures("b"), figures(0, 4));
        assert!(pending.meters.is_empty());
        assert!(Release::of(&pending, Usage::none()).reservations.is_empty());
    }
}

#[test]
fn an_open_reservation_is_still_settled_on_a_retired_meter() {
    let (id, meter) = metered("b", 10, 0, 4);
    let mut rows = Rows { retired: [id.clone()].into(), ..Rows::with_meters([(id, meter)]) };
    let charged = Usage::of(BudgetCategory::CostUnits, Micros::units(2));
    let release =
        Release { call_id: CallId::new(Uuid::from_u128(10)), reservations: vec![reservation("b", 4)], charged };
    rows.judge(&Entry { facts: vec![settled(10, 2)], releases: vec![release], ..entry() }).unwrap();
    assert_eq!(rows.figures("b"), figures(2, 0));
}

#[test]
fn a_redispatch_is_admitted_anew_and_keeps_its_reservation() {
    let mut rows = Rows::with_meters([metered("b", 10, 0, 4)]);
    let mut again = ask(10, vec![]);
    again.events = vec![NewEvent::system(RunEvent::CallRedispatched {
        call_id: again.call_id,
        attempt: 2,
        requested_at_unix_ms: NOW.ms(),
    })];
    let accepted = rows.judge(&Entry { asks: vec![again.clone()], ..entry() }).unwrap();
    assert_eq!(accepted.answers, [AskAnswer::Admitted { seq: 8 }]);
    assert_eq!(rows.figures("b"), figures(0, 4));
    rows.changes = vec![tool_switch(1, "source.fetch")];
    let refused = rows.judge(&Entry { asks: vec![again], ..entry() }).unwrap();
    assert_eq!(refused.answers, [AskAnswer::Refused(AskRefusal::Stale { epoch: 1 })]);
}

#[test]
fn a_refusal_by_the_gate_is_recorded_and_as_bound_to_the_epoch_as_an_admission() {
    let refused = NewEvent::system(RunEvent::StepFailed {
        step_id: StepId::new("one").unwrap(),
        code: "no-live-grant".into(),
        message: "no".into(),
    });
    let asked = Entry { asks: vec![Ask { events: vec![refused], ..ask(10, vec![]) }], ..entry() };
    assert_eq!(Rows::default().judge(&asked).unwrap().answers, [AskAnswer::Recorded]);
    let mut changed = Rows { changes: vec![tool_switch(1, "source.fetch")], ..Rows::default() };
    assert_eq!(changed.judge(&asked).unwrap().events, []);
}

fn projection(percent: u8) -> RunProjection {
    RunProjection {
        status: RunStatus::Running,
        closed: percent == 100,
        total_cost_micros: 0,
        percent,
        waiting_for: None,
        wake_at: None,
        slow_at: None,
        has_warnings: false,
        words: String::new(),
        open_approvals: vec![],
        killed_by: None,
    }
}

#[test]
fn the_second_projection_counts_only_if_every_ask_is_accepted() {
    let asked = Entry {
        asks: vec![ask(10, vec![])],
        projection: Some(projection(1)),
        projection_if_asked: Some(projection(2)),
        ..entry()
    };
    assert_eq!(Rows::default().judge(&asked).unwrap().projection, Some(projection(2)));
    let mut commanded = Rows { head: Some(RunHead { control_seq: 1, ..head() }), ..Rows::default() };
    assert_eq!(commanded.judge(&asked).unwrap().projection, Some(projection(1)));
}

#[test]
fn a_projection_that_says_closed_closes_the_row() {
    let closing = Entry { projection: Some(projection(100)), ..entry() };
    assert!(Rows::default().judge(&closing).unwrap().head.closed);
}

fn answer(id: u128) -> (CommandId, CommandAnswer) {
    let answer = CommandAnswer { accepted: true, code: "ok".into(), message: String::new(), seq: 7 };
    (CommandId::new(Uuid::from_u128(id)), answer)
}

#[test]
fn a_run_is_given_up_only_when_its_inbox_is_empty_after_the_answers() {
    let mut rows = Rows {
        head: Some(RunHead { inbox_len: 2, ..head() }),
        waiting: [answer(1).0, answer(2).0].into(),
        ..Rows::default()
    };
    let one = Entry { park: true, answers: vec![answer(1), answer(1), answer(3)], ..entry() };
    assert_eq!(rows.judge(&one).unwrap_err(), EntryRefusal::InboxNotEmpty);
    let both = Entry { answers: vec![answer(1), answer(2)], ..one };
    let accepted = rows.judge(&both).unwrap();
    assert_eq!((accepted.head.owner, accepted.head.inbox_len), (None, 0));
}

#[test]
fn a_run_with_a_call_just_admitted_is_not_given_up() {
    let accepted = Rows::default().judge(&Entry { park: true, asks: vec![ask(10, vec![])], ..entry() }).unwrap();
    assert_eq!(accepted.head.owner, head().owner);
}
