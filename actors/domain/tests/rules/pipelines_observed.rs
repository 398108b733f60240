//! What the last runs of a pipeline came to, and where they differ from it (PIP-029, PIP-030).

use std::sync::Arc;

use serde_json::json;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, AgentId, ApprovalId, PipelineId, RunId, RunKey, TenantId};
use signalbox_domain::mode::{ComplianceBreach, Mode, ModeCompliance};
use signalbox_domain::pipeline::{
    DeviationKind, PipelineRegistry, PipelineSpec, REPORT_RUNS, build_pipeline_observability_report,
    detect_pipeline_deviation, expand,
};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::envelope::{ApprovalRecord, RunEnvelope};
use signalbox_domain::run::event::{ApprovalDecision, ApprovalReason, StoredValue};
use signalbox_domain::run::evolve::submitted_run;
use signalbox_domain::run::plan::StepKind;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;
use signalbox_domain::run::submission::{PlanInput, Submission, Submitter, accept};
use signalbox_domain::time::{UnixMicros, UnixMs};
use uuid::Uuid;

const COURSE: &str = "metis.course_from_byom";

fn spec() -> &'static PipelineSpec {
    PipelineRegistry::shipped().get(&PipelineId::new(COURSE).unwrap()).unwrap()
}

/// A run of the course as it should go: every step done, every gate passed.
fn run(number: u128, latency_ms: u64, cost: i64) -> RunEnvelope {
    let spec = spec();
    let input = json!({"material": ["/a"], "learner": "minor"});
    let plan = expand(spec, &input).unwrap();
    let submission: Submission = serde_json::from_value(json!({
        "rootAgentId": spec.root_agent_id(), "plan": plan, "mode": "exhaustive", "inputs": {"input": input},
        "pipelineId": COURSE, "pipelineSemver": "1.0.0",
    }))
    .unwrap();
    assert!(matches!(submission.plan, PlanInput::Plan(_)));
    let submitter = Submitter {
        run_key: RunKey::new(Uuid::from_u128(number)),
        run_id: RunId::new(Uuid::from_u128(number)),
        tenant_id: TenantId::new("acme").unwrap(),
        actor: Actor { actor_id: ActorId::new("ada").unwrap(), role: Role::PlatformOperator },
        scopes: Vec::new(),
        surface: "api".to_owned(),
    };
    let mut run = submitted_run(&accept(submission, submitter, Vec::new()).unwrap(), UnixMicros(1));
    for state in &mut run.steps {
        *state = StepState::Done { output: None, branch_id: None };
    }
    run.approvals = spec.mandatory_approval_gates.iter().map(|gate| passed(gate.step_id.as_str())).collect();
    run.status = RunStatus::Completed;
    run.cost_ledger.total_cost_units = Micros::units(cost);
    run.compliance = Some(ModeCompliance {
        mode: Mode::Exhaustive,
        cost_units: Micros::units(cost),
        max_cost_units: Micros::units(50_000),
        latency_ms,
        p95_latency_budget_ms: 1_800_000,
        breaches: Vec::new(),
    });
    run
}

fn passed(step: &str) -> ApprovalRecord {
    let plan = expand(spec(), &json!({"material": ["/a"], "learner": "minor"})).unwrap();
    let step = plan.steps.into_iter().find(|own| own.step_id.as_str() == step).unwrap();
    let StepKind::Approval { requirement, .. } = step.kind else { panic!("it asks") };
    ApprovalRecord {
        approval_id: ApprovalId::new(Uuid::from_u128(9)),
        step_id: step.step_id,
        requirement,
        approvers: None,
        prompt: String::new(),
        reason: ApprovalReason::Gate,
        call_id: None,
        subject: StoredValue::Inline(json!(null)),
        subject_digest: String::new(),
        actions: Vec::new(),
        requested_at_unix_ms: UnixMs(1),
        remind_at_unix_ms: UnixMs(2),
        reminded: false,
        expires_at_unix_ms: UnixMs(3),
        decision: Some(ApprovalDecision::Approve),
        decided_by: None,
        decision_reason: None,
        lapsed: false,
    }
}

fn kinds(run: &RunEnvelope) -> Vec<(DeviationKind, String)> {
    detect_pipeline_deviation(spec(), run).into_iter().map(|found| (found.kind, found.subject)).collect()
}

fn of_stage(run: &mut RunEnvelope, stage: &str, change: impl Fn(&mut signalbox_domain::run::plan::Step)) {
    let steps = &mut Arc::make_mut(&mut run.plan).steps;
    for step in steps.iter_mut().filter(|step| step.stage().as_str() == stage) {
        change(step);
    }
}

#[test]
fn a_run_that_is_as_its_pipeline_has_it_shows_no_deviation() {
    assert_eq!(kinds(&run(1, 10, 50)), []);
}

#[test]
fn each_kind_of_deviation_is_found_alone() {
    use DeviationKind::{
        CostOverCap, DepthDeviation, EvaluationBelowBar, GateSkipped, LatencyOverBudget, MissingStage, UnexpectedAgent,
    };
    let found = |change: &dyn Fn(&mut RunEnvelope)| {
        let mut run = run(1, 10, 50);
        change(&mut run);
        kinds(&run)
    };
    let own = |text: &str| text.to_owned();
    // The lessons were not handed on.
    let shallow = found(&|run| {
        of_stage(run, "lessons", |step| step.agent_id = Some(AgentId::new("ref.course-generation").unwrap()));
    });
    assert_eq!(shallow, [(DepthDeviation, own("1"))]);
    let missing = found(&|run| {
        let at = run.plan.steps.iter().position(|step| step.step_id.as_str() == "assessments").unwrap();
        run.steps[at] = StepState::Skipped { reason: own("left out"), branch_not_taken: false };
    });
    assert_eq!(missing, [(MissingStage, own("assessments"))]);
    let stranger = found(&|run| {
        of_stage(run, "art", |step| step.agent_id = Some(AgentId::new("ref.translation").unwrap()));
    });
    assert_eq!(stranger, [(UnexpectedAgent, own("ref.translation"))]);
    let skipped = found(&|run| run.approvals.retain(|asked| asked.step_id.as_str() != "edit.guardian"));
    assert_eq!(skipped, [(GateSkipped, own("edit.guardian"))]);
    let dear = found(&|run| run.cost_ledger.total_cost_units = Micros::units(20_001));
    assert_eq!(dear, [(CostOverCap, own("20001.0"))]);
    let breach = |breach: ComplianceBreach| found(&move |run| run.compliance.as_mut().unwrap().breaches = vec![breach]);
    assert_eq!(breach(ComplianceBreach::LatencyExceeded), [(LatencyOverBudget, own("10"))]);
    assert_eq!(breach(ComplianceBreach::EvaluationBelowBar), [(EvaluationBelowBar, own("exhaustive"))]);
    assert_eq!(DeviationKind::ALL.map(DeviationKind::as_str).len(), 7);
}

#[test]
fn optional_stages_may_be_missing_and_a_run_that_was_stopped_skipped_nothing() {
    let mut whole = run(1, 10, 50);
    for (step, state) in whole.plan.clone().steps.iter().zip(&mut whole.steps) {
        if step.optional {
            *state = StepState::Skipped { reason: "not configured".to_owned(), branch_not_taken: false };
        }
    }
    assert_eq!(kinds(&whole), []);
    let mut stopped = run(2, 10, 50);
    stopped.status = RunStatus::Failed;
    stopped.steps.iter_mut().for_each(|state| *state = StepState::Pending);
    stopped.approvals.clear();
    assert_eq!(kinds(&stopped), []);
}

#[test]
fn a_gate_that_the_input_does_not_ask_for_is_not_missed() {
    let mut run = run(1, 10, 50);
    run.inputs = Arc::new(json!({"input": {"material": ["/a"], "learner": "class"}}));
    run.approvals.retain(|asked| asked.step_id.as_str() != "edit.guardian");
    assert_eq!(kinds(&run), []);
}

#[test]
fn the_report_counts_what_was_measured() {
    let mut runs: Vec<RunEnvelope> = (1..=20).map(|n| run(n, u64::try_from(n).unwrap() * 100, 10)).collect();
    runs[0].status = RunStatus::Failed;
    runs[0].approvals[3].decision = Some(ApprovalDecision::Reject);
    runs[1].compliance.as_mut().unwrap().cost_units = Micros::units(30);
    runs[2].approvals[0].decision = None;
    runs[2].approvals[0].lapsed = true;
    runs[3].pipeline_semver = Some("0.9.0".to_owned());
    let report = build_pipeline_observability_report(spec(), &runs);
    assert_eq!((report.runs, report.of_other_versions), (20, 1));
    assert_eq!(report.by_status, [("completed".to_owned(), 19), ("failed".to_owned(), 1)].into());
    assert_eq!((report.latency_p50_ms, report.latency_p95_ms), (Some(1_000), Some(1_900)));
    assert_eq!((report.cost_mean, report.cost_max), (Some(Micros::units(11)), Some(Micros::units(30))));
    assert_eq!((report.gates_asked, report.gates_passed), (80, 78));
    assert_eq!(report.gate_pass_rate, Some(Micros(975_000)));
    // The one whose question lapsed, yet completed, was let through without a yes.
    assert_eq!(report.by_deviation, [("gate-skipped".to_owned(), 1)].into());
}

#[test]
fn the_last_fifty_count_and_rehearsals_and_other_pipelines_do_not() {
    let mut runs: Vec<RunEnvelope> = (1..=60).map(|n| run(n, 10, 10)).collect();
    runs[0].mode = "rehearsal-dry-run".to_owned();
    runs[1].pipeline_id = Some(PipelineId::new("nyx.event_explainer_set").unwrap());
    let report = build_pipeline_observability_report(spec(), &runs);
    assert_eq!((report.runs, REPORT_RUNS), (50, 50));
    assert_eq!(report.run_ids.first(), Some(&RunId::new(Uuid::from_u128(3))));
    assert_eq!(report.run_ids.last(), Some(&RunId::new(Uuid::from_u128(52))));
}

#[test]
fn a_report_of_nothing_has_no_figures() {
    let report = build_pipeline_observability_report(spec(), []);
    assert_eq!((report.runs, report.latency_p50_ms, report.cost_mean, report.gate_pass_rate), (0, None, None, None));
}
