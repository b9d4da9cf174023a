//! Tests of one client's connection: intervals, the processor time that it pays for, and its
//! bounds.

use std::io::Read;

use volt_telemetry::wire::MAX_REPLY_BYTES;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: Limits = Limits { unread: SECOND, ..Limits::DEFAULT };

/// Returns a connection, the client's end of it, and the moment at which it was created.
fn pair() -> (Connection, std::os::unix::net::UnixStream, Instant) {
    let (server, client) = std::os::unix::net::UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let now = Instant::now();
    (Connection::new(UnixStream::from_std(server), now, now, &LIMITS), client, now)
}

fn request(connection: &mut Connection, client: &std::os::unix::net::UnixStream, request: Request, now: Instant) {
    wire::write_frame(client, &request, MAX_REQUEST_BYTES).unwrap();
    connection.wake();
    assert_eq!(connection.read(now, &LIMITS), Ok(Requested::Snapshot));
}

#[test]
fn an_interval_shorter_than_the_shortest_is_raised_to_it() {
    let (mut connection, client, now) = pair();
    request(&mut connection, &client, Request::Subscribe { interval_ms: 0 }, now);
    connection.tick(now);
    assert!(connection.is_owed(), "the first snapshot is due immediately");
    assert!(connection.answer(vec![0], &LIMITS));
    let shortest = Duration::from_millis(MIN_INTERVAL_MS);
    assert_eq!(connection.due_at(), Some(now + shortest));
    connection.tick(now + shortest - Duration::from_nanos(1));
    assert!(!connection.is_owed(), "not before it is due");
}

#[test]
fn missed_ticks_are_not_sent_later() {
    let (mut connection, client, now) = pair();
    request(&mut connection, &client, Request::Subscribe { interval_ms: 1000 }, now);
    connection.tick(now + SECOND / 2);
    assert_eq!(connection.due_at(), Some(now + SECOND), "the beat is kept when a tick is a little late");
    connection.tick(now + 10 * SECOND);
    assert_eq!(connection.due_at(), Some(now + 11 * SECOND));
}

#[test]
fn a_pause_delays_the_next_tick_and_never_advances_it() {
    let (mut connection, client, now) = pair();
    request(&mut connection, &client, Request::Subscribe { interval_ms: 1000 }, now);
    connection.tick(now);
    connection.rest(now + SECOND / 2);
    assert_eq!(connection.due_at(), Some(now + SECOND));
    connection.rest(now + 3 * SECOND);
    assert_eq!(connection.due_at(), Some(now + 3 * SECOND));
}

#[test]
fn a_client_that_floods_waits_until_its_answers_are_paid_off() {
    let (mut connection, client, now) = pair();
    // As if a request of the client were there each time.
    let may_read = |connection: &mut Connection, now| {
        wire::write_frame(&client, &Request::Snapshot, MAX_REQUEST_BYTES).unwrap();
        connection.wake();
        let requested = connection.read(now, &LIMITS).unwrap();
        connection.answer(vec![], &LIMITS);
        connection.flush(now, &LIMITS).unwrap();
        connection.outbox.clear();
        requested == Requested::Snapshot
    };
    assert!(!connection.charge(LIMITS.credit, now, &LIMITS));
    assert!(may_read(&mut connection, now), "its credit");
    let took = Duration::from_millis(10);
    assert!(connection.charge(took, now, &LIMITS), "it waits from now on");
    assert!(!connection.charge(Duration::ZERO, now, &LIMITS), "counted once");
    let reply = wire::encode(&Reply::Throttled { wait_ms: 500 }, MAX_REPLY_BYTES).unwrap();
    assert_eq!(connection.outbox, [reply]);
    connection.outbox.clear();
    assert!(!may_read(&mut connection, now), "it is read again");
    let paid_at = now + took * LIMITS.pays;
    assert_eq!(connection.due_at(), Some(paid_at), "the server comes back for it");
    assert!(!may_read(&mut connection, paid_at - Duration::from_nanos(1)));
    assert!(may_read(&mut connection, paid_at));
    // A client that makes a request of the size of its share once per second never waits.
    let mut later = paid_at + LIMITS.credit * LIMITS.pays;
    for _ in 0..1_000 {
        assert!(!connection.charge(SECOND / LIMITS.pays, later, &LIMITS));
        later += SECOND;
        assert!(may_read(&mut connection, later));
    }
}

#[test]
fn a_throttled_client_that_hangs_up_is_removed_immediately() {
    let (mut connection, _client, now) = pair();
    connection.hang_up();
    assert_eq!(connection.check(now), Ok(()), "what it sent before is read first");
    assert!(connection.charge(2 * LIMITS.credit, now, &LIMITS));
    assert_eq!(connection.check(now), Err(Closed::Left));
}

#[test]
fn a_new_client_of_a_slot_inherits_its_debt() {
    let (mut former, _client, now) = pair();
    assert!(former.charge(2 * LIMITS.credit, now, &LIMITS));
    let (server, client) = std::os::unix::net::UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let mut next = Connection::new(UnixStream::from_std(server), now, former.paid_at(), &LIMITS);
    assert!(next.charge(Duration::ZERO, now, &LIMITS), "it waits from the start");
    wire::write_frame(&client, &Request::Snapshot, MAX_REQUEST_BYTES).unwrap();
    assert!(!next.may_read(now));
    assert!(!next.outbox.is_empty(), "the client is notified");
    next.flush(now, &LIMITS).unwrap();
    let paid_at = now + LIMITS.credit * LIMITS.pays;
    assert_eq!(next.check(paid_at), Ok(()), "it does not count as silent: its requests are not read yet");
    assert_eq!(next.read(paid_at, &LIMITS), Ok(Requested::Snapshot));
}

#[test]
fn a_snapshot_that_is_owed_is_sent_before_the_client_waits() {
    let (mut connection, client, now) = pair();
    request(&mut connection, &client, Request::Snapshot, now);
    assert!(!connection.charge_request(2 * LIMITS.credit, now, &LIMITS), "with the answer");
    assert!(connection.answer(vec![0; LIMITS.outbox_bytes + 1], &LIMITS), "beside a notice it would not fit");
    assert!(connection.charge(Duration::ZERO, now, &LIMITS), "for what the request took");
    assert_eq!(connection.lost(), 0);
}

#[test]
fn a_client_is_slow_from_when_it_last_read() {
    let (mut connection, mut client, now) = pair();
    request(&mut connection, &client, Request::Snapshot, now);
    let frame = vec![0; 4 * 1024 * 1024];
    assert!(connection.answer(frame, &LIMITS), "one frame always fits");
    connection.flush(now, &LIMITS).unwrap();
    assert_eq!(connection.due_at(), Some(now + SECOND), "the kernel's buffer is full");
    let later = now + SECOND / 2;
    connection.flush(later, &LIMITS).unwrap();
    assert_eq!(connection.due_at(), Some(now + SECOND), "no byte went: no new time");
    assert_eq!(connection.check(later), Ok(()));
    assert_eq!(connection.check(now + SECOND), Err(Closed::Slow));

    let mut left = 4 * 1024 * 1024;
    left -= client.read(&mut [0; 128 * 1024]).unwrap();
    connection.flush(later, &LIMITS).unwrap();
    assert_eq!(connection.due_at(), Some(later + SECOND), "it has read, its time begins anew");
    while left > 0 {
        left -= client.read(&mut [0; 64 * 1024]).unwrap();
        connection.flush(later, &LIMITS).unwrap();
    }
    assert_eq!(connection.due_at(), None, "nothing to wait for");
}

#[test]
fn the_outbox_accepts_one_large_frame_or_several_small_ones() {
    let (mut connection, _client, _) = pair();
    assert!(connection.push(vec![0; LIMITS.outbox_bytes - 10], &LIMITS));
    assert!(!connection.answer(vec![0; 11], &LIMITS));
    assert_eq!(connection.lost(), 1);
    assert!(connection.answer(vec![0; 10], &LIMITS));
    assert!(!connection.answer(vec![0], &LIMITS));
    assert_eq!(connection.lost(), 2);
    let (mut connection, _client, _) = pair();
    assert!(connection.push(vec![0; LIMITS.outbox_bytes + 1], &LIMITS));
}

#[test]
fn the_remainder_of_a_request_has_a_separate_time_limit() {
    let (mut connection, mut client, now) = pair();
    let frame = wire::encode(&Request::Snapshot, MAX_REQUEST_BYTES).unwrap();
    let both = [&frame[..], &frame[..5]].concat();
    io::Write::write_all(&mut client, &both).unwrap();
    assert_eq!(connection.read(now, &LIMITS), Ok(Requested::Snapshot));
    assert_eq!(connection.due_at(), None, "while it is owed an answer it sends no request");
    assert!(connection.answer(vec![0], &LIMITS));
    connection.flush(now, &LIMITS).unwrap();
    let later = now + 100 * SECOND;
    assert_eq!(connection.read(later, &LIMITS), Ok(Requested::Nothing));
    assert_eq!(connection.due_at(), Some(later + LIMITS.request));
    assert_eq!(connection.check(later + LIMITS.request), Err(Closed::Silent));
}
