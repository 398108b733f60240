//! The controls: which are accepted where, by whom, and what each leaves behind (CTL).

use serde_json::json;
use signalbox_domain::canonical;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::RunId;
use signalbox_domain::run::control::{control, may_control};
use signalbox_domain::run::decide::{Context, Denial, REASON_BYTES_MAX, RunCommand, decide};
use signalbox_domain::run::event::{ControlApplied, ControlKind, RunControlAuditEvent, RunEvent};
use signalbox_domain::run::status::RunStatus;
use uuid::Uuid;

use crate::given::{
    Story, actor, answered, branch_id, cancel, choose, fork_in_the_road, gate, kill, one_step, operator, pause, resume,
    retry, step_id, submitter, tool,
};

/// The seven controls of a run's own journal; `fork` makes another run.
fn controls() -> [RunCommand; 7] {
    [pause(), resume(), cancel(), kill(), choose("left"), retry("first"), one_step()]
}

/// What each control says in each of the seven live statuses, in the order of [`RunStatus::ALL`].
const ACCEPTED: [(&str, [&str; 7]); 7] = {
    const P: &str = "invalid-status-for-pause";
    const R: &str = "invalid-status-for-resume";
    const B: &str = "invalid-status-for-branch";
    const T: &str = "invalid-status-for-retry";
    const S: &str = "invalid-status-for-step";
    // queued, starting, running, paused, awaiting_approval, awaiting_tool, awaiting_branch_selection
    [
        ("pause", ["ok", "ok", "ok", P, P, "ok", "ok"]),
        ("resume", [R, R, R, "ok", R, R, R]),
        ("cancel", ["ok"; 7]),
        ("kill", ["ok"; 7]),
        ("choose-branch", [B, B, B, B, B, B, "ok"]),
        ("retry-with-changes", [T, T, T, "ok", "ok", T, "ok"]),
        ("operator-step", [S, S, S, "ok", S, S, S]),
    ]
};

#[test]
fn every_control_is_accepted_in_its_statuses_and_denied_by_its_code_in_the_others() {
    for (command, (name, answers)) in controls().iter().zip(ACCEPTED) {
        assert_eq!(serde_json::to_value(command).unwrap()["command"], name);
        for (status, wanted) in RunStatus::ALL.into_iter().zip(answers) {
            let story = Story::standing(status);
            assert_eq!(story.says(command), wanted, "{name} of a run that is {}", status.as_str());
        }
    }
}

#[test]
fn any_control_of_a_run_that_is_over_is_denied_as_terminal() {
    for status in RunStatus::ALL.into_iter().filter(|status| status.is_terminal()) {
        let story = Story::standing(status);
        for command in controls() {
            assert_eq!(story.says(&command), "run-terminal", "{command:?} of a run that is {}", status.as_str());
        }
    }
}

#[test]
fn a_denial_changes_nothing_and_the_same_input_gives_the_same_output() {
    for status in RunStatus::ALL {
        let story = Story::standing(status);
        for command in controls() {
            let before = story.run.clone();
            let context = story.context_of(&operator());
            let first = control(&story.run, &command, &context);
            assert_eq!(first, control(&story.run, &command, &context));
            assert_eq!(story.run, before);
        }
    }
}

fn applied(story: &Story, command: &RunCommand) -> RunControlAuditEvent {
    let result = control(&story.run, command, &story.context_of(&operator())).unwrap();
    assert_eq!(result.audit.to_status, result.envelope.status, "{command:?}");
    result.audit
}

#[test]
fn each_control_leaves_an_audit_record_of_its_own_kind_with_the_statuses_it_went_through() {
    use RunStatus as S;
    let cases = [
        (pause(), S::Running, "pause", S::Paused),
        (resume(), S::Paused, "resume", S::Running),
        (cancel(), S::Running, "cancel", S::Cancelled),
        (kill(), S::Running, "kill", S::Killed),
        (choose("left"), S::AwaitingBranchSelection, "branch-chosen", S::Running),
        (retry("first"), S::Paused, "retry-with-changes", S::Running),
        (one_step(), S::Paused, "operator-step", S::Paused),
    ];
    for (command, from, kind, to) in cases {
        let audit = applied(&Story::standing(from), &command);
        assert_eq!(serde_json::to_value(audit.kind).unwrap(), kind);
        assert_eq!((audit.from_status, audit.to_status), (from, to), "{kind}");
    }
}

#[test]
fn cancel_and_kill_end_a_run_from_every_live_status() {
    for status in RunStatus::ALL.into_iter().filter(|status| !status.is_terminal()) {
        for (command, end) in [(cancel(), RunStatus::Cancelled), (kill(), RunStatus::Killed)] {
            let mut story = Story::standing(status);
            story.command(command).unwrap();
            assert_eq!(story.status(), end);
        }
    }
}

#[test]
fn retry_leads_to_running_from_every_status_that_allows_it() {
    for status in [RunStatus::Paused, RunStatus::AwaitingApproval, RunStatus::AwaitingBranchSelection] {
        let story = Story::standing(status);
        assert_eq!(applied(&story, &retry("first")).to_status, RunStatus::Running, "from {}", status.as_str());
    }
    // Nothing has been done since the run was taken up; it is running all the same.
    let mut story = Story::standing(RunStatus::Starting);
    story.command(pause()).unwrap();
    assert_eq!(applied(&story, &retry("first")).to_status, RunStatus::Running);
}

#[test]
fn there_are_eight_kinds_of_audit_records() {
    use ControlKind as K;
    let kinds =
        [K::Pause, K::Resume, K::Cancel, K::Kill, K::BranchChosen, K::Fork, K::RetryWithChanges, K::OperatorStep];
    let names = ["pause", "resume", "cancel", "kill", "branch-chosen", "fork", "retry-with-changes", "operator-step"];
    for (kind, name) in kinds.into_iter().zip(names) {
        assert_eq!(serde_json::to_value(kind).unwrap(), name);
    }
    assert!(serde_json::from_value::<ControlKind>(json!("stop")).is_err());
}

#[test]
fn an_audit_record_says_who_when_from_where_to_where_why_and_by_which_command() {
    let story = Story::standing(RunStatus::Running);
    let secret = "ghp_FAKE00000000000000000000000000000000";
    let command = RunCommand::Pause { reason: format!("use {secret}") };
    let audit = serde_json::to_value(applied(&story, &command)).unwrap();
    let mut names: Vec<_> = audit.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let wanted = [
        "actorId",
        "atUnixMs",
        "auditEventId",
        "commandHash",
        "fromStatus",
        "kind",
        "reasonText",
        "role",
        "runId",
        "toStatus",
    ];
    assert_eq!(names, wanted);
    assert_eq!(audit["auditEventId"], format!("{}/{}", story.run.run_id, story.run.last_seq + 1));
    assert_eq!((audit["actorId"].as_str(), audit["role"].as_str()), (Some("otto"), Some("tenant-operator")));
    assert_eq!(audit["atUnixMs"], story.now.0);
    assert!(!audit["reasonText"].as_str().unwrap().contains("FAKE"), "a reason is no place for secrets");
    let hash = canonical::digest(&serde_json::to_value(&command).unwrap()).unwrap();
    assert_eq!(audit["commandHash"], hash);
}

#[test]
fn the_audit_record_names_the_event_that_holds_it() {
    let mut story = Story::standing(RunStatus::Running);
    story.command(pause()).unwrap();
    let event = story.events.last().unwrap();
    let Some(RunEvent::ControlApplied(applied)) = event.event() else { panic!("no control") };
    assert_eq!(applied.audit.audit_event_id, format!("{}/{}", story.run.run_id, event.seq));
}

#[test]
fn the_end_of_a_killed_run_names_the_switch_or_budget_behind_it() {
    let mut story = Story::standing(RunStatus::Running);
    let blamed_id = Some("switch-7".to_owned());
    story.command(RunCommand::Kill { reason: "it harms".to_owned(), blamed_id: blamed_id.clone() }).unwrap();
    let end = story.run.end.unwrap();
    assert_eq!((end.blamed_id, end.message.as_deref()), (blamed_id, Some("it harms")));
}

#[test]
fn a_result_that_came_while_paused_counts_before_the_resume() {
    let mut story = Story::standing(RunStatus::AwaitingTool);
    let call = story.run.open_calls().next().unwrap().call_id;
    story.command(pause()).unwrap();
    story.end(call, answered(json!({"n": 1})));
    assert_eq!(story.status(), RunStatus::Paused);
    assert!(story.ready().is_empty(), "nothing new begins while paused");
    story.command(resume()).unwrap();
    assert_eq!(story.status(), RunStatus::Running);
    assert_eq!(story.ready(), ["second"]);
    assert_eq!(story.kinds_from(1).iter().filter(|kind| **kind == "call-settled").count(), 1);
}

#[test]
fn an_unknown_branch_is_denied() {
    assert_eq!(Story::standing(RunStatus::AwaitingBranchSelection).says(&choose("straight")), "no-such-branch");
}

#[test]
fn a_branch_step_that_does_not_wait_cannot_be_chosen_at() {
    let story = Story::standing(RunStatus::AwaitingBranchSelection);
    let at = |id: &str| RunCommand::ChooseBranch {
        step_id: Some(step_id(id)),
        branch_id: branch_id("left"),
        reason: String::new(),
    };
    assert_eq!(story.says(&at("first")), "ok");
    assert_eq!(story.says(&at("ghost")), "invalid-status-for-branch");
}

#[test]
fn a_branch_can_be_chosen_while_other_steps_are_at_work_but_not_in_a_held_run() {
    let mut story = Story::started(vec![fork_in_the_road("way", &["left"], &[]), tool("work", &[])]);
    assert_eq!(story.status(), RunStatus::Running);
    assert_eq!(story.says(&choose("left")), "ok");
    story.command(pause()).unwrap();
    assert_eq!(story.says(&choose("left")), "invalid-status-for-branch");
}

#[test]
fn a_kill_needs_a_reason_and_no_reason_is_endless() {
    let story = Story::standing(RunStatus::Running);
    assert_eq!(story.says(&RunCommand::Kill { reason: " \n".to_owned(), blamed_id: None }), "reason-required");
    assert_eq!(story.says(&RunCommand::Pause { reason: "x".repeat(REASON_BYTES_MAX) }), "ok");
    assert_eq!(story.says(&RunCommand::Pause { reason: "x".repeat(REASON_BYTES_MAX + 1) }), "reason-too-long");
}

#[test]
fn a_caller_that_looked_at_an_older_run_can_ask_to_be_refused() {
    let story = Story::standing(RunStatus::Running);
    let seen = |expected_seq| {
        let context = Context { expected_seq, ..story.context_of(&operator()) };
        decide(&story.run, &pause(), &context).map_or_else(|denial| denial.code(), |_| "ok")
    };
    assert_eq!(seen(Some(story.run.last_seq)), "ok");
    assert_eq!(seen(Some(story.run.last_seq - 1)), "stale-revision");
    assert_eq!(seen(Some(story.run.last_seq + 1)), "stale-revision");
    assert_eq!(seen(None), "ok");
}

#[test]
fn roles_and_controls_form_a_matrix_of_thirty_two() {
    use ControlKind as K;
    let kinds =
        [K::Pause, K::Resume, K::Cancel, K::Kill, K::BranchChosen, K::Fork, K::RetryWithChanges, K::OperatorStep];
    let mild = [true, true, true, false, true, false, false, false];
    let run = Story::standing(RunStatus::Running).run;
    for (role, own) in [
        (Role::PlatformOperator, [true; 8]),
        (Role::TenantOperator, [true; 8]),
        (Role::Creator, mild),
        (Role::Customer, mild),
        (Role::Service, mild),
    ] {
        for (kind, may) in kinds.into_iter().zip(own) {
            assert_eq!(may_control(&actor("ann", role), kind, &run), may, "{} {kind:?} of an own run", role.as_str());
            let operates = matches!(role, Role::PlatformOperator | Role::TenantOperator);
            let foreign = may_control(&actor("bob", role), kind, &run);
            assert_eq!(foreign, operates, "{} {kind:?} of somebody else's run", role.as_str());
        }
    }
}

#[test]
fn a_role_that_may_not_do_it_is_told_so() {
    let mut story = Story::standing(RunStatus::Running);
    let deny = |story: &mut Story, by: &Actor, command| story.command_by(by, command).unwrap_err().code();
    assert_eq!(deny(&mut story, &submitter(), kill()), "not-authorized");
    assert_eq!(deny(&mut story, &actor("bob", Role::Customer), cancel()), "not-authorized");
    story.command_by(&submitter(), cancel()).unwrap();
    assert_eq!(story.status(), RunStatus::Cancelled);
}

#[test]
fn there_are_twelve_control_denials_each_with_its_code() {
    let status = RunStatus::Running;
    let denials = [
        (Denial::RunTerminal(status), "run-terminal"),
        (Denial::InvalidStatusForPause(status), "invalid-status-for-pause"),
        (Denial::NoSuchBranch(branch_id("x")), "no-such-branch"),
        (Denial::ForkWithoutFreshId, "fork-without-fresh-id"),
        (Denial::InvalidStatusForResume(status), "invalid-status-for-resume"),
        (Denial::InvalidStatusForBranch(status), "invalid-status-for-branch"),
        (Denial::InvalidStatusForRetry(status), "invalid-status-for-retry"),
        (Denial::InvalidStatusForStep(status), "invalid-status-for-step"),
        (Denial::NoSuchStep, "no-such-step"),
        (Denial::OverrideNotAllowed(String::new()), "override-not-allowed"),
        (Denial::NotAuthorized { role: Role::Customer }, "not-authorized"),
        (Denial::StaleRevision { expected: 1, actual: 2 }, "stale-revision"),
    ];
    for (denial, code) in denials {
        assert_eq!(denial.code(), code);
        assert!(!denial.to_string().is_empty());
    }
}

#[test]
fn a_command_survives_the_inbox_and_unknown_fields_do_not_get_in() {
    for command in controls() {
        let json = serde_json::to_value(&command).unwrap();
        assert_eq!(serde_json::from_value::<RunCommand>(json).unwrap(), command);
    }
    let unknown = json!({"command": "pause", "reason": "x", "tenantId": "other"});
    assert!(serde_json::from_value::<RunCommand>(unknown).is_err());
    assert!(serde_json::from_value::<RunCommand>(json!({"command": "explode", "reason": "x"})).is_err());
}

#[test]
fn what_stops_the_next_admission_by_itself_is_pause_cancel_and_kill() {
    let stops: Vec<_> = controls().iter().map(RunCommand::stops).collect();
    assert_eq!(stops, [true, false, true, true, false, false, false]);
}

#[test]
fn an_approval_is_decided_but_is_no_control() {
    let mut story = Story::started(vec![gate("gate", &[])]);
    let approval = story.asks("gate");
    let command = crate::given::answer(approval, signalbox_domain::run::event::ApprovalDecision::Approve);
    let context = story.context_of(&operator());
    assert_eq!(control(&story.run, &command, &context).unwrap_err().code(), "decision-not-allowed");
    assert!(decide(&story.run, &command, &context).is_ok());
}

#[test]
fn every_control_is_an_event_of_its_actor() {
    let story = Story::standing(RunStatus::Running);
    for new in story.decides(&kill()) {
        assert_eq!(new.actor, operator());
        if let RunEvent::ControlApplied(applied) = new.event {
            let ControlApplied { audit, .. } = *applied;
            assert_eq!(audit.run_id, RunId::new(Uuid::from_u128(7)));
        }
    }
}

#[test]
fn a_command_lies_in_the_inbox_without_what_looks_like_a_secret() {
    let secret = "ghp_FAKE00000000000000000000000000000000";
    let step = |id: &str| signalbox_domain::ids::StepId::new(id).unwrap();
    let branch = |id: &str| signalbox_domain::ids::BranchId::new(id).unwrap();
    let reason = || format!("use {secret}");
    let overrides = |params: serde_json::Value| serde_json::from_value(params).unwrap();
    let kept = [
        RunCommand::Pause { reason: reason() },
        RunCommand::Resume { reason: reason() },
        RunCommand::Cancel { reason: reason() },
        RunCommand::Kill { reason: reason(), blamed_id: Some(secret.to_owned()) },
        RunCommand::ChooseBranch { step_id: None, branch_id: branch("on"), reason: reason() },
        RunCommand::OperatorStep { step_id: Some(step("a")), reason: reason() },
        RunCommand::RetryWithChanges {
            step_id: step("a"),
            overrides: overrides(
                serde_json::json!({"mode": secret, "modelBinding": secret, "params": {"a": {"n": 1}}}),
            ),
            reason: reason(),
        },
    ];
    for command in kept {
        let said = serde_json::to_string(&command.redacted().unwrap()).unwrap();
        assert!(!said.contains("FAKE") && said.contains("[redacted:api_key]"), "{said}");
    }
    let refused = [
        (RunCommand::OperatorStep { step_id: Some(step(secret)), reason: reason() }, "no-such-step"),
        (RunCommand::ChooseBranch { step_id: None, branch_id: branch(secret), reason: reason() }, "no-such-branch"),
        (
            RunCommand::RetryWithChanges {
                step_id: step("a"),
                overrides: overrides(serde_json::json!({"params": {"a": {"password": "FAKE"}}})),
                reason: reason(),
            },
            "override-not-allowed",
        ),
    ];
    for (command, code) in refused {
        let denial = command.redacted().unwrap_err();
        assert_eq!(denial.code(), code);
        assert!(!denial.to_string().contains("FAKE"));
    }
}
