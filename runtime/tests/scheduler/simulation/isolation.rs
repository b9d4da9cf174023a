//! The operations that a runtime with a seed refuses, and its blocking closures.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use volt::{Builder, net::TcpListener};

use super::runtime;
use crate::watchdog::watched;

/// Returns the message of the panic of `future` in a runtime with a seed.
fn refusal(future: impl Future) -> String {
    let runtime = runtime(1);
    let run = catch_unwind(AssertUnwindSafe(|| _ = runtime.block_on(future)));
    let panic = run.expect_err("it panics");
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("it has a message")
}

#[test]
fn sockets_signals_and_child_processes_are_refused() {
    watched(|| {
        let socket = refusal(TcpListener::bind("127.0.0.1:0"));
        assert!(socket.contains("use `volt::sim::net`"), "{socket}");
        let signal = refusal(volt::signal::ctrl_c());
        assert!(signal.contains("a runtime with a seed has no sockets"), "{signal}");
        let child = refusal(async { volt::process::Command::new("true").status().await });
        assert!(child.contains("a runtime with a seed has no sockets"), "{child}");
    });
}

#[test]
fn a_clock_that_was_resumed_ends_the_run() {
    watched(|| {
        let text = refusal(async {
            volt::time::resume();
            volt::time::sleep(std::time::Duration::from_secs(1)).await;
        });
        assert!(text.contains("do not call `time::resume`"), "{text}");
    });
}

#[test]
fn a_seed_is_refused_where_it_controls_nothing() {
    let error = Builder::new_multi_thread().seed(7).build().unwrap_err();
    assert_eq!(error.to_string(), "seed is 7 in a multi-thread runtime: use Builder::new_current_thread()");
    let error = Builder::new_current_thread().seed(7).tokio_compat(true).build().unwrap_err();
    assert!(error.to_string().starts_with("seed is 7 with tokio_compat: "), "{error}");
    let error = Builder::new_current_thread().seed(7).poll_limit(0).build().unwrap_err();
    assert_eq!(error.to_string(), "poll_limit is 0: give at least 1");
    let runtime = Builder::new_current_thread().control_socket(false).build().unwrap();
    assert_eq!(runtime.handle().schedule_fingerprint(), None);
}

#[test]
fn the_block_on_of_a_handle_is_refused() {
    watched(|| {
        let runtime = runtime(1);
        let handle = runtime.handle().clone();
        let refused = thread::spawn(move || handle.block_on(async {})).join().unwrap_err();
        let text = refused.downcast_ref::<String>().unwrap();
        assert!(text.contains("use Runtime::block_on"), "{text}");
    });
}

#[test]
fn blocking_closures_run_on_the_thread_of_the_runtime() {
    watched(|| {
        for seed in 0..20 {
            runtime(seed).block_on(async {
                let here = thread::current().id();
                let job = volt::task::spawn_blocking(|| thread::current().id());
                assert_eq!(job.await.unwrap(), here);
                let panics = volt::task::spawn_blocking(|| panic!("in a job"));
                assert!(panics.await.unwrap_err().is_panic());
            });
        }
    });
}

#[test]
fn files_keep_what_was_written() {
    use volt::io::{AsyncReadExt, AsyncWriteExt};

    watched(|| {
        let path = std::env::temp_dir().join(format!("volt-seeded-{}", std::process::id()));
        for seed in 0..20 {
            runtime(seed).block_on(async {
                let mut file = volt::fs::File::create(&path).await.unwrap();
                file.write_all(b"one, ").await.unwrap();
                file.write_all(b"two").await.unwrap();
                file.flush().await.unwrap();
                drop(file);
                let mut text = String::new();
                volt::fs::File::open(&path).await.unwrap().read_to_string(&mut text).await.unwrap();
                assert_eq!(text, "one, two");
            });
            // Dropped without a flush, and with the runtime.
            runtime(seed).block_on(async {
                volt::fs::File::create(&path).await.unwrap().write_all(b"last").await.unwrap();
            });
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "last");
        }
        std::fs::remove_file(&path).unwrap();
    });
}
