//! Managing schedules, and looking at what became of their fires.

use std::sync::Arc;

use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::{GovernanceChange, GovernanceState};
use signalbox_domain::identity::{self, Action, Reach};
use signalbox_domain::ids::ScheduleId;
use signalbox_domain::pipeline::schedule::{
    FireState, NewFire, Objection, PipelineSchedule, PutSchedule, Putting, ScheduleDenial, managing, next_fire_for,
    objection,
};
use signalbox_domain::time::UnixMs;
use signalbox_ports::acts::Effect;
use signalbox_ports::schedules::{Fire, FireFilter, FiresOf, ScheduleKey, Schedules};

use super::NodeHandle;
use super::governing::{Decided, Draft, recorded};
use crate::api::{ApiError, Caller};

/// A schedule, its revision, and when it fires next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleStanding {
    /// The schedule.
    pub schedule: PipelineSchedule,
    /// The last act on it; 0 of one that was not put.
    pub revision: u64,
    /// Its next slot; none while it is paused, or if there is none any more.
    pub next_at: Option<UnixMs>,
}

impl NodeHandle {
    /// Creates a schedule or changes it; true if nothing had to be changed. With `dry_run` this decides and writes nothing.
    pub async fn put_schedule(
        &self,
        caller: &Caller,
        wish: PutSchedule,
        dry_run: bool,
    ) -> Result<(ScheduleStanding, bool), ApiError> {
        let wish = &wish;
        let ((schedule, unchanged), _) = self
            .act(caller, move |state| async move {
                let id = &wish.schedule_id;
                let (revision, now) = (self.schedule_revision(caller, id).await?, self.now());
                match managing::put(wish.clone(), caller, &state, revision, now)? {
                    Putting::Unchanged(schedule) => Ok(Decided::Nothing((schedule, true))),
                    Putting::Put(schedule) if dry_run => Ok(Decided::Nothing((schedule, false))),
                    Putting::Put(schedule) => {
                        let before = managing::find(id, caller, &state).ok();
                        let draft = put_draft(AuditKind::SchedulePut, before, &schedule, &wish.reason);
                        Ok(Decided::Act(Box::new(draft), (schedule, false)))
                    }
                }
            })
            .await?;
        Ok((self.schedule_standing(schedule).await?, unchanged))
    }

    /// Pauses a schedule (`paused`), or lets it go on; true if nothing had to be changed.
    pub async fn set_schedule_paused(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        paused: bool,
        reason: &str,
        expected: Expected,
    ) -> Result<(ScheduleStanding, bool), ApiError> {
        let ((schedule, unchanged), _) = self
            .act(caller, move |state| async move {
                let facts = (self.schedule_revision(caller, id).await?, self.now());
                match managing::set_paused(id, paused, reason, expected, caller, &state, facts)? {
                    Putting::Unchanged(schedule) => Ok(Decided::Nothing((schedule, true))),
                    Putting::Put(schedule) => {
                        let before = managing::find(id, caller, &state).ok();
                        let kind = if paused { AuditKind::SchedulePaused } else { AuditKind::ScheduleResumed };
                        let draft = put_draft(kind, before, &schedule, reason);
                        Ok(Decided::Act(Box::new(draft), (schedule, false)))
                    }
                }
            })
            .await?;
        Ok((self.schedule_standing(schedule).await?, unchanged))
    }

    /// Removes a schedule. What waits begins no more; what became of earlier slots is kept. Answers it as it was.
    pub async fn remove_schedule(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        reason: &str,
        expected: Expected,
        dry_run: bool,
    ) -> Result<PipelineSchedule, ApiError> {
        let (schedule, _) = self
            .act(caller, move |state| async move {
                let revision = self.schedule_revision(caller, id).await?;
                let schedule = managing::remove(id, reason, expected, caller, &state, revision)?;
                if dry_run {
                    return Ok(Decided::Nothing(schedule));
                }
                let (tenant_id, schedule_id) = (schedule.tenant_id.clone(), schedule.schedule_id.clone());
                let body = AuditBody { reason: reason.to_owned(), before: recorded(&schedule), ..AuditBody::default() };
                let effect = Effect::Change(GovernanceChange::ScheduleRemoved { tenant_id, schedule_id });
                let draft = draft(AuditKind::ScheduleRemoved, &schedule, body, effect);
                Ok(Decided::Act(Box::new(draft), schedule))
            })
            .await?;
        Ok(schedule)
    }

    /// Fills in slots after the fact; answers their fires. With `dry_run` this decides and writes nothing.
    pub async fn backfill_schedule(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        stretch: (UnixMs, UnixMs),
        at_once: bool,
        reason: &str,
        dry_run: bool,
    ) -> Result<Vec<NewFire>, ApiError> {
        let (fires, _) = self
            .act(caller, move |state| async move {
                let now = self.now();
                let (schedule, fires) = managing::backfill(id, stretch, at_once, reason, caller, &state, now)?;
                if dry_run {
                    return Ok(Decided::Nothing(fires));
                }
                let (from, to) = stretch;
                let details = serde_json::json!({
                    "fromUnixMs": from, "toUnixMs": to, "slots": fires.len(), "atOnce": at_once,
                });
                let body = AuditBody { reason: reason.to_owned(), details: Some(details), ..AuditBody::default() };
                let effect = Effect::PutFires(FiresOf { schedule: key_of(&schedule), fires: fires.clone() });
                let draft = draft(AuditKind::ScheduleBackfilled, &schedule, body, effect);
                Ok(Decided::Act(Box::new(draft), fires))
            })
            .await?;
        self.look_for_fires();
        Ok(fires)
    }

    /// Has a dead letter tried again, with as many attempts as the first time.
    pub async fn redrive_fire(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        at: UnixMs,
        reason: &str,
    ) -> Result<Fire, ApiError> {
        let key = ScheduleKey { tenant_id: caller.tenant_id.clone(), schedule_id: id.clone() };
        let of = &key;
        self.act(caller, move |state| async move {
            let known = self.inner.ports.schedules.fire(of, at).await?;
            let is_dead = known.is_some_and(|fire| fire.state == FireState::Dead);
            let (schedule, fire) = managing::redrive(id, at, is_dead, reason, caller, &state, self.now())?;
            let details = serde_json::json!({ "slotUnixMs": at });
            let body = AuditBody { reason: reason.to_owned(), details: Some(details), ..AuditBody::default() };
            let effect = Effect::PutFires(FiresOf { schedule: of.clone(), fires: vec![fire] });
            let draft = draft(AuditKind::ScheduleRedriven, &schedule, body, effect);
            Ok(Decided::Act(Box::new(draft), ()))
        })
        .await?;
        self.look_for_fires();
        let fire = self.inner.ports.schedules.fire(&key, at).await?;
        Ok(fire.ok_or_else(|| ScheduleDenial::NoDeadLetter(id.clone()))?)
    }

    /// One schedule.
    pub async fn schedule(&self, caller: &Caller, id: &ScheduleId) -> Result<ScheduleStanding, ApiError> {
        let schedule = self.seen_schedule(caller, id).await?;
        self.schedule_standing(schedule).await
    }

    /// The schedules the caller may see, in the order they were first put.
    pub async fn schedules(&self, caller: &Caller) -> Result<Vec<ScheduleStanding>, ApiError> {
        self.inner.shared.governance.refresh().await;
        let state = self.inner.shared.governance.view().state.clone();
        let mut standings = Vec::new();
        for schedule in state.schedules.iter().filter(|known| managing::may_see(caller, known)) {
            standings.push(self.schedule_standing(schedule.clone()).await?);
        }
        Ok(standings)
    }

    /// The next slots of a schedule after an instant, and when each begins.
    pub async fn schedule_preview(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        after: Option<UnixMs>,
        count: usize,
    ) -> Result<Vec<(UnixMs, UnixMs)>, ApiError> {
        let schedule = self.seen_schedule(caller, id).await?;
        Ok(managing::preview(&schedule, after.unwrap_or_else(|| self.now()), count))
    }

    /// What became of slots, the latest first: of one schedule, or of all that the caller may see; to an operator also those of
    /// schedules that were removed since.
    pub async fn schedule_fires(
        &self,
        caller: &Caller,
        id: Option<&ScheduleId>,
        state: Option<FireState>,
        limit: usize,
    ) -> Result<Vec<Fire>, ApiError> {
        let of = |schedule_id: Option<ScheduleId>| FireFilter {
            tenant_id: caller.tenant_id.clone(),
            schedule_id,
            state,
            limit,
        };
        let rows = &self.inner.ports.schedules;
        if let Some(id) = id {
            let seen = self.seen_schedule(caller, id).await?;
            return Ok(rows.fires(&of(Some(seen.schedule_id))).await?);
        }
        if identity::reach(caller.actor.role, Action::ReadRuns) >= Reach::Tenant {
            return Ok(rows.fires(&of(None)).await?);
        }
        let mut fires = Vec::new();
        for known in self.schedules(caller).await? {
            fires.extend(rows.fires(&of(Some(known.schedule.schedule_id))).await?);
        }
        fires.sort_by_key(|fire| std::cmp::Reverse(fire.at));
        fires.truncate(limit);
        Ok(fires)
    }

    /// A schedule as this node has read it.
    pub(crate) fn known_schedule(&self, key: &ScheduleKey) -> Option<PipelineSchedule> {
        let view = self.inner.shared.governance.view();
        let known = view.state.schedules.iter().find(|known| key_of(known) == *key);
        known.cloned()
    }

    /// The rules as this node has read them, and in them all schedules.
    pub(crate) fn rules_in_view(&self) -> Arc<GovernanceState> {
        self.inner.shared.governance.view().state.clone()
    }

    /// Reads the rules anew.
    pub(crate) async fn refresh_rules(&self) {
        self.inner.shared.governance.refresh().await;
    }

    /// What stands against starting a run of a schedule now; an error if that cannot be said.
    pub(crate) fn objection(&self, schedule: &PipelineSchedule) -> Result<Option<Objection>, String> {
        let (shared, view) = (&self.inner.shared, self.inner.shared.governance.view());
        if !view.is_current(shared.clock.boot()) {
            return Err("the rules could not be read lately".to_owned());
        }
        Ok(objection(schedule, &view.state, &view.budgets, shared.clock.now()))
    }

    pub(crate) fn schedule_rows(&self) -> &dyn Schedules {
        self.inner.ports.schedules.as_ref()
    }

    fn look_for_fires(&self) {
        if let Some(schedules) = self.inner.schedules.get() {
            let _ = schedules.cast(crate::schedules::Msg::Look);
        }
    }

    async fn seen_schedule(&self, caller: &Caller, id: &ScheduleId) -> Result<PipelineSchedule, ApiError> {
        self.inner.shared.governance.refresh().await;
        let state = self.inner.shared.governance.view().state.clone();
        Ok(managing::find(id, caller, &state)?.clone())
    }

    async fn schedule_standing(&self, schedule: PipelineSchedule) -> Result<ScheduleStanding, ApiError> {
        let subject = Subject::schedule(&schedule.tenant_id, &schedule.schedule_id);
        let revision = self.inner.ports.acts.last_act(&subject).await?.map_or(0, |act| act.seq);
        let next_at = if schedule.is_paused() { None } else { next_fire_for(&schedule, self.now()) };
        Ok(ScheduleStanding { schedule, revision, next_at })
    }

    async fn schedule_revision(&self, caller: &Caller, id: &ScheduleId) -> Result<u64, ApiError> {
        let subject = Subject::schedule(&caller.tenant_id, id);
        Ok(self.inner.ports.acts.last_act(&subject).await?.map_or(0, |act| act.seq))
    }
}

pub(crate) fn key_of(schedule: &PipelineSchedule) -> ScheduleKey {
    ScheduleKey { tenant_id: schedule.tenant_id.clone(), schedule_id: schedule.schedule_id.clone() }
}

fn put_draft(kind: AuditKind, before: Option<&PipelineSchedule>, after: &PipelineSchedule, reason: &str) -> Draft {
    let body = AuditBody {
        reason: reason.to_owned(),
        before: before.and_then(recorded),
        after: recorded(after),
        details: None,
    };
    draft(kind, after, body, Effect::Change(GovernanceChange::SchedulePut(Box::new(after.clone()))))
}

fn draft(kind: AuditKind, schedule: &PipelineSchedule, body: AuditBody, effect: Effect) -> Draft {
    Draft {
        tenant_id: Some(schedule.tenant_id.clone()),
        kind,
        subject: Subject::schedule(&schedule.tenant_id, &schedule.schedule_id),
        body,
        effect,
    }
}
