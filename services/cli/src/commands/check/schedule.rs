//! `check cron`: the next three instants.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::pipeline::cron::{Cron, CronError, Zone};
use signalbox_domain::time::UnixMs;

use super::{Verdict, read, verdict};

#[derive(Deserialize)]
struct Line {
    expr: String,
    tz: String,
    after: String,
}

pub(super) fn cron(line: Value) -> Verdict {
    let line: Line = read(line)?;
    let schedule = || Ok::<_, CronError>((line.expr.parse::<Cron>()?, line.tz.parse::<Zone>()?));
    let (cron, zone) = match schedule() {
        Ok(schedule) => schedule,
        Err(error) => return Ok(verdict([("invalid", error.to_string().into())])),
    };
    let mut next = Vec::with_capacity(3);
    let after: Timestamp = line.after.parse().map_err(|_| {
        let text: String = line.after.chars().take(64).collect();
        format!("`{text}` is not an instant such as 2026-03-07T12:00:00Z")
    })?;
    let mut after = UnixMs(after.as_nanosecond().div_euclid(1_000_000).try_into().unwrap_or(i64::MAX));
    while let Some(at) = cron.next_after(&zone, after).filter(|_| next.len() < 3) {
        next.push(Timestamp::from_millisecond(at.0).map_err(|error| error.to_string())?.to_string());
        after = at;
    }
    Ok(if next.is_empty() { verdict([("never", true.into())]) } else { verdict([("next", json!(next))]) })
}
