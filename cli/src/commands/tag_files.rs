//! `--from FILE` of the verbs that add and take tags: tags by the line, before anything else is done.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use muster_core::tags::{TAG_BYTES_MAX, TAGS_MAX, Tag};

use crate::{
    args::{
        ClusterTagsVerb, ClusterVerb, Group, GroupVerb, InstanceVerb, NetworkVerb, NodeVerb, TagWords,
        TagsVerb,
    },
    exit::Failure,
};

/// The most that is read: twice what an object's tags take at their longest, for blanks and empty lines.
const FILE_BYTES_MAX: usize = 2 * TAGS_MAX * (TAG_BYTES_MAX + 1);

/// Puts the tags of a file to those that were typed.
pub(super) fn read(group: &mut Group) -> Result<(), Failure> {
    let Some(words) = words(group) else { return Ok(()) };
    let Some(path) = words.from.take() else { return Ok(()) };
    let wrong = |why: String| Failure::Usage(format!("--from {}: {why}", path.display()));
    let text = contents(&path).map_err(|error| wrong(error.to_string()))?;
    words.tags.extend(tags(&text).map_err(wrong)?);
    if words.tags.is_empty() {
        return Err(wrong("there is no tag in it".to_owned()));
    }
    Ok(())
}

/// The tags that a verb names, where it names any.
fn words(group: &mut Group) -> Option<&mut TagWords> {
    match group {
        Group::Node(NodeVerb::Tags(verb))
        | Group::Instance(InstanceVerb::Tags(verb))
        | Group::Group(GroupVerb::Tags(verb))
        | Group::Network(NetworkVerb::Tags(verb)) => match verb {
            TagsVerb::Add { tags, .. } | TagsVerb::Remove { tags, .. } => Some(tags),
            TagsVerb::List { .. } => None,
        },
        Group::Cluster(ClusterVerb::Tags(verb)) => match verb {
            ClusterTagsVerb::Add(tags) | ClusterTagsVerb::Remove(tags) => Some(tags),
            ClusterTagsVerb::List(_) | ClusterTagsVerb::Search { .. } => None,
        },
        Group::Cluster(_)
        | Group::Node(_)
        | Group::Instance(_)
        | Group::Backup(_)
        | Group::Job(_)
        | Group::Group(_)
        | Group::Network(_)
        | Group::Os(_)
        | Group::Hooks(_) => None,
    }
}

fn contents(path: &Path) -> io::Result<String> {
    let source: Box<dyn Read> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
    let mut text = String::new();
    let bound = u64::try_from(FILE_BYTES_MAX).expect("this fits") + 1;
    source.take(bound).read_to_string(&mut text)?;
    if text.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is larger than the tags of an object can be"));
    }
    Ok(text)
}

/// One a line; empty lines count for nothing.
fn tags(text: &str) -> Result<Vec<String>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let tag = |(at, line): (usize, &str)| {
        Tag::parse(line.trim()).map(String::from).map_err(|why| format!("line {}: {why}", at + 1))
    };
    lines.map(tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse;

    fn group(line: &str) -> Group {
        parse(line.split_whitespace().map(Into::into).collect()).unwrap().group
    }

    #[test]
    fn tags_of_a_file_are_put_to_those_that_were_typed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tags");
        let found = |line: &str, text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut group = group(&format!("{line} --from {}", path.display()));
            read(&mut group).map_err(|failure| {
                assert_eq!(failure.code(), 2);
                failure.to_string()
            })?;
            Ok::<_, String>(words(&mut group).unwrap().tags.clone())
        };
        assert_eq!(found("gnt-node add-tags node1 a", "b\n\n  c \nd").unwrap(), ["a", "b", "c", "d"]);
        assert_eq!(found("gnt-cluster remove-tags", "b\n").unwrap(), ["b"]);
        let why = found("gnt-instance add-tags web1", "good\nnot good\n").unwrap_err();
        assert!(why.contains("line 2") && why.contains("\"not good\""), "{why}");
        assert!(found("gnt-network add-tags lan", "\n").unwrap_err().contains("no tag in it"));
        let long = "a\n".repeat(FILE_BYTES_MAX / 2 + 1);
        assert!(found("gnt-group add-tags rack1", &long).unwrap_err().contains("larger"));
        let mut none = group("gnt-node add-tags node1 --from /nonexistent/tags");
        assert!(read(&mut none).unwrap_err().to_string().contains("/nonexistent/tags"));
    }

    #[test]
    fn what_names_no_file_is_left_alone() {
        for line in ["gnt-node add-tags node1 a", "gnt-node list-tags node1", "gnt-node list"] {
            read(&mut group(line)).unwrap();
        }
    }
}
