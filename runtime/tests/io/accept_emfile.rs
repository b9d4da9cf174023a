//! `accept` in a program that has no file descriptor left. Each test runs in a separate program,
//! since the limit applies to the whole program.

use std::fs::File;
use std::future::poll_fn;
use std::net;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::watchdog::{alone, runtime, watched};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use volt::Runtime;
use volt::net::TcpListener;

/// The limit on descriptors: a few more than the program needs to begin with.
const DESCRIPTORS: u64 = 64;

static WARNINGS: AtomicUsize = AtomicUsize::new(0);

/// Counts warnings.
struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        WARNINGS.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Takes every remaining descriptor.
fn take_all() -> Vec<File> {
    let mut files = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()), "{error}");
                return files;
            }
        }
    }
}

fn backoffs(runtime: &Runtime) -> u64 {
    runtime.handle().snapshot().driver.accept_backoffs
}

#[test]
fn accept_backs_off_when_descriptors_run_out_and_recovers() {
    alone(|| {
        watched(|| {
            tracing::subscriber::set_global_default(Log).unwrap();
            let runtime = runtime(1);
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let addr = listener.local_addr().unwrap();
            let limit = Rlimit { current: Some(DESCRIPTORS), ..getrlimit(Resource::Nofile) };
            setrlimit(Resource::Nofile, limit).unwrap();

            // Each way twice: the waits begin anew after a successful accept.
            for spell in 1..=4 {
                let _waiting = net::TcpStream::connect(addr).unwrap();
                let held = take_all();
                let (before, began) = (backoffs(&runtime), Instant::now());
                let handle = runtime.handle().clone();
                let freed = runtime.spawn(async move {
                    while handle.snapshot().driver.accept_backoffs < before + 5 {
                        volt::time::sleep(Duration::from_millis(1)).await;
                    }
                    drop(held);
                    began.elapsed()
                });
                if spell % 2 == 0 {
                    runtime.block_on(listener.accept()).unwrap();
                } else {
                    runtime.block_on(poll_fn(|cx| listener.poll_accept(cx))).unwrap();
                }
                // There are 5 + 10 + 20 + 40 ms between the first wait and the fifth.
                assert!(runtime.block_on(freed).unwrap() >= Duration::from_millis(75), "it spins");
                assert_eq!(WARNINGS.load(Ordering::SeqCst), spell, "one warning a spell");
            }
        });
    });
}
