//! Fires of schedules as both databases keep them: what their rows mean.

use signalbox_domain::ids::{RunId, ScheduleId, TenantId};
use signalbox_domain::pipeline::schedule::Reason;
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;
use signalbox_ports::schedules::{Fire, ScheduleKey};
use uuid::Uuid;

use crate::cells::Cells;
use crate::rows::{count, number, word};

/// The columns [`fire`] reads.
macro_rules! fire_columns {
    () => {
        "f.tenant, f.schedule_id, f.at_ms, f.through_ms, f.slots, f.state, f.reason, f.details, f.run_id, f.attempts, \
         f.next_at_ms, f.recorded_at_ms, f.last_at_ms"
    };
}
pub(crate) use fire_columns;

/// The fires of a schedule that wait, and those among its last started ones whose run is not over. `$one` is the tenant, `$two`
/// the schedule, `$three` how many started ones are looked at.
macro_rules! open_fires {
    ($one:literal, $two:literal, $three:literal) => {
        concat!(
            "SELECT ",
            fire_columns!(),
            " FROM schedule_fires AS f WHERE f.tenant = ",
            $one,
            " AND f.schedule_id = ",
            $two,
            " AND f.state IN ('waiting', 'buffered') UNION ALL SELECT ",
            fire_columns!(),
            " FROM (SELECT * FROM schedule_fires WHERE tenant = ",
            $one,
            " AND schedule_id = ",
            $two,
            " AND state = 'started' ORDER BY last_at_ms DESC LIMIT ",
            $three,
            ") AS f JOIN runs AS r ON r.tenant = f.tenant AND r.run_id = f.run_id \
             JOIN run_dashboard AS d ON d.run_key = r.run_key WHERE d.status NOT IN ",
            over!()
        )
    };
}
pub(crate) use open_fires;

/// Reads [`fire_columns!`].
pub(crate) fn fire(row: &impl Cells) -> Result<Fire, StoreError> {
    let at = |column: &str| Ok::<_, String>(row.int_or_null(column)?.map(UnixMs));
    let parse = || {
        let reason: Option<Reason> = match row.text_or_null("reason")? {
            Some(_) => Some(word(row, "reason")?),
            None => None,
        };
        Ok(Fire {
            schedule: ScheduleKey {
                tenant_id: TenantId::new(row.text("tenant")?).map_err(|error| error.to_string())?,
                schedule_id: ScheduleId::new(row.text("schedule_id")?).map_err(|error| error.to_string())?,
            },
            at: UnixMs(row.int("at_ms")?),
            through: UnixMs(row.int("through_ms")?),
            slots: count(row, "slots")?,
            state: word(row, "state")?,
            reason,
            details: row.prose_or_null("details")?,
            run_id: row.id_or_null("run_id")?.map(|id: Uuid| RunId::new(id)),
            attempts: number(row, "attempts")?,
            next_at: UnixMs(row.int("next_at_ms")?),
            recorded_at: UnixMs(row.int("recorded_at_ms")?),
            last_at: at("last_at_ms")?,
        })
    };
    parse().map_err(|problem: String| StoreError::Unavailable(format!("a fire cannot be read: {problem}")))
}

/// A row of `schedule_records`: its version and how far it has come.
pub(crate) fn dealt_with(row: &impl Cells) -> Result<(u64, Option<UnixMs>), StoreError> {
    let parse = || Ok::<_, String>((count(row, "version")?, row.int_or_null("considered_until_ms")?.map(UnixMs)));
    parse().map_err(StoreError::Unavailable)
}
