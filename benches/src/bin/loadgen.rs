//! `loadgen`: drives a node under load and prints one line of figures. See docs/performance.md.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use signalbox_benches::load::options::Options;
use signalbox_benches::load::{Failure, bare, contender, crash, executor, figures, measure, park, switch, tool};

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    match runtime.block_on(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &Failure) -> ExitCode {
    // If even this cannot be written there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "loadgen: {error}");
    ExitCode::FAILURE
}

async fn run() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).peekable();
    let command = arguments.next_if(|first| !first.starts_with("--"));
    let options = Options::read(arguments)?;
    match command.as_deref() {
        None => line(&measure::governed(&options).await?),
        Some("bare") => line(&bare::bare(&options).await?),
        Some("executor") => executor::serve(&options).await,
        Some("tool") => tool::serve(options.payload).await,
        Some("contender") => line(&contender::contender(&options).await?),
        Some("crash") => line(&crash::crash(&options).await?),
        Some("kill-switch") => line(&switch::kill_switch(&options).await?),
        Some("park") => line(&park::park(&options).await?),
        Some("pair") => pair(&options).await,
        Some("figures") => figures::figures(&options).await,
        Some(other) => Err(format!("`{other}` is not a command of loadgen").into()),
    }
}

/// Bare and governed take turns, because a shared machine drifts within minutes; the ratios are of the medians.
async fn pair(options: &Options) -> Result<(), Failure> {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        for (figures, rounds) in
            [(bare::bare(options).await?, &mut without), (measure::governed(options).await?, &mut with)]
        {
            line(&figures)?;
            rounds.push(figures);
        }
    }
    let ratio = |field: fn(&Value) -> &Value| measure::median(&with, field) / measure::median(&without, field);
    line(&json!({
        "governed_to_bare": {
            "calls_s": measure::round(ratio(|figures| &figures["calls_s"]), 3),
            "cpu_s_per_kcall": measure::round(ratio(|figures| &figures["cpu_s_per_kcall"]["total"]), 3),
        },
        "rounds": options.rounds,
    }))
}

fn line(figures: &Value) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{figures}")?;
    Ok(out.flush()?)
}
