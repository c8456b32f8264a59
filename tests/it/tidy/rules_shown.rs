//! Every numbered hook rule has a test that is named after it.

use super::files::{nothing_found, sources};

/// Letter and highest number, as in HOOKS.md.
const RULES: [(&str, u32); 5] = [("d", 7), ("x", 9), ("r", 10), ("e", 5), ("t", 14)];

#[test]
fn every_hook_rule_has_a_test_named_after_it() {
    let all = sources("rs");
    let mut tests = Vec::new();
    for source in &all {
        let mut marked = false;
        for line in source.text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                marked = true;
            } else if let Some(rest) = line.trim_start_matches("async ").strip_prefix("fn ") {
                if marked {
                    tests.push(rest.split('(').next().unwrap().to_owned());
                }
                marked = false;
            }
        }
    }
    let rules =
        RULES.iter().flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}_")));
    let not_shown: Vec<String> =
        rules.filter(|rule| !tests.iter().any(|test| test.starts_with(rule.as_str()))).collect();
    nothing_found(&not_shown);
}
