//! Bounds what a job keeps of its scripts' output: a job is one record and one message, however many nodes it asked.

use super::{Captured, Class, HookPolicy, NodeAnswer, NodeReport, ScriptResult};

/// What a job keeps of the output of one phase, in bytes. Two phases and the objections of an error then fit into a
/// message of 4 MiB, also when every byte is shown as four.
pub const PHASE_OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// Cuts output until a phase's reports are within the bound: scripts that allowed share one half of it, those that
/// did not the other. What is cut stays on its node, and [`Captured::cut`] tells of it.
pub fn bound_output(policy: &HookPolicy, reports: &mut [NodeReport]) {
    bound_output_to(policy, reports, PHASE_OUTPUT_BYTES_MAX);
}

fn bound_output_to(policy: &HookPolicy, reports: &mut [NodeReport], bytes_max: usize) {
    for allowed in [true, false] {
        let of_group = |script: &ScriptResult| (policy.class(&script.outcome) == Class::Success) == allowed;
        let mut streams: Vec<&mut Captured> = reports
            .iter_mut()
            .flat_map(scripts_mut)
            .filter(|script| of_group(script))
            .flat_map(|script| [&mut script.stdout, &mut script.stderr])
            .filter(|stream| kept(stream) > 0)
            .collect();
        if streams.iter().map(|stream| kept(stream)).sum::<usize>() <= bytes_max / 2 {
            continue;
        }
        let share = bytes_max / 2 / streams.len();
        for stream in &mut streams {
            cut_to(stream, share);
        }
    }
}

fn scripts_mut(report: &mut NodeReport) -> &mut [ScriptResult] {
    match &mut report.answer {
        NodeAnswer::Answered(result) | NodeAnswer::NotReached { partial: result, .. } => &mut result.scripts,
        NodeAnswer::Lost => &mut [],
    }
}

fn kept(stream: &Captured) -> usize {
    stream.head.len() + stream.tail.len()
}

fn cut_to(stream: &mut Captured, bytes_max: usize) {
    if kept(stream) <= bytes_max {
        return;
    }
    let end = if stream.tail.is_empty() { stream.head.clone() } else { std::mem::take(&mut stream.tail) };
    let half = bytes_max / 2;
    stream.tail = end[end.len().saturating_sub(half)..].to_vec();
    stream.head.truncate(half);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hooks::{HookResult, ScriptOutcome},
        names::NodeName,
    };

    fn report(node: &str, code: u8, bytes: usize) -> NodeReport {
        let text: Vec<u8> = (0..bytes).map(|i| b'a' + u8::try_from(i % 26).unwrap()).collect();
        let script = ScriptResult {
            name: "10-x".to_owned(),
            outcome: if code == 0 { ScriptOutcome::Passed } else { ScriptOutcome::Failed { code } },
            duration_ms: 1,
            stdout: Captured {
                head: text,
                total_bytes: u64::try_from(bytes).unwrap(),
                ..Captured::default()
            },
            stderr: Captured::default(),
            notes: Vec::new(),
        };
        let result = HookResult { scripts: vec![script], ..HookResult::default() };
        NodeReport {
            node: NodeName::parse(node).unwrap(),
            answer: NodeAnswer::Answered(result),
            duration_ms: 1,
        }
    }

    #[test]
    fn x4_a_job_keeps_a_bounded_copy_whatever_its_nodes_wrote() {
        let mut reports: Vec<NodeReport> = (0..50).map(|n| report(&format!("n{n}"), 0, 1000)).collect();
        reports.push(report("deny", 1, 900));
        let before = reports.clone();
        bound_output_to(&HookPolicy::default(), &mut reports, 100_000);
        assert_eq!(reports, before, "what fits is not touched");
        bound_output_to(&HookPolicy::default(), &mut reports, 2000);
        let kept_bytes: usize = reports.iter().flat_map(|r| r.scripts()).map(|s| kept(&s.stdout)).sum();
        assert!(kept_bytes <= 2000, "{kept_bytes}");
        let denial = &reports[50].scripts()[0].stdout;
        assert_eq!(kept(denial), 900, "a denial keeps its words though many others wrote more");
        let first = &reports[0].scripts()[0].stdout;
        assert!(first.cut() && first.visible().contains("[cut: "), "{}", first.visible());
        assert_eq!(first.tail.last(), before[0].scripts()[0].stdout.head.last(), "the end is kept too");
    }
}
