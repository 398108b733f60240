//! All figures in one file, and what has moved against the file before.
//!
//! A shared machine drifts, so nothing is compared that it alone decides: rates and CPU times stand as ratios to the bare
//! loop, measured in turns with it. A figure has moved if it differs by more than its measurements do among themselves.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::measure::{governed, round};
use super::options::Options;
use super::{Failure, bare};

/// A difference below this share is never called a move.
const NOISE_MIN: f64 = 0.05;
/// How often an fdatasync is timed.
const SYNCS: usize = 200;

/// Runs at once that are measured, in a short and in a long bench.
const CONC_SHORT: [usize; 3] = [1, 64, 256];
const CONC_LONG: [usize; 6] = [1, 4, 16, 64, 256, 1_024];
/// Bytes of an answer that are measured in a long bench, at 64 runs.
const PAYLOADS_LONG: [usize; 3] = [1_000, 10_000, 100_000];

/// Everything that was measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// The machine by what matters: its cores.
    pub cores: usize,
    /// One fdatasync after 4 KiB, in milliseconds, where the data folders are.
    pub fdatasync_ms: f64,
    /// Each figure by name.
    pub figures: std::collections::BTreeMap<String, Figure>,
}

/// One figure.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Figure {
    /// The median of what was measured.
    pub value: f64,
    /// Largest less smallest measurement, as a share of the median.
    pub spread: f64,
}

impl Figure {
    fn of(mut measured: Vec<f64>) -> Option<Self> {
        measured.retain(|value| value.is_finite());
        measured.sort_by(f64::total_cmp);
        let value = *measured.get(measured.len() / 2)?;
        let spread = (measured.last()? - measured.first()?) / value.abs().max(f64::MIN_POSITIVE);
        Some(Self { value: round(value, 4), spread: round(spread, 3) })
    }
}

/// Measures everything, says what has moved against the file, and writes it anew.
pub async fn figures(options: &Options) -> Result<(), Failure> {
    let mut now = Figures {
        cores: std::thread::available_parallelism()?.get(),
        fdatasync_ms: fdatasync_ms(&options.data)?,
        ..Figures::default()
    };
    rules(&options.criterion, &mut now)?;
    let concs: &[usize] = if options.long { &CONC_LONG } else { &CONC_SHORT };
    for conc in concs {
        measure(&Options { conc: *conc, ..options.clone() }, &format!("{conc} at once"), &mut now).await?;
    }
    measure(&Options { meter: true, ..options.clone() }, "64 at once, one meter", &mut now).await?;
    measure(&Options { parallel: 5, ..options.clone() }, "64 at once, 5 side by side", &mut now).await?;
    if options.long {
        for payload in PAYLOADS_LONG {
            measure(&Options { payload, ..options.clone() }, &format!("64 at once, {payload} bytes"), &mut now).await?;
        }
    }
    let before: Figures = match fs::read(&options.file) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(_) => Figures::default(),
    };
    compare(&before, &now)?;
    let mut text = serde_json::to_string_pretty(&now)?;
    text.push('\n');
    Ok(fs::write(&options.file, text)?)
}

/// The loop without governance and the governed one take turns.
async fn measure(options: &Options, name: &str, into: &mut Figures) -> Result<(), Failure> {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        without.push(bare::bare(options).await?);
        with.push(governed(options).await?);
    }
    let column = |measured: &[Value], field: &str| -> Vec<f64> {
        measured.iter().map(|figures| figures.pointer(field).and_then(Value::as_f64).unwrap_or(f64::NAN)).collect()
    };
    let ratio = |field: &str| -> Vec<f64> {
        column(&with, field).into_iter().zip(column(&without, field)).map(|(with, without)| with / without).collect()
    };
    let name = format!("{} {name}", options.store_name());
    let mut put = |what: &str, measured: Vec<f64>| {
        if let Some(figure) = Figure::of(measured) {
            into.figures.insert(format!("{name}: {what}"), figure);
        }
    };
    put("calls a second, governed to bare", ratio("/calls_s"));
    put("CPU a call, governed to bare", ratio("/cpu_s_per_kcall/total"));
    put("CPU seconds for 1,000 calls", column(&with, "/cpu_s_per_kcall/total"));
    put("CPU seconds for 1,000 calls, bare", column(&without, "/cpu_s_per_kcall/total"));
    put("calls a second", column(&with, "/calls_s"));
    put("p50 of a run in ms", column(&with, "/p50_ms"));
    put("p99 of a run in ms", column(&with, "/p99_ms"));
    put("appends a call", column(&with, "/writes_per_call"));
    put("journal bytes a call", column(&with, "/journal_bytes_per_call"));
    put("bytes to disk a call", column(&with, "/bytes_per_call"));
    put("resident MiB of the node", column(&with, "/rss_mib"));
    Ok(())
}

/// What the criterion benches have measured last.
fn rules(folder: &Path, into: &mut Figures) -> Result<(), Failure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // No bench has run: then there is nothing to compare either.
        Err(_) => return Ok(()),
    };
    for entry in entries {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        if path.file_name().is_some_and(|name| name == "new") {
            let benchmark: Value = serde_json::from_slice(&fs::read(path.join("benchmark.json"))?)?;
            let estimates: Value = serde_json::from_slice(&fs::read(path.join("estimates.json"))?)?;
            let median = &estimates["median"];
            let bounds = &median["confidence_interval"];
            let width = bounds["upper_bound"].as_f64().zip(bounds["lower_bound"].as_f64()).map(|(up, low)| up - low);
            if let (Some(id), Some(ns)) = (benchmark["full_id"].as_str(), median["point_estimate"].as_f64()) {
                let spread = round(width.unwrap_or_default() / ns, 3);
                into.figures.insert(format!("{id}, ns"), Figure { value: round(ns, 1), spread });
            }
        } else {
            rules(&path, into)?;
        }
    }
    Ok(())
}

fn compare(before: &Figures, now: &Figures) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let mut moved = 0;
    for (name, figure) in &now.figures {
        let Some(old) = before.figures.get(name) else {
            writeln!(out, "new    {name}: {}", figure.value)?;
            continue;
        };
        let change = figure.value / old.value - 1.0;
        if change.abs() > old.spread.max(figure.spread).max(NOISE_MIN) {
            moved += 1;
            writeln!(out, "moved  {name}: {} to {}, {:+.0} %", old.value, figure.value, change * 100.0)?;
        }
    }
    for name in before.figures.keys().filter(|name| !now.figures.contains_key(*name)) {
        writeln!(out, "gone   {name}")?;
    }
    Ok(writeln!(out, "{moved} of {} figures moved beyond noise", now.figures.len())?)
}

fn fdatasync_ms(folder: &Path) -> Result<f64, Failure> {
    let mut file = tempfile::tempfile_in(folder)?;
    let block = [0_u8; 4_096];
    let mut took = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&block)?;
        let began = Instant::now();
        file.sync_data()?;
        took.push(began.elapsed().as_secs_f64() * 1_000.0);
    }
    took.sort_by(f64::total_cmp);
    Ok(round(took.get(SYNCS / 2).copied().unwrap_or_default(), 3))
}
