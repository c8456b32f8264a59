//! Lines of the protocol: what goes out, and what comes in.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A command.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    execute: Option<&'a str>,
    #[serde(rename = "exec-oob", skip_serializing_if = "Option::is_none")]
    out_of_band: Option<&'a str>,
    #[serde(skip_serializing_if = "Value::is_null")]
    arguments: &'a Value,
    id: u64,
}

impl<'a> Request<'a> {
    pub(super) fn new(command: &'a str, arguments: &'a Value, out_of_band: bool, id: u64) -> Self {
        let (execute, oob) = if out_of_band { (None, Some(command)) } else { (Some(command), None) };
        Request { execute, out_of_band: oob, arguments, id }
    }
}

/// Something that happened in a QEMU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Event {
    /// For example `SHUTDOWN`.
    #[serde(rename = "event")]
    pub name: String,
    /// What belongs to it.
    #[serde(default)]
    pub data: Value,
}

/// What QEMU says first.
#[derive(Debug, Deserialize)]
pub(super) struct Greeting {
    #[serde(rename = "QMP")]
    pub(super) qmp: Hello,
}

#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    #[serde(default)]
    pub(super) capabilities: Vec<String>,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Failure {
    #[serde(default)]
    pub(super) class: String,
    #[serde(rename = "desc", default)]
    pub(super) description: String,
}

/// A line after the greeting.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Event(Event),
    Answer {
        id: u64,
        result: Result<Value, Failure>,
    },
    /// Something of a newer version, or an answer without id.
    Other,
}

#[derive(Deserialize)]
struct AnswerLine {
    id: Option<u64>,
    #[serde(rename = "return")]
    value: Option<Value>,
    error: Option<Failure>,
}

impl Line {
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let value: Value = serde_json::from_str(text)?;
        if value.get("event").is_some() {
            return serde_json::from_value(value).map(Line::Event);
        }
        let answer: AnswerLine = serde_json::from_value(value)?;
        Ok(match (answer.id, answer.error, answer.value) {
            (Some(id), Some(failure), _) => Line::Answer { id, result: Err(failure) },
            (Some(id), None, Some(value)) => Line::Answer { id, result: Ok(value) },
            (None, _, _) | (Some(_), None, None) => Line::Other,
        })
    }
}
