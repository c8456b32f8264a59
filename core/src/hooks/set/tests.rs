//! Paths, links, bounds and digests of a set, on small lists.

use super::*;

fn file(size: u64) -> SetEntry {
    SetEntry::File { digest: Digest::new([7; 32]), mode: 0o6777, size }
}

fn link(target: &str) -> SetEntry {
    SetEntry::Link { target: target.to_owned() }
}

fn set(entries: &[(&str, SetEntry)]) -> Result<HookSet, SetError> {
    let entries = entries.iter().map(|(path, entry)| ((*path).to_owned(), entry.clone()));
    HookSet::try_from(entries.collect::<Vec<_>>())
}

#[test]
fn scripts_and_what_is_below_lib_have_good_paths() {
    for good in ["node-add-pre.d/10-x", "a.d/A_b-9", "lib/x", "lib/net/common.sh", "lib/.hidden", "lib/é"] {
        assert_eq!(check_set_path(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "README",
        "lib",
        "node-add-pre.d",
        "node-add-pre.d/10-x.sh",
        "node-add-pre.d/x/y",
        "Node-pre.d/x",
        ".d/x",
        "node_add.d/x",
        "lib/",
        "lib//x",
        "lib/../x",
        "lib/./x",
        "/lib/x",
        "../lib/x",
        "node-add-pre.d/",
        "bin/x",
        "node-add-pre.d/é",
        "node-add-pre.d/.x",
    ] {
        assert!(matches!(check_set_path(bad), Err(SetError::Path(_))), "{bad}");
    }
    assert!(matches!(check_set_path("lib/a\nb"), Err(SetError::Text { .. })));
    assert!(matches!(check_set_path(&format!("lib/{}", "x/".repeat(300))), Err(SetError::Text { .. })));
    assert!(matches!(check_set_path(&format!("lib/{}", "x".repeat(256))), Err(SetError::Path(_))));
}

#[test]
fn links_are_followed_as_the_kernel_follows_them() {
    let base = [
        ("a-pre.d/10-x", file(1)),
        ("lib/common", file(1)),
        ("lib/deep/er/x", file(1)),
        ("lib/up", link("deep/er")),
    ];
    let check = |path: &str, target: &str, good: bool| {
        let mut entries = base.to_vec();
        entries.push((path, link(target)));
        let found = set(&entries);
        assert_eq!(found.is_ok(), good, "{path} -> {target}: {found:?}");
    };
    check("b-pre.d/10-x", "../a-pre.d/10-x", true);
    check("b-pre.d/10-x", "../lib/common", true);
    check("b-pre.d/10-x", "../lib/up/x", true);
    check("b-pre.d/10-x", "../lib/./deep//er/x", true);
    check("lib/directory", "deep", true);
    check("b-pre.d/10-x", "10-x", false);
    check("b-pre.d/10-x", "../lib/missing", false);
    check("b-pre.d/10-x", "../../set/lib/common", false);
    check("b-pre.d/10-x", "..", false);
    check("b-pre.d/10-x", "../lib/common/x", false);
    check("b-pre.d/10-x", "/lib/common", false);
    // By the text it stays inside; in truth `up` is two levels further down.
    check("b-pre.d/10-x", "../lib/up/../../common", true);
    check("b-pre.d/10-x", "../lib/up/../common", false);
    // By the text it stays inside; in truth the first step leads up to lib, and the next ones out.
    let out = [("lib/a/b/c", link("../..")), ("lib/a/d", link("b/c/../../lib/x")), ("lib/x", file(1))];
    assert!(matches!(set(&out), Err(SetError::LinkOutside { path, .. }) if path == "lib/a/d"));
}

#[test]
fn an_absolute_link_is_named() {
    let error = set(&[("a-pre.d/10-x", link("/etc/passwd"))]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a-pre.d/10-x: it is a link to /etc/passwd; only relative links are distributed"
    );
}

#[test]
fn bounds_name_the_entry_that_passes_them() {
    assert!(set(&[("lib/a", file(SET_BYTES_MAX))]).is_ok());
    let error = set(&[("lib/a", file(SET_BYTES_MAX)), ("lib/b", file(1))]).unwrap_err();
    assert!(matches!(&error, SetError::TooLarge { path, .. } if path == "lib/b"), "{error}");
    let many: Vec<_> = (0..=SET_ENTRIES_MAX).map(|number| (format!("lib/{number:05}"), file(0))).collect();
    assert!(HookSet::try_from(many[1..].to_vec()).is_ok());
    let error = HookSet::try_from(many).unwrap_err();
    assert_eq!(error, SetError::TooMany { path: "lib/10000".to_owned() });
}

#[test]
fn no_path_is_taken_twice() {
    for entries in [
        [("lib/a", file(1)), ("lib/a", file(2))],
        [("lib/a", file(1)), ("lib/a/b", file(2))],
        [("lib/a/b", file(1)), ("lib/a", link("a/b"))],
    ] {
        assert!(matches!(set(&entries), Err(SetError::Twice(_))), "{entries:?}");
    }
    assert!(set(&[("lib/a", file(1)), ("lib/a-b", file(2)), ("lib/a.d/c", file(3))]).is_ok());
}

#[test]
fn modes_are_masked_and_every_difference_shows_in_the_text() {
    let one = set(&[("a-pre.d/10-x", file(1))]).unwrap();
    assert_eq!(one.canonical(), format!("file\ta-pre.d/10-x\t{}\t755\t1\n", "07".repeat(32)));
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(serde_json::from_str::<HookSet>(&text).unwrap(), one);
    assert!(serde_json::from_str::<HookSet>(&text.replace("10-x", "10-x.sh")).is_err());
}

#[test]
fn digests_are_read_and_printed() {
    let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let digest: Digest = text.parse().unwrap();
    assert_eq!((digest.to_string().as_str(), digest.short().as_str()), (text, "ba7816bf8f01"));
    assert_eq!(Digest::from_slice(digest.as_bytes()), Ok(digest));
    for bad in ["", "ba", &text.to_uppercase(), &text.replace('b', "g")] {
        assert_eq!(bad.parse::<Digest>(), Err(DigestError), "{bad}");
    }
}
