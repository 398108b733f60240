//! Requests of any bytes: they are decoded as the message, and what decodes is read or refused, never worse.

use prost::Message as _;
use signalbox_domain::dashboard::{DashboardCursor, DashboardFilter};
use signalbox_domain::governance::change::GovernanceState;
use signalbox_domain::identity::Actor;
use signalbox_domain::ids::TenantId;
use signalbox_domain::pipeline::schedule::{Putting, managing, next_fire_for};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_proto::v1::{self, control_run_request::Control};
use signalbox_tests::fuzz::{Target, drive_over};
use uuid::Uuid;

use crate::api::{ApiError, Caller, Whose};
use crate::errors::Refusal;
use crate::governing::{read, throttles};
use crate::listing::Listing;
use crate::{page, schedules, validate, webhooks};

/// What a token of a list of running runs depends on.
fn running() -> String {
    let filter = DashboardFilter { status: vec![RunStatus::Running], ..DashboardFilter::default() };
    page::context(&TenantId::new("acme").unwrap(), &Whose::Own, &filter)
}

#[test]
fn a_submission_of_any_bytes_is_read_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::SubmitRunRequest::decode(bytes) else { return };
        let _ = validate::optional_id::<signalbox_domain::ids::RunId>("run_id", &request.run_id);
        if let Err(refusal) = validate::submission(&request.submission_json) {
            assert!(!refusal.code().is_empty() && format!("{refusal:?}").len() < 3_000, "{refusal:?}");
        }
    }
    let submission = br#"{"rootAgentId":"ref.research","plan":[{"stepId":"a","kind":"wait","seconds":1}]}"#;
    let request = |run_id: &str, json: &[u8]| {
        v1::SubmitRunRequest { run_id: run_id.to_owned(), submission_json: json.to_vec().into() }.encode_to_vec()
    };
    let seeds = vec![request("", submission), request(&Uuid::from_u128(7).to_string(), submission), request("x", b"{")];
    drive_over(Target { name: "submit-run-request", run, weight: 1 }, seeds);
}

#[test]
fn a_control_of_any_bytes_is_a_command_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::ControlRunRequest::decode(bytes) else { return };
        if let Err(refusal) = validate::steering(request) {
            assert!(!refusal.code().is_empty() && format!("{refusal:?}").len() < 3_000, "{refusal:?}");
        }
    }
    let overrides_json = br#"{"mode":"economy","params":{"a":{"k":[1]}},"branch":"left"}"#.as_slice().into();
    let controls = [
        Control::Kill(v1::Kill {}),
        Control::ChooseBranch(v1::ChooseBranch { step_id: "a".into(), branch_id: "left".into() }),
        Control::RetryWithChanges(v1::RetryWithChanges { step_id: "a".into(), overrides_json }),
        Control::OperatorStep(v1::OperatorStep { step_id: "a".into() }),
    ];
    let seeds = controls.map(|control| {
        v1::ControlRunRequest { reason: "why\0".into(), control: Some(control), ..Default::default() }.encode_to_vec()
    });
    drive_over(Target { name: "control-run-request", run, weight: 1 }, seeds.into());
}

#[test]
fn a_page_token_that_is_read_is_the_one_that_was_made() {
    fn run(bytes: &[u8]) {
        let (text, here) = (String::from_utf8_lossy(bytes), running());
        if let Ok(Some(place)) = page::read(&text, &here) {
            assert_eq!(page::token(place, &here), text, "a token that was not made here is believed");
        }
    }
    let token = |n| {
        let run_key = signalbox_domain::ids::RunKey::new(Uuid::from_u128(n));
        let started_at = UnixMicros(i64::try_from(n >> 65).unwrap());
        page::token(DashboardCursor { started_at, run_key }, &running())
    };
    drive_over(
        Target { name: "page-token", run, weight: 1 },
        vec![token(1).into_bytes(), token(u128::MAX).into_bytes()],
    );
}

#[test]
fn a_watch_of_any_bytes_has_a_run_and_a_cursor_or_is_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::WatchRunRequest::decode(bytes) else { return };
        let read: Result<signalbox_domain::ids::RunId, _> = validate::id("run_id", &request.run_id);
        match read {
            Ok(id) => assert_eq!(id.to_string().len(), 36),
            Err(refusal) => assert!(format!("{refusal:?}").len() < 3_000, "{refusal:?}"),
        }
    }
    let request = |after_seq| v1::WatchRunRequest { run_id: Uuid::from_u128(7).to_string(), after_seq }.encode_to_vec();
    // The last is a cursor below zero, as a client that minds no types would send it.
    let seeds = vec![
        request(0),
        request(12),
        request(u64::MAX),
        vec![0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    ];
    drive_over(Target { name: "watch-run-request", run, weight: 1 }, seeds);
}

#[test]
fn a_deadline_of_any_bytes_is_a_time_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(value) = http::HeaderValue::from_bytes(bytes) else { return };
        let mut headers = http::HeaderMap::new();
        headers.insert("grpc-timeout", value);
        match crate::transport::timeout_of(&headers) {
            Ok(timeout) => assert!(timeout.is_some()),
            Err(refusal) => assert_eq!(refusal.code(), "deadline-invalid"),
        }
    }
    let seeds = ["1S", "99999999H", "0n", "20m", "7u", "3M"].map(|text| text.as_bytes().to_vec());
    drive_over(Target { name: "grpc-timeout", run, weight: 1 }, seeds.into());
}

#[test]
fn a_request_for_a_list_of_any_bytes_is_a_filter_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::ListRunsRequest::decode(bytes) else { return };
        match Listing::read(request) {
            Ok(listing) => assert_eq!(listing.filter.check(), Ok(())),
            Err(refusal) => {
                assert!(!refusal.code().is_empty() && format!("{refusal:?}").len() < 3_000, "{refusal:?}");
            }
        }
    }
    let request = |text: &str| v1::ListRunsRequest {
        status: vec!["running".into()],
        bucket: vec!["in-flight".into()],
        cost_band: vec!["low".into()],
        latency_band: vec!["quick".into()],
        agent_id: "ref.research".into(),
        family: "research".into(),
        pipeline_id: "a.b".into(),
        started_after_unix_ms: Some(-1),
        has_warnings: Some(true),
        text: text.into(),
        page_size: 3,
        ..Default::default()
    };
    let seeds = ["", "50 % of it", "a\0b"].map(|text| request(text).encode_to_vec());
    drive_over(Target { name: "list-runs-request", run, weight: 1 }, seeds.into());
}

/// A refusal that a client can be told: with a code, and not as long as what was sent.
fn tellable(refusal: &Refusal) {
    assert!(!refusal.code().is_empty() && format!("{refusal:?}").len() < 3_000, "{refusal:?}");
}

#[test]
fn a_preflight_of_any_bytes_is_read_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::PreflightRunRequest::decode(bytes) else { return };
        if let Err(refusal) = validate::submission(&request.submission_json) {
            tellable(&refusal);
        }
    }
    let submission =
        br#"{"rootAgentId":"ref.research","plan":[{"stepId":"a","kind":"wait","seconds":1}],"mode":"deep"}"#;
    let seeds = [submission.as_slice(), b"{"]
        .map(|json| v1::PreflightRunRequest { submission_json: json.to_vec().into() }.encode_to_vec());
    drive_over(Target { name: "preflight-run-request", run, weight: 1 }, seeds.into());
}

#[test]
fn a_switch_of_any_bytes_is_an_order_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::ArmSwitchRequest::decode(bytes) else { return };
        if let Err(refusal) = read::order(request, Uuid::from_u128(7), UnixMs(1)) {
            tellable(&refusal);
        }
    }
    let whole = v1::ArmSwitchRequest {
        switch_id: "s".into(),
        tenant_id: "acme".into(),
        scope: v1::SwitchScope::Tool.into(),
        target_id: "web.fetch".into(),
        reason: "why\0".into(),
        user_visible_status_copy: "paused".into(),
        safe_degradation_mode_id: "read-only".into(),
        expiry: Some(v1::arm_switch_request::Expiry::ExpiresAfterSeconds(u64::MAX)),
        ..Default::default()
    };
    let wide = v1::ArmSwitchRequest { platform_wide: true, ..whole.clone() };
    drive_over(
        Target { name: "arm-switch-request", run, weight: 1 },
        vec![whole.encode_to_vec(), wide.encode_to_vec()],
    );
}

#[test]
fn a_budget_of_any_bytes_is_a_wish_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::PutBudgetRequest::decode(bytes) else { return };
        if let Err(refusal) = read::wish(request) {
            tellable(&refusal);
        }
    }
    let rule = br#"{"budgetId":"b","scope":"tenant","scopeKey":"acme","category":"cost-units","limit":500.5,
        "calendar":{"unit":"day","timeZone":"Europe/Berlin"},"graceRatio":1.1,"graceSeconds":60,"onExceeded":"pause"}"#;
    let seeds = [rule.as_slice(), b"{\"budgetId\":\"b\",\"budgetId\":\"c\"}"].map(|json| {
        v1::PutBudgetRequest { budget_json: json.to_vec().into(), reason: "x".into(), ..Default::default() }
            .encode_to_vec()
    });
    drive_over(Target { name: "put-budget-request", run, weight: 1 }, seeds.into());
}

#[test]
fn a_throttle_of_any_bytes_is_a_wish_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::SetThrottleRequest::decode(bytes) else { return };
        if let Err(refusal) = throttles::wish(request) {
            tellable(&refusal);
        }
    }
    let rule = br#"{"bucketId":"b","per":["user","tool"],"toolId":"web.fetch","capacity":20,"refillPerSecond":0.5}"#;
    let seeds = [rule.as_slice(), b"{\"capacity\":1e300}"].map(|json| {
        v1::SetThrottleRequest { rule_json: json.to_vec().into(), reason: "x".into(), ..Default::default() }
            .encode_to_vec()
    });
    drive_over(Target { name: "set-throttle-request", run, weight: 1 }, seeds.into());
}

#[test]
fn a_webhook_of_any_bytes_is_a_wish_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::PutWebhookRequest::decode(bytes) else { return };
        if let Err(refusal) = webhooks::wish(request) {
            tellable(&refusal);
        }
    }
    let request = |url: &str| v1::PutWebhookRequest {
        webhook_id: "w".into(),
        url: url.into(),
        event_types: vec!["run.failed".into(), "dev.signalbox.switch.armed".into()],
        secret_ids: vec!["key".into()],
        reason: "x".into(),
        ..Default::default()
    };
    let seeds = ["https://hooks.example/", "https://ann@10.0.0.1:99999/#x", "http://[::1]/"];
    drive_over(
        Target { name: "put-webhook-request", run, weight: 1 },
        seeds.map(|url| request(url).encode_to_vec()).into(),
    );
}

#[test]
fn a_schedule_of_any_bytes_is_decided_or_refused() {
    fn run(bytes: &[u8]) {
        let Ok(request) = v1::PutScheduleRequest::decode(bytes) else { return };
        match schedules::wish(request) {
            Err(refusal) => tellable(&refusal),
            Ok(wish) => {
                let caller = Caller {
                    tenant_id: TenantId::new("acme").unwrap(),
                    actor: Actor::system(),
                    scopes: Vec::new(),
                    surface: "api",
                };
                let (state, now) = (GovernanceState::default(), UnixMs(1_800_000_000_000));
                match managing::put(wish, &caller, &state, 0, now) {
                    Err(denial) => tellable(&ApiError::from(denial).into()),
                    Ok(Putting::Put(schedule) | Putting::Unchanged(schedule)) => {
                        assert!(next_fire_for(&schedule, now).is_none_or(|next| next > now));
                    }
                }
            }
        }
    }
    use v1::put_schedule_request::{Fires, Timing};
    let request = |timing: Timing| v1::PutScheduleRequest {
        schedule_id: "s".into(),
        fires: Some(Fires::SubmissionJson(
            br#"{"rootAgentId":"ref.drafting","plan":[{"stepId":"w","kind":"wait","seconds":1}]}"#.to_vec().into(),
        )),
        timing: Some(timing),
        timezone: "Europe/Berlin".into(),
        reason: "x".into(),
        ..Default::default()
    };
    let seeds = [
        request(Timing::Cron("30 2 29 2 MON".into())),
        request(Timing::IntervalSeconds(u64::MAX)),
        request(Timing::Weekly(v1::WeeklyTiming { weekday: "mon".into(), hour: 25, minute: 60 })),
    ];
    drive_over(
        Target { name: "put-schedule-request", run, weight: 1 },
        seeds.map(|request| request.encode_to_vec()).into(),
    );
}
