//! `gnt`: the operator's commands. `gnt GROUP VERB ...`, or `gnt-GROUP VERB ...` through a link of that name.
//!
//! `args` parses what is typed, `commands` carries it out through `client` and `follow`, `output` renders, `terminal` is for consoles. `callback` is
//! for commands that hook scripts run.

mod args;
mod callback;
mod client;
mod commands;
mod exit;
mod follow;
mod output;
mod terminal;

use std::process::ExitCode;

/// The exit code of wrong usage.
const USAGE: u8 = 2;
/// Longest line of an error about usage, in characters: a wrong argument is named, however long it is.
const USAGE_LINE_CHARS_MAX: usize = 600;

/// Tells what `--help` and `--version` ask for, or what is wrong with a command line; the code is 2 then.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    for line in error.render().to_string().lines() {
        output::note(&output::text::shortened(line, USAGE_LINE_CHARS_MAX));
    }
    ExitCode::from(USAGE)
}

fn main() -> ExitCode {
    let line = match args::parse(std::env::args_os().collect()) {
        Ok(line) => line,
        Err(error) => return usage(&error),
    };
    // One thread: a command waits for one thing at a time, and starts quicker.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("error: could not start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(commands::run(line)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text() {
                match failure.code() {
                    USAGE => output::note(&output::text::shortened(&text, USAGE_LINE_CHARS_MAX)),
                    _ => output::note(&text),
                }
            }
            failure.into()
        }
    }
}
