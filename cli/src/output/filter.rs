//! Filters of listings: comparisons of fields, all of which must hold. `os_name == debian and mfree > 2G`.

use std::cmp::Ordering;

use super::fields::Value;
use crate::args::{duration, size_mib};

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Is,
    IsNot,
    AtLeast,
    AtMost,
    Above,
    Below,
    Contains,
}

/// As they are typed; one that begins as another does stands before it.
const OPERATORS: [(&str, Operator); 7] = [
    ("==", Operator::Is),
    ("!=", Operator::IsNot),
    ("=~", Operator::Contains),
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    (">", Operator::Above),
    ("<", Operator::Below),
];
/// What every error ends with.
const RIGHT: &str = "a filter is FIELD OPERATOR VALUE, with `and` between several; operators are == != < <= > >= and =~ (contains); a value with blanks is quoted";

/// What joins comparisons in other languages.
const JOINING: [char; 4] = ['|', '&', '(', ')'];

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// The field's name.
    pub(crate) field: String,
    operator: Operator,
    value: String,
}

/// Reads a filter; why it is none, in words.
pub(crate) fn parse(text: &str) -> Result<Vec<Comparison>, String> {
    let mut comparisons = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let (comparison, after) = comparison(rest)?;
        comparisons.push(comparison);
        rest = after.trim_start();
        if rest.is_empty() {
            return Ok(comparisons);
        }
        rest = match rest.strip_prefix("and").filter(|after| after.starts_with(char::is_whitespace)) {
            Some(after) => after.trim_start(),
            None if rest.starts_with(JOINING) => return Err(format!("{rest:?}: {}", no_joining())),
            None => return Err(format!("`and` is expected before {rest:?}: {RIGHT}")),
        };
    }
}

fn comparison(text: &str) -> Result<(Comparison, &str), String> {
    let end = text.find(|c: char| !is_of_a_name(c)).unwrap_or(text.len());
    let (field, rest) = text.split_at(end);
    if field.is_empty() && text.starts_with(JOINING) {
        return Err(format!("{text:?}: {}", no_joining()));
    }
    if field.is_empty() {
        return Err(format!("a field's name is expected before {text:?}: {RIGHT}"));
    }
    let rest = rest.trim_start();
    let found = OPERATORS.iter().find_map(|(sign, operator)| Some((*operator, rest.strip_prefix(sign)?)));
    let (operator, rest) =
        found.ok_or_else(|| format!("an operator is expected after {field:?}: {RIGHT}"))?;
    let (value, rest) = value(rest.trim_start())?;
    Ok((Comparison { field: field.to_owned(), operator, value }, rest))
}

/// What names of fields are made of.
fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/')
}

/// Why a filter of another language is none.
fn no_joining() -> String {
    format!("| & ( ) join nothing here, and a value with one of them is quoted: {RIGHT}")
}

/// A word, or what stands between quotes.
fn value(text: &str) -> Result<(String, &str), String> {
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let inner = text.get(1..).unwrap_or_default();
        let (value, rest) =
            inner.split_once(quote).ok_or_else(|| format!("a quote is not closed: {RIGHT}"))?;
        return Ok((value.to_owned(), rest));
    }
    let (value, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    match value {
        "" => Err(format!("a value is missing at the end: {RIGHT}")),
        value if value.contains(JOINING) => Err(format!("{value:?}: {}", no_joining())),
        value => Ok((value.to_owned(), rest)),
    }
}

/// A plain number, no unit; names of numbers that are none (`nan`, `inf`) are words.
fn plain(literal: &str) -> Option<f64> {
    let is_number = literal.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
    if is_number { literal.parse().ok() } else { None }
}

/// A number with a unit, which may have decimals; `of_one` says what one of the unit is.
fn with_unit(literal: &str, of_one: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let at = literal.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = literal.split_at(at);
    let is_single = unit.bytes().all(|byte| !byte.is_ascii_digit());
    if is_single { Some(plain(number)? * of_one(unit.trim_start())?) } else { None }
}

fn mib_of_one(unit: &str) -> Option<f64> {
    // So that units below a MiB have a value too.
    let mib = size_mib(&format!("1024{unit}")).ok()?;
    Some(mib.to_string().parse::<f64>().ok()? / 1024.0)
}

fn seconds_of_one(unit: &str) -> Option<f64> {
    duration(&format!("1{unit}")).ok().map(|span| span.as_secs_f64())
}

/// What a value is compared with.
enum Literal {
    Number { ours: f64, theirs: f64 },
    Truth(bool),
    Text(String),
}

/// Compares texts as people order them: numbers in them by their size, part by part (`9.1` is below `10.0.2`).
fn by_parts(ours: &str, theirs: &str) -> Ordering {
    let (ours, theirs) = (parts(ours), parts(theirs));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        let order = if is_number(ours) && is_number(theirs) {
            let (ours, theirs) = (ours.trim_start_matches('0'), theirs.trim_start_matches('0'));
            ours.len().cmp(&theirs.len()).then_with(|| ours.cmp(theirs))
        } else {
            ours.cmp(theirs)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    ours.len().cmp(&theirs.len())
}

/// Runs of digits and what stands between them.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        parts.push(part);
        rest = after;
    }
    parts
}

impl Comparison {
    /// Whether a value passes. What nobody knows passes nothing; what does not exist is an empty text.
    ///
    /// An error says why a value of this kind can't be compared with what was typed.
    pub(crate) fn holds(&self, value: &Value) -> Result<bool, String> {
        Ok(match value {
            Value::Unknown => false,
            Value::Absent => self.holds_of_text(""),
            Value::List(items) => self.holds_of_list(items),
            Value::Text(_) | Value::Parts(..) => self.holds_of_text(&value.for_scripts()),
            Value::Number(_) | Value::Size(_) | Value::Span(_) | Value::Time(_) | Value::Bool(_)
                if self.operator == Operator::Contains =>
            {
                self.holds_of_text(&value.for_scripts())
            }
            // Whether there is one: that is always a question that can be asked.
            Value::Number(_) | Value::Size(_) | Value::Span(_) | Value::Time(_) | Value::Bool(_)
                if self.value.is_empty() && matches!(self.operator, Operator::Is | Operator::IsNot) =>
            {
                self.operator == Operator::IsNot
            }
            Value::Number(_) | Value::Size(_) | Value::Span(_) | Value::Time(_) | Value::Bool(_) => {
                match self.literal(value)? {
                    Literal::Number { ours, theirs } => self.compare(&ours, &theirs),
                    Literal::Truth(truth) => self.compare(&truth, &true),
                    Literal::Text(text) => self.holds_of_text(&text),
                }
            }
        })
    }

    /// What was typed, in the measure of a value.
    fn literal(&self, value: &Value) -> Result<Literal, String> {
        let literal = self.value.as_str();
        let wrong =
            |right: &str| format!("{literal:?} can't be compared with the field {}: {right}", self.field);
        let numbers = |ours: String, theirs: Option<f64>, right: &str| {
            let theirs = theirs.ok_or_else(|| wrong(right))?;
            Ok(Literal::Number { ours: ours.parse().unwrap_or(f64::NAN), theirs })
        };
        match value {
            Value::Number(number) => numbers(number.to_string(), plain(literal), "it is a number"),
            Value::Size(mib) => {
                let theirs = plain(literal).or_else(|| with_unit(literal, mib_of_one));
                numbers(mib.to_string(), theirs, "it is a size, for example 512M, 1.5G or a number of MiB")
            }
            Value::Span(ms) => {
                let whole = || duration(literal).ok().map(|span| span.as_secs_f64());
                let theirs = plain(literal).or_else(|| with_unit(literal, seconds_of_one)).or_else(whole);
                let ours = std::time::Duration::from_millis(*ms).as_secs_f64().to_string();
                numbers(ours, theirs, "it is a span of time, for example 90s, 1.5h or a number of seconds")
            }
            Value::Bool(truth) => match literal.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Literal::Truth(*truth)),
                "n" | "no" | "false" => Ok(Literal::Truth(!*truth)),
                _ => Err(wrong("it is yes or no")),
            },
            Value::Time(_) if !literal.starts_with(|c: char| c.is_ascii_digit()) => {
                Err(wrong("it is a moment, for example 2026-11-30 or 2026-11-30T08:00"))
            }
            Value::Time(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Parts(..)
            | Value::Absent
            | Value::Unknown => Ok(Literal::Text(value.for_scripts())),
        }
    }

    fn holds_of_text(&self, text: &str) -> bool {
        match self.operator {
            Operator::Contains => text.contains(&self.value),
            Operator::Is => text == self.value,
            Operator::IsNot => text != self.value,
            // Nothing is neither above nor below anything.
            Operator::Above | Operator::Below | Operator::AtLeast | Operator::AtMost if text.is_empty() => {
                false
            }
            Operator::Above | Operator::Below | Operator::AtLeast | Operator::AtMost => {
                self.compare(&by_parts(text, &self.value), &Ordering::Equal)
            }
        }
    }

    /// One of the items does; with `!=`, none is it.
    fn holds_of_list(&self, items: &[String]) -> bool {
        match self.operator {
            Operator::IsNot => items.iter().all(|item| *item != self.value),
            Operator::Is if self.value.is_empty() => items.is_empty(),
            Operator::Is
            | Operator::Contains
            | Operator::Above
            | Operator::Below
            | Operator::AtLeast
            | Operator::AtMost => items.iter().any(|item| self.holds_of_text(item)),
        }
    }

    fn compare<T: PartialOrd>(&self, ours: &T, theirs: &T) -> bool {
        match self.operator {
            Operator::Is => ours == theirs,
            Operator::IsNot => ours != theirs,
            Operator::Above => ours > theirs,
            Operator::Below => ours < theirs,
            Operator::AtLeast => ours >= theirs,
            Operator::AtMost => ours <= theirs,
            // Of what is no text nothing is a part.
            Operator::Contains => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    fn holds(filter: &str, value: &Value) -> bool {
        let comparisons = parse(filter).unwrap();
        assert_eq!(comparisons.len(), 1);
        comparisons[0].holds(value).unwrap_or_else(|why| panic!("{filter}: {why}"))
    }

    #[test]
    fn values_are_compared_by_their_kind() {
        let text = Value::Text("debian".to_owned());
        let list = Value::List(vec!["fake".to_owned(), "qemu".to_owned()]);
        for (filter, value, expected) in [
            ("f == debian", &text, true),
            ("f=='debian'", &text, true),
            ("f != debian", &text, false),
            ("f =~ bia", &text, true),
            ("f =~ x", &text, false),
            ("f > centos", &text, true),
            ("f > 9", &Value::Text("12".to_owned()), true),
            ("f == 12", &Value::Text("12".to_owned()), true),
            ("f == 22.1", &Value::Text("22.10".to_owned()), false),
            ("f != 22.1", &Value::Text("22.10".to_owned()), true),
            ("f == nan", &Value::Text("nan".to_owned()), true),
            ("f < 10", &Value::Text("9.2.0".to_owned()), true),
            ("f < 10", &Value::Text("10.0.2".to_owned()), false),
            ("f >= 9.1", &Value::Text("9.10".to_owned()), true),
            ("f > node9", &Value::Text("node10".to_owned()), true),
            ("f > 1.5G", &Value::Size(2048), true),
            ("f > 2.5 ", &Value::Size(2), false),
            ("f < 1.5h", &Value::Span(5_000_000), true),
            ("f < 1h30m", &Value::Span(5_000_000), true),
            ("f > 2h30m", &Value::Span(9_100_000), true),
            ("f > 0.5T", &Value::Size(500_000), false),
            ("f == ''", &Value::Number(3), false),
            ("f != ''", &Value::Bool(false), true),
            ("f =~ 1", &Value::Number(314), true),
            ("f > 2G", &Value::Size(4096), true),
            ("f <= 4096", &Value::Size(4096), true),
            ("f < 2G", &Value::Size(4096), false),
            ("f >= 0", &Value::Number(-1), false),
            ("f < 1h", &Value::Span(60_000), true),
            ("f > 59.5", &Value::Span(60_000), true),
            ("f == yes", &Value::Bool(true), true),
            ("f == false", &Value::Bool(true), false),
            ("f == qemu", &list, true),
            ("f != qemu", &list, false),
            ("f != kvm", &list, true),
            ("f =~ em", &list, true),
            ("f == ''", &list, false),
            ("f == ''", &Value::List(Vec::new()), true),
            ("f > 2020-01-01", &Value::Time(1_700_000_000_000), true),
            ("f == a", &Value::Parts("a".to_owned(), Json::Null), true),
        ] {
            assert_eq!(holds(filter, value), expected, "{filter} {value:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_empty_and_what_is_unknown_passes_nothing() {
        assert!(holds("f == ''", &Value::Absent) && holds("f != x", &Value::Absent));
        assert!(!holds("f < 5", &Value::Absent) && !holds("f > x", &Value::Absent));
        for filter in ["f == ''", "f != x", "f < 5", "f =~ ''"] {
            assert!(!holds(filter, &Value::Unknown), "{filter}");
        }
    }

    #[test]
    fn what_joins_in_other_languages_is_refused_with_the_right_form() {
        for filter in ["a == b | c == d", "a==b|c==d", "(a == b)", "a == b & c == d", "a == x) and b == c"] {
            let why = parse(filter).unwrap_err();
            assert!(why.contains("join nothing") && why.contains("`and` between several"), "{why}");
        }
        assert!(holds("f == '(a|b)'", &Value::Text("(a|b)".to_owned())));
    }

    #[test]
    fn every_field_can_be_named_in_a_filter() {
        use crate::output::{
            cluster, exports, groups, hook_policy, hook_runs, hook_sets, hooks, instances, jobs, networks,
            nodes, oses,
        };
        fn names<T>(fields: &[crate::output::fields::Field<T>]) -> Vec<&'static str> {
            fields.iter().map(|field| field.name).collect()
        }
        let all = [
            names(nodes::FIELDS),
            names(nodes::PENDING_FIELDS),
            names(instances::FIELDS),
            names(jobs::FIELDS),
            names(cluster::CLIENT_FIELDS),
            names(exports::FIELDS),
            names(groups::FIELDS),
            names(networks::FIELDS),
            names(oses::FIELDS),
            names(oses::PLACE_FIELDS),
            names(hooks::FIELDS),
            names(hook_runs::FIELDS),
            names(hook_sets::FIELDS),
            names(hook_policy::FIELDS),
        ]
        .concat();
        assert!(all.len() > 100, "{}", all.len());
        for name in all {
            let found = parse(&format!("{name}==x")).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(found[0].field, name);
        }
    }

    #[test]
    fn several_comparisons_and_what_is_none() {
        let comparisons = parse("os_name == \"a and b\" and mtotal>=2G and x != y ").unwrap();
        let names: Vec<&str> = comparisons.iter().map(|comparison| comparison.field.as_str()).collect();
        assert_eq!(names, ["os_name", "mtotal", "x"]);
        assert_eq!(comparisons[0].value, "a and b");
        for wrong in
            ["", "a", "a ==", "a = b", "a == b or c == d", "a == b and", "a == b c", "== b", "a == 'b"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
