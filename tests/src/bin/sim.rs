//! `sim`: runs seeds of the simulator; a failing one prints itself and its event log.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use muster_tests::sim::{MUTATIONS, Options, Report, first_caught, replay, run_seeds};

/// Runs seeds of the simulator.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Events of a seed's safety phase.
    #[arg(long, default_value_t = 200)]
    events: u64,
    /// How often the master dies in a round of handling and committing, in a thousand.
    #[arg(long, default_value_t = 20)]
    deaths: u64,
    /// How often what acts from outside is a fault, in a thousand.
    #[arg(long, default_value_t = 150)]
    faults: u64,
    /// Stops after this many failing seeds.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Nodes carry out a job's calls as they come, also beside one that its master has given up.
    #[arg(long)]
    unordered_calls: bool,
    /// Prints how many jobs ended how.
    #[arg(long)]
    outcomes: bool,
    /// Breaks each promise on purpose, and tells the first seed in which its checker sees it.
    #[arg(long)]
    mutations: bool,
    /// Prints the event log of the first seed, failing or not.
    #[arg(long)]
    trace: bool,
}

fn main() -> io::Result<ExitCode> {
    let args = Args::parse();
    let options = Options {
        events: args.events,
        deaths_permille: args.deaths,
        faults_permille: args.faults,
        ordered_calls: !args.unordered_calls,
        mutation: None,
    };
    let mut out = io::stdout().lock();
    if args.trace {
        let report = replay(args.from, &options);
        print_log(&mut out, &report)?;
        return Ok(code(report.violation.is_none()));
    }
    if args.mutations {
        return print_mutations(&mut out, &args);
    }
    let began = Instant::now();
    let summary = run_seeds(args.from, args.seeds, &options, args.failures);
    let took = began.elapsed();
    writeln!(
        out,
        "{} seeds, {} events, {} jobs, {} deaths, {} commits in {:.1} s",
        summary.seeds,
        summary.events,
        summary.jobs,
        summary.deaths,
        summary.commits,
        took.as_secs_f64()
    )?;
    if args.outcomes {
        for (outcome, count) in &summary.outcomes {
            writeln!(out, "{count:>9} {outcome}")?;
        }
    }
    for report in &summary.failures {
        if let Some(violation) = &report.violation {
            writeln!(out, "seed {} fails after {} events: {:?}", report.seed, report.events, violation)?;
        }
    }
    if let Some(first) = summary.failures.first() {
        print_log(&mut out, &replay(first.seed, &options))?;
    }
    Ok(code(summary.failures.is_empty()))
}

fn print_mutations(out: &mut impl Write, args: &Args) -> io::Result<ExitCode> {
    let mut all_caught = true;
    for (mutation, checker) in MUTATIONS {
        match first_caught(mutation, checker, args.from, args.seeds) {
            Some(report) => writeln!(out, "{mutation:?}: {checker:?} sees it in seed {}", report.seed)?,
            None => {
                all_caught = false;
                writeln!(out, "{mutation:?}: {checker:?} does not see it in {} seeds", args.seeds)?;
            }
        }
    }
    Ok(code(all_caught))
}

fn print_log(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "seed {}", report.seed)?;
    report.trace.iter().try_for_each(|line| writeln!(out, "{line}"))
}

fn code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
