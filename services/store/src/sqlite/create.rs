//! Creating runs: as many as wait, in one transaction.

use rusqlite::params;
use signalbox_domain::ids::{RunId, TenantId};
use signalbox_domain::run::append::RunHead;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::{Created, NewRun, StoreError};
use signalbox_ports::leases::RUN_FORMAT;
use signalbox_ports::webhooks::told_of_run;

use super::append::{insert_approvals, insert_events};
use super::direct::{Direct, Transaction};
use super::webhooks;
use crate::batch::approvals_json;
use crate::dashboard::{cost_band, ended_at};
use crate::rows::{int, run_columns, run_row};

/// Creates runs; one answer for each, in order. If something fails, each is tried by itself: one run that cannot be
/// created keeps no other from being.
pub(super) fn create_all(direct: &mut Direct, runs: &[NewRun], clock: &dyn Clock) -> Vec<Result<Created, StoreError>> {
    let together = direct.transact(|conn| {
        let now = clock.now_micros();
        runs.iter().map(|run| create(conn, run, now)).collect::<Result<Vec<_>, _>>()
    });
    match together {
        Ok(created) => created.into_iter().map(Ok).collect(),
        Err(error) if runs.len() == 1 => vec![Err(error)],
        Err(_) => {
            let alone = |run| direct.transact(|conn| create(conn, run, clock.now_micros()));
            runs.iter().map(alone).collect()
        }
    }
}

pub(super) fn create(conn: &Transaction<'_>, run: &NewRun, now: UnixMicros) -> Result<Created, StoreError> {
    if let Some(head) = find(conn, &run.tenant_id, run.run_id)? {
        return Ok(Created::Exists(head));
    }
    let mut taken = false;
    let by_key = "SELECT 1 FROM runs WHERE run_key = ?1";
    conn.each("find a run", by_key, [run.run_key.uuid().into_bytes()], |_| taken = true)?;
    if taken {
        return Err(StoreError::Poison("the run key is taken".into()));
    }
    let (head, events) = run.first_rows(now)?;
    let submitted = run.submitted()?;
    let key = head.run_key.uuid();
    let row = params![
        key.into_bytes(),
        head.tenant_id.as_str(),
        head.run_id.uuid().into_bytes(),
        head.owner.map(|owner| owner.uuid().into_bytes()),
        int(head.lease_epoch),
        int(head.last_seq),
        head.last_hash.0,
        head.last_at.0,
        run.projection.wake_at.map(|at| at.0),
        head.closed,
        RUN_FORMAT,
        run.parent().map(|parent| parent.uuid().into_bytes()),
    ];
    let insert = "INSERT INTO runs (run_key, tenant, run_id, owner_incarnation, lease_epoch, last_seq, last_hash, \
                  last_at, control_seq, inbox_len, wake_at_ms, parked, closed, format, parent_key) \
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, 0, ?, ?, ?)";
    conn.execute("write the row of a run", insert, row)?;
    let listed_under = submitted.listed_under();
    let row = params![
        key.into_bytes(),
        head.tenant_id.as_str(),
        submitted.pipeline_id.as_ref().map(|pipeline| pipeline.as_str()),
        submitted.root_agent_id.as_str(),
        now.0,
        run.projection.status.as_str(),
        run.projection.total_cost_micros,
        run.projection.percent,
        run.projection.waiting_for,
        approvals_json(&run.projection.open_approvals),
        cost_band(&run.projection),
        run.projection.slow_at.map(|at| at.0),
        run.projection.has_warnings,
        run.projection.words.as_bytes(),
        ended_at(&run.projection, head.last_at),
        listed_under.as_str(),
    ];
    let insert = "INSERT INTO run_dashboard (run_key, tenant, pipeline_id, root_agent_id, submitted_at, status, \
                  total_cost_micros, percent, waiting_for, open_approvals, cost_band, slow_at_ms, warned, words, \
                  ended_at, submitted_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    conn.execute("write the dashboard", insert, row)?;
    if let Some(routing) = &submitted.routing {
        let row = params![
            key.into_bytes(),
            routing.rollout_id.as_str(),
            routing.arm.as_str(),
            routing.min_evaluation_score.0
        ];
        let insert = "INSERT INTO rollout_runs (run_key, rollout_id, arm, min_score_micros) VALUES (?, ?, ?, ?)";
        conn.execute("write the side of a run", insert, row)?;
    }
    insert_events(conn, &events)?;
    let told = told_of_run(&head, &events, run.events.iter().map(|new| &new.event), |_| None);
    webhooks::tell(conn, &told, head.last_at.ms())?;
    let open: Vec<_> = run.projection.open_approvals.iter().map(|open| (run.run_key, &run.tenant_id, open)).collect();
    insert_approvals(conn, &open)?;
    Ok(Created::New { head, events })
}

fn find(conn: &Transaction<'_>, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError> {
    let sql = concat!("SELECT ", run_columns!(), " FROM runs WHERE tenant = ?1 AND run_id = ?2");
    let mut found = None;
    conn.each("find a run", sql, params![tenant.as_str(), run.uuid().into_bytes()], |row| found = Some(run_row(row)))?;
    Ok(found.transpose()?.map(|run| run.head))
}
