//! Tests of the names of runtimes, and of when the socket opens and closes.

use super::*;

#[test]
fn a_taken_name_gets_the_lowest_free_numeric_suffix() {
    let registry = Registry::new(|| unreachable!("no socket is wanted"), Limits::DEFAULT);
    let mut held: Vec<_> = ["api", "api", "api-2", "api", "api-2"].map(|wanted| registry.register(wanted)).into();
    let names: Vec<_> = held.iter().map(Registration::name).collect();
    assert_eq!(names, ["api", "api-2", "api-2-2", "api-3", "api-2-3"]);
    drop(held.remove(1));
    assert_eq!(registry.register("api").name(), "api-2");

    // With its number, a name is no longer than allowed, and is cut between characters.
    let longest = "é".repeat(32);
    let (first, second) = (registry.register(&longest), registry.register(&longest));
    assert_eq!(first.name(), longest);
    assert_eq!(second.name(), format!("{}-2", "é".repeat(31)));
}

#[test]
fn a_runtime_under_construction_reserves_its_name_unlisted() {
    let registry = Registry::new(|| unreachable!("no socket is wanted"), Limits::DEFAULT);
    let fake = Arc::new(Fake { name: "api".into(), ..Fake::default() });
    let building = registry.register("api");
    assert!(registry.program().runtimes.is_empty() && registry.hello().runtimes.is_empty());
    let _next = show(&fake, &registry, false);
    assert_eq!(registry.hello().runtimes, ["api-2"]);
    drop(building);
    assert_eq!(registry.register("api").name(), "api");
}

#[test]
fn names_taken_at_the_same_time_differ() {
    const THREADS: usize = 8;
    const EACH: usize = 50;
    let registry = Registry::new(|| unreachable!("no socket is wanted"), Limits::DEFAULT);
    let held: Vec<Registration> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| [(); EACH].map(|()| registry.register("api")))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let names: std::collections::HashSet<_> = held.iter().map(Registration::name).collect();
    assert_eq!(names.len(), THREADS * EACH);
}

#[test]
fn the_socket_exists_while_a_runtime_needs_it() {
    let mut scene = Scene::new();
    let second = Arc::new(Fake::default());
    let second_registration = observe(&second, &scene.registry);
    let mut client = scene.client();
    scene.registration = None;
    client.snapshot().expect("the second still wants it");
    let _quiet = show(&second, &scene.registry, false);
    drop(second_registration);
    assert_eq!(scene.registry.socket_path(), None, "the one that is left wants none");
    assert_eq!(scene.folder.names(), [""; 0], "deleted when the last registration's drop returns");
    assert!(client.snapshot().unwrap_err().is_closed());
    scene.registration = Some(observe(&scene.fake, &scene.registry));
    scene.client().snapshot().expect("and there again");
}

#[test]
fn a_runtime_without_a_control_socket_is_in_snapshots() {
    let folder = Folder::new();
    let environment = folder.environment();
    let registry = Registry::new(move || environment.clone(), Limits::DEFAULT);
    let fake = Arc::new(Fake { name: "quiet".into(), ..Fake::default() });
    let registration = show(&fake, &registry, false);
    assert_eq!(registry.socket_path(), None);
    assert!(!folder.sockets().exists());
    assert_eq!(registry.program().runtimes[0].runtime, "quiet");
    drop(registration);
    assert!(registry.program().runtimes.is_empty());
}

#[test]
fn a_control_socket_that_fails_to_open_is_retried_later() {
    let folder = Folder::new();
    let environment = folder.environment();
    std::fs::write(folder.sockets(), "in the way").unwrap();
    let registry = Registry::new(move || environment.clone(), Limits::DEFAULT);
    let fake = Arc::new(Fake::default());
    let _first = observe(&fake, &registry);
    assert_eq!(registry.socket_path(), None);
    assert_eq!(registry.program().runtimes.len(), 1);
    std::fs::remove_file(folder.sockets()).unwrap();
    let _second = observe(&fake, &registry);
    let path = registry.socket_path().expect("the next registration opens it");
    assert_eq!(Client::connect(&path).unwrap().snapshot().unwrap().runtimes.len(), 2);
}

#[test]
fn concurrent_registrations_leave_no_sockets_or_threads() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 200;
    let folder = Folder::new();
    let environment = folder.environment();
    let registry = Registry::new(move || environment.clone(), Limits::DEFAULT);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let registry = &registry;
            scope.spawn(move || {
                let fake = Arc::new(Fake::default());
                for round in 0..ROUNDS {
                    let registration = observe(&fake, registry);
                    let path = registry.socket_path().expect("a registered runtime has a socket");
                    if (round + thread) % 8 == 0 {
                        match Client::connect(&path) {
                            Ok(mut client) => assert!(!client.snapshot().unwrap().runtimes.is_empty()),
                            Err(error) => assert!(error.is_busy(), "{error}"),
                        }
                    }
                    drop(registration);
                }
            });
        }
    });
    assert_eq!(registry.socket_path(), None);
    assert_eq!(folder.names(), [""; 0]);
    assert!(registry.program().runtimes.is_empty());
    assert_eq!(Arc::strong_count(&registry), 1, "every observer's thread has exited");
}

/// Returns a scene in which the last runtime waits for the end of the observer, however long that
/// takes.
fn that_waits_for_its_end() -> Scene {
    let limits = Limits { end: Duration::MAX, ..Limits::DEFAULT };
    Scene::with(limits, Fake { name: "main".into(), ..Fake::default() })
}

#[test]
fn an_observer_needed_again_before_its_end_continues() {
    let mut scene = that_waits_for_its_end();
    let mut client = scene.client();
    let (release, hold) = mpsc::channel();
    *scene.fake.hold.lock().unwrap() = Some(hold);
    let requested = std::thread::spawn(move || {
        client.snapshot().unwrap();
        client
    });
    let begun = Instant::now();
    while scene.fake.hold.lock().unwrap().is_some() {
        assert!(begun.elapsed() < LONG, "the observer never took the snapshot");
        std::thread::yield_now();
    }
    // The observer takes a snapshot. The last runtime ends and waits for it; another one starts.
    let last = scene.registration.take();
    let leaving = std::thread::spawn(move || drop(last));
    let begun = Instant::now();
    while !scene.registry.hello().runtimes.is_empty() {
        assert!(begun.elapsed() < LONG, "it never left the list");
        std::thread::yield_now();
    }
    let _next = observe(&scene.fake, &scene.registry);
    let begun = Instant::now();
    while !leaving.is_finished() {
        assert!(begun.elapsed() < LONG, "it waits for an end that is called off");
        std::thread::yield_now();
    }
    release.send(()).unwrap();
    let mut client = requested.join().unwrap();
    client.snapshot().expect("the same observer, the same connection");
}

#[test]
fn a_runtime_may_end_on_the_observers_own_thread() {
    let mut scene = that_waits_for_its_end();
    *scene.fake.last_words.lock().unwrap() = scene.registration.take();
    // If it waited for itself, the client would give up.
    scene.client().snapshot().unwrap();
    let begun = Instant::now();
    while scene.registry.socket_path().is_some() || !scene.folder.names().is_empty() {
        assert!(begun.elapsed() < LONG, "the observer continues without a client");
        std::thread::yield_now();
    }
}

#[test]
fn the_observer_sleeps_without_clients() {
    let folder = Folder::new();
    let environment = folder.environment();
    let listener = Listener::open(&environment).unwrap();
    let path = listener.path().to_path_buf();
    let registry = Registry::new(move || environment.clone(), Limits::DEFAULT);
    let mut server = Server::new(Poll::new().unwrap(), listener, Limits::DEFAULT).unwrap();
    server.turn(&registry, None).unwrap();
    assert_eq!(server.due_at(), None, "no client");

    let stream = UnixStream::connect(path).unwrap();
    request(&stream, &Request::Snapshot);
    while registry.health().snapshots == 0 || server.due_at().is_some_and(|due| due <= Instant::now()) {
        server.turn(&registry, None).unwrap();
    }
    assert_eq!(server.due_at(), None, "a client that rests");
    request(&stream, &Request::Subscribe { interval_ms: 60_000 });
    while registry.health().snapshots == 1 || server.due_at().is_some_and(|due| due <= Instant::now()) {
        server.turn(&registry, None).unwrap();
    }
    let wait = server.due_at().expect("a subscription").saturating_duration_since(Instant::now());
    assert!(wait > Duration::from_secs(50), "it wakes for its tick and not before: {wait:?}");
}

/// Returns a registry whose observer lingers for this long.
fn that_lingers(folder: &Folder, linger: Duration) -> Arc<Registry> {
    let environment = folder.environment();
    Registry::new(move || environment.clone(), Limits { linger, ..Limits::DEFAULT })
}

#[test]
fn a_lingering_observer_serves_the_next_runtime() {
    let folder = Folder::new();
    let registry = that_lingers(&folder, LONG);
    let fake = Arc::new(Fake::default());
    let first = observe(&fake, &registry);
    let mut client = Client::connect(&registry.socket_path().unwrap()).unwrap();
    drop(first);
    assert_eq!(registry.socket_path(), None, "no runtime wants it");
    assert_eq!(folder.names().len(), 1, "it lingers");
    let _second = observe(&fake, &registry);
    client.snapshot().expect("the same observer, the same connection");
}

#[test]
fn an_observer_that_no_runtime_uses_ends_after_a_while() {
    let folder = Folder::new();
    let registry = that_lingers(&folder, Duration::from_millis(1));
    let fake = Arc::new(Fake::default());
    for _ in 0..100 {
        drop(observe(&fake, &registry));
    }
    let begun = Instant::now();
    while !folder.names().is_empty() || Arc::strong_count(&registry) > 1 {
        assert!(begun.elapsed() < LONG, "the observer continues without a runtime");
        std::thread::yield_now();
    }
}
