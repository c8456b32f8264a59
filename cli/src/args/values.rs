//! Parsers of single values; each error names the value and what would be right (clap prints the flag).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use muster_core::{
    allowed::{CommandPattern, FilePath},
    engine::{Dependency, Ending, Priority},
    hooks::HooksVersion,
    hypervisor::{NicMode, is_interface},
    names::{ClientName, ClusterName, GroupName, InstanceName, NetworkName, NodeName, OsName},
    networks::{LinkMode, MacPrefix, Subnet, Subnet6},
    tags::{TAG_BYTES_MAX, Tag},
};

/// The largest size in MiB: its bytes still fit a signed 64-bit file offset.
const SIZE_MIB_MAX: u64 = (1 << 43) - 1;
/// The longest pattern: a tag's own bytes, and a sign between any two of them.
const PATTERN_BYTES_MAX: usize = 2 * TAG_BYTES_MAX + 1;
/// The longest reason in bytes; the master's own limit.
const REASON_BYTES_MAX: usize = 1024;

/// A node's name and, after a colon, another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Where the instance runs.
    pub(crate) primary: String,
    /// Where its disks are mirrored to.
    pub(crate) secondary: Option<String>,
}

/// An address, or the word `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IpChange {
    /// No address.
    None,
    /// This one.
    Address(IpAddr),
    /// The first of the network that nobody has.
    Pool,
}

/// How a network is connected to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NicParameters {
    /// `bridged` or `routed`.
    pub(crate) mode: String,
    /// The interface.
    pub(crate) link: String,
}

/// A size in MiB: `64M`, `10G`, `1T`, or a plain number of MiB.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    const RIGHT: &str =
        "a size is a whole number and M, G or T, for example 512M or 10G; without a unit it is MiB";
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if number.is_empty() {
        return Err(if text.starts_with('-') && text.len() > 1 {
            format!("a size can't be negative; {RIGHT}")
        } else {
            RIGHT.to_owned()
        });
    }
    let factor: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "m" | "mib" => 1,
        "g" | "gib" => 1 << 10,
        "t" | "tib" => 1 << 20,
        _ => return Err(format!("unknown unit {unit:?}; {RIGHT}")),
    };
    // All digits, so the only way to fail is a number that is too large.
    let mib = number.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
    match mib {
        Some(0) => Err("a size of 0 is of no use; leave the flag out where nothing is wanted".to_owned()),
        Some(mib) if mib <= SIZE_MIB_MAX => Ok(mib),
        Some(_) | None => Err("the size is too large: at most 8388607T fits a disk".to_owned()),
    }
}

/// A count from 1.
pub(super) fn count(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(0) | Err(_) => Err("it must be a whole number from 1 to 4294967295".to_owned()),
        Ok(count) => Ok(count),
    }
}

/// `P` or `P:S`.
pub(super) fn placement(text: &str) -> Result<Placement, String> {
    match text.split_once(':') {
        None => Ok(Placement { primary: node(text)?, secondary: None }),
        Some((primary, secondary)) => {
            Ok(Placement { primary: node(primary)?, secondary: Some(node(secondary)?) })
        }
    }
}

/// An IP address.
pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "it must be an IP address, for example 192.0.2.10 or 2001:db8::10".to_owned())
}

/// An IP address, `none` or `pool`.
pub(super) fn ip_or_word(text: &str) -> Result<IpChange, String> {
    match text {
        "none" => Ok(IpChange::None),
        "pool" => Ok(IpChange::Pool),
        _ => ip(text).map(IpChange::Address).map_err(|why| format!("{why}, or none or pool")),
    }
}

/// An IPv4 address.
pub(super) fn ipv4(text: &str) -> Result<String, String> {
    let parsed: Result<Ipv4Addr, _> = text.parse();
    parsed
        .map(|ip| ip.to_string())
        .map_err(|_| "it must be an IPv4 address, for example 192.0.2.10".to_owned())
}

/// An IPv6 address.
pub(super) fn ipv6(text: &str) -> Result<String, String> {
    let parsed: Result<Ipv6Addr, _> = text.parse();
    parsed
        .map(|ip| ip.to_string())
        .map_err(|_| "it must be an IPv6 address, for example 2001:db8::10".to_owned())
}

/// A range of IPv4 addresses.
pub(super) fn subnet(text: &str) -> Result<String, String> {
    Subnet::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// A range of IPv6 addresses.
pub(super) fn subnet6(text: &str) -> Result<String, String> {
    Subnet6::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// The first three octets of MAC addresses.
pub(super) fn mac_prefix(text: &str) -> Result<String, String> {
    MacPrefix::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// What a parser takes, or the word `none`.
pub(super) fn or_none(
    parse: fn(&str) -> Result<String, String>,
) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| {
        if text == "none" {
            Ok(text.to_owned())
        } else {
            parse(text).map_err(|why| format!("{why}, or none"))
        }
    }
}

/// `mode=bridged,link=br0`.
pub(super) fn nic_parameters(text: &str) -> Result<NicParameters, String> {
    const RIGHT: &str = "it must be mode=MODE,link=LINK, for example mode=bridged,link=br0";
    let (mut mode, mut link) = (None, None);
    for part in text.split(',') {
        let slot = match part.split_once('=') {
            Some(("mode", word)) => (&mut mode, word),
            Some(("link", word)) => (&mut link, word),
            Some((name, _)) => return Err(format!("unknown parameter {name:?}; {RIGHT}")),
            None => return Err(RIGHT.to_owned()),
        };
        if slot.0.replace(slot.1).is_some() {
            return Err(format!("a parameter is given twice; {RIGHT}"));
        }
    }
    let mode = mode.unwrap_or(LinkMode::Bridged.as_str());
    let link = link.ok_or_else(|| format!("the link is missing; {RIGHT}"))?;
    if LinkMode::parse(mode).is_none() {
        return Err(format!("unknown mode {mode:?}: it must be bridged or routed"));
    }
    if !is_interface(link) {
        return Err(format!(
            "{link:?} is no name of an interface: at most 15 letters, digits, dots, hyphens and underscores"
        ));
    }
    Ok(NicParameters { mode: mode.to_owned(), link: link.to_owned() })
}

/// A tag.
pub(super) fn tag(text: &str) -> Result<String, String> {
    Tag::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// What tags are looked for by. One that no tag can fit is refused: it is a regular expression, as Ganeti takes them.
pub(super) fn tag_pattern(text: &str) -> Result<String, String> {
    const RIGHT: &str = "a pattern is no regular expression: it is a part of the tag, or its whole form with * (any characters) and ? (any one), for example 'site:*'";
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("it is longer than {PATTERN_BYTES_MAX} bytes; {RIGHT}"));
    }
    if let Some(repeated) = [".*", ".+"].into_iter().find(|repeated| text.contains(repeated)) {
        return Err(format!("{repeated} is of a regular expression; {RIGHT}"));
    }
    let without_signs: String = text.chars().filter(|c| !matches!(c, '*' | '?')).collect();
    match Tag::parse(&without_signs) {
        Err(_) if !without_signs.is_empty() => Err(format!("no tag has such characters; {RIGHT}")),
        Ok(_) | Err(_) => Ok(text.to_owned()),
    }
}

/// The name of something that has tags; all names have the same rules.
pub(super) fn tagged(text: &str) -> Result<String, String> {
    InstanceName::parse(text)
        .map(String::from)
        .map_err(|why| why.to_string().replacen("instance name", "name", 1))
}

/// `yes` or `no`.
pub(super) fn yes_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("it must be yes or no".to_owned()),
    }
}

/// A version of the hook interface.
pub(super) fn hooks_version(text: &str) -> Result<HooksVersion, String> {
    HooksVersion::parse(text).ok_or_else(|| "it must be 1 or 2".to_owned())
}

/// A command line that may be allowed on nodes.
pub(super) fn command_pattern(text: &str) -> Result<String, String> {
    text.parse::<CommandPattern>().map(String::from).map_err(|why| why.to_string())
}

/// The path of a file that may be written on nodes.
pub(super) fn file_path(text: &str) -> Result<String, String> {
    text.parse::<FilePath>().map(String::from).map_err(|why| why.to_string())
}

/// How network cards are connected.
pub(super) fn nic(text: &str) -> Result<String, String> {
    match NicMode::parse(text) {
        Some(mode) => Ok(mode.to_text()),
        None => Err(
            "it must be none, user or bridge:NAME, the name of at most 15 letters, digits, dots and hyphens"
                .to_owned(),
        ),
    }
}

/// A span of time above zero: `90s`, `10m`, `1h 30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const RIGHT: &str = "a duration is a number and a unit, for example 90s, 10m or 24h";
    match humantime::parse_duration(text) {
        Ok(span) if span.as_millis() == 0 => Err(format!("a duration of zero is of no use; {RIGHT}")),
        Ok(span) => Ok(span),
        Err(why) => Err(format!("{why}; {RIGHT}")),
    }
}

/// The same, or zero for `none`.
pub(crate) fn duration_or_none(text: &str) -> Result<Duration, String> {
    if text == "none" { Ok(Duration::ZERO) } else { duration(text) }
}

/// How old a job must be to be archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Duration);

/// `3600`, `30m`, `12h`, `7d`, `2w`; `all` is any age. Plain numbers are seconds, as in Ganeti.
pub(super) fn age(text: &str) -> Result<Age, String> {
    const RIGHT: &str = "an age is a whole number and s, m, h, d or w, for example 30m or 7d (without a unit: seconds), or all";
    if text == "all" {
        return Ok(Age(Duration::ZERO));
    }
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if number.is_empty() {
        return Err(RIGHT.to_owned());
    }
    let factor: u64 = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(format!("unknown unit {unit:?}; {RIGHT}")),
    };
    let seconds = number.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
    // On the wire it is counted in milliseconds.
    match seconds.filter(|seconds| seconds.checked_mul(1_000).is_some()) {
        Some(seconds) => Ok(Age(Duration::from_secs(seconds))),
        None => Err(format!("no job is that old; {RIGHT}")),
    }
}

/// A job's number; they begin with 1.
pub(crate) fn job(text: &str) -> Result<u64, String> {
    // No sign: `parse` would take a plus.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(0) => Err("jobs are numbered from 1".to_owned()),
        Ok(number) if digits => Ok(number),
        Ok(_) | Err(_) => Err("a job is a whole number from 1".to_owned()),
    }
}

/// `12` or `12:success,error`.
pub(super) fn dependency(text: &str) -> Result<Dependency, String> {
    let (number, states) = match text.split_once(':') {
        None => (text, "success"),
        Some((number, states)) => (number, states),
    };
    let number = job(number)
        .map_err(|why| format!("{why}; it is JOB or JOB:STATES, for example 12 or 12:success,error"))?;
    let endings = states.split(',').map(|state| match state {
        "success" => Ok(Ending::Success),
        "error" => Ok(Ending::Error),
        "canceled" => Ok(Ending::Canceled),
        _ => Err(format!("unknown state {state:?}; states are success, error and canceled, with commas")),
    });
    Ok(Dependency { job: number, endings: endings.collect::<Result<_, _>>()? })
}

/// `low`, `normal`, `high`, or a number.
pub(super) fn priority(text: &str) -> Result<Priority, String> {
    let wrong = || {
        format!(
            "a priority is low, normal, high, or a number from {} (first) to {} (last)",
            Priority::FIRST.value(),
            Priority::LAST.value()
        )
    };
    match text {
        "low" => Ok(Priority::LOW),
        "normal" => Ok(Priority::default()),
        "high" => Ok(Priority::HIGH),
        number => number.parse::<i64>().ok().and_then(|number| number.try_into().ok()).ok_or_else(wrong),
    }
}

/// A text for `--reason`.
pub(super) fn reason(text: &str) -> Result<String, String> {
    if text.len() > REASON_BYTES_MAX {
        return Err(format!(
            "a reason is at most {REASON_BYTES_MAX} bytes long, this one has {}",
            text.len()
        ));
    }
    Ok(text.to_owned())
}

/// A node's name.
pub(super) fn node(text: &str) -> Result<String, String> {
    NodeName::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// An instance's name.
pub(super) fn instance(text: &str) -> Result<String, String> {
    InstanceName::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// The cluster's name.
pub(super) fn cluster(text: &str) -> Result<String, String> {
    ClusterName::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// The name of a group of nodes.
pub(super) fn group(text: &str) -> Result<String, String> {
    GroupName::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// A network's name; `none` is the word for no network.
pub(super) fn network(text: &str) -> Result<String, String> {
    if text == "none" {
        return Err("none is the word for no network".to_owned());
    }
    NetworkName::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// A network's name, or `none`.
pub(super) fn network_or_none(text: &str) -> Result<String, String> {
    NetworkName::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// The name of an OS definition.
pub(super) fn os(text: &str) -> Result<String, String> {
    OsName::parse(text).map(String::from).map_err(|why| why.to_string())
}

/// The name of a client certificate.
pub(super) fn client(text: &str) -> Result<String, String> {
    ClientName::parse(text).map(String::from).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_and_plain_numbers_are_mib() {
        for (text, mib) in [
            ("1", 1),
            ("64M", 64),
            ("64m", 64),
            ("64MiB", 64),
            ("10G", 10_240),
            ("10 GiB", 10_240),
            ("1T", 1_048_576),
            ("8388607T", 8_388_607 << 20),
        ] {
            assert_eq!(size(text), Ok(mib), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_are_refused_and_say_why() {
        for (text, word) in [
            ("", "whole number"),
            ("G", "whole number"),
            ("0", "size of 0"),
            ("0G", "size of 0"),
            ("-5G", "negative"),
            ("-", "whole number"),
            ("1.5G", "unknown unit \".5G\""),
            ("5K", "unknown unit \"K\""),
            ("5X", "unknown unit \"X\""),
            ("5GB", "unknown unit \"GB\""),
            ("8388608T", "too large"),
            ("18446744073709551615T", "too large"),
            ("99999999999999999999999", "too large"),
            ("+5", "whole number"),
            ("٣", "whole number"),
        ] {
            let why = size(text).unwrap_err();
            assert!(why.contains(word), "{text:?}: {why}");
        }
    }

    #[test]
    fn placements_have_one_or_two_nodes() {
        let place = |primary: &str, secondary: Option<&str>| Placement {
            primary: primary.to_owned(),
            secondary: secondary.map(str::to_owned),
        };
        assert_eq!(placement("node1"), Ok(place("node1", None)));
        assert_eq!(placement("node1:node2"), Ok(place("node1", Some("node2"))));
        for wrong in ["", ":", "node1:", ":node2", "node1:node2:node3", "Node1"] {
            assert!(placement(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn dependencies_name_a_job_and_how_it_must_have_ended() {
        let depends =
            |job, endings: &[Ending]| Dependency { job, endings: endings.iter().copied().collect() };
        assert_eq!(dependency("12"), Ok(depends(12, &[Ending::Success])));
        assert_eq!(
            dependency("12:error,canceled,error"),
            Ok(depends(12, &[Ending::Error, Ending::Canceled]))
        );
        for (text, word) in [
            ("", "whole number"),
            ("0", "from 1"),
            ("-3", "whole number"),
            ("+3", "whole number"),
            ("x:success", "whole number"),
            ("99999999999999999999", "whole number"),
            ("12:", "unknown state \"\""),
            ("12:done", "unknown state \"done\""),
            ("12:success, error", "unknown state \" error\""),
            ("12:success:error", "unknown state \"success:error\""),
        ] {
            let why = dependency(text).unwrap_err();
            assert!(why.contains(word), "{text:?}: {why}");
        }
    }

    #[test]
    fn priorities_are_words_or_numbers() {
        for (text, number) in
            [("low", 10), ("normal", 0), ("high", -10), ("-20", -20), ("19", 19), ("0", 0), ("-0", 0)]
        {
            assert_eq!(priority(text).map(Priority::value), Ok(number), "{text}");
        }
        for wrong in ["", "-21", "20", "hihg", "High", "1.5", "--submit", "99999999999999999999"] {
            assert!(priority(wrong).unwrap_err().contains("-20 (first) to 19 (last)"), "{wrong}");
        }
    }

    #[test]
    fn ages_are_seconds_or_have_a_unit() {
        for (text, seconds) in [
            ("3600", 3_600),
            ("0", 0),
            ("all", 0),
            ("90s", 90),
            ("30m", 1_800),
            ("12h", 43_200),
            ("7d", 604_800),
            ("2w", 1_209_600),
        ] {
            assert_eq!(age(text), Ok(Age(Duration::from_secs(seconds))), "{text}");
        }
        for (text, word) in [
            ("", "whole number"),
            ("-5", "whole number"),
            ("d", "whole number"),
            ("7y", "unknown unit \"y\""),
            ("1.5h", "unknown unit \".5h\""),
            ("alle", "whole number"),
            ("99999999999999999999", "no job is that old"),
            ("18446744073709551615", "no job is that old"),
            ("9999999999999999w", "no job is that old"),
        ] {
            let why = age(text).unwrap_err();
            assert!(why.contains(word), "{text:?}: {why}");
        }
    }

    #[test]
    fn parameters_of_a_connection() {
        let right = |text: &str| nic_parameters(text).map(|found| (found.mode, found.link));
        let (bridged, routed) = ("bridged".to_owned(), "routed".to_owned());
        assert_eq!(right("link=br0"), Ok((bridged, "br0".to_owned())));
        assert_eq!(right("link=eth0,mode=routed"), Ok((routed, "eth0".to_owned())));
        for (text, word) in [
            ("", "for example mode=bridged,link=br0"),
            ("mode=bridged", "the link is missing"),
            ("link=", "no name of an interface"),
            ("link=a,link=b", "given twice"),
            ("link=a,vlan=5", "unknown parameter \"vlan\""),
            ("link=a,mode=ovs", "unknown mode \"ovs\""),
        ] {
            let why = right(text).unwrap_err();
            assert!(why.contains(word), "{text:?}: {why}");
        }
    }

    #[test]
    fn other_values() {
        assert!(network("none").is_err() && network_or_none("none").is_ok());
        assert!(tagged("A b").unwrap_err().starts_with("name \"A b\" is not valid"));
        assert!(or_none(ipv4)("none").is_ok() && or_none(ipv4)("::1").unwrap_err().ends_with("or none"));
        assert_eq!(ip_or_word("none"), Ok(IpChange::None));
        assert_eq!(ip_or_word("pool"), Ok(IpChange::Pool));
        assert_eq!(ip_or_word("::1"), Ok(IpChange::Address("::1".parse().unwrap())));
        assert!(ip_or_word("1.2.3").unwrap_err().ends_with("or none or pool"));
        assert_eq!(count("3"), Ok(3));
        for wrong in ["0", "-1", "4294967296", "x", ""] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        for wrong in ["0s", "5", "", "-1s", "1ns", "99999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(reason(&"x".repeat(1024)).is_ok());
        assert!(reason(&"ä".repeat(513)).unwrap_err().contains("1026"));
    }
}
