//! What both databases do alike with feedback: what a row means, and how outcomes are grouped.

use signalbox_domain::feedback::outcome::{OutcomeGroup, RunFeedback};
use signalbox_domain::identity::Actor;
use signalbox_domain::ids::{ActorId, RunKey};
use signalbox_domain::quantity::Micros;
use signalbox_domain::time::UnixMs;

use crate::cells::Cells;
use crate::rows::{count, word};

/// The runs of rollout `$one` that are over, grouped by what counts; `$two` is since when an end is recent.
macro_rules! outcomes {
    ($one:literal, $two:literal) => {
        concat!(
            "SELECT r.arm, d.status, CAST(CASE WHEN EXISTS (SELECT 1 FROM run_feedback AS f WHERE f.run_key = r.run_key \
             AND f.score_micros < r.min_score_micros) THEN 1 ELSE 0 END AS BIGINT) AS below, \
             CAST(CASE WHEN EXISTS (SELECT 1 FROM run_feedback AS f WHERE f.run_key = r.run_key AND f.said = 'negative') \
             THEN 1 ELSE 0 END AS BIGINT) AS negative, COUNT(*) AS runs, COUNT(*) FILTER (WHERE d.ended_at >= ",
            $two,
            ") AS still_open FROM rollout_runs AS r JOIN run_dashboard AS d ON d.run_key = r.run_key \
             WHERE r.rollout_id = ",
            $one,
            " AND d.ended_at IS NOT NULL GROUP BY 1, 2, 3, 4"
        )
    };
}
pub(crate) use outcomes;

/// A row of [`outcomes!`].
pub(crate) fn outcome_group(row: &impl Cells) -> Result<OutcomeGroup, String> {
    Ok(OutcomeGroup {
        arm: word(row, "arm")?,
        status: word(row, "status")?,
        meets_bar: row.int("below")? == 0,
        has_negative_feedback: row.int("negative")? != 0,
        runs: count(row, "runs")?,
        still_open: count(row, "still_open")?,
    })
}

/// A row of `run_feedback`.
pub(crate) fn run_feedback(run_key: RunKey, row: &impl Cells) -> Result<RunFeedback, String> {
    let actor_id = ActorId::new(row.text("actor_id")?).map_err(|error| error.to_string())?;
    Ok(RunFeedback {
        run_key,
        actor: Actor { actor_id, role: word(row, "actor_role")? },
        kind: word(row, "said")?,
        score: row.int_or_null("score_micros")?.map(Micros),
        at: UnixMs(row.int("at_ms")?),
    })
}
