//! Filters of listings: comparisons of fields, all of which must hold. `os_name == debian and mfree > 2G`.

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
            None => return Err(format!("`and` is expected before {rest:?}: {RIGHT}")),
        };
    }
}

fn comparison(text: &str) -> Result<(Comparison, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (field, rest) = text.split_at(end);
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
        value => Ok((value.to_owned(), rest)),
    }
}

/// A number in the value's own measure.
fn number(value: &Value, literal: &str) -> Option<(f64, f64)> {
    let plain = || literal.parse::<f64>().ok();
    let (ours, theirs) = match value {
        Value::Number(number) => (number.to_string(), plain()?),
        Value::Size(mib) => {
            let mib_of = || size_mib(literal).ok().and_then(|mib| mib.to_string().parse().ok());
            (mib.to_string(), plain().or_else(mib_of)?)
        }
        Value::Span(ms) => {
            let seconds = || duration(literal).ok().map(|span| span.as_secs_f64());
            return Some((std::time::Duration::from_millis(*ms).as_secs_f64(), plain().or_else(seconds)?));
        }
        Value::Text(text) => (text.clone(), plain()?),
        Value::Bool(_)
        | Value::List(_)
        | Value::Time(_)
        | Value::Parts(..)
        | Value::Absent
        | Value::Unknown => return None,
    };
    Some((ours.parse().ok()?, theirs))
}

impl Comparison {
    /// Whether a value passes. What nobody knows passes nothing; what does not exist is an empty text.
    pub(crate) fn holds(&self, value: &Value) -> bool {
        match value {
            Value::Unknown => false,
            Value::List(items) => self.holds_of_list(items),
            Value::Bool(truth) => {
                let word = match self.value.to_ascii_lowercase().as_str() {
                    "y" | "yes" | "true" => "Y",
                    "n" | "no" | "false" => "N",
                    _ => return self.operator == Operator::IsNot,
                };
                self.compare(&(if *truth { "Y" } else { "N" }), &word)
            }
            Value::Absent => self.holds_of_text(""),
            Value::Text(_)
            | Value::Number(_)
            | Value::Size(_)
            | Value::Span(_)
            | Value::Time(_)
            | Value::Parts(..) => match number(value, &self.value) {
                Some((ours, theirs)) if self.operator != Operator::Contains => self.compare(&ours, &theirs),
                Some(_) | None => self.holds_of_text(&value.for_scripts()),
            },
        }
    }

    fn holds_of_text(&self, text: &str) -> bool {
        match self.operator {
            Operator::Contains => text.contains(&self.value),
            // Nothing is neither above nor below anything.
            Operator::Above | Operator::Below | Operator::AtLeast | Operator::AtMost if text.is_empty() => {
                false
            }
            Operator::Is
            | Operator::IsNot
            | Operator::Above
            | Operator::Below
            | Operator::AtLeast
            | Operator::AtMost => self.compare(&text, &self.value.as_str()),
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
        comparisons[0].holds(value)
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
            ("f > 2G", &Value::Size(4096), true),
            ("f <= 4096", &Value::Size(4096), true),
            ("f < 2G", &Value::Size(4096), false),
            ("f >= 0", &Value::Number(-1), false),
            ("f < 1h", &Value::Span(60_000), true),
            ("f > 59.5", &Value::Span(60_000), true),
            ("f == yes", &Value::Bool(true), true),
            ("f == false", &Value::Bool(true), false),
            ("f != maybe", &Value::Bool(true), true),
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
