//! Panics at random, in a given share of the steps of the process that it wraps.
//!
//! It raises the panics without the panic hook, which would print each of them. The runtime catches
//! them like any other panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use volt_process::{Context, Events, Failure, Output, Payload, Process};

use crate::tally::Tally;

/// The share of steps that panic, for any number of processes.
pub(crate) struct Chaos {
    ratio: f64,
    tally: Arc<Tally>,
    seeds: AtomicU64,
}

/// A process whose steps may panic, including `init`.
pub(crate) struct Chaotic<P> {
    process: P,
    chaos: Arc<Chaos>,
    random: u64,
}

impl Chaos {
    pub(crate) fn new(ratio: f64, tally: Arc<Tally>) -> Arc<Self> {
        Arc::new(Self { ratio, tally, seeds: AtomicU64::new(1) })
    }

    pub(crate) fn is_on(&self) -> bool {
        self.ratio > 0.0
    }

    pub(crate) fn wrap<P: Process>(self: &Arc<Self>, process: P) -> Chaotic<P> {
        // ORDERING: Relaxed; the value must only be unique.
        let seed = self.seeds.fetch_add(1, Ordering::Relaxed);
        Chaotic { process, chaos: self.clone(), random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }
}

impl<P> Chaotic<P> {
    fn may_panic(&mut self) {
        if !self.chaos.is_on() {
            return;
        }
        // xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let drawn = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        if drawn < self.chaos.ratio {
            // ORDERING: Relaxed; a counter.
            self.chaos.tally.panics.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("chaos"));
        }
    }
}

impl<P: Process> Process for Chaotic<P> {
    fn methods(&self) -> &[&'static str] {
        self.process.methods()
    }

    fn init(&mut self, context: &Context, method: &str, input: Payload) -> Result<(), Failure> {
        self.may_panic();
        self.process.init(context, method, input)
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        self.may_panic();
        self.process.step(events, out)
    }

    fn close(&mut self) {
        self.process.close();
    }

    fn takes_events(&self) -> bool {
        self.process.takes_events()
    }
}
