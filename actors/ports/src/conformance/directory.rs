//! Lists show what the last append said.

use signalbox_domain::dashboard::{DashboardCursor, DashboardFilter};
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{ActorId, ApprovalId, PipelineId, RunKey, SwitchId};
use signalbox_domain::run::append::{Entry, OpenApproval, RunHead, RunProjection};
use signalbox_domain::run::approvers::Approvers;
use signalbox_domain::run::event::{ApprovalReason, RunEvent};
use signalbox_domain::run::plan::ApprovalRequirement;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;

use super::world::*;
use crate::clock::Clock;
use crate::directory::{OpenQuestion, PAGE_ROWS_MAX, Scope};
use crate::journal::NewRun;

impl Fixture {
    async fn listed(&self, filter: DashboardFilter) -> Vec<RunKey> {
        let own = Scope::Tenant(tenant("acme"));
        let page = self.directory.runs(&own, &filter, self.clock.now_micros()).await.unwrap();
        page.rows.iter().map(|row| row.run_key).collect()
    }
}

fn keys(numbers: impl IntoIterator<Item = u64>) -> Vec<RunKey> {
    numbers.into_iter().map(|number| run_key("acme", number)).collect()
}

pub async fn runs_are_listed_newest_first_in_pages(f: &Fixture) {
    let count = PAGE_ROWS_MAX as u64 + 5;
    for number in 0..count {
        f.run(number).await;
    }
    f.create(new_run("globex", 3)).await;
    let limit = usize::MAX;
    assert_eq!(f.listed(DashboardFilter { limit, ..DashboardFilter::default() }).await, keys((5..count).rev()));
    assert_eq!(f.listed(DashboardFilter::default()).await.len(), PAGE_ROWS_MAX);
    assert_eq!(
        f.listed(DashboardFilter { limit: 2, ..DashboardFilter::default() }).await,
        keys([count - 1, count - 2])
    );
    let cursor = Some(DashboardCursor { started_at: f.clock.now_micros(), run_key: run_key("acme", 5) });
    assert_eq!(f.listed(DashboardFilter { cursor, limit, ..DashboardFilter::default() }).await, keys((0..5).rev()));
    let foreign = Scope::Tenant(tenant("globex"));
    let foreign = f.directory.runs(&foreign, &DashboardFilter::default(), f.clock.now_micros()).await.unwrap();
    assert_eq!((foreign.rows.len(), foreign.next), (1, None));
}

pub async fn runs_are_listed_by_status_and_pipeline(f: &Fixture) {
    let pipeline = PipelineId::new("veritas.weekly_briefing_pack").unwrap();
    for (number, status) in [(1, RunStatus::Running), (2, RunStatus::Completed), (3, RunStatus::Killed)] {
        let mut run = NewRun { projection: RunProjection { status, ..projection() }, ..new_run("acme", number) };
        if let RunEvent::RunSubmitted(submitted) = &mut run.events[0].event {
            submitted.pipeline_id = (number > 1).then(|| pipeline.clone());
        }
        f.create(run).await;
    }
    let by_status = |status: &[RunStatus]| DashboardFilter { status: status.to_vec(), ..DashboardFilter::default() };
    assert_eq!(f.listed(by_status(&[RunStatus::Killed, RunStatus::Running])).await, keys([3, 1]));
    assert_eq!(f.listed(by_status(&[RunStatus::Queued])).await, []);
    let of_pipeline = DashboardFilter { pipeline_id: Some(pipeline), ..DashboardFilter::default() };
    assert_eq!(f.listed(of_pipeline.clone()).await, keys([3, 2]));
    let both = DashboardFilter { status: vec![RunStatus::Completed], ..of_pipeline };
    assert_eq!(f.listed(both).await, keys([2]));
}

pub async fn runs_are_listed_by_whoever_submitted_them(f: &Fixture) {
    for (number, by) in [(1, "carl"), (2, "carla"), (3, "carl")] {
        let mut run = new_run("acme", number);
        if let RunEvent::RunSubmitted(submitted) = &mut run.events[0].event {
            submitted.submitted_by.actor_id = ActorId::new(by).unwrap();
        }
        f.create(run).await;
        f.clock.advance_ms(1);
    }
    let by = async |of: &str, name: &str, filter: DashboardFilter| -> Vec<RunKey> {
        let scope = Scope::Submitter(tenant(of), ActorId::new(name).unwrap());
        let page = f.directory.runs(&scope, &filter, f.clock.now_micros()).await.unwrap();
        page.rows.iter().map(|row| row.run_key).collect()
    };
    assert_eq!(by("acme", "carl", DashboardFilter::default()).await, keys([3, 1]));
    assert_eq!(by("acme", "carl", DashboardFilter { limit: 1, ..DashboardFilter::default() }).await, keys([3]));
    let queued = DashboardFilter { status: vec![projection().status], ..DashboardFilter::default() };
    assert_eq!(by("acme", "carl", queued).await, keys([3, 1]));
    assert_eq!(by("acme", "CARL", DashboardFilter::default()).await, []);
    assert_eq!(by("globex", "carl", DashboardFilter::default()).await, []);
    let scope = Scope::Submitter(tenant("acme"), ActorId::new("carla").unwrap());
    let counted = f.directory.count_runs(&scope, None).await.unwrap();
    let all = f.directory.count_runs(&Scope::Tenant(tenant("acme")), None).await.unwrap();
    assert_ne!(counted, all);
}

fn approval(number: u128, at: i64) -> OpenApproval {
    OpenApproval {
        approval_id: ApprovalId::new(uuid::Uuid::from_u128(number)),
        step_id: step("one"),
        requirement: ApprovalRequirement::Operator,
        approvers: Some(Approvers {
            actor_ids: [ActorId::new("olga").unwrap()].into(),
            roles: [Role::PlatformOperator].into(),
        }),
        prompt: "May it be published? \u{2713}".into(),
        reason: ApprovalReason::Gate,
        subject_digest: "digest".into(),
        requested_at_unix_ms: UnixMs(at),
        remind_at_unix_ms: UnixMs(at + 500),
        reminded: number.is_multiple_of(2),
        expires_at_unix_ms: UnixMs(at + 1_000),
    }
}

fn question(of: &RunHead, open: OpenApproval) -> OpenQuestion {
    let RunEvent::RunSubmitted(submitted) = &new_run("acme", 1).events[0].event else { panic!("the first event") };
    OpenQuestion { run_id: of.run_id, submitted_by: submitted.submitted_by.actor_id.clone(), open }
}

pub async fn an_open_approval_is_listed_until_it_is_decided(f: &Fixture) {
    let (one, two) = (f.run(1).await, f.run(2).await);
    f.create(new_run("globex", 3)).await;
    let asking = |open: &[OpenApproval]| Some(RunProjection { open_approvals: open.to_vec(), ..projection() });
    let later = Entry { projection: asking(&[approval(1, 20), approval(2, 30)]), ..entry(&one) };
    f.append(later).await.unwrap();
    f.append(Entry { projection: asking(&[approval(3, 10)]), ..entry(&two) }).await.unwrap();
    let open = f.directory.open_approvals(&tenant("acme")).await.unwrap();
    assert_eq!(
        open,
        [question(&two, approval(3, 10)), question(&one, approval(1, 20)), question(&one, approval(2, 30))]
    );
    f.append(Entry { projection: asking(&[approval(2, 30)]), ..entry(&one) }).await.unwrap();
    f.append(saying(&two, "no projection, no change")).await.unwrap();
    let open = f.directory.open_approvals(&tenant("acme")).await.unwrap();
    assert_eq!(open, [question(&two, approval(3, 10)), question(&one, approval(2, 30))]);
    assert_eq!(f.directory.open_approvals(&tenant("globex")).await.unwrap(), []);
}

pub async fn the_run_of_an_approval_is_found_by_its_tenant_also_after_it_was_decided(f: &Fixture) {
    let (one, two) = (f.run(1).await, f.run(2).await);
    f.create(new_run("globex", 3)).await;
    let asking = |open: &[OpenApproval]| Some(RunProjection { open_approvals: open.to_vec(), ..projection() });
    let found = async |of: &str, number: u128| {
        f.directory.run_of_approval(&tenant(of), ApprovalId::new(uuid::Uuid::from_u128(number))).await.unwrap()
    };
    assert_eq!(found("acme", 1).await, None);
    let one = f.append(Entry { projection: asking(&[approval(1, 20), approval(2, 30)]), ..entry(&one) }).await.unwrap();
    f.append(Entry { projection: asking(&[approval(3, 10)]), ..entry(&two) }).await.unwrap();
    let run_id = one.head.run_id;
    assert_eq!((found("acme", 1).await, found("acme", 3).await), (Some(run_id), Some(two.run_id)));
    // One is decided, and then the other; a new one is asked.
    let one = f.append(Entry { projection: asking(&[approval(2, 30)]), ..entry(&one.head) }).await.unwrap();
    f.append(Entry { projection: asking(&[approval(4, 40)]), ..entry(&one.head) }).await.unwrap();
    for number in [1, 2, 4] {
        assert_eq!(found("acme", number).await, Some(run_id), "{number}");
        assert_eq!(found("globex", number).await, None, "a foreign one is as absent as one that never was");
    }
    let born = NewRun { projection: asking(&[approval(5, 50)]).unwrap(), ..new_run("acme", 4) };
    let born_id = born.run_id;
    f.create(born).await;
    assert_eq!((found("acme", 5).await, found("acme", 6).await), (Some(born_id), None));
}

pub async fn a_list_shows_what_the_last_append_said(f: &Fixture) {
    let submitted_at = f.clock.now_micros();
    let head = f.run(1).await;
    f.clock.advance_ms(10);
    let said = RunProjection {
        status: RunStatus::AwaitingApproval,
        closed: false,
        total_cost_micros: 1_250_000,
        percent: 42,
        waiting_for: Some("approval of step `publish`".into()),
        wake_at: Some(UnixMs(77)),
        slow_at: Some(UnixMs(78)),
        has_warnings: true,
        words: "ann\ntopic \u{2713}".into(),
        open_approvals: vec![approval(1, 5)],
        killed_by: Some(SwitchId::new("no-web").unwrap()),
    };
    let head = f.append(Entry { projection: Some(said.clone()), ..saying(&head, "asked") }).await.unwrap().head;
    let own = Scope::Tenant(tenant("acme"));
    let rows = f.directory.runs(&own, &DashboardFilter::default(), f.clock.now_micros()).await.unwrap().rows;
    let [row] = rows.as_slice() else { panic!("one run") };
    assert_eq!(row.projection, said);
    assert_eq!((row.run_key, row.run_id, row.last_seq, row.last_at), (head.run_key, head.run_id, 2, head.last_at));
    assert_eq!((row.started_at, row.root_agent_id.as_str(), &row.pipeline_id), (submitted_at, "ref.research", &None));
}
