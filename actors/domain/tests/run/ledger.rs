//! The cost ledger: integers that never fall, and sums that always agree.

use proptest::prelude::*;
use serde_json::json;
use signalbox_domain::catalog::{V1_TOOL_IDS, base_price, catalog, entry, price};
use signalbox_domain::governance::budget::{BudgetVerdict, check_budget};
use signalbox_domain::ids::StageId;
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::event::CallOutcome;
use signalbox_domain::run::ledger::RunCostLedger;
use signalbox_domain::run::plan::Step;
use signalbox_domain::run::settle::charge;
use signalbox_domain::run::submission::{Submission, accept, parse};

use crate::given::{Story, answered, calling, failed, measuring, micros, plan, submitted_by, tool, tool_id};

const COST: BudgetCategory = BudgetCategory::CostUnits;

fn stage(name: &str) -> StageId {
    StageId::new(name).unwrap()
}

fn posted(charge: &Usage) -> RunCostLedger {
    let mut ledger = RunCostLedger::default();
    ledger.post(&stage("draft"), &tool_id("web.fetch"), charge);
    ledger
}

/// A run with budgets of its own, `10` cost units and `3` look-ups.
fn budgeted(steps: Vec<Step>) -> Story {
    let json = json!({
        "rootAgentId": "ref.research", "plan": plan(steps),
        "budgets": [{"category": "cost-units", "limit": 10}, {"category": "retrievals", "limit": 3}],
    });
    let submission: Submission = parse(json.to_string().as_bytes()).unwrap();
    let mut story = Story::begins(accept(submission, submitted_by(), vec![]).unwrap());
    story.go_on();
    story
}

#[test]
fn the_ledger_has_the_ten_fields_of_the_original_and_one_of_ours() {
    let json = serde_json::to_value(RunCostLedger::default()).unwrap();
    let mut names: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
    names.sort();
    let mut wanted = [
        "totalCostUnits",
        "perStageCostUnits",
        "perToolCostUnits",
        "inputTokenCount",
        "outputTokenCount",
        "gpuMinutes",
        "voiceSeconds",
        "avatarSeconds",
        "retrievalCount",
        "externalCallCount",
        "storageBytes",
    ];
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    let envelope = serde_json::to_value(Story::queued(vec![tool("a", &[])]).run).unwrap();
    assert_eq!(envelope["costLedger"], json);
}

#[test]
fn a_charge_in_a_category_moves_its_own_counter_and_no_other() {
    for charged in BudgetCategory::ALL {
        let ledger = posted(&Usage::of(charged, Micros::units(3)));
        for category in BudgetCategory::ALL {
            let wanted = if category == charged { Micros::units(3) } else { Micros::ZERO };
            assert_eq!(ledger.counter(category), wanted, "{} by {}", category.as_str(), charged.as_str());
        }
    }
}

#[test]
fn a_written_artifact_counts_its_bytes_in_ledger_and_budget_category_alike() {
    let ledger = posted(&Usage::of(BudgetCategory::StorageBytes, Micros::units(1_024)));
    assert_eq!(serde_json::to_value(&ledger).unwrap()["storageBytes"], 1_024);
    assert_eq!(ledger.counter(BudgetCategory::StorageBytes), Micros::units(1_024));
}

#[test]
fn a_millionth_a_million_times_is_exactly_one() {
    let mut ledger = RunCostLedger::default();
    let (stage, tool, charge) = (stage("a"), tool_id("web.fetch"), Usage::of(COST, micros(0.000_001)));
    for _ in 0..1_000_000 {
        ledger.post(&stage, &tool, &charge);
    }
    assert_eq!(ledger.total_cost_units, Micros::units(1));
    assert_eq!(ledger.per_tool_cost_units[&tool], Micros::units(1));
}

#[test]
fn ten_charges_of_a_tenth_print_as_one() {
    let mut ledger = RunCostLedger::default();
    for _ in 0..10 {
        ledger.post(&stage("a"), &tool_id("web.fetch"), &Usage::of(COST, micros(0.1)));
    }
    assert_eq!(ledger.total_cost_units.to_string(), "1.0");
    assert_eq!(serde_json::to_value(&ledger).unwrap()["totalCostUnits"], 1);
}

#[test]
fn every_attempt_posts_to_total_stage_tool_category_and_meter_in_one_entry() {
    let mut story = budgeted(vec![tool("ok", &[]), tool("fails", &[]), tool("denied", &[])]);
    for (step, result) in [("ok", answered(json!(1))), ("fails", failed("x"))] {
        let call = story.call(step);
        let before = story.run.clone();
        let seq = before.last_seq;
        story.settle(call, measuring(&[(COST, 0.5), (BudgetCategory::Retrievals, 1.0)], result));
        assert_eq!(story.kinds_from(seq + 1), ["call-settled"]);
        let (was, is) = (&before.cost_ledger, &story.run.cost_ledger);
        let zero = Micros::ZERO;
        assert_eq!(is.total_cost_units.minus(was.total_cost_units), micros(0.5));
        assert_eq!(is.per_stage_cost_units[&stage(step)], micros(0.5));
        let memory = tool_id("memory.read");
        assert_eq!(
            is.per_tool_cost_units[&memory].minus(*was.per_tool_cost_units.get(&memory).unwrap_or(&zero)),
            micros(0.5)
        );
        assert_eq!(is.retrieval_count.minus(was.retrieval_count), Micros::units(1));
        let consumed = |run: &signalbox_domain::run::envelope::RunEnvelope| run.run_budgets[0].meter.consumed;
        assert_eq!(consumed(&story.run).minus(consumed(&before)), micros(0.5));
        assert_eq!(story.run.run_budgets[0].meter.reserved, zero);
    }
    let before = story.run.cost_ledger.clone();
    story.denies("denied", "no-matching-grant");
    let after = &story.run.cost_ledger;
    assert_eq!(after.total_cost_units, before.total_cost_units);
    assert_eq!(after.per_stage_cost_units[&stage("denied")], Micros::ZERO, "the attempt is there, at no cost");
    assert_eq!(story.run.tool_calls.last().unwrap().outcome, CallOutcome::Denied);
}

#[test]
fn no_plan_spends_its_opening_balance_twice() {
    // Three calls of 6 with a budget of 10, each asked about after the one before has settled.
    let mut story = budgeted(vec![tool("one", &[]), tool("two", &["one"]), tool("three", &["two"])]);
    let asks = |story: &Story| {
        let own = &story.run.run_budgets[0];
        check_budget(&own.budget, &own.meter, Micros::units(6), story.now.0 / 1_000)
    };
    assert_eq!(asks(&story), BudgetVerdict::Ok);
    let prepared = story.prepared("one");
    let mut admissible = story.admissible(&prepared);
    admissible.ceiling = Usage::of(COST, Micros::units(6));
    admissible.reservations[0].amount = Micros::units(6);
    story.asked(signalbox_domain::run::call::admit(&prepared, &admissible, story.now));
    assert_eq!(asks(&story), BudgetVerdict::Exceeded, "what is reserved counts at once");
    story.end(prepared.call_id, answered(json!(1)));
    assert_eq!(story.run.run_budgets[0].meter.consumed, Micros::units(6));
    assert_eq!(asks(&story), BudgetVerdict::Exceeded, "what was used counts before the next admission");

    let own = &story.run.run_budgets[0];
    let blame = signalbox_domain::governance::gate::Blame::Budget {
        budget_id: own.budget.budget_id.clone(),
        readings: vec![own.reading(Micros::units(6))],
    };
    let ask = signalbox_domain::run::call::kill(&story.run, &story.prepared("two"), &blame, vec![], story.now);
    story.asked(ask);
    story.go_on();
    let end = story.run.end.clone().unwrap();
    assert_eq!((end.status.as_str(), end.code.as_deref()), ("killed", Some("budget-exceeded")));
    assert_eq!(story.run.tool_calls.len(), 2, "the third call was never asked about");
}

#[test]
fn the_price_table_covers_all_tools() {
    let prices = [
        (0, &["approval.request", "agent.terminate"][..]),
        (
            1,
            &[
                "memory.read",
                "memory.write",
                "file.read",
                "file.write",
                "calendar.read",
                "calendar.write",
                "notify.send",
                "handoff",
            ],
        ),
        (2, &["web.fetch", "source.fetch", "persona.invoke", "composition.suggest"]),
        (3, &["sophia.ground"]),
        (5, &["sophia.fact_check", "themis.adjudicate"]),
        (10, &["code.exec"]),
        (15, &["generate.audio"]),
        (20, &["generate.image"]),
        (200, &["generate.video"]),
    ];
    assert_eq!(prices.iter().map(|(_, tools)| tools.len()).sum::<usize>(), V1_TOOL_IDS.len());
    for (units, tools) in prices {
        for tool in tools {
            assert_eq!(base_price(&tool_id(tool)), Micros::units(units), "{tool}");
            assert_eq!(entry(&tool_id(tool)).unwrap().ceiling.get(COST), Micros::units(units), "{tool}");
        }
    }
    let tokens = price(&tool_id("persona.invoke"), 2_000, 500).minus(base_price(&tool_id("persona.invoke")));
    assert_eq!(tokens, Micros::units(4));
}

#[test]
fn one_call_of_each_tool_moves_the_counters_of_its_kind_alone() {
    for tool in catalog() {
        let charge = charge(&tool.ceiling, &answered(json!(1)));
        let mut ledger = RunCostLedger::default();
        ledger.post(&stage("a"), &tool.tool_id, &charge.charged);
        let name = tool.tool_id.as_str();
        let looks_up = name.starts_with("sophia.") || ["source.fetch", "memory.read"].contains(&name);
        let goes_out = name.starts_with("generate.") || ["web.fetch", "source.fetch", "notify.send"].contains(&name);
        assert_eq!(ledger.retrieval_count > Micros::ZERO, looks_up, "{name}");
        assert_eq!(ledger.external_call_count > Micros::ZERO, goes_out, "{name}");
    }
}

#[test]
fn the_reservation_of_a_call_is_held_on_the_runs_own_meter_until_it_is_settled_once() {
    let mut story = budgeted(vec![calling("sophia.ground", json!({}), "a", &[])]);
    let call = story.call("a");
    let meter = |story: &Story| (story.run.run_budgets[0].meter.consumed, story.run.run_budgets[0].meter.reserved);
    assert_eq!(meter(&story), (Micros::ZERO, Micros::units(3)));
    let release = story.settle(call, measuring(&[(COST, 1.0)], answered(json!(1)))).unwrap();
    assert_eq!(release.reservations, [], "shared meters carried nothing of it");
    assert_eq!(meter(&story), (Micros::units(1), Micros::ZERO));
    story.settle(call, measuring(&[(COST, 1.0)], answered(json!(1))));
    assert_eq!(meter(&story), (Micros::units(1), Micros::ZERO));
}

proptest! {
    #[test]
    fn total_and_both_sums_agree_after_every_charge_and_no_counter_falls(
        charges in prop::collection::vec((0..4_usize, 0..4_usize, 0..9_usize, 0..10_000_000_000_i64, 0..5_000_000_i64), 0..60)
    ) {
        let mut ledger = RunCostLedger::default();
        for (stage_at, tool, category, amount, cost) in charges {
            let before = ledger.clone();
            let usage = Usage::of(BudgetCategory::ALL[category], Micros(amount)).with(COST, Micros(cost));
            ledger.post(&stage(&format!("stage{stage_at}")), &tool_id(V1_TOOL_IDS[tool]), &usage);
            let sum = |amounts: &mut dyn Iterator<Item = &Micros>| amounts.fold(Micros::ZERO, |sum, cost| sum.plus(*cost));
            prop_assert_eq!(ledger.total_cost_units, sum(&mut ledger.per_stage_cost_units.values()));
            prop_assert_eq!(ledger.total_cost_units, sum(&mut ledger.per_tool_cost_units.values()));
            for category in BudgetCategory::ALL {
                prop_assert_eq!(ledger.counter(category), before.counter(category).plus(usage.get(category)));
                prop_assert!(ledger.counter(category) >= before.counter(category));
            }
        }
    }
}
