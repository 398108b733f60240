//! The one table of what can be asked over HTTP.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use signalbox_domain::run::submission::Submission;

use super::admin::{ArmRequest, Armed, DisarmRequest, Disarmed, Snapshot, SwitchList};
use super::call::{Answered, Call};
use super::compliance::{self, ModeComplianceView};
use super::feedback::{GoldEntry, GoldRequest, RolloutRequest, RolloutView};
use super::shapes::{
    ApprovalList, ChooseBranchRequest, ControlRequest, DecideRequest, Decided, EndOfEvents, Event, ExecuteRequest,
    Explained, ForkRequest, PreflightView, ProgressLine, QuestionView, Replay, RetryRequest, Run, RunPage, SteeredRun,
    StepRequest, SubmitRequest, SubmittedRun, ToldEvent,
};
use super::{admin, approvals, events, execute, feedback, openapi, runs};
use crate::api::ErrorKind::{
    self, Conflict, Invalid, NotFound, Overloaded, PermissionDenied, PreconditionFailed, Unavailable, Unconfigured,
};

/// How something is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Reads.
    Get,
    /// Changes something.
    Post,
}

impl Verb {
    /// The methods that reach it.
    pub(super) const fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Get => &["GET", "HEAD"],
            Self::Post => &["POST"],
        }
    }
    /// Its key in an OpenAPI document.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
        }
    }
}

/// A parameter of the query, or a header.
pub(super) struct Parameter {
    /// Its name.
    pub(super) name: &'static str,
    /// Its type in JSON Schema.
    pub(super) kind: &'static str,
    /// True if it may stand several times.
    pub(super) repeated: bool,
    /// True if it must be given.
    pub(super) required: bool,
    /// What it means.
    pub(super) about: &'static str,
}

impl Parameter {
    const fn text(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "string", repeated: false, required: false, about }
    }
    const fn texts(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "string", repeated: true, required: false, about }
    }
    const fn flag(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "boolean", repeated: false, required: false, about }
    }
    const fn number(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "integer", repeated: false, required: false, about }
    }
}

/// Makes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What an operation answers with if all is well.
pub(super) struct Answer {
    /// The status.
    pub(super) status: &'static str,
    /// When.
    pub(super) about: &'static str,
    /// The media type; empty if there is no body.
    pub(super) media: &'static str,
    /// The body.
    pub(super) schema: Option<SchemaOf>,
}

/// The code of a problem, and its kind, which the one table turns into a status.
pub(super) type Code = (&'static str, ErrorKind);

/// Something that can be asked.
pub(super) struct Operation {
    /// How.
    pub(super) verb: Verb,
    /// Where; ids of the path in braces.
    pub(super) path: &'static str,
    /// Its name in the OpenAPI document.
    pub(super) id: &'static str,
    /// What it does.
    pub(super) about: &'static str,
    /// True if anybody may ask, without a credential.
    pub(super) open: bool,
    /// What may stand behind the `?`.
    pub(super) query: &'static [Parameter],
    /// Headers that mean something to it.
    pub(super) headers: &'static [Parameter],
    /// What it takes.
    pub(super) body: Option<SchemaOf>,
    /// What it answers with.
    pub(super) answers: &'static [Answer],
    /// Codes of its own problems, beside those that every operation may answer with.
    pub(super) problems: &'static [Code],
    /// What is done.
    pub(super) handler: fn(Call) -> Answered,
}

const fn ok<T: JsonSchema>(about: &'static str) -> Answer {
    Answer { status: "200", about, media: "application/json", schema: Some(schema_of::<T>) }
}

const fn created<T: JsonSchema>(about: &'static str) -> Answer {
    Answer { status: "201", about, media: "application/json", schema: Some(schema_of::<T>) }
}

const NONE: &[Parameter] = &[];
const RUN_PROBLEMS: &[Code] = &[("no-such-run", NotFound)];
const CONTROL_PROBLEMS: &[Code] = &[
    ("no-such-run", NotFound),
    ("not-authorized", PermissionDenied),
    ("stale-revision", Conflict),
    ("run-terminal", PreconditionFailed),
    ("command-id-conflict", Conflict),
    ("reason-required", Invalid),
    ("reason-too-long", Invalid),
];

const fn control<T: JsonSchema>(
    path: &'static str,
    id: &'static str,
    about: &'static str,
    handler: fn(Call) -> Answered,
) -> Operation {
    Operation {
        verb: Verb::Post,
        path,
        id,
        about,
        open: false,
        query: NONE,
        headers: NONE,
        body: Some(schema_of::<T>),
        answers: const { &[ok::<SteeredRun>("What became of it.")] },
        problems: CONTROL_PROBLEMS,
        handler,
    }
}

const fn read(
    path: &'static str,
    id: &'static str,
    about: &'static str,
    answers: &'static [Answer],
    problems: &'static [Code],
    handler: fn(Call) -> Answered,
) -> Operation {
    Operation {
        verb: Verb::Get,
        path,
        id,
        about,
        open: false,
        query: NONE,
        headers: NONE,
        body: None,
        answers,
        problems,
        handler,
    }
}

/// Everything that can be asked.
pub(super) static OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Post,
        path: "/v1/agentic/runs/execute",
        id: "executeRun",
        about: "Executes a plan of tool calls as a governed run. Answers as soon as the run is durable, or with `wait` \
                when it is over, waits for people, or the time is up. Repeating it under one `runId` answers the same \
                run. The run id makes it idempotent, so an `Idempotency-Key` changes nothing here.",
        open: false,
        query: &[Parameter::number("wait", "How many seconds to wait for the end of the run: 0 (if left out) to 30.")],
        headers: NONE,
        body: Some(schema_of::<ExecuteRequest>),
        answers: &[ok::<SubmittedRun>("The stored run.")],
        problems: &[
            ("field-missing", Invalid),
            ("agent_tools_not_configured", Unconfigured),
            ("tool_scope_missing", PermissionDenied),
            ("preflight-failed", PreconditionFailed),
            ("run_id_conflict", Conflict),
            ("unknown-tool", Invalid),
            ("unknown-agent", Invalid),
            ("overloaded", Overloaded),
            ("draining", Unavailable),
        ],
        handler: execute::execute,
    },
    Operation {
        verb: Verb::Post,
        path: "/v1/runs",
        id: "submitRun",
        about: "Accepts a run with a plan of any steps: durable when this answers.",
        open: false,
        query: NONE,
        headers: &[Parameter::text(
            "Idempotency-Key",
            "Instead of `runId`: the run is found again by the caller, the route and this key, for as long as the run \
             is kept. Another submission under the same key is refused.",
        )],
        body: Some(schema_of::<SubmitRequest>),
        answers: &[
            created::<SubmittedRun>("The run, which is new; `Location` says where it is."),
            ok::<SubmittedRun>("The run, which had been submitted before."),
        ],
        problems: &[
            ("agent_tools_not_configured", Unconfigured),
            ("tool_scope_missing", PermissionDenied),
            ("preflight-failed", PreconditionFailed),
            ("run_id_conflict", Conflict),
            ("idempotency-key-reused", Invalid),
            ("idempotency-key-invalid", Invalid),
            ("idempotency-key-and-run-id", Invalid),
            ("unknown-tool", Invalid),
            ("unknown-agent", Invalid),
            ("overloaded", Overloaded),
            ("draining", Unavailable),
        ],
        handler: runs::submit,
    },
    Operation {
        verb: Verb::Post,
        path: "/v1/runs/preflight",
        id: "preflightRun",
        about: "What a submission lacks, all of it at once, and what its run would be. Nothing is written.",
        open: false,
        query: NONE,
        headers: NONE,
        body: Some(schema_of::<Submission>),
        answers: const { &[ok::<PreflightView>("What it lacks, or that it lacks nothing.")] },
        problems: &[("unknown-tool", Invalid), ("unknown-agent", Invalid), ("run-id-not-taken", Invalid)],
        handler: runs::preflight,
    },
    Operation {
        query: &[
            Parameter::texts("status", "Only runs of this status; may stand several times."),
            Parameter::text("pipelineId", "Only instances of this pipeline."),
            Parameter::text(
                "agentId",
                "Only runs led by this agent. Not for customers, as are `family`, `costBand` and `text`.",
            ),
            Parameter::text("family", "Only runs led by an agent of this family."),
            Parameter::texts("bucket", "Only runs in this bucket; may stand several times."),
            Parameter::texts("costBand", "Only runs in this band of cost; may stand several times."),
            Parameter::texts("latencyBand", "Only runs in this band of latency; may stand several times."),
            Parameter::number("startedAfterUnixMs", "Only runs accepted at this instant or later."),
            Parameter::number("startedBeforeUnixMs", "Only runs accepted before this instant."),
            Parameter::flag("hasWarnings", "Only runs with, or without, warnings. For operators."),
            Parameter::text(
                "text",
                "Only runs with this text among their ids, their inputs' beginning, or the words they ended with.",
            ),
            Parameter::text(
                "tenantId",
                "Runs of this tenant. Another than the caller's is for operators of the installation.",
            ),
            Parameter::flag("allTenants", "Runs of all tenants. For operators of the installation."),
            Parameter::number("pageSize", "Most runs on the page: 50 if left out, at most 200."),
            Parameter::text("pageToken", "From the last page; left out: the first."),
        ],
        ..read(
            "/v1/runs",
            "listRuns",
            "Runs of the caller's tenant, newest first.",
            &[ok::<RunPage>("A page.")],
            &[("page-size-invalid", Invalid), ("page-token-invalid", Invalid), ("status-unknown", Invalid)],
            runs::list,
        )
    },
    read("/v1/runs/{runId}", "getRun", "One run.", &[ok::<Run>("The run.")], RUN_PROBLEMS, runs::get),
    Operation {
        query: &[Parameter::number("after", "Only events after this one; left out: from the start.")],
        headers: &[Parameter::text(
            "Last-Event-ID",
            "The same, as a browser says it. If both are given, this one counts.",
        )],
        ..read(
            "/v1/runs/{runId}/events",
            "watchRun",
            "The run's events after a cursor, then each new one as it happens, as server-sent events. A `message` is an \
             event of the journal, its id the `seq`; `progress` is what a running tool says; `end` comes once the run is \
             closed; `error` is a problem, after which the stream ends and can be taken up from the last id.",
            &[
                Answer {
                    status: "200",
                    about: "The stream; the data of a `message` is described here.",
                    media: "text/event-stream",
                    schema: Some(schema_of::<Event>),
                },
                Answer {
                    status: "204",
                    about: "The run is closed and has no events after the cursor.",
                    media: "",
                    schema: None,
                },
            ],
            &[
                ("no-such-run", NotFound),
                ("cursor-unknown", Invalid),
                ("too-many-watches", Overloaded),
                ("watch-too-slow", Conflict),
                ("server-draining", Unavailable),
            ],
            events::watch,
        )
    },
    Operation {
        query: &[Parameter {
            name: "atSeq",
            kind: "integer",
            repeated: false,
            required: true,
            about: "The event after which the run is to be shown.",
        }],
        ..read(
            "/v1/runs/{runId}/replay",
            "replayRun",
            "The run as it stood after an event. Nothing is executed.",
            &[ok::<Replay>("The run as it stood.")],
            &[("no-such-run", NotFound), ("no-such-point", Invalid), ("not-authorized", PermissionDenied)],
            runs::replay,
        )
    },
    read(
        "/v1/runs/{runId}/export",
        "exportRun",
        "The whole journal as lines of JSON: what `signalbox verify` reads offline.",
        &[Answer {
            status: "200",
            about: "A head, one line for each event, and a tail.",
            media: "application/jsonl",
            schema: None,
        }],
        &[("no-such-run", NotFound), ("not-authorized", PermissionDenied)],
        runs::export,
    ),
    Operation {
        query: &[Parameter::text("callId", "Only this call.")],
        ..read(
            "/v1/runs/{runId}/explain",
            "explainRun",
            "Why the run stopped and what every stage of the gate said of its calls, told from its journal.",
            &[ok::<Explained>("The story.")],
            &[("no-such-run", NotFound), ("no-such-call", NotFound), ("not-authorized", PermissionDenied)],
            runs::explained,
        )
    },
    control::<ControlRequest>(
        "/v1/runs/{runId}/pause",
        "pauseRun",
        "Holds the run: calls in flight finish, none is admitted.",
        runs::pause,
    ),
    control::<ControlRequest>(
        "/v1/runs/{runId}/resume",
        "resumeRun",
        "Lets a paused run go on from where it was.",
        runs::resume,
    ),
    control::<ControlRequest>(
        "/v1/runs/{runId}/cancel",
        "cancelRun",
        "Stops the run deliberately and for ever; calls in flight are cancelled.",
        runs::cancel,
    ),
    control::<ControlRequest>(
        "/v1/runs/{runId}/kill",
        "killRun",
        "Stops the run by governance and for ever; calls in flight are cancelled.",
        runs::kill,
    ),
    control::<ChooseBranchRequest>(
        "/v1/runs/{runId}/choose-branch",
        "chooseBranch",
        "Chooses the branch that the run waits for.",
        runs::choose_branch,
    ),
    control::<RetryRequest>(
        "/v1/runs/{runId}/retry",
        "retryWithChanges",
        "Goes back to a step and does it and all that follows again, under overrides.",
        runs::retry,
    ),
    control::<StepRequest>(
        "/v1/runs/{runId}/step",
        "operatorStep",
        "Lets one step of a paused run go; the run stays paused.",
        runs::step,
    ),
    control::<ForkRequest>(
        "/v1/runs/{runId}/fork",
        "forkRun",
        "Makes another run of this one, with what it has done and nothing it has spent.",
        runs::fork,
    ),
    read(
        "/v1/approvals",
        "listApprovals",
        "Open questions, oldest first.",
        &[ok::<ApprovalList>("The questions.")],
        &[],
        approvals::list,
    ),
    read(
        "/v1/approvals/{approvalId}",
        "getApproval",
        "One question, open or not, with what it is about.",
        &[ok::<QuestionView>("The question.")],
        &[("no-such-approval", NotFound)],
        approvals::get,
    ),
    Operation {
        verb: Verb::Post,
        path: "/v1/approvals/{approvalId}/decide",
        id: "decideApproval",
        about: "Answers a question. Saying it twice under one `commandId` is harmless and gives the same answer, for 24 hours.",
        open: false,
        query: NONE,
        headers: NONE,
        body: Some(schema_of::<DecideRequest>),
        answers: &[ok::<Decided>("What became of it.")],
        problems: &[
            ("no-such-approval", NotFound),
            ("approval-closed", PreconditionFailed),
            ("approval-subject-changed", PreconditionFailed),
            ("decision-not-allowed", Invalid),
            ("not-an-approver", PermissionDenied),
            ("not-authorized", PermissionDenied),
            ("digest-invalid", Invalid),
            ("reason-required", Invalid),
        ],
        handler: approvals::decide,
    },
    Operation {
        query: &[
            Parameter::text(
                "tenantId",
                "Whose runs are counted, if not the caller's tenant's. For operators of the installation.",
            ),
            Parameter::flag("allTenants", "Runs of all tenants. For operators of the installation."),
        ],
        ..read(
            "/api/admin/agentic-operations/snapshot",
            "getSnapshot",
            "How many runs are in each bucket, and the kill switches in force. For operators.",
            &[ok::<Snapshot>("What stands where.")],
            &[("not-authorized", PermissionDenied)],
            admin::snapshot,
        )
    },
    Operation {
        query: &[
            Parameter { required: true, ..Parameter::text("agentId", "The lead agent.") },
            Parameter { required: true, ..Parameter::text("mode", "The mode they ended in, such as `balanced`.") },
            Parameter::text(
                "tenantId",
                "Whose runs are looked at, if not the caller's tenant's. For operators of the installation.",
            ),
            Parameter::flag("allTenants", "Runs of all tenants. For operators of the installation."),
        ],
        ..read(
            "/api/admin/agentic-operations/mode-compliance",
            "getModeCompliance",
            "How the last hundred runs that an agent led in a mode, and that are over, stand to that mode. For operators.",
            &[ok::<ModeComplianceView>("How they stand.")],
            &[("not-authorized", PermissionDenied), ("mode-unknown", Invalid)],
            compliance::mode_compliance,
        )
    },
    Operation {
        query: &[Parameter::flag("all", "Also those that are disarmed or have expired.")],
        ..read(
            "/api/admin/agentic-operations/kill-switches",
            "listKillSwitches",
            "The kill switches that are armed. For operators.",
            &[ok::<SwitchList>("The switches.")],
            &[("not-authorized", PermissionDenied)],
            admin::switches,
        )
    },
    Operation {
        verb: Verb::Post,
        path: "/api/admin/agentic-operations/kill-switches",
        id: "armKillSwitch",
        about: "Arms a kill switch: from its commit on no matching call is admitted on any node; matching runs are ended, \
                and their calls cancelled. For operators.",
        open: false,
        query: NONE,
        headers: NONE,
        body: Some(schema_of::<ArmRequest>),
        answers: &[created::<Armed>("It is armed."), ok::<Armed>("The same was armed before.")],
        problems: &[
            ("not-authorized", PermissionDenied),
            ("switch-reach-missing", Invalid),
            ("switch-target-unknown", Invalid),
            ("switch-id-conflict", Conflict),
            ("expiry-invalid", Invalid),
            ("too-many-switches", PreconditionFailed),
        ],
        handler: admin::arm,
    },
    Operation {
        verb: Verb::Post,
        path: "/api/admin/agentic-operations/kill-switches/{switchId}/disarm",
        id: "disarmKillSwitch",
        about: "Disarms a kill switch, or asks another identity to confirm. For operators.",
        open: false,
        query: NONE,
        headers: NONE,
        body: Some(schema_of::<DisarmRequest>),
        answers: &[ok::<Disarmed>("What became of it.")],
        problems: &[
            ("no-such-switch", NotFound),
            ("not-authorized", PermissionDenied),
            ("switch-already-disarmed", PreconditionFailed),
            ("switch-expired", PreconditionFailed),
        ],
        handler: admin::disarm,
    },
    Operation {
        verb: Verb::Post,
        path: "/api/admin/agentic-operations/champion-challengers/rollout",
        id: "moveRollout",
        about: "Begins a rollout of a new version of an agent, or moves one. For operators.",
        open: false,
        query: NONE,
        headers: NONE,
        body: Some(schema_of::<RolloutRequest>),
        answers: &[created::<RolloutView>("It is begun."), ok::<RolloutView>("It is moved.")],
        problems: &[
            ("no-such-rollout", NotFound),
            ("not-authorized", PermissionDenied),
            ("rollout-exists", Conflict),
            ("rollout-id-conflict", Conflict),
            ("stale-revision", Conflict),
            ("rollout-same-arms", Invalid),
            ("agent-version-unknown", Invalid),
            ("canary-fraction-invalid", Invalid),
            ("rollout-lifecycle-mismatch", PreconditionFailed),
            ("readiness-required", PreconditionFailed),
            ("no-prior-champion", PreconditionFailed),
            ("rollout-frozen", PreconditionFailed),
            ("rollout-state-invalid", PreconditionFailed),
            ("rollout-champion-changed", PreconditionFailed),
        ],
        handler: feedback::rollout,
    },
    Operation {
        verb: Verb::Post,
        path: "/api/admin/agentic-operations/gold-sets/promote",
        id: "promoteGoldSetEntry",
        about: "Puts the input of a completed run into a gold set. For operators.",
        open: false,
        query: NONE,
        headers: NONE,
        body: Some(schema_of::<GoldRequest>),
        answers: &[created::<GoldEntry>("The entry.")],
        problems: &[
            ("no-such-run", NotFound),
            ("not-authorized", PermissionDenied),
            ("gold-set-entry-exists", Conflict),
            ("source-run-not-completed", PreconditionFailed),
            ("gold-set-entry-too-big", Invalid),
            ("gold-set-full", PreconditionFailed),
            ("rubric-required", Invalid),
        ],
        handler: feedback::promote_gold,
    },
    Operation {
        open: true,
        ..read(
            "/openapi.json",
            "getOpenApi",
            "This document.",
            &[Answer { status: "200", about: "An OpenAPI document.", media: "application/json", schema: None }],
            &[],
            openapi::get,
        )
    },
];

/// What streams carry beside what their operation names.
pub(super) const STREAMED: &[SchemaOf] =
    &[schema_of::<ToldEvent<'_>>, schema_of::<ProgressLine>, schema_of::<EndOfEvents>];
