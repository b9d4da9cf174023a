//! Tests of safe and unsafe folders, valid and foreign names, and live and stale sockets.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use super::found::list_in;
use super::*;
use crate::scratch::Scratch;

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn environment(dir: &Path) -> Environment {
    Environment { socket_dir: Some(dir.to_path_buf()), runtime_dir: None, user_id: own_user() }
}

#[test]
fn the_directory_is_the_first_that_the_environment_names() {
    let mut environment =
        Environment { socket_dir: Some("/a".into()), runtime_dir: Some("/run/user/5".into()), user_id: 5 };
    assert_eq!(environment.directory(), Path::new("/a"));
    assert_eq!(environment.directories(), [Path::new("/a")]);
    environment.socket_dir = None;
    assert_eq!(environment.directory(), Path::new("/run/user/5/volt"));
    assert_eq!(environment.directories(), [Path::new("/run/user/5/volt"), Path::new("/tmp/volt-5")]);
    environment.runtime_dir = None;
    assert_eq!(environment.directory(), Path::new("/tmp/volt-5"));
    assert_eq!(environment.directories(), [Path::new("/tmp/volt-5"), Path::new("/run/user/5/volt")]);
}

#[test]
fn a_directory_is_made_for_its_owner_only() {
    let scratch = Scratch::new();
    let path = scratch.path().join("volt");
    create_directory(&path, own_user()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    create_directory(&path, own_user()).expect("one that is there is used");
}

#[test]
fn an_unsafe_directory_is_refused_and_left_as_it_is() {
    let scratch = Scratch::new();
    let path = scratch.path().join("volt");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let error = create_directory(&path, own_user()).unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("has mode 0755 but must have 0700: chmod 700"), "{error}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);

    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    let error = open_directory(&path, own_user() + 1).unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("set VOLT_SOCKET_DIR"), "{error}");

    let link = scratch.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(open_directory(&link, own_user()).unwrap_err().is_refused());
    assert!(open_directory(&link.join(""), own_user()).unwrap_err().is_refused(), "with a closing slash");

    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(create_directory(&file, own_user()).unwrap_err().is_refused());
}

#[test]
fn errors_never_advise_changing_or_removing_a_shared_directory() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("opt")).unwrap();
    std::fs::set_permissions(scratch.path().join("opt"), PermissionsExt::from_mode(0o755)).unwrap();
    let cases = [
        ("volt", 0o755, true),
        ("opt/volt", 0o755, false),
        ("volt", 0o500, true),
        (&*format!("volt-{}", own_user()), 0o750, true),
        ("volt", 0o777, false),
        ("volt", 0o1777, false),
        ("volt", 0o1755, false),
        ("volt", 0o775, false),
        ("tmp", 0o1777, false),
        ("srv", 0o755, false),
        (&*format!("volt-{}", own_user() + 1), 0o755, false),
    ];
    for (name, mode, may_change) in cases {
        let path = scratch.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let error = open_directory(&path, own_user()).unwrap_err();
        let text = error.to_string();
        assert!(error.is_refused() && text.contains(&format!("{mode:04o}")), "{name} {mode:o}: {text}");
        assert_eq!(text.contains("chmod"), may_change, "{name} {mode:o}: {text}");
        assert_eq!(
            text.contains("is shared with other users: set VOLT_SOCKET_DIR to a directory of your own"),
            !may_change,
            "{name} {mode:o}: {text}"
        );
        std::fs::remove_dir(&path).unwrap();
    }

    for (name, may_remove) in [("volt", true), ("run", false)] {
        let link = scratch.path().join(name);
        symlink(scratch.path(), &link).unwrap();
        let text = open_directory(&link, own_user()).unwrap_err().to_string();
        assert_eq!(text.contains("remove it"), may_remove, "{text}");
        assert!(text.ends_with("VOLT_SOCKET_DIR"), "{text}");
    }
}

#[test]
fn the_error_of_a_directory_that_cannot_be_made_has_a_remedy() {
    let scratch = Scratch::new();
    let path = scratch.path().join("missing/volt");
    assert!(open_directory(&path, own_user()).unwrap_err().is_missing());
    let error = create_directory(&path, own_user()).unwrap_err();
    assert!(error.to_string().ends_with("set VOLT_SOCKET_DIR"), "{error}");
}

#[test]
fn a_path_too_long_for_an_address_is_an_error_with_a_remedy() {
    address(Path::new(&"x".repeat(MAX_PATH_BYTES))).expect("the limit itself fits");
    let error = address(Path::new(&"x".repeat(112))).unwrap_err();
    assert!(error.is_path_too_long());
    let text = format!("socket path has 112 bytes, but the limit is {MAX_PATH_BYTES}: set VOLT_SOCKET_DIR");
    assert_eq!(error.to_string(), text);
}

#[test]
fn only_names_that_we_make_are_parsed() {
    assert_eq!(parse_file_name("12-345.sock"), Some((12, 345)));
    for foreign in ["12-345", "12.sock", "-12-3.sock", "+1-2.sock", "1-02.sock", "1-2.sock.sock", "a-1.sock", ""] {
        assert_eq!(parse_file_name(foreign), None, "{foreign}");
    }
}

#[test]
fn a_start_time_is_read_past_a_name_with_brackets_and_spaces() {
    let stat = b"7 (a) b) (\xff) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 9 8\n";
    assert_eq!(parse_start_time(stat), Some(4711));
    assert_eq!(parse_start_time(b"7 (cut) S 1"), None);
    assert_eq!(parse_start_time(b""), None);
}

#[test]
fn this_program_is_alive_and_an_earlier_one_of_its_pid_is_not() {
    let start_time = own_start_time();
    assert_eq!(start_time, own_start_time());
    assert!(is_program_alive(std::process::id(), start_time));
    if start_time_of(std::process::id()).is_some() {
        assert!(!is_program_alive(std::process::id(), start_time - 1));
    }
    assert!(!is_program_alive(u32::MAX, 1));
}

#[test]
fn live_sockets_are_distinguished_from_stale_and_foreign() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("volt");
    assert!(list(&environment(&dir)).sockets.is_empty(), "no directory, no sockets");
    create_directory(&dir, own_user()).unwrap();
    let _living = UnixListener::bind(dir.join("20-1.sock")).unwrap();
    drop(UnixListener::bind(dir.join("10-1.sock")).unwrap());
    drop(UnixListener::bind(dir.join("other.sock")).unwrap());
    std::fs::write(dir.join("30-1.sock"), "not a socket").unwrap();
    let listing = list(&environment(&dir));
    let found: Vec<_> = listing.sockets.iter().map(|found| (found.pid, found.is_alive)).collect();
    assert_eq!(found, [(10, false), (20, true)]);
    assert!(listing.refused.is_empty());
}

#[test]
fn a_directory_with_two_paths_is_listed_once() {
    let scratch = Scratch::new();
    let [run, var] = ["run", "var"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&run).unwrap();
    symlink(&run, &var).unwrap();
    let dirs = [run.join("volt"), var.join("volt")];
    create_directory(&dirs[0], own_user()).unwrap();
    let _living = UnixListener::bind(dirs[0].join("20-1.sock")).unwrap();
    let found: Vec<_> = list_in(&dirs, own_user()).sockets.into_iter().map(|found| found.path).collect();
    assert_eq!(found, [dirs[0].join("20-1.sock")]);
}

#[test]
fn a_listing_reports_what_it_could_not_read() {
    let scratch = Scratch::new();
    let listing = list(&Environment { user_id: own_user() + 1, ..environment(scratch.path()) });
    assert!(listing.sockets.is_empty());
    assert_eq!(listing.refused.len(), 1);
    assert!(listing.refused[0].is_refused());
}

#[test]
fn only_sockets_of_the_dead_are_removed() {
    let scratch = Scratch::new();
    let path = scratch.path().join("volt");
    let dir = create_directory(&path, own_user()).unwrap();
    let own = file_name(std::process::id(), own_start_time());
    let kept = [own.as_str(), "2000000001-1.sock", "2000000002-1.sock", "other.sock"];
    // The kept files: a socket of a running program that does not listen yet; one that listens,
    // though its program is not visible; a file that is no socket; a foreign name.
    drop(UnixListener::bind(path.join(kept[0])).unwrap());
    let _living = UnixListener::bind(path.join(kept[1])).unwrap();
    std::fs::write(path.join(kept[2]), "").unwrap();
    drop(UnixListener::bind(path.join(kept[3])).unwrap());
    drop(UnixListener::bind(path.join("2000000003-1.sock")).unwrap());

    assert_eq!(remove_stale(&path, &dir, own_user() + 1), 0, "what belongs to another user is kept");
    assert_eq!(remove_stale(&path, &dir, own_user()), 1);
    let left: std::collections::BTreeSet<_> =
        std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left, kept.iter().map(|name| name.to_string()).collect());
}
