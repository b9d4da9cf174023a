//! The benchmark's peer for Volt's processes, in either form, on a runtime with default settings:
//! all counters and the control socket are enabled.
//!
//! Mailboxes: 1,024 messages, and a sender waits for room. Addresses: pids, looked up for each
//! message.

use std::marker::PhantomData;

use volt_process::{Payload, Pid, Process, Spawn, System};

use crate::peer::{Order, Peer};

/// The form in which a process is written.
pub(crate) trait Form: 'static {
    const NAME: &'static str;
    fn idle() -> impl Process;
    fn node() -> impl Process;
}

pub(crate) struct Volt<F> {
    runtime: volt::Runtime,
    system: System,
    form: PhantomData<F>,
}

impl<F: Form> Volt<F> {
    /// Runs `task` as a task, and waits for it.
    fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime.block_on(self.runtime.spawn(task)).expect("no task of the bench panics")
    }

    fn spawn<P: Process>(&self, count: usize, process: impl Fn() -> P + Send + 'static) -> Vec<Pid> {
        let system = self.system.clone();
        self.run(async move {
            let spawn = |_| system.spawn(Spawn::new(process())).expect("there is room");
            (0..count).map(spawn).collect()
        })
    }

    fn end(&self, pids: Vec<Pid>) {
        let system = self.system.clone();
        self.run(async move { pids.iter().for_each(|&pid| assert!(system.cancel(pid), "it lives")) });
    }
}

impl<F: Form> Peer for Volt<F> {
    const NAME: &'static str = F::NAME;
    type Idle = Pid;
    type Node = Pid;

    fn start(workers: usize) -> Self {
        let runtime = volt::Builder::new_multi_thread().worker_threads(workers).build().expect("Volt starts");
        let system = System::new(runtime.handle());
        Self { runtime, system, form: PhantomData }
    }

    fn idle(&self, count: usize) -> Vec<Pid> {
        self.spawn(count, F::idle)
    }

    fn end_idle(&self, idle: Vec<Pid>) {
        self.end(idle);
    }

    fn nodes(&self, count: usize) -> Vec<Pid> {
        self.spawn(count, F::node)
    }

    fn end_nodes(&self, nodes: Vec<Pid>) {
        self.end(nodes);
    }

    fn send_orders(&self, orders: Vec<(Pid, Order<Pid>)>) {
        let system = self.system.clone();
        self.run(async move {
            for (to, order) in orders {
                let payload = match order {
                    Order::Token(token) => Payload::new(token),
                    order => Payload::new(order),
                };
                system.send(to, payload).await.expect("the node lives");
            }
        });
    }
}
