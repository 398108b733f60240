//! `check ztest`.

use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::feedback::readiness::{Arm, evaluate_readiness};

use super::{Verdict, read, verdict};

#[derive(Deserialize)]
struct Line {
    champion: Arm,
    challenger: Arm,
}

pub(super) fn ztest(line: Value) -> Verdict {
    let line: Line = read(line)?;
    let found = evaluate_readiness(line.champion, line.challenger).map_err(|error| error.to_string())?;
    let mut answer = verdict([("verdict", json!(found.verdict)), ("z", json!(found.z))]);
    // Said also where it is not known, so that every answer has the same shape.
    answer.insert("p".to_owned(), json!(found.p));
    Ok(answer)
}
