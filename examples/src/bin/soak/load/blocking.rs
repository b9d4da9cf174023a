//! Closures on blocking threads: each returns its result, however few threads there are.

use std::sync::Arc;
use std::time::Duration;

use volt::Handle;

use crate::part::{Part, pause};
use crate::random::Random;

const CALLERS: u64 = 24;
const PAUSE_MAX: Duration = Duration::from_millis(60);
const WORK_MAX: Duration = Duration::from_millis(10);

pub(super) fn start(runtime: &Handle, part: &Arc<Part>) {
    for caller in 0..CALLERS {
        drop(runtime.spawn(calls(part.clone(), caller)));
    }
}

async fn calls(part: Arc<Part>, seed: u64) {
    let mut random = Random::new(seed);
    while !part.is_over() {
        let number = random.below(1 << 32);
        let time = WORK_MAX.mul_f64(random.ratio());
        let result = volt::task::spawn_blocking(move || {
            std::thread::sleep(time);
            number + 1
        })
        .await;
        match result {
            Ok(result) => part.verify(result == number + 1, format_args!("{result} instead of {}", number + 1)),
            Err(error) => part.verify(false, format_args!("a blocking call: {error}")),
        }
        pause(&mut random, PAUSE_MAX).await;
    }
}
