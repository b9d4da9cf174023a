//! Tests of the connections to a program that exits and comes back: the messages of the kept one,
//! and the replies to requests.

use std::time::Duration;

use volt_console::model::{Message, Needs};
use volt_console::programs::again::Again;
use volt_console::programs::connection::Connection;
use volt_console::programs::requester::Requester;
use volt_telemetry::client::Client;
use volt_telemetry::dump::Query;
use volt_telemetry::socket::Environment;

use crate::program::{Folder, Named, Program, VOLT};

const LONG: Duration = Duration::from_secs(60);

/// Returns the next message for which `is_wanted` returns a value.
fn next<T>(connection: &Connection, is_wanted: impl Fn(Message) -> Option<T>) -> T {
    loop {
        let message = connection.messages.recv_timeout(LONG).expect("a message");
        if let Some(wanted) = is_wanted(message) {
            return wanted;
        }
    }
}

#[test]
fn updates_missed_during_a_disconnect_are_counted_once() {
    let folder = Folder::new();
    let path = folder.socket(0);
    let program = Program::start(&path, "shop", VOLT);
    let client = Client::connect(&path).unwrap();
    // The first attempt to connect again comes after five of these intervals.
    let connection = Connection::keep(client, Duration::from_millis(20), Again::Path(path.clone())).unwrap();
    let is_snapshot = |message| matches!(message, Message::Snapshot { .. }).then_some(());
    next(&connection, is_snapshot);
    drop(program);
    next(&connection, |message| matches!(message, Message::Disconnected { .. }).then_some(()));
    let _again = Program::start(&path, "shop", VOLT);
    let missed = next(&connection, |message| match message {
        Message::Missed(updates) => Some(updates),
        Message::Snapshot { .. } => panic!("a snapshot before the number of missed updates"),
        _ => None,
    });
    assert!(missed >= 3, "{missed}");
    next(&connection, is_snapshot);
    next(&connection, |message| match message {
        Message::Missed(updates) => panic!("once more: {updates}"),
        message => is_snapshot(message),
    });
}

#[test]
fn a_dump_is_requested_from_a_program_that_was_started_anew() {
    let folder = Folder::new();
    let path = folder.socket(0);
    let program = Program::start(&path, "shop", VOLT);
    let locate = Again::Path(path.clone()).locate(Environment::of_program());
    let mut requester = Requester::start(locate).unwrap();
    let mut reply = |number| {
        requester.set_needs(Needs { dump: Some(("app".into(), Query::default(), number)), ..Needs::default() });
        requester.messages.recv_timeout(LONG).expect("a reply")
    };
    let first = reply(1);
    drop(program);
    let _again = Program::start(&path, "shop", VOLT);
    let second = reply(2);
    assert!([&first, &second].iter().all(|reply| matches!(reply, Message::Dump(_))), "{first:?}, {second:?}");
}

#[test]
fn the_message_begins_with_the_awaited_name() {
    let folder = Folder::new();
    let named = Named::start();
    let path = named.socket(&folder);
    let program = Program::start(&path, "shop", VOLT);
    let client = Client::connect(&path).unwrap();
    let again = Again::Name("no program has this name".into(), path);
    let connection = Connection::keep(client, LONG, again).unwrap();
    drop(named);
    drop(program);
    let awaited = next(&connection, |message| match message {
        Message::Disconnected { reason, .. } => reason.strip_prefix("waiting for ").map(str::to_owned),
        Message::Exited { .. } => panic!("another program may have this name"),
        _ => None,
    });
    assert!(awaited.starts_with("no program has this name to start: no program or runtime is named"), "{awaited}");
}
