//! `demo`: sources in, a briefing pack out, and everything in between through the same gate, journal and server as in
//! production. Only the submission does not go over gRPC, because pre-approved grants may come from a broker inside
//! the process alone (EXE-015).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use signalbox_domain::governance::budget::OnExceeded;
use signalbox_domain::ids::RunId;
use signalbox_domain::pipeline::{briefing, weekly_briefing};
use signalbox_domain::quantity::BudgetCategory;
use signalbox_domain::run::envelope::{ApprovalRecord, RunEnvelope};
use signalbox_domain::run::event::{PauseCause, RunEvent, StoredValue};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;
use signalbox_domain::run::submission::{PlanInput, RunBudget, Submission};
use signalbox_ports::blobs::Blobs;
use signalbox_ports::clock::Clock;
use signalbox_proto::client::{Item, Watch};
use signalbox_proto::v1;
use signalbox_runtime::NodeHandle;
use signalbox_server::ServeLimits;
use signalbox_server::api::Caller;
use signalbox_server::identity::DevIdentity;
use uuid::Uuid;

use super::serve::node_ended;
use super::watch;
use crate::args::DATA_DEFAULT;
use crate::client::{Client, Connection, timed, until_answered};
use crate::confirm::{ask, somebody_is_there};
use crate::demo::board::Board;
use crate::demo::broker::{Approval, approve};
use crate::demo::facts::Facts;
use crate::demo::gate;
use crate::demo::progress::{Progress, say};
use crate::demo::report::Report;
use crate::demo::sources::Sources;
use crate::failure::{Exit, Failure};
use crate::output::Out;
use crate::wire::{Serving, absolute, asked_to_end, serve_failed, shut_down, start};

/// Where the run is said to have been triggered (INV-002).
const SURFACE: &str = "pipeline";
/// The member of the inputs that tells one set of sources from another.
const SOURCES_KEY: &str = "sourcesKey";
/// How the demonstration says yes when it was told to.
const APPROVED_REASON: &str = "--approve on the command line";

/// `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox demo --sources samples/weekly
  signalbox demo --sources https://example.org/feed --since 2026-01-31 --approve")]
pub(crate) struct DemoArgs {
    /// Files, folders and URLs.
    #[arg(long, required = true, num_args = 1.., value_name = "PATH_OR_URL")]
    pub(crate) sources: Vec<String>,
    /// The folder that keeps the journal and the packs.
    #[arg(long, default_value = DATA_DEFAULT, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Say yes at the gate without asking.
    #[arg(long)]
    pub(crate) approve: bool,
    /// Leave out what is older than this day.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub(crate) since: Option<String>,
    /// Begin anew although an unfinished run over the same sources is there; that one is cancelled.
    #[arg(long)]
    pub(crate) fresh: bool,
}

/// Runs the demonstration.
pub(crate) async fn run(args: DemoArgs, out: &mut Out) -> Result<(), Failure> {
    let sources = Sources::collect(&args.sources)?;
    let identity = DevIdentity::new().map_err(|error| Failure::new("start-failed", error.to_string()))?;
    let caller = Caller { surface: SURFACE, ..identity.caller().clone() };
    let mut station = start(&args.data, None, None, None, None).await?;
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = signalbox_server::bind(any_port, &identity).await.map_err(|error| serve_failed(&error))?;
    let serving = Serving::start(&station, listener, Arc::new(identity), ServeLimits::default(), None)?;
    let client = Connection::to(format!("http://{}", serving.listen)).open().await?;

    let (node, blobs, clock) = (station.node.clone(), station.blobs.clone(), station.clock.clone());
    let demo = Demo { args, sources, caller, client, node, blobs, clock, asked: Duration::ZERO };
    let outcome = tokio::select! {
        outcome = demo.drive(out) => outcome,
        () = asked_to_end() => Err(interrupted()),
        _ = &mut station.ended => return Err(node_ended()),
    };
    // Whatever came of it, the run is left in good order: the next time it goes on from its journal.
    let ended = shut_down(station, serving).await;
    outcome.and(ended)
}

fn day(text: &str) -> Result<String, String> {
    let strict = text.len() == 10 && text.bytes().enumerate().all(|(i, b)| (i == 4 || i == 7) == (b == b'-'));
    match text.parse::<jiff::civil::Date>() {
        Ok(date) if strict => Ok(date.to_string()),
        Ok(_) | Err(_) => Err("not a day such as 2026-01-31".to_owned()),
    }
}

struct Demo {
    args: DemoArgs,
    sources: Sources,
    caller: Caller,
    client: Client,
    node: NodeHandle,
    blobs: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    /// How long somebody was thinking.
    asked: Duration,
}

impl Demo {
    async fn drive(mut self, out: &mut Out) -> Result<(), Failure> {
        let began = Instant::now();
        let run_id = self.run_id().await?;
        let run = self.envelope(run_id).await?;
        let mut board = Board::new(&run.plan);
        let mut progress = Progress::new(&board);
        let mut follow = Watch::new(self.client.clone(), &run_id.to_string(), 0);
        let mut may_be_held = false;
        while let Some(item) = follow.next().await? {
            match item {
                Item::Event(stored) => {
                    let Some(event) = RunEvent::decode(&stored.kind, &stored.body_json) else { continue };
                    if let Some(stage) = board.apply(&event) {
                        progress.show(stage, &board.stages()[stage], stored.at_unix_micros);
                    }
                    may_be_held |= matches!(event, RunEvent::ApprovalRequested(_) | RunEvent::ControlApplied(_));
                }
                Item::Progress(line) => {
                    let stage = line.step_id.parse().ok().and_then(|step| board.stage_of(&step));
                    if let Some(stage) = stage {
                        progress.murmur(stage, &line.message);
                    }
                    continue;
                }
            }
            if may_be_held {
                let run = self.envelope(run_id).await?;
                // Otherwise what is still to come will say how the run stands.
                if run.last_seq <= follow.cursor() {
                    self.go_on(&run, &mut progress, out).await?;
                }
            }
        }
        progress.end();
        let run = self.envelope(run_id).await?;
        let ended = ended(&run);
        if ended.is_ok() || out.is_json() {
            let took = began.elapsed().saturating_sub(self.asked);
            Report::of(&run, &absolute(&self.args.data), took).print(out)?;
        }
        ended
    }

    /// The unfinished run over the same sources, or a new one.
    async fn run_id(&mut self) -> Result<RunId, Failure> {
        let key = self.sources.key(self.args.since.as_deref())?;
        match self.unfinished(&key).await? {
            Some(run_id) if !self.args.fresh => {
                say(&format!("run {run_id} over the same sources is not finished; it goes on"));
                return Ok(run_id);
            }
            Some(run_id) => {
                self.cancel(run_id).await?;
                say(&format!("run {run_id} over the same sources is cancelled; a fresh one begins"));
            }
            None => {}
        }
        self.submit(key).await
    }

    async fn unfinished(&mut self, key: &str) -> Result<Option<RunId>, Failure> {
        let live = RunStatus::ALL.into_iter().filter(|status| !status.is_terminal());
        let mut request = v1::ListRunsRequest {
            status: live.map(|status| status.as_str().to_owned()).collect(),
            pipeline_id: weekly_briefing::PIPELINE_ID.to_owned(),
            ..Default::default()
        };
        loop {
            let page = self.client.list_runs(timed(request.clone())).await?.into_inner();
            for row in page.runs {
                let run_id: RunId = row.run_id.parse().map_err(unreadable)?;
                let run = self.envelope(run_id).await?;
                if run.inputs.get(SOURCES_KEY).and_then(Value::as_str) == Some(key) {
                    return Ok(Some(run_id));
                }
            }
            if page.next_page_token.is_empty() {
                return Ok(None);
            }
            request.page_token = page.next_page_token;
        }
    }

    async fn submit(&self, key: String) -> Result<RunId, Failure> {
        let spec = weekly_briefing::spec();
        let spec = spec.ok_or_else(|| Failure::new("start-failed", "this version ships no weekly briefing"))?;
        let since = self.args.since.as_deref();
        let plan = briefing(&self.sources.list, since);
        let run_id = RunId::new(Uuid::now_v7());
        let approval = Approval {
            run_id,
            tenant_id: &self.caller.tenant_id,
            issued_by: &self.caller.actor.actor_id,
            now: self.clock.now(),
        };
        let grants = approve(&plan, &self.sources, &approval)?;
        let root = spec.root_agent_id().cloned();
        let submission = Submission {
            agent_versions: Default::default(),
            root_agent_id: root.ok_or_else(|| Failure::new("start-failed", "the pipeline has no lead agent"))?,
            plan: PlanInput::Plan(plan),
            inputs: json!({ SOURCES_KEY: key, "since": since }),
            mode: spec.default_mode().as_str().to_owned(),
            pipeline_id: Some(spec.pipeline_id.clone()),
            pipeline_semver: Some(spec.semver.clone()),
            budgets: vec![RunBudget {
                category: BudgetCategory::CostUnits,
                limit: spec.total_budget_cap,
                on_exceeded: OnExceeded::Kill,
            }],
            invocation: None,
            mode_override: None,
            handoffs: None,
        };
        let submitted = self
            .node
            .submit_with_grants(&self.caller, Some(run_id), submission, grants)
            .await
            .map_err(|error| Failure::new(error.code(), error.to_string()))?;
        let files = self.sources.list.len();
        let passed_over = match self.sources.passed_over {
            0 => String::new(),
            n => format!(" ({n} entries of folders were passed over)"),
        };
        say(&format!("run {} over {files} sources{passed_over}", submitted.run_id));
        Ok(submitted.run_id)
    }

    async fn cancel(&self, run_id: RunId) -> Result<(), Failure> {
        let request = v1::ControlRunRequest {
            run_id: run_id.to_string(),
            command_id: Uuid::new_v4().to_string(),
            reason: "a fresh run over the same sources was asked for".to_owned(),
            control: Some(v1::control_run_request::Control::Cancel(v1::Cancel {})),
            ..v1::ControlRunRequest::default()
        };
        until_answered(async || self.client.clone().control_run(timed(request.clone())).await).await.map(drop)
    }

    async fn envelope(&mut self, run_id: RunId) -> Result<RunEnvelope, Failure> {
        let run = watch::status(&mut self.client, &run_id.to_string()).await?;
        serde_json::from_slice(&run.envelope_json).map_err(unreadable)
    }

    /// Lets a held run go on if that is in our hands, and says what would otherwise.
    async fn go_on(&mut self, run: &RunEnvelope, progress: &mut Progress, out: &mut Out) -> Result<(), Failure> {
        if run.status == RunStatus::Paused && run.pause_cause() != Some(PauseCause::Throttle) {
            return Err(self.paused(run));
        }
        let question = match gate::open_question(run) {
            Some(question) if run.status == RunStatus::AwaitingApproval => question,
            Some(_) | None => return Ok(()),
        };
        progress.end();
        let subject = self.value(&question.subject).await?;
        let lines = match self.facts(run).await {
            Some(facts) => facts.lines(),
            None => gate::summary(&subject),
        };
        gate::present(question, &lines, run);
        if gate::is_gate(question) && self.args.approve {
            return self.decide(question, true, APPROVED_REASON).await;
        }
        let answer = if gate::is_gate(question) && somebody_is_there() {
            let asked = Instant::now();
            let answer = ask(question.prompt.clone()).await?;
            self.asked += asked.elapsed();
            answer
        } else {
            None
        };
        match answer {
            Some(yes) => self.decide(question, yes, "answered at the terminal").await,
            None => {
                if out.is_json() {
                    let view = json!({
                        "runId": run.run_id,
                        "status": run.status,
                        "approvalId": question.approval_id,
                        "subject": subject,
                    });
                    out.json(&view)?;
                }
                Err(self.waiting(question))
            }
        }
    }

    async fn decide(&self, question: &ApprovalRecord, yes: bool, reason: &str) -> Result<(), Failure> {
        let decision = if yes { v1::ApprovalDecision::Approve } else { v1::ApprovalDecision::Reject };
        let request = v1::DecideApprovalRequest {
            approval_id: question.approval_id.to_string(),
            decision: decision.into(),
            reason: reason.to_owned(),
            subject_digest: question.subject_digest.clone(),
            command_id: Uuid::new_v4().to_string(),
        };
        let send = async || self.client.clone().decide_approval(timed(request.clone())).await;
        until_answered(send).await?;
        say(&format!("{}: {reason}", if yes { "approved" } else { "rejected" }));
        Ok(())
    }

    /// What the rendered pack says, if the run has come that far.
    async fn facts(&self, run: &RunEnvelope) -> Option<Facts> {
        let index = run.plan.steps.iter().position(|step| step.step_id.as_str() == weekly_briefing::RENDER_STEP)?;
        match run.steps.get(index)? {
            StepState::Done { output: Some(output), .. } => Facts::read(&self.value(output).await.ok()?),
            StepState::Done { output: None, .. }
            | StepState::Pending
            | StepState::InFlight { .. }
            | StepState::HandedOff { .. }
            | StepState::Throttled { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::AwaitingBranch
            | StepState::Conversing
            | StepState::Waiting { .. }
            | StepState::Skipped { .. }
            | StepState::Failed { .. } => None,
        }
    }

    async fn value(&self, stored: &StoredValue) -> Result<Value, Failure> {
        match stored {
            StoredValue::Inline(value) => Ok(value.clone()),
            StoredValue::Blob { sha256, .. } => {
                let bytes = self.blobs.get(&self.caller.tenant_id, sha256).await;
                let bytes = bytes.map_err(|error| Failure::new(error.code(), error.to_string()))?;
                serde_json::from_slice(&bytes.unwrap_or_default()).map_err(unreadable)
            }
        }
    }

    fn waiting(&self, question: &ApprovalRecord) -> Failure {
        let data = self.args.data.display();
        let id = question.approval_id;
        let next = if gate::is_gate(question) {
            format!(
                "say yes with `make run APPROVE=1`, or start `signalbox serve --data {data}` and answer with \
                 `signalbox approvals decide {id} --approve --reason \"read it\"`"
            )
        } else {
            format!(
                "nobody knows whether a call happened: start `signalbox serve --data {data}` and answer with \
                 `signalbox approvals decide {id} --approve|--reject|--skip --reason \"…\"`"
            )
        };
        let failure = Failure::new("waiting-for-decision", "the run waits for a decision").next(next);
        Failure { exit: Exit::Waiting, ..failure }
    }

    fn paused(&self, run: &RunEnvelope) -> Failure {
        let next = format!(
            "start `signalbox serve --data {}` and let it go on with `signalbox runs resume {}`, or begin anew with --fresh",
            self.args.data.display(),
            run.run_id
        );
        let failure = Failure::new("waiting-for-decision", "the run is paused").next(next);
        Failure { exit: Exit::Waiting, ..failure }
    }
}

/// A run that has ended in another status than `completed` is a failure with the code of its end.
fn ended(run: &RunEnvelope) -> Result<(), Failure> {
    if run.status == RunStatus::Completed {
        return Ok(());
    }
    let end = run.end.as_ref();
    let code = end.and_then(|end| end.code.clone()).unwrap_or_else(|| format!("run-{}", run.status.as_str()));
    let message = end.and_then(|end| end.message.clone()).unwrap_or_else(|| "no reason is recorded".to_owned());
    Err(Failure::new(code, format!("run {} is {}: {message}", run.run_id, run.status.as_str())))
}

fn interrupted() -> Failure {
    Failure::new("interrupted", "the demonstration was asked to end")
        .next("run the same command again: the run goes on where it stopped")
}

fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::new("answer-invalid", format!("the server sent something that cannot be read: {error}"))
}
