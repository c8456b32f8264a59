//! Tags: words that a site puts on the cluster, on nodes, instances, groups and networks.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    model::Cluster,
    names::{GroupName, InstanceName, NetworkName, NodeName},
};

/// The longest tag in bytes.
pub const TAG_BYTES_MAX: usize = 128;
/// The most tags that an object has.
pub const TAGS_MAX: usize = 4096;
/// The most that an object's tags measure together, with a blank between: scripts see them in one variable, which the
/// kernel bounds at 128 KiB.
pub const TAGS_BYTES_MAX: usize = 96 * 1024;

/// Longest part of a refused text that an error repeats, in characters.
const ERROR_TEXT_CHARS_MAX: usize = 80;

/// Why a text is no tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tag {text:?} is not valid: {why}")]
pub struct TagError {
    text: String,
    why: &'static str,
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tag(String);

impl Tag {
    /// Parses a tag.
    ///
    /// # Errors
    /// When the text breaks the rules for tags.
    pub fn parse(text: &str) -> Result<Self, TagError> {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"_.+*/:@-".contains(&b);
        let why = if text.is_empty() {
            "it is empty"
        } else if text.len() > TAG_BYTES_MAX {
            "it is longer than 128 characters"
        } else if !text.bytes().all(fine) {
            "only letters, digits and the characters . + * / : @ _ - may stand in it"
        } else {
            return Ok(Tag(text.to_owned()));
        };
        Err(TagError { text: text.chars().take(ERROR_TEXT_CHARS_MAX).collect(), why })
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Tag {
    type Error = TagError;
    fn try_from(text: String) -> Result<Self, TagError> {
        Tag::parse(&text)
    }
}

impl From<Tag> for String {
    fn from(tag: Tag) -> String {
        tag.0
    }
}

/// Why an object can't have more tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TagsFull {
    /// Too many.
    #[error("it would have {0} tags, and 4096 are the most")]
    Count(usize),
    /// Too long together.
    #[error("its tags would measure {0} bytes together, and 98304 are the most")]
    Bytes(usize),
}

/// The tags of an object, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tags(BTreeSet<Tag>);

impl Tags {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is one of them.
    pub fn contains(&self, tag: &Tag) -> bool {
        self.0.contains(tag)
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Tag> {
        self.0.iter()
    }

    /// All, in order, as text.
    pub fn to_texts(&self) -> Vec<String> {
        self.0.iter().map(Tag::to_string).collect()
    }

    /// These with others.
    ///
    /// # Errors
    /// When they would be more than an object may have.
    pub fn with(&self, more: &Tags) -> Result<Tags, TagsFull> {
        let all = Tags(self.0.union(&more.0).cloned().collect());
        let bytes = all.0.iter().map(|tag| tag.0.len() + 1).sum::<usize>().saturating_sub(1);
        if all.0.len() > TAGS_MAX {
            return Err(TagsFull::Count(all.0.len()));
        }
        if bytes > TAGS_BYTES_MAX {
            return Err(TagsFull::Bytes(bytes));
        }
        Ok(all)
    }

    /// Adds some and takes some away.
    pub(crate) fn change(&mut self, add: &Tags, remove: &Tags) {
        self.0.extend(add.0.iter().cloned());
        self.0.retain(|tag| !remove.0.contains(tag));
    }
}

impl FromIterator<Tag> for Tags {
    fn from_iter<I: IntoIterator<Item = Tag>>(tags: I) -> Self {
        Tags(tags.into_iter().collect())
    }
}

/// Something that has tags, as an operator names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagObject {
    /// The cluster.
    Cluster,
    /// A node.
    Node(NodeName),
    /// An instance.
    Instance(InstanceName),
    /// A group of nodes.
    Group(GroupName),
    /// A network.
    Network(NetworkName),
}

impl TagObject {
    /// `cluster`, `node`, `instance`, `group` or `network`.
    pub fn kind(&self) -> &'static str {
        match self {
            TagObject::Cluster => "cluster",
            TagObject::Node(_) => "node",
            TagObject::Instance(_) => "instance",
            TagObject::Group(_) => "group",
            TagObject::Network(_) => "network",
        }
    }

    /// Its name; empty for the cluster.
    pub fn name(&self) -> &str {
        match self {
            TagObject::Cluster => "",
            TagObject::Node(name) => name.as_str(),
            TagObject::Instance(name) => name.as_str(),
            TagObject::Group(name) => name.as_str(),
            TagObject::Network(name) => name.as_str(),
        }
    }
}

/// Something that has tags, as its record is named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tagged {
    /// The cluster.
    Cluster,
    /// A node.
    Node(NodeName),
    /// An instance.
    Instance(InstanceName),
    /// A group of nodes.
    Group(Uuid),
    /// A network.
    Network(Uuid),
}

impl Cluster {
    /// The tags of something; `None` where it is not there.
    pub fn tags_of(&self, object: &Tagged) -> Option<&Tags> {
        match object {
            Tagged::Cluster => Some(&self.tags),
            Tagged::Node(name) => self.nodes.get(name).map(|node| &node.tags),
            Tagged::Instance(name) => self.instances.get(name).map(|instance| &instance.tags),
            Tagged::Group(uuid) => self.groups.get(uuid).map(|group| &group.tags),
            Tagged::Network(uuid) => self.networks.get(uuid).map(|network| &network.tags),
        }
    }

    /// The same, to be changed.
    pub(crate) fn tags_mut(&mut self, object: &Tagged) -> Option<&mut Tags> {
        match object {
            Tagged::Cluster => Some(&mut self.tags),
            Tagged::Node(name) => self.nodes.get_mut(name).map(|node| &mut node.tags),
            Tagged::Instance(name) => self.instances.get_mut(name).map(|instance| &mut instance.tags),
            Tagged::Group(uuid) => self.groups.get_mut(uuid).map(|group| &mut group.tags),
            Tagged::Network(uuid) => self.networks.get_mut(uuid).map(|network| &mut network.tags),
        }
    }
}

/// Whether a tag is one that is looked for: one that contains the text or, where there is a `*` (any characters) or a `?`
/// (any one) in it, one that is of this form from its beginning to its end.
pub fn tag_matches(pattern: &str, tag: &str) -> bool {
    if pattern.contains(['*', '?']) {
        glob(pattern.as_bytes(), tag.as_bytes())
    } else {
        tag.contains(pattern)
    }
}

/// Steps through both; at a mismatch the last star takes one byte more, so that the cost is bounded by the product of the
/// lengths.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(b'?') => {
                p += 1;
                t += 1;
            }
            Some(byte) if *byte == text[t] => {
                p += 1;
                t += 1;
            }
            Some(_) | None => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(words: &[&str]) -> Tags {
        words.iter().map(|word| Tag::parse(word).unwrap()).collect()
    }

    #[test]
    fn tags_hold_few_characters_and_are_short() {
        for good in ["a", "site:web", "x/y@z", "A.b+c*d_e-f", &"t".repeat(128)] {
            assert!(Tag::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", "it is empty"),
            ("a b", "only letters"),
            ("a,b", "only letters"),
            ("ä", "only letters"),
            ("a\n", "only letters"),
            (&"t".repeat(129), "longer than 128"),
        ] {
            let error = Tag::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why) && error.len() < 250, "{error}");
        }
    }

    #[test]
    fn an_object_has_so_many_tags_and_no_more() {
        let few = tags(&["b", "a"]);
        assert_eq!(few.with(&tags(&["a", "c"])).unwrap(), tags(&["a", "b", "c"]));
        let many: Tags = (0..TAGS_MAX).map(|number| Tag::parse(&number.to_string()).unwrap()).collect();
        assert_eq!(many.with(&Tags::default()).unwrap(), many);
        assert_eq!(many.with(&few), Err(TagsFull::Count(4098)));
        let long: Tags = (0..800).map(|number| Tag::parse(&format!("{number:0128}")).unwrap()).collect();
        assert_eq!(long.with(&few), Err(TagsFull::Bytes(800 * 129 + 3)));
    }

    #[test]
    fn a_change_adds_and_takes_away() {
        let mut some = tags(&["a", "b"]);
        some.change(&tags(&["c"]), &tags(&["a", "x"]));
        assert_eq!(some, tags(&["b", "c"]));
        assert_eq!(serde_json::to_string(&some).unwrap(), r#"["b","c"]"#);
        assert!(serde_json::from_str::<Tags>(r#"["a b"]"#).is_err());
    }

    #[test]
    fn a_pattern_is_a_part_or_a_form() {
        for (pattern, tag) in [
            ("we", "site:web"),
            ("", "x"),
            ("site:*", "site:web"),
            ("*e?", "web"),
            ("*", "x"),
            ("a**b", "a-b"),
        ] {
            assert!(tag_matches(pattern, tag), "{pattern} {tag}");
        }
        for (pattern, tag) in [("web", "we"), ("site", "sit"), ("s?", "site"), ("*x", "site"), ("a*b", "abc")]
        {
            assert!(!tag_matches(pattern, tag), "{pattern} {tag}");
        }
        assert!(!tag_matches(&"*a".repeat(60), &format!("{}b", "a".repeat(127))));
    }
}
