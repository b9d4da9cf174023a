//! Tests of the answers to clients, and of the end of clients that misbehave.

use super::*;

#[test]
fn every_client_sees_every_runtime() {
    let scene = Scene::new();
    let second = Arc::new(Fake { name: "second".into(), ..Fake::default() });
    let hidden = Arc::new(Fake { name: "without a socket".into(), ..Fake::default() });
    let _second = observe(&second, &scene.registry);
    let _hidden = show(&hidden, &scene.registry, false);
    let mut clients: Vec<_> = (0..Limits::DEFAULT.clients).map(|_| scene.client()).collect();
    for client in &mut clients {
        let hello = client.hello().clone();
        assert_eq!((hello.magic.as_str(), hello.version, hello.pid), (wire::MAGIC, wire::VERSION, std::process::id()));
        assert_eq!(hello.runtimes, ["main", "second", "without a socket"]);
        assert_eq!(hello.start_time, volt_telemetry::socket::own_start_time());
        assert!(!hello.program.is_empty() && !hello.volt.is_empty());
        let program = client.snapshot().unwrap();
        let names: Vec<_> = program.runtimes.iter().map(|runtime| runtime.runtime.as_str()).collect();
        assert_eq!(names, ["main", "second", "without a socket"]);
    }
    drop(second);
    assert_eq!(clients[0].snapshot().unwrap().runtimes.len(), 2, "a runtime that was shut down is not shown");
}

#[test]
fn a_subscription_ticks_until_its_client_leaves() {
    let scene = Scene::new();
    let mut client = scene.client();
    let begun = Instant::now();
    client.subscribe(TICK).unwrap();
    for at_ns in 1..=5 {
        let update = client.next(LONG).unwrap().unwrap();
        assert_eq!((update.program.runtimes[0].at_ns, update.lost), (at_ns, 0), "one snapshot a tick");
    }
    // Less one: the server's reading of the clock may be slightly older than ours.
    assert!(begun.elapsed() >= 3 * TICK, "the first immediately, then one a tick: {:?}", begun.elapsed());
    drop(client);
    scene.until("the client is removed", |health| health.clients == 0);
}

#[test]
fn an_endless_interval_causes_no_panic() {
    let scene = Scene::new();
    let stream = scene.raw();
    request(&stream, &Request::Subscribe { interval_ms: u64::MAX });
    assert!(matches!(read(&stream), Some(Reply::Snapshot { .. })));
    request(&stream, &Request::Snapshot);
    assert!(matches!(read(&stream), Some(Reply::Snapshot { .. })));
}

#[test]
fn a_flood_of_requests_and_another_client_are_answered() {
    const REQUESTS: u64 = 2000;
    let scene = Scene::new();
    let flood = scene.raw();
    let frame = wire::encode(&Request::Snapshot, MAX_REQUEST_BYTES).unwrap();
    let writer = {
        let mut flood = flood.try_clone().unwrap();
        let bytes = frame.repeat(REQUESTS as usize);
        std::thread::spawn(move || flood.write_all(&bytes).unwrap())
    };
    let mut other = scene.client();
    let mut last = 0;
    for answered in 0..REQUESTS {
        let Some(Reply::Snapshot { program, .. }) = read(&flood) else { panic!("no snapshot") };
        assert!(program.runtimes[0].at_ns > last, "each request has a snapshot of its own");
        last = program.runtimes[0].at_ns;
        if answered == REQUESTS / 2 {
            other.snapshot().unwrap();
        }
    }
    writer.join().unwrap();
    assert_eq!(scene.registry.health().snapshots, REQUESTS + 1);
}

#[test]
fn a_flood_of_reconnects_is_throttled_and_frees_its_slots() {
    // Any processor time that a client uses is more than its share, and takes hours to pay off.
    let limits = Limits { credit: Duration::ZERO, pays: 1_000_000_000, ..Limits::DEFAULT };
    let scene = Scene::with(limits, Fake { name: "main".into(), ..Fake::default() });
    for round in 0..2 {
        for _ in 0..limits.clients {
            let stream = scene.raw();
            // It gets the notice, and no answer.
            let reply = wire::read_frame::<Reply>(&stream, MAX_REPLY_BYTES).unwrap();
            assert!(matches!(reply, Some(Reply::Throttled { wait_ms }) if wait_ms > 1_000), "{reply:?}");
            request(&stream, &Request::Snapshot);
        }
        // They have hung up, and do not keep a place until they have paid.
        scene.until("all are removed", |health| health.clients == 0);
        let health = scene.registry.health();
        assert_eq!(health.throttles, (round + 1) * limits.clients as u64);
        assert_eq!((health.snapshots, health.refused_full), (0, 0));
    }
}

#[test]
fn requests_sent_together_are_answered_before_the_client_reads() {
    let scene = Scene::new();
    let mut stream = scene.raw();
    let frame = wire::encode(&Request::Snapshot, MAX_REQUEST_BYTES).unwrap();
    stream.write_all(&frame.repeat(3)).unwrap();
    // No event comes for the second and the third request: they are in the inbox.
    scene.until("all requests have a reply", |health| health.snapshots == 3);
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let scene = Scene::new();
    let mut other = scene.client();
    let oversized = (MAX_REQUEST_BYTES as u32 + 1).to_le_bytes().to_vec();
    let undecodable = [&3u32.to_le_bytes()[..], &[0xc1; 3]].concat();
    let empty = 0u32.to_le_bytes().to_vec();
    // A string with a declared length of 4 GiB, inside a small frame.
    let too_long = [&6u32.to_le_bytes()[..], &[0x81, 0xdb, 0xff, 0xff, 0xff, 0xff]].concat();
    // Nested more deeply than any message, and than the observer's stack allows: maps with one
    // field "x", each inside the previous one.
    let nested = [&60_000u32.to_le_bytes()[..], &b"\x81\xa1x".repeat(20_000)].concat();
    let text = b"GET / HTTP/1.1\r\n\r\n".to_vec();
    for (number, bytes) in [oversized, undecodable, empty, too_long, nested, text].into_iter().enumerate() {
        let mut stream = scene.raw();
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(&stream), "number {number}");
        scene.until("counted", |health| health.dropped_malformed == number as u64 + 1);
        other.snapshot().unwrap();
    }
}

#[test]
fn a_client_with_bad_requests_does_not_affect_others() {
    const CLIENTS: u64 = 300;
    let scene = Scene::new();
    let mut other = scene.client();
    let requested = [
        Request::Snapshot,
        Request::Subscribe { interval_ms: 20 },
        Request::Record { runtime: Some("main".into()), before_ms: u64::MAX },
        Request::Recorder { runtime: None, is_on: Some(true) },
        Request::Why { runtime: None, task: "\u{1b}[2J".into() },
    ];
    let frames = requested.map(|request| wire::encode(&request, MAX_REQUEST_BYTES).unwrap());
    let mut rng = FastRand::new(7, 0);
    let mut below = |bound: usize| rng.below(bound);
    for client in 0..CLIENTS {
        // Some frames, with some of their bytes changed, lengths included, and the last one cut.
        let mut bytes: Vec<u8> = (0..1 + below(4)).flat_map(|_| frames[below(frames.len())].clone()).collect();
        for _ in 0..below(6) {
            let at = below(bytes.len());
            bytes[at] = below(256) as u8;
        }
        bytes.truncate(1 + below(bytes.len()));
        let mut stream = UnixStream::connect(scene.path()).unwrap();
        // The client may have been dropped for the first of them already. All answers are read to
        // the end.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        if client.is_multiple_of(16) {
            other.snapshot().expect("the other client is served");
        }
    }
    scene.until("only the other client is left", |health| health.clients == 1);
    other.snapshot().unwrap();
    let health = scene.registry.health();
    assert_eq!(health.accepted, CLIENTS + 1);
    assert!(health.dropped_malformed > CLIENTS / 10 && health.snapshot_panics == 0, "{health:?}");
}

#[test]
fn the_largest_request_is_read_and_a_newer_one_is_answered() {
    let scene = Scene::new();
    let mut stream = scene.raw();
    // {"type": "stacks", "reason": "xx…"}, a map of two with a string of 16-bit length.
    let mut body = b"\x82\xa4type\xa6stacks\xa6reason\xda".to_vec();
    let length = MAX_REQUEST_BYTES - body.len() - 2;
    body.extend_from_slice(&(length as u16).to_be_bytes());
    body.resize(MAX_REQUEST_BYTES, b'x');
    stream.write_all(&(MAX_REQUEST_BYTES as u32).to_le_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    let Some(Reply::Error { message }) = read(&stream) else { panic!("not an error") };
    assert!(message.contains(&format!("uses version {}", wire::VERSION)), "{message}");
    request(&stream, &Request::Snapshot);
    assert!(matches!(read(&stream), Some(Reply::Snapshot { .. })), "the connection stays");
}

#[test]
fn the_wait_for_a_silent_client_is_bounded() {
    let limits = Limits { request: Duration::from_secs(1), ..Limits::DEFAULT };
    let scene = Scene::with(limits, Fake::default());
    let without_request = scene.raw();
    let mut half_request = scene.raw();
    let frame = wire::encode(&Request::Snapshot, MAX_REQUEST_BYTES).unwrap();
    half_request.write_all(&frame).unwrap();
    assert!(matches!(read(&half_request), Some(Reply::Snapshot { .. })));
    half_request.write_all(&frame[..frame.len() - 1]).unwrap();
    assert!(is_closed(&without_request) && is_closed(&half_request));
    scene.until("both counted", |health| health.dropped_silent == 2 && health.clients == 0);
}

#[test]
fn a_client_may_be_idle_after_its_request() {
    let limits = Limits { request: Duration::from_secs(1), ..Limits::DEFAULT };
    let scene = Scene::with(limits, Fake::default());
    let rested = scene.raw();
    request(&rested, &Request::Snapshot);
    assert!(matches!(read(&rested), Some(Reply::Snapshot { .. })));
    let silent = scene.raw();
    assert!(is_closed(&silent), "a later client without a request is removed already");
    request(&rested, &Request::Snapshot);
    assert!(matches!(read(&rested), Some(Reply::Snapshot { .. })));
}

#[test]
fn frequent_subscriptions_are_limited_to_a_small_cpu_share() {
    // So expensive that the shortest interval would use a noticeable part of a processor.
    let scene = Scene::with(Limits { rest: 1000, ..Limits::DEFAULT }, Fake { workers: 24, ..Fake::default() });
    let mut client = scene.client();
    client.subscribe(TICK).unwrap();
    let mut at_ns = || client.next(LONG).unwrap().expect("a snapshot").program.at_ns;
    let first = at_ns();
    // Without the pause it comes after 20 ms. A snapshot takes more than 50 µs.
    assert!(at_ns() - first > 50_000_000);
}

#[test]
fn a_slow_client_loses_snapshots_and_is_then_dropped() {
    let limits = Limits { unread: Duration::from_millis(500), rest: 0, ..Limits::DEFAULT };
    // Some 100 KiB per snapshot, so that the kernel's buffer and the outbox fill up soon.
    let scene = Scene::with(limits, Fake { workers: 24, ..Fake::default() });
    let stuck = scene.raw();
    request(&stuck, &Request::Subscribe { interval_ms: 0 });
    let mut other = scene.client();
    other.subscribe(TICK).unwrap();
    let begun = Instant::now();
    while scene.registry.health().dropped_slow == 0 {
        other.next(LONG).unwrap().expect("the other client is served");
        assert!(begun.elapsed() < LONG, "never dropped");
    }
    assert!(scene.registry.health().snapshots_lost > 3);
    assert_eq!(scene.registry.health().clients, 1, "the other client stays");
}

#[test]
fn a_client_that_reads_again_gets_the_count_of_its_losses() {
    let scene = Scene::with(Limits::DEFAULT, Fake { workers: 24, ..Fake::default() });
    let mut client = scene.client();
    client.subscribe(TICK).unwrap();
    scene.until("snapshots are lost", |health| health.snapshots_lost > 3);
    let mut last = 0;
    loop {
        let update = client.next(LONG).unwrap().unwrap();
        assert!(update.program.runtimes[0].at_ns > last, "in order");
        last = update.program.runtimes[0].at_ns;
        if update.lost > 3 {
            break;
        }
    }
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let scene = Scene::with(Limits::DEFAULT, Fake { workers: 24, ..Fake::default() });
    for _ in 0..50 {
        let stream = UnixStream::connect(scene.path()).unwrap();
        // Fails if the server had too many clients and has closed the connection already.
        let _ = wire::write_frame(&stream, &Request::Subscribe { interval_ms: 0 }, MAX_REQUEST_BYTES);
    }
    scene.until("all are removed", |health| health.accepted + health.refused_full == 50 && health.clients == 0);
    scene.client().snapshot().unwrap();
}

#[test]
fn excess_clients_are_refused_until_a_slot_is_free() {
    let scene = Scene::new();
    let mut clients: Vec<_> = (0..Limits::DEFAULT.clients).map(|_| scene.client()).collect();
    let error = Client::connect(&scene.path()).unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("8 clients are attached, which is the limit"), "{error}");
    let own = std::process::id();
    assert!(error.to_string().ends_with(&format!("end one of them (pid {own})")), "and whose they are: {error}");
    clients.pop();
    scene.until("it has left", |health| health.clients == 7);
    scene.client().snapshot().unwrap();
    assert_eq!(scene.registry.health().refused_full, 1);
}

#[test]
fn a_panic_in_a_snapshot_is_an_error_and_the_observer_continues() {
    let scene = Scene::new();
    let mut client = scene.client();
    // ORDERING: SeqCst; a test's own switch.
    scene.fake.is_broken.store(true, Ordering::SeqCst);
    let error = client.snapshot().unwrap_err();
    assert!(error.is_answer() && error.to_string().contains("panicked"), "{error}");
    // ORDERING: see above.
    scene.fake.is_broken.store(false, Ordering::SeqCst);
    client.snapshot().unwrap();
    assert_eq!(scene.registry.health().snapshot_panics, 1);
}

#[test]
fn a_panic_in_a_recording_ends_it_and_the_observer_continues() {
    let scene = Scene::new();
    let mut client = scene.client();
    // ORDERING: SeqCst; a test's own switch.
    scene.fake.is_broken.store(true, Ordering::SeqCst);
    client.record(None, Duration::ZERO).unwrap();
    let error = client.next_flush(LONG).unwrap_err();
    assert!(error.is_answer() && error.to_string().contains("because Volt panicked"), "{error}");
    // ORDERING: see above.
    scene.fake.is_broken.store(false, Ordering::SeqCst);
    client.snapshot().unwrap();
}

#[test]
fn an_oversized_snapshot_drops_the_oldest_stacks_first() {
    let deep = |name: &str| Fake { name: name.into(), workers: 4, incidents: 64, ..Fake::default() };
    let scene = Scene::with(Limits::DEFAULT, deep("main"));
    let second = Arc::new(deep("second"));
    let _second = observe(&second, &scene.registry);
    let program = scene.client().snapshot().unwrap();
    for runtime in &program.runtimes {
        assert_eq!(runtime.incomplete, ["incidents.stack"]);
        assert_eq!(runtime.workers.len(), 4);
        assert!(runtime.poll_time().count() > 0);
        let incidents = &runtime.incidents.latest;
        assert_eq!(incidents.len(), 64);
        let (oldest, newest) = incidents.split_at(56);
        assert!(oldest.iter().all(|incident| incident.stack.is_empty() && incident.stack_error.is_some()));
        assert!(newest.iter().all(|incident| incident.stack.len() == 64));
    }
    assert_eq!(scene.registry.health().snapshots_cut, 1);
}

#[test]
fn an_oversized_snapshot_drops_routes_before_workers() {
    const ROUTES: usize = volt_telemetry::routes::MAX_ROUTES + 1;
    let fake = || Fake { workers: 2, routes: ROUTES, ..Fake::default() };
    for (reply_bytes, incomplete, routes) in
        [(256 * 1024, &["routes.duration"][..], ROUTES), (24 * 1024, &["routes.duration", "routes"], 0)]
    {
        let scene = Scene::with(Limits { reply_bytes, ..Limits::DEFAULT }, fake());
        let program = scene.client().snapshot().unwrap();
        let runtime = &program.runtimes[0];
        assert_eq!(
            (&runtime.incomplete[..], runtime.routes.len()),
            (&incomplete.iter().map(|of| of.to_string()).collect::<Vec<_>>()[..], routes)
        );
        assert_eq!(runtime.workers.len(), 2);
        assert!(runtime.poll_time().count() > 0);
    }
}

#[test]
fn an_oversized_snapshot_drops_histograms_and_then_workers() {
    let histograms = Limits { reply_bytes: 24 * 1024, ..Limits::DEFAULT };
    let everything = Limits { reply_bytes: 4 * 1024, ..Limits::DEFAULT };
    let nothing = Limits { reply_bytes: 512, ..Limits::DEFAULT };
    let fake = || Fake { workers: 12, ..Fake::default() };

    let scene = Scene::with(histograms, fake());
    let program = scene.client().snapshot().unwrap();
    assert_eq!(program.runtimes[0].incomplete, ["poll_time", "schedule_delay"]);
    assert_eq!((program.runtimes[0].workers.len(), program.runtimes[0].poll_time().count()), (12, 0));

    let scene = Scene::with(everything, fake());
    let program = scene.client().snapshot().unwrap();
    assert_eq!(program.runtimes[0].incomplete, ["poll_time", "schedule_delay", "workers"]);
    assert!(program.runtimes[0].workers.is_empty());

    let scene = Scene::with(nothing, fake());
    let error = scene.client().snapshot().unwrap_err();
    assert!(error.is_answer() && error.to_string().contains("the limit is 512"), "{error}");
    assert_eq!(scene.registry.health().snapshots_cut, 1);
}
