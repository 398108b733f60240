//! What each subscriber is shown of a run (DSH-008 to DSH-011).

use serde_json::json;
use signalbox_domain::catalog::catalog;
use signalbox_domain::identity::{Actor, Role, Visibility};
use signalbox_domain::ids::{RunKey, TenantId};
use signalbox_domain::registry::AGENT_FAMILIES;
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::plan::Step;
use signalbox_domain::run::progress::{
    PROGRESS_VISIBILITY, ProgressKind, RUN_PROGRESS_KINDS, progress_kind, progress_kind_of_stored,
    should_deliver_to_subscriber, summarize_for_customer,
};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMicros;

use crate::given::{Story, agent, answered, calling, failed, fork_in_the_road, gate, pause, tenant, tool};
use crate::golden::every_event;

/// DSH-009 and DSH-010: kind, and who is shown it.
const KINDS: [(&str, &str); 17] = [
    ("run_queued", "customer"),
    ("run_started", "customer"),
    ("step_started", "customer"),
    ("step_finished", "customer"),
    ("tool_called", "tenant-operator"),
    ("tool_result", "tenant-operator"),
    ("approval_requested", "customer"),
    ("branch_offered", "customer"),
    ("handoff", "tenant-operator"),
    ("budget_warning", "tenant-operator"),
    ("throttled", "tenant-operator"),
    ("narration", "customer"),
    ("output_ready", "customer"),
    ("run_paused", "customer"),
    ("run_resumed", "customer"),
    ("run_finished", "customer"),
    ("operator_note", "platform-operator"),
];

#[test]
fn there_are_seventeen_kinds_of_progress() {
    for (kind, (name, visibility)) in RUN_PROGRESS_KINDS.into_iter().zip(KINDS) {
        assert_eq!(serde_json::to_value(kind).unwrap(), name);
        assert!(name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()));
        assert_eq!((kind.as_str(), kind.visibility().as_str()), (name, visibility));
    }
    let table = PROGRESS_VISIBILITY.map(|(kind, visibility)| (kind.as_str(), visibility.as_str()));
    assert_eq!(table, KINDS);
    assert!(serde_json::from_value::<ProgressKind>(json!("debug")).is_err());
}

#[test]
fn a_subscriber_is_shown_what_is_at_or_below_its_rank_and_of_its_tenant() {
    let ranks = [
        (Role::Customer, "customer"),
        (Role::Creator, "creator"),
        (Role::TenantOperator, "tenant-operator"),
        (Role::PlatformOperator, "platform-operator"),
    ];
    let order = ["customer", "creator", "tenant-operator", "platform-operator"];
    let rank = |name: &str| order.iter().position(|known| *known == name).unwrap();
    let other = TenantId::new("other").unwrap();
    for kind in RUN_PROGRESS_KINDS {
        for (role, sees) in ranks {
            let shown = rank(kind.visibility().as_str()) <= rank(sees);
            assert_eq!(
                should_deliver_to_subscriber(kind.visibility(), &tenant(), role, &tenant()),
                shown,
                "{kind:?} to {sees}"
            );
            assert!(
                !should_deliver_to_subscriber(kind.visibility(), &other, role, &tenant()),
                "{kind:?} of another tenant to {sees}"
            );
        }
    }
    assert_eq!(Role::Service.sees(), Visibility::Creator);
}

#[test]
fn events_between_operators_never_reach_customers() {
    for event in every_event() {
        let kind = progress_kind(&event);
        let customer = event.visibility() == Visibility::Customer;
        assert_eq!(customer, kind.visibility() == Visibility::Customer, "{} is {kind:?}", event.encode().0);
    }
}

#[test]
fn the_progress_of_a_stored_event_is_that_of_what_it_says() {
    let stored = |(kind, body): (String, Vec<u8>)| StoredEvent {
        run_key: RunKey::new(uuid::Uuid::nil()),
        seq: 1,
        at: UnixMicros(0),
        actor: Actor::system(),
        visibility: Visibility::Customer,
        kind,
        version: 1,
        body,
        prev_hash: EventHash::ZERO,
        hash: EventHash::ZERO,
    };
    for event in every_event() {
        let encoded = event.encode();
        assert_eq!(progress_kind_of_stored(&stored(encoded.clone())), progress_kind(&event), "{}", encoded.0);
    }
    let unknown = stored(("something-later".to_owned(), b"{}".to_vec()));
    assert_eq!(progress_kind_of_stored(&unknown), ProgressKind::OperatorNote);
}

#[test]
fn an_operator_of_the_tenant_is_shown_every_event_of_its_runs() {
    for event in every_event() {
        assert!(
            should_deliver_to_subscriber(event.visibility(), &tenant(), Role::TenantOperator, &tenant()),
            "{}",
            event.encode().0
        );
    }
}

#[test]
fn a_summary_counts_finished_steps_rounded_down() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &[]), tool("c", &[])]);
    assert_eq!(summarize_for_customer(&story.run).percent, 0);
    story.does("a", answered(json!(1)));
    let summary = summarize_for_customer(&story.run);
    assert_eq!((summary.percent, summary.current_step.as_deref()), (33, Some("step 2 of 3")));
    story.does("b", answered(json!(1)));
    assert_eq!(summarize_for_customer(&story.run).percent, 66);
    story.does("c", answered(json!(1)));
    let summary = summarize_for_customer(&story.run);
    assert_eq!((summary.percent, summary.current_step, summary.waiting_for), (100, None, None));
}

#[test]
fn a_summary_says_what_the_run_waits_for() {
    let waits = |status| summarize_for_customer(&Story::standing(status).run).waiting_for;
    assert_eq!(waits(RunStatus::AwaitingApproval).as_deref(), Some("a decision"));
    assert_eq!(waits(RunStatus::AwaitingBranchSelection).as_deref(), Some("a choice of branch"));
    assert_eq!(waits(RunStatus::Paused).as_deref(), Some("somebody to resume it"));
    for status in [RunStatus::Queued, RunStatus::Starting, RunStatus::Running, RunStatus::Completed, RunStatus::Killed]
    {
        assert_eq!(waits(status), None, "{}", status.as_str());
    }
    let mut throttled = Story::started(vec![tool("a", &[])]);
    throttled.throttles("a", 60);
    assert_eq!(summarize_for_customer(&throttled.run).waiting_for.as_deref(), Some("its turn"));
}

#[test]
fn a_summary_has_four_fields_and_nothing_else() {
    let json = serde_json::to_value(summarize_for_customer(&Story::standing(RunStatus::Paused).run)).unwrap();
    let mut names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["currentStep", "headline", "percent", "waitingFor"]);
}

/// A run whose steps and stages are all named after the tool they call.
fn runs_of(tool_name: &str) -> Vec<Story> {
    let step = || Step { agent_id: Some(agent("ref.research")), ..calling(tool_name, json!({}), tool_name, &[]) };
    let with = |others: Vec<Step>| Story::started([vec![step()], others].concat());
    let mut stories = vec![with(vec![]), with(vec![gate("g", &[])]), with(vec![fork_in_the_road("f", &["x"], &[])])];
    let mut denied = with(vec![]);
    denied.denies(tool_name, "no-matching-grant");
    let mut broken = with(vec![]);
    broken.does(tool_name, failed(tool_name));
    let mut done = with(vec![]);
    done.does(tool_name, answered(json!(1)));
    let mut paused = with(vec![]);
    paused.command(pause()).unwrap();
    let mut long = with(vec![]);
    long.call(tool_name);
    long.after_ms(6_000);
    let mut throttled = with(vec![]);
    throttled.throttles(tool_name, 60);
    stories.extend([denied, broken, done, paused, long, throttled]);
    stories
}

#[test]
fn a_summary_names_no_tool_and_no_agent_of_the_catalog_and_no_cost() {
    for entry in catalog() {
        for story in runs_of(entry.tool_id.as_str()) {
            let shown = serde_json::to_string(&summarize_for_customer(&story.run)).unwrap();
            for tool in catalog() {
                assert!(!shown.contains(tool.tool_id.as_str()), "{shown}");
            }
            for family in AGENT_FAMILIES {
                assert!(!shown.contains(&format!("ref.{family}")), "{shown}");
            }
            assert!(!shown.to_lowercase().contains("cost"), "{shown}");
        }
    }
}

#[test]
fn every_status_has_a_headline_of_its_own_or_shares_it_with_one_that_looks_the_same() {
    for status in RunStatus::ALL {
        let headline = summarize_for_customer(&Story::standing(status).run).headline;
        assert!(headline.starts_with("Your run"), "{headline}");
        assert!(headline.ends_with('.'), "{headline}");
    }
}
