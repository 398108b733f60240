//! Who may set which budget, and what a wish comes to.

use signalbox_domain::governance::budget::{
    Budget, BudgetScope, BudgetVerdict, Meter, MeteredBudget, check_budget, roll,
};
use signalbox_domain::governance::budgeting::{BudgetDenial, Expected, Known, Putting, may_see, put, retire, top_up};
use signalbox_domain::governance::calendar::{Calendar, CalendarUnit};
use signalbox_domain::governance::switching::{Operator, Reach};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, TenantId};
use signalbox_domain::quantity::{BudgetCategory, Micros};

use crate::common::budget;

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn actor(role: Role) -> Actor {
    Actor { actor_id: ActorId::new("p").unwrap(), role }
}

fn on_tool(limit: i64) -> Budget {
    Budget { tenant_id: None, scope: BudgetScope::Tool, scope_key: "web.fetch".to_owned(), ..budget("b", limit) }
}

fn asked(role: Role, wish: Budget, reach: Reach) -> Result<Putting, BudgetDenial> {
    let (tenant, actor) = (tenant("acme"), actor(role));
    put(wish, reach, "why", Expected::Any, Operator { tenant_id: &tenant, actor: &actor }, None, None)
}

fn metered(budget: Budget) -> MeteredBudget {
    MeteredBudget::unused(budget)
}

#[test]
fn a_tenants_operator_sets_budgets_inside_its_tenant_and_not_the_tenants_own() {
    let Ok(Putting::Put(own)) = asked(Role::TenantOperator, on_tool(10), Reach::Own) else { panic!("put") };
    assert_eq!(own.tenant_id, Some(tenant("acme")));
    let whole = Budget { scope: BudgetScope::Tenant, scope_key: "acme".to_owned(), ..on_tool(10) };
    for (wish, reach) in
        [(whole.clone(), Reach::Own), (on_tool(10), Reach::Platform), (on_tool(10), Reach::Tenant(tenant("other")))]
    {
        assert_eq!(asked(Role::TenantOperator, wish, reach).unwrap_err().code(), "not-authorized");
    }
    for role in [Role::Customer, Role::Creator, Role::Service] {
        assert_eq!(asked(role, on_tool(10), Reach::Own).unwrap_err().code(), "not-authorized");
    }
    let Ok(Putting::Put(named)) = asked(Role::PlatformOperator, whole, Reach::Own) else { panic!("put") };
    assert_eq!(named.tenant_id, Some(tenant("acme")));
    let Ok(Putting::Put(wide)) = asked(Role::PlatformOperator, on_tool(10), Reach::Platform) else { panic!("put") };
    assert_eq!(wide.tenant_id, None);
}

#[test]
fn another_tenants_budget_is_as_absent_as_none() {
    let (acme, tina) = (tenant("acme"), actor(Role::TenantOperator));
    let by = Operator { tenant_id: &acme, actor: &tina };
    assert!(may_see(by, &Budget { tenant_id: Some(tenant("acme")), ..on_tool(1) }));
    assert!(may_see(by, &on_tool(1)), "a platform-wide one counts her calls too");
    assert!(!may_see(by, &Budget { tenant_id: Some(tenant("other")), ..on_tool(1) }));
    let names = Budget { scope: BudgetScope::Tenant, scope_key: "other".to_owned(), ..on_tool(1) };
    assert!(!may_see(by, &names));
}

#[test]
fn each_scope_takes_only_keys_that_can_be_one_of_it() {
    let cases = [
        (BudgetScope::Tenant, "acme", "no spaces"),
        (BudgetScope::Role, "creator", "emperor"),
        (BudgetScope::Agent, "ref.research", "no spaces"),
        (BudgetScope::Run, "0190d6a8-3c1e-7bbb-8f5e-00000000000f", "run-1"),
        (BudgetScope::Tool, "web.fetch", "web.fetchh"),
        (BudgetScope::User, "olga", "no spaces"),
        (BudgetScope::Pipeline, "veritas.weekly", "no spaces"),
    ];
    for (scope, good, bad) in cases {
        for category in BudgetCategory::ALL {
            let wish = Budget { scope, scope_key: good.to_owned(), category, ..on_tool(1) };
            assert!(asked(Role::PlatformOperator, wish, Reach::Own).is_ok(), "{scope:?} {category:?}");
        }
        let wish = Budget { scope, scope_key: bad.to_owned(), ..on_tool(1) };
        let denial = asked(Role::PlatformOperator, wish, Reach::Tenant(tenant("acme"))).unwrap_err();
        assert!(["budget-scope-key-invalid", "budget-two-tenants"].contains(&denial.code()), "{scope:?}: {denial:?}");
    }
}

#[test]
fn of_two_who_edit_one_budget_the_second_is_told() {
    let (acme, ada) = (tenant("acme"), actor(Role::PlatformOperator));
    let by = Operator { tenant_id: &acme, actor: &ada };
    let known = metered(Budget { tenant_id: Some(acme.clone()), ..on_tool(10) });
    let known = Known { metered: &known, revision: 7 };
    let change = |expected, limit| put(on_tool(limit), Reach::Own, "why", expected, by, Some(known), None);
    assert!(matches!(change(Expected::Revision(7), 20), Ok(Putting::Put(_))));
    assert_eq!(change(Expected::Revision(6), 20), Err(BudgetDenial::StaleRevision { expected: 6, actual: 7 }));
    assert_eq!(change(Expected::None, 20).unwrap_err().code(), "budget-exists");
    assert_eq!(change(Expected::Any, 10), Ok(Putting::Unchanged));
    let stale = Expected::Revision(6);
    assert_eq!(top_up(Micros::units(1), "why", stale, by, known).unwrap_err().code(), "stale-revision");
    assert_eq!(retire("why", stale, by, known).unwrap_err().code(), "stale-revision");
    assert_eq!(retire(" ", Expected::Any, by, known).unwrap_err().code(), "reason-required");
}

#[test]
fn what_a_budget_is_for_and_kept_in_never_changes_under_its_id() {
    let (acme, ada) = (tenant("acme"), actor(Role::PlatformOperator));
    let by = Operator { tenant_id: &acme, actor: &ada };
    let kept = Budget { tenant_id: Some(acme.clone()), ..on_tool(10) };
    let tokens = Budget { category: BudgetCategory::InputTokens, ..on_tool(10) };
    let other = Budget { scope_key: "source.fetch".to_owned(), ..on_tool(10) };
    let known = metered(kept.clone());
    for (of, retired) in [(Some(Known { metered: &known, revision: 1 }), None), (None, Some(&kept))] {
        let change = |wish: &Budget| put(wish.clone(), Reach::Own, "why", Expected::Any, by, of, retired).unwrap_err();
        assert_eq!(change(&tokens).code(), "budget-category-fixed");
        assert_eq!(change(&other).code(), "budget-id-conflict");
    }
}

#[test]
fn a_top_up_adds_something_that_can_be_counted() {
    let (acme, ada) = (tenant("acme"), actor(Role::PlatformOperator));
    let by = Operator { tenant_id: &acme, actor: &ada };
    let known = metered(on_tool(10));
    let top = |amount| top_up(amount, "why", Expected::Any, by, Known { metered: &known, revision: 1 });
    assert_eq!(top(Micros(1_500_000)).unwrap().limit, Micros(11_500_000));
    for amount in [Micros::ZERO, Micros(-1), Micros(i64::MAX), Micros(9_007_199_254_740_993)] {
        assert_eq!(top(amount).unwrap_err().code(), "budget-amount-invalid", "{amount:?}");
    }
}

#[test]
fn a_limit_below_what_is_held_admits_nothing_until_the_meter_is_below_it_again() {
    let lowered = on_tool(10);
    let mut meter = Meter { reserved: Micros::units(12), ..Meter::default() };
    let verdict = |meter: &Meter| check_budget(&lowered, meter, Micros::units(1), 0);
    assert_eq!(verdict(&meter), BudgetVerdict::Exceeded);
    meter.reserved = Micros::units(5);
    assert_eq!(verdict(&meter), BudgetVerdict::Ok);
}

#[test]
fn a_cap_added_to_a_meter_with_past_spend_opens_a_fresh_window_once() {
    // Spent 80 for life; then 50 a day.
    let mut meter = Meter { consumed: Micros::units(80), ..Meter::default() };
    let daily = Budget { period_seconds: Some(86_400), ..on_tool(50) };
    let now = 1_800_000_000;
    roll(&daily, &mut meter, now);
    assert_eq!(meter.consumed, Micros::ZERO);
    meter.consumed = Micros::units(5);
    roll(&daily, &mut meter, now + 1);
    assert_eq!(meter.consumed, Micros::units(5), "put again, nothing is forgiven again");
}

fn at(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_second()
}

#[test]
fn calendar_windows_begin_at_midnight_where_the_budget_lives() {
    let window = |unit, zone: &str, now: &str| {
        let calendar = Calendar { unit, time_zone: zone.to_owned() };
        calendar.window(at(now)).unwrap()
    };
    let table = [
        (CalendarUnit::Day, "Europe/Berlin", "2026-07-15T22:30:00Z", "2026-07-15T22:00:00Z", "2026-07-16T22:00:00Z"),
        (CalendarUnit::Day, "UTC", "2026-07-15T22:30:00Z", "2026-07-15T00:00:00Z", "2026-07-16T00:00:00Z"),
        // The day on which clocks go forward has 23 hours, the one on which they go back 25.
        (CalendarUnit::Day, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        (CalendarUnit::Day, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        // A midnight that does not exist: the day begins an hour later.
        (CalendarUnit::Day, "America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"),
        (CalendarUnit::Week, "UTC", "2026-11-29T12:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"),
        (CalendarUnit::Week, "UTC", "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"),
        (
            CalendarUnit::Month,
            "America/New_York",
            "2026-02-01T04:59:59Z",
            "2026-01-01T05:00:00Z",
            "2026-02-01T05:00:00Z",
        ),
        (CalendarUnit::Month, "UTC", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        (CalendarUnit::Year, "Asia/Tokyo", "2026-12-31T15:00:00Z", "2026-12-31T15:00:00Z", "2027-12-31T15:00:00Z"),
    ];
    for (unit, zone, now, starts, next) in table {
        assert_eq!(window(unit, zone, now), (at(starts), at(next)), "{unit:?} {zone} {now}");
    }
}

#[test]
fn a_calendar_needs_a_zone_by_its_name_and_no_length_beside_it() {
    let with = |zone: &str, period_seconds| Budget {
        calendar: Some(Calendar { unit: CalendarUnit::Day, time_zone: zone.to_owned() }),
        period_seconds,
        ..on_tool(1)
    };
    assert!(with("Europe/Berlin", None).validate().is_ok());
    for budget in [with("Mars/Base", None), with("+02:00", None), with("", None), with("Europe/Berlin", Some(60))] {
        assert_eq!(budget.validate().unwrap_err().code(), "budget-calendar-invalid");
    }
    // Instants that no calendar has move no window.
    let mut meter = Meter { consumed: Micros(1), ..Meter::default() };
    roll(&with("Europe/Berlin", None), &mut meter, i64::MAX);
    assert_eq!(meter.consumed, Micros(1));
}
