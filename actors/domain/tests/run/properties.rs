//! Random plans, random answers, random orders: what holds for every run, whatever is done to it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;
use signalbox_domain::ids::{BudgetId, CallId};
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::advance::{advance, next_wake};
use signalbox_domain::run::decide::{RunCommand, decide};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{ApprovalDecision, Overrides, RunEvent};
use signalbox_domain::run::evolve::{begin, fold_one};
use signalbox_domain::run::plan::{Plan, Step, StepKind};
use signalbox_domain::run::replay::build_replay_timeline;
use signalbox_domain::run::settle::{Recover, recover};
use signalbox_domain::run::step::{CallEnding, CallResult, StepState};
use signalbox_domain::run::submission::{accept, parse};
use signalbox_domain::run::verify::verify;
use signalbox_domain::run::{call, sweep};

use crate::given::{
    Story, answer, answered_with, artifact, branch_id, cancel, ended, failed, fork_in_the_road, gate, kill, lost,
    measuring, not_started, one_step, operator, optional, pause, resume, retry_with, submitted_by, tenant, tool, wait,
    when,
};
use crate::steps::switch;

/// Something that can happen to a run. An index is taken among what there is to choose from at that moment.
#[derive(Debug, Clone)]
enum Move {
    Wait(i64),
    Call(Index),
    Deny(Index),
    Throttle(Index),
    Exceed(Index, bool),
    FailStep(Index),
    Ask(Index),
    End(Index, CallResult),
    EndAgain(Index, CallResult),
    Redispatch(Index),
    Command(RunCommand),
    Choose(Index),
    Answer(Index, ApprovalDecision),
    Retry(Index, bool),
    StepOf(Index),
    Sweep,
}

fn any_step(at: usize) -> impl Strategy<Value = Step> {
    let kind = prop_oneof![5 => Just(0), 1 => Just(1), 1 => Just(2), 1 => Just(3)];
    (kind, prop::collection::vec(any::<Index>(), 0..3), any::<bool>(), any::<Option<Index>>()).prop_map(
        move |(kind, after, may_fail, way)| {
            let id = format!("s{at}");
            let mut after: Vec<String> =
                if at == 0 { vec![] } else { after.iter().map(|on| format!("s{}", on.index(at))).collect() };
            after.sort();
            after.dedup();
            let after: Vec<&str> = after.iter().map(String::as_str).collect();
            let step = match kind {
                0 => tool(&id, &after),
                1 => gate(&id, &after),
                2 => fork_in_the_road(&id, &["left", "right"], &after),
                _ => wait(&id, 7, &after),
            };
            let step = if may_fail { optional(step) } else { step };
            // Made a condition on a branch in `any_plan` if that step is one.
            match way.filter(|_| at > 0) {
                Some(way) => when(step, &format!("s{}", way.index(at)), "left"),
                None => step,
            }
        },
    )
}

fn any_plan() -> impl Strategy<Value = Plan> {
    (1..8_usize).prop_flat_map(|count| {
        let steps: Vec<_> = (0..count).map(any_step).collect();
        (steps, prop_oneof![Just(None), Just(Some(1)), Just(Some(2))]).prop_map(|(mut steps, max_parallel)| {
            let branches: Vec<_> =
                steps.iter().filter(|s| matches!(s.kind, StepKind::Branch { .. })).map(|s| s.step_id.clone()).collect();
            for step in &mut steps {
                step.when = step.when.take().filter(|condition| branches.contains(&condition.step_id));
            }
            let plan = Plan { steps, max_parallel };
            plan.validate().unwrap();
            plan
        })
    })
}

fn any_result() -> impl Strategy<Value = CallResult> {
    let units = prop_oneof![Just(0.0), Just(0.1), Just(1.0 / 3.0), Just(1.0), Just(5.0), Just(-1.0), Just(f64::NAN)];
    let result = prop_oneof![
        4 => Just(answered_with(json!({"n": 0.1}), vec![artifact("file")])),
        1 => Just(ended(CallEnding::Answered {
            partial: true, output: json!(null), evidence: None, effects: vec![], artifacts: vec![],
        })),
        1 => Just(failed("tool-failed")),
        1 => Just(not_started()),
        2 => Just(lost()),
        1 => Just(ended(CallEnding::Cancelled)),
    ];
    (result, prop::option::of(units)).prop_map(|(result, units)| match units {
        Some(units) => measuring(&[(BudgetCategory::CostUnits, units), (BudgetCategory::Retrievals, 1.0)], result),
        None => result,
    })
}

fn any_move() -> impl Strategy<Value = Move> {
    let index = any::<Index>;
    let decision =
        prop_oneof![Just(ApprovalDecision::Approve), Just(ApprovalDecision::Reject), Just(ApprovalDecision::Skip)];
    prop_oneof![
        4 => prop_oneof![Just(1), Just(3_000), Just(6_000), Just(60_000), Just(600_000)].prop_map(Move::Wait),
        12 => index().prop_map(Move::Call),
        1 => index().prop_map(Move::Deny),
        2 => index().prop_map(Move::Throttle),
        1 => (index(), any::<bool>()).prop_map(|(at, kills)| Move::Exceed(at, kills)),
        1 => index().prop_map(Move::FailStep),
        4 => index().prop_map(Move::Ask),
        10 => (index(), any_result()).prop_map(|(at, result)| Move::End(at, result)),
        2 => (index(), any_result()).prop_map(|(at, result)| Move::EndAgain(at, result)),
        2 => index().prop_map(Move::Redispatch),
        3 => Just(Move::Command(pause())),
        3 => Just(Move::Command(resume())),
        1 => Just(Move::Command(cancel())),
        1 => Just(Move::Command(kill())),
        3 => Just(Move::Command(one_step())),
        3 => index().prop_map(Move::Choose),
        4 => (index(), decision).prop_map(|(at, decision)| Move::Answer(at, decision)),
        3 => (index(), any::<bool>()).prop_map(|(at, left)| Move::Retry(at, left)),
        2 => index().prop_map(Move::StepOf),
        1 => Just(Move::Sweep),
    ]
}

fn begun(plan: &Plan) -> Story {
    let json = json!({
        "rootAgentId": "ref.research", "plan": plan,
        "budgets": [{"category": "cost-units", "limit": 1_000}, {"category": "retrievals", "limit": 1_000}],
    });
    let submission = parse(json.to_string().as_bytes()).unwrap();
    Story::begins(accept(submission, submitted_by(), Vec::new()).unwrap())
}

fn pick<T: Clone>(at: &Index, among: &[T]) -> Option<T> {
    (!among.is_empty()).then(|| among[at.index(among.len())].clone())
}

/// Ready steps of one kind.
fn ready(story: &Story, calls: bool) -> Vec<String> {
    let ready = story.run.ready_to_bind(story.now).into_iter().map(|index| &story.run.plan.steps[index]);
    ready.filter(|step| step.kind.tool_id().is_some() == calls).map(|step| step.step_id.to_string()).collect()
}

fn open_calls(story: &Story) -> Vec<CallId> {
    story.run.open_calls().map(|call| call.call_id).collect()
}

fn commanded(story: &mut Story, command: &RunCommand) {
    if let Ok(events) = decide(&story.run, command, &story.context_of(&operator())) {
        story.write(events);
    }
}

fn apply(story: &mut Story, step: &Move) {
    let ready_call = |story: &Story, at| pick(at, &ready(story, true));
    match step {
        Move::Wait(ms) => story.now = story.now.plus_ms(*ms),
        Move::Call(at) => {
            if let Some(id) = ready_call(story, at) {
                story.call(&id);
            }
        }
        Move::Deny(at) => {
            if let Some(id) = ready_call(story, at) {
                let prepared = story.prepared(&id);
                story.asked(call::deny(&prepared, "no-matching-grant", "no", Vec::new(), story.now));
            }
        }
        Move::Throttle(at) => {
            if let Some(id) = ready_call(story, at) {
                story.throttles(&id, 30);
            }
        }
        Move::Exceed(at, kills) => {
            if let Some(id) = ready_call(story, at) {
                let prepared = story.prepared(&id);
                let budget_id = BudgetId::new("acme").unwrap();
                let blame = signalbox_domain::governance::gate::Blame::Budget {
                    budget_id: budget_id.clone(),
                    readings: vec![],
                };
                story.asked(if *kills {
                    call::kill(&story.run, &prepared, &blame, Vec::new(), story.now)
                } else {
                    call::pause_for_quota(&story.run, &prepared, &budget_id, &[], story.now)
                });
            }
        }
        Move::FailStep(at) => {
            if let Some(id) = ready_call(story, at) {
                let prepared = story.prepared(&id);
                story.write([call::fail_step(&prepared.step, "binding-not-found", "nowhere")]);
            }
        }
        Move::Ask(at) => {
            if let Some(id) = pick(at, &ready(story, false)) {
                story.asks(&id);
            }
        }
        Move::End(at, result) => {
            if let Some(call_id) = pick(at, &open_calls(story)) {
                story.settle(call_id, result.clone());
            }
        }
        Move::EndAgain(at, result) => {
            let known: Vec<_> = story.run.tool_calls.iter().map(|call| call.call_id).collect();
            if let Some(call_id) = pick(at, &known) {
                story.settle(call_id, result.clone());
            }
        }
        Move::Redispatch(at) => {
            let record = pick(at, &open_calls(story)).and_then(|call_id| story.run.call(call_id).cloned());
            if let Some(record) = record
                && let Recover::Redispatch { attempt } = recover(&story.run, &record)
            {
                let target = story.run.plan.step(&record.step_id).and_then(|step| story.run.target_of(step)).unwrap();
                story.asked(call::redispatch(&record, target, attempt, story.now));
            }
        }
        Move::Command(command) => commanded(story, command),
        Move::Choose(at) => {
            let way = pick(at, &["left", "right"]).unwrap();
            commanded(story, &crate::given::choose(way));
        }
        Move::Answer(at, decision) => {
            let open: Vec<_> = story.run.approvals.iter().filter(|a| a.is_open()).map(|a| a.approval_id).collect();
            if let Some(approval) = pick(at, &open) {
                commanded(story, &answer(approval, *decision));
            }
        }
        Move::Retry(at, left) => {
            let steps: Vec<_> = story.run.plan.steps.iter().map(|step| step.step_id.to_string()).collect();
            let branch = left.then(|| branch_id("left"));
            let to = pick(at, &steps).unwrap();
            commanded(story, &retry_with(&to, Overrides { branch, ..Overrides::default() }));
        }
        Move::StepOf(at) => {
            let steps: Vec<_> = story.run.plan.steps.iter().map(|step| step.step_id.to_string()).collect();
            commanded(story, &crate::given::one_step_of(&pick(at, &steps).unwrap()));
        }
        Move::Sweep => story.write(sweep::sweep(&story.run, &switch())),
    }
}

/// Everybody who is asked answers, every call ends, and time passes.
fn drain(story: &mut Story) {
    for _ in 0..500 {
        story.go_on();
        if story.run.closed {
            return;
        }
        if story.run.hold.is_some() {
            commanded(story, &resume());
        } else if let Some(call_id) = open_calls(story).first() {
            story.settle(*call_id, answered_with(json!(1), vec![]));
        } else if let Some(approval) = story.run.approvals.iter().find(|a| a.is_open()).map(|a| a.approval_id) {
            commanded(story, &answer(approval, ApprovalDecision::Approve));
        } else if story.run.steps.contains(&StepState::AwaitingBranch) {
            commanded(story, &crate::given::choose("left"));
        } else if let Some(id) = ready(story, true).first() {
            story.call(id);
        } else if let Some(id) = ready(story, false).first() {
            story.asks(id);
        } else {
            story.now = next_wake(&story.run).expect("a run that is not over waits for something").max(story.now);
        }
    }
    panic!("the run does not come to rest: {:?}", story.run.steps);
}

fn sum<'a>(charges: impl Iterator<Item = &'a Usage>) -> Usage {
    charges.fold(Usage::none(), |mut sum, charge| {
        sum.add(charge);
        sum
    })
}

/// What holds for a run at every event.
fn holds_at(run: &RunEnvelope) {
    let spent = sum(run.tool_calls.iter().map(|call| &call.charged));
    for category in BudgetCategory::ALL {
        assert_eq!(run.cost_ledger.counter(category), spent.get(category));
    }
    let total = |costs: &mut dyn Iterator<Item = &Micros>| costs.fold(Micros::ZERO, |sum, cost| sum.plus(*cost));
    assert_eq!(run.cost_ledger.total_cost_units, total(&mut run.cost_ledger.per_stage_cost_units.values()));
    assert_eq!(run.cost_ledger.total_cost_units, total(&mut run.cost_ledger.per_tool_cost_units.values()));
    for own in &run.run_budgets {
        let held = run.open_calls().flat_map(|call| &call.reservations);
        let held = held.filter(|reservation| reservation.budget_id == own.budget.budget_id);
        assert_eq!(own.meter.reserved, held.fold(Micros::ZERO, |sum, reservation| sum.plus(reservation.amount)));
        assert_eq!(own.meter.consumed, spent.get(own.budget.category));
    }
    assert!(!run.closed || run.open_calls().next().is_none());
    assert_eq!(run.status.is_terminal(), run.end.is_some());
}

/// What holds for a journal as a whole.
fn holds_for(story: &Story) {
    let mut replayed = begin(&story.events[0]).unwrap();
    for (event, live) in story.events.iter().zip(&story.past) {
        if event.seq > 1 {
            fold_one(&mut replayed, event).unwrap();
        }
        assert_eq!(&replayed, live, "the envelope is the fold of the journal at event {}", event.seq);
        holds_at(live);
    }
    for pair in story.past.windows(2).filter(|pair| pair[0].end.is_some()) {
        assert_eq!((pair[0].status, &pair[0].end), (pair[1].status, &pair[1].end), "terminal is final");
    }
    for pair in story.past.windows(2) {
        for category in BudgetCategory::ALL {
            assert!(pair[1].cost_ledger.counter(category) >= pair[0].cost_ledger.counter(category), "no counter falls");
        }
    }
    let report = verify(&tenant(), story.run.run_key, &story.events);
    assert_eq!(report.findings, []);
    let timeline = build_replay_timeline(&story.events).unwrap();
    assert!(timeline.iter().all(|entry| entry.from.may_lead_to(entry.to)));
    let snapshot: RunEnvelope = serde_json::from_slice(&serde_json::to_vec(&story.run).unwrap()).unwrap();
    assert_eq!(snapshot, story.run);
}

fn settlements(story: &Story) -> BTreeMap<CallId, (u32, u32)> {
    let mut counts: BTreeMap<CallId, (u32, u32)> = BTreeMap::new();
    for event in &story.events {
        let event = event.event().unwrap();
        if let RunEvent::CallPending(pending) = &event {
            counts.entry(pending.call_id).or_default().0 += 1;
        } else if let RunEvent::CallSettled(settled) = &event {
            counts.entry(settled.call_id).or_default().1 += 1;
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_run_keeps_its_promises_whatever_is_done_to_it_and_comes_to_rest(
        plan in any_plan(), moves in prop::collection::vec((any_move(), prop::bool::weighted(0.8)), 0..60)
    ) {
        let mut story = begun(&plan);
        for (step, goes_on) in &moves {
            let asks = matches!(
                step,
                Move::Call(_) | Move::Deny(_) | Move::Throttle(_) | Move::Exceed(..) | Move::FailStep(_) | Move::Ask(_)
            );
            // The gate is asked only after everything that is due has happened.
            if asks {
                story.go_on();
            }
            apply(&mut story, step);
            if *goes_on {
                story.go_on();
                prop_assert_eq!(advance(&story.run, story.now), []);
            }
        }
        drain(&mut story);
        holds_for(&story);
        for (call, counts) in settlements(&story) {
            prop_assert_eq!(counts, (1, 1), "call {} is admitted once and settled once", call);
        }
    }

    #[test]
    fn a_permitted_step_is_the_only_one_that_changes_while_a_run_is_held(
        plan in any_plan(), moves in prop::collection::vec(any_move(), 0..30), at in any::<Index>()
    ) {
        let mut story = begun(&plan);
        story.go_on();
        for step in &moves {
            apply(&mut story, step);
            story.go_on();
        }
        commanded(&mut story, &pause());
        story.go_on();
        let before = story.run.steps.clone();
        apply(&mut story, &Move::StepOf(at));
        story.go_on();
        if let (Some(permitted), true) = (story.run.permitted_step.clone(), story.run.end.is_none()) {
            prop_assert!(story.ready().iter().all(|id| *id == permitted.as_str()));
        }
        for id in ready(&story, true) {
            story.call(&id);
        }
        let changed = before.iter().zip(&story.run.steps).filter(|(before, after)| before != after).count();
        prop_assert!(story.run.hold.is_none() || changed <= 1);
    }
}
