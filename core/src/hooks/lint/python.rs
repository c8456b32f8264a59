//! `GANETI_*` variables in a Python script: names in quotes, by what stands before and after them.

use super::variables::{Read, Reads};
use crate::hooks::VARIABLE_PREFIX;

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

pub(super) fn reads(text: &str) -> Reads {
    let mut reads = Reads::default();
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with('#') {
            continue;
        }
        for (at, _) in line.match_indices(VARIABLE_PREFIX) {
            mention(line, at, number, &mut reads);
        }
    }
    reads
}

/// One mention of a name; `at` is its first byte.
fn mention(line: &str, at: usize, number: u32, reads: &mut Reads) {
    let (before, rest) = line.split_at(at);
    let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    let name = &rest[VARIABLE_PREFIX.len()..end];
    let after = &rest[end..];
    let Some(quote @ ('"' | '\'')) = before.chars().next_back() else { return };
    // Another end than the quote: the name is made at run time.
    let Some(after) = after.strip_prefix(quote).map(str::trim_start).filter(|_| !name.is_empty()) else {
        return;
    };
    let before = before[..before.len() - 1].trim_end_matches(['b', 'r', 'u', 'f']).trim_end();
    let mut read = |is_strict| reads.plain.push(Read { name: name.to_owned(), line: number, is_strict });
    if before.ends_with('[') {
        let is_assignment = after
            .strip_prefix(']')
            .is_some_and(|rest| rest.trim_start().starts_with('=') && !rest.trim_start().starts_with("=="));
        match (after.starts_with(']'), is_assignment) {
            (_, true) => drop(reads.assigned.insert(name.to_owned())),
            (true, false) => read(true),
            // A list of names.
            (false, false) => {}
        }
    } else if before.ends_with("get(") || before.ends_with("getenv(") || before.ends_with("getenvb(") {
        if after.starts_with(')') {
            read(false);
        } else {
            reads.guarded.insert(name.to_owned());
        }
    } else if after.starts_with("in ") || after.starts_with("not in ") || before.ends_with("setdefault(") {
        reads.guarded.insert(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, plain: &[(&str, bool)], guarded: &[&str], assigned: &[&str]) {
        let found = reads(line);
        let read: Vec<(&str, bool)> = found.plain.iter().map(|r| (r.name.as_str(), r.is_strict)).collect();
        assert_eq!(read, plain, "{line}");
        assert!(found.guarded.iter().eq(guarded), "{line}: {:?}", found.guarded);
        assert!(found.assigned.iter().eq(assigned), "{line}: {:?}", found.assigned);
    }

    #[test]
    fn readings_tests_and_assignments_are_told_apart() {
        check("x = os.environ[\"GANETI_A\"] + env['GANETI_B']", &[("A", true), ("B", true)], &[], &[]);
        check("x = os.environ.get('GANETI_A')", &[("A", false)], &[], &[]);
        check("x = os.getenv(\"GANETI_A\" )", &[("A", false)], &[], &[]);
        check("x = os.environ.get('GANETI_A', '')", &[], &["A"], &[]);
        check("if \"GANETI_A\" in os.environ:", &[], &["A"], &[]);
        check("if 'GANETI_A' not in os.environ:", &[], &["A"], &[]);
        check("os.environ['GANETI_A'] = 'x'", &[], &[], &["A"]);
        check("if os.environ['GANETI_A'] == 'x':", &[("A", true)], &[], &[]);
        check("# os.environ['GANETI_A']", &[], &[], &[]);
        check("os.environ['GANETI_NIC%d_MAC' % i]", &[], &[], &[]);
        check("os.environ[f'GANETI_NIC{i}']", &[], &[], &[]);
        check("for name in ['GANETI_A', 'GANETI_B']:", &[], &[], &[]);
        check("os.environb[b'GANETI_A']", &[("A", true)], &[], &[]);
        check("k.startswith('GANETI_')", &[], &[], &[]);
    }
}
