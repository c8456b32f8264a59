//! Fields of listings: a table for each kind of object, and the choice of `-o`.

use serde_json::{Value as Json, json};

use super::{filter, text};
use crate::{args::ListFlags, exit::Failure};

/// One value of one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Text.
    Text(String),
    /// A count.
    Number(i64),
    /// A size in MiB.
    Size(u64),
    /// A truth.
    Bool(bool),
    /// Several texts.
    List(Vec<String>),
    /// A moment, ms since 1970.
    Time(u64),
    /// A span in milliseconds; seconds in JSON.
    Span(u64),
    /// Something with parts: a short text, and the whole as JSON.
    Parts(String, Json),
    /// Does not exist here.
    Absent,
    /// Exists, but nobody knows it at the moment (a silent node).
    Unknown,
}

impl Value {
    /// A text, or nothing where it is empty.
    pub(crate) fn text(text: &str) -> Value {
        if text.is_empty() { Value::Absent } else { Value::Text(text.to_owned()) }
    }

    /// A count of whatever width.
    pub(crate) fn number(number: impl TryInto<i64>) -> Value {
        Value::Number(number.try_into().unwrap_or(i64::MAX))
    }

    /// The value made by `value`, or nothing.
    pub(crate) fn optional<T>(option: Option<T>, value: fn(T) -> Value) -> Value {
        option.map_or(Value::Absent, value)
    }

    /// For people: one line, sizes with units.
    fn for_people(&self) -> String {
        match self {
            Value::Size(mib) => text::size(*mib),
            Value::Span(ms) => text::duration(*ms),
            // A hole in a line would shift the columns for awk and for the eye.
            Value::List(items) if items.is_empty() => "-".to_owned(),
            Value::Text(_)
            | Value::Number(_)
            | Value::Bool(_)
            | Value::List(_)
            | Value::Time(_)
            | Value::Parts(..)
            | Value::Absent
            | Value::Unknown => self.for_scripts(),
        }
    }

    /// For programs that cut lines at a separator: sizes in MiB, spans in seconds.
    pub(crate) fn for_scripts(&self) -> String {
        match self {
            Value::Text(line) | Value::Parts(line, _) => text::visible_line(line),
            Value::Number(number) => number.to_string(),
            Value::Size(mib) => mib.to_string(),
            Value::Bool(truth) => (if *truth { "Y" } else { "N" }).to_owned(),
            Value::List(items) => text::visible_line(&items.join(",")),
            Value::Time(ms) => text::rfc3339(*ms),
            Value::Span(ms) => format!("{}.{:03}", ms / 1_000, ms % 1_000),
            Value::Absent => "-".to_owned(),
            Value::Unknown => "?".to_owned(),
        }
    }

    /// With its type; what is absent or unknown is null.
    pub(crate) fn json(&self) -> Json {
        match self {
            Value::Text(text) => json!(text),
            Value::Number(number) => json!(number),
            Value::Size(mib) => json!(mib),
            Value::Bool(truth) => json!(truth),
            Value::List(items) => json!(items),
            Value::Time(ms) => json!(text::rfc3339(*ms)),
            Value::Span(ms) => json!(std::time::Duration::from_millis(*ms).as_secs_f64()),
            Value::Parts(_, whole) => whole.clone(),
            Value::Absent | Value::Unknown => Json::Null,
        }
    }

    /// Whether columns of it stand on the right.
    fn on_the_right(&self) -> bool {
        matches!(self, Value::Number(_) | Value::Size(_) | Value::Span(_))
    }
}

/// A field that `-o` can name.
pub(crate) struct Field<T: 'static> {
    /// The name for `-o` and in JSON.
    pub(crate) name: &'static str,
    /// The column's title.
    pub(crate) title: &'static str,
    /// Reads the value.
    pub(crate) value: fn(&T) -> Value,
    /// A second name for another field: works with `-o`, left out of "all fields".
    pub(crate) alias: bool,
}

/// A field in a table of fields.
pub(crate) const fn field<T>(name: &'static str, title: &'static str, value: fn(&T) -> Value) -> Field<T> {
    Field { name, title, value, alias: false }
}

/// A second name for a field.
pub(crate) const fn alias<T>(name: &'static str, title: &'static str, value: fn(&T) -> Value) -> Field<T> {
    Field { name, title, value, alias: true }
}

/// A listing's fields and how they are to be printed.
pub(crate) struct Selection<T: 'static> {
    fields: Vec<&'static Field<T>>,
    form: Form,
    /// All must hold of a row that is shown.
    filter: Vec<(&'static Field<T>, filter::Comparison)>,
}

/// How rows are printed.
enum Form {
    Json,
    Columns { headers: bool },
    Separated { separator: String, headers: bool },
}

/// Chooses the fields of a listing and the rows; an unknown field is refused with the nearest known one.
///
/// Without `-o`, JSON has all fields and text has the default ones.
pub(crate) fn select<T>(
    all: &'static [Field<T>],
    default: &[&str],
    flags: &ListFlags,
) -> Result<Selection<T>, Failure> {
    let headers = !flags.no_headers;
    let form = match (&flags.separator, flags.json) {
        (_, true) => Form::Json,
        (Some(separator), false) => Form::Separated { separator: separator.clone(), headers },
        (None, false) => Form::Columns { headers },
    };
    let standard: Vec<&'static Field<T>> = if flags.json {
        all.iter().filter(|field| !field.alias).collect()
    } else {
        default.iter().filter_map(|name| all.iter().find(|field| field.name == *name)).collect()
    };
    let (mut fields, wanted) = match flags.output.as_deref() {
        None => (standard, None),
        Some(output) => match output.strip_prefix('+') {
            Some(more) => (standard, Some(more)),
            None => (Vec::new(), Some(output)),
        },
    };
    for name in wanted.into_iter().flat_map(|wanted| wanted.split(',')) {
        let known = all.iter().find(|field| field.name == name).ok_or_else(|| unknown_field(all, name))?;
        if !(matches!(form, Form::Json) && fields.iter().any(|field| field.name == name)) {
            fields.push(known);
        }
    }
    Ok(Selection { fields, form, filter: filter_of(all, flags.filter.as_deref())? })
}

/// The filter's comparisons, each with its field.
fn filter_of<T>(
    all: &'static [Field<T>],
    filter: Option<&str>,
) -> Result<Vec<(&'static Field<T>, filter::Comparison)>, Failure> {
    let Some(filter) = filter else { return Ok(Vec::new()) };
    let comparisons = filter::parse(filter).map_err(Failure::Usage)?;
    let with_field = |comparison: filter::Comparison| {
        let name = &comparison.field;
        let known = all.iter().find(|field| field.name == name).ok_or_else(|| unknown_field(all, name))?;
        Ok((known, comparison))
    };
    comparisons.into_iter().map(with_field).collect()
}

fn unknown_field<T>(all: &[Field<T>], name: &str) -> Failure {
    let names: Vec<&str> = all.iter().map(|field| field.name).collect();
    let near = match nearest(name, &names) {
        Some(near) => format!("; did you mean {near:?}?"),
        None => ".".to_owned(),
    };
    Failure::Usage(format!("unknown field {name:?}{near} Known fields: {}", names.join(", ")))
}

/// The known name that was meant; letters that changed places count as one mistake.
fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let limit = (unknown.chars().count() / 3).max(1);
    let distances = known.iter().map(|name| (strsim::damerau_levenshtein(unknown, name), *name));
    distances.filter(|(distance, _)| *distance <= limit).min().map(|(_, name)| name)
}

impl<T> Selection<T> {
    /// The whole listing.
    ///
    /// Refused where a value of the filter can't be compared with the field that it names.
    pub(crate) fn render(&self, rows: &[T]) -> Result<String, Failure> {
        let mut passing: Vec<&T> = Vec::new();
        for row in rows {
            // All are looked at, so that what is wrong is said whatever the others choose.
            let mut passes = true;
            for (field, filter) in &self.filter {
                passes &= filter.holds(&(field.value)(row)).map_err(Failure::Usage)?;
            }
            if passes {
                passing.push(row);
            }
        }
        let rows = passing;
        Ok(match &self.form {
            Form::Json => {
                format!("{:#}", Json::Array(rows.iter().map(|row| object(&self.fields, row)).collect()))
            }
            Form::Separated { separator, headers } => self.separated(&rows, separator, *headers),
            Form::Columns { headers } => self.columns(&rows, *headers),
        })
    }

    fn separated(&self, rows: &[&T], separator: &str, headers: bool) -> String {
        let titles =
            headers.then(|| self.fields.iter().map(|field| field.title.to_owned()).collect::<Vec<_>>());
        let lines =
            rows.iter().map(|row| self.fields.iter().map(|field| (field.value)(row).for_scripts()).collect());
        titles.into_iter().chain(lines).map(|cells| cells.join(separator) + "\n").collect()
    }

    fn columns(&self, rows: &[&T], headers: bool) -> String {
        let mut table = super::list::Columns::new(1);
        if headers {
            table.titles(self.fields.iter().map(|field| field.title));
        }
        let mut right = vec![false; self.fields.len()];
        for row in rows {
            let values: Vec<Value> = self.fields.iter().map(|field| (field.value)(row)).collect();
            for (right, value) in right.iter_mut().zip(&values) {
                *right |= value.on_the_right();
            }
            table.row(values.iter().map(Value::for_people));
        }
        table.render(&right)
    }
}

/// An object with these fields.
fn object<T>(fields: &[&'static Field<T>], row: &T) -> Json {
    Json::Object(fields.iter().map(|field| (field.name.to_owned(), (field.value)(row).json())).collect())
}

/// An object with all fields of a kind, second names left out.
pub(crate) fn whole_object<T>(all: &'static [Field<T>], row: &T) -> serde_json::Map<String, Json> {
    all.iter()
        .filter(|field| !field.alias)
        .map(|field| (field.name.to_owned(), (field.value)(row).json()))
        .collect()
}

/// All fields of a kind as lines of text, for `info`.
pub(crate) fn whole_text<T>(all: &'static [Field<T>], row: &T) -> String {
    let fields: Vec<_> = all.iter().filter(|field| !field.alias).collect();
    let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0) + 1;
    fields
        .iter()
        .map(|field| {
            format!("  {:<width$} {}\n", format!("{}:", field.name), (field.value)(row).for_people())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pet {
        name: &'static str,
        mib: u64,
        age_ms: Option<u64>,
    }

    const FIELDS: &[Field<Pet>] = &[
        field("name", "Name", |pet: &Pet| Value::text(pet.name)),
        field("size", "Size", |pet: &Pet| Value::Size(pet.mib)),
        field("age", "Age", |pet: &Pet| pet.age_ms.map_or(Value::Unknown, Value::Span)),
        alias("mib", "MiB", |pet: &Pet| Value::number(pet.mib)),
    ];
    const DEFAULT: &[&str] = &["name", "size"];

    fn render(flags: &ListFlags) -> Result<String, String> {
        let rows =
            [Pet { name: "a\nb", mib: 2048, age_ms: Some(1_500) }, Pet { name: "cat", mib: 5, age_ms: None }];
        let selection = select(FIELDS, DEFAULT, flags).map_err(|failure| {
            assert_eq!(failure.code(), 2);
            failure.to_string()
        })?;
        selection.render(&rows).map_err(|failure| {
            assert_eq!(failure.code(), 2);
            failure.to_string()
        })
    }

    fn output(output: &str) -> ListFlags {
        ListFlags { output: Some(output.to_owned()), ..ListFlags::default() }
    }

    #[test]
    fn default_fields_in_columns() {
        assert_eq!(render(&ListFlags::default()).unwrap(), "Name Size\na\\nb 2.0G\ncat    5M\n");
        let flags = ListFlags { no_headers: true, ..ListFlags::default() };
        assert_eq!(render(&flags).unwrap(), "a\\nb 2.0G\ncat    5M\n");
    }

    #[test]
    fn chosen_and_added_fields() {
        assert_eq!(render(&output("age,name")).unwrap(), "  Age Name\n1.5 s a\\nb\n    ? cat\n");
        assert_eq!(render(&output("+mib")).unwrap(), "Name Size  MiB\na\\nb 2.0G 2048\ncat    5M    5\n");
    }

    #[test]
    fn a_filter_chooses_rows_by_any_field() {
        let filtered = |filter: &str| {
            render(&ListFlags { filter: Some(filter.to_owned()), no_headers: true, ..ListFlags::default() })
        };
        assert_eq!(filtered("name == cat").unwrap(), "cat 5M\n");
        assert_eq!(filtered("size > 1G and age < 2s").unwrap(), "a\\nb 2.0G\n");
        assert_eq!(filtered("age > 0").unwrap().lines().count(), 1, "what nobody knows passes nothing");
        assert!(filtered("szie > 5").unwrap_err().contains("did you mean \"size\"?"));
        assert!(filtered("size >").unwrap_err().contains("a value is missing"));
        for (filter, said) in [
            ("name == x and size > big", "\"big\" can't be compared with the field size: it is a size"),
            ("age > 5parsecs", "field age: it is a span of time"),
            ("mib == nan", "field mib: it is a number"),
        ] {
            let why = filtered(filter).unwrap_err();
            assert!(why.contains(said), "{filter}: {why}");
        }
    }

    #[test]
    fn separated_fields_are_for_scripts() {
        let flags = ListFlags { separator: Some("|".to_owned()), ..output("name,size,age") };
        assert_eq!(render(&flags).unwrap(), "Name|Size|Age\na\\nb|2048|1.500\ncat|5|?\n");
    }

    #[test]
    fn json_has_all_fields_by_default_and_typed_values() {
        let flags = ListFlags { json: true, ..ListFlags::default() };
        let value: Json = serde_json::from_str(&render(&flags).unwrap()).unwrap();
        let expected =
            json!([{"name": "a\nb", "size": 2048, "age": 1.5}, {"name": "cat", "size": 5, "age": null}]);
        assert_eq!(value, expected);
        let flags = ListFlags { json: true, ..output("mib,mib") };
        let value: Json = serde_json::from_str(&render(&flags).unwrap()).unwrap();
        assert_eq!(value, json!([{"mib": 2048}, {"mib": 5}]));
    }

    #[test]
    fn unknown_fields_are_refused_with_the_nearest_known_one() {
        let why = render(&output("name,szie")).unwrap_err();
        assert_eq!(why, "unknown field \"szie\"; did you mean \"size\"? Known fields: name, size, age, mib");
        let why = render(&output("")).unwrap_err();
        assert_eq!(why, "unknown field \"\". Known fields: name, size, age, mib");
    }
}
