//! The subjects: Volt with its defaults, and with one setting changed.

use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use volt::{Builder, ParkSpin};

use crate::peer::Peer;

pub(crate) const COUNT: usize = 2;
/// In the order of the turns.
pub(crate) const NAMES: [&str; COUNT] = [Adaptive::NAME, Off::NAME];

pub(crate) type Adaptive = Volt<Defaults>;
pub(crate) type Off = Volt<NoSpin>;

/// One setting.
pub(crate) trait Setting: Send + 'static {
    const NAME: &'static str;

    fn set(builder: Builder) -> Builder;
}

macro_rules! setting {
    ($setting:ident, $name:literal, $set:expr) => {
        pub(crate) struct $setting;

        impl Setting for $setting {
            const NAME: &'static str = $name;

            fn set(builder: Builder) -> Builder {
                let set: fn(Builder) -> Builder = $set;
                set(builder)
            }
        }
    };
}

setting!(Defaults, "defaults", |builder| builder);
setting!(NoSpin, "park_spin(Off)", |builder| builder.park_spin(ParkSpin::Off));

/// A runtime with that setting.
pub(crate) struct Volt<S: Setting>(volt::Runtime, PhantomData<S>);

/// Checks that no wake-up was lost and rescued by the park time-out, which would make the figures
/// worthless.
impl<S: Setting> Drop for Volt<S> {
    fn drop(&mut self) {
        let rescues: u64 = self.0.handle().snapshot().workers.iter().map(|worker| worker.lost_wakeup_rescues).sum();
        assert_eq!(rescues, 0, "{}: a wake-up was lost, or came later than the park time-out", S::NAME);
    }
}

impl<S: Setting> Peer for Volt<S> {
    const NAME: &'static str = S::NAME;
    type Join<T: Send + 'static> = volt::task::JoinHandle<T>;

    fn start(workers: usize) -> Self {
        let builder = Builder::new_multi_thread().worker_threads(workers);
        Self(S::set(builder).build().expect("Volt starts"), PhantomData)
    }

    fn spawn_from_outside<F>(&self, future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.spawn(future)
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<F>(future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        volt::spawn(future)
    }

    async fn join<T: Send + 'static>(join: Self::Join<T>) -> T {
        join.await.expect("no task of the bench panics")
    }

    fn detach<T: Send + 'static>(join: Self::Join<T>) {
        drop(join);
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        volt::task::yield_now()
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        volt::time::sleep(time)
    }

    async fn unblock(f: impl FnOnce() + Send + 'static) {
        volt::task::spawn_blocking(f).await.expect("no job of the bench panics");
    }
}
