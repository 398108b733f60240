//! What bodies look like. The OpenAPI document is generated from these types, their fields and these comments (EXE-017).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::Overrides;
use signalbox_domain::run::explain::Explanation;
use signalbox_domain::run::progress::CustomerSummary;
use signalbox_domain::run::submission::{RunBudget, Submission};

/// What `POST /v1/agentic/runs/execute` takes (EXE-005).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExecuteRequest {
    /// A UUID of the caller's choice, unique within its tenant; repeating the request under it answers the same run.
    pub(crate) run_id: String,
    /// Only compared with the tenant of the credential: another one is noted in the journal and changes nothing.
    pub(crate) tenant_id: String,
    /// The lead agent, such as `ref.research`.
    pub(crate) root_agent_id: String,
    /// The calls to make, at least one. Each waits for the one before it unless it says otherwise.
    #[schemars(length(min = 1))]
    pub(crate) plan: Vec<PlannedCall>,
    /// What `{"$from": "/inputs/…"}` in arguments reads.
    #[serde(default)]
    pub(crate) inputs: Value,
    /// Cost-quality mode; `balanced` if left out.
    #[serde(default)]
    pub(crate) mode: Option<String>,
    /// The pipeline this run is an instance of.
    #[serde(default)]
    pub(crate) pipeline_id: Option<String>,
    /// Its version.
    #[serde(default)]
    pub(crate) pipeline_semver: Option<String>,
    /// Limits for this run alone, one for each category.
    #[serde(default)]
    pub(crate) budgets: Vec<RunBudget>,
    /// Taken and without effect: who acts is what the credential says (EXE-007).
    #[serde(default)]
    #[expect(dead_code, reason = "taken, and never read (EXE-007)")]
    pub(crate) actor_id: Value,
    /// Taken and without effect: known on the server for each tool (EXE-008).
    #[serde(default)]
    #[expect(dead_code, reason = "taken, and never read (EXE-008)")]
    pub(crate) family: Value,
    /// Taken and without effect: known on the server for each tool (EXE-008).
    #[serde(default)]
    #[expect(dead_code, reason = "taken, and never read (EXE-008)")]
    pub(crate) provider_id: Value,
    /// Taken and without effect: known on the server for each tool (EXE-008).
    #[serde(default)]
    #[expect(dead_code, reason = "taken, and never read (EXE-008)")]
    pub(crate) region: Value,
}

/// One call of a plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PlannedCall {
    /// The tool, such as `memory.read`.
    pub(crate) tool_id: String,
    /// Its arguments.
    #[serde(default)]
    pub(crate) args: Value,
    /// Names the step; `call-1`, `call-2` and so on if left out.
    #[serde(default)]
    pub(crate) step_id: Option<String>,
    /// The agent whose authority is used; the lead agent if left out.
    #[serde(default)]
    pub(crate) agent_id: Option<String>,
    /// The steps that must be over before; the call before this one if left out.
    #[serde(default)]
    pub(crate) depends_on_step_ids: Option<Vec<String>>,
    /// True if the run goes on without it when it fails.
    #[serde(default)]
    pub(crate) optional: bool,
    /// Taken and without effect (EXE-008).
    #[serde(default)]
    #[expect(dead_code, reason = "taken, and never read (EXE-008)")]
    pub(crate) family: Value,
    /// Taken and without effect (EXE-008).
    #[serde(default)]
    #[expect(dead_code, reason = "taken, and never read (EXE-008)")]
    pub(crate) provider_id: Value,
    /// Taken and without effect (EXE-008).
    #[serde(default)]
    #[expect(dead_code, reason = "taken, and never read (EXE-008)")]
    pub(crate) region: Value,
}

/// What `POST /v1/runs` takes.
#[derive(Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "says what a submission with an id beside it looks like; it is read by the rules")]
pub(crate) struct SubmitRequest {
    /// A UUID of the caller's choice; makes the submission idempotent. Left out: the server chooses.
    run_id: Option<String>,
    /// What is to be done.
    #[serde(flatten)]
    submission: Submission,
}

/// What a submission lacks, and what its run would be (INV-003 to INV-006).
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreflightView {
    /// True if the run would be accepted: there is no gap.
    pub(crate) ok: bool,
    /// Everything it lacks.
    pub(crate) gaps: Vec<GapView>,
    /// The mode it would run in; absent if there is none of that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    /// The most it may spend, in cost units.
    pub(crate) max_cost_units: Micros,
    /// The most its calls may cost, each made once, in cost units.
    pub(crate) estimate_cost_units: Micros,
    /// The steps that a stand-in would answer: only in a rehearsal.
    pub(crate) simulated_step_ids: Vec<String>,
}

/// One thing a submission lacks.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GapView {
    /// Stable code, such as `missing-entitlement`.
    pub(crate) code: String,
    /// Which scope, source, mode, agent or step.
    pub(crate) subject: String,
    /// In words, with what would be right.
    pub(crate) message: String,
}

/// A run as it stands.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    /// The id.
    pub(crate) run_id: String,
    /// One of the eleven statuses, such as `awaiting_approval`.
    pub(crate) status: String,
    /// The tenant.
    pub(crate) tenant_id: String,
    /// The lead agent. Not for customers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) root_agent_id: Option<String>,
    /// The family of the lead agent. Not for customers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) family: Option<String>,
    /// The pipeline it is an instance of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pipeline_id: Option<String>,
    /// Microseconds since the Unix epoch.
    pub(crate) submitted_at_unix_micros: i64,
    /// When it was over, in microseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at_unix_micros: Option<i64>,
    /// The last event.
    pub(crate) last_seq: u64,
    /// Where it is shown on a board, such as `in-flight`.
    pub(crate) bucket: String,
    /// What it has cost, in cost units with at most six places. Not for customers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total_cost_units: Option<Micros>,
    /// In which band its cost lies. Not for customers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost_band: Option<String>,
    /// How long it has taken, in milliseconds.
    pub(crate) latency_ms: u64,
    /// In which band that lies.
    pub(crate) latency_band: String,
    /// True if there is something an operator should look at; told to operators alone.
    pub(crate) has_warnings: bool,
    /// Finished steps of all, in percent.
    pub(crate) percent: u32,
    /// What is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_for: Option<String>,
    /// True once nothing more can happen to it.
    pub(crate) closed: bool,
    /// What is offered in place of its answer, if a kill switch ended it that names a mode. Never in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) degradation: Option<Degradation>,
    /// All that is known of it: the fold of its journal. Shown from operators of the tenant up; never in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) envelope: Option<Box<RunEnvelope>>,
}

/// What whoever shows a run offers in place of its answer (KIL-011).
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Degradation {
    /// `cached-answer`, `read-only`, `queue-for-later` or `human-handover`.
    pub(crate) mode_id: String,
    /// What customers are shown.
    pub(crate) status_copy: String,
    /// What is offered: `last-answer`, `look-only`, `submit-later` or `person`.
    pub(crate) offer: String,
    /// The same in words.
    pub(crate) offer_text: String,
}

/// The stored run, and whether it was there before (EXE-010, EXE-016).
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubmittedRun {
    /// The run as it is stored.
    #[serde(flatten)]
    pub(crate) run: Run,
    /// True if it had been submitted before with the same content.
    pub(crate) replayed: bool,
    /// What whoever submits should know, such as an agent that is on its way out.
    pub(crate) warnings: Vec<String>,
}

/// A page of runs, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunPage {
    /// The runs.
    pub(crate) runs: Vec<Run>,
    /// For the next page; null: there is none.
    pub(crate) next_page_token: Option<String>,
}

/// An event of the journal.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// From 1 without gaps; the cursor.
    pub(crate) seq: u64,
    /// Microseconds since the Unix epoch.
    pub(crate) at_unix_micros: i64,
    /// Who caused it.
    pub(crate) actor_id: String,
    /// In which standing.
    pub(crate) actor_role: String,
    /// Who may see it.
    pub(crate) visibility: String,
    /// What happened, such as `call-pending`.
    pub(crate) kind: String,
    /// Version of the body.
    pub(crate) version: u32,
    /// What it says. The exact bytes that were hashed are in an export.
    pub(crate) body: Value,
    /// Lower-case hex.
    pub(crate) prev_hash: String,
    /// Lower-case hex.
    pub(crate) hash: String,
    /// One of the seventeen kinds of progress, such as `step_finished`.
    pub(crate) progress_kind: &'static str,
}

/// An event as customers are told of it: it has no body, actor or hash, and says in words how the run stands after it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToldEvent<'a> {
    /// From 1; customers are not shown every one.
    pub(crate) seq: u64,
    /// Microseconds since the Unix epoch.
    pub(crate) at_unix_micros: i64,
    /// Who may see it.
    pub(crate) visibility: &'static str,
    /// What happened, such as `run-started`.
    pub(crate) kind: String,
    /// One of the seventeen kinds of progress, such as `step_finished`.
    pub(crate) progress_kind: &'static str,
    /// Headline, percent, current step, and what is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<&'a CustomerSummary>,
}

/// What a running tool says; not part of the journal, never repeated.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProgressLine {
    /// The step.
    pub(crate) step_id: String,
    /// In words.
    pub(crate) message: String,
    /// 0 to 100, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) percent: Option<u8>,
    /// One of the seventeen kinds of progress: `tool_called` for the words of a tool.
    pub(crate) progress_kind: &'static str,
}

/// The last word of a stream of events: the run is closed, and nothing will follow.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndOfEvents {
    /// The run.
    pub(crate) run_id: String,
    /// How it ended.
    pub(crate) status: String,
    /// The last event there is.
    pub(crate) last_seq: u64,
}

/// What every control takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ControlRequest {
    /// Why; kept, redacted, in the journal.
    #[serde(default)]
    pub(crate) reason: String,
    /// The last event the caller has seen: if there are newer ones, the control is denied. Left out: whatever has
    /// happened.
    #[serde(default)]
    pub(crate) expected_seq: Option<u64>,
    /// A UUID that names the command: saying it twice is harmless. Left out: the server chooses.
    #[serde(default)]
    pub(crate) command_id: String,
}

/// A choice of the branch that a run waits for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ChooseBranchRequest {
    /// The branch.
    pub(crate) branch_id: String,
    /// The branch step; left out if only one waits.
    #[serde(default)]
    pub(crate) step_id: String,
    /// As for every control.
    #[serde(default)]
    pub(crate) reason: String,
    /// As for every control.
    #[serde(default)]
    pub(crate) expected_seq: Option<u64>,
    /// As for every control.
    #[serde(default)]
    pub(crate) command_id: String,
}

/// Going back to a step and doing it and all that follows again, under overrides.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RetryRequest {
    /// The first step to do again.
    pub(crate) step_id: String,
    /// An object of `params`, `modelBinding`, `mode` and `branch`, each of which may be left out.
    #[serde(default)]
    #[schemars(with = "Option<Overrides>")]
    pub(crate) overrides: Option<Value>,
    /// As for every control.
    #[serde(default)]
    pub(crate) reason: String,
    /// As for every control.
    #[serde(default)]
    pub(crate) expected_seq: Option<u64>,
    /// As for every control.
    #[serde(default)]
    pub(crate) command_id: String,
}

/// Letting one step of a paused run go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StepRequest {
    /// The step; left out: the first that is ready.
    #[serde(default)]
    pub(crate) step_id: String,
    /// As for every control.
    #[serde(default)]
    pub(crate) reason: String,
    /// As for every control.
    #[serde(default)]
    pub(crate) expected_seq: Option<u64>,
    /// As for every control.
    #[serde(default)]
    pub(crate) command_id: String,
}

/// Making another run of one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ForkRequest {
    /// The id of the new run, a UUID that is not in use.
    #[serde(default)]
    pub(crate) run_id: String,
    /// As for every control.
    #[serde(default)]
    pub(crate) reason: String,
    /// As for every control.
    #[serde(default)]
    pub(crate) expected_seq: Option<u64>,
    /// As for every control.
    #[serde(default)]
    pub(crate) command_id: String,
}

/// A run that was steered.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SteeredRun {
    /// The run that has this status: the one that was steered, or the new one of a fork.
    pub(crate) run_id: String,
    /// Its status after that.
    pub(crate) status: String,
    /// The journal's last event when it was answered.
    pub(crate) seq: u64,
}

/// A run as it stood.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replay {
    /// The run.
    pub(crate) run_id: String,
    /// The event after which it is shown.
    pub(crate) at_seq: u64,
    /// The fold of its journal up to there.
    pub(crate) envelope: Box<RunEnvelope>,
}

/// Why a run came as it did, told from its journal.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Explained(pub(crate) Explanation);

/// Open questions, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalList {
    /// The questions.
    pub(crate) approvals: Vec<Approval>,
}

/// A question to people.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Approval {
    /// The question.
    pub(crate) approval_id: String,
    /// The run that waits.
    pub(crate) run_id: String,
    /// The step that waits.
    pub(crate) step_id: String,
    /// Who may answer, such as `operator`.
    pub(crate) requirement: String,
    /// In words.
    pub(crate) prompt: String,
    /// `gate` or `unknown-call-outcome`.
    pub(crate) reason: String,
    /// Who of those may answer; all of them if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approvers: Option<ApproversView>,
    /// What the decision is bound to.
    pub(crate) subject_digest: String,
    /// Milliseconds since the Unix epoch.
    pub(crate) requested_at_unix_ms: i64,
    /// When half of the time to answer is over.
    pub(crate) remind_at_unix_ms: i64,
    /// True once that has been recorded.
    pub(crate) reminded: bool,
    /// When silence becomes a no.
    pub(crate) expires_at_unix_ms: i64,
}

/// Who is named to answer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApproversView {
    /// These people.
    pub(crate) actor_ids: Vec<String>,
    /// Holders of these standings.
    pub(crate) roles: Vec<String>,
}

/// One question, open or not, with what it is about.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QuestionView {
    /// The question.
    #[serde(flatten)]
    pub(crate) approval: Approval,
    /// `open`, `approved`, `rejected`, `skipped` or `lapsed`.
    pub(crate) state: String,
    /// What it is about, redacted. Left out unless the caller may answer it or is an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<Value>,
    /// The calls that a yes lets through, each once and with exactly these arguments.
    pub(crate) actions: Vec<Action>,
    /// True if the caller is among those who may answer.
    pub(crate) may_decide: bool,
    /// Who answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decided_by: Option<String>,
    /// Why, in their words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision_reason: Option<String>,
}

/// A call that waits for a yes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Action {
    /// The step that makes it.
    pub(crate) step_id: String,
    /// Under whose authority.
    pub(crate) agent_id: String,
    /// With which tool.
    pub(crate) tool_id: String,
    /// Digest of the arguments, bound and unredacted.
    pub(crate) args_hash: String,
}

/// An answer to a question.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DecideRequest {
    /// The answer.
    pub(crate) decision: Decision,
    /// Why.
    #[serde(default)]
    pub(crate) reason: String,
    /// What the decider saw; if given and different, the answer is refused.
    #[serde(default)]
    pub(crate) subject_digest: String,
    /// A UUID that names the command: saying it twice is harmless. Left out: the server chooses.
    #[serde(default)]
    pub(crate) command_id: String,
}

/// What can be answered.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    /// Yes; for an unknown outcome: send the call anew.
    Approve,
    /// No; for an unknown outcome: the step failed.
    Reject,
    /// For an unknown outcome only: take the step as done.
    Skip,
}

/// A question that was answered.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Decided {
    /// The question.
    pub(crate) approval_id: String,
    /// The run.
    pub(crate) run_id: String,
    /// Its status after the decision.
    pub(crate) status: String,
    /// The last event when the decision was carried out.
    pub(crate) seq: u64,
}
