//! Nothing is left of a runtime that has ended. In a binary of its own: it counts what the whole process holds.

mod watchdog;

use volt::task::yield_now;
use watchdog::{builder, watched};

/// With all the threads that a runtime has, the sentinel's among them.
fn runtime(workers: usize) -> volt::Runtime {
    builder(workers).sentinel_interval(Some(std::time::Duration::from_millis(1))).build().unwrap()
}

#[test]
fn runtimes_come_and_go_without_leaving_threads_or_descriptors() {
    watched(|| {
        let count = |folder: &str| std::fs::read_dir(folder).map(|entries| entries.count()).unwrap_or(0);
        // The first one opens what stays for good: the standard library's random source, say.
        let threads_before = count("/proc/self/task");
        drop(runtime(2));
        let files_before = count("/proc/self/fd");
        for round in 0..300 {
            let runtime = runtime(1 + round % 3);
            let task = runtime.spawn(async {
                yield_now().await;
                volt::task::spawn_blocking(|| 1).await.unwrap()
            });
            if round % 2 == 0 {
                assert_eq!(runtime.block_on(task).unwrap(), 1);
            }
        }
        // Workers are joined. A thread for blocking work is out of the list a moment after it has ended.
        while count("/proc/self/task") > threads_before {
            std::thread::yield_now();
        }
        assert_eq!(count("/proc/self/fd"), files_before);
    });
}
