//! I11: what belongs to another tenant, or to somebody whose runs one may not see, answers byte for byte as what does not
//! exist, on every call of every service.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use signalbox_proto::v1;
use signalbox_proto::v1::feedback_service_client::FeedbackServiceClient;
use signalbox_proto::v1::governance_service_client::GovernanceServiceClient;
use signalbox_proto::v1::identity_service_client::IdentityServiceClient;
use signalbox_proto::v1::pipeline_service_client::PipelineServiceClient;
use signalbox_proto::v1::registry_service_client::RegistryServiceClient;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use signalbox_proto::v1::schedule_service_client::ScheduleServiceClient;
use signalbox_proto::v1::webhook_service_client::WebhookServiceClient;
use tonic::transport::Channel;
use tonic::{Request, Status};
use uuid::Uuid;

use crate::identity::Guarded;

/// Calls that name nothing that could be another tenant's, or name what is the caller's own choice.
const NAMES_NOTHING: [&str; 42] = [
    "DashboardService.CountRuns",
    "DashboardService.GetModeCompliance",
    "DashboardService.GetSnapshot",
    "FeedbackService.ListGoldSetEntries",
    "FeedbackService.ListRollouts",
    "FeedbackService.StartRollout",
    "GovernanceService.ArmSwitch",
    "GovernanceService.ExportAudit",
    "GovernanceService.IssueGrant",
    "GovernanceService.ListAudit",
    "GovernanceService.ListBudgets",
    "GovernanceService.ListGrants",
    "GovernanceService.ListSwitches",
    "GovernanceService.ListThrottles",
    "GovernanceService.PutBudget",
    "GovernanceService.SetThrottle",
    "GovernanceService.WatchSwitches",
    "IdentityService.CreateApiKey",
    "IdentityService.ListApiKeys",
    "IdentityService.WhoAmI",
    "PipelineService.FirePipeline",
    "PipelineService.GetEffectivePipeline",
    "PipelineService.GetPipeline",
    "PipelineService.GetPipelineReport",
    "PipelineService.ListPipelines",
    "PipelineService.PutCustomization",
    "RegistryService.GetTool",
    "RegistryService.ListAgents",
    "RegistryService.ListExecutors",
    "RegistryService.ListTools",
    "RegistryService.PublishAgentVersion",
    "RegistryService.RegisterAgent",
    "RegistryService.RegisterExecutor",
    // Executors are the platform's, and no tenant's.
    "RegistryService.RetireExecutor",
    "RunService.ListApprovals",
    "RunService.ListRuns",
    "RunService.PreflightRun",
    // Two tenants may choose the same id (OVL-014).
    "RunService.SubmitRun",
    "ScheduleService.ListSchedules",
    "ScheduleService.PutSchedule",
    "WebhookService.ListWebhooks",
    "WebhookService.PutWebhook",
];

/// Services of the contract that this server does not serve.
const NOT_SERVED: [&str; 1] = ["ToolExecutor"];

/// Every call of every service that is served, by name, out of the list of what was promised.
fn served() -> BTreeSet<String> {
    let lock = std::fs::read_to_string(signalbox_tests::root().join("proto/signalbox.v1.lock")).unwrap();
    let named = |line: &str| Some(line.strip_prefix("rpc signalbox.v1.")?.split_once(':')?.0.replace('/', "."));
    lock.lines().filter_map(named).filter(|name| !NOT_SERVED.iter().any(|service| name.starts_with(service))).collect()
}

/// What of each kind is asked for.
#[derive(Clone, Copy)]
struct Ids {
    run: Uuid,
    approval: Uuid,
    key: Uuid,
    switch: &'static str,
    budget: &'static str,
    webhook: &'static str,
    grant: &'static str,
    throttle: &'static str,
    agent: &'static str,
    rollout: &'static str,
    schedule: &'static str,
}

struct Stranger {
    runs: RunServiceClient<Channel>,
    governance: GovernanceServiceClient<Channel>,
    identities: IdentityServiceClient<Channel>,
    webhooks: WebhookServiceClient<Channel>,
    schedules: ScheduleServiceClient<Channel>,
    registry: RegistryServiceClient<Channel>,
    feedback: FeedbackServiceClient<Channel>,
    pipelines: PipelineServiceClient<Channel>,
    token: String,
}

impl Stranger {
    async fn at(addr: &str, token: &Path) -> Self {
        let channel = Channel::from_shared(addr.to_owned()).unwrap().connect().await.unwrap();
        let token = std::fs::read_to_string(token).unwrap();
        let (runs, governance) =
            (RunServiceClient::new(channel.clone()), GovernanceServiceClient::new(channel.clone()));
        let webhooks = WebhookServiceClient::new(channel.clone());
        let schedules = ScheduleServiceClient::new(channel.clone());
        let (registry, feedback) =
            (RegistryServiceClient::new(channel.clone()), FeedbackServiceClient::new(channel.clone()));
        let (pipelines, identities) =
            (PipelineServiceClient::new(channel.clone()), IdentityServiceClient::new(channel));
        Self { runs, governance, identities, webhooks, schedules, registry, feedback, pipelines, token }
    }

    fn ask<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.token).parse().unwrap());
        request
    }

    /// What each call says, by its name; a call with several forms has several.
    async fn hears(&mut self, ids: Ids) -> Vec<(String, Status)> {
        let run_id = ids.run.to_string();
        let approval_id = ids.approval.to_string();
        let command_id = Uuid::from_u128(99).to_string();
        let mut heard = Vec::new();
        let mut note = |name: &str, answer: Option<Status>| {
            heard.push((name.to_owned(), answer.unwrap_or_else(|| panic!("{name} let a stranger in"))));
        };

        let get = self.ask(v1::GetRunRequest { run_id: run_id.clone() });
        note("RunService.GetRun", self.runs.get_run(get).await.err());
        for after_seq in [0, 1, u64::MAX] {
            let watch = self.ask(v1::WatchRunRequest { run_id: run_id.clone(), after_seq });
            let told = match self.runs.watch_run(watch).await {
                Ok(mut events) => events.get_mut().message().await.err(),
                Err(status) => Some(status),
            };
            note("RunService.WatchRun", told);
        }
        use v1::control_run_request::Control;
        let controls = [
            Control::Pause(v1::Pause {}),
            Control::Resume(v1::Resume {}),
            Control::Cancel(v1::Cancel {}),
            Control::Kill(v1::Kill {}),
            Control::ChooseBranch(v1::ChooseBranch { step_id: String::new(), branch_id: "a".into() }),
            Control::RetryWithChanges(v1::RetryWithChanges { step_id: "w".into(), ..Default::default() }),
            Control::OperatorStep(v1::OperatorStep { step_id: String::new() }),
            Control::Fork(v1::Fork { run_id: Uuid::from_u128(98).to_string() }),
        ];
        for (control, reason, expected_seq) in controls
            .into_iter()
            .flat_map(|control| [(control.clone(), "x", 0), (control.clone(), "", 0), (control, "x", 9)])
        {
            let steer = self.ask(v1::ControlRunRequest {
                run_id: run_id.clone(),
                command_id: command_id.clone(),
                reason: reason.into(),
                control: Some(control),
                expected_seq,
            });
            note("RunService.ControlRun", self.runs.control_run(steer).await.err());
        }
        for at_seq in [1, 1_000_000] {
            let replay = self.ask(v1::ReplayRunRequest { run_id: run_id.clone(), at_seq });
            note("RunService.ReplayRun", self.runs.replay_run(replay).await.err());
        }
        let export = self.ask(v1::ExportRunRequest { run_id: run_id.clone() });
        note("RunService.ExportRun", self.runs.export_run(export).await.err());
        let verify = self.ask(v1::VerifyRunRequest { run_id: run_id.clone() });
        note("RunService.VerifyRun", self.runs.verify_run(verify).await.err());
        for call_id in [String::new(), Uuid::from_u128(97).to_string()] {
            let explain = self.ask(v1::ExplainRunRequest { run_id: run_id.clone(), call_id });
            note("RunService.ExplainRun", self.runs.explain_run(explain).await.err());
        }
        let rehearsal = self.ask(v1::GetRehearsalRequest { run_id: run_id.clone() });
        note("PipelineService.GetRehearsal", self.pipelines.get_rehearsal(rehearsal).await.err());
        let question = self.ask(v1::GetApprovalRequest { approval_id: approval_id.clone() });
        note("RunService.GetApproval", self.runs.get_approval(question).await.err());
        for (decision, digest) in [(1, String::new()), (2, "0".repeat(64)), (3, String::new())] {
            let decide = self.ask(v1::DecideApprovalRequest {
                approval_id: approval_id.clone(),
                decision,
                reason: "x".into(),
                subject_digest: digest,
                command_id: command_id.clone(),
            });
            note("RunService.DecideApproval", self.runs.decide_approval(decide).await.err());
        }
        let (switch_id, budget_id) = (ids.switch.to_owned(), ids.budget.to_owned());
        let get = self.ask(v1::GetSwitchRequest { switch_id: switch_id.clone() });
        note("GovernanceService.GetSwitch", self.governance.get_switch(get).await.err());
        for reason in ["x", ""] {
            let disarm =
                v1::DisarmSwitchRequest { switch_id: switch_id.clone(), reason: reason.into(), dry_run: false };
            note("GovernanceService.DisarmSwitch", self.governance.disarm_switch(self.ask(disarm)).await.err());
        }
        let get = self.ask(v1::GetBudgetRequest { budget_id: budget_id.clone() });
        note("GovernanceService.GetBudget", self.governance.get_budget(get).await.err());
        let history = self.ask(v1::GetBudgetHistoryRequest { budget_id: budget_id.clone(), limit: 10 });
        note("GovernanceService.GetBudgetHistory", self.governance.get_budget_history(history).await.err());
        for (amount_micros, reason, expected_revision) in [(1, "x", 0), (-1, "x", 0), (1, "", 0), (1, "x", 7)] {
            let (budget_id, reason) = (budget_id.clone(), reason.to_owned());
            let top_up = v1::TopUpBudgetRequest { budget_id, amount_micros, reason, expected_revision, dry_run: false };
            note("GovernanceService.TopUpBudget", self.governance.top_up_budget(self.ask(top_up)).await.err());
        }
        for expected_revision in [0, 7] {
            let retire = v1::RetireBudgetRequest {
                budget_id: budget_id.clone(),
                reason: "x".into(),
                expected_revision,
                dry_run: false,
            };
            note("GovernanceService.RetireBudget", self.governance.retire_budget(self.ask(retire)).await.err());
        }
        let grant_id = ids.grant.to_owned();
        let get = self.ask(v1::GetGrantRequest { grant_id: grant_id.clone() });
        note("GovernanceService.GetGrant", self.governance.get_grant(get).await.err());
        for (said, expected_revision) in [("x", 0), ("", 0), ("x", 7)] {
            let renew = v1::RenewGrantRequest {
                grant_id: grant_id.clone(),
                rationale: said.into(),
                expiry: Some(v1::renew_grant_request::Expiry::ExpiresAfterSeconds(60)),
                expected_revision,
                ..Default::default()
            };
            note("GovernanceService.RenewGrant", self.governance.renew_grant(self.ask(renew)).await.err());
            let (grant_id, reason) = (grant_id.clone(), said.to_owned());
            let revoke = v1::RevokeGrantRequest { grant_id, reason, expected_revision, dry_run: false };
            note("GovernanceService.RevokeGrant", self.governance.revoke_grant(self.ask(revoke)).await.err());
            let (bucket_id, reason) = (ids.throttle.to_owned(), said.to_owned());
            let remove = v1::RemoveThrottleRequest { bucket_id, reason, expected_revision, dry_run: false };
            note("GovernanceService.RemoveThrottle", self.governance.remove_throttle(self.ask(remove)).await.err());
        }
        let get = self.ask(v1::GetThrottleRequest { bucket_id: ids.throttle.into() });
        note("GovernanceService.GetThrottle", self.governance.get_throttle(get).await.err());
        self.hears_of_agents(ids, &run_id, &mut note).await;
        self.hears_of_schedules(ids, &mut note).await;
        let webhook_id = ids.webhook.to_owned();
        let get = self.ask(v1::GetWebhookRequest { webhook_id: webhook_id.clone() });
        note("WebhookService.GetWebhook", self.webhooks.get_webhook(get).await.err());
        let test = self.ask(v1::TestWebhookRequest { webhook_id: webhook_id.clone() });
        note("WebhookService.TestWebhook", self.webhooks.test_webhook(test).await.err());
        let list = self.ask(v1::ListDeliveriesRequest { webhook_id: webhook_id.clone(), limit: 10 });
        note("WebhookService.ListDeliveries", self.webhooks.list_deliveries(list).await.err());
        for (reason, expected_revision) in [("x", 0), ("", 0), ("x", 7)] {
            let (webhook_id, reason) = (webhook_id.clone(), reason.to_owned());
            let remove = v1::RemoveWebhookRequest { webhook_id, reason, expected_revision, dry_run: false };
            note("WebhookService.RemoveWebhook", self.webhooks.remove_webhook(self.ask(remove)).await.err());
        }
        use v1::replay_deliveries_request::What;
        for (what, reason) in [(What::SinceUnixMs(0), "x"), (What::EventId(format!("evt_{}", "0".repeat(64))), "")] {
            let (webhook_id, reason) = (webhook_id.clone(), reason.to_owned());
            let replay = v1::ReplayDeliveriesRequest { webhook_id, what: Some(what), reason };
            note("WebhookService.ReplayDeliveries", self.webhooks.replay_deliveries(self.ask(replay)).await.err());
        }
        let revoke = self.ask(v1::RevokeApiKeyRequest { key_id: ids.key.to_string() });
        note("IdentityService.RevokeApiKey", self.identities.revoke_api_key(revoke).await.err());
        heard
    }

    async fn hears_of_schedules(&mut self, ids: Ids, note: &mut impl FnMut(&str, Option<Status>)) {
        let id = || ids.schedule.to_owned();
        let get = self.ask(v1::GetScheduleRequest { schedule_id: id() });
        note("ScheduleService.GetSchedule", self.schedules.get_schedule(get).await.err());
        let preview = self.ask(v1::PreviewScheduleRequest { schedule_id: id(), count: 3, after_unix_ms: 0 });
        note("ScheduleService.PreviewSchedule", self.schedules.preview_schedule(preview).await.err());
        let list = self.ask(v1::ListFiresRequest { schedule_id: id(), state: String::new(), limit: 5 });
        note("ScheduleService.ListFires", self.schedules.list_fires(list).await.err());
        for (reason, expected_revision, said) in [("x", 0, true), ("", 0, false), ("x", 7, true)] {
            let (schedule_id, why) = (id(), reason.to_owned());
            let pause = v1::PauseScheduleRequest { schedule_id, paused: said, reason: why, expected_revision };
            note("ScheduleService.PauseSchedule", self.schedules.pause_schedule(self.ask(pause)).await.err());
            let (schedule_id, why) = (id(), reason.to_owned());
            let remove = v1::RemoveScheduleRequest { schedule_id, reason: why, expected_revision, dry_run: said };
            note("ScheduleService.RemoveSchedule", self.schedules.remove_schedule(self.ask(remove)).await.err());
            let backfill = v1::BackfillScheduleRequest {
                schedule_id: id(),
                from_unix_ms: 1,
                to_unix_ms: 2,
                at_once: said,
                reason: reason.to_owned(),
                dry_run: said,
            };
            note("ScheduleService.BackfillSchedule", self.schedules.backfill_schedule(self.ask(backfill)).await.err());
            let redrive = v1::RedriveFireRequest { schedule_id: id(), at_unix_ms: 1, reason: reason.to_owned() };
            note("ScheduleService.RedriveFire", self.schedules.redrive_fire(self.ask(redrive)).await.err());
        }
    }

    async fn hears_of_agents(&mut self, ids: Ids, run_id: &str, note: &mut impl FnMut(&str, Option<Status>)) {
        let agent_id = ids.agent.to_owned();
        for (agent_semver, tenant_id) in [("", ""), ("1.0.0", ""), ("", "acme"), ("1.0.0", "acme")] {
            let (agent_semver, tenant_id) = (agent_semver.to_owned(), tenant_id.to_owned());
            let get = v1::GetAgentRequest { agent_id: agent_id.clone(), agent_semver, tenant_id, platform_wide: false };
            note("RegistryService.GetAgent", self.registry.get_agent(self.ask(get)).await.err());
        }
        for (to, reason, tenant_id) in [("retired", "x", ""), ("retired", "x", "acme"), ("nowhere", "", "acme")] {
            let move_it = v1::MoveAgentRequest {
                agent_id: agent_id.clone(),
                agent_semver: "1.0.0".into(),
                to: to.into(),
                reason: reason.into(),
                tenant_id: tenant_id.into(),
                ..Default::default()
            };
            note("RegistryService.MoveAgent", self.registry.move_agent(self.ask(move_it)).await.err());
        }
        let rollout_id = ids.rollout.to_owned();
        let get = self.ask(v1::GetRolloutRequest { rollout_id: rollout_id.clone() });
        note("FeedbackService.GetRollout", self.feedback.get_rollout(get).await.err());
        for (reason, expected_revision) in [("x", 0), ("", 0), ("x", 7)] {
            let (id, reason) = (|| rollout_id.clone(), || reason.to_owned());
            let promote = v1::PromoteChallengerRequest { rollout_id: id(), reason: reason(), expected_revision };
            note("FeedbackService.PromoteChallenger", self.feedback.promote_challenger(self.ask(promote)).await.err());
            let freeze = v1::FreezeRolloutRequest { rollout_id: id(), reason: reason(), expected_revision };
            note("FeedbackService.FreezeRollout", self.feedback.freeze_rollout(self.ask(freeze)).await.err());
            let unfreeze = v1::UnfreezeRolloutRequest { rollout_id: id(), reason: reason(), expected_revision };
            note("FeedbackService.UnfreezeRollout", self.feedback.unfreeze_rollout(self.ask(unfreeze)).await.err());
            let back = v1::RollbackRolloutRequest { rollout_id: id(), reason: reason(), expected_revision };
            note("FeedbackService.RollbackRollout", self.feedback.rollback_rollout(self.ask(back)).await.err());
            let end = v1::EndRolloutRequest { rollout_id: id(), reason: reason(), expected_revision };
            note("FeedbackService.EndRollout", self.feedback.end_rollout(self.ask(end)).await.err());
        }
        let said = v1::RecordFeedbackRequest { run_id: run_id.to_owned(), kind: 1, score_micros: None };
        note("FeedbackService.RecordFeedback", self.feedback.record_feedback(self.ask(said)).await.err());
        let promote = v1::PromoteGoldSetEntryRequest {
            gold_set_id: "g".into(),
            source_run_id: run_id.to_owned(),
            expected_output_json: b"{}".to_vec().into(),
            rubric: "x".into(),
        };
        note(
            "FeedbackService.PromoteGoldSetEntry",
            self.feedback.promote_gold_set_entry(self.ask(promote)).await.err(),
        );
    }
}

/// A version of an agent that is acme's own.
fn writer(semver: &str, lifecycle: &str) -> Vec<u8> {
    let entry = json!({
        "agentId": "acme.writer-is", "agentSemver": semver, "title": "Writer", "family": "editing", "lifecycle": lifecycle,
        "experimental": false, "capabilities": [{"capabilityId": "shorten", "semver": "1.0.0"}],
        "dataScopes": ["tenant.private"], "toolGrants": ["memory.read"], "costClass": "small",
        "modelBinding": {"providerId": "house", "modelId": "large", "semver": "1.0.0", "defaultMaxTokens": 1_000,
            "defaultTemperature": 0.25, "fallbackProviderId": "house", "fallbackModelId": "small"},
        "personaBinding": "lilith.scribe", "tonePolicyId": "tone.default", "groundingPolicyId": "cite-where-available",
        "auditPolicyId": "audit.full", "tenantScope": {"tenantId": "acme"},
        "visibility": ["tenant"], "disclosureRequirements": ["ai-generated"],
    });
    entry.to_string().into_bytes()
}

/// All that is told, with the id it was asked for taken out. The instant of the answer is nobody's secret.
fn told(status: &Status, ids: Ids) -> (tonic::Code, String, String, Vec<String>) {
    let known = [
        ids.run.to_string(),
        ids.approval.to_string(),
        ids.key.to_string(),
        ids.switch.into(),
        ids.budget.into(),
        ids.webhook.into(),
        ids.grant.into(),
        ids.throttle.into(),
        ids.agent.into(),
        ids.rollout.into(),
        ids.schedule.into(),
    ];
    let without = |text: &str| known.iter().fold(text.to_owned(), |text, id| text.replace(id.as_str(), "ID"));
    // An id is as long as any other, so lengths inside the details are the same.
    let details: String = status.details().iter().map(|byte| char::from(*byte)).collect();
    let mut headers: Vec<String> = status
        .metadata()
        .clone()
        .into_headers()
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "date" | "grpc-status-details-bin"))
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    headers.sort();
    (status.code(), without(status.message()), without(&details), headers)
}

#[test]
fn i11_a_foreign_id_answers_byte_for_byte_as_one_that_does_not_exist_on_every_call() {
    let guarded = Guarded::start();
    let (ann, olga) = (guarded.token("acme", "ann", "creator"), guarded.token("acme", "olga", "tenant-operator"));
    let asking = json!([
        {"stepId": "gate", "kind": "approval", "prompt": "May it?"},
        {"stepId": "w", "kind": "wait", "seconds": 600, "dependsOnStepIds": ["gate"]},
    ]);
    let run = guarded.submit_plan(&ann, &asking);
    let approval = loop {
        let open = guarded.as_holder(&olga, "approvals list").json();
        match open["approvals"][0]["approvalId"].as_str() {
            Some(id) => break id.to_owned(),
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    let key = guarded.as_holder(&olga, "keys create --name loader").json()["keyId"].as_str().unwrap().to_owned();
    let root = guarded.token("acme", "root", "platform-operator");
    let armed = "switches arm --scope tool --target web.fetch --reason x --id switch-that-is";
    assert_eq!(guarded.as_holder(&root, armed).exit, 0);
    let budget = json!({
        "budgetId": "budget-that-is", "scope": "tenant", "scopeKey": "acme", "category": "cost-units", "limit": 100,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut root = Stranger::at(&guarded.server.addr, &root).await;
        let put = v1::PutBudgetRequest {
            budget_json: budget.to_string().into_bytes().into(),
            reason: "x".into(),
            ..Default::default()
        };
        root.governance.put_budget(root.ask(put)).await.unwrap();
        let put = v1::PutWebhookRequest {
            webhook_id: "webhook-that-is".into(),
            url: "https://hooks.example/".into(),
            event_types: vec!["run.completed".into()],
            secret_ids: vec!["key".into()],
            reason: "x".into(),
            ..Default::default()
        };
        root.webhooks.put_webhook(root.ask(put)).await.unwrap();
        let fired = json!({"rootAgentId": "ref.drafting", "plan": [{"stepId": "w", "kind": "wait", "seconds": 1}]});
        let put = v1::PutScheduleRequest {
            schedule_id: "schedule-that-is".into(),
            fires: Some(v1::put_schedule_request::Fires::SubmissionJson(fired.to_string().into_bytes().into())),
            timing: Some(v1::put_schedule_request::Timing::Cron("0 0 1 1 *".into())),
            reason: "x".into(),
            ..Default::default()
        };
        root.schedules.put_schedule(root.ask(put)).await.unwrap();
        let grant = json!({"grantId": "grant-that-is", "scope": "per-tenant", "scopeKey": "acme", "toolId": "memory.write",
            "toolRange": "^1.0.0"});
        let issue = v1::IssueGrantRequest {
            grant_json: grant.to_string().into_bytes().into(),
            tenant_id: "acme".into(),
            rationale: "x".into(),
            expiry: Some(v1::issue_grant_request::Expiry::ExpiresAfterSeconds(3_600)),
            dry_run: false,
        };
        root.governance.issue_grant(root.ask(issue)).await.unwrap();
        let rule = json!({"bucketId": "throttle-that-is", "toolId": "memory.read", "capacity": 9, "refillPerSecond": 9});
        let set = v1::SetThrottleRequest {
            rule_json: rule.to_string().into_bytes().into(),
            tenant_id: "acme".into(),
            reason: "x".into(),
            ..Default::default()
        };
        root.governance.set_throttle(root.ask(set)).await.unwrap();
        let entry_json = writer("1.0.0", "champion").into();
        let register = v1::RegisterAgentRequest { entry_json, reason: "x".into() };
        root.registry.register_agent(root.ask(register)).await.unwrap();
        let entry_json = writer("1.1.0", "challenger").into();
        let publish = v1::PublishAgentVersionRequest { entry_json, reason: "x".into(), expected_revision: 0 };
        root.registry.publish_agent_version(root.ask(publish)).await.unwrap();
        let start = v1::StartRolloutRequest {
            rollout_id: "rollout-that-is".into(),
            tenant_id: "acme".into(),
            agent_id: "acme.writer-is".into(),
            champion_semver: "1.0.0".into(),
            challenger_semver: "1.1.0".into(),
            mode: v1::RolloutMode::Shadow.into(),
            reason: "x".into(),
            ..Default::default()
        };
        root.feedback.start_rollout(root.ask(start)).await.unwrap();
    });
    let real = Ids {
        run: run.parse().unwrap(),
        approval: approval.parse().unwrap(),
        key: key.parse().unwrap(),
        switch: "switch-that-is",
        budget: "budget-that-is",
        webhook: "webhook-that-is",
        grant: "grant-that-is",
        throttle: "throttle-that-is",
        agent: "acme.writer-is",
        rollout: "rollout-that-is",
        schedule: "schedule-that-is",
    };
    let none = Ids {
        run: Uuid::new_v4(),
        approval: Uuid::new_v4(),
        key: Uuid::new_v4(),
        switch: "switch-nowhere",
        budget: "budget-nowhere",
        webhook: "webhook-nowhere",
        grant: "grant-nowhere",
        throttle: "throttle-nowhere",
        agent: "acme.nobody-is",
        rollout: "rollout-nowhere",
        schedule: "schedule-nowhere",
    };
    let before = guarded.as_holder(&olga, &format!("runs get {run}")).json()["lastSeq"].clone();

    let strangers = [
        guarded.token("globex", "eve", "tenant-operator"),
        guarded.token("globex", "ann", "creator"),
        guarded.token("globex", "carl", "customer"),
        // Of the same tenant, and not among those who may see the run.
        guarded.token("acme", "bob", "creator"),
    ];
    for token in &strangers {
        let mut called: BTreeSet<String> = NAMES_NOTHING.map(str::to_owned).into();
        let (heard, heard_of_none) = runtime.block_on(async {
            let mut stranger = Stranger::at(&guarded.server.addr, token).await;
            (stranger.hears(real).await, stranger.hears(none).await)
        });
        for ((name, foreign), (_, missing)) in heard.iter().zip(&heard_of_none) {
            assert_eq!(told(foreign, real), told(missing, none), "{name} as {}", token.display());
            called.insert(name.clone());
        }
        assert_eq!(called, served(), "a call that is not asked here, or no longer served");
    }
    let after = guarded.as_holder(&olga, &format!("runs get {run}")).json();
    assert_eq!(after["lastSeq"], before, "and nothing has happened to the run");
    assert_eq!(guarded.as_holder(&olga, "keys list").json()["apiKeys"][0]["state"], "live");

    // The same id in another tenant is another run.
    let plan = json!({"rootAgentId": "ref.research", "plan": [{"stepId": "w", "kind": "wait", "seconds": 600}]});
    let eve = format!("--run-id {run} --token-file {}", strangers[0].display());
    let said = guarded.server.submit(&plan, &eve);
    assert_eq!((said.json()["runId"].as_str(), said.json()["replayed"].as_bool()), (Some(run.as_str()), Some(false)));
}
