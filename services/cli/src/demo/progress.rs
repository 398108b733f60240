//! How far the run is, on standard error: a bar for each stage on a terminal, plain lines anywhere else.

use std::io::Write as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::board::{Board, Stage, StageState};
use crate::output::{Stream, bars_wanted, colour_on, duration, plain};

/// How often a bar that is at work moves.
const TICK: Duration = Duration::from_millis(120);
/// The narrowest screen on which a bar is drawn beside its message.
const BAR_COLUMNS_MIN: u16 = 72;

/// The display.
pub(crate) struct Progress {
    form: Form,
    began: Vec<Option<i64>>,
    shown: Vec<Option<StageState>>,
}

enum Form {
    Bars(Vec<ProgressBar>),
    Lines,
}

impl Progress {
    /// A display for these stages: bars if standard error is a terminal that can move its cursor.
    pub(crate) fn new(board: &Board) -> Self {
        let stages = board.stages();
        let form = if bars_wanted() { bars(stages) } else { Form::Lines };
        Self { form, began: vec![None; stages.len()], shown: vec![None; stages.len()] }
    }

    /// Shows a stage as it stands after an event of this instant, in microseconds since the Unix epoch.
    pub(crate) fn show(&mut self, index: usize, stage: &Stage, at_unix_micros: i64) {
        let began = *self.began[index].get_or_insert(at_unix_micros);
        let took = u64::try_from(at_unix_micros.saturating_sub(began) / 1_000).unwrap_or(0);
        let news = self.shown[index].replace(stage.state) != Some(stage.state);
        let text = words(stage, took);
        match &self.form {
            Form::Bars(bars) => {
                let bar = &bars[index];
                bar.set_position(stage.over as u64);
                bar.set_message(text);
                if stage.state == StageState::Working {
                    bar.enable_steady_tick(TICK);
                } else if stage.state != StageState::Waiting {
                    bar.disable_steady_tick();
                    bar.tick();
                }
            }
            Form::Lines if news => say(&format!("{:<18} {text}", stage.name)),
            Form::Lines => {}
        }
    }

    /// Shows what a running tool says, beside its stage; on a terminal only, because it is passing.
    pub(crate) fn murmur(&self, index: usize, text: &str) {
        if let Form::Bars(bars) = &self.form {
            bars[index].set_message(plain(text));
        }
    }

    /// Leaves the bars as they are; what comes after is shown as lines.
    pub(crate) fn end(&mut self) {
        if let Form::Bars(bars) = &self.form {
            for bar in bars {
                bar.abandon();
            }
        }
        self.form = Form::Lines;
    }
}

/// One line on standard error.
pub(crate) fn say(text: &str) {
    // If standard error is gone there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{}", plain(text));
}

fn words(stage: &Stage, took_ms: u64) -> String {
    let took = duration(took_ms);
    match stage.state {
        StageState::Waiting => "waiting".to_owned(),
        StageState::Working if stage.steps > 1 => format!("{} of {}", stage.over, stage.steps),
        StageState::Working => "working".to_owned(),
        StageState::Asking => "waiting for a decision".to_owned(),
        StageState::Done => format!("done in {took}"),
        StageState::Skipped => "left out".to_owned(),
        StageState::Failed => "failed".to_owned(),
    }
}

fn bars(stages: &[Stage]) -> Form {
    let narrow = terminal_size::terminal_size_of(std::io::stderr()).is_some_and(|(width, _)| width.0 < BAR_COLUMNS_MIN);
    Form::Bars(bars_on(&MultiProgress::new(), stages, narrow, colour_on(Stream::Err)))
}

fn bars_on(screen: &MultiProgress, stages: &[Stage], narrow: bool, colour: bool) -> Vec<ProgressBar> {
    // The message takes what is left of the line and is cut there; on a narrow screen the bar gives it its place.
    let template = match (narrow, colour) {
        (true, true) => "{prefix:<16!} {spinner:.cyan} {wide_msg}",
        (true, false) => "{prefix:<16!} {spinner} {wide_msg}",
        (false, true) => "{prefix:<18!} {spinner:.cyan} [{bar:20.cyan}] {pos:>3}/{len:<3} {wide_msg}",
        (false, false) => "{prefix:<18!} {spinner} [{bar:20}] {pos:>3}/{len:<3} {wide_msg}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let style = style.progress_chars("=> ");
    stages
        .iter()
        .map(|stage| {
            let bar = screen.add(ProgressBar::new(stage.steps as u64).with_style(style.clone()));
            bar.set_prefix(stage.name.clone());
            bar.set_message("waiting");
            bar
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use indicatif::{InMemoryTerm, ProgressDrawTarget, TermLike as _};

    use super::*;

    #[test]
    fn bars_keep_to_their_lines_on_a_screen_of_any_width() {
        let stage = |name: &str| Stage { name: name.to_owned(), steps: 3, over: 1, state: StageState::Working };
        let stages = [stage("verify_citations_of_the_pack"), stage("edit")];
        for columns in [20, 40, 71, 72, 120] {
            let screen = InMemoryTerm::new(10, columns);
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::term_like(Box::new(screen.clone())));
            let bars = bars_on(&all, &stages, columns < BAR_COLUMNS_MIN, false);
            for bar in &bars {
                bar.set_position(1);
                bar.set_message("a tool says something that is longer than any screen is wide ".repeat(3));
                bar.tick();
            }
            let shown = screen.contents();
            assert_eq!(shown.lines().count(), 2, "{columns}: {shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= usize::from(columns)), "{columns}: {shown}");
            assert!(shown.contains("verify_citations"), "{columns}: {shown}");
            assert_eq!(screen.width(), columns);
        }
    }
}
