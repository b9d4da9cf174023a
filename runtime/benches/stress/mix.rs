//! Mixed work for a runtime, and the properties that must hold: nothing is lost, everything is
//! counted once, and afterwards every worker sleeps.
//!
//! Used by the benchmark `stress` (10^8 polls) and the test of that name (10^6), and built with
//! ThreadSanitizer by `.ci/tsan`.
//!
//! A *mix* is the life of one runtime. Outside threads submit *root* tasks, a bounded number at a
//! time. Each root, chosen by a seeded sequence, yields, spawns children, plays ping-pong, sleeps,
//! aborts or is aborted, panics, uses up its budget, blocks, or waits to be woken by a thread that
//! is not a worker. Then the runtime must come to rest, perhaps several times. In the end it is
//! shut down with tasks alive.
//!
//! Every future holds a [`Token`]. Tokens created and dropped are counted here, separately from the
//! runtime's own counts.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use volt::task::{JoinHandle, consume_budget, yield_now};
use volt::telemetry::{Phase, Snapshot, Worker};
use volt::{Handle, Placement};

/// Maximum number of roots of one outside thread that are alive together.
const WINDOW: usize = 128;
/// One of this many crowds is submitted one by one.
const LONELY: u64 = 8;
/// Generations of children.
const DEPTH: u32 = 3;
/// Tasks that are alive when the runtime is shut down.
const LEFT_ALIVE: usize = 200;
/// When the crowd wakes up: after all of its tasks were polled.
const CROWD_SLEEPS: Duration = Duration::from_millis(100);
/// If there was no poll for this long, something hangs.
const HANGS: Duration = Duration::from_secs(60);
/// How often the runtime is checked while it works.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// One runtime and the amount of its work.
#[derive(Clone, Debug)]
pub struct Mix {
    pub workers: usize,
    /// Threads that submit roots.
    pub outsiders: u64,
    pub placement: Placement,
    /// Rescues lost wake-ups. Without it, a lost wake-up hangs.
    pub park_timeout: Option<Duration>,
    /// Small rings overflow.
    pub local_queue_capacity: usize,
    pub polls: u64,
    /// Stretches of work, each with the same number of polls and followed by a rest.
    pub stretches: u64,
    /// Tasks that are alive together in the beginning, each with a timer. If these are more than
    /// the mix ever has, no queue and no slab grows later.
    pub crowd: usize,
    pub seed: u64,
}

/// The work that a mix did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub polls: u64,
    pub spawned: u64,
    pub completed: u64,
    pub cancelled: u64,
    pub panicked: u64,
    pub blocking: u64,
    pub timers: u64,
    pub steals: u64,
    pub overflows: u64,
    pub parks: u64,
    pub rescues: u64,
}

impl Done {
    pub fn add(&mut self, other: &Done) {
        self.polls += other.polls;
        self.spawned += other.spawned;
        self.completed += other.completed;
        self.cancelled += other.cancelled;
        self.panicked += other.panicked;
        self.blocking += other.blocking;
        self.timers += other.timers;
        self.steals += other.steals;
        self.overflows += other.overflows;
        self.parks += other.parks;
        self.rescues += other.rescues;
    }
}

/// Counts of tasks that the tasks themselves maintain.
#[derive(Default)]
struct Tally {
    made: AtomicU64,
    gone: AtomicU64,
    cancelled: AtomicU64,
    panicked: AtomicU64,
    jobs: AtomicU64,
}

fn count(cell: &AtomicU64) {
    // Relaxed: read when the workers sleep or have exited, and counting must not order what it
    // observes.
    cell.fetch_add(1, Ordering::Relaxed);
}

/// Held by every future.
struct Token(Arc<World>);

impl Token {
    fn new(world: &Arc<World>) -> Self {
        count(&world.tally.made);
        Self(world.clone())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        count(&self.0.tally.gone);
    }
}

/// The state that the tasks of a mix share.
struct World {
    tally: Tally,
    /// Sends to the thread that wakes tasks from outside.
    bell: mpsc::Sender<Arc<Signal>>,
}

/// A flag that one task waits for and any thread sets.
#[derive(Default)]
struct Signal {
    is_set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Signal {
    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn wait(&self) {
        poll_fn(|cx| {
            *self.waker.lock().unwrap() = Some(cx.waker().clone());
            if self.is_set.swap(false, Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// xorshift64* (Vigna, 2016).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        // Any seed but 0, with neighbouring seeds far apart.
        Self((seed.wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One task of the mix, chosen from `seed`.
fn work(world: Arc<World>, seed: u64, depth: u32) -> Work {
    let token = Token::new(&world);
    Box::pin(async move {
        let _token = token;
        let mut random = Random::new(seed);
        match random.below(1_000) {
            0..400 => yields(random.below(48)).await,
            400..620 if depth < DEPTH => children(&world, &mut random, depth).await,
            620..760 => ping_pong(&world, random.below(12)).await,
            760..800 => volt::time::sleep(Duration::from_micros(random.below(1_500))).await,
            800..830 => {
                let limit = Duration::from_micros(random.below(200));
                volt::time::timeout(limit, pending::<()>()).await.unwrap_err();
            }
            830..890 => abort(&world, &mut random).await,
            890..920 => panics(&world, random.below(3)).await,
            920..925 => block(&world).await,
            925..960 => woken_from_outside(&world, random.below(4)).await,
            960..970 => {
                for _ in 0..300 {
                    consume_budget().await;
                }
            }
            _ => yield_now().await,
        }
    })
}

async fn yields(times: u64) {
    for _ in 0..times {
        yield_now().await;
    }
}

async fn children(world: &Arc<World>, random: &mut Random, depth: u32) {
    let child = |seed| volt::spawn(work(world.clone(), seed, depth + 1));
    let mut joined = Vec::new();
    for _ in 0..=random.below(6) {
        let child = child(random.next());
        if random.below(3) > 0 {
            joined.push(child);
        }
    }
    for child in joined {
        child.await.expect("only children that return are joined here");
    }
}

/// Two tasks that wake each other.
async fn ping_pong(world: &Arc<World>, rounds: u64) {
    let (ping, pong) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
    let token = Token::new(world);
    let partner = volt::spawn({
        let (ping, pong) = (ping.clone(), pong.clone());
        async move {
            let _token = token;
            for _ in 0..rounds {
                ping.wait().await;
                pong.set();
            }
        }
    });
    for _ in 0..rounds {
        ping.set();
        pong.wait().await;
    }
    partner.await.unwrap();
}

/// A task that would run forever and is aborted while scheduled, running or idle.
async fn abort(world: &Arc<World>, random: &mut Random) {
    let token = Token::new(world);
    let is_idle = random.below(2) == 0;
    let victim = volt::spawn(async move {
        let _token = token;
        if is_idle {
            pending::<()>().await;
        }
        yields(u64::MAX).await;
    });
    yields(random.below(4)).await;
    victim.abort();
    assert!(victim.await.unwrap_err().is_cancelled());
    count(&world.tally.cancelled);
}

/// A task that panics, without the hook that would print each panic.
async fn panics(world: &Arc<World>, after: u64) {
    let token = Token::new(world);
    let victim: JoinHandle<()> = volt::spawn(async move {
        let _token = token;
        yields(after).await;
        resume_unwind(Box::new("on purpose"));
    });
    assert!(victim.await.unwrap_err().is_panic());
    count(&world.tally.panicked);
}

async fn block(world: &Arc<World>) {
    count(&world.tally.jobs);
    volt::task::spawn_blocking(std::thread::yield_now).await.unwrap();
}

async fn woken_from_outside(world: &Arc<World>, times: u64) {
    let signal = Arc::new(Signal::default());
    for _ in 0..times {
        world.bell.send(signal.clone()).expect("the ringer lives as long as the mix");
        signal.wait().await;
    }
}

fn sum(snapshot: &Snapshot, of: impl Fn(&Worker) -> u64) -> u64 {
    snapshot.workers.iter().map(of).sum()
}

fn polls(snapshot: &Snapshot) -> u64 {
    sum(snapshot, |worker| worker.polls)
}

/// Submits roots until the runtime has polled `target` times, a crowd at a time. Now and then it
/// submits each root as soon as the one before has ended, when the workers are about to sleep. With
/// one outside thread, no other thread would then wake a worker that missed it.
fn outsider(handle: &Handle, world: &Arc<World>, seed: u64, target: u64) {
    let mut random = Random::new(seed);
    let mut alive = VecDeque::new();
    let mut crowds = 0;
    while polls(&handle.snapshot()) < target {
        crowds += 1;
        let is_lonely = crowds % LONELY == 0;
        for _ in 0..WINDOW {
            let root = work(world.clone(), random.next(), 0);
            // Half of them use `try_spawn`; the queue is never full here.
            let root = if random.below(2) == 0 { handle.spawn(root) } else { handle.try_spawn(root).unwrap() };
            if is_lonely {
                while !root.is_finished() {
                    std::hint::spin_loop();
                }
                (0..random.below(100)).for_each(|_| std::hint::spin_loop());
            }
            alive.push_back(root);
            if alive.len() > WINDOW {
                handle.block_on(alive.pop_front().expect("more than none")).unwrap();
            }
        }
    }
    alive.into_iter().for_each(|root| handle.block_on(root).unwrap());
}

/// Runs one runtime through its life. Calls `watch` now and then while it works, and `rest` each
/// time it rests.
///
/// # Panics
/// Panics if any property in the header of this file does not hold. If the work does not end, it
/// aborts the program.
pub fn run(mix: &Mix, mut watch: impl FnMut(&Snapshot), mut rest: impl FnMut()) -> Done {
    let runtime = volt::Builder::new_multi_thread()
        .name("stress")
        .worker_threads(mix.workers)
        .placement(mix.placement)
        .park_timeout(mix.park_timeout)
        .local_queue_capacity(mix.local_queue_capacity)
        .max_blocking_threads(4)
        .control_socket(false)
        .build()
        .unwrap();
    let (bell, rung) = mpsc::channel::<Arc<Signal>>();
    let world = Arc::new(World { tally: Tally::default(), bell });
    let ringer = std::thread::spawn(move || rung.into_iter().for_each(|signal| signal.set()));
    crowd(runtime.handle(), &world, mix.crowd);
    let mut done = Done::default();
    for stretch in 1..=mix.stretches {
        work_through(runtime.handle(), &world, mix, stretch, &mut watch);
        done = at_rest(runtime.handle(), &world, mix);
        rest();
    }
    ended(runtime, &world, &mut done);
    // The runtime has dropped every task: this is the last sender.
    let world = Arc::into_inner(world).expect("nothing holds a token any more");
    drop(world.bell);
    ringer.join().unwrap();
    done
}

/// Spawns many tasks from outside, which sleep, are woken together and end.
fn crowd(handle: &Handle, world: &Arc<World>, tasks: usize) {
    let deadline = Instant::now() + CROWD_SLEEPS;
    let one = || {
        let token = Token::new(world);
        handle.spawn(async move {
            let _token = token;
            volt::time::sleep_until(deadline.into()).await;
        })
    };
    let crowd: Vec<_> = (0..tasks).map(|_| one()).collect();
    crowd.into_iter().for_each(|task| handle.block_on(task).unwrap());
}

/// Does one stretch of work. Stretches are numbered from 1.
fn work_through(handle: &Handle, world: &Arc<World>, mix: &Mix, stretch: u64, watch: impl FnMut(&Snapshot)) {
    let target = mix.polls * stretch / mix.stretches;
    let seed = |number| mix.seed.wrapping_mul(mix.stretches).wrapping_add(stretch).wrapping_mul(mix.outsiders) + number;
    std::thread::scope(|scope| {
        let outsider = |number| scope.spawn(move || outsider(handle, world, seed(number), target));
        let outsiders: Vec<_> = (0..mix.outsiders).map(outsider).collect();
        check_until(handle, || outsiders.iter().all(|outsider| outsider.is_finished()), watch);
        // A panic of theirs is passed on to this thread.
        outsiders.into_iter().for_each(|outsider| outsider.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
}

/// Checks the runtime while it works: the properties that hold at every moment, and that it makes
/// progress.
fn check_until(handle: &Handle, is_over: impl Fn() -> bool, mut watch: impl FnMut(&Snapshot)) {
    let (mut last, mut moved_at) = (0, Instant::now());
    while !is_over() {
        std::thread::sleep(CHECK_INTERVAL);
        let snapshot = handle.snapshot();
        let tasks = &snapshot.tasks;
        assert!(tasks.spawned >= tasks.completed + tasks.cancelled + tasks.panicked, "{tasks:?}");
        if polls(&snapshot) != last {
            (last, moved_at) = (polls(&snapshot), Instant::now());
        } else if moved_at.elapsed() > HANGS {
            eprintln!("no poll for {HANGS:?}: {snapshot:#?}");
            std::process::abort();
        }
        watch(&snapshot);
    }
}

/// Waits until no task is alive and every worker sleeps, and compares all counts.
fn at_rest(handle: &Handle, world: &World, mix: &Mix) -> Done {
    let began = Instant::now();
    let is_at_rest = |snapshot: &Snapshot| {
        // Spares that replaced a worker that lost its processor leave a second later.
        let are_enough_active = snapshot.active_count() as usize == mix.workers;
        // A worker's bit shows that it is about to sleep, its phase that it sleeps.
        let sleeps = |worker: &&Worker| matches!(worker.phase, Phase::Parked | Phase::Driver);
        let all_sleep = snapshot.parked_count() as usize == mix.workers
            && snapshot.workers.iter().filter(sleeps).count() == mix.workers;
        snapshot.tasks.alive == 0 && are_enough_active && all_sleep
    };
    let snapshot = loop {
        // A snapshot does not read all cells at one moment, so the first one may have read some
        // before the workers had counted their last poll. The second one began after that.
        if is_at_rest(&handle.snapshot()) {
            let snapshot = handle.snapshot();
            if is_at_rest(&snapshot) {
                break snapshot;
            }
        }
        if began.elapsed() > HANGS {
            eprintln!("never at rest: {:#?}", handle.snapshot());
            std::process::abort();
        }
        std::thread::yield_now();
    };
    let (tasks, tally) = (&snapshot.tasks, &world.tally);
    let [made, gone, cancelled, panicked, jobs] =
        [&tally.made, &tally.gone, &tally.cancelled, &tally.panicked, &tally.jobs]
            .map(|cell| cell.load(Ordering::Relaxed));
    assert_eq!(tasks.spawned, made, "every task was counted");
    assert_eq!(tasks.completed + tasks.cancelled + tasks.panicked, made, "and ended, once: {tasks:?}");
    assert_eq!((tasks.cancelled, tasks.panicked), (cancelled, panicked));
    assert_eq!(gone, made, "every future was dropped");
    assert_eq!(snapshot.searching, 0);
    let queued = |worker: &Worker| {
        u64::from(worker.ring_len + worker.batch_len + worker.inbox_len + u32::from(worker.is_lifo_filled))
    };
    assert_eq!((snapshot.global_queue.len, sum(&snapshot, queued)), (0, 0));
    assert_eq!(sum(&snapshot, |worker| worker.tasks_stolen), sum(&snapshot, |worker| worker.tasks_given));
    assert_eq!(sum(&snapshot, |worker| worker.poll_time.count()), polls(&snapshot));
    // A thread of the pool counts its job after the job has notified its waiter.
    while handle.snapshot().blocking.completed < jobs {
        std::thread::yield_now();
    }
    assert_eq!(snapshot.blocking.submitted, jobs);
    let rescues = sum(&snapshot, |worker| worker.lost_wakeup_rescues);
    assert_eq!(rescues, 0, "a wake-up was lost");
    Done {
        polls: polls(&snapshot),
        spawned: tasks.spawned,
        completed: tasks.completed,
        cancelled: tasks.cancelled,
        panicked: tasks.panicked,
        blocking: jobs,
        timers: snapshot.timers.fired,
        steals: sum(&snapshot, |worker| worker.steals),
        overflows: sum(&snapshot, |worker| worker.overflows),
        parks: sum(&snapshot, |worker| worker.parks),
        rescues,
    }
}

/// Shuts the runtime down with tasks alive, which must all end.
fn ended(runtime: volt::Runtime, world: &Arc<World>, done: &mut Done) {
    let handle = runtime.handle().clone();
    for number in 0..LEFT_ALIVE {
        let token = Token::new(world);
        runtime.spawn(async move {
            let _token = token;
            match number % 3 {
                0 => pending().await,
                1 => yields(u64::MAX).await,
                _ => volt::time::sleep(Duration::from_secs(3_600)).await,
            }
        });
    }
    drop(runtime);
    let tasks = handle.snapshot().tasks;
    assert_eq!(tasks.spawned, done.spawned + LEFT_ALIVE as u64);
    assert_eq!((tasks.cancelled, tasks.alive), (done.cancelled + LEFT_ALIVE as u64, 0), "{tasks:?}");
    assert_eq!(world.tally.gone.load(Ordering::Relaxed), world.tally.made.load(Ordering::Relaxed));
    done.spawned = tasks.spawned;
    done.cancelled = tasks.cancelled;
}
