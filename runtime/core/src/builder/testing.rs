//! The settings for tests: a clock that the test controls, runtimes without I/O or timers, and the
//! seed of a simulation.

use super::Builder;

/// # Testing
///
/// These settings are for tests. `seed` and `poll_limit` need the feature `sim`; `volt::sim::check`
/// sets them.
impl Builder {
    /// Sets whether the runtime's timers use a clock that tests can pause and advance, with
    /// `volt::time::pause` and `volt::time::advance`. Inside the runtime,
    /// `volt::time::Instant::now` reads that clock, too. Default false. Each reading of such a
    /// clock takes a lock.
    pub fn test_clock(mut self, enable: bool) -> Self {
        self.test_clock = enable.then_some(self.test_clock.unwrap_or(false));
        self
    }

    /// Sets whether the runtime has a [test clock](Self::test_clock) that is paused from the start.
    /// Default false. With false, a test clock that was set before stays, and is not paused at the
    /// start.
    pub fn start_paused(mut self, start_paused: bool) -> Self {
        self.test_clock = if start_paused { Some(true) } else { self.test_clock.and(Some(false)) };
        self
    }

    /// Disables I/O: creating a socket, a signal listener or a child process panics, as in a Tokio
    /// runtime without `enable_io`. For tests of libraries that must not use I/O.
    pub fn disable_io(mut self) -> Self {
        self.config.is_io_disabled = true;
        self
    }

    /// Disables time: creating a timer panics, as in a Tokio runtime without `enable_time`. For
    /// tests of libraries that must not use timers.
    pub fn disable_time(mut self) -> Self {
        self.config.is_time_disabled = true;
        self
    }

    /// Makes `seed` determine the order of polls, so that a test can replay it. For
    /// [current-thread runtimes](Self::new_current_thread).
    ///
    /// Before each poll, the runtime chooses the next task at random from all tasks that are ready;
    /// the future in [`Runtime::block_on`](crate::runtime::Runtime::block_on) is one of them.
    /// `seed` is the seed of the random numbers. So with the same seed, a program polls its tasks
    /// in the same order, and other seeds lead to other orders.
    /// [`Handle::schedule_fingerprint`](crate::handle::Handle::schedule_fingerprint) is a hash of
    /// the order. `volt::select!` chooses its first branch in the same way.
    ///
    /// The runtime is isolated from everything that differs between two runs:
    ///
    /// * Its clock is a [test clock](Self::test_clock) that is paused. It advances to the next
    ///   timer when no task is ready. `volt::time::resume` ends the run with a panic.
    /// * Creating a socket, a signal listener or a child process panics. `volt::sim::net` has
    ///   simulated connections.
    /// * `spawn_blocking` runs the closure as a task, on the thread of the runtime, in one poll.
    ///   Files therefore work, but the runtime does not control what they contain.
    /// * There is no sentinel and no control socket.
    ///
    /// If no task is ready and no timer is armed, nothing can wake a task any more, and `block_on`
    /// panics with the tasks that wait.
    ///
    /// The runtime does not control the rest of the program: threads that the program starts,
    /// iteration over a `HashMap` with the standard hasher, random numbers other than those of
    /// `volt::sim::random`, `std::time`, the numbers in task ids, and the macro `tokio::select!`.
    /// The tasks of a `LocalSet` count as one task. A program that depends on these may behave
    /// differently with the same seed.
    ///
    /// [`build`](Self::build) fails for a multi-thread runtime and with `tokio_compat`. Only
    /// [`Runtime::block_on`](crate::runtime::Runtime::block_on) may run the runtime, on one thread
    /// at a time; [`Handle::block_on`](crate::handle::Handle::block_on) panics.
    ///
    /// ```
    /// # use volt_core as volt;
    /// fn order(seed: u64) -> Vec<u32> {
    ///     let runtime = volt::Builder::new_current_thread().seed(seed).build().unwrap();
    ///     let (sender, receiver) = std::sync::mpsc::channel();
    ///     runtime.block_on(async {
    ///         let spawn = |number| {
    ///             let sender = sender.clone();
    ///             volt::spawn(async move { sender.send(number).unwrap() })
    ///         };
    ///         for task in [spawn(1), spawn(2), spawn(3), spawn(4)] {
    ///             task.await.unwrap();
    ///         }
    ///     });
    ///     receiver.try_iter().collect()
    /// }
    /// assert_eq!(order(7), order(7));
    /// assert!((0..100).any(|seed| order(seed) != order(7)));
    /// ```
    #[cfg(feature = "sim")]
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Some(seed);
        self
    }

    /// Sets the maximum number of polls of a runtime with a [seed](Self::seed), at least 1. Default
    /// 10,000,000.
    ///
    /// At this number of polls, `block_on` panics. So a test whose tasks wake each other for ever
    /// fails instead of running on. Without a seed, the setting has no effect.
    ///
    /// ```should_panic
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_current_thread().seed(7).poll_limit(1000).build().unwrap();
    /// runtime.block_on(async {
    ///     loop {
    ///         volt::task::yield_now().await;
    ///     }
    /// });
    /// ```
    #[cfg(feature = "sim")]
    pub fn poll_limit(mut self, polls: u64) -> Self {
        self.config.poll_limit = polls;
        self
    }
}
