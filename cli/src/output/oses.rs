//! OS definitions: one row for each, and one for each on each node.

use std::collections::BTreeSet;

use muster_proto::v1::{NodeOses, OsInfo};
use serde_json::{Value as Json, json};

use super::{
    fields::{Field, Value, field, whole_object, whole_text},
    text::visible_line,
};

/// The fields of `gnt-os list` without `-o`.
pub(crate) const DEFAULT: &[&str] = &["name", "status", "kind", "nodes"];

/// All fields of a definition.
pub(crate) const FIELDS: &[Field<Definition>] = &[
    field("name", "Name", |os: &Definition| Value::text(&os.name)),
    field("status", "Status", |os: &Definition| Value::text(os.status())),
    field("valid", "Valid", |os: &Definition| Value::Bool(os.status() == "valid")),
    field("kind", "Kind", |os: &Definition| Value::text(&os.kind)),
    field("nodes", "Nodes", |os: &Definition| Value::List(os.nodes(|state| matches!(state, State::Valid)))),
    field("broken_on", "Broken", |os: &Definition| {
        Value::List(os.nodes(|state| matches!(state, State::Broken)))
    }),
    field("missing_on", "Missing", |os: &Definition| {
        Value::List(os.nodes(|state| matches!(state, State::Missing)))
    }),
    field("not_reached", "NotReached", |os: &Definition| {
        Value::List(os.nodes(|state| matches!(state, State::NotReached)))
    }),
];

/// The fields of `gnt-os diagnose` without `-o`.
pub(crate) const PLACE_DEFAULT: &[&str] = &["name", "node", "state", "kind", "path", "detail"];

/// All fields of a definition on a node.
pub(crate) const PLACE_FIELDS: &[Field<Place>] = &[
    field("name", "Name", |place: &Place| Value::text(&place.name)),
    field("node", "Node", |place: &Place| Value::text(&place.node)),
    field("state", "State", |place: &Place| Value::text(place.state.word())),
    field("valid", "Valid", |place: &Place| match place.state {
        State::Valid => Value::Bool(true),
        State::Broken | State::Missing => Value::Bool(false),
        State::NotReached => Value::Unknown,
    }),
    field("kind", "Kind", |place: &Place| Value::text(&place.kind)),
    field("path", "Path", |place: &Place| Value::text(&place.path)),
    field("detail", "Detail", |place: &Place| Value::text(&place.detail)),
];

/// What a node has under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Valid,
    Broken,
    Missing,
    NotReached,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Valid => "valid",
            State::Broken => "broken",
            State::Missing => "missing",
            State::NotReached => "not reached",
        }
    }
}

/// A definition on a node.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    name: String,
    node: String,
    state: State,
    kind: String,
    path: String,
    detail: String,
}

/// A definition on all nodes.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    /// Its name.
    pub(crate) name: String,
    kind: String,
    /// A row for each node.
    pub(crate) places: Vec<Place>,
}

impl Definition {
    /// `valid` where it can be used on every node that was reached, `partial` on some, `broken` on none.
    fn status(&self) -> &'static str {
        let any = |wanted: State| self.places.iter().any(|place| place.state == wanted);
        match (any(State::Valid), any(State::Broken) || any(State::Missing)) {
            (true, false) => "valid",
            (true, true) => "partial",
            (false, _) => "broken",
        }
    }

    fn nodes(&self, wanted: fn(State) -> bool) -> Vec<String> {
        self.places.iter().filter(|place| wanted(place.state)).map(|place| place.node.clone()).collect()
    }
}

/// What the nodes say, by definition.
pub(crate) fn definitions(nodes: &[NodeOses]) -> Vec<Definition> {
    let names: BTreeSet<&str> = nodes.iter().flat_map(|node| &node.oses).map(|os| os.name.as_str()).collect();
    names.into_iter().map(|name| definition(name, nodes)).collect()
}

fn definition(name: &str, nodes: &[NodeOses]) -> Definition {
    let places: Vec<Place> = nodes.iter().map(|node| place(name, node)).collect();
    let mut kinds: Vec<String> = Vec::new();
    for place in places.iter().filter(|place| !place.kind.is_empty()) {
        if !kinds.contains(&place.kind) {
            kinds.push(place.kind.clone());
        }
    }
    Definition { name: name.to_owned(), kind: kinds.join(","), places }
}

fn place(name: &str, node: &NodeOses) -> Place {
    let nothing = |state, detail: &str| Place {
        name: name.to_owned(),
        node: node.node.clone(),
        state,
        kind: String::new(),
        path: String::new(),
        detail: detail.to_owned(),
    };
    match (&node.not_reached, node.oses.iter().find(|os| os.name == name)) {
        (Some(why), _) => nothing(State::NotReached, why),
        (None, None) => nothing(State::Missing, ""),
        (None, Some(OsInfo { path, kind, problem, .. })) => Place {
            kind: kind.clone(),
            path: path.clone(),
            ..match problem {
                Some(why) => nothing(State::Broken, why),
                None => nothing(State::Valid, ""),
            }
        },
    }
}

/// Everything of a definition as JSON.
pub(crate) fn os_json(os: &Definition) -> Json {
    let mut object = whole_object(FIELDS, os);
    let places = os.places.iter().map(|place| {
        let mut place = whole_object(PLACE_FIELDS, place);
        place.remove("name");
        Json::Object(place)
    });
    object.insert("places".to_owned(), json!(places.collect::<Vec<_>>()));
    Json::Object(object)
}

/// Everything of a definition for people.
pub(crate) fn os_text(os: &Definition) -> String {
    let mut text = format!("OS {}\n{}", visible_line(&os.name), whole_text(FIELDS, os));
    for place in &os.places {
        let parts = [&place.path, &place.detail].into_iter().filter(|part| !part.is_empty());
        let more: String = parts.map(|part| format!(", {}", visible_line(part))).collect();
        text += &format!("  on {}: {}{more}\n", visible_line(&place.node), place.state.word());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::ListFlags, output::fields::select};

    fn nodes() -> Vec<NodeOses> {
        let os = |name: &str, problem: Option<&str>| OsInfo {
            name: name.to_owned(),
            path: format!("/srv/os/{name}"),
            kind: "scripts".to_owned(),
            problem: problem.map(str::to_owned),
        };
        let node = |node: &str, oses: Vec<OsInfo>, why: Option<&str>| NodeOses {
            node: node.to_owned(),
            oses,
            not_reached: why.map(str::to_owned),
        };
        vec![
            node(
                "node1",
                vec![os("bad", Some("create is missing")), os("deb", None), os("half", None)],
                None,
            ),
            node("node2", vec![os("deb", None)], None),
            node("node3", Vec::new(), Some("connection refused")),
        ]
    }

    #[test]
    fn a_definition_is_valid_where_every_node_that_answers_has_it() {
        let text =
            select(FIELDS, DEFAULT, &ListFlags::default()).unwrap().render(&definitions(&nodes())).unwrap();
        let expected = "\
Name Status  Kind    Nodes
bad  broken  scripts -
deb  valid   scripts node1,node2
half partial scripts node1
";
        assert_eq!(text, expected);
    }

    #[test]
    fn each_place_is_told() {
        let places: Vec<Place> = definitions(&nodes()).into_iter().flat_map(|os| os.places).take(4).collect();
        let text =
            select(PLACE_FIELDS, PLACE_DEFAULT, &ListFlags::default()).unwrap().render(&places).unwrap();
        let expected = "\
Name Node  State       Kind    Path        Detail
bad  node1 broken      scripts /srv/os/bad create is missing
bad  node2 missing     -       -           -
bad  node3 not reached -       -           connection refused
deb  node1 valid       scripts /srv/os/deb -
";
        assert_eq!(text, expected);
        let definitions = definitions(&nodes());
        let value = os_json(&definitions[0]);
        assert_eq!((&value["valid"], &value["broken_on"]), (&json!(false), &json!(["node1"])));
        assert_eq!(value["places"][2]["valid"], Json::Null);
        let text = os_text(&definitions[0]);
        assert!(text.ends_with(
            "  on node1: broken, /srv/os/bad, create is missing\n  on node2: missing\n  on node3: not reached, connection refused\n"
        ), "{text}");
    }
}
